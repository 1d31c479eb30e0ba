//! Compressed CSV and JSON: read as what is in them, and never in part.

use std::fmt::Write as _;
use std::fs;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_compression::futures::bufread::{BzEncoder, GzipEncoder, XzEncoder, ZstdEncoder};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::datasource::file_format::csv::CsvFormat;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::prelude::SessionContext;
use futures::AsyncReadExt;
use lakemark::{ErrorKind, OnMoved, SourcePolicy};
use lakemark_datafusion::{CsvFileOptions, Outcome, RunReport, SourceFormat, SourceSpec, read_lookup};
use rstest::rstest;

use crate::support::{Job, Lab, Rows, rows, udf};
use crate::wrapped::Session;

const ENDS: [&str; 5] = ["", ".gz", ".bz2", ".xz", ".zst"];
const SQL: &str = "SELECT id, upper(text) AS text FROM docs";

/// `content` as a file with this end is compressed.
async fn compressed(end: &str, content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    match end {
        ".gz" => GzipEncoder::new(content).read_to_end(&mut bytes).await.unwrap(),
        ".bz2" => BzEncoder::new(content).read_to_end(&mut bytes).await.unwrap(),
        ".xz" => XzEncoder::new(content).read_to_end(&mut bytes).await.unwrap(),
        ".zst" => ZstdEncoder::new(content).read_to_end(&mut bytes).await.unwrap(),
        _ => Read::read_to_end(&mut &content[..], &mut bytes).unwrap(),
    };
    bytes
}

