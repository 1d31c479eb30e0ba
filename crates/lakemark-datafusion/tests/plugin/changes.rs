//! Files that change between planning and reading, and while they are read.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lakemark::TaskSizing;
use lakemark_datafusion::Outcome;
use rstest::rstest;

use crate::support::{Job, Lab, data, udf};

/// Four files of two row groups; when the row with id 5 comes by for the first time, `meddle` does something to them.
fn meddled<'a>(lab: &'a Lab, meddle: impl Fn() + Send + Sync + 'static) -> Job<'a> {
    for file in 0..4 {
        lab.write(&format!("docs/part-{file}.parquet"), &data::docs(file * 40, 40), 20);
    }
    let (meddle, done) = (Arc::new(meddle), Arc::new(AtomicBool::new(false)));
    lab.job("job", "SELECT look(id) AS id, text FROM docs").concurrency(1).with_setup(move |ctx| {
        let (meddle, done) = (Arc::clone(&meddle), Arc::clone(&done));
        udf::register(ctx, "look", move |ids| {
            if ids.contains(&5) && !done.swap(true, Ordering::SeqCst) {
                meddle();
            }
            Ok(())
        });
    })
}

fn tiny() -> TaskSizing {
    TaskSizing { bytes: 1, rows: 0 }
}

/// Larger than one of the files, smaller than two: a task a file, which the driver does not open.
fn a_file_each(lab: &Lab) -> TaskSizing {
    TaskSizing { bytes: fs::metadata(lab.path("docs/part-0.parquet")).unwrap().len() * 3 / 2, rows: 0 }
}

#[rstest]
#[case::opened_on_the_driver(true)]
#[case::opened_by_workers_only(false)]
#[tokio::test]
async fn a_file_replaced_before_it_is_read_is_planned_again(#[case] split: bool) {
    let lab = Lab::new();
    let path = lab.path("docs/part-3.parquet");
    let mut job = meddled(&lab, move || data::write_parquet(&path, &data::docs(5_000, 60), 20));
    job.options.sizing = if split { tiny() } else { a_file_each(&lab) };
    let report = job.exact().await;
    assert_eq!(report.outcome, Outcome::Done);
    assert_eq!(report.rows.out, 120 + 60);
    assert_eq!((report.sources[0].listed, report.sources[0].new), (4, 4));
    assert_eq!(job.ok().await.outcome, Outcome::Nothing);
}

#[rstest]
#[case::opened_on_the_driver(true)]
#[case::opened_by_workers_only(false)]
#[tokio::test]
async fn a_file_that_vanishes_before_it_is_read_is_reported(#[case] split: bool) {
    let lab = Lab::new();
    let path = lab.path("docs/part-3.parquet");
    let mut job = meddled(&lab, move || fs::remove_file(&path).unwrap());
    job.options.sizing = if split { tiny() } else { a_file_each(&lab) };
    let report = job.exact().await;
    assert_eq!((report.outcome, report.rows.out), (Outcome::Done, 120));
    assert_eq!((report.sources[0].vanished, report.sources[0].listed, report.sources[0].new), (1, 3, 3));
    assert_eq!(job.ok().await.outcome, Outcome::Nothing);
}

/// The task that reads it has given some of its rows to the writer already.
#[tokio::test]
async fn a_file_overwritten_while_it_is_read_is_done_again_as_it_is_then() {
    let lab = Lab::new();
    let path = lab.path("docs/part-0.parquet");
    let job = meddled(&lab, move || data::write_parquet(&path, &data::docs(5_000, 60), 20)).packed();
    let report = job.exact().await;
    assert_eq!((report.outcome, report.rows.out), (Outcome::Done, 120 + 60));
    assert_eq!(job.ok().await.outcome, Outcome::Nothing);
}

/// A rename leaves the opened file as it was: its rows are those that were planned, and the next run sees another file.
#[tokio::test]
async fn a_file_renamed_over_while_it_is_read_is_replaced_for_the_next_run() {
    let lab = Lab::new();
    let (path, new) = (lab.path("docs/part-0.parquet"), lab.path("new.parquet"));
    data::write_parquet(&new, &data::docs(5_000, 60), 20);
    let job = meddled(&lab, move || fs::rename(&new, &path).unwrap()).packed();
    assert_eq!(job.ok().await.rows.out, 160);
    let second = job.ok().await;
    assert_eq!((second.sources[0].replaced, second.rows.out), (1, 60));
    assert_eq!(job.rows().await.len(), 220, "the old version's rows stay");
    assert_eq!(job.ok().await.outcome, Outcome::Nothing);
}

#[tokio::test]
async fn a_file_that_never_stands_still_is_given_up_and_named() {
    let lab = Lab::new();
    for file in 0..4 {
        lab.write(&format!("docs/part-{file}.parquet"), &data::docs(file * 40, 40), 20);
    }
    let path = lab.path("docs/part-0.parquet");
    let mut job = lab.job("job", "SELECT look(id) AS id FROM docs").concurrency(1).with_setup(move |ctx| {
        let path = path.clone();
        udf::register(ctx, "look", move |ids| {
            if ids.contains(&5) {
                // In place, as a writer that appends to its file.
                data::write_parquet(&path, &data::docs(0, 40), 20);
            }
            Ok(())
        });
    });
    job.options.sizing = a_file_each(&lab);
    let report = job.ok().await;
    assert_eq!((report.outcome, report.rows.out), (Outcome::Partial, 120));
    let source = &report.sources[0];
    assert_eq!((source.listed, source.new, source.unusable.len()), (4, 3, 1));
    assert_eq!(source.unusable[0].path, "part-0.parquet");
}
