//! Rows for the caller: a task is sealed by the caller's ack, and by nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::Int64Type;
use datafusion::error::DataFusionError;
use datafusion::prelude::SessionConfig;
use futures::future::join_all;
use futures::{StreamExt, TryStreamExt};
use lakemark::{Error, ErrorKind};
use lakemark_datafusion::{Acked, Checkpoints, HandedTask, LakemarkExt, Outcome, SealedExt, TaskName, TaskStream};

use crate::support::{Job, Lab, data, udf};

const SQL: &str = "SELECT id FROM docs";

/// Twelve tasks of twenty rows, three batches each.
fn job<'a>(lab: &'a Lab, sql: &'a str) -> Job<'a> {
    let mut job = lab.job("job", sql).without_sink();
    job.config = SessionConfig::new().with_batch_size(7);
    job
}

async fn start(job: &Job<'_>) -> Result<(Checkpoints, TaskStream), Error> {
    let (ctx, checkpoints) = job.session().await?;
    let query = ctx.checkpointed_sql(job.sql()).await?;
    let tasks = ctx.execute_sealed(&checkpoints, query).await?;
    Ok((checkpoints, tasks))
}

fn ids(batches: &[RecordBatch]) -> Vec<i64> {
    batches.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec()).collect()
}

/// The rest of a task's rows.
async fn drain(task: &mut HandedTask) -> Result<Vec<i64>, Error> {
    Ok(ids(&task.try_collect::<Vec<_>>().await?))
}

/// Acks what a run gives, all of it.
async fn all(job: &Job<'_>) -> (BTreeSet<i64>, Outcome) {
    let (_, mut tasks) = start(job).await.unwrap();
    let mut seen = BTreeSet::new();
    while let Some(task) = tasks.next().await {
        let mut task = task.unwrap();
        for id in drain(&mut task).await.unwrap() {
            assert!(seen.insert(id), "{id} came twice");
        }
        assert_eq!(task.ack().await.unwrap(), Acked::Sealed);
    }
    (seen, tasks.finish().await.unwrap().outcome)
}

#[tokio::test]
async fn what_was_acked_never_comes_again_and_the_rest_does() {
    let lab = Lab::standard();
    let job = job(&lab, SQL);
    let (_, mut tasks) = start(&job).await.unwrap();
    let mut left = BTreeSet::new();
    let mut nth = 0;
    while let Some(task) = tasks.next().await {
        let mut task = task.unwrap();
        assert_eq!(task.schema().field(0).name(), "id");
        let rows = drain(&mut task).await.unwrap();
        if nth % 2 == 0 {
            assert_eq!(task.ack().await.unwrap(), Acked::Sealed);
        } else {
            left.extend(rows);
        }
        nth += 1;
    }
    let report = tasks.finish().await.unwrap();
    assert_eq!((report.outcome, report.tasks.planned, report.tasks.sealed), (Outcome::Partial, 12, 6));
    assert_eq!((report.rows.rows_in, report.rows.out, report.atoms.planned), (120, 120, 6));

    assert_eq!(all(&job).await, (left, Outcome::Done));
    let (_, mut tasks) = start(&job).await.unwrap();
    assert!(tasks.next().await.is_none());
    let idle = tasks.finish().await.unwrap();
    assert_eq!((idle.outcome, idle.requests.store.put, idle.atoms.done), (Outcome::Nothing, 0, 12));
}

/// Each way not to ack.
#[tokio::test]
async fn a_task_that_is_not_read_to_its_end_is_not_sealed() {
    let lab = Lab::standard();
    let job = job(&lab, SQL);
    let (checkpoints, mut tasks) = start(&job).await.unwrap();
    let mut names = Vec::new();
    let mut next = async || {
        let task = tasks.next().await.unwrap().unwrap();
        names.push(task.name());
        task
    };
    drop(next().await);
    let early = |error: Error| {
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.place().is_some_and(|place| place.starts_with("task ")) && !error.ways().is_empty(), "{error}");
    };
    early(next().await.ack().await.unwrap_err());
    let mut half = next().await;
    assert_eq!(half.next().await.unwrap().unwrap().num_rows(), 7);
    early(half.ack().await.unwrap_err());
    // All rows were seen, but that these are all was not.
    let mut nearly = next().await;
    for rows in [7, 7, 6] {
        assert_eq!(nearly.next().await.unwrap().unwrap().num_rows(), rows);
    }
    early(nearly.ack().await.unwrap_err());
    let (rows, ack) = next().await.split();
    drop(rows);
    early(ack.ack().await.unwrap_err());
    let (rows, ack) = next().await.split();
    assert_eq!(ids(&rows.try_collect::<Vec<_>>().await.unwrap()).len(), 20);
    drop(ack);
    let report = tasks.finish().await.unwrap();
    assert_eq!((report.outcome, report.tasks.sealed, report.tasks.failed), (Outcome::Partial, 0, 0));
    let view = checkpoints.store().read().await.unwrap();
    assert!(names.iter().all(|name| !name.is_sealed_in(&view)), "{names:?}");
    assert_eq!(all(&job).await, ((0..240).collect(), Outcome::Done));
}

