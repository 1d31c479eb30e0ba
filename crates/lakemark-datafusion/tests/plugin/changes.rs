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

/// Two files in one task: the one that changes each time is given up, the other one is done.
/// Each is found by an attempt of its own, and uses up no retry.
#[tokio::test]
async fn many_files_that_change_under_one_task_are_all_planned_again() {
    let lab = Lab::new();
    for file in 0..12 {
        lab.write(&format!("docs/part-{file:02}.parquet"), &data::docs(file * 40, 40), 20);
    }
    let paths: Vec<_> = (1..9).map(|file| lab.path(&format!("docs/part-{file:02}.parquet"))).collect();
    let done = std::sync::Arc::new(std::sync::Mutex::new(paths));
    let mut job = lab.job("job", "SELECT look(id) AS id FROM docs").concurrency(1).packed().with_setup(move |ctx| {
        let left = std::sync::Arc::clone(&done);
        udf::register(ctx, "look", move |_| {
            // One more file at each batch, just before it is read.
            if let Some(path) = left.lock().unwrap().pop() {
                data::write_parquet(&path, &data::docs(9_000, 45), 20);
            }
            Ok(())
        });
    });
    job.options.retries = 0;
    let report = job.ok().await;
    assert_eq!(report.outcome, Outcome::Done, "{:?}", report.sources);
    assert_eq!(job.rows().await, job.expected().await);
}

#[rstest]
#[tokio::test]
async fn a_file_that_changes_under_each_attempt_does_not_hold_up_its_task(#[values(0, 3)] retries: u32) {
    let lab = Lab::new();
    for file in 0..4 {
        lab.write(&format!("docs/part-{file}.parquet"), &data::docs(file * 40, 40), 20);
    }
    let path = lab.path("docs/part-2.parquet");
    let mut job = lab.job("job", "SELECT look(id) AS id FROM docs").concurrency(1).packed().with_setup(move |ctx| {
        let path = path.clone();
        udf::register(ctx, "look", move |ids| {
            if ids.contains(&5) || ids.contains(&85) {
                data::write_parquet(&path, &data::docs(80, 40), 20);
            }
            Ok(())
        });
    });
    job.options.retries = retries;
    let report = job.ok().await;
    assert_eq!((report.outcome, report.rows.out), (Outcome::Partial, 120));
    let source = &report.sources[0];
    assert_eq!((source.listed, source.new, source.unusable.len()), (4, 3, 1));
    assert_eq!(source.unusable[0].path, "part-2.parquet");
}

/// The counts of every report add up, also when a replaced file is given up.
#[tokio::test]
async fn a_replaced_file_that_never_stands_still_is_counted_once() {
    let lab = Lab::new();
    for file in 0..4 {
        lab.write(&format!("docs/part-{file}.parquet"), &data::docs(file * 40, 40), 20);
        lab.age(&format!("docs/part-{file}.parquet"));
    }
    let mut job = lab.job("job", "SELECT id FROM docs").concurrency(1);
    job.options.sizing = a_file_each(&lab);
    job.ok().await;
    lab.write("docs/part-0.parquet", &data::docs(0, 50), 20);
    let path = lab.path("docs/part-0.parquet");
    let job = lab.job("job", "SELECT look(id) AS id FROM docs").concurrency(1).packed().with_setup(move |ctx| {
        let path = path.clone();
        udf::register(ctx, "look", move |_| {
            data::write_parquet(&path, &data::docs(0, 50), 20);
            Ok(())
        });
    });
    let report = job.ok().await;
    let source = &report.sources[0];
    assert_eq!((source.listed, source.done, source.replaced, source.unusable.len()), (4, 3, 0, 1), "{source:?}");
}

/// Size and mtime are kept: only the footer tells, and the rest of the file is not mixed with what is done.
#[tokio::test]
async fn a_partly_done_file_rewritten_under_its_token_is_replaced() {
    let lab = Lab::new();
    let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000);
    let write = |first: i64| {
        let docs = data::docs(first, 40);
        let ids = docs.project(&[docs.schema().index_of("id").unwrap()]).unwrap();
        data::write_parquet(&lab.path("docs/a.parquet"), &ids, 10);
        fs::File::options().write(true).open(lab.path("docs/a.parquet")).unwrap().set_modified(old).unwrap();
        fs::metadata(lab.path("docs/a.parquet")).unwrap().len()
    };
    let size = write(100);
    let job = lab.job("job", "SELECT id FROM docs");
    job.clone().max_tasks(2).ok().await;
    assert_eq!(write(200), size, "else the size tells");
    let report = job.ok().await;
    assert_eq!((report.sources[0].replaced, report.rows.out), (1, 40), "{:?}", report.sources);
    let mut ids: Vec<i64> = job.rows().await.rows.iter().map(|row| row.parse().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(
        ids,
        (100..120).chain(200..240).collect::<Vec<_>>(),
        "the old version's rows stay, the new one's are all there"
    );
    assert_eq!(job.ok().await.outcome, Outcome::Nothing);
}
