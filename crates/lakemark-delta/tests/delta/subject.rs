//! A table as somebody else works on it: entries and checkpoints as other writers of Delta make them.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use async_trait::async_trait;
use delta_kernel::{Engine, Snapshot, SnapshotRef};
use delta_kernel_engine::DefaultEngineBuilder;
use delta_kernel_engine::executor::tokio::TokioMultiThreadExecutor;
use futures::TryStreamExt;
use lakemark::{AttemptNonce, SchemaMode, TableSubject};
use lakemark_delta::DeltaTable;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode};
use parquet::arrow::ArrowWriter;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use url::Url;

/// The rows of the files here: one column.
pub fn one_column() -> Arc<Schema> {
    Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, true)]))
}

/// Writes a Parquet file of three of them.
pub fn write_three_rows(file: &mut dyn Write) {
    write(file, &RecordBatch::try_new(one_column(), vec![three()]).unwrap(), SchemaMode::Fail);
}

/// Writes one with a column more, which its table may get.
pub fn write_a_column_more(file: &mut dyn Write) {
    let columns: [(&str, ArrayRef); 2] = [("id", three()), ("more", three())];
    let batch = RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)));
    write(file, &batch.unwrap(), SchemaMode::Merge);
}

fn three() -> ArrayRef {
    Arc::new(Int64Array::from(vec![1, 2, 3]))
}

fn write(file: &mut dyn Write, batch: &RecordBatch, mode: SchemaMode) {
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), None).unwrap();
    writer.write(batch).unwrap();
    mode.to_footer().into_iter().for_each(|said| writer.append_key_value_metadata(said));
    writer.close().unwrap();
    file.write_all(&bytes).unwrap();
}

/// A table, and its objects by their paths below its root.
#[derive(Debug)]
pub struct Subject {
    table: DeltaTable,
    objects: Arc<dyn ObjectStore>,
    url: Url,
}

impl Subject {
    /// `table`, whose objects are `objects`; `url` has the scheme of where they are.
    pub fn new(table: DeltaTable, objects: Arc<dyn ObjectStore>, url: &str) -> Self {
        Self { table, objects, url: Url::parse(url).unwrap() }
    }

    /// The names in the log, sorted.
    pub async fn log(&self) -> Vec<String> {
        let listed = self.objects.list(Some(&Path::from("_delta_log")));
        let mut names: Vec<String> =
            listed.map_ok(|meta| meta.location.filename().unwrap().to_owned()).try_collect().await.unwrap();
        names.sort_unstable();
        names
    }

    async fn remove_entry(&self, version: u64) {
        self.objects.delete(&entry(version)).await.unwrap();
    }

    fn engine(&self) -> Arc<dyn Engine> {
        let executor = TokioMultiThreadExecutor::new(tokio::runtime::Handle::current());
        Arc::new(DefaultEngineBuilder::new(Arc::clone(&self.objects)).with_task_executor(Arc::new(executor)).build())
    }

    async fn snapshot(&self, version: Option<u64>) -> Option<SnapshotRef> {
        if self.log().await.is_empty() {
            return None;
        }
        let (engine, url) = (self.engine(), self.url.clone());
        let build = move || {
            let builder = Snapshot::builder_for(url);
            let builder = version.into_iter().fold(builder, |builder, version| builder.at_version(version));
            builder.build(engine.as_ref()).unwrap()
        };
        Some(tokio::task::spawn_blocking(build).await.unwrap())
    }

    /// The paths of the log and the sizes of what is live in `version`.
    async fn live(&self, version: Option<u64>) -> BTreeMap<String, i64> {
        let Some(snapshot) = self.snapshot(version).await else { return BTreeMap::new() };
        let engine = self.engine();
        let scan = move || {
            let mut live = BTreeMap::new();
            for batch in snapshot.scan_builder().build().unwrap().scan_metadata(engine.as_ref()).unwrap() {
                live = batch
                    .unwrap()
                    .visit_scan_files(live, |live: &mut BTreeMap<String, i64>, file| {
                        assert_eq!(live.insert(file.path.clone(), file.size), None, "{} is live twice", file.path);
                    })
                    .unwrap();
            }
            live
        };
        tokio::task::spawn_blocking(scan).await.unwrap()
    }

    /// The newest version.
    pub async fn version(&self) -> Option<u64> {
        self.snapshot(None).await.map(|snapshot| snapshot.version())
    }

