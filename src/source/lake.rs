//! An opened source.

use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use futures::TryStreamExt;
use object_store::{ObjectStore, ObjectStoreExt};
use tokio::task::{JoinError, spawn_blocking};

use super::cache::FooterCache;
use super::counters::SourceCounters;
use super::disk;
use super::footer::Footer;
use super::listing::{Found, Listing};
use super::objects::{self, Objects};
use super::pinned::PinnedReader;
use super::select::{Select, split_file, split_pattern};
use crate::error::{Error, ErrorKind, Result};
use crate::identity::{FileVersion, Root};
use crate::storage::{Bucket, StorageOptions};

/// How many footers are remembered, and in about how many bytes.
const FOOTERS: usize = 4096;
const FOOTER_BYTES: usize = 256 << 20;

/// An opened source: a root, what is selected below it, and the way to read it. Clones share counters and footers.
#[derive(Debug, Clone)]
pub struct Lake {
    inner: Arc<Inner>,
    whole_files: bool,
    of_table: bool,
}

#[derive(Debug)]
struct Inner {
    root: Root,
    select: Select,
    access: Access,
    counters: Arc<SourceCounters>,
    footers: FooterCache,
    /// Files that were found to be another version while they were read.
    unstable: Mutex<HashSet<Arc<str>>>,
}

/// The way to the bytes.
#[derive(Debug)]
pub(super) enum Access {
    /// This directory of a disk, read by ourselves: object_store hides names like `batch#12` (R117), gives up at a loop of
    /// links (R40) and makes its etags out of inodes (R10).
    Disk(PathBuf),
    Objects(Arc<dyn ObjectStore>),
}

