//! Which version of a file is done: replaced, touched, copied, renamed roots, changed under the reader, and no files at all.

use std::fs;
use std::process::Command;

use rstest::rstest;
use rustix::process::Signal;

use super::lake::{Multiset, Row};
use super::scene::Scene;

fn twenty_files() -> Scene {
    let mut scene = Scene::new();
    for i in 0..20 {
        let groups = scene.lake.groups(2, 2, 30);
        scene.lake.put(&format!("f{i:02}.parquet"), groups);
    }
    scene
}

fn both(a: &Multiset, b: &Multiset) -> Multiset {
    let mut both = a.clone();
    for (row, count) in b {
        *both.entry(row.clone()).or_default() += count;
    }
    both
}

/// Three row groups that the query keeps whole.
fn kept(scene: &mut Scene, rows: usize) -> Vec<Vec<Row>> {
    let mut groups = scene.lake.groups(3, rows, 25);
    groups.iter_mut().flatten().for_each(|row| row.n = 7);
    groups
}

#[test]
fn a_replaced_file_is_redone_and_nothing_else() {
    let mut scene = twenty_files();
    scene.run(&[]).done();
    let old = scene.lake.expected();
    let groups = kept(&mut scene, 2);
    scene.lake.put("f07.parquet", groups);
    let new = scene.lake.expected_of("f07.parquet");
    let plan = scene.plan(&[]);
    assert_eq!((plan.files("replaced"), plan.files("done"), plan.files("new")), (1, 19, 0), "{plan}");
    let second = scene.run(&[]).done();
    assert_eq!((second.files("replaced"), second.files("done"), second.files("new")), (1, 19, 0), "{second}");
    assert_eq!((second.count("rows/in"), second.count("tasks/sealed")), (6, 3));
    assert!(second.count("bytes/read") <= 4 * scene.lake.bytes_of("f07.parquet"), "{second}");
    // The default keeps the rows of the version that was committed.
    scene.assert_is(&both(&old, &new));
    scene.readers(&both(&old, &new), super::readers::Wanted::All);
    scene.run(&[]).nothing();
}

#[test]
fn a_replaced_file_can_be_left_or_stop_the_run() {
    let mut scene = twenty_files();
    scene.run(&[]).done();
    let old = scene.lake.expected();
    let groups = kept(&mut scene, 1);
    scene.lake.put("f07.parquet", groups);
    let failed = scene.run(&["--on-change", "fail"]);
    failed.error(5, "Refused", &["f07.parquet", "  safe: ", "--on-change reprocess", "--on-change ignore"]);
    let left = scene.run(&["--on-change", "ignore"]);
    assert_eq!((left.code, left.files("replaced"), left.count("rows/in")), (0, 1, 0), "{left}");
    scene.assert_is(&old);
}

#[test]
fn too_much_replaced_is_refused() {
    let mut scene = twenty_files();
    scene.run(&[]).done();
    let old = scene.lake.expected();
    let mut new = Multiset::new();
    for i in 0..10 {
        let (path, groups) = (format!("f{i:02}.parquet"), kept(&mut scene, 1));
        scene.lake.put(&path, groups);
        new = both(&new, &scene.lake.expected_of(&path));
    }
    scene.run(&[]).error(5, "Refused", &["10 of 20 known files", "max_replaced", "  safe: ", "  way on: "]);
    scene.assert_is(&old);
    let meant = scene.run(&["--set", "source.docs.max_replaced=10"]).done();
    assert_eq!(meant.files("replaced"), 10);
    scene.assert_is(&both(&old, &new));
}

#[test]
fn a_touched_file_is_a_question_with_three_answers() {
    let mut scene = twenty_files();
    scene.run(&[]).done();
    let old = scene.lake.expected();
    let before = fs::metadata(scene.lake.dir.join("f03.parquet")).unwrap().modified().unwrap();
    scene.lake.touch("f03.parquet");
    let ways = ["f03.parquet", "  safe: ", "--on-moved accept", "--on-moved reprocess", "touch -r"];
    scene.run(&[]).error(5, "Refused", &ways);
    scene.plan(&[]).error(5, "Refused", &ways);
    scene.assert_is(&old);
    // The third answer first: the time is put back.
    super::lake::set_mtime(&scene.lake.dir.join("f03.parquet"), before);
    scene.run(&[]).nothing();
    scene.lake.touch("f03.parquet");
    let accepted = scene.run(&["--on-moved", "accept"]).done();
    assert_eq!((accepted.files("moved"), accepted.files("done"), accepted.count("rows/in")), (1, 19, 0), "{accepted}");
    scene.run(&[]).nothing();
    scene.assert_is(&old);
    scene.lake.touch("f03.parquet");
    let again = scene.run(&["--on-moved", "reprocess"]).done();
    assert_eq!((again.files("moved"), again.count("rows/in")), (1, 4), "{again}");
    scene.assert_is(&both(&old, &scene.lake.expected_of("f03.parquet")));
    scene.run(&[]).nothing();
}

