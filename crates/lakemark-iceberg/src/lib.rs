//! Iceberg tables as destinations of lakemark: one snapshot a commit, each exactly once.
//!
//! ```no_run
//! use std::collections::BTreeMap;
//! use std::sync::Arc;
//! use lakemark::{OutputSink, StorageOptions};
//! use lakemark_iceberg::CatalogOptions;
//!
//! # fn main() -> lakemark::Result<()> {
//! let catalog = [("type", "sql"), ("uri", "sqlite:////lake/catalog.db"), ("table", "lake.docs_upper")];
//! let catalog = CatalogOptions::parse(&catalog.map(|(key, value)| (key.into(), value.into())).into())?;
//! let table: Arc<dyn OutputSink> =
//!     lakemark_iceberg::connect("/lake/docs_upper", &StorageOptions::default(), catalog)?;
//! # Ok(())
//! # }
//! ```
//!
//! A commit is an append on the snapshot it was decided on, or none: the transaction sees the table as it was checked,
//! whatever it is by then, so that the catalog refuses what would land on another one. The snapshot's summary carries store,
//! number and digest of the set; the table property `lakemark.<store id>` carries the last number and digest, and survives
//! when snapshots expire. By these a driver that lost an answer, or took over, finds out what happened. Nothing is ever
//! retried behind its back, and what the catalog says it did is looked at before it is believed.
//!
//! Metadata and manifests are written by the iceberg crate, through lakemark's own storage: on a disk they are durable before
//! the catalog names them; what is not finished waits in `unfinished` below the table, where no reader of it looks.

mod appended;
mod catalog;
mod facts;
mod history;
mod place;
mod schema;
mod source;
mod storage;
mod table;

use std::sync::Arc;

use iceberg::io::StorageFactory;
use lakemark::{CommitDriver, DataFiles, OutputSink, Result, Root, StorageOptions};

pub use catalog::CatalogOptions;
pub use source::IcebergSource;
pub use table::{IcebergBase, IcebergTable};

/// The sink's kind, as jobs and stores name it.
pub const KIND: &str = "iceberg";

/// The table at `url` as a destination, reached with `options` and registered in `catalog`. Nothing is asked of it yet.
/// Rows with columns that it lacks are refused; [`IcebergTable::with_schema_mode`] adds them.
///
/// # Errors
/// As [`IcebergTable::connect`].
pub fn connect(url: &str, options: &StorageOptions, catalog: CatalogOptions) -> Result<Arc<dyn OutputSink>> {
    let table = IcebergTable::connect(url, options, catalog)?;
    Ok(Arc::new(CommitDriver::new(table, data_files(url, options)?)))
}

/// The storage of the table at `url`, for a catalog that is given to [`IcebergTable::in_catalog`]: on a disk, durable.
///
/// # Errors
/// As [`IcebergTable::connect`].
pub fn storage(url: &str, options: &StorageOptions) -> Result<Arc<dyn StorageFactory>> {
    Ok(Arc::new(storage::TableStorage::new(place::Place::connect(url, options)?)))
}

/// The data files of the table at `url`.
///
/// # Errors
/// As [`DataFiles::connect`].
pub fn data_files(url: &str, options: &StorageOptions) -> Result<DataFiles> {
    DataFiles::connect(KIND, &Root::parse(url)?.join(place::DATA).to_string(), options)
}
