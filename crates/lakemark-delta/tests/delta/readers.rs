//! What a reader that knows nothing of lakemark finds: every row as it was written.

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

use crate::python;
use crate::writer::Writer;

/// Compares the table, whole and through a filter that skips files, with Parquet files of what was written.
const COMPARE: &str = "
import sys, deltalake, pyarrow as pa, pyarrow.parquet as pq, pyarrow.dataset as ds
table, references = deltalake.DeltaTable(sys.argv[1]), sys.argv[2:]
def rows(of): return sorted(of.to_pylist(), key=lambda row: row['id'])
wanted = [row for reference in references for row in rows(pq.read_table(reference))]
found = rows(table.to_pyarrow_table())
assert len(found) == len(wanted), (len(found), len(wanted))
for a, b in zip(found, wanted):
    assert set(a) == set(b), (a, b)
    for key in b:
        x, y = a[key], b[key]
        assert x == y or (x != x and y != y), (key, x, y)
dataset = table.to_pyarrow_dataset()
# Bounds are usable, and true: each of these finds its row, and skips all files but one.
for row in wanted:
    for key in ('id', 'text', 'money', 'day', 'zoned', 'local', 'u64'):
        if row[key] is None: continue
        filter = ds.field(key) == pa.scalar(row[key], dataset.schema.field(key).type)
        got = rows(dataset.to_table(filter=filter))
        assert any(hit['id'] == row['id'] for hit in got), (key, row[key], got)
    fragments = list(dataset.get_fragments(filter=ds.field('id') == row['id']))
    assert len(fragments) == 1, (row['id'], fragments)
print(len(found), table.schema().to_json())
";

/// Three rows, whose ids begin at `from`.
fn rows(from: i64) -> RecordBatch {
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

fn reference(folder: &Path, name: &str, batch: &RecordBatch) -> std::path::PathBuf {
    let path = folder.join(name);
    let mut writer = ArrowWriter::try_new(File::create(&path).unwrap(), batch.schema(), None).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
    path
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_row_of_every_type_is_read_as_it_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("ta ble");
    let batches = [rows(0), rows(3), rows(6)];
    let mut writer = Writer::new(at.to_str().unwrap(), &batches[0].schema(), &[]);
    let mut references = Vec::new();
    for (n, batch) in batches.iter().enumerate() {
        writer.add(batch).await;
        references.push(reference(folder.path(), &format!("{n}.parquet"), batch));
    }
    let arguments: Vec<&Path> =
        [at.as_path()].into_iter().chain(references.iter().map(|path| path.as_path())).collect();
    let Some(read) = python::run(COMPARE, &arguments) else { return };
    assert!(read.starts_with("9 "), "{read}");
    for of in ["decimal(20,0)", "timestamp_ntz", "\"timestamp\"", "containsNull", "valueContainsNull"] {
        assert!(read.contains(of), "{of} in {read}");
    }
}
