//! The driver's side of a run: its state, folding, closing.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use super::registry::{AtomRegistry, CheckpointIdMap};
use super::worker::Worker;
use crate::error::{Error, ErrorKind, Result};
use crate::identity::{AttemptNonce, CheckpointId, InputId, ManifestVersion};
use crate::keys::KnownKeys;
use crate::plan::{Superseded, TableReached};
use crate::steps::reach;
use crate::store::chain::Appended;
use crate::store::envelope::encode;
use crate::store::invariants;
use crate::store::segment::{Decision, Event, EventRow, SegmentData};
use crate::store::staging::Staging;
use crate::store::transition::{SegmentChange, Transition};
use crate::store::{
    Counted, FileUpdate, Head, KnownBySource, Lease, Live, ObjectCheckpointStore, ObjectName, Seal, SealedFile, View,
};

/// Loose seals are folded when there are this many.
const FOLD_AT: usize = 1_000;
/// Or when so many row keys wait in memory for it.
const FOLD_KEYS_AT: usize = 2_000_000;

/// A won epoch: the right to seal, fold and commit. [`close`](Self::close) it when the work is done; a run that is only
/// dropped leaves its seals for the next one, which finishes what this one did not.
#[derive(Debug)]
#[must_use = "a run that is not closed leaves its commit to the next run"]
pub struct Run {
    pub(super) store: ObjectCheckpointStore,
    pub(super) worker: Worker,
    pub(super) state: Mutex<State>,
    next_input: Arc<AtomicU32>,
    checkpoints: CheckpointIdMap,
    atoms: Arc<AtomRegistry>,
    pub(super) staging: Staging,
    pub(super) superseded: std::sync::Mutex<Vec<Superseded>>,
    beats: JoinHandle<()>,
    closed: bool,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) head: Head,
    pub(super) live: Live,
    /// Rows of `live` that no segment holds yet.
    pub(super) delta: SegmentData,
    /// The row keys that count, by source, as far as they were needed.
    keys: KnownBySource,
    sealed: u64,
    /// Set while an append is on its way, and left so when it failed or was interrupted: what is newest is not known any
    /// more, and `live` and `delta` say what has not happened.
    broken: bool,
}

impl State {
    fn counted(&mut self) -> Counted<'_> {
        let manifest = Some(&self.head.manifest);
        Counted { manifest, live: &mut self.live, loose: &self.delta, keys: &mut self.keys }
    }
}

/// What an operator's verb changes.
#[derive(Debug)]
pub(crate) enum Change {
    /// It happens.
    Event(Event),
    /// These files are done, without work.
    Blessed(Vec<SealedFile>),
}

impl Run {
    pub(super) fn start(store: ObjectCheckpointStore, head: Head, view: View, lease: Lease) -> Self {
        let View { live, loose: delta, keys, .. } = view;
        let worker = Worker::new(store.clone(), &head);
        let epoch = head.manifest.epoch;
        let beats = tokio::spawn(beat(store.clone(), worker.clone(), lease));
        Self {
            store,
            worker,
            state: Mutex::new(State { head, live, delta, keys, sealed: 0, broken: false }),
            next_input: Arc::new(AtomicU32::new(0)),
            checkpoints: CheckpointIdMap::new(epoch),
            atoms: Arc::default(),
            staging: Staging::default(),
            superseded: std::sync::Mutex::default(),
            beats,
            closed: false,
        }
    }

    /// The store.
    pub fn store(&self) -> &ObjectCheckpointStore {
        &self.store
    }

    /// A handle that seals under this epoch.
    pub fn worker(&self) -> &Worker {
        &self.worker
    }

    /// Input id -> checkpoint id of this epoch.
    pub fn checkpoints(&self) -> &CheckpointIdMap {
        &self.checkpoints
    }

    /// What the tasks of this process have opened.
    pub fn atoms(&self) -> &Arc<AtomRegistry> {
        &self.atoms
    }

    /// A fresh input id.
    pub fn next_input(&self) -> InputId {
        InputId(self.next_input.fetch_add(1, Ordering::Relaxed))
    }

    /// The live set and the newest manifest now. Loose seals are not in it: [`fold`](Self::fold) first.
    pub async fn view(&self) -> (Head, Live) {
        let state = self.state.lock().await;
        (state.head.clone(), state.live.clone())
    }

    /// What is there now, as a later run would read it.
    pub async fn present(&self) -> View {
        let state = self.state.lock().await;
        let (head, live, keys) = (state.head.clone(), state.live.clone(), state.keys.clone());
        View { head: Some(head), live, keys, ..View::default() }
    }

    /// The row keys of `source` that count, with what the tasks of this process claim; read at the first call.
    ///
    /// # Errors
    /// As [`ObjectCheckpointStore::read`].
    pub async fn keys_of(&self, source: &str) -> Result<Arc<KnownKeys>> {
        let mut state = self.state.lock().await;
        self.store.known_keys(&mut state.counted(), source).await
    }

    /// Looks at the live set without copying it.
    pub async fn with_live<T>(&self, look: impl FnOnce(&Head, &Live) -> T) -> T {
        let state = self.state.lock().await;
        look(&state.head, &state.live)
    }

