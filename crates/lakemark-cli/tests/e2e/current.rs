//! `on_change = replace` and `on_delete = retract`: the output is the query over the lake as it is now.

use std::hash::{BuildHasher, RandomState};

use lakemark::run_python;
use lakemark::steps::STEPS;
use rstest::rstest;
use rustix::process::Signal;

use super::process::Running;
use super::rng::Rng;
use super::scene::Scene;

fn scene(kind: &str) -> Scene {
    let mut scene = Scene::small();
    scene.set("sink.kind", format!("{kind:?}"));
    scene.set("source.on_change", "\"replace\"").set("source.on_delete", "\"retract\"");
    scene.set("source.max_replaced", "\"100%\"");
    scene
}

fn replace(scene: &mut Scene, path: &str) {
    let groups = scene.lake.groups(2, 2, 40);
    scene.lake.put(path, groups);
}

#[rstest]
fn replaced_and_deleted_files_leave_with_what_comes(#[values("parquet", "delta")] kind: &str) {
    let mut scene = scene(kind);
    scene.run(&[]).done();
    let before = scene.committed();
    replace(&mut scene, "big.parquet");
    scene.lake.remove("day=1/a0001.parquet");
    let plan = scene.plan(&[]);
    assert_eq!((plan.files("replaced"), plan.count("sources/0/vanished")), (1, 1), "{plan}");
    let ran = scene.run(&[]).done();
    assert_eq!(ran.count("rows/in"), 4, "{ran}");
    assert!(ran.count("commits/0/taken_out") > 1, "{ran}");
    assert!(ran.stderr.contains("of old output left"), "{ran}");
    assert_ne!(scene.committed(), before);
    scene.assert_exact_for_all();
    scene.run(&[]).nothing();
    assert_eq!(scene.look("verify")["sound"], true);

    // Nothing comes, and something leaves.
    scene.lake.remove("day=1/a0002.parquet");
    let ran = scene.run(&[]).done();
    assert_eq!((ran.count("tasks/planned"), ran.count("commits/0/taken_out")), (0, 1), "{ran}");
    scene.assert_exact_for_all();
    // It comes back, as something that was never there.
    replace(&mut scene, "day=1/a0002.parquet");
    assert_eq!(scene.run(&[]).done().files("new"), 1);
    scene.assert_exact_for_all();
    scene.run(&[]).nothing();
    assert_eq!(scene.look("verify")["sound"], true);
}

/// Readers never see a part of a new version, nor none of the two.
#[rstest]
fn a_new_version_waits_until_all_of_it_is_done(#[values("parquet", "delta")] kind: &str) {
    let mut scene = scene(kind);
    let groups = scene.lake.groups(6, 3, 4_000);
    scene.lake.put("large.parquet", groups);
    scene.set("run.task_bytes", "\"9KB\"").set("run.concurrency", "1");
    scene.run(&[]).done();
    scene.assert_exact();
    let before = scene.lake.expected_of("large.parquet");
    let groups = scene.lake.groups(6, 3, 4_000);
    scene.lake.put("large.parquet", groups);
    let mut old = scene.lake.expected();
    old.retain(|row, _| !scene.lake.expected_of("large.parquet").contains_key(row));
    old.extend(before);
    let partial = scene.run(&["--max-tasks", "2"]).expect(3, "partial");
    assert_eq!(partial.count("tasks/sealed"), 2);
    scene.assert_is(&old);
    // Replaced again, before it was complete: what was done of it never shows.
    let groups = scene.lake.groups(6, 3, 4_000);
    scene.lake.put("large.parquet", groups);
    scene.run(&["--max-tasks", "1"]).expect(3, "partial");
    scene.assert_is(&old);
    scene.run(&[]).done();
    scene.assert_exact_for_all();
    scene.run(&[]).nothing();
    assert_eq!(scene.look("verify")["sound"], true);
}

#[test]
fn output_that_holds_rows_of_others_does_not_leave() {
    let mut scene = scene("parquet");
    scene.set("source.on_change", "\"reprocess\"").set("source.on_delete", "\"keep\"").set("run.task_bytes", "\"1MB\"");
    scene.run(&[]).done();
    scene.set("source.on_change", "\"replace\"");
    replace(&mut scene, "day=1/a0001.parquet");
    scene.run(&[]).error(5, "Refused", &["`day=1/a0001.parquet`", "holds rows of", "--on-change reprocess", "forget"]);
    // With the others it can.
    let forget = &mut scene.command("forget", &["--glob", "**", "--yes"]);
    assert_eq!(Running::start(forget).wait().code(), 0);
    scene.run(&[]).done();
    scene.assert_exact_for_all();
}

