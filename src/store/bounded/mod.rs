//! Reading the Parquet objects of a store, whatever their bytes: within memory in proportion to their size, and without a
//! panic that goes further.
//!
//! The digests in manifests keep damage out; what is here is for bytes that somebody wrote on purpose. Parquet's encodings
//! can say a lot in few bytes: how much is judged before it is decoded, by rules that no object of lakemark comes near.

mod pages;

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::RecordBatch;
use bytes::Bytes;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::basic::Compression;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataReader};

use crate::error::{Error, Result};
use crate::thrift::schema_shape;

/// Elements of a schema: a segment's has 31.
const SCHEMA: usize = 128;
/// What all text of one batch takes at most.
const BATCH: u64 = 32 << 20;
/// Rows of one batch at most.
const ROWS: u64 = 8_192;
/// The length of a footer and the magic.
const SUFFIX: usize = 8;

/// What an object of some bytes may become.
#[derive(Debug, Clone, Copy)]
struct Allowance {
    /// Bytes of all its pages before compression.
    pages: u64,
    /// Values in one column.
    values: u64,
    /// Bytes of all its batches, after decoding.
    decoded: u64,
}

impl Allowance {
    fn of(bytes: u64) -> Self {
        let scaled = |base: u64, each: u64| bytes.saturating_mul(each).saturating_add(base);
        Self { pages: scaled(16 << 20, 1 << 10), values: scaled(1 << 16, 1 << 6), decoded: scaled(32 << 20, 1 << 12) }
    }
}

/// Decodes the object `bytes`, a `kind` found at `place`, and hands its batches to `each`.
///
/// # Errors
/// [`Corrupt`](crate::ErrorKind::Corrupt) naming `place`, also where decoding panics; and those of `each`.
pub(super) fn read(
    kind: &str,
    place: &str,
    bytes: Bytes,
    mut each: impl FnMut(&RecordBatch) -> Result<()>,
) -> Result<()> {
    let damaged = |why: &dyn Display| Error::corrupt(place, format!("this {kind} is damaged: {why}"));
    let decode = || {
        let allowance = Allowance::of(bytes.len() as u64);
        let metadata = footer(&bytes).map_err(|why| damaged(&why))?;
        let batches = pages::check(&bytes, &metadata, allowance).map_err(|why| damaged(&why))?;
        // The Arrow schema beside Parquet's own would be one more thing to decode, and says nothing new.
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let metadata = ArrowReaderMetadata::try_new(Arc::new(metadata), options).map_err(|e| damaged(&e))?;
        let mut left = allowance.decoded;
        for (group, rows) in batches.into_iter().enumerate() {
            let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(bytes.clone(), metadata.clone());
            let reader = reader.with_row_groups(vec![group]).with_batch_size(rows);
            for batch in reader.build().map_err(|e| damaged(&e))? {
                let batch = batch.map_err(|e| damaged(&e))?;
                left = left
                    .checked_sub(batch.get_array_memory_size() as u64)
                    .ok_or_else(|| damaged(&"it holds far more than its size allows"))?;
                each(&batch)?;
            }
        }
        Ok(())
    };
    // The decoders of the parquet crate check most of what they read by asserting it.
    catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(|_| Err(damaged(&"its decoder stopped")))
}

/// The footer of `bytes`, if it can be true of them.
fn footer(bytes: &Bytes) -> Result<ParquetMetaData, String> {
    let too_short = || format!("it has {} bytes, too few for a Parquet file", bytes.len());
    let (rest, suffix) = bytes.split_last_chunk::<SUFFIX>().ok_or_else(too_short)?;
    let [a, b, c, d, magic @ ..] = *suffix;
    if magic != *b"PAR1" {
        return Err("it does not end in a Parquet footer".to_owned());
    }
    let length = u32::from_le_bytes([a, b, c, d]) as usize;
    let start = rest.len().checked_sub(length).ok_or("its footer is longer than it is")?;
    let thrift = &rest[start..];
    // Lists that claim more elements than there are bytes for do not get past this.
    match schema_shape(thrift) {
        Some((elements, _)) if elements <= SCHEMA => {}
        Some((elements, _)) => return Err(format!("its schema has {elements} elements; {SCHEMA} is the limit")),
        None => return Err("its footer is not what Thrift writes".to_owned()),
    }
    let metadata = ParquetMetaDataReader::decode_metadata(thrift).map_err(|e| e.to_string())?;
    for (i, group) in metadata.row_groups().iter().enumerate() {
        if group.num_rows() < 0 || !group.columns().iter().all(|column| fits(column, start)) {
            return Err(format!("row group {i} claims what is not there"));
        }
    }
    Ok(metadata)
}

/// Whether the pages of a column chunk lie before the footer, compressed as lakemark does it.
fn fits(column: &ColumnChunkMetaData, end: usize) -> bool {
    let start = column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset());
    let length = column.compressed_size();
    column.file_path().is_none()
        && matches!(column.compression(), Compression::UNCOMPRESSED | Compression::ZSTD(_))
        && start >= 0
        && length >= 0
        && start.checked_add(length).is_some_and(|last| last as u64 <= end as u64)
}

#[cfg(test)]
mod tests;
