//! Segments round-trip, old ones are read, and they are small.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::decode::decode;
use super::encode::encode;
use super::{CheckpointRow, Decision, Event, EventRow, FileRow, SegmentData};
use crate::coverage::{Coverage, RangeSet};
use crate::identity::{AttemptNonce, CheckpointId, Epoch, Evidence, FileVersion, InputId, ManifestVersion};
use crate::store::seal::{Counts, OutputFile, SealedFile, Upload};

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
            source: Some("s".into()),
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
        keys: Default::default(),
    }
}

#[test]
fn rows_round_trip() {
    let data = sample();
    assert_eq!(decode("x", encode(&data).unwrap()).unwrap(), data);
    assert_eq!(decode("x", encode(&SegmentData::default()).unwrap()).unwrap(), SegmentData::default());
}

#[test]
fn a_forged_segment_names_nothing_outside_the_destination() {
    for (name, folder) in [("../x", ""), ("x", "a/../.."), ("x", "/etc"), ("a/b", ""), ("..", "")] {
        let mut data = sample();
        let output = &mut data.checkpoints[0].outputs[0];
        (output.name, output.folder) = (name.into(), folder.into());
        let error = decode("here", encode(&data).unwrap()).unwrap_err();
        assert_eq!((error.kind(), error.place()), (crate::ErrorKind::Corrupt, Some("here")), "{name:?} in {folder:?}");
    }
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
