//! Verbs that change a store: each says what it will do, asks, and does it under an epoch of its own.

mod bless;
mod decide;
mod forget;
mod gc;
mod rebase;
mod repair;

use std::collections::{BTreeMap, HashSet};
use std::io::{BufRead, IsTerminal, Write};
use std::sync::Arc;

use lakemark::store::Manifest;
use lakemark::{
    Error, FileVersion, Lake, Lease, ObjectCheckpointStore, OutputSink, Pattern, Result, Run, StorageOptions, Wait,
};
use serde::Serialize;

use crate::args::{ChangeArgs, OutputArgs};
use crate::config::JobConfig;
use crate::{Failure, job, render};

pub(crate) use bless::bless;
pub(crate) use decide::{Answer, decide};
pub(crate) use forget::forget;
pub(crate) use gc::gc;
pub(crate) use rebase::rebase;
pub(crate) use repair::repair;

/// The verb's result for scripts: what it was to do, and whether it did.
#[derive(Serialize)]
struct Told<'a, T> {
    store: String,
    verb: &'static str,
    /// Whether the store was changed.
    done: bool,
    #[serde(flatten)]
    what: &'a T,
}

/// Prints the result for scripts.
fn tell<T: Serialize>(verb: &'static str, store: &ObjectCheckpointStore, output: &OutputArgs, done: bool, what: &T) {
    if output.json {
        render::json(&Told { store: store.root().to_string(), verb, done, what });
    }
}

/// Whether to go on after `shown`, what would be done, was said: asked of the person at the terminal, unless told not to.
///
/// # Errors
/// [`Refused`](lakemark::ErrorKind::Refused) when there is nobody to ask.
fn confirmed(change: &ChangeArgs, output: &OutputArgs, shown: &[String]) -> Result<bool> {
    let mut err = std::io::stderr().lock();
    if !output.quiet {
        for line in shown {
            let _ = writeln!(err, "{line}");
        }
    }
    if change.dry_run || change.yes {
        return Ok(!change.dry_run);
    }
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err(Error::refused("this changes the store, and nobody was asked")
            .safe("nothing was changed")
            .way("run again with --yes, to do what was said above")
            .way("run again with --dry-run, only to see it"));
    }
    let _ = write!(err, "go on? [y/N] ");
    let _ = err.flush();
    let mut answer = String::new();
    let _ = stdin.lock().read_line(&mut answer);
    let yes = matches!(answer.trim(), "y" | "Y" | "yes");
    if !yes {
        let _ = writeln!(err, "nothing was changed");
    }
    Ok(yes)
}

/// Which of `undone` the sources do not have any more as they were: their rows cannot be done again. Each source is listed
/// once, where the job says, else where the store does.
async fn without_source(
    config: &JobConfig,
    manifest: &Manifest,
    undone: impl Iterator<Item = (String, FileVersion)>,
) -> Result<HashSet<(String, FileVersion)>> {
    let mut by_source: BTreeMap<String, Vec<FileVersion>> = BTreeMap::new();
    for (source, file) in undone {
        by_source.entry(source).or_default().push(file);
    }
    let mut gone = HashSet::new();
    for (name, files) in by_source {
        let recorded = manifest.sources.get(&name).map(|settings| settings.format.as_str());
        if recorded.is_some_and(|format| [lakemark_delta::KIND, lakemark_iceberg::KIND].contains(&format)) {
            // One that has left its table is done again from itself, or from what it was compacted into.
            continue;
        }
        let listing = match config.tracked().find(|source| source.name == name) {
            Some(source) => {
                let (lake, listing) = job::look(source).await?;
                let recorded = manifest.sources.get(&name).map(|settings| &settings.root);
                if recorded.is_some_and(|recorded| recorded != lake.root()) {
                    // A copy of the files tells nothing of those that the store means.
                    let what = format!("source `{name}` is at {} in the job, and elsewhere in the store", lake.root());
                    return Err(Error::refused(what)
                        .at(recorded.map(ToString::to_string).unwrap_or_default())
                        .safe("nothing was changed")
                        .way("give the job the root that the store has")
                        .way("if the files were moved: lakemark rebase JOB"));
                }
                listing
            }
            None => {
                let Some(settings) = manifest.sources.get(&name) else { continue };
                let listing =
                    async { Lake::connect(&settings.root.to_string(), &StorageOptions::default()).await?.list().await };
                listing.await.map_err(|e: Error| e.way("give the job file: it says how its sources are reached"))?
            }
        };
        let is_there = |file: &FileVersion| {
            let at = listing.files.binary_search_by(|listed| listed.path.cmp(&file.path));
            at.is_ok_and(|at| listing.files[at].is_same(file))
        };
        let lost = files.into_iter().filter(|file| !is_there(file));
        gone.extend(lost.map(|file| (name.clone(), file)));
    }
    Ok(gone)
}

/// Refuses to take rows away that cannot be made again, unless a person says so.
fn check_lost_rows(lose_rows: bool, gone: &[String]) -> Result<()> {
    if gone.is_empty() || lose_rows {
        return Ok(());
    }
    Err(Error::refused(format!(
        "{} whose rows are in the same output, and would go with it, are no longer in the source as they were: {}",
        count(gone.len() as u64, "file"),
        gone.iter().take(3).cloned().collect::<Vec<_>>().join(", ")
    ))
    .safe("nothing was changed")
    .way("put the files back into the source as they were")
    .way("give their rows up: run again with --lose-rows"))
}

/// The first few of `all`, one line each, and how many more there are.
fn some(all: impl ExactSizeIterator<Item = String>) -> Vec<String> {
    const SHOWN: usize = 20;
    let more = all.len().saturating_sub(SHOWN);
    let mut lines: Vec<String> = all.take(SHOWN).map(|line| format!("  {line}")).collect();
    if more > 0 {
        lines.push(format!("  ... and {more} more"));
    }
    lines
}

fn wait(change: &ChangeArgs) -> Wait {
    job::wait(change.takeover, change.no_wait)
}

/// Wins an epoch for a verb, does it, and closes the epoch.
async fn under_an_epoch<T>(
    store: &ObjectCheckpointStore,
    config: &JobConfig,
    change: &ChangeArgs,
    verb: impl AsyncFnOnce(&Run) -> Result<T>,
) -> Result<T> {
    let lease = Lease { beat: config.run.beat, lease: config.run.lease };
    act(store.operate(wait(change), lease).await?, verb).await
}

/// Does a verb under an epoch that was won for it, and closes that.
async fn act<T>(run: Run, verb: impl AsyncFnOnce(&Run) -> Result<T>) -> Result<T> {
    let done = verb(&run).await;
    let closed = run.close().await;
    done.and_then(|done| closed.map(|_| done))
}

/// The destination of the job, else the one that the store belongs to.
fn sink_of(config: &JobConfig, manifest: &Manifest) -> Result<Option<Arc<dyn OutputSink>>> {
    if let Some(output) = job::output(config)? {
        return Ok(Some(output.sink));
    }
    let Some(binding) = &manifest.sink else { return Ok(None) };
    let sink = job::sink(&binding.kind, &binding.root.to_string(), &config.sink)?;
    Ok(Some(sink.partitioned(&binding.partition_by)))
}

fn patterns(globs: &[String]) -> Result<Vec<Pattern>, Failure> {
    globs.iter().map(|glob| Pattern::new(glob.clone())).collect::<Result<_>>().map_err(Failure::usage)
}

/// A count and its noun.
fn count(n: u64, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}