#[test]
fn a_lake_that_seems_gone_takes_nothing_out() {
    let mut scene = scene("parquet");
    scene.run(&[]).done();
    let before = scene.committed();
    let away = scene.path("away");
    std::fs::rename(&scene.lake.dir, &away).unwrap();
    std::fs::create_dir(&scene.lake.dir).unwrap();
    scene.run(&[]).error(5, "Refused", &["no file at all", "--on-delete keep"]);
    std::fs::remove_dir(&scene.lake.dir).unwrap();
    std::fs::rename(&away, &scene.lake.dir).unwrap();
    // Another selection is no deletion.
    let glob = format!("{:?}", scene.lake.dir.join("**/a*.parquet"));
    scene.set("source.url", glob);
    scene.run(&[]).error(5, "Refused", &["is not listed any more, and is there"]);
    assert_eq!(scene.committed(), before);
    // And many at once are asked about.
    let url = format!("{:?}", scene.lake.dir);
    scene.set("source.url", url).set("source.max_replaced", "1");
    for path in ["day=1/a0000.parquet", "day=1/a0001.parquet"] {
        scene.lake.remove(path);
    }
    scene.run(&[]).error(5, "Refused", &["2 of 6 known files", "max_replaced"]);
    assert_eq!(scene.committed(), before);
}

/// Others rewrote the table: which rows are old cannot be told any more.
#[rstest]
#[case::compacted("assert table.optimize.compact()['numFilesRemoved'] > 1")]
#[case::deleted("table.delete('id = 1')")]
#[case::append_only("table.alter.set_table_properties({'delta.appendOnly': 'true'})")]
fn a_table_that_others_changed_gives_nothing_up(#[case] change: &str) {
    let mut scene = scene("delta");
    scene.run(&[]).done();
    let script = format!("import sys, deltalake; table = deltalake.DeltaTable(sys.argv[1]); {change}");
    run_python(&script, &[&scene.out()]).unwrap();
    for path in scene.lake.files.keys().cloned().collect::<Vec<_>>() {
        replace(&mut scene, &path);
    }
    scene.run(&[]).error(5, "Refused", &["old output", "--on-change reprocess"]);
}

/// What waits of a version that cannot be finished any more never shows beside the one that is there.
#[rstest]
fn half_a_version_never_shows_beside_another(
    #[values("parquet", "delta")] kind: &str,
    #[values("gone", "unusable", "accepted", "whole")] end: &str,
) {
    let mut scene = scene(kind);
    scene.set("source.on_delete", "\"keep\"").set("source.on_moved", "\"accept\"").set("run.task_bytes", "\"900B\"");
    scene.run(&[]).done();
    let (before, old) = (scene.lake.expected(), scene.lake.files["big.parquet"].clone());
    let groups = scene.lake.groups(8, 2, 40);
    scene.lake.put("big.parquet", groups);
    if end == "whole" {
        scene.crash_at("intent.before_object", 1);
        scene.lake.touch("big.parquet");
        scene.run(&[]).done();
        scene.assert_exact_for_all();
        scene.run(&[]).nothing();
        return;
    }
    scene.run(&["--max-tasks", "2"]).expect(3, "partial");
    let path = scene.lake.dir.join("big.parquet");
    let code = match end {
        "gone" => std::fs::remove_file(&path).map(|()| 0).unwrap(),
        "unusable" => std::fs::write(&path, "xx").map(|()| 3).unwrap(),
        _ => {
            // What it was, with another time.
            scene.lake.put("big.parquet", old);
            0
        }
    };
    let ran = scene.run(&[]);
    assert_eq!(ran.code, code, "{ran}");
    scene.assert_is(&before);
    let again = scene.run(&[]);
    assert_eq!((again.code, again.count("epoch")), (code, 0), "nothing is left to do: {again}");
    scene.assert_is(&before);
}

