//! What is staged and not sealed: in this process only, invisible to everyone else.

use dashmap::DashMap;
use futures::future::BoxFuture;
use tokio::task::JoinSet;

use super::seal::{OutputFile, SealedFile};
use crate::error::{Error, Result};
use crate::identity::{AttemptNonce, CheckpointId};

/// Staged work by checkpoint. Nothing here blocks: writes in flight are tracked, and [`Staged::settle`] waits for them.
#[derive(Debug, Default)]
pub(crate) struct Staging(DashMap<CheckpointId, Staged>);

/// What one attempt has staged.
#[derive(Debug)]
pub(crate) struct Staged {
    pub(crate) attempt: AttemptNonce,
    pub(crate) keys: Vec<SealedFile>,
    writes: JoinSet<Result<Vec<OutputFile>>>,
}

impl Default for Staged {
    fn default() -> Self {
        Self { attempt: AttemptNonce::random(), keys: Vec::new(), writes: JoinSet::new() }
    }
}

impl Staging {
    /// The nonce of the present attempt of `id`.
    pub(crate) fn attempt(&self, id: CheckpointId) -> AttemptNonce {
        self.0.entry(id).or_default().attempt
    }

    pub(crate) fn keys(&self, id: CheckpointId, keys: Vec<SealedFile>) {
        self.0.entry(id).or_default().keys.extend(keys);
    }

    pub(crate) fn write(&self, id: CheckpointId, write: BoxFuture<'static, Result<Vec<OutputFile>>>) {
        self.0.entry(id).or_default().writes.spawn(write);
    }

    /// Takes what is staged for `id`; the next attempt begins anew, under another nonce.
    pub(crate) fn take(&self, id: CheckpointId) -> Staged {
        self.0.remove(&id).map(|(_, staged)| staged).unwrap_or_default()
    }
}

impl Staged {
    /// Waits for every write in flight.
    ///
    /// # Errors
    /// The first error of a write.
    pub(crate) async fn settle(&mut self) -> Result<Vec<OutputFile>> {
        let mut outputs = Vec::new();
        while let Some(written) = self.writes.join_next().await {
            let failed = |e| Error::invalid("a staged write was interrupted").caused_by(e);
            outputs.extend(written.map_err(failed)??);
        }
        outputs.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(outputs)
    }
}
