//! Garbage collection: list, get, list again, then delete by exact name what is proven dead.

use crate::bounds::SinkKind;
use crate::monitor::{self, Fault};
use crate::objects::{Decision, Digest, Manifest, OutputFile, Record};
use crate::rules::Rule;
use crate::words::SealId;
use crate::world::{Setting, World};

/// Something that can be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Garbage {
    /// A segment.
    Segment(Digest),
    /// A seal.
    Seal(SealId),
    /// A staged output file.
    File(SealId, u8),
}

/// How far a collection is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Collector {
    /// There is none at the moment.
    Idle,
    /// It has listed the manifests.
    Listed(Vec<u8>),
    /// It has read them and the objects' names, and decided.
    Read {
        /// What was the newest version.
        newest: u8,
        /// What is to go.
        garbage: Vec<Garbage>,
        /// Whether the manifest that it decided from is off the chain.
        stray: bool,
    },
    /// It deletes, one by one.
    Deleting {
        /// What is left to delete.
        garbage: Vec<Garbage>,
        /// As above.
        stray: bool,
    },
}

/// Whether the collection has a step left.
pub fn can_step(world: &World) -> bool {
    world.collector != Collector::Idle || (world.collections > 0 && !world.store.manifests.is_empty())
}

/// Lets its next step happen.
pub fn step(setting: &Setting, world: &mut World) {
    world.collector = match std::mem::replace(&mut world.collector, Collector::Idle) {
        Collector::Idle => {
            world.collections -= 1;
            Collector::Listed(world.store.manifests.iter().map(|kept| kept.manifest.version).collect())
        }
        Collector::Listed(versions) => read(setting, world, &versions),
        Collector::Read { newest, garbage, stray } => {
            // A manifest that was read can have been created again on a pruned name, unless the newest is still that one.
            let same = world.store.newest_version() == newest || !setting.rules.has(Rule::ListAgainBeforeDelete);
            if same && !garbage.is_empty() { Collector::Deleting { garbage, stray } } else { Collector::Idle }
        }
        Collector::Deleting { mut garbage, stray } => {
            if let Some(one) = garbage.pop() {
                world.broken.add_if(stray, Fault::BelievedStray);
                delete(world, one);
            }
            if garbage.is_empty() { Collector::Idle } else { Collector::Deleting { garbage, stray } }
        }
    };
}

fn read(setting: &Setting, world: &World, versions: &[u8]) -> Collector {
    let mut found = world.store.manifests.iter().filter(|kept| versions.contains(&kept.manifest.version));
    let manifests: Vec<Manifest> = found.clone().map(|kept| kept.manifest).collect();
    let (Some(last), Some(&newest)) = (found.next_back(), versions.last()) else { return Collector::Idle };
    // The newest one was pruned meanwhile: this collection leaves it at that.
    if last.manifest.version != newest {
        return Collector::Idle;
    }
    let Some(record) = world.store.record(&last.manifest) else { return Collector::Idle };
    let garbage = if setting.rules.has(Rule::ProvenGarbage) {
        proven(setting, world, &manifests, &last.manifest, &record)
    } else {
        unnamed(world, &manifests, &record)
    };
    Collector::Read { newest, garbage, stray: last.stray }
}

/// What is proven dead.
fn proven(setting: &Setting, world: &World, read: &[Manifest], newest: &Manifest, record: &Record) -> Vec<Garbage> {
    let names = |segment: &Digest| read.iter().any(|manifest| manifest.segment == Some(*segment));
    let segments = world.store.segments.iter().map(|(name, _)| *name);
    let superseded = segments.filter(|name| name.version <= newest.version && !names(name)).map(Garbage::Segment);
    let seals = world.store.seals.iter().map(|seal| seal.id).filter(|id| id.epoch < newest.epoch).map(Garbage::Seal);
    let dead = |file: &&OutputFile| is_dead(setting, world, newest, record, file);
    let files = world.staged.iter().filter(dead).map(|file| Garbage::File(file.seal, file.attempt));
    superseded.chain(seals).chain(files).collect()
}

fn is_dead(setting: &Setting, world: &World, newest: &Manifest, record: &Record, file: &OutputFile) -> bool {
    let row = record.row(file.seal).filter(|row| file.is_of(row));
    let beaten = world.store.seal(file.seal).is_some_and(|seal| seal.attempt != Some(file.attempt));
    match row.map(|row| row.decision) {
        Some(Decision::Accepted) => beaten && !setting.rules.has(Rule::LiveIsNotGarbage),
        // An intent on a table may have named it, and a reader of the table may still be at it.
        Some(Decision::Withdrawn) => setting.bounds.sink == SinkKind::Directory,
        Some(Decision::Rejected) => true,
        None => beaten || file.seal.epoch < newest.epoch,
    }
}

/// What no state names, however young: what deciding by age comes to, since a stall can be longer than any age.
fn unnamed(world: &World, read: &[Manifest], record: &Record) -> Vec<Garbage> {
    let names = |segment: &Digest| read.iter().any(|manifest| manifest.segment == Some(*segment));
    let segments = world.store.segments.iter().map(|(name, _)| *name).filter(|name| !names(name));
    let named = |file: &OutputFile| record.live().any(|row| file.is_of(row));
    let files = world.staged.iter().filter(|file| !named(file));
    segments.map(Garbage::Segment).chain(files.map(|file| Garbage::File(file.seal, file.attempt))).collect()
}

fn delete(world: &mut World, one: Garbage) {
    match one {
        // Whether a manifest needs it is a property of states.
        Garbage::Segment(name) => world.store.segments.retain(|(other, _)| *other != name),
        Garbage::Seal(id) => {
            monitor::deletes_seal(world, id);
            world.store.seals.retain(|seal| seal.id != id);
        }
        Garbage::File(seal, attempt) => {
            let is = |file: &OutputFile| (file.seal, file.attempt) == (seal, attempt);
            if let Some(file) = world.staged.iter().find(|file| is(file)).copied() {
                monitor::deletes_file(world, &file);
                world.staged.retain(|file| !is(file));
            }
        }
    }
}