/// Rows that an earlier forgetting left leave with their file too, also when it shares its output.
#[rstest]
fn rows_of_forgotten_files_leave_with_them(#[values("parquet", "delta")] kind: &str) {
    let mut scene = scene(kind);
    scene.set("source.on_change", "\"reprocess\"").set("source.on_delete", "\"keep\"").set("run.task_bytes", "\"1MB\"");
    scene.run(&[]).done();
    scene.set("source.on_change", "\"replace\"").set("source.on_delete", "\"retract\"");
    scene.lake.remove("day=1/a0001.parquet");
    scene.run(&[]).error(5, "Refused", &["`day=1/a0001.parquet`", "holds rows of"]);
    let forget = &mut scene.command("forget", &["--glob", "**", "--yes"]);
    assert_eq!(Running::start(forget).wait().code(), 0);
    scene.run(&[]).done();
    scene.assert_exact_for_all();
    let forget = &mut scene.command("forget", &["day=1/a0002.parquet", "--yes"]);
    assert_eq!(Running::start(forget).wait().code(), 0);
    scene.lake.remove("day=1/a0002.parquet");
    scene.run(&[]).done();
    scene.assert_exact_for_all();
    scene.run(&[]).nothing();
}

/// A stalled driver, and one that goes on behind it.
#[rstest]
fn a_zombie_takes_nothing_out_that_is_to_stay(#[values("parquet", "delta")] kind: &str) {
    for step in ["intent.after_manifest", "table.before", "rename.before", "done.before_manifest"] {
        if step.starts_with(if kind == "delta" { "rename" } else { "table" }) {
            continue;
        }
        let mut scene = scene(kind);
        scene.run(&[]).done();
        replace(&mut scene, "big.parquet");
        let mut zombie = scene.start(&[], &[("LAKEMARK_STOP_AT", step)]);
        assert!(zombie.until_stopped(), "it ended before {step}");
        replace(&mut scene, "big.parquet");
        scene.run(&["--takeover"]).done();
        scene.assert_exact();
        zombie.signal(Signal::CONT);
        zombie.wait();
        scene.assert_exact_for_all();
        scene.run(&[]).nothing();
    }
}

/// Random adds, replacements, deletions, kills, limits: after a run that ends, the output is the query over the lake.
#[rstest]
fn the_output_follows_the_lake(#[values("parquet", "delta")] kind: &str) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seed = number("LAKEMARK_SEED").unwrap_or_else(|| RandomState::new().hash_one(0));
    println!("LAKEMARK_SEED={seed}");
    let mut rng = Rng::new(seed);
    let mut scene = scene(kind);
    scene.set("run.task_bytes", "\"700B\"");
    let steps: Vec<&str> =
        STEPS.iter().copied().filter(|step| !step.ends_with("_binding") && !step.starts_with("keys.")).collect();
    let mut killed = 0;
    for round in 0..number("LAKEMARK_ROUNDS").unwrap_or(60) {
        for _ in 0..1 + rng.below(3) {
            let paths: Vec<String> = scene.lake.files.keys().cloned().collect();
            let one = &paths[rng.below(paths.len() as u64) as usize];
            match rng.below(10) {
                0..4 => {
                    let groups = scene.lake.groups(1 + rng.below(3) as usize, 1 + rng.below(3) as usize, 60);
                    scene.lake.put(&format!("added/{round}-{}.parquet", rng.below(100)), groups);
                }
                4..7 => replace(&mut scene, one),
                7..9 if paths.len() > 3 => scene.lake.remove(one),
                _ => {}
            }
        }
        let limit = (1 + rng.below(3)).to_string();
        match rng.below(5) {
            0..2 => {
                let step = steps[rng.below(steps.len() as u64) as usize];
                let at = format!("{step}:{}", 1 + rng.below(2));
                killed += u64::from(scene.start(&[], &[("LAKEMARK_KILL_AT", &at)]).wait().was_killed());
            }
            2 => {
                let ran = scene.run(&["--max-tasks", &limit]);
                assert!(matches!(ran.outcome(), "done" | "partial" | "nothing"), "round {round}: {ran}");
            }
            _ => {
                let ran = scene.run(&[]);
                assert!(matches!(ran.outcome(), "done" | "nothing"), "round {round}: {ran}");
                scene.assert_exact();
                scene.run(&[]).nothing();
            }
        }
    }
    let ran = scene.run(&[]);
    assert!(matches!(ran.outcome(), "done" | "nothing"), "{ran}");
    scene.assert_exact_for_all();
    assert_eq!(scene.look("verify")["sound"], true);
    println!("{killed} kills");
}