/// Tasks that were read do not keep others from being handed out, and are acked in any order, by many, after the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_are_acked_in_any_order_and_at_once() {
    let lab = Lab::standard();
    let job = job(&lab, SQL);
    let (checkpoints, mut tasks) = start(&job).await.unwrap();
    let mut held = Vec::new();
    let gather = async {
        while let Some(task) = tasks.next().await {
            let mut task = task.unwrap();
            assert_eq!(drain(&mut task).await.unwrap().len(), 20);
            held.push(task);
        }
    };
    tokio::time::timeout(Duration::from_secs(60), gather).await.expect("it hangs");
    assert_eq!(held.len(), 12, "with two at once");
    held.reverse();
    let names: Vec<TaskName> = held.iter().map(HandedTask::name).collect();
    let late = held.split_off(6);
    let acks = join_all(held.into_iter().map(|task| tokio::spawn(task.ack()))).await;
    assert!(acks.into_iter().all(|acked| acked.unwrap().unwrap() == Acked::Sealed));
    // The end waits for the others.
    let finished = tokio::spawn(tasks.finish());
    for task in late {
        assert!(!finished.is_finished());
        assert_eq!(task.ack().await.unwrap(), Acked::Sealed);
    }
    let report = finished.await.unwrap().unwrap();
    assert_eq!((report.outcome, report.tasks.sealed), (Outcome::Done, 12));
    let view = checkpoints.store().read().await.unwrap();
    assert!(names.iter().all(|name| name.is_sealed_in(&view)));
    assert_eq!(all(&job).await, (BTreeSet::new(), Outcome::Nothing));
}

#[tokio::test]
async fn a_task_can_be_taken_with_all_of_its_rows() {
    let lab = Lab::standard();
    let job = job(&lab, "SELECT id FROM docs WHERE id >= 30");
    let (ctx, checkpoints) = job.session().await.unwrap();
    let query = ctx.checkpointed_sql(job.sql()).await.unwrap();
    let mut tasks = query.collect_sealed(&checkpoints).await.unwrap();
    let mut rows = Vec::new();
    while let Some(task) = tasks.next().await {
        let task = task.unwrap();
        assert_eq!(task.schema.fields().len(), 1);
        rows.extend(ids(&task.batches));
        // Also those of which no row is left.
        assert_eq!(task.ack().await.unwrap(), Acked::Sealed);
    }
    rows.sort_unstable();
    assert_eq!(rows, (30..240).collect::<Vec<_>>());
    let report = tasks.finish().await.unwrap();
    assert_eq!((report.outcome, report.tasks.sealed, report.rows.rows_in), (Outcome::Done, 12, 240));
}

#[tokio::test]
async fn an_ack_after_another_run_took_over_seals_nothing() {
    let lab = Lab::standard();
    let job = job(&lab, SQL);
    let (_, mut tasks) = start(&job).await.unwrap();
    let mut first = tasks.next().await.unwrap().unwrap();
    drain(&mut first).await.unwrap();
    let mut second = tasks.next().await.unwrap().unwrap();
    drain(&mut second).await.unwrap();
    let sealed = first.name();
    assert_eq!(first.ack().await.unwrap(), Acked::Sealed);

    // What was acked before the other run began counts, and is not given again.
    let (checkpoints, others) = start(&job).await.unwrap();
    let name = second.name();
    let error = second.ack().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
    assert!(sealed.is_sealed_in(&checkpoints.view().await.unwrap()));
    let mut rows = 0;
    let mut others = others;
    while let Some(task) = others.next().await {
        let mut task = task.unwrap();
        rows += drain(&mut task).await.unwrap().len();
        assert_eq!(task.ack().await.unwrap(), Acked::Sealed);
    }
    assert_eq!(rows, 220);
    assert_eq!(others.finish().await.unwrap().outcome, Outcome::Done);
    assert!(!name.is_sealed_in(&checkpoints.store().read().await.unwrap()));

    // The old run says so, too.
    let mut said = None;
    while let Some(task) = tasks.next().await {
        match task {
            Ok(mut task) => assert!(drain(&mut task).await.is_err() || task.ack().await.is_err()),
            Err(error) => said = Some(error.kind()),
        }
    }
    assert_eq!(said, Some(ErrorKind::Fenced));
    assert_eq!(tasks.finish().await.unwrap_err().kind(), ErrorKind::Fenced);
}

