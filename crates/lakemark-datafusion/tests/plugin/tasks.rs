//! Running tasks: how many at once, what an error does, runs without a destination.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use datafusion::error::DataFusionError;
use lakemark::{Error, ErrorKind};
use lakemark_datafusion::{LakemarkExt, Outcome};
use rstest::rstest;

use crate::support::{Lab, data, files_below, udf};

/// T4: nothing waits for a partition that does not run.
#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_number_of_tasks_at_once_changes_nothing(
    #[values(1, 2, 8)] concurrency: usize,
    #[values(
        "SELECT id, upper(text) AS t FROM docs",
        "SELECT d.id, l.label FROM docs d JOIN dim l ON d.k = l.k",
        "SELECT d.id, l.label FROM dim l RIGHT JOIN docs d ON d.k = l.k UNION ALL SELECT id, text FROM more"
    )]
    sql: &str,
) {
    let lab = Lab::standard();
    let job = lab.job("job", sql).concurrency(concurrency);
    tokio::time::timeout(Duration::from_secs(120), job.exact()).await.expect("it hangs");
}

/// A side of a union that is finished stays in the plan, and keeps the sides of its join.
#[rstest]
#[case("SELECT d.id, l.label FROM docs d JOIN dim l ON d.k = l.k UNION ALL SELECT id, text FROM more")]
#[case(
    "SELECT d.id, l.c FROM docs d LEFT JOIN (SELECT k, count(*) AS c FROM dim GROUP BY k) l ON d.k = l.k UNION ALL SELECT id, n FROM more"
)]
#[case(
    "SELECT id, text FROM docs WHERE lang = 'none' UNION ALL SELECT m.id, l.label FROM more m JOIN dim l ON m.k = l.k"
)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_union_goes_on_when_one_source_is_done(#[case] sql: &str) {
    let lab = Lab::standard();
    let job = lab.job("job", sql);
    job.clone().max_tasks(12).concurrency(1).ok().await;
    job.exact().await;
    lab.write("more/part-9.parquet", &data::docs(5_000, 20), 10);
    assert_eq!(job.exact().await.tasks.planned, 2);
    lab.write("docs/lang=en/part-9.parquet", &data::docs(6_000, 40), 20);
    job.exact().await;
}

fn unavailable() -> DataFusionError {
    DataFusionError::External(Box::new(Error::new(ErrorKind::Unavailable, "the service did not answer")))
}

/// Fails for the row with id 60, which is in the fourth task, `times` times with `error`; how often it was asked.
fn failing(lab: &Lab, times: usize, error: fn() -> DataFusionError) -> (crate::support::Job<'_>, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    // Without folders tasks are in the order of ids.
    for file in 0..6 {
        lab.write(&format!("docs/part-{file}.parquet"), &data::docs(file * 40, 40), 20);
    }
    let job = lab.job("job", "SELECT check(id) AS id FROM docs").concurrency(1).with_setup(move |ctx| {
        let counter = Arc::clone(&counter);
        udf::register(ctx, "check", move |ids| {
            let fails = ids.contains(&60) && counter.fetch_add(1, Ordering::SeqCst) < times;
            if fails { Err(error()) } else { Ok(()) }
        });
    });
    (job, asked)
}

#[tokio::test]
async fn what_is_unavailable_is_tried_again() {
    let lab = Lab::new();
    let (job, asked) = failing(&lab, 2, unavailable);
    let report = job.ok().await;
    assert_eq!((report.outcome, report.tasks.sealed, report.tasks.failed), (Outcome::Done, 12, 0));
    assert_eq!(asked.load(Ordering::SeqCst), 3);
    assert_eq!(job.rows().await.len(), 240);
}

