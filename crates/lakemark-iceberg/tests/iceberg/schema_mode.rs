//! Columns that a table lacks: added by the commit that brings them, by the ids that its files have; or refused.

use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use iceberg::spec::{NestedField, PrimitiveType, Transform, Type, UnboundPartitionSpec};
use lakemark::{
    Attempted, CommitDriver, Error, ErrorKind, OutputFile, OutputSink, SchemaMode, Settled, StorageOptions, StoreId,
    Table, TableCommit, TableSubject, TableWriter, rows_of_every_type, run_python, write_reference,
};
use lakemark_iceberg::IcebergTable;
use rstest::rstest;

use crate::contract::on_server;
use crate::subject::{options, write_a_column_more};
use crate::writer::{PYICEBERG, Site};
use crate::writers::{one_column, rows};

/// Rows with these ids, and their names.
fn named(ids: std::ops::Range<i64>) -> RecordBatch {
    let names = StringArray::from_iter_values(ids.clone().map(|id| format!("name {id}")));
    let columns: [(&str, ArrayRef); 2] =
        [("name", Arc::new(names)), ("id", Arc::new(Int64Array::from_iter_values(ids)))];
    RecordBatch::try_from_iter(columns).unwrap()
}

fn of(name: &str, of: DataType) -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new(name, of, true)]))
}

/// A store that has committed ids alone, and its next job, whose rows have names and which adds columns.
async fn two_jobs(site: &Site) -> (TableWriter, TableWriter) {
    let mut first = site.writer(&one_column(), &[]).await;
    first.add(&rows(0..3)).await;
    let second = first.later(site.merging(), &named(0..0).schema()).await;
    (first, second)
}

fn refused(error: &Error, words: &[&str]) {
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    for word in words {
        assert!(error.to_string().contains(word), "{word} in {error}");
    }
}

/// The ids and names of the columns of the table, in order.
async fn columns(site: &Site) -> Vec<(i32, String)> {
    let loaded = site.subject().await.loaded().await.unwrap();
    let columns = loaded.metadata().current_schema().as_struct().fields();
    columns.iter().map(|column| (column.id, column.name.clone())).collect()
}

async fn snapshots(site: &Site) -> usize {
    site.subject().await.loaded().await.unwrap().metadata().snapshots().len()
}

/// Somebody else adds columns, as other writers do it.
async fn add_columns(site: &Site, columns: &[(&str, PrimitiveType)]) {
    let change = |builder: iceberg::spec::TableMetadataBuilder| {
        let now = builder.clone().build().unwrap().metadata;
        let numbered = (now.last_column_id() + 1..).zip(columns);
        let added = numbered.map(|(id, (name, of))| NestedField::optional(id, *name, Type::Primitive(of.clone())));
        let fields = now.current_schema().as_struct().fields().iter().cloned().chain(added.map(Arc::new));
        let schema = iceberg::spec::Schema::builder().with_fields(fields).build().unwrap();
        builder.add_current_schema(schema).unwrap()
    };
    site.subject().await.change(change).await;
}

/// Compares rows and nulls as three readers find them, whole and by filters on the new column.
const READ: &str = "
import json, duckdb, polars, pyarrow as pa
from pyiceberg.expressions import EqualTo, IsNull
wanted = sorted(json.load(open(sys.argv[2])), key=lambda row: row['id'])
by_id = lambda rows: sorted(rows, key=lambda row: row['id'])
scanned = table.scan().to_arrow()
native = polars.scan_iceberg(table, reader_override='native').collect()
for found in (
    by_id(scanned.to_pylist()), by_id(native.to_dicts()), by_id(duckdb.sql('SELECT * FROM scanned').to_arrow_table().to_pylist()),
):
    assert found == wanted, (found, wanted)
assert by_id(table.scan(row_filter=IsNull('name')).to_arrow().to_pylist()) == [row for row in wanted if row['name'] is None]
for row in wanted:
    if row['name'] is None: continue
    scan = table.scan(row_filter=EqualTo('name', row['name']))
    assert scan.to_arrow().to_pylist() == [row], (row, scan.to_arrow())
