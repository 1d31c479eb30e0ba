//! Files without row groups: read once, from end to end, through DataFusion's own readers.
//!
//! Such a reader asks an object store for the whole file. The store it is given here holds the files of one task and no
//! other; what it gives are bytes of the planned versions, decompressed, and the digest of what is stored is taken as it
//! passes.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::error::Result as DfResult;
use datafusion::execution::TaskContext;
use datafusion::execution::object_store::ObjectStoreRegistry;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use lakemark::{
    ContentDigest, Coverage, Error, ErrorKind, Evidence, FileRead, FileVersion, Lake, SealedFile, Task, TaskRead,
};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use crate::checkpoints::Source;
use crate::compression::decompressed;

/// How a whole file is called in a plan: only a label, the raw path does not survive it.
pub(crate) fn label(file: &FileVersion) -> Path {
    Path::from(&*file.path)
}

/// Which files of a task are there as planned; of CSV with names their first lines are read, else nothing. Their evidence is
/// still empty.
pub(crate) async fn look_at(source: &Source, task: &Task) -> lakemark::Result<TaskRead> {
    let looks: Vec<_> = task.parts.iter().map(|part| look_at_one(source, &part.planned.file)).collect();
    let looks: Vec<Seen> = stream::iter(looks).buffered(8).try_collect().await?;
    let mut read = TaskRead::default();
    for (part, seen) in task.parts.iter().zip(looks) {
        let file = &part.planned.file;
        let (name, path) = (Arc::clone(&source.name), Arc::clone(&file.path));
        match seen {
            Seen::Vanished => read.vanished.push((name, path)),
            Seen::Changed => read.changed.push((name, path)),
            Seen::Unusable(why) => read.unusable.push((name, path, why)),
            Seen::AsPlanned => read.files.push(SealedFile {
                source: name,
                file: file.clone(),
                coverage: Coverage::Whole,
                evidence: Evidence::default(),
                unsettled: part.planned.unsettled,
            }),
        }
    }
    Ok(read)
}

/// What is there of a planned file.
enum Seen {
    AsPlanned,
    Vanished,
    Changed,
    Unusable(String),
}

async fn look_at_one(source: &Source, file: &FileVersion) -> lakemark::Result<Seen> {
    match source.lake.stat(&file.path).await? {
        None => return Ok(Seen::Vanished),
        Some(_) if source.lake.take_unstable(&file.path) => return Ok(Seen::Changed),
        Some(now) if !now.is_same(file) => return Ok(Seen::Changed),
        Some(_) => {}
    }
    let Some(schema) = &source.schema else { return Ok(Seen::AsPlanned) };
    match source.opened_as.misfit(&source.lake, file, schema).await {
        Ok(why) => Ok(why.map_or(Seen::AsPlanned, Seen::Unusable)),
        Err(error) if error.kind() == ErrorKind::ChangedSincePlanning => Ok(Seen::Changed),
        Err(error) => Err(error),
    }
}

/// Reads the files of `read` whose evidence is not known yet; those that are gone or changed by now are left out.
pub(crate) async fn take_evidence(lake: &Lake, read: &mut TaskRead) -> lakemark::Result<()> {
    let mut files = Vec::with_capacity(read.files.len());
    for mut sealed in std::mem::take(&mut read.files) {
        if is_known(&sealed) {
            files.push(sealed);
            continue;
        }
        let name = (Arc::clone(&sealed.source), Arc::clone(&sealed.file.path));
        match lake.evidence(&sealed.file).await? {
            FileRead::Read(evidence) => {
                sealed.evidence = evidence;
                files.push(sealed);
            }
            FileRead::Unusable(why) => read.unusable.push((name.0, name.1, why)),
            FileRead::Changed => read.changed.push(name),
            FileRead::Vanished => read.vanished.push(name),
        }
    }
    read.files = files;
    Ok(())
}

/// Whether the evidence of a file was taken.
pub(crate) fn is_known(sealed: &SealedFile) -> bool {
    !sealed.evidence.digest.is_empty()
}

/// The files of one task, as an object store that can only be read.
#[derive(Debug, Clone)]
pub(crate) struct PinnedStore(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    lake: Lake,
    files: HashMap<Path, Stored>,
    /// Of the files that were read to their end.
    seen: Mutex<HashMap<Path, Evidence>>,
}

#[derive(Debug, Clone)]
struct Stored {
    file: FileVersion,
    compression: FileCompressionType,
}

impl PinnedStore {
    /// Files, each with what it is compressed with: readers of this store are to take them for uncompressed ones.
    pub(crate) fn new(lake: Lake, files: impl Iterator<Item = (FileVersion, FileCompressionType)>) -> Self {
        let files = files.map(|(file, compression)| (label(&file), Stored { file, compression })).collect();
        Self(Arc::new(Inner { lake, files, seen: Mutex::default() }))
    }

