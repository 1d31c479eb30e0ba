//! What scripts see: one JSON document, exit codes, closed pipes.

use rstest::rstest;

use super::process::{Running, command, run};
use super::scene::Scene;

#[test]
fn every_verb_writes_one_json_document_also_on_errors() {
    let scene = Scene::small();
    for verb in ["status", "log"] {
        let ended = Running::start(&mut scene.command(verb, &[])).wait();
        assert_ne!(ended.code(), 0, "there is no store yet");
        assert!(ended.json()["error"]["message"].as_str().unwrap().contains("no store"), "{}", ended.stdout);
    }
    scene.plan(&[]).done();
    scene.run(&[]).done();
    let status = scene.look("status");
    assert_eq!(status["files"], 6);
    assert_eq!(status["commits"]["last"], 1);
    assert_eq!(status["holder"], serde_json::Value::Null, "{status:#}");
    let log = scene.look("log").to_string();
    assert!(
        ["open", "commit", "close", "seal"].iter().all(|what| log.contains(&format!("\"what\":\"{what}\""))),
        "{log}"
    );
    for (verb, code) in [("run", 2), ("plan", 2), ("status", 2), ("log", 2)] {
        let ended = Running::start(&mut scene.command(verb, &["--set", "run.nonsense=1"])).wait();
        assert_eq!(ended.code(), code, "{verb}: {}", ended.stderr);
        assert_eq!(ended.json()["error"]["kind"], "Invalid", "{verb}");
    }
    let missing = scene.path("none").display().to_string();
    for verb in ["run", "plan", "status", "log"] {
        let ended = Running::start(&mut scene.command(verb, &["--store", &missing])).wait();
        assert_ne!(ended.code(), 0, "{verb}");
        assert!(ended.json()["error"]["message"].is_string(), "{verb}");
    }
    assert!(!scene.path("none").exists(), "looking makes nothing");
}

#[test]
fn status_tells_about_a_path() {
    let scene = Scene::small();
    scene.run(&["--max-tasks", "5"]).expect(3, "partial");
    let status = |path: &str| {
        let status = Running::start(&mut scene.command("status", &[path])).wait().json();
        status["paths"][0].clone()
    };
    let known = status("big.parquet");
    assert_eq!((&known["known"], known["versions"].as_array().unwrap().len()), (&true.into(), 1), "{known:#}");
    let version = &known["versions"][0];
    assert_eq!((&version["state"], &version["row_groups"]), (&"partly done".into(), &8.into()), "{known:#}");
    assert!(version["mtime"].as_i64().is_some_and(|mtime| mtime > 1_600_000_000_000_000_000), "{known:#}");
    let parts = version["parts"].as_array().unwrap();
    assert!(parts.iter().all(|part| part["state"] == "committed" && part["epoch"] == 1 && part["commit"] == 1));
    assert!(parts.iter().all(|part| part["sealed_at"].as_str().is_some_and(|at| at.starts_with("20"))), "{known:#}");
    let outputs = parts.iter().flat_map(|part| part["outputs"].as_array().unwrap());
    assert!(outputs.clone().count() >= 1 && outputs.clone().all(|o| scene.out().join(o.as_str().unwrap()).exists()));
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let atoms: Vec<String> = parts.iter().map(|part| text(&part["atoms"])).collect();
    assert!(!atoms.is_empty() && !text(&version["left"]).is_empty(), "{known:#}");
    let absolute = scene.path("lake/big.parquet").display().to_string();
    assert_eq!(status(&absolute)["versions"], known["versions"]);
    assert_eq!(status("nowhere.parquet")["known"], false);
}

#[rstest]
#[case(&["plan"])]
#[case(&["plan", "--json"])]
#[case(&["status", "--json"])]
#[case(&["log"])]
#[case(&["run", "--json"])]
fn a_reader_that_closed_its_end_is_no_reason_to_panic(#[case] args: &[&str]) {
    let mut scene = Scene::new();
    scene.lake.put_singles("a file with a rather long name ", 60, 5);
    if !matches!(args[0], "plan" | "run") {
        scene.run(&[]).done();
    }
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let job = scene.job();
    let ended = command().args([args[0].as_ref(), job.as_os_str()]).args(&args[1..]).stdout(writer).output().unwrap();
    let stderr = String::from_utf8_lossy(&ended.stderr);
    assert!(!stderr.contains("panicked"), "{stderr}");
    assert_eq!(ended.status.code(), Some(0), "{:?} {stderr}", ended.status);
    if args[0] == "run" {
        scene.assert_exact();
        scene.run(&[]).nothing();
    }
}

#[test]
fn help_and_version_end_well_and_usage_errors_with_two() {
    assert_eq!(run(["--version"]).code(), 0);
    let help = run(["run", "--help"]);
    assert!(help.code() == 0 && help.stdout.contains("--takeover"), "{help:?}");
    for wrong in [&["rum"][..], &["run", "--nope"], &[], &["forget", "x"]] {
        let ended = run(wrong);
        assert!(ended.code() == 2 && !ended.stderr.is_empty(), "{wrong:?}: {ended:?}");
    }
}

