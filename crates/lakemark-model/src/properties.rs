//! What must hold in every state. The numbers are those of the design's invariants.

use stateright::Property;

use crate::attempt::Stage;
use crate::model::Protocol;
use crate::monitor::{self, Fault, newest_record};
use crate::objects::{Decision, OutputFile, Row};
use crate::process::End;
use crate::recovery::{is_complete, run_alone};
use crate::sink::Sink;
use crate::words::{Atoms, SealId};
use crate::world::World;

/// The names of what must hold.
pub mod name {
    #![allow(missing_docs, reason = "each is its own text")]
    pub const I1: &str = "I1 nothing is decided from a manifest on a pruned name";
    pub const I2: &str = "I2 a seal lists exactly what its durable output holds";
    pub const I3: &str = "I3 in the newest epoch one attempt of a task has its seal";
    pub const I4: &str = "I4 only loose seals of the newest epoch are folded";
    pub const I5: &str = "I5 no atom is covered by two live checkpoints";
    pub const I5_SEALS: &str = "I5 no atom is sealed under two ids of one epoch";
    pub const I6: &str = "I6 the sink holds what an intent names, and nothing else";
    pub const I6_ORDER: &str = "I6 intent, sink, done, in this order";
    pub const I7: &str = "I7 a commit takes checkpoints that wait for one";
    pub const I8: &str = "I8 the chain is one line, and what it decided stays";
    pub const I8_WRITER: &str = "I8 an epoch has one writer";
    pub const I9: &str = "I9 what counts is not deleted";
    pub const I9_THERE: &str = "I9 what counts is there";
    pub const I10: &str = "I10 what a plan skips is done";
    pub const ONCE: &str = "law: no atom is in the output twice";
    pub const COMMITTED: &str = "law: what is called committed is in the output";
    pub const COUNTED: &str = "law: what is in the output counts";
    pub const COMPLETE: &str = "law: one more run, alone, completes the output";
}

type Condition = fn(&Protocol, &World) -> bool;

/// Everything that must hold.
pub fn must_hold() -> Vec<Property<Protocol>> {
    let conditions: [(&'static str, Condition); 18] = [
        (name::I1, |_, world| !world.broken.has(Fault::BelievedStray)),
        (name::I2, |_, world| !world.broken.has(Fault::InexactSeal)),
        (name::I3, |_, world| one_sealed(world)),
        (name::I4, |_, world| !world.broken.has(Fault::FoldedForeign)),
        (name::I5, |_, world| disjoint(newest_record(world).live().map(|row| row.covers))),
        (name::I5_SEALS, |_, world| no_two_ids(world)),
        (name::I6, |_, world| sink_is_of_intents(world)),
        (name::I6_ORDER, |_, world| !world.broken.has(Fault::CommitOutOfOrder)),
        (name::I7, |_, world| !world.broken.has(Fault::CommittedTwice)),
        (name::I8, |_, world| !world.broken.has(Fault::ChainBroken)),
        (name::I8_WRITER, |_, world| !world.broken.has(Fault::TwoWriters)),
        (name::I9, |_, world| !world.broken.has(Fault::DeletedLive)),
        (name::I9_THERE, |_, world| all_there(world)),
        (name::I10, |_, world| !world.broken.has(Fault::SkippedUndone)),
        (name::ONCE, |_, world| disjoint(world.sink.visible().map(|file| file.atoms))),
        (name::COMMITTED, |_, world| committed_is_there(world)),
        (name::COUNTED, |_, world| visible_counts(world)),
        (name::COMPLETE, completes),
    ];
    conditions.map(|(name, condition)| Property::always(name, condition)).into()
}

fn one_sealed(world: &World) -> bool {
    let epoch = world.store.epoch();
    let sealed = world.attempts.iter().filter(|a| a.task.epoch == epoch && a.stage == Stage::Sealed);
    let tasks: Vec<SealId> = sealed.map(|attempt| attempt.task).collect();
    tasks.windows(2).all(|pair| pair[0] != pair[1])
}

fn disjoint(sets: impl IntoIterator<Item = Atoms>) -> bool {
    let mut seen = Atoms::NONE;
    sets.into_iter().all(|atoms| {
        let free = !seen.overlaps(atoms);
        seen = seen.and(atoms);
        free
    })
}

fn no_two_ids(world: &World) -> bool {
    let epoch = world.store.epoch();
    disjoint(world.store.seals.iter().filter(|seal| seal.id.epoch == epoch).map(|seal| seal.covers))
}

fn sink_is_of_intents(world: &World) -> bool {
    let is_intent = |n: u8, files: &[OutputFile]| {
        let set = world.intents.get(usize::from(n).wrapping_sub(1));
        set.is_some_and(|set| *set == files.iter().map(|file| file.seal).collect())
    };
    match &world.sink {
        Sink::Directory(files) => files.iter().all(|file| world.intents.iter().any(|set| set.has(file.seal))),
        Sink::Table(log) => log.iter().enumerate().all(|(i, entry)| {
            let once = log[..i].iter().all(|other| other.n != entry.n);
            once && entry.files.as_ref().is_none_or(|files| is_intent(entry.n, files))
        }),
    }
}

/// The segment of the newest manifest, and the files of checkpoints that count, unless they were harmed from outside.
fn all_there(world: &World) -> bool {
    let Some(newest) = world.store.newest() else { return true };
    let there = |key: (SealId, u8)| {
        let mut files = world.staged.iter().chain(world.sink.visible());
        world.harmed.contains(&key) || files.any(|file| (file.seal, file.attempt) == key)
    };
    world.store.record(newest).is_some() && monitor::counting(world).into_iter().all(there)
}

fn committed_is_there(world: &World) -> bool {
    let Some(newest) = world.store.newest() else { return true };
    let there = |row: &Row| {
        let mine = world.sink.visible().filter(|file| file.is_of(row));
        let atoms = mine.fold(Atoms::NONE, |all, file| all.and(file.atoms));
        row.covers.without(atoms).is_empty()
    };
    let stays = newest.commits.done.without(newest.commits.leaving);
    newest_record(world).live().filter(|row| stays.has(row.seal)).all(there)
}

fn visible_counts(world: &World) -> bool {
    let Some(newest) = world.store.newest() else { return true };
    let record = newest_record(world);
    let counts = |row: &Row| newest.commits.taken().has(row.seal) && row.decision == Decision::Accepted;
    world.sink.visible().all(|file| record.0.iter().any(|row| file.is_of(row) && counts(row)))
}

/// Nothing is lost, and nothing is stuck: what a further run makes of this state. What was harmed from outside can leave
/// a question that only a person answers.
fn completes(model: &Protocol, world: &World) -> bool {
    if !model.setting.bounds.completes {
        return true;
    }
    match run_alone(&model.setting, world) {
        Some((End::CannotDecide, _)) => !world.harmed.is_empty(),
        Some((_, after)) => is_complete(&model.setting, &after),
        None => false,
    }
}
