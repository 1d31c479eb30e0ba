//! One store's side of a destination, for tests of table formats: rows through the writer of tasks, commits through the driver.
#![allow(clippy::unwrap_used, reason = "what fails is to panic")]

use std::sync::Arc;

use crate::identity::{AttemptNonce, CheckpointId, Epoch, InputId, StoreId};
use crate::sink::{Intent, OutputOptions, OutputSink, Settled, TaskWriter};
use crate::store::{Expected, OutputFile, TableState};
use arrow_array::RecordBatch;
use arrow_schema::Schema;

/// A store that writes to one table.
pub struct TableWriter {
    /// The store.
    pub store: StoreId,
    /// The table, for its rows.
    pub sink: Arc<dyn OutputSink>,
    /// What was committed so far.
    pub committed: Vec<OutputFile>,
    /// The number of the last commit.
    pub n: u64,
    /// The table behind it.
    pub table: Option<TableState>,
    options: Arc<OutputOptions>,
    schema: Arc<Schema>,
    tasks: u32,
}

impl TableWriter {
    /// Of rows of `schema`, to `sink`, partitioned by columns of them.
    ///
    /// # Panics
    /// When the sink does not take such rows, here as below when it does what it must not.
    pub async fn new(sink: Arc<dyn OutputSink>, schema: &Arc<Schema>, partition_by: &[&str]) -> Self {
        let partition_by: Vec<String> = partition_by.iter().map(|column| (*column).to_owned()).collect();
        let sink = sink.partitioned(&partition_by);
        let stored = sink.storable(schema).unwrap();
        // Small groups: what is said of a file is said of several.
        let options = Arc::new(OutputOptions { max_row_group_size: 2, partition_by, ..OutputOptions::default() });
        Self {
            store: StoreId::random(),
            sink: sink.of_rows(&stored).await.unwrap(),
            committed: Vec::new(),
            n: 0,
            table: None,
            options,
            schema: Arc::clone(schema),
            tasks: 0,
        }
    }

    /// The same store by a later job: of rows of `schema`, to `sink`.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    pub async fn later(&self, sink: Arc<dyn OutputSink>, schema: &Arc<Schema>) -> Self {
        let partition_by: Vec<&str> = self.options.partition_by.iter().map(String::as_str).collect();
        let later = Self::new(sink, schema, &partition_by).await;
        let (committed, table) = (self.committed.clone(), self.table.clone());
        Self { store: self.store, committed, n: self.n, table, tasks: self.tasks, ..later }
    }

    /// The next commit, of `files`: how it ended, when somebody is to find out what became of it, too.
    ///
    /// # Errors
    /// Those of the driver.
    pub async fn try_commit(&self, files: &[OutputFile], recovered: bool) -> crate::Result<Settled> {
        let (n, digest) = (self.n + 1, format!("digest {}", self.n + 1));
        let (store, base) = (self.store, self.table.as_ref());
        self.sink.commit(&Intent { store, n, digest: &digest, base, recovered, ..Intent::bare(files) }).await
    }

    /// Writes `batch`, and lets go of what was written.
    ///
    /// # Errors
    /// Those of the writer of tasks.
    pub async fn try_stage(&self, batch: &RecordBatch) -> crate::Result<()> {
        let id = CheckpointId::first(Epoch(1), InputId(u32::MAX));
        self.writer(id).write(batch).await
    }

    fn writer(&self, id: CheckpointId) -> TaskWriter {
        let (sink, options, store) = (Arc::clone(&self.sink), Arc::clone(&self.options), self.store.short());
        let attempt = AttemptNonce::random();
        TaskWriter::new(sink, options, &self.schema, &self.schema, store, id, attempt).unwrap()
    }

    /// Files of `batch` that wait for their commit.
    pub async fn stage(&mut self, batch: &RecordBatch) -> Vec<OutputFile> {
        self.tasks += 1;
        let id = CheckpointId::first(Epoch(1), InputId(self.tasks));
        let mut writer = self.writer(id);
        writer.write(batch).await.unwrap();
        writer.finish().await.unwrap()
    }

    /// Commits `files` under the next number.
    pub async fn commit(&mut self, files: Vec<OutputFile>) -> TableState {
        let settled = self.try_commit(&files, false).await.unwrap();
        let Settled::Done { missing, table: Some(table) } = settled else { panic!("not done: {settled:?}") };
        assert!(missing.is_empty());
        self.n += 1;
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
