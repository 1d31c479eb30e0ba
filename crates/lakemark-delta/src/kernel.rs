//! Snapshots by Delta's own kernel, whose calls block.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use arrow_array::RecordBatch;
use delta_kernel::actions::deletion_vector::DeletionVectorDescriptor;
use delta_kernel::engine::arrow_data::ArrowEngineData;
use delta_kernel::scan::StatsOptions;
use delta_kernel::{DeltaResult, Engine, Snapshot, SnapshotRef};
use delta_kernel_engine::DefaultEngineBuilder;
use delta_kernel_engine::executor::tokio::{TokioBackgroundExecutor, TokioMultiThreadExecutor};
use lakemark::{Error, ErrorKind, Result, Root};
use percent_encoding::percent_decode_str;
use tokio::runtime::{Handle, RuntimeFlavor};
use tracing::subscriber::{NoSubscriber, with_default};

use crate::place::Place;

/// Looks at a log that is there and that no snapshot can be made of: a clean-up may have been under way.
const LOOKS: usize = 3;
/// Commits between two checkpoints of a table that does not say.
const CHECKPOINT_INTERVAL: u64 = 10;

/// A table at one version.
#[derive(Clone)]
pub struct DeltaBase {
    snapshot: SnapshotRef,
    engine: Arc<dyn Engine>,
    root: Root,
    writes_checkpoints: bool,
}

impl fmt::Debug for DeltaBase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at version {}", self.root, self.version())
    }
}

impl DeltaBase {
    /// The newest version of the table at `place`; `None`: nothing is there.
    ///
    /// # Errors
    /// When something is there that cannot be read.
    pub(crate) async fn newest(place: &Place) -> Result<Option<Self>> {
        let (engine, writes_checkpoints) = engine(place);
        let mut looks = 0;
        loop {
            let (of, url) = (Arc::clone(&engine), place.url.clone());
            let is_first = looks == 0;
            let build = move || {
                let build = || Snapshot::builder_for(url).build(of.as_ref());
                // That there is no table yet is no error, and the kernel logs it as one.
                if is_first { with_default(NoSubscriber::default(), build) } else { build() }
            };
            let built = blocking(&place.root, build).await;
            looks += 1;
            match built {
                Ok(snapshot) => {
                    return Ok(Some(Self { snapshot, engine, root: place.root.clone(), writes_checkpoints }));
                }
                Err(_) if !place.has_log().await? => return Ok(None),
                Err(error) if looks == LOOKS => return Err(error),
                Err(_) => {}
            }
        }
    }

    /// The version.
    pub fn version(&self) -> u64 {
        self.snapshot.version()
    }

    /// The snapshot.
    pub(crate) fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The version of the last transaction of `application`, which checkpoints keep.
    pub(crate) async fn last_transaction(&self, application: String) -> Result<Option<u64>> {
        let base = self.clone();
        let found = move || base.snapshot.get_app_id_version(&application, base.engine.as_ref());
        Ok(blocking(&self.root, found).await?.and_then(|version| u64::try_from(version).ok()))
    }

    /// How many files at `paths` are live. Reads the whole state, batch by batch.
    pub(crate) async fn live(&self, paths: &[String]) -> Result<usize> {
        let wanted: HashSet<String> = paths.iter().cloned().collect();
        let all = wanted.len();
        let left = self.fold_files(wanted, |wanted| !wanted.is_empty(), |wanted, path, _| take(wanted, path));
        Ok(all - left.await?.len())
    }

    /// Which files at `paths` are not live, or not with all their rows. Reads as [`live`](Self::live) does.
    pub(crate) async fn not_whole(&self, paths: &[String]) -> Result<HashSet<String>> {
        let wanted: HashSet<String> = paths.iter().cloned().collect();
        let each = |wanted: &mut HashSet<String>, path: &str, is_whole: bool| {
            if is_whole {
                take(wanted, path);
            }
        };
        self.fold_files(wanted, |wanted| !wanted.is_empty(), each).await
    }

    /// Whether no file is live. Reads up to the first that is.
    pub(crate) async fn is_empty(&self) -> Result<bool> {
        let any = self.fold_files(false, |any| !any, |any, _, _| *any = true).await?;
        Ok(!any)
    }

