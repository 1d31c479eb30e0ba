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
