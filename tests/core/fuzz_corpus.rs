//! The corpus of the fuzz targets, replayed without a fuzzer; `docs/fuzzing.md` tells of both.

use std::collections::BTreeMap;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use lakemark::fuzzing::{TARGETS, bound, peak, run};

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus")
}

fn files(target: &str) -> Vec<PathBuf> {
    let folder = corpus().join(target);
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort_unstable();
    files
}

#[test]
fn every_input_keeps_the_laws_within_bounded_memory() {
    let mut failed = Vec::new();
    for (target, _) in TARGETS {
        let files = files(target);
        assert!(!files.is_empty(), "the corpus of {target} is empty");
        for file in files {
            let bytes = std::fs::read(&file).unwrap();
            if catch_unwind(|| run(target, &bytes)).is_err() {
                failed.push(file);
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn memory_is_counted() {
    let peak = peak(|| drop(std::hint::black_box(vec![1u8; bound(0) + 1])));
    assert!(peak > bound(0), "{peak} bytes: the counting allocator is not the one in use");
}

/// Folders of targets that the core does not have would be replayed by nobody here.
#[test]
fn every_folder_of_the_corpus_has_a_target() {
    let mut known: BTreeMap<String, bool> = TARGETS.iter().map(|(name, _)| (name.to_string(), false)).collect();
    // Replayed by the command's tests: the job file is the command's.
    known.insert("job_files".to_owned(), false);
    for entry in std::fs::read_dir(corpus()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        *known.get_mut(&name).unwrap_or_else(|| panic!("no target is named {name}")) = true;
    }
    assert!(known.values().all(|found| *found), "{known:?}");
}
