//! Delta and Iceberg tables as sources, made and changed by their own tools between runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use lakemark::run_python;
use rstest::rstest;
use serde_json::{Value, json};

use super::process::{Ended, Running};
use super::scene::{Ran, Scene};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Delta,
    Iceberg,
}
use Kind::{Delta, Iceberg};

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Delta => "delta",
            Iceberg => "iceberg",
        }
    }
}

/// A job over all rows of a table.
struct Over {
    scene: Scene,
    kind: Kind,
}

impl Over {
    /// A table that `made` makes: `create` or `plain`, and the rows of it.
    fn new(kind: Kind, made: &[&str]) -> Self {
        let mut scene = Scene::new();
        let table = scene.path("table");
        scene.set("source.url", format!("{:?}", table.to_string_lossy()));
        scene.set("source.format", format!("{:?}", kind.name()));
        scene.set("transform.sql", "\"SELECT * FROM docs\"");
        if kind == Iceberg {
            let uri = format!("sqlite:{}", scene.path("catalog.db").display());
            scene.set("source.catalog", format!("{{ type = \"sql\", uri = {uri:?}, table = \"lake.docs\" }}"));
        }
        let over = Self { scene, kind };
        over.table(made);
        over
    }

    fn path(&self) -> PathBuf {
        self.scene.path("table")
    }

    /// Lets the table's own tools do something.
    #[track_caller]
    fn table(&self, what: &[&str]) {
        let python = std::env::var("LAKEMARK_READERS_PYTHON").expect("LAKEMARK_READERS_PYTHON is not set");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/readers/source.py");
        let mut command = Command::new(python);
        command.arg("-B").arg(script).arg(self.kind.name()).arg(self.path()).args(what);
        let output = command.output().unwrap();
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert!(output.status.success(), "{what:?}: {}{}", said[0], said[1]);
    }

    /// The output is exactly the rows of these ranges.
    #[track_caller]
    fn has(&self, ranges: &[&str]) {
        let out = self.scene.out();
        let mut what = vec!["check", out.to_str().unwrap()];
        what.extend(ranges);
        self.table(&what);
    }

    #[track_caller]
    fn run(&self, args: &[&str]) -> Ran {
        self.scene.run(args)
    }

    fn ended(&self, verb: &str, args: &[&str]) -> Ended {
        Running::start(&mut self.scene.command(verb, args)).wait()
    }
}

#[rstest]
fn a_table_is_read_with_all_its_types_and_what_is_appended(#[values(Delta, Iceberg)] kind: Kind) {
    let over = Over::new(kind, &["create", "0", "24"]);
    let ran = over.run(&[]).done();
    assert_eq!((ran.files("new"), ran.count("rows/in"), ran.count("requests/source/head")), (6, 24, 0), "{ran}");
    over.has(&["0-24"]);
    over.run(&[]).nothing();
    over.table(&["append", "24", "26"]);
    let ran = over.run(&[]).done();
    assert_eq!((ran.files("done"), ran.files("new"), ran.count("rows/in")), (6, 2, 2), "{ran}");
    over.has(&["0-26"]);
    over.run(&[]).nothing();
    let told = over.ended("files", &[]);
    assert_eq!(told.json()["files"].as_array().unwrap().len(), 8, "{}", told.stdout);
    assert_eq!(over.scene.look("verify")["sound"], true);
    over.run(&["--verify"]).expect(0, "nothing");
}

#[rstest]
fn columns_are_in_the_order_of_the_table_and_filters_on_partitions_open_no_file(#[values(Delta, Iceberg)] kind: Kind) {
    let mut over = Over::new(kind, &["create", "0", "24"]);
    over.scene.set("transform.sql", "\"SELECT part, id FROM docs WHERE part = 'x/y' OR part IS NULL\"");
    let ran = over.run(&[]).done();
    assert_eq!((ran.files("excluded"), ran.count("rows/out")), (4, 8), "{ran}");
    over.run(&[]).nothing();
    over.scene.set("transform.sql", "\"SELECT * FROM docs\"");
    let plan = over.scene.plan(&[]);
    assert_eq!((plan.files("done"), plan.files("new")), (2, 4), "{plan}");
}

