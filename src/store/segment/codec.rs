//! Segments as Parquet: one schema, three kinds of rows, each kind in row groups of its own.

use std::sync::Arc;

use arrow_array::builder::{
    BooleanBuilder, Int64Builder, ListBuilder, StringBuilder, StructBuilder, UInt8Builder, UInt64Builder,
};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt8Type, UInt64Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef};
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

use super::rows::{CheckpointRow, Decision, EventRow, FileRow, SegmentData};
use crate::error::{Error, Result};
use crate::identity::{CheckpointId, Epoch, Evidence, FileVersion, InputId, ManifestVersion};
use crate::store::seal::{Counts, OutputFile, SealedFile, Upload};

const FILE: u8 = 0;
const CHECKPOINT: u8 = 1;
const EVENT: u8 = 2;

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

fn parse_runs(text: &str) -> Option<Vec<(u64, u64)>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    text.split(',').map(|run| run.split_once('x').and_then(|(r, t)| Some((r.parse().ok()?, t.parse().ok()?)))).collect()
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

/// The bytes of a segment with `data`, whose rows are sorted.
pub fn encode(data: &SegmentData) -> Result<Bytes> {
    let plain = |name: &str| ColumnPath::from(name);
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3).map_err(unwritable)?))
        .set_created_by("lakemark".into())
        // Segments are read whole: statistics and offsets of small pages would be most of a small segment.
        .set_statistics_enabled(EnabledStatistics::None)
        .set_offset_index_disabled(true)
        .set_column_dictionary_enabled(plain("path"), false)
        .set_column_encoding(plain("path"), Encoding::DELTA_BYTE_ARRAY)
        .set_column_dictionary_enabled(plain("digest"), false)
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

/// A batch with its columns at hand.
struct Reader<'a>(&'a RecordBatch);

impl Reader<'_> {
    fn column(&self, name: &str) -> Option<&ArrayRef> {
        self.0.column_by_name(name)
    }

    fn text(&self, name: &str, row: usize) -> Option<&str> {
        let column = self.column(name)?.as_string_opt::<i32>()?;
        column.is_valid(row).then(|| column.value(row))
    }

    fn number(&self, name: &str, row: usize) -> Option<u64> {
        let column = self.column(name)?.as_primitive_opt::<UInt64Type>()?;
        column.is_valid(row).then(|| column.value(row))
    }

    fn signed(&self, name: &str, row: usize) -> Option<i64> {
        let column = self.column(name)?.as_primitive_opt::<Int64Type>()?;
        column.is_valid(row).then(|| column.value(row))
    }

    fn id(&self, row: usize) -> Option<CheckpointId> {
        Some(CheckpointId {
            epoch: Epoch(self.number("epoch", row)?),
            input: InputId(self.number("input", row)?.try_into().ok()?),
            sequence: self.number("sequence", row)?.try_into().ok()?,
        })
    }

    fn file(&self, row: usize, shared: &mut Arc<str>) -> Option<FileRow> {
        let source = self.text("source", row)?;
        if &**shared != source {
            *shared = source.into();
        }
        let file = FileVersion {
            path: self.text("path", row)?.into(),
            size: self.number("size", row)?,
            etag: self.text("etag", row).map(Into::into),
            mtime: self.signed("mtime", row),
        };
        let evidence = Evidence {
            group_runs: parse_runs(self.text("group_rows", row)?)?,
            digest: self.text("digest", row)?.to_owned(),
        };
        let unsettled = self.column("unsettled")?.as_boolean_opt()?.value(row);
        let coverage = self.text("coverage", row)?.parse().ok()?;
        let sealed = SealedFile { source: Arc::clone(shared), file, coverage, evidence, unsettled };
        Some(FileRow { checkpoint: self.id(row)?, sealed })
    }

    fn checkpoint(&self, row: usize) -> Option<CheckpointRow> {
        Some(CheckpointRow {
            id: self.id(row)?,
            attempt: self.text("attempt", row)?.parse().ok()?,
            decision: match self.text("decision", row)? {
                "accepted" => Decision::Accepted,
                "rejected" => Decision::Rejected,
                "withdrawn" => Decision::Withdrawn,
                "blessed" => Decision::Blessed,
                _ => return None,
            },
            sealed_at: self.signed("at", row)?,
            counts: Counts {
                rows_in: self.number("rows_in", row)?,
                rows_out: self.number("rows_out", row)?,
                rows_failed: self.number("rows_failed", row)?,
            },
            outputs: self.outputs(row)?,
            commit: self.number("commit", row),
        })
    }

    fn outputs(&self, row: usize) -> Option<Vec<OutputFile>> {
        let items = self.column("outputs")?.as_list_opt::<i32>()?.value(row);
        let items = items.as_struct_opt()?;
        let text = |name| items.column_by_name(name)?.as_string_opt::<i32>();
        let number = |name| items.column_by_name(name)?.as_primitive_opt::<UInt64Type>();
        let (names, folders, sizes, rows) = (text("name")?, text("folder")?, number("size")?, number("rows")?);
        // Segments of destinations on disks need not have it.
        let uploads = text("upload");
        let upload = |i| match uploads.filter(|uploads| uploads.is_valid(i)) {
            Some(uploads) => Upload::from_text(uploads.value(i)).map(Some),
            None => Some(None),
        };
        let output = |i| {
            Some(OutputFile {
                name: names.value(i).to_owned(),
                folder: folders.value(i).to_owned(),
                size: sizes.value(i),
                rows: rows.value(i),
                upload: upload(i)?,
            })
        };
        (0..items.len()).map(output).collect()
    }

    fn event(&self, row: usize) -> Option<EventRow> {
        Some(EventRow {
            version: ManifestVersion(self.number("version", row)?),
            epoch: Epoch(self.number("epoch", row)?),
            at: self.signed("at", row)?,
            event: serde_json::from_str(self.text("event", row)?).ok()?,
        })
    }
}