# Files with bounds of the new column are skipped by it; of the others nothing tells that they lack it.
column = table.schema().find_field('name').field_id
paths = lambda scan: {task.file.file_path for task in scan.plan_files()}
unbounded = {task.file.file_path for task in table.scan().plan_files() if column not in task.file.lower_bounds}
assert len(unbounded) < len(paths(table.scan()))
assert len(paths(table.scan(row_filter=EqualTo('name', 'name 4'))) - unbounded) == 1
print(len(wanted))
";

/// What all readers are to find: ids, and names of some of them.
fn expect_rows(site: &Site, ids: std::ops::Range<i64>, is_named: impl Fn(i64) -> bool) {
    let name = |id: i64| is_named(id).then(|| format!("name {id}"));
    let wanted: Vec<serde_json::Value> = ids.map(|id| serde_json::json!({ "id": id, "name": name(id) })).collect();
    let file = site.folder().join("wanted.json");
    std::fs::write(&file, serde_json::Value::from(wanted.clone()).to_string()).unwrap();
    if let Some(read) = run_python(&format!("{PYICEBERG}{READ}"), &[&site.database, &file]) {
        assert_eq!(read, wanted.len().to_string());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commit_that_brings_a_column_adds_it() {
    let site = Site::new();
    let (first, mut second) = two_jobs(&site).await;
    second.sink.check(Some(&second.expected())).await.unwrap();
    let added = second.add(&named(3..6)).await;
    assert_ne!(added.schema, first.table.as_ref().unwrap().schema);
    assert_eq!((added.version, snapshots(&site).await), (2, 2), "one snapshot");
    assert_eq!(columns(&site).await, [(1, "id".to_owned()), (2, "name".to_owned())], "at the end");
    second.sink.check(Some(&second.expected())).await.unwrap();
    let loaded = site.subject().await.loaded().await.unwrap();
    let (metadata, snapshot) = (loaded.metadata(), loaded.metadata().current_snapshot().unwrap());
    assert_eq!(snapshot.schema_id(), Some(metadata.current_schema_id()), "the snapshot is of the new schema");
    assert_eq!((metadata.schemas_iter().len(), metadata.last_column_id()), (2, 2));

    let again = second.add(&named(6..7)).await;
    assert_eq!(again.schema, added.schema);
    let loaded = site.subject().await.loaded().await.unwrap();
    assert_eq!(loaded.metadata().schemas_iter().len(), 2, "once");
    // A job that lacks it goes on, and needs no leave.
    let mut third = second.later(site.sink(), &one_column()).await;
    third.sink.check(Some(&third.expected())).await.unwrap();
    assert_eq!(third.add(&rows(7..9)).await.schema, added.schema);
    expect_rows(&site, 0..9, |id| (3..7).contains(&id));
}

/// The ids of what is within a column, too, are those that the table gives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_of_every_type_are_added() {
    let site = Site::new();
    let mut first = site.writer(&one_column(), &[]).await;
    first.add(&rows(0..3)).await;
    let batch = rows_of_every_type(3);
    let mut second = first.later(site.merging(), &batch.schema()).await;
    second.add(&batch).await;
    second.sink.check(Some(&second.expected())).await.unwrap();
    let reference = write_reference(site.folder(), "reference.parquet", &batch);
    const COMPARE: &str = "
import pyarrow.parquet as pq
by_id = lambda of: sorted(of.to_pylist(), key=lambda row: row['id'])
found, wanted = by_id(table.scan().to_arrow()), by_id(pq.read_table(sys.argv[2]))
assert all(row[key] is None for row in found[:3] for key in row if key != 'id'), found[:3]
for a, b in zip(found[3:], wanted, strict=True):
    assert set(a) == set(b), (a, b)
    for key in b:
        x, y = a[key], b[key]
        assert x == y or (x != x and y != y), (key, x, y)
print(len(found))
";
    if let Some(read) = run_python(&format!("{PYICEBERG}{COMPARE}"), &[&site.database, Path::new(&reference)]) {
        assert_eq!(read, "6");
    }
    // Fields within a column are none of its own.
    let inner = DataType::Struct(vec![Field::new("n", DataType::Int64, true)].into());
    let third = second.later(site.merging(), &of("inner", inner)).await;
    let error = third.sink.check(Some(&third.expected())).await.unwrap_err();
    refused(&error, &["`inner`", "no field within a column"]);
}

/// A driver that knows nothing of the query that wrote the files, as those by a store alone or by a changed job.
#[rstest]
#[case::no_rows(None)]
#[case::other_rows(Some(of("other", DataType::Date32)))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_decided_lands_by_any_driver(#[case] rows_of: Option<SchemaRef>) {
    let site = Site::new();
    let (_, mut second) = two_jobs(&site).await;
    let files = second.stage(&named(3..5)).await;
    second.sink = match &rows_of {
        None => site.sink(),
        Some(other) => site.sink().of_rows(other).await.unwrap(),
    };
    let landed = second.try_commit(&files, true).await.unwrap();
    let Settled::Done { table: Some(landed), .. } = landed else { panic!("{landed:?}") };
    // The answer was lost: it is found.
    let found = second.try_commit(&files, true).await.unwrap();
    assert!(matches!(found, Settled::Done { table: Some(ref table), .. } if *table == landed), "{found:?}");
    assert_eq!((landed.version, snapshots(&site).await), (2, 2));
    expect_rows(&site, 0..5, |id| id >= 3);
}

