//! Row keys as a Parquet object: what a seal stages, and what folds make of many.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{UInt32Type, UInt64Type};
use arrow_array::{ArrayRef, FixedSizeBinaryArray, RecordBatch, UInt32Array, UInt64Array, new_null_array};
use arrow_buffer::Buffer;
use arrow_schema::{DataType, Field, Schema};
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use parquet::arrow::arrow_writer::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

use super::rows::KeyRows;
use crate::error::{Error, Result};
use crate::identity::{CheckpointId, Epoch, InputId};

const FINGERPRINT: &str = "fingerprint";
/// Columns before the values: the fingerprint, and the checkpoint's id in three parts.
const FIXED: usize = 4;

/// Keys as the bytes of a Parquet file, in their order. Fingerprints are sixteen bytes, highest first, so that their order is
/// that of the bytes.
///
/// # Errors
/// [`Invalid`](crate::ErrorKind::Invalid) when the values are no text.
pub(crate) fn encode_keys(rows: &KeyRows) -> Result<Bytes> {
    let mut bytes = Vec::with_capacity(rows.len() * 16);
    rows.fingerprints.iter().for_each(|fingerprint| bytes.extend_from_slice(&fingerprint.to_be_bytes()));
    let id = |row: &u32| rows.checkpoints[*row as usize];
    let epochs: UInt64Array = rows.covered_by.iter().map(|row| id(row).epoch.0).collect();
    let inputs: UInt32Array = rows.covered_by.iter().map(|row| id(row).input.0).collect();
    let sequences: UInt32Array = rows.covered_by.iter().map(|row| id(row).sequence).collect();
    let fingerprints = FixedSizeBinaryArray::try_new(16, Buffer::from_vec(bytes), None).map_err(cannot)?;
    let mut columns: Vec<ArrayRef> =
        vec![Arc::new(fingerprints), Arc::new(epochs), Arc::new(inputs), Arc::new(sequences)];
    let mut fields = vec![
        Field::new(FINGERPRINT, DataType::FixedSizeBinary(16), false),
        Field::new("epoch", DataType::UInt64, false),
        Field::new("input", DataType::UInt32, false),
        Field::new("sequence", DataType::UInt32, false),
    ];
    for (i, column) in rows.values.iter().enumerate() {
        fields.push(Field::new(format!("value_{i}"), DataType::Utf8, true));
        columns.push(Arc::clone(column));
    }
    let schema = Arc::new(Schema::new(fields));
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns).map_err(cannot)?;
    let fingerprint = ColumnPath::from(FINGERPRINT);
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        // They are as good as random.
        .set_column_compression(fingerprint.clone(), Compression::UNCOMPRESSED)
        .set_column_dictionary_enabled(fingerprint, false)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_offset_index_disabled(true)
        .build();
    let mut writer = ArrowWriter::try_new(Vec::new(), schema, Some(properties)).map_err(cannot)?;
    writer.write(&batch).map_err(cannot)?;
    Ok(writer.into_inner().map_err(cannot)?.into())
}

/// The keys in the bytes of an object at `place`, with their values.
///
/// # Errors
/// [`Corrupt`](crate::ErrorKind::Corrupt) for what [`encode_keys`] does not make.
pub(crate) fn decode_keys(place: &str, bytes: Bytes) -> Result<KeyRows> {
    let mut rows = KeyRows::default();
    let mut values: Vec<Vec<ArrayRef>> = Vec::new();
    let mut places = std::collections::HashMap::new();
    for batch in open(place, bytes, None)? {
        let batch = batch.map_err(|error| damaged(place).caused_by(error))?;
        take_fingerprints(place, &batch, &mut rows.fingerprints)?;
        for id in ids(place, &batch)? {
            let covered_by = *places.entry(id).or_insert_with(|| {
                rows.checkpoints.push(id);
                rows.checkpoints.len() as u32 - 1
            });
            rows.covered_by.push(covered_by);
        }
        values.resize(batch.num_columns() - FIXED, Vec::new());
        for (column, found) in values.iter_mut().zip(&batch.columns()[FIXED..]) {
            if found.data_type() != &DataType::Utf8 {
                return Err(damaged(place));
            }
            column.push(Arc::clone(found));
        }
    }
    let joined = |column: &Vec<ArrayRef>| {
        let parts: Vec<_> = column.iter().map(|part| &**part).collect();
        match parts.as_slice() {
            [] => Ok(new_null_array(&DataType::Utf8, 0)),
            parts => arrow_select::concat::concat(parts).map_err(|error| damaged(place).caused_by(error)),
        }
    };
    rows.values = values.iter().map(joined).collect::<Result<_>>()?;
    Ok(rows)
}

