//! A run that finds nothing to do.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::scene::Scene;

/// Everything below a directory, folders too, with its mtime.
fn listing(dir: &Path) -> BTreeMap<PathBuf, SystemTime> {
    let mut found = BTreeMap::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            let meta = entry.metadata().unwrap();
            if meta.is_dir() {
                folders.push(entry.path());
            }
            found.insert(entry.path(), meta.modified().unwrap());
        }
    }
    found
}

#[test]
fn the_second_run_says_nothing_and_touches_nothing() {
    let scene = Scene::small();
    let first = scene.run(&[]).done();
    assert_eq!(first.count("rows/in"), scene.lake.row_count());
    assert_eq!(first.files("new"), scene.lake.files.len() as u64);
    scene.assert_exact_for_all();
    let before = listing(&scene.path(""));
    let second = scene.run(&[]).nothing();
    assert_eq!(second.files("done"), scene.lake.files.len() as u64);
    assert_eq!(second.count("bytes/read"), 0);
    assert_eq!(second.count("atoms/files_unopened"), scene.lake.files.len() as u64);
    let requests = ["list", "get", "put", "delete"].map(|kind| second.count(&format!("requests/store/{kind}")));
    assert!(requests.iter().sum::<u64>() <= 10, "{requests:?}");
    let plan = scene.plan(&[]).expect(0, "nothing");
    assert_eq!(plan.count("tasks/planned"), 0);
    let mut after = listing(&scene.path(""));
    // The harness writes the job file anew each time.
    after.insert(scene.path("job.toml"), before[&scene.path("job.toml")]);
    assert_eq!(before, after);
}
