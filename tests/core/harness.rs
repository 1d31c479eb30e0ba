//! The plumbing of the scenarios: a store on any objects, a site on a disk, one-line seals.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use lakemark::disk::{Disk, DiskStore, LossyDisk, RealDisk};
use lakemark::store::{Manifest, Patience};
use lakemark::{
    BeginOptions, CheckpointId, CheckpointStore, Counts, Coverage, DirectorySink, Evidence, Expected, FileVersion,
    Lease, Live, ObjectCheckpointStore, OutputFile, RangeSet, Result, Root, Run, SealOutcome, SealedFile, Sink, Wait,
    output_name,
};
use object_store::memory::InMemory;
use object_store::{ObjectStore, ObjectStoreExt, PutMode};
use tempfile::TempDir;

use lakemark::faults::FaultStore;

pub const SOURCE: &str = "docs";

/// Try again at once, a few times.
pub const IMPATIENT: Patience = Patience { tries: 4, pause: Duration::from_millis(1) };
/// Never try again.
pub const ONE_TRY: Patience = Patience { tries: 1, pause: Duration::ZERO };

/// A store on `objects`.
pub fn store_on(objects: Arc<dyn ObjectStore>) -> ObjectCheckpointStore {
    ObjectCheckpointStore::on(Root::parse("memory://x/store").unwrap(), objects).with_patience(IMPATIENT)
}

/// A store in memory, behind a wrapper for faults.
pub fn faulty() -> (FaultStore, ObjectCheckpointStore) {
    let faults = FaultStore::new(Arc::new(InMemory::new()));
    (faults.clone(), store_on(Arc::new(faults)))
}

/// Options that never wait for another holder.
pub fn takeover() -> BeginOptions {
    BeginOptions { wait: Wait::Takeover, ..BeginOptions::default() }
}

/// Options with a lease of `lease` and beats every `beat` milliseconds.
pub fn leased(wait: Wait, beat: u64, lease: u64) -> BeginOptions {
    let ms = Duration::from_millis;
    BeginOptions { wait, lease: Lease { beat: ms(beat), lease: ms(lease) }, ..BeginOptions::default() }
}

/// Row group `n`.
pub fn group(n: u64) -> Coverage {
    Coverage::groups(RangeSet::of(n..n + 1))
}

/// A part of a file of two groups of ten rows.
pub fn part(path: &str, coverage: Coverage) -> SealedFile {
    SealedFile {
        source: SOURCE.into(),
        file: FileVersion::new(path, 100).with_mtime(7),
        coverage,
        evidence: Evidence::new(&[10, 10], "00".into()),
        unsettled: false,
    }
}

/// A whole file.
pub fn whole(path: &str) -> SealedFile {
    part(path, Coverage::Whole)
}

/// The next checkpoint id of `run`.
pub fn next(run: &Run) -> CheckpointId {
    run.checkpoints().assign(run.next_input())
}

/// Seals `parts` without output.
pub async fn seal(run: &Run, parts: Vec<SealedFile>) -> Result<SealOutcome> {
    let id = next(run);
    run.stage_keys(id, parts)?;
    run.checkpoint(id, Counts { rows_in: 20, rows_out: 0, rows_failed: 0 }).await
}

/// The paths of `live` that are done whole, sorted.
pub fn done(live: &Live) -> Vec<String> {
    let complete = |(path, versions): (&str, &[lakemark::LiveVersion])| {
        versions.iter().any(|v| v.is_complete()).then(|| path.to_owned())
    };
    let mut paths: Vec<_> = live.files(SOURCE).filter_map(complete).collect();
    paths.sort_unstable();
    paths
}

/// What a fresh reader of `store` sees as done.
pub async fn seen_done(store: &ObjectCheckpointStore) -> Vec<String> {
    done(&store.read().await.unwrap().live)
}

/// The newest manifest of `store`.
pub async fn newest(store: &ObjectCheckpointStore) -> Manifest {
    store.read().await.unwrap().head.unwrap().manifest
}

/// What `store` says its destination holds.
pub async fn expected(store: &ObjectCheckpointStore) -> Option<Expected> {
    store.read().await.unwrap().expected()
}

/// Every name in `objects`, sorted.
pub async fn names(objects: &dyn ObjectStore) -> Vec<String> {
    let mut names: Vec<String> = objects.list(None).map_ok(|m| m.location.to_string()).try_collect().await.unwrap();
    names.sort_unstable();
    names
}

