//! What the manifests say of the values in a file.

use std::collections::BTreeMap;
use std::sync::Arc;

use iceberg::spec::PrimitiveType;

use crate::writer::Site;
use arrow_array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, FixedSizeBinaryArray, Float64Array, Int32Array, Int64Array,
    ListArray, RecordBatch, StringArray, StructArray, Time64MicrosecondArray, TimestampMicrosecondArray, types,
};
use arrow_schema::{DataType, Field, Fields};

fn rows() -> RecordBatch {
    let inner = StructArray::new(
        Fields::from(vec![Field::new("n", DataType::Int32, true), Field::new("s", DataType::Utf8, true)]),
        vec![
            Arc::new(Int32Array::from(vec![Some(5), Some(1), None, None, Some(2)])),
            Arc::new(StringArray::from(vec![Some("b"), Some("a"), None, Some(""), Some("z")])),
        ],
        Some(vec![true, true, false, true, true].into()),
    );
    let micros = vec![Some(1_700_000_000_000_001), Some(-1), None, Some(0), Some(1_700_000_000_123_001)];
    let money = Decimal128Array::from(vec![Some(-5), Some(12_345), None, Some(99), Some(0)]);
    let wide = Decimal128Array::from(vec![-12_345_678_901_234_567_890_123, 1, 2, 3, 98_765_432_109_876_543_210_987]);
    let list = ListArray::from_iter_primitive::<types::Int64Type, _, _>((0..5).map(|n| Some(vec![Some(n), None])));
    let long = format!("{}z", "y".repeat(20));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("long", Arc::new(Int64Array::from(vec![3, i64::MAX, -5, 0, i64::MIN]))),
        ("small", Arc::new(Int32Array::from(vec![Some(-7), None, Some(4), Some(9), None]))),
        ("money", Arc::new(money.with_precision_and_scale(7, 2).unwrap())),
        ("wide", Arc::new(wide.with_precision_and_scale(38, 3).unwrap())),
        ("text", Arc::new(StringArray::from(vec![Some("é"), Some("\"q\""), None, Some(&long), Some("a")]))),
        ("day", Arc::new(Date32Array::from(vec![Some(0), Some(-1), Some(19_782), None, None]))),
        ("time", Arc::new(Time64MicrosecondArray::from(vec![7, 1, 2, 3, 86_399_999_999]))),
        ("zoned", Arc::new(TimestampMicrosecondArray::from(micros.clone()).with_timezone("UTC"))),
        ("local", Arc::new(TimestampMicrosecondArray::from(micros))),
        ("nothing", Arc::new(Int32Array::from(vec![None; 5]))),
        ("inner", Arc::new(inner)),
        ("list", Arc::new(list)),
        ("flag", Arc::new(BooleanArray::from(vec![Some(true), None, None, None, Some(false)]))),
        ("float", Arc::new(Float64Array::from(vec![1.0, f64::NAN, 2.0, 3.0, 4.0]))),
        (
            "fixed",
            Arc::new(FixedSizeBinaryArray::try_from_iter([[1, 2], [3, 4], [0, 0], [5, 5], [6, 6]].iter()).unwrap()),
        ),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, true))).unwrap()
}

/// What is said of the file `path`, by the names of the columns: least, most, nulls and values.
async fn said(site: &Site, path: &str) -> BTreeMap<String, String> {
    let subject = site.subject().await;
    let file = subject.live().await.remove(path).unwrap();
    let schema = subject.loaded().await.unwrap().metadata().current_schema().clone();
    let ids = schema.field_id_to_name_map();
    let mut said = BTreeMap::new();
    for (id, values) in file.value_counts() {
        let bound = |of: &std::collections::HashMap<i32, iceberg::spec::Datum>| {
            of.get(id).map_or("-".to_owned(), |datum| match datum.data_type() {
                // The crate cannot show what is before 1970.
                PrimitiveType::Timestamptz => format!("{:?}", datum.literal()),
                _ => datum.to_human_string(),
            })
        };
        let nulls = file.null_value_counts().get(id).map_or("-".to_owned(), u64::to_string);
        let text = format!("{} {} {nulls} {values}", bound(file.lower_bounds()), bound(file.upper_bounds()));
        said.insert(ids[id].clone(), text);
    }
    assert_eq!(file.column_sizes().len(), 16, "the leaf of a list has a size too");
    assert_eq!(file.split_offsets().map(<[i64]>::len), Some(3), "one for each row group");
    said
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bounds_and_nulls_of_all_row_groups_are_in_the_manifest() {
    let site = Site::new();
    let batch = rows();
    let mut writer = site.writer(&batch.schema(), &[]).await;
    writer.add(&batch).await;
    let noted = said(&site, &writer.committed[0].path()).await;
    let expected = [
        ("day", "1969-12-31 2024-02-29 2 5"),
        ("fixed", "- - 0 5"),
        ("flag", "- - 3 5"),
        ("float", "- - 0 5"),
        ("inner.n", "1 5 2 5"),
        ("inner.s", " z 1 5"),
        ("local", "1969-12-31 23:59:59.999999 2023-11-14 22:13:20.123001 1 5"),
        ("long", "-9223372036854775808 9223372036854775807 0 5"),
        ("money", "-0.05 123.45 1 5"),
        ("nothing", "- - 5 5"),
        ("small", "-7 9 2 5"),
        ("text", "\"q\" é 1 5"),
        ("time", "00:00:00.000001 23:59:59.999999 0 5"),
        ("wide", "-12345678901234567890.123 98765432109876543210.987 0 5"),
        ("zoned", "Long(-1) Long(1700000000123001) 1 5"),
    ];
    let expected = expected.map(|(name, text)| (name.to_owned(), text.to_owned()));
    assert_eq!(noted, BTreeMap::from(expected));

    // A driver that did not write the files reads their footers.
    let files = writer.stage(&batch).await;
    let mut other = site.writer(&batch.schema(), &[]).await;
    other.commit(files).await;
    assert_eq!(said(&site, &other.committed[0].path()).await, noted);
}