#[test]
fn a_rewrite_that_keeps_size_and_time_is_found_by_verify() {
    let mut scene = twenty_files();
    scene.run(&[]).done();
    let old = scene.lake.expected();
    let path = scene.lake.dir.join("f03.parquet");
    let (time, size) = (fs::metadata(&path).unwrap().modified().unwrap(), scene.lake.bytes_of("f03.parquet"));
    let mut groups = scene.lake.files["f03.parquet"].clone();
    groups.iter_mut().flatten().for_each(|row| row.n = 999);
    scene.lake.put("f03.parquet", groups);
    super::lake::set_mtime(&path, time);
    assert_eq!(scene.lake.bytes_of("f03.parquet"), size);
    scene.run(&[]).nothing().says(&["not verified"]);
    let found = scene.run(&["--verify"]).done();
    assert_eq!((found.files("replaced"), found.files("done")), (1, 19), "{found}");
    scene.assert_is(&both(&old, &scene.lake.expected_of("f03.parquet")));
    scene.run(&["--verify"]).expect(0, "nothing");
}

#[test]
fn a_copy_of_the_lake_that_keeps_times_redoes_nothing() {
    let scene = Scene::small();
    scene.run(&[]).done();
    let (lake, copy, aside) = (scene.path("lake"), scene.path("copy"), scene.path("aside"));
    assert!(Command::new("cp").arg("-a").args([&lake, &copy]).status().unwrap().success());
    fs::rename(&lake, &aside).unwrap();
    fs::rename(&copy, &lake).unwrap();
    scene.run(&[]).nothing();
    // Another root is another lake, whatever it holds.
    scene.run(&["--source", &format!("docs={}", aside.display())]).error(
        5,
        "Refused",
        &["docs", "aside", "  way on: "],
    );
    scene.assert_exact_for_all();
}

#[rstest]
#[case("{}/")]
#[case("{}/.")]
#[case("{}/../lake")]
#[case("/.{}//")]
#[case("file://{}")]
#[case("file://{}/")]
#[case("lake")]
#[case("./lake/")]
fn spellings_of_one_root_are_one_root(#[case] spelling: &str) {
    let scene = Scene::small();
    scene.run(&[]).done();
    let url = spelling.replace("{}", &scene.path("lake").display().to_string());
    scene.run(&["--source", &format!("docs={url}")]).nothing();
    let out = spelling.replace("{}", &scene.out().display().to_string());
    let out = if out == spelling { spelling.replace("lake", "out") } else { out.replace("../lake", "../out") };
    scene.run(&["--sink", &format!("parquet:{out}"), "--store", &scene.store().display().to_string()]).nothing();
}

/// Replaced while the driver has planned it and no worker has opened it: planned again in the same run.
#[rstest]
#[case::packed_whole("1GiB", "run.task")]
#[case::split_on_the_driver("1B", "open.after_binding")]
#[case::in_the_first_task("1B", "run.task")]
fn a_file_replaced_after_planning_is_planned_again_in_the_same_run(#[case] task_bytes: &str, #[case] stop: &str) {
    let mut scene = twenty_files();
    scene.set("run.task_bytes", format!("{task_bytes:?}")).set("run.concurrency", "1");
    let mut running = scene.start(&[], &[("LAKEMARK_STOP_AT", stop)]);
    assert!(running.until_stopped());
    for path in ["f00.parquet", "f19.parquet"] {
        let groups = kept(&mut scene, 2);
        scene.lake.put(path, groups);
    }
    running.signal(Signal::CONT);
    let ran = Scene::ran(&running.wait()).done().says(&["changed since planning", "f00.parquet", "f19.parquet"]);
    assert_eq!(ran.files("new"), 20, "{ran}");
    assert_eq!(ran.count("rows/in"), scene.lake.row_count(), "nothing of the old versions was sealed: {ran}");
    scene.assert_exact_for_all();
    scene.run(&[]).nothing();
}

/// A file torn while the run is on its way is named as unusable by this run, not only by the next one.
#[rstest]
fn a_file_torn_after_planning_is_unusable_in_the_same_run(
    #[values("list.end", "open.after_manifest", "run.task")] stop: &str,
    #[values(5, 500)] bytes: usize,
    #[values("1B", "1GiB")] task_bytes: &str,
) {
    let mut scene = twenty_files();
    scene.set("run.task_bytes", format!("{task_bytes:?}")).set("run.concurrency", "1");
    let mut running = scene.start(&[], &[("LAKEMARK_STOP_AT", stop)]);
    assert!(running.until_stopped());
    scene.lake.put_raw("f07.parquet", &vec![0x2a; bytes]);
    running.signal(Signal::CONT);
    let ran = Scene::ran(&running.wait()).expect(3, "partial");
    assert_eq!(ran.files("new"), 19, "{ran}");
    assert_eq!(ran.report["sources"][0]["unusable"][0]["path"], "f07.parquet", "{ran}");
    scene.assert_exact();
}

