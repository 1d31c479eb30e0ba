//! Looks at each durable step as it happens, as the predicates in the code do before each write. What it finds broken is
//! kept in the state, where the properties read it.

use crate::objects::{Decision, Kind, Manifest, OutputFile, Record, Row, Seal};
use crate::words::SealId;
use crate::world::World;

/// What a step can break. The numbers are those of the design's invariants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fault {
    /// I1: something was decided from a manifest on a name that had been pruned.
    BelievedStray,
    /// I2: a seal lists something else than its durable output holds.
    InexactSeal,
    /// I4: a seal of another epoch was folded.
    FoldedForeign,
    /// I6: an intent, its end or its number is out of order, or `done` came before its files were visible.
    CommitOutOfOrder,
    /// I7: a commit has a checkpoint that does not wait for one.
    CommittedTwice,
    /// I8: a version, an epoch or a decision does not follow from the one before.
    ChainBroken,
    /// I8: two writers in one epoch.
    TwoWriters,
    /// I9: something was deleted that counts.
    DeletedLive,
    /// I10: a plan skips what is not done.
    SkippedUndone,
}

/// A set of faults.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Broken(u16);

impl Broken {
    /// Adds `fault` if `is` so.
    pub fn add_if(&mut self, is: bool, fault: Fault) {
        if is {
            self.0 |= 1 << fault as u8;
        }
    }

    /// Whether `fault` was seen.
    pub fn has(self, fault: Fault) -> bool {
        self.0 & (1 << fault as u8) != 0
    }
}

/// A manifest became the newest.
pub fn appended(world: &mut World, before: Option<&Manifest>, new: &Manifest) {
    let (version, epoch, commits) = before.map_or_else(Default::default, |m| (m.version, m.epoch, m.commits));
    let opens = new.kind == Kind::Open;
    let follows = new.version == version + 1
        && new.parent == before.map(Manifest::digest)
        && new.epoch == epoch + u8::from(opens)
        && new.commits.last >= commits.last;
    let other_writer = !opens && before.is_some_and(|m| m.writer != new.writer);
    let old = before.and_then(|m| world.store.record(m)).unwrap_or_default();
    // That its segment is there is a property of states.
    let now = world.store.record(new).unwrap_or_else(|| old.clone());

    let broken = &mut world.broken;
    broken.add_if(!follows || !keeps_decisions(&old, &now), Fault::ChainBroken);
    broken.add_if(other_writer, Fault::TwoWriters);
    let foreign = now.0.iter().any(|row| old.row(row.seal).is_none() && row.seal.epoch != epoch);
    broken.add_if(foreign, Fault::FoldedForeign);

    let legal = match new.kind {
        Kind::Intent => commits.open.is_none() && new.commits.last == commits.last + 1,
        Kind::Done | Kind::Void => commits.open.is_some() && new.commits.open.is_none(),
        _ => commits == new.commits,
    };
    broken.add_if(!legal, Fault::CommitOutOfOrder);
    match (new.kind, new.commits.open) {
        (Kind::Intent, Some(set)) => {
            let waits = |id: SealId| now.pending(&commits).has(id);
            let leaves = |id: SealId| commits.done.has(id);
            let legal = set.iter().all(waits) && new.commits.leaving.iter().all(leaves);
            world.broken.add_if(!legal, Fault::CommittedTwice);
            world.intents.push(set);
        }
        (Kind::Done, _) => {
            let visible = |row: &Row| world.sink.visible().any(|file| file.is_of(row));
            let news = new.commits.done.without(commits.done);
            let all = news.iter().all(|id| now.row(id).is_some_and(visible));
            world.broken.add_if(!all, Fault::CommitOutOfOrder);
        }
        _ => {}
    }
}

/// Whether every decision stays, or turns from accepted into withdrawn.
fn keeps_decisions(old: &Record, new: &Record) -> bool {
    old.0.iter().all(|was| {
        new.row(was.seal).is_some_and(|is| {
            let stays = is.decision == was.decision;
            let ends = was.decision == Decision::Accepted && is.decision == Decision::Withdrawn;
            (is.attempt, is.covers) == (was.attempt, was.covers) && (stays || ends)
        })
    })
}

/// A seal was created. One of an older epoch is void, whatever it says.
pub fn sealed(world: &mut World, seal: &Seal) {
    if seal.id.epoch != world.store.epoch() || seal.attempt.is_none() {
        return;
    }
    let own = |file: &&OutputFile| (file.seal, Some(file.attempt)) == (seal.id, seal.attempt);
    let exact = world.staged.iter().find(own).is_some_and(|file| file.atoms == seal.covers);
    let harmed = seal.attempt.is_some_and(|attempt| world.harmed.contains(&(seal.id, attempt)));
    world.broken.add_if(!exact && !harmed, Fault::InexactSeal);
}

/// `file` is about to be deleted.
pub fn deletes_file(world: &mut World, file: &OutputFile) {
    let counts = counting(world).contains(&(file.seal, file.attempt));
    world.broken.add_if(counts, Fault::DeletedLive);
}

/// The seal `id` is about to be deleted.
pub fn deletes_seal(world: &mut World, id: SealId) {
    let current = id.epoch == world.store.epoch();
    world.broken.add_if(current, Fault::DeletedLive);
}

/// The checkpoints that count: accepted ones of the newest manifest, and loose seals of its epoch that would be.
pub fn counting(world: &World) -> Vec<(SealId, u8)> {
    let epoch = world.store.epoch();
    let mut record = newest_record(world);
    world.store.seals.iter().filter(|seal| seal.id.epoch == epoch).for_each(|seal| record.decide(seal, false));
    // What leaves by the open intent may be out already.
    let leaving = world.store.newest().map(|newest| newest.commits.leaving).unwrap_or_default();
    record.live().filter(|row| !leaving.has(row.seal)).map(|row| (row.seal, row.attempt)).collect()
}

/// The decisions that the newest manifest names.
pub fn newest_record(world: &World) -> Record {
    world.store.newest().and_then(|newest| world.store.record(newest)).unwrap_or_default()
}