    /// A context in which every object store is this one.
    pub(crate) fn context(&self, context: &TaskContext) -> DfResult<Arc<TaskContext>> {
        let runtime = context.runtime_env();
        let runtime = RuntimeEnvBuilder::from_runtime_env(&runtime)
            .with_object_store_registry(Arc::new(self.clone()))
            .build_arc()?;
        Ok(Arc::new(TaskContext::new(
            context.task_id(),
            context.session_id(),
            context.session_config().clone(),
            context.scalar_functions().clone(),
            context.higher_order_functions().clone(),
            context.aggregate_functions().clone(),
            context.window_functions().clone(),
            runtime,
        )))
    }

    /// Fills in the evidence of the files that passed from end to end, and reads those that did not.
    pub(crate) async fn settle(&self, read: &mut TaskRead) -> lakemark::Result<()> {
        {
            let seen = self.0.seen.lock().unwrap_or_else(PoisonError::into_inner);
            for sealed in &mut read.files {
                if let Some(evidence) = seen.get(&label(&sealed.file)) {
                    sealed.evidence = evidence.clone();
                }
            }
        }
        let before = read.files.len();
        take_evidence(&self.0.lake, read).await?;
        if read.files.len() == before {
            return Ok(());
        }
        // Its rows are already in the output: the whole task must run again.
        Err(Error::new(ErrorKind::ChangedSincePlanning, "a file changed while it was read")
            .at(self.0.lake.root())
            .safe("nothing is sealed for its task")
            .way("run again: the file is planned as it is then"))
    }

    /// The content of a file, and its evidence once all of its stored bytes have passed.
    fn whole(&self, at: Path, stored: &Stored) -> BoxStream<'static, Result<Bytes>> {
        let Stored { file, compression } = stored;
        let (inner, mut digest, size) = (Arc::clone(&self.0), ContentDigest::default(), file.size);
        let place = inner.lake.place(&file.path);
        let bytes = self.0.lake.reader(file).chunks().map_ok(move |bytes| {
            digest.update(&bytes);
            if digest.bytes() == size {
                let mut seen = inner.seen.lock().unwrap_or_else(PoisonError::into_inner);
                seen.insert(at.clone(), digest.evidence());
            }
            bytes
        });
        let damaged = move |error: Error| match error.kind() {
            ErrorKind::Invalid => error.at(&place).way("put the whole file there, or move it away, then run again"),
            _ => error,
        };
        decompressed(*compression, bytes.boxed()).map_err(move |error| generic(damaged(error))).boxed()
    }
}

fn generic(error: Error) -> object_store::Error {
    object_store::Error::Generic { store: "pinned files", source: Box::new(error) }
}

fn read_only<T>() -> Result<T> {
    Err(object_store::Error::NotImplemented {
        operation: "anything but get".into(),
        implementer: "pinned files".into(),
    })
}

impl fmt::Display for PinnedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pinned files of {}", self.0.lake)
    }
}

#[async_trait]
impl ObjectStore for PinnedStore {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let Some(stored) = self.0.files.get(location) else {
            let source = format!("{location} is not a file of this task").into();
            return Err(object_store::Error::NotFound { path: location.to_string(), source });
        };
        let file = &stored.file;
        let meta = ObjectMeta {
            location: location.clone(),
            last_modified: Default::default(),
            size: file.size,
            e_tag: None,
            version: None,
        };
        let range = match &options.range {
            Some(range) => range.as_range(file.size).map_err(|e| generic(Error::invalid(e.to_string())))?,
            None => 0..file.size,
        };
        let payload = if options.head {
            stream::empty().boxed()
        } else if range == (0..file.size) {
            self.whole(location.clone(), stored)
        } else if stored.compression.is_compressed() {
            return Err(generic(Error::invalid("a part of a compressed file was asked for")));
        } else {
            let mut reader = self.0.lake.reader(file);
            let bytes = reader.read(std::slice::from_ref(&range)).await.map_err(generic)?;
            stream::iter(bytes.into_iter().map(Ok)).boxed()
        };
        let payload = GetResultPayload::Stream(payload);
        Ok(GetResult { payload, meta, range, attributes: Default::default() })
    }

    async fn put_opts(&self, _: &Path, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        read_only()
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        read_only()
    }

    fn delete_stream(&self, _: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        stream::once(std::future::ready(read_only())).boxed()
    }

    fn list(&self, _: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        stream::once(std::future::ready(read_only())).boxed()
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
        read_only()
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        read_only()
    }
}

impl ObjectStoreRegistry for PinnedStore {
    fn register_store(&self, _: &url::Url, _: Arc<dyn ObjectStore>) -> Option<Arc<dyn ObjectStore>> {
        None
    }

    fn get_store(&self, _: &url::Url) -> DfResult<Arc<dyn ObjectStore>> {
        Ok(Arc::new(self.clone()))
    }
}