#[test]
fn a_job_of_flags_alone_is_the_job_of_the_file() {
    let scene = Scene::small();
    let source = format!("docs={}", scene.path("lake").display());
    let sink = format!("parquet:{}", scene.out().display());
    let args = ["run", "--json", "--source", &source, "--sql", super::lake::SQL, "--sink", &sink];
    Scene::ran(&run(args)).done();
    scene.assert_exact_for_all();
    scene.run(&[]).nothing();
}

#[rstest]
#[case(&["run", "--json"])]
#[case(&["plan", "--json"])]
#[case(&["plan"])]
#[case(&["status", "--json"])]
fn a_result_that_cannot_be_written_is_an_error(#[case] args: &[&str]) {
    let scene = Scene::small();
    if args[0] == "status" {
        scene.run(&[]).done();
    }
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let job = scene.job();
    let ended = command().args([args[0].as_ref(), job.as_os_str()]).args(&args[1..]).stdout(full).output().unwrap();
    let stderr = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("cannot be written to stdout"), "{stderr}");
}

fn ended(scene: &Scene, verb: &str, args: &[&str]) -> super::process::Ended {
    Running::start(&mut scene.command(verb, args)).wait()
}

#[test]
fn files_are_listed_one_row_each() {
    let scene = Scene::small();
    scene.run(&["--max-tasks", "5"]).expect(3, "partial");
    let files = ended(&scene, "files", &[]).json();
    let [big] = &files["files"].as_array().unwrap()[..] else { panic!("{files:#}") };
    assert_eq!((&big["path"], &big["state"], &big["atoms"]), (&"big.parquet".into(), &"partly done".into(), &5.into()));
    assert_eq!((&big["left"], &big["committed"], &big["source"]), (&"5-7".into(), &true.into(), &"docs".into()));
    assert_eq!(ended(&scene, "files", &["--pending"]).json()["files"].as_array().unwrap().len(), 1);
    scene.run(&[]).done();
    assert_eq!(ended(&scene, "files", &[]).json()["files"].as_array().unwrap().len(), 6);
    assert!(ended(&scene, "files", &["--pending"]).json()["files"].as_array().unwrap().is_empty());
    let some = ended(&scene, "files", &["--glob", "day=1/*"]).json();
    assert_eq!(some["files"].as_array().unwrap().len(), 4, "{some:#}");
    let job = scene.job();
    let plain = |args: &[&str]| {
        let out = command().arg("files").arg(&job).args(args).output().unwrap();
        assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    let csv = plain(&["--as", "csv"]);
    assert_eq!((csv.lines().count(), csv.starts_with("source,path,size")), (7, true), "{csv}");
    assert!(plain(&[]).contains("| docs"), "a table");
    let parquet = scene.path("files.parquet");
    plain(&["--as", "parquet", "--out", parquet.to_str().unwrap()]);
    let file = std::fs::File::open(&parquet).unwrap();
    let reader = parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
    assert_eq!(reader.metadata().file_metadata().num_rows(), 6);
    for inside in [scene.store().join("manifests/00000000000000000001.json"), scene.out().join("f.csv")] {
        let before = std::fs::read(&inside).ok();
        let out = command().arg("files").arg(&job).args(["--as", "csv", "--out"]).arg(&inside).output().unwrap();
        assert_eq!(out.status.code(), Some(5), "{}", String::from_utf8_lossy(&out.stderr));
        assert_eq!(std::fs::read(&inside).ok(), before);
    }
    let wrong = command().arg("files").arg(&job).args(["--as", "parquet"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
}

#[test]
fn verify_finds_every_kind_of_damage_and_changes_nothing() {
    let scene = Scene::small();
    assert_eq!(ended(&scene, "verify", &[]).code(), 1, "there is no store");
    scene.run(&["--max-tasks", "5"]).expect(3, "partial");
    scene.crash_at("intent.after_manifest", 1);
    let sound = ended(&scene, "verify", &[]);
    assert_eq!((sound.code(), &sound.json()["sound"]), (0, &true.into()), "{}", sound.stderr);
    assert_eq!(sound.json()["destination"], "as the store says");
    let objects = super::output::files_below(&scene.store());
    for folder in ["manifests/", "segments/", "seals/", "commits/"] {
        let newest =
            objects.iter().map(|(path, _)| path).filter(|p| p.to_string_lossy().contains(folder)).max().unwrap();
        let bytes = std::fs::read(newest).unwrap();
        let mut flipped = bytes.clone();
        flipped[bytes.len() / 2] ^= 1;
        for damage in [&flipped[..], &bytes[..bytes.len() / 2], b""] {
            std::fs::write(newest, damage).unwrap();
            let found = ended(&scene, "verify", &[]);
            assert_eq!((found.code(), &found.json()["sound"]), (1, &false.into()), "{folder}: {}", found.stderr);
            let name = newest.file_name().unwrap().to_str().unwrap();
            assert!(found.json()["faults"].to_string().contains(name), "{folder}: {:#}", found.json());
        }
        std::fs::write(newest, bytes).unwrap();
        assert_eq!(ended(&scene, "verify", &[]).code(), 0, "{folder}");
    }
    scene.run(&[]).done();
    scene.assert_exact_for_all();
    let (victim, _) = super::output::files_below(&scene.out()).swap_remove(0);
    std::fs::remove_file(victim).unwrap();
    assert_eq!(ended(&scene, "verify", &[]).code(), 5, "the destination is not what the store says");
}
