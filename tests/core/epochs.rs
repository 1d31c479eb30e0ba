//! Who holds the store: fencing, zombies, races, leases, void seals.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lakemark::{
    BeginOptions, CheckpointId, CheckpointState, CheckpointStore, Counts, Epoch, ErrorKind, InputId, Lease,
    ObjectCheckpointStore, Run, SealKind, SealOutcome, Wait,
};
use object_store::ObjectStore;
use object_store::memory::InMemory;
use rstest::rstest;

use crate::harness::{
    Site, done, faulty, leased, manifests, names, newest, next, put, seal, seen_done, store_on, takeover, whole,
};
use lakemark::faults::{Act, Failure, FaultStore, Gate, Op, When};

fn kind<T: std::fmt::Debug>(result: lakemark::Result<T>) -> ErrorKind {
    result.unwrap_err().kind()
}

#[tokio::test]
async fn a_second_opener_fences_the_first_in_all_it_does() {
    let (_, store) = faulty();
    let first = store.begin(takeover()).await.unwrap();
    let _ = seal(&first, vec![whole("a")]).await.unwrap();
    let staged = next(&first);
    first.stage_keys(staged, vec![whole("b")]).unwrap();
    let second = store.begin(takeover()).await.unwrap();

    let error = first.checkpoint(staged, Counts::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced);
    assert!(!error.kind().is_retryable());
    assert!(error.to_string().contains("epoch 2"), "{error}");
    assert!(first.worker().is_fenced());
    for _ in 0..2 {
        assert_eq!(kind(first.worker().guard().await), ErrorKind::Fenced);
        assert_eq!(kind(first.worker().void(InputId(9)).await), ErrorKind::Fenced);
        assert_eq!(kind(first.fold().await), ErrorKind::Fenced);
        assert_eq!(kind(first.commit(None).await), ErrorKind::Fenced);
        assert_eq!(kind(first.mark_committed(&[staged]).await), ErrorKind::Fenced);
        assert_eq!(kind(first.list_checkpoints().await), ErrorKind::Fenced);
        assert_eq!(kind(first.record_schema("docs", b"x").await), ErrorKind::Fenced);
    }
    assert_eq!(kind(first.close().await), ErrorKind::Fenced);

    // What was sealed before is kept, and the new holder is not disturbed.
    let _ = seal(&second, vec![whole("c")]).await.unwrap();
    assert_eq!(second.commit(None).await.unwrap()[0].checkpoints, 2);
    second.close().await.unwrap();
    assert_eq!(seen_done(&store).await, ["a", "c"]);
}

/// The first thing a fenced run does may be any of these: each finds it out by itself.
#[rstest]
#[tokio::test]
async fn a_fence_is_found_by_whatever_comes_first(#[values("seal", "fold", "commit", "mark", "close")] what: &str) {
    let (faults, store) = faulty();
    let first = store.begin(takeover()).await.unwrap();
    let _ = seal(&first, vec![whole("a")]).await.unwrap();
    let second = store.begin(takeover()).await.unwrap();
    let result = match what {
        "seal" => seal(&first, vec![whole("b")]).await.map(drop),
        "fold" => first.fold().await,
        "commit" => first.commit(None).await.map(drop),
        "mark" => first.mark_committed(&[CheckpointId::first(Epoch(1), InputId(0))]).await.map(drop),
        _ => {
            assert_eq!(kind(first.close().await), ErrorKind::Fenced);
            return;
        }
    };
    assert_eq!(kind(result), ErrorKind::Fenced, "{what}");
    assert_eq!(kind(first.close().await), ErrorKind::Fenced, "for good");
    assert_eq!(second.commit(None).await.unwrap()[0].checkpoints, 1);
    second.close().await.unwrap();
    check_line(&faults).await;
}

