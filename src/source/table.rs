//! Tables of table formats as sources: their logs say which files they have, so nothing is listed and no file is asked of
//! before it is read.

use std::fmt;

use arrow_schema::SchemaRef;
use async_trait::async_trait;

use super::lake::Lake;
use super::listing::Listing;
use crate::coverage::RangeSet;
use crate::error::Result;
use crate::identity::{FileVersion, TableFile, TablePosition, TableStep};

/// A table of a table format, to read from.
///
/// Its files are immutable by their specification: one is known by path, size and the deletes that go with it, which are
/// its token. What a commit of others did to the files is told as [steps](TableStep).
#[async_trait]
pub trait SourceTable: fmt::Debug + Send + Sync {
    /// The format, as jobs and stores name it.
    fn kind(&self) -> &'static str;

    /// Where its files are, as a lake [of a table](Lake::of_table).
    fn lake(&self) -> &Lake;

    /// The table as it is now.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) for a table that cannot be read exactly, saying why;
    /// [`Unavailable`](crate::ErrorKind::Unavailable) when it cannot be read now.
    async fn snapshot(&self) -> Result<TableSnapshot>;

    /// What the commits after `since` did, up to `to`, oldest first.
    ///
    /// # Errors
    /// As [`snapshot`](Self::snapshot). What the table does not say any more is a [`Gap`](TableHistory::Gap), no error.
    async fn history(&self, since: &TablePosition, to: &TableSnapshot) -> Result<TableHistory>;

    /// The rows of `file` that are deleted, as ordinals from the start of the file.
    ///
    /// # Errors
    /// When they cannot be read: then no row of the file may be.
    async fn deleted(&self, file: &FileVersion) -> Result<RangeSet>;
}

/// A table at one version.
#[derive(Debug, Clone)]
pub struct TableSnapshot {
    /// Which table it is, and at which version.
    pub id: String,
    /// The version, by which two snapshots of one table are in order.
    pub version: u64,
    /// The same as the format names it; for people, and to find the version again.
    pub at: String,
    /// What tells this version from another one of the same number; empty where no number is used twice.
    pub mark: String,
    /// Its files, ascending by path.
    pub files: Vec<TableFile>,
    /// Its columns.
    pub schema: SchemaRef,
    /// Those of its columns that are not in the files, but in [`TableFile::values`].
    pub partition_by: Vec<String>,
    /// Whether each file has each column: one that lacks one has it under another name.
    pub has_all_columns: bool,
}

impl TableSnapshot {
    /// Its files, as a listing that is complete.
    pub fn listing(&self) -> Listing {
        let files = self.files.iter().map(|file| file.file.clone()).collect();
        Listing { files, taken_at: crate::time::now_ns(), ..Listing::default() }
    }

    /// The file at `path`.
    pub fn find(&self, path: &str) -> Option<&TableFile> {
        let at = self.files.binary_search_by(|file| (*file.file.path).cmp(path)).ok()?;
        self.files.get(at)
    }

    /// Whether it has exactly this file.
    pub fn has(&self, file: &TableFile) -> bool {
        self.find(&file.file.path).is_some_and(|found| found.is_same(&file.file))
    }
}

/// What happened to a table between two versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TableHistory {
    /// All of it.
    Steps(Vec<TableStep>),
    /// A part of it is not known any more: what is missing.
    Gap(String),
}
