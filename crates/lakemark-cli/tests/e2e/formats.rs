//! Sources of CSV and JSON files: whole files, in one job with others, exact over crashes.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use async_compression::futures::bufread::{BzEncoder, GzipEncoder, XzEncoder, ZstdEncoder};
use futures::AsyncReadExt;
use rstest::rstest;

use super::lake::{Row, set_mtime};
use super::scene::Scene;

fn csv(rows: &[Row]) -> String {
    let mut text = String::from("id,n,text\n");
    for row in rows {
        let quoted = row.text.as_ref().map(|text| format!("\"{text}, \"\"q\"\"\n\"")).unwrap_or_default();
        let _ = writeln!(text, "{},{},{quoted}", row.id, row.n);
    }
    text
}

fn json(rows: &[Row]) -> String {
    let mut text = String::new();
    for row in rows {
        // What is null is left out, in part.
        let value = row.text.as_ref().map(|text| format!("{text}, \"q\"\n"));
        let line = match value {
            Some(value) => serde_json::json!({ "id": row.id, "n": row.n, "text": value }),
            None => serde_json::json!({ "id": row.id, "n": row.n }),
        };
        let _ = writeln!(text, "{line}");
    }
    text
}

/// Writes what the scene's lake holds as files of `format` too, and makes those the source.
fn instead(scene: &mut Scene, format: &str) {
    for (path, groups) in scene.lake.files.clone() {
        write(scene, format, &path, &groups.concat());
    }
    let url = format!("{:?}", scene.path(format));
    scene.set("source.url", url).set("source.format", format!("{format:?}"));
    scene.set("transform.sql", format!("{SQL:?}"));
}

fn write(scene: &Scene, format: &str, path: &str, rows: &[Row]) {
    let at = scene.path(format).join(path.replace(".parquet", &format!(".{format}")));
    fs::create_dir_all(at.parent().unwrap()).unwrap();
    fs::write(&at, if format == "csv" { csv(rows) } else { json(rows) }).unwrap();
    set_mtime(&at, UNIX_EPOCH + Duration::from_secs(1_700_000_000 + rows.iter().map(|row| row.id as u64).sum::<u64>()));
}

/// As the query of most scenes; texts have a comma, quotes and a line break more.
const SQL: &str = "SELECT id, upper(replace(text, chr(44) || ' \"q\"' || chr(10), '')) AS text, n * 2 AS n2 FROM docs WHERE n % 10 <> 0";

#[rstest]
fn whole_files_are_exact_over_crashes(#[values("csv", "json")] format: &str) {
    let mut scene = Scene::small();
    instead(&mut scene, format);
    scene.run(&["--max-tasks", "2"]).expect(3, "partial");
    for step in ["run.output", "seal.after", "intent.after_manifest", "rename.after"] {
        scene.crash_at(step, 1);
        scene.assert_part();
    }
    let last = scene.run(&[]);
    assert!(matches!(last.outcome(), "done" | "nothing"), "{last}");
    scene.assert_exact_for_all();
    let idle = scene.run(&[]).nothing();
    assert_eq!(idle.count("bytes/read"), 0);

    // One file changed, one arrives.
    let before = scene.lake.expected_of("big.parquet");
    for path in ["big.parquet", "day=2/new.parquet"] {
        let groups = scene.lake.groups(1, 5, 30);
        scene.lake.put(path, groups.clone());
        write(&scene, format, path, &groups.concat());
    }
    let ran = scene.run(&[]).done();
    assert_eq!((ran.files("new"), ran.files("replaced")), (1, 1), "{ran}");
    let mut expected = scene.lake.expected();
    for (row, count) in before {
        *expected.entry(row).or_default() += count;
    }
    scene.assert_is(&expected);
    scene.run(&[]).nothing();
}

