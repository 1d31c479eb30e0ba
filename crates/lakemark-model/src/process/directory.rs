//! Bringing a commit into a directory: rename first, look at the target second.

use super::{At, Choice, End, Process, Publication, PublishStep, hold};
use crate::objects::{OutputFile, Row};
use crate::rules::Rule;
use crate::sink::Sink;
use crate::world::{Setting, World, insert};

/// What is known of one file after a step.
enum Found {
    /// Not enough; this comes next.
    Then(PublishStep),
    /// It is visible.
    Visible,
    /// It never will be.
    Missing,
    /// Another file is in its place.
    Other,
}

/// The next step of the publication.
pub fn step(setting: &Setting, world: &mut World, index: usize, publication: Publication, choice: Choice) {
    let (place, found) = match publication.step {
        PublishStep::Stat(place) => (place, stat(setting, world, index, publication, place)),
        PublishStep::Aside(place) => (place, aside(setting, world, index, publication, place)),
        PublishStep::Rename(place) => (place, rename(setting, world, index, publication, place)),
        PublishStep::Look(place) => (place, look(setting, world, index, publication, place)),
        PublishStep::TakeOut(place) => return take_out(setting, world, index, publication, place),
        _ => return guard(setting, world, index, publication, choice),
    };
    let mut publication = publication;
    match found {
        Found::Then(step) => {
            world.processes[index].at = At::Publishing(Publication { step, ..publication });
            return;
        }
        Found::Other => return world.processes[index].end(End::CannotDecide),
        Found::Missing => publication.missing.extend(publication.set.iter().nth(place.into())),
        Found::Visible => {}
    }
    go_to(setting, world, index, publication, place + 1);
}

/// Reads the newest version: an irreversible act outside the chain follows.
fn guard(setting: &Setting, world: &mut World, index: usize, publication: Publication, choice: Choice) {
    let process = &mut world.processes[index];
    let known = process.head.map_or(0, |head| head.version);
    if choice == Choice::GiveUp {
        hold::void(setting, process);
    } else if setting.rules.has(Rule::GuardBeforePublish) && world.store.newest_version() != known {
        process.end(End::Fenced);
    } else {
        go_to(setting, world, index, publication, 0);
    }
}

/// Begins with the file of this place in the set; after the last one, records that it is done.
fn go_to(setting: &Setting, world: &mut World, index: usize, publication: Publication, place: u8) {
    let process = &mut world.processes[index];
    if publication.set.iter().nth(place.into()).is_none() {
        return leave(setting, process, publication, 0);
    }
    // While no file can be harmed, its size is not worth a look.
    let step = if setting.bounds.harms > 0 { PublishStep::Stat(place) } else { first(setting, place) };
    process.at = At::Publishing(Publication { step, ..publication });
}

/// Begins with the file of this place among those that leave; after the last one, records that it is done.
fn leave(setting: &Setting, process: &mut Process, publication: Publication, place: u8) {
    if publication.leaving.iter().nth(place.into()).is_none() {
        return hold::done(setting, process, publication);
    }
    process.at = At::Publishing(Publication { step: PublishStep::TakeOut(place), ..publication });
}

/// Takes it out of the directory. One that is not there is out already.
fn take_out(setting: &Setting, world: &mut World, index: usize, publication: Publication, place: u8) {
    let id = publication.leaving.iter().nth(place.into());
    let row = id.and_then(|id| world.processes[index].record.row(id)).copied();
    if let (Sink::Directory(files), Some(row)) = (&mut world.sink, row) {
        files.retain(|file| !file.is_of(&row));
    }
    leave(setting, &mut world.processes[index], publication, place + 1);
}

fn first(setting: &Setting, place: u8) -> PublishStep {
    if setting.rules.has(Rule::RenameFirst) { PublishStep::Rename(place) } else { PublishStep::Look(place) }
}

fn row(world: &World, index: usize, publication: Publication, place: u8) -> Option<Row> {
    let id = publication.set.iter().nth(place.into())?;
    world.processes[index].record.row(id).copied()
}

/// Looks at the staged file.
fn stat(setting: &Setting, world: &World, index: usize, publication: Publication, place: u8) -> Found {
    let file = row(world, index, publication, place).and_then(|row| world.staged_of(&row));
    match file {
        Some(file) if !file.fit && setting.rules.has(Rule::UnfitAside) => Found::Then(PublishStep::Aside(place)),
        Some(file) if !file.fit => Found::Missing,
        _ => Found::Then(first(setting, place)),
    }
}

/// Moves the unfit file out of the way of a stalled predecessor, before anything is recorded.
fn aside(setting: &Setting, world: &mut World, index: usize, publication: Publication, place: u8) -> Found {
    match take(world, row(world, index, publication, place)) {
        None if setting.rules.has(Rule::LookAfterAside) => Found::Then(PublishStep::Look(place)),
        _ => Found::Missing,
    }
}

/// Renames it, not replacing.
fn rename(setting: &Setting, world: &mut World, index: usize, publication: Publication, place: u8) -> Found {
    let Some(file) = take(world, row(world, index, publication, place)) else {
        let first = setting.rules.has(Rule::RenameFirst);
        return if first { Found::Then(PublishStep::Look(place)) } else { Found::Missing };
    };
    if let Sink::Directory(files) = &mut world.sink {
        insert(files, file);
    }
    Found::Visible
}

/// Looks at the target.
fn look(setting: &Setting, world: &World, index: usize, publication: Publication, place: u8) -> Found {
    let row = row(world, index, publication, place);
    let target = row.and_then(|row| world.sink.visible().find(|file| file.is_of(&row)));
    match target {
        Some(file) if file.fit => Found::Visible,
        Some(_) => Found::Other,
        None if setting.rules.has(Rule::RenameFirst) => Found::Missing,
        None => Found::Then(PublishStep::Rename(place)),
    }
}

/// Takes a file out of staging, if it is there.
fn take(world: &mut World, row: Option<Row>) -> Option<OutputFile> {
    let at = world.staged.iter().position(|file| row.is_some_and(|row| file.is_of(&row)))?;
    Some(world.staged.remove(at))
}
