//! Jobs that earlier versions ran, checked in under `tests/golden/` with lake, destination and store: later versions find
//! everything done.
//!
//! `LAKEMARK_GOLDEN=<folder> cargo test -p lakemark-cli write_a_golden_job -- --ignored` writes one. One is added for each
//! format; none is ever changed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::output::files_below;
use super::process::run;
use super::scene::Scene;

/// What all files of a golden lake were last written at: a checkout does not keep that.
fn written_at() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)
}

fn copy(from: &Path, to: &Path) {
    for (path, _) in files_below(from) {
        let to = to.join(path.strip_prefix(from).unwrap());
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(&path, &to).unwrap();
        File::options().append(true).open(&to).unwrap().set_modified(written_at()).unwrap();
    }
}

#[test]
#[ignore = "writes files that are checked in"]
fn write_a_golden_job() {
    let folder = PathBuf::from(std::env::var_os("LAKEMARK_GOLDEN").expect("LAKEMARK_GOLDEN names a folder"));
    copy(&Scene::small().path("lake"), &folder.join("lake"));
    let (lake, out) = (folder.join("lake"), folder.join("out"));
    let (source, sink) = (format!("docs={}", lake.display()), format!("parquet:{}", out.display()));
    let flags = ["--source", &source, "--sql", super::lake::SQL, "--sink", &sink, "--task-bytes", "1B"];
    let partial = run(["run"].iter().chain(&flags).chain(&["--max-tasks", "4"]));
    assert_eq!(partial.code(), 3, "{}", partial.stderr);
    let done = run(["run"].iter().chain(&flags));
    assert_eq!(done.code(), 0, "{}", done.stderr);
    for empty in ["out.lakemark/store/unfinished", "out.lakemark/staged"] {
        let _ = fs::remove_dir(folder.join(empty));
    }
}

#[test]
fn a_golden_job_is_found_done_and_goes_on() {
    let mut seen = 0;
    for folder in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden")).unwrap() {
        let folder = folder.unwrap().path();
        let mut scene = Scene::new();
        for part in ["lake", "out", "out.lakemark"] {
            copy(&folder.join(part), &scene.path(part));
        }
        let before = scene.committed();
        assert!(!before.is_empty());
        let moved = super::process::Running::start(&mut scene.command("rebase", &["--yes"])).wait();
        assert_eq!((moved.code(), &moved.json()["done"]), (0, &true.into()), "{}", moved.stderr);
        scene.run(&[]).nothing();
        assert_eq!(scene.look("verify")["sound"], true);
        scene.assert_is(&before);
        scene.lake.put_singles("later", 1, 3);
        let ran = scene.run(&[]).done();
        assert_eq!((ran.count("tasks/sealed"), ran.files("new")), (1, 1), "{ran}");
        seen += 1;
    }
    assert!(seen > 0, "no golden job is checked in");
}