/// Replaced while it is being read: each version is in the output whole, or not at all.
#[rstest]
fn a_file_replaced_while_it_is_read_is_never_mixed(#[values("run.output", "run.written", "seal.before")] stop: &str) {
    let mut scene = Scene::new();
    scene.set("run.task_bytes", "\"1GiB\"");
    let groups = kept(&mut scene, 400);
    scene.lake.put("one.parquet", groups);
    let old = scene.lake.expected();
    let mut running = scene.start(&[], &[("LAKEMARK_STOP_AT", stop)]);
    assert!(running.until_stopped());
    let groups = kept(&mut scene, 300);
    scene.lake.put("one.parquet", groups);
    running.signal(Signal::CONT);
    let first = Scene::ran(&running.wait()).done();
    let new = scene.lake.expected();
    let old_was_sealed = first.count("rows/in") == 1_200;
    let second = scene.run(&[]);
    if old_was_sealed {
        assert_eq!(second.done().files("replaced"), 1);
        scene.assert_is(&both(&old, &new));
    } else {
        second.nothing();
        scene.assert_is(&new);
    }
    scene.run(&[]).nothing();
}

#[test]
fn files_that_are_no_data_are_counted_named_and_not_sealed() {
    let mut scene = Scene::new();
    scene.lake.put_singles("a", 3, 20);
    // R33: markers and hidden names are ignored by the rule; an empty table is sealed as done.
    scene.lake.put_raw("_SUCCESS", b"");
    scene.lake.put_raw(".a0000.parquet.crc", b"crc");
    scene.lake.put_raw("_temporary/0/b.parquet", b"half");
    scene.lake.put("no groups.parquet", Vec::new());
    // R47: a task whose rows are all dropped by the query.
    let dropped: Vec<Row> = (0..5).map(|i| Row { id: -i, n: 10 * i, text: None }).collect();
    scene.lake.put("dropped.parquet", vec![dropped]);
    // R33, R34: empty, and torn.
    scene.lake.put_raw("empty.parquet", b"");
    let groups = scene.lake.groups(2, 3, 30);
    scene.lake.put("torn.parquet", groups.clone());
    let whole = fs::read(scene.lake.dir.join("torn.parquet")).unwrap();
    scene.lake.put_raw("torn.parquet", &whole[..whole.len() / 2]);

    let first = scene.run(&[]).expect(3, "partial").says(&["empty.parquet", "torn.parquet", "hidden"]);
    assert_eq!((first.files("listed"), first.files("new"), first.files("hidden")), (7, 5, 3), "{first}");
    let unusable = first.report["sources"][0]["unusable"].as_array().unwrap();
    let named: Vec<_> = unusable.iter().map(|u| u["path"].as_str().unwrap()).collect();
    assert_eq!(named, ["empty.parquet", "torn.parquet"]);
    assert!(unusable.iter().all(|u| !u["why"].as_str().unwrap().is_empty()));
    assert_eq!((first.count("rows/in"), first.count("tasks/failed")), (8, 0));
    scene.assert_exact_for_all();

    // Nothing new, so nothing is written; what cannot be read is still said.
    let again = scene.run(&[]).expect(3, "partial").says(&["empty.parquet", "torn.parquet"]);
    assert_eq!((again.files("done"), again.files("new")), (5, 0), "{again}");
    assert_eq!(again.count("rows/in"), 0);

    // The torn file is complete now, the empty one is gone.
    scene.lake.put("torn.parquet", groups);
    fs::remove_file(scene.lake.dir.join("empty.parquet")).unwrap();
    let last = scene.run(&[]).done();
    assert_eq!((last.files("new"), last.files("done"), last.count("rows/in")), (1, 5, 6), "{last}");
    scene.assert_exact_for_all();
    scene.run(&[]).nothing();
}

#[test]
fn a_file_that_is_gone_keeps_its_output() {
    let scene = twenty_files();
    scene.run(&[]).done();
    let old = scene.lake.expected();
    fs::remove_file(scene.lake.dir.join("f05.parquet")).unwrap();
    let second = scene.run(&[]).nothing();
    assert_eq!((second.files("vanished"), second.files("listed"), second.files("done")), (1, 19, 19), "{second}");
    scene.assert_is(&old);
}

/// R04: a file rewritten within one tick of the clock after it was listed, with size and time kept.
#[test]
fn a_fresh_file_is_compared_by_its_footer_in_the_next_run_that_works() {
    let mut scene = Scene::new();
    scene.lake.put_singles("a", 2, 20);
    let path = scene.lake.dir.join("a0001.parquet");
    // Ahead of the clock, so too fresh whatever the machine's speed.
    let soon = std::time::SystemTime::now() + std::time::Duration::from_secs(3_600);
    super::lake::set_mtime(&path, soon);
    scene.run(&[]).done();
    let old = scene.lake.expected();
    let mut groups = scene.lake.files["a0001.parquet"].clone();
    groups[0][0].n = 333;
    scene.lake.put("a0001.parquet", groups);
    super::lake::set_mtime(&path, soon);
    scene.lake.put_singles("b", 1, 20);
    scene.run(&[]).done();
    let new = both(&scene.lake.expected_of("a0001.parquet"), &scene.lake.expected_of("b0000.parquet"));
    scene.assert_is(&both(&old, &new));
}