/// Values of CSV are known by their places: another order of columns would give wrong rows, not an error.
#[test]
fn a_csv_file_with_other_columns_is_left_out_and_named() {
    let mut scene = Scene::small();
    instead(&mut scene, "csv");
    fs::write(scene.path("csv/later.csv"), "n,id,text\n1,999999,x\n").unwrap();
    fs::write(scene.path("csv/short.csv"), "id,n\n999998,1\n").unwrap();
    let ran = scene.run(&[]).expect(3, "partial");
    assert!(
        ran.stderr.contains("its first line names (n, id, text), and the source's columns are (id, n, text)"),
        "{ran}"
    );
    assert_eq!(ran.report["sources"][0]["unusable"].as_array().unwrap().len(), 2);
    scene.assert_exact_for_all();

    fs::write(scene.path("csv/packed.csv.zip"), "").unwrap();
    scene.run(&[]).error(5, "Unsupported", &["`.zip` files are not read", "packed.csv.zip"]);
}

/// Compresses the file at `at` in place of itself, in one way or another.
fn compress(at: &Path, nth: usize) -> PathBuf {
    let content = fs::read(at).unwrap();
    let (end, mut compressed) = (["gz", "bz2", "xz", "zst"][nth % 4], Vec::new());
    let read = async {
        match end {
            "gz" => GzipEncoder::new(&content[..]).read_to_end(&mut compressed).await,
            "bz2" => BzEncoder::new(&content[..]).read_to_end(&mut compressed).await,
            "xz" => XzEncoder::new(&content[..]).read_to_end(&mut compressed).await,
            _ => ZstdEncoder::new(&content[..]).read_to_end(&mut compressed).await,
        }
    };
    futures::executor::block_on(read).unwrap();
    let to = PathBuf::from(format!("{}.{end}", at.display()));
    fs::write(&to, compressed).unwrap();
    set_mtime(&to, fs::metadata(at).unwrap().modified().unwrap());
    fs::remove_file(at).unwrap();
    to
}

#[rstest]
fn compressed_files_are_exact_over_crashes(#[values("csv", "json")] format: &str) {
    let mut scene = Scene::small();
    instead(&mut scene, format);
    let mut paths: Vec<_> = scene.lake.files.keys().cloned().collect();
    paths.sort();
    let at = |path: &str| path.replace(".parquet", &format!(".{format}"));
    let files: Vec<PathBuf> =
        (0..).zip(&paths).map(|(nth, path)| compress(&scene.path(format).join(at(path)), nth)).collect();
    scene.run(&["--max-tasks", "1"]).expect(3, "partial");
    for step in ["run.output", "seal.after", "intent.after_manifest", "rename.after"] {
        scene.crash_at(step, 1);
        scene.assert_part();
    }
    let last = scene.run(&[]);
    assert!(matches!(last.outcome(), "done" | "nothing"), "{last}");
    scene.assert_exact_for_all();
    assert_eq!(scene.run(&[]).nothing().count("bytes/read"), 0);

    // What was cut on its way is named, and done once it is whole.
    let groups = scene.lake.groups(1, 5, 30);
    scene.lake.put("late.parquet", groups.clone());
    write(&scene, format, "late.parquet", &groups.concat());
    let late = compress(&scene.path(format).join(at("late.parquet")), files.len());
    let whole = fs::read(&late).unwrap();
    fs::write(&late, &whole[..whole.len() / 2]).unwrap();
    let ran = scene.run(&[]).expect(3, "partial");
    assert!(ran.stderr.contains("it cannot be decompressed as ") && ran.stderr.contains("late."), "{ran}");
    fs::write(&late, &whole).unwrap();
    scene.run(&[]).done();
    scene.assert_exact_for_all();
}

