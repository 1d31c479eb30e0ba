//! The data files of a table: written where they stay, and durable there, before a commit names them.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;

use crate::error::{Error, ErrorKind, Result};
use crate::identity::Root;
use crate::sink::output::Fault;
use crate::sink::{BucketSink, DirectorySink, OutputSink, Sink, StagedOutput};
use crate::storage::{Bucket, StorageOptions};
use crate::store::{OutputFile, Upload};

/// Files below the root of a table, on a disk or on an object store.
#[derive(Debug, Clone)]
pub struct DataFiles {
    place: Place,
    /// Folders with files whose names are not durable yet.
    fresh: Arc<Mutex<BTreeSet<String>>>,
}

#[derive(Debug, Clone)]
enum Place {
    Disk(DirectorySink),
    Bucket(BucketSink),
}

impl DataFiles {
    /// Files below `url`, reached with `options`.
    ///
    /// # Errors
    /// As [`DirectorySink::open`] and [`BucketSink::connect`].
    pub fn connect(kind: &str, url: &str, options: &StorageOptions) -> Result<Self> {
        let place = if Root::parse(url)?.is_local() {
            Place::Disk(DirectorySink::open(kind, url)?)
        } else {
            Place::Bucket(BucketSink::connect(kind, url, options)?)
        };
        Ok(Self::at(place))
    }

    /// Files below the local root of `sink`, by its disk.
    pub fn on_disk(sink: DirectorySink) -> Self {
        Self::at(Place::Disk(sink))
    }

    /// Files below the prefix of `root` in `bucket`.
    ///
    /// # Errors
    /// As [`BucketSink::on`].
    pub fn in_bucket(kind: &str, root: Root, bucket: Bucket) -> Result<Self> {
        Ok(Self::at(Place::Bucket(BucketSink::on(kind, root, bucket)?)))
    }

    fn at(place: Place) -> Self {
        Self { place, fresh: Arc::default() }
    }

    fn sink(&self) -> &dyn OutputSink {
        match &self.place {
            Place::Disk(sink) => sink,
            Place::Bucket(sink) => sink,
        }
    }

    /// The size of the file at `path` below the root; `None` when it is not there.
    pub(super) async fn size_of(&self, path: &str) -> Result<Option<u64>> {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let file = OutputFile { name: name.to_owned(), folder: folder.to_owned(), size: 0, rows: 0, upload: None };
        Sink::visible_size(self.sink(), &file).await
    }

    pub(super) fn check_folder(&self, folder: &str) -> Result<()> {
        self.sink().check_folder(folder)
    }

    pub(super) async fn stage(&self, name: &str, folder: &str) -> Result<Box<dyn StagedOutput>> {
        match &self.place {
            Place::Disk(sink) => {
                let (sink, place) = (sink.clone(), (name.to_owned(), folder.to_owned()));
                let file = blocking(move || sink.create_in_place(&place.0, &place.1)).await?;
                self.lock().insert(folder.to_owned());
                Ok(Box::new(file))
            }
            Place::Bucket(sink) => {
                let output =
                    OutputFile { name: name.to_owned(), folder: folder.to_owned(), size: 0, rows: 0, upload: None };
                Ok(Box::new(InPlace { upload: sink.stage(name, folder).await?, sink: sink.clone(), output }))
            }
        }
    }

    pub(super) async fn sync(&self) -> Result<()> {
        let Place::Disk(sink) = &self.place else { return Ok(()) };
        let folders = self.lock().clone();
        let (sink, synced) = (sink.clone(), folders.clone());
        blocking(move || synced.iter().try_for_each(|folder| sink.sync_folder(folder))).await?;
        // One that got another file meanwhile is synced once too often at most: its own task syncs it again.
        self.lock().retain(|folder| !folders.contains(folder));
        Ok(())
    }

    /// Removes files of an attempt that another one's seal is known to have overtaken: no intent ever names them.
    pub(super) async fn discard(&self, files: &[OutputFile]) {
        match &self.place {
            Place::Disk(sink) => {
                let (sink, files) = (sink.clone(), files.to_vec());
                let _ = tokio::task::spawn_blocking(move || sink.remove_in_place(&files)).await;
            }
            Place::Bucket(sink) => sink.remove_in_place(files).await,
        }
    }

    pub(super) fn failed(&self, error: io::Error) -> Error {
        match &self.place {
            Place::Disk(sink) => sink.failed_in_place(error),
            Place::Bucket(sink) => sink.failed(error),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.fresh.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let joined = tokio::task::spawn_blocking(work).await;
    joined
        .map_err(|e| Error::new(ErrorKind::Indeterminate, "work on the table's files was interrupted").caused_by(e))?
}

/// An upload that is an object as soon as its file is finished.
#[derive(Debug)]
struct InPlace {
    upload: Box<dyn StagedOutput>,
    sink: BucketSink,
    output: OutputFile,
}

impl Write for InPlace {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.upload.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.upload.flush()
    }
}

#[async_trait]
impl StagedOutput for InPlace {
    async fn settle(&mut self) -> Result<()> {
        self.upload.settle().await
    }

    async fn finish(self: Box<Self>) -> Result<(u64, Option<Upload>)> {
        let Self { upload, sink, output } = *self;
        let (size, upload) = upload.finish().await?;
        let output = OutputFile { size, upload, ..output };
        if sink.complete(&output).await? {
            return Ok((size, None));
        }
        Err(Error::new(ErrorKind::Unavailable, "the upload of an output file is gone")
            .at(sink.root().place(&output.path()))
            .safe("nothing of this task was sealed")
            .way("run again"))
    }

    fn fault(&self) -> Fault {
        self.upload.fault()
    }
}