/// Hands the fingerprints in the bytes of an object at `place` to `take`, batch by batch, without those of checkpoints that
/// `is_dead`.
pub(super) fn read_fingerprints(
    place: &str,
    bytes: Bytes,
    is_dead: Option<&dyn Fn(CheckpointId) -> bool>,
    mut take: impl FnMut(&[u128]) -> Result<()>,
) -> Result<()> {
    let columns = if is_dead.is_some() { FIXED } else { 1 };
    let mut fingerprints = Vec::new();
    for batch in open(place, bytes, Some(columns))? {
        let batch = batch.map_err(|error| damaged(place).caused_by(error))?;
        fingerprints.clear();
        take_fingerprints(place, &batch, &mut fingerprints)?;
        if let Some(is_dead) = is_dead {
            let mut ids = ids(place, &batch)?;
            fingerprints.retain(|_| ids.next().is_some_and(|id| !is_dead(id)));
        }
        take(&fingerprints)?;
    }
    Ok(())
}

/// A reader of the first `columns`, or of all.
fn open(place: &str, bytes: Bytes, columns: Option<usize>) -> Result<ParquetRecordBatchReader> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(bytes).map_err(|error| damaged(place).caused_by(error))?;
    let found = builder.parquet_schema().columns().len();
    if found < FIXED || builder.schema().fields().len() != found || builder.schema().field(0).name() != FINGERPRINT {
        return Err(damaged(place));
    }
    let mask = match columns {
        Some(columns) => ProjectionMask::leaves(builder.parquet_schema(), 0..columns),
        None => ProjectionMask::all(),
    };
    builder.with_projection(mask).with_batch_size(1 << 16).build().map_err(|error| damaged(place).caused_by(error))
}

fn take_fingerprints(place: &str, batch: &RecordBatch, into: &mut Vec<u128>) -> Result<()> {
    let found = batch.column(0).as_fixed_size_binary_opt().filter(|found| found.value_length() == 16);
    let found = found.filter(|_| batch.column(0).null_count() == 0).ok_or_else(|| damaged(place))?;
    let (chunks, _) = found.value_data().as_chunks::<16>();
    into.extend(chunks.iter().map(|chunk| u128::from_be_bytes(*chunk)));
    Ok(())
}

/// The checkpoint of each row.
fn ids<'a>(place: &str, batch: &'a RecordBatch) -> Result<impl Iterator<Item = CheckpointId> + use<'a>> {
    let epochs = batch.column(1).as_primitive_opt::<UInt64Type>().ok_or_else(|| damaged(place))?;
    let number = |i: usize| batch.column(i).as_primitive_opt::<UInt32Type>().ok_or_else(|| damaged(place));
    let (inputs, sequences) = (number(2)?, number(3)?);
    let all = epochs.values().iter().zip(inputs.values()).zip(sequences.values());
    Ok(all.map(|((epoch, input), sequence)| CheckpointId {
        epoch: Epoch(*epoch),
        input: InputId(*input),
        sequence: *sequence,
    }))
}

fn cannot(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::invalid("keys cannot be written as Parquet").caused_by(error).safe("nothing was written")
}

fn damaged(place: &str) -> Error {
    Error::corrupt(place, "these row keys cannot be read")
}
