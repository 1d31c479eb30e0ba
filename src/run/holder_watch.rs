//! The holder check: whether the present holder of a store lives.

use std::time::Duration;

use tokio::time::Instant;

use super::begin::Wait;
use crate::error::{Error, ErrorKind, Result};
use crate::identity::{Epoch, ManifestVersion};
use crate::store::{Head, Holder, Lease, ObjectCheckpointStore, ObjectName};

/// What the check found.
pub(super) enum Verdict {
    /// There is no live holder, or it is to be taken over.
    Free,
    /// Something may have changed: read the store again.
    LookAgain,
}

/// A sign of life: the newest manifest and the newest beat.
type Sign = (Epoch, ManifestVersion, Option<u64>);

/// One observer's watch, on its own monotonic clock.
pub(super) struct HolderWatch {
    lease: Duration,
    wait: Wait,
    began: Option<Instant>,
    last: Option<(Sign, Instant)>,
    seen_life: bool,
}

impl HolderWatch {
    pub(super) fn new(lease: Lease, wait: Wait) -> Self {
        Self { lease: lease.lease, wait, began: None, last: None, seen_life: false }
    }

    /// Looks at the holder in `head` until it is gone, shows no life for one lease, or the store changes.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] naming it.
    pub(super) async fn observe(&mut self, store: &ObjectCheckpointStore, head: &Head) -> Result<Verdict> {
        let manifest = &head.manifest;
        let Some(holder) = &manifest.holder else { return Ok(Verdict::Free) };
        let pause = (self.lease / 20).clamp(Duration::from_millis(10), Duration::from_secs(1));
        loop {
            if self.wait == Wait::Takeover || holder.is_provably_dead() {
                tracing::info!(%holder, epoch = manifest.epoch.0, "taking over");
                return Ok(Verdict::Free);
            }
            if self.wait == Wait::No {
                return Err(busy(store, manifest.epoch, holder));
            }
            let began = *self.began.get_or_insert_with(|| {
                tracing::warn!(%holder, seconds = self.lease.as_secs_f32(), "the store is held; watching for signs of life");
                Instant::now()
            });
            let sign = (manifest.epoch, manifest.version, newest_beat(store, manifest.epoch).await?);
            let since = match self.last {
                Some((last, since)) if last == sign => since,
                last => {
                    // Any new beat or manifest is a sign; a new epoch is a new holder, not yet seen alive.
                    self.seen_life |= last.is_some_and(|(last, _)| last.0 == sign.0);
                    self.last.insert((sign, Instant::now())).1
                }
            };
            if since.elapsed() >= self.lease {
                tracing::warn!(%holder, "no sign of life during one lease; taking over");
                return Ok(Verdict::Free);
            }
            if began.elapsed() >= self.lease && self.seen_life {
                return Err(busy(store, manifest.epoch, holder));
            }
            tokio::time::sleep(pause).await;
            if store.chain.newest_version().await? != Some(manifest.version) {
                return Ok(Verdict::LookAgain);
            }
        }
    }
}

async fn newest_beat(store: &ObjectCheckpointStore, epoch: Epoch) -> Result<Option<u64>> {
    let names = store.medium.list(&ObjectName::beats(epoch)).await?;
    let beats = names.iter().filter_map(|name| match name.parse() {
        Ok(ObjectName::Beat(_, n)) => Some(n),
        _ => None,
    });
    Ok(beats.max())
}

fn busy(store: &ObjectCheckpointStore, epoch: Epoch, holder: &Holder) -> Error {
    Error::new(ErrorKind::Busy, format!("the store is held by {holder} (epoch {})", epoch.0))
        .at(store.root())
        .safe("nothing was changed; the other run goes on")
        .way("wait for it to finish, then run again")
        .way("run with --takeover, to fence it: what it has sealed is kept, what it has not sealed is done again")
}