fn text(format: &SourceFormat, ids: std::ops::Range<i64>) -> Vec<u8> {
    let mut text = String::new();
    if let SourceFormat::Csv(CsvFileOptions { header: true, .. }) = format {
        text.push_str("id,text\n");
    }
    for id in ids {
        let _ = match format {
            SourceFormat::Json => writeln!(text, r#"{{"id":{id},"text":"text, {id}"}}"#),
            _ => writeln!(text, "{id},\"text, {id}\""),
        };
    }
    text.into_bytes()
}

fn csv() -> SourceFormat {
    SourceFormat::Csv(CsvFileOptions::default())
}

/// Columns that are not looked through before they are read.
fn plain_csv() -> SourceFormat {
    SourceFormat::Csv(CsvFileOptions { header: false, all_text: true, ..CsvFileOptions::default() })
}

fn put(lab: &Lab, name: &str, bytes: &[u8]) {
    fs::create_dir_all(lab.path(name).parent().unwrap()).unwrap();
    fs::write(lab.path(name), bytes).unwrap();
    lab.age(name);
}

fn job<'a>(lab: &'a Lab, format: &SourceFormat, sql: &'a str) -> Job<'a> {
    let mut job = lab.job("job", sql).concurrency(1);
    job.sources[0].format = format.clone();
    job
}

fn expected(ids: impl IntoIterator<Item = i64>) -> Rows {
    rows(&["id", "text"], ids.into_iter().map(|id| format!("{id} | TEXT, {id}")))
}

fn unusable(report: &RunReport) -> Vec<(&str, &str)> {
    report.sources[0].unusable.iter().map(|file| (file.path.as_str(), file.why.as_str())).collect()
}

#[rstest]
#[tokio::test]
async fn files_of_all_kinds_are_one_source(#[values(csv(), SourceFormat::Json)] format: SourceFormat) {
    let lab = Lab::new();
    // The first by path tells no columns.
    put(&lab, "docs/nothing.txt.zst", &compressed(".zst", b"").await);
    for (i, end) in (0..).zip(ENDS) {
        put(&lab, &format!("docs/part-{i}.txt{end}"), &compressed(end, &text(&format, i * 30..i * 30 + 30)).await);
    }
    let job = job(&lab, &format, SQL);
    assert_eq!(job.clone().max_tasks(3).ok().await.outcome, Outcome::Partial);
    assert_eq!(job.rows().await, expected(0..60));
    assert_eq!((job.ok().await.tasks.sealed, job.rows().await), (3, expected(0..150)));
    let idle = job.ok().await;
    assert_eq!((idle.outcome, idle.requests.source.get, idle.requests.store.put), (Outcome::Nothing, 0, 0));

    // Several streams in one file, and streams of nothing.
    for (i, end) in (10..).zip(ENDS).skip(1) {
        let parts = [i * 30..i * 30 + 5, i * 30 + 5..i * 30 + 30].map(|ids| match &format {
            SourceFormat::Csv(_) if ids.start % 30 != 0 => text(&plain_csv(), ids),
            _ => text(&format, ids),
        });
        let [one, two] = [compressed(end, &parts[0]).await, compressed(end, &parts[1]).await];
        put(&lab, &format!("docs/part-{i}.txt{end}"), &[&one[..], &compressed(end, b"").await, &two].concat());
        put(&lab, &format!("docs/nothing-{i}.txt{end}"), &compressed(end, b"").await);
    }
    assert_eq!(job.ok().await.outcome, Outcome::Done);
    assert_eq!(job.rows().await, expected((0..150).chain(330..450)));
    assert_eq!(job.ok().await.outcome, Outcome::Nothing);
}

/// What is known of a file is known of its stored bytes.
#[tokio::test]
async fn evidence_is_of_what_is_stored() {
    let lab = Lab::new();
    let content = text(&csv(), 0..30);
    put(&lab, "docs/a.csv.gz", &compressed(".gz", &content).await);
    let mut job = job(&lab, &csv(), SQL);
    let stored = fs::metadata(lab.path("docs/a.csv.gz")).unwrap().len();
    assert!(job.ok().await.bytes.read <= stored * 10, "it is read a few times, and counted as stored");
    // Only touched: told by the digest.
    fs::File::options()
        .write(true)
        .open(lab.path("docs/a.csv.gz"))
        .unwrap()
        .set_modified(std::time::SystemTime::UNIX_EPOCH)
        .unwrap();
    let error = job.err().await;
    assert!(error.to_string().contains("only copied or touched"), "{error}");
    job.sources[0].policy = SourcePolicy { on_moved: OnMoved::Accept, ..SourcePolicy::default() };
    assert_eq!(job.ok().await.sources[0].moved, 1);
    // The same rows in other bytes are another version.
    let [one, two] = content.split_at(40).into();
    put(&lab, "docs/a.csv.gz", &[compressed(".gz", one).await, compressed(".gz", two).await].concat());
    assert_eq!(job.ok().await.sources[0].replaced, 1);
    assert_eq!(job.ok().await.outcome, Outcome::Nothing);
}

#[rstest]
#[tokio::test]
async fn a_damaged_file_is_left_out_and_named(
    #[values(csv(), SourceFormat::Json)] format: SourceFormat,
    #[values(".gz", ".bz2", ".xz", ".zst")] end: &str,
) {
    let lab = Lab::new();
    let whole = compressed(end, &text(&format, 0..3_000)).await;
    let name = |what: &str| format!("docs/{what}.txt{end}");
    put(&lab, &name("cut"), &whole[..whole.len() - 3]);
    put(&lab, &name("half"), &whole[..whole.len() / 2]);
    put(&lab, &name("more"), &[&whole[..], b"garbage\n"].concat());
    put(&lab, &name("none"), b"");
    put(&lab, &name("plain"), &text(&format, 0..10));
    let good = name("whole");
    put(&lab, &good, &compressed(end, &text(&format, 3_000..3_010)).await);
    // Also in tasks together with a good one; and the first by path does not decide.
    let job = job(&lab, &format, SQL).packed();
    let report = job.ok().await;
    assert_eq!((report.outcome, report.rows.out), (Outcome::Partial, 10));
    let found = unusable(&report);
    assert_eq!(found.len(), 5, "{found:?}");
    assert!(found.iter().all(|(_, why)| why.contains("it cannot be decompressed as ")), "{found:?}");
    assert_eq!(job.rows().await, expected(3_000..3_010));
    // Once it is whole it is done.
    put(&lab, &name("cut"), &whole);
    let report = job.ok().await;
    assert_eq!((report.outcome, unusable(&report).len()), (Outcome::Partial, 4));
    assert_eq!(job.rows().await, expected(0..3_010));
    // With none that can be read there are no columns.
    fs::remove_file(lab.path(&good)).unwrap();
    fs::remove_file(lab.path(&name("cut"))).unwrap();
    let mut other = job.clone();
    (other.store, other.sink) = ("other.store".into(), Some("other.out".into()));
    let error = other.err().await;
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("it cannot be decompressed as "), "{error}");
}

