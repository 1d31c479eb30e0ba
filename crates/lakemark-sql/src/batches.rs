//! Rows made into batches, bounded by rows and by bytes.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;
use lakemark::{Error, ErrorKind, Result};

/// A batch is handed on when its values have this many bytes, so that rows with large values do not fill the memory.
const BATCH_BYTES: usize = 16 << 20;

/// The size of the batch that is being filled.
#[derive(Debug, Default)]
pub(crate) struct Filled {
    pub(crate) rows: usize,
    pub(crate) bytes: usize,
}

impl Filled {
    pub(crate) fn is_full(&self, rows: usize) -> bool {
        self.rows >= rows || self.bytes >= BATCH_BYTES
    }
}

/// The batch of `columns`; a table without columns has a number of rows nevertheless.
pub(crate) fn batch(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
        .map_err(|error| Error::invalid("the rows do not fit the columns of the table").caused_by(error))
}

/// A value that cannot be read as what its column is.
pub(crate) fn misfit(place: &str, column: &str, declared: &str, why: &str) -> Error {
    Error::invalid(format!("a value of column `{column}` ({declared}) cannot be read: {why}"))
        .at(place)
        .safe("it was not read as a null or as something near it")
        .way("correct the value, or read a view that leaves it out or casts it")
}

/// Columns whose types have no exact equal.
pub(crate) fn unreadable(place: &str, columns: &[String], way: &str) -> Error {
    let columns = columns.join(", ");
    Error::new(ErrorKind::Unsupported, format!("these columns have types that cannot be read exactly: {columns}"))
        .at(place)
        .way(way)
        .way("or read a view without them")
}

/// The table is not what it was when the source was opened.
pub(crate) fn altered(place: &str) -> Error {
    Error::new(ErrorKind::ChangedSincePlanning, "the columns of the table have changed since it was opened")
        .at(place)
        .safe("no row was read")
        .way("run again")
}
