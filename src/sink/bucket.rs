//! A directory on an object store: files wait as uploads in parts, which the commit completes.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

use arrow_schema::Schema;
use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::multipart::PartId;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt, PutMode};
use tokio::task::JoinHandle;

use super::contents::Seen;
use super::directory::BindingFile;
use super::output::{Fault, OutputSink, StagedOutput};
use super::{Fitness, Intent, Leftover, Settled, Sink};
use crate::error::{Error, ErrorKind, Result};
use crate::identity::{AttemptNonce, Root, StoreId};
use crate::steps::reach;
use crate::storage::{Bucket, StorageOptions, exact_key};
use crate::store::envelope::{decode, encode};
use crate::store::{Binding, Expected, OutputFile, Upload};

/// Bytes of each part but the last. S3 takes no smaller ones than 5 MiB, and some of its kin want all alike.
const PART: usize = 8 << 20;
/// Parts of one file that are on their way at a time.
const IN_FLIGHT: usize = 4;
/// Uploads that are completed at a time.
const COMPLETED: usize = 16;
/// The longest key that every provider takes, in bytes.
const LONGEST_KEY: usize = 1_024;

/// A directory of output files below a prefix of an object store. Nothing but committed output is ever under its root.
#[derive(Debug, Clone)]
pub struct BucketSink {
    kind: String,
    root: Root,
    bucket: Bucket,
    partition_by: Vec<String>,
}

impl BucketSink {
    /// A sink of files of `kind` (as in the job: `parquet`) at `url`, reached with `options`.
    ///
    /// # Errors
    /// As [`Bucket::connect`]; [`ErrorKind::Invalid`] for a whole bucket, beside which nothing can be.
    pub fn connect(kind: &str, url: &str, options: &StorageOptions) -> Result<Self> {
        let root = Root::parse(url)?;
        let bucket = Bucket::connect(&root, options)?;
        Self::on(kind, root, bucket)
    }

    /// A sink below the prefix of `root` in `bucket`.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for a whole bucket, beside which nothing can be, or a prefix that cannot be a key.
    pub fn on(kind: &str, root: Root, bucket: Bucket) -> Result<Self> {
        if root.prefix().is_empty() {
            return Err(Error::invalid(format!("{root} cannot be a destination: it is a whole bucket"))
                .way("write below a prefix of it"));
        }
        let sink = Self { kind: kind.to_owned(), root, bucket, partition_by: Vec::new() };
        sink.key("x")?;
        Ok(sink)
    }

    /// The key of the raw `path` below the root. Never re-encoded.
    fn key(&self, path: &str) -> Result<Path> {
        self.exact_key(&format!("{}/{path}", self.root.prefix()))
    }

    fn exact_key(&self, text: &str) -> Result<Path> {
        exact_key(text, || Error::invalid(format!("`{text}` cannot be a key of an object store")).at(&self.root))
    }

    /// The key of `path` beside the destination; of the folder itself when it is empty.
    fn side_key(&self, path: &str) -> Result<Path> {
        let side = format!("{}.lakemark", self.root.prefix());
        self.exact_key(&if path.is_empty() { side } else { format!("{side}/{path}") })
    }

    fn binding_key(&self) -> Result<Path> {
        self.side_key("binding.json")
    }