/// Damage that shows only while rows are read: many of them have passed by then.
#[rstest]
#[tokio::test]
async fn a_file_that_turns_out_damaged_fails_its_task(#[values(".gz", ".bz2", ".xz", ".zst")] end: &str) {
    let lab = Lab::new();
    let format = plain_csv();
    let sql = "SELECT CAST(column_1 AS BIGINT) AS id, upper(column_2) AS text FROM docs";
    put(&lab, "docs/1.csv", &text(&format, 0..10));
    let whole = compressed(end, &text(&format, 100..50_100)).await;
    let name = format!("docs/2.csv{end}");
    let job = job(&lab, &format, sql);
    for (what, bytes) in [
        ("cut", &whole[..whole.len() - 1]),
        ("half", &whole[..whole.len() / 2]),
        ("more", &[&whole[..], b"garbage of some length\n"].concat()),
        ("none", b""),
    ] {
        put(&lab, &name, bytes);
        let (report, error) = job.run().await;
        let error = error.unwrap_or_else(|| panic!("{what} went well"));
        assert_eq!((error.kind(), report.tasks.failed), (ErrorKind::Invalid, 1), "{what}: {error}");
        let shown = error.to_string();
        assert!(shown.contains(&name) && shown.contains("it cannot be decompressed as "), "{what}: {shown}");
        assert!(!error.ways().is_empty(), "{shown}");
        assert_eq!(job.rows().await, expected(0..10), "{what}: nothing of it is kept");
    }
    put(&lab, &name, &whole);
    assert_eq!(job.ok().await.tasks.sealed, 1);
    assert_eq!(job.rows().await, expected((0..10).chain(100..50_100)));
}

#[tokio::test]
async fn what_is_in_a_file_is_looked_through() {
    let lab = Lab::new();
    put(&lab, "docs/1.csv.zst", &compressed(".zst", b"id,text\n1,a\n").await);
    put(&lab, "docs/2.csv.gz", &compressed(".gz", b"text,id\na,2\n").await);
    let mut late = text(&csv(), 0..20_000);
    late.extend_from_slice(b"3.5,b\n");
    put(&lab, "docs/3.csv.xz", &compressed(".xz", &late).await);
    put(&lab, "docs/4.csv.bz2", &compressed(".bz2", &[b'x'; 1 << 17]).await);
    let report = job(&lab, &csv(), SQL).ok().await;
    assert_eq!(report.rows.out, 1);
    let found = unusable(&report);
    let why = |path: &str| found.iter().find(|(found, _)| *found == path).map(|(_, why)| *why).unwrap_or_default();
    assert!(why("2.csv.gz").contains("its first line names (text, id)"), "{found:?}");
    assert!(why("3.csv.xz").contains("`id` is Float64, but Int64"), "{found:?}");
    assert!(why("4.csv.bz2").contains("its first line is longer than"), "{found:?}");
}

#[rstest]
#[case("a.csv.zip", "`.zip`")]
#[case("a.csv.LZ4", "`.lz4`")]
#[case("a.tar.gz", "`.tar.gz`")]
#[case("a.csv.gz.gz", "`.gz.gz`")]
#[tokio::test]
async fn what_is_not_read_is_refused_by_name(#[case] name: &str, #[case] end: &str) {
    let lab = Lab::new();
    put(&lab, "docs/a.csv", &text(&csv(), 0..3));
    put(&lab, &format!("docs/{name}"), b"");
    let error = job(&lab, &csv(), SQL).err().await;
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains(end) && error.to_string().contains(name), "{error}");
}