/// R89: a table that is compacted between two runs is not done again, and no row of it is lost.
#[rstest]
fn a_compaction_between_two_runs_changes_nothing(#[values(Delta, Iceberg)] kind: Kind) {
    let over = Over::new(kind, &["plain", "0", "5"]);
    for first in [5, 10, 15] {
        over.table(&["append", &first.to_string(), &(first + 5).to_string()]);
    }
    over.run(&["--set", "run.max_tasks=2"]).expect(3, "partial");
    over.table(&["compact"]);
    over.table(&["append", "20", "23"]);
    let ran = over.run(&[]).done();
    assert_eq!(
        (ran.count("tasks/sealed"), ran.count("rows/in")),
        (3, 13),
        "the two that are left, and the new one: {ran}"
    );
    over.has(&["0-23"]);
    over.run(&[]).nothing();
    over.table(&["compact"]);
    over.table(&["vacuum"]);
    let ran = over.run(&[]).done();
    assert_eq!((ran.count("tasks/sealed"), ran.files("done"), ran.files("new")), (0, 1, 0), "it is remembered: {ran}");
    over.run(&[]).nothing();
    over.has(&["0-23"]);
    let log = over.scene.look("log");
    assert!(log.to_string().contains("rewrote files with done rows"), "{log:#}");
}

#[rstest]
fn rows_that_only_vacuumed_files_had_apart_are_not_guessed_about(#[values(Delta, Iceberg)] kind: Kind) {
    let over = Over::new(kind, &["plain", "0", "5"]);
    over.table(&["append", "5", "10"]);
    over.run(&["--set", "run.max_tasks=1"]).expect(3, "partial");
    over.table(&["compact"]);
    over.table(&["vacuum"]);
    over.run(&[]).error(6, "CannotDecide", &["vacuumed", "lakemark bless JOB"]);
    assert_eq!(over.ended("plan", &[]).code(), 6);
    let told = over.ended("bless", &["--yes"]);
    assert_eq!(told.code(), 0, "{}", told.stderr);
    over.run(&[]).nothing();
}

/// R18: a table whose finished rows were changed is not done again without a word, and not left out without one.
#[rstest]
fn changed_rows_fall_under_the_policy(#[values(Delta, Iceberg)] kind: Kind) {
    let over = Over::new(kind, &["plain", "0", "10"]);
    over.run(&[]).done();
    over.table(&["delete", "2", "5"]);
    over.table(&["append", "10", "12"]);
    over.run(&[]).error(5, "Refused", &["removed or changed rows that are done", "--on-change ignore"]);
    let ran = over.run(&["--on-change", "ignore"]).done();
    assert_eq!((ran.files("replaced"), ran.files("new"), ran.count("rows/in")), (1, 1, 2), "{ran}");
    over.has(&["0-12"]);
    over.run(&["--on-change", "ignore"]).nothing();
    over.run(&["--on-change", "reprocess"]).done();
    over.has(&["0-12", "0-2", "5-10"]);
    over.run(&["--on-change", "reprocess"]).nothing();
    over.run(&["--on-change", "replace"]).error(2, "Unsupported", &["on_change", "is not taken out"]);
}

#[rstest]
fn another_table_at_the_same_place_is_refused(#[values(Delta, Iceberg)] kind: Kind) {
    let over = Over::new(kind, &["create", "0", "10"]);
    over.run(&[]).done();
    fs::remove_dir_all(over.path()).unwrap();
    let _ = fs::remove_file(over.scene.path("catalog.db"));
    let gone = over.run(&[]);
    assert!(matches!(gone.code, 1 | 2) && gone.report["error"]["kind"] == "Invalid", "{gone}");
    over.table(&["create", "0", "10"]);
    over.run(&[]).error(5, "Refused", &["is another one than before"]);
}

