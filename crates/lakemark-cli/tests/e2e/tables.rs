//! A table as destination, by whole processes: killed and stopped at every point, read by who knows nothing of lakemark.

use std::fs;

use lakemark::run_python;
use lakemark::steps::STEPS;
use rstest::rstest;
use rustix::process::Signal;
use serde_json::Value;

use super::process::{Ended, Running};
use super::scene::Scene;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Delta,
    Iceberg,
}
use Kind::{Delta, Iceberg};

fn into_table(mut scene: Scene, kind: Kind) -> Scene {
    match kind {
        Delta => scene.set("sink.kind", "\"delta\""),
        Iceberg => {
            let catalog = catalog(&scene);
            scene.set("sink.kind", "\"iceberg\"").set("sink.catalog", catalog)
        }
    };
    scene
}

/// The settings of the catalog beside the output of a scene.
fn catalog(scene: &Scene) -> String {
    let database = scene.out().with_file_name(super::readers::CATALOG);
    format!("{{ type = \"sql\", uri = \"sqlite:{}\", table = \"lake.docs\" }}", database.display())
}

pub(super) fn scene(kind: Kind) -> Scene {
    into_table(Scene::small(), kind)
}

fn delta() -> Scene {
    scene(Delta)
}

const ROLL_BACK: &str = "
import sys
from pyiceberg.catalog.sql import SqlCatalog
table = SqlCatalog('default', uri='sqlite:///' + sys.argv[1]).load_table('lake.docs')
first = min(table.metadata.snapshots, key=lambda snapshot: snapshot.sequence_number)
with table.manage_snapshots() as manage:
    manage.rollback_to_snapshot(first.snapshot_id)
";

pub(super) fn steps() -> impl Iterator<Item = &'static str> {
    // Renames are of directories.
    STEPS
        .iter()
        .copied()
        .filter(|step| !step.starts_with("rename.") && !step.starts_with("keys.") && !step.ends_with("_binding"))
}

pub(super) fn ended(scene: &Scene, verb: &str, args: &[&str]) -> Ended {
    Running::start(&mut scene.command(verb, args)).wait()
}

/// How many versions the table has, by its log or its catalog.
pub(super) fn versions(scene: &Scene) -> usize {
    if let Some(table) = super::readers::iceberg(&scene.out()) {
        return table.snapshots;
    }
    super::output::files_below(&scene.out().join("_delta_log"))
        .iter()
        .filter(|(path, _)| path.extension() == Some("json".as_ref()))
        .count()
}

#[rstest]
fn a_table_is_made_grows_and_is_left_alone_when_there_is_nothing_to_do(#[values(Delta, Iceberg)] kind: Kind) {
    let mut scene = scene(kind);
    scene.run(&[]).done();
    scene.assert_exact_for_all();
    assert_eq!(versions(&scene), 1, "the first commit makes the table");
    scene.run(&[]).nothing();
    scene.lake.put_singles("later/f", 3, 20);
    scene.run(&[]).done();
    scene.assert_exact_for_all();
    assert_eq!(versions(&scene), 2);
    assert_eq!(scene.look("verify")["destination"], "as the store says");
    assert_eq!(scene.look("verify")["sound"], true);
    let status = scene.look("status");
    assert_eq!(status["commits"]["last"], 2, "{status:#}");
}

/// R52, R58, R59: whatever is lost, the table is exact after the next run.
#[rstest]
fn a_crash_at_any_point_of_a_commit_changes_nothing(#[values(Delta, Iceberg)] kind: Kind) {
    for step in steps() {
        let scene = scene(kind);
        println!("killed at {step}");
        scene.crash_at(step, 1);
        if versions(&scene) > 0 {
            scene.assert_part();
        }
        let ran = scene.run(&[]);
        assert!(matches!(ran.outcome(), "done" | "nothing"), "{step}: {ran}");
        scene.assert_exact_for_all();
        assert_eq!(versions(&scene), 1, "{step}: one commit");
        scene.run(&[]).nothing();
    }
}

#[rstest]
fn a_zombie_that_goes_on_at_any_point_doubles_nothing(#[values(Delta, Iceberg)] kind: Kind) {
    for step in steps() {
        let scene = scene(kind);
        println!("stopped at {step}");
        let mut zombie = scene.start(&[], &[("LAKEMARK_STOP_AT", step)]);
        assert!(zombie.until_stopped(), "it ended before {step}");
        let successor = scene.run(&["--takeover"]);
        assert!(matches!(successor.outcome(), "done" | "nothing"), "{successor}");
        scene.assert_exact();
        zombie.signal(Signal::CONT);
        let ended = zombie.wait();
        assert!(matches!(ended.code(), 0 | 4), "{step}: it is fenced, or was done: {}\n{}", ended.code(), ended.stderr);
        scene.assert_exact_for_all();
        scene.run(&[]).nothing();
    }
}

