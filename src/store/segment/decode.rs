//! Segments as Parquet: reading them.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Int64Type, UInt8Type, UInt64Type};
use arrow_array::{
    Array, BooleanArray, Int64Array, ListArray, PrimitiveArray, RecordBatch, StringArray, UInt8Array, UInt64Array,
};
use bytes::Bytes;

use super::encode::{CHECKPOINT, EVENT, FILE};
use super::rows::{CheckpointRow, Decision, EventRow, FileRow, SegmentData};
use crate::coverage::Coverage;
use crate::error::{Error, Result};
use crate::identity::{CheckpointId, Epoch, Evidence, FileVersion, InputId, ManifestVersion};
use crate::store::bounded;
use crate::store::seal::{Counts, OutputFile, SealedFile, Upload};

/// The columns of a batch by their types; `None` for one that is not there, or of another type.
struct Columns<'a> {
    kind: Option<&'a UInt8Array>,
    source: Option<&'a StringArray>,
    path: Option<&'a StringArray>,
    size: Option<&'a UInt64Array>,
    etag: Option<&'a StringArray>,
    mtime: Option<&'a Int64Array>,
    coverage: Option<&'a StringArray>,
    group_rows: Option<&'a StringArray>,
    digest: Option<&'a StringArray>,
    unsettled: Option<&'a BooleanArray>,
    epoch: Option<&'a UInt64Array>,
    input: Option<&'a UInt64Array>,
    sequence: Option<&'a UInt64Array>,
    attempt: Option<&'a StringArray>,
    decision: Option<&'a StringArray>,
    at: Option<&'a Int64Array>,
    rows_in: Option<&'a UInt64Array>,
    rows_out: Option<&'a UInt64Array>,
    rows_failed: Option<&'a UInt64Array>,
    commit: Option<&'a UInt64Array>,
    outputs: Option<&'a ListArray>,
    version: Option<&'a UInt64Array>,
    event: Option<&'a StringArray>,
}

fn text(column: Option<&StringArray>, row: usize) -> Option<&str> {
    column.filter(|column| column.is_valid(row)).map(|column| column.value(row))
}

fn number<T: ArrowPrimitiveType>(column: Option<&PrimitiveArray<T>>, row: usize) -> Option<T::Native> {
    column.filter(|column| column.is_valid(row)).map(|column| column.value(row))
}

/// What the file rows of one segment share, so that each value is kept once.
#[derive(Default)]
struct Shared {
    source: Option<Arc<str>>,
    /// The text of the last group rows, and what it says.
    runs: (String, Vec<(u64, u64)>),
}

impl<'a> Columns<'a> {
    fn of(batch: &'a RecordBatch) -> Self {
        let text = |name| batch.column_by_name(name).and_then(|column| column.as_string_opt::<i32>());
        let number = |name| batch.column_by_name(name).and_then(|column| column.as_primitive_opt::<UInt64Type>());
        let signed = |name| batch.column_by_name(name).and_then(|column| column.as_primitive_opt::<Int64Type>());
        Self {
            kind: batch.column_by_name("kind").and_then(|column| column.as_primitive_opt::<UInt8Type>()),
            source: text("source"),
            path: text("path"),
            size: number("size"),
            etag: text("etag"),
            mtime: signed("mtime"),
            coverage: text("coverage"),
            group_rows: text("group_rows"),
            digest: text("digest"),
            unsettled: batch.column_by_name("unsettled").and_then(|column| column.as_boolean_opt()),
            epoch: number("epoch"),
            input: number("input"),
            sequence: number("sequence"),
            attempt: text("attempt"),
            decision: text("decision"),
            at: signed("at"),
            rows_in: number("rows_in"),
            rows_out: number("rows_out"),
            rows_failed: number("rows_failed"),
            commit: number("commit"),
            outputs: batch.column_by_name("outputs").and_then(|column| column.as_list_opt::<i32>()),
            version: number("version"),
            event: text("event"),
        }
    }

    fn id(&self, row: usize) -> Option<CheckpointId> {
        Some(CheckpointId {
            epoch: Epoch(number(self.epoch, row)?),
            input: InputId(number(self.input, row)?.try_into().ok()?),
            sequence: number(self.sequence, row)?.try_into().ok()?,
        })
    }

