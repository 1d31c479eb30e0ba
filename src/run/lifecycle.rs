//! [`CheckpointStore`] on a won epoch.

use std::sync::Arc;

use async_trait::async_trait;
use futures::future::BoxFuture;

use super::state::Run;
use crate::error::Result;
use crate::identity::{AttemptNonce, CheckpointId};
use crate::store::checkpoint::{is_sealed, sealed_file};
use crate::store::{Checkpoint, CheckpointStore, Counts, Live, OutputFile, Seal, SealKind, SealOutcome, SealedFile};

impl Run {
    /// The nonce that names the output files of the present attempt of `id`; see [`output_name`](crate::output_name).
    pub fn attempt(&self, id: CheckpointId) -> AttemptNonce {
        self.staging.attempt(id)
    }

    /// Drops what an earlier attempt of `id` staged in this process; the next attempt has another nonce.
    pub fn abandon(&self, id: CheckpointId) {
        drop(self.staging.take(id));
    }

    fn check_unsealed(&self, id: CheckpointId) -> Result<()> {
        if self.worker().is_sealed(id) { Err(is_sealed(id)) } else { Ok(()) }
    }
}

#[async_trait]
impl CheckpointStore for Run {
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
        if let Some(seal) = self.worker().sealed(id) {
            return Ok(SealOutcome::Already(seal));
        }
        let mut staged = self.staging.take(id);
        let outputs = staged.settle().await?;
        let worker = self.worker();
        let seal = Seal {
            store: worker.store_id(),
            id,
            attempt: staged.attempt,
            kind: SealKind::Sealed,
            planned_from: worker.known_version(),
            sealed_at: crate::time::now_ms(),
            files: staged.keys,
            keys: None,
            outputs,
            counts,
        };
        worker.seal(seal).await
    }

    async fn get_checkpointed_keys(&self, source: &str) -> Result<Vec<SealedFile>> {
        self.fold().await?;
        let name: Arc<str> = source.into();
        let keys = |live: &Live| {
            let versions = live.files(source).flat_map(|(_, versions)| versions);
            versions.map(|version| sealed_file(&name, version)).collect()
        };
        Ok(self.with_live(|_, live| keys(live)).await)
    }

    async fn get_checkpointed_files(&self) -> Result<Vec<OutputFile>> {
        self.fold().await?;
        Ok(self.with_live(|_, live| live.pending().flat_map(|row| row.outputs.clone()).collect()).await)
    }

    async fn get_checkpoint(&self, id: CheckpointId) -> Result<Option<Checkpoint>> {
        self.fold().await?;
        Ok(self.with_live(|_, live| live.checkpoint(id).map(Checkpoint::from)).await)
    }

    async fn list_checkpoints(&self) -> Result<Vec<Checkpoint>> {
        self.fold().await?;
        Ok(self.with_live(|_, live| live.checkpoints().map(Checkpoint::from).collect()).await)
    }

    async fn mark_committed(&self, ids: &[CheckpointId]) -> Result<u64> {
        self.commit_exactly(ids).await
    }
}
