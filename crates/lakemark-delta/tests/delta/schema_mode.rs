//! Columns that a table lacks: added by the commit that brings them, or refused.

use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use lakemark::{
    Attempted, CommitDriver, DataFiles, Error, ErrorKind, Intent, OutputSink, SchemaMode, Settled, StorageOptions,
    Table, TableCommit, TableWriter, run_python,
};
use lakemark_delta::{DeltaTable, KIND};
use object_store::local::LocalFileSystem;
use rstest::rstest;
use serde_json::{Value, json};

use crate::subject::{Subject, new_table, one_column};
use crate::writer::{entry, store_writer};
use crate::writers::rows;

/// Rows with these ids, and their names.
fn named(ids: std::ops::Range<i64>) -> RecordBatch {
    let names = StringArray::from_iter_values(ids.clone().map(|id| format!("name {id}")));
    let columns: [(&str, ArrayRef); 2] =
        [("name", Arc::new(names)), ("id", Arc::new(Int64Array::from_iter_values(ids)))];
    RecordBatch::try_from_iter(columns).unwrap()
}

fn table(at: &Path, mode: SchemaMode) -> DeltaTable {
    DeltaTable::connect(at.to_str().unwrap(), &StorageOptions::default()).unwrap().with_schema_mode(mode)
}

fn sink(at: &Path, mode: SchemaMode) -> Arc<dyn OutputSink> {
    let files = DataFiles::connect(KIND, at.to_str().unwrap(), &StorageOptions::default()).unwrap();
    Arc::new(CommitDriver::new(table(at, mode), files))
}

/// The table of `at`, as somebody else works on it.
fn somebody_else(at: &Path) -> Subject {
    let objects = Arc::new(LocalFileSystem::new_with_prefix(at).unwrap());
    Subject::new(table(at, SchemaMode::Fail), objects, "file:///")
}

/// A store that has committed ids alone, and its next job, whose rows have names and which adds columns.
async fn two_jobs(at: &Path) -> (TableWriter, TableWriter) {
    let mut first = store_writer(at.to_str().unwrap(), &one_column(), &[]);
    first.add(&rows(0..3)).await;
    let second = first.later(sink(at, SchemaMode::Merge), &named(0..0).schema()).await;
    (first, second)
}

fn metadata(at: &Path, version: u64) -> Option<Value> {
    entry(at, version).into_iter().find_map(|line| line.get("metaData").cloned())
}

/// Somebody else adds a column, as other writers do it.
async fn add_column(at: &Path, name: &str, of: &str) {
    let subject = somebody_else(at);
    let last = subject.version().await.unwrap();
    let mut of_table = (0..=last).rev().find_map(|version| metadata(at, version)).unwrap();
    let mut schema: Value = serde_json::from_str(of_table["schemaString"].as_str().unwrap()).unwrap();
    let column = json!({ "name": name, "type": of, "nullable": true, "metadata": {} });
    schema["fields"].as_array_mut().unwrap().push(column);
    of_table["schemaString"] = schema.to_string().into();
    subject.commit("ADD COLUMNS", json!({}), &[json!({ "metaData": of_table })]).await;
}

/// Compares rows and nulls as four readers find them, whole and by filters on the new column.
const READ: &str = "
import sys, json, deltalake, duckdb, polars, pyarrow as pa, pyarrow.dataset as ds
at, wanted = sys.argv[1], sorted(json.load(open(sys.argv[2])), key=lambda row: row['id'])
table = deltalake.DeltaTable(at)
by_id = lambda rows: sorted(rows, key=lambda row: row['id'])
def queried(where):
    query = deltalake.QueryBuilder().register('t', table).execute(f'SELECT id, name FROM t WHERE {where}')
    return by_id(pa.table(query.read_all()).to_pylist())
arrow = table.to_pyarrow_dataset()
for found in (
    by_id(table.to_pyarrow_table().to_pylist()), by_id(polars.read_delta(at).to_dicts()), queried('true'),
    by_id(duckdb.sql('SELECT * FROM arrow').to_arrow_table().to_pylist()),
):
    assert found == wanted, (found, wanted)
