//! Verbs that change a store, as scripts and people use them.

use std::fs;

use rstest::rstest;
use rustix::process::Signal;
use serde_json::Value;

use super::process::{Ended, Running};
use super::scene::Scene;

fn ended(scene: &Scene, verb: &str, args: &[&str]) -> Ended {
    Running::start(&mut scene.command(verb, args)).wait()
}

/// What `verb` says it did.
#[track_caller]
fn did(scene: &Scene, verb: &str, args: &[&str]) -> Value {
    let ended = ended(scene, verb, &[args, &["--yes"]].concat());
    assert_eq!(ended.code(), 0, "{verb}: {}", ended.stderr);
    let told = ended.json();
    assert_eq!((&told["verb"], &told["done"]), (&verb.into(), &true.into()), "{told:#}");
    assert_eq!(super::scene::Scene::look(scene, "verify")["sound"], true);
    told
}

#[rstest]
#[case("forget", &["big.parquet"])]
#[case("gc", &[])]
fn nothing_is_changed_without_a_yes(#[case] verb: &str, #[case] args: &[&str]) {
    let scene = Scene::small();
    scene.run(&["--max-tasks", "5"]).expect(3, "partial");
    scene.crash_at("run.written", 1);
    let before = super::output::files_below(&scene.store());
    let refused = ended(&scene, verb, args);
    assert_eq!(refused.code(), 5, "{}", refused.stderr);
    assert_eq!(refused.json()["error"]["kind"], "Refused");
    assert!(refused.stderr.contains("--yes") && refused.stderr.contains("--dry-run"), "{}", refused.stderr);
    let dry = ended(&scene, verb, &[args, &["--dry-run"]].concat());
    assert_eq!((dry.code(), &dry.json()["done"]), (0, &false.into()), "{}", dry.stderr);
    assert_eq!(super::output::files_below(&scene.store()), before);
}

#[test]
fn gc_removes_what_killed_runs_left_and_the_next_run_is_exact() {
    let scene = Scene::small();
    scene.run(&["--max-tasks", "5"]).expect(3, "partial");
    for step in ["run.output", "run.written", "seal.before", "intent.before_manifest"] {
        scene.crash_at(step, 1);
    }
    let staged = || fs::read_dir(scene.path("out.lakemark/staged")).unwrap().count();
    assert!(staged() > 2, "killed runs leave staged files");
    let removed = did(&scene, "gc", &[]);
    assert!(removed["outputs"].as_array().unwrap().len() >= 2, "{removed:#}");
    assert!(removed["objects"].as_array().unwrap().iter().any(|o| o[0].as_str().unwrap().contains("/seals/")));
    let again = ended(&scene, "gc", &["--yes"]);
    assert_eq!((again.code(), &again.json()["outputs"]), (0, &Value::Array(vec![])), "{}", again.stderr);
    scene.run(&[]).done();
    assert_eq!(staged(), 0, "what was sealed is committed, what was dead is gone");
    scene.assert_exact_for_all();
    scene.run(&[]).nothing();
    // With the store alone, whose record names the destination.
    let store = scene.store().display().to_string();
    let alone = super::process::run(["gc", "--json", "--store", &store, "--yes"]);
    assert_eq!(alone.code(), 0, "{}", alone.stderr);
    scene.assert_exact();
}

/// R130.
#[test]
fn r130_a_forgotten_file_is_done_again_and_its_doubled_rows_were_announced() {
    let scene = Scene::small();
    let before = scene.lake.expected();
    scene.run(&[]).done();
    let dry = ended(&scene, "forget", &["big.parquet", "nowhere", "--dry-run"]);
    assert!(dry.stderr.contains("is there twice"), "{}", dry.stderr);
    assert_eq!(dry.json()["unknown"][0], "nowhere");
    let absolute = scene.path("lake/big.parquet").display().to_string();
    let told = did(&scene, "forget", &[&absolute]);
    assert_eq!((told["files"].as_array().unwrap().len(), &told["doubled_rows"]), (1, &16.into()), "{told:#}");
    let plan = scene.plan(&[]).done();
    assert_eq!((plan.files("forced"), plan.files("done"), plan.files("new")), (1, 5, 0));
    scene.run(&[]).done();
    let extra = scene.committed().values().sum::<u64>() - before.values().sum::<u64>();
    assert!(extra > 0 && extra <= 16, "{extra} rows are there twice");
    scene.run(&[]).nothing();
    let typo = ended(&scene, "forget", &["nowhere", "--yes"]);
    assert_eq!((typo.code(), &typo.json()["error"]["kind"]), (2, &"Invalid".into()), "{}", typo.stderr);
}