#[tokio::test]
async fn a_zombies_late_seal_in_an_old_epoch_is_never_read() {
    let (faults, store) = faulty();
    let first = store.begin(takeover()).await.unwrap();
    let gate = Gate::new();
    let held = faults.plant(Op::Put, |path| path.contains("/seals/"), When::First(1), Act::Hold(gate.clone()));
    let zombie = tokio::spawn({
        let worker = first.worker().clone();
        let mut late = lakemark::Seal::void(worker.store_id(), next(&first), worker.known_version(), 0);
        (late.kind, late.files) = (SealKind::Sealed, vec![whole("a")]);
        async move { worker.seal(late).await }
    });
    gate.reached().await; // It has passed its guard and stalls in the request.
    let second = store.begin(takeover()).await.unwrap();
    let _ = seal(&second, vec![whole("b")]).await.unwrap();
    gate.open();
    assert!(matches!(zombie.await.unwrap().unwrap(), SealOutcome::Sealed(_)), "a zombie can write");
    drop(held);

    assert_eq!(seen_done(&store).await, ["b"], "but is never read");
    assert_eq!(second.commit(None).await.unwrap()[0].checkpoints, 1);
    drop(second);
    let third = store.begin(takeover()).await.unwrap();
    assert_eq!(third.with_live(|_, live| done(live)).await, ["b"]);
    let _ = seal(&third, vec![whole("a")]).await.unwrap();
    third.close().await.unwrap();
    assert_eq!(seen_done(&store).await, ["a", "b"], "its atoms were done anew");
}

/// A seal's name is free again once its epoch is over and its seal was collected: another attempt that takes it then has
/// not beaten the one whose seal was folded. Found by the model.
#[tokio::test]
async fn a_name_that_was_freed_does_not_make_a_sealed_attempt_believe_that_it_lost() {
    let (faults, store) = faulty();
    let first = store.begin(takeover()).await.unwrap();
    let is_seal = |path: &str| path.contains("/seals/");
    let gate = Gate::new();
    let lost = faults.plant(Op::Put, is_seal, When::First(1), Act::DoneThenFail(Failure::Unanswered));
    let held = faults.plant(Op::Put, is_seal, When::Nth(2..=2), Act::Hold(gate.clone()));
    let worker = first.worker().clone();
    let mut mine = lakemark::Seal::void(worker.store_id(), next(&first), worker.known_version(), 0);
    (mine.kind, mine.files) = (SealKind::Sealed, vec![whole("a")]);
    let id = mine.id;
    let sealing = tokio::spawn(async move { worker.seal(mine).await });
    gate.reached().await; // Its seal is there, it does not know, and tries again.
    let second = store.operate(Wait::Takeover, Lease::default()).await.unwrap();
    assert_eq!(second.collect(None, Duration::ZERO).await.unwrap().objects.len(), 1, "the folded seal");
    let name = format!("epochs/{}/seals/00000/{}.0000.json", id.epoch, id.input);
    let zombie = lakemark::Seal::void(second.worker().store_id(), id, second.worker().known_version(), 0);
    put(&faults, &name, lakemark::faults::framed("seal", &zombie)).await;
    gate.open();
    assert_eq!(sealing.await.unwrap().unwrap_err().kind(), ErrorKind::Fenced, "not: another attempt holds the seal");
    assert_eq!((lost.fired(), held.fired()), (1, 1));
    assert_eq!(second.with_live(|_, live| done(live)).await, ["a"]);
    second.close().await.unwrap();
}

/// R123: nothing is lost by a run that is only dropped.
#[tokio::test]
async fn seals_of_a_dropped_run_are_folded_by_the_next_one() {
    let site = Site::new();
    let store = site.store();
    let run = store.begin(takeover()).await.unwrap();
    for path in ["a", "b"] {
        let _ = seal(&run, vec![whole(path)]).await.unwrap();
    }
    drop(run);
    let view = store.read().await.unwrap();
    assert!(view.needs_epoch() && view.loose.checkpoints.len() == 2);
    let run = store.begin(takeover()).await.unwrap();
    drop(run); // Already the manifest that opened the epoch names them (I4).
    let view = store.read().await.unwrap();
    assert!(view.loose.checkpoints.is_empty());
    assert_eq!(done(&view.live), ["a", "b"]);
    assert!(view.needs_epoch(), "they wait for a commit");
}