#[tokio::test]
async fn lookups_are_decompressed_too() {
    let lab = Lab::new();
    put(&lab, "dim/a.csv.gz", &compressed(".gz", b"k,label\na,one\n").await);
    put(&lab, "dim/b.csv.zst", &compressed(".zst", b"k,label\nb,two\n").await);
    let spec = || SourceSpec { format: csv(), ..SourceSpec::new("dim", lab.url("dim")) };
    let table = read_lookup(spec()).await.unwrap();
    let read = Rows::of(SessionContext::new().read_table(table).unwrap()).await;
    assert_eq!(read, rows(&["k", "label"], ["a | one".to_owned(), "b | two".to_owned()]));
    put(&lab, "dim/b.csv.zst", b"");
    let error = read_lookup(spec()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("b.csv.zst"), "{error}");
}

/// A table says what all of its files are compressed with, whatever they are called; and DataFusion itself reads only the
/// first of several streams.
#[tokio::test]
async fn a_wrapped_table_is_read_to_its_end() {
    let lab = Lab::new();
    let [one, two] = [text(&csv(), 0..5), text(&plain_csv(), 5..9)];
    put(&lab, "docs/a.packed", &[compressed(".bz2", &one).await, compressed(".bz2", &two).await].concat());
    let ctx = SessionContext::new();
    let format = CsvFormat::default().with_has_header(true).with_file_compression_type(FileCompressionType::BZIP2);
    let fields = [Field::new("id", DataType::Int64, true), Field::new("text", DataType::Utf8, true)];
    let config = ListingTableConfig::new(ListingTableUrl::parse(lab.url("docs")).unwrap())
        .with_listing_options(ListingOptions::new(Arc::new(format)).with_file_extension(".packed"))
        .with_schema(Arc::new(Schema::new(fields.to_vec())));
    let provider = Arc::new(ListingTable::try_new(config).unwrap());
    let session = Session { lab: &lab, ctx, provider, max_tasks: 0, policy: SourcePolicy::default() };
    assert_eq!(session.run(SQL).await.unwrap().rows.out, 9);
    assert_eq!(lab.rows_of("job.out", &[]).await, expected(0..9));
    put(&lab, "docs/b.packed", &compressed(".bz2", &one).await[..40]);
    let error = session.run(SQL).await.unwrap_err();
    assert!(error.to_string().contains("b.packed"), "{error}");
    assert_eq!(lab.rows_of("job.out", &[]).await, expected(0..9));
}

/// Larger than one read: the rest of it is of another version, and none of its rows may stay.
#[tokio::test]
async fn a_compressed_file_replaced_while_it_is_read_is_read_anew() {
    let lab = Lab::new();
    // Of digits that nothing foretells.
    let mut state = 1_u64;
    let mut lines = String::new();
    for id in 0..250_000 {
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state
        };
        let _ = writeln!(lines, "{id},{:x}{:x}{:x}{:x}", next(), next(), next(), next());
    }
    put(&lab, "docs/a.csv.zst", &compressed(".zst", lines.as_bytes()).await);
    assert!(fs::metadata(lab.path("docs/a.csv.zst")).unwrap().len() > 8 << 20);
    let (path, other) = (lab.path("docs/a.csv.zst"), compressed(".zst", &text(&plain_csv(), 0..7)).await);
    let times = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&times);
    let job = job(&lab, &plain_csv(), "SELECT look(CAST(column_1 AS BIGINT)) AS id, upper(column_2) AS text FROM docs");
    let job = job.with_setup(move |ctx| {
        let (seen, path, other) = (Arc::clone(&seen), path.clone(), other.clone());
        udf::register(ctx, "look", move |ids| {
            if ids.contains(&5) && seen.fetch_add(1, Ordering::SeqCst) == 0 {
                fs::write(&path, &other).unwrap();
            }
            Ok(())
        });
    });
    assert_eq!(job.ok().await.outcome, Outcome::Done);
    assert_eq!((job.rows().await, times.load(Ordering::SeqCst)), (expected(0..7), 2));
}