    /// Lets the commits of this run take out what `files` had before: each file's old output leaves with the commit by which
    /// its new output enters, when that is complete. What was said before of the same files counts no more.
    pub fn supersede(&self, files: &[Superseded]) {
        let mut known = self.superseded.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|old| !files.iter().any(|file| file.source == old.source && file.path == old.path));
        known.extend_from_slice(files);
    }

    /// Records the schema of a source, as IPC bytes, durable at once: later runs use it without opening a file.
    pub async fn record_schema(&self, source: &str, ipc: &[u8]) -> Result<()> {
        let mut state = self.state.lock().await;
        let ipc = ipc.iter().map(|b| format!("{b:02x}")).collect();
        self.note(&mut state, Event::Schema { source: source.to_owned(), ipc });
        self.advance(&mut state, Transition::Fold).await
    }

    /// Changes what is recorded about files of `source`, durable at once.
    pub async fn update_files(&self, source: &str, files: Vec<FileUpdate>) -> Result<()> {
        if files.is_empty() {
            return Ok(());
        }
        let mut state = self.state.lock().await;
        self.note(&mut state, Event::Updated { source: source.to_owned(), files });
        self.advance(&mut state, Transition::Fold).await
    }

    /// Records up to where the table `source` was taken into account, durable at once.
    pub async fn reach_table(&self, source: &str, reached: TableReached) -> Result<()> {
        let TableReached { position, steps } = reached;
        let mut state = self.state.lock().await;
        self.note(&mut state, Event::Table { source: source.to_owned(), position, steps });
        self.advance(&mut state, Transition::Fold).await
    }

    /// Folds loose seals when there are many; cheap otherwise.
    pub async fn fold_if_due(&self) -> Result<()> {
        if self.worker.loose() < FOLD_AT && self.worker.loose_keys() < FOLD_KEYS_AT {
            Ok(())
        } else {
            self.fold().await
        }
    }

    /// Folds every loose seal of this epoch. Nothing is written when there is none.
    pub async fn fold(&self) -> Result<()> {
        let mut state = self.state.lock().await;
        self.gather(&mut state).await?;
        if state.delta.checkpoints.is_empty() {
            return Ok(());
        }
        self.advance(&mut state, Transition::Fold).await
    }

    /// Closes the epoch: folds what is left and names no holder any more. What the store holds then, from which a next
    /// run can [begin](ObjectCheckpointStore::begin_from) without reading it.
    pub async fn close(mut self) -> Result<View> {
        let mut state = self.state.lock().await;
        self.gather(&mut state).await?;
        let sealed = state.sealed;
        self.note(&mut state, Event::Closed { sealed });
        reach("close.before_segment");
        self.advance(&mut state, Transition::Close).await?;
        let (head, live) = (state.head.clone(), std::mem::take(&mut state.live));
        drop(state);
        self.closed = true;
        Ok(View { head: Some(head), live, ..View::default() })
    }

    /// Lets `event` happen with the next manifest.
    pub(super) fn note(&self, state: &mut State, event: Event) {
        let manifest = &state.head.manifest;
        let row =
            EventRow { version: manifest.version.next(), epoch: manifest.epoch, at: crate::time::now_ms(), event };
        if let Event::Withdrawn { checkpoints, .. } | Event::RowsForgotten { checkpoints, .. } = &row.event {
            // What is undone leaves sets of keys only by their being read again.
            if checkpoints.iter().any(|id| state.live.checkpoint(*id).is_some_and(|row| row.source.is_some())) {
                state.keys.clear();
            }
        }
        state.live.happen(row.clone());
        let delta = std::mem::take(&mut state.delta);
        state.delta = delta.then(SegmentData { events: vec![row], ..SegmentData::default() });
    }

    /// Lets what an operator decides happen in one manifest. `decide` looks at the state and says what.
    ///
    /// # Errors
    /// Those of `decide`, and then nothing is written; as [`commit`](Self::commit).
    pub(crate) async fn operate(
        &self,
        transition: impl FnOnce(SegmentChange) -> Transition,
        decide: impl FnOnce(&Head, &Live) -> Result<Vec<Change>>,
    ) -> Result<()> {
        let mut state = self.state.lock().await;
        self.gather(&mut state).await?;
        let changes = decide(&state.head, &state.live)?;
        self.apply(&mut state, changes)?;
        self.advance(&mut state, transition).await
    }

    /// Lets `changes` happen with the next manifest.
    pub(super) fn apply(&self, state: &mut State, changes: Vec<Change>) -> Result<()> {
        for change in changes {
            match change {
                Change::Event(event) => {
                    if let Event::Withdrawn { checkpoints, .. } = &event {
                        let open = state.head.manifest.commits.open.as_ref().map(|intent| intent.n);
                        invariants::check_undone(&state.live, open, checkpoints)?;
                    }
                    self.note(state, event);
                }
                Change::Blessed(files) => self.add_blessed(state, files)?,
            }
        }
        Ok(())
    }

    /// Adds `files` as done, under a checkpoint of their own that has no seal and no output.
    fn add_blessed(&self, state: &mut State, files: Vec<SealedFile>) -> Result<()> {
        let id = CheckpointId::first(self.worker.epoch(), self.next_input());
        let version = state.head.manifest.version;
        let seal = Seal { files, ..Seal::void(self.worker.store_id(), id, version, crate::time::now_ms()) };
        if !state.live.may_accept(&seal) {
            return Err(Error::invalid("a part of the files to be blessed is done already").safe("nothing was written"));
        }
        let rows = state.live.add(&seal, Decision::Blessed);
        state.delta = std::mem::take(&mut state.delta).then(rows);
        Ok(())
    }

    /// Decides every loose seal of this epoch in the order of their names.
    pub(super) async fn gather(&self, state: &mut State) -> Result<()> {
        self.check(state)?;
        let known = self.worker.known_seals();
        let epoch = self.worker.epoch();
        let seals = self.store.loose_seals(self.worker.store_id(), epoch, &state.live, &known).await?;
        let lost = known
            .keys()
            .find(|id| !state.live.is_decided(**id) && seals.binary_search_by_key(id, |seal| &seal.id).is_err());
        if let Some(id) = lost {
            self.worker.guard().await?;
            let place = self.store.medium.place(ObjectName::Seal(*id));
            return Err(Error::corrupt(place, "a seal that this run wrote is not there any more")
                .way("see what changes the store besides lakemark, then run again: what it said is done again"));
        }
        for seal in &seals {
            let keys = match self.worker.take_sealed_keys(seal) {
                Some(keys) => Some(keys),
                None => self.store.read_sealed_keys(seal).await?,
            };
            if let Some(rows) = self.store.decide(&mut state.counted(), seal, keys).await? {
                state.sealed += 1;
                state.delta = std::mem::take(&mut state.delta).then(rows);
            }
        }
        self.worker.folded(|id| seals.binary_search_by_key(&id, |seal| seal.id).is_ok());
        Ok(())
    }

    /// What is missing to who is fenced was collected after it.
    pub(super) async fn unless_fenced<T>(&self, read: Result<T>) -> Result<T> {
        if read.is_err() {
            self.worker.guard().await?;
        }
        read
    }

    fn check(&self, state: &State) -> Result<()> {
        self.worker.check_not_fenced()?;
        if state.broken {
            return Err(Error::new(ErrorKind::Indeterminate, "an earlier write of this run failed or was interrupted")
                .at(self.store.root())
                .safe("what was sealed is kept")
                .way("run again: the next run reads what is there and decides"));
        }
        Ok(())
    }

    /// Writes the delta as a segment and appends the transition that names it.
    pub(super) async fn advance(
        &self,
        state: &mut State,
        transition: impl FnOnce(SegmentChange) -> Transition,
    ) -> Result<()> {
        self.check(state)?;
        // The delta holds what only this manifest makes true: from here on there is no way back, only a new epoch.
        state.broken = true;
        let mut change = SegmentChange::default();
        if !state.delta.is_empty() {
            let manifest = &state.head.manifest;
            reach("fold.before_segment");
            let flushed = self.store.flush(manifest, state.delta.clone(), manifest.version.next(), &state.live).await;
            change = self.unless_fenced(flushed).await?;
        }
        self.append(state, &transition(change)).await?;
        state.delta = SegmentData::default();
        Ok(())
    }

    pub(super) async fn append(&self, state: &mut State, transition: &Transition) -> Result<()> {
        let (before, after) = match transition {
            Transition::CommitIntent { .. } => ("intent.before_manifest", "intent.after_manifest"),
            Transition::CommitDone { .. } => ("done.before_manifest", "done.after_manifest"),
            Transition::Close(_) => ("close.before_manifest", "close.after_manifest"),
            _ => ("fold.before_manifest", "fold.after_manifest"),
        };
        reach(before);
        state.broken = true;
        match self.store.chain.append(Some(&state.head), transition).await {
            Ok(Appended::Newest(head)) => {
                self.worker.knows(head.manifest.version);
                state.head = head;
                state.broken = false;
                reach(after);
                Ok(())
            }
            Ok(Appended::Overtaken(newest)) => Err(self.worker.fence(&newest)),
            Err(error) => Err(error),
        }
    }

    /// The newest manifest version of this run.
    pub async fn version(&self) -> ManifestVersion {
        self.state.lock().await.head.manifest.version
    }
}

/// Writes a beat now and then: courtesy to observers, never safety.
async fn beat(store: ObjectCheckpointStore, worker: Worker, lease: Lease) {
    for n in 1.. {
        tokio::time::sleep(lease.beat).await;
        if worker.is_fenced() {
            return;
        }
        let body = AttemptNonce::random();
        let bytes = encode("beat", &body).unwrap_or_else(|_| Bytes::new());
        if let Err(error) = store.medium.create(ObjectName::Beat(worker.epoch(), n), bytes).await {
            tracing::debug!(%error, "a beat was not written");
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.beats.abort();
        if !self.closed && !self.worker.is_fenced() {
            tracing::warn!(
                epoch = self.worker.epoch().0,
                "a run ended without being closed; the next run finishes what it sealed"
            );
        }
    }
}
