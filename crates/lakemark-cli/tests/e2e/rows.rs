//! Rows mode by whole processes: killed, stopped, cut otherwise, changed in its settings.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use lakemark::run_python;
use rstest::rstest;
use rustix::process::Signal;

use super::lake::Multiset;
use super::process::Running;
use super::scene::{Ran, Scene};

/// A lake of which rows are done by `id`, three at a time.
fn scene() -> Scene {
    let mut scene = Scene::small();
    scene.set("source.mode", "\"rows\"").set("source.on", "[\"id\"]").set("run.task_rows", "3");
    scene.set("run.task_bytes", "\"1KiB\"");
    let groups = scene.lake.groups(3, 20, 20);
    scene.lake.put("with rows that come twice.parquet", groups);
    scene
}

/// One row of each key: rows of one key are alike.
fn expected(scene: &Scene) -> Multiset {
    scene.lake.expected().into_keys().map(|row| (row, 1)).collect()
}

#[track_caller]
fn is_exact(scene: &Scene) {
    scene.assert_is(&expected(scene));
}

#[track_caller]
fn is_part(scene: &Scene) {
    let (rows, wanted) = (scene.committed(), expected(scene));
    let beyond: Vec<_> = rows.iter().filter(|(row, times)| **times > wanted.get(*row).copied().unwrap_or(0)).collect();
    assert!(beyond.is_empty(), "{beyond:?}");
}

/// A run that reads all rows, finds them done, and writes nothing.
#[track_caller]
fn idle(scene: &Scene) -> Ran {
    let ran = scene.run(&[]).expect(0, "nothing");
    assert_eq!((ran.count("epoch"), ran.count("requests/store/put")), (0, 0), "{ran}");
    ran
}

fn keys(ran: &Ran, what: &str) -> u64 {
    ran.count(&format!("sources/0/keys/{what}"))
}

static REACHED: LazyLock<BTreeMap<String, usize>> = LazyLock::new(|| {
    let mut counts = BTreeMap::new();
    for step in scene().run(&[]).done().steps {
        *counts.entry(step).or_default() += 1;
    }
    counts
});

#[test]
fn what_is_done_is_told_by_row() {
    let mut scene = scene();
    let planned = scene.plan(&[]);
    assert_eq!((planned.outcome(), keys(&planned, "keys"), planned.files("new")), ("done", 0, 0), "{planned}");
    let first = scene.run(&[]).done();
    let rows = keys(&first, "new");
    assert_eq!(first.count("rows/in"), rows);
    assert_eq!(keys(&first, "read"), rows + keys(&first, "repeated"));
    assert_eq!(first.count("tasks/sealed"), first.count("tasks/planned"));
    is_exact(&scene);
    assert_eq!(scene.look("status")["keys"], rows);
    let again = idle(&scene);
    assert_eq!((keys(&again, "keys"), keys(&again, "new")), (rows, 0));
    // Every file is written anew, in another order and other row groups, with two rows more.
    let files: Vec<_> = scene.lake.files.iter().map(|(path, groups)| (path.clone(), groups.concat())).collect();
    for (path, mut rows) in files {
        rows.reverse();
        scene.lake.put(&path, rows.into_iter().map(|row| vec![row]).collect());
    }
    scene.lake.put_singles("new", 2, 20);
    let second = scene.run(&[]).done();
    assert_eq!(second.count("rows/in"), 2);
    is_exact(&scene);
    scene.readers(&expected(&scene), super::readers::Wanted::All);
    idle(&scene);
    let verified = scene.look("verify");
    assert_eq!(verified["sound"], true, "{verified:#}");
}

#[rstest]
fn a_crash_at_any_point_changes_nothing(#[values(1, 3)] nth: usize) {
    assert!(REACHED.contains_key("keys.after"));
    for (step, _) in REACHED.iter().filter(|(_, count)| **count >= nth) {
        println!("crash at {step}:{nth}");
        let scene = scene();
        scene.crash_at(step, nth);
        is_part(&scene);
        // Cut otherwise than before.
        let recovered = scene.run(&["--task-rows", "2", "--concurrency", "1"]);
        assert!(matches!(recovered.outcome(), "done" | "nothing"), "{recovered}");
        is_exact(&scene);
        idle(&scene);
        assert_eq!(scene.look("status")["checkpoints"]["uncommitted"], 0);
    }
}

#[rstest]
fn a_zombie_doubles_nothing(
    #[values("run.output", "keys.after", "seal.before", "seal.after", "intent.after_manifest")] step: &str,
) {
    let scene = scene();
    let mut zombie = scene.start(&[], &[("LAKEMARK_STOP_AT", step)]);
    assert!(zombie.until_stopped());
    let successor = scene.run(&["--takeover", "--task-rows", "5"]);
    assert!(matches!(successor.outcome(), "done" | "nothing"), "{successor}");
    is_exact(&scene);
    zombie.signal(Signal::CONT);
    Scene::ran(&zombie.wait()).error(4, "Fenced", &["was fenced"]);
    is_exact(&scene);
    idle(&scene);
}

