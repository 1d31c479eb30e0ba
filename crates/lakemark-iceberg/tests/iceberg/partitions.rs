//! Partition values: decoded once, null apart from the empty string, and found again by others.

use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BooleanArray, Date32Array, Decimal128Array, Int32Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use lakemark::{ErrorKind, OutputFile, StorageOptions, Table, run_python};
use lakemark_iceberg::IcebergTable;

use crate::subject::options;
use crate::writer::{PYICEBERG, Site};

/// Prints every row, by id; and the file that a filter on the partition needs.
const ROWS: &str = "
from pyiceberg.expressions import EqualTo, IsNull
rows = table.scan().to_arrow().to_pylist()
for row in sorted(rows, key=lambda row: row['id']):
    print('|'.join(repr(row[key]) if key == 'k' else str(row[key]) for key in ('id', 'k', 'local', 'zoned', 'day', 'money', 'flag', 'n')))
for row in rows:
    filter = IsNull('k') if row['k'] is None else EqualTo('k', row['k'])
    scan = table.scan(row_filter=filter)
    assert [hit['id'] for hit in scan.to_arrow().to_pylist()] == [row['id']], row
    assert len(list(scan.plan_files())) == 1, row
";

const NULL: &str = "__HIVE_DEFAULT_PARTITION__";
const VALUES: [Option<&str>; 10] = [
    Some("a b"),
    Some("R&D"),
    Some("x/y"),
    Some("100%"),
    Some("é"),
    Some("a=b:c+d"),
    Some("%41"),
    None,
    Some(""),
    Some(NULL),
];

fn rows() -> RecordBatch {
    let n = VALUES.len();
    let noon = TimestampMicrosecondArray::from(vec![-1; n]);
    let money = Decimal128Array::from(vec![-1_205; n]).with_precision_and_scale(9, 2).unwrap();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values(0..n as i64))),
        ("k", Arc::new(StringArray::from(VALUES.to_vec()))),
        ("local", Arc::new(noon.clone())),
        ("zoned", Arc::new(noon.with_timezone("UTC"))),
        ("day", Arc::new(Date32Array::from(vec![-25_567; n]))),
        ("money", Arc::new(money)),
        ("flag", Arc::new(BooleanArray::from(vec![true; n]))),
        ("n", Arc::new(Int32Array::from(vec![Some(-7); n]))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, true))).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_value_round_trips() {
    let site = Site::new();
    let mut writer = site.writer(&rows().schema(), &["k", "local", "day", "money", "flag", "n"]).await;
    writer.add(&rows()).await;
    assert_eq!(writer.committed.len(), VALUES.len(), "null and the empty string are apart");

    let table =
        IcebergTable::connect(site.at.to_str().unwrap(), &StorageOptions::default(), options("sql", &site.uri()))
            .unwrap();
    let base = table.load().await.unwrap().unwrap();
    let mut paths: Vec<String> = writer.committed.iter().map(OutputFile::path).collect();
    assert_eq!(table.live(&base, &paths).await.unwrap(), paths.len());
    paths.push("k=a b/not-there.parquet".to_owned());
    assert_eq!(table.live(&base, &paths).await.unwrap(), paths.len() - 1);

    let Some(read) = run_python(&format!("{PYICEBERG}{ROWS}"), &[&site.database]) else { return };
    let text = |value: Option<&str>| value.map_or("None".to_owned(), |value| format!("'{value}'"));
    let wanted = (0..).zip(VALUES).map(|(id, value)| {
        let rest = "1969-12-31 23:59:59.999999|1969-12-31 23:59:59.999999+00:00|1900-01-01|-12.05|True|-7";
        format!("{id}|{}|{rest}", text(value))
    });
    assert_eq!(read.lines().collect::<Vec<_>>(), wanted.collect::<Vec<_>>());
}

#[test]
fn columns_without_a_text_form_cannot_partition() {
    let list = arrow_array::ListArray::from_iter_primitive::<arrow_array::types::Int64Type, _, _>([Some([Some(1)])]);
    let catalog = options("sql", "sqlite:/nowhere/catalog.db");
    let sink = lakemark_iceberg::connect("memory://refused/t", &StorageOptions::default(), catalog).unwrap();
    let zoned = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    for of in [list.data_type().clone(), zoned, DataType::Float64, DataType::Binary] {
        let schema = Schema::new(vec![Field::new("l", of, true)]);
        let error = sink.partitioned(&["l".to_owned()]).storable(&Arc::new(schema)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("`l`"), "{error}");
    }
}
