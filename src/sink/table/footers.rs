//! What footers say of files that wait for a commit: noted when they were written, or read again.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

use super::SchemaMode;
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
pub struct Noted<T>(Mutex<Notes<T>>);

#[derive(Debug)]
struct Notes<T> {
    files: HashMap<String, Known<T>>,
    /// The columns of all of them: few queries, and many files.
    columns: Vec<Arc<Schema>>,
}

#[derive(Debug, Clone)]
struct Known<T> {
    columns: Arc<Schema>,
    schema_mode: SchemaMode,
    facts: T,
}

/// What the footer of a file says.
#[derive(Debug, Clone)]
pub struct KnownFile<T> {
    /// Where it is, for messages.
    pub place: String,
    /// Its columns, by which the table it is to be in must have them. Files of one query share them.
    pub columns: Arc<Schema>,
    /// The mode it was written in.
    pub schema_mode: SchemaMode,
    /// What the format makes of it.
    pub facts: T,
}

impl<T> KnownFile<T> {
    /// Whether the table makes of `other` what it makes of this.
    pub fn is_alike(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.columns, &other.columns) && self.schema_mode == other.schema_mode
    }
}

impl<T> Default for Noted<T> {
    fn default() -> Self {
        Self(Mutex::new(Notes { files: HashMap::new(), columns: Vec::new() }))
    }
}

impl<T: Clone> Notes<T> {
    fn note(&mut self, name: &str, columns: Schema, schema_mode: SchemaMode, facts: T) -> Known<T> {
        let columns = match self.columns.iter().find(|known| ***known == columns) {
            Some(known) => Arc::clone(known),
            None => {
                let columns = Arc::new(columns);
                self.columns.push(Arc::clone(&columns));
                columns
            }
        };
        let known = Known { columns, schema_mode, facts };
        if self.files.len() < KEPT {
            self.files.insert(name.to_owned(), known.clone());
        }
        known
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
    /// Notes the file `name` with the footer `metadata`, of which `facts` are to be known.
    pub fn note(&self, name: &str, metadata: &ParquetMetaData, facts: T) {
        // What cannot be told now is told, or is an error, when it is read again.
        if let Ok(columns) = columns(metadata) {
            self.lock().note(name, columns, SchemaMode::of_file(metadata), facts);
        }
    }

    /// Forgets what is known of `files`.
    pub fn forget(&self, files: &[OutputFile]) {
        let mut noted = self.lock();
        for file in files {
            noted.files.remove(&file.name);
        }
        let Notes { files, columns } = &mut *noted;
        if files.is_empty() {
            columns.clear();
        }
    }

    /// What is to be known of `files`, in their order. The footer of what was not noted is read, and `facts` makes of it what
    /// the format is to know.
    ///
    /// # Errors
    /// When a footer cannot be read.
    pub async fn of(
        &self,
        at: FilesAt<'_>,
        files: &[OutputFile],
        facts: impl Fn(&ParquetMetaData) -> T,
    ) -> Result<Vec<KnownFile<T>>> {
        let noted: Vec<Option<Known<T>>> = {
            let noted = self.lock();
            files.iter().map(|file| noted.files.get(&file.name).cloned()).collect()
        };
        let all = files.iter().zip(noted).map(|(file, noted)| {
            let (path, size) = (file.path(), file.size);
            async move {
                match noted {
                    Some(known) => Ok((file, Some(known), None)),
                    None => footer(at, &path, size).await.map(|footer| (file, None, Some(footer))),
                }
            }
        });
        let all: Vec<_> = all.collect();
        let mut all = stream::iter(all).buffered(READS);
        let mut known = Vec::with_capacity(files.len());
        while let Some((file, noted, read)) = all.try_next().await? {
            let read = read.map(|(metadata, columns)| {
                let schema_mode = SchemaMode::of_file(&metadata);
                self.lock().note(&file.name, columns, schema_mode, facts(&metadata))
            });
            let place = || at.root.place(&file.path());
            known.extend(noted.or(read).map(|Known { columns, schema_mode, facts }| KnownFile {
                place: place(),
                columns,
                schema_mode,
                facts,
            }));
        }
        Ok(known)
    }

    fn lock(&self) -> MutexGuard<'_, Notes<T>> {
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
    let columns = columns(&metadata).map_err(failed)?;
    Ok((metadata, columns))
}

/// The columns of a file: without what else its footer says, which is no part of them.
fn columns(metadata: &ParquetMetaData) -> parquet::errors::Result<Schema> {
    let file = metadata.file_metadata();
    let schema = parquet_to_arrow_schema(file.schema_descr(), file.key_value_metadata())?;
    Ok(schema.with_metadata(HashMap::new()))
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