    /// Moves the object at `from` (`path` for people) beside the destination; not there is success.
    async fn move_aside(&self, path: &str, from: &Path, name: &str) -> Result<()> {
        let to = self.side_key(&format!("unfit/{name}-{}", AttemptNonce::random()))?;
        match self.bucket.objects.copy(from, &to).await {
            Ok(()) => self.delete(from).await.map_err(|e| self.unanswered(path, e)),
            Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.unanswered(path, error)),
        }
    }

    /// Deletes exactly `key`; not there is success.
    async fn delete(&self, key: &Path) -> object_store::Result<()> {
        match self.bucket.objects.delete(key).await {
            Err(object_store::Error::NotFound { .. }) => Ok(()),
            other => other,
        }
    }

    fn unanswered(&self, path: &str, error: object_store::Error) -> Error {
        let denied =
            matches!(error, object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. });
        let (what, way) = if denied {
            ("no permission to write the output", "check the permissions of these credentials, then run again")
        } else {
            ("the destination did not answer", "run again: what was sealed is kept")
        };
        Error::new(ErrorKind::Unavailable, what)
            .at(self.root.place(path))
            .safe("nothing that was sealed or committed was touched")
            .way(way)
            .caused_by(error)
    }

    async fn read_binding(&self, key: &Path) -> Result<Option<StoreId>> {
        let found = match self.bucket.objects.get(key).await {
            Ok(found) => found.bytes().await,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => Err(error),
        };
        let bytes = found.map_err(|e| self.unanswered("", e))?;
        decode("binding", key.as_ref(), &bytes).map(|binding: BindingFile| Some(binding.store))
    }

    async fn size_of(&self, path: &str) -> Result<Option<u64>> {
        match self.bucket.objects.head(&self.key(path)?).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.unanswered(path, error)),
        }
    }

    /// Nothing but committed output is ever under a destination: another one cannot be.
    async fn check_alone(&self) -> Result<()> {
        let segments: Vec<&str> = self.root.prefix().split('/').collect();
        for end in 1..segments.len() {
            let above = segments[..end].join("/");
            let inside = above.ends_with(".lakemark").then(|| format!("{above}/binding.json"));
            for binding in [Some(format!("{above}.lakemark/binding.json")), inside].into_iter().flatten() {
                if self.read_binding(&self.exact_key(&binding)?).await?.is_some() {
                    return Err(Error::refused(format!(
                        "the destination lies inside `{above}`, which is another store's destination or beside one"
                    ))
                    .at(&self.root)
                    .safe("nothing was read or written")
                    .way("write to a prefix outside it"));
                }
            }
        }
        Ok(())
    }

    /// Removes `files` where they stay.
    pub(super) async fn remove_in_place(&self, files: &[OutputFile]) {
        for file in files {
            if let Ok(key) = self.key(&file.path()) {
                let _ = self.delete(&key).await;
            }
        }
    }

    /// Completes one upload: first that, then the look at the target. Whether the file is there now.
    pub(super) async fn complete(&self, file: &OutputFile) -> Result<bool> {
        let path = file.path();
        let Some(upload) = &file.upload else {
            return Err(Error::corrupt(self.root.place(&path), "a sealed file of an object store names no upload"));
        };
        let key = self.key(&path)?;
        reach("rename.before");
        let parts = upload.parts.iter().map(|part| PartId { content_id: part.clone() }).collect();
        let failed = match self.bucket.uploads.complete_multipart(&key, &upload.id, parts).await {
            Ok(_) => {
                reach("rename.after");
                return Ok(true);
            }
            Err(error) => error,
        };
        reach("rename.after");
        match self.size_of(&path).await? {
            // By an earlier try, or by a stalled predecessor.
            Some(size) if size == file.size => Ok(true),
            Some(size) => Err(Error::new(
                ErrorKind::CannotDecide,
                format!("an output file has {size} bytes in the destination, {} were sealed", file.size),
            )
            .at(self.root.place(&path))
            .safe("nothing was overwritten")
            .way("move the file away: the commit then withdraws its work and does it again")),
            None if is_gone(&failed) => {
                // Out of the way of a stalled predecessor, before anything is recorded.
                let _ = self.bucket.uploads.abort_multipart(&key, &upload.id).await;
                Ok(false)
            }
            None => Err(self.unanswered(&path, failed)),
        }
    }
}

/// Whether the answer names the upload itself as what is not there: expired, aborted, or completed. A 404 alone can be of a
/// missing bucket, or of something between here and the provider, and decides nothing.
fn is_gone(error: &object_store::Error) -> bool {
    let text = format!("{error:?}");
    ["NoSuchUpload", "InvalidBlockList", "UploadNotFound"].iter().any(|code| text.contains(code))
}

#[async_trait]
impl Sink for BucketSink {
    fn binding(&self) -> Binding {
        let (kind, root) = (self.kind.clone(), self.root.clone());
        Binding { kind, root, partition_by: self.partition_by.clone() }
    }

    async fn check(&self, expected: Option<&Expected>) -> Result<()> {
        let binding = self.binding_key()?;
        let bound = self.read_binding(&binding).await?;
        if bound.is_none() {
            self.check_alone().await?;
        }
        let prefix = self.exact_key(self.root.prefix())?;
        let objects: Vec<_> =
            self.bucket.objects.list(Some(&prefix)).try_collect().await.map_err(|e| self.unanswered("", e))?;
        let below = |key: &Path| key.as_ref().strip_prefix(self.root.prefix())?.strip_prefix('/').map(str::to_owned);
        let sizes: HashMap<String, u64> =
            objects.iter().filter_map(|object| Some((below(&object.location)?, object.size))).collect();
        let mut paths: Vec<String> = sizes.keys().cloned().collect();
        paths.sort_unstable();
        Seen { root: &self.root, binding: binding.to_string(), bound, paths }
            .check(expected, |path| Ok(sizes.get(path).copied()))
    }

