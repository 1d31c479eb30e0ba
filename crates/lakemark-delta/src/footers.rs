//! The statistics of staged files: noted when they were written, or read from their footers.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use arrow_schema::Schema;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use lakemark::{Error, ErrorKind, OutputFile, Result};
use object_store::ObjectStoreExt;
use object_store::path::Path;
use parquet::arrow::async_reader::MetadataFetch;
use parquet::arrow::parquet_to_arrow_schema;
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
        self.keep(name, statistics::of_file(metadata));
    }

    /// Keeps the statistics of the file at `path`, which is named by its last part.
    fn keep(&self, path: &str, text: String) {
        let mut noted = self.lock();
        if noted.len() < KEPT {
            noted.insert(path.rsplit('/').next().unwrap_or(path).to_owned(), text);
        }
    }

    /// Forgets those of `files`.
    pub(crate) fn forget(&self, files: &[OutputFile]) {
        let mut noted = self.lock();
        for file in files {
            noted.remove(&file.name);
        }
    }

    /// The statistics of `files` at `place`, in their order. What was not written by this process may be of another query:
    /// `fits` is asked for the columns of each such file.
    ///
    /// # Errors
    /// When a footer cannot be read; those of `fits`.
    pub(crate) async fn of(
        &self,
        place: &Place,
        files: &[OutputFile],
        fits: impl Fn(&Schema) -> Result<()>,
    ) -> Result<Vec<String>> {
        let known: Vec<Option<String>> = {
            let noted = self.lock();
            files.iter().map(|file| noted.get(&file.name).cloned()).collect()
        };
        let all = files.iter().zip(known).map(|(file, known)| {
            let (place, path, size) = (place.clone(), file.path(), file.size);
            async move {
                match known {
                    Some(known) => Ok((known, None)),
                    None => read(&place, &path, size).await.map(|(text, schema)| (text, Some((path, schema)))),
                }
            }
        });
        let all: Vec<_> = all.collect();
        let mut all = stream::iter(all).buffered(READS);
        let mut statistics = Vec::with_capacity(files.len());
        while let Some((text, of)) = all.try_next().await? {
            if let Some((path, schema)) = of {
                fits(&schema).map_err(|error| error.at(place.root.place(&path)))?;
                self.keep(&path, text.clone());
            }
            statistics.push(text);
        }
        Ok(statistics)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The statistics and the columns in the footer of the file of `size` bytes at `path`.
async fn read(place: &Place, path: &str, size: u64) -> Result<(String, Schema)> {
    let failed = |error: ParquetError| {
        let there = !matches!(error, ParquetError::External(_));
        let error = match there {
            true => Error::new(ErrorKind::Corrupt, "the footer of a file that waits for its commit is damaged"),
            false => Error::new(ErrorKind::Unavailable, "a file that waits for its commit cannot be read")
                .way("run again when the table can be reached"),
        }
        .caused_by(error);
        error.at(place.root.place(path)).safe("nothing was written to the table")
    };
    let file = File { place, path: Path::parse(path).map_err(|e| failed(ParquetError::External(e.into())))? };
    let reader = ParquetMetaDataReader::new().with_prefetch_hint(Some(FOOTER));
    let metadata = reader.load_and_finish(file, size).await.map_err(failed)?;
    let file = metadata.file_metadata();
    let schema = parquet_to_arrow_schema(file.schema_descr(), file.key_value_metadata()).map_err(failed)?;
    Ok((statistics::of_file(&metadata), schema))
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
