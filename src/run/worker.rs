//! A worker's rights under an epoch: to check that it still counts, and to seal.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arrow_array::ArrayRef;
use async_trait::async_trait;
use dashmap::DashMap;

use crate::blocking::off_thread;
use crate::error::{Error, ErrorKind, Result};
use crate::identity::{AttemptNonce, CheckpointId, Epoch, InputId, ManifestVersion, StoreId};
use crate::sink::Holder;
use crate::steps::reach;
use crate::store::envelope::{digest, encode};
use crate::store::keys::encode_keys;
use crate::store::medium::Created;
use crate::store::{
    Counts, Head, KeyRows, ObjectCheckpointStore, ObjectName, OutputFile, Seal, SealKind, SealOutcome, SealedKeys,
};

#[async_trait]
impl Holder for Worker {
    async fn check(&self) -> Result<()> {
        self.guard().await
    }
}

/// What a seal of rows says.
#[derive(Debug, Clone)]
pub struct SealRows {
    /// The source's name.
    pub source: Arc<str>,
    /// Of the keys that it covers, in any order.
    pub fingerprints: Vec<u128>,
    /// The keys' values as text, an array a key column; or none.
    pub values: Vec<ArrayRef>,
    /// What came out.
    pub outputs: Vec<OutputFile>,
    /// Rows.
    pub counts: Counts,
}

/// A handle that seals under one epoch. Cheap to clone; many work at once.
#[derive(Debug, Clone)]
pub struct Worker {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    store: ObjectCheckpointStore,
    store_id: StoreId,
    epoch: Epoch,
    /// The newest manifest version known to be of this epoch.
    known: AtomicU64,
    /// What fenced this epoch, in words. Once set, for good.
    fenced: OnceLock<String>,
    /// Seals that exist and that no fold has decided, by this process.
    sealed: DashMap<CheckpointId, Arc<Seal>>,
    /// Ids sealed by this process that a fold has decided.
    folded: DashMap<CheckpointId, ()>,
    /// Row keys that this process wrote and that no fold has taken.
    keys: DashMap<(CheckpointId, AttemptNonce), Arc<KeyRows>>,
}