/// Nothing is lost or doubled by a driver that dies while others compact.
#[rstest]
fn crashes_and_compactions_together_lose_and_double_nothing(#[values(Delta, Iceberg)] kind: Kind) {
    let over = Over::new(kind, &["plain", "0", "4"]);
    let mut next = 4;
    for (step, nth) in [("seal.after", 1), ("fold.after_manifest", 1), ("seal.before", 2), ("intent.after_manifest", 1)]
    {
        for _ in 0..3 {
            over.table(&["append", &next.to_string(), &(next + 4).to_string()]);
            next += 4;
        }
        let ended = over.scene.start(&[], &[("LAKEMARK_KILL_AT", &format!("{step}:{nth}"))]).wait();
        assert!(ended.was_killed(), "{step}: {:?}", ended.steps);
        over.table(&["compact"]);
    }
    over.run(&[]).done();
    over.has(&[&format!("0-{next}")]);
    over.run(&[]).nothing();
}

#[rstest]
fn a_table_is_a_lookup_too(#[values(Delta, Iceberg)] kind: Kind) {
    let over = Over::new(kind, &["create", "0", "10"]);
    let lake = over.scene.path("ids");
    fs::create_dir_all(&lake).unwrap();
    fs::write(lake.join("ids.csv"), "id\n1\n5\n9\n40\n").unwrap();
    let job = fs::read_to_string(over.scene.job()).unwrap();
    let source = format!("[[source]]\nname = \"ids\"\nurl = {lake:?}\nformat = \"csv\"\n\n[transform]");
    let job = job.replace("name = \"docs\"", "name = \"docs\"\nrole = \"lookup\"").replace("[transform]", &source);
    let job = job.replace("SELECT * FROM docs", "SELECT docs.* FROM ids JOIN docs USING (id)");
    let path = over.scene.path("lookup.toml");
    fs::write(&path, job).unwrap();
    let mut command = super::process::command();
    let ended = Running::start(command.args(["run", "--json"]).arg(&path)).wait();
    assert_eq!(ended.code(), 0, "{}", ended.stderr);
    over.has(&["1-2", "5-6", "9-10"]);
}

/// Files that a filter on partitions leaves out are not asked for when others compact and vacuum.
#[rstest]
fn partitions_that_a_job_leaves_out_are_nothing_to_it(#[values(Delta, Iceberg)] kind: Kind) {
    let mut over = Over::new(kind, &["create", "0", "24"]);
    over.table(&["append", "24", "48"]);
    over.scene.set("transform.sql", "\"SELECT * FROM docs WHERE part = 'x/y'\"");
    over.run(&[]).done();
    over.table(&["compact"]);
    over.table(&["vacuum"]);
    over.run(&[]).done();
    over.run(&[]).nothing();
    over.table(&["append", "48", "54"]);
    let ran = over.run(&[]).done();
    assert_eq!((ran.count("rows/in"), ran.files("excluded")), (1, 10), "{ran}");
}

#[rstest]
fn a_file_that_the_table_has_and_the_storage_has_not_is_unusable(#[values(Delta, Iceberg)] kind: Kind) {
    let over = Over::new(kind, &["plain", "0", "5"]);
    over.table(&["append", "5", "10"]);
    let parquet = |(path, _): &(PathBuf, u64)| path.extension() == Some("parquet".as_ref());
    let (file, _) = super::output::files_below(&over.path()).into_iter().find(parquet).unwrap();
    let kept = fs::read(&file).unwrap();
    fs::remove_file(&file).unwrap();
    let ran = over.run(&[]).expect(3, "partial");
    assert!(ran.report["sources"][0]["unusable"][0]["why"].as_str().unwrap().contains("not in the storage"), "{ran}");
    fs::write(&file, kept).unwrap();
    over.run(&[]).done();
    over.has(&["0-10"]);
}

/// pyiceberg writes `user-id` as `user_x2Did`, which is known by its field id only.
#[test]
fn a_column_under_another_name_is_never_taken_for_nulls() {
    let over = Over::new(Iceberg, &["names", "user-id", "plain"]);
    let ran = over.run(&[]).expect(3, "partial");
    assert!(ran.report["sources"][0]["unusable"][0]["why"].as_str().unwrap().contains("`user-id`"), "{ran}");
    let over = Over::new(Iceberg, &["names", "user_id", "plain"]);
    over.run(&[]).done();
}

