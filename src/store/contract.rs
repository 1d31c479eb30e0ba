//! The contract of [`CheckpointStore`], as a test suite that every implementation runs.
#![allow(clippy::unwrap_used, reason = "a broken contract is to panic")]

use super::checkpoint::{CheckpointState, CheckpointStore, SealOutcome};
use super::seal::{Counts, OutputFile, SealedFile};
use crate::coverage::{Coverage, RangeSet};
use crate::error::{Error, ErrorKind};
use crate::identity::{CheckpointId, Evidence, FileVersion, InputId};

/// Gives the contract suite fresh ids and output names that the store accepts.
pub trait ContractSubject: CheckpointStore {
    /// The id of task `input`.
    fn id(&self, input: u32) -> CheckpointId;
    /// An output name that the present attempt of `id` may use.
    fn output_name(&self, id: CheckpointId, part: u32) -> String;
}

fn key(path: &str, coverage: Coverage) -> SealedFile {
    SealedFile {
        source: "docs".into(),
        file: FileVersion::new(path, 100).with_mtime(7),
        coverage,
        evidence: Evidence::new(&[10, 10], "00".into()),
        unsettled: false,
    }
}

fn file(name: String) -> OutputFile {
    OutputFile { name, folder: String::new(), size: 1, rows: 1, upload: None }
}

fn group(n: u64) -> Coverage {
    Coverage::groups(RangeSet::of(n..n + 1))
}

