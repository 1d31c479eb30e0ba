//! Drivers and operators: processes that open an epoch, act under it, and end.
//!
//! A process is its memory and the place in its program. Each step is one request to the store or the sink, together with
//! what the process concludes from the answer; between two steps any other actor can act, so a stall and a crash need no
//! step of their own.

mod append;
mod directory;
mod hold;
mod open;
mod table;

use crate::objects::{Manifest, Record, Seal};
use crate::rules::Rule;
use crate::words::{Atoms, SealId, SealSet};
use crate::world::{Setting, World};

/// What a process is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// It plans, dispatches, folds and commits.
    Driver,
    /// It withdraws a checkpoint, gives an open intent up, or takes committed output out.
    Operator,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// There was nothing to do, and nothing was written.
    Nothing,
    /// Others were faster each time it tried to win an epoch.
    Busy,
    /// It closed its epoch.
    Closed,
    /// Another one has the chain.
    Fenced,
    /// It found what it must not decide on its own.
    CannotDecide,
    /// Something that a manifest names is missing.
    Corrupt,
}

/// A manifest on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Draft {
    /// The manifest.
    pub manifest: Manifest,
    /// Whether it is off the chain, which only the monitor knows.
    pub stray: bool,
}

/// A commit on its way into the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Publication {
    /// The exact set.
    pub set: SealSet,
    /// What of it turned out to be missing.
    pub missing: SealSet,
    /// Committed checkpoints whose output leaves.
    pub leaving: SealSet,
    /// The next step.
    pub step: PublishStep,
}

/// A step of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PublishStep {
    /// Reads the newest version, before anything is made visible.
    Guard,
    /// Directory: looks at the staged file of this place in the set.
    Stat(u8),
    /// Directory: moves an unfit staged file out of staging.
    Aside(u8),
    /// Directory: renames it, not replacing.
    Rename(u8),
    /// Directory: looks at the target.
    Look(u8),
    /// Directory: takes out the committed file of this place among those that leave.
    TakeOut(u8),
    /// Table: loads the base and looks for the marker in its log.
    Load,
    /// Table: reads the newest version, with this base loaded.
    GuardBase(u8),
    /// Table: commits on exactly this base.
    Commit(u8),
}

/// The place of a process in its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum At {
    /// It has not begun.
    Start,
    /// It is about to read the newest manifest.
    Reading,
    /// It is about to list the loose seals.
    Listing,
    /// It is about to write the segment of a manifest.
    Writing(Manifest),
    /// It is about to create the manifest.
    Creating(Manifest),
    /// It has created it and is about to list again.
    Settling(Draft),
    /// It holds an epoch and is between two acts.
    Holding,
    /// It brings a commit into the sink.
    Publishing(Publication),
    /// It has ended.
    Ended(End),
}

/// What became of the one task that a driver plans again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Replan {
    /// Nothing yet.
    None,
    /// Its name was taken, and its atoms have another id.
    Done,
    /// It was sealed already, and counts.
    Sealed,
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    /// What it is for.
    pub role: Role,
    /// Its nonce.
    pub nonce: u8,
    /// Where it is.
    pub at: At,
    /// Its epoch; 0 before it has won one.
    pub epoch: u8,
    /// The manifest it goes on from.
    pub head: Option<Manifest>,
    /// The decisions it holds in memory.
    pub record: Record,
    /// Whether no segment holds them all yet.
    pub dirty: bool,
    /// What was done when it planned.
    pub planned_from: Option<Atoms>,
    /// The seals it listed at its first try; kept only where the rule to list again is taken away.
    pub first_list: Option<Vec<Seal>>,
    /// How often it lost an epoch to another one.
    pub tries: u8,
    /// Whether its tasks are dispatched, or its verb is done.
    pub acted: bool,
    /// The task it planned again.
    pub replan: Replan,
    /// Folds it may still make.
    pub folds: u8,
    /// Commits it may still decide.
    pub commits: u8,
}

