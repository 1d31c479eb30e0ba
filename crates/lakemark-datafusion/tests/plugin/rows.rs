//! Rows mode: what is done is told by key, whatever the rows come from.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema};
use datafusion::catalog::TableProvider;
use datafusion::datasource::MemTable;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
use datafusion::physical_plan::displayable;
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use lakemark::{DirectorySink, Error, ErrorKind, NullKeys, ObjectCheckpointStore, Root, TaskSizing, Wait};
use lakemark_datafusion::{
    Checkpoints, LakemarkExt, OnDuplicate, Options, Outcome, Output, RowKeys, RowsSpec, RunReport, SealedExt,
    SourceSpec,
};
use proptest::prelude::*;
use tempfile::TempDir;

/// A table in memory, a store and a destination.
struct Shop {
    dir: TempDir,
    /// Each partition's batches.
    table: Vec<Vec<RecordBatch>>,
    keys: RowKeys,
    options: Options,
    sql: &'static str,
    /// Rows that the query has worked on.
    worked: Arc<AtomicU64>,
    /// `work(n)` fails when it has worked on so many more rows; never below 0.
    fails_in: Arc<AtomicI64>,
}

fn batch(rows: &[(i64, &str)]) -> RecordBatch {
    let ids: ArrayRef = Arc::new(rows.iter().map(|(id, _)| Some(*id)).collect::<Int64Array>());
    let texts: ArrayRef = Arc::new(rows.iter().map(|(_, text)| Some(*text)).collect::<StringArray>());
    let fields = vec![Field::new("id", DataType::Int64, true), Field::new("text", DataType::Utf8, true)];
    RecordBatch::try_new(Arc::new(Schema::new(fields)), vec![ids, texts]).unwrap()
}

fn numbered(ids: impl IntoIterator<Item = i64>) -> RecordBatch {
    let texts: Vec<(i64, String)> = ids.into_iter().map(|id| (id, format!("text {id}"))).collect();
    batch(&texts.iter().map(|(id, text)| (*id, text.as_str())).collect::<Vec<_>>())
}

/// Rows with these ids, as integers of another width.
fn of_kind(ids: Vec<Option<i64>>, kind: &DataType) -> RecordBatch {
    let texts: ArrayRef = Arc::new(ids.iter().map(|_| Some("text")).collect::<StringArray>());
    let ids: ArrayRef = Arc::new(Int64Array::from(ids));
    let ids = datafusion::arrow::compute::cast(&ids, kind).unwrap();
    let fields = vec![Field::new("id", kind.clone(), true), Field::new("text", DataType::Utf8, true)];
    RecordBatch::try_new(Arc::new(Schema::new(fields)), vec![ids, texts]).unwrap()
}