#[tokio::test]
async fn what_is_wrong_from_the_start_is_an_error_at_once() {
    let lab = Lab::standard();
    let limited = job(&lab, "SELECT id FROM docs LIMIT 3");
    assert_eq!(start(&limited).await.unwrap_err().kind(), ErrorKind::Refused);
    let mut bound = job(&lab, SQL);
    bound.sink = Some("job.out".into());
    bound.clone().max_tasks(3).ok().await;
    let error = start(&bound).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "its store has a destination: {error}");
}

/// `check(id)` fails for the row 75, in the second batch of its task, `times` times with `error`.
fn failing<'a>(lab: &'a Lab, times: usize, error: fn() -> DataFusionError) -> Job<'a> {
    let asked = Arc::new(AtomicUsize::new(0));
    job(lab, "SELECT check(id) AS id FROM docs").with_setup(move |ctx| {
        let asked = Arc::clone(&asked);
        udf::register(ctx, "check", move |ids| {
            let fails = ids.contains(&75) && asked.fetch_add(1, Ordering::SeqCst) < times;
            if fails { Err(error()) } else { Ok(()) }
        });
    })
}

#[tokio::test]
async fn a_task_that_fails_ends_the_run_and_keeps_what_was_acked() {
    let lab = Lab::standard();
    let job = failing(&lab, 1, || DataFusionError::Execution("bad row 75".into())).concurrency(1);
    let (checkpoints, mut tasks) = start(&job).await.unwrap();
    let (mut kept, mut failed, mut said) = (BTreeSet::new(), Vec::new(), None);
    while let Some(task) = tasks.next().await {
        let mut task = match task {
            Ok(task) => task,
            Err(error) => {
                said = Some(error.to_string());
                continue;
            }
        };
        match drain(&mut task).await {
            Ok(rows) => {
                kept.extend(rows);
                assert_eq!(task.ack().await.unwrap(), Acked::Sealed);
            }
            Err(error) => {
                assert!(error.to_string().contains("bad row 75"), "{error}");
                failed.push(task.name());
                assert_eq!(task.ack().await.unwrap_err().kind(), ErrorKind::Invalid);
            }
        }
    }
    assert!(said.unwrap().contains("bad row 75"));
    assert!(tasks.finish().await.unwrap_err().to_string().contains("bad row 75"));
    assert_eq!(failed.len(), 1);
    let view = checkpoints.store().read().await.unwrap();
    assert!(!kept.is_empty() && view.live.atoms() * 20 == kept.len() as u64 && !failed[0].is_sealed_in(&view));
    assert_eq!(all(&job).await, (&(0..240).collect::<BTreeSet<_>>() - &kept, Outcome::Done));
}

#[tokio::test]
async fn what_is_tried_again_comes_under_another_name() {
    let lab = Lab::standard();
    let unavailable = || DataFusionError::External(Box::new(Error::new(ErrorKind::Unavailable, "no answer")));
    let job = failing(&lab, 1, unavailable);
    let (checkpoints, mut tasks) = start(&job).await.unwrap();
    let (mut seen, mut failed, mut again) = (BTreeSet::new(), None, None);
    while let Some(task) = tasks.next().await {
        let mut task = task.unwrap();
        let name = task.name();
        match drain(&mut task).await {
            Ok(rows) => {
                again = again.or(rows.contains(&75).then_some(name));
                rows.iter().for_each(|id| assert!(seen.insert(*id)));
                assert_eq!(task.ack().await.unwrap(), Acked::Sealed);
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable);
                failed = Some(name);
            }
        }
    }
    let (failed, again) = (failed.unwrap(), again.unwrap());
    assert_eq!(failed.checkpoint, again.checkpoint);
    assert_ne!(failed.attempt, again.attempt);
    let report = tasks.finish().await.unwrap();
    assert_eq!((seen.len(), report.outcome, report.tasks.sealed), (240, Outcome::Done, 12));
    let view = checkpoints.store().read().await.unwrap();
    assert!(again.is_sealed_in(&view) && !failed.is_sealed_in(&view));

    // Who takes whole tasks does not see the failure.
    let lab = Lab::standard();
    let job = failing(&lab, 1, unavailable);
    let (ctx, checkpoints) = job.session().await.unwrap();
    let query = ctx.checkpointed_sql(job.sql()).await.unwrap();
    let tasks = ctx.collect_sealed(&checkpoints, query).await.unwrap();
    let collected: Vec<_> = tasks.try_collect().await.unwrap();
    assert_eq!(collected.iter().map(|task| ids(&task.batches).len()).sum::<usize>(), 240);
}

