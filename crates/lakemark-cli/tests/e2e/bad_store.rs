//! Stores and destinations that are damaged, foreign, or at the wrong place: a clear error, and nothing is lost.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rstest::rstest;

use super::output::files_below;
use super::scene::Scene;

const ALL: [&str; 3] = ["  at: ", "  safe: ", "  way on: "];

/// The only file below `folder` of the store that is last by name.
fn last_object(scene: &Scene, folder: &str) -> PathBuf {
    files_below(&scene.store().join(folder)).pop().expect("there is one").0
}

/// Flips one bit in the middle, or cuts the file in half.
fn damage(path: &Path, cut: bool) -> Vec<u8> {
    let good = fs::read(path).unwrap();
    let mut bad = good.clone();
    let middle = bad.len() / 2;
    if cut {
        bad.truncate(middle)
    } else {
        bad[middle] ^= 1
    }
    fs::write(path, &bad).unwrap();
    good
}

fn name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

#[rstest]
fn a_damaged_object_of_the_chain_stops_everything(
    #[values("manifests", "segments")] folder: &str,
    #[values(true, false)] cut: bool,
) {
    let mut scene = Scene::small();
    scene.run(&[]).done();
    scene.lake.put_singles("new", 2, 20);
    let object = last_object(&scene, folder);
    let good = damage(&object, cut);
    let words = [&ALL[..], &[name(&object)]].concat();
    scene.run(&[]).error(1, "Corrupt", &words);
    scene.plan(&[]).error(1, "Corrupt", &words);
    assert!(files_below(&scene.out()).iter().all(|(path, _)| path.exists()));
    fs::write(&object, good).unwrap();
    scene.run(&[]).done();
    scene.assert_exact_for_all();
}

#[rstest]
fn a_missing_object_of_the_chain_stops_everything(#[values("segments", "manifests")] folder: &str) {
    let mut scene = Scene::small();
    scene.run(&[]).done();
    scene.lake.put_singles("new", 2, 20);
    let aside = scene.path("aside");
    let object = if folder == "manifests" { scene.store().join(folder) } else { last_object(&scene, folder) };
    fs::rename(&object, &aside).unwrap();
    scene.run(&[]).error(1, "Corrupt", &ALL);
    fs::rename(&aside, &object).unwrap();
    scene.run(&[]).done();
    scene.assert_exact_for_all();
}

#[rstest]
fn a_damaged_seal_is_named_and_can_be_deleted(#[values(true, false)] cut: bool) {
    let scene = Scene::small();
    scene.crash_at("seal.after", 4);
    let seal = last_object(&scene, "epochs/0000000001/seals");
    damage(&seal, cut);
    let words = [&ALL[..], &[name(&seal), "delete this seal"]].concat();
    scene.run(&[]).error(1, "Corrupt", &words);
    scene.assert_part();
    fs::remove_file(&seal).unwrap();
    scene.run(&[]).done();
    scene.assert_exact_for_all();
    scene.run(&[]).nothing();
}

#[test]
fn a_damaged_commit_object_of_an_open_intent_stops_the_commit() {
    let scene = Scene::small();
    scene.crash_at("rename.after", 2);
    let object = last_object(&scene, "commits");
    let good = damage(&object, false);
    scene.run(&[]).error(1, "Corrupt", &[&ALL[..], &[name(&object)]].concat());
    scene.assert_part();
    fs::write(&object, good).unwrap();
    scene.run(&[]).done();
    scene.assert_exact_for_all();
}

#[test]
fn a_newer_format_is_refused() {
    let mut scene = Scene::small();
    scene.run(&[]).done();
    scene.lake.put_singles("new", 1, 20);
    let manifest = last_object(&scene, "manifests");
    let good = fs::read_to_string(&manifest).unwrap();
    let newer = good.replace("\"format\":1", "\"format\":99");
    assert_ne!(newer, good);
    fs::write(&manifest, newer).unwrap();
    scene.run(&[]).error(1, "Incompatible", &[&ALL[..], &["format 99", name(&manifest)]].concat());
    fs::write(&manifest, good).unwrap();
    scene.run(&[]).done();
    scene.assert_exact_for_all();
}

