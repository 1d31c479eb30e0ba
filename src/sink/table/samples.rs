//! Rows of every type that a query can put out, for tests of what readers of a table find.
#![allow(clippy::unwrap_used, reason = "what fails is to panic")]

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_array::builder::{Int64Builder, MapBuilder, StringBuilder};
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, DictionaryArray, Float32Array, Float64Array,
    Int8Array, Int64Array, LargeStringArray, ListArray, RecordBatch, StringArray, StringViewArray, StructArray,
    TimestampMillisecondArray, TimestampNanosecondArray, UInt32Array, UInt64Array, types,
};
use arrow_schema::{DataType, Field, Fields};
use parquet::arrow::ArrowWriter;

/// Three rows, whose ids begin at `from`.
///
/// # Panics
/// Never.
pub fn rows_of_every_type(from: i64) -> RecordBatch {
    let inner = StructArray::new(
        Fields::from(vec![
            Field::new("n", DataType::Int64, true),
            Field::new("tags", DataType::new_list(DataType::Utf8, true), true),
        ]),
        vec![
            Arc::new(Int64Array::from(vec![Some(from), None, Some(-1)])),
            Arc::new({
                let mut tags = arrow_array::builder::ListBuilder::new(StringBuilder::new());
                tags.append_value([Some("a"), None, Some("")]);
                tags.append_null();
                tags.append_value(Vec::<Option<&str>>::new());
                tags.finish()
            }),
        ],
        Some(vec![true, true, false].into()),
    );
    let mut map = MapBuilder::new(None, StringBuilder::new(), Int64Builder::new());
    map.keys().append_value("k");
    map.values().append_value(from);
    map.keys().append_value("");
    map.values().append_null();
    map.append(true).unwrap();
    map.append(false).unwrap();
    map.append(true).unwrap();
    let millis = |n: i64| 1_700_000_000_000 + 1_000 * from + n;
    let nanos = |n: i64| (1_700_000_000_000_000 + 1_000_000 * from + n) * 1_000;
    let money = Decimal128Array::from(vec![Some(i128::from(from) - 5), None, Some(99)]);
    let wide = Decimal128Array::from(vec![Some(-12_345_678_901_234_567_890_123), None, Some(i128::from(from))]);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values(from..from + 3))),
        ("tiny", Arc::new(Int8Array::from(vec![Some(-128), None, Some(127)]))),
        ("u32", Arc::new(UInt32Array::from(vec![Some(u32::MAX), None, Some(0)]))),
        ("u64", Arc::new(UInt64Array::from(vec![Some(u64::MAX), None, Some(7)]))),
        ("float", Arc::new(Float32Array::from(vec![Some(1.5), None, Some(f32::NAN)]))),
        ("double", Arc::new(Float64Array::from(vec![Some(-0.0), None, Some(f64::INFINITY)]))),
        ("flag", Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)]))),
        ("text", Arc::new(StringArray::from(vec![Some(format!("é \"{from}\"")), None, Some(String::new())]))),
        ("large", Arc::new(LargeStringArray::from(vec![Some("x".repeat(100)), None, Some("\u{10ffff}".repeat(40))]))),
        ("view", Arc::new(StringViewArray::from(vec![Some("a view longer than twelve bytes"), None, Some("")]))),
        (
            "code",
            Arc::new(vec![Some("one"), None, Some("one")].into_iter().collect::<DictionaryArray<types::Int32Type>>()),
        ),
        ("bytes", Arc::new(BinaryArray::from(vec![Some(b"\x00\xff".as_slice()), None, Some(b"")]))),
        ("money", Arc::new(money.with_precision_and_scale(9, 2).unwrap())),
        ("wide", Arc::new(wide.with_precision_and_scale(38, 10).unwrap())),
        ("day", Arc::new(Date32Array::from(vec![Some(from as i32), None, Some(-from as i32)]))),
        (
            "zoned",
            Arc::new(
                TimestampMillisecondArray::from(vec![Some(millis(1)), None, Some(-millis(0))]).with_timezone("+05:30"),
            ),
        ),
        ("local", Arc::new(TimestampNanosecondArray::from(vec![Some(nanos(1)), None, Some(nanos(999))]))),
        ("nothing", Arc::new(Int64Array::from(vec![None; 3]))),
        (
            "list",
            Arc::new(ListArray::from_iter_primitive::<types::Int64Type, _, _>([
                Some(vec![Some(1), None]),
                None,
                Some(vec![]),
            ])),
        ),
        ("inner", Arc::new(inner)),
        ("map", Arc::new(map.finish())),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, true))).unwrap()
}

/// Writes `batch` as the Parquet file `name` in `folder`.
///
/// # Panics
/// When it cannot.
pub fn write_reference(folder: &Path, name: &str, batch: &RecordBatch) -> std::path::PathBuf {
    let path = folder.join(name);
    let mut writer = ArrowWriter::try_new(File::create(&path).unwrap(), batch.schema(), None).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
    path
}
