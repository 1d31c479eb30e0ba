//! A local disk as the kernel writes checkpoints to it: durable before they have their names.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt;
use futures::stream::BoxStream;
use lakemark::AttemptNonce;
use lakemark::disk::Disk;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result, UploadPart,
};

/// Unfinished files wait here, where the core's own store of a disk keeps them.
const UNFINISHED: &str = "unfinished";

/// `object_store`'s local disk, whose writes are synced before they have their names.
///
/// A checkpoint that a loss of power left empty under its name would make the whole table unreadable: a reader takes it for
/// the state of the table.
#[derive(Debug)]
pub(crate) struct SyncedDisk {
    inner: PrefixStore<LocalFileSystem>,
    root: PathBuf,
    disk: Arc<dyn Disk>,
}

impl SyncedDisk {
    /// `inner`, which is relative to the folder `root`.
    pub(crate) fn new(inner: PrefixStore<LocalFileSystem>, root: PathBuf, disk: Arc<dyn Disk>) -> Self {
        Self { inner, root, disk }
    }

    fn begin(&self, location: &Path) -> Result<Unfinished> {
        let folder = self.root.join(UNFINISHED);
        std::fs::create_dir_all(&folder).map_err(failed)?;
        let temporary = folder.join(AttemptNonce::random().to_string());
        let file = Some(self.disk.create_new(&temporary).map_err(failed)?);
        Ok(Unfinished { file, temporary, target: self.root.join(location.as_ref()), disk: Arc::clone(&self.disk) })
    }
}

impl fmt::Display for SyncedDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.root.display())
    }
}

fn failed(error: io::Error) -> Error {
    Error::Generic { store: "disk", source: error.into() }
}

/// A file without its name. Dropped so, it is removed.
#[derive(Debug)]
struct Unfinished {
    file: Option<File>,
    temporary: PathBuf,
    target: PathBuf,
    disk: Arc<dyn Disk>,
}

impl Unfinished {
    fn write(&mut self, payload: &PutPayload) -> io::Result<()> {
        let file = self.file.as_mut().ok_or_else(|| io::Error::other("the file is finished"))?;
        payload.iter().try_for_each(|bytes| file.write_all(bytes))
    }

    fn finish(&mut self) -> io::Result<PutResult> {
        let file = self.file.take().ok_or_else(|| io::Error::other("the file is finished"))?;
        self.disk.sync_file(&file, &self.temporary)?;
        std::fs::rename(&self.temporary, &self.target)?;
        if let Some(folder) = self.target.parent() {
            self.disk.sync_dir(folder)?;
        }
        Ok(PutResult { e_tag: None, version: None })
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // After a rename there is nothing under this name.
        let _ = self.disk.remove_file(&self.temporary);
    }
}

#[async_trait]
impl MultipartUpload for Unfinished {
    fn put_part(&mut self, payload: PutPayload) -> UploadPart {
        // Parts come in their order, one call after the other: they are written at once.
        let written = self.write(&payload).map_err(failed);
        async move { written }.boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.finish().map_err(failed)
    }

    async fn abort(&mut self) -> Result<()> {
        self.file = None;
        Ok(())
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl ObjectStore for SyncedDisk {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        if opts.mode != PutMode::Overwrite {
            // Entries of the log are created through the core's own store.
            return self.inner.put_opts(location, payload, opts).await;
        }
        let mut file = self.begin(location)?;
        let written = move || file.write(&payload).and_then(|()| file.finish()).map_err(failed);
        tokio::task::spawn_blocking(written).await.map_err(|source| Error::JoinError { source })?
    }

    async fn put_multipart_opts(&self, location: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Ok(Box::new(self.begin(location)?))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.inner.rename_opts(from, to, options).await
    }
}

#[cfg(test)]
mod tests {
    use lakemark::disk::RealDisk;
    use object_store::ObjectStoreExt;

    use super::*;

    #[tokio::test]
    async fn a_file_has_its_name_when_it_is_whole_and_leaves_nothing_otherwise() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_owned();
        let inner = PrefixStore::new(LocalFileSystem::new(), Path::from_absolute_path(&root).unwrap());
        let disk = SyncedDisk::new(inner, root.clone(), Arc::new(RealDisk));
        let (one, two) = (Path::from("one"), Path::from("two"));
        for text in ["first", "second"] {
            disk.put(&one, text.into()).await.unwrap();
            assert_eq!(disk.get(&one).await.unwrap().bytes().await.unwrap(), text);
        }
        let mut upload = disk.put_multipart(&two).await.unwrap();
        for part in ["a", "bc", "d"] {
            upload.put_part(part.into()).await.unwrap();
        }
        assert!(!root.join("two").exists(), "not before it is whole");
        upload.complete().await.unwrap();
        assert_eq!(disk.get(&two).await.unwrap().bytes().await.unwrap(), "abcd");
        let mut dropped = disk.put_multipart(&Path::from("three")).await.unwrap();
        dropped.put_part("x".into()).await.unwrap();
        drop(dropped);
        assert!(!root.join("three").exists());
        assert_eq!(std::fs::read_dir(root.join(UNFINISHED)).unwrap().count(), 0);
    }
}
