//! Files whose columns differ, and columns that are folders.

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, Float64Array, Int8Array, Int16Array, Int32Array, Int64Array, RecordBatch, StringArray, UInt32Array,
};
use lakemark::ErrorKind;
use lakemark_datafusion::Outcome;

use crate::support::data::table;
use crate::support::{Job, Lab, rows};

fn ints(values: &[i64]) -> ArrayRef {
    Arc::new(Int64Array::from(values.to_vec()))
}

fn texts(values: &[&str]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

fn write(lab: &Lab, name: &str, columns: Vec<(&str, ArrayRef, bool)>) {
    lab.write(&format!("docs/{name}"), &table(columns), 10);
}

fn job<'a>(lab: &'a Lab, sql: &'a str) -> Job<'a> {
    lab.job("job", sql).packed()
}

#[tokio::test]
async fn a_missing_column_is_null_and_an_extra_one_is_ignored() {
    let lab = Lab::new();
    write(&lab, "a.parquet", vec![("id", ints(&[1, 2]), false), ("text", texts(&["a", "b"]), true)]);
    write(&lab, "b.parquet", vec![("id", ints(&[3]), false)]);
    write(
        &lab,
        "c.parquet",
        vec![("more", texts(&["x"]), true), ("text", texts(&["c"]), true), ("id", ints(&[4]), false)],
    );
    let job = job(&lab, "SELECT * FROM docs");
    assert_eq!(job.ok().await.outcome, Outcome::Done);
    let expected = ["1 | a", "2 | b", "3 | NULL", "4 | c"].map(str::to_owned);
    assert_eq!(job.rows().await, rows(&["id", "text"], expected));
}

#[tokio::test]
async fn narrower_types_are_widened() {
    let lab = Lab::new();
    let file = |name, id: ArrayRef, n: ArrayRef| write(&lab, name, vec![("id", id, true), ("n", n, true)]);
    file("a.parquet", ints(&[1, i64::MAX]), Arc::new(Float64Array::from(vec![0.5, 1.5])));
    file("b.parquet", Arc::new(Int32Array::from(vec![i32::MIN])), Arc::new(Int16Array::from(vec![7])));
    file("c.parquet", Arc::new(UInt32Array::from(vec![u32::MAX])), Arc::new(Int8Array::from(vec![-8])));
    let job = job(&lab, "SELECT id, n FROM docs WHERE n < 100");
    assert_eq!(job.ok().await.outcome, Outcome::Done);
    let expected = ["1 | 0.5", "9223372036854775807 | 1.5", "-2147483648 | 7.0", "4294967295 | -8.0"];
    assert_eq!(job.rows().await, rows(&["id", "n"], expected.map(str::to_owned)));
}

#[tokio::test]
async fn a_file_of_another_type_is_named_and_the_others_are_done() {
    let lab = Lab::new();
    write(&lab, "a.parquet", vec![("id", ints(&[1]), false)]);
    write(&lab, "b.parquet", vec![("id", texts(&["two"]), false)]);
    write(&lab, "c.parquet", vec![("other", ints(&[3]), false)]);
    write(&lab, "d.parquet", vec![("id", ints(&[4]), false)]);
    std::fs::write(lab.path("docs/e.parquet"), b"PAR1 this is not Parquet").unwrap();
    let job = job(&lab, "SELECT id FROM docs");
    for again in [false, true] {
        let report = job.ok().await;
        assert_eq!(report.outcome, Outcome::Partial);
        let source = &report.sources[0];
        let unusable: Vec<_> = source.unusable.iter().map(|u| (u.path.as_str(), u.why.as_str())).collect();
        assert_eq!(unusable.len(), 3, "{unusable:?}");
        assert_eq!(unusable[0], ("b.parquet", "column `id` is Utf8, but Int64 in the source's schema"));
        assert_eq!(unusable[1], ("c.parquet", "column `id` is missing and cannot be null"));
        assert!(unusable[2].1.contains("does not end in a Parquet footer"), "{unusable:?}");
        assert_eq!((source.listed, source.done, source.new), if again { (5, 2, 0) } else { (5, 0, 2) });
        assert_eq!(job.rows().await, rows(&["id"], ["1", "4"].map(str::to_owned)));
    }
}

#[tokio::test]
async fn the_recorded_schema_stays_when_the_first_file_is_another() {
    let lab = Lab::new();
    write(&lab, "b.parquet", vec![("id", ints(&[1]), true), ("text", texts(&["b"]), true)]);
    let mut job = job(&lab, "SELECT * FROM docs");
    job.ok().await;
    write(&lab, "a.parquet", vec![("id", ints(&[2]), true), ("size", ints(&[20]), true)]);
    job.ok().await;
    assert_eq!(job.rows().await, rows(&["id", "text"], ["1 | b", "2 | NULL"].map(str::to_owned)));

    write(&lab, "0.parquet", vec![("id", ints(&[3]), true), ("size", ints(&[30]), true)]);
    let error = lab.job("job", "SELECT id, size FROM docs").err().await;
    assert_eq!(error.kind(), ErrorKind::Invalid, "the recorded schema has no such column: {error}");
    job.sources[0].refresh_schema = true;
    let (ctx, _checkpoints) = job.session().await.unwrap();
    let columns: Vec<String> =
        ctx.table("docs").await.unwrap().schema().fields().iter().map(|f| f.name().clone()).collect();
    assert_eq!(columns, ["id", "size"]);
    job.ok().await;
    write(&lab, "1.parquet", vec![("id", ints(&[4]), true), ("text", texts(&["x"]), true)]);
    job.sources[0].refresh_schema = false;
    let (ctx, _checkpoints) = job.session().await.unwrap();
    assert_eq!(ctx.table("docs").await.unwrap().schema().fields().len(), 2, "the new schema is recorded");
}

fn one(id: i64) -> RecordBatch {
    table(vec![("id", ints(&[id]), false)])
}

#[tokio::test]
async fn folders_with_odd_values_are_columns() {
    let lab = Lab::new();
    let values = ["en", "a b", "x%2Fy", "50%25", "ü=ß", "__HIVE_DEFAULT_PARTITION__", "#1", "a+b", "{}"];
    for (id, value) in values.iter().enumerate() {
        lab.write(&format!("docs/lang={value}/day=1/part.parquet"), &one(id as i64), 10);
    }
    let mut job = job(&lab, "SELECT * FROM docs");
    job.options.sizing.bytes = 1;
    job.clone().max_tasks(4).ok().await;
    job.ok().await;
    let decoded = ["en", "a b", "x/y", "50%", "ü=ß", "NULL", "#1", "a+b", "{}"];
    let expected = decoded.iter().enumerate().map(|(id, lang)| format!("{id} | {lang} | 1"));
    assert_eq!(job.rows().await, rows(&["id", "lang", "day"], expected));

    let null = lab.job("null", "SELECT id FROM docs WHERE lang IS NULL");
    let report = null.ok().await;
    assert_eq!((report.tasks.planned, report.sources[0].excluded), (1, 8));
    assert_eq!(null.rows().await.rows, ["5"]);
    let slash = lab.job("slash", "SELECT id FROM docs WHERE lang = 'x/y'");
    slash.ok().await;
    assert_eq!(slash.rows().await.rows, ["2"]);
}

#[tokio::test]
async fn a_column_of_the_files_wins_over_a_folder() {
    let lab = Lab::new();
    let file = |id, lang| table(vec![("id", ints(&[id]), false), ("lang", texts(&[lang]), true)]);
    lab.write("docs/lang=en/day=1/a.parquet", &file(1, "english"), 10);
    lab.write("docs/lang=de/day=2/a.parquet", &file(2, "german"), 10);
    let job = job(&lab, "SELECT * FROM docs WHERE lang <> 'en'");
    job.ok().await;
    let expected = ["1 | english | 1", "2 | german | 2"].map(str::to_owned);
    assert_eq!(job.rows().await, rows(&["id", "lang", "day"], expected));
}

/// A stray file must not take a column out of the output of the next run.
#[tokio::test]
async fn a_file_without_the_folder_is_unusable_once_the_columns_are_known() {
    let lab = Lab::new();
    lab.write("docs/lang=en/a.parquet", &one(1), 10);
    let job = job(&lab, "SELECT * FROM docs");
    job.ok().await;
    lab.write("docs/stray.parquet", &one(2), 10);
    lab.write("docs/lang=de/b.parquet", &one(3), 10);
    let report = job.ok().await;
    assert_eq!(report.outcome, Outcome::Partial);
    assert_eq!(report.sources[0].unusable[0].path, "stray.parquet");
    assert!(report.sources[0].unusable[0].why.contains("lang"), "{:?}", report.sources[0].unusable);
    assert_eq!(job.rows().await, rows(&["id", "lang"], ["1 | en", "3 | de"].map(str::to_owned)));
}

#[tokio::test]
async fn an_empty_lake_has_nothing_and_its_first_files_are_done() {
    let lab = Lab::new();
    std::fs::create_dir_all(lab.path("docs")).unwrap();
    let job = job(&lab, "SELECT * FROM docs");
    let (_, checkpoints) = job.session().await.unwrap();
    assert!(!checkpoints.has_schemas().unwrap());
    assert_eq!(checkpoints.blank_report().await.outcome, Outcome::Nothing);
    assert!(!lab.path("job.store").exists());
    lab.write("docs/a.parquet", &one(1), 10);
    job.ok().await;
    assert_eq!(job.rows().await.rows, ["1"]);
}