#[tokio::test]
async fn a_worker_may_outlive_the_close_and_the_next_run_takes_its_seal() {
    let (_, store) = faulty();
    let run = store.begin(takeover()).await.unwrap();
    let worker = run.worker().clone();
    let id = next(&run);
    run.close().await.unwrap();
    let mut late = lakemark::Seal::void(worker.store_id(), id, worker.known_version(), 0);
    (late.kind, late.files) = (SealKind::Sealed, vec![whole("a")]);
    assert!(matches!(worker.seal(late).await.unwrap(), SealOutcome::Sealed(_)));
    assert!(store.read().await.unwrap().needs_epoch());
    let run = store.begin(takeover()).await.unwrap();
    assert_eq!(run.commit(None).await.unwrap()[0].checkpoints, 1);
    run.close().await.unwrap();
}

/// I8 on what is stored: versions follow each other, each names its parent by digest, epochs grow by one at `open` only.
async fn check_line(objects: &dyn ObjectStore) {
    let chain = manifests(objects).await;
    let mut before: Option<(&serde_json::Value, &String)> = None;
    for (version, (body, digest)) in &chain {
        if let Some((parent, parent_digest)) = before {
            assert_eq!(body["parent"].as_str(), Some(parent_digest.as_str()), "the parent of version {version}");
            let step = u64::from(body["transition"] == "open");
            assert_eq!(body["epoch"].as_u64().unwrap(), parent["epoch"].as_u64().unwrap() + step, "version {version}");
            assert_eq!(body["version"].as_u64().unwrap(), parent["version"].as_u64().unwrap() + 1);
            assert_eq!(body["store"], parent["store"]);
        }
        before = Some((body, digest));
    }
}

async fn race(stores: Vec<ObjectCheckpointStore>, options: BeginOptions) -> Vec<lakemark::Result<Run>> {
    let tasks: Vec<_> = stores
        .into_iter()
        .map(|store| {
            let options = options.clone();
            tokio::spawn(async move { store.begin(options).await })
        })
        .collect();
    futures::future::join_all(tasks).await.into_iter().map(|run| run.unwrap()).collect()
}