/// The bytes of `name`.
pub async fn get(objects: &dyn ObjectStore, name: &str) -> Vec<u8> {
    objects.get(&name.into()).await.unwrap().bytes().await.unwrap().to_vec()
}

/// Puts `bytes` at `name`, whatever is there.
pub async fn put(objects: &dyn ObjectStore, name: &str, bytes: impl Into<Vec<u8>>) {
    let name = object_store::path::Path::parse(name).unwrap();
    let bytes: Vec<u8> = bytes.into();
    if objects.put_opts(&name, bytes.clone().into(), PutMode::Overwrite.into()).await.is_err() {
        // A disk store never overwrites.
        objects.put_opts(&name, bytes.into(), PutMode::Create.into()).await.unwrap();
    }
}

/// A store and a destination in one temporary directory.
pub struct Site {
    pub dir: TempDir,
    disk: Arc<dyn Disk>,
}

impl Site {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), disk: Arc::new(RealDisk) }
    }

    /// On a disk that syncs nothing: for scenarios in which the power stays on.
    pub fn quick() -> Self {
        let site = Self::new();
        let disk = Arc::new(LossyDisk::new(u64::MAX, site.at("spare")));
        Self { disk, ..site }
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn root(&self, name: &str) -> Root {
        Root::parse(self.at(name).to_str().unwrap()).unwrap()
    }

    pub fn store(&self) -> ObjectCheckpointStore {
        self.store_with(Arc::clone(&self.disk)).with_patience(IMPATIENT)
    }

    pub fn store_with(&self, disk: Arc<dyn Disk>) -> ObjectCheckpointStore {
        ObjectCheckpointStore::open_on(self.root("store"), disk).unwrap()
    }

    pub fn sink(&self) -> DirectorySink {
        self.sink_with(Arc::clone(&self.disk))
    }

    pub fn sink_with(&self, disk: Arc<dyn Disk>) -> DirectorySink {
        DirectorySink::open_on("parquet", self.root("out"), disk).unwrap()
    }

    /// The objects of the store.
    pub fn objects(&self) -> DiskStore {
        DiskStore::new(self.at("store"), Arc::clone(&self.disk))
    }

    pub fn staged(&self) -> PathBuf {
        self.at("out.lakemark/staged")
    }

    /// Wins an epoch and binds the destination, as a driver does.
    pub async fn begin(&self) -> Run {
        let sink = self.sink();
        let run = self.store().begin(with_sink(&sink)).await.unwrap();
        sink.bind(run.worker().store_id()).await.unwrap();
        run
    }

    /// What a reader of the destination sees: the texts of all files under its root, sorted.
    pub fn visible(&self) -> Vec<String> {
        texts(&self.at("out"))
    }
}

/// Options that take over and name `sink`.
pub fn with_sink(sink: &DirectorySink) -> BeginOptions {
    BeginOptions { sink: Some(sink.binding()), ..takeover() }
}

/// The content of every file under `root`, sorted; none when it is not there.
pub fn texts(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { found.push(std::fs::read_to_string(path).unwrap()) }
        }
    }
    found.sort_unstable();
    found
}

/// Writes `text` as one staged file of the present attempt of `id`, durably.
pub fn write_staged(run: &Run, sink: &DirectorySink, id: CheckpointId, folder: &str, text: &str) -> Result<OutputFile> {
    sink.prepare()?;
    let name = output_name(&run.worker().store_id().short(), id, run.attempt(id), 0, "txt");
    let mut file = sink.create(&name)?;
    file.write_all(text.as_bytes()).map_err(|e| lakemark::Error::invalid("not written").caused_by(e))?;
    let size = file.finish()?;
    sink.sync_staged()?;
    Ok(OutputFile { name, folder: folder.to_owned(), size, rows: 1, upload: None })
}

/// Does the file `path`: one output file that says so in a folder, and its seal.
pub async fn work(run: &Run, sink: &DirectorySink, path: &str) -> Result<SealOutcome> {
    let id = next(run);
    let output = write_staged(run, sink, id, "d=1", &format!("result of {path}"))?;
    run.stage_keys(id, vec![whole(path)])?;
    run.stage_files(id, Box::pin(async { Ok(vec![output]) }))?;
    run.checkpoint(id, Counts { rows_in: 20, rows_out: 1, rows_failed: 0 }).await
}