#[rstest]
fn the_folder_of_a_table_is_not_read_as_files(#[values(Delta, Iceberg)] kind: Kind) {
    let mut over = Over::new(kind, &["plain", "0", "5"]);
    over.scene.settings_without("source.catalog");
    over.scene.settings_without("source.format");
    let format = format!("format = \"{}\"", kind.name());
    over.run(&[]).error(5, "Refused", &["is the folder of a table", &format, "glob"]);
}

#[test]
fn a_table_that_a_catalog_of_another_name_has_is_not_taken_for_none() {
    let mut over = Over::new(Iceberg, &["plain", "0", "5"]);
    let uri = format!("sqlite:{}", over.scene.path("catalog.db").display());
    let catalog = format!("{{ type = \"sql\", uri = {uri:?}, table = \"lake.docs\", name = \"prod\" }}");
    over.scene.set("source.catalog", catalog);
    over.run(&[]).error(5, "Refused", &["`default` in the same database has", "name = \"default\""]);
}

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-r").args([from, to]).status().unwrap().success());
}

/// R89: numbers of versions are used again when a table is put back by its storage.
#[test]
fn a_table_that_was_put_back_by_its_storage_is_noticed_at_the_same_version_too() {
    let over = Over::new(Delta, &["plain", "0", "5"]);
    over.table(&["append", "5", "10"]);
    let kept = over.scene.path("kept");
    copy(&over.path(), &kept);
    over.table(&["append", "10", "15"]);
    over.run(&[]).done();
    fs::remove_dir_all(over.path()).unwrap();
    copy(&kept, &over.path());
    over.table(&["compact"]);
    over.run(&[]).error(6, "CannotDecide", &["version 2 is another one than before", "lakemark forget JOB"]);
}

#[test]
fn a_log_is_cleaned_up_after_the_run_that_saw_through_a_compaction() {
    let over = Over::new(Delta, &["plain", "0", "5"]);
    over.table(&["append", "5", "10"]);
    over.run(&["--set", "run.max_tasks=1"]).expect(3, "partial");
    over.table(&["compact"]);
    over.run(&[]).done();
    over.table(&["append", "10", "12"]);
    over.table(&["clean"]);
    let ran = over.run(&[]).done();
    assert_eq!(ran.count("rows/in"), 2, "{ran}");
    over.has(&["0-12"]);
}

#[test]
fn a_path_that_is_used_again_is_another_file() {
    let over = Over::new(Delta, &["plain", "0", "5"]);
    over.run(&[]).done();
    let mut add = added(&over);
    let remove = json!({ "path": add["path"], "deletionTimestamp": 1, "dataChange": true });
    let file = over.path().join(add["path"].as_str().unwrap());
    over.table(&["append", "5", "10"]);
    let newest = fs::read_to_string(over.path().join("_delta_log/00000000000000000001.json")).unwrap();
    let other = newest
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .find_map(|line| line["add"]["path"].as_str().map(str::to_owned));
    fs::copy(over.path().join(other.unwrap()), &file).unwrap();
    let size = fs::metadata(&file).unwrap().len();
    assert_ne!(add["size"].as_u64(), Some(size));
    add["size"] = size.into();
    entry(&over, 2, &[json!({ "remove": remove }), json!({ "add": add })]);
    over.run(&[]).error(5, "Refused", &["version 2"]);
}

fn entry(over: &Over, version: u64, lines: &[Value]) {
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    fs::write(over.path().join(format!("_delta_log/{version:020}.json")), lines).unwrap();
}

/// The action by which the first version added its one file.
fn added(over: &Over) -> Value {
    let text = fs::read_to_string(over.path().join("_delta_log/00000000000000000000.json")).unwrap();
    let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.find(|line| line["add"].is_object()).unwrap()["add"].clone()
}

/// A deletion vector of the rows 3, 4, 7, 11, 18 and 29, in the log itself.
fn vector() -> Value {
    let inline = "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L";
    json!({ "storageType": "i", "pathOrInlineDv": inline, "sizeInBytes": 44, "cardinality": 6 })
}

