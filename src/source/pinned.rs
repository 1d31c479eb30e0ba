//! Reads that give bytes of the planned version, or fail.

use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore};
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};

use super::disk;
use super::footer::{Footer, FooterRead};
use super::lake::{Access, Lake};
use super::objects;
use super::ranges::{cut, merge};
use crate::error::{Error, ErrorKind, Result};
use crate::identity::{FileVersion, same_etag};

/// Ranges this near are read together, on a disk and on an object store.
const DISK_GAP: u64 = 16 * 1024;
const OBJECT_GAP: u64 = 1024 * 1024;
/// How many ranges of one call are on the way at a time.
const REQUESTS: usize = 10;

/// Reads one version of one file. Every byte is of the planned version, or the read fails with
/// [`ChangedSincePlanning`](ErrorKind::ChangedSincePlanning) and the remembered footer is dropped (R19, R20).
///
/// - On an object store each request carries `if_match` with the listed etag; an answer with another etag or size is
///   refused too, for servers that ignore the condition. Without an etag, size and mtime of the answer are compared: one
///   answer is of one version.
/// - Files [of a table](Lake::of_table) are immutable: only their size is compared.
/// - On a disk the file is opened once, and size and mtime of what was opened are compared with the plan before and after
///   each read. A write changes the mtime before the bytes, so bytes of a write are never followed by the planned mtime.
///   The path is not looked at again: a rename over it leaves the opened file as it was, and its bytes are those that
///   were planned. What the token cannot tell apart, reads cannot either (see [`unsettled`](super::unsettled)).
///
/// As parquet's [`AsyncFileReader`] it gives the error inside [`ParquetError::External`], where [`Error::find`] sees it.
#[derive(Debug, Clone)]
pub struct PinnedReader {
    lake: Lake,
    file: FileVersion,
    opened: Option<Arc<File>>,
    footer: Option<Arc<Footer>>,
}

/// What became of a pinned read.
#[derive(Debug)]
pub(super) enum Pin<T> {
    Read(T),
    Changed,
    Vanished,
}

impl PinnedReader {
    pub(super) fn new(lake: Lake, file: FileVersion) -> Self {
        Self { lake, file, opened: None, footer: None }
    }

    pub(super) fn with_footer(self, footer: Arc<Footer>) -> Self {
        Self { footer: Some(footer), ..self }
    }

    /// The planned version.
    pub fn file(&self) -> &FileVersion {
        &self.file
    }

    pub(super) fn lake(&self) -> &Lake {
        &self.lake
    }

    /// The bytes of each of `ranges`, in their order.
    ///
    /// # Errors
    /// [`ChangedSincePlanning`](ErrorKind::ChangedSincePlanning) if another version or none is there,
    /// [`Unavailable`](ErrorKind::Unavailable) if it could not be read, [`Invalid`](ErrorKind::Invalid) for a range beyond
    /// the planned size.
    pub async fn read(&mut self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        match self.pinned(ranges).await? {
            Pin::Read(bytes) => Ok(bytes),
            Pin::Changed => Err(self.changed("the file is not the version that was planned")),
            Pin::Vanished => Err(self.changed("the file vanished since planning")),
        }
    }

    pub(super) async fn one(&mut self, range: Range<u64>) -> Result<Pin<Bytes>> {
        Ok(match self.pinned(&[range]).await? {
            Pin::Read(bytes) => Pin::Read(bytes.into_iter().next().unwrap_or_default()),
            Pin::Changed => Pin::Changed,
            Pin::Vanished => Pin::Vanished,
        })
    }

    async fn pinned(&mut self, ranges: &[Range<u64>]) -> Result<Pin<Vec<Bytes>>> {
        if let Some(range) = ranges.iter().find(|r| r.start > r.end || r.end > self.file.size) {
            return Err(Error::invalid(format!(
                "bytes {}..{} are not in a file of {} bytes",
                range.start, range.end, self.file.size
            ))
            .at(self.lake.place(&self.file.path)));
        }
        let read = match self.lake.access() {
            Access::Disk(_) => {
                let merged = merge(ranges, DISK_GAP);
                self.disk(&merged).await?.cut(ranges, &merged)
            }
            Access::Objects(store) => {
                let merged = merge(ranges, OBJECT_GAP);
                from_objects(&self.lake, store.as_ref(), &self.file, &merged).await?.cut(ranges, &merged)
            }
        };
        if !matches!(read, Pin::Read(_)) {
            self.lake.forget_footer(&self.file);
        }
        Ok(read)
    }

