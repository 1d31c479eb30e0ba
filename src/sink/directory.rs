//! A directory on disk: files wait in `<sink>.lakemark/staged/` and are renamed into the sink at commit.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_schema::Schema;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::contents::Seen;
use super::output::{OutputSink, StagedOutput};
use super::staged::io_error;
use super::{Fitness, Intent, Leftover, Settled, Sink, StagedFile};
use crate::disk::{Disk, DurableFolders, RealDisk, write_durably};
use crate::error::{Error, ErrorKind, Result};
use crate::identity::{AttemptNonce, Root, StoreId};
use crate::steps::reach;
use crate::store::envelope::{decode, encode};
use crate::store::{Binding, Expected, OutputFile};

/// A directory of output files on a local disk. Nothing but committed output is ever under its root.
#[derive(Debug, Clone)]
pub struct DirectorySink {
    kind: String,
    root: Root,
    path: PathBuf,
    side: PathBuf,
    disk: Arc<dyn Disk>,
    folders: Arc<DurableFolders>,
    partition_by: Vec<String>,
}

/// The longest name that file systems take, in bytes, and the longest path.
const LONGEST_NAME: usize = 255;
const LONGEST_PATH: usize = 4_095;

/// The destination's side of the binding.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct BindingFile {
    pub(super) store: StoreId,
    pub(super) sink: Root,
}

impl DirectorySink {
    /// A sink of files of `kind` (as in the job: `parquet`) at `url`, a local path.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for what is not on a local disk.
    pub fn open(kind: &str, url: &str) -> Result<Self> {
        Self::open_on(kind, Root::parse(url)?, Arc::new(RealDisk))
    }

    /// As [`open`](Self::open), with every change going through `disk`.
    pub fn open_on(kind: &str, root: Root, disk: Arc<dyn Disk>) -> Result<Self> {
        let Some(path) = root.local_path() else {
            return Err(Error::new(ErrorKind::Unsupported, format!("{root} is not on a local disk"))
                .safe("nothing was changed")
                .way("write to a local path"));
        };
        if path.file_name().is_none() {
            return Err(Error::invalid(format!("{root} cannot be a destination: it has no name"))
                .way("write to a directory below it"));
        }
        let mut side = path.clone().into_os_string();
        side.push(".lakemark");
        let folders = Arc::new(DurableFolders::new(&path));
        Ok(Self { kind: kind.to_owned(), root, path, side: side.into(), disk, folders, partition_by: Vec::new() })
    }

    /// The folder beside it, for staging, binding and (by default) the store.
    pub fn side_path(&self) -> &Path {
        &self.side
    }

    fn staged(&self) -> PathBuf {
        self.side.join("staged")
    }

    fn binding_path(&self) -> PathBuf {
        self.side.join("binding.json")
    }

    fn make_folder(&self, path: &Path) -> Result<()> {
        self.folders.ensure(&*self.disk, path).map_err(|e| io_error(e, path))
    }

    /// Makes the staging folder.
    pub fn prepare(&self) -> Result<()> {
        let staged = self.staged();
        self.make_folder(&staged)
    }

    /// Creates the staged file `name`, which must be new.
    pub fn create(&self, name: &str) -> Result<StagedFile> {
        StagedFile::create(Arc::clone(&self.disk), self.staged().join(name))
    }

    /// Creates the file `name`, which must be new, where it stays: in `folder` below the root.
    pub(super) fn create_in_place(&self, name: &str, folder: &str) -> Result<StagedFile> {
        let folder = self.path.join(folder);
        self.make_folder(&folder)?;
        StagedFile::create(Arc::clone(&self.disk), folder.join(name))
    }

    /// Makes the names in `folder` below the root durable.
    pub(super) fn sync_folder(&self, folder: &str) -> Result<()> {
        let folder = self.path.join(folder);
        self.disk.sync_dir(&folder).map_err(|e| io_error(e, &folder))
    }

    /// What ended the writing of a file that stays where it is created.
    pub(super) fn failed_in_place(&self, error: io::Error) -> Error {
        io_error(error, &self.path)
    }

