//! [`CheckpointStore`] on a won epoch.

use std::sync::Arc;

use async_trait::async_trait;
use dashmap::DashMap;
use futures::future::BoxFuture;
use tokio::task::JoinSet;

use super::state::Run;
use crate::error::{Error, Result};
use crate::identity::{AttemptNonce, CheckpointId};
use crate::store::{
    Checkpoint, CheckpointRow, CheckpointState, CheckpointStore, Counts, Decision, OutputFile, Seal, SealKind,
    SealOutcome, SealedFile,
};

/// What is staged and not sealed, by checkpoint.
#[derive(Debug, Default)]
pub(super) struct Staging(DashMap<CheckpointId, Staged>);

#[derive(Debug)]
struct Staged {
    attempt: AttemptNonce,
    keys: Vec<SealedFile>,
    writes: JoinSet<Result<Vec<OutputFile>>>,
}

impl Default for Staged {
    fn default() -> Self {
        Self { attempt: AttemptNonce::random(), keys: Vec::new(), writes: JoinSet::new() }
    }
}

impl Run {
    /// The nonce that names the output files of the present attempt of `id`; see [`output_name`](crate::output_name).
    pub fn attempt(&self, id: CheckpointId) -> AttemptNonce {
        self.staging.0.entry(id).or_default().attempt
    }

    /// Drops what an earlier attempt of `id` staged in this process; the next attempt has another nonce.
    pub fn abandon(&self, id: CheckpointId) {
        self.staging.0.remove(&id);
    }

    fn stage(&self, id: CheckpointId, add: impl FnOnce(&mut Staged)) -> Result<()> {
        if self.worker().sealed(id).is_some() {
            return Err(Error::invalid(format!("{id} is sealed: nothing can be staged for it any more")));
        }
        add(&mut self.staging.0.entry(id).or_default());
        Ok(())
    }
}

fn checkpoint(row: &CheckpointRow) -> Checkpoint {
    let state = match (row.decision, row.commit) {
        (Decision::Accepted, None) => CheckpointState::Checkpointed,
        (Decision::Accepted, Some(n)) => CheckpointState::Committed(n),
        (Decision::Rejected, _) => CheckpointState::Rejected,
        (Decision::Withdrawn, _) => CheckpointState::Withdrawn,
    };
    Checkpoint { id: row.id, state, outputs: row.outputs.clone(), counts: row.counts }
}

#[async_trait]
impl CheckpointStore for Run {
    fn stage_keys(&self, id: CheckpointId, keys: Vec<SealedFile>) -> Result<()> {
        self.stage(id, |staged| staged.keys.extend(keys))
    }

    fn stage_files(&self, id: CheckpointId, write: BoxFuture<'static, Result<Vec<OutputFile>>>) -> Result<()> {
        self.stage(id, |staged| drop(staged.writes.spawn(write)))
    }

    async fn checkpoint(&self, id: CheckpointId, counts: Counts) -> Result<SealOutcome> {
        if let Some(seal) = self.worker().sealed(id) {
            return Ok(SealOutcome::Already(seal));
        }
        // Out of the map before the first await: a failed attempt is staged anew, under a new nonce.
        let Staged { attempt, keys, mut writes } = self.staging.0.remove(&id).map(|(_, s)| s).unwrap_or_default();
        let mut outputs = Vec::new();
        while let Some(written) = writes.join_next().await {
            let failed = |e| Error::invalid("a staged write was interrupted").caused_by(e);
            outputs.extend(written.map_err(failed)??);
        }
        outputs.sort_by(|a, b| a.name.cmp(&b.name));
        let worker = self.worker();
        let seal = Seal {
            store: worker.store_id(),
            id,
            attempt,
            kind: SealKind::Sealed,
            planned_from: worker.known_version(),
            sealed_at: crate::time::now_ms(),
            files: keys,
            outputs,
            counts,
        };
        worker.seal(seal).await
    }

    async fn get_checkpointed_keys(&self, source: &str) -> Result<Vec<SealedFile>> {
        self.fold().await?;
        let name: Arc<str> = source.into();
        Ok(self
            .with_live(|_, live| {
                let versions = live.files(source).flat_map(|(_, versions)| versions);
                let sealed = |v: &crate::store::LiveVersion| SealedFile {
                    source: Arc::clone(&name),
                    file: v.file.clone(),
                    coverage: v.coverage.clone(),
                    evidence: v.evidence.clone(),
                    unsettled: v.unsettled,
                };
                versions.map(sealed).collect()
            })
            .await)
    }

    async fn get_checkpointed_files(&self) -> Result<Vec<OutputFile>> {
        self.fold().await?;
        Ok(self.with_live(|_, live| live.pending().flat_map(|row| row.outputs.clone()).collect()).await)
    }

    async fn get_checkpoint(&self, id: CheckpointId) -> Result<Option<Checkpoint>> {
        self.fold().await?;
        Ok(self.with_live(|_, live| live.checkpoint(id).map(checkpoint)).await)
    }

    async fn list_checkpoints(&self) -> Result<Vec<Checkpoint>> {
        self.fold().await?;
        Ok(self.with_live(|_, live| live.checkpoints().map(checkpoint).collect()).await)
    }

    async fn mark_committed(&self, ids: &[CheckpointId]) -> Result<u64> {
        self.commit_exactly(ids).await
    }
}