    /// All live files, a batch of rows as the kernel has them for each call of `each`.
    pub(crate) async fn each_batch<T: Send + 'static>(
        &self,
        state: T,
        each: impl Fn(&mut T, &RecordBatch) -> Result<()> + Send + 'static,
    ) -> Result<T> {
        let base = self.clone();
        blocking(&self.root, move || {
            let scan = base.snapshot.scan_builder().with_stats(StatsOptions::none()).build()?;
            let mut state = state;
            for batch in scan.scan_metadata(base.engine.as_ref())? {
                let files = ArrowEngineData::try_from_engine_data(batch?.scan_files.apply_selection_vector()?)?;
                if let Err(error) = each(&mut state, files.record_batch()) {
                    return Ok(Err(error));
                }
            }
            Ok(Ok(state))
        })
        .await?
    }

    /// The rows that `vector` deletes.
    pub(crate) async fn deleted(&self, vector: DeletionVectorDescriptor) -> Result<Vec<u64>> {
        let base = self.clone();
        let url = self.snapshot.table_root().clone();
        blocking(&self.root, move || vector.row_indexes(base.engine.storage_handler(), &url)).await
    }

    /// Calls `each` with the path of every live file, and whether no row of it is deleted, for as long as `goes_on` between two batches.
    async fn fold_files<T: Send + 'static>(
        &self,
        state: T,
        goes_on: fn(&T) -> bool,
        each: fn(&mut T, &str, bool),
    ) -> Result<T> {
        let base = self.clone();
        blocking(&self.root, move || {
            let scan = base.snapshot.scan_builder().with_stats(StatsOptions::none()).build()?;
            let mut state = (state, each);
            for batch in scan.scan_metadata(base.engine.as_ref())? {
                state = batch?.visit_scan_files(state, |state, file| {
                    (state.1)(&mut state.0, &file.path, !file.dv_info.has_vector());
                })?;
                if !goes_on(&state.0) {
                    break;
                }
            }
            Ok(state.0)
        })
        .await
    }

    /// Writes a checkpoint of `version`, which has just been committed on this one, if it is time for one. Best effort:
    /// without it readers read more entries, and whoever commits next may write it.
    pub(crate) async fn checkpoint_if_due(&self, version: u64) {
        let interval = self.snapshot.table_properties().checkpoint_interval.map_or(CHECKPOINT_INTERVAL, |n| n.get());
        if version == 0 || !version.is_multiple_of(interval) || !self.writes_checkpoints {
            return;
        }
        let base = self.clone();
        let written = blocking(&self.root, move || {
            let landed = Snapshot::builder_from(base.snapshot).at_version(version).build(base.engine.as_ref())?;
            landed.checkpoint(base.engine.as_ref(), None).map(drop)
        });
        if let Err(error) = written.await {
            tracing::warn!(table = %self.root, version, %error, "no checkpoint could be written");
        }
    }
}

/// Takes the file at `path`, as the log spells it, out of `wanted`: the log has URIs, and names are compared.
fn take(wanted: &mut HashSet<String>, path: &str) {
    if let Ok(path) = percent_decode_str(path).decode_utf8() {
        wanted.remove(path.as_ref());
    }
}

/// An engine on the runtime that asks, and whether it can write checkpoints.
fn engine(place: &Place) -> (Arc<dyn Engine>, bool) {
    let builder = DefaultEngineBuilder::new(Arc::clone(&place.objects));
    let handle = Handle::current();
    match handle.runtime_flavor() {
        RuntimeFlavor::MultiThread => {
            let executor = Arc::new(TokioMultiThreadExecutor::new(handle));
            (Arc::new(builder.with_task_executor(executor).build()), true)
        }
        // A runtime of one thread cannot be waited for from within: the engine gets one of its own, which the kernel's
        // writer of checkpoints in turn cannot use.
        _ => (Arc::new(builder.with_task_executor(Arc::new(TokioBackgroundExecutor::new())).build()), false),
    }
}

async fn blocking<T: Send + 'static>(root: &Root, work: impl FnOnce() -> DeltaResult<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|e| unreadable(root, e)),
        Err(e) => Err(Error::new(ErrorKind::Unavailable, "reading the table was interrupted").at(root).caused_by(e)),
    }
}

fn unreadable(root: &Root, error: delta_kernel::Error) -> Error {
    use delta_kernel::Error as Kernel;
    let error = match error {
        Kernel::Backtraced { source, .. } => *source,
        other => other,
    };
    let (kind, what, way) = match &error {
        Kernel::ObjectStore(_)
        | Kernel::FileNotFound(_)
        | Kernel::IOError(_)
        | Kernel::Reqwest(_)
        | Kernel::JoinFailure(_)
        | Kernel::Cancelled => {
            (ErrorKind::Unavailable, "the table cannot be read", "run again when the table can be reached")
        }
        Kernel::Unsupported(_) | Kernel::InvalidColumnMappingMode(_) => {
            (ErrorKind::Unsupported, "the table has a feature that cannot be read here", "write to another table")
        }
        _ => (ErrorKind::Corrupt, "the log of the table cannot be read", "mend the table with its own tools"),
    };
    Error::new(kind, what).at(root).safe("nothing was changed").way(way).caused_by(error)
}
