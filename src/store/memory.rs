//! The lifecycle in memory: for tests of planners, and as the plainest statement of the contract.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use futures::future::BoxFuture;
use tokio::task::JoinSet;

use super::checkpoint::{Checkpoint, CheckpointState, CheckpointStore, SealOutcome};
use super::live::Live;
use super::seal::{Counts, OutputFile, Seal, SealKind, SealedFile};
use super::segment::{Event, EventRow};
use crate::error::{Error, Result};
use crate::identity::{AttemptNonce, CheckpointId, Epoch, ManifestVersion, StoreId};

/// A [`CheckpointStore`] that is gone with the process.
#[derive(Debug)]
pub struct MemoryCheckpointStore {
    id: StoreId,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    staged: BTreeMap<CheckpointId, Staged>,
    seals: BTreeMap<CheckpointId, Arc<Seal>>,
    live: Live,
    commits: u64,
}

#[derive(Debug)]
struct Staged {
    attempt: AttemptNonce,
    keys: Vec<SealedFile>,
    writes: JoinSet<Result<Vec<OutputFile>>>,
}

impl Default for MemoryCheckpointStore {
    fn default() -> Self {
        Self { id: StoreId::random(), state: Mutex::default() }
    }
}

impl MemoryCheckpointStore {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn stage(&self, id: CheckpointId, add: impl FnOnce(&mut Staged)) -> Result<()> {
        let mut state = self.lock();
        if state.seals.contains_key(&id) {
            return Err(Error::invalid(format!("{id} is sealed: nothing can be staged for it any more")));
        }
        add(state.staged.entry(id).or_insert_with(|| Staged {
            attempt: AttemptNonce::random(),
            keys: Vec::new(),
            writes: JoinSet::new(),
        }));
        Ok(())
    }

    fn describe(state: &State, id: CheckpointId) -> Option<Checkpoint> {
        let row = state.live.checkpoint(id)?;
        let checkpointed = match (row.decision, row.commit) {
            (super::segment::Decision::Accepted, Some(n)) => CheckpointState::Committed(n),
            (super::segment::Decision::Accepted, None) => CheckpointState::Checkpointed,
            (super::segment::Decision::Rejected, _) => CheckpointState::Rejected,
            (super::segment::Decision::Withdrawn, _) => CheckpointState::Withdrawn,
        };
        Some(Checkpoint { id, state: checkpointed, outputs: row.outputs.clone(), counts: row.counts })
    }
}

#[async_trait]
impl CheckpointStore for MemoryCheckpointStore {
    fn stage_keys(&self, id: CheckpointId, keys: Vec<SealedFile>) -> Result<()> {
        self.stage(id, |staged| staged.keys.extend(keys))
    }

    fn stage_files(&self, id: CheckpointId, write: BoxFuture<'static, Result<Vec<OutputFile>>>) -> Result<()> {
        self.stage(id, |staged| drop(staged.writes.spawn(write)))
    }

    async fn checkpoint(&self, id: CheckpointId, counts: Counts) -> Result<SealOutcome> {
        let staged = {
            let mut state = self.lock();
            if let Some(seal) = state.seals.get(&id) {
                return Ok(SealOutcome::Already(Arc::clone(seal)));
            }
            state.staged.remove(&id)
        };
        let mut outputs = Vec::new();
        let (mut attempt, mut files) = (AttemptNonce::random(), Vec::new());
        if let Some(mut staged) = staged {
            (attempt, files) = (staged.attempt, staged.keys);
            while let Some(written) = staged.writes.join_next().await {
                let failed = |e| Error::invalid("a staged write was interrupted").caused_by(e);
                outputs.extend(written.map_err(failed)??);
            }
        }
        let seal = Arc::new(Seal {
            store: self.id,
            id,
            attempt,
            kind: SealKind::Sealed,
            planned_from: ManifestVersion(0),
            sealed_at: crate::time::now_ms(),
            files,
            outputs,
            counts,
        });
        let mut state = self.lock();
        if let Some(first) = state.seals.get(&id) {
            return Ok(SealOutcome::Already(Arc::clone(first)));
        }
        state.seals.insert(id, Arc::clone(&seal));
        state.live.decide(&seal);
        Ok(SealOutcome::Sealed(seal))
    }

    async fn get_checkpointed_keys(&self, source: &str) -> Result<Vec<SealedFile>> {
        let state = self.lock();
        let versions = state.live.files(source).flat_map(|(_, versions)| versions);
        Ok(versions
            .map(|v| SealedFile {
                source: source.into(),
                file: v.file.clone(),
                coverage: v.coverage.clone(),
                evidence: v.evidence.clone(),
                unsettled: v.unsettled,
            })
            .collect())
    }

    async fn get_checkpointed_files(&self) -> Result<Vec<OutputFile>> {
        Ok(self.lock().live.pending().flat_map(|row| row.outputs.clone()).collect())
    }

    async fn get_checkpoint(&self, id: CheckpointId) -> Result<Option<Checkpoint>> {
        Ok(Self::describe(&self.lock(), id))
    }

    async fn list_checkpoints(&self) -> Result<Vec<Checkpoint>> {
        let state = self.lock();
        Ok(state.live.checkpoints().filter_map(|row| Self::describe(&state, row.id)).collect())
    }

    async fn mark_committed(&self, ids: &[CheckpointId]) -> Result<u64> {
        let mut state = self.lock();
        let known =
            |id: &&CheckpointId| state.live.checkpoint(**id).is_some_and(|r| r.is_pending() || r.commit.is_some());
        if let Some(stranger) = ids.iter().find(|id| !known(id)) {
            return Err(
                Error::invalid(format!("{stranger} is not a live sealed checkpoint")).safe("nothing was marked")
            );
        }
        if ids.iter().all(|id| state.live.checkpoint(*id).is_some_and(|row| row.commit.is_some())) {
            return Ok(state.commits);
        }
        state.commits += 1;
        let event = Event::Intent { n: state.commits, files: 0, rows: 0, only: Some(ids.to_vec()) };
        state.live.happen(EventRow { version: ManifestVersion(0), epoch: Epoch(0), at: crate::time::now_ms(), event });
        Ok(state.commits)
    }
}