#[test]
fn what_is_forgotten_before_its_commit_leaves_no_trace() {
    let scene = Scene::small();
    scene.crash_at("intent.before_object", 1);
    let told = did(&scene, "forget", &["--glob", "day=1/*"]);
    assert_eq!((told["doubled_rows"].as_u64(), told["withdrawn"].as_array().unwrap().is_empty()), (Some(0), false));
    scene.run(&[]).done();
    scene.assert_exact_for_all();
    did(&scene, "gc", &[]);
    assert_eq!(fs::read_dir(scene.path("out.lakemark/staged")).unwrap().count(), 0);
    scene.assert_exact();
    let log = scene.look("log").to_string();
    assert!(log.contains("\"what\":\"forget\"") && log.contains("gc: "), "{log}");
}

/// R131: a new store on an old lake.
#[test]
fn r131_what_is_there_is_blessed_and_only_later_files_are_done() {
    let mut scene = Scene::small();
    let told = did(&scene, "bless", &[]);
    assert_eq!(told["sources"][0]["reasons"]["new"], 6, "{told:#}");
    scene.run(&[]).nothing();
    let before = scene.lake.expected();
    scene.lake.put_singles("day=3/late", 2, 10);
    scene.run(&[]).done();
    let mut late = scene.lake.expected();
    for (row, n) in before {
        let left = late.get_mut(&row).unwrap();
        *left -= n;
        if *left == 0 {
            late.remove(&row);
        }
    }
    scene.assert_is(&late);
    let status = scene.look("status");
    assert_eq!((&status["checkpoints"]["blessed"], &status["files"]), (&1.into(), &8.into()), "{status:#}");
    assert_eq!(ended(&scene, "bless", &["--yes"]).json()["done"], false, "nothing is left to bless");
    scene.lake.put_singles("day=4/x", 1, 10);
    let old = ended(&scene, "bless", &["--before", "2001-01-01", "--yes"]);
    assert_eq!((old.code(), &old.json()["done"]), (0, &false.into()), "{}", old.stderr);
    assert_eq!(ended(&scene, "bless", &["--before", "soon", "--yes"]).code(), 2);
    let typo = ended(&scene, "bless", &["--glob", "dya=4/**", "--yes"]);
    assert_eq!(typo.code(), 2, "{}", typo.stderr);
    assert!(typo.stderr.contains("dya=4/**"), "{}", typo.stderr);
}

/// W16.
#[test]
fn w16_a_moved_lake_and_a_moved_destination_go_on() {
    let mut scene = Scene::small();
    scene.run(&[]).done();
    let url = |name: &str| format!("{:?}", scene.path(name));
    let (lake, out) = (url("lake2"), url("out2"));
    fs::rename(scene.path("lake"), scene.path("lake2")).unwrap();
    fs::rename(scene.path("out"), scene.path("out2")).unwrap();
    fs::rename(scene.path("out.lakemark"), scene.path("out2.lakemark")).unwrap();
    scene.set("source.url", lake).set("sink.url", out);
    scene.run(&[]).error(5, "Refused", &["lakemark rebase JOB"]);
    let told = did(&scene, "rebase", &[]);
    assert_eq!(told["moves"].as_array().unwrap().len(), 2, "{told:#}");
    assert_eq!(told["moves"][0]["files"]["same_size"], 6);
    scene.run(&[]).nothing();
    assert_eq!(ended(&scene, "rebase", &["--yes"]).json()["done"], false);
    // A destination that lacks committed files is not the one that was moved.
    scene.set("sink.url", format!("{:?}", scene.path("empty")));
    let store = format!("{:?}", scene.path("out2.lakemark/store"));
    scene.set("store", store);
    assert_eq!(ended(&scene, "rebase", &["--yes"]).code(), 5);
}

