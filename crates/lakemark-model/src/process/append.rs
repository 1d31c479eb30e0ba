//! Appending to the chain: the segment first, then the manifest, then the listing that tells whether it counts.

use super::{At, Choice, Draft, End, Process, Publication, PublishStep, Role};
use crate::bounds::SinkKind;
use crate::monitor::Fault;
use crate::objects::{Commits, Kind, Manifest, Request};
use crate::rules::Rule;
use crate::store::Created;
use crate::words::SealSet;
use crate::world::{Setting, World};

/// Lists the loose seals of `epoch` and decides them in memory.
pub fn gather(setting: &Setting, world: &mut World, index: usize, epoch: u8) {
    let World { store, processes, .. } = world;
    let process = &mut processes[index];
    let before = process.record.clone();
    let all = !setting.rules.has(Rule::CurrentSealsOnly);
    match &process.first_list {
        Some(seals) => seals.iter().for_each(|seal| process.record.decide(seal, false)),
        None => store
            .seals
            .iter()
            .filter(|seal| all || seal.id.epoch == epoch)
            .for_each(|seal| process.record.decide(seal, !setting.rules.has(Rule::RejectOverlap))),
    }
    if !setting.rules.has(Rule::NamedSegments) {
        for row in store.segments.iter().flat_map(|(_, record)| &record.0) {
            if process.record.row(row.seal).is_none() {
                process.record.insert(*row);
            }
        }
    }
    process.dirty |= process.record != before;
}

/// Begins to append a manifest with the commits as they are.
pub fn draft(process: &mut Process, kind: Kind, setting: &Setting) {
    let commits = process.head.map(|head| head.commits).unwrap_or_default();
    draft_with(process, kind, commits, setting);
}

/// Begins to append a manifest.
pub fn draft_with(process: &mut Process, kind: Kind, commits: Commits, setting: &Setting) {
    let (version, epoch) = process.head.map_or((0, 0), |head| (head.version, head.epoch));
    let opens = kind == Kind::Open;
    let mut manifest = Manifest {
        version: version + 1,
        epoch: if opens { epoch + 1 } else { process.epoch },
        writer: process.nonce,
        kind,
        parent: process.head.map(|head| head.digest()),
        segment: process.head.and_then(|head| head.segment),
        commits,
    };
    if process.dirty && setting.rules.has(Rule::NameTheFold) {
        manifest.segment = Some(manifest.digest());
    }
    process.at = if process.dirty && !in_one_step(setting) { At::Writing(manifest) } else { At::Creating(manifest) };
}

/// Nobody but a collector looks for a segment before a manifest names it: without one, both are written in one step.
fn in_one_step(setting: &Setting) -> bool {
    setting.bounds.collections == 0 && setting.rules.has(Rule::NamedSegments)
}

/// Writes the segment that `manifest` is to name.
pub fn write_segment(world: &mut World, index: usize, manifest: Manifest) {
    world.store.put_segment(manifest.digest(), &world.processes[index].record);
    world.processes[index].at = At::Creating(manifest);
}

/// Creates `manifest`.
pub fn create(setting: &Setting, world: &mut World, index: usize, manifest: Manifest, choice: Choice) {
    if manifest.segment == Some(manifest.digest()) && in_one_step(setting) {
        world.store.put_segment(manifest.digest(), &world.processes[index].record);
    }
    if choice == Choice::Unanswered {
        world.losses -= 1;
        world.store.late.push(Request::Manifest(manifest));
        return;
    }
    match world.put_manifest(manifest) {
        Created::Ours { stray } if setting.rules.has(Rule::ListAfterCreate) => {
            world.processes[index].at = At::Settling(Draft { manifest, stray });
        }
        Created::Ours { stray } => won(setting, world, index, Draft { manifest, stray }),
        Created::Taken => lost(setting, world, index, &manifest),
    }
}

/// Lists again: only if it is the newest does it count.
pub fn settle(setting: &Setting, world: &mut World, index: usize, draft: Draft) {
    if world.store.newest_version() == draft.manifest.version {
        won(setting, world, index, draft);
    } else {
        lost(setting, world, index, &draft.manifest);
    }
}

/// Goes on from its manifest.
fn won(setting: &Setting, world: &mut World, index: usize, Draft { manifest, stray }: Draft) {
    world.broken.add_if(stray, Fault::BelievedStray);
    world.store.prune(setting.bounds.kept);
    let covered = world.store.record(&manifest).unwrap_or_default().covered();
    let process = &mut world.processes[index];
    (process.head, process.dirty) = (Some(manifest), false);
    process.at = match manifest.kind {
        Kind::Open => {
            process.epoch = manifest.epoch;
            (process.folds, process.commits) = (setting.bounds.folds, setting.bounds.commits);
            (process.first_list, process.tries) = (None, 0);
            let planned = *process.planned_from.get_or_insert(process.record.covered());
            world
                .broken
                .add_if(!setting.bounds.stale_plans && !planned.without(covered).is_empty(), Fault::SkippedUndone);
            At::Holding
        }
        Kind::Intent => publication(setting, &manifest.commits),
        Kind::Withdraw if process.role == Role::Operator && !setting.rules.has(Rule::OwnEpoch) => {
            return process.end(End::Closed);
        }
        Kind::Close => return process.end(End::Closed),
        Kind::Fold | Kind::Done | Kind::Void | Kind::Withdraw => At::Holding,
    };
}

/// Begins to bring the open intent of `commits` into the sink.
pub fn publication(setting: &Setting, commits: &Commits) -> At {
    publish(setting, commits.open.unwrap_or_default(), commits.leaving)
}

/// Begins to bring `set` into the sink, and to take `leaving` out.
pub fn publish(setting: &Setting, set: SealSet, leaving: SealSet) -> At {
    let step = match setting.bounds.sink {
        SinkKind::Table => PublishStep::Load,
        SinkKind::Directory => PublishStep::Guard,
    };
    At::Publishing(Publication { set, missing: SealSet::default(), leaving, step })
}

/// Another one has the version, or the chain went on: an opener starts over, a holder is fenced for good.
fn lost(setting: &Setting, world: &mut World, index: usize, mine: &Manifest) {
    let newest = world.store.newest().copied();
    let process = &mut world.processes[index];
    process.tries += 1;
    let again = process.tries < setting.bounds.tries;
    if mine.kind == Kind::Open {
        return if again { process.at = At::Reading } else { process.end(End::Busy) };
    }
    let goes_on = again && !setting.rules.has(Rule::LostCreateFences);
    match newest.filter(|newest| goes_on && newest.epoch == mine.epoch) {
        // It is still its own epoch, it thinks, and writes after it what it meant to write.
        Some(newest) => {
            (process.head, process.dirty) = (Some(newest), true);
            let commits = match mine.kind {
                Kind::Intent => {
                    let (open, leaving) = (mine.commits.open, mine.commits.leaving);
                    Commits { last: newest.commits.last + 1, open, leaving, ..newest.commits }
                }
                Kind::Done => Commits { done: mine.commits.done, ..newest.commits.closed() },
                Kind::Void => newest.commits.closed(),
                _ => newest.commits,
            };
            draft_with(process, mine.kind, commits, setting);
        }
        None => process.end(End::Fenced),
    }
}
