//! Jobs and queries that make no sense, sources that are not there, disks that are full.

use std::fs;
use std::process::Command;

use rstest::rstest;

use super::output::files_below;
use super::process::{Running, command};
use super::scene::Scene;

#[rstest]
#[case::missing_column("SELECT nope FROM docs", 1, &["nope"])]
#[case::no_sql("SELEC id FROM docs", 1, &["SELEC"])]
#[case::missing_table("SELECT id FROM dogs", 1, &["dogs"])]
#[case::two_columns_of_one_name("SELECT id, n AS id FROM docs", 1, &["id"])]
#[case::wrong_type("SELECT upper(id) + 1 AS x FROM docs WHERE text > 3 + DATE '2020-01-01'", 1, &[])]
#[case::not_map_only("SELECT count(*) AS c FROM docs", 5, &["not map-only", "aggregate"])]
#[case::limited("SELECT id FROM docs LIMIT 3", 5, &["not map-only", "LIMIT"])]
fn a_query_that_cannot_run_is_an_error_before_anything_is_written(
    #[case] sql: &str,
    #[case] code: i32,
    #[case] words: &[&str],
) {
    let mut scene = Scene::small();
    scene.set("transform.sql", format!("{sql:?}"));
    let ran = scene.run(&[]);
    assert_eq!(ran.code, code, "{ran}");
    let message = ran.report["error"]["message"].as_str().unwrap().to_owned();
    assert!(words.iter().all(|word| message.contains(word)), "{message}");
    assert!(message.contains("  safe: "), "{message}");
    assert!(!scene.store().exists() && !scene.out().exists());
    assert_eq!(scene.plan(&[]).code, code);
    scene.set("transform.sql", format!("{:?}", super::lake::SQL));
    scene.run(&[]).done();
    scene.assert_exact();
}

/// A query that fails on one row of one file: the other tasks are committed, the file is named by being left.
#[test]
fn a_query_that_fails_on_one_row_loses_nothing_of_the_others() {
    let mut scene = Scene::small();
    let mut groups = scene.lake.groups(1, 2, 20);
    groups[0][0].n = 4_242;
    scene.lake.put("zz.parquet", groups);
    let sql = format!("{} AND 1 / (n - 4242) < 2", super::lake::SQL);
    let failed =
        scene.run(&["--sql", &sql]).error(1, "Invalid", &["ivide by zero", "zz.parquet", "  safe: ", "  way on: "]);
    assert!(failed.count("tasks/sealed") >= 1 && failed.count("tasks/failed") == 1, "{failed}");
    assert_eq!(failed.count("commits/0/checkpoints"), failed.count("tasks/sealed"));
    scene.assert_part();
    let mended = scene.run(&[]).done();
    assert_eq!(mended.count("tasks/planned") + failed.count("tasks/sealed"), 14);
    scene.assert_exact_for_all();
}

/// R86: it must not look as if the other source had nothing to do.
#[test]
fn a_source_that_never_had_a_file_is_named_beside_one_that_has() {
    let scene = Scene::small();
    let empty = scene.path("empty");
    fs::create_dir(&empty).unwrap();
    let source = format!("none={}", empty.display());
    let sql = "SELECT n FROM docs UNION ALL SELECT n FROM none";
    let lake = format!("docs={}", scene.path("lake").display());
    let args = ["--source", &lake, "--source", &source, "--sql", sql];
    scene.run(&args).error(1, "Invalid", &["`none`", "no schema", "  safe: ", "  way on: "]);
    assert!(!scene.store().exists() && !scene.out().exists());
}

/// Files are renamed into the destination, which no run can do across file systems.
#[test]
fn a_destination_on_another_file_system_is_refused_before_any_work() {
    let scene = Scene::small();
    let elsewhere = tempfile::tempdir_in("/tmp").unwrap();
    use std::os::unix::fs::MetadataExt;
    if fs::metadata(elsewhere.path()).unwrap().dev() == fs::metadata(scene.path("lake")).unwrap().dev() {
        eprintln!("the temporary folders are on one file system: not tried");
        return;
    }
    std::os::unix::fs::symlink(elsewhere.path(), scene.out()).unwrap();
    scene.run(&[]).error(5, "Refused", &["different file systems", "  at: ", "  safe: ", "  way on: "]);
    assert!(!scene.store().exists());
}

