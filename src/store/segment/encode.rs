//! Segments as Parquet: one schema, three kinds of rows, each kind in row groups of its own. Writing them.

use std::sync::Arc;

use arrow_array::builder::{
    BooleanBuilder, Int64Builder, ListBuilder, StringBuilder, StructBuilder, UInt8Builder, UInt64Builder,
};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef};
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

use super::rows::{CheckpointRow, Decision, EventRow, FileRow, SegmentData};
use crate::error::{Error, Result};
use crate::identity::{CheckpointId, Evidence};
use crate::store::seal::{OutputFile, Upload};

pub(super) const FILE: u8 = 0;
pub(super) const CHECKPOINT: u8 = 1;
pub(super) const EVENT: u8 = 2;

fn output_fields() -> Fields {
    Fields::from(vec![
        Field::new("name", DataType::Utf8, false),
        Field::new("folder", DataType::Utf8, false),
        Field::new("size", DataType::UInt64, false),
        Field::new("rows", DataType::UInt64, false),
        Field::new("upload", DataType::Utf8, true),
    ])
}

/// The columns; `docs/format.md` describes them.
pub(super) fn schema() -> SchemaRef {
    let outputs = Field::new("item", DataType::Struct(output_fields()), true);
    Arc::new(Schema::new(vec![
        Field::new("kind", DataType::UInt8, false),
        Field::new("source", DataType::Utf8, true),
        Field::new("path", DataType::Utf8, true),
        Field::new("size", DataType::UInt64, true),
        Field::new("etag", DataType::Utf8, true),
        Field::new("mtime", DataType::Int64, true),
        Field::new("coverage", DataType::Utf8, true),
        Field::new("group_rows", DataType::Utf8, true),
        Field::new("digest", DataType::Utf8, true),
        Field::new("unsettled", DataType::Boolean, true),
        Field::new("epoch", DataType::UInt64, false),
        Field::new("input", DataType::UInt64, true),
        Field::new("sequence", DataType::UInt64, true),
        Field::new("attempt", DataType::Utf8, true),
        Field::new("decision", DataType::Utf8, true),
        Field::new("at", DataType::Int64, true),
        Field::new("rows_in", DataType::UInt64, true),
        Field::new("rows_out", DataType::UInt64, true),
        Field::new("rows_failed", DataType::UInt64, true),
        Field::new("commit", DataType::UInt64, true),
        Field::new("outputs", DataType::List(Arc::new(outputs)), true),
        Field::new("version", DataType::UInt64, true),
        Field::new("event", DataType::Utf8, true),
    ]))
}

/// Builders of every column, in the schema's order.
struct Columns {
    kind: UInt8Builder,
    text: [StringBuilder; 8],
    number: [UInt64Builder; 9],
    signed: [Int64Builder; 2],
    unsettled: BooleanBuilder,
    outputs: ListBuilder<StructBuilder>,
}

// Positions within the builders of one type.
const SOURCE: usize = 0;
const PATH: usize = 1;
const ETAG: usize = 2;
const COVERAGE: usize = 3;
const GROUP_ROWS: usize = 4;
const DIGEST: usize = 5;
const ATTEMPT_OR_EVENT: usize = 6;
const DECISION: usize = 7;
const SIZE: usize = 0;
const EPOCH: usize = 1;
const INPUT: usize = 2;
const SEQUENCE: usize = 3;
const ROWS_IN: usize = 4;
const ROWS_OUT: usize = 5;
const ROWS_FAILED: usize = 6;
const COMMIT: usize = 7;
const VERSION: usize = 8;
const MTIME: usize = 0;
const AT: usize = 1;

impl Columns {
    fn new() -> Self {
        Self {
            kind: UInt8Builder::new(),
            text: Default::default(),
            number: Default::default(),
            signed: Default::default(),
            unsettled: BooleanBuilder::new(),
            outputs: ListBuilder::new(StructBuilder::from_fields(output_fields(), 0)),
        }
    }

