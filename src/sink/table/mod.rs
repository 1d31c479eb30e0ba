//! Tables as destinations: one commit makes all its files visible at once, and carries a marker that tells whether it did.

mod bounds;
#[cfg(feature = "testing")]
mod contract;
#[cfg(feature = "testing")]
mod deaths;
mod driver;
mod files;
mod footers;
mod judge;
#[cfg(feature = "testing")]
mod memory;
#[cfg(feature = "testing")]
mod python;
#[cfg(feature = "testing")]
mod samples;
mod schema_mode;
mod types;
#[cfg(feature = "testing")]
mod writer;

use std::fmt::Debug;

use arrow_schema::Schema;
use async_trait::async_trait;
use parquet::file::metadata::ParquetMetaData;

use crate::error::{Error, Result};
use crate::identity::{Root, StoreId};
use crate::store::{OutputFile, TableState};

pub use bounds::{Bound, bounds, null_count};
#[cfg(feature = "testing")]
pub use contract::{FaultyTable, Stall, TableContract, TableFault, TableSubject, check as check_table_contract};
#[cfg(feature = "testing")]
pub use deaths::{Deaths, PowerLosses, WriteRows};
pub use driver::CommitDriver;
pub use files::DataFiles;
pub use footers::{FilesAt, KnownFile, Noted};
#[cfg(feature = "testing")]
pub use memory::MemoryTable;
#[cfg(feature = "testing")]
pub use python::run_python;
#[cfg(feature = "testing")]
pub use samples::{rows_of_every_type, write_reference};
pub use schema_mode::SchemaMode;
pub use types::{StoredTypes, plain_scalar, storable};
#[cfg(feature = "testing")]
pub use writer::TableWriter;

/// The digest in the marker of a barrier: the commit of that number was given up.
pub const VOID: &str = "void";

/// What a commit of lakemark leaves in the log or catalog of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marker {
    /// The number of the commit.
    pub n: u64,
    /// The digest of its set, or [`VOID`].
    pub digest: String,
    /// The version of the table that carries it.
    pub version: u64,
}

/// What happened to a table after some version of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct History {
    /// The markers of one store in it, oldest first.
    pub markers: Vec<Marker>,
    /// The first version in it that cannot be read any more: its log was cleaned up.
    pub gap: Option<u64>,
    /// What took the table back to an older state, in words.
    pub rolled_back: Option<String>,
    /// Whether every marker is in `markers`, whatever else is gone.
    pub has_all_markers: bool,
}

/// One commit: files and the marker that names their set, or no file and the marker of a barrier.
#[derive(Debug, Clone, Copy)]
pub struct TableCommit<'a> {
    /// The store.
    pub store: StoreId,
    /// The number.
    pub n: u64,
    /// The digest of the set, or [`VOID`].
    pub digest: &'a str,
    /// What it adds.
    pub files: &'a [OutputFile],
    /// What it removes: live in the base.
    pub leaving: &'a [OutputFile],
}

/// How an attempt to commit ended.
#[derive(Debug)]
pub enum Attempted {
    /// It is in the table, which is so now.
    Landed(TableState),
    /// Proven not to be in the table: somebody else's version is where it was to be.
    Conflict,
    /// The answer was lost, or said neither.
    Unknown(Error),
}