/// Two stores that begin at the same time: one of them fills the table.
#[rstest]
fn of_two_stores_that_begin_at_once_one_is_refused(#[values(Delta, Iceberg)] kind: Kind) {
    let scene = scene(kind);
    let other = scene.path("other");
    let mut slow = scene.start(&[], &[("LAKEMARK_STOP_AT", "table.before")]);
    assert!(slow.until_stopped());
    scene.run(&["--store", other.to_str().unwrap()]).done();
    slow.signal(Signal::CONT);
    Scene::ran(&slow.wait()).error(5, "Refused", &["belongs to store", "lakemark accept --table"]);
    scene.assert_exact_for_all();
    scene.run(&[]).error(5, "Refused", &["belongs to store"]);
    scene.assert_exact_for_all();
    scene.run(&["--store", other.to_str().unwrap()]).nothing();
}

/// Staged files that were lost before their commit: a barrier, and exactly their work again.
#[rstest]
#[case::gone(None)]
#[case::cut(Some("cut"))]
fn staged_files_that_are_lost_are_made_again(#[case] text: Option<&str>, #[values(Delta, Iceberg)] kind: Kind) {
    let scene = scene(kind);
    scene.crash_at("table.before", 1);
    let staged = super::output::files_below(&scene.out());
    assert!(staged.len() > 3, "files wait under the table: {staged:?}");
    for (path, _) in &staged[..2] {
        match text {
            Some(text) => fs::write(path, text).unwrap(),
            None => fs::remove_file(path).unwrap(),
        }
    }
    scene.run(&[]).done();
    scene.assert_exact_for_all();
    let log = scene.look("log").to_string();
    assert!(log.contains("void"), "{log}");
    scene.run(&[]).nothing();
}

/// R78: another table at its place, and an older one, are noticed before anything is read.
#[test]
fn a_table_that_is_not_the_one_is_refused_with_the_ways_on() {
    let scene = delta();
    scene.run(&[]).done();
    let log = scene.out().join("_delta_log");
    fs::rename(&log, scene.path("away")).unwrap();
    scene.run(&[]).error(5, "Refused", &["the table is gone", "lakemark reopen --table"]);
    let other = delta();
    other.run(&[]).done();
    let copy = std::process::Command::new("cp").arg("-r").arg(other.out().join("_delta_log")).arg(&log).status();
    assert!(copy.unwrap().success());
    scene.run(&[]).error(5, "Refused", &["another one", "lakemark accept --table"]);
    fs::remove_dir_all(&log).unwrap();

    // Everything again, into a table that is made anew.
    let told: Value = ended(&scene, "reopen", &["--table", "--yes"]).json();
    assert_eq!((&told["done"], told["checkpoints"].as_u64().unwrap() > 0), (&true.into(), true), "{told:#}");
    scene.run(&[]).done();
    scene.assert_exact_for_all();
    scene.run(&[]).nothing();
}

/// A table with rows of others: only by a person's word, and then both are there.
#[rstest]
fn a_table_of_others_is_taken_only_by_a_persons_word(#[values(Delta, Iceberg)] kind: Kind) {
    let first = scene(kind);
    first.run(&[]).done();
    let mut second = Scene::new();
    second.lake.put_singles("other/f", 2, 10);
    let out = format!("{:?}", first.out());
    let store = format!("{:?}", second.path("store"));
    let mut second = into_table(second, kind);
    second.set("sink.url", out).set("store", store);
    if kind == Iceberg {
        second.set("sink.catalog", catalog(&first));
    }
    second.run(&[]).error(5, "Refused", &["belongs to store", "lakemark accept --table"]);
    let told = ended(&second, "accept", &["--table", "--yes"]);
    assert_eq!((told.code(), &told.json()["done"]), (0, &true.into()), "{}", told.stderr);
    second.run(&[]).done();
    let rows: u64 = first.committed().values().sum();
    let both = first.lake.expected().values().sum::<u64>() + second.lake.expected().values().sum::<u64>();
    assert_eq!(rows, both);
    first.run(&[]).nothing();
    second.run(&[]).nothing();
}

/// Long runs show what they have.
#[rstest]
fn a_run_commits_while_it_works(#[values(Delta, Iceberg)] kind: Kind) {
    let mut scene = scene(kind);
    let slow =
        format!("{} AND length(encode(sha512(repeat(coalesce(text, 'x'), 200000)), 'hex')) > 0", super::lake::SQL);
    scene.set("transform.sql", format!("{slow:?}")).set("run.commit_every", "\"20ms\"").set("run.concurrency", "1");
    let ran = scene.run(&[]).done();
    assert!(versions(&scene) > 1, "{ran}");
    scene.assert_exact_for_all();
    scene.run(&[]).nothing();
}