    /// Removes `files` where they stay.
    pub(super) fn remove_in_place(&self, files: &[OutputFile]) {
        for file in files {
            let _ = self.disk.remove_file(&self.path.join(file.path()));
        }
    }

    /// Makes the names of all finished staged files durable.
    pub fn sync_staged(&self) -> Result<()> {
        let staged = self.staged();
        self.disk.sync_dir(&staged).map_err(|e| io_error(e, &staged))
    }

    /// Removes finished staged files of an attempt that lost its seal to another one: proven, never on an unknown answer.
    pub fn remove_staged(&self, files: &[OutputFile]) {
        for file in files {
            let _ = self.disk.remove_file(&self.staged().join(&file.name));
        }
    }

    fn read_binding(&self) -> Result<Option<BindingFile>> {
        let path = self.binding_path();
        match std::fs::read(&path) {
            Ok(bytes) => decode("binding", &path.display().to_string(), &bytes).map(Some),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(Error::new(ErrorKind::Unavailable, "the binding of the destination cannot be read")
                .at(path.display())
                .safe("nothing was read or written")
                .way("check its permissions, then run again")
                .caused_by(error)),
        }
    }

    fn check_now(&self, expected: Option<&Expected>) -> Result<()> {
        let bound = self.read_binding()?;
        self.check_one_file_system()?;
        self.check_alone()?;
        let binding = self.binding_path().display().to_string();
        let bound = bound.map(|bound| bound.store);
        let paths = files_below(&self.path)?;
        Seen { root: &self.root, binding, bound, paths }.check(expected, |path| size_of(&self.path.join(path)))
    }

    /// Nothing but committed output is ever under a destination: another one, with its side folder, cannot be.
    fn check_alone(&self) -> Result<()> {
        // Through links, as the file system sees it.
        let real = self.root.resolved().local_path().unwrap_or_else(|| self.path.clone());
        for above in real.ancestors().skip(1) {
            let mut beside = above.as_os_str().to_owned();
            beside.push(".lakemark/binding.json");
            let inside = above.extension().is_some_and(|e| e == "lakemark") && above.join("binding.json").exists();
            if inside || (above.file_name().is_some() && Path::new(&beside).exists()) {
                return Err(Error::refused(format!(
                    "the destination lies inside {}, which is another store's destination or the folder beside it",
                    above.display()
                ))
                .at(&self.root)
                .safe("nothing was read or written")
                .way("write to a directory outside it"));
            }
        }
        Ok(())
    }

    /// Files are renamed from the folder beside the destination into it, which works within one file system only.
    fn check_one_file_system(&self) -> Result<()> {
        match (device(&self.path)?, device(&self.side)?) {
            (a, b) if a == b => Ok(()),
            _ => Err(Error::refused("the destination and the folder beside it are on different file systems")
                .at(format!("{} and {}", self.path.display(), self.side.display()))
                .safe("nothing was read or written")
                .way("write to a directory inside the file system of the destination, not to its mount point")
                .way("if the destination is a symbolic link, give the path that it leads to")),
        }
    }