# Not by pyarrow: deltalake's dataset knows no bounds of older files as null ones, in tables of its own too.
assert queried('name IS NULL') == [row for row in wanted if row['name'] is None]
for row in wanted:
    name = row['name']
    if name is None: continue
    for found in (by_id(arrow.to_table(filter=ds.field('name') == name).to_pylist()), queried(f\"name = '{name}'\")):
        assert found == [row], (row, found)
fragments = list(arrow.get_fragments(filter=ds.field('name') == 'name 4'))
assert len(fragments) == 1, fragments
print(len(wanted))
";

/// What all readers are to find: ids, and names of some of them.
fn expect_rows(at: &Path, ids: std::ops::Range<i64>, is_named: impl Fn(i64) -> bool) {
    let name = |id: i64| is_named(id).then(|| format!("name {id}"));
    let wanted: Vec<Value> = ids.map(|id| json!({ "id": id, "name": name(id) })).collect();
    let file = at.with_file_name("wanted.json");
    std::fs::write(&file, Value::from(wanted.clone()).to_string()).unwrap();
    if let Some(read) = run_python(READ, &[at, &file]) {
        assert_eq!(read, wanted.len().to_string());
    }
}

fn refused(error: &Error, words: &[&str]) {
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    for word in words {
        assert!(error.to_string().contains(word), "{word} in {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commit_that_brings_a_column_adds_it() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("table");
    let (mut first, mut second) = two_jobs(&at).await;
    second.sink.check(Some(&second.expected())).await.unwrap();
    let added = second.add(&named(3..6)).await;
    assert_eq!(added.version, 1, "one entry");
    assert_ne!(added.schema, first.table.as_ref().unwrap().schema);
    assert_eq!(second.sink.table(second.store).await.unwrap(), Some(added.clone()), "as it is read");
    second.sink.check(Some(&second.expected())).await.unwrap();
    let (before, mut now) = (metadata(&at, 0).unwrap(), metadata(&at, 1).unwrap());
    let schema: Value = serde_json::from_str(now["schemaString"].as_str().unwrap()).unwrap();
    let column = |name: &str, of: &str| json!({ "name": name, "type": of, "nullable": true, "metadata": {} });
    assert_eq!(schema["fields"], json!([column("id", "long"), column("name", "string")]), "at the end");
    now["schemaString"] = before["schemaString"].clone();
    assert_eq!(now, before, "nothing else changes");
    let stats = entry(&at, 1).into_iter().find_map(|line| line["add"]["stats"].as_str().map(str::to_owned)).unwrap();
    let stats: Value = serde_json::from_str(&stats).unwrap();
    assert_eq!((&stats["minValues"]["name"], &stats["nullCount"]["name"]), (&json!("name 3"), &json!(0)));

    let again = second.add(&named(6..7)).await;
    assert_eq!((metadata(&at, 2), again.schema.clone()), (None, added.schema.clone()), "once");
    // A job that lacks it goes on, and needs no leave.
    first = second.later(sink(&at, SchemaMode::Fail), &one_column()).await;
    first.sink.check(Some(&first.expected())).await.unwrap();
    assert_eq!(first.add(&rows(7..9)).await.schema, added.schema);
    expect_rows(&at, 0..9, |id| (3..7).contains(&id));
}

/// What a table is called, set to and told of its columns is not changed, by whoever it was made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rest_of_the_metadata_stays() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("table");
    std::fs::create_dir(&at).unwrap();
    let [_, mut made] = new_table();
    let schema = json!({ "type": "struct", "fields": [
        { "name": "id", "type": "long", "nullable": true, "metadata": { "comment": "of theirs", "n": 7 } },
    ] });
    let of = &mut made["metaData"];
    of["name"] = "docs".into();
    of["description"] = "what it is".into();
    of["configuration"] = json!({ "delta.appendOnly": "false", "theirs": "x" });
    of["createdTime"] = 17.into();
    of["schemaString"] = schema.to_string().into();
    let [protocol, _] = new_table();
    somebody_else(&at).commit("CREATE TABLE", json!({}), &[protocol, made.clone()]).await;
    let mut later = TableWriter::new(sink(&at, SchemaMode::Merge), &named(0..0).schema(), &[]).await;
    later.add(&named(0..2)).await;
    let mut now = metadata(&at, 1).unwrap();
    let schema: Value = serde_json::from_str(now["schemaString"].as_str().unwrap()).unwrap();
    assert_eq!(schema["fields"][0]["metadata"], json!({ "comment": "of theirs", "n": 7 }));
    assert_eq!(schema["fields"][1]["name"], "name");
    now["schemaString"] = made["metaData"]["schemaString"].clone();
    assert_eq!(now, made["metaData"]);
    let protocol = entry(&at, 1).into_iter().find(|line| line.get("protocol").is_some());
    assert_eq!(protocol, None, "nothing asks for another one");
}

/// A driver that knows nothing of the query that wrote the files, as those by a store alone or by a changed job.
#[rstest]
#[case::no_rows(None)]
#[case::other_rows(Some(Schema::new(vec![Field::new("other", DataType::Date32, true)])))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_decided_lands_by_any_driver(#[case] rows_of: Option<Schema>) {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("table");
    let (_, mut second) = two_jobs(&at).await;
    let files = second.stage(&named(3..5)).await;
    second.sink = match &rows_of {
        None => sink(&at, SchemaMode::Fail),
        Some(other) => sink(&at, SchemaMode::Fail).of_rows(other).await.unwrap(),
    };
    let landed = second.try_commit(&files, true).await.unwrap();
    let Settled::Done { table: Some(landed), .. } = landed else { panic!("{landed:?}") };
    assert!(metadata(&at, 1).is_some());
    // The answer was lost: it is found.
    let found = second.try_commit(&files, true).await.unwrap();
    assert!(matches!(found, Settled::Done { table: Some(ref table), .. } if *table == landed), "{found:?}");
    assert_eq!(landed.version, 1);
    expect_rows(&at, 0..5, |id| id >= 3);
}

/// Only what asked for it is added: files of a job that did not are refused, as they always were.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_leave_nothing_is_added() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("table");
    let (first, _) = two_jobs(&at).await;
    let mut second = first.later(sink(&at, SchemaMode::Fail), &named(0..0).schema()).await;
    let error = second.sink.check(Some(&second.expected())).await.unwrap_err();
    refused(&error, &["no column `name`", "--set sink.schema_mode=merge"]);
    let files = second.stage(&named(3..5)).await;
    let error = second.try_commit(&files, true).await.unwrap_err();
    refused(&error, &["no column `name`", &files[0].name, "lakemark reopen 2 JOB"]);
    assert_eq!(somebody_else(&at).version().await, Some(0));
    // The next job may add it, also for what waits.
    second.sink = sink(&at, SchemaMode::Merge);
    second.commit(files).await;
    expect_rows(&at, 0..5, |id| id >= 3);
}

/// R77: the table changes between staging and commit.
#[rstest]
#[case::the_same("name", "string", None)]
#[case::of_another_type("name", "long", Some("column `name` is string in the query and long in the table"))]
#[case::in_other_letters("Name", "string", Some("the table has a column `Name`, and the query `name`"))]
#[case::another("more", "date", None)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn somebody_else_adds_a_column_meanwhile(#[case] name: &str, #[case] of: &str, #[case] what: Option<&str>) {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("table");
    let (_, mut second) = two_jobs(&at).await;
    let files = second.stage(&named(3..5)).await;
    let stale = table(&at, SchemaMode::Merge).load().await.unwrap().unwrap();
    add_column(&at, name, of).await;
    // On the version that was looked at nothing lands.
    let commit = TableCommit { store: second.store, n: 2, digest: "digest 2", files: &files, leaving: &[] };
    let attempted = table(&at, SchemaMode::Merge).append(Some(&stale), &commit).await.unwrap();
    assert!(matches!(attempted, Attempted::Conflict), "{attempted:?}");
    for recovered in [false, true] {
        let Some(what) = what else { break };
        let error = second.try_commit(&files, recovered).await.unwrap_err();
        refused(&error, &[what, "lakemark reopen 2 JOB"]);
        let error = second.sink.base(&second.expected(), &files, &[]).await.unwrap_err();
        refused(&error, &[what]);
        assert_eq!(somebody_else(&at).version().await, Some(1), "nothing was written");
        assert!(at.join(&files[0].name).exists(), "nothing is lost");
    }
    if what.is_none() {
        assert_eq!(second.commit(files).await.version, 2);
        second.sink.check(Some(&second.expected())).await.unwrap();
        let columns: Vec<String> = newest_columns(&at).await;
        let expected = if name == "name" { vec!["id", "name"] } else { vec!["id", "more", "name"] };
        assert_eq!(columns, expected, "each once");
    }
}

