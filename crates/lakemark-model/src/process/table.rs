//! Committing into a table: load the base, read the chain again, look for the marker, commit on exactly that base.

use super::{At, Choice, End, Publication, PublishStep, hold};
use crate::objects::{Entry, OutputFile, Request};
use crate::rules::Rule;
use crate::sink::Sink;
use crate::world::{Setting, World};

/// The next step of the publication.
pub fn step(setting: &Setting, world: &mut World, index: usize, publication: Publication, choice: Choice) {
    match publication.step {
        PublishStep::GuardBase(base) => {
            let process = &mut world.processes[index];
            let known = process.head.map_or(0, |head| head.version);
            let moved = world.store.newest_version() != known;
            if setting.rules.has(Rule::GuardBeforePublish) && moved {
                return process.end(End::Fenced);
            }
            process.at = At::Publishing(Publication { step: PublishStep::Commit(base), ..publication });
        }
        PublishStep::Commit(base) => commit(setting, world, index, publication, base, choice),
        _ => load(setting, world, index, publication),
    }
}

/// The number of the commit on its way.
fn number(world: &World, index: usize) -> u8 {
    let commits = world.processes[index].head.map(|head| head.commits).unwrap_or_default();
    commits.last + u8::from(commits.open.is_none())
}

/// What the commit adds.
fn files(world: &World, index: usize, publication: Publication) -> Vec<OutputFile> {
    let record = &world.processes[index].record;
    let rows = publication.set.iter().filter_map(|id| record.row(id));
    rows.filter_map(|row| world.staged_of(row)).copied().collect()
}

/// Loads the table and looks for the marker.
fn load(setting: &Setting, world: &mut World, index: usize, publication: Publication) {
    let Sink::Table(log) = &world.sink else { return };
    let n = number(world, index);
    let ours = files(world, index, publication);
    let marker = log.iter().find(|entry| entry.n == n).map(|entry| entry.files.clone());
    let base = log.len() as u8;
    let process = &mut world.processes[index];
    match marker {
        Some(Some(files)) if files == ours => hold::done(setting, process, publication),
        Some(Some(_)) => process.end(End::CannotDecide),
        Some(None) => hold::void(setting, process),
        None => process.at = At::Publishing(Publication { step: PublishStep::GuardBase(base), ..publication }),
    }
}

/// Commits on `base`, or gives the intent up.
fn commit(setting: &Setting, world: &mut World, index: usize, publication: Publication, base: u8, choice: Choice) {
    let n = number(world, index);
    let gives_up = choice == Choice::GiveUp;
    let entry = Entry { n, files: (!gives_up).then(|| files(world, index, publication)) };
    if gives_up && !setting.rules.has(Rule::Barrier) {
        return hold::void(setting, &mut world.processes[index]);
    }
    let landed = if choice == Choice::Unanswered {
        world.losses -= 1;
        world.store.late.push(Request::Table { base, entry });
        false
    } else {
        world.sink.append(base, entry)
    };
    let process = &mut world.processes[index];
    match landed {
        true if gives_up => hold::void(setting, process),
        true => hold::done(setting, process, publication),
        // A conflict, or an unknown answer: start again at the load.
        false => process.at = At::Publishing(Publication { step: PublishStep::Load, ..publication }),
    }
}