#[tokio::test]
async fn files_that_change_or_cannot_be_read_are_left_out_of_the_rows_too() {
    let lab = Lab::standard();
    lab.write("docs/lang=zz/torn.parquet", &data::docs(900, 10), 10);
    fs::write(lab.path("docs/lang=zz/torn.parquet"), b"PAR1 and then nothing more").unwrap();
    let path = lab.path("docs/lang=fr/part-5.parquet");
    let job = job(&lab, "SELECT look(id) AS id FROM docs").packed().concurrency(1);
    // Each folder a task: those of `de` are read first.
    let mut job = job.with_setup(move |ctx| {
        let path = path.clone();
        udf::register(ctx, "look", move |ids| {
            if ids.contains(&41) {
                data::write_parquet(&path, &data::docs(7_000, 10), 20);
            }
            Ok(())
        });
    });
    job.options.sizing.bytes = 1;
    let (_, mut tasks) = start(&job).await.unwrap();
    let mut seen = BTreeSet::new();
    while let Some(task) = tasks.next().await {
        let mut task = task.unwrap();
        for id in drain(&mut task).await.unwrap() {
            assert!(seen.insert(id), "{id} came twice");
        }
        assert_eq!(task.ack().await.unwrap(), Acked::Sealed);
    }
    let report = tasks.finish().await.unwrap();
    assert_eq!(seen, (0..200).chain(7_000..7_010).collect());
    assert_eq!((report.outcome, report.sources[0].unusable.len()), (Outcome::Partial, 1));
}

#[tokio::test]
async fn a_run_hands_out_no_more_tasks_than_it_may() {
    let lab = Lab::standard();
    let job = job(&lab, SQL);
    let (seen, outcome) = all(&job.clone().max_tasks(5)).await;
    assert_eq!((seen.len(), outcome), (100, Outcome::Partial));
    // Nobody takes the rest: it ends all the same.
    let (_, tasks) = start(&job).await.unwrap();
    let report = tokio::time::timeout(Duration::from_secs(60), tasks.finish()).await.expect("it hangs").unwrap();
    assert_eq!((report.outcome, report.tasks.sealed), (Outcome::Partial, 0));
    let (rest, outcome) = all(&job).await;
    assert_eq!((rest.len(), outcome), (140, Outcome::Done));
}

/// The stream is only what hands them out.
#[tokio::test]
async fn tasks_outlive_their_stream() {
    let lab = Lab::standard();
    let worked = udf::Seen::default();
    let counted = worked.clone();
    let job = job(&lab, "SELECT seen(id) AS id FROM docs").with_setup(move |ctx| {
        let counted = counted.clone();
        udf::register(ctx, "seen", move |ids| {
            counted.add(ids.len());
            Ok(())
        });
    });
    let (checkpoints, mut tasks) = start(&job).await.unwrap();
    let mut read = tasks.next().await.unwrap().unwrap();
    let mut seen: BTreeSet<i64> = drain(&mut read).await.unwrap().into_iter().collect();
    let mut unread = tasks.next().await.unwrap().unwrap();
    drop(tasks);
    seen.extend(drain(&mut unread).await.unwrap());
    assert_eq!(unread.ack().await.unwrap(), Acked::Sealed);
    assert_eq!(read.ack().await.unwrap(), Acked::Sealed);
    // Then the run is closed, with nobody waiting for it: no holder is named any more.
    let closed = async {
        while checkpoints.store().read().await.unwrap().head.unwrap().manifest.holder.is_some() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), closed).await.expect("it is not closed");
    // Those two, and what was on its way.
    assert!(worked.take() <= 60, "tasks were begun for nobody");
    assert_eq!(all(&job).await, (&(0..240).collect::<BTreeSet<_>>() - &seen, Outcome::Done));
}

