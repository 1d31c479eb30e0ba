//! The lifecycle in memory: for tests of planners, and as the plainest statement of the contract.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use futures::future::BoxFuture;

use super::checkpoint::{Checkpoint, CheckpointStore, SealOutcome, is_sealed, sealed_file};
use super::live::Live;
use super::seal::{Counts, OutputFile, Seal, SealKind, SealedFile};
use super::segment::{Event, EventRow};
use super::staging::Staging;
use crate::error::{Error, Result};
use crate::identity::{CheckpointId, Epoch, ManifestVersion, StoreId};

/// A [`CheckpointStore`] that is gone with the process.
#[derive(Debug)]
pub struct MemoryCheckpointStore {
    id: StoreId,
    staging: Staging,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    seals: BTreeMap<CheckpointId, Arc<Seal>>,
    live: Live,
    commits: u64,
}

impl Default for MemoryCheckpointStore {
    fn default() -> Self {
        Self { id: StoreId::random(), staging: Staging::default(), state: Mutex::default() }
    }
}

impl MemoryCheckpointStore {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn check_unsealed(&self, id: CheckpointId) -> Result<()> {
        if self.lock().seals.contains_key(&id) { Err(is_sealed(id)) } else { Ok(()) }
    }
}

#[async_trait]
impl CheckpointStore for MemoryCheckpointStore {
    fn stage_keys(&self, id: CheckpointId, keys: Vec<SealedFile>) -> Result<()> {
        self.check_unsealed(id)?;
        self.staging.keys(id, keys);
        Ok(())
    }

    fn stage_files(&self, id: CheckpointId, write: BoxFuture<'static, Result<Vec<OutputFile>>>) -> Result<()> {
        self.check_unsealed(id)?;
        self.staging.write(id, write);
        Ok(())
    }

    async fn checkpoint(&self, id: CheckpointId, counts: Counts) -> Result<SealOutcome> {
        if let Some(seal) = self.lock().seals.get(&id) {
            return Ok(SealOutcome::Already(Arc::clone(seal)));
        }
        let mut staged = self.staging.take(id);
        let outputs = staged.settle().await?;
        let seal = Arc::new(Seal {
            store: self.id,
            id,
            attempt: staged.attempt,
            kind: SealKind::Sealed,
            planned_from: ManifestVersion(0),
            sealed_at: crate::time::now_ms(),
            files: staged.keys,
            keys: None,
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
        let name: Arc<str> = source.into();
        let state = self.lock();
        let versions = state.live.files(source).flat_map(|(_, versions)| versions);
        Ok(versions.map(|version| sealed_file(&name, version)).collect())
    }

    async fn get_checkpointed_files(&self) -> Result<Vec<OutputFile>> {
        Ok(self.lock().live.pending().flat_map(|row| row.outputs.clone()).collect())
    }

    async fn get_checkpoint(&self, id: CheckpointId) -> Result<Option<Checkpoint>> {
        Ok(self.lock().live.checkpoint(id).map(Checkpoint::from))
    }

    async fn list_checkpoints(&self) -> Result<Vec<Checkpoint>> {
        Ok(self.lock().live.checkpoints().map(Checkpoint::from).collect())
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
        let event = Event::Intent { n: state.commits, files: 0, rows: 0, only: Some(ids.to_vec()), holds: false };
        state.live.happen(EventRow { version: ManifestVersion(0), epoch: Epoch(0), at: crate::time::now_ms(), event });
        Ok(state.commits)
    }
}