/// Runs the whole suite on `store`, which must be fresh.
///
/// # Panics
/// When the contract is broken, naming the clause.
pub async fn check<S: ContractSubject>(store: &S) {
    let counts = Counts { rows_in: 10, rows_out: 1, rows_failed: 0 };
    assert!(store.list_checkpoints().await.unwrap().is_empty(), "a fresh store has no checkpoints");
    assert_eq!(store.get_checkpoint(store.id(0)).await.unwrap(), None, "nothing is sealed yet");

    // Sealing nothing is fine (R49).
    let nothing = store.id(0);
    assert!(matches!(store.checkpoint(nothing, Counts::default()).await.unwrap(), SealOutcome::Sealed(_)));
    assert_eq!(store.get_checkpoint(nothing).await.unwrap().unwrap().state, CheckpointState::Checkpointed);

    // What is staged is invisible until the seal, and the seal waits for writes in flight.
    let first = store.id(1);
    let name = store.output_name(first, 0);
    let (go, gate) = tokio::sync::oneshot::channel::<()>();
    store.stage_keys(first, vec![key("a", group(0))]).unwrap();
    let written = file(name.clone());
    let write = async move {
        gate.await.map_err(|_| Error::invalid("the gate was dropped"))?;
        Ok(vec![written])
    };
    store.stage_files(first, Box::pin(write)).unwrap();
    assert!(store.get_checkpointed_keys("docs").await.unwrap().is_empty(), "staged keys are invisible");
    assert!(store.get_checkpointed_files().await.unwrap().is_empty(), "staged files are invisible");
    let sealing = store.checkpoint(first, counts);
    let opening = async {
        tokio::task::yield_now().await;
        go.send(()).expect("the write waits");
    };
    let (sealed, ()) = tokio::join!(sealing, opening);
    let SealOutcome::Sealed(seal) = sealed.unwrap() else { panic!("the first seal wins") };
    assert_eq!(seal.outputs, [file(name.clone())], "the seal waited for the write in flight");
    assert_eq!(store.get_checkpointed_keys("docs").await.unwrap()[0].coverage, group(0));
    assert_eq!(store.get_checkpointed_files().await.unwrap(), [file(name.clone())]);

    // Sealing again returns the first seal; nothing can be staged any more.
    let SealOutcome::Already(again) = store.checkpoint(first, Counts::default()).await.unwrap() else {
        panic!("a second seal of one id is the first one")
    };
    assert_eq!(again.attempt, seal.attempt);
    assert!(store.get_checkpoint(first).await.unwrap().is_some_and(|c| c.counts == counts));

    // A failed write seals nothing; the id can be staged anew.
    let retried = store.id(2);
    store.stage_keys(retried, vec![key("b", Coverage::Whole)]).unwrap();
    store
        .stage_files(retried, Box::pin(async { Err(Error::new(ErrorKind::Unavailable, "the disk is full")) }))
        .unwrap();
    assert_eq!(store.checkpoint(retried, counts).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(store.get_checkpoint(retried).await.unwrap(), None, "a failed write seals nothing");
    store.stage_keys(retried, vec![key("b", Coverage::Whole)]).unwrap();
    assert!(matches!(store.checkpoint(retried, counts).await.unwrap(), SealOutcome::Sealed(_)));

    // Ids are independent, also at once (R50).
    let many: Vec<_> = (10..18).map(|i| store.id(i)).collect();
    for (i, id) in many.iter().enumerate() {
        store.stage_keys(*id, vec![key(&format!("m{i}"), Coverage::Whole)]).unwrap();
    }
    for outcome in futures::future::join_all(many.iter().map(|id| store.checkpoint(*id, counts))).await {
        assert!(matches!(outcome.unwrap(), SealOutcome::Sealed(_)));
    }

    // A seal over atoms that are covered already is rejected, and blocks nothing (I5).
    let overlapping = store.id(3);
    store.stage_keys(overlapping, vec![key("a", Coverage::Whole)]).unwrap();
    assert!(store.checkpoint(overlapping, counts).await.is_ok());
    assert_eq!(store.get_checkpoint(overlapping).await.unwrap().unwrap().state, CheckpointState::Rejected);
    let rest = store.id(4);
    store.stage_keys(rest, vec![key("a", group(1))]).unwrap();
    assert!(store.checkpoint(rest, counts).await.is_ok());
    let keys = store.get_checkpointed_keys("docs").await.unwrap();
    assert_eq!(keys.iter().find(|k| &*k.file.path == "a").unwrap().coverage, Coverage::Whole);

    // Commits are of exactly the named ids; committed checkpoints contribute keys, never files (R71, R72).
    let stranger = store.id(99);
    assert_eq!(store.mark_committed(&[first, stranger]).await.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(
        store.get_checkpoint(first).await.unwrap().unwrap().state,
        CheckpointState::Checkpointed,
        "none is marked"
    );
    let n = store.mark_committed(&[first]).await.unwrap();
    assert_eq!(store.get_checkpoint(first).await.unwrap().unwrap().state, CheckpointState::Committed(n));
    assert_eq!(store.get_checkpoint(rest).await.unwrap().unwrap().state, CheckpointState::Checkpointed);
    assert!(store.get_checkpointed_files().await.unwrap().is_empty(), "committed files are not offered again");
    assert!(store.get_checkpointed_keys("docs").await.unwrap().iter().any(|k| &*k.file.path == "a"));
    assert_eq!(store.mark_committed(&[first]).await.unwrap(), n, "marking again changes nothing");
    assert!(store.mark_committed(&[rest, first]).await.unwrap() > n);

    // Ids come back in order.
    let ids: Vec<_> = store.list_checkpoints().await.unwrap().iter().map(|c| c.id).collect();
    assert!(ids.is_sorted() && ids.contains(&overlapping), "{ids:?}");

    // Staging for a sealed id is an error, not a silent loss.
    assert_eq!(store.stage_keys(store.id(2), vec![]).unwrap_err().kind(), ErrorKind::Invalid);
}

impl ContractSubject for super::MemoryCheckpointStore {
    fn id(&self, input: u32) -> CheckpointId {
        CheckpointId::first(crate::Epoch(1), InputId(input))
    }

    fn output_name(&self, _: CheckpointId, part: u32) -> String {
        format!("part-{part}")
    }
}

impl ContractSubject for crate::Run {
    fn id(&self, input: u32) -> CheckpointId {
        CheckpointId::first(self.worker().epoch(), InputId(input))
    }

    fn output_name(&self, id: CheckpointId, part: u32) -> String {
        crate::output_name(&self.worker().store_id().short(), id, self.attempt(id), part, "parquet")
    }
}