    fn file(&self, row: usize, shared: &mut Shared) -> Option<FileRow> {
        let source = text(self.source, row)?;
        if shared.source.as_deref() != Some(source) {
            shared.source = Some(source.into());
        }
        let runs = text(self.group_rows, row)?;
        if shared.runs.0 != runs {
            shared.runs = (runs.to_owned(), parse_runs(runs)?);
        }
        let file = FileVersion {
            path: text(self.path, row)?.into(),
            size: number(self.size, row)?,
            etag: text(self.etag, row).map(Into::into),
            mtime: number(self.mtime, row),
        };
        let evidence = Evidence { group_runs: shared.runs.1.clone(), digest: text(self.digest, row)?.to_owned() };
        let coverage: Coverage = text(self.coverage, row)?.parse().ok()?;
        let sealed = SealedFile {
            source: shared.source.clone()?,
            file,
            coverage,
            evidence,
            unsettled: self.unsettled?.value(row),
        };
        Some(FileRow { checkpoint: self.id(row)?, sealed })
    }

    fn checkpoint(&self, row: usize) -> Option<CheckpointRow> {
        Some(CheckpointRow {
            id: self.id(row)?,
            attempt: text(self.attempt, row)?.parse().ok()?,
            source: text(self.source, row).map(Into::into),
            decision: match text(self.decision, row)? {
                "accepted" => Decision::Accepted,
                "rejected" => Decision::Rejected,
                "withdrawn" => Decision::Withdrawn,
                "blessed" => Decision::Blessed,
                _ => return None,
            },
            sealed_at: number(self.at, row)?,
            counts: Counts {
                rows_in: number(self.rows_in, row)?,
                rows_out: number(self.rows_out, row)?,
                rows_failed: number(self.rows_failed, row)?,
            },
            outputs: self.outputs(row)?,
            commit: number(self.commit, row),
        })
    }

    fn outputs(&self, row: usize) -> Option<Vec<OutputFile>> {
        let items = self.outputs?.value(row);
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
            let output = OutputFile {
                name: names.value(i).to_owned(),
                folder: folders.value(i).to_owned(),
                size: sizes.value(i),
                rows: rows.value(i),
                upload: upload(i)?,
            };
            // Whatever wrote it: nothing outside the destination is looked at, moved or taken out.
            output.check("").is_ok().then_some(output)
        };
        (0..items.len()).map(output).collect()
    }

    fn event(&self, row: usize) -> Option<EventRow> {
        Some(EventRow {
            version: ManifestVersion(number(self.version, row)?),
            epoch: Epoch(number(self.epoch, row)?),
            at: number(self.at, row)?,
            event: serde_json::from_str(text(self.event, row)?).ok()?,
        })
    }
}

fn parse_runs(text: &str) -> Option<Vec<(u64, u64)>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    let run = |run: &str| run.split_once('x').and_then(|(r, t)| Some((r.parse().ok()?, t.parse().ok()?)));
    text.split(',').map(run).collect::<Option<_>>().filter(|runs: &Vec<_>| Evidence::are_possible(runs))
}

/// Reads the segment `bytes`, found at `place`.
///
/// # Errors
/// [`Corrupt`](crate::ErrorKind::Corrupt) naming `place` and the row.
pub fn decode(place: &str, bytes: Bytes) -> Result<SegmentData> {
    let damaged = |why: &dyn std::fmt::Display| Error::corrupt(place, format!("this segment is damaged: {why}"));
    let mut data = SegmentData::default();
    let mut shared = Shared::default();
    bounded::read("segment", place, bytes, |batch| {
        let columns = Columns::of(batch);
        let kinds = columns.kind.ok_or_else(|| damaged(&"it has no column `kind`"))?;
        for row in 0..batch.num_rows() {
            let read = match kinds.value(row) {
                FILE => columns.file(row, &mut shared).map(|r| data.files.push(r)),
                CHECKPOINT => columns.checkpoint(row).map(|r| data.checkpoints.push(r)),
                EVENT => columns.event(row).map(|r| data.events.push(r)),
                _ => None,
            };
            read.ok_or_else(|| damaged(&format!("row {row} of a batch cannot be read")))?;
        }
        Ok(())
    })?;
    Ok(data)
}