impl Lake {
    /// Opens a directory, one file, or a pattern like `/lake/d=*/x?.parquet`, by path or `file` URL.
    ///
    /// A name that exists as it is written is never taken for a pattern (R35). Of a pattern, the longest part that is
    /// literal, or exists by its literal name, is the root.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) if nothing is there, [`Unavailable`](ErrorKind::Unavailable) if it cannot be read,
    /// [`Unsupported`](ErrorKind::Unsupported) for a root that is not on a disk: [`Lake::on`] takes any object store.
    pub fn open(url: &str) -> Result<Self> {
        let mut root = Root::parse(url)?;
        let Some(at) = root.local_path() else {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("sources on `{}` cannot be opened by URL", root.scheme()),
            )
            .at(url)
            .way("open it with its options: Lake::connect")
            .way("open the object store yourself and call Lake::on"));
        };
        let select = match fs::metadata(&at) {
            Ok(metadata) if metadata.is_dir() => Select::All,
            Ok(_) => {
                let (directory, select) = split_file(&root);
                root = directory;
                select
            }
            Err(e) if disk::is_gone(&e) => {
                match split_pattern(&root, |root| root.local_path().is_some_and(|at| at.exists()))? {
                    Some((directory, pattern)) => {
                        root = directory;
                        Select::Glob(pattern)
                    }
                    None => return Err(missing(&root.place(""))),
                }
            }
            Err(e) => return Err(disk::unreadable(&at, e)),
        };
        let directory = root.local_path().unwrap_or_default();
        if !matches!(select, Select::File(_)) {
            fs::read_dir(&directory).map_err(|e| {
                if disk::is_gone(&e) { missing(&root.place("")) } else { disk::unreadable(&directory, e) }
            })?;
        }
        Ok(Self::with(root, select, Access::Disk(directory)))
    }

    /// Opens a directory, one file, or a pattern, by path or URL, on a disk or on an object store that is reached with
    /// `options`.
    ///
    /// On an object store there are no directories: a prefix without objects is taken for a mistake, never for an empty
    /// source. A key that exists as it is written is never taken for a pattern (R35).
    ///
    /// # Errors
    /// As [`open`](Self::open) and [`Bucket::connect`].
    pub async fn connect(url: &str, options: &StorageOptions) -> Result<Self> {
        let root = Root::parse(url)?;
        if root.is_local() {
            return Self::open(url);
        }
        let lake = Self::on(root.clone(), Select::All, Bucket::connect(&root, options)?.objects);
        if lake.has_objects().await? {
            return Ok(lake);
        }
        let Access::Objects(store) = lake.access() else { return Ok(lake) };
        let (directory, one) = split_file(&root);
        if let Select::File(name) = &one
            && !name.is_empty()
        {
            let file = Self::on(directory, one.clone(), Arc::clone(store));
            if file.stat(name).await?.is_some() {
                return Ok(file);
            }
        }
        match split_pattern(&root, |_| false)? {
            Some((directory, pattern)) => Ok(Self::on(directory, Select::Glob(pattern), Arc::clone(store))),
            None => Err(missing(&root.place(""))),
        }
    }

    /// Whether there is any object below the root of an object store.
    async fn has_objects(&self) -> Result<bool> {
        let Access::Objects(store) = self.access() else { return Ok(false) };
        self.counters().listed();
        let prefix = objects::key(self.root(), "")?;
        let first = store.list(prefix.as_ref()).try_next().await;
        first.map(|first| first.is_some()).map_err(|e| objects::failed(self.root(), "", e))
    }

    /// A source on any object store. Keys are the root's prefix, `/` and the path: `store` is the whole bucket.
    ///
    /// For a directory of a disk use [`open`](Self::open): object_store's own view of a disk hides some names, and its
    /// reads cannot be pinned.
    pub fn on(root: Root, select: Select, store: Arc<dyn ObjectStore>) -> Self {
        Self::with(root, select, Access::Objects(store))
    }

    fn with(root: Root, select: Select, access: Access) -> Self {
        let footers = FooterCache::new(FOOTERS, FOOTER_BYTES);
        let inner =
            Arc::new(Inner { root, select, access, counters: Arc::default(), footers, unstable: Mutex::default() });
        Self { inner, whole_files: false, of_table: false }
    }

    /// The same source, of files that are not Parquet: each is one atom, whatever its size.
    #[must_use]
    pub fn with_whole_files(self) -> Self {
        Self { whole_files: true, ..self }
    }

    /// Whether its files are not Parquet: they have no footer and are never split.
    pub fn has_whole_files(&self) -> bool {
        self.whole_files
    }

    /// The files of a table of a table format: they are immutable by its specification, and known by its log. Of what is
    /// read only the size is compared with the plan. Nothing is asked of it yet.
    ///
    /// # Errors
    /// As [`Bucket::connect`].
    pub fn of_table(root: Root, options: &StorageOptions) -> Result<Self> {
        let lake = match root.local_path() {
            Some(directory) => Self::with(root, Select::All, Access::Disk(directory)),
            None => {
                let bucket = Bucket::connect(&root, options)?;
                Self::on(root, Select::All, bucket.objects)
            }
        };
        Ok(Self { of_table: true, ..lake })
    }

    /// Whether its files are those of a table.
    pub fn is_of_table(&self) -> bool {
        self.of_table
    }

    /// The root that paths are relative to.
    pub fn root(&self) -> &Root {
        &self.inner.root
    }

    /// Which files below the root belong to it.
    pub fn select(&self) -> &Select {
        &self.inner.select
    }

    /// What it was asked for so far.
    pub fn counters(&self) -> &Arc<SourceCounters> {
        &self.inner.counters
    }

    /// Where the file at `path`, relative to the root, is; for people.
    pub fn place(&self, path: &str) -> String {
        self.root().place(path)
    }

    /// What is there now. Never remembered, and complete or an error.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) if the directory or the one selected file of a disk is not there,
    /// [`Unavailable`](ErrorKind::Unavailable) if any part of it cannot be listed.
    pub async fn list(&self) -> Result<Listing> {
        let taken_at = crate::time::now_ns();
        let found = match (&self.inner.access, self.select()) {
            (_, Select::File(name)) => self.list_one(name).await?,
            (Access::Disk(_), _) => {
                let lake = self.clone();
                spawn_blocking(move || lake.list_disk()).await.map_err(|e| self.stopped("", e))??
            }
            (Access::Objects(store), select) => {
                Objects { root: self.root(), select, store: store.as_ref(), counters: self.counters() }.list().await?
            }
        };
        Ok(found.finish(taken_at))
    }

    /// The version of one path as it is now; `None` if no file is there.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) if that cannot be told.
    pub async fn stat(&self, path: &str) -> Result<Option<FileVersion>> {
        self.counters().headed();
        self.version(path).await
    }

    /// A reader of exactly `file`. Nothing is opened before the first read.
    pub fn reader(&self, file: &FileVersion) -> PinnedReader {
        PinnedReader::new(self.clone(), file.clone())
    }

    /// As [`reader`](Self::reader), with its footer at hand: it is not read again, whatever else was remembered since.
    pub fn reader_with(&self, file: &FileVersion, footer: Arc<Footer>) -> PinnedReader {
        PinnedReader::new(self.clone(), file.clone()).with_footer(footer)
    }

    /// Whether the file at `path` changed while it was read since this was last asked: it must be planned again.
    pub fn take_unstable(&self, path: &str) -> bool {
        self.inner.unstable.lock().unwrap_or_else(PoisonError::into_inner).remove(path)
    }

    pub(super) fn note_unstable(&self, path: &Arc<str>) {
        self.inner.unstable.lock().unwrap_or_else(PoisonError::into_inner).insert(Arc::clone(path));
    }

    pub(super) fn access(&self) -> &Access {
        &self.inner.access
    }

    pub(super) fn footers(&self) -> &FooterCache {
        &self.inner.footers
    }

    /// Where `path` is on the disk. Never outside the root, whatever a damaged record says.
    pub(super) fn local(&self, path: &str) -> Result<PathBuf> {
        match &self.inner.access {
            Access::Disk(directory)
                if !path.contains('\0') && path.split('/').all(|s| !matches!(s, "" | "." | "..")) =>
            {
                Ok(directory.join(path))
            }
            _ => Err(Error::invalid(format!("`{}` is not a path below the root", path.escape_debug())).at(self.root())),
        }
    }

    /// A thread that was to answer has stopped.
    pub(super) fn stopped(&self, path: &str, error: JoinError) -> Error {
        Error::new(ErrorKind::Unavailable, "reading was stopped").at(self.place(path)).caused_by(error).way("run again")
    }

    fn list_disk(&self) -> Result<Found> {
        let directory = self.root().local_path().unwrap_or_default();
        match fs::metadata(&directory) {
            Err(e) if disk::is_gone(&e) => Err(missing(&self.place(""))),
            Err(e) => Err(disk::unreadable(&directory, e)),
            Ok(metadata) if !metadata.is_dir() => Err(missing(&self.place(""))),
            Ok(_) => disk::list(&directory, self.select(), self.counters()),
        }
    }

    async fn list_one(&self, name: &str) -> Result<Found> {
        self.counters().listed();
        match self.version(name).await? {
            Some(file) => Ok(Found { files: vec![file], ..Found::default() }),
            None => Err(missing(&self.place(name))),
        }
    }

    async fn version(&self, path: &str) -> Result<Option<FileVersion>> {
        match &self.inner.access {
            Access::Disk(_) => {
                let (at, name) = (self.local(path)?, path.to_owned());
                let asked = move || match fs::metadata(&at) {
                    Err(e) if disk::is_gone(&e) => Ok(None),
                    Err(e) => Err(disk::unreadable(&at, e)),
                    Ok(metadata) => Ok(metadata.is_file().then(|| disk::version(name, &metadata))),
                };
                spawn_blocking(asked).await.map_err(|e| self.stopped(path, e))?
            }
            Access::Objects(store) => match store.head(&objects::key(self.root(), path)?.unwrap_or_default()).await {
                Ok(object) => Ok(Some(objects::object_version(self.root(), path, &object))),
                Err(object_store::Error::NotFound { .. }) => Ok(None),
                Err(e) => Err(objects::failed(self.root(), path, e)),
            },
        }
    }
}

impl fmt::Display for Lake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.select() {
            Select::All => f.write_str(&self.place("")),
            Select::File(path) => f.write_str(&self.place(path)),
            Select::Glob(pattern) => f.write_str(&self.place(&pattern.to_string())),
        }
    }
}

fn missing(place: &str) -> Error {
    Error::invalid("there is no such file or directory")
        .at(place)
        .safe("a source that is not there is never taken for an empty one")
        .way("check the path; a relative one is below the current directory")
        .way("create the directory if the source is empty so far")
}