/// Version 1, by which rows of the one file of version 0 are deleted.
fn delete_by_vector(over: &Over) {
    let mut add = added(over);
    let remove = json!({
        "path": add["path"], "deletionTimestamp": 1, "dataChange": true, "extendedFileMetadata": true,
        "partitionValues": {}, "size": add["size"],
    });
    add["deletionVector"] = vector();
    add["dataChange"] = true.into();
    let protocol = json!({ "minReaderVersion": 3, "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"] });
    let info = json!({ "commitInfo": { "operation": "DELETE", "timestamp": 1 } });
    entry(over, 1, &[info, json!({ "protocol": protocol }), json!({ "remove": remove }), json!({ "add": add })]);
}

#[test]
fn rows_that_a_deletion_vector_deletes_are_not_read() {
    let over = Over::new(Delta, &["plain", "0", "40"]);
    delete_by_vector(&over);
    for rows in ["0", "7"] {
        let _ = fs::remove_dir_all(over.scene.out());
        let _ = fs::remove_dir_all(over.scene.path("out.lakemark"));
        let ran = over.run(&["--set", &format!("run.task_rows={rows}")]).done();
        assert_eq!((ran.count("rows/in"), ran.count("rows/out")), (34, 34), "{ran}");
        over.has(&["0-3", "5-7", "8-11", "12-18", "19-29", "30-40"]);
        over.run(&[]).nothing();
    }
}

#[test]
fn a_new_deletion_vector_is_a_change() {
    let over = Over::new(Delta, &["plain", "0", "40"]);
    over.run(&[]).done();
    delete_by_vector(&over);
    over.run(&[]).error(5, "Refused", &["version 1", "DELETE"]);
    over.run(&["--on-change", "ignore"]).done();
    over.has(&["0-40"]);
    let ran = over.run(&["--on-change", "reprocess"]).done();
    assert_eq!(ran.count("rows/in"), 34, "{ran}");
}

#[test]
fn instants_in_the_oldest_form_of_parquet_are_read_as_they_are() {
    let over = Over::new(Delta, &["plain", "0", "10"]);
    let add = added(&over);
    let file = over.path().join(add["path"].as_str().unwrap());
    let script = "import sys, pyarrow.parquet as pq; t = pq.read_table(sys.argv[1]); \
        pq.write_table(t, sys.argv[1], use_deprecated_int96_timestamps=True)";
    run_python(script, &[&file]).unwrap();
    let log = over.path().join("_delta_log/00000000000000000000.json");
    let size = fs::metadata(&file).unwrap().len();
    let text = fs::read_to_string(&log).unwrap();
    fs::write(&log, text.replace(&format!("\"size\":{}", add["size"]), &format!("\"size\":{size}"))).unwrap();
    over.run(&[]).done();
    over.has(&["0-10"]);
}

#[test]
fn a_table_that_cannot_be_read_exactly_is_refused_with_the_reason() {
    let over = Over::new(Delta, &["plain", "0", "10"]);
    let mut add = added(&over);
    add["path"] = "file:///elsewhere/x.parquet".into();
    entry(&over, 1, &[json!({ "add": add })]);
    over.run(&[]).error(5, "Unsupported", &["elsewhere", "only files below the table"]);
    let protocol = json!({ "minReaderVersion": 3, "minWriterVersion": 7,
        "readerFeatures": ["variantType"], "writerFeatures": ["variantType"] });
    entry(&over, 1, &[json!({ "protocol": protocol })]);
    over.run(&[]).error(5, "Unsupported", &["variantType"]);
    fs::write(over.path().join("_delta_log/00000000000000000001.json"), "{\"add\":").unwrap();
    over.run(&[]).error(1, "Corrupt", &["log of the table"]);
}

#[test]
fn a_file_that_is_not_what_the_log_says_is_unusable() {
    let over = Over::new(Delta, &["plain", "0", "20"]);
    over.table(&["append", "20", "24"]);
    let add = added(&over);
    let file = over.path().join(add["path"].as_str().unwrap());
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    let ran = over.run(&[]).expect(3, "partial");
    assert_eq!(ran.report["sources"][0]["unusable"].as_array().unwrap().len(), 1, "{ran}");
    fs::write(&file, bytes).unwrap();
    over.run(&[]).done();
    over.has(&["0-24"]);
}
