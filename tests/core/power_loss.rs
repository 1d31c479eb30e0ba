//! A whole run on a disk that stops at every single step, with and without losing what was not durable.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lakemark::disk::{Disk, LossyDisk, RealDisk};
use lakemark::{CheckpointStore, Counts, Result, SealOutcome, Sink};
use rstest::rstest;

use crate::harness::{
    IMPATIENT, ONE_TRY, Site, check_i5, collect_garbage, done, next, results, seen_done, whole, with_sink, work,
    work_left, write_staged,
};

const PATHS: [&str; 3] = ["a", "b", "c"];

/// What a run was told is durable.
#[derive(Debug, Default)]
struct Told {
    sealed: Vec<&'static str>,
    committed: bool,
}

/// The run: three tasks with one real file each, a fold on the way, a commit, the close.
async fn run_once(site: &Site, disk: Arc<dyn Disk>, told: &mut Told) -> Result<()> {
    let sink = site.sink_with(Arc::clone(&disk));
    let store = site.store_with(disk).with_patience(ONE_TRY);
    let view = store.read().await?;
    sink.check(view.expected().as_ref()).await?;
    let run = store.begin(with_sink(&sink)).await?;
    sink.bind(run.worker().store_id()).await?;
    let already = run.with_live(|_, live| done(live)).await;
    for path in PATHS {
        if already.iter().any(|d| d == path) {
            continue;
        }
        let outcome = work(&run, &sink, path).await?;
        assert!(matches!(outcome, SealOutcome::Sealed(_)), "nobody else seals");
        told.sealed.push(path);
        if path == "b" {
            run.fold().await?;
        }
    }
    run.commit(Some(&sink)).await?;
    told.committed = true;
    run.close().await.map(drop)
}

/// Runs with the power off from step `k` on, and then again on a sound disk. Whether the first run got through.
async fn stopped_at(k: u64, loses: bool) -> bool {
    let site = Site::new();
    let disk = Arc::new(LossyDisk::new(k, site.at("spare")));
    let mut told = Told::default();
    let first = run_once(&site, disk.clone(), &mut told).await;
    let through = first.is_ok();
    if loses {
        disk.power_loss().unwrap();
    }
    let view = site.store().read().await.unwrap_or_else(|e| panic!("step {k}: {e}"));
    let live = done(&view.live);
    for path in &told.sealed {
        assert!(live.iter().any(|d| d == path), "step {k}: `{path}` was told to be sealed and is not: {live:?}");
    }
    if told.committed {
        assert_eq!(site.visible(), results(&PATHS), "step {k}: the commit was told to be visible");
    }
    for text in site.visible() {
        assert!(results(&PATHS).contains(&text), "step {k}: `{text}` is visible");
    }
    // A disk that does not sync is much faster, and as sound while the power stays on.
    let disk: Arc<dyn Disk> =
        if k.is_multiple_of(16) { Arc::new(RealDisk) } else { Arc::new(LossyDisk::new(u64::MAX, site.at("spare2"))) };
    run_once(&site, disk, &mut Told::default()).await.unwrap_or_else(|e| panic!("step {k}: {e}\n{first:?}"));
    assert_eq!(site.visible(), results(&PATHS), "step {k}");
    let store = site.store();
    let view = store.read().await.unwrap();
    check_i5(&view.live);
    assert_eq!(done(&view.live), PATHS, "step {k}");
    assert!(!view.needs_epoch(), "step {k}");
    let commits = view.head.unwrap().manifest.commits;
    assert_eq!((commits.files, commits.rows, commits.open), (3, 3, None), "step {k}");
    assert!(store.unknown_objects().await.unwrap().is_empty(), "step {k}");
    collect_garbage(&store, &site.objects(), &site.sink()).await;
    assert_eq!(site.visible(), results(&PATHS), "step {k}");
    through
}