#[test]
fn a_store_that_is_a_file_is_an_error_not_a_new_store() {
    let mut scene = Scene::small();
    fs::write(scene.path("file"), "mine").unwrap();
    let store = format!("{:?}", scene.path("file"));
    scene.set("store", store);
    let ran = scene.run(&[]);
    assert!(matches!(ran.code, 1 | 5), "{ran}");
    assert_eq!(ran.outcome() == "refused", ran.code == 5);
    let message = ran.report["error"]["message"].as_str().unwrap();
    assert!(message.contains("file") && message.contains("not a directory"), "{message}");
    assert_eq!(fs::read_to_string(scene.path("file")).unwrap(), "mine");
    assert!(!scene.out().exists());
    scene.plan(&[]);
}

#[test]
fn a_store_that_lost_its_objects_is_not_taken_for_new() {
    let scene = Scene::small();
    scene.run(&[]).done();
    fs::rename(scene.store(), scene.path("aside")).unwrap();
    scene.run(&[]).error(5, "Refused", &ALL);
    scene.assert_exact();
    fs::rename(scene.path("aside"), scene.store()).unwrap();
    scene.run(&[]).nothing();
}

#[rstest]
#[case::store_in_source("store", "lake/store")]
#[case::store_is_source("store", "lake")]
#[case::sink_in_source("sink.url", "lake/out")]
#[case::sink_is_source("sink.url", "lake")]
#[case::source_in_sink("sink.url", ".")]
#[case::store_in_sink("store", "out/store")]
#[case::sink_in_store("store", ".")]
fn places_that_lie_in_one_another_are_refused(#[case] key: &'static str, #[case] place: &str) {
    let mut scene = Scene::small();
    let url = format!("{:?}", scene.path(place));
    scene.set(key, url);
    if key == "sink.url" {
        // Not beside the sink, which may be the lake.
        let store = format!("{:?}", scene.path("store"));
        scene.set("store", store);
    }
    let before = files_below(&scene.path("lake"));
    scene.run(&[]).error(5, "Refused", &["lie one in the other", "  safe: ", "  way on: "]);
    scene.plan(&[]).error(5, "Refused", &["lie one in the other"]);
    assert_eq!(files_below(&scene.path("lake")), before);
    assert!(!scene.out().exists() && !scene.path("store").exists());
}

/// As above through a symbolic link.
#[test]
fn a_sink_that_is_a_link_into_the_source_is_refused() {
    let scene = Scene::small();
    fs::create_dir(scene.path("lake/inner")).unwrap();
    std::os::unix::fs::symlink(scene.path("lake/inner"), scene.out()).unwrap();
    scene.run(&[]).error(5, "Refused", &["lie one in the other"]);
    assert_eq!(fs::read_dir(scene.path("lake/inner")).unwrap().count(), 0);
}

#[test]
fn a_destination_with_files_of_others_is_refused_and_left_alone() {
    let scene = Scene::small();
    fs::create_dir(scene.out()).unwrap();
    fs::write(scene.out().join("theirs.parquet"), "theirs").unwrap();
    scene.run(&[]).error(5, "Refused", &[&ALL[..], &["theirs.parquet", "not empty"]].concat());
    assert_eq!(files_below(&scene.out()), [(scene.out().join("theirs.parquet"), 6)]);
    assert_eq!(fs::read_to_string(scene.out().join("theirs.parquet")).unwrap(), "theirs");
    assert!(!scene.store().exists());
    fs::remove_file(scene.out().join("theirs.parquet")).unwrap();
    scene.run(&[]).done();
    scene.assert_exact_for_all();
}

#[test]
fn a_destination_of_another_store_is_refused() {
    let scene = Scene::small();
    scene.run(&[]).done();
    let other = scene.path("other store");
    scene.run(&["--store", &other.display().to_string()]).error(
        5,
        "Refused",
        &[&ALL[..], &["belongs to store"]].concat(),
    );
    assert!(!other.exists());
    scene.run(&[]).nothing();
    // And the reverse: this store fills no second destination.
    let elsewhere = format!("parquet:{}", scene.path("elsewhere").display());
    let store = scene.store().display().to_string();
    scene.run(&["--sink", &elsewhere, "--store", &store]).error(5, "Refused", &["elsewhere", "  safe: ", "  way on: "]);
    assert!(!scene.path("elsewhere").exists());
    scene.assert_exact();
}

