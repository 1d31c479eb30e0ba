//! The part of an object store that the protocol needs, on a disk: create-if-absent, get, list, delete.

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    Attributes, CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use super::folders::DurableFolders;
use super::fs::{Disk, write_durably};
use crate::identity::AttemptNonce;
use crate::store::ObjectName;

/// Unfinished objects wait here; a crash can leave some. Listed only when this folder itself is asked for.
const UNFINISHED: &str = ObjectName::UNFINISHED;

/// An [`ObjectStore`] of create-only objects under one folder, durable before success: write, fsync, link, fsync of the folder.
///
/// `object_store`'s own local implementation creates atomically but does not sync. Overwriting, copying and multipart
/// uploads are not implemented: the protocol has no use for them.
#[derive(Debug)]
pub struct DiskStore {
    root: PathBuf,
    disk: Arc<dyn Disk>,
    folders: Arc<DurableFolders>,
}

impl DiskStore {
    /// A store of the objects under `root`, which need not exist: it is made by the first create.
    pub fn new(root: PathBuf, disk: Arc<dyn Disk>) -> Self {
        let folders = Arc::new(DurableFolders::new(&root));
        Self { root, disk, folders }
    }

    fn full(&self, location: &Path) -> PathBuf {
        self.root.join(location.as_ref())
    }
}

impl fmt::Display for DiskStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.root.display())
    }
}

fn map(path: &std::path::Path, source: io::Error) -> Error {
    let path = path.display().to_string();
    match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Error::NotFound { path, source: source.into() },
        io::ErrorKind::AlreadyExists => Error::AlreadyExists { path, source: source.into() },
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            Error::PermissionDenied { path, source: source.into() }
        }
        _ => Error::Generic { store: "disk", source: format!("{path}: {source}").into() },
    }
}

/// As [`map`], for a folder: a file in its place is neither an object that exists nor one that is absent.
fn map_folder(path: &std::path::Path, source: io::Error) -> Error {
    match source.kind() {
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => Error::Generic {
            store: "disk",
            source: format!("{} is not a directory, or lies below a file", path.display()).into(),
        },
        _ => map(path, source),
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|source| Error::JoinError { source })?
}

fn not_implemented<T>(operation: &str) -> Result<T> {
    Err(Error::NotImplemented { operation: operation.into(), implementer: "lakemark's disk store".into() })
}

/// Everything under `dir` but what is unfinished.
fn walk(root: &std::path::Path, dir: PathBuf, found: &mut Vec<ObjectMeta>) -> Result<()> {
    let entries = match std::fs::read_dir(&dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(map_folder(&dir, error)),
    };
    for entry in entries {
        let entry = entry.map_err(|e| map(&dir, e))?;
        let path = entry.path();
        let meta = match entry.metadata() {
            Ok(meta) => meta,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(map(&path, error)),
        };
        if meta.is_dir() {
            if dir != root || entry.file_name() != UNFINISHED {
                walk(root, path, found)?;
            }
            continue;
        }
        let relative = path.strip_prefix(root).unwrap_or(&path).to_string_lossy();
        // A name that object stores cannot have is foreign; it is shown in an escaped form, and never opened.
        let location = Path::parse(&relative).unwrap_or_else(|_| Path::from(relative.as_ref()));
        found.push(object_meta(location, &meta));
    }
    Ok(())
}

fn object_meta(location: Path, meta: &std::fs::Metadata) -> ObjectMeta {
    let last_modified = meta.modified().map(Into::into).unwrap_or_default();
    let e_tag = Some(format!("{:x}-{:x}-{:x}", meta.ino(), meta.mtime_nsec(), meta.len()));
    ObjectMeta { location, last_modified, size: meta.len(), e_tag, version: None }
}