    async fn bind(&self, store: StoreId) -> Result<()> {
        let key = self.binding_key()?;
        if self.read_binding(&key).await? == Some(store) {
            return Ok(());
        }
        reach("open.before_binding");
        let bytes = encode("binding", &BindingFile { store, sink: self.root.clone() })?;
        let created = self.bucket.objects.put_opts(&key, bytes.into(), PutMode::Create.into()).await;
        reach("open.after_binding");
        // Also after a lost answer: what is there decides.
        match (self.read_binding(&key).await?, created) {
            (Some(bound), _) if bound == store => Ok(()),
            (None, Err(error)) => Err(self.unanswered("", error)),
            _ => Err(Error::refused("another store took this destination at the same time")
                .at(&self.root)
                .safe("nothing was written to it")
                .way("write to another destination")),
        }
    }

    async fn bound_to(&self, _store: StoreId) -> Result<Option<StoreId>> {
        self.read_binding(&self.binding_key()?).await
    }

    async fn bind_again(&self, store: StoreId) -> Result<()> {
        match self.read_binding(&self.binding_key()?).await {
            Ok(Some(_)) => return Ok(()),
            Ok(None) => {}
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                self.move_aside("binding.json", &self.binding_key()?, "binding.json").await?;
            }
            Err(error) => return Err(error),
        }
        self.bind(store).await
    }

    async fn visible_size(&self, file: &OutputFile) -> Result<Option<u64>> {
        self.size_of(&file.path()).await
    }

    async fn fitness(&self, file: &OutputFile) -> Result<Fitness> {
        Ok(match self.size_of(&file.path()).await? {
            Some(size) if size == file.size => Fitness::Fit,
            Some(_) => Fitness::Unfit,
            // No provider tells through this interface whether an upload is still there: its completion does.
            None if file.upload.is_some() => Fitness::Fit,
            None => Fitness::Missing,
        })
    }

    async fn take_out(&self, files: &[OutputFile]) -> Result<()> {
        for file in files {
            self.move_aside(&file.path(), &self.key(&file.path())?, &file.name).await?;
        }
        Ok(())
    }

    async fn leftovers(&self) -> Result<Vec<Leftover>> {
        let (side, unfit) = (self.side_key("")?, self.side_key("unfit")?);
        let objects: Vec<_> =
            self.bucket.objects.list(Some(&unfit)).try_collect().await.map_err(|e| self.unanswered("", e))?;
        let leftover = |object: ObjectMeta| {
            let path = object.location.as_ref().strip_prefix(side.as_ref())?.strip_prefix('/')?.to_owned();
            Some(Leftover { path, size: object.size, modified: object.last_modified.timestamp_millis() })
        };
        Ok(objects.into_iter().filter_map(leftover).collect())
    }

    async fn remove(&self, leftovers: &[Leftover]) -> Result<()> {
        for leftover in leftovers {
            self.delete(&self.side_key(&leftover.path)?).await.map_err(|e| self.unanswered(&leftover.path, e))?;
        }
        Ok(())
    }

    async fn commit(&self, intent: &Intent<'_>) -> Result<Settled> {
        intent.holder.check().await?;
        let one = async |file: &OutputFile| Ok::<_, Error>((!self.complete(file).await?).then(|| file.name.clone()));
        let publishing: Vec<_> = intent.files.iter().map(one).collect();
        let missing: Vec<Option<String>> = stream::iter(publishing).buffered(COMPLETED).try_collect().await?;
        self.take_out(intent.leaving).await?;
        reach("rename.synced");
        Ok(Settled::Done { missing: missing.into_iter().flatten().collect(), table: None })
    }
}