/// A value that the engine would make fit its column, by losing a part of it, is never read: its file is named.
#[rstest]
#[case("csv", "a,b\n1,x\n", "a,b\n1.5,y\n", "`a` is Float64, but Int64")]
#[case("csv", "a,b\n2024-01-01,x\n", "a,b\n2024-01-02T10:11:12,y\n", "but Date32")]
#[case("csv", "a,b\n2024-01-01T00:00:00,x\n", "a,b\n2024-01-01T00:00:00.999999,y\n", "but Timestamp(ms)")]
#[case("json", "{\"a\":1}\n", "{\"a\":3.7}\n", "`a` is Float64, but Int64")]
#[case("json", "{\"a\":{\"p\":2}}\n", "{\"a\":{\"p\":2.75}}\n", "`a` is")]
#[case("json", "{\"a\":1}\n", "{\"a\":\"2\"}\n", "`a` is Utf8, but Int64")]
#[case("json", "{\"a\":1}\n", "{\"A\":2}\n", "none of the source's columns")]
fn values_that_would_lose_something_are_not_read(
    #[case] format: &str,
    #[case] first: &str,
    #[case] second: &str,
    #[case] why: &str,
) {
    let mut scene = Scene::new();
    fs::create_dir(scene.path("text")).unwrap();
    fs::write(scene.path("text/1"), first).unwrap();
    fs::write(scene.path("text/2"), second).unwrap();
    let url = format!("{:?}", scene.path("text"));
    scene
        .set("source.url", url)
        .set("source.format", format!("{format:?}"))
        .set("transform.sql", "\"SELECT a FROM docs\"");
    let ran = scene.run(&[]).expect(3, "partial");
    assert!(ran.stderr.contains(why), "{ran}");
    assert_eq!((ran.count("rows/in"), ran.count("rows/out")), (1, 1));
}

/// A column of which nothing is known yet is text, and keeps what comes; how CSV is written is fixed by the first run.
#[test]
fn a_column_without_values_keeps_what_comes_later() {
    let mut scene = Scene::new();
    fs::create_dir(scene.path("text")).unwrap();
    fs::write(scene.path("text/1"), "id,text,n2\n1,,2\n").unwrap();
    let url = format!("{:?}", scene.path("text"));
    scene.set("source.url", url).set("source.format", "\"csv\"").set("transform.sql", "\"SELECT * FROM docs\"");
    scene.run(&[]).done();
    fs::write(scene.path("text/2"), "id,text,n2\n2,later,4\n").unwrap();
    scene.run(&[]).done();
    scene.assert_is(&[((1, None, 2), 1), ((2, Some("later".to_owned()), 4), 1)].into());
    fs::write(scene.path("text/3"), "id,text,n2\n3,x,6\n").unwrap();
    scene.run(&["--set", "source.docs.csv.header=false"]).error(
        5,
        "Refused",
        &["csv (header false", "(csv, files mode)"],
    );
}

#[test]
fn options_of_csv_say_how_it_is_written() {
    let mut scene = Scene::small();
    instead(&mut scene, "csv");
    fs::remove_dir_all(scene.path("csv")).unwrap();
    fs::create_dir(scene.path("csv")).unwrap();
    for (path, rows) in scene.lake.files.clone() {
        let lines: Vec<String> = rows
            .concat()
            .iter()
            .map(|row| format!("{};{};{}\n", row.id, row.n, row.text.clone().unwrap_or_default()))
            .collect();
        fs::write(scene.path("csv").join(path.replace('/', "-")), lines.concat()).unwrap();
    }
    scene.set("source.csv", "{ header = false, delimiter = \";\", quote = \"'\", types = \"text\" }");
    let sql = "SELECT CAST(column_1 AS BIGINT) AS id, upper(column_3) AS text, CAST(column_2 AS BIGINT) * 2 AS n2 \
               FROM docs WHERE CAST(column_2 AS BIGINT) % 10 <> 0";
    scene.set("transform.sql", format!("{sql:?}"));
    scene.run(&[]).done();
    scene.assert_exact_for_all();
}

