//! One scenario's world: a lake, a job over it, its store and destination, all under one temporary folder.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use super::lake::{Lake, Multiset, SQL, write_reference};
use super::output::{OutputReader, difference};
use super::process::{Ended, Running, command};
use super::readers::{self, Wanted};

/// In memory where there is room: a killed process loses nothing there either, and syncing takes no time.
fn temporary() -> TempDir {
    let memory = Path::new("/dev/shm");
    let builder = tempfile::Builder::new().prefix("lakemark-e2e-").to_owned();
    let roomy = rustix::fs::statvfs(memory).is_ok_and(|fs| fs.f_bavail * fs.f_frsize >= 512 << 20);
    let made = if roomy { builder.tempdir_in(memory) } else { builder.tempdir() };
    made.or_else(|_| builder.tempdir()).unwrap()
}

pub(crate) struct Scene {
    root: TempDir,
    pub(crate) lake: Lake,
    /// Dotted keys of the job file and their values as TOML.
    settings: BTreeMap<&'static str, String>,
    reader: RefCell<OutputReader>,
}

/// How a `lakemark run` ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) report: Value,
    pub(crate) stderr: String,
    pub(crate) steps: Vec<String>,
}

impl Ran {
    #[track_caller]
    fn new(ended: &Ended) -> Self {
        let report = ended.json();
        assert_adds_up(&report);
        let ran = Self { code: ended.code(), report, stderr: ended.stderr.clone(), steps: ended.steps.clone() };
        assert!(!ran.stderr.contains("panicked at"), "{ran}");
        ran
    }

    /// A number of the report by its JSON pointer without the first slash.
    #[track_caller]
    pub(crate) fn count(&self, pointer: &str) -> u64 {
        let found = self.report.pointer(&format!("/{pointer}")).and_then(Value::as_u64);
        found.unwrap_or_else(|| panic!("no number at {pointer} in {:#}", self.report))
    }

    /// A number of the report of the source.
    #[track_caller]
    pub(crate) fn files(&self, what: &str) -> u64 {
        self.count(&format!("sources/0/{what}"))
    }

    pub(crate) fn outcome(&self) -> &str {
        self.report["outcome"].as_str().unwrap_or_default()
    }

    #[track_caller]
    pub(crate) fn expect(self, code: i32, outcome: &str) -> Self {
        assert_eq!((self.code, self.outcome()), (code, outcome), "{self}");
        self
    }

    #[track_caller]
    pub(crate) fn done(self) -> Self {
        self.expect(0, "done")
    }

    #[track_caller]
    pub(crate) fn nothing(self) -> Self {
        let ran = self.expect(0, "nothing");
        assert_eq!((ran.count("requests/store/put"), ran.count("requests/store/delete")), (0, 0), "{ran}");
        assert_eq!((ran.count("requests/source/get"), ran.count("requests/source/head")), (0, 0), "{ran}");
        ran
    }

    /// An error of `kind` that says what was found (each of `words`), where, what is safe and a way on.
    #[track_caller]
    pub(crate) fn error(self, code: i32, kind: &str, words: &[&str]) -> Self {
        assert_eq!((self.code, self.report["error"]["kind"].as_str()), (code, Some(kind)), "{self}");
        let message = self.report["error"]["message"].as_str().unwrap();
        assert!(self.stderr.contains(message), "stderr and the report differ: {self}");
        let missing: Vec<_> = words.iter().filter(|word| !message.contains(**word)).collect();
        assert!(missing.is_empty(), "the error does not say {missing:?}: {message}");
        self
    }

    #[track_caller]
    pub(crate) fn says(self, what: &[&str]) -> Self {
        let missing: Vec<_> = what.iter().filter(|word| !self.stderr.contains(**word)).collect();
        assert!(missing.is_empty(), "stderr does not say {missing:?}: {self}");
        self
    }
}

impl std::fmt::Display for Ran {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "exit code {}\n{:#}\n{}", self.code, self.report, self.stderr)
    }
}

/// `listed` is the sum of what became of the files, in every report.
#[track_caller]
fn assert_adds_up(report: &Value) {
    for source in report["sources"].as_array().into_iter().flatten() {
        let count = |key: &str| source[key].as_u64().unwrap_or_else(|| panic!("{key} in {source:#}"));
        let parts = ["done", "new", "replaced", "moved", "partly_done", "forced", "failed", "excluded", "stranded"];
        let sum = parts.into_iter().map(count).sum::<u64>() + source["unusable"].as_array().unwrap().len() as u64;
        assert_eq!(count("listed"), sum, "{source:#}");
    }
}

impl Scene {
    /// An empty lake and a job whose tasks are one row group or one file each.
    pub(crate) fn new() -> Self {
        Self::seeded(1)
    }

    pub(crate) fn seeded(seed: u64) -> Self {
        let root = temporary();
        let lake = Lake::new(root.path().join("lake"), seed);
        let url = |name: &str| format!("{:?}", root.path().join(name));
        let settings = BTreeMap::from([
            ("source.name", "\"docs\"".to_owned()),
            ("source.url", url("lake")),
            ("transform.sql", format!("{SQL:?}")),
            ("sink.kind", "\"parquet\"".to_owned()),
            ("sink.url", url("out")),
            ("sink.compression", "\"none\"".to_owned()),
            ("run.task_bytes", "\"1B\"".to_owned()),
            ("run.concurrency", "2".to_owned()),
        ]);
        Self { root, lake, settings, reader: RefCell::default() }
    }

