//! Forming tasks over real files: limits, other sizings between runs, many groups.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lakemark::{Coverage, Lake, SourcePolicy, Task, TaskSizing, form_tasks};
use rstest::rstest;

use crate::harness::{faulty, seen_done, takeover};
use crate::lake::{Fixture, close, do_task, many_groups, parquet, plan, rows_of};

fn sizing(bytes: u64, rows: u64) -> TaskSizing {
    TaskSizing { bytes, rows }
}

async fn tasks(lake: &Lake, live: &lakemark::Live, sizing: TaskSizing) -> Vec<Task> {
    let plan = plan(lake, live, SourcePolicy::default()).await.unwrap();
    let formed = form_tasks(lake, &plan.files, sizing).await.unwrap();
    assert_eq!((&formed.unusable[..], &formed.changed[..], &formed.vanished[..]), (&[][..], &[][..], &[][..]));
    formed.tasks
}

/// R27: a limit on the tasks of a run cuts anywhere, and nothing is lost or done twice.
#[tokio::test]
async fn r27_any_limit_gets_through_and_does_each_file_once() {
    let fixture = Fixture::with_files(10, &[4, 4]);
    let lake = fixture.open();
    for limit in 1..=11 {
        let (_, store) = faulty();
        let mut runs = 0;
        loop {
            let view = store.read().await.unwrap();
            let todo = tasks(&lake, &view.live, sizing(1, 0)).await;
            if todo.is_empty() {
                break;
            }
            let run = store.begin(takeover()).await.unwrap();
            for task in todo.iter().take(limit * 2) {
                do_task(&run, &lake, task).await;
            }
            close(run).await;
            runs += 1;
        }
        assert_eq!(runs, 10_usize.div_ceil(limit), "limit {limit}");
        assert_eq!(seen_done(&store).await.len(), 10);
    }
}

const ROWS: [usize; 4] = [5, 1, 7, 3];

/// The rows of each file in `tasks`, no row twice.
fn rows(tasks: &[Task]) -> BTreeMap<Arc<str>, BTreeSet<(u32, u64)>> {
    let group_rows = ROWS.map(|rows| rows as u64);
    let mut all: BTreeMap<Arc<str>, BTreeSet<(u32, u64)>> = BTreeMap::new();
    for part in tasks.iter().flat_map(|task| &task.parts) {
        let seen = all.entry(Arc::clone(&part.planned.file.path)).or_default();
        for row in rows_of(&part.coverage, &group_rows) {
            assert!(seen.insert(row), "row {row:?} of {} is in two tasks", part.planned.file.path);
        }
    }
    all
}

/// R45: another sizing than the last run's leaves exactly the same to do.
#[rstest]
#[case::groups(sizing(1, 0))]
#[case::whole_files(sizing(u64::MAX, 0))]
#[case::everything_in_one(sizing(u64::MAX, 1_000))]
#[case::two_groups(sizing(150, 0))]
#[case::rows(sizing(u64::MAX, 2))]
#[case::one_row(sizing(1, 1))]
#[tokio::test]
async fn r45_another_sizing_leaves_the_same_rest(#[case] first: TaskSizing) {
    let fixture = Fixture::with_files(4, &ROWS);
    let lake = fixture.open();
    let every = [sizing(1, 0), sizing(u64::MAX, 0), sizing(150, 0), sizing(u64::MAX, 2), sizing(1, 3), sizing(400, 4)];
    let (_, store) = faulty();
    let run = store.begin(takeover()).await.unwrap();
    let todo = tasks(&lake, &Default::default(), first).await;
    let (now, later) = todo.split_at(todo.len().div_ceil(3));
    for task in now {
        do_task(&run, &lake, task).await;
    }
    run.fold().await.unwrap();
    let live = run.view().await.1;
    let rest = rows(later);
    for other in every {
        assert_eq!(rows(&tasks(&lake, &live, other).await), rest, "{first:?}, then {other:?}");
    }
    // And to the end, each time with another sizing.
    for other in every.into_iter().cycle() {
        run.fold().await.unwrap();
        let live = run.view().await.1;
        let todo = tasks(&lake, &live, other).await;
        let Some(task) = todo.first() else { break };
        do_task(&run, &lake, task).await;
    }
    close(run).await;
    assert_eq!(seen_done(&store).await.len(), 4);
    assert!(tasks(&lake, &store.read().await.unwrap().live, first).await.is_empty());
}

