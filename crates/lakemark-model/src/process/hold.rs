//! What the holder of an epoch can do between two writes.

use super::append::{draft, draft_with, gather, publication, publish};
use super::{Choice, Process, Publication, Replan, Role};
use crate::attempt::Task;
use crate::bounds::SinkKind;
use crate::objects::{Commits, Kind, Seal};
use crate::rules::Rule;
use crate::words::{Atoms, SealId, SealSet};
use crate::world::{Setting, World};

/// The choices of a holder.
pub fn choices(setting: &Setting, world: &World, index: usize) -> Vec<Choice> {
    match world.processes[index].role {
        Role::Driver => drivers(setting, world, index),
        Role::Operator => operators(setting, &world.processes[index]),
    }
}

/// A driver first finishes what others left, then works, then commits and closes.
fn drivers(setting: &Setting, world: &World, index: usize) -> Vec<Choice> {
    let process = &world.processes[index];
    if process.head.is_some_and(|head| head.commits.open.is_some()) {
        return vec![Choice::Publish];
    }
    if !unfit(world, process).is_empty() {
        return vec![Choice::WithdrawUnfit];
    }
    if !process.acted {
        let whole = setting.bounds.packs.then_some(Choice::Dispatch { packed: true });
        return [Choice::Dispatch { packed: false }].into_iter().chain(whole).collect();
    }
    let loose =
        world.store.seals.iter().any(|seal| {
            seal.id.epoch == process.epoch && seal.attempt.is_some() && process.record.row(seal.id).is_none()
        });
    let mut choices = Vec::new();
    if process.commits > 0 && (loose || !process.pending().is_empty()) {
        choices.push(Choice::Commit);
    } else {
        choices.push(Choice::Close);
    }
    if process.folds > 0 && loose {
        choices.push(Choice::Fold);
    }
    if setting.bounds.replans > 0 && process.replan == Replan::None {
        let own = world.tasks.iter().filter(|task| task.id.epoch == process.epoch);
        choices.extend(own.map(|task| Choice::Replan(task.id)));
    }
    choices
}

fn operators(setting: &Setting, process: &Process) -> Vec<Choice> {
    if process.acted {
        return vec![Choice::Close];
    }
    let mut choices: Vec<_> = process.pending().iter().map(Choice::Withdraw).collect();
    if setting.bounds.retracts && setting.bounds.sink == SinkKind::Directory {
        // Nothing is decided while an intent is open.
        let commits = process.head.map(|head| head.commits).filter(|commits| commits.open.is_none());
        choices.extend(commits.unwrap_or_default().done.iter().map(Choice::Retract));
    }
    let open = process.head.is_some_and(|head| head.commits.open.is_some());
    if open && setting.bounds.gives_up && setting.bounds.sink == SinkKind::Table {
        choices.push(Choice::Publish);
    }
    if choices.is_empty() {
        choices.push(Choice::Close);
    }
    choices
}

/// Checkpoints of earlier epochs that wait for a commit and whose files are not there with their size.
fn unfit(world: &World, process: &Process) -> SealSet {
    let pending = process.pending();
    let waits = process.record.live().filter(|row| pending.has(row.seal) && row.seal.epoch < process.epoch);
    waits.filter(|row| !world.is_fit(row)).map(|row| row.seal).collect()
}

/// Lets the holder do it.
pub fn act(setting: &Setting, world: &mut World, index: usize, choice: Choice) {
    let epoch = world.processes[index].epoch;
    match choice {
        Choice::Dispatch { packed } => dispatch(setting, world, index, packed),
        Choice::Replan(task) => replan(setting, world, index, task),
        Choice::Fold => {
            gather(setting, world, index, epoch);
            world.processes[index].folds -= 1;
            draft(&mut world.processes[index], Kind::Fold, setting);
        }
        Choice::Commit => commit(setting, world, index),
        Choice::Publish => {
            let commits = world.processes[index].head.map(|head| head.commits).unwrap_or_default();
            // An operator's verb ends with it.
            world.processes[index].acted |= world.processes[index].role == Role::Operator;
            world.processes[index].at = publication(setting, &commits);
        }
        Choice::WithdrawUnfit => {
            let gone = unfit(world, &world.processes[index]);
            let process = &mut world.processes[index];
            withdraw(process, gone, setting);
            // What is undone by it is planned again.
            process.planned_from = Some(process.record.covered());
        }
        Choice::Withdraw(id) => {
            world.processes[index].acted = true;
            withdraw(&mut world.processes[index], [id].into_iter().collect(), setting);
        }
        Choice::Retract(id) => {
            world.processes[index].acted = true;
            retract(setting, &mut world.processes[index], [id].into_iter().collect());
        }
        Choice::Close => draft(&mut world.processes[index], Kind::Close, setting),
        Choice::Go | Choice::Unanswered | Choice::GiveUp => {}
    }
}