    async fn disk(&mut self, merged: &[Range<u64>]) -> Result<Pin<Vec<Bytes>>> {
        let at = self.lake.local(&self.file.path)?;
        let (opened, ranges) = (self.opened.take(), merged.to_vec());
        let (file, by_size) = (self.file.clone(), self.lake.is_of_table());
        let is_planned = move |metadata: &Metadata| {
            if by_size { metadata.len() == file.size } else { disk::version("", metadata).is_same(&file) }
        };
        self.lake.counters().got();
        let read = tokio::task::spawn_blocking(move || read_disk(&at, is_planned, opened, &ranges)).await;
        Ok(match read.map_err(|e| self.lake.stopped(&self.file.path, e))?? {
            Pin::Read((opened, bytes)) => {
                self.lake.counters().read(bytes.iter().map(Bytes::len).sum());
                self.opened = Some(opened);
                Pin::Read(bytes)
            }
            Pin::Changed => Pin::Changed,
            Pin::Vanished => Pin::Vanished,
        })
    }

    fn changed(&self, what: &str) -> Error {
        self.lake.note_unstable(&self.file.path);
        Error::new(ErrorKind::ChangedSincePlanning, what)
            .at(self.lake.place(&self.file.path))
            .safe("nothing is sealed for it")
            .way("run again: the file is planned as it is then")
    }
}

impl Pin<Vec<Bytes>> {
    fn cut(self, ranges: &[Range<u64>], merged: &[Range<u64>]) -> Self {
        match self {
            Self::Read(bytes) => Self::Read(cut(ranges, merged, &bytes)),
            other => other,
        }
    }
}

fn read_disk(
    at: &Path,
    is_planned: impl Fn(&Metadata) -> bool,
    opened: Option<Arc<File>>,
    ranges: &[Range<u64>],
) -> Result<Pin<(Arc<File>, Vec<Bytes>)>> {
    let unreadable = |e| disk::unreadable(at, e);
    let planned = |opened: &File| opened.metadata().map(|now| is_planned(&now)).map_err(unreadable);
    let opened = match opened {
        Some(opened) => opened,
        None => match File::open(at) {
            Err(e) if disk::is_gone(&e) => return Ok(Pin::Vanished),
            other => Arc::new(other.map_err(unreadable)?),
        },
    };
    if !planned(&opened)? {
        return Ok(Pin::Changed);
    }
    let mut read = Vec::with_capacity(ranges.len());
    for range in ranges {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        match opened.read_exact_at(&mut bytes, range.start) {
            // The planned size has these bytes: it was cut short meanwhile.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof && !planned(&opened)? => return Ok(Pin::Changed),
            other => other.map_err(unreadable)?,
        }
        read.push(Bytes::from(bytes));
    }
    if planned(&opened)? { Ok(Pin::Read((opened, read))) } else { Ok(Pin::Changed) }
}

/// Why the ranges of one call are not read on.
enum Stop {
    Changed,
    Vanished,
    Failed(Error),
}

async fn from_objects(
    lake: &Lake,
    store: &dyn ObjectStore,
    file: &FileVersion,
    merged: &[Range<u64>],
) -> Result<Pin<Vec<Bytes>>> {
    let read = if merged.is_empty() {
        get(lake, store, file, None).await.map(|_| Vec::new())
    } else {
        stream::iter(merged.to_vec())
            .map(|range| get(lake, store, file, Some(range)))
            .buffered(REQUESTS)
            .try_collect()
            .await
    };
    match read {
        Ok(bytes) => Ok(Pin::Read(bytes)),
        Err(Stop::Changed) => Ok(Pin::Changed),
        Err(Stop::Vanished) => Ok(Pin::Vanished),
        Err(Stop::Failed(error)) => Err(error),
    }
}

/// One request for one range; without one, only whether the planned version is there.
async fn get(
    lake: &Lake,
    store: &dyn ObjectStore,
    file: &FileVersion,
    range: Option<Range<u64>>,
) -> Result<Bytes, Stop> {
    let key = objects::key(lake.root(), &file.path).map_err(Stop::Failed)?.unwrap_or_default();
    let wanted = range.as_ref().map_or(0, |r| (r.end - r.start) as usize);
    let options = GetOptions {
        if_match: file.etag.as_deref().filter(|_| !lake.is_of_table()).map(str::to_owned),
        head: range.is_none(),
        range: range.map(GetRange::Bounded),
        ..GetOptions::default()
    };
    if options.head {
        lake.counters().headed()
    } else {
        lake.counters().got()
    }
    let answer = match store.get_opts(&key, options).await {
        Ok(answer) if !is_planned(lake, file, &answer.meta) => return Err(Stop::Changed),
        Ok(_) if wanted == 0 => return Ok(Bytes::new()),
        Ok(answer) => answer.bytes().await,
        Err(error) => Err(error),
    };
    let bytes = match answer {
        Ok(bytes) => bytes,
        Err(error) => return Err(why(lake, file, error).await),
    };
    lake.counters().read(bytes.len());
    if bytes.len() == wanted {
        return Ok(bytes);
    }
    let short = format!("the object store gave {} bytes where {wanted} were asked for", bytes.len());
    Err(Stop::Failed(
        Error::new(ErrorKind::Unavailable, short).at(lake.place(&file.path)).way("run again when it can be read"),
    ))
}

