//! What people read (stderr, or stdout where it is the result), and JSON for scripts.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use lakemark::SourceReport;
use lakemark_datafusion::{Outcome, Plan, RunReport};
use serde::Serialize;

use crate::args::OutputArgs;
use crate::colour;

/// Set when the result could not be written.
static LOST: AtomicBool = AtomicBool::new(false);

/// Whether some of the result did not get to stdout, by other than the reader's choice.
pub(crate) fn lost() -> bool {
    LOST.load(Ordering::Relaxed)
}

/// Prints one JSON document on stdout.
pub(crate) fn json(value: &impl Serialize) {
    match serde_json::to_string_pretty(value) {
        Ok(text) => line(&text),
        Err(error) => lose(&error),
    }
}

/// Prints on stdout; a closed pipe is the reader's choice.
pub(crate) fn line(text: &str) {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => lose(&error),
        _ => {}
    }
}

fn lose(error: &dyn std::fmt::Display) {
    if !LOST.swap(true, Ordering::Relaxed) {
        let _ = writeln!(std::io::stderr().lock(), "error: the result cannot be written to stdout: {error}");
    }
}

pub(crate) fn error(error: &lakemark::Error, output: &OutputArgs) {
    let (red, plain) = if colour(output, &std::io::stderr()) { ("\x1b[1;31m", "\x1b[0m") } else { ("", "") };
    let _ = writeln!(std::io::stderr().lock(), "{red}error{plain}: {error}");
}

pub(crate) fn run(report: &RunReport, output: &OutputArgs) {
    if output.quiet || report.error.is_some() && report.sources.is_empty() {
        return;
    }
    let mut text = String::new();
    for source in &report.sources {
        text.push_str(&source_line(source));
        text.push('\n');
        for unusable in &source.unusable {
            text.push_str(&format!("  unusable: {}: {}\n", unusable.path, unusable.why));
        }
        for warning in &source.warnings {
            text.push_str(&format!("  warning: {warning}\n"));
        }
    }
    for commit in &report.commits {
        let left = match commit.taken_out {
            0 => String::new(),
            n => format!("; {n} files of old output left"),
        };
        text.push_str(&format!("commit {}: {} files, {} rows{left}\n", commit.n, commit.files, commit.rows));
    }
    text.push_str(&outcome_line(report));
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

fn outcome_line(report: &RunReport) -> String {
    let seconds =
        report.seconds.list + report.seconds.open + report.seconds.plan + report.seconds.run + report.seconds.commit;
    let tasks = format!("{} of {} tasks sealed", report.tasks.sealed, report.tasks.planned);
    let rows = format!("{} rows in, {} rows out", report.rows.rows_in, report.rows.out);
    let unusable: usize = report.sources.iter().map(|source| source.unusable.len()).sum();
    let moved: u64 = report.sources.iter().map(|source| source.moved).sum();
    match report.outcome {
        Outcome::Nothing => format!("nothing to do ({seconds:.2} s)"),
        Outcome::Done if report.tasks.planned == 0 && moved > 0 => {
            format!("done: no task was left; {moved} moved files keep their finished work ({seconds:.2} s)")
        }
        Outcome::Done if report.tasks.planned == 0 => {
            format!("done: no task was left; what else was to be recorded or committed is ({seconds:.2} s)")
        }
        Outcome::Done => format!("done: {tasks}, {rows} ({seconds:.2} s)"),
        // Unusable files do not mend by themselves; tasks that were not run do.
        Outcome::Partial if report.tasks.sealed == report.tasks.planned && unusable > 0 => {
            format!(
                "partial: {tasks}, {rows} ({seconds:.2} s); {unusable} unusable files are left out until they are mended"
            )
        }
        Outcome::Partial => format!("partial: {tasks}, {rows} ({seconds:.2} s); run again for the rest"),
        Outcome::Failed
            if report.tasks.planned > 0 && report.tasks.sealed == report.tasks.planned && report.commits.is_empty() =>
        {
            format!("failed: {tasks}, but not committed ({seconds:.2} s); the next run commits them")
        }
        Outcome::Failed => format!("failed: {tasks}, {rows} ({seconds:.2} s)"),
        Outcome::Busy => "busy: another run holds the store".into(),
        Outcome::Fenced => format!("fenced: another run took over; {tasks}"),
        Outcome::Refused => "refused: nothing was run".into(),
        Outcome::CannotDecide => "cannot decide: see the error".into(),
    }
}

fn source_line(source: &SourceReport) -> String {
    let done = if source.verified { "done, verified" } else { "done (not verified)" };
    let mut parts = vec![format!("{} {done}", source.done)];
    let mut add = |n: u64, what: &str| {
        if n > 0 {
            parts.push(format!("{n} {what}"));
        }
    };
    add(source.new, "new");
    add(source.replaced, "replaced");
    add(source.moved, "moved");
    add(source.partly_done, "partly done");
    add(source.forced, "forced");
    add(source.failed, "failed");
    add(source.excluded, "excluded by partition");
    add(source.stranded, "stranded");
    add(source.unusable.len() as u64, "unusable");
    let mut beside = Vec::new();
    if source.hidden > 0 {
        beside.push(format!("{} hidden: names that begin with `_` or `.` are ignored", source.hidden));
    }
    if source.vanished > 0 {
        beside.push(format!("{} vanished", source.vanished));
    }
    let beside = if beside.is_empty() { String::new() } else { format!(" ({})", beside.join("; ")) };
    let Some(keys) = &source.keys else {
        return format!("{}: {} files listed: {}{beside}", source.name, source.listed, parts.join(", "));
    };
    let mut parts = vec![format!("{} keys done before", keys.keys)];
    if keys.read == 0 {
        parts.push("what is new is known when its rows are read".to_owned());
    }
    let mut add = |n: u64, what: &str| {
        if n > 0 {
            parts.push(format!("{n} {what}"));
        }
    };
    add(keys.read, "rows read");
    add(keys.done, "done");
    add(keys.new, "new");
    add(keys.repeated, "with a key that came before");
    add(source.unusable.len() as u64, "unusable files");
    format!("{}: {}{beside}", source.name, parts.join(", "))
}

/// The most files that a plan shows by name.
const SHOWN: usize = 50;

pub(crate) fn plan(plan: &Plan) {
    for source in &plan.report.sources {
        line(&source_line(source));
        for unusable in &source.unusable {
            line(&format!("  {:<12} {}: {}", "unusable", unusable.path, unusable.why));
        }
        for warning in &source.warnings {
            line(&format!("  {:<12} {warning}", "warning"));
        }
    }
    for file in plan.files.iter().take(SHOWN) {
        let left = match (&file.left, &file.group_rows) {
            (lakemark::Coverage::Whole, _) => String::new(),
            (left, groups) => {
                format!("  {} of {} row groups left", left.touched_atoms(u64::MAX), groups.as_ref().map_or(0, Vec::len))
            }
        };
        line(&format!("  {:<12} {} ({} bytes){left}", file.reason.as_str(), file.file.path, file.file.size));
    }
    if plan.files.len() > SHOWN {
        line(&format!("  ... and {} more", plan.files.len() - SHOWN));
    }
    line(&format!("{} tasks planned", plan.report.tasks.planned));
    if plan.report.tasks.planned == 0 && plan.report.outcome == Outcome::Done {
        line("the next run finishes and commits what earlier runs had begun");
    }
}