#[test]
fn a_limit_is_of_slices_and_rows_that_are_dropped_are_done() {
    let scene = scene();
    let first = scene.run(&["--max-tasks", "2"]).expect(3, "partial");
    assert_eq!(first.count("tasks/sealed"), 2);
    is_part(&scene);
    let mut left = u64::MAX;
    while left > 0 {
        let ran = scene.run(&["--max-tasks", "2"]);
        left = ran.count("tasks/sealed");
        assert!(ran.count("rows/in") <= 6, "{ran}");
    }
    is_exact(&scene);
}

#[test]
fn r109_another_mode_or_key_is_refused_and_nothing_is_changed() {
    let mut scene = scene();
    scene.run(&[]).done();
    scene.lake.put_singles("new", 1, 20);
    scene.run(&["--on", "n"]).error(5, "Refused", &["`n` (integer) here", "`id` (integer) in the store", "way on"]);
    scene.run(&["--on", "id,n"]).error(5, "Refused", &["another `store`"]);
    scene.run(&["--on", "docid"]).error(1, "Invalid", &["there is no key column `docid`", "`text`"]);
    scene.set("source.mode", "\"files\"");
    scene.settings_without("source.on");
    scene.run(&[]).error(5, "Refused", &["files mode", "rows mode", "another `store`"]);
    scene.set("source.mode", "\"rows\"").set("source.on", "[\"id\"]");
    assert_eq!(scene.run(&[]).done().count("rows/in"), 1);
    is_exact(&scene);
    // And the reverse.
    let mut scene = Scene::small();
    scene.run(&[]).done();
    scene.set("source.mode", "\"rows\"").set("source.on", "[\"id\"]");
    scene.run(&[]).error(5, "Refused", &["rows mode", "files mode"]);
    scene.assert_exact();
}

#[test]
fn a_key_that_comes_twice_is_named_when_it_must_not() {
    let mut scene = scene();
    scene.set("source.on_duplicate", "\"fail\"");
    scene.run(&[]).error(1, "Invalid", &["have one key: id = ", "on_duplicate = \"first\""]);
    is_part(&scene);
    scene.run(&[]).error(1, "Invalid", &["have one key: id = "]);
    scene.set("source.on_duplicate", "\"first\"");
    scene.run(&[]).done();
    is_exact(&scene);
}

#[rstest]
fn other_formats_are_read_by_row_too(#[values("csv", "json")] format: &str) {
    // The output of one job is the input of another.
    let mut scene = scene();
    scene.set("sink.kind", format!("{format:?}"));
    scene.settings_without("sink.compression");
    scene.run(&[]).done();
    let url = format!("{:?}", scene.path("rows"));
    std::fs::rename(scene.out(), scene.path("rows")).unwrap();
    std::fs::remove_dir_all(scene.path("out.lakemark")).unwrap();
    scene.set("source.url", url).set("source.format", format!("{format:?}"));
    scene.set("transform.sql", "\"SELECT id, text, n2 FROM docs\"").set("sink.kind", "\"parquet\"");
    let ran = scene.run(&[]).done();
    assert_eq!(ran.count("rows/in"), keys(&ran, "read"));
    is_exact(&scene);
    idle(&scene);
}

/// Keys beyond the budget are on the disk, and nothing else is different.
#[test]
fn keys_beyond_the_budget_are_kept_on_the_disk() {
    let mut scene = scene();
    scene.set("run.key_memory", "\"1B\"");
    scene.run(&[]).done();
    scene.lake.put_singles("new", 3, 20);
    assert_eq!(scene.run(&[]).done().count("rows/in"), 3);
    is_exact(&scene);
    idle(&scene);
}

