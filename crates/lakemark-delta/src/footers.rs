//! The statistics of staged files: noted when they were written, or read from their footers.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use lakemark::{Error, ErrorKind, OutputFile, Result};
use object_store::ObjectStoreExt;
use object_store::path::Path;
use parquet::arrow::async_reader::MetadataFetch;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};

use crate::place::Place;
use crate::statistics;

/// Footers that are read at a time.
const READS: usize = 16;
/// Bytes of the end of a file that are asked for at once: most footers.
const FOOTER: usize = 64 << 10;
/// Files whose statistics are kept. Those of a further one are read from it again.
const KEPT: usize = 10_000;

/// Statistics of files that wait for their commit, by name.
#[derive(Debug, Default)]
pub(crate) struct Noted(Mutex<HashMap<String, String>>);

impl Noted {
    /// Notes those of the file `name`.
    pub(crate) fn note(&self, name: &str, metadata: &ParquetMetaData) {
        let mut noted = self.lock();
        if noted.len() < KEPT {
            noted.insert(name.to_owned(), statistics::of_file(metadata));
        }
    }

    /// Forgets those of `files`.
    pub(crate) fn forget(&self, files: &[OutputFile]) {
        let mut noted = self.lock();
        for file in files {
            noted.remove(&file.name);
        }
    }

    /// The statistics of `files` at `place`, in their order.
    ///
    /// # Errors
    /// When a footer cannot be read.
    pub(crate) async fn of(&self, place: &Place, files: &[OutputFile]) -> Result<Vec<String>> {
        let known: Vec<Option<String>> = {
            let noted = self.lock();
            files.iter().map(|file| noted.get(&file.name).cloned()).collect()
        };
        let all = files.iter().zip(known).map(|(file, known)| {
            let (place, path, size) = (place.clone(), file.path(), file.size);
            async move {
                match known {
                    Some(known) => Ok(known),
                    None => read(&place, &path, size).await,
                }
            }
        });
        let all: Vec<_> = all.collect();
        stream::iter(all).buffered(READS).try_collect().await
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The statistics in the footer of the file of `size` bytes at `path`.
async fn read(place: &Place, path: &str, size: u64) -> Result<String> {
    let failed = |error: Box<dyn std::error::Error + Send + Sync>| {
        Error::new(ErrorKind::Unavailable, "the footer of a file that waits for its commit cannot be read")
            .at(place.root.place(path))
            .safe("nothing was written to the table")
            .way("run again when the table can be reached")
            .caused_by(error)
    };
    let file = File { place, path: Path::parse(path).map_err(|e| failed(e.into()))? };
    let reader = ParquetMetaDataReader::new().with_prefetch_hint(Some(FOOTER));
    let metadata = reader.load_and_finish(file, size).await.map_err(|e| failed(e.into()))?;
    Ok(statistics::of_file(&metadata))
}

struct File<'a> {
    place: &'a Place,
    path: Path,
}

impl MetadataFetch for File<'_> {
    fn fetch(&mut self, range: Range<u64>) -> BoxFuture<'_, parquet::errors::Result<Bytes>> {
        let bytes = async move { self.place.objects.get_range(&self.path, range).await };
        bytes.map(|bytes| bytes.map_err(|e| ParquetError::External(e.into()))).boxed()
    }
}
