//! Deaths in the middle of commits, for tests of table formats: a process that dies at every single request of a run on an
//! object store, and power that goes off at every step of two commits on a disk.
#![allow(clippy::unwrap_used, reason = "what fails is to panic")]

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Arc;

use futures::future::BoxFuture;
use object_store::memory::InMemory;
use object_store::prefix::PrefixStore;

use super::{CommitDriver, Table};
use crate::coverage::Coverage;
use crate::disk::{Disk, LossyDisk, RealDisk};
use crate::error::Result;
use crate::faults::Mortal;
use crate::identity::{AttemptNonce, Evidence, FileVersion, Root, StoreId};
use crate::run::{BeginOptions, Run, Wait};
use crate::sink::{Fitness, Intent, OutputSink, Settled, Sink};
use crate::store::{
    CheckpointStore, Counts, Lease, ObjectCheckpointStore, OutputFile, Patience, SealedFile, TableState, output_name,
};

/// Writes a file of three rows.
pub type WriteRows = fn(&mut dyn Write);

/// The driver of commits of one process: by its way to where the table is, and the number of that place.
type Drivers<P, T> = Box<dyn Fn(P, u64) -> BoxFuture<'static, Result<CommitDriver<T>>> + Send + Sync>;

const PATHS: [&str; 3] = ["a", "b", "c"];

/// Whole runs with a bucket for their store and their table, whose processes die.
pub struct Deaths<T: Table> {
    /// The driver to `memory://mortal/out` by a bucket. Whatever else a table needs is by the number.
    pub driver: Drivers<Mortal, T>,
    /// Writes a file of it.
    pub write: WriteRows,
    /// Writes those of the second commit, which bring a column along.
    pub merging: Option<WriteRows>,
}

/// Two commits on a disk whose power goes off.
pub struct PowerLosses<T: Table> {
    /// The driver to the table in a folder, by a disk; by the same number it is the same folder.
    pub driver: Drivers<(std::path::PathBuf, Arc<dyn Disk>), T>,
    /// Writes a file of it.
    pub write: WriteRows,
    /// The versions that making a table takes before its first commit.
    pub first: u64,
}

impl<T: Table> Deaths<T> {
    /// A process dies at each of its requests: before that is done, and after it was done and before the answer. Another one
    /// finishes, and the table is exact. The schema that it always has, as its state tells it.
    ///
    /// # Panics
    /// When it is not.
    pub async fn check(&self) -> String {
        let mut schemas = BTreeSet::new();
        for done_first in [false, true] {
            let mut k = 1;
            while !died_at(self, k, done_first, &mut schemas).await {
                k += 1;
            }
            assert!(k > 60, "the run makes {k} requests: were they all seen?");
        }
        assert_eq!(schemas.len(), 1, "whoever commits, the table gets the same columns");
        schemas.pop_first().unwrap()
    }
}

impl<T: Table> PowerLosses<T> {
    /// The power goes off at every step of two commits: what was told to be in the table is, and is whole.
    ///
    /// # Panics
    /// When it is not.
    pub async fn check(&self) {
        let mut k = 1;
        while !stopped_at(self, k).await {
            k += 1;
        }
        assert!(k > 20, "every step was stopped at: {k}");
    }
}

fn store(process: &Mortal) -> ObjectCheckpointStore {
    let root = Root::parse("memory://mortal/out.lakemark/store").unwrap();
    let below = PrefixStore::new(process.clone(), "out.lakemark/store");
    let patience = Patience { tries: 1, pause: std::time::Duration::ZERO };
    ObjectCheckpointStore::on(root, Arc::new(below)).with_patience(patience)
}

async fn done(run: &Run) -> Vec<String> {
    run.with_live(|_, live| live.files("docs").map(|(path, _)| path.to_owned()).collect()).await
}

