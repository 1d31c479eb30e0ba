//! The lifecycle that every mode and engine shares: staged, checkpointed, committed.

use async_trait::async_trait;
use futures::future::BoxFuture;
use std::sync::Arc;

use super::live::LiveVersion;
use super::seal::{Counts, OutputFile, Seal, SealedFile};
use super::segment::{CheckpointRow, Decision};
use crate::error::{Error, Result};
use crate::identity::CheckpointId;

/// Where a checkpoint stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CheckpointState {
    /// Sealed, and in no commit.
    Checkpointed,
    /// In this commit.
    Committed(u64),
    /// Sealed, but its atoms were covered already: it counts for nothing.
    Rejected,
    /// Made undone.
    Withdrawn,
    /// Recorded as done by a person, without work.
    Blessed,
}

/// A checkpoint as the store knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Its name.
    pub id: CheckpointId,
    /// Where it stands.
    pub state: CheckpointState,
    /// Its output files.
    pub outputs: Vec<OutputFile>,
    /// Its rows.
    pub counts: Counts,
}

impl From<&CheckpointRow> for Checkpoint {
    fn from(row: &CheckpointRow) -> Self {
        let state = match (row.decision, row.commit) {
            (Decision::Accepted, None) => CheckpointState::Checkpointed,
            (Decision::Accepted, Some(n)) => CheckpointState::Committed(n),
            (Decision::Rejected, _) => CheckpointState::Rejected,
            (Decision::Withdrawn, _) => CheckpointState::Withdrawn,
            (Decision::Blessed, _) => CheckpointState::Blessed,
        };
        Self { id: row.id, state, outputs: row.outputs.clone(), counts: row.counts }
    }
}

/// How a seal ended. Both are success for the task: it is sealed.
#[derive(Debug, Clone)]
#[must_use]
pub enum SealOutcome {
    /// By this attempt.
    Sealed(Arc<Seal>),
    /// By another attempt (or a void seal of the driver): what this attempt staged is garbage.
    Already(Arc<Seal>),
}

/// The lifecycle of checkpoints: `staged -> checkpointed -> committed`.
///
/// Legal order for one id: any number of [`stage_keys`](Self::stage_keys) and [`stage_files`](Self::stage_files), then
/// [`checkpoint`](Self::checkpoint), then, with others, [`mark_committed`](Self::mark_committed). Staging returns at
/// once; `checkpoint` waits for everything in flight. Sealing with nothing staged is fine (R49). Ids are independent of
/// each other (R50). What is staged and not sealed is invisible and is gone with the process.
#[async_trait]
pub trait CheckpointStore: Send + Sync {
    /// Stages what `id` covers.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) when `id` is already sealed by this process.
    fn stage_keys(&self, id: CheckpointId, keys: Vec<SealedFile>) -> Result<()>;

    /// Stages output files of `id`. `write` makes them durable; it runs in the background from now on.
    ///
    /// # Errors
    /// As [`stage_keys`](Self::stage_keys). Errors of `write` are those of [`checkpoint`](Self::checkpoint).
    fn stage_files(&self, id: CheckpointId, write: BoxFuture<'static, Result<Vec<OutputFile>>>) -> Result<()>;

    /// Waits for every write of `id` in flight, then seals it: the sync point. Sealing again returns the first seal.
    ///
    /// # Errors
    /// The first error of a staged write; then nothing is sealed and `id` can be staged anew.
    async fn checkpoint(&self, id: CheckpointId, counts: Counts) -> Result<SealOutcome>;

    /// What is covered by all live checkpoints of `source`, committed or not.
    async fn get_checkpointed_keys(&self, source: &str) -> Result<Vec<SealedFile>>;

    /// The output files that wait for a commit. Committed checkpoints contribute keys, never files (I7, R72).
    async fn get_checkpointed_files(&self) -> Result<Vec<OutputFile>>;

    /// One checkpoint; `None` when it is not sealed.
    async fn get_checkpoint(&self, id: CheckpointId) -> Result<Option<Checkpoint>>;

    /// All sealed checkpoints, ascending by id.
    async fn list_checkpoints(&self) -> Result<Vec<Checkpoint>>;

    /// Records that the outputs of exactly `ids` are visible in the caller's own sink, as one commit; its number.
    ///
    /// Ids that are committed already are left alone; when all are, nothing is written and the last number is returned.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) when one of `ids` is not a live sealed checkpoint; then none is marked.
    async fn mark_committed(&self, ids: &[CheckpointId]) -> Result<u64>;
}

/// What a live version covers, in the form in which it was staged.
pub(crate) fn sealed_file(source: &Arc<str>, version: &LiveVersion) -> SealedFile {
    SealedFile {
        source: Arc::clone(source),
        file: version.file.clone(),
        coverage: version.coverage.clone(),
        evidence: version.evidence.clone(),
        unsettled: version.unsettled,
    }
}

/// The refusal to stage for a sealed checkpoint.
pub(crate) fn is_sealed(id: CheckpointId) -> Error {
    Error::invalid(format!("{id} is sealed: nothing can be staged for it any more")).safe("its seal is kept")
}
