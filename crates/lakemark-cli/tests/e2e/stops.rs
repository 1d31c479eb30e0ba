//! A process that is stopped and goes on after another one took its place; drivers that meet; stopping on request.

use lakemark::steps::STEPS;
use rstest::rstest;
use rustix::process::Signal;

use super::process::Running;
use super::scene::{Ran, Scene};

/// The query of every scenario, made slow: each row costs some milliseconds, and the result is the same.
fn slow_sql() -> String {
    format!("{} AND length(encode(sha512(repeat(coalesce(text, 'x'), 4000)), 'hex')) > 0", super::lake::SQL)
}

/// The index of a step in a run.
fn at(step: &str) -> usize {
    STEPS.iter().position(|s| *s == step).unwrap()
}

#[track_caller]
fn stopped_at(scene: &Scene, args: &[&str], step: &str) -> Running {
    let mut running = scene.start(args, &[("LAKEMARK_STOP_AT", step)]);
    assert!(running.until_stopped(), "it ended before {step}: {:?}", running.wait());
    running
}

#[track_caller]
fn go_on(running: Running) -> Ran {
    running.signal(Signal::CONT);
    let ended = running.wait();
    Scene::ran(&ended)
}

#[rstest]
fn a_zombie_that_goes_on_at_any_point_doubles_nothing(#[values(1, 3)] nth: usize) {
    // Those of tables are of other destinations.
    for step in STEPS.iter().filter(|step| !step.starts_with("table.") && !step.starts_with("keys.")) {
        let scene = Scene::small();
        let repeated = matches!(*step, "run.task" | "run.output" | "run.written" | "seal.before" | "seal.after")
            || matches!(*step, "rename.before" | "rename.after");
        if nth > 1 && !repeated {
            continue;
        }
        println!("stopped at {step}:{nth}");
        let zombie = stopped_at(&scene, &[], &format!("{step}:{nth}"));
        scene.assert_part();
        let successor = scene.run(&["--takeover"]);
        assert!(matches!(successor.outcome(), "done" | "nothing"), "{successor}");
        scene.assert_exact();
        let zombie = go_on(zombie);
        if at(step) >= at("open.after_manifest") && successor.count("epoch") > 0 {
            zombie.error(4, "Fenced", &["was fenced", "  at: ", "  safe: ", "  way on: "]);
        } else {
            assert_eq!(zombie.code, 0, "it had nothing to write any more: {zombie}");
        }
        scene.assert_exact();
        scene.run(&[]).nothing();
        scene.look("status");
        scene.look("log");
        scene.readers(&scene.lake.expected(), super::readers::Wanted::All);
    }
}

/// As above, while files are in the sink already and others arrive: the zombie's late commit must not touch the next one.
#[rstest]
#[case("intent.before_manifest")]
#[case("intent.after_manifest")]
#[case("rename.before")]
#[case("rename.after")]
#[case("rename.synced")]
#[case("done.before_manifest")]
fn a_zombie_inside_its_commit_is_harmless_to_later_ones(#[case] step: &str) {
    let mut scene = Scene::small();
    let zombie = stopped_at(&scene, &[], step);
    scene.run(&["--takeover"]).done();
    scene.lake.put_singles("later/b", 3, 30);
    let second = scene.run(&[]).done();
    assert_eq!(second.count("rows/in"), 3);
    go_on(zombie).error(4, "Fenced", &["was fenced"]);
    scene.assert_exact_for_all();
    scene.run(&[]).nothing();
}

/// A worker reads that it still counts before the first row of a task and before its seal.
#[rstest]
#[case("run.task", "seal.before", 0)]
#[case("run.written", "seal.before", 0)]
#[case("seal.after", "run.task", 1)]
fn a_fenced_worker_neither_seals_nor_begins_another_task(
    #[case] step: &str,
    #[case] watched: &str,
    #[case] before: usize,
) {
    let mut scene = Scene::small();
    scene.set("run.concurrency", "1");
    let zombie = stopped_at(&scene, &[], step);
    scene.run(&["--takeover"]).done();
    let zombie = go_on(zombie).error(4, "Fenced", &["was fenced"]);
    assert_eq!(zombie.steps.iter().filter(|step| *step == watched).count(), before, "{:?}", zombie.steps);
    scene.assert_exact_for_all();
}

#[test]
fn a_second_driver_that_must_not_wait_is_told_who_holds_the_store() {
    let scene = Scene::small();
    let holder = stopped_at(&scene, &[], "seal.before:2");
    let pid = format!("pid {}", holder.pid());
    scene.run(&["--no-wait"]).error(4, "Busy", &[&pid, "  at: ", "  safe: ", "--takeover"]);
    // It was not touched.
    go_on(holder).done();
    scene.assert_exact_for_all();
    scene.run(&["--no-wait"]).nothing();
}

const SHORT: [&str; 4] = ["--set", "run.lease=1s", "--set", "run.beat=200ms"];

#[test]
fn a_silent_holder_is_taken_over_after_one_lease() {
    let scene = Scene::small();
    let zombie = stopped_at(&scene, &SHORT, "seal.after:2");
    scene.run(&SHORT).done().says(&["no sign of life"]);
    scene.assert_exact();
    go_on(zombie).error(4, "Fenced", &["was fenced"]);
    scene.assert_exact_for_all();
    scene.run(&[]).nothing();
}

#[test]
fn a_live_holder_keeps_the_store() {
    let mut scene = Scene::new();
    scene.lake.put_singles("a", 900, 40);
    scene.set("run.lease", "\"2s\"").set("run.beat", "\"100ms\"");
    let slow = slow_sql();
    let mut holder = scene.start(&["--sql", &slow, "--concurrency", "1"], &[]);
    assert!(holder.until(|step| step == "seal.after"));
    let pid = format!("pid {}", holder.pid());
    scene.run(&[]).error(4, "Busy", &[&pid, "  safe: ", "--takeover"]);
    holder.signal(Signal::KILL);
    let holder = holder.wait();
    assert!(holder.was_killed(), "the holder was faster than one lease: {holder:?}");
    scene.run(&[]).done();
    scene.assert_exact();
}

#[rstest]
fn a_signal_stops_cleanly_and_the_next_run_does_the_rest(#[values(Signal::INT, Signal::TERM)] signal: Signal) {
    let mut scene = Scene::new();
    scene.lake.put_singles("a", 150, 40);
    let slow = slow_sql();
    let mut running = scene.start(&["--sql", &slow], &[]);
    let mut sealed = 0;
    assert!(running.until(|step| {
        sealed += u64::from(step == "seal.after");
        sealed == 4
    }));
    running.signal(signal);
    let stopped = Scene::ran(&running.wait()).expect(3, "partial").says(&["stopping"]);
    let (sealed, planned) = (stopped.count("tasks/sealed"), stopped.count("tasks/planned"));
    assert!(sealed >= 4 && sealed < planned, "{stopped}");
    assert_eq!(stopped.count("commits/0/checkpoints"), sealed, "what is sealed is committed: {stopped}");
    scene.assert_part();
    assert_eq!(scene.committed().values().sum::<u64>(), stopped.count("rows/out"));
    let rest = scene.run(&[]).done();
    assert_eq!(rest.count("tasks/planned"), planned - sealed);
    scene.assert_exact_for_all();
    scene.run(&[]).nothing();
}