/// What a process does next, where it has a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The only thing to do, answered.
    Go,
    /// The same, its answer lost: the request can land at any time, and will be tried again.
    Unanswered,
    /// Dispatches what is undone: as one task, or each atom as one.
    Dispatch {
        /// As one.
        packed: bool,
    },
    /// Plans the atoms of this task again, under another id.
    Replan(SealId),
    /// Folds the loose seals.
    Fold,
    /// Decides a commit of all that waits for one.
    Commit,
    /// Finishes the open intent.
    Publish,
    /// Withdraws what has lost its file.
    WithdrawUnfit,
    /// Withdraws this checkpoint.
    Withdraw(SealId),
    /// Takes the output of this committed checkpoint out, and makes its work undone.
    Retract(SealId),
    /// Gives the open intent up.
    GiveUp,
    /// Closes the epoch.
    Close,
}

impl Process {
    /// One that has not begun.
    pub fn new(role: Role, nonce: u8) -> Self {
        Self {
            role,
            nonce,
            at: At::Start,
            epoch: 0,
            head: None,
            record: Record::default(),
            dirty: false,
            planned_from: None,
            first_list: None,
            tries: 0,
            acted: false,
            replan: Replan::None,
            folds: 0,
            commits: 0,
        }
    }

    /// Ends it. Its memory is gone.
    pub fn end(&mut self, end: End) {
        *self = Self { at: At::Ended(end), replan: self.replan, ..Self::new(self.role, self.nonce) };
    }

    /// Checkpoints that wait for a commit, as far as it knows.
    pub fn pending(&self) -> SealSet {
        self.record.pending(&self.head.map(|head| head.commits).unwrap_or_default())
    }
}

/// What the process `index` can do.
pub fn choices(setting: &Setting, world: &World, index: usize) -> Vec<Choice> {
    let process = &world.processes[index];
    match process.at {
        // Processes of one role are alike: they begin in their order.
        At::Start => {
            let mut before = world.processes[..index].iter().filter(|other| other.role == process.role);
            if before.all(|other| other.at != At::Start) { vec![Choice::Go] } else { Vec::new() }
        }
        At::Creating(_) if world.losses > 0 => vec![Choice::Go, Choice::Unanswered],
        At::Holding => hold::choices(setting, world, index),
        At::Publishing(publication) => publish_choices(setting, world, publication.step),
        At::Ended(_) => Vec::new(),
        _ => vec![Choice::Go],
    }
}

fn publish_choices(setting: &Setting, world: &World, step: PublishStep) -> Vec<Choice> {
    let mut choices = vec![Choice::Go];
    match step {
        PublishStep::Commit(_) => {
            if world.losses > 0 {
                choices.push(Choice::Unanswered);
            }
            if setting.bounds.gives_up {
                choices.push(Choice::GiveUp);
            }
        }
        PublishStep::Guard if !setting.rules.has(Rule::DirectoryNeverVoid) => choices.push(Choice::GiveUp),
        _ => {}
    }
    choices
}

/// Lets the process `index` act.
pub fn step(setting: &Setting, world: &mut World, index: usize, choice: Choice) {
    match world.processes[index].at {
        At::Start | At::Reading => open::read(world, index),
        At::Listing => open::list(setting, world, index),
        At::Writing(manifest) => append::write_segment(world, index, manifest),
        At::Creating(manifest) => append::create(setting, world, index, manifest, choice),
        At::Settling(draft) => append::settle(setting, world, index, draft),
        At::Holding => hold::act(setting, world, index, choice),
        At::Publishing(publication) => match publication.step {
            PublishStep::Load | PublishStep::GuardBase(_) | PublishStep::Commit(_) => {
                table::step(setting, world, index, publication, choice);
            }
            _ => directory::step(setting, world, index, publication, choice),
        },
        At::Ended(_) => {}
    }
}
