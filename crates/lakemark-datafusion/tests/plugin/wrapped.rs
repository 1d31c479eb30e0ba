//! Tables of other kinds as tracked sources.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::catalog::TableProvider;
use datafusion::datasource::MemTable;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::prelude::SessionContext;
use lakemark::{Error, ErrorKind, ObjectCheckpointStore, Result, SourcePolicy};
use lakemark_datafusion::{Checkpoints, LakemarkExt, Outcome, RunReport};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};
use url::Url;

use crate::support::{Lab, Rows, data, options, udf};

fn parquet() -> ListingOptions {
    ListingOptions::new(Arc::new(ParquetFormat::default()))
        .with_table_partition_cols(vec![("lang".into(), DataType::Utf8), ("year".into(), DataType::Int32)])
}

pub async fn listing(ctx: &SessionContext, url: &str, options: ListingOptions) -> Arc<dyn TableProvider> {
    let config = ListingTableConfig::new(ListingTableUrl::parse(url).unwrap()).with_listing_options(options);
    let config = config.infer_schema(&ctx.state()).await.unwrap();
    Arc::new(ListingTable::try_new(config).unwrap())
}

/// A long-lived session with the table `docs` and the lookups.
pub struct Session<'a> {
    pub lab: &'a Lab,
    pub ctx: SessionContext,
    pub provider: Arc<dyn TableProvider>,
    pub max_tasks: usize,
    pub policy: SourcePolicy,
}

impl Session<'_> {
    pub async fn run(&self, sql: &str) -> Result<RunReport> {
        let store = ObjectCheckpointStore::open(&self.lab.url("job.store"))?;
        let mut options = options();
        options.max_tasks = self.max_tasks;
        options.concurrency = 1;
        let checkpoints = Checkpoints::new(store, options);
        self.ctx.deregister_table("docs").unwrap();
        let provider = Arc::clone(&self.provider);
        self.ctx.wrap_checkpointed(&checkpoints, "docs", provider, self.policy).await?;
        let query = self.ctx.checkpointed_sql(sql).await?;
        let output = self.lab.job("job", "").output().unwrap();
        self.ctx.write_sealed(&checkpoints, query, output).await
    }

    /// Sets the modification time of a file to long ago.
    pub fn touch(&self, name: &str) {
        let file = std::fs::File::options().write(true).open(self.lab.path(name)).unwrap();
        file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    }

    /// What plain DataFusion says, with a session of its own: a listing of this one may be remembered.
    async fn expected(&self, sql: &str) -> Rows {
        let ctx = SessionContext::new();
        data::register_lookups(&ctx);
        let url = Url::parse("memory://lake/").unwrap();
        if let Ok(store) = self.ctx.runtime_env().object_store_registry.get_store(&url) {
            ctx.register_object_store(&url, store);
        }
        ctx.register_table("docs", Arc::clone(&self.provider)).unwrap();
        Rows::of(ctx.sql(sql).await.unwrap()).await
    }

    pub async fn check(&self, sql: &str) {
        assert_eq!(self.lab.rows_of("job.out", &[]).await, self.expected(sql).await, "{sql}");
    }
}

fn write(lab: &Lab, lang: &str, year: i32, first: i64) {
    lab.write(&format!("docs/lang={lang}/year={year}/part-{first}.parquet"), &data::docs(first, 40), 20);
}

async fn on_disk(lab: &Lab) -> Session<'_> {
    for (i, lang) in ["en", "de", "fr", "en"].iter().enumerate() {
        write(lab, lang, 2020 + i as i32, i as i64 * 40);
    }
    let ctx = SessionContext::new();
    data::register_lookups(&ctx);
    let provider = listing(&ctx, &lab.url("docs"), parquet()).await;
    Session { lab, ctx, provider, max_tasks: 0, policy: SourcePolicy::default() }
}