#[tokio::test]
async fn an_ack_that_has_begun_comes_to_its_end() {
    let lab = Lab::standard();
    let job = job(&lab, SQL).max_tasks(1);
    let (_, mut tasks) = start(&job).await.unwrap();
    let mut task = tasks.next().await.unwrap().unwrap();
    drain(&mut task).await.unwrap();
    let mut ack = Box::pin(task.ack());
    assert!(futures::poll!(&mut ack).is_pending());
    drop(ack);
    assert_eq!(tasks.finish().await.unwrap().tasks.sealed, 1);
}

/// The clock is the task's until its last row is taken.
#[tokio::test]
async fn who_reads_for_too_long_is_given_the_task_again_and_who_acks_late_is_not() {
    let lab = Lab::standard();
    let mut job = job(&lab, SQL).max_tasks(1);
    job.options.task_timeout = Some(Duration::from_secs(2));
    let (_, mut tasks) = start(&job).await.unwrap();
    let mut slow = tasks.next().await.unwrap().unwrap();
    assert_eq!(slow.next().await.unwrap().unwrap().num_rows(), 7);
    let again = loop {
        let mut again = tasks.next().await.unwrap().unwrap();
        assert_eq!(slow.name().checkpoint, again.name().checkpoint);
        // On a slow machine more often than once.
        if drain(&mut again).await.is_ok_and(|rows| rows.len() == 20) {
            break again;
        }
    };
    assert_eq!(drain(&mut slow).await.unwrap_err().kind(), ErrorKind::Unavailable);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(again.ack().await.unwrap(), Acked::Sealed);
    assert!(tasks.next().await.is_none());
    assert_eq!(tasks.finish().await.unwrap().tasks.sealed, 1);
}

#[test]
fn names_are_texts() {
    let text = "0000000007-0000000123-0000-00c0ffee00c0ffee";
    assert_eq!(text.parse::<TaskName>().unwrap().to_string(), text);
    for wrong in ["", "0000000007-0000000123-0000", "x-00c0ffee00c0ffee"] {
        assert_eq!(wrong.parse::<TaskName>().unwrap_err().kind(), ErrorKind::Invalid, "{wrong}");
    }
}

/// What a caller stored, by the names of attempts: each all at once.
type Stored = Arc<Mutex<BTreeMap<TaskName, Vec<i64>>>>;

/// One life of a caller, as its guide says: throw away what is not sealed, then store and ack. `chance` decides where it dies.
async fn live(job: &Job<'_>, stored: &Stored, chance: &mut impl FnMut(u64) -> u64) -> Option<Outcome> {
    let (checkpoints, mut tasks) = start(job).await.unwrap();
    let view = checkpoints.view().await.unwrap();
    stored.lock().unwrap().retain(|name, _| name.is_sealed_in(&view));
    let mut held: Vec<HandedTask> = Vec::new();
    while let Some(task) = tasks.next().await {
        let mut task = task.unwrap();
        match chance(10) {
            0 => continue,
            1 => drop(task.next().await),
            2 => return None,
            _ => {
                let rows = drain(&mut task).await.unwrap();
                stored.lock().unwrap().insert(task.name(), rows);
                held.push(task);
            }
        }
        while held.len() as u64 > chance(4) {
            let task = held.swap_remove(chance(held.len() as u64) as usize);
            match chance(12) {
                0 => return None,
                // Half an ack.
                1 => drop(tokio::time::timeout(Duration::from_micros(chance(2_000)), task.ack()).await),
                2 => drop(task),
                _ => assert_eq!(task.ack().await.unwrap(), Acked::Sealed),
            }
        }
    }
    for task in held {
        assert_eq!(task.ack().await.unwrap(), Acked::Sealed);
    }
    Some(tasks.finish().await.unwrap().outcome)
}

/// The driver dies with the runtime of its life, at any point.
#[test]
fn over_many_deaths_each_row_is_acked_exactly_once() {
    for seed in 1..=6_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut chance = move |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below.max(1)
        };
        let lab = Lab::standard();
        let job = job(&lab, SQL).concurrency(3);
        let stored = Stored::default();
        let mut lives = 0;
        loop {
            lives += 1;
            assert!(lives < 200, "seed {seed}: it never ends");
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            let outcome = runtime.block_on(live(&job, &stored, &mut chance));
            runtime.shutdown_background();
            if outcome == Some(Outcome::Nothing) {
                break;
            }
        }
        let mut rows: Vec<i64> = stored.lock().unwrap().values().flatten().copied().collect();
        rows.sort_unstable();
        assert_eq!(rows, (0..240).collect::<Vec<_>>(), "seed {seed}, {lives} lives");
        assert!(lives > 3, "seed {seed}: nothing died");
    }
}
