//! One store's side of a table: rows through the writer of tasks, commits through the driver.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::Schema;
use lakemark::{
    AttemptNonce, CheckpointId, Epoch, Expected, InputId, Intent, OutputFile, OutputSink, ParquetOptions, Settled,
    StorageOptions, StoreId, TableState, TaskWriter,
};

/// A store that writes to one table.
pub struct Writer {
    pub store: StoreId,
    pub sink: Arc<dyn OutputSink>,
    pub committed: Vec<OutputFile>,
    pub n: u64,
    pub table: Option<TableState>,
    options: Arc<ParquetOptions>,
    schema: Arc<Schema>,
    tasks: u32,
}

impl Writer {
    /// Of rows of `schema`, to the table at `url`.
    pub fn new(url: &str, schema: &Arc<Schema>, partition_by: &[&str]) -> Self {
        let partition_by: Vec<String> = partition_by.iter().map(|column| (*column).to_owned()).collect();
        let sink = lakemark_delta::connect(url, &StorageOptions::default()).unwrap().partitioned(&partition_by);
        let stored = sink.storable(schema).unwrap();
        // Small groups: what is said of a file is said of several.
        let options = Arc::new(ParquetOptions { max_row_group_size: 2, partition_by, ..ParquetOptions::default() });
        Self {
            store: StoreId::random(),
            sink: sink.of_rows(&stored),
            committed: Vec::new(),
            n: 0,
            table: None,
            options,
            schema: Arc::clone(schema),
            tasks: 0,
        }
    }

    /// Files of `batch` that wait for their commit.
    pub async fn stage(&mut self, batch: &RecordBatch) -> Vec<OutputFile> {
        self.tasks += 1;
        let id = CheckpointId::first(Epoch(1), InputId(self.tasks));
        let (sink, options, store) = (Arc::clone(&self.sink), Arc::clone(&self.options), self.store.short());
        let attempt = AttemptNonce::random();
        let mut writer = TaskWriter::new(sink, options, &self.schema, &self.schema, store, id, attempt).unwrap();
        writer.write(batch).await.unwrap();
        writer.finish().await.unwrap()
    }

    /// Commits `files` under the next number.
    pub async fn commit(&mut self, files: Vec<OutputFile>) -> TableState {
        self.n += 1;
        let digest = format!("digest {}", self.n);
        let base = self.table.take();
        let intent =
            Intent { store: self.store, n: self.n, digest: &digest, base: base.as_ref(), ..Intent::bare(&files) };
        let settled = self.sink.commit(&intent).await.unwrap();
        let Settled::Done { missing, table: Some(table) } = settled else { panic!("not done: {settled:?}") };
        assert!(missing.is_empty());
        self.table = Some(table.clone());
        self.committed.extend(files);
        table
    }

    /// Stages and commits `batch`.
    pub async fn add(&mut self, batch: &RecordBatch) -> TableState {
        let files = self.stage(batch).await;
        self.commit(files).await
    }

    /// What the store knows.
    pub fn expected(&self) -> Expected {
        Expected {
            store: self.store,
            last_commit: self.n,
            committed: self.committed.clone(),
            open: Vec::new(),
            intent: None,
            table: self.table.clone(),
        }
    }
}

/// The lines of the entry of `version` of the table in the folder `at`.
pub fn entry(at: &std::path::Path, version: u64) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(at.join(format!("_delta_log/{version:020}.json"))).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
