//! How much of everything there is: the bounds within which a check is exhaustive.

use std::str::FromStr;

/// Which kind of sink a store commits into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkKind {
    /// A table: one log, each entry on exactly the base before it.
    Table,
    /// A directory on a disk: files are renamed into it one by one.
    Directory,
}

/// The bounds of one check. Crashes and stalls need none: a process that is never scheduled again has crashed, and one
/// that is scheduled late has stalled.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Where commits go.
    pub sink: SinkKind,
    /// Atoms of the source.
    pub atoms: u8,
    /// Drivers, each a process of its own that opens an epoch.
    pub drivers: u8,
    /// Operators, each with one verb: withdraw a checkpoint, give an intent up, or take output out.
    pub operators: u8,
    /// Whether an operator takes committed output out of a directory, too.
    pub retracts: bool,
    /// Collections of garbage.
    pub collections: u8,
    /// Whether a driver may pack all atoms into one task, too; if not, each atom is a task.
    pub packs: bool,
    /// Whether tasks are planned from the first view and not again from the epoch that was won.
    pub stale_plans: bool,
    /// Attempts beyond the first one of each task, over all tasks.
    pub retries: u8,
    /// Tasks that a driver plans again under another id.
    pub replans: u8,
    /// Folds of a driver, beside those of open and commit.
    pub folds: u8,
    /// Commits of a driver, beside the intent that it finds.
    pub commits: u8,
    /// Requests whose answers are lost: each can land at any time after, or never.
    pub losses: u8,
    /// Staged files that are damaged or vanish.
    pub harms: u8,
    /// Whether any holder may give an open intent up.
    pub gives_up: bool,
    /// Times that a process tries to win an epoch before it calls the others busy.
    pub tries: u8,
    /// Manifests that are kept.
    pub kept: u8,
    /// Whether from each state one more run is tried, alone, to its end.
    pub completes: bool,
}

impl Bounds {
    /// Two drivers, each of which works and commits once.
    pub const fn two_drivers(sink: SinkKind) -> Self {
        Self {
            sink,
            atoms: 2,
            drivers: 2,
            operators: 0,
            retracts: false,
            collections: 0,
            packs: false,
            stale_plans: false,
            retries: 0,
            replans: 0,
            folds: 0,
            commits: 1,
            losses: 0,
            harms: 0,
            gives_up: false,
            tries: 2,
            kept: 2,
            completes: false,
        }
    }
}

/// As in `directory drivers=3 losses=1 packs`; what is not named is as in [`Bounds::two_drivers`].
impl FromStr for Bounds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut bounds = Self::two_drivers(SinkKind::Directory);
        for word in text.split_whitespace() {
            let (key, value) = word.split_once('=').unwrap_or((word, "1"));
            let count: u8 = value.parse().map_err(|error| format!("{word}: {error}"))?;
            match key {
                "table" => bounds.sink = SinkKind::Table,
                "directory" => bounds.sink = SinkKind::Directory,
                "atoms" => bounds.atoms = count,
                "drivers" => bounds.drivers = count,
                "operators" => bounds.operators = count,
                "retracts" => bounds.retracts = count > 0,
                "collections" => bounds.collections = count,
                "packs" => bounds.packs = count > 0,
                "stale_plans" => bounds.stale_plans = count > 0,
                "retries" => bounds.retries = count,
                "replans" => bounds.replans = count,
                "folds" => bounds.folds = count,
                "commits" => bounds.commits = count,
                "losses" => bounds.losses = count,
                "harms" => bounds.harms = count,
                "gives_up" => bounds.gives_up = count > 0,
                "tries" => bounds.tries = count,
                "kept" => bounds.kept = count,
                "completes" => bounds.completes = count > 0,
                _ => return Err(format!("{key}: no such bound")),
            }
        }
        Ok(bounds)
    }
}