#[async_trait]
impl OutputSink for BucketSink {
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
        // A name has less than 128 bytes.
        if self.root.prefix().len() + folder.len() + 130 <= LONGEST_KEY {
            return Ok(());
        }
        let start: String = folder.chars().take(60).collect();
        Err(Error::invalid(format!("the partition `{start}...` makes a key too long for the destination"))
            .at(&self.root)
            .safe("nothing of this task was sealed; what was sealed before is kept")
            .way("shorten the value in the query (substr, or a digest of it)")
            .way("take the column out of `partition_by`, with another destination and `store`"))
    }

    async fn stage(&self, name: &str, folder: &str) -> Result<Box<dyn StagedOutput>> {
        let path = if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
        let key = self.key(&path)?;
        let id = self.bucket.uploads.create_multipart(&key).await.map_err(|e| self.unanswered(&path, e))?;
        let upload = Ongoing { sink: self.clone(), path, key, id, given: 0, finished: false };
        Ok(Box::new(UploadingFile {
            upload,
            buffer: Vec::new(),
            sent: Vec::new(),
            done: Vec::new(),
            size: 0,
            fault: Fault::default(),
        }))
    }

    async fn sync(&self) -> Result<()> {
        Ok(())
    }

    async fn discard(&self, files: &[OutputFile]) {
        for file in files {
            if let (Some(upload), Ok(key)) = (&file.upload, self.key(&file.path())) {
                let _ = self.bucket.uploads.abort_multipart(&key, &upload.id).await;
            }
        }
    }

    fn failed(&self, error: io::Error) -> Error {
        Error::new(ErrorKind::Unavailable, "the destination cannot be written")
            .at(&self.root)
            .safe("nothing that was sealed or committed was touched")
            .way("run again: what was sealed is kept")
            .caused_by(error)
    }
}

/// An upload that no seal names yet: dropped unfinished, it is aborted.
struct Ongoing {
    sink: BucketSink,
    path: String,
    key: Path,
    id: String,
    given: usize,
    finished: bool,
}

impl Drop for Ongoing {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        // Its task failed before a seal could name it. What is left over expires, as the bucket's rules say.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (uploads, key, id) = (Arc::clone(&self.sink.bucket.uploads), self.key.clone(), self.id.clone());
            runtime.spawn(async move {
                let _ = uploads.abort_multipart(&key, &id).await;
            });
        }
    }
}

/// One file on its way, part by part.
struct UploadingFile {
    upload: Ongoing,
    buffer: Vec<u8>,
    sent: Vec<JoinHandle<object_store::Result<PartId>>>,
    done: Vec<String>,
    size: u64,
    fault: Fault,
}

impl fmt::Debug for UploadingFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UploadingFile").field("path", &self.upload.path).field("size", &self.size).finish()
    }
}

impl UploadingFile {
    fn send(&mut self, bytes: Vec<u8>) {
        let upload = &mut self.upload;
        let (uploads, key, id) = (Arc::clone(&upload.sink.bucket.uploads), upload.key.clone(), upload.id.clone());
        let part = upload.given;
        upload.given += 1;
        self.sent.push(tokio::spawn(async move { uploads.put_part(&key, &id, part, bytes.into()).await }));
    }

    /// Waits until at most `most` parts are on their way.
    async fn drain(&mut self, most: usize) -> Result<()> {
        while self.sent.len() > most {
            let part = self.sent.remove(0).await;
            let stopped = |e| {
                Error::new(ErrorKind::Indeterminate, "an upload was interrupted")
                    .at(self.upload.sink.root.place(&self.upload.path))
                    .safe("no seal names it")
                    .caused_by(e)
            };
            let part = part.map_err(stopped)?;
            self.done.push(part.map_err(|e| self.upload.sink.unanswered(&self.upload.path, e))?.content_id);
        }
        Ok(())
    }
}

impl Write for UploadingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        self.size += bytes.len() as u64;
        while self.buffer.len() >= PART {
            let rest = self.buffer.split_off(PART);
            let part = std::mem::replace(&mut self.buffer, rest);
            self.send(part);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[async_trait]
impl StagedOutput for UploadingFile {
    async fn settle(&mut self) -> Result<()> {
        self.drain(IN_FLIGHT).await
    }

    async fn finish(mut self: Box<Self>) -> Result<(u64, Option<Upload>)> {
        if !self.buffer.is_empty() || self.upload.given == 0 {
            let last = std::mem::take(&mut self.buffer);
            self.send(last);
        }
        self.drain(0).await?;
        self.upload.finished = true;
        let parts = std::mem::take(&mut self.done);
        Ok((self.size, Some(Upload { id: self.upload.id.clone(), parts })))
    }

    fn fault(&self) -> Fault {
        self.fault.clone()
    }
}
