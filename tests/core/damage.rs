//! Objects that are damaged, missing, foreign or from the future (R62, R82-R85, R124).

use lakemark::{ErrorKind, ObjectCheckpointStore, Wait};
use rstest::rstest;

use crate::harness::{faulty, get, names, put, seal, seen_done, takeover, whole};
use lakemark::faults::FaultStore;

/// A store with a folded segment, a loose seal, and an intent that is open on a commit object.
async fn lived_in() -> (FaultStore, ObjectCheckpointStore) {
    use lakemark::faults::{Act, Failure, Op, When};
    let (faults, store) = faulty();
    let run = store.begin(takeover()).await.unwrap();
    let _ = seal(&run, vec![whole("a")]).await.unwrap();
    {
        let is_done = |path: &str| path == "manifests/00000000000000000003.json";
        let _crash = faults.plant(Op::Put, is_done, When::Always, Act::Fail(Failure::Denied));
        assert!(run.commit(None).await.is_err(), "stopped between intent and done");
    }
    let _ = seal(&run, vec![whole("b")]).await.unwrap();
    drop(run);
    (faults, store)
}

/// A run knows what it sealed: a store that was swapped or cleaned under it is no store with less in it.
#[tokio::test]
async fn a_seal_that_vanished_under_its_run_is_corrupt_and_named() {
    let (faults, store) = faulty();
    let run = store.begin(takeover()).await.unwrap();
    let _ = seal(&run, vec![whole("a")]).await.unwrap();
    let _ = seal(&run, vec![whole("b")]).await.unwrap();
    let name = object(&faults, "/seals/").await;
    object_store::ObjectStoreExt::delete(&faults, &name.as_str().into()).await.unwrap();
    let error = run.fold().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains(&name), "{error}");
    assert!(run.commit(None).await.is_err(), "nothing is committed as if it were all");
    drop(run);
    let run = store.begin(takeover()).await.unwrap();
    assert_eq!(seen_done(&store).await, ["a"], "what is there counts, the rest is done again");
    run.close().await.unwrap();
}

async fn object(faults: &FaultStore, folder: &str) -> String {
    names(faults).await.into_iter().rfind(|name| name.contains(folder)).unwrap()
}

#[rstest]
#[tokio::test]
async fn r82_damage_is_corrupt_and_named(
    #[values("manifests/", "segments/", "/seals/", "commits/")] folder: &str,
    #[values("flip", "empty", "half", "other")] damage: &str,
) {
    let (faults, store) = lived_in().await;
    let name = object(&faults, folder).await;
    let sound = get(&faults, &name).await;
    let middle = sound.len() / 2;
    let damaged = match damage {
        "flip" => {
            let mut bytes = sound.clone();
            bytes[middle] ^= 1;
            bytes
        }
        "empty" => Vec::new(),
        "half" => sound[..middle].to_vec(),
        _ => b"{}".to_vec(),
    };
    put(&faults, &name, damaged).await;
    let before = names(&faults).await;
    let error = if folder == "commits/" {
        assert!(store.read().await.is_ok(), "planning does not need the commit object");
        let run = store.begin(takeover()).await.unwrap();
        let error = run.commit(None).await.unwrap_err();
        assert!(run.commit(None).await.is_err(), "it stays so");
        error
    } else {
        let error = store.read().await.unwrap_err();
        assert_eq!(store.begin(takeover()).await.unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(names(&faults).await, before, "nothing was written");
        error
    };
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert_eq!(error.place(), Some(format!("memory://x/store/{name}").as_str()), "{error}");
    // R83: the rest of the store is usable once the object is back.
    put(&faults, &name, sound).await;
    assert_eq!(seen_done(&store).await, ["a", "b"]);
    let run = store.begin(takeover()).await.unwrap();
    let committed: u64 = run.commit(None).await.unwrap().iter().map(|c| c.checkpoints).sum();
    assert_eq!(committed, 2);
    run.close().await.unwrap();
}

#[tokio::test]
async fn a_missing_commit_object_is_corrupt_and_named() {
    use object_store::ObjectStoreExt;
    let (faults, store) = lived_in().await;
    let name = object(&faults, "commits/").await;
    faults.delete(&name.as_str().into()).await.unwrap();
    let run = store.begin(takeover()).await.unwrap();
    let error = run.commit(None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.place().unwrap().ends_with(&name), "{error}");
}

/// I6: an intent is of exactly its set; a sound commit object of another set is as bad as a damaged one.
#[tokio::test]
async fn i6_a_commit_object_of_another_set_is_corrupt() {
    let (faults, store) = lived_in().await;
    let name = object(&faults, "commits/").await;
    let (others, other) = faulty();
    let run = other.begin(takeover()).await.unwrap();
    for path in ["a", "b"] {
        let _ = seal(&run, vec![whole(path)]).await.unwrap();
    }
    assert_eq!(run.commit(None).await.unwrap()[0].checkpoints, 2);
    let theirs = get(&others, &object(&others, "commits/").await).await;
    put(&faults, &name, theirs).await;
    let run = store.begin(takeover()).await.unwrap();
    let error = run.commit(None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.place().unwrap().ends_with(&name), "{error}");
}

#[tokio::test]
async fn a_seal_at_another_ones_name_is_corrupt() {
    let (faults, store) = lived_in().await;
    let name = object(&faults, "/seals/").await;
    let copy = name.replace("0000000001.0000", "0000000007.0000");
    assert_ne!(name, copy);
    put(&faults, &copy, get(&faults, &name).await).await;
    let error = store.read().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.place().unwrap().ends_with(&copy), "{error}");
}

