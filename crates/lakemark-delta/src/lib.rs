//! Delta tables as destinations of lakemark: one log entry a commit, each exactly once.
//!
//! ```no_run
//! use std::sync::Arc;
//! use lakemark::{OutputSink, StorageOptions};
//!
//! # fn main() -> lakemark::Result<()> {
//! let table: Arc<dyn OutputSink> = lakemark_delta::connect("/lake/docs_upper", &StorageOptions::default())?;
//! # Ok(())
//! # }
//! ```
//!
//! A commit is the entry that follows the version it was decided on, created only if nobody else has created it. It carries
//! the transaction `lakemark-<store id>` with the commit's number, and in `commitInfo` the digest of its set of files: by
//! these a driver that lost an answer, or took over, finds out what happened. Nothing is ever retried behind its back.
//!
//! On a disk an entry is durable before it has its name; what is not finished waits in `unfinished` below the table, where
//! no reader of it looks.
//!
//! Snapshots are read with Delta's own kernel, in the version that `deltalake` is built on; entries are written by this
//! crate, through the same durable create as lakemark's own manifests. Checkpoints of the log are written by the kernel, on
//! runtimes of several threads.

mod entry;
mod history;
mod kernel;
mod place;
mod protocol;
mod schema;
mod source;
mod statistics;
mod synced;
mod table;

use std::sync::Arc;

use lakemark::{CommitDriver, DataFiles, OutputSink, Result, StorageOptions};

pub use kernel::DeltaBase;
pub use source::DeltaSource;
pub use table::DeltaTable;

/// The sink's kind, as jobs and stores name it.
pub const KIND: &str = "delta";

/// The table at `url` as a destination, reached with `options`. Nothing is asked of it yet.
/// Rows with columns that it lacks are refused; [`DeltaTable::with_schema_mode`] adds them.
///
/// # Errors
/// As [`DeltaTable::connect`].
pub fn connect(url: &str, options: &StorageOptions) -> Result<Arc<dyn OutputSink>> {
    let table = DeltaTable::connect(url, options)?;
    Ok(Arc::new(CommitDriver::new(table, DataFiles::connect(KIND, url, options)?)))
}