/// A verb under its own epoch: busy while a run is live, unless it takes over, and then the run is fenced.
#[test]
fn a_verb_waits_for_a_live_run_or_fences_it() {
    let scene = Scene::small();
    scene.run(&["--max-tasks", "2"]).expect(3, "partial");
    let mut stopped = scene.start(&[], &[("LAKEMARK_STOP_AT", "seal.before")]);
    assert!(stopped.until_stopped());
    let busy = ended(&scene, "forget", &["big.parquet", "--yes", "--no-wait"]);
    assert_eq!((busy.code(), &busy.json()["error"]["kind"]), (4, &"Busy".into()), "{}", busy.stderr);
    did(&scene, "forget", &["big.parquet", "--takeover"]);
    stopped.signal(Signal::CONT);
    let fenced = Scene::ran(&stopped.wait());
    assert_eq!((fenced.code, fenced.outcome()), (4, "fenced"), "{fenced}");
    scene.run(&[]).done();
}

/// `--retract`: the rows of a forgotten file leave the destination, and come back once.
#[test]
fn r130_what_is_forgotten_and_retracted_is_not_there_twice() {
    let scene = Scene::small();
    scene.run(&[]).done();
    let told = did(&scene, "forget", &["big.parquet", "--retract"]);
    assert_eq!((told["doubled_rows"].as_u64(), told["retracted_outputs"].as_array().unwrap().len()), (Some(0), 8));
    scene.assert_part();
    scene.run(&[]).done();
    scene.assert_exact_for_all();
}

/// A retraction that is killed anywhere is ended by the next run, or by the same verb.
#[rstest]
fn a_killed_retraction_is_ended_by_whoever_comes_next(
    #[values("intent.before_manifest", "intent.after_manifest", "rename.synced", "done.before_manifest")] step: &str,
    #[values(false, true)] by_run: bool,
) {
    let scene = Scene::small();
    scene.run(&[]).done();
    let args = ["big.parquet", "--retract", "--yes"];
    let killed = Running::start(scene.command("forget", &args).env("LAKEMARK_KILL_AT", step)).wait();
    assert!(killed.was_killed(), "{}", killed.stderr);
    if !by_run {
        let again = ended(&scene, "forget", &args);
        assert_eq!((again.code(), &again.json()["done"]), (0, &true.into()), "{}", again.stderr);
        assert_eq!(scene.look("verify")["sound"], true);
        scene.assert_part();
    }
    let ran = scene.run(&[]);
    assert_eq!(ran.code, 0, "{ran}");
    scene.assert_exact_for_all();
    scene.run(&[]).nothing();
    did(&scene, "gc", &[]);
    scene.assert_exact();
}

#[test]
fn lost_output_and_damaged_objects_are_repaired() {
    let scene = Scene::small();
    scene.run(&[]).done();
    assert_eq!(ended(&scene, "repair", &[]).json()["done"], false, "nothing is damaged");
    let (victim, _) = super::output::files_below(&scene.out()).swap_remove(0);
    fs::remove_file(victim).unwrap();
    scene.run(&[]).error(5, "Refused", &["no longer in the destination", "lakemark repair"]);
    let told = did(&scene, "repair", &[]);
    assert_eq!(told["lost"].as_array().unwrap().len(), 1, "{told:#}");
    scene.run(&[]).done();
    scene.assert_exact_for_all();

    let manifests = super::output::files_below(&scene.store().join("manifests"));
    let (newest, _) = manifests.iter().max().unwrap();
    fs::write(newest, "torn").unwrap();
    scene.run(&[]).error(1, "Corrupt", &["lakemark repair"]);
    let told = did(&scene, "repair", &["--takeover"]);
    assert!(told["back_to"].is_u64() && told["quarantined"].as_array().unwrap().len() == 1, "{told:#}");
    scene.run(&[]);
    scene.run(&[]).nothing();
    scene.assert_exact_for_all();

    // What nothing can replace is said, and nothing is changed.
    for (segment, _) in super::output::files_below(&scene.store().join("segments")) {
        fs::write(segment, "torn").unwrap();
    }
    let before = super::output::files_below(&scene.store());
    let beyond = ended(&scene, "repair", &["--yes"]);
    assert_eq!((beyond.code(), &beyond.json()["error"]["kind"]), (1, &"Corrupt".into()), "{}", beyond.stderr);
    assert_eq!(super::output::files_below(&scene.store()), before);
}