    fn bind_now(&self, store: StoreId) -> Result<()> {
        self.prepare()?;
        let taken = || {
            Error::refused("another store took this destination at the same time")
                .at(&self.root)
                .safe("nothing was written to it")
                .way("write to another destination")
        };
        match self.read_binding()? {
            Some(bound) if bound.store == store => return Ok(()),
            Some(_) => return Err(taken()),
            None => {}
        }
        let bytes = encode("binding", &BindingFile { store, sink: self.root.clone() })?;
        let (path, side) = (self.binding_path(), &self.side);
        let temporary = side.join(format!("binding-{}", AttemptNonce::random()));
        let written = write_durably(&*self.disk, &temporary, &bytes)
            .and_then(|()| self.disk.rename_no_replace(&temporary, &path))
            .and_then(|()| self.disk.sync_dir(side));
        match written {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let _ = self.disk.remove_file(&temporary);
                match self.read_binding()? {
                    Some(bound) if bound.store == store => Ok(()),
                    _ => Err(taken()),
                }
            }
            Err(error) => Err(io_error(error, &path)),
        }
    }

    fn bind_again_now(&self, store: StoreId) -> Result<()> {
        match self.read_binding() {
            Ok(Some(_)) => return Ok(()),
            Ok(None) => {}
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                self.move_aside(&self.binding_path(), "binding.json")?;
            }
            Err(error) => return Err(error),
        }
        self.bind_now(store)
    }

    fn fitness_now(&self, file: &OutputFile) -> Result<Fitness> {
        for path in [self.staged().join(&file.name), self.path.join(file.path())] {
            match size_of(&path)? {
                Some(size) if size == file.size => return Ok(Fitness::Fit),
                Some(_) => return Ok(Fitness::Unfit),
                None => {}
            }
        }
        Ok(Fitness::Missing)
    }

    /// Moves a staged file out of the way of a stalled predecessor, before anything is recorded. Whether it was there.
    fn set_aside(&self, file: &OutputFile) -> Result<bool> {
        self.move_aside(&self.staged().join(&file.name), &file.name)
    }

    fn move_aside(&self, from: &Path, name: &str) -> Result<bool> {
        let unfit = self.side.join("unfit");
        self.make_folder(&unfit)?;
        let aside = unfit.join(format!("{name}-{}", AttemptNonce::random()));
        match self.disk.rename_no_replace(from, &aside) {
            Ok(()) => Ok(true),
            Err(error) if is_absent(&error) => Ok(false),
            Err(error) => Err(io_error(error, &aside)),
        }
    }

    fn take_out_now(&self, files: &[OutputFile]) -> Result<()> {
        let mut folders = BTreeSet::new();
        for file in files {
            self.move_aside(&self.path.join(file.path()), &file.name)?;
            folders.insert(self.path.join(&file.folder));
        }
        // Durable before it is recorded that they are gone.
        folders.insert(self.side.join("unfit"));
        for folder in folders.iter().filter(|folder| folder.exists()) {
            self.disk.sync_dir(folder).map_err(|e| io_error(e, folder))?;
        }
        Ok(())
    }

    /// Makes one file visible: rename first, look at the target second. Whether it is there now.
    fn publish_one(&self, file: &OutputFile) -> Result<bool> {
        let (from, to) = (self.staged().join(&file.name), self.path.join(file.path()));
        if size_of(&from)?.is_some_and(|size| size != file.size) {
            if self.set_aside(file)? {
                return Ok(false);
            }
            // A stalled predecessor was faster: what it renamed is at the target.
            return self.is_visible(file, &to);
        }
        match self.disk.rename_no_replace(&from, &to) {
            Ok(()) => Ok(true),
            Err(error) if is_absent(&error) || error.kind() == io::ErrorKind::AlreadyExists => {
                self.is_visible(file, &to)
            }
            Err(error) => Err(io_error(error, &to)),
        }
    }

    /// Whether a file that is not staged, or not any more, is at its target.
    fn is_visible(&self, file: &OutputFile, to: &Path) -> Result<bool> {
        match size_of(to)? {
            Some(size) if size == file.size => Ok(true),
            Some(size) => Err(Error::new(
                ErrorKind::CannotDecide,
                format!("an output file has {size} bytes in the destination, {} were sealed", file.size),
            )
            .at(to.display())
            .safe("nothing was overwritten")
            .way("move the file away: the commit then withdraws its work and does it again")),
            None => Ok(false),
        }
    }

    fn publish_now(&self, files: &[OutputFile]) -> Result<Vec<String>> {
        let mut folders: BTreeSet<&str> = files.iter().map(|file| file.folder.as_str()).collect();
        let mut impossible = BTreeSet::new();
        for folder in &folders {
            match self.folders.ensure(&*self.disk, &self.path.join(folder)) {
                Ok(()) => {}
                // No later try will make it: its files can never be visible, and must not block the others.
                Err(error) if error.kind() == io::ErrorKind::InvalidFilename => {
                    tracing::warn!(folder, %error, "no such folder can be made: what belongs there is undone");
                    impossible.insert(*folder);
                }
                Err(error) => return Err(io_error(error, &self.path.join(folder))),
            }
        }
        folders.retain(|folder| !impossible.contains(folder));
        let mut missing = Vec::new();
        for file in files {
            reach("rename.before");
            if impossible.contains(file.folder.as_str()) {
                self.set_aside(file)?;
                missing.push(file.name.clone());
            } else if !self.publish_one(file)? {
                missing.push(file.name.clone());
            }
            reach("rename.after");
        }
        for folder in &folders {
            let path = self.path.join(folder);
            self.disk.sync_dir(&path).map_err(|e| io_error(e, &path))?;
        }
        if !files.is_empty() {
            self.sync_staged()?;
        }
        reach("rename.synced");
        Ok(missing)
    }

    fn leftovers_now(&self) -> Result<Vec<Leftover>> {
        let mut found = Vec::new();
        // Its own folders only: the store lies beside them.
        for folder in ["", "staged", "unfit"] {
            let at = self.side.join(folder);
            let entries = match std::fs::read_dir(&at) {
                Ok(entries) => entries,
                Err(error) if is_absent(&error) => continue,
                Err(error) => return Err(io_error(error, &at)),
            };
            for entry in entries {
                let entry = entry.map_err(|e| io_error(e, &at))?;
                let meta = match entry.metadata() {
                    Ok(meta) if meta.is_file() => meta,
                    Ok(_) => continue,
                    Err(error) if is_absent(&error) => continue,
                    Err(error) => return Err(io_error(error, &entry.path())),
                };
                let name = entry.file_name().to_string_lossy().into_owned();
                let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
                let modified = meta.modified().ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
                let modified = modified.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX));
                found.push(Leftover { path, size: meta.len(), modified });
            }
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }

    fn remove_now(&self, leftovers: &[Leftover]) -> Result<()> {
        for leftover in leftovers {
            let path = self.side.join(&leftover.path);
            match self.disk.remove_file(&path) {
                Err(error) if !is_absent(&error) => return Err(io_error(error, &path)),
                _ => {}
            }
        }
        Ok(())
    }

    async fn blocking<T: Send + 'static>(&self, work: impl FnOnce(Self) -> Result<T> + Send + 'static) -> Result<T> {
        let sink = self.clone();
        tokio::task::spawn_blocking(move || work(sink))
            .await
            .map_err(|e| Error::new(ErrorKind::Indeterminate, "work on the destination was interrupted").caused_by(e))?
    }
}