impl Shop {
    fn new(table: Vec<Vec<RecordBatch>>) -> Self {
        let sizing = TaskSizing { rows: 10, ..TaskSizing::default() };
        Self {
            dir: tempfile::tempdir().unwrap(),
            table,
            keys: RowKeys::on(["id"]),
            options: Options { concurrency: 2, retries: 0, sizing, wait: Wait::Takeover, ..Options::default() },
            sql: "SELECT CAST(id AS BIGINT) AS id, work(CAST(id AS BIGINT)) AS n FROM docs",
            worked: Arc::default(),
            fails_in: Arc::new(AtomicI64::new(i64::MAX)),
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn provider(&self) -> Arc<dyn TableProvider> {
        let schema = self.table.iter().flatten().next().map_or_else(|| batch(&[]).schema(), RecordBatch::schema);
        Arc::new(MemTable::try_new(schema, self.table.clone()).unwrap())
    }

    async fn session(&self) -> lakemark::Result<(SessionContext, Checkpoints)> {
        let ctx = SessionContext::new();
        let (worked, fails_in) = (Arc::clone(&self.worked), Arc::clone(&self.fails_in));
        let work = move |args: &[ColumnarValue]| {
            let numbers = args[0].clone().into_array(1)?;
            let rows = numbers.len() as i64;
            if fails_in.fetch_sub(rows, Ordering::SeqCst) < rows {
                return Err(DataFusionError::Execution("it broke".to_owned()));
            }
            worked.fetch_add(rows as u64, Ordering::SeqCst);
            let numbers = numbers.as_primitive::<Int64Type>();
            let tenfold: Int64Array = numbers.iter().map(|n| n.map(|n| n * 10)).collect();
            Ok(ColumnarValue::Array(Arc::new(tenfold)))
        };
        let work = create_udf("work", vec![DataType::Int64], DataType::Int64, Volatility::Volatile, Arc::new(work));
        ctx.register_udf(work);
        let key = Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, true)]));
        ctx.register_table("none", Arc::new(MemTable::try_new(key, vec![vec![]]).unwrap())).unwrap();
        let store = ObjectCheckpointStore::open(self.at("store").to_str().unwrap())?;
        let checkpoints = Checkpoints::new(store, self.options.clone());
        let spec = RowsSpec {
            name: "docs".into(),
            root: Root::parse("memory://shop/docs").unwrap(),
            format: "table".into(),
            provider: self.provider(),
            keys: self.keys.clone(),
        };
        ctx.register_rows(&checkpoints, spec).await?;
        Ok((ctx, checkpoints))
    }

    async fn run(&self) -> lakemark::Result<RunReport> {
        let (ctx, checkpoints) = self.session().await?;
        let query = ctx.checkpointed_sql(self.sql).await?;
        let sink = DirectorySink::open("parquet", self.at("out").to_str().unwrap())?;
        query.write_sealed(&checkpoints, Output::parquet(sink)).await
    }

    async fn done(&self) -> RunReport {
        let report = self.run().await.unwrap();
        assert_eq!(report.outcome, Outcome::Done, "{report:?}");
        report
    }

    async fn nothing(&self) {
        let before = self.objects();
        let report = self.run().await.unwrap();
        assert_eq!(report.outcome, Outcome::Nothing, "{report:?}");
        assert_eq!(before, self.objects(), "no work, no write");
    }

    /// Objects of the store.
    fn objects(&self) -> usize {
        fn below(path: PathBuf) -> usize {
            let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
            entries.map(|entry| if entry.path().is_dir() { below(entry.path()) } else { 1 }).sum()
        }
        below(self.at("store"))
    }

    /// The rows of the output, with how often each is there.
    async fn rows(&self) -> BTreeMap<(Option<i64>, Option<i64>), u32> {
        let mut rows = BTreeMap::new();
        if !self.at("out").exists() {
            return rows;
        }
        let ctx = SessionContext::new();
        let out = self.at("out");
        let frame = ctx.read_parquet(out.to_str().unwrap(), ParquetReadOptions::default()).await.unwrap();
        for batch in frame.collect().await.unwrap() {
            let column = |i: usize| batch.column(i).as_primitive::<Int64Type>().iter().collect::<Vec<_>>();
            for row in column(0).into_iter().zip(column(1)) {
                *rows.entry(row).or_default() += 1;
            }
        }
        rows
    }

    async fn has(&self, ids: impl IntoIterator<Item = i64>) {
        let wanted: BTreeMap<_, _> = ids.into_iter().map(|id| ((Some(id), Some(id * 10)), 1)).collect();
        assert_eq!(self.rows().await, wanted);
    }
}

#[tokio::test]
async fn only_rows_that_are_not_done_are_worked_on() {
    let mut shop = Shop::new(vec![vec![numbered(0..25)], vec![numbered(25..40)]]);
    let report = shop.done().await;
    assert_eq!((report.tasks.sealed, report.tasks.planned, report.rows.rows_in, report.rows.out), (5, 5, 40, 40));
    let keys = report.sources[0].keys.unwrap();
    assert_eq!((keys.keys, keys.read, keys.done, keys.repeated, keys.new), (0, 40, 0, 0, 40));
    shop.has(0..40).await;
    shop.nothing().await;
    // Other partitions, other batches, more rows between those that are done.
    shop.table = vec![vec![numbered(30..45)], vec![numbered(0..7), numbered(-3..30)], vec![]];
    shop.table[2].push(numbered(0..0));
    let report = shop.run().await;
    let report = report.unwrap();
    assert_eq!(report.rows.rows_in, 8);
    let keys = report.sources[0].keys.unwrap();
    assert_eq!((keys.keys, keys.read, keys.done, keys.repeated, keys.new), (40, 55, 47, 0, 8));
    shop.has(-3..45).await;
    assert_eq!(shop.worked.load(Ordering::SeqCst), 48);
    shop.nothing().await;
}