/// Output that holds the rows of several files: what cannot be made again is not taken away without a word.
#[test]
fn rows_whose_source_is_gone_are_not_taken_away_by_a_neighbour() {
    let mut scene = Scene::new();
    scene.set("run.task_bytes", "\"100MiB\"");
    scene.lake.put_singles("f", 6, 20);
    scene.run(&[]).done();
    fs::remove_file(scene.path("lake").join(first_file(&scene.path("lake"), 0))).unwrap();
    let chosen = first_file(&scene.path("lake"), 0);
    let refused = ended(&scene, "forget", &[&chosen, "--retract", "--yes"]);
    assert_eq!(refused.code(), 5, "{}", refused.stderr);
    assert!(refused.stderr.contains("--lose-rows"), "{}", refused.stderr);
    assert!(!scene.committed().is_empty(), "nothing was taken out");
    did(&scene, "forget", &[&chosen, "--retract", "--lose-rows"]);
    scene.run(&[]).done();
    let rows: u64 = scene.committed().values().sum();
    assert!(rows > 0);
    // Lost output of a task of several files is mended at the first try.
    let (victim, _) = super::output::files_below(&scene.out()).swap_remove(0);
    fs::remove_file(victim).unwrap();
    let unmounted = ended(&scene, "repair", &["--yes"]);
    assert_eq!(unmounted.code(), 5, "the only file is not there: {}", unmounted.stderr);
    let told = did(&scene, "repair", &["--all-lost"]);
    assert_eq!(told["lost"][0]["undone"].as_array().unwrap().len(), 5, "{told:#}");
    scene.run(&[]).done();
    assert_eq!(scene.committed().values().sum::<u64>(), rows);
}

/// The same question is asked whoever asks for the verb, and of files that were forgotten before: their only rows are in the
/// output that would go.
#[rstest]
fn rows_that_cannot_be_made_again_are_asked_for_every_way(
    #[values("forget", "repair")] verb: &str,
    #[values(false, true)] by_store: bool,
    #[values("none", "before", "after")] forgotten: &str,
) {
    let mut scene = Scene::new();
    scene.set("run.task_bytes", "\"100MiB\"");
    scene.set("transform.sql", "\"SELECT *, id % 3 AS part FROM docs\"").set("sink.partition_by", "[\"part\"]");
    scene.lake.put_singles("f", 6, 20);
    scene.run(&[]).done();
    let (gone, chosen) = (first_file(&scene.path("lake"), 0), first_file(&scene.path("lake"), 1));
    if forgotten == "before" {
        did(&scene, "forget", &[&gone]);
    }
    fs::remove_file(scene.path("lake").join(&gone)).unwrap();
    if forgotten == "after" {
        did(&scene, "forget", &[&gone]);
    }
    let mut before = super::output::files_below(&scene.out());
    if verb == "repair" {
        assert!(before.len() > 1, "the task has output of its own that is not lost");
        fs::remove_file(before.swap_remove(0).0).unwrap();
    }
    let job = scene.job().display().to_string();
    let store = scene.store().display().to_string();
    let what: Vec<&str> = if by_store { vec!["--store", &store] } else { vec![&job] };
    let args = match verb {
        "forget" => [&what[..], &[&chosen, "--retract"]].concat(),
        _ => what,
    };
    let run = |more: &[&str]| super::process::run([&[verb, "--json", "--yes"], &args[..], more].concat());
    let refused = run(&[]);
    assert_eq!(refused.code(), 5, "{}", refused.stderr);
    assert!(refused.stderr.contains("--lose-rows") && refused.stderr.contains(&gone), "{}", refused.stderr);
    let mut after = super::output::files_below(&scene.out());
    before.sort();
    after.sort();
    assert_eq!(after, before, "nothing was taken out");
    let told = run(&["--lose-rows"]);
    assert_eq!(told.code(), 0, "{}", told.stderr);
    assert!(told.stderr.contains("not done again") || told.stderr.contains("not be done again"), "{}", told.stderr);
    assert!(told.stderr.contains(&gone), "{}", told.stderr);
}