/// Does each of `paths` that is not done.
pub async fn work_left(run: &Run, sink: &DirectorySink, paths: &[&str]) -> Result<()> {
    let already = run.with_live(|_, live| done(live)).await;
    for path in paths.iter().filter(|path| !already.iter().any(|d| d == *path)) {
        let _ = work(run, sink, path).await?;
    }
    Ok(())
}

/// What the destination shows when each of `paths` is done once.
pub fn results(paths: &[&str]) -> Vec<String> {
    let mut texts: Vec<_> = paths.iter().map(|path| format!("result of {path}")).collect();
    texts.sort_unstable();
    texts
}

/// Collects garbage, and checks that nothing dead is left, nothing live is gone, and store and destination are sound.
pub async fn collect_garbage(store: &ObjectCheckpointStore, objects: &dyn ObjectStore, sink: &dyn Sink) {
    collect(store, objects, Some(sink)).await;
    let after = store.read().await.unwrap();
    sink.check(after.expected().as_ref()).await.unwrap();
    let waiting = after.live.pending().flat_map(|row| row.outputs.clone());
    let live: Vec<String> = waiting.chain(after.expected().unwrap().open).map(|output| output.name).collect();
    for leftover in sink.leftovers().await.unwrap() {
        let name = leftover.path.rsplit('/').next().unwrap();
        assert!(name == "binding.json" || live.iter().any(|waits| waits == name), "{} is dead", leftover.path);
    }
}

/// As [`collect_garbage`], of a store without a destination.
pub async fn collect_objects(store: &ObjectCheckpointStore, objects: &dyn ObjectStore) {
    collect(store, objects, None).await;
}

/// What is dead is judged here anew, by names alone.
async fn collect(store: &ObjectCheckpointStore, objects: &dyn ObjectStore, sink: Option<&dyn Sink>) {
    let before = store.read().await.unwrap();
    let run = store.operate(Wait::Takeover, Lease::default()).await.unwrap();
    run.collect(sink, Duration::ZERO).await.unwrap();
    let epoch = run.worker().epoch();
    run.close().await.unwrap();

    let after = store.read().await.unwrap();
    assert_eq!(done(&before.live), done(&after.live));
    assert_eq!(before.live.checkpoints().collect::<Vec<_>>(), after.live.checkpoints().collect::<Vec<_>>());
    let verified = store.verify().await.unwrap();
    assert!(verified.is_sound() && verified.unknown.is_empty(), "{verified:?}");

    let manifests = manifests(objects).await;
    let text = manifests.values().map(|(body, _)| body.to_string()).collect::<String>();
    for name in names(objects).await {
        let (folder, rest) = name.split_once('/').unwrap();
        let nonce = rest.rsplit_once('-').map(|(_, end)| end.split('.').next().unwrap().to_owned());
        let needed = match folder {
            "manifests" => manifests.len() <= 100,
            // Their nonces are in a manifest that is kept.
            "segments" | "keys" | "commits" => text.contains(&format!("{:?}", nonce.unwrap())),
            "epochs" => rest.starts_with(&epoch.to_string()),
            // For an hour: it may be of a process that is probing now; and for ever: a person looks at it.
            "probes" | "quarantine" => true,
            _ => false,
        };
        assert!(needed, "{name} is dead");
    }
    assert_eq!(objects.list(Some(&"unfinished".into())).try_collect::<Vec<_>>().await.unwrap(), []);
}

/// I5: no part of a file version is covered by two live checkpoints.
pub fn check_i5(live: &Live) {
    for (path, versions) in live.files(SOURCE) {
        for version in versions {
            for (i, (a, one)) in version.parts.iter().enumerate() {
                for (b, other) in &version.parts[i + 1..] {
                    assert!(!one.overlaps(other), "I5: {path} is covered by {a} ({one}) and {b} ({other})");
                }
            }
        }
    }
}

/// The manifests of `objects` as JSON, oldest first, each with the digest of its bytes.
pub async fn manifests(objects: &dyn ObjectStore) -> BTreeMap<u64, (serde_json::Value, String)> {
    let mut found = BTreeMap::new();
    for name in names(objects).await.iter().filter(|name| name.starts_with("manifests/")) {
        let bytes = get(objects, name).await;
        let frame: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        let body = frame["body"].clone();
        let digest = format!("{:032x}", xxhash_rust::xxh3::xxh3_128(&bytes));
        found.insert(body["version"].as_u64().unwrap(), (body, digest));
    }
    found
}