#[async_trait]
impl ObjectStore for DiskStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        if opts.mode != PutMode::Create {
            return not_implemented("overwriting an object");
        }
        let (disk, root, target) = (Arc::clone(&self.disk), self.root.clone(), self.full(location));
        let folders = Arc::clone(&self.folders);
        let bytes = Bytes::from(payload);
        blocking(move || {
            let folder = target.parent().unwrap_or(&root).to_owned();
            let waiting = root.join(UNFINISHED);
            folders.ensure(&*disk, &folder).map_err(|e| map_folder(&folder, e))?;
            folders.ensure(&*disk, &waiting).map_err(|e| map_folder(&waiting, e))?;
            let temporary = waiting.join(AttemptNonce::random().to_string());
            let linked = write_durably(&*disk, &temporary, &bytes)
                .map_err(|e| map(&temporary, e))
                .and_then(|()| disk.link(&temporary, &target).map_err(|e| link_error(&target, e)));
            // The unfinished name is of no use whatever the link said; failing to remove it loses nothing.
            let _ = disk.remove_file(&temporary);
            // Also when the name is taken: it may be our own, of a try whose sync failed, and "taken" will be relied on.
            if matches!(linked, Ok(()) | Err(Error::AlreadyExists { .. })) {
                disk.sync_dir(&folder).map_err(|e| map(&folder, e))?;
            }
            linked?;
            Ok(PutResult { e_tag: None, version: None })
        })
        .await
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        not_implemented("multipart upload")
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let (path, location) = (self.full(location), location.clone());
        blocking(move || {
            let meta = std::fs::metadata(&path).map_err(|e| map(&path, e))?;
            let meta = object_meta(location, &meta);
            options.check_preconditions(&meta)?;
            let all = if options.head { Vec::new() } else { std::fs::read(&path).map_err(|e| map(&path, e))? };
            let len = all.len() as u64;
            let range = match options.range {
                Some(range) if !options.head => {
                    range.as_range(len).map_err(|e| Error::Generic { store: "disk", source: Box::new(e) })?
                }
                _ => 0..len,
            };
            let bytes = Bytes::from(all).slice(range.start as usize..range.end as usize);
            let payload = GetResultPayload::Stream(stream::once(async move { Ok(bytes) }).boxed());
            Ok(GetResult { payload, meta, range, attributes: Attributes::default() })
        })
        .await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let (disk, root) = (Arc::clone(&self.disk), self.root.clone());
        locations
            .and_then(move |location| {
                let (disk, path) = (Arc::clone(&disk), root.join(location.as_ref()));
                blocking(move || disk.remove_file(&path).map_err(|e| map(&path, e)).map(|()| location))
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (root, start) = (self.root.clone(), prefix.map_or_else(|| self.root.clone(), |p| self.full(p)));
        let listing = blocking(move || {
            let mut found = Vec::new();
            walk(&root, start, &mut found)?;
            Ok(stream::iter(found.into_iter().map(Ok)))
        });
        stream::once(listing).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
        not_implemented("listing with a delimiter")
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        not_implemented("copying an object")
    }
}

/// A mount without hard links cannot create-if-absent durably; that must not look like an outage.
fn link_error(target: &std::path::Path, error: io::Error) -> Error {
    match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
        Some(rustix::io::Errno::PERM | rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
            Error::NotSupported {
                source: format!(
                    "no hard link can be made at {}: the file system has none, or its folder is immutable: {error}",
                    target.display()
                )
                .into(),
            }
        }
        _ => map(target, error),
    }
}

#[cfg(test)]
mod tests {
    use object_store::ObjectStoreExt;

    use super::*;
    use crate::disk::RealDisk;

    async fn put(store: &DiskStore, name: &str, text: &'static str) -> Result<PutResult> {
        store.put_opts(&Path::from(name), text.into(), PutMode::Create.into()).await
    }

    #[tokio::test]
    async fn one_of_sixteen_creates_wins_and_nothing_is_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(DiskStore::new(dir.path().join("a b%20#1"), Arc::new(RealDisk)));
        let tries = (0..16).map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { put(&store, "x/y", "one").await })
        });
        let results = futures::future::join_all(tries).await;
        assert_eq!(results.into_iter().filter(|r| r.as_ref().unwrap().is_ok()).count(), 1);
        assert!(matches!(put(&store, "x/y", "two").await, Err(Error::AlreadyExists { .. })));
        assert_eq!(store.get(&Path::from("x/y")).await.unwrap().bytes().await.unwrap(), "one");
        let names: Vec<_> = store.list(None).map_ok(|m| m.location.to_string()).try_collect().await.unwrap();
        assert_eq!(names, ["x/y"]);
        assert_eq!(std::fs::read_dir(dir.path().join("a b%20#1/unfinished")).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_folder_that_does_not_exist_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        let store = DiskStore::new(dir.path().join("none"), Arc::new(RealDisk));
        assert!(store.list(None).next().await.is_none());
        assert!(matches!(store.get(&Path::from("a")).await, Err(Error::NotFound { .. })));
        assert!(!dir.path().join("none").exists(), "reading creates nothing");
    }
}