/// The name of file number `n` below a folder.
fn first_file(folder: &std::path::Path, n: usize) -> String {
    let mut names: Vec<_> = super::output::files_below(folder).into_iter().map(|(path, _)| path).collect();
    names.sort();
    names[n].strip_prefix(folder).unwrap().to_str().unwrap().to_owned()
}

#[rstest]
#[case::damaged(Some("torn"))]
#[case::gone(None)]
fn a_lost_binding_is_made_again_when_all_that_was_committed_is_there(#[case] text: Option<&str>) {
    let scene = Scene::small();
    scene.run(&[]).done();
    let binding = scene.path("out.lakemark/binding.json");
    match text {
        Some(text) => fs::write(&binding, text).unwrap(),
        None => fs::remove_file(&binding).unwrap(),
    }
    let refused = scene.run(&[]);
    assert!(refused.code != 0 && refused.stderr.contains("lakemark repair"), "{refused}");
    assert_eq!(did(&scene, "repair", &[])["binding"], true);
    scene.run(&[]).nothing();
    scene.assert_exact();
    // A destination of another store is never taken.
    let other = Scene::small();
    other.run(&[]).done();
    fs::copy(other.path("out.lakemark/binding.json"), &binding).unwrap();
    for verb in ["repair", "gc"] {
        let refused = ended(&scene, verb, &["--yes"]);
        assert_eq!((refused.code(), &refused.json()["error"]["kind"]), (5, &"Refused".into()), "{}", refused.stderr);
    }
    scene.run(&[]).error(5, "Refused", &["belongs to store"]);
}

/// A disk that is not mounted: what is not there is not lost.
#[test]
fn a_destination_that_is_not_mounted_is_not_repaired_by_doing_everything_again() {
    let scene = Scene::small();
    scene.run(&[]).done();
    fs::rename(scene.out(), scene.path("away")).unwrap();
    fs::create_dir(scene.out()).unwrap();
    for (verb, args) in [("repair", &[][..]), ("forget", &["big.parquet", "--retract"])] {
        let refused = ended(&scene, verb, &[args, &["--yes"]].concat());
        assert_eq!(refused.code(), 5, "{verb}: {}", refused.stderr);
    }
    fs::remove_dir(scene.out()).unwrap();
    fs::rename(scene.path("away"), scene.out()).unwrap();
    scene.run(&[]).nothing();
    scene.assert_exact();
    fs::remove_dir_all(scene.out()).unwrap();
    did(&scene, "repair", &["--all-lost"]);
    scene.run(&[]).done();
    scene.assert_exact();
}

/// The manifest of an intent is damaged after a part of its files is visible.
#[rstest]
#[case::damaged(false)]
#[case::gone(true)]
fn a_damaged_intent_is_decided_again(#[case] gone: bool) {
    let scene = Scene::small();
    scene.crash_at("rename.after", 3);
    let manifests = super::output::files_below(&scene.store().join("manifests"));
    let (newest, _) = manifests.iter().max().unwrap();
    if gone {
        fs::remove_file(newest).unwrap()
    } else {
        fs::write(newest, "torn").unwrap()
    }
    assert_ne!(scene.run(&[]).code, 0);
    let told = did(&scene, "repair", &[]);
    assert_eq!((told["back_to"].is_u64(), &told["committed"]), (!gone, &true.into()), "{told:#}");
    scene.run(&[]).nothing();
    scene.assert_exact_for_all();
}