    /// Creates the next entry: `lines`, behind what says who wrote it.
    pub async fn commit(&self, operation: &str, parameters: Value, lines: &[Value]) {
        let version = self.version().await.map_or(0, |version| version + 1);
        let info = json!({ "commitInfo": {
            "timestamp": 0, "operation": operation, "operationParameters": parameters, "engineInfo": "somebody else",
        }});
        let lines: Vec<String> = [&info].into_iter().chain(lines).map(Value::to_string).collect();
        let options = PutMode::Create.into();
        self.objects.put_opts(&entry(version), lines.join("\n").into(), options).await.unwrap();
    }

    async fn new_file(&self, data_change: bool) -> Value {
        let name = format!("part {}.parquet", AttemptNonce::random());
        let mut bytes = Vec::new();
        write_three_rows(&mut bytes);
        let size = bytes.len();
        self.objects.put(&Path::from(name.as_str()), bytes.into()).await.unwrap();
        json!({ "add": {
            "path": name.replace(' ', "%20"), "partitionValues": {}, "size": size, "modificationTime": 0, "dataChange": data_change,
        }})
    }
}

fn entry(version: u64) -> Path {
    Path::from(format!("_delta_log/{version:020}.json"))
}

/// What makes a new table of [`one_column`].
pub fn new_table() -> [Value; 2] {
    let schema =
        json!({ "type": "struct", "fields": [{ "name": "id", "type": "long", "nullable": true, "metadata": {} }] });
    [
        json!({ "protocol": { "minReaderVersion": 1, "minWriterVersion": 2 } }),
        json!({ "metaData": {
            "id": uuid::Uuid::new_v4().to_string(), "format": { "provider": "parquet", "options": {} },
            "schemaString": schema.to_string(), "partitionColumns": [], "configuration": {}, "createdTime": 0,
        }}),
    ]
}

fn remove(path: &str) -> Value {
    json!({ "remove": { "path": path, "deletionTimestamp": 0, "dataChange": false } })
}

#[async_trait]
impl TableSubject for Subject {
    type Table = DeltaTable;

    fn open(&self) -> DeltaTable {
        self.table.clone()
    }

    async fn live_paths(&self) -> Vec<String> {
        let decoded = |path: String| percent_decode_str(&path).decode_utf8().unwrap().into_owned();
        let mut paths: Vec<String> = self.live(None).await.into_keys().map(decoded).collect();
        paths.sort_unstable();
        paths
    }

    async fn foreign_append(&self) {
        let mut lines = if self.version().await.is_none() { new_table().to_vec() } else { Vec::new() };
        lines.push(self.new_file(true).await);
        self.commit("WRITE", json!({ "mode": "Append" }), &lines).await;
    }

    async fn compact(&self) {
        let mut lines: Vec<Value> = self.live(None).await.keys().map(|path| remove(path)).collect();
        lines.push(self.new_file(false).await);
        self.commit("OPTIMIZE", json!({}), &lines).await;
    }

    async fn clean_log(&self) {
        let (engine, snapshot) = (self.engine(), self.snapshot(None).await.unwrap());
        let newest = snapshot.version();
        let checkpoint = move || snapshot.checkpoint(engine.as_ref(), None).map(drop).unwrap();
        tokio::task::spawn_blocking(checkpoint).await.unwrap();
        for name in self.log().await.into_iter().filter(|name| name.ends_with(".json")) {
            let version: u64 = name[..20].parse().unwrap();
            if version < newest {
                self.remove_entry(version).await;
            }
        }
    }

    async fn restore(&self, version: u64) {
        let (then, now) = (self.live(Some(version)).await, self.live(None).await);
        let removed = now.keys().filter(|path| !then.contains_key(*path)).map(|path| remove(path));
        let added = then.iter().filter(|(path, _)| !now.contains_key(*path)).map(|(path, size)| {
            json!({ "add": {
                "path": path, "partitionValues": {}, "size": size, "modificationTime": 0, "dataChange": true,
            }})
        });
        let lines: Vec<Value> = removed.chain(added).collect();
        self.commit("RESTORE", json!({ "version": version.to_string() }), &lines).await;
    }

    async fn recreate(&self) {
        for name in self.log().await {
            self.objects.delete(&Path::from(format!("_delta_log/{name}"))).await.unwrap();
        }
        self.commit("CREATE TABLE", json!({}), &new_table()).await;
    }
}