/// Each commits on what the other one left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_stores_bring_the_same_column_at_the_same_time() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("table");
    let (_, mut one) = two_jobs(&at).await;
    let mut two = TableWriter::new(sink(&at, SchemaMode::Merge), &named(0..0).schema(), &[]).await;
    let (a, b) = (one.stage(&named(3..5)).await, two.stage(&named(5..7)).await);
    let (a, b) = tokio::join!(one.commit(a), two.commit(b));
    assert_eq!([a.version.min(b.version), a.version.max(b.version)], [1, 2]);
    assert_eq!(a.schema, b.schema);
    assert_eq!([metadata(&at, 1).is_some(), metadata(&at, 2).is_some()], [true, false], "the first one adds it");
    for writer in [&one, &two] {
        writer.sink.check(Some(&writer.expected())).await.unwrap();
    }
    expect_rows(&at, 0..7, |id| id >= 3);
}

async fn newest_columns(at: &Path) -> Vec<String> {
    let last = somebody_else(at).version().await.unwrap();
    let of_table = (0..=last).rev().find_map(|version| metadata(at, version)).unwrap();
    let schema: Value = serde_json::from_str(of_table["schemaString"].as_str().unwrap()).unwrap();
    schema["fields"].as_array().unwrap().iter().map(|field| field["name"].as_str().unwrap().to_owned()).collect()
}

