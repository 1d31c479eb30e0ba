//! Functions of users: paid for once a row, and allowed to fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lakemark::ErrorKind;
use lakemark_datafusion::Outcome;
use rstest::rstest;

use crate::support::{Job, Lab, udf};

fn counting<'a>(lab: &'a Lab, sql: &'a str, seen: &udf::Seen) -> Job<'a> {
    let seen = seen.clone();
    lab.job("job", sql).with_setup(move |ctx| {
        crate::support::data::register_lookups(ctx);
        udf::Slow::register(ctx, seen.clone());
        let counted = seen.clone();
        udf::register(ctx, "costly", move |ids| {
            counted.add(ids.len());
            Ok(())
        });
    })
}

/// What was paid for is not paid for again: over two runs each row once, also a row that is filtered away afterwards.
#[rstest]
#[case("SELECT costly(id) AS c FROM docs", 240)]
#[case("SELECT id FROM docs WHERE costly(id) % 2 = 0", 240)]
#[case("SELECT id FROM docs WHERE costly(id) < 0", 240)]
#[case("SELECT costly(id) AS c FROM docs WHERE id < 100", 100)]
#[case("SELECT id, slow(id) AS s FROM docs", 240)]
#[case("SELECT id FROM (SELECT id, slow(id) AS s FROM docs) WHERE s > 100", 240)]
#[case("SELECT slow(m.id) AS s, l.label FROM more m LEFT JOIN dim l ON m.k = l.k", 48)]
#[case("SELECT costly(id) AS c, unnest(tags) AS tag FROM docs", 240)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_is_paid_for_once_a_row(#[case] sql: &str, #[case] rows: usize) {
    let lab = Lab::standard();
    let seen = udf::Seen::default();
    let mut job = counting(&lab, sql, &seen);
    if sql.contains("more") {
        job.sources.remove(0);
    }
    job.clone().max_tasks(3).ok().await;
    let first = seen.take();
    assert!(first < rows || rows == 100, "{first}");
    job.ok().await;
    assert_eq!(first + seen.take(), rows, "{sql}");
    assert_eq!(job.ok().await.outcome, Outcome::Nothing);
    assert_eq!(seen.take(), 0);
    assert_eq!(job.rows().await, job.expected().await, "{sql}");
}

#[rstest]
#[case::panic(true)]
#[case::error(false)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_that_fails_takes_its_task_along_and_no_other(#[case] panics: bool) {
    let lab = Lab::standard();
    let broken = Arc::new(AtomicBool::new(true));
    let breaks = Arc::clone(&broken);
    let job = lab.job("job", "SELECT fragile(id) AS id, text FROM docs").with_setup(move |ctx| {
        let breaks = Arc::clone(&breaks);
        udf::register(ctx, "fragile", move |ids| {
            if !(breaks.load(Ordering::SeqCst) && ids.contains(&57)) {
                return Ok(());
            }
            assert!(!panics, "no row like 57");
            Err(datafusion::error::DataFusionError::Execution("no row like 57".into()))
        });
    });
    let (report, error) = job.run().await;
    let error = error.unwrap();
    assert_eq!((error.kind(), report.outcome), (ErrorKind::Invalid, Outcome::Failed), "{error}");
    assert!(error.to_string().contains("no row like 57"), "{error}");
    assert_eq!(report.tasks.failed, 1);
    assert_eq!(job.rows().await.len() as u64, report.tasks.sealed * 20);
    broken.store(false, Ordering::SeqCst);
    assert_eq!(job.exact().await.tasks.planned, 12 - report.tasks.sealed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_takes_too_long_is_ended_and_done_again_later() {
    let lab = Lab::standard();
    let tries = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let seen = Arc::clone(&tries);
    let mut job = lab.job("job", "SELECT sleepy(id) AS id, text FROM docs").with_setup(move |ctx| {
        let seen = Arc::clone(&seen);
        udf::register(ctx, "sleepy", move |ids| {
            if ids.contains(&57) && seen.fetch_add(1, Ordering::SeqCst) < 2 {
                std::thread::sleep(std::time::Duration::from_secs(3));
            }
            Ok(())
        });
    });
    job.options.task_timeout = Some(std::time::Duration::from_secs(1));
    job.options.retries = 1;
    let (report, error) = job.run().await;
    let error = error.unwrap();
    assert_eq!((error.kind(), report.tasks.failed), (ErrorKind::Unavailable, 1), "{error}");
    assert!(error.to_string().contains("task_timeout"), "{error}");
    assert_eq!(tries.load(Ordering::SeqCst), 2, "one try and one retry");
    assert_eq!(job.exact().await.tasks.planned, 12 - report.tasks.sealed);
}
