//! Row keys in the store: sealed, folded, read back, undone; and what two seals of one key come to.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::{ArrayRef, StringArray};
use lakemark::faults::{Act, Failure, Op, When};
use lakemark::{
    AttemptNonce, CheckpointId, CheckpointState, CheckpointStore, Counts, ErrorKind, KeyColumn, KeyKind, KeySpec,
    NullKeys, ObjectCheckpointStore, OutputFile, Root, Run, SealOutcome, SealRows, SourceSettings,
};
use object_store::memory::InMemory;

use crate::harness::{SOURCE, Site, collect_garbage, faulty, next, store_on, takeover, write_staged};

/// A fingerprint that is spread over all bits, as those of real keys are.
fn key(n: u64) -> u128 {
    u128::from(n).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835)
}

fn texts(keys: &[u64]) -> Vec<ArrayRef> {
    vec![Arc::new(keys.iter().map(|n| Some(n.to_string())).collect::<StringArray>())]
}

async fn seal_as(
    run: &Run,
    id: CheckpointId,
    attempt: AttemptNonce,
    keys: &[u64],
    outputs: Vec<OutputFile>,
) -> SealOutcome {
    let fingerprints = keys.iter().map(|n| key(*n)).collect();
    let rows = keys.len() as u64;
    let counts = Counts { rows_in: rows, rows_out: rows, rows_failed: 0 };
    let rows = SealRows { source: SOURCE.into(), fingerprints, values: texts(keys), outputs, counts };
    run.worker().seal_rows(id, attempt, rows).await.unwrap()
}

async fn seal(run: &Run, keys: &[u64]) -> CheckpointId {
    let id = next(run);
    assert!(matches!(seal_as(run, id, AttemptNonce::random(), keys, Vec::new()).await, SealOutcome::Sealed(_)));
    id
}

/// Which of the first thousand keys count.
async fn counted(store: &ObjectCheckpointStore) -> BTreeSet<u64> {
    let mut view = store.read().await.unwrap();
    let known = store.keys_of(&mut view, SOURCE).await.unwrap();
    let found: BTreeSet<u64> = (0..1_000).filter(|n| known.is_covered(&[key(*n)]).unwrap()).collect();
    assert_eq!(known.len(), found.len() as u64);
    found
}

fn set(keys: impl IntoIterator<Item = u64>) -> BTreeSet<u64> {
    keys.into_iter().collect()
}

#[tokio::test]
async fn keys_are_counted_from_their_seal_on_over_crashes_and_folds() {
    let store = store_on(Arc::new(InMemory::new()));
    let run = store.begin(takeover()).await.unwrap();
    seal(&run, &[3, 1, 2, 1]).await;
    seal(&run, &[7]).await;
    assert_eq!(counted(&store).await, set([1, 2, 3, 7]), "from loose seals");
    drop(run);
    let run = store.begin(takeover()).await.unwrap();
    assert_eq!(counted(&store).await, set([1, 2, 3, 7]), "from the segment that the opening wrote");
    for n in 10..60 {
        seal(&run, &[n]).await;
        run.fold().await.unwrap();
    }
    let all = set([1, 2, 3, 7].into_iter().chain(10..60));
    assert_eq!(counted(&store).await, all);
    run.close().await.unwrap();
    assert_eq!(counted(&store).await, all);
    let manifest = store.newest().await.unwrap().unwrap().manifest;
    assert!(manifest.keys.len() <= 4, "{} segments", manifest.keys.len());
    assert!(store.verify().await.unwrap().is_sound());
}

#[tokio::test]
async fn i5_of_two_seals_of_one_key_one_counts() {
    let store = store_on(Arc::new(InMemory::new()));
    let run = store.begin(takeover()).await.unwrap();
    let first = seal(&run, &[1, 2]).await;
    let second = seal(&run, &[2, 3]).await;
    run.fold().await.unwrap();
    let third = seal(&run, &[3, 4]).await;
    let late = seal(&run, &[1]).await;
    let state = async |id| run.get_checkpoint(id).await.unwrap().unwrap().state;
    assert_eq!(state(first).await, CheckpointState::Checkpointed);
    assert_eq!(state(second).await, CheckpointState::Rejected);
    assert_eq!(state(third).await, CheckpointState::Checkpointed, "what a rejected seal had is free");
    assert_eq!(state(late).await, CheckpointState::Rejected, "of a folded key too");
    run.close().await.unwrap();
    assert_eq!(counted(&store).await, set([1, 2, 3, 4]));
    // The same by a process that has only what is in the store.
    let run = store.begin(takeover()).await.unwrap();
    seal(&run, &[4, 5]).await;
    drop(run);
    assert_eq!(counted(&store).await, set([1, 2, 3, 4]));
    assert!(store.verify().await.unwrap().is_sound());
}