/// Only what asked for it is added.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_leave_nothing_is_added() {
    let site = Site::new();
    let (first, _) = two_jobs(&site).await;
    let mut second = first.later(site.sink(), &named(0..0).schema()).await;
    let error = second.sink.check(Some(&second.expected())).await.unwrap_err();
    refused(&error, &["no column `name`", "--set sink.schema_mode=merge"]);
    let files = second.stage(&named(3..5)).await;
    let error = second.try_commit(&files, true).await.unwrap_err();
    refused(&error, &["no column `name`", &files[0].name, "lakemark reopen 2 JOB"]);
    // It was written without an id, and none can be given to it.
    second.sink = site.merging();
    let error = second.try_commit(&files, true).await.unwrap_err();
    refused(&error, &["column `name` without an id", "lakemark reopen 2 JOB"]);
    assert_eq!(columns(&site).await.len(), 1);
}

/// R77: the table changes between staging and commit. The files have `name` by the id 2.
#[rstest]
#[case::the_same(&[("name", PrimitiveType::String)], None)]
#[case::of_another_type(&[("name", PrimitiveType::Long)], Some("column `name` is string in the query and long in the table"))]
#[case::in_other_letters(&[("Name", PrimitiveType::String)], Some("a column `Name`, and the query has `name`"))]
#[case::another(&[("more", PrimitiveType::Date)], Some("column `name` by the id 2, which is that of `more`"))]
#[case::another_of_its_type(&[("more", PrimitiveType::String)], Some("column `name` by the id 2, which is that of `more`"))]
#[case::another_first(
    &[("more", PrimitiveType::String), ("name", PrimitiveType::String)],
    Some("column `name` has another id in the table (3) than in the files (2)"),
)]
#[case::another_later(&[("name", PrimitiveType::String), ("more", PrimitiveType::String)], None)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn somebody_else_adds_columns_meanwhile(#[case] added: &[(&str, PrimitiveType)], #[case] what: Option<&str>) {
    let site = Site::new();
    let (_, mut second) = two_jobs(&site).await;
    let files = second.stage(&named(3..5)).await;
    let stale = open(&site).load().await.unwrap().unwrap();
    add_columns(&site, added).await;
    // On the schema that was looked at nothing lands, though no snapshot has come.
    let commit = TableCommit { store: second.store, n: 2, digest: "digest 2", files: &files, leaving: &[] };
    let attempted = open(&site).append(Some(&stale), &commit).await.unwrap();
    assert!(matches!(attempted, Attempted::Conflict), "{attempted:?}");
    let before = columns(&site).await;
    for recovered in [false, true] {
        let Some(what) = what else { break };
        let error = second.try_commit(&files, recovered).await.unwrap_err();
        refused(&error, &[what, &files[0].name, "lakemark reopen 2 JOB"]);
        assert_eq!((columns(&site).await, snapshots(&site).await), (before.clone(), 1), "nothing was written");
        assert!(site.at.join("data").join(&files[0].name).exists(), "nothing is lost");
    }
    if let Some(what) = what {
        let error = second.sink.base(&second.expected(), &files, &[]).await.unwrap_err();
        return refused(&error, &[what]);
    }
    assert_eq!(second.commit(files).await.version, 2);
    second.sink.check(Some(&second.expected())).await.unwrap();
    assert_eq!(columns(&site).await, before, "each once");
}