/// Files of two queries that wait for one commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_fits_together_or_is_refused_before_it_is_decided() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("table");
    let (_, mut second) = two_jobs(&at).await;
    let files = second.stage(&named(3..4)).await;
    let of = |name: &str, of: DataType| -> SchemaRef { Arc::new(Schema::new(vec![Field::new(name, of, true)])) };
    let third = second.later(sink(&at, SchemaMode::Merge), &of("name", DataType::Int64)).await;
    let error = third.sink.base(&third.expected(), &files, &[]).await.unwrap_err();
    refused(&error, &["`name` is string in the query and long", &files[0].name, "lakemark forget JOB --epoch 1"]);
    let mut third = second.later(sink(&at, SchemaMode::Merge), &of("more", DataType::Int64)).await;
    third.sink.base(&third.expected(), &files, &[]).await.unwrap();
    let more = RecordBatch::try_from_iter([("more", Arc::new(Int64Array::from(vec![1])) as ArrayRef)]).unwrap();
    let both = [files, third.stage(&more).await].concat();
    assert_eq!(third.commit(both).await.version, 1);
    assert_eq!(newest_columns(&at).await, ["id", "name", "more"]);
}

/// A column whose type needs a feature that the table lacks; the protocol of a table is not raised.
#[rstest]
#[case::without(json!({ "minReaderVersion": 1, "minWriterVersion": 2 }), false)]
#[case::with(
    json!({
        "minReaderVersion": 3, "minWriterVersion": 7,
        "readerFeatures": ["timestampNtz"], "writerFeatures": ["timestampNtz"],
    }),
    true
)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_column_that_needs_a_feature_is_added_to_a_table_that_has_it(#[case] protocol: Value, #[case] has: bool) {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("table");
    std::fs::create_dir(&at).unwrap();
    let [_, made] = new_table();
    somebody_else(&at).commit("CREATE TABLE", json!({}), &[json!({ "protocol": protocol }), made]).await;
    let local: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![1]));
    let batch = RecordBatch::try_from_iter([("local", local)]).unwrap();
    let mut writer = TableWriter::new(sink(&at, SchemaMode::Merge), &batch.schema(), &[]).await;
    let files = writer.stage(&batch).await;
    if has {
        writer.commit(files).await;
        assert_eq!(newest_columns(&at).await, ["id", "local"]);
        return;
    }
    let checked = writer.sink.check(Some(&writer.expected())).await.unwrap_err();
    writer.sink = sink(&at, SchemaMode::Fail);
    for error in [checked, writer.try_commit(&files, true).await.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("delta.feature.timestampNtz"), "{error}");
    }
    assert_eq!(somebody_else(&at).version().await, Some(0));
}