#[rstest]
#[case("source.docs.on_chnage=fail", "on_change")]
#[case("run.task_byte=5", "task_bytes")]
#[case("sink.compresion=none", "compression")]
#[case("stor=/tmp/x", "store")]
fn an_unknown_key_is_a_usage_error_that_names_the_nearest(#[case] setting: &str, #[case] nearest: &str) {
    let scene = Scene::small();
    let ran = scene.run(&["--set", setting]).error(2, "Invalid", &[setting.split_once('=').unwrap().0, nearest]);
    assert_eq!(ran.outcome(), "failed");
    assert!(!scene.store().exists() && !scene.out().exists());
}

#[test]
fn an_unknown_key_in_the_file_is_placed() {
    let mut scene = Scene::small();
    scene.set("run.tsk_rows", "3");
    scene.run(&[]).error(2, "Invalid", &["tsk_rows", "task_rows", "job.toml"]);
    scene.plan(&[]).error(2, "Invalid", &["tsk_rows"]);
}

#[test]
fn a_job_file_that_is_missing_or_no_toml_is_a_usage_error() {
    let scene = Scene::small();
    let run = |job: &str| {
        let ended = Running::start(command().args(["run", job, "--json"]).current_dir(scene.path(""))).wait();
        Scene::ran(&ended)
    };
    run("missing.toml").error(2, "Invalid", &["missing.toml"]);
    fs::write(scene.path("torn.toml"), "[sink\nurl = 3").unwrap();
    run("torn.toml").error(2, "Invalid", &["torn.toml"]);
}

#[test]
fn a_source_that_is_not_there_is_an_error_not_an_empty_lake() {
    let scene = Scene::small();
    fs::rename(scene.path("lake"), scene.path("aside")).unwrap();
    let ran = scene.run(&[]);
    assert!(ran.code == 1 || ran.code == 5, "{ran}");
    let message = ran.report["error"]["message"].as_str().unwrap();
    assert!(message.contains("lake") && message.contains("  safe: "), "{message}");
    assert!(!scene.store().exists() && !scene.out().exists());
    fs::rename(scene.path("aside"), scene.path("lake")).unwrap();
    scene.run(&[]).done();
    // Nor when it was there before.
    fs::rename(scene.path("lake"), scene.path("aside")).unwrap();
    assert_ne!(scene.run(&[]).code, 0);
    fs::rename(scene.path("aside"), scene.path("lake")).unwrap();
    scene.run(&[]).nothing();
    scene.assert_exact_for_all();
}

#[test]
fn an_empty_lake_has_nothing_to_do_until_files_arrive() {
    let mut scene = Scene::new();
    scene.run(&[]).nothing();
    assert!(!scene.store().exists() && !scene.out().exists());
    scene.lake.put_singles("a", 3, 20);
    scene.run(&[]).done();
    scene.assert_exact_for_all();
}

#[test]
fn a_file_of_another_schema_is_unusable_and_named() {
    let scene = Scene::small();
    scene.run(&[]).done();
    let odd = scene.path("lake/odd.parquet");
    super::partitions::write_texts(&odd, &["id", "text", "n"], &[&[Some("x"), Some("y"), Some("z")]]);
    let ran = scene.run(&[]).expect(3, "partial").says(&["odd.parquet", "`id`"]);
    assert_eq!(ran.report["sources"][0]["unusable"][0]["path"], "odd.parquet");
    scene.assert_exact();
    fs::remove_file(odd).unwrap();
    scene.run(&[]).nothing();
}

/// A limit on the size of files stands for a full disk: writes fail in the middle of a file.
#[rstest]
#[case::output(40, 30_000, &["cannot be written", "  at: ", "  safe: ", "  way on: ", "oo large"])]
#[case::store(1, 10, &["  safe: ", "  way on: "])]
fn a_disk_that_takes_no_more_is_an_error_and_loses_nothing(
    #[case] kilobytes: u64,
    #[case] text: usize,
    #[case] words: &[&str],
) {
    let mut scene = Scene::new();
    scene.lake.put_singles("small", 3, 10);
    let groups = scene.lake.groups(1, 6, text);
    scene.lake.put("z large.parquet", groups);
    scene.set("run.retries", "0");
    let script = format!("trap '' XFSZ; ulimit -f {kilobytes}; exec \"$@\"");
    let inner = scene.command("run", &[]);
    let mut limited = Command::new("bash");
    limited.args(["-c", &script, "bash"]).arg(inner.get_program()).args(inner.get_args());
    limited.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?)))).current_dir(scene.path(""));
    let ran = Scene::ran(&Running::start(&mut limited).wait());
    assert_eq!(ran.code, 1, "{ran}");
    let message = ran.report["error"]["message"].as_str().unwrap();
    assert!(words.iter().all(|word| message.contains(word)), "{message}");
    scene.assert_part();
    scene.run(&[]).done();
    scene.assert_exact_for_all();
    scene.run(&[]).nothing();
}

