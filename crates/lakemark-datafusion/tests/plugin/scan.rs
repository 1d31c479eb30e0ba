//! What the scan takes in: filters, columns, one partition a task; and what it shows.

use std::sync::{Arc, Mutex};

use datafusion::arrow::array::{Int64Array, RecordBatch, StringArray};
use datafusion::common::assert_contains;
use datafusion::physical_plan::{ExecutionPlan, collect, displayable};
use datafusion::prelude::SessionConfig;
use lakemark_datafusion::{CheckpointedScanExec, Outcome, Progress, SealExec};
use rstest::rstest;

use crate::support::{Job, Lab, Rows, data};

/// One file of 20 row groups of 2,000 rows with long texts, ascending ids.
fn long_lake() -> Lab {
    let lab = Lab::new();
    let text =
        |id: i64| format!("{:032x}{:032x}", u128::from(id as u64).wrapping_mul(0x9e3779b97f4a7c15f39cc0605cedc834), id);
    let ids = || 0..40_000_i64;
    let batch = data::table(vec![
        ("id", Arc::new(ids().collect::<Int64Array>()), false),
        ("n", Arc::new(ids().map(|id| id % 7).collect::<Int64Array>()), false),
        ("text", Arc::new(ids().map(|id| Some(text(id))).collect::<StringArray>()), true),
    ]);
    lab.write("docs/all.parquet", &batch, 2_000);
    lab
}

async fn plan_of(job: &Job<'_>, sql: &str) -> String {
    let (ctx, _checkpoints) = job.session().await.unwrap();
    let plan = ctx.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
    displayable(plan.as_ref()).indent(true).to_string()
}

#[tokio::test]
async fn columns_and_filters_are_pushed_into_the_scan() {
    let lab = Lab::standard();
    let plan = plan_of(&lab.job("job", ""), "SELECT id FROM docs WHERE n > 10").await;
    let scan = plan.split_once("CheckpointedScanExec").unwrap().1;
    assert_contains!(scan, "projection=[id, n]");
    assert_contains!(scan, "predicate=n@2 > 10,");
    assert_contains!(scan, "pruning_predicate=n_null_count");
    assert_contains!(plan, "FilterExec");
}

#[tokio::test]
async fn with_pushdown_filters_the_scan_filters_alone() {
    let lab = Lab::standard();
    let mut job = lab.job("job", "SELECT id FROM docs WHERE n > 10 AND text LIKE '%1%'");
    job.config = SessionConfig::new().set_bool("datafusion.execution.parquet.pushdown_filters", true);
    let plan = plan_of(&job, job.sql()).await;
    assert!(!plan.contains("FilterExec"), "{plan}");
    job.clone().max_tasks(5).ok().await;
    job.exact().await;
    assert_eq!(job.ok().await.outcome, Outcome::Nothing);
}

#[rstest]
#[case::statistics(false, "SELECT id, text FROM docs WHERE id < 1000")]
#[case::pages(true, "SELECT id, text FROM docs WHERE id BETWEEN 4100 AND 4110")]
#[tokio::test]
async fn what_statistics_rule_out_is_not_read_and_counts_as_done(#[case] pushdown: bool, #[case] sql: &str) {
    let lab = long_lake();
    let whole = lab.job("whole", "SELECT id, text FROM docs").exact().await;
    let mut job = lab.job("job", sql);
    job.config = SessionConfig::new().set_bool("datafusion.execution.parquet.pushdown_filters", pushdown);
    job.clone().max_tasks(7).ok().await;
    let second = job.exact().await;
    assert!(second.bytes.read * 4 < whole.bytes.read, "{} of {}", second.bytes.read, whole.bytes.read);
    let third = job.ok().await;
    assert_eq!((third.outcome, third.atoms.done), (Outcome::Nothing, 20));
    assert_eq!((third.requests.source.get, third.requests.source.head), (0, 0));
}

#[tokio::test]
async fn a_column_alone_costs_fewer_bytes_than_all() {
    let lab = long_lake();
    let whole = lab.job("whole", "SELECT * FROM docs").packed().exact().await;
    let one = lab.job("one", "SELECT n FROM docs").packed().exact().await;
    assert!(one.bytes.read * 4 < whole.bytes.read, "{} of {}", one.bytes.read, whole.bytes.read);
}

/// The line of EXPLAIN that says what was pruned, and why.
async fn pruned(job: &Job<'_>, sql: &str) -> String {
    let plan = plan_of(job, sql).await;
    plan.lines().find(|line| line.contains("CheckpointedScanExec")).unwrap().trim().to_owned()
}

#[tokio::test]
async fn explain_shows_what_was_pruned_and_why() {
    let lab = Lab::standard();
    let job = lab.job("job", "SELECT id FROM docs");
    let all = "SELECT id FROM docs";
    assert_eq!(pruned(&job, all).await, "CheckpointedScanExec: source=docs, tasks=12, files=6, done=0, new=6");
    job.clone().max_tasks(5).concurrency(1).ok().await;
    assert_eq!(
        pruned(&job, all).await,
        "CheckpointedScanExec: source=docs, tasks=7, files=6, done=2, new=3, partly done=1"
    );
    assert_eq!(
        pruned(&job, "SELECT id FROM docs WHERE lang = 'fr'").await,
        "CheckpointedScanExec: source=docs, tasks=4, files=6, done=2, new=2, excluded by partition=2"
    );
    let rewritten = data::docs(9_000, 40);
    lab.write("docs/lang=de/part-1.parquet", &rewritten, 20);
    assert_eq!(
        pruned(&job, all).await,
        "CheckpointedScanExec: source=docs, tasks=9, files=6, done=1, new=3, partly done=1, replaced=1"
    );
    job.ok().await;
    assert_eq!(pruned(&job, all).await, "CheckpointedScanExec: source=docs, tasks=0, files=6, done=6");
    // As a query of a person, and with rows to show for it.
    let (ctx, _checkpoints) = job.session().await.unwrap();
    let shown = Rows::of(ctx.sql("EXPLAIN SELECT id FROM docs").await.unwrap()).await;
    assert!(shown.rows.iter().any(|row| row.contains("tasks=0, files=6, done=6")), "{shown:?}");
    assert_eq!(Rows::of(ctx.sql("SELECT count(*) FROM docs").await.unwrap()).await.rows, ["0"]);
}

