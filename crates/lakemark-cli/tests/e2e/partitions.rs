//! `partition_by`: folders named by values of every kind, read back by readers that know nothing of lakemark.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;

use super::output::files_below;
use super::readers::{Wanted, check};
use super::scene::Scene;

/// Writes rows of nullable texts.
pub(super) fn write_texts(path: &Path, columns: &[&str], rows: &[&[Option<&str>]]) {
    let schema =
        Arc::new(Schema::new(columns.iter().map(|c| Field::new(*c, DataType::Utf8, true)).collect::<Vec<_>>()));
    let arrays =
        (0..columns.len()).map(|i| Arc::new(StringArray::from_iter(rows.iter().map(|row| row[i]))) as ArrayRef);
    let batch = RecordBatch::try_new(Arc::clone(&schema), arrays.collect()).unwrap();
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), schema, None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

const ODD: [Option<&str>; 16] = [
    Some("plain"),
    Some("a b"),
    Some("R&D"),
    Some("x/y"),
    Some("100%"),
    Some("100%25"),
    Some("é"),
    Some("日本"),
    Some("a=b"),
    Some("a+b"),
    Some("?*[x]{y}"),
    Some(".."),
    Some("'\"\\"),
    Some("_hidden"),
    Some(""),
    None,
];

#[test]
fn values_of_every_kind_come_back_as_they_were() {
    let mut scene = Scene::new();
    let mut reference = Vec::new();
    let ids: Vec<String> = (0..3 * ODD.len()).map(|i| format!("id{i}")).collect();
    for (f, ids) in ids.chunks(ODD.len()).enumerate() {
        let rows: Vec<[Option<&str>; 3]> = ids
            .iter()
            .zip(ODD)
            .enumerate()
            .map(|(i, (id, p))| [Some(id.as_str()), p, Some(["x", "y z"][i % 2])])
            .collect();
        let rows: Vec<&[Option<&str>]> = rows.iter().map(|row| &row[..]).collect();
        write_texts(&scene.path(&format!("lake/f{f}.parquet")), &["id", "p", "q"], &rows);
        // A folder cannot tell the empty text from null; as in Hive, both are null.
        reference.extend(rows.iter().map(|row| [row[0], row[1].filter(|p| !p.is_empty()), row[2]]));
    }
    scene.set("transform.sql", "\"SELECT id, p, q FROM docs\"").set("sink.partition_by", "[\"p\", \"q\"]");
    let first = scene.run(&[]).done();
    assert_eq!(first.count("rows/out"), ids.len() as u64);
    let path = scene.path("reference.parquet");
    let rows: Vec<&[Option<&str>]> = reference.iter().map(|row| &row[..]).collect();
    write_texts(&path, &["id", "p", "q"], &rows);
    check(&scene.out(), &path, Wanted::Partitioned);
    assert!(files_below(&scene.out()).iter().any(|(path, _)| path.to_string_lossy().contains("/p=a b/q=")));
    scene.run(&[]).nothing();
    // The output is a source as well: what lakemark wrote, lakemark reads.
    let again = Scene::new();
    let (source, sink) = (format!("docs={}", scene.out().display()), format!("parquet:{}", again.out().display()));
    let copied = again.run(&["--source", &source, "--sink", &sink, "--sql", "SELECT id, p, q FROM docs"]).done();
    assert_eq!(copied.count("rows/out"), ids.len() as u64);
    check(&again.out(), &path, Wanted::All);
}

#[test]
fn a_partition_column_that_is_not_there_is_an_error() {
    let mut scene = Scene::small();
    scene.set("sink.partition_by", "[\"nope\"]");
    scene.run(&[]).error(1, "Invalid", &["nope", "id", "  way on: "]);
    assert!(!scene.store().exists());
}

#[test]
fn a_crash_within_a_partitioned_commit_changes_nothing() {
    let mut scene = Scene::new();
    let rows: Vec<[Option<&str>; 2]> = ODD.iter().map(|p| [Some("id"), *p]).collect();
    let rows: Vec<&[Option<&str>]> = rows.iter().map(|row| &row[..]).collect();
    for f in 0..3 {
        write_texts(&scene.path(&format!("lake/f{f}.parquet")), &["id", "p"], &rows);
    }
    scene.set("transform.sql", "\"SELECT id, p FROM docs\"").set("sink.partition_by", "[\"p\"]");
    let reference = scene.path("reference.parquet");
    let all: Vec<[Option<&str>; 2]> =
        (0..3).flat_map(|_| ODD).map(|p| [Some("id"), p.filter(|p| !p.is_empty())]).collect();
    let all: Vec<&[Option<&str>]> = all.iter().map(|row| &row[..]).collect();
    write_texts(&reference, &["id", "p"], &all);
    scene.crash_at("rename.after", 7);
    scene.crash_at("rename.before", 9);
    scene.run(&[]).done();
    check(&scene.out(), &reference, Wanted::Partitioned);
    scene.run(&[]).nothing();
}
