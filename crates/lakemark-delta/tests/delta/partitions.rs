//! Partition values: decoded once, and found again by others.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BooleanArray, Date32Array, Decimal128Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use lakemark::{ErrorKind, OutputFile, StorageOptions, Table, run_python};
use lakemark_delta::DeltaTable;

use crate::writer::{entry, store_writer};

/// Prints every row, by id.
const ROWS: &str = "
import sys, deltalake
rows = deltalake.DeltaTable(sys.argv[1]).to_pyarrow_table().to_pylist()
for row in sorted(rows, key=lambda row: row['id']):
    print('|'.join(str(row[key]) for key in ('id', 'k', 'local', 'zoned', 'day', 'money', 'flag')))
";

const VALUES: [Option<&str>; 9] =
    [Some("a b"), Some("R&D"), Some("x/y"), Some("100%"), Some("é"), Some("a=b:c+d"), Some("%41"), None, Some("")];

fn rows() -> RecordBatch {
    let n = VALUES.len();
    let noon = TimestampMicrosecondArray::from(vec![1_700_000_000_000_001; n]);
    // Not below zero: deltalake 1.6 shows -12.05 to pyarrow as "-12.-5".
    let money = Decimal128Array::from(vec![1_205; n]).with_precision_and_scale(9, 2).unwrap();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values(0..n as i64))),
        ("k", Arc::new(StringArray::from(VALUES.to_vec()))),
        ("local", Arc::new(noon.clone())),
        ("zoned", Arc::new(noon.with_timezone("UTC"))),
        ("day", Arc::new(Date32Array::from(vec![19_782; n]))),
        ("money", Arc::new(money)),
        ("flag", Arc::new(BooleanArray::from(vec![true; n]))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, true))).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_value_round_trips() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("table");
    let url = at.to_str().unwrap();
    let mut writer = store_writer(url, &rows().schema(), &["k", "local", "zoned", "day", "money", "flag"]);
    writer.add(&rows()).await;
    let lines = entry(&at, 0);
    let adds: Vec<_> = lines.iter().map(|line| &line["add"]).filter(|add| !add.is_null()).collect();
    let values: HashSet<Option<&str>> = adds.iter().map(|add| add["partitionValues"]["k"].as_str()).collect();
    let wanted = VALUES.into_iter().filter(|value| *value != Some("")).collect();
    assert_eq!(values, wanted, "the empty string is null in Delta, as in Hive");
    assert!(adds.iter().all(|add| add["partitionValues"]["local"] == "2023-11-14 22:13:20.000001"), "{adds:?}");

    let table = DeltaTable::connect(url, &StorageOptions::default()).unwrap();
    let base = table.load().await.unwrap().unwrap();
    let mut paths: Vec<String> = writer.committed.iter().map(OutputFile::path).collect();
    assert_eq!(table.live(&base, &paths).await.unwrap(), paths.len(), "the log spells their names as URIs");
    paths.push("k=a b/not-there.parquet".to_owned());
    assert_eq!(table.live(&base, &paths).await.unwrap(), paths.len() - 1);

    let Some(read) = run_python(ROWS, &[&at]) else { return };
    let text = |value: Option<&str>| value.filter(|value| !value.is_empty()).unwrap_or("None").to_owned();
    let wanted = (0..).zip(VALUES).map(|(id, value)| {
        let rest = "2023-11-14 22:13:20.000001|2023-11-14 22:13:20.000001+00:00|2024-02-29|12.05|True";
        format!("{id}|{}|{rest}", text(value))
    });
    assert_eq!(read.lines().collect::<Vec<_>>(), wanted.collect::<Vec<_>>());
}

#[test]
fn columns_without_a_text_form_cannot_partition() {
    let list = arrow_array::ListArray::from_iter_primitive::<arrow_array::types::Int64Type, _, _>([Some([Some(1)])]);
    let schema = arrow_schema::Schema::new(vec![arrow_schema::Field::new("l", list.data_type().clone(), true)]);
    let sink = lakemark_delta::connect("memory://refused/t", &StorageOptions::default()).unwrap();
    let error = sink.partitioned(&["l".to_owned()]).storable(&Arc::new(schema)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("`l`"), "{error}");
}