    /// Starts a row: what is not set by the returned row is null.
    fn row(&mut self, kind: u8) -> Row<'_> {
        self.kind.append_value(kind);
        Row {
            columns: self,
            text: [const { None }; 8],
            number: [None; 9],
            signed: [None; 2],
            unsettled: None,
            outputs: None,
        }
    }

    fn finish(mut self, kind: u8) -> Result<RecordBatch> {
        let [source, path, etag, coverage, group_rows, digest, attempt_or_event, decision] =
            self.text.each_mut().map(|b| Arc::new(b.finish()) as ArrayRef);
        let [size, epoch, input, sequence, rows_in, rows_out, rows_failed, commit, version] =
            self.number.each_mut().map(|b| Arc::new(b.finish()) as ArrayRef);
        let [mtime, at] = self.signed.each_mut().map(|b| Arc::new(b.finish()) as ArrayRef);
        let none = arrow_array::new_null_array(&DataType::Utf8, attempt_or_event.len());
        let (attempt, event) = if kind == EVENT { (none, attempt_or_event) } else { (attempt_or_event, none) };
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.kind.finish()),
            source,
            path,
            size,
            etag,
            mtime,
            coverage,
            group_rows,
            digest,
            Arc::new(self.unsettled.finish()),
            epoch,
            input,
            sequence,
            attempt,
            decision,
            at,
            rows_in,
            rows_out,
            rows_failed,
            commit,
            Arc::new(self.outputs.finish()),
            version,
            event,
        ];
        RecordBatch::try_new(schema(), columns).map_err(unwritable)
    }
}

/// One row on its way into the builders.
struct Row<'a> {
    columns: &'a mut Columns,
    text: [Option<String>; 8],
    number: [Option<u64>; 9],
    signed: [Option<i64>; 2],
    unsettled: Option<bool>,
    outputs: Option<&'a [OutputFile]>,
}

impl Row<'_> {
    fn id(&mut self, id: CheckpointId) {
        self.number[EPOCH] = Some(id.epoch.0);
        self.number[INPUT] = Some(u64::from(id.input.0));
        self.number[SEQUENCE] = Some(u64::from(id.sequence));
    }

    fn end(self) {
        let columns = self.columns;
        for (builder, value) in columns.text.iter_mut().zip(self.text) {
            builder.append_option(value);
        }
        for (builder, value) in columns.number.iter_mut().zip(self.number) {
            builder.append_option(value);
        }
        for (builder, value) in columns.signed.iter_mut().zip(self.signed) {
            builder.append_option(value);
        }
        columns.unsettled.append_option(self.unsettled);
        let list = &mut columns.outputs;
        for output in self.outputs.unwrap_or_default() {
            let item = list.values();
            // The builders' types are those of `output_fields`, by position.
            if let Some(b) = item.field_builder::<StringBuilder>(0) {
                b.append_value(&output.name);
            }
            if let Some(b) = item.field_builder::<StringBuilder>(1) {
                b.append_value(&output.folder);
            }
            if let Some(b) = item.field_builder::<UInt64Builder>(2) {
                b.append_value(output.size);
            }
            if let Some(b) = item.field_builder::<UInt64Builder>(3) {
                b.append_value(output.rows);
            }
            if let Some(b) = item.field_builder::<StringBuilder>(4) {
                b.append_option(output.upload.as_ref().map(Upload::to_text));
            }
            item.append(true);
        }
        list.append(self.outputs.is_some());
    }
}

fn unwritable(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::invalid("a segment cannot be encoded").caused_by(error)
}

/// `rows x times` pairs of run lengths as text, `2500x4,17x1`.
fn runs_text(evidence: &Evidence) -> String {
    let runs: Vec<_> = evidence.group_runs.iter().map(|(rows, times)| format!("{rows}x{times}")).collect();
    runs.join(",")
}

fn file_batch(rows: &[FileRow]) -> Result<RecordBatch> {
    let mut columns = Columns::new();
    for FileRow { checkpoint, sealed } in rows {
        let mut row = columns.row(FILE);
        row.id(*checkpoint);
        row.text[SOURCE] = Some(sealed.source.to_string());
        row.text[PATH] = Some(sealed.file.path.to_string());
        row.text[ETAG] = sealed.file.etag.as_ref().map(ToString::to_string);
        row.text[COVERAGE] = Some(sealed.coverage.to_string());
        row.text[GROUP_ROWS] = Some(runs_text(&sealed.evidence));
        row.text[DIGEST] = Some(sealed.evidence.digest.clone());
        row.number[SIZE] = Some(sealed.file.size);
        row.signed[MTIME] = sealed.file.mtime;
        row.unsettled = Some(sealed.unsettled);
        row.end();
    }
    columns.finish(FILE)
}