#[tokio::test]
async fn r47_rows_that_the_query_drops_are_done_too() {
    let mut shop = Shop::new(vec![vec![numbered(0..30)]]);
    shop.sql = "SELECT id, work(id) AS n FROM docs WHERE id % 3 = 0";
    let report = shop.done().await;
    assert_eq!((report.rows.rows_in, report.rows.out, shop.worked.load(Ordering::SeqCst)), (30, 10, 10));
    shop.nothing().await;
    assert_eq!(shop.worked.load(Ordering::SeqCst), 10);
    // All of them dropped: sealed without a file.
    let mut shop = Shop::new(vec![vec![numbered(0..30)]]);
    shop.sql = "SELECT id, work(id) AS n FROM docs WHERE text = 'none'";
    assert_eq!(shop.done().await.rows.out, 0);
    shop.nothing().await;
    // And those that a join with an empty lookup drops, which asks for no row of them.
    let mut shop = Shop::new(vec![vec![numbered(0..30)]]);
    shop.sql = "SELECT id, work(id) AS n FROM docs JOIN none ON docs.id = none.k";
    assert_eq!(shop.done().await.rows.out, 0);
    shop.nothing().await;
}

#[tokio::test]
async fn filters_stay_above_the_keys_and_columns_of_the_key_are_read() {
    let shop = Shop::new(vec![vec![numbered(0..3)]]);
    let (ctx, _) = shop.session().await.unwrap();
    let plan = async |sql: &str| {
        let query = ctx.checkpointed_sql(sql).await.unwrap();
        displayable(query.create_physical_plan().await.unwrap().as_ref()).indent(false).to_string()
    };
    let text = plan("SELECT upper(text) AS t FROM docs WHERE text LIKE '%1' AND id > 0").await;
    let place = |what: &str| text.find(what).unwrap_or_else(|| panic!("no {what} in\n{text}"));
    assert!(
        place("FilterExec: id@0 > 0 AND text@1 LIKE") < place("KeyFilterExec: source=docs, on=[id], tasks=1"),
        "{text}"
    );
    assert!(place("KeyFilterExec") < place("DataSourceExec"), "{text}");
    assert!(!text[place("KeyFilterExec")..].contains("LIKE"), "{text}");
    let text = plan("SELECT text FROM docs").await;
    assert!(text.contains("ProjectionExec: expr=[text@0 as text]"), "{text}");
    // What lakemark's own run makes of it is the same, over a lake too.
    let refused = ctx.checkpointed_sql("SELECT id FROM docs LIMIT 3").await.unwrap();
    let (_, checkpoints) = shop.session().await.unwrap();
    let error = refused.run_sealed(&checkpoints).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
}

#[tokio::test]
async fn r110_of_rows_with_one_key_one_is_done() {
    let twice = || vec![vec![numbered([1, 2, 1, 3]), numbered([2])], vec![numbered([3, 4, 4])]];
    let shop = Shop::new(twice());
    let report = shop.done().await;
    let keys = report.sources[0].keys.unwrap();
    assert_eq!((report.rows.rows_in, keys.read, keys.repeated, keys.new), (4, 8, 4, 4));
    shop.has(1..5).await;
    shop.nothing().await;

    let mut shop = Shop::new(twice());
    shop.keys.on_duplicate = OnDuplicate::Fail;
    for _ in 0..2 {
        // In each run, whatever earlier ones sealed.
        let error = shop.run().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        let text = error.to_string();
        assert!(text.contains("have one key") && text.contains("on_duplicate = \"first\""), "{text}");
    }
    let rows = shop.rows().await;
    assert!(rows.values().all(|times| *times == 1), "{rows:?}");
    shop.table = vec![vec![numbered([1, 2, 3])], vec![numbered([4])]];
    shop.run().await.unwrap();
    shop.has(1..5).await;
}

#[tokio::test]
async fn a_crash_costs_the_slices_in_flight_and_no_more() {
    let mut shop = Shop::new(vec![vec![numbered(0..100)]]);
    shop.options.concurrency = 1;
    shop.fails_in.store(45, Ordering::SeqCst);
    let error = shop.run().await.unwrap_err();
    assert!(error.to_string().contains("it broke"), "{error}");
    shop.has(0..40).await;
    shop.fails_in.store(i64::MAX, Ordering::SeqCst);
    shop.options.max_tasks = 3;
    let report = shop.run().await.unwrap();
    assert_eq!((report.outcome, report.tasks.sealed), (Outcome::Partial, 3));
    shop.has(0..70).await;
    shop.options.max_tasks = 0;
    shop.done().await;
    shop.has(0..100).await;
    // A retry in one run goes on behind what is sealed.
    let mut shop = Shop::new(vec![vec![numbered(0..100)]]);
    (shop.options.concurrency, shop.options.retries) = (1, 3);
    shop.fails_in.store(45, Ordering::SeqCst);
    let again = Arc::clone(&shop.fails_in);
    let mend = tokio::spawn(async move {
        while again.load(Ordering::SeqCst) > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        again.store(i64::MAX, Ordering::SeqCst);
    });
    // A query's own error is not tried again; that of a source that does not answer is.
    let _ = shop.run().await;
    mend.await.unwrap();
    shop.done().await;
    shop.has(0..100).await;
}

