//! Work is done in parts, and how it is cut may change from run to run.

use rstest::rstest;

use super::readers;
use super::scene::Scene;

/// One file of 40 row groups of about 16,000 bytes.
fn forty_groups(rows: usize) -> Scene {
    let mut scene = Scene::new();
    let groups = scene.lake.groups(40, rows, 16_000 / rows);
    scene.lake.put("forty.parquet", groups);
    scene
}

#[test]
fn a_run_after_a_limited_one_reads_only_the_other_row_groups() {
    let fresh = forty_groups(4).run(&[]).done();
    assert_eq!(fresh.count("tasks/planned"), 40);
    let scene = forty_groups(4);
    let first = scene.run(&["--max-tasks", "7"]).expect(3, "partial");
    assert_eq!((first.count("tasks/sealed"), first.count("rows/in")), (7, 7 * 4));
    assert_eq!(first.count("commits/0/checkpoints"), 7);
    scene.assert_part();
    let rest = scene.run(&[]).done();
    assert_eq!(rest.files("partly_done"), 1);
    assert_eq!((rest.count("tasks/sealed"), rest.count("rows/in")), (33, 33 * 4));
    assert_eq!((rest.count("atoms/done"), rest.count("atoms/planned")), (7, 33));
    let [fresh, first, rest] = [fresh, first, rest].map(|ran| ran.count("bytes/read"));
    let twice = (first + rest).checked_sub(fresh).expect("less was read than there is");
    assert!(twice <= 64 * 1024, "more than the footer was read twice: fresh {fresh}, first {first}, rest {rest}");
    let group = 4 * (16_000 / 4);
    assert!(fresh >= 30 * group && fresh - rest >= 6 * group, "fresh {fresh}, first {first}, rest {rest}");
    scene.assert_exact_for_all();
    scene.run(&[]).nothing();
}

#[test]
fn a_run_after_a_limited_one_reads_only_the_other_rows_of_a_group() {
    let make = || {
        let mut scene = Scene::new();
        let groups = scene.lake.groups(1, 40, 4_000);
        scene.lake.put("one group.parquet", groups);
        scene.set("run.task_rows", "1").set("run.task_bytes", "\"1GiB\"");
        scene
    };
    let fresh = make().run(&[]).done();
    assert_eq!((fresh.count("tasks/planned"), fresh.count("rows/in")), (40, 40));
    let scene = make();
    let first = scene.run(&["--max-tasks", "7"]).expect(3, "partial");
    assert_eq!((first.count("tasks/sealed"), first.count("rows/in")), (7, 7));
    scene.assert_part();
    let rest = scene.run(&[]).done();
    assert_eq!((rest.count("tasks/sealed"), rest.count("rows/in")), (33, 33));
    let (fresh, rest) = (fresh.count("bytes/read"), rest.count("bytes/read"));
    // Seven rows of 4,000 bytes less, each in pages of its own.
    assert!(fresh - rest >= 6 * 4_000, "fresh {fresh}, rest {rest}");
    scene.assert_exact_for_all();
    scene.run(&[]).nothing();
}

/// R127: more row groups than a 16-bit ordinal counts, as Arrow C++ writes them.
#[test]
fn r127_a_file_of_forty_thousand_row_groups_is_resumed_by_row_group() {
    let mut scene = Scene::new();
    let groups = scene.lake.groups(1, 40_000, 8);
    scene.lake.put("many.parquet", groups);
    readers::regroup(&scene.lake.dir.join("many.parquet"));
    scene.lake.touch("many.parquet");
    scene.set("run.task_rows", "9000").set("run.task_bytes", "\"1GiB\"");
    let first = scene.run(&["--max-tasks", "2"]).expect(3, "partial");
    assert_eq!((first.count("tasks/sealed"), first.count("rows/in")), (2, 18_000));
    scene.assert_part();
    let rest = scene.run(&[]).done();
    assert_eq!(
        (rest.count("rows/in"), rest.count("atoms/done"), rest.count("atoms/planned")),
        (22_000, 18_000, 22_000)
    );
    scene.assert_exact_for_all();
    scene.run(&[]).nothing();
}

#[rstest]
#[case(&["--task-bytes", "128MiB"])]
#[case(&["--task-bytes", "33000B", "--concurrency", "1"])]
#[case(&["--task-rows", "3", "--concurrency", "7"])]
#[case(&["--task-rows", "1", "--task-bytes", "1B"])]
fn how_tasks_are_cut_may_change_and_nothing_is_redone(#[case] other: &[&str]) {
    let scene = forty_groups(5);
    scene.run(&["--max-tasks", "9"]).expect(3, "partial");
    let rest = scene.run(&[&["--max-tasks", "4"], other].concat());
    assert!(matches!(rest.code, 0 | 3), "{rest}");
    scene.assert_part();
    let last = scene.run(&["--task-rows", "2"]);
    assert!(matches!(last.outcome(), "done" | "nothing"), "{last}");
    assert_eq!(9 * 5 + rest.count("rows/in") + last.count("rows/in"), 40 * 5, "each row was read once");
    scene.assert_exact_for_all();
    scene.run(other).nothing();
    scene.run(&[]).nothing();
}

#[test]
fn new_files_are_the_only_work_of_the_next_run() {
    let mut scene = Scene::small();
    scene.run(&[]).done();
    scene.lake.put_singles("z", 2, 20);
    let plan = scene.plan(&[]);
    assert_eq!((plan.files("new"), plan.files("done"), plan.count("tasks/planned")), (2, 6, 2));
    let second = scene.run(&[]).done();
    assert_eq!((second.count("rows/in"), second.count("commits/0/n")), (2, 2));
    assert!(second.count("bytes/read") <= 3 * scene.lake.bytes_of("z0000.parquet"), "{second}");
    scene.assert_exact_for_all();
}
