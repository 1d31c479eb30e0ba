//! Commits of 10,000 files each into a table that grows to 100,000 files and more: what the first one asks for, one into the
//! full table, and recovery from there. Of every table format, each in a bench of its own crate.
//!
//! The table is in memory and counts requests and bytes; the memory of this process is told as what it rose by at most,
//! objects that were put included. Ends with an error when a bound does not hold.
#![allow(clippy::unwrap_used, reason = "a bound that does not hold is to end the bench")]

use std::sync::Arc;
use std::time::Instant;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::{Field, Schema};
use lakemark::faults::{FaultStore, Op, Request};
use lakemark::{
    Bucket, CommitDriver, Expected, Intent, OutputFile, OutputSink, Root, Settled, Sink, StoreId, Table, TableState,
};
use object_store::memory::InMemory;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};
use parquet::arrow::{ArrowWriter, PARQUET_FIELD_ID_META_KEY};
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};

const FILES: usize = 10_000;
/// Delta writes a checkpoint of its log with every tenth version: that of the eleventh commit.
const COMMITS: u64 = 11;
/// Room for the lines of 10,000 files, several times over: nothing here grows with the table.
const MOST_MEMORY: u64 = 256 << 20;

/// Makes the driver of a process to the table in a bucket, for rows.
type Driver<T> = Box<dyn Fn(&Bucket, &RecordBatch) -> CommitDriver<T>>;

/// What a format brings along.
pub struct Format<T: Table> {
    /// The driver of a further process to the table at [`root`].
    pub driver: Driver<T>,
    /// The ids of the four columns in the files, for a format that knows columns by ids.
    pub ids: bool,
    /// The folder of the data files below the root.
    pub data: &'static str,
    /// Whether the object at a path is of the table's log, and no data file.
    pub is_log: fn(&str) -> bool,
}

/// One store's side of the table, over processes that come and go.
struct Bench<T: Table> {
    format: Format<T>,
    faults: FaultStore,
    bucket: Bucket,
    rows: RecordBatch,
    bytes: PutPayload,
    metadata: ParquetMetaData,
    store: StoreId,
    sink: CommitDriver<T>,
    committed: Vec<OutputFile>,
    n: u64,
    table: Option<TableState>,
}

/// What something took.
struct Cost {
    log: Vec<Request>,
    read: u64,
    seconds: f64,
    memory: u64,
}

/// Where the table is.
pub fn root() -> Root {
    Root::parse("memory://bench/out").unwrap()
}

/// A line of `/proc/self/status`, in bytes.
fn status(line: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix(line)).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

impl<T: Table> Bench<T> {
    fn new(format: Format<T>) -> Self {
        let column = |at: i64| Arc::new(Int64Array::from(vec![at, at + 1, at + 2])) as ArrayRef;
        let text = Arc::new(StringArray::from(vec!["first of the rows", "second of the rows", "third"])) as ArrayRef;
        let rows = [("id", column(1)), ("n", column(7)), ("day", column(20_000)), ("text", text)];
        let rows = RecordBatch::try_from_iter_with_nullable(rows.map(|(name, column)| (name, column, true))).unwrap();
        let mut bytes = Vec::new();
        let schema = if format.ids { with_ids(&rows.schema()) } else { rows.schema() };
        let mut writer = ArrowWriter::try_new(&mut bytes, Arc::clone(&schema), None).unwrap();
        writer.write(&rows.clone().with_schema(schema).unwrap()).unwrap();
        writer.close().unwrap();
        let bytes = bytes::Bytes::from(bytes);
        let metadata = ParquetMetaDataReader::new().parse_and_finish(&bytes).unwrap();
        let objects = Arc::new(InMemory::new());
        let faults = FaultStore::new(Arc::clone(&objects) as Arc<dyn ObjectStore>);
        let bucket = Bucket { objects: Arc::new(faults.clone()), uploads: objects };
        let sink = (format.driver)(&bucket, &rows);
        let (store, bytes) = (StoreId::random(), PutPayload::from_bytes(bytes));
        Self { format, faults, bucket, rows, bytes, metadata, store, sink, committed: Vec::new(), n: 0, table: None }
    }

    /// Files that wait, as tasks leave them.
    async fn stage(&mut self) -> Vec<OutputFile> {
        self.n += 1;
        let mut files = Vec::with_capacity(FILES);
        for i in 0..FILES {
            let (n, size) = (self.n, self.bytes.content_length() as u64);
            let name = format!("lm-0123456789ab-{n:010}-{i:010}-0000-0123456789abcdef-0000.parquet");
            let file = OutputFile { name, folder: String::new(), size, rows: 3, upload: None };
            self.faults
                .put(&format!("out/{}{}", self.format.data, file.path()).into(), self.bytes.clone())
                .await
                .unwrap();
            self.sink.wrote(&file, &self.metadata);
            files.push(file);
        }
        files
    }

