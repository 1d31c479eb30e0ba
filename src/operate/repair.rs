//! `repair`: what is damaged is moved away, what can be made again is made again, and what is lost is done again.
//!
//! Nothing is thrown away: damaged objects are copied to `quarantine/` before they are deleted. What nothing can replace
//! (a segment or the manifests themselves) is said, and nothing is changed then.

use object_store::PutMode;
use std::collections::BTreeSet;

use object_store::path::Path;
use serde::Serialize;

use super::forget::{blessed_over, kept_in, with_blessed_over};
use super::{check_bound, check_sink, no_store};
use crate::error::{Error, ErrorKind, Result};
use crate::identity::{AttemptNonce, CheckpointId, FileVersion, ManifestVersion};
use crate::run::{Change, Run, Wait};
use crate::sink::Sink;
use crate::store::commit_object::{self, CommitMember};
use crate::store::envelope::digest;
use crate::store::medium::Created;
use crate::store::{
    CheckpointRow, Event, Fault, ForgottenFile, Head, Live, ObjectCheckpointStore, ObjectName, OpenIntent,
};

/// What is wrong with the objects of a store, by what can be done about it.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Repair {
    /// Moved to `quarantine/`: nothing needs it, or its work is done again.
    pub quarantined: Vec<Fault>,
    /// Made again, from what else the store has.
    pub rebuilt: Vec<Fault>,
    /// Cannot be replaced.
    pub beyond: Vec<Fault>,
    /// The newest manifest that is whole, when a newer one is damaged: the store goes back to it.
    pub back_to: Option<ManifestVersion>,
}

/// A committed checkpoint whose output is not, or not as it was, in the destination: its atoms are done again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Lost {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// Its files that are gone or changed.
    pub gone: Vec<String>,
    /// Its other files: they are taken out of the destination, since their rows are done again too. All of its files, when
    /// nothing of it is lost, but it has rows of a file whose other rows are.
    pub taken_out: Vec<String>,
    /// Source files that are undone, with their sources, ascending.
    pub undone: Vec<(String, FileVersion)>,
    /// Those of them whose record is dropped whole: it was a blessing over rows that are lost.
    #[serde(skip)]
    dropped: Vec<(String, FileVersion)>,
}

impl Repair {
    /// Whether every object is sound.
    pub fn is_empty(&self) -> bool {
        self.quarantined.is_empty() && self.rebuilt.is_empty() && self.beyond.is_empty()
    }

    fn sort_in(&mut self, fault: Fault, head: &Head, newest: ManifestVersion, rebuildable: bool) {
        let manifest = &head.manifest;
        let intent = manifest.commits.open.as_ref().map(OpenIntent::name);
        let to = match fault.object.parse::<ObjectName>() {
            // A manifest that is whole and does not follow its parent is no damage: there are two histories.
            Ok(ObjectName::Manifest(version))
                if version < manifest.version || version == newest && version > manifest.version =>
            {
                &mut self.quarantined
            }
            Ok(ObjectName::Seal(_) | ObjectName::Beat(..) | ObjectName::Probe(_) | ObjectName::Unfinished(_)) => {
                &mut self.quarantined
            }
            // Folded, if its epoch is over; else its seal says that it is missing, and goes with it.
            Ok(ObjectName::Keys(..)) => &mut self.quarantined,
            Ok(name @ ObjectName::Segment(..)) if manifest.segments.iter().all(|segment| segment.name() != name) => {
                &mut self.quarantined
            }
            Ok(name @ ObjectName::KeySegment(..)) if manifest.keys.iter().all(|segment| segment.name() != name) => {
                &mut self.quarantined
            }
            Ok(name @ ObjectName::Commit(..)) if intent != Some(name) => &mut self.quarantined,
            Ok(ObjectName::Commit(..)) if rebuildable => &mut self.rebuilt,
            _ => &mut self.beyond,
        };
        to.push(fault);
    }
}

impl ObjectCheckpointStore {
    /// What is wrong with the objects, and what [`repair`](Self::repair) would do about it. Changes nothing.
    ///
    /// # Errors
    /// As [`verify`](Self::verify); [`Corrupt`](ErrorKind::Corrupt) when no manifest near the newest is whole.
    pub async fn repair_plan(&self) -> Result<Repair> {
        let verified = self.verify().await?;
        let Some(newest) = self.chain.newest_version().await? else { return Err(no_store(self)) };
        let head = self.newest_whole(newest).await?;
        let mut repair = Repair::default();
        if head.manifest.version < newest {
            repair.back_to = Some(head.manifest.version);
        }
        let rebuildable = self.rebuild(&head).await.is_ok_and(|rebuilt| rebuilt.is_some());
        for fault in verified.faults {
            repair.sort_in(fault, &head, newest, rebuildable);
        }
        Ok(repair)
    }

