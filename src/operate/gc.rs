//! Garbage: what is proven dead, whatever its age, found by list, get, list again.

use std::collections::HashSet;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use object_store::ObjectMeta;
use serde::Serialize;

use super::{changed, check_bound, no_store};
use crate::error::Result;
use crate::identity::{AttemptNonce, CheckpointId, Epoch, ManifestVersion, StoreId};
use crate::run::{Change, Run};
use crate::sink::{Leftover, Sink};
use crate::store::transition::Transition;
use crate::store::{Decision, Event, Manifest, ObjectCheckpointStore, ObjectName, View};

/// A probe decides within seconds whether a backend is safe; one that old is of a process that died.
const PROBE_AGE: Duration = Duration::from_secs(3_600);
/// Deletions at a time.
const DELETES: usize = 16;

/// What is proven dead at one version of the chain.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Garbage {
    /// Objects of the store, by name, with their bytes.
    pub objects: Vec<(String, u64)>,
    /// Files beside the destination.
    pub outputs: Vec<Leftover>,
    /// Dead things that are younger than was asked for.
    pub too_young: u64,
    #[serde(skip)]
    names: Vec<ObjectName>,
}

impl Garbage {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.outputs.is_empty()
    }

    /// Bytes in all of it.
    pub fn bytes(&self) -> u64 {
        self.objects.iter().map(|(_, bytes)| bytes).chain(self.outputs.iter().map(|file| &file.size)).sum()
    }
}

impl ObjectCheckpointStore {
    /// What [`Run::collect`] would remove once an epoch for it is won, or, while the store is held, what is dead already.
    /// Changes nothing.
    ///
    /// `sink` is the store's destination; without it nothing beside the destination is looked at. What was written less
    /// than `min_age` before the newest object is left: a courtesy to readers that are still at an older version.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`Refused`](crate::ErrorKind::Refused) when `sink` is not the store's.
    pub async fn garbage(&self, sink: Option<&dyn Sink>, min_age: Duration) -> Result<Garbage> {
        let Some(head) = self.newest().await? else { return Err(no_store(self)) };
        let held = head.manifest.holder.as_ref().is_some_and(|holder| !holder.is_provably_dead());
        let epoch = if held { head.manifest.epoch } else { head.manifest.epoch.next() };
        self.find_garbage(sink, min_age, epoch).await
    }

    /// What is dead while `epoch` is the newest one, or as soon as it is.
    async fn find_garbage(&self, sink: Option<&dyn Sink>, min_age: Duration, epoch: Epoch) -> Result<Garbage> {
        // List, get, list again: between two listings with one newest version everything was as it was read.
        for _ in 0..5 {
            let view = self.read().await?;
            let Some(head) = &view.head else { return Err(no_store(self)) };
            if let Some(sink) = sink {
                check_bound(self, &head.manifest, sink).await?;
            }
            let retained = self.manifests().await?;
            let mut objects = self.medium.list_objects("").await?;
            objects.extend(self.medium.list_objects(ObjectName::UNFINISHED).await?);
            let leftovers = match sink {
                Some(sink) => sink.leftovers().await?,
                None => Vec::new(),
            };
            if self.chain.newest_version().await? == Some(head.manifest.version) {
                let dead = Dead::new(&view, &head.manifest, &retained, epoch);
                return Ok(dead.among(&objects, leftovers, min_age));
            }
        }
        Err(changed(self))
    }
}

impl Run {
    /// Removes what is proven dead under this epoch; what it was.
    ///
    /// # Errors
    /// [`Fenced`](crate::ErrorKind::Fenced) before anything is removed; an error of a deletion leaves the rest for the
    /// next time.
    pub async fn collect(&self, sink: Option<&dyn Sink>, min_age: Duration) -> Result<Garbage> {
        let garbage = self.store().find_garbage(sink, min_age, self.worker().epoch()).await?;
        if garbage.is_empty() {
            return Ok(garbage);
        }
        self.worker().guard().await?;
        if let Some(sink) = sink {
            sink.remove(&garbage.outputs).await?;
        }
        let medium = &self.store().medium;
        let deletions: Vec<_> = garbage.names.iter().map(|name| medium.delete(*name)).collect();
        stream::iter(deletions).buffer_unordered(DELETES).try_collect::<Vec<()>>().await?;
        let what = format!("{} objects and {} output files removed", garbage.objects.len(), garbage.outputs.len());
        let event = Event::Operated { verb: "gc".into(), what };
        self.operate(Transition::Fold, |_, _| Ok(vec![Change::Event(event)])).await?;
        Ok(garbage)
    }
}