/// Reads the segment `bytes`, found at `place`.
///
/// # Errors
/// [`Corrupt`](crate::ErrorKind::Corrupt) naming `place` and the row.
pub fn decode(place: &str, bytes: Bytes) -> Result<SegmentData> {
    let damaged = |why: &dyn std::fmt::Display| Error::corrupt(place, format!("this segment is damaged: {why}"));
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).map_err(|e| damaged(&e))?;
    let reader = reader.with_batch_size(8_192).build().map_err(|e| damaged(&e))?;
    let mut data = SegmentData::default();
    let mut source: Arc<str> = "".into();
    for batch in reader {
        let batch = batch.map_err(|e| damaged(&e))?;
        let columns = Reader(&batch);
        let kinds = columns.column("kind").and_then(|c| c.as_primitive_opt::<UInt8Type>().cloned());
        let kinds = kinds.ok_or_else(|| damaged(&"it has no column `kind`"))?;
        for row in 0..batch.num_rows() {
            let read = match kinds.value(row) {
                FILE => columns.file(row, &mut source).map(|r| data.files.push(r)),
                CHECKPOINT => columns.checkpoint(row).map(|r| data.checkpoints.push(r)),
                EVENT => columns.event(row).map(|r| data.events.push(r)),
                _ => None,
            };
            read.ok_or_else(|| damaged(&format!("row {row} of a batch cannot be read")))?;
        }
    }
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coverage::{Coverage, RangeSet};
    use crate::identity::AttemptNonce;
    use crate::store::segment::Event;

    fn sample() -> SegmentData {
        let id = CheckpointId::first(Epoch(3), InputId(7));
        let file = |path: &str, coverage| FileRow {
            checkpoint: id,
            sealed: SealedFile {
                source: "docs".into(),
                file: FileVersion::new(path, 9).with_mtime(-4),
                coverage,
                evidence: Evidence::new(&[2, 2, 5], "ab".into()),
                unsettled: true,
            },
        };
        SegmentData {
            files: vec![file("a#1", Coverage::Whole), file("é", Coverage::rows(2, RangeSet::of(1..3)))],
            checkpoints: vec![CheckpointRow {
                id,
                attempt: AttemptNonce::random(),
                decision: Decision::Accepted,
                sealed_at: 5,
                counts: Counts { rows_in: 9, rows_out: 4, rows_failed: 0 },
                outputs: vec![OutputFile {
                    name: "x".into(),
                    folder: "d=1".into(),
                    size: 3,
                    rows: 4,
                    upload: Some(Upload { id: "u".into(), parts: vec!["p".into()] }),
                }],
                commit: Some(2),
            }],
            events: vec![EventRow { version: ManifestVersion(4), epoch: Epoch(3), at: 6, event: Event::Done { n: 2 } }],
        }
    }

    #[test]
    fn rows_round_trip() {
        let data = sample();
        assert_eq!(decode("x", encode(&data).unwrap()).unwrap(), data);
        assert_eq!(decode("x", encode(&SegmentData::default()).unwrap()).unwrap(), SegmentData::default());
    }

    /// As segments were before output could wait on object stores.
    #[test]
    fn a_segment_without_uploads_is_read() {
        let mut data = sample();
        data.checkpoints[0].outputs[0].upload = None;
        let reader = ParquetRecordBatchReaderBuilder::try_new(encode(&data).unwrap()).unwrap().build().unwrap();
        let mut bytes = Vec::new();
        for batch in reader {
            let batch = batch.unwrap();
            let at = batch.schema().index_of("outputs").unwrap();
            let list = batch.column(at).as_list::<i32>();
            let four = list.values().as_struct();
            let fields: Vec<_> = four.fields().iter().take(4).cloned().collect();
            let columns = four.columns()[..4].to_vec();
            let four = arrow_array::StructArray::new(fields.clone().into(), columns, four.nulls().cloned());
            let item = Arc::new(Field::new("item", DataType::Struct(fields.into()), true));
            let old = arrow_array::ListArray::new(
                Arc::clone(&item),
                list.offsets().clone(),
                Arc::new(four),
                list.nulls().cloned(),
            );
            let mut columns = batch.columns().to_vec();
            columns[at] = Arc::new(old);
            let mut all: Vec<_> = batch.schema().fields().iter().cloned().collect();
            all[at] = Arc::new(Field::new("outputs", DataType::List(item), true));
            let batch = RecordBatch::try_new(Arc::new(Schema::new(all)), columns).unwrap();
            let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), None).unwrap();
            writer.write(&batch).unwrap();
            writer.close().unwrap();
        }
        assert_eq!(decode("x", bytes.into()).unwrap(), data);
    }

    #[test]
    fn a_lake_of_four_groups_a_file_takes_at_most_forty_bytes_an_atom() {
        let mut data = SegmentData::default();
        for i in 0..10_000u32 {
            let file = FileVersion::new(format!("part-{i:05}.parquet"), 440_000 + u64::from(i * 7919 % 1000))
                .with_mtime(1_700_000_000_000_000_000 + i64::from(i) * 1_234_567);
            data.files.push(FileRow {
                checkpoint: CheckpointId::first(Epoch(1), InputId(i / 300)),
                sealed: SealedFile {
                    source: "docs".into(),
                    evidence: Evidence::new(&[2500; 4], crate::store::envelope::digest(file.path.as_bytes())),
                    file,
                    coverage: Coverage::Whole,
                    unsettled: false,
                },
            });
        }
        let per_atom = encode(&data).unwrap().len() as f64 / 40_000.0;
        assert!(per_atom < 40.0, "{per_atom} bytes an atom");
    }
}