/// Decides that the output of `leaving` leaves; without the rule it is taken out at once, and recorded then.
fn retract(setting: &Setting, process: &mut Process, leaving: SealSet) {
    let before = process.head.map(|head| head.commits).unwrap_or_default();
    if setting.rules.has(Rule::DecideLeaving) {
        let commits = Commits { last: before.last + 1, open: Some(SealSet::default()), leaving, ..before };
        draft_with(process, Kind::Intent, commits, setting);
    } else {
        process.at = publish(setting, SealSet::default(), leaving);
    }
}

fn withdraw(process: &mut Process, gone: SealSet, setting: &Setting) {
    process.record.withdraw(gone);
    process.dirty = true;
    draft(process, Kind::Withdraw, setting);
}

/// Plans tasks under fresh input ids. Their workers skip what the plan knows as done.
fn dispatch(setting: &Setting, world: &mut World, index: usize, packed: bool) {
    let process = &mut world.processes[index];
    process.acted = true;
    let (epoch, done) = (process.epoch, process.planned_from.unwrap_or_default());
    let all = Atoms::first(setting.bounds.atoms);
    let groups: Vec<Atoms> = if packed { vec![all] } else { all.each().collect() };
    let undone = groups.into_iter().filter(|atoms| !atoms.without(done).is_empty());
    for (input, atoms) in (0..).zip(undone) {
        world.tasks.push(Task { id: SealId { epoch, input }, atoms, skips: done });
    }
}

/// Takes the name of the task's seal, and hands its atoms to another task unless it was sealed already.
fn replan(setting: &Setting, world: &mut World, index: usize, id: SealId) {
    let Some(task) = world.tasks.iter().find(|task| task.id == id).copied() else { return };
    let void = Seal { id, attempt: None, covers: Atoms::NONE };
    if setting.rules.has(Rule::VoidSeal) && !world.put_seal(void) {
        world.processes[index].replan = Replan::Sealed;
        return;
    }
    world.processes[index].replan = Replan::Done;
    let input = world.tasks.iter().filter(|other| other.id.epoch == id.epoch).count() as u8;
    world.tasks.push(Task { id: SealId { input, ..id }, ..task });
}

/// Gathers, and decides a commit of everything that waits for one.
fn commit(setting: &Setting, world: &mut World, index: usize) {
    let epoch = world.processes[index].epoch;
    gather(setting, world, index, epoch);
    let process = &mut world.processes[index];
    process.commits -= 1;
    let set = process.pending();
    let before = process.head.map(|head| head.commits).unwrap_or_default();
    if set.is_empty() {
        // Everything that was loose was rejected.
        draft(process, Kind::Fold, setting);
    } else if setting.rules.has(Rule::Intent) {
        let commits = Commits { last: before.last + 1, open: Some(set), ..before };
        draft_with(process, Kind::Intent, commits, setting);
    } else {
        process.at = publish(setting, set, SealSet::default());
    }
}

/// Records that the publication is over: what is visible is committed, what was missing or has left is withdrawn.
pub fn done(setting: &Setting, process: &mut Process, publication: Publication) {
    let Publication { set, missing, leaving, .. } = publication;
    let before = process.head.map(|head| head.commits).unwrap_or_default();
    let last = before.last + u8::from(before.open.is_none());
    let done = before.done.and(set.without(missing)).without(leaving);
    let commits = Commits { last, done, ..before.closed() };
    let gone = missing.and(leaving);
    if !gone.is_empty() {
        process.record.withdraw(gone);
        process.dirty = true;
        process.planned_from = Some(process.record.covered());
    }
    draft_with(process, Kind::Done, commits, setting);
}

/// Records that the open intent is given up: its checkpoints wait for a commit again.
pub fn void(setting: &Setting, process: &mut Process) {
    let before = process.head.map(|head| head.commits).unwrap_or_default();
    draft_with(process, Kind::Void, before.closed(), setting);
}