#[rstest]
#[case::unavailable_for_too_long(unavailable, 2, ErrorKind::Unavailable)]
#[case::an_error_of_the_query(|| DataFusionError::Execution("bad row 60".into()), 1, ErrorKind::Invalid)]
#[case::an_error_of_lakemark(
    || DataFusionError::External(Box::new(Error::new(ErrorKind::Corrupt, "bad row 60"))), 1, ErrorKind::Corrupt
)]
#[tokio::test]
async fn an_error_ends_the_run_and_keeps_what_is_sealed(
    #[case] error: fn() -> DataFusionError,
    #[case] attempts: usize,
    #[case] kind: ErrorKind,
) {
    let lab = Lab::new();
    let (mut job, asked) = failing(&lab, 2, error);
    job.options.retries = 1;
    let (report, error) = job.run().await;
    let error = error.unwrap();
    assert_eq!(error.kind(), kind, "{error}");
    assert_eq!(asked.load(Ordering::SeqCst), attempts);
    assert_eq!((report.tasks.sealed, report.tasks.failed), (3, 1), "nothing was begun after the error");
    assert_eq!(report.outcome, Outcome::of(kind));
    assert_eq!((report.commits.len(), report.commits[0].rows), (1, 60), "sealed work is committed");
    assert_eq!(job.rows().await.len(), 60);
    asked.store(9, Ordering::SeqCst);
    let report = job.ok().await;
    assert_eq!((report.tasks.planned, report.outcome), (9, Outcome::Done));
    assert_eq!(job.rows().await.len(), 240);
}

#[tokio::test]
async fn running_tasks_end_well_beside_one_that_fails() {
    let lab = Lab::new();
    let (job, _) = failing(&lab, 1, || DataFusionError::Execution("bad row 60".into()));
    let (report, error) = job.clone().concurrency(4).run().await;
    assert!(error.unwrap().to_string().contains("bad row 60"));
    assert!(report.tasks.sealed >= 3, "{:?}", report.tasks);
    job.ok().await;
    assert_eq!(job.rows().await.len(), 240);
}

#[tokio::test]
async fn a_run_without_a_destination_is_sealed_as_it_drains() {
    let lab = Lab::standard();
    let seen = udf::Seen::default();
    let counted = seen.clone();
    let job = lab.job("job", "SELECT seen(id) FROM docs WHERE n > 3").without_sink().with_setup(move |ctx| {
        let counted = counted.clone();
        udf::register(ctx, "seen", move |ids| {
            counted.add(ids.len());
            Ok(())
        });
    });
    let first = job.clone().max_tasks(5).ok().await;
    assert_eq!((first.tasks.sealed, first.outcome), (5, Outcome::Partial));
    let second = job.ok().await;
    assert_eq!((second.tasks.sealed, second.outcome), (7, Outcome::Done));
    assert_eq!(seen.take(), (0..240).filter(|id| id % 50 > 3).count());
    let third = job.ok().await;
    assert_eq!((third.outcome, third.requests.store.put, seen.take()), (Outcome::Nothing, 0, 0));
    let outputs = files_below(&lab.path("")).iter().filter(|path| path.to_string_lossy().contains("lm-")).count();
    assert_eq!(outputs, 0, "no output file anywhere");
}

#[tokio::test]
async fn a_store_keeps_to_its_destination() {
    let lab = Lab::standard();
    let job = lab.job("job", "SELECT id FROM docs");
    job.clone().max_tasks(3).ok().await;
    let without = job.clone().without_sink().err().await;
    assert_eq!(without.kind(), ErrorKind::Refused, "{without}");
    let mut other = job.clone();
    other.sink = Some("other.out".into());
    assert_eq!(other.err().await.kind(), ErrorKind::Refused);
    assert!(!lab.path("other.out").exists());

    let lone = lab.job("lone", "SELECT id FROM docs").without_sink();
    lone.clone().max_tasks(3).ok().await;
    let mut with = lone.clone();
    with.sink = Some("lone.out".into());
    let error = with.err().await;
    assert_eq!(error.kind(), ErrorKind::Refused, "its finished rows were never written: {error}");
    assert!(!lab.path("lone.out").exists());
    lone.ok().await;
    job.exact().await;
}

#[tokio::test]
async fn a_session_keeps_its_tables_and_settings() {
    let lab = Lab::standard();
    let job = lab.job("job", "SELECT id FROM docs");
    let (ctx, checkpoints) = job.session().await.unwrap();
    let before = (ctx.table("dim").await.unwrap().count().await.unwrap(), ctx.copied_config().options().entries());
    let query = ctx.checkpointed_sql(job.sql()).await.unwrap();
    ctx.write_sealed(&checkpoints, query, job.output().unwrap()).await.unwrap();
    let after = (ctx.table("dim").await.unwrap().count().await.unwrap(), ctx.copied_config().options().entries());
    assert_eq!(before.0, after.0);
    assert!(before.1.iter().zip(&after.1).all(|(a, b)| (&a.key, &a.value) == (&b.key, &b.value)));
    assert!(ctx.table("docs").await.is_ok());
}