#[test]
fn committed_output_that_was_deleted_by_hand_is_noticed() {
    let mut scene = Scene::small();
    scene.run(&[]).done();
    let (victim, _) = files_below(&scene.out()).swap_remove(3);
    let aside = scene.path("aside");
    fs::rename(&victim, &aside).unwrap();
    scene.run(&[]).error(5, "Refused", &[&ALL[..], &["deleted or moved by hand"]].concat());
    scene.lake.put_singles("new", 1, 20);
    scene.run(&[]).error(5, "Refused", &["1 of the"]);
    fs::rename(&aside, &victim).unwrap();
    scene.run(&[]).done();
    scene.assert_exact_for_all();
}

#[test]
fn files_of_others_in_the_destination_are_told() {
    let scene = Scene::small();
    scene.run(&[]).done();
    let (file, _) = files_below(&scene.out()).swap_remove(0);
    fs::copy(&file, scene.out().join("copy.parquet")).unwrap();
    scene.run(&[]).nothing().says(&["not of this store", "copy.parquet"]);
}

#[test]
fn a_destination_that_lost_its_binding_is_refused() {
    let scene = Scene::small();
    scene.run(&[]).done();
    let binding = scene.path("out.lakemark/binding.json");
    fs::rename(&binding, scene.path("aside")).unwrap();
    scene.run(&[]).error(5, "Refused", &[&ALL[..], &["binding"]].concat());
    fs::rename(scene.path("aside"), &binding).unwrap();
    scene.run(&[]).nothing();
}

/// R63: a restored copy knows less than its destination holds; to go on from it would do work twice.
#[test]
fn a_store_that_is_older_than_its_destination_is_refused() {
    let mut scene = Scene::small();
    scene.run(&[]).done();
    let (store, older, newer) = (scene.store(), scene.path("older"), scene.path("newer"));
    assert!(Command::new("cp").arg("-a").args([&store, &older]).status().unwrap().success());
    scene.lake.put_singles("new", 1, 20);
    scene.run(&[]).done();
    fs::rename(&store, &newer).unwrap();
    fs::rename(&older, &store).unwrap();
    scene.run(&[]).error(5, "Refused", &[&ALL[..], &["older than its destination"]].concat());
    fs::remove_dir_all(&store).unwrap();
    fs::rename(&newer, &store).unwrap();
    scene.run(&[]).nothing();
    scene.assert_exact_for_all();
}

/// Staged output that vanished between two runs: its work is done again, and only that.
#[test]
fn staged_output_that_was_deleted_by_hand_is_made_again() {
    let scene = Scene::small();
    scene.crash_at("seal.after", 6);
    let staged = files_below(&scene.path("out.lakemark/staged"));
    fs::remove_file(&staged[0].0).unwrap();
    scene.run(&[]).done();
    scene.assert_exact_for_all();
    scene.run(&[]).nothing();
}

/// As above after the intent: the files that are gone are withdrawn from the commit.
#[test]
fn output_that_vanished_within_a_commit_is_made_again() {
    let scene = Scene::small();
    scene.crash_at("rename.after", 2);
    let staged = files_below(&scene.path("out.lakemark/staged"));
    fs::remove_file(&staged[0].0).unwrap();
    let ran = scene.run(&[]).done();
    assert_eq!((ran.count("commits/0/files"), ran.count("tasks/planned")), (staged.len() as u64 + 1, 1), "{ran}");
    scene.assert_exact_for_all();
    scene.run(&[]).nothing();
}

#[test]
fn foreign_objects_in_the_store_are_ignored_and_listed() {
    let mut scene = Scene::small();
    scene.run(&[]).done();
    fs::write(scene.store().join("notes.txt"), "mine").unwrap();
    fs::write(scene.store().join("manifests/42.json"), "mine").unwrap();
    scene.lake.put_singles("new", 1, 20);
    scene.run(&[]).done();
    let unknown = scene.look("status")["unknown_objects"].to_string();
    assert!(unknown.contains("notes.txt") && unknown.contains("manifests/42.json"), "{unknown}");
    assert_eq!(fs::read_to_string(scene.store().join("notes.txt")).unwrap(), "mine");
    scene.assert_exact_for_all();
}