/// R26: several sources in one job, each with its own format, and a lookup.
#[test]
fn sources_of_several_formats_are_one_job() {
    let mut scene = Scene::small();
    instead(&mut scene, "csv");
    let csv = scene.lake.expected();
    let mut others = Scene::seeded(7);
    for (format, path, from) in [("json", "j.parquet", 1_000_000), ("parquet", "p.parquet", 2_000_000)] {
        let mut groups = others.lake.groups(2, 4, 20);
        groups.iter_mut().flatten().for_each(|row| row.id += from);
        others.lake.put(path, groups.clone());
        if format == "json" {
            write(&scene, "json", path, &groups.concat());
            fs::remove_file(others.lake.dir.join(path)).unwrap();
        }
    }
    fs::write(scene.path("names.csv"), "k,label\n1,one\n").unwrap();
    let part = |of: &str, text: &str| {
        format!("SELECT id, upper({text}) AS text, n * 2 AS n2, abs(n % 1) + 1 AS k FROM {of} WHERE n % 10 <> 0")
    };
    let replaced = "replace(text, chr(44) || ' \"q\"' || chr(10), '')";
    let sql = [part("docs", replaced), part("more", replaced), part("rest", "text")].join(" UNION ALL ");
    let sql = format!("SELECT u.id, u.text, u.n2 * l.k AS n2 FROM ({sql}) u JOIN names l ON u.k = l.k");
    scene.set("transform.sql", format!("{sql:?}"));
    let more = [
        ("more", scene.path("json"), "json", "tracked"),
        ("rest", others.lake.dir.clone(), "parquet", "tracked"),
        ("names", scene.path("names.csv"), "csv", "lookup"),
    ];
    let mut job = fs::read_to_string(scene.job()).unwrap();
    for (name, url, format, role) in more {
        let _ = write!(job, "\n[[source]]\nname = {name:?}\nurl = {url:?}\nformat = {format:?}\nrole = {role:?}\n");
    }
    let path = scene.path("several.toml");
    fs::write(&path, job).unwrap();
    let run = || {
        let mut command = super::process::command();
        command.arg("run").arg(&path).arg("--json").current_dir(scene.path(""));
        Scene::ran(&super::process::Running::start(&mut command).wait())
    };
    let ran = run().done();
    let listed = |i: usize| ran.count(&format!("sources/{i}/listed"));
    assert_eq!((0..3).map(listed).collect::<Vec<_>>(), [scene.lake.files.len() as u64, 1, 1], "{ran}");
    let mut expected = csv;
    expected.extend(others.lake.expected());
    scene.assert_is(&expected);
    run().nothing();
}

/// Directories of CSV and JSON, as those of Parquet are.
#[rstest]
fn directories_of_text_are_exact_over_crashes(#[values("csv", "json")] format: &str) {
    let mut scene = Scene::small();
    scene.set("sink.kind", format!("{format:?}"));
    scene.settings_without("sink.compression");
    scene.run(&["--max-tasks", "2"]).expect(3, "partial");
    for step in ["run.output", "run.written", "seal.after", "intent.after_manifest", "rename.after", "rename.synced"] {
        let ended = scene.start(&[], &[("LAKEMARK_KILL_AT", step)]).wait();
        assert!(ended.was_killed() || ended.code() == 0, "{step}: {}", ended.stderr);
        scene.assert_part();
    }
    let last = scene.run(&[]);
    assert!(matches!(last.outcome(), "done" | "nothing"), "{last}");
    scene.assert_exact_for_all();
    scene.run(&[]).nothing();
    assert_eq!(scene.look("verify")["sound"], true);
    scene.lake.put_singles("later", 2, 10);
    scene.run(&[]).done();
    scene.assert_exact_for_all();
    // What has no form is told before anything is read.
    let mut other = Scene::small();
    other.set("sink.kind", format!("{format:?}"));
    other.settings_without("sink.compression");
    if format == "csv" {
        other.set("transform.sql", "\"SELECT id, [n] AS list FROM docs\"");
        other.run(&[]).error(1, "Invalid", &["cannot be written in the format of the sink"]);
        other.set("transform.sql", "\"SELECT id, arrow_cast(text, 'Binary') AS bytes FROM docs\"");
        other.run(&[]).error(1, "Invalid", &["`bytes` has bytes, which have no form in CSV"]);
    }
}
