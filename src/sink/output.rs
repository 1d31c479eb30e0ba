//! What a task writer needs of a destination: new files that wait for their commit.

use std::fmt::Debug;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_schema::{Schema, SchemaRef};
use async_trait::async_trait;
use parquet::file::metadata::ParquetMetaData;

use super::{SchemaMode, Sink};
use crate::error::{Error, Result};
use crate::identity::Root;
use crate::store::{OutputFile, Upload};

/// A destination that takes the files of tasks.
#[async_trait]
pub trait OutputSink: Sink {
    /// Where committed files become visible.
    fn root(&self) -> &Root;

    /// The same destination with files in folders of these columns. The store records it: a run with other columns is
    /// refused.
    fn partitioned(&self, columns: &[String]) -> Arc<dyn OutputSink>;

    /// The schema of rows of `schema` as this destination stores them: the same, but for one whose format has types of its
    /// own.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) naming the column that it has no type for.
    fn storable(&self, schema: &SchemaRef) -> Result<SchemaRef> {
        Ok(Arc::clone(schema))
    }

    /// The same destination, for rows of `schema`, which [`storable`](Self::storable) returned. From then on that gives
    /// what the destination as it is calls them.
    ///
    /// # Errors
    /// When it has to be looked at, and cannot be.
    async fn of_rows(self: Arc<Self>, schema: &Schema) -> Result<Arc<dyn OutputSink>>;

    /// Whether the empty string is a partition of its own. Hive's folders, and Delta, know it as null only.
    fn has_empty_partition(&self) -> bool {
        false
    }

    /// What becomes of columns that a table lacks; files say in which mode they were written.
    fn schema_mode(&self) -> SchemaMode {
        SchemaMode::Fail
    }

    /// Notes what is known of a file that was just written.
    fn wrote(&self, _output: &OutputFile, _metadata: &ParquetMetaData) {}

    /// Checks that files can be put into `folder` below the root.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) naming the part that is too long.
    fn check_folder(&self, folder: &str) -> Result<()>;

    /// Begins the file `name`, which must be new, and which its commit puts into `folder`.
    async fn stage(&self, name: &str, folder: &str) -> Result<Box<dyn StagedOutput>>;

    /// Makes the names of all finished files durable.
    async fn sync(&self) -> Result<()>;

    /// Removes finished files of an attempt that lost its seal to another one: proven, never on an unknown answer.
    async fn discard(&self, files: &[OutputFile]);

    /// An error of writing below this destination.
    fn failed(&self, error: io::Error) -> Error;
}

/// One file while it is written. Dropped unfinished it is garbage: no seal can name it.
#[async_trait]
pub trait StagedOutput: Write + Debug + Send {
    /// Waits until little of what was written is still on its way.
    async fn settle(&mut self) -> Result<()>;

    /// Makes the bytes durable: how many, and the upload in which they wait, if it is one.
    async fn finish(self: Box<Self>) -> Result<(u64, Option<Upload>)>;

    /// Where the first error of writing is kept.
    fn fault(&self) -> Fault;
}

/// The first error of a file, for who gets it second-hand: the Parquet writer does not pass every one on.
#[derive(Debug, Clone, Default)]
pub struct Fault(Arc<Mutex<Option<io::Error>>>);

impl Fault {
    pub(super) fn take(&self) -> Option<io::Error> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) fn note<T>(&self, outcome: io::Result<T>) -> io::Result<T> {
        outcome.inspect_err(|error| {
            // By number where there is one: that is what tells a full disk from another fault.
            let copy = error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error);
            self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(copy);
        })
    }
}
