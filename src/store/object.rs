//! The checkpoint store on object storage or a disk: reading its state, probing the backend.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use object_store::{ObjectStore, PutMode};

use super::chain::Chain;
use super::envelope::{decode, digest};
use super::invariants::may_count;
use super::keys::{KeyRows, decode_keys, flush_keys, load_keys};
use super::live::Live;
use super::manifest::{Head, Manifest, TableState};
use super::medium::{Medium, Patience, StoreRequests, is_definite};
use super::names::ObjectName;
use super::seal::{OutputFile, Seal};
use super::segment::{Decision, Levels, SegmentData, flush};
use super::transition::SegmentChange;
use crate::blocking::off_thread;
use crate::disk::{Disk, DiskStore, RealDisk};
use crate::error::{Error, ErrorKind, Result};
use crate::identity::{AttemptNonce, CheckpointId, Epoch, InputId, ManifestVersion, Root, StoreId};
use crate::keys::KnownKeys;
use crate::storage::{Bucket, StorageOptions};

/// Row keys that count, by source.
pub type KnownBySource = HashMap<Arc<str>, Arc<KnownKeys>>;

/// Memory for row keys, unless another budget is given.
const KEY_MEMORY: u64 = 2 << 30;

/// A store, not yet written to. Opening and reading change nothing; [`begin`](Self::begin) wins an epoch.
#[derive(Debug, Clone)]
pub struct ObjectCheckpointStore {
    pub(crate) medium: Medium,
    pub(crate) chain: Chain,
    root: Root,
    endpoint: Arc<str>,
    keys_in: Arc<KeysIn>,
}

/// Where row keys are kept while they are used.
#[derive(Debug)]
struct KeysIn {
    memory: u64,
    folder: PathBuf,
}

/// The state of a store at one manifest version, with the loose seals of its epoch decided on top.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// The newest manifest; `None` for a new store.
    pub head: Option<Head>,
    /// What is done.
    pub live: Live,
    /// Rows of `live` that no segment holds yet: the loose seals, decided in the order of their names.
    pub loose: SegmentData,
    /// The row keys that count, by source, as far as they were needed.
    pub keys: KnownBySource,
}

/// What a store says that its destination holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// The store.
    pub store: StoreId,
    /// The number of the last commit that is done; 0: there is none.
    pub last_commit: u64,
    /// Files of the commits that are done: each is there.
    pub committed: Vec<OutputFile>,
    /// Files that the open intent adds or takes out: each may be there.
    pub open: Vec<OutputFile>,
    /// The number of the intent that those files are of.
    pub intent: Option<u64>,
    /// The table as this store left it, when the destination is one.
    pub table: Option<TableState>,
}

/// What decides a seal: the state, and the row keys that count in it.
#[derive(Debug)]
pub(crate) struct Counted<'a> {
    pub(crate) manifest: Option<&'a Manifest>,
    pub(crate) live: &'a mut Live,
    /// What no segment holds yet.
    pub(crate) loose: &'a SegmentData,
    pub(crate) keys: &'a mut KnownBySource,
}

impl View {
    pub(crate) fn counted(&mut self) -> Counted<'_> {
        let manifest = self.head.as_ref().map(|head| &head.manifest);
        Counted { manifest, live: &mut self.live, loose: &self.loose, keys: &mut self.keys }
    }

    /// Whether a run has something to finish even without new work: loose or uncommitted checkpoints, an open intent.
    pub fn needs_epoch(&self) -> bool {
        !self.loose.checkpoints.is_empty()
            || self.live.pending().next().is_some()
            || self.head.as_ref().is_some_and(|head| head.manifest.commits.open.is_some())
    }

    /// What the destination must hold; `None` for a new store.
    pub fn expected(&self) -> Option<Expected> {
        Some(Expected::of(&self.head.as_ref()?.manifest, &self.live))
    }

    /// The store's id, once it exists.
    pub fn store_id(&self) -> Option<StoreId> {
        self.head.as_ref().map(|head| head.manifest.store)
    }
}