async fn why(lake: &Lake, file: &FileVersion, error: object_store::Error) -> Stop {
    match error {
        object_store::Error::NotFound { .. } => return Stop::Vanished,
        object_store::Error::Precondition { .. } | object_store::Error::NotModified { .. } => return Stop::Changed,
        _ => {}
    }
    // Without an etag a range beyond the end of a shorter version fails as a request, not as a condition.
    if file.etag.is_none() || lake.is_of_table() {
        match lake.stat(&file.path).await {
            Ok(None) => return Stop::Vanished,
            Ok(Some(now)) if lake.is_of_table() && now.size != file.size => return Stop::Changed,
            Ok(Some(now)) if !lake.is_of_table() && !same_clock(&now, file) => return Stop::Changed,
            _ => {}
        }
    }
    Stop::Failed(objects::failed(lake.root(), &file.path, error))
}

fn is_planned(lake: &Lake, file: &FileVersion, answer: &ObjectMeta) -> bool {
    if lake.is_of_table() {
        return answer.size == file.size;
    }
    let seen = objects::object_version(lake.root(), &file.path, answer);
    match (&file.etag, &seen.etag) {
        (Some(planned), Some(seen_etag)) => file.size == seen.size && same_etag(planned, seen_etag),
        (Some(_), None) => file.size == seen.size,
        (None, _) => same_clock(&seen, file),
    }
}

/// Whether size and mtime are equal. An answer for one object has whole seconds where a listing can have fractions
/// (R12): then whole seconds are compared.
fn same_clock(seen: &FileVersion, planned: &FileVersion) -> bool {
    const SECOND: i64 = 1_000_000_000;
    let same = |a: i64, b: i64| a == b || (a % SECOND == 0 && a.div_euclid(SECOND) == b.div_euclid(SECOND));
    seen.size == planned.size && matches!((seen.mtime, planned.mtime), (Some(a), Some(b)) if same(a, b))
}

impl AsyncFileReader for PinnedReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, ParquetResult<Bytes>> {
        async move { Ok(self.read(&[range]).await.map_err(external)?.into_iter().next().unwrap_or_default()) }.boxed()
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, ParquetResult<Vec<Bytes>>> {
        async move { self.read(&ranges).await.map_err(external) }.boxed()
    }

    /// The remembered footer, or the one that is read now; page indexes are read for each call that asks for them.
    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, ParquetResult<Arc<ParquetMetaData>>> {
        async move {
            let read = match self.footer.clone().or_else(|| self.lake.footers().get(&self.file)) {
                Some(footer) => FooterRead::Read(footer),
                None => self.footer().await.map_err(external)?,
            };
            let metadata = match read {
                FooterRead::Read(footer) => Arc::clone(&footer.metadata),
                FooterRead::Unusable(why) => {
                    return Err(ParquetError::General(format!("{}: {why}", self.lake.place(&self.file.path))));
                }
                FooterRead::Changed => {
                    return Err(external(self.changed("the file is not the version that was planned")));
                }
                FooterRead::Vanished => return Err(external(self.changed("the file vanished since planning"))),
            };
            let policies = options.map_or((PageIndexPolicy::Skip, PageIndexPolicy::Skip), |o| {
                (o.column_index_policy(), o.offset_index_policy())
            });
            if policies == (PageIndexPolicy::Skip, PageIndexPolicy::Skip) {
                return Ok(metadata);
            }
            let mut indexed = ParquetMetaDataReader::new_with_metadata(metadata.as_ref().clone())
                .with_column_index_policy(policies.0)
                .with_offset_index_policy(policies.1);
            indexed.load_page_index(&mut *self).await?;
            Ok(Arc::new(indexed.finish()?))
        }
        .boxed()
    }
}

fn external(error: Error) -> ParquetError {
    ParquetError::External(Box::new(error))
}