/// A file system of its own that fills up, where this process may mount one; the limit above stands for it elsewhere.
#[test]
fn a_full_disk_is_an_error_and_loses_nothing() {
    let mut scene = Scene::new();
    scene.lake.put_singles("f", 60, 8_000);
    let (disk, saved) = (scene.path("disk"), scene.path("saved"));
    fs::create_dir(&disk).unwrap();
    let sink = format!("{:?}", disk.join("out"));
    scene.set("sink.url", sink).set("run.retries", "0");
    let inner = scene.command("run", &[]);
    // What the disk held is copied before its mount goes away with its only process.
    let script = "mount -t tmpfs -o size=300k tmpfs disk || exit 77; \"$@\"; code=$?; cp -a disk saved; exit $code";
    let ended = ["-m", "-rm"].into_iter().find_map(|flags| {
        let mut mounted = Command::new("unshare");
        mounted.args([flags, "bash", "-c", script, "bash"]).arg(inner.get_program()).args(inner.get_args());
        mounted.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?)))).current_dir(scene.path(""));
        Some(Running::start(&mut mounted).wait()).filter(|_| saved.exists())
    });
    let Some(ended) = ended else {
        println!("this process may not mount a file system: not tested here");
        return;
    };
    let ran = Scene::ran(&ended);
    assert_eq!(ran.code, 1, "{ran}");
    let message = ran.report["error"]["message"].as_str().unwrap();
    assert!(message.contains("disk is full") || message.contains("No space left"), "{message}");
    assert!(["  at: ", "  safe: ", "  way on: "].iter().all(|line| message.contains(line)), "{message}");
    let sealed = ran.count("tasks/sealed");
    assert!(sealed > 0 && sealed < 60, "{ran}");
    // A larger disk.
    fs::remove_dir(&disk).unwrap();
    fs::rename(&saved, &disk).unwrap();
    let store = disk.join("out.lakemark/store").display().to_string();
    let rest = scene.run(&["--store", &store]).done();
    assert!(rest.count("tasks/planned") <= 60 - sealed, "sealed work was lost: {rest}");
    fs::rename(disk.join("out"), scene.out()).unwrap();
    scene.assert_exact_for_all();
    fs::rename(scene.out(), disk.join("out")).unwrap();
    scene.run(&[]).nothing();
}

#[test]
fn a_lookup_joins_and_its_rows_count_as_no_work() {
    let mut scene = Scene::small();
    let lookup = scene.path("names.parquet");
    super::partitions::write_texts(&lookup, &["parity", "factor"], &[&[Some("0"), Some("2")], &[Some("1"), Some("2")]]);
    let sql = "SELECT docs.id AS id, upper(docs.text) AS text, docs.n * CAST(names.factor AS BIGINT) AS n2 FROM docs \
               LEFT JOIN names ON names.parity = CAST(docs.n % 2 AS VARCHAR) WHERE docs.n % 10 <> 0";
    scene.set("transform.sql", format!("{sql:?}"));
    let mut text = fs::read_to_string(scene.job()).unwrap();
    text.push_str(&format!("[[source]]\nname = \"names\"\nrole = \"lookup\"\nurl = {lookup:?}\n"));
    fs::write(scene.path("join.toml"), text).unwrap();
    let run = || {
        let ended = Running::start(command().args(["run", "join.toml", "--json"]).current_dir(scene.path(""))).wait();
        Scene::ran(&ended)
    };
    let first = run().done();
    assert_eq!(first.count("rows/in"), scene.lake.row_count());
    scene.assert_exact_for_all();
    run().nothing();
    assert!(files_below(&scene.out()).len() > 1);
}