impl Expected {
    /// What the destination must hold in this state.
    pub(crate) fn of(manifest: &Manifest, live: &Live) -> Self {
        let open = manifest.commits.open.as_ref().map(|intent| intent.n);
        let mut expected = Expected {
            store: manifest.store,
            last_commit: manifest.commits.last,
            committed: vec![],
            open: vec![],
            intent: open,
            table: manifest.table.clone(),
        };
        let leaving = live.leaving(open);
        for row in live.committed_checkpoints() {
            let may_be_there = row.commit == open || leaving.contains(&row.id);
            let files = if may_be_there { &mut expected.open } else { &mut expected.committed };
            files.extend(row.outputs.iter().cloned());
        }
        expected
    }
}

impl ObjectCheckpointStore {
    /// Opens the store at `url`: a local path or `file://`. Nothing is read or written yet.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for other schemes, [`ErrorKind::Invalid`] for what is no URL.
    pub fn open(url: &str) -> Result<Self> {
        Self::open_on(Root::parse(url)?, Arc::new(RealDisk))
    }

    /// Opens the store at `url`, on a disk or on an object store that is reached with `options`. Nothing is read or written
    /// yet.
    ///
    /// # Errors
    /// As [`Bucket::connect`], and [`ErrorKind::Invalid`] for what is no URL.
    pub fn connect(url: &str, options: &StorageOptions) -> Result<Self> {
        let root = Root::parse(url)?;
        if root.is_local() {
            return Self::open_on(root, Arc::new(RealDisk));
        }
        let objects = Bucket::connect(&root, options)?.below(&root)?;
        let endpoint = format!("{root} {}", options.endpoint()).trim_end().into();
        Ok(Self { endpoint, ..Self::on(root, objects) })
    }

    /// Opens the store at the local `root`, with every change going through `disk`.
    pub fn open_on(root: Root, disk: Arc<dyn Disk>) -> Result<Self> {
        let Some(path) = root.local_path() else {
            return Err(Error::new(ErrorKind::Unsupported, format!("{root} is not on a local disk"))
                .safe("nothing was changed")
                .way("open it with its options: ObjectCheckpointStore::connect")
                .way("put the store on a local path"));
        };
        Ok(Self::on(root, Arc::new(DiskStore::new(path, disk))))
    }

    /// A store on any object store, whose own root is the store's prefix; `root` names it in messages.
    pub fn on(root: Root, objects: Arc<dyn ObjectStore>) -> Self {
        let medium = Medium::new(objects, root.to_string(), Patience::default());
        let keys_in = Arc::new(KeysIn { memory: KEY_MEMORY, folder: std::env::temp_dir() });
        Self { chain: Chain::new(medium.clone()), medium, endpoint: root.to_string().into(), root, keys_in }
    }

    /// With at most `memory` bytes of row keys in memory; what is beyond is in a file in `folder`, on a local disk.
    #[must_use]
    pub fn with_key_memory(mut self, memory: u64, folder: impl Into<PathBuf>) -> Self {
        self.keys_in = Arc::new(KeysIn { memory, folder: folder.into() });
        self
    }

    /// With another patience towards a store that does not answer.
    #[must_use]
    pub fn with_patience(mut self, patience: Patience) -> Self {
        self.medium = self.medium.with_patience(patience);
        self.chain = Chain::new(self.medium.clone());
        self
    }

    /// Where it is.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// Where it is reached: the root, and the server if it was named.
    pub fn endpoint(&self) -> String {
        self.endpoint.to_string()
    }

    /// Requests made through this value and its clones.
    pub fn requests(&self) -> StoreRequests {
        self.medium.requests()
    }