async fn check_race(runs: Vec<lakemark::Result<Run>>, objects: &dyn ObjectStore) {
    let runs: Vec<Run> = runs.into_iter().map(|run| run.unwrap()).collect();
    let mut epochs: Vec<u64> = runs.iter().map(|run| run.worker().epoch().0).collect();
    epochs.sort_unstable();
    let winner = *epochs.last().unwrap();
    epochs.dedup();
    assert_eq!(epochs.len(), runs.len(), "an epoch was won twice: {epochs:?}");
    let mut live = 0;
    for run in runs {
        let holds = run.worker().epoch().0 == winner;
        let sealed = seal(&run, vec![whole(&format!("by {}", run.worker().epoch().0))]).await;
        if holds {
            let _ = sealed.unwrap();
            run.close().await.unwrap();
            live += 1;
        } else {
            assert_eq!(kind(sealed), ErrorKind::Fenced);
            assert_eq!(kind(run.close().await), ErrorKind::Fenced);
        }
    }
    assert_eq!(live, 1);
    check_line(objects).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_openers_win_different_epochs_and_the_chain_is_one_line() {
    let memory: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let stores = (0..12).map(|_| store_on(Arc::clone(&memory))).collect();
    let runs = race(stores, takeover()).await;
    check_race(runs, &*memory).await;

    let site = Site::new();
    let stores = (0..8).map(|_| site.store()).collect();
    let runs = race(stores, takeover()).await;
    let objects = object_store::local::LocalFileSystem::new_with_prefix(site.at("store")).unwrap();
    check_race(runs, &objects).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_polite_openers_one_wins_and_the_others_are_told_who() {
    let memory: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let stores: Vec<_> = (0..12).map(|_| store_on(Arc::clone(&memory))).collect();
    let runs = race(stores, BeginOptions { wait: Wait::No, ..BeginOptions::default() }).await;
    let (won, lost): (Vec<_>, Vec<_>) = runs.into_iter().partition(Result::is_ok);
    assert_eq!(won.len(), 1);
    for error in lost.into_iter().map(Result::unwrap_err) {
        assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    }
    check_line(&*memory).await;
    won.into_iter().next().unwrap().unwrap().close().await.unwrap();
}

/// R90.
#[tokio::test]
async fn r90_busy_names_the_holder_and_changes_nothing() {
    let (faults, store) = faulty();
    let run = store.begin(leased(Wait::No, 10_000, 60_000)).await.unwrap();
    faults.take_log();
    let error = store.begin(leased(Wait::No, 10_000, 60_000)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    let text = error.to_string();
    assert!(text.contains(&format!("pid {}", std::process::id())) && text.contains("epoch 1"), "{text}");
    assert!(text.contains("--takeover"), "{text}");
    assert!(faults.take_log().iter().all(|request| matches!(request.op, Op::List | Op::Get)));
    run.close().await.unwrap();
    let run = store.begin(leased(Wait::No, 10_000, 60_000)).await.unwrap();
    assert_eq!(run.worker().epoch().0, 2, "a closed epoch has no holder to wait for");
    run.close().await.unwrap();
}

#[tokio::test]
async fn a_holder_without_signs_of_life_is_taken_over_after_one_lease() {
    let (_, store) = faulty();
    let silent = store.begin(leased(Wait::No, 3_600_000, 60_000)).await.unwrap();
    let began = Instant::now();
    let run = store.begin(leased(Wait::Lease, 1_000, 80)).await.unwrap();
    assert!(began.elapsed() >= Duration::from_millis(80), "not before a full lease");
    assert_eq!(run.worker().epoch().0, 2);
    assert_eq!(kind(silent.close().await), ErrorKind::Fenced);
    run.close().await.unwrap();
}

#[tokio::test]
async fn a_beating_holder_is_busy_after_one_lease() {
    let (_, store) = faulty();
    let run = store.begin(leased(Wait::No, 5, 60_000)).await.unwrap();
    let began = Instant::now();
    let error = store.begin(leased(Wait::Lease, 1_000, 400)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    assert!(began.elapsed() >= Duration::from_millis(400), "it watched for a full lease");
    run.worker().guard().await.unwrap();
    run.close().await.unwrap();
}

#[tokio::test]
async fn a_holder_that_only_folds_is_alive_too() {
    let (_, store) = faulty();
    let run = Arc::new(store.begin(leased(Wait::No, 3_600_000, 60_000)).await.unwrap());
    let at_work = tokio::spawn({
        let run = Arc::clone(&run);
        async move {
            for i in 0.. {
                let _ = seal(&run, vec![whole(&format!("f{i}"))]).await.unwrap();
                run.fold().await.unwrap();
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    });
    let error = store.begin(leased(Wait::Lease, 1_000, 400)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    at_work.abort();
    run.worker().guard().await.unwrap();
}

#[tokio::test]
async fn an_observer_goes_on_as_soon_as_the_holder_closes() {
    let (_, store) = faulty();
    let run = store.begin(leased(Wait::No, 5, 60_000)).await.unwrap();
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.begin(leased(Wait::Lease, 1_000, 60_000)).await }
    });
    tokio::time::sleep(Duration::from_millis(30)).await;
    run.close().await.unwrap();
    let run = tokio::time::timeout(Duration::from_secs(20), waiting).await.unwrap().unwrap().unwrap();
    assert_eq!(run.worker().epoch().0, 2);
    run.close().await.unwrap();
}

const HELD_BY_A_CHILD: &str = "LAKEMARK_TEST_HOLD";

/// Not a scenario: what the child process of the next one runs. It ends without closing its run.
#[tokio::test]
async fn the_child_that_holds_a_store_and_dies() {
    let Ok(path) = std::env::var(HELD_BY_A_CHILD) else { return };
    let store = ObjectCheckpointStore::open(&path).unwrap();
    let run = store.begin(BeginOptions { lease: Lease::default(), ..takeover() }).await.unwrap();
    let _ = seal(&run, vec![whole("by the child")]).await.unwrap();
    std::process::exit(0);
}

#[tokio::test]
async fn a_provably_dead_holder_is_taken_over_without_waiting() {
    let site = Site::new();
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "epochs::the_child_that_holds_a_store_and_dies", "--nocapture"])
        .env(HELD_BY_A_CHILD, site.at("store"))
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    let store = site.store();
    assert!(newest(&store).await.holder.is_some(), "the child closed nothing");
    let run = store.begin(BeginOptions { wait: Wait::No, ..BeginOptions::default() }).await.unwrap();
    assert_eq!(run.worker().epoch().0, 2);
    run.close().await.unwrap();
    assert_eq!(seen_done(&store).await, ["by the child"]);
}

#[tokio::test]
async fn a_void_seal_stops_later_attempts_and_its_atoms_stay_undone() {
    let (_, store) = faulty();
    let run = store.begin(takeover()).await.unwrap();
    let input = run.next_input();
    let id = run.checkpoints().assign(input);
    run.stage_keys(id, vec![whole("a")]).unwrap();
    assert!(matches!(run.worker().void(input).await.unwrap(), SealOutcome::Sealed(_)));
    let SealOutcome::Already(first) = run.checkpoint(id, Counts::default()).await.unwrap() else {
        panic!("the name is taken")
    };
    assert_eq!(first.kind, SealKind::Void);
    // A worker of another process knows nothing of it, and finds the same.
    let mut late = lakemark::Seal::void(run.worker().store_id(), id, run.worker().known_version(), 0);
    (late.kind, late.files) = (SealKind::Sealed, vec![whole("a")]);
    let SealOutcome::Already(first) = run.worker().seal(late).await.unwrap() else { panic!("the name is taken") };
    assert_eq!(first.kind, SealKind::Void);

    assert!(!store.read().await.unwrap().needs_epoch(), "a void seal is no work");
    // The same atoms under another id.
    let _ = seal(&run, vec![whole("a")]).await.unwrap();
    run.fold().await.unwrap();
    assert_eq!(run.get_checkpoint(id).await.unwrap(), None);
    assert_eq!(run.commit(None).await.unwrap()[0].checkpoints, 1);
    run.close().await.unwrap();
    assert_eq!(seen_done(&store).await, ["a"]);
}

#[tokio::test]
async fn voiding_a_sealed_task_gives_its_seal_and_it_counts() {
    let (_, store) = faulty();
    let run = store.begin(takeover()).await.unwrap();
    let input = run.next_input();
    let id = run.checkpoints().assign(input);
    run.stage_keys(id, vec![whole("a")]).unwrap();
    assert!(matches!(run.checkpoint(id, Counts::default()).await.unwrap(), SealOutcome::Sealed(_)));
    let SealOutcome::Already(first) = run.worker().void(input).await.unwrap() else { panic!("it is sealed") };
    assert_eq!(first.kind, SealKind::Sealed);
    assert_eq!(run.get_checkpoint(id).await.unwrap().unwrap().state, CheckpointState::Checkpointed);
    run.close().await.unwrap();
    assert_eq!(seen_done(&store).await, ["a"]);
}

#[tokio::test]
async fn void_seals_survive_a_crash_and_mean_nothing_then() {
    let (_, store) = faulty();
    let run = store.begin(takeover()).await.unwrap();
    let _ = run.worker().void(run.next_input()).await.unwrap();
    let _ = seal(&run, vec![whole("a")]).await.unwrap();
    drop(run);
    let run = store.begin(takeover()).await.unwrap();
    assert_eq!(run.list_checkpoints().await.unwrap().len(), 1);
    run.close().await.unwrap();
}

/// I3.
#[tokio::test]
async fn of_two_attempts_that_seal_one_task_at_once_one_wins_and_both_know_which() {
    let (faults, store) = faulty();
    let run = store.begin(takeover()).await.unwrap();
    let slow = Act::Delay(Duration::from_millis(20));
    let _slow = faults.plant(Op::Put, |path| path.contains("/seals/"), When::First(2), slow);
    let id = next(&run);
    let attempt = || {
        let worker = run.worker().clone();
        let mut mine = lakemark::Seal::void(worker.store_id(), id, worker.known_version(), 0);
        (mine.kind, mine.files) = (SealKind::Sealed, vec![whole("a")]);
        async move { (mine.attempt, worker.seal(mine).await.unwrap()) }
    };
    let ((a, of_a), (b, of_b)) = tokio::join!(attempt(), attempt());
    let winner = match (of_a, of_b) {
        (SealOutcome::Sealed(_), SealOutcome::Already(seal)) if seal.attempt == a => a,
        (SealOutcome::Already(seal), SealOutcome::Sealed(_)) if seal.attempt == b => b,
        other => panic!("{other:?}"),
    };
    run.fold().await.unwrap();
    assert_eq!(run.with_live(|_, live| live.checkpoint(id).unwrap().attempt).await, winner);
    run.close().await.unwrap();
}

/// A seal that lands between the opener's reading and its manifest is in no segment: it never counts (I4), and the
/// opener that lost a create reads again.
#[tokio::test]
async fn an_opener_that_lost_its_create_reads_the_seals_again() {
    let memory: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let first = store_on(Arc::clone(&memory)).begin(takeover()).await.unwrap();
    let faults = FaultStore::new(Arc::clone(&memory));
    let slow = store_on(Arc::new(faults.clone()));
    let gate = Gate::new();
    let held = faults.plant(Op::Put, |path| path.starts_with("manifests/"), When::First(1), Act::Hold(gate.clone()));
    let opening = tokio::spawn(async move { slow.begin(takeover()).await });
    gate.reached().await;
    // Meanwhile the holder seals and folds: the slow opener's version is taken.
    let _ = seal(&first, vec![whole("a")]).await.unwrap();
    first.fold().await.unwrap();
    let _ = seal(&first, vec![whole("b")]).await.unwrap();
    gate.open();
    let second = opening.await.unwrap().unwrap();
    drop(held);
    assert_eq!(
        (second.worker().epoch().0, second.with_live(|_, live| done(live)).await),
        (2, vec!["a".into(), "b".into()])
    );
    assert_eq!(kind(first.close().await), ErrorKind::Fenced);
    second.close().await.unwrap();
    check_line(&*memory).await;
}

/// Pruned names are free again: a holder that slept for a hundred manifests creates its next one, and must not believe
/// in it (I1, I8).
#[tokio::test]
async fn a_holder_that_slept_for_a_hundred_manifests_does_not_believe_its_own() {
    let (faults, store) = faulty();
    let sleeper = store.begin(takeover()).await.unwrap();
    let _ = seal(&sleeper, vec![whole("a")]).await.unwrap();
    for _ in 0..60 {
        store.begin(takeover()).await.unwrap().close().await.unwrap();
    }
    let before = newest(&store).await;
    let free = "manifests/00000000000000000002.json".to_owned();
    assert!(!names(&faults).await.contains(&free), "its next name is free");
    let error = sleeper.commit(None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
    assert_eq!(kind(sleeper.close().await), ErrorKind::Fenced);
    assert!(names(&faults).await.contains(&free), "it was created");
    assert_eq!(newest(&store).await, before, "and nobody reads it");
    let run = store.begin(takeover()).await.unwrap();
    assert_eq!(run.commit(None).await.unwrap().len(), 1);
    run.close().await.unwrap();
    assert!(!names(&faults).await.contains(&free), "it is pruned with the others");
}

/// The name just below the manifests that are kept, created again by a fenced writer, is no break of the chain.
#[tokio::test]
async fn a_manifest_under_a_pruned_name_is_no_fault_of_the_store() {
    let (faults, store) = faulty();
    let sleeper = store.begin(takeover()).await.unwrap();
    for _ in 0..50 {
        store.begin(takeover()).await.unwrap().close().await.unwrap();
    }
    let _last = store.begin(takeover()).await.unwrap();
    assert_eq!(newest(&store).await.version.0, 102);
    assert_eq!(kind(sleeper.record_schema("docs", b"x").await), ErrorKind::Fenced);
    assert!(names(&faults).await.contains(&"manifests/00000000000000000002.json".to_owned()), "it was created");
    let verified = store.verify().await.unwrap();
    assert!(verified.is_sound(), "{:?}", verified.faults);
}

/// History says who opened which epoch.
#[tokio::test]
async fn the_record_of_an_opening_carries_its_own_epoch_and_version() {
    let (_, store) = faulty();
    for _ in 0..2 {
        store.begin(takeover()).await.unwrap().close().await.unwrap();
    }
    let view = store.read().await.unwrap();
    let opened: Vec<_> = view
        .live
        .events()
        .iter()
        .filter(|row| matches!(row.event, lakemark::store::Event::Opened { .. }))
        .map(|row| (row.epoch.0, row.version.0))
        .collect();
    assert_eq!(opened, [(1, 1), (2, 3)]);
}
