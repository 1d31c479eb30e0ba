//! What the log says of the values in a file.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int32Array, Int64Array, ListArray,
    RecordBatch, StringArray, StructArray, TimestampMicrosecondArray, types,
};
use arrow_schema::{DataType, Field, Fields};
use serde_json::{Value, json};

use crate::writer::{entry, store_writer};

fn rows() -> RecordBatch {
    let small = Int32Array::from(vec![Some(-7), None, Some(4), Some(9), None]);
    let inner = StructArray::new(
        Fields::from(vec![Field::new("n", DataType::Int32, true), Field::new("s", DataType::Utf8, true)]),
        vec![
            Arc::new(Int32Array::from(vec![Some(5), Some(1), None, None, Some(2)])),
            Arc::new(StringArray::from(vec![Some("b"), Some("a"), None, Some(""), Some("z")])),
        ],
        Some(vec![true, true, false, true, true].into()),
    );
    let micros = vec![Some(1_700_000_000_000_001), Some(-1), None, Some(0), Some(1_700_000_000_123_001)];
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("long", Arc::new(Int64Array::from(vec![3, i64::MAX, -5, 0, i64::MIN]))),
        ("small", Arc::new(small)),
        (
            "money",
            Arc::new(
                Decimal128Array::from(vec![Some(-5), Some(12_345), None, Some(99), Some(0)])
                    .with_precision_and_scale(7, 2)
                    .unwrap(),
            ),
        ),
        (
            "wide",
            Arc::new(
                Decimal128Array::from(vec![-12_345_678_901_234_567_890_123, 1, 2, 3, 98_765_432_109_876_543_210_987])
                    .with_precision_and_scale(38, 3)
                    .unwrap(),
            ),
        ),
        ("text", Arc::new(StringArray::from(vec![Some("é"), Some("\"q\""), None, Some("Z"), Some("a")]))),
        ("day", Arc::new(Date32Array::from(vec![Some(0), Some(-1), Some(19_782), None, None]))),
        ("zoned", Arc::new(TimestampMicrosecondArray::from(micros.clone()).with_timezone("UTC"))),
        ("local", Arc::new(TimestampMicrosecondArray::from(micros))),
        ("nothing", Arc::new(Int32Array::from(vec![None; 5]))),
        ("inner", Arc::new(inner)),
        (
            "list",
            Arc::new(ListArray::from_iter_primitive::<types::Int64Type, _, _>(
                (0..5).map(|n| Some(vec![Some(n), Some(100 + n)])),
            )),
        ),
        ("flag", Arc::new(BooleanArray::from(vec![Some(true), None, None, None, Some(false)]))),
        ("float", Arc::new(Float64Array::from(vec![1.0, f64::NAN, 2.0, 3.0, 4.0]))),
        ("bytes", Arc::new(BinaryArray::from(vec![b"a".as_slice(); 5]))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, true))).unwrap()
}

fn statistics(lines: &[Value]) -> Value {
    let stats = lines.iter().find_map(|line| line["add"]["stats"].as_str()).unwrap();
    // As text where digits count: a JSON number here is a float.
    assert!(stats.contains("\"wide\":-12345678901234567890.123"), "{stats}");
    assert!(stats.contains("\"wide\":98765432109876543210.987"), "{stats}");
    serde_json::from_str(stats).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bounds_and_nulls_of_all_row_groups_are_in_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("table");
    let batch = rows();
    let mut writer = store_writer(at.to_str().unwrap(), &batch.schema(), &[]);
    let state = writer.add(&batch).await;
    assert_eq!(state.version, 0);
    let noted = statistics(&entry(&at, 0));
    assert_eq!(noted["numRecords"], 5);
    let expected = json!({
        "long": i64::MIN, "small": -7, "money": -0.05, "text": "\"q\"", "day": "1969-12-31",
        "zoned": "1969-12-31T23:59:59.999Z", "local": "1969-12-31T23:59:59.999", "inner": { "n": 1, "s": "" },
    });
    let without_wide = |values: &Value| {
        let mut values = values.clone();
        values.as_object_mut().unwrap().remove("wide").unwrap();
        values
    };
    assert_eq!(without_wide(&noted["minValues"]), expected);
    let expected = json!({
        "long": i64::MAX, "small": 9, "money": 123.45, "text": "é", "day": "2024-02-29",
        "zoned": "2023-11-14T22:13:20.124Z", "local": "2023-11-14T22:13:20.124", "inner": { "n": 5, "s": "z" },
    });
    assert_eq!(without_wide(&noted["maxValues"]), expected);
    let expected = json!({
        "long": 0, "small": 2, "money": 1, "wide": 0, "text": 1, "day": 2, "zoned": 1, "local": 1,
        "inner": { "n": 2, "s": 1 },
    });
    // Not for columns without bounds: deltalake takes those beside a count of nulls for null, and skips rows by it.
    assert_eq!(noted["nullCount"], expected);

    // A driver that did not write the files reads their footers.
    let files = writer.stage(&batch).await;
    let mut other = store_writer(at.to_str().unwrap(), &batch.schema(), &[]);
    other.commit(files).await;
    assert_eq!(statistics(&entry(&at, 1)), noted);

    // One that did asks no file again.
    let files = writer.stage(&batch).await;
    std::fs::remove_file(at.join(&files[0].name)).unwrap();
    writer.commit(files).await;
    assert_eq!(statistics(&entry(&at, 2)), noted);
}