/// What is dead in one state of the store.
struct Dead<'a> {
    view: &'a View,
    store: StoreId,
    newest: ManifestVersion,
    epoch: Epoch,
    last_commit: u64,
    /// Segments and commit objects that a retained manifest names.
    named: HashSet<ObjectName>,
}

impl<'a> Dead<'a> {
    fn new(view: &'a View, newest: &Manifest, retained: &[Manifest], epoch: Epoch) -> Self {
        let manifests = || retained.iter().chain([newest]);
        let segments = manifests().flat_map(|manifest| manifest.segments.iter().map(|segment| segment.name()));
        let keys = manifests().flat_map(|manifest| manifest.keys.iter().map(|segment| segment.name()));
        let intents = manifests().filter_map(|manifest| manifest.commits.open.as_ref().map(|intent| intent.name()));
        Self {
            view,
            store: newest.store,
            newest: newest.version,
            epoch,
            last_commit: newest.commits.last,
            named: segments.chain(keys).chain(intents).collect(),
        }
    }

    fn among(&self, objects: &[ObjectMeta], leftovers: Vec<Leftover>, min_age: Duration) -> Garbage {
        // Ages are told by the store's own clock.
        let now = objects.iter().map(|meta| meta.last_modified.timestamp_millis()).max().unwrap_or(0);
        let is_old =
            |modified: i64, age: Duration| u128::try_from(now - modified).is_ok_and(|ms| ms >= age.as_millis());
        let old_enough = |modified: i64, age: Duration| age.is_zero() || is_old(modified, age);
        let mut garbage = Garbage::default();
        for meta in objects {
            let Ok(name) = meta.location.as_ref().parse::<ObjectName>() else { continue };
            let modified = meta.last_modified.timestamp_millis();
            let is_probe = matches!(name, ObjectName::Probe(_));
            if !self.has(name) || is_probe && !is_old(modified, PROBE_AGE) {
                continue;
            }
            if old_enough(modified, min_age) {
                garbage.objects.push((name.to_string(), meta.size));
                garbage.names.push(name);
            } else {
                garbage.too_young += 1;
            }
        }
        for leftover in leftovers {
            let dead = match leftover.attempt(self.store) {
                Some((id, attempt)) => self.has_output(id, attempt),
                None => leftover.is_unfinished_binding(),
            };
            if dead && old_enough(leftover.modified, min_age) {
                garbage.outputs.push(leftover);
            } else {
                garbage.too_young += u64::from(dead);
            }
        }
        garbage
    }

    /// Whether an object is dead.
    fn has(&self, name: ObjectName) -> bool {
        match name {
            // The chain prunes itself.
            ObjectName::Manifest(_) => false,
            // Folded or void for ever: nobody reads a seal of an older epoch.
            ObjectName::Seal(id) => id.epoch < self.epoch,
            // Folded with their seals, or of an attempt that lost.
            ObjectName::Keys(id, attempt) => {
                id.epoch < self.epoch || self.view.live.checkpoint(id).is_some_and(|row| row.attempt != attempt)
            }
            ObjectName::Beat(epoch, _) => epoch < self.epoch,
            ObjectName::Segment(version, _) | ObjectName::KeySegment(version, _) => {
                version <= self.newest && !self.named.contains(&name)
            }
            // The next intent's object can be there before its manifest.
            ObjectName::Commit(n, _) => n <= self.last_commit && !self.named.contains(&name),
            // Its writer makes it again if it still lives; a probe is left for a while.
            ObjectName::Unfinished(_) | ObjectName::Probe(_) => true,
        }
    }

    /// Whether an output file is dead: its epoch is over and no state names it, another attempt holds its seal, or its own
    /// seal was decided and does not count. What is live, in an intent or was ever committed is none of these.
    fn has_output(&self, id: CheckpointId, attempt: AttemptNonce) -> bool {
        match self.view.live.checkpoint(id) {
            Some(row) if row.attempt != attempt => true,
            Some(row) => {
                let decided = id.epoch < self.epoch || self.view.loose.checkpoints.iter().all(|loose| loose.id != id);
                decided && matches!(row.decision, Decision::Rejected | Decision::Withdrawn)
            }
            None => id.epoch < self.epoch,
        }
    }
}