#[tokio::test]
async fn r126_a_file_without_the_key_is_named_before_work_starts() {
    let shop = Shop::new(Vec::new());
    let write = |name: &str, batch: &RecordBatch| {
        let path = shop.at("lake").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let file = std::fs::File::create(path).unwrap();
        let mut writer = parquet::arrow::ArrowWriter::try_new(file, batch.schema(), None).unwrap();
        writer.write(batch).unwrap();
        writer.close().unwrap();
    };
    write("a.parquet", &numbered(0..20));
    write("b.parquet", &numbered(15..30));
    let run = async || -> Result<RunReport, Error> {
        let ctx = SessionContext::new();
        let store = ObjectCheckpointStore::open(shop.at("store").to_str().unwrap())?;
        let checkpoints = Checkpoints::new(store, shop.options.clone());
        let spec = SourceSpec::new("docs", shop.at("lake").to_str().unwrap()).with_rows(RowKeys::on(["id"]));
        ctx.register_checkpointed(&checkpoints, spec).await?;
        let query = ctx.checkpointed_sql("SELECT id, id * 10 AS n FROM docs").await?;
        let sink = DirectorySink::open("parquet", shop.at("out").to_str().unwrap())?;
        query.write_sealed(&checkpoints, Output::parquet(sink)).await
    };
    let report = run().await.unwrap();
    assert_eq!((report.rows.rows_in, report.sources[0].keys.unwrap().repeated), (30, 5));
    assert_eq!(run().await.unwrap().outcome, Outcome::Nothing);
    shop.has(0..30).await;
    // Written anew with other row groups: what is done is told by key.
    write("a.parquet", &numbered(0..21));
    write("c.parquet", &numbered(28..33));
    assert_eq!(run().await.unwrap().rows.rows_in, 3);
    shop.has(0..33).await;
    let lacks = numbered(90..95).project(&[1]).unwrap();
    write("d.parquet", &lacks);
    let error = run().await.unwrap_err();
    assert!(error.to_string().contains("d.parquet") && error.to_string().contains("`id`"), "{error}");
    shop.has(0..33).await;
}

#[tokio::test]
async fn null_keys_are_equal_or_refused() {
    let nulls = || {
        let ids: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, None, Some(2)]));
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "c", "d"]));
        vec![vec![RecordBatch::try_new(batch(&[]).schema(), vec![ids, texts]).unwrap()]]
    };
    let mut shop = Shop::new(nulls());
    assert_eq!(shop.done().await.rows.rows_in, 3);
    shop.nothing().await;
    shop = Shop::new(nulls());
    shop.keys.nulls = NullKeys::Refuse;
    let error = shop.run().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("null"), "{error}");
    assert_eq!(shop.rows().await.len(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Whatever breaks in between, and however the table is cut and typed: each key that was ever in it is in the output once,
    /// with what the query makes of its row. So it equals the plain anti-join of each round, all of them together.
    #[test]
    fn an_interrupted_run_equals_an_uninterrupted_one(
        rounds in proptest::collection::vec(
            (
                proptest::collection::vec(proptest::collection::vec(proptest::option::weighted(0.9, 0i64..60), 0..30), 1..4),
                1i64..80,
                1u64..15,
                1usize..3,
                0usize..4,
            ),
            1..5,
        ),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let mut shop = Shop::new(Vec::new());
            let mut wanted = BTreeMap::new();
            for (parts, fails_in, rows, concurrency, kind) in rounds {
                wanted.extend(parts.iter().flatten().map(|id| ((*id, id.map(|id| id * 10)), 1)));
                let kind = [DataType::Int8, DataType::Int16, DataType::Int32, DataType::Int64][kind].clone();
                shop.table = parts.into_iter().map(|ids| vec![of_kind(ids, &kind)]).collect();
                shop.options.sizing.rows = rows;
                shop.options.concurrency = concurrency;
                shop.fails_in.store(fails_in, Ordering::SeqCst);
                let _ = shop.run().await;
                let rows = shop.rows().await;
                assert!(rows.values().all(|times| *times == 1), "{rows:?}");
                shop.fails_in.store(i64::MAX, Ordering::SeqCst);
                shop.run().await.unwrap();
                assert_eq!(shop.rows().await, wanted);
                shop.nothing().await;
            }
        });
    }
}
