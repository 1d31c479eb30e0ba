//! Files of tables of table formats, and what commits do to them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::file::FileVersion;

/// The token of a file that no deletes go with.
pub const IMMUTABLE: &str = "immutable";

/// A file of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableFile {
    /// Its identity. The token says which deletes go with it; [`IMMUTABLE`]: none.
    pub file: FileVersion,
    /// The values of the columns that are not in the file, as text; no value is null.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<Arc<str>, Option<Arc<str>>>,
}

impl TableFile {
    /// Whether the two are one file. Their sizes are compared where both are known: not every log tells that of a file that
    /// left.
    pub fn is_same(&self, other: &FileVersion) -> bool {
        let same_size = self.file.size == other.size || self.file.size == 0 || other.size == 0;
        self.file.path == other.path && self.file.etag.is_some() && self.file.etag == other.etag && same_size
    }
}

/// Up to where a table was taken into account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TablePosition {
    /// See [`TableSnapshot`](crate::TableSnapshot).
    pub id: String,
    /// See [`TableSnapshot`](crate::TableSnapshot).
    pub version: u64,
    /// See [`TableSnapshot`](crate::TableSnapshot).
    pub at: String,
    /// See [`TableSnapshot`](crate::TableSnapshot).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mark: String,
    /// A digest of the set of files with finished work that the table did not have at that version.
    pub absent: String,
}

/// What one commit did to files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableStep {
    /// The version that it made.
    pub at: String,
    /// What it calls itself; for people.
    pub operation: String,
    /// Whether the rows of all `removed` files together are those of all `added` ones: a compaction, a clustering.
    pub same_rows: bool,
    /// Whether it brought back what was in the table before (a restore): such files can hold rows of files that came later.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub brings_back: bool,
    /// Files that left. Their sizes are 0 where the table does not say.
    pub removed: Vec<TableFile>,
    /// Files that came.
    pub added: Vec<TableFile>,
}