#[async_trait]
impl Sink for DirectorySink {
    fn binding(&self) -> Binding {
        let (kind, root) = (self.kind.clone(), self.root.clone());
        Binding { kind, root, partition_by: self.partition_by.clone() }
    }

    async fn check(&self, expected: Option<&Expected>) -> Result<()> {
        let expected = expected.cloned();
        self.blocking(move |sink| sink.check_now(expected.as_ref())).await
    }

    async fn bind(&self, store: StoreId) -> Result<()> {
        reach("open.before_binding");
        self.blocking(move |sink| sink.bind_now(store)).await?;
        reach("open.after_binding");
        Ok(())
    }

    async fn bound_to(&self, _store: StoreId) -> Result<Option<StoreId>> {
        self.blocking(|sink| Ok(sink.read_binding()?.map(|bound| bound.store))).await
    }

    async fn visible_size(&self, file: &OutputFile) -> Result<Option<u64>> {
        let path = file.path();
        self.blocking(move |sink| size_of(&sink.path.join(path))).await
    }

    async fn bind_again(&self, store: StoreId) -> Result<()> {
        self.blocking(move |sink| sink.bind_again_now(store)).await
    }

    async fn fitness(&self, file: &OutputFile) -> Result<Fitness> {
        let file = file.clone();
        self.blocking(move |sink| sink.fitness_now(&file)).await
    }

    async fn take_out(&self, files: &[OutputFile]) -> Result<()> {
        let files = files.to_vec();
        self.blocking(move |sink| sink.take_out_now(&files)).await
    }

    async fn leftovers(&self) -> Result<Vec<Leftover>> {
        self.blocking(|sink| sink.leftovers_now()).await
    }

    async fn remove(&self, leftovers: &[Leftover]) -> Result<()> {
        let leftovers = leftovers.to_vec();
        self.blocking(move |sink| sink.remove_now(&leftovers)).await
    }