    /// The newest manifest, or, when that one is damaged, the one before it.
    async fn newest_whole(&self, newest: ManifestVersion) -> Result<Head> {
        let damaged = match self.chain.read(newest).await {
            Ok(Some(head)) => return Ok(head),
            Ok(None) => Error::new(ErrorKind::Unavailable, "the newest manifest vanished while it was read"),
            Err(error) => error,
        };
        let before = newest.0.checked_sub(1).map(ManifestVersion);
        let head = match before {
            Some(before) if damaged.kind() == ErrorKind::Corrupt => self.chain.read(before).await?,
            _ => None,
        };
        head.ok_or(damaged)
    }

    /// The commit object of the open intent, made from the segments; `None` when that does not give the same bytes.
    async fn rebuild(&self, head: &Head) -> Result<Option<(OpenIntent, bytes::Bytes)>> {
        let Some(intent) = &head.manifest.commits.open else { return Ok(None) };
        let live = Live::new(crate::store::segment::Levels::read(&self.medium, &head.manifest).await?);
        let leaving = live.leaving(Some(intent.n));
        let leaves = |row: &CheckpointRow| leaving.contains(&row.id);
        let members: Vec<CommitMember> = live
            .checkpoints()
            .filter(|row| row.commit == Some(intent.n) || leaves(row))
            .map(|row| CommitMember { checkpoint: row.id, outputs: row.outputs.clone(), leaves: leaves(row) })
            .collect();
        let bytes = commit_object::encode(&members)?;
        Ok((digest(&bytes) == intent.digest).then(|| (intent.clone(), bytes)))
    }

    /// Does what `repair` says to the objects. After it the store can be read.
    ///
    /// # Errors
    /// [`Corrupt`](ErrorKind::Corrupt), naming it, when something cannot be replaced: then nothing is changed.
    /// [`Busy`](ErrorKind::Busy) while a live process holds the store, unless `wait` is [`Wait::Takeover`].
    pub async fn repair(&self, repair: &Repair, wait: Wait) -> Result<()> {
        if let Some(first) = repair.beyond.first() {
            return Err(Error::new(ErrorKind::Corrupt, &first.what)
                .at(self.medium.place(&first.object))
                .safe("nothing was changed")
                .way("restore this object from a copy of the store")
                .way("restore the newest copy of the whole store, if single objects cannot be had")
                .way("begin anew: with another `store` and another destination"));
        }
        let Some(newest) = self.chain.newest_version().await? else { return Err(no_store(self)) };
        let head = self.newest_whole(newest).await?;
        if let Some(holder) = head.manifest.holder.as_ref().filter(|holder| !holder.is_provably_dead())
            && wait != Wait::Takeover
        {
            return Err(Error::new(ErrorKind::Busy, format!("the store is held by {holder}, which may be live"))
                .at(self.root())
                .safe("nothing was changed")
                .way("wait for it to end, or end it, then repair")
                .way("if it has ended: repair with --takeover"));
        }
        let rebuilt = if repair.rebuilt.is_empty() { None } else { self.rebuild(&head).await? };
        for fault in repair.quarantined.iter().chain(&repair.rebuilt) {
            self.quarantine(&fault.object).await?;
        }
        if let Some((intent, bytes)) = rebuilt
            && let Created::Taken(_) = self.medium.create(intent.name(), bytes).await?
        {
            let place = self.medium.place(intent.name());
            return Err(Error::corrupt(place, "another object has the name of the commit object"));
        }
        Ok(())
    }

    /// Moves one damaged object away: the copy is durable before the original is deleted.
    async fn quarantine(&self, name: &str) -> Result<()> {
        let Ok(object) = name.parse::<ObjectName>() else { return Ok(()) };
        // A missing object needs nothing.
        let Some(bytes) = self.medium.get(object).await? else { return Ok(()) };
        let copy = Path::from(format!("{}/{}/{name}", ObjectName::QUARANTINE, AttemptNonce::random()));
        let copied = self.medium.objects().put_opts(&copy, bytes.into(), PutMode::Create.into()).await;
        copied.map_err(|error| self.medium.failure(object, error))?;
        self.medium.delete(object).await
    }