#[tokio::test]
async fn keys_of_what_is_undone_are_undone_also_in_merged_segments() {
    let site = Site::quick();
    let (store, sink) = (site.store(), site.sink());
    let run = site.begin().await;
    for keys in [[1, 2], [3, 4]] {
        let id = next(&run);
        let output = write_staged(&run, &sink, id, "", &format!("{keys:?}")).unwrap();
        let sealed = seal_as(&run, id, run.attempt(id), &keys, vec![output]).await;
        assert!(matches!(sealed, SealOutcome::Sealed(_)));
    }
    drop(run);
    assert_eq!(counted(&store).await, set([1, 2, 3, 4]));
    let lost = std::fs::read_dir(site.staged()).unwrap().map(|entry| entry.unwrap().path());
    let lost = lost.into_iter().find(|path| std::fs::read_to_string(path).unwrap() == "[3, 4]").unwrap();
    std::fs::remove_file(lost).unwrap();
    let run = site.begin().await;
    let known = run.keys_of(SOURCE).await.unwrap();
    assert!(known.is_covered(&[key(3)]).unwrap());
    let recovered = run.recover(Some(&sink)).await.unwrap();
    let _ = recovered;
    run.commit(Some(&sink)).await.unwrap();
    let known = run.keys_of(SOURCE).await.unwrap();
    assert!(!known.is_covered(&[key(3)]).unwrap() && known.is_covered(&[key(1)]).unwrap());
    assert_eq!(counted(&store).await, set([1, 2]));
    seal(&run, &[3]).await;
    run.commit(Some(&sink)).await.unwrap();
    run.close().await.unwrap();
    assert_eq!(counted(&store).await, set([1, 2, 3]));
    assert_eq!(site.visible(), ["[1, 2]"]);
    collect_garbage(&store, &site.objects(), &sink).await;
    assert_eq!(counted(&store).await, set([1, 2, 3]));
}

#[tokio::test]
async fn r81_missing_or_damaged_keys_are_an_error_and_never_an_empty_set() {
    let (faults, store) = faulty();
    let run = store.begin(takeover()).await.unwrap();
    seal(&run, &[1]).await;
    {
        let _gone = faults.plant(Op::Get, |name| name.contains("/keys/"), When::Every(1), Act::Fail(Failure::NotFound));
        let error = store.read().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains("the row keys of"), "{error}");
    }
    run.close().await.unwrap();
    let mut view = store.read().await.unwrap();
    let _gone = faults.plant(Op::Get, |name| name.starts_with("keys/"), When::Every(1), Act::Torn(5));
    let error = store.keys_of(&mut view, SOURCE).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unavailable), "{error}");
}

fn settings(on: Option<&str>) -> SourceSettings {
    let column = |name: &str| KeyColumn { name: name.to_owned(), kind: KeyKind::Integer };
    let spec = |on| KeySpec { version: 1, columns: vec![column(on)], nulls: NullKeys::Equal, values: true };
    let root = Root::parse("memory://x/lake").unwrap();
    match on {
        Some(on) => SourceSettings::rows(root, "parquet", spec(on)),
        None => SourceSettings::files(root, "parquet"),
    }
}

#[tokio::test]
async fn r109_another_mode_or_key_is_refused_with_the_ways_on() {
    let store = store_on(Arc::new(InMemory::new()));
    let begin = async |settings: SourceSettings| {
        let mut options = takeover();
        options.sources.insert(SOURCE.to_owned(), settings);
        store.begin(options).await
    };
    begin(settings(Some("id"))).await.unwrap().close().await.unwrap();
    begin(settings(Some("id"))).await.unwrap().close().await.unwrap();
    for (settings, words) in
        [(settings(None), ["rows mode", "files mode"]), (settings(Some("doc_id")), ["`id`", "`doc_id`"])]
    {
        let error = begin(settings).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
        let text = error.to_string();
        assert!(words.iter().all(|word| text.contains(word)) && text.contains("another `store`"), "{text}");
    }
}
