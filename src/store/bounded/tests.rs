use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, DictionaryArray, Int32Array, StringArray, UInt8Array};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Encoding, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

use super::*;
use crate::ErrorKind;
use crate::coverage::Coverage;
use crate::identity::{CheckpointId, Epoch, Evidence, FileVersion, InputId};
use crate::store::seal::SealedFile;
use crate::store::segment::{FileRow, SegmentData, decode_segment, encode_segment};

fn properties() -> parquet::file::properties::WriterPropertiesBuilder {
    let zstd = Compression::ZSTD(ZstdLevel::default());
    WriterProperties::builder().set_compression(zstd).set_statistics_enabled(EnabledStatistics::None)
}

fn object(column: ArrayRef, properties: WriterProperties) -> Vec<u8> {
    let batch = RecordBatch::try_from_iter([("name", column)]).unwrap();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    bytes
}

/// Rows and the largest batch, in bytes.
fn read_all(bytes: Vec<u8>) -> Result<(usize, usize)> {
    let mut seen = (0, 0);
    read("segment", "here", bytes.into(), |batch| {
        seen = (seen.0 + batch.num_rows(), seen.1.max(batch.get_array_memory_size()));
        Ok(())
    })?;
    Ok(seen)
}

fn why(bytes: Vec<u8>) -> String {
    let error = read_all(bytes).unwrap_err();
    assert_eq!((error.kind(), error.place()), (ErrorKind::Corrupt, Some("here")));
    error.what().to_owned()
}

/// `count` rows that all have the text `text`, which is in a dictionary once.
fn repeated(text: &str, count: usize) -> Vec<u8> {
    let column = DictionaryArray::new(Int32Array::from(vec![0; count]), Arc::new(StringArray::from(vec![text])));
    object(Arc::new(column), properties().set_dictionary_page_size_limit(1 << 30).build())
}

#[test]
fn a_short_object_cannot_repeat_a_long_text_without_end() {
    let text = "a".repeat(1 << 18);
    let bytes = repeated(&text, 2_000);
    assert!(bytes.len() < 8_192, "{} bytes", bytes.len());
    assert!(why(bytes).contains("far more than its size allows"));
    let (rows, largest) = read_all(repeated(&text, 30)).unwrap();
    assert!(rows == 30 && largest < 2 * BATCH as usize, "{largest}");
}

#[test]
fn pages_that_decompress_without_end_are_refused() {
    let text = "a".repeat(64 << 20);
    let bytes = object(Arc::new(StringArray::from(vec![text.as_str()])), properties().build());
    assert!(bytes.len() < 32_768, "{} bytes", bytes.len());
    assert!(why(bytes).contains("far more bytes than its size allows"));
}

#[test]
fn rows_that_take_no_bytes_are_refused() {
    let bytes = object(Arc::new(UInt8Array::from(vec![0; 1 << 20])), properties().build());
    assert!(why(bytes).contains("claims 1048576 values"));
}

#[test]
fn differences_claim_no_more_than_their_page_has() {
    let column: ArrayRef = Arc::new((0..20_000).map(|i| Some(format!("part-{i}"))).collect::<StringArray>());
    let delta = WriterProperties::builder().set_dictionary_enabled(false);
    let delta = delta.set_column_encoding(ColumnPath::from("name"), Encoding::DELTA_BYTE_ARRAY);
    let mut bytes = object(column, delta.build());
    assert_eq!(read_all(bytes.clone()).unwrap().0, 20_000);
    // Blocks of 128, four parts, 20,000 values: now a million.
    let header = [0x80, 0x01, 0x04, 0xa0, 0x9c, 0x01];
    let at = bytes.windows(6).position(|window| window == header).unwrap();
    bytes[at + 3..at + 6].copy_from_slice(&[0xc0, 0x84, 0x3d]);
    assert!(why(bytes).contains("a page is torn"));
}

#[test]
fn schemas_without_end_are_refused() {
    for depth in [200, 1_000_000] {
        let thrift = crate::thrift::tests::nested(depth);
        let length = (thrift.len() as u32).to_le_bytes();
        let bytes = [b"PAR1", &*thrift, &length, b"PAR1"].concat();
        assert!(why(bytes).contains(&format!("{depth} elements")));
    }
}

#[test]
fn compression_of_others_is_refused() {
    let snappy = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    assert!(why(object(Arc::new(StringArray::from(vec!["a"])), snappy)).contains("claims what is not there"));
}

#[test]
fn panics_are_errors() {
    let bytes = repeated("a", 3);
    let error = read("segment", "here", bytes.into(), |batch| {
        let _ = batch.column(0).as_string::<i64>();
        Ok(())
    });
    assert!(error.unwrap_err().what().contains("its decoder stopped"));
}

/// Copies of one file, all made within one tick of the clock: nothing tells their rows apart but a number in the path.
#[test]
fn the_most_repetitive_store_is_far_from_every_limit() {
    let mut data = SegmentData::default();
    for i in 0..200_000u32 {
        let file =
            FileVersion::new(format!("part-{i:06}.parquet"), 440_000).with_etag("\"0123456789abcdef\"").with_mtime(0);
        data.files.push(FileRow {
            checkpoint: CheckpointId::first(Epoch(1), InputId(i / 1_000)),
            sealed: SealedFile {
                source: "docs".into(),
                evidence: Evidence::new(&[2500; 4], "00112233445566778899aabbccddeeff".into()),
                file,
                coverage: Coverage::Whole,
                unsettled: false,
            },
        });
    }
    let bytes = encode_segment(&data).unwrap();
    let allowance = Allowance::of(bytes.len() as u64);
    let metadata = footer(&bytes).unwrap();
    let columns = metadata.row_groups().iter().flat_map(|group| group.columns());
    let pages: i64 = columns.map(|column| column.uncompressed_size()).sum();
    let mut decoded = 0;
    read("segment", "here", bytes.clone(), |batch| {
        decoded += batch.get_array_memory_size() as u64;
        Ok(())
    })
    .unwrap();
    let within = 2 * pages as u64 <= allowance.pages && 400_000 <= allowance.values && 2 * decoded <= allowance.decoded;
    assert!(within, "{} bytes, {pages} in pages, {decoded} decoded; {allowance:?}", bytes.len());
    assert_eq!(decode_segment("here", bytes).unwrap(), data);
}