impl Worker {
    pub(super) fn new(store: ObjectCheckpointStore, head: &Head) -> Self {
        let shared = Shared {
            store,
            store_id: head.manifest.store,
            epoch: head.manifest.epoch,
            known: AtomicU64::new(head.manifest.version.0),
            fenced: OnceLock::new(),
            sealed: DashMap::new(),
            folded: DashMap::new(),
            keys: DashMap::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// The store's id.
    pub fn store_id(&self) -> StoreId {
        self.shared.store_id
    }

    /// The epoch.
    pub fn epoch(&self) -> Epoch {
        self.shared.epoch
    }

    /// The newest manifest version known to be of this epoch.
    pub fn known_version(&self) -> ManifestVersion {
        ManifestVersion(self.shared.known.load(Ordering::Acquire))
    }

    /// Whether this epoch is known to be fenced.
    pub fn is_fenced(&self) -> bool {
        self.shared.fenced.get().is_some()
    }

    pub(super) fn knows(&self, version: ManifestVersion) {
        self.shared.known.fetch_max(version.0, Ordering::AcqRel);
    }

    pub(super) fn fence(&self, newest: &Head) -> Error {
        let (mine, theirs) = (self.shared.epoch, &newest.manifest);
        let by = theirs.holder.as_ref().map(|h| format!(" by {h}")).unwrap_or_default();
        let found = || format!("epoch {} was fenced: epoch {} was opened{by}", mine.0, theirs.epoch.0);
        let what = self.shared.fenced.get_or_init(found).clone();
        self.fenced_error(what)
    }

    fn fenced_error(&self, what: String) -> Error {
        Error::new(ErrorKind::Fenced, what)
            .at(self.shared.store.root())
            .safe("what was sealed before is kept; nothing that this run does from now on counts")
            .way("let the other run finish, then run again: it does only what is left")
    }

    pub(super) fn check_not_fenced(&self) -> Result<()> {
        self.shared.fenced.get().map_or(Ok(()), |what| Err(self.fenced_error(what.clone())))
    }

    /// Reads whether this epoch is still the newest. Before a task's first row, and before its seal.
    ///
    /// # Errors
    /// [`ErrorKind::Fenced`], never to be retried.
    pub async fn guard(&self) -> Result<()> {
        self.check_not_fenced()?;
        let chain = &self.shared.store.chain;
        let newest = chain.newest_version().await?;
        if newest.is_some_and(|newest| newest <= self.known_version()) {
            return Ok(());
        }
        let gone = || Error::corrupt(self.shared.store.root(), "the chain of manifests is gone");
        let head = chain.newest().await?.ok_or_else(gone)?;
        if head.manifest.epoch != self.shared.epoch || head.manifest.store != self.shared.store_id {
            return Err(self.fence(&head));
        }
        self.knows(head.manifest.version);
        Ok(())
    }

    /// Publishes `seal`: staged -> checkpointed. Every output file it names is durable (I2).
    ///
    /// # Errors
    /// [`ErrorKind::Fenced`]; [`ErrorKind::Indeterminate`] when the answer is unknown, and then nothing may be deleted.
    pub async fn seal(&self, seal: Seal) -> Result<SealOutcome> {
        let id = seal.id;
        let name = ObjectName::Seal(id);
        seal.check(self.shared.store_id, id, &self.shared.store.medium.place(name))?;
        self.guard().await?;
        reach("seal.before");
        let created = self.shared.store.medium.create(name, encode("seal", &seal)?).await?;
        let outcome = match created {
            Created::Ours => SealOutcome::Sealed(Arc::new(seal)),
            Created::Taken(bytes) => {
                // In an epoch that is over, the name can be free again, and this be a zombie's seal where our own one was
                // folded: its attempt must not believe that it lost, and delete its output.
                self.guard().await?;
                SealOutcome::Already(self.shared.store.decode_seal(self.shared.store_id, id, &bytes)?)
            }
        };
        let (SealOutcome::Sealed(seal) | SealOutcome::Already(seal)) = &outcome;
        self.shared.sealed.insert(id, Arc::clone(seal));
        reach("seal.after");
        Ok(outcome)
    }

    /// Publishes what an attempt made of rows: staged -> checkpointed. Every output file is durable (I2).
    ///
    /// # Errors
    /// As [`seal`](Self::seal). Keys that were written without a seal are garbage.
    pub async fn seal_rows(&self, id: CheckpointId, attempt: AttemptNonce, rows: SealRows) -> Result<SealOutcome> {
        let SealRows { source, fingerprints, values, outputs, counts } = rows;
        let rows = Arc::new(KeyRows::of(id, fingerprints, values)?);
        let encoded = Arc::clone(&rows);
        let bytes = off_thread(move || encode_keys(&encoded)).await;
        let bytes = bytes.map_err(|error| Error::invalid("writing row keys was interrupted").caused_by(error))??;
        let keys = SealedKeys { source, keys: rows.len() as u64, bytes: bytes.len() as u64, digest: digest(&bytes) };
        let name = ObjectName::Keys(id, attempt);
        if let Created::Taken(_) = self.shared.store.medium.create(name, bytes).await? {
            let place = self.shared.store.medium.place(name);
            return Err(Error::corrupt(place, "another object has the name of new row keys"));
        }
        reach("keys.after");
        self.shared.keys.insert((id, attempt), rows);
        let seal = Seal {
            store: self.shared.store_id,
            id,
            attempt,
            kind: SealKind::Sealed,
            planned_from: self.known_version(),
            sealed_at: crate::time::now_ms(),
            files: Vec::new(),
            keys: Some(keys),
            outputs,
            counts,
        };
        let outcome = self.seal(seal).await;
        if !matches!(outcome, Ok(SealOutcome::Sealed(_))) {
            self.shared.keys.remove(&(id, attempt));
        }
        outcome
    }

    /// The row keys of `seal`, which this process wrote, if it still has them; it has them no more.
    pub(super) fn take_sealed_keys(&self, seal: &Seal) -> Option<KeyRows> {
        let (_, rows) = self.shared.keys.remove(&(seal.id, seal.attempt))?;
        Some(Arc::unwrap_or_clone(rows))
    }

    /// The seals of `input` in this epoch, by sequence: by whatever process.
    ///
    /// # Errors
    /// Those of reading the store.
    pub async fn seals_of(&self, input: InputId) -> Result<Vec<Arc<Seal>>> {
        self.shared.store.seals_of(self.shared.store_id, self.shared.epoch, input).await
    }

    /// The fingerprints of the row keys that `seal` covers.
    ///
    /// # Errors
    /// [`Corrupt`](ErrorKind::Corrupt) when they are missing or damaged.
    pub async fn keys_of(&self, seal: &Seal) -> Result<Vec<u128>> {
        if let Some(rows) = self.shared.keys.get(&(seal.id, seal.attempt)) {
            return Ok(rows.fingerprints.clone());
        }
        Ok(self.shared.store.read_sealed_keys(seal).await?.unwrap_or_default().fingerprints)
    }

    /// Takes the seal name of `input`, so that no attempt of it can seal any more. When a seal is there already, the
    /// task is sealed and counts: that seal is returned.
    pub async fn void(&self, input: InputId) -> Result<SealOutcome> {
        let id = CheckpointId::first(self.shared.epoch, input);
        self.seal(Seal::void(self.shared.store_id, id, self.known_version(), crate::time::now_ms())).await
    }

    /// The seal of `id`, if this process knows one that no fold has decided.
    pub fn sealed(&self, id: CheckpointId) -> Option<Arc<Seal>> {
        self.shared.sealed.get(&id).map(|seal| Arc::clone(&seal))
    }

    /// Whether this process knows a seal of `id`, decided or not.
    pub fn is_sealed(&self, id: CheckpointId) -> bool {
        self.shared.sealed.contains_key(&id) || self.shared.folded.contains_key(&id)
    }

    /// How many row keys of this process wait for a fold.
    pub(super) fn loose_keys(&self) -> usize {
        self.shared.keys.iter().map(|rows| rows.len()).sum()
    }

    /// How many seals wait for a fold.
    pub fn loose(&self) -> usize {
        self.shared.sealed.len()
    }

    pub(super) fn known_seals(&self) -> BTreeMap<CheckpointId, Arc<Seal>> {
        self.shared.sealed.iter().map(|entry| (*entry.key(), Arc::clone(entry.value()))).collect()
    }

    pub(super) fn folded(&self, decided: impl Fn(CheckpointId) -> bool) {
        self.shared.sealed.retain(|id, _| {
            let done = decided(*id);
            if done {
                self.shared.folded.insert(*id, ());
            }
            !done
        });
    }
}
