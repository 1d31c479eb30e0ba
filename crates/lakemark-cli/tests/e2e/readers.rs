//! DuckDB, Polars and pyarrow, which know nothing of lakemark: `tests/readers/check.py` as a server.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{LazyLock, Mutex};

use lakemark::run_python;
use serde_json::{Value, json};

const UNSET: &str = "LAKEMARK_READERS_PYTHON is not set, so DuckDB, Polars and pyarrow cannot read the output. \
    Run `cargo xtask test`, or set it to a Python that has what tests/requirements.txt lists.";

struct Server {
    /// Ends when its stdin does, with this process.
    _process: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

static SERVER: LazyLock<Mutex<Server>> = LazyLock::new(|| {
    let python = std::env::var("LAKEMARK_READERS_PYTHON").expect(UNSET);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/readers/check.py");
    let mut process = Command::new(&python)
        .args(["-B".as_ref(), script.as_os_str(), "--serve".as_ref()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("LAKEMARK_READERS_PYTHON={python} cannot be started: {error}"));
    let (stdin, stdout) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
    Mutex::new(Server { _process: process, stdin, stdout })
});

/// Writes the Parquet file at `path` again, with pyarrow and one row in each row group.
#[track_caller]
pub(crate) fn regroup(path: &Path) {
    let script =
        "import sys, pyarrow.parquet as pq; pq.write_table(pq.read_table(sys.argv[1]), sys.argv[1], row_group_size=1)";
    run_python(script, &[path]).expect(UNSET);
}

/// The name of the database, beside the output, of the catalog that an Iceberg table is in.
pub(crate) const CATALOG: &str = "catalog.db";

/// What an Iceberg table consists of.
pub(crate) struct Iceberg {
    /// Its live files, with their sizes.
    pub(crate) files: Vec<(PathBuf, u64)>,
    pub(crate) snapshots: usize,
}

/// The table in the catalog beside `out`, as pyiceberg sees it; `None`: there is no catalog.
pub(crate) fn iceberg(out: &Path) -> Option<Iceberg> {
    let database = out.with_file_name(CATALOG);
    if !database.exists() {
        return None;
    }
    let answer = ask(&json!({ "iceberg": database }));
    let file = |file: &Value| (PathBuf::from(file[0].as_str().unwrap()), file[1].as_u64().unwrap());
    let files = answer["files"].as_array().unwrap_or_else(|| panic!("{answer}")).iter().map(file).collect();
    Some(Iceberg { files, snapshots: answer["snapshots"].as_u64().unwrap() as usize })
}

fn ask(request: &Value) -> Value {
    let mut server = SERVER.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    writeln!(server.stdin, "{request}").unwrap();
    let mut answer = String::new();
    server.stdout.read_line(&mut answer).unwrap();
    serde_json::from_str(&answer).unwrap_or_else(|_| panic!("check.py answered {answer:?}"))
}

/// What the readers must find.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Exactly the reference.
    #[default]
    All,
    /// A part of the reference.
    Part,
    /// Exactly the reference, whose columns are in part `key=value` folders.
    Partitioned,
}

/// Compares the plain directory `out` with the Parquet file `reference`, with all readers.
#[track_caller]
pub(crate) fn check(out: &Path, reference: &Path, wanted: Wanted) {
    assert!(std::env::var_os("LAKEMARK_READERS_PYTHON").is_some(), "{UNSET}");
    let (sub, partitioned) = (wanted == Wanted::Part, wanted == Wanted::Partitioned);
    let mut request = json!({ "out": out, "reference": reference, "sub": sub, "partitioned": partitioned });
    let database = out.with_file_name(CATALOG);
    let is_text = |path: &Path| ["csv", "json"].into_iter().find(|format| path.extension() == Some(format.as_ref()));
    let format = super::output::files_below(out).iter().find_map(|(path, _)| is_text(path));
    let is_table = if database.exists() {
        (request["table"], request["out"]) = ("iceberg".into(), database.to_str().into());
        true
    } else if out.join("_delta_log").exists() {
        request["table"] = "delta".into();
        true
    } else if let Some(format) = format {
        request["table"] = format.into();
        true
    } else {
        false
    };
    let answer = ask(&request);
    assert_eq!(answer["ok"], true, "readers disagree about {}: {}", out.display(), answer["why"]);
    let readers = if is_table { 2 } else { 4 };
    assert_eq!(answer["rows"].as_object().map(|rows| rows.len()), Some(readers), "not every reader read it: {answer}");
}