/// Each commits on what the other one left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_stores_bring_the_same_column_at_the_same_time() {
    let site = Site::new();
    let (_, mut one) = two_jobs(&site).await;
    let mut two = TableWriter::new(site.merging(), &named(0..0).schema(), &[]).await;
    let (a, b) = (one.stage(&named(3..5)).await, two.stage(&named(5..7)).await);
    let (a, b) = tokio::join!(one.commit(a), two.commit(b));
    assert_eq!([a.version.min(b.version), a.version.max(b.version)], [2, 3]);
    assert_eq!(a.schema, b.schema);
    let loaded = site.subject().await.loaded().await.unwrap();
    assert_eq!(loaded.metadata().schemas_iter().len(), 2, "the first one adds it");
    for writer in [&one, &two] {
        writer.sink.check(Some(&writer.expected())).await.unwrap();
    }
    expect_rows(&site, 0..7, |id| id >= 3);
}

/// A server, too, is asked whether the schema is still the one that was looked at.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_server_refuses_a_column_on_a_schema_that_has_changed() {
    let (subject, files) = on_server("memory://rest/columns", "memory://rest/columns");
    subject.recreate().await;
    let table = subject.open();
    let driver = CommitDriver::new(table.clone(), files);
    let mut file = driver.stage("f.parquet", "").await.unwrap();
    write_a_column_more(&mut file);
    let (size, upload) = file.finish().await.unwrap();
    let files = [OutputFile { name: "f.parquet".into(), folder: String::new(), size, rows: 3, upload }];
    let commit = TableCommit { store: StoreId::random(), n: 1, digest: "digest 1", files: &files, leaving: &[] };
    let stale = table.load().await.unwrap().unwrap();
    // Of no columns more: what the files bring is still free.
    let other = |builder: iceberg::spec::TableMetadataBuilder| {
        let id = NestedField::optional(1, "id", Type::Primitive(PrimitiveType::Long)).with_doc("what it is");
        let schema = iceberg::spec::Schema::builder().with_fields([Arc::new(id)]).build().unwrap();
        builder.add_current_schema(schema).unwrap()
    };
    subject.change(other).await;
    let attempted = table.append(Some(&stale), &commit).await.unwrap();
    assert!(matches!(attempted, Attempted::Conflict), "{attempted:?}");
    let now = table.load().await.unwrap().unwrap();
    let attempted = table.append(Some(&now), &commit).await.unwrap();
    assert!(matches!(attempted, Attempted::Landed(_)), "{attempted:?}");
    let loaded = subject.loaded().await.unwrap();
    let columns = loaded.metadata().current_schema().as_struct().fields();
    let seen: Vec<_> = columns.iter().map(|column| (column.id, &*column.name, column.doc.as_deref())).collect();
    assert_eq!(seen, [(1, "id", Some("what it is")), (2, "more", None)], "what it is told of stays");
}

fn open(site: &Site) -> IcebergTable {
    let catalog = options("sql", &site.uri());
    let table = IcebergTable::connect(site.at.to_str().unwrap(), &StorageOptions::default(), catalog).unwrap();
    table.with_schema_mode(SchemaMode::Merge)
}

/// A column that was there and is not any more keeps its id: what it was is never read as what is new.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_that_was_taken_once_is_not_given_again() {
    let site = Site::new();
    let (_, mut second) = two_jobs(&site).await;
    let files = second.stage(&named(3..5)).await;
    add_columns(&site, &[("more", PrimitiveType::String)]).await;
    let back = |builder: iceberg::spec::TableMetadataBuilder| builder.set_current_schema(0).unwrap();
    site.subject().await.change(back).await;
    let error = second.try_commit(&files, true).await.unwrap_err();
    refused(&error, &["column `name` by the id 2, and the table would give it 3", "lakemark reopen 2 JOB"]);
    // A query that is planned anew takes the ids that the table gives now.
    let mut anew = second.later(site.merging(), &named(0..0).schema()).await;
    anew.add(&named(3..5)).await;
    assert_eq!(columns(&site).await, [(1, "id".to_owned()), (3, "name".to_owned())]);
    expect_rows(&site, 0..5, |id| id >= 3);
}