#[test]
fn rows_of_an_epoch_are_forgotten_before_and_after_their_commit() {
    let mut scene = scene();
    scene.run(&[]).done();
    scene.lake.put_singles("new", 4, 20);
    scene.run(&[]).done();
    let forget = |scene: &Scene, args: &[&str]| {
        let ended = Running::start(&mut scene.command("forget", args)).wait();
        assert_eq!(ended.code(), 0, "{}", ended.stderr);
        ended.json()
    };
    // Their output leaves with them, and is made again.
    let told = forget(&scene, &["--epoch", "2", "--retract", "--yes"]);
    assert_eq!(
        (told["rows"][0]["rows"].as_u64(), told["rows"][0]["committed_rows"].as_u64()),
        (Some(4), Some(0)),
        "{told:#}"
    );
    assert_eq!(scene.run(&[]).done().count("rows/in"), 4);
    is_exact(&scene);
    // Their output stays: what is done again is there twice, as was said.
    let epoch = scene.look("status")["epoch"].as_u64().unwrap().to_string();
    let told = forget(&scene, &["--epoch", &epoch, "--yes"]);
    assert_eq!(
        (told["doubled_rows"].as_u64(), told["rows"][0]["committed_rows"].as_u64()),
        (Some(4), Some(4)),
        "{told:#}"
    );
    let again = Running::start(&mut scene.command("forget", &["--epoch", &epoch, "--yes"])).wait();
    assert_ne!(again.code(), 0, "{}", again.stdout);
    assert_eq!(scene.run(&[]).done().count("rows/in"), 4);
    let twice = scene.committed().values().filter(|times| **times == 2).count();
    assert!(twice > 0 && scene.committed().values().all(|times| *times <= 2), "{twice}");
    idle(&scene);
    // Their old output can still leave.
    let told = forget(&scene, &["--epoch", &epoch, "--retract", "--yes"]);
    assert!(told["retracted_rows"].as_u64() > Some(0), "{told:#}");
    is_exact(&scene);
    idle(&scene);
    // What was sealed and not committed goes without a trace.
    let mut scene = self::scene();
    scene.set("run.concurrency", "1");
    scene.crash_at("seal.after", 3);
    scene.crash_at("intent.before_manifest", 1);
    let told = forget(&scene, &["--epoch", "1", "--takeover", "--yes"]);
    assert!(told["rows"][0]["rows"].as_u64() > Some(0), "{told:#}");
    scene.run(&[]).done();
    is_exact(&scene);
    idle(&scene);
}

/// Statements for a database, by its own client.
fn execute(scene: &Scene, kind: &str, statements: &str) {
    if kind == "sqlite" {
        let script =
            "import sqlite3, sys; at = sqlite3.connect(sys.argv[1]); at.executescript(sys.argv[2]); at.close()";
        run_python(script, &[&scene.path("shop.db"), statements.as_ref()]).unwrap();
        return;
    }
    let url = std::env::var("LAKEMARK_TEST_POSTGRES").expect("cargo xtask test starts PostgreSQL, and says where");
    let output =
        std::process::Command::new("psql").args([&url, "-q", "-v", "ON_ERROR_STOP=1", "-c", statements]).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[rstest]
fn a_table_of_a_database_is_read_by_row(#[values("sqlite", "postgres")] kind: &str) {
    let mut scene = scene();
    let table = format!("docs_{}", std::process::id());
    let url = match kind {
        "sqlite" => scene.path("shop.db").display().to_string(),
        _ => std::env::var("LAKEMARK_TEST_POSTGRES").expect("cargo xtask test starts PostgreSQL, and says where"),
    };
    let rows = |ids: std::ops::Range<i64>| {
        let values: Vec<_> = ids.map(|id| format!("({id}, {}, 'text {id}')", id * 3)).collect();
        format!("INSERT INTO {table} VALUES {}", values.join(", "))
    };
    execute(&scene, kind, &format!("CREATE TABLE {table} (id bigint PRIMARY KEY, n bigint, text text)"));
    execute(&scene, kind, &rows(0..25));
    scene.set("source.url", format!("{url:?}")).set("source.format", format!("{kind:?}"));
    scene.set("source.table", format!("{table:?}"));
    let is = |scene: &Scene, ids: std::ops::Range<i64>| {
        let row = |id: i64| ((id, Some(format!("TEXT {id}")), id * 6), 1);
        scene.assert_is(&ids.filter(|id| id * 3 % 10 != 0).map(row).collect());
    };
    scene.crash_at("seal.after", 3);
    let first = scene.run(&[]).done();
    assert!(first.count("rows/in") < 25, "what was sealed is not done again: {first}");
    is(&scene, 0..25);
    idle(&scene);
    execute(&scene, kind, &rows(25..40));
    assert_eq!(scene.run(&["--task-rows", "4"]).done().count("rows/in"), 15);
    is(&scene, 0..40);
    idle(&scene);
    // Another table, and a key that is none.
    execute(&scene, kind, &format!("CREATE TABLE {table}_2 (id bigint, n bigint, text text)"));
    scene.set("source.table", format!("\"{table}_2\""));
    scene.run(&[]).error(5, "Refused", &["in the store", "another `store`"]);
    scene.set("source.table", format!("{table:?}")).set("source.on", "[\"nothing\"]");
    scene.run(&[]).error(1, "Invalid", &["there is no key column `nothing`; there are `id`, `n`, `text`"]);
    scene.settings_without("source.table");
    let ended = Running::start(&mut scene.command("run", &[])).wait();
    assert!(ended.code() == 2 && ended.stderr.contains("`source.docs.table` is missing"), "{}", ended.stderr);
    execute(&scene, kind, &format!("DROP TABLE {table}_2; DROP TABLE {table}"));
}
