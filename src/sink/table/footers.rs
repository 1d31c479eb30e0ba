//! What footers say of files that wait for a commit: noted when they were written, or read again.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use arrow_schema::Schema;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::arrow::async_reader::MetadataFetch;
use parquet::arrow::parquet_to_arrow_schema;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};

use crate::error::{Error, ErrorKind, Result};
use crate::identity::Root;
use crate::store::OutputFile;

/// Footers that are read at a time.
const READS: usize = 16;
/// Bytes of the end of a file that are asked for at once: most footers.
const FOOTER: usize = 64 << 10;
/// Files of which something is kept. Of a further one it is read again.
const KEPT: usize = 10_000;

/// What a table format is to know of its files, by name.
#[derive(Debug)]
pub struct Noted<T>(Mutex<HashMap<String, T>>);

impl<T> Default for Noted<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

/// Where files are: objects by their paths below a root.
#[derive(Debug, Clone, Copy)]
pub struct FilesAt<'a> {
    /// The root, for messages.
    pub root: &'a Root,
    /// The objects below it.
    pub objects: &'a dyn ObjectStore,
}

impl<T: Clone> Noted<T> {
    /// Notes `known` of the file at `path`, which is named by its last part.
    pub fn note(&self, path: &str, known: T) {
        let mut noted = self.lock();
        if noted.len() < KEPT {
            noted.insert(path.rsplit('/').next().unwrap_or(path).to_owned(), known);
        }
    }

    /// Forgets what is known of `files`.
    pub fn forget(&self, files: &[OutputFile]) {
        let mut noted = self.lock();
        for file in files {
            noted.remove(&file.name);
        }
    }

    /// What is to be known of `files`, in their order. What was not written by this process may be of another query: `read`
    /// makes it of the footer and the columns of such a file, or refuses that.
    ///
    /// # Errors
    /// When a footer cannot be read; those of `read`.
    pub async fn of(
        &self,
        at: FilesAt<'_>,
        files: &[OutputFile],
        read: impl Fn(&ParquetMetaData, &Schema) -> Result<T>,
    ) -> Result<Vec<T>> {
        let known: Vec<Option<T>> = {
            let noted = self.lock();
            files.iter().map(|file| noted.get(&file.name).cloned()).collect()
        };
        let all = files.iter().zip(known).map(|(file, known)| {
            let (path, size) = (file.path(), file.size);
            async move {
                match known {
                    Some(known) => Ok((Some(known), None)),
                    None => footer(at, &path, size).await.map(|footer| (None, Some((path, footer)))),
                }
            }
        });
        let all: Vec<_> = all.collect();
        let mut all = stream::iter(all).buffered(READS);
        let mut noted = Vec::with_capacity(files.len());
        while let Some((known, unknown)) = all.try_next().await? {
            if let Some((path, (metadata, schema))) = unknown {
                let known = read(&metadata, &schema).map_err(|error| error.at(at.root.place(&path)))?;
                self.note(&path, known.clone());
                noted.push(known);
            }
            noted.extend(known);
        }
        Ok(noted)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The footer and the columns of the file of `size` bytes at `path`.
async fn footer(at: FilesAt<'_>, path: &str, size: u64) -> Result<(ParquetMetaData, Schema)> {
    let failed = |error: ParquetError| {
        let there = !matches!(error, ParquetError::External(_));
        let error = match there {
            true => Error::new(ErrorKind::Corrupt, "the footer of a file that waits for its commit is damaged"),
            false => Error::new(ErrorKind::Unavailable, "a file that waits for its commit cannot be read")
                .way("run again when the table can be reached"),
        }
        .caused_by(error);
        error.at(at.root.place(path)).safe("nothing was written to the table")
    };
    let path = Path::parse(path).map_err(|e| failed(ParquetError::External(e.into())))?;
    let file = File { objects: at.objects, path };
    let reader = ParquetMetaDataReader::new().with_prefetch_hint(Some(FOOTER));
    let metadata = reader.load_and_finish(file, size).await.map_err(failed)?;
    let file = metadata.file_metadata();
    let schema = parquet_to_arrow_schema(file.schema_descr(), file.key_value_metadata()).map_err(failed)?;
    Ok((metadata, schema))
}

struct File<'a> {
    objects: &'a dyn ObjectStore,
    path: Path,
}

impl MetadataFetch for File<'_> {
    fn fetch(&mut self, range: Range<u64>) -> BoxFuture<'_, parquet::errors::Result<Bytes>> {
        let bytes = async move { self.objects.get_range(&self.path, range).await };
        bytes.map(|bytes| bytes.map_err(|e| ParquetError::External(e.into()))).boxed()
    }
}