/// Keeps the plans that ran.
#[derive(Default)]
struct Plans(Mutex<Vec<Arc<dyn ExecutionPlan>>>);

impl Progress for Plans {
    fn executed(&self, plan: &Arc<dyn ExecutionPlan>) {
        self.0.lock().unwrap().push(Arc::clone(plan));
    }
}

fn find<T: ExecutionPlan + 'static>(plan: &Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    match plan.downcast_ref::<T>() {
        Some(_) => Arc::clone(plan),
        None => find::<T>(plan.children()[0]),
    }
}

fn metric(plan: &Arc<dyn ExecutionPlan>, name: &str) -> usize {
    plan.metrics().unwrap().iter().map(|m| m.value()).filter(|m| m.name() == name).map(|m| m.as_usize()).sum()
}

#[tokio::test]
async fn operators_have_metrics() {
    let lab = Lab::standard();
    let plans = Arc::new(Plans::default());
    let mut job = lab.job("job", "SELECT id FROM docs WHERE n % 2 = 1").packed();
    job.progress = Arc::clone(&plans) as Arc<dyn Progress>;
    let report = job.exact().await;
    let plan = plans.0.lock().unwrap()[0].clone();
    let seal = find::<SealExec>(&plan);
    assert_eq!(metric(&seal, "output_rows") as u64, report.rows.out);
    assert_eq!(metric(&seal, "bytes_written") as u64, report.bytes.written);
    assert!(metric(&seal, "write_time") > 0 && metric(&seal, "seal_time") > 0);
    let scan = find::<CheckpointedScanExec>(&plan);
    assert_eq!((metric(&scan, "output_rows"), metric(&scan, "files_opened")), (240, 6));
    assert_eq!(metric(&scan, "files_left_out"), 0);
    let native = scan.children()[0];
    assert!(metric(native, "bytes_scanned") > 0);
    assert_eq!(metric(native, "output_rows"), 240);
}

/// T1: a partition is its task's rows and no others, however often and in whatever order it is executed.
#[tokio::test]
async fn a_partition_is_a_task() {
    let lab = Lab::standard();
    let job = lab.job("job", "");
    let (ctx, _checkpoints) = job.session().await.unwrap();
    let frame = ctx.sql("SELECT id FROM docs").await.unwrap();
    let plan = frame.create_physical_plan().await.unwrap();
    let scan = find::<CheckpointedScanExec>(&plan);
    let partitions = scan.properties().partitioning.partition_count();
    assert_eq!(partitions, 12);
    let mut ids: Vec<Vec<i64>> = Vec::new();
    for partition in (0..partitions).rev().chain(0..partitions) {
        let stream = scan.execute(partition, ctx.task_ctx()).unwrap();
        let batches: Vec<RecordBatch> = datafusion::physical_plan::common::collect(stream).await.unwrap();
        let text = Rows::of_batches(vec!["id".into()], &batches).rows;
        let mut of_one: Vec<i64> = text.iter().map(|id| id.parse().unwrap()).collect();
        of_one.sort_unstable();
        ids.push(of_one);
    }
    let (backwards, forwards) = ids.split_at(partitions);
    let mut once: Vec<i64> = Vec::new();
    for (partition, ids) in forwards.iter().enumerate() {
        assert_eq!(ids.len(), 20, "one row group of one file");
        assert_eq!(ids[19] - ids[0], 19, "of one file");
        assert_eq!(ids, &backwards[partitions - 1 - partition], "the same again");
        once.extend(ids);
    }
    once.sort_unstable();
    assert_eq!(once, (0..240).collect::<Vec<i64>>());
    assert_eq!(collect(plan, ctx.task_ctx()).await.unwrap().iter().map(RecordBatch::num_rows).sum::<usize>(), 240);
}

/// What a store knows of files, by SQL.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_files_of_a_store_are_a_table() {
    let lab = Lab::standard();
    lab.job("job", "SELECT id FROM docs").max_tasks(3).ok().await;
    let ctx = datafusion::prelude::SessionContext::new();
    lakemark_datafusion::register_files_function(&ctx, lakemark::StorageOptions::default());
    let sql = format!(
        "SELECT state, count(*) AS files, sum(atoms) AS atoms FROM lakemark_files('{}') GROUP BY state ORDER BY state",
        lab.url("job.store")
    );
    let rows = crate::support::Rows::of(ctx.sql(&sql).await.unwrap()).await;
    assert_eq!(rows.rows, ["done | 1 | 2", "partly done | 1 | 1"]);
    assert!(ctx.sql("SELECT * FROM lakemark_files(7)").await.is_err());
}