    /// Committed work whose output is no longer in `sink` as it was written.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`Refused`](ErrorKind::Refused) when `sink` is not the store's, or holds none of
    /// the committed files, unless `all`: a destination that is not mounted has not lost its files.
    pub async fn lost_output(&self, sink: &dyn Sink, all: bool) -> Result<Vec<Lost>> {
        let view = self.read().await?;
        let Some(head) = &view.head else { return Err(no_store(self)) };
        check_sink(self, &head.manifest, Some(sink))?;
        // A binding that is lost or damaged is made again once nothing else is missing; another store's is not touched, and
        // one that cannot be read may be another store's.
        match sink.bound_to(head.manifest.store).await {
            Ok(Some(_)) => check_bound(self, &head.manifest, sink).await?,
            Ok(None) => {}
            Err(error) if error.kind() == ErrorKind::Corrupt => {}
            Err(error) => return Err(error),
        }
        let lost = lost_output(head, &view.live, sink).await?;
        let committed = view.expected().map_or(0, |expected| expected.committed.len());
        let gone: usize = lost.iter().map(|lost| lost.gone.len()).sum();
        if committed > 0 && gone == committed && !all {
            let what = match committed {
                1 => "the only committed file is not in the destination as it was written".to_owned(),
                _ => format!("none of the {committed} committed files is in the destination as it was written"),
            };
            return Err(Error::refused(what)
                .at(sink.binding().root)
                .safe("nothing was changed")
                .way("see that the destination is the right one, and mounted")
                .way("do all of the work again: lakemark repair JOB --all-lost"));
        }
        Ok(lost)
    }
}

async fn lost_output(head: &Head, live: &Live, sink: &dyn Sink) -> Result<Vec<Lost>> {
    if !sink.keeps_files() {
        return Ok(Vec::new());
    }
    let open = head.manifest.commits.open.as_ref().map(|intent| intent.n);
    let leaving = live.leaving(open);
    let (mut there, mut damaged) = (BTreeSet::new(), BTreeSet::new());
    let rows = || live.committed_checkpoints().filter(|row| row.commit != open && !leaving.contains(&row.id));
    for row in rows() {
        for output in &row.outputs {
            // A file of that name in staging is not what readers see.
            if sink.visible_size(output).await? == Some(output.size) {
                there.insert(output.path());
            } else {
                damaged.insert(row.id);
            }
        }
    }
    let (lost_ids, _) = with_blessed_over(live, damaged);
    let mut lost = Vec::new();
    for row in rows().filter(|row| lost_ids.contains(&row.id)) {
        let (taken_out, gone) = row.outputs.iter().map(|output| output.path()).partition(|path| there.contains(path));
        let of = BTreeSet::from([row.id]);
        let dropped = blessed_over(live, &of);
        let covered = live.files_of(row.id).map(|(source, version)| (source.to_owned(), version.file.clone()));
        let mut undone: Vec<_> = covered.chain(dropped.iter().cloned()).chain(kept_in(live, &of)).collect();
        undone.sort_by(|a, b| (&a.0, &a.1.path).cmp(&(&b.0, &b.1.path)));
        undone.dedup();
        lost.push(Lost { checkpoint: row.id, gone, taken_out, undone, dropped });
    }
    Ok(lost)
}

impl Run {
    /// Makes the work of `lost` undone: what is left of its output is taken out of `sink`.
    ///
    /// # Errors
    /// [`Refused`](ErrorKind::Refused) when something else is lost by now, or a commit is not finished.
    pub async fn withdraw_lost(&self, lost: &[Lost], sink: &dyn Sink) -> Result<()> {
        let (head, live) = self.view().await;
        if lost_output(&head, &live, sink).await? != lost {
            return Err(super::changed(self.store()));
        }
        // Files of another size leave too: they are not what was committed.
        self.retract(sink, |now, _| {
            if now.manifest.version != head.manifest.version {
                return Err(super::changed(self.store()));
            }
            let mut dropped: Vec<_> = lost.iter().flat_map(|lost| &lost.dropped).collect();
            dropped.sort_by(|a, b| (&a.0, &a.1.path).cmp(&(&b.0, &b.1.path)));
            dropped.dedup();
            let forgotten = dropped.into_iter().map(|(source, file)| {
                let files = vec![ForgottenFile { file: file.clone(), kept: Vec::new() }];
                Change::Event(Event::Forgotten { source: source.clone(), files })
            });
            Ok((forgotten.collect(), lost.iter().map(|lost| lost.checkpoint).collect()))
        })
        .await
    }
}