/// Files of two queries that wait for one commit: by the same id they would be one column.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_fits_together_or_is_refused_before_it_is_decided() {
    let site = Site::new();
    let (_, mut second) = two_jobs(&site).await;
    let files = second.stage(&named(3..4)).await;
    for (other, what) in [
        (of("name", DataType::Int64), "is long with the id 2 in some files and string with the id 2 in others"),
        (of("more", DataType::Utf8), "column `name` by the id 2, and the table would give it 3"),
    ] {
        let third = second.later(site.merging(), &other).await;
        let error = third.sink.base(&third.expected(), &files, &[]).await.unwrap_err();
        refused(&error, &[what, "lakemark forget JOB --epoch 1"]);
    }
    // Its own commit takes the id that the next query was going to use: that is told before work is done for it.
    let mut third = second.later(site.merging(), &of("more", DataType::Utf8)).await;
    third.commit(files).await;
    let error = third.sink.base(&third.expected(), &[], &[]).await.unwrap_err();
    refused(&error, &["column `more` by the id 2, which is that of `name`", "run again"]);
    let third = third.later(site.merging(), &of("more", DataType::Utf8)).await;
    third.sink.base(&third.expected(), &[], &[]).await.unwrap();
}

/// Names that columns of a table cannot get.
#[rstest]
#[case::with_a_dot("na.me", "a name with a dot")]
#[case::of_a_partition("id_part", "the name of a partition")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_no_column_can_get_are_refused(#[case] name: &str, #[case] what: &str) {
    let site = Site::new();
    let (first, _) = two_jobs(&site).await;
    let spec = UnboundPartitionSpec::builder().add_partition_field(1, "id_part", Transform::Identity).unwrap().build();
    // It was partitioned once.
    let change = |builder: iceberg::spec::TableMetadataBuilder| builder.add_partition_spec(spec).unwrap();
    site.subject().await.change(change).await;
    let second = first.later(site.merging(), &of(name, DataType::Int64)).await;
    let error = second.sink.check(Some(&second.expected())).await.unwrap_err();
    refused(&error, &[what, "with AS"]);
}

/// Folders are those of the table, and columns are added to its files.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partitioned_table_gets_columns() {
    let site = Site::new();
    let day = |of: &RecordBatch| {
        let days: ArrayRef =
            Arc::new(StringArray::from_iter_values((0..of.num_rows()).map(|n| format!("day {}", n % 2))));
        let schema = of.schema();
        let columns = schema.fields().iter().map(|field| field.name().clone()).zip(of.columns().iter().cloned());
        let columns: Vec<(String, ArrayRef)> = columns.chain([("day".to_owned(), days)]).collect();
        RecordBatch::try_from_iter(columns).unwrap()
    };
    let mut first = site.writer(&day(&rows(0..0)).schema(), &["day"]).await;
    first.add(&day(&rows(0..4))).await;
    let mut second = first.later(site.merging(), &day(&named(0..0)).schema()).await;
    let files = second.stage(&day(&named(4..8))).await;
    second.sink.base(&second.expected(), &files, &[]).await.unwrap();
    // By a driver that knows of no partitions.
    second.sink = site.sink();
    second.commit(files).await;
    let names: Vec<String> = columns(&site).await.into_iter().map(|(_, name)| name).collect();
    assert_eq!(names, ["id", "day", "name"]);
    const ROWS: &str = "
rows = table.scan(row_filter=\"day = 'day 1'\").to_arrow().to_pylist()
print(sorted((row['id'], row['name'] or '', row['day']) for row in rows))
";
    if let Some(read) = run_python(&format!("{PYICEBERG}{ROWS}"), &[&site.database]) {
        assert_eq!(read, "[(1, '', 'day 1'), (3, '', 'day 1'), (5, 'name 5', 'day 1'), (7, 'name 7', 'day 1')]");
    }
}