    /// With a lake of six files and 13 tasks, of which eight are row groups of one file.
    pub(crate) fn small() -> Self {
        let mut scene = Self::new();
        scene.lake.put_singles("day=1/a", 4, 40);
        let groups = scene.lake.groups(8, 2, 40);
        scene.lake.put("big.parquet", groups);
        let groups = scene.lake.groups(1, 3, 10);
        scene.lake.put("day=2/odd name %20[1].parquet", groups);
        scene
    }

    /// Sets a key of the job; `value` is TOML.
    pub(crate) fn set(&mut self, key: &'static str, value: impl Into<String>) -> &mut Self {
        self.settings.insert(key, value.into());
        self
    }

    /// Leaves a key of the job out.
    pub(crate) fn settings_without(&mut self, key: &str) {
        self.settings.remove(key);
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub(crate) fn out(&self) -> PathBuf {
        self.path("out")
    }

    /// The default place of the store.
    pub(crate) fn store(&self) -> PathBuf {
        self.path("out.lakemark/store")
    }

    /// Writes the job file.
    pub(crate) fn job(&self) -> PathBuf {
        let mut text = String::new();
        for (header, section) in
            [("", ""), ("[[source]]", "source."), ("[transform]", "transform."), ("[sink]", "sink."), ("[run]", "run.")]
        {
            text.push_str(&format!("{header}\n"));
            for (key, value) in &self.settings {
                let key =
                    if section.is_empty() { (!key.contains('.')).then_some(*key) } else { key.strip_prefix(section) };
                if let Some(key) = key {
                    text.push_str(&format!("{key} = {value}\n"));
                }
            }
        }
        let path = self.path("job.toml");
        fs::write(&path, text).unwrap();
        path
    }

    /// A command of `verb` over the job.
    pub(crate) fn command(&self, verb: &str, args: &[&str]) -> Command {
        let mut command = command();
        command.arg(verb).arg(self.job()).arg("--json").args(args).current_dir(self.root.path());
        command
    }

    pub(crate) fn start(&self, args: &[&str], env: &[(&str, &str)]) -> Running {
        Running::start(self.command("run", args).envs(env.iter().copied()))
    }

    #[track_caller]
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        Ran::new(&self.start(args, &[]).wait())
    }

    #[track_caller]
    pub(crate) fn plan(&self, args: &[&str]) -> Ran {
        Ran::new(&Running::start(&mut self.command("plan", args)).wait())
    }

    #[track_caller]
    pub(crate) fn ran(ended: &Ended) -> Ran {
        Ran::new(ended)
    }

    /// The report of `status` or `log`.
    #[track_caller]
    pub(crate) fn look(&self, verb: &str) -> Value {
        let ended = Running::start(&mut self.command(verb, &[])).wait();
        assert_eq!(ended.code(), 0, "{verb}: {}", ended.stderr);
        ended.json()
    }

    /// Runs with SIGKILL at a step. Panics if the step was not reached.
    #[track_caller]
    pub(crate) fn crash_at(&self, step: &str, nth: usize) -> Ended {
        let ended = self.start(&[], &[("LAKEMARK_KILL_AT", &format!("{step}:{nth}"))]).wait();
        assert!(ended.was_killed(), "{step} was not reached {nth} times: {:?}\n{}", ended.steps, ended.stderr);
        // Tasks run side by side: another one may have said the step just before the process was gone.
        assert!(ended.steps.iter().filter(|s| *s == step).count() >= nth, "{step}: {:?}", ended.steps);
        ended
    }

    /// The rows that are committed, read by the tests' own reader.
    #[track_caller]
    pub(crate) fn committed(&self) -> Multiset {
        self.reader.borrow_mut().read(&self.out())
    }

    /// The output is a part of the reference, by the tests' own reader.
    #[track_caller]
    pub(crate) fn assert_part(&self) {
        if let Some(wrong) = difference(&self.committed(), &self.lake.expected(), false) {
            panic!("the output is no part of the reference: {wrong}");
        }
    }

    /// The output is the reference, by the tests' own reader.
    #[track_caller]
    pub(crate) fn assert_exact(&self) {
        self.assert_is(&self.lake.expected());
    }

    #[track_caller]
    pub(crate) fn assert_is(&self, expected: &Multiset) {
        if let Some(wrong) = difference(&self.committed(), expected, true) {
            panic!("the output is not the reference: {wrong}");
        }
    }

    /// The output is the reference, by the tests' own reader and by DuckDB, Polars and pyarrow.
    #[track_caller]
    pub(crate) fn assert_exact_for_all(&self) {
        self.assert_exact();
        self.readers(&self.lake.expected(), Wanted::All);
    }

    #[track_caller]
    pub(crate) fn readers(&self, rows: &Multiset, wanted: Wanted) {
        let reference =
            tempfile::Builder::new().prefix("reference-").suffix(".parquet").tempfile_in(&self.root).unwrap();
        write_reference(reference.path(), rows);
        readers::check(&self.out(), reference.path(), wanted);
    }
}