fn checkpoint_batch(rows: &[CheckpointRow]) -> Result<RecordBatch> {
    let mut columns = Columns::new();
    for checkpoint in rows {
        let mut row = columns.row(CHECKPOINT);
        row.id(checkpoint.id);
        row.text[ATTEMPT_OR_EVENT] = Some(checkpoint.attempt.to_string());
        row.text[SOURCE] = checkpoint.source.as_deref().map(str::to_owned);
        row.text[DECISION] = Some(decision_text(checkpoint.decision).to_owned());
        row.signed[AT] = Some(checkpoint.sealed_at);
        row.number[ROWS_IN] = Some(checkpoint.counts.rows_in);
        row.number[ROWS_OUT] = Some(checkpoint.counts.rows_out);
        row.number[ROWS_FAILED] = Some(checkpoint.counts.rows_failed);
        row.number[COMMIT] = checkpoint.commit;
        row.outputs = Some(&checkpoint.outputs);
        row.end();
    }
    columns.finish(CHECKPOINT)
}

fn event_batch(rows: &[EventRow]) -> Result<RecordBatch> {
    let mut columns = Columns::new();
    for event in rows {
        let mut row = columns.row(EVENT);
        row.number[EPOCH] = Some(event.epoch.0);
        row.number[VERSION] = Some(event.version.0);
        row.signed[AT] = Some(event.at);
        row.text[ATTEMPT_OR_EVENT] = Some(event.event.to_text()?);
        row.end();
    }
    columns.finish(EVENT)
}

fn decision_text(decision: Decision) -> &'static str {
    match decision {
        Decision::Accepted => "accepted",
        Decision::Rejected => "rejected",
        Decision::Withdrawn => "withdrawn",
        Decision::Blessed => "blessed",
    }
}

fn compression() -> Result<Compression> {
    // A compressor for each of the columns of a few rows takes longer than all else in a simulation.
    #[cfg(feature = "testing")]
    if crate::injected::is_here() {
        return Ok(Compression::UNCOMPRESSED);
    }
    Ok(Compression::ZSTD(ZstdLevel::try_new(3).map_err(unwritable)?))
}

/// The bytes of a segment with `data`, whose rows are sorted.
pub fn encode(data: &SegmentData) -> Result<Bytes> {
    let plain = |name: &str| ColumnPath::from(name);
    let properties = WriterProperties::builder()
        .set_compression(compression()?)
        .set_created_by("lakemark".into())
        // Segments are read whole: statistics and offsets of small pages would be most of a small segment.
        .set_statistics_enabled(EnabledStatistics::None)
        .set_offset_index_disabled(true)
        .set_column_dictionary_enabled(plain("path"), false)
        .set_column_encoding(plain("path"), Encoding::DELTA_BYTE_ARRAY)
        .set_column_dictionary_enabled(plain("digest"), false)
        .set_column_dictionary_enabled(plain("event"), false)
        .set_column_dictionary_enabled(plain("mtime"), false)
        .set_column_encoding(plain("mtime"), Encoding::DELTA_BINARY_PACKED)
        .set_column_dictionary_enabled(plain("size"), false)
        .set_column_encoding(plain("size"), Encoding::DELTA_BINARY_PACKED)
        .build();
    let mut writer = ArrowWriter::try_new(Vec::new(), schema(), Some(properties)).map_err(unwritable)?;
    for batch in [file_batch(&data.files)?, checkpoint_batch(&data.checkpoints)?, event_batch(&data.events)?] {
        writer.write(&batch).map_err(unwritable)?;
        writer.flush().map_err(unwritable)?;
    }
    writer.into_inner().map(Bytes::from).map_err(unwritable)
}