#[tokio::test]
async fn a_listing_table_is_exact_over_many_runs_of_one_session() {
    let lab = Lab::new();
    let mut session = on_disk(&lab).await;
    let sql = "SELECT d.id, d.lang, d.year + 1 AS y, l.label FROM docs d LEFT JOIN dim l ON d.k = l.k WHERE n <> 7";
    session.max_tasks = 3;
    let first = session.run(sql).await.unwrap();
    assert_eq!((first.tasks.planned, first.tasks.sealed), (8, 3));
    session.max_tasks = 0;
    let second = session.run(sql).await.unwrap();
    assert_eq!((second.tasks.planned, second.outcome), (5, Outcome::Done));
    session.check(sql).await;
    let third = session.run(sql).await.unwrap();
    assert_eq!((third.outcome, third.requests.source.get, third.requests.source.head), (Outcome::Nothing, 0, 0));

    // T6: the session remembers its listing, and a tracked source must not.
    write(&lab, "it", 2030, 900);
    let fourth = session.run(sql).await.unwrap();
    assert_eq!((fourth.tasks.planned, fourth.outcome), (2, Outcome::Done));
    session.check(sql).await;

    // The same files by their directory are the same source: the same root, paths and tokens.
    let mut job = lab.job("job", "SELECT id FROM docs");
    job.sink = Some("job.out".into());
    assert_eq!(job.ok().await.outcome, Outcome::Nothing);
}

#[tokio::test]
async fn partition_columns_keep_their_types_and_rule_out_files() {
    let lab = Lab::new();
    let session = on_disk(&lab).await;
    let sql = "SELECT id, year FROM docs WHERE year > 2021 AND n > 3";
    let report = session.run(sql).await.unwrap();
    assert_eq!((report.tasks.planned, report.sources[0].excluded), (4, 2));
    session.check(sql).await;
}

#[tokio::test]
async fn a_file_replaced_before_it_is_read_is_planned_again() {
    let lab = Lab::new();
    let session = on_disk(&lab).await;
    let path = lab.path("docs/lang=fr/year=2022/part-80.parquet");
    udf::register(&session.ctx, "look", move |ids| {
        if ids.contains(&5) {
            data::write_parquet(&path, &data::docs(7_000, 60), 20);
        }
        Ok(())
    });
    // Tasks are in the order of paths: `de` is read first, with ids from 40 on; `en` has the row with id 5.
    let report = session.run("SELECT look(id) AS id, lang, year FROM docs").await.unwrap();
    assert_eq!((report.outcome, report.rows.out), (Outcome::Done, 180));
    session.check("SELECT id, lang, year FROM docs").await;
}

/// The bytes of a Parquet file.
fn bytes(first: i64, rows: i64) -> PutPayload {
    let lab = Lab::new();
    lab.write("x", &data::docs(first, rows), 20);
    std::fs::read(lab.path("x")).unwrap().into()
}

async fn in_memory(lab: &Lab) -> (Session<'_>, Arc<InMemory>) {
    let memory = Arc::new(InMemory::new());
    for file in 0..4 {
        let key = format!("tables/docs/lang=en/year=2020/part-{file}.parquet");
        memory.put(&Path::from(key), bytes(file * 40, 40)).await.unwrap();
    }
    let ctx = SessionContext::new();
    data::register_lookups(&ctx);
    let url = Url::parse("memory://lake/").unwrap();
    ctx.register_object_store(&url, Arc::clone(&memory) as Arc<dyn ObjectStore>);
    let provider = listing(&ctx, "memory://lake/tables/docs/", parquet()).await;
    (Session { lab, ctx, provider, max_tasks: 0, policy: SourcePolicy::default() }, memory)
}

