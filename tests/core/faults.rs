//! Answers that are lost, late or wrong: a store that misbehaves must never look empty, won or lost when it is not.

use std::sync::Arc;

use lakemark::{Counts, ErrorKind, SealOutcome};
use object_store::memory::InMemory;
use rstest::rstest;

use crate::harness::{ONE_TRY, faulty, names, newest, next, seal, seen_done, store_on, takeover, whole};
use lakemark::faults::{Act, Failure, FaultStore, Op, When};

fn seals(path: &str) -> bool {
    path.contains("/seals/")
}

fn in_folder(folder: &'static str) -> impl Fn(&str) -> bool + Send + Sync + 'static {
    move |path| path.starts_with(folder)
}

/// R59, R93: whatever the answer to a create was, the object is read back; one's own is success.
#[rstest]
#[case::lost_answer(Act::DoneThenFail(Failure::Unanswered))]
#[case::exists_after_a_lost_answer(Act::DoneThenFail(Failure::AlreadyExists))]
#[case::precondition_after_a_lost_answer(Act::DoneThenFail(Failure::Precondition))]
#[case::conflict_though_nothing_was_created(Act::Fail(Failure::AlreadyExists))]
#[case::precondition_though_nothing_was_created(Act::Fail(Failure::Precondition))]
#[case::no_answer(Act::Fail(Failure::Unanswered))]
#[tokio::test]
async fn r93_a_create_is_judged_by_what_is_there(#[case] act: Act) {
    let (faults, store) = faulty();
    let manifest = faults.plant(Op::Put, in_folder("manifests/"), When::First(2), act.clone());
    let run = store.begin(takeover()).await.unwrap();
    assert_eq!((run.worker().epoch().0, newest(&store).await.version.0), (1, 1), "the lost answer cost no epoch");
    drop(manifest);
    {
        let _seal = faults.plant(Op::Put, seals, When::First(2), act.clone());
        assert!(matches!(seal(&run, vec![whole("a")]).await.unwrap(), SealOutcome::Sealed(_)), "not another's seal");
    }
    let _segment = faults.plant(Op::Put, in_folder("segments/"), When::First(2), act.clone());
    let _commit = faults.plant(Op::Put, in_folder("commits/"), When::First(2), act.clone());
    let _manifests = faults.plant(Op::Put, in_folder("manifests/"), When::Nth(2..=3), act);
    run.fold().await.unwrap();
    assert_eq!(run.commit(None).await.unwrap().len(), 1);
    run.close().await.unwrap();
    assert_eq!(seen_done(&store).await, ["a"]);
}

#[tokio::test]
async fn a_read_back_that_is_torn_is_not_another_writers_object() {
    let (faults, store) = faulty();
    let run = store.begin(takeover()).await.unwrap();
    {
        let _lost = faults.plant(Op::Put, seals, When::First(1), Act::DoneThenFail(Failure::Unanswered));
        let _torn = faults.plant(Op::Get, seals, When::First(1), Act::Torn(40));
        assert!(matches!(seal(&run, vec![whole("a")]).await.unwrap(), SealOutcome::Sealed(_)));
    }
    let _lost = faults.plant(Op::Put, in_folder("manifests/"), When::First(1), Act::DoneThenFail(Failure::Unanswered));
    let _torn = faults.plant(Op::Get, in_folder("manifests/"), When::First(1), Act::Torn(0));
    run.fold().await.unwrap();
    run.close().await.unwrap();
    assert_eq!(seen_done(&store).await, ["a"]);
}

#[tokio::test]
async fn the_winner_of_a_name_is_who_is_read_there() {
    let (faults, store) = faulty();
    let run = store.begin(takeover()).await.unwrap();
    let id = next(&run);
    // Another attempt of the same task, on another worker, was first.
    let other = lakemark::Seal {
        store: run.worker().store_id(),
        id,
        attempt: lakemark::AttemptNonce::random(),
        kind: lakemark::SealKind::Sealed,
        planned_from: run.worker().known_version(),
        sealed_at: 0,
        files: vec![whole("a")],
        keys: None,
        outputs: vec![],
        counts: Counts::default(),
    };
    assert!(matches!(run.worker().clone().seal(other.clone()).await.unwrap(), SealOutcome::Sealed(_)));
    let _lost = faults.plant(Op::Put, seals, When::First(1), Act::Fail(Failure::Unanswered));
    let mine = lakemark::Seal { attempt: lakemark::AttemptNonce::random(), ..other.clone() };
    let SealOutcome::Already(winner) = run.worker().seal(mine).await.unwrap() else { panic!("the name was taken") };
    assert_eq!(winner.attempt, other.attempt);
    run.close().await.unwrap();
}

/// R91.
#[rstest]
#[case::the_condition_is_ignored(Act::IgnoreCondition)]
#[case::there_is_no_conditional_create(Act::Fail(Failure::NotSupported))]
#[case::every_create_is_refused(Act::Fail(Failure::AlreadyExists))]
#[tokio::test]
async fn r91_a_store_without_create_if_absent_is_refused_and_left_empty(#[case] act: Act) {
    let (faults, store) = faulty();
    let _fault = faults.plant(Op::Put, |_| true, When::Always, act);
    let error = store.begin(takeover()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(!error.ways().is_empty(), "{error}");
    assert!(names(&faults).await.is_empty(), "nothing is left behind");
}

#[rstest]
#[case::lost_answers(Act::DoneThenFail(Failure::Unanswered))]
#[case::no_answers(Act::Fail(Failure::Unanswered))]
#[case::conflicts_without_a_winner(Act::Fail(Failure::AlreadyExists))]
#[tokio::test]
async fn the_probe_is_repeated_when_some_answers_do_not_tell(#[case] act: Act) {
    let (faults, store) = faulty();
    let _fault = faults.plant(Op::Put, in_folder("probes/"), When::First(16), act);
    let run = store.begin(takeover()).await.unwrap();
    run.close().await.unwrap();
    assert!(names(&faults).await.iter().all(|name| !name.starts_with("probes/")), "no probe is left");
}

/// R80, R81: every read of state, failing in every way, is an error with a name; nothing is written.
#[rstest]
#[tokio::test]
async fn r81_state_that_cannot_be_read_is_never_an_empty_store(
    #[values((Op::List, "manifests"), (Op::Get, "manifests/"), (Op::Get, "segments/"), (Op::List, "epochs/0000000001/seals"), (Op::Get, "epochs/0000000001/seals/"))]
    at: (Op, &'static str),
    #[values(Act::Fail(Failure::Denied), Act::Fail(Failure::Unanswered), Act::Cut(0), Act::Cut(1))] act: Act,
) {
    let (faults, store) = faulty();
    let run = store.begin(takeover()).await.unwrap();
    let _ = seal(&run, vec![whole("folded")]).await.unwrap();
    run.fold().await.unwrap();
    let _ = seal(&run, vec![whole("loose")]).await.unwrap();
    drop(run);
    let before = names(&faults).await;
    {
        let _fault = faults.plant(at.0, in_folder(at.1), When::Always, act.clone());
        let failures = [store.read().await.unwrap_err(), store.begin(takeover()).await.unwrap_err()];
        for error in failures {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            let place = error.place().unwrap_or_default();
            assert!(place.starts_with("memory://x/store/") && place.contains(at.1.trim_end_matches('/')), "{error}");
        }
        assert_eq!(names(&faults).await, before, "an open that fails writes and deletes nothing (R80)");
    }
    assert_eq!(seen_done(&store).await, ["folded", "loose"]);
}

#[tokio::test]
async fn a_failure_that_passes_is_not_noticed() {
    let (faults, store) = faulty();
    let run = store.begin(takeover()).await.unwrap();
    let _ = seal(&run, vec![whole("a")]).await.unwrap();
    run.close().await.unwrap();
    for op in [Op::Get, Op::List] {
        let _fault = faults.plant(op, |_| true, When::First(2), Act::Fail(Failure::Unanswered));
        assert_eq!(seen_done(&store).await, ["a"]);
        let _torn = faults.plant(Op::Get, |_| true, When::First(2), Act::Torn(10));
        assert_eq!(seen_done(&store).await, ["a"], "a read that ends early is read again");
    }
}

/// A 404 of the newest manifest means list again; a store that goes on like that is named, not reset.
#[tokio::test]
async fn a_manifest_that_is_listed_and_never_found_is_not_a_new_store() {
    let (faults, store) = faulty();
    let run = store.begin(takeover()).await.unwrap();
    run.close().await.unwrap();
    {
        let _once = faults.plant(Op::Get, in_folder("manifests/"), When::First(1), Act::Fail(Failure::NotFound));
        assert_eq!(newest(&store).await.version.0, 2);
    }
    let _always = faults.plant(Op::Get, in_folder("manifests/"), When::Always, Act::Fail(Failure::NotFound));
    let error = store.read().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(store.begin(takeover()).await.is_err());
}

#[rstest]
#[case::segment("segments/")]
#[case::seal("epochs/0000000001/seals/")]
#[tokio::test]
async fn a_named_object_that_is_missing_is_corrupt_and_named(#[case] folder: &'static str) {
    let (faults, store) = faulty();
    let run = store.begin(takeover()).await.unwrap();
    let _ = seal(&run, vec![whole("folded")]).await.unwrap();
    run.fold().await.unwrap();
    let _ = seal(&run, vec![whole("loose")]).await.unwrap();
    drop(run);
    let _gone = faults.plant(Op::Get, in_folder(folder), When::Always, Act::Fail(Failure::NotFound));
    let error = store.read().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.place().unwrap().contains(folder), "{error}");
}

#[tokio::test]
async fn a_write_with_an_unknown_outcome_stops_the_run_and_the_next_one_decides_by_reading() {
    let (faults, store) = faulty();
    let store = store.with_patience(ONE_TRY);
    let run = store.begin(takeover()).await.unwrap();
    let _ = seal(&run, vec![whole("a")]).await.unwrap();
    {
        // The manifest lands, its answer is lost, and so is the read-back.
        let _lost =
            faults.plant(Op::Put, in_folder("manifests/"), When::Always, Act::DoneThenFail(Failure::Unanswered));
        let _blind = faults.plant(Op::Get, in_folder("manifests/"), When::Always, Act::Fail(Failure::Unanswered));
        assert_eq!(run.fold().await.unwrap_err().kind(), ErrorKind::Indeterminate);
    }
    assert_eq!(run.commit(None).await.unwrap_err().kind(), ErrorKind::Indeterminate, "it goes on from nothing unknown");
    assert_eq!(run.close().await.unwrap_err().kind(), ErrorKind::Indeterminate);
    let run = store.begin(takeover()).await.unwrap();
    assert_eq!(run.commit(None).await.unwrap()[0].checkpoints, 1);
    run.close().await.unwrap();
    assert_eq!(seen_done(&store).await, ["a"]);
}

/// A commit whose segment could not be written decided nothing: what it would have committed must not count as committed.
#[rstest]
#[case::then_commit_again(true)]
#[case::then_close(false)]
#[tokio::test]
async fn a_commit_that_failed_before_its_intent_committed_nothing(#[case] again: bool) {
    let (faults, store) = faulty();
    let store = store.with_patience(ONE_TRY);
    let run = store.begin(takeover()).await.unwrap();
    let _ = seal(&run, vec![whole("a")]).await.unwrap();
    {
        let _full = faults.plant(Op::Put, in_folder("segments/"), When::Always, Act::Fail(Failure::Unanswered));
        assert!(run.commit(None).await.is_err());
    }
    if again {
        let _ = run.commit(None).await;
    }
    let _ = run.close().await;
    let view = store.read().await.unwrap();
    let counted = view.head.unwrap().manifest.commits.last;
    let marked = view.live.checkpoints().filter(|row| row.commit.is_some()).count() as u64;
    assert_eq!(marked, counted, "a checkpoint is marked with a commit that never was");
    let run = store.begin(takeover()).await.unwrap();
    let committed: u64 = run.commit(None).await.unwrap().iter().map(|c| c.checkpoints).sum();
    assert_eq!(committed + marked, 1);
    run.close().await.unwrap();
}

/// The same when the caller gives up waiting (a timeout, Ctrl-C) instead of the store.
#[tokio::test]
async fn a_commit_that_was_interrupted_before_its_intent_committed_nothing() {
    use lakemark::faults::Gate;
    let (faults, store) = faulty();
    let run = store.begin(takeover()).await.unwrap();
    let _ = seal(&run, vec![whole("a")]).await.unwrap();
    let gate = Gate::new();
    {
        let _held = faults.plant(Op::Put, in_folder("segments/"), When::Always, Act::Hold(gate.clone()));
        tokio::select! {
            _ = run.commit(None) => panic!("it was held"),
            () = gate.reached() => {}
        }
    }
    let _ = run.close().await;
    let view = store.read().await.unwrap();
    assert_eq!(view.head.unwrap().manifest.commits.last, 0);
    assert_eq!(view.live.checkpoints().filter(|row| row.commit.is_some()).count(), 0);
    let run = store.begin(takeover()).await.unwrap();
    assert_eq!(run.commit(None).await.unwrap()[0].checkpoints, 1);
    run.close().await.unwrap();
}

#[tokio::test]
async fn nothing_to_fold_or_commit_writes_nothing() {
    let (faults, store) = faulty();
    let run = store.begin(takeover()).await.unwrap();
    let _ = seal(&run, vec![whole("a")]).await.unwrap();
    assert_eq!(run.commit(None).await.unwrap().len(), 1);
    faults.take_log();
    run.fold().await.unwrap();
    assert!(run.commit(None).await.unwrap().is_empty());
    assert!(store.read().await.unwrap().head.is_some());
    let written: Vec<_> = faults.take_log().into_iter().filter(|r| matches!(r.op, Op::Put | Op::Delete)).collect();
    assert!(written.is_empty(), "{written:?}");
    run.close().await.unwrap();
}

#[tokio::test]
async fn pruning_that_fails_is_harmless_and_tried_again() {
    let memory = Arc::new(InMemory::new());
    let faults = FaultStore::new(memory);
    let store = store_on(Arc::new(faults.clone()));
    let _denied = faults.plant(Op::Delete, in_folder("manifests/"), When::First(30), Act::Fail(Failure::Denied));
    for i in 0..75 {
        let run = store.begin(takeover()).await.unwrap();
        if i % 10 == 0 {
            let _ = seal(&run, vec![whole(&format!("f{i}"))]).await.unwrap();
        }
        run.close().await.unwrap();
    }
    let kept = names(&faults).await.iter().filter(|name| name.starts_with("manifests/")).count();
    assert!(kept <= 100, "{kept} manifests");
    assert_eq!(seen_done(&store).await.len(), 8);
}
