//! A crash at every named point between two durable steps: nothing is lost, nothing is there twice.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use lakemark::steps::STEPS;
use rstest::rstest;

use super::scene::Scene;

/// How often each step of a run over [`Scene::small`] is reached.
static REACHED: LazyLock<BTreeMap<String, usize>> = LazyLock::new(|| {
    let scene = Scene::small();
    counts(&scene.run(&[]).done().steps)
});

fn counts(steps: &[String]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for step in steps {
        *counts.entry(step.clone()).or_default() += 1;
    }
    counts
}

#[test]
fn a_run_reaches_every_named_point() {
    // Those of tables are of other destinations.
    let steps = STEPS.iter().filter(|step| !step.starts_with("table.") && !step.starts_with("keys."));
    let missing: Vec<_> = steps.filter(|step| !REACHED.contains_key(**step)).collect();
    assert!(missing.is_empty(), "never reached, so never tested: {missing:?}");
    let unknown: Vec<_> = REACHED.keys().filter(|step| !STEPS.contains(&step.as_str())).collect();
    assert!(unknown.is_empty(), "not in the list: {unknown:?}");
}

/// After a crash: a part of the reference, then all of it, then nothing to do.
#[track_caller]
fn recovers(scene: &Scene) {
    scene.assert_part();
    let recovered = scene.run(&[]);
    assert!(matches!(recovered.outcome(), "done" | "nothing"), "{recovered}");
    scene.assert_exact();
    scene.run(&[]).nothing();
    assert_eq!(scene.look("status")["checkpoints"]["uncommitted"], 0);
}

#[rstest]
fn a_crash_at_any_point_of_a_run_changes_nothing(#[values(1, 2, 3)] nth: usize) {
    for (step, _) in REACHED.iter().filter(|(_, count)| **count >= nth) {
        println!("crash at {step}:{nth}");
        let scene = Scene::small();
        scene.crash_at(step, nth);
        recovers(&scene);
        scene.readers(&scene.lake.expected(), super::readers::Wanted::All);
    }
}

/// A second crash while the first one is recovered from, with new files in the lake meanwhile.
#[rstest]
#[case("open.after_binding", 1)]
#[case("seal.after", 5)]
#[case("intent.after_manifest", 1)]
#[case("rename.after", 3)]
#[case("done.after_manifest", 1)]
fn a_crash_at_any_point_of_a_recovery_changes_nothing(#[case] first: &str, #[case] nth: usize) {
    let crashed = || {
        let mut scene = Scene::small();
        scene.crash_at(first, nth);
        scene.lake.put_singles("later/b", 2, 30);
        scene
    };
    let recovery = counts(&crashed().run(&[]).done().steps);
    for (step, count) in recovery {
        // How far the crashed run got beyond its last step varies a little, so the last ones are not aimed at.
        for second in if count >= 5 { 1..=2 } else { 1..=1 } {
            println!("crash at {first}:{nth}, then at {step}:{second}");
            let scene = crashed();
            scene.crash_at(&step, second);
            recovers(&scene);
        }
    }
}

/// Folding in the middle of a run happens at a thousand loose seals.
#[rstest]
#[case("fold.before_segment", 2)]
#[case("fold.before_manifest", 2)]
#[case("fold.after_manifest", 2)]
#[case("seal.before", 1_010)]
fn a_crash_around_the_fold_of_a_thousand_seals_changes_nothing(#[case] step: &str, #[case] nth: usize) {
    let mut scene = Scene::new();
    let groups = scene.lake.groups(1_020, 1, 8);
    scene.lake.put("many groups.parquet", groups);
    let crashed = scene.crash_at(step, nth);
    let sealed = crashed.steps.iter().filter(|step| *step == "seal.after").count();
    assert!(sealed >= 1_000, "the fold of a thousand seals did not come first: {sealed} sealed");
    scene.assert_part();
    let recovered = scene.run(&[]).done();
    assert!(recovered.count("tasks/planned") <= 1_020 - sealed as u64, "sealed work was planned again: {recovered}");
    scene.assert_exact();
    scene.run(&[]).nothing();
}