/// A table format behind its log or catalog. One value is one table; nothing of it is kept between two calls but what a
/// [`Base`](Self::Base) holds.
///
/// Every request is made once per call: retries that the caller does not see are switched off, since
/// [`CommitDriver`] decides after each what to do.
#[async_trait]
pub trait Table: Debug + Clone + Send + Sync + 'static {
    /// The table as one look shows it. A commit on it lands on exactly this version or not at all.
    type Base: Debug + Send + Sync;

    /// The sink's kind, as in the job.
    fn kind(&self) -> &str;

    /// Where it is.
    fn root(&self) -> &Root;

    /// What messages call it: where it is, and by which name it is known.
    fn name(&self) -> String {
        self.root().to_string()
    }

    /// The columns by which it is partitioned.
    fn partition_by(&self) -> &[String];

    /// The same table, partitioned by these columns.
    #[must_use]
    fn partitioned(&self, columns: &[String]) -> Self;

    /// What becomes of columns of the rows that the table lacks. Their files say so too, for whoever commits them.
    fn schema_mode(&self) -> SchemaMode {
        SchemaMode::Fail
    }

    /// The schema of rows of `schema` in the table's own types.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid), naming the column that the format has no type for.
    fn storable(&self, schema: &Schema) -> Result<Schema>;

    /// The same table, to be made of rows of `schema` when it is not there. `schema` is one that
    /// [`storable`](Self::storable) returned, which from then on gives what the table as it is calls them.
    ///
    /// # Errors
    /// When the table has to be looked at, and cannot be.
    async fn of_rows(&self, schema: &Schema) -> Result<Self>;

    /// Whether the empty string is a partition of its own, apart from null.
    fn has_empty_partition(&self) -> bool {
        false
    }

    /// Checks that files of the rows it is [of](Self::of_rows) can be added to `base`, and that this version of lakemark may
    /// write to it.
    ///
    /// # Errors
    /// [`Refused`](crate::ErrorKind::Refused) naming the column, [`Unsupported`](crate::ErrorKind::Unsupported) naming the
    /// feature of the table.
    fn check_fits(&self, base: &Self::Base) -> Result<()>;

    /// Checks that `files`, which wait for a commit and may be of another query, can be added to `base` together with those
    /// of the rows it is [of](Self::of_rows).
    ///
    /// # Errors
    /// [`Refused`](crate::ErrorKind::Refused) naming file and column.
    async fn check_files(&self, base: Option<&Self::Base>, files: &[OutputFile]) -> Result<()>;

    /// Whether a commit can remove files.
    fn can_remove(&self) -> bool {
        false
    }

    /// Checks that `files` can be removed from `base`: the table lets files be removed, and all of them are in it as they
    /// were written, no row of theirs deleted or moved.
    ///
    /// # Errors
    /// [`Refused`](crate::ErrorKind::Refused) naming the table's rule, or how many are not.
    async fn check_removable(&self, _base: Option<&Self::Base>, _files: &[OutputFile]) -> Result<()> {
        Ok(())
    }

    /// Notes what is known of a file that was just written, for its entry in the table.
    fn wrote(&self, output: &OutputFile, metadata: &ParquetMetaData);

    /// The table as it is now; `None`: there is none.
    ///
    /// # Errors
    /// When it cannot be read: never `None` for that.
    async fn load(&self) -> Result<Option<Self::Base>>;

    /// Id, version and schema of `base`; the driver adds the rest.
    fn state(&self, base: &Self::Base) -> TableState;

    /// The number of the last commit of `store` that `base` itself knows of, without its log. Some formats forget it.
    async fn last_marker(&self, base: &Self::Base, store: StoreId) -> Result<Option<u64>>;

    /// A store other than `store` that has committed to `base`, as far as that can be told without reading all of it.
    async fn other_store(&self, base: &Self::Base, store: Option<StoreId>) -> Result<Option<StoreId>>;

    /// What the versions after `since` (all, for `None`) up to `base` say.
    async fn history(&self, base: &Self::Base, since: Option<u64>, store: StoreId) -> Result<History>;

    /// How many of the files at `paths` (below the root) are live in `base`. Reads the whole of it, as a stream: asked only
    /// where nothing else tells.
    async fn live(&self, base: &Self::Base, paths: &[String]) -> Result<usize>;

    /// Whether no file is live in `base`.
    async fn is_empty(&self, base: &Self::Base) -> Result<bool>;

    /// Commits on exactly `base`, or makes the table with it when there is none. Columns that the files have and `base` lacks
    /// are added by the same commit, where the files [say so](SchemaMode::of_file). What is not fit for `base` is not sent,
    /// whatever rows it is [of](Self::of_rows): a driver by another job ends what it finds.
    ///
    /// # Errors
    /// Only for what is known not to have been sent: [`Refused`](crate::ErrorKind::Refused) naming file and column,
    /// [`Unsupported`](crate::ErrorKind::Unsupported) naming the feature of the table. Never for a barrier.
    async fn append(&self, base: Option<&Self::Base>, commit: &TableCommit<'_>) -> Result<Attempted>;
}