#[tokio::test]
async fn objects_are_read_by_etag() {
    let lab = Lab::new();
    let (mut session, memory) = in_memory(&lab).await;
    let sql = "SELECT id, text, lang, year FROM docs";
    session.max_tasks = 3;
    session.run(sql).await.unwrap();
    session.max_tasks = 0;
    session.run(sql).await.unwrap();
    session.check(sql).await;
    assert_eq!(session.run(sql).await.unwrap().outcome, Outcome::Nothing);

    // Other content of the same size, as only an etag can tell it.
    memory.put(&Path::from("tables/docs/lang=en/year=2020/part-2.parquet"), bytes(8_000, 40)).await.unwrap();
    let report = session.run(sql).await.unwrap();
    assert_eq!((report.sources[0].replaced, report.rows.out), (1, 40));
    assert_eq!(session.run(sql).await.unwrap().outcome, Outcome::Nothing);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_replaced_before_it_is_read_is_planned_again() {
    let lab = Lab::new();
    let (session, memory) = in_memory(&lab).await;
    udf::register(&session.ctx, "look", move |ids| {
        if ids.contains(&5) {
            let key = Path::from("tables/docs/lang=en/year=2020/part-3.parquet");
            let put = memory.put(&key, bytes(7_000, 60));
            futures::executor::block_on(put).unwrap();
        }
        Ok(())
    });
    let report = session.run("SELECT look(id) AS id, lang FROM docs").await.unwrap();
    assert_eq!((report.outcome, report.rows.out), (Outcome::Done, 180));
    session.check("SELECT id, lang FROM docs").await;
}

pub async fn refusal(provider: Arc<dyn TableProvider>) -> Error {
    let lab = Lab::new();
    let ctx = SessionContext::new();
    let store = ObjectCheckpointStore::open(&lab.url("job.store")).unwrap();
    let checkpoints = Checkpoints::new(store, options());
    ctx.wrap_checkpointed(&checkpoints, "docs", provider, SourcePolicy::default()).await.unwrap_err()
}

#[tokio::test]
async fn what_cannot_be_tracked_says_what_can() {
    let lab = Lab::new();
    let ctx = SessionContext::new();
    let memory = data::docs(0, 3);
    let memory = refusal(Arc::new(MemTable::try_new(memory.schema(), vec![vec![memory]]).unwrap())).await;
    lab.write("docs/a.parquet", &data::docs(0, 3), 10);
    let limited = ctx.read_parquet(lab.url("docs"), Default::default()).await.unwrap().limit(0, Some(1)).unwrap();
    let view = refusal(limited.into_view()).await;
    for (error, needle) in [(memory, "DataSourceExec"), (view, "its scan selects rows")] {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.what().contains(needle), "{error}");
        assert!(error.ways().iter().any(|way| way.contains("Parquet")), "{error}");
    }
}

/// A table of one's own, whose scan is that of another one.
#[derive(Debug)]
struct Own(Arc<dyn TableProvider>);

#[async_trait::async_trait]
impl TableProvider for Own {
    fn schema(&self) -> datafusion::arrow::datatypes::SchemaRef {
        self.0.schema()
    }

    fn table_type(&self) -> datafusion::logical_expr::TableType {
        datafusion::logical_expr::TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn datafusion::catalog::Session,
        projection: Option<&Vec<usize>>,
        filters: &[datafusion::logical_expr::Expr],
        limit: Option<usize>,
    ) -> datafusion::error::Result<Arc<dyn datafusion::physical_plan::ExecutionPlan>> {
        self.0.scan(state, projection, filters, limit).await
    }
}

/// Its root is the folder that its files share, and stays so when fewer of them are left to tell it.
#[tokio::test]
async fn a_table_of_ones_own_is_exact_over_many_runs() {
    let lab = Lab::new();
    let mut session = on_disk(&lab).await;
    session.provider = Arc::new(Own(session.provider));
    let sql = "SELECT id, lang, year FROM docs WHERE n <> 7";
    session.max_tasks = 3;
    session.run(sql).await.unwrap();
    session.max_tasks = 0;
    assert_eq!(session.run(sql).await.unwrap().tasks.planned, 5);
    session.check(sql).await;
    std::fs::remove_dir_all(lab.path("docs/lang=de")).unwrap();
    std::fs::remove_dir_all(lab.path("docs/lang=fr")).unwrap();
    write(&lab, "en", 2031, 700);
    let last = session.run(sql).await.unwrap();
    assert_eq!((last.tasks.planned, last.sources[0].vanished), (2, 2));
    assert_eq!(session.run(sql).await.unwrap().outcome, Outcome::Nothing);
}

/// The table's own way of reading is kept: here, strings without views.
#[tokio::test]
async fn a_parquet_table_keeps_its_read_options() {
    let lab = Lab::new();
    let mut session = on_disk(&lab).await;
    let format = ParquetFormat::default().with_enable_pruning(false).with_force_view_types(false);
    let options = ListingOptions::new(Arc::new(format))
        .with_table_partition_cols(vec![("lang".into(), DataType::Utf8), ("year".into(), DataType::Int32)]);
    session.provider = listing(&session.ctx, &lab.url("docs"), options).await;
    let text = session.provider.schema().field_with_name("text").unwrap().data_type().clone();
    assert_eq!(text, DataType::Utf8);
    session.run("SELECT id, text FROM docs").await.unwrap();
    session.check("SELECT id, text FROM docs").await;
}