/// Does the file `path` with one output file.
async fn work<T: Table>(run: &Run, sink: &CommitDriver<T>, write: WriteRows, path: &str) -> Result<()> {
    let id = run.checkpoints().assign(run.next_input());
    let name = output_name(&run.worker().store_id().short(), id, run.attempt(id), 0, "parquet");
    let mut output = sink.stage(&name, "").await?;
    let mut bytes = Vec::new();
    write(&mut bytes);
    output.write_all(&bytes).unwrap();
    let (size, upload) = output.finish().await?;
    let output = OutputFile { name, folder: String::new(), size, rows: 3, upload };
    let key = SealedFile {
        source: "docs".into(),
        file: FileVersion::new(path, 100).with_mtime(7),
        coverage: Coverage::Whole,
        evidence: Evidence::new(&[3], "00".into()),
        unsettled: false,
    };
    run.stage_keys(id, vec![key])?;
    run.stage_files(id, Box::pin(async { Ok(vec![output]) }))?;
    run.checkpoint(id, Counts { rows_in: 3, rows_out: 3, rows_failed: 0 }).await.map(drop)
}

/// The run: what earlier ones left, each file that is not done, a commit on the way and one at the end.
async fn run_once<T: Table>(deaths: &Deaths<T>, store: &ObjectCheckpointStore, sink: &CommitDriver<T>) -> Result<()> {
    sink.check(store.read().await?.expected().as_ref()).await?;
    let options = BeginOptions { sink: Some(sink.binding()), wait: Wait::Takeover, ..BeginOptions::default() };
    let run = store.begin(options).await?;
    run.recover(Some(sink)).await?;
    let already = done(&run).await;
    for path in PATHS.into_iter().filter(|path| !already.iter().any(|done| done == path)) {
        let write = deaths.merging.filter(|_| path == "c").unwrap_or(deaths.write);
        work(&run, sink, write, path).await?;
        if path == "b" {
            run.commit(Some(sink)).await?;
        }
    }
    run.commit(Some(sink)).await?;
    run.close().await.map(drop)
}

/// A process dies at its request `k`, another one finishes. Whether the first one got through.
async fn died_at<T: Table>(deaths: &Deaths<T>, k: u64, done_first: bool, schemas: &mut BTreeSet<String>) -> bool {
    let bucket = Arc::new(InMemory::new());
    let first = Mortal::new(&bucket, k, done_first);
    let site = k * 2 + u64::from(done_first);
    let ended = match (deaths.driver)(first.clone(), site).await {
        Ok(sink) => run_once(deaths, &store(&first), &sink).await,
        Err(error) => Err(error),
    };
    let through = first.is_alive();
    assert!(!through || ended.is_ok(), "request {k}: {ended:?}");
    let second = Mortal::new(&bucket, u64::MAX, false);
    let sink = (deaths.driver)(second.clone(), site).await.unwrap();
    run_once(deaths, &store(&second), &sink).await.unwrap_or_else(|e| panic!("request {k}: {e}"));
    let view = store(&second).read().await.unwrap();
    let committed: Vec<String> = view.live.committed_outputs().map(|(_, output)| output.path()).collect();
    assert_eq!(committed.len(), 3, "request {k}");
    assert!(!view.needs_epoch(), "request {k}");
    let base = sink.table().load().await.unwrap().unwrap();
    assert_eq!(sink.table().live(&base, &committed).await.unwrap(), 3, "request {k}: each file is live");
    schemas.insert(sink.table().state(&base).schema);
    let markers = sink.table().history(&base, None, view.store_id().unwrap()).await.unwrap().markers;
    let manifest = view.head.as_ref().unwrap().manifest.clone();
    assert_eq!(markers.len() as u64, manifest.commits.last, "request {k}: each number once: {markers:?}");
    assert_eq!((manifest.commits.files, manifest.commits.rows), (3, 9), "request {k}");
    sink.check(view.expected().as_ref()).await.unwrap();
    assert!(store(&second).verify().await.unwrap().is_sound(), "request {k}");
    let run = store(&second).operate(Wait::Takeover, Lease::default()).await.unwrap();
    run.collect(Some(&sink), std::time::Duration::ZERO).await.unwrap();
    run.close().await.unwrap();
    assert_eq!(sink.table().live(&base, &committed).await.unwrap(), 3, "request {k}: gc removes nothing that is live");
    through
}

