//! One store's side of an Iceberg table in a database.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_schema::Schema;
use lakemark::{CommitDriver, OutputSink, SchemaMode, StorageOptions, TableWriter};
use lakemark_iceberg::IcebergTable;

use crate::subject::{Subject, options};

/// Where a table and its catalog are.
pub struct Site {
    folder: tempfile::TempDir,
    pub at: PathBuf,
    pub database: PathBuf,
}

impl Site {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { at: folder.path().join("ta ble"), database: folder.path().join("catalog.db"), folder }
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn uri(&self) -> String {
        format!("sqlite:{}", self.database.display())
    }

    /// The table as a destination.
    pub fn sink(&self) -> Arc<dyn OutputSink> {
        let (url, catalog) = (self.at.to_str().unwrap(), options("sql", &self.uri()));
        lakemark_iceberg::connect(url, &StorageOptions::default(), catalog).unwrap()
    }

    /// The table as a destination that adds columns.
    pub fn merging(&self) -> Arc<dyn OutputSink> {
        let (url, none) = (self.at.to_str().unwrap(), StorageOptions::default());
        let table = IcebergTable::connect(url, &none, options("sql", &self.uri())).unwrap();
        let files = lakemark_iceberg::data_files(url, &none).unwrap();
        Arc::new(CommitDriver::new(table.with_schema_mode(SchemaMode::Merge), files))
    }

    /// A writer of rows of `schema`.
    pub async fn writer(&self, schema: &Arc<Schema>, partition_by: &[&str]) -> TableWriter {
        TableWriter::new(self.sink(), schema, partition_by).await
    }

    /// The table, as somebody else works on it.
    pub async fn subject(&self) -> Subject {
        let url = self.at.to_str().unwrap();
        let table = IcebergTable::connect(url, &StorageOptions::default(), options("sql", &self.uri())).unwrap();
        Subject::in_database(table, url, &format!("file://{url}"), &self.database).await
    }
}

/// What every script for pyiceberg begins with: the database and the table are its first argument.
pub const PYICEBERG: &str = "
import sys
from pyiceberg.catalog.sql import SqlCatalog
catalog = SqlCatalog('default', uri='sqlite:///' + sys.argv[1])
table = catalog.load_table('lake.docs')
";
