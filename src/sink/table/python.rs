//! Other readers and writers of a table, in Python, for tests.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "what fails is to panic")]

use std::path::Path;
use std::process::Command;

/// Runs `script` with `arguments`; what it printed. `None`: there is no Python to run it with.
///
/// # Panics
/// When the script fails.
pub fn run_python(script: &str, arguments: &[&Path]) -> Option<String> {
    let Some(python) = std::env::var_os("LAKEMARK_READERS_PYTHON") else {
        eprintln!("skipped: LAKEMARK_READERS_PYTHON is not set, so no other program reads or writes the table");
        return None;
    };
    // A thread that is still running at the end of the interpreter would end it as a failure (delta-io/delta-rs#2184).
    let script = format!("{script}\nimport os\nsys.stdout.flush()\nos._exit(0)\n");
    let output = Command::new(python).arg("-c").arg(&script).args(arguments).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{script}\n{stdout}\n{stderr}");
    Some(stdout.trim().to_owned())
}