/// What one driver was told.
#[derive(Default)]
struct Told {
    /// The files of each commit that are durable.
    staged: Vec<Vec<OutputFile>>,
    committed: Vec<TableState>,
}

async fn stage<T: Table>(driver: &CommitDriver<T>, write: WriteRows) -> Result<Vec<OutputFile>> {
    let name = format!("{}.parquet", AttemptNonce::random());
    let mut file = driver.stage(&name, "").await?;
    let mut bytes = Vec::new();
    write(&mut bytes);
    file.write_all(&bytes).map_err(|e| driver.failed(e))?;
    let (size, upload) = file.finish().await?;
    driver.sync().await?;
    Ok(vec![OutputFile { name, folder: String::new(), size, rows: 3, upload }])
}

async fn commit<T: Table>(driver: &CommitDriver<T>, intent: &Intent<'_>) -> Result<TableState> {
    match driver.commit(intent).await? {
        Settled::Done { missing, table: Some(table) } if missing.is_empty() => Ok(table),
        other => panic!("not done: {other:?}"),
    }
}

async fn run<T: Table>(driver: &CommitDriver<T>, write: WriteRows, store: StoreId, told: &mut Told) -> Result<()> {
    for n in 1..=2 {
        told.staged.push(stage(driver, write).await?);
        let (base, digest) = (told.committed.last().cloned(), format!("digest {n}"));
        let files = &told.staged[n as usize - 1];
        let intent = Intent { store, n, digest: &digest, base: base.as_ref(), ..Intent::bare(files) };
        told.committed.push(commit(driver, &intent).await?);
    }
    Ok(())
}

/// Whether the run got through with the power off from step `k` on.
async fn stopped_at<T: Table>(losses: &PowerLosses<T>, k: u64) -> bool {
    let folder = std::env::temp_dir().join(format!("lakemark-power-{}", AttemptNonce::random()));
    std::fs::create_dir(&folder).unwrap();
    let at = folder.join("table");
    let (disk, store, mut told) =
        (Arc::new(LossyDisk::new(k, folder.join("spare"))), StoreId::random(), Told::default());
    let outcome = match (losses.driver)((at.clone(), disk.clone()), k).await {
        Ok(driver) => run(&driver, losses.write, store, &mut told).await,
        Err(error) => Err(error),
    };
    disk.power_loss().unwrap();

    let driver = (losses.driver)((at.clone(), Arc::new(RealDisk)), k).await.unwrap();
    let base = driver.table().load().await.unwrap_or_else(|e| panic!("step {k}: {e}"));
    for files in told.staged.iter().take(told.committed.len()) {
        let base = base.as_ref().unwrap_or_else(|| panic!("step {k}: the table was told to be there"));
        let paths = [files[0].path()];
        assert_eq!(driver.table().live(base, &paths).await.unwrap(), 1, "step {k}: the commit was told to be in it");
        assert_eq!(driver.fitness(&files[0]).await.unwrap(), Fitness::Fit, "step {k}");
    }
    // What was decided is brought about, whatever became of it.
    let mut base = told.committed.last().cloned();
    for (n, files) in (1..).zip(&told.staged).skip(told.committed.len()) {
        let digest = format!("digest {n}");
        let intent = Intent { store, n, digest: &digest, base: base.as_ref(), recovered: true, ..Intent::bare(files) };
        let recovered = commit(&driver, &intent).await.unwrap_or_else(|e| panic!("step {k}: {e}\n{outcome:?}"));
        assert_eq!(recovered.version, losses.first + n - 1, "step {k}: each commit is one version");
        base = Some(recovered);
    }
    std::fs::remove_dir_all(&folder).unwrap();
    outcome.is_ok()
}