/// Columns that are known by ids or other names are none that can be added by theirs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_whose_columns_are_mapped_is_refused_in_any_mode() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("table");
    std::fs::create_dir(&at).unwrap();
    let [mut protocol, mut made] = new_table();
    protocol["protocol"] = json!({ "minReaderVersion": 2, "minWriterVersion": 5 });
    made["metaData"]["configuration"] =
        json!({ "delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "1" });
    let schema = json!({ "type": "struct", "fields": [{
        "name": "id", "type": "long", "nullable": true,
        "metadata": { "delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "c" },
    }] });
    made["metaData"]["schemaString"] = schema.to_string().into();
    somebody_else(&at).commit("CREATE TABLE", json!({}), &[protocol, made]).await;
    let writer = TableWriter::new(sink(&at, SchemaMode::Merge), &named(0..0).schema(), &[]).await;
    let error = writer.sink.check(Some(&writer.expected())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("column mapping"), "{error}");
}

/// Old output leaves by the entry that adds the column, and folders are those of the table.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_replaced_leaves_with_the_commit_that_adds_a_column() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("table");
    let day = |of: &RecordBatch| {
        let days: ArrayRef =
            Arc::new(StringArray::from_iter_values((0..of.num_rows()).map(|n| format!("day {}", n % 2))));
        let schema = of.schema();
        let columns = schema.fields().iter().map(|field| field.name().clone()).zip(of.columns().iter().cloned());
        let columns: Vec<(String, ArrayRef)> = columns.chain([("day".to_owned(), days)]).collect();
        RecordBatch::try_from_iter(columns).unwrap()
    };
    let mut first = store_writer(at.to_str().unwrap(), &day(&rows(0..0)).schema(), &["day"]);
    first.add(&day(&rows(0..4))).await;
    let old = first.committed.clone();
    assert_eq!(old.len(), 2, "a file a day");
    let mut second = first.later(sink(&at, SchemaMode::Merge), &day(&named(0..0)).schema()).await;
    let files = second.stage(&day(&named(4..8))).await;
    second.sink.base(&second.expected(), &files, &old).await.unwrap();
    let base = second.table.clone();
    let intent = Intent {
        store: second.store,
        n: 2,
        digest: "digest 2",
        base: base.as_ref(),
        leaving: &old,
        ..Intent::bare(&files)
    };
    let settled = second.sink.commit(&intent).await.unwrap();
    assert!(matches!(settled, Settled::Done { .. }), "{settled:?}");
    let lines = entry(&at, 1);
    for (kind, n) in [("metaData", 1), ("add", 2), ("remove", 2)] {
        assert_eq!(lines.iter().filter(|line| line.get(kind).is_some()).count(), n, "{kind}");
    }
    assert_eq!(metadata(&at, 1).unwrap()["partitionColumns"], json!(["day"]));
    assert_eq!(newest_columns(&at).await, ["id", "day", "name"]);
    const ROWS: &str = "
import sys, deltalake
rows = deltalake.DeltaTable(sys.argv[1]).to_pyarrow_table().to_pylist()
print(sorted((row['id'], row['name'], row['day']) for row in rows))
";
    if let Some(read) = run_python(ROWS, &[&at]) {
        let row = |id: i64| format!("({id}, 'name {id}', 'day {}')", id % 2);
        assert_eq!(read, format!("[{}]", (4..8).map(row).collect::<Vec<_>>().join(", ")));
    }
    // Only rows leave, and the columns stay.
    second.table = second.sink.table(second.store).await.unwrap();
    let last = Intent { n: 3, digest: "digest 3", base: second.table.as_ref(), leaving: &files, ..intent };
    second.sink.commit(&Intent { files: &[], ..last }).await.unwrap();
    assert_eq!(metadata(&at, 2), None);
}