    async fn commit(&self, intent: &Intent<'_>) -> Result<Settled> {
        intent.holder.check().await?;
        let (files, leaving) = (intent.files.to_vec(), intent.leaving.to_vec());
        let work = move |sink: Self| {
            let missing = sink.publish_now(&files)?;
            sink.take_out_now(&leaving)?;
            Ok(missing)
        };
        let missing = self.blocking(work).await?;
        Ok(Settled::Done { missing, table: None })
    }
}

#[async_trait]
impl OutputSink for DirectorySink {
    fn root(&self) -> &Root {
        &self.root
    }

    fn partitioned(&self, columns: &[String]) -> Arc<dyn OutputSink> {
        Arc::new(Self { partition_by: columns.to_vec(), ..self.clone() })
    }

    async fn of_rows(self: Arc<Self>, _schema: &Schema) -> Result<Arc<dyn OutputSink>> {
        Ok(self)
    }

    fn check_folder(&self, folder: &str) -> Result<()> {
        let whole = self.path.join(folder).as_os_str().len() + LONGEST_NAME;
        let long = folder.split('/').find(|part| part.len() > LONGEST_NAME);
        if long.is_none() && whole <= LONGEST_PATH {
            return Ok(());
        }
        let (column, value) = long.unwrap_or(folder).split_once('=').unwrap_or(("", folder));
        let start: String = value.chars().take(40).collect();
        Err(Error::invalid(format!(
            "the value `{start}...` of `{column}` makes a folder name too long for the destination"
        ))
        .at(&self.root)
        .safe("nothing of this task was sealed; what was sealed before is kept")
        .way("shorten the value in the query (substr, or a digest of it)")
        .way(format!("take `{column}` out of `partition_by`, with another destination and `store`")))
    }

    async fn stage(&self, name: &str, _folder: &str) -> Result<Box<dyn StagedOutput>> {
        Ok(Box::new(self.create(name)?))
    }

    async fn sync(&self) -> Result<()> {
        self.blocking(|sink| sink.sync_staged()).await
    }

    async fn discard(&self, files: &[OutputFile]) {
        self.remove_staged(files);
    }

    fn failed(&self, error: io::Error) -> Error {
        io_error(error, &self.side)
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// The file system of `path`, or of the nearest folder above it that exists.
fn device(path: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    for path in path.ancestors() {
        match std::fs::metadata(path) {
            Ok(meta) => return Ok(meta.dev()),
            Err(error) if is_absent(&error) => {}
            Err(error) => return Err(io_error(error, path)),
        }
    }
    Ok(0)
}

fn size_of(path: &Path) -> Result<Option<u64>> {
    match std::fs::symlink_metadata(path) {
        Ok(meta) => Ok(Some(meta.len())),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(io_error(error, path)),
    }
}

/// The paths of the files below a directory, whatever the depth.
fn files_below(root: &Path) -> Result<Vec<String>> {
    let mut paths = Vec::new();
    let mut folders = vec![(root.to_owned(), String::new())];
    // Where links lead, each once: a link into itself would have no end.
    let mut linked: BTreeSet<PathBuf> = std::fs::canonicalize(root).into_iter().collect();
    while let Some((at, folder)) = folders.pop() {
        let entries = match std::fs::read_dir(&at) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                return Err(Error::refused("the destination is a file, not a directory")
                    .at(at.display())
                    .safe("nothing was changed")
                    .way("write to a directory"));
            }
            Err(error) => return Err(io_error(error, &at)),
        };
        for entry in entries {
            let entry = entry.map_err(|e| io_error(e, &at))?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let path = if folder.is_empty() { name.into_owned() } else { format!("{folder}/{name}") };
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push((entry.path(), path)),
                // A folder that was moved away and linked: readers follow the link, and so do names of files below it.
                Ok(kind) if kind.is_symlink() && entry.path().is_dir() => {
                    if std::fs::canonicalize(entry.path()).is_ok_and(|real| linked.insert(real)) {
                        folders.push((entry.path(), path));
                    }
                }
                _ => paths.push(path),
            }
        }
    }
    Ok(paths)
}