#[tokio::test]
async fn tasks_keep_to_their_limits_as_far_as_groups_allow() {
    let fixture = Fixture::with_files(5, &ROWS);
    let lake = fixture.open();
    let live = Default::default();
    for limit in 1..=20 {
        for task in tasks(&lake, &live, sizing(u64::MAX, limit)).await {
            let count: usize = rows(std::slice::from_ref(&task)).values().map(BTreeSet::len).sum();
            assert!(count as u64 <= limit && task.rows == count as u64, "{count} rows where {limit} are allowed");
        }
    }
    for limit in [1, 60, 200, 1_000] {
        for task in tasks(&lake, &live, sizing(limit, 0)).await {
            let groups: u64 = task.parts.iter().map(|part| part.coverage.touched_atoms(4)).sum();
            assert!(task.bytes <= limit || groups == 1, "{} bytes in {groups} groups, limit {limit}", task.bytes);
            let paths: Vec<_> = task.parts.iter().map(|part| &part.planned.file.path).collect();
            assert!(paths.is_sorted() && paths.windows(2).all(|pair| pair[0] != pair[1]), "a file is listed once");
        }
    }
}

/// R104: what fits into a task is packed whole, unopened; what is done is not even looked at.
#[tokio::test]
async fn r104_small_files_are_never_opened_by_the_driver() {
    let fixture = Fixture::with_files(10, &[4, 4]);
    let lake = fixture.open();
    let todo = tasks(&lake, &Default::default(), TaskSizing::default()).await;
    assert_eq!((todo.len(), todo[0].parts.len()), (1, 10));
    assert_eq!((lake.counters().snapshot().get, lake.counters().snapshot().bytes), (0, 0));
    let (_, store) = faulty();
    let run = store.begin(takeover()).await.unwrap();
    do_task(&run, &lake, &todo[0]).await;
    close(run).await;
    let fresh = fixture.open();
    assert!(tasks(&fresh, &store.read().await.unwrap().live, sizing(1, 1)).await.is_empty());
    assert_eq!(fresh.counters().snapshot().get, 0, "a finished file is not opened, not even its footer");
}

/// R127: more groups than a 16-bit ordinal counts, which the parquet crate alone refuses.
#[tokio::test]
async fn r127_many_groups_of_one_file_stay_ranges_and_cheap() {
    let fixture = Fixture::new();
    fixture.put("big.parquet", &many_groups(40_000), 0);
    let lake = fixture.open();
    let live = Default::default();
    let todo = tasks(&lake, &live, sizing(u64::MAX, 10_000)).await;
    let texts = |tasks: &[Task]| -> Vec<String> {
        tasks.iter().flat_map(|task| &task.parts).map(|part| part.coverage.to_string()).collect()
    };
    assert_eq!(texts(&todo), ["0-9999", "10000-19999", "20000-29999", "30000-39999"]);
    assert_eq!(lake.counters().snapshot().get, 2, "one footer, larger than the first tail");
    // Half of it is done: the rest is ranges again.
    let (_, store) = faulty();
    let run = store.begin(takeover()).await.unwrap();
    for task in &todo[1..3] {
        do_task(&run, &lake, task).await;
    }
    run.fold().await.unwrap();
    let live = run.view().await.1;
    let rest = tasks(&lake, &live, sizing(1 << 30, 0)).await;
    assert_eq!(texts(&rest), ["0-9999,30000-39999"]);
    for task in &rest {
        do_task(&run, &lake, task).await;
    }
    close(run).await;
    assert_eq!(seen_done(&store).await, ["big.parquet"]);
}

#[tokio::test]
async fn a_valid_file_without_rows_is_one_task_and_then_done() {
    let fixture = Fixture::new();
    fixture.put("empty.parquet", &parquet(0, &[]), 0);
    let lake = fixture.open();
    for sizing in [sizing(1, 0), sizing(1, 1), TaskSizing::default()] {
        let (_, store) = faulty();
        let run = store.begin(takeover()).await.unwrap();
        let todo = tasks(&lake, &Default::default(), sizing).await;
        assert_eq!((todo.len(), &todo[0].parts[0].coverage), (1, &Coverage::Whole));
        do_task(&run, &lake, &todo[0]).await;
        close(run).await;
        assert!(tasks(&lake, &store.read().await.unwrap().live, sizing).await.is_empty(), "R33");
    }
}

#[tokio::test]
async fn large_files_that_cannot_be_opened_are_named_and_stop_nothing() {
    let fixture = Fixture::with_files(4, &[4, 4]);
    let lake = fixture.open();
    let planned = plan(&lake, &Default::default(), SourcePolicy::default()).await.unwrap();
    fixture.put("f0.parquet", &parquet(7, &[4, 4, 4]), 99);
    std::fs::remove_file(fixture.at("f1.parquet")).unwrap();
    let size = std::fs::metadata(fixture.at("f2.parquet")).unwrap().len() as usize;
    fixture.put("f2.parquet", &vec![b'x'; size], 2);
    let formed = form_tasks(&lake, &planned.files, sizing(1, 0)).await.unwrap();
    assert_eq!(formed.changed, ["f0.parquet".into()]);
    assert_eq!(formed.vanished, ["f1.parquet".into()]);
    assert_eq!(formed.unusable.iter().map(|u| &*u.path).collect::<Vec<_>>(), ["f2.parquet"]);
    assert_eq!(formed.tasks.iter().map(|t| &*t.parts[0].planned.file.path).collect::<Vec<_>>(), ["f3.parquet"; 2]);
}