/// R124.
#[rstest]
#[case::manifest("manifests/", "manifest")]
#[case::seal("/seals/", "seal")]
#[tokio::test]
async fn r124_a_newer_format_is_incompatible(#[case] folder: &str, #[case] kind: &str) {
    let (faults, store) = lived_in().await;
    let name = object(&faults, folder).await;
    put(&faults, &name, format!(r#"{{"lakemark":"{kind}","format":2,"anything":[]}}"#)).await;
    for error in [store.read().await.unwrap_err(), store.begin(takeover()).await.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
        assert!(error.place().unwrap().ends_with(&name), "{error}");
    }
}

/// R85.
#[tokio::test]
async fn r85_foreign_objects_mean_nothing_and_are_listed() {
    let (faults, store) = lived_in().await;
    assert!(store.unknown_objects().await.unwrap().is_empty());
    let foreign = [
        ".DS_Store",
        "backup.parquet",
        "epochs/0000000001/seals/00000/0000000001.0000.json.bak",
        "epochs/0000000001/seals/00000/x.json",
        "epochs/0000000001/seals/00009/0000000001.0000.json",
        "manifests/00000000000000000099.json.tmp",
        "manifests/99.json",
        "notes.txt",
        "segments/old.parquet",
    ];
    for name in foreign {
        put(&faults, name, "no object of ours").await;
    }
    assert_eq!(seen_done(&store).await, ["a", "b"]);
    let run = store.begin(takeover()).await.unwrap();
    assert_eq!(run.commit(None).await.unwrap().len(), 2);
    run.close().await.unwrap();
    let mut unknown = store.unknown_objects().await.unwrap();
    unknown.sort_unstable();
    assert_eq!(unknown, foreign);
}

/// R62: a store whose chain is lost is never begun anew.
#[rstest]
#[case::foreign("notes.txt")]
#[case::ours("epochs/0000000001/seals/00000/0000000001.0000.json")]
#[tokio::test]
async fn r62_objects_without_a_manifest_are_no_new_store(#[case] name: &str) {
    let (faults, store) = faulty();
    put(&faults, name, "x").await;
    for error in [store.read().await.unwrap_err(), store.begin(takeover()).await.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains(name), "{error}");
    }
    assert_eq!(names(&faults).await, [name]);
}

#[tokio::test]
async fn r62_a_chain_that_vanishes_under_a_run_stops_it() {
    use object_store::ObjectStoreExt;
    let (faults, store) = lived_in().await;
    let run = store.begin(takeover()).await.unwrap();
    for name in names(&faults).await.iter().filter(|name| name.starts_with("manifests/")) {
        faults.delete(&name.as_str().into()).await.unwrap();
    }
    assert_eq!(seal(&run, vec![whole("c")]).await.unwrap_err().kind(), ErrorKind::Corrupt);
    assert!(store.begin(takeover()).await.is_err());
}

#[tokio::test]
async fn a_probe_left_by_a_crash_is_no_store() {
    let (faults, store) = faulty();
    put(&faults, "probes/0123456789abcdef", "x").await;
    let run = store.begin(takeover()).await.unwrap();
    assert_eq!(run.worker().epoch().0, 1);
    run.close().await.unwrap();
}

/// What `repair` makes of each kind of damage: what only a damaged seal said is done again, a commit object is made again,
/// a damaged newest manifest is left for the one before it, and what nothing can replace is said and left as it is.
#[rstest]
#[case("manifests/", &["a", "b"])]
#[case("/seals/", &["a"])]
#[case("commits/", &["a", "b"])]
#[case("segments/", &[])]
#[tokio::test]
async fn each_kind_of_damage_is_repaired_or_said_to_be_beyond_it(
    #[case] folder: &str,
    #[case] left: &[&str],
    #[values("flip", "empty", "half", "gone")] damage: &str,
) {
    let (faults, store) = lived_in().await;
    let name = object(&faults, folder).await;
    let sound = get(&faults, &name).await;
    match damage {
        "flip" => {
            let mut bytes = sound.clone();
            bytes[sound.len() / 2] ^= 1;
            put(&faults, &name, bytes).await;
        }
        "empty" => put(&faults, &name, Vec::new()).await,
        "half" => put(&faults, &name, sound[..sound.len() / 2].to_vec()).await,
        _ => object_store::ObjectStoreExt::delete(&faults, &name.as_str().into()).await.unwrap(),
    }
    let before = names(&faults).await;
    let repair = store.repair_plan().await.unwrap();
    assert_eq!(names(&faults).await, before, "a plan changes nothing");
    if left.is_empty() {
        assert_eq!((repair.beyond.len(), &repair.beyond[0].object), (1, &name), "{repair:?}");
        let error = store.repair(&repair, Wait::Takeover).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains(&name) && error.ways().len() > 1, "{error}");
        assert_eq!(names(&faults).await, before, "and nothing is changed");
        return;
    }
    // A seal or manifest that is gone leaves no trace: what it said is not known any more.
    let untraceable = damage == "gone" && !folder.starts_with("commits");
    assert_eq!(repair.is_empty(), untraceable, "{repair:?}");
    assert_eq!(repair.back_to.is_some(), folder == "manifests/" && damage != "gone");
    assert_eq!(repair.rebuilt.len(), usize::from(folder == "commits/"));
    if !repair.is_empty() {
        let busy = store.repair(&repair, Wait::No).await.unwrap_err();
        assert_eq!(busy.kind(), ErrorKind::Busy, "its driver is this process, which lives");
    }
    store.repair(&repair, Wait::Takeover).await.unwrap();
    assert!(store.verify().await.unwrap().is_sound());
    if damage != "gone" {
        let kept = names(&faults).await.into_iter().find(|kept| kept.starts_with("quarantine/")).unwrap();
        assert!(kept.ends_with(&name), "{kept}");
    }
    assert!(store.unknown_objects().await.unwrap().is_empty());
    let run = store.begin(takeover()).await.unwrap();
    run.commit(None).await.unwrap();
    run.close().await.unwrap();
    assert_eq!(seen_done(&store).await, left);
    assert!(store.repair_plan().await.unwrap().is_empty());
}