    /// Reads the whole state: one listing of manifests, the newest one, its segments, the loose seals of its epoch.
    ///
    /// # Errors
    /// Fails closed: anything that is named but missing, damaged or unreadable is an error with its name (R81, R82).
    pub async fn read(&self) -> Result<View> {
        loop {
            let Some(head) = self.chain.newest().await? else { return Ok(View::default()) };
            let version = head.manifest.version;
            match self.read_at(head).await {
                // What it names can be superseded, and removed as garbage, while it is read: list again.
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    if self.chain.newest_version().await? == Some(version) {
                        return Err(error);
                    }
                }
                read => return read,
            }
        }
    }

    async fn read_at(&self, head: Head) -> Result<View> {
        let live = Live::new(Levels::read(&self.medium, &head.manifest).await?);
        self.with_loose(head, live, KnownBySource::default()).await
    }

    /// What is there now, given what was there: segments are not read again while nothing was folded since.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) async fn refresh(&self, view: View) -> Result<View> {
        if view.head.is_none() {
            return self.read().await;
        }
        match self.chain.newest().await? {
            // Loose seals are decided in the order of their names, which later ones can come before.
            Some(head) if view.head.as_ref() == Some(&head) && view.loose.is_empty() => {
                self.with_loose(head, view.live, view.keys).await
            }
            _ => self.read().await,
        }
    }

    /// Decides the loose seals of the epoch of `head` on top of `live`, whose row keys are `keys` as far as they were read.
    async fn with_loose(&self, head: Head, live: Live, keys: KnownBySource) -> Result<View> {
        let (store, epoch) = (head.manifest.store, head.manifest.epoch);
        let seals = self.loose_seals(store, epoch, &live, &BTreeMap::new()).await?;
        let mut view = View { head: Some(head), live, keys, ..View::default() };
        for seal in seals {
            let rows = self.read_sealed_keys(&seal).await?;
            let decided = self.decide(&mut view.counted(), &seal, rows).await?;
            view.loose = view.loose.then(decided.unwrap_or_default());
        }
        Ok(view)
    }

    /// Decides `seal`, whose row keys are `rows`, on top of what `counted`; what a segment has to record of it.
    pub(crate) async fn decide(
        &self,
        counted: &mut Counted<'_>,
        seal: &Seal,
        rows: Option<KeyRows>,
    ) -> Result<Option<SegmentData>> {
        let (Some(sealed), Some(rows)) = (&seal.keys, rows) else { return Ok(counted.live.decide(seal)) };
        if counted.live.is_decided(seal.id) {
            return Ok(None);
        }
        let known = self.known_keys(counted, &sealed.source).await?;
        let is_covered = known.is_covered(&rows.fingerprints)?;
        let Some(mut data) = counted.live.decide_with(seal, is_covered) else { return Ok(None) };
        let counts = data.checkpoints.iter().all(|row| row.decision == Decision::Accepted);
        known.decide(&rows.fingerprints, counts)?;
        if counts {
            data.keys.entry(Arc::clone(&sealed.source)).or_default().push(rows);
        }
        Ok(Some(data))
    }

    /// The row keys of `source` that count, read at the first call.
    pub(crate) async fn known_keys(&self, counted: &mut Counted<'_>, source: &str) -> Result<Arc<KnownKeys>> {
        if let Some(known) = counted.keys.get(source) {
            return Ok(Arc::clone(known));
        }
        let undone = counted.live.undone();
        let segments = counted.manifest.iter().flat_map(|manifest| &manifest.keys).filter(|s| &*s.source == source);
        let KeysIn { memory, folder } = &*self.keys_in;
        let (done, _) = load_keys(&self.medium, segments.cloned().collect(), &undone, *memory, folder).await?;
        let known = KnownKeys::new(done, *memory, folder);
        for rows in counted.loose.keys.get(source).into_iter().flatten() {
            known.decide(&rows.clone().without(&undone)?.fingerprints, true)?;
        }
        let known = Arc::new(known);
        counted.keys.insert(source.into(), Arc::clone(&known));
        Ok(known)
    }

    /// How many of the folded row keys of `source` two checkpoints cover that count.
    pub(super) async fn twice_covered(&self, manifest: &Manifest, live: &Live, source: &str) -> Result<u64> {
        let segments = manifest.keys.iter().filter(|segment| &*segment.source == source).cloned().collect();
        let KeysIn { memory, folder } = &*self.keys_in;
        let (_, twice) = load_keys(&self.medium, segments, &live.undone(), *memory, folder).await?;
        Ok(twice)
    }

    /// Writes `delta` beside the segments that `manifest` names, for manifest `version`.
    pub(crate) async fn flush(
        &self,
        manifest: &Manifest,
        mut delta: SegmentData,
        version: ManifestVersion,
        live: &Live,
    ) -> Result<SegmentChange> {
        let mut change = SegmentChange::default();
        let keys = std::mem::take(&mut delta.keys);
        if !keys.is_empty() {
            change.keys = Some(flush_keys(&self.medium, &manifest.keys, keys, version, &live.undone()).await?);
        }
        change.now = Some(flush(&self.medium, &manifest.segments, delta, version).await?);
        Ok(change)
    }

    /// The row keys that `seal` names; `None`: it names none.
    ///
    /// # Errors
    /// [`Corrupt`](ErrorKind::Corrupt) when they are missing or damaged.
    pub(crate) async fn read_sealed_keys(&self, seal: &Seal) -> Result<Option<KeyRows>> {
        let (Some(name), Some(sealed)) = (seal.keys_name(), &seal.keys) else { return Ok(None) };
        let place = self.medium.place(name);
        let way = |error: Error| error.way("delete the seal that names them: what it covers is then done again");
        let Some(bytes) = self.medium.get(name).await? else {
            return Err(way(Error::corrupt(&place, format!("the row keys of {} are missing", seal.id))));
        };
        if digest(&bytes) != sealed.digest {
            let what = format!("the row keys of {} are damaged: their checksum is not the one in its seal", seal.id);
            return Err(way(Error::corrupt(&place, what)));
        }
        let rows = off_thread(move || decode_keys(&place, bytes)).await;
        rows.map_err(|error| Error::invalid("reading row keys was interrupted").caused_by(error))?.map(Some)
    }

    /// The seals of `epoch` that `live` has not decided, in the order of their names. Those in `known` are not read again.
    pub(crate) async fn loose_seals(
        &self,
        store: StoreId,
        epoch: Epoch,
        live: &Live,
        known: &BTreeMap<CheckpointId, Arc<Seal>>,
    ) -> Result<Vec<Arc<Seal>>> {
        let names = self.medium.list(&ObjectName::seals(epoch)).await?;
        let mut ids: Vec<CheckpointId> = names
            .iter()
            .filter_map(|name| match name.parse() {
                Ok(ObjectName::Seal(id)) => Some(id),
                _ => None,
            })
            .filter(|id| may_count(*id, epoch) && !live.is_decided(*id))
            .collect();
        ids.sort_unstable();
        let reads: Vec<_> = ids.into_iter().map(|id| self.known_or_read(store, id, known.get(&id).cloned())).collect();
        futures::stream::iter(reads).buffered(16).try_collect().await
    }

    /// The seals of one task in `epoch`, in the order of their names.
    pub(crate) async fn seals_of(&self, store: StoreId, epoch: Epoch, input: InputId) -> Result<Vec<Arc<Seal>>> {
        let names = self.medium.list(&ObjectName::seals_beside(epoch, input)).await?;
        let mut ids: Vec<CheckpointId> = names
            .iter()
            .filter_map(|name| match name.parse() {
                Ok(ObjectName::Seal(id)) if id.epoch == epoch && id.input == input => Some(id),
                _ => None,
            })
            .collect();
        ids.sort_unstable();
        let reads: Vec<_> = ids.into_iter().map(|id| self.known_or_read(store, id, None)).collect();
        futures::stream::iter(reads).buffered(16).try_collect().await
    }

    /// Reads one seal that was listed, unless it is known.
    async fn known_or_read(&self, store: StoreId, id: CheckpointId, known: Option<Arc<Seal>>) -> Result<Arc<Seal>> {
        if let Some(seal) = known {
            return Ok(seal);
        }
        let name = ObjectName::Seal(id);
        match self.medium.get(name).await? {
            Some(bytes) => self.decode_seal(store, id, &bytes),
            None => Err(Error::corrupt(self.medium.place(name), "a seal that was listed is not there")),
        }
    }

    pub(crate) fn decode_seal(&self, store: StoreId, id: CheckpointId, bytes: &[u8]) -> Result<Arc<Seal>> {
        let place = self.medium.place(ObjectName::Seal(id));
        let seal: Seal = decode("seal", &place, bytes)
            .map_err(|e| e.way("delete this seal: the atoms it covers are then done again"))?;
        seal.check(store, id, &place)?;
        Ok(Arc::new(seal))
    }

    /// The row keys of `source` that count in `view`, read at the first call: what a process filters by.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn keys_of(&self, view: &mut View, source: &str) -> Result<Arc<KnownKeys>> {
        self.known_keys(&mut view.counted(), source).await
    }

    /// The newest manifest, without what it names; `None` for a new store.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn newest(&self) -> Result<Option<Head>> {
        self.chain.newest().await
    }

    /// The retained manifests, oldest first.
    pub async fn manifests(&self) -> Result<Vec<Manifest>> {
        Ok(self.chain.history().await?.into_iter().map(|head| head.manifest).collect())
    }

    /// Names under the prefix that are no objects of a store, for `status` (R85).
    pub async fn unknown_objects(&self) -> Result<Vec<String>> {
        let names = self.medium.list("").await?;
        Ok(names.into_iter().filter(|name| !ObjectName::is_known(name)).collect())
    }

    /// Races sixteen creates of one name; exactly one must win (R91). Run before a store's first manifest.
    ///
    /// A race in which an answer was lost, or nobody won (S3's retriable 409, R93), says nothing and is repeated.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] when the backend let several win, or cannot create-if-absent at all;
    /// [`ErrorKind::Unavailable`] when no race could be judged.
    pub(crate) async fn probe(&self) -> Result<()> {
        let Patience { tries, mut pause } = self.medium.patience();
        for left in (0..tries).rev() {
            let name = ObjectName::Probe(AttemptNonce::random());
            let race = self.medium.race(name, 16).await;
            self.medium.delete(name).await?;
            let error = match race {
                Race { wins: 1, failed: None } => return Ok(()),
                Race { wins: 0 | 1, failed: Some(error) } => {
                    let definite = is_definite(&error);
                    let error = self.medium.failure(name, error);
                    if definite {
                        return Err(error);
                    }
                    error
                }
                Race { wins: 0, .. } => self.unsafe_creates(name, 0),
                Race { wins, .. } => return Err(self.unsafe_creates(name, wins)),
            };
            if left == 0 {
                return Err(error);
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        Ok(())
    }

    fn unsafe_creates(&self, name: ObjectName, wins: usize) -> Error {
        Error::new(
            ErrorKind::Unsupported,
            format!("of sixteen concurrent creates of one object {wins} succeeded; exactly one must"),
        )
        .at(self.medium.place(name))
        .safe("nothing else was written")
        .way("put the store on a backend with atomic create-if-absent (conditional writes)")
    }
}

/// How a race of creates ended.
struct Race {
    /// How many were told that they created the object.
    wins: usize,
    /// A failure that says neither yes nor no.
    failed: Option<object_store::Error>,
}

impl Medium {
    /// Lets `writers` create `name` at once, each with its own bytes.
    async fn race(&self, name: ObjectName, writers: usize) -> Race {
        let path = object_store::path::Path::from(name.to_string());
        let tries = (0..writers).map(|_| {
            let (objects, path) = (self.objects(), path.clone());
            self.count_put();
            async move {
                let bytes = AttemptNonce::random().to_string();
                objects.put_opts(&path, bytes.into(), PutMode::Create.into()).await
            }
        });
        let mut race = Race { wins: 0, failed: None };
        for outcome in futures::future::join_all(tries).await {
            match outcome {
                Ok(_) => race.wins += 1,
                Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {}
                Err(error) => race.failed = Some(error),
            }
        }
        race
    }
}