async fn stopped_everywhere(loses: bool) {
    let step = Arc::new(AtomicU64::new(0));
    let through = Arc::new(AtomicU64::new(u64::MAX));
    let workers = (0..4).map(|_| {
        let (step, through) = (Arc::clone(&step), Arc::clone(&through));
        tokio::spawn(async move {
            loop {
                let k = step.fetch_add(1, Ordering::SeqCst) + 1;
                if k > through.load(Ordering::SeqCst) {
                    return;
                }
                if stopped_at(k, loses).await {
                    through.fetch_min(k, Ordering::SeqCst);
                }
            }
        })
    });
    for worker in futures::future::join_all(workers).await {
        worker.unwrap();
    }
    let through = through.load(Ordering::SeqCst);
    assert!(through > 150, "the run has {through} steps: were they all seen?");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_output_is_exact_after_a_power_cut_at_any_step() {
    stopped_everywhere(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_output_is_exact_after_a_crash_at_any_step() {
    stopped_everywhere(false).await;
}

/// Whether a step is refused, by its number and the folder if it is the sync of one.
type Refuses = dyn Fn(u64, Option<&Path>) -> bool + Send + Sync;

/// A disk that refuses some steps; what was done before is lost or kept by the disk behind it.
struct Refusing {
    disk: Arc<LossyDisk>,
    steps: AtomicU64,
    refuses: Box<Refuses>,
}

impl Refusing {
    /// `refuses` is given the number of the step, and the folder if it is the sync of one.
    fn new(disk: &Arc<LossyDisk>, refuses: impl Fn(u64, Option<&Path>) -> bool + Send + Sync + 'static) -> Self {
        Self { disk: Arc::clone(disk), steps: AtomicU64::new(0), refuses: Box::new(refuses) }
    }

    fn step(&self, synced: Option<&Path>) -> io::Result<()> {
        let n = self.steps.fetch_add(1, Ordering::SeqCst) + 1;
        if (self.refuses)(n, synced) { Err(io::Error::other("EIO")) } else { Ok(()) }
    }
}

impl std::fmt::Debug for Refusing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.disk.fmt(f)
    }
}

impl Disk for Refusing {
    fn create_new(&self, path: &Path) -> io::Result<File> {
        self.step(None)?;
        self.disk.create_new(path)
    }

    fn sync_file(&self, file: &File, path: &Path) -> io::Result<()> {
        self.step(None)?;
        self.disk.sync_file(file, path)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step(None)?;
        self.disk.link(from, to)
    }

    fn rename_no_replace(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step(None)?;
        self.disk.rename_no_replace(from, to)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.step(Some(dir))?;
        self.disk.sync_dir(dir)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.step(None)?;
        self.disk.create_dir(dir)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.step(None)?;
        self.disk.remove_file(path)
    }
}

/// A run dies at step `k`, the next one finishes, and only then the power goes off: what the second one was told is
/// durable may rest on names that the first one made and never synced.
async fn died_at_before_the_cut(k: u64) -> bool {
    let site = Site::new();
    let disk = Arc::new(LossyDisk::new(u64::MAX, site.at("spare")));
    let dying = Arc::new(Refusing::new(&disk, move |step, _| step >= k));
    let through = run_once(&site, dying, &mut Told::default()).await.is_ok();
    run_once(&site, disk.clone(), &mut Told::default()).await.unwrap_or_else(|e| panic!("step {k}: {e}"));
    disk.power_loss().unwrap();
    assert_eq!(site.visible(), results(&PATHS), "step {k}");
    let view = site.store().read().await.unwrap_or_else(|e| panic!("step {k}: {e}"));
    assert_eq!(done(&view.live), PATHS, "step {k}");
    assert!(!view.needs_epoch(), "step {k}");
    site.sink().check(view.expected().as_ref()).await.unwrap_or_else(|e| panic!("step {k}: {e}"));
    through
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_dead_run_left_unsynced_is_durable_once_the_next_one_relied_on_it() {
    let mut k = 1;
    while !died_at_before_the_cut(k).await {
        k += 1;
    }
    assert!(k > 150, "the run has {k} steps: were they all seen?");
}

/// An object whose folder could not be synced is there for every reader, and gone after a power cut: being one's own
/// is not enough for success (R51).
#[rstest]
#[case::its_own_name("seals/00000")]
#[case::the_folder_it_is_in("seals")]
#[case::the_folder_above("0000000001")]
#[tokio::test]
async fn r51_an_object_counts_only_once_its_name_is_durable(#[case] folder: &'static str) {
    let site = Site::new();
    let disk = Arc::new(LossyDisk::new(u64::MAX, site.at("spare")));
    let fired = Arc::new(AtomicU64::new(0));
    let failing = Refusing::new(&disk, {
        let fired = Arc::clone(&fired);
        move |_, synced| synced.is_some_and(|dir| dir.ends_with(folder)) && fired.fetch_add(1, Ordering::SeqCst) == 0
    });
    let store = site.store_with(Arc::new(failing)).with_patience(IMPATIENT);
    let run = store.begin(crate::harness::takeover()).await.unwrap();
    let sealed = crate::harness::seal(&run, vec![whole("a")]).await;
    assert_ne!(fired.load(Ordering::SeqCst), 0, "the fault fired");
    let told = matches!(sealed, Ok(SealOutcome::Sealed(_)));
    drop(run);
    disk.power_loss().unwrap();
    let kept = seen_done(&site.store()).await == ["a"];
    assert!(kept || !told, "it was told to be sealed and is gone");
    assert!(told, "trying again makes it durable");
}

/// The bytes of output are durable before a seal names it.
#[tokio::test]
async fn r51_a_seal_names_only_output_that_a_power_cut_leaves() {
    let site = Site::new();
    let disk = Arc::new(LossyDisk::new(u64::MAX, site.at("spare")));
    let (sink, store) = (site.sink_with(disk.clone()), site.store_with(disk.clone()));
    let run = store.begin(with_sink(&sink)).await.unwrap();
    sink.bind(run.worker().store_id()).await.unwrap();
    let id = next(&run);
    let output = write_staged(&run, &sink, id, "", "the result").unwrap();
    run.stage_keys(id, vec![whole("a")]).unwrap();
    run.stage_files(id, Box::pin(async { Ok(vec![output]) })).unwrap();
    assert!(run.checkpoint(id, Counts::default()).await.is_ok());
    // An unfinished file beside it is lost.
    let mut unfinished = sink.create("unfinished").unwrap();
    io::Write::write_all(&mut unfinished, b"half").unwrap();
    std::mem::forget(unfinished);
    drop(run);
    disk.power_loss().unwrap();
    assert!(!site.staged().join("unfinished").exists());
    let run = site.begin().await;
    work_left(&run, &site.sink(), &["a"]).await.unwrap();
    assert_eq!(run.commit(Some(&site.sink())).await.unwrap()[0].files, 1);
    run.close().await.unwrap();
    assert_eq!(site.visible(), ["the result"]);
}
