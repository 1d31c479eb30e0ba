//! Winning an epoch.

use std::collections::BTreeMap;

use super::holder_watch::{HolderWatch, Verdict};
use super::state::Run;
use crate::error::Result;
use crate::identity::{Epoch, ManifestVersion};
use crate::steps::reach;
use crate::store::chain::Appended;
use crate::store::segment::SegmentData;
use crate::store::transition::{SegmentChange, Transition, check_settings};
use crate::store::{Binding, Event, EventRow, Holder, Lease, ObjectCheckpointStore, ObjectName, SourceSettings, View};

/// What to do about a holder that may be live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wait {
    /// Watch it for one lease: take over if it shows no life, else [`Busy`](crate::ErrorKind::Busy).
    #[default]
    Lease,
    /// [`Busy`](crate::ErrorKind::Busy) at once, unless it is provably dead.
    No,
    /// Take over. Safe, and the other holder's unsealed work is lost.
    Takeover,
}

/// What an epoch is opened with.
#[derive(Debug, Clone, Default)]
pub struct BeginOptions {
    /// The sources, by name. Those that the store knows must be equal.
    pub sources: BTreeMap<String, SourceSettings>,
    /// The destination; `None` is a run without one.
    pub sink: Option<Binding>,
    /// What to do about another holder.
    pub wait: Wait,
    /// Beat and lease.
    pub lease: Lease,
}

impl ObjectCheckpointStore {
    /// Whether there are seals of `epoch`, which nobody but workers under its holder write.
    async fn was_used(&self, epoch: Epoch) -> Result<bool> {
        let names = self.medium.list(&ObjectName::seals(epoch)).await?;
        Ok(names.iter().any(|name| matches!(name.parse(), Ok(ObjectName::Seal(_)))))
    }

    /// Wins a new epoch: fences every older one, folds the seals it left, and makes this process the holder.
    ///
    /// # Errors
    /// [`Busy`](crate::ErrorKind::Busy) naming the live holder, [`Refused`](crate::ErrorKind::Refused) when a setting
    /// differs from the store's, [`Unsupported`](crate::ErrorKind::Unsupported) for a backend that is not safe.
    pub async fn begin(&self, options: BeginOptions) -> Result<Run> {
        self.begin_from(View::default(), options).await
    }

    /// As [`begin`](Self::begin), for who has read the store: what `view` holds is read again only if it changed since.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub async fn begin_from(&self, view: View, options: BeginOptions) -> Result<Run> {
        let mut watch = HolderWatch::new(options.lease, options.wait);
        let (mut probed, mut seen) = (false, view);
        loop {
            let view = self.refresh(std::mem::take(&mut seen)).await?;
            let endpoint = self.endpoint();
            if let Some(head) = &view.head {
                check_settings(&head.manifest, &options.sources, options.sink.as_ref())?;
                if let Verdict::LookAgain = watch.observe(self, head).await? {
                    continue;
                }
            }
            // What creates atomically at one endpoint need not at another one of the same store.
            let known = view.head.as_ref().is_some_and(|head| head.manifest.endpoint == endpoint);
            if !known && !std::mem::replace(&mut probed, true) {
                self.probe().await?;
            }
            let holder = Holder::current(crate::time::now_ms());
            let (epoch, version) = match &view.head {
                Some(head) => (head.manifest.epoch.next(), head.manifest.version.next()),
                None => (Epoch(1), ManifestVersion(1)),
            };
            let event = Event::Opened { holder: holder.to_string() };
            let opened = EventRow { version, epoch, at: holder.since, event };
            let mut delta = view.loose.clone().then(SegmentData { events: vec![opened], ..SegmentData::default() });
            let mut segments = SegmentChange::default();
            if let Some(head) = view.head.as_ref().filter(|_| !delta.checkpoints.is_empty()) {
                // A seal of an older epoch counts only if the manifest that fences it names it (I4).
                let merged = self.flush(&head.manifest, std::mem::take(&mut delta), version, &view.live).await;
                if merged.is_err() && self.chain.newest_version().await? != Some(head.manifest.version) {
                    // What that manifest named may be garbage by now.
                    continue;
                }
                segments = merged?;
            }
            reach("open.before_manifest");
            let open = Transition::Open {
                holder,
                sources: options.sources.clone(),
                sink: options.sink.clone(),
                endpoint,
                segments,
            };
            match self.chain.append(view.head.as_ref(), &open).await? {
                Appended::Newest(_) if self.was_used(epoch).await? => {
                    // A chain that lost its newest manifests counts again through numbers that were given. What was sealed
                    // under them is folded by the next opening; nothing of this one must meet it by its name.
                    tracing::warn!(epoch = epoch.0, "the number of this epoch was used before: opening the next one");
                    seen = View::default();
                    watch = HolderWatch::new(options.lease, Wait::Takeover);
                }
                Appended::Newest(head) => {
                    reach("open.after_manifest");
                    tracing::info!(epoch = head.manifest.epoch.0, store = %self.root(), "opened an epoch");
                    return Ok(Run::start(self.clone(), head, View { loose: delta, ..view }, options.lease));
                }
                // Decide again from the start, from what is there now.
                Appended::Overtaken(_) => {}
            }
        }
    }
}