    /// Another process takes over: nothing of what was written is known to it.
    fn take_over(&mut self) {
        self.sink = (self.format.driver)(&self.bucket, &self.rows);
    }

    async fn measured<D>(&self, what: &str, work: impl Future<Output = D>) -> (D, Cost) {
        self.faults.take_log();
        std::fs::write("/proc/self/clear_refs", "5").unwrap();
        let (before, began) = (status("VmRSS:"), Instant::now());
        let done = work.await;
        let seconds = began.elapsed().as_secs_f64();
        let memory = status("VmHWM:").saturating_sub(before);
        let log = self.faults.take_log();
        let mut read = 0;
        for request in log.iter().filter(|request| request.op == Op::Get) {
            let path = request.path.as_str().into();
            read += match request.range {
                Some(bytes) => bytes,
                None => self.bucket.objects.head(&path).await.map_or(0, |meta| meta.size),
            };
        }
        self.faults.take_log();
        let count = |op: Op| log.iter().filter(|request| request.op == op).count();
        let put: u64 = log.iter().map(|request| request.bytes).sum();
        println!(
            "{what} | {} | {} | {} | {:.2} | {:.2} | {:.0} | {seconds:.2}",
            count(Op::List),
            count(Op::Get),
            count(Op::Put),
            read as f64 / 1e6,
            put as f64 / 1e6,
            memory as f64 / 1e6,
        );
        (done, Cost { log, read, seconds, memory })
    }

    /// Commits `files` under the number they were staged for.
    async fn commit(&mut self, files: &[OutputFile], what: &str, recovered: bool) -> Cost {
        let (digest, base) = (format!("digest {}", self.n), self.table.clone());
        let bare = Intent::bare(files);
        let intent = Intent { store: self.store, n: self.n, digest: &digest, base: base.as_ref(), recovered, ..bare };
        let (settled, cost) = self.measured(what, self.sink.commit(&intent)).await;
        let Settled::Done { table: Some(table), .. } = settled.unwrap() else { panic!("it is not done") };
        self.table = Some(table);
        if !self.committed.ends_with(files) {
            self.committed.extend_from_slice(files);
        }
        cost
    }

    fn expected(&self) -> Expected {
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

/// The columns as a new Iceberg table numbers them.
fn with_ids(schema: &Schema) -> Arc<Schema> {
    let field = |(i, field): (usize, &Arc<Field>)| {
        let id = [(PARQUET_FIELD_ID_META_KEY.to_owned(), (i + 1).to_string())];
        field.as_ref().clone().with_metadata(id.into())
    };
    Arc::new(Schema::new(schema.fields().iter().enumerate().map(field).collect::<Vec<_>>()))
}

impl Cost {
    fn looks_at_data(&self, is_log: fn(&str) -> bool) -> usize {
        self.log.iter().filter(|request| request.op == Op::Get && !is_log(&request.path)).count()
    }

    fn is_bounded(&self) {
        assert!(self.memory < MOST_MEMORY, "{} bytes of memory", self.memory);
    }
}

/// Runs all of it.
///
/// # Panics
/// When a bound does not hold.
pub async fn run<T: Table>(format: Format<T>) {
    let is_log = format.is_log;
    let mut bench = Bench::new(format);
    println!("what | listings | reads | writes | MB read | MB written | MB of memory | seconds");
    let files = bench.stage().await;
    let first = bench.commit(&files, "commit 1, into no table", false).await;
    for n in 2..=COMMITS {
        let files = bench.stage().await;
        bench.commit(&files, &format!("commit {n}"), false).await.is_bounded();
    }
    let files = bench.stage().await;
    let full = bench.commit(&files, "commit 12, into 110,000 files", false).await;
    full.is_bounded();
    assert_eq!((first.looks_at_data(is_log), full.looks_at_data(is_log)), (0, 0), "no data file is looked at");
    println!("a commit into the full table takes {:.2} of the time of the first", full.seconds / first.seconds);

    // The answer was lost, and the process with it.
    let files = bench.stage().await;
    let before = bench.table.clone();
    bench.commit(&files, "commit 13", false).await;
    bench.table = before;
    bench.take_over();
    let landed = bench.commit(&files, "recovery of commit 13, which had landed", true).await;
    landed.is_bounded();
    assert_eq!(landed.looks_at_data(is_log), 0, "its marker says so");

    let files = bench.stage().await;
    bench.take_over();
    let absent = bench.commit(&files, "recovery of commit 14, which had not", true).await;
    absent.is_bounded();
    assert!(absent.looks_at_data(is_log) <= 3 * FILES, "only its own files are looked at");

    bench.take_over();
    let expected = bench.expected();
    let (checked, check) = bench.measured("what a run checks first", bench.sink.check(Some(&expected))).await;
    checked.unwrap();
    check.is_bounded();
    assert_eq!(check.looks_at_data(is_log), 0, "no data file is looked at");
    assert!(check.read < absent.read, "the table is not read for it");
}
