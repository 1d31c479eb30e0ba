//! What must be reached within the bounds: a check in which nothing interesting happens proves nothing.

use stateright::Property;

use crate::attempt::Stage;
use crate::bounds::{Bounds, SinkKind};
use crate::model::Protocol;
use crate::monitor::newest_record;
use crate::objects::{Decision, Kind, OutputFile};
use crate::process::{At, End, Replan};
use crate::recovery::is_complete;
use crate::sink::Sink;
use crate::world::World;

type Situation = (bool, &'static str, fn(&Protocol, &World) -> bool);

/// Every situation that these bounds have room for.
pub fn situations(bounds: &Bounds) -> Vec<Property<Protocol>> {
    let rivals = bounds.drivers > 1;
    let directory = bounds.sink == SinkKind::Directory;
    let all: [Situation; 15] = [
        (true, "reached: the output is complete", |model, world| is_complete(&model.setting, world)),
        (rivals, "reached: a holder is fenced", |_, world| ended(world, End::Fenced)),
        (rivals, "reached: a seal comes too late for its epoch", |_, world| late_seal(world)),
        (rivals, "reached: a stalled writer creates a pruned name again", |_, world| {
            world.store.manifests.iter().any(|kept| kept.stray)
        }),
        (bounds.losses > 0, "reached: a request lands whose answer was lost", |model, world| {
            world.losses < model.setting.bounds.losses && world.store.late.is_empty()
        }),
        (bounds.stale_plans, "reached: an overlapping seal is rejected", |_, world| {
            newest_record(world).0.iter().any(|row| row.decision == Decision::Rejected)
        }),
        (bounds.replans > 0, "reached: a void seal loses to a seal", |_, world| {
            world.processes.iter().any(|process| process.replan == Replan::Sealed)
        }),
        (bounds.replans > 0, "reached: a seal loses to a void seal", |_, world| beaten_by_void(world)),
        (rivals && bounds.gives_up, "reached: a barrier is followed by the next commit", |_, world| {
            let Sink::Table(log) = &world.sink else { return false };
            log.first().is_some_and(|first| first.files.is_none()) && log.len() > 1
        }),
        (bounds.harms > 0 && directory, "reached: a commit is done without what was missing", |_, world| {
            let withdrawn = newest_record(world).0.iter().any(|row| row.decision == Decision::Withdrawn);
            withdrawn && world.store.newest().is_some_and(|newest| newest.kind == Kind::Done)
        }),
        (rivals && bounds.operators > 0, "reached: an operator withdraws under a driver", |model, world| {
            let drivers = usize::from(model.setting.bounds.drivers);
            let withdrew = newest_record(world).0.iter().any(|row| row.decision == Decision::Withdrawn);
            withdrew && world.processes[..drivers].iter().any(|process| process.at == At::Ended(End::Fenced))
        }),
        (bounds.retracts, "reached: what left is done again", |model, world| {
            let withdrawn = newest_record(world).0.iter().any(|row| row.decision == Decision::Withdrawn);
            withdrawn && world.intents.len() > 2 && is_complete(&model.setting, world)
        }),
        (bounds.retracts, "reached: a retraction is ended by another one", |_, world| {
            let decided = |process: &crate::process::Process| process.at == At::Ended(End::Fenced);
            let drivers = world.processes.iter().take_while(|process| process.role == crate::process::Role::Driver);
            let ended = newest_record(world).0.iter().any(|row| row.decision == Decision::Withdrawn);
            ended && world.processes[drivers.count()..].iter().any(decided)
        }),
        (bounds.collections > 0, "reached: garbage is deleted", |_, world| collected(world)),
        (directory && bounds.atoms > 1, "reached: a part of a commit is visible", |_, world| partly_visible(world)),
    ];
    let possible = all.into_iter().filter(|(possible, ..)| *possible);
    possible.map(|(_, name, condition)| Property::sometimes(name, condition)).collect()
}

fn ended(world: &World, end: End) -> bool {
    world.processes.iter().any(|process| process.at == At::Ended(end))
}

fn late_seal(world: &World) -> bool {
    let record = newest_record(world);
    world.store.seals.iter().any(|seal| seal.id.epoch < world.store.epoch() && record.row(seal.id).is_none())
}

fn beaten_by_void(world: &World) -> bool {
    let beaten = |id| world.attempts.iter().any(|a| a.task == id && matches!(a.stage, Stage::Beaten | Stage::Ended));
    world.store.seals.iter().any(|seal| seal.attempt.is_none() && beaten(seal.id))
}

/// An attempt still works for a closed epoch, and its output was taken away.
fn collected(world: &World) -> bool {
    let working = world.attempts.iter().filter(|attempt| attempt.stage == Stage::Written);
    let is = |file: &OutputFile, task, nonce| (file.seal, file.attempt) == (task, nonce);
    working.into_iter().any(|a| !world.staged.iter().any(|file| is(file, a.task, a.nonce)))
}

fn partly_visible(world: &World) -> bool {
    let open = world.store.newest().and_then(|newest| newest.commits.open);
    open.is_some_and(|set| {
        let visible = set.iter().filter(|id| world.sink.visible().any(|file| file.seal == *id)).count();
        visible > 0 && visible < set.iter().count()
    })
}