#[test]
fn answers_that_are_not_clear_are_refused() {
    let scene = delta();
    scene.run(&[]).done();
    for args in [&[][..], &["3", "--table"], &["3", "4"]] {
        let refused = ended(&scene, "accept", &[args, &["--yes"]].concat());
        assert_eq!(refused.code(), 2, "{args:?}: {}", refused.stderr);
    }
    let refused = ended(&scene, "accept", &["3", "--yes"]);
    assert_eq!((refused.code(), &refused.json()["error"]["kind"]), (1, &"Invalid".into()), "{}", refused.stderr);
    assert!(refused.stderr.contains("none is open"), "{}", refused.stderr);
    let directory = Scene::small();
    directory.run(&[]).done();
    let refused = ended(&directory, "accept", &["--table", "--yes"]);
    assert_eq!(refused.json()["error"]["kind"], "Unsupported", "{}", refused.stderr);
}

/// What waits from an earlier query is looked at before it is committed: a table takes columns of one type.
#[rstest]
fn files_of_another_query_are_not_committed_into_a_table_that_they_do_not_fit(#[values(Delta, Iceberg)] kind: Kind) {
    let mut scene = scene(kind);
    scene.crash_at("intent.before_object", 1);
    scene.set("transform.sql", "\"SELECT id, upper(text) AS text, CAST(n * 2 AS VARCHAR) AS n2 FROM docs\"");
    scene.lake.put_singles("later/f", 1, 20);
    scene.run(&[]).error(5, "Refused", &["`n2`", "lakemark forget JOB --epoch 1"]);
    assert_eq!(versions(&scene), 0, "nothing was decided");
    let told = ended(&scene, "forget", &["--epoch", "1", "--yes"]);
    assert_eq!(told.code(), 0, "{}", told.stderr);
    scene.run(&[]).done();
    scene.run(&[]).nothing();
    assert_eq!(scene.look("verify")["sound"], true);
}

/// A file that waits and has its size, but not its bytes: it is named, and its work can be asked for again.
#[rstest]
fn a_waiting_file_with_a_damaged_footer_is_named_and_made_again(#[values(Delta, Iceberg)] kind: Kind) {
    let scene = scene(kind);
    scene.crash_at("intent.before_object", 1);
    let (path, size) = super::output::files_below(&scene.out()).swap_remove(0);
    fs::write(&path, vec![0; size as usize]).unwrap();
    scene.run(&[]).error(1, "Corrupt", &["damaged", "lakemark forget JOB --epoch 1"]);
    let told = ended(&scene, "forget", &["--epoch", "1", "--yes"]);
    assert_eq!(told.code(), 0, "{}", told.stderr);
    scene.run(&[]).done();
    scene.assert_exact_for_all();
}

/// R78: what happens to the table while a run works, or while a commit is open, is noticed before rows are called committed.
#[rstest]
#[case::before_the_commit("run.written", false)]
#[case::landed("table.after", true)]
fn a_table_that_was_taken_back_under_a_run_is_refused(
    #[case] step: &str,
    #[case] landed: bool,
    #[values(Delta, Iceberg)] kind: Kind,
) {
    let mut scene = scene(kind);
    scene.run(&[]).done();
    scene.lake.put_singles("later/f", 2, 20);
    scene.run(&[]).done();
    scene.lake.put_singles("last/f", 2, 20);
    let mut running = scene.start(&[], &[("LAKEMARK_STOP_AT", step)]);
    assert!(running.until_stopped());
    let (script, table) = match kind {
        Delta => ("import sys, deltalake; deltalake.DeltaTable(sys.argv[1]).restore(0)", scene.out()),
        Iceberg => (ROLL_BACK, scene.out().with_file_name(super::readers::CATALOG)),
    };
    run_python(script, &[&table]).unwrap();
    let said = if kind == Delta { "restored" } else { "back" };
    running.signal(Signal::CONT);
    let ended_run = Scene::ran(&running.wait());
    if !landed {
        ended_run.error(5, "Refused", &[said, "lakemark accept --table", "lakemark reopen --table"]);
    }
    scene.run(&[]).error(5, "Refused", &[said, "lakemark reopen --table"]);
    let told = ended(&scene, "reopen", &["--table", "--yes"]);
    assert_eq!(told.code(), 0, "{}", told.stderr);
    scene.run(&[]).done();
    let rows = scene.committed();
    assert!(scene.lake.expected().keys().all(|row| rows.contains_key(row)), "nothing is missing");
}
