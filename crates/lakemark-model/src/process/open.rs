//! Winning an epoch: read the state, fold the loose seals of the epoch before, create the manifest that fences it.

use super::append::{self, gather};
use super::{At, End, Role};
use crate::objects::Kind;
use crate::rules::Rule;
use crate::words::Atoms;
use crate::world::{Setting, World};

/// Lists the manifests and reads the newest one with its segment, which never change.
pub fn read(world: &mut World, index: usize) {
    let head = world.store.newest().copied();
    let record = head.map_or_else(|| Some(Default::default()), |head| world.store.record(&head));
    let process = &mut world.processes[index];
    let Some(record) = record else { return process.end(End::Corrupt) };
    (process.head, process.record, process.dirty) = (head, record, false);
    process.at = At::Listing;
}

/// Lists the loose seals of the epoch that was read and decides them. Ends here when there is nothing to do.
pub fn list(setting: &Setting, world: &mut World, index: usize) {
    let Setting { bounds, rules } = setting;
    let epoch = world.processes[index].head.map_or(0, |head| head.epoch);
    let again = rules.has(Rule::ListSealsAgain);
    if !again && world.processes[index].first_list.is_none() {
        let listed = world.store.seals.iter().filter(|seal| seal.id.epoch == epoch).copied().collect();
        world.processes[index].first_list = Some(listed);
    }
    gather(setting, world, index, epoch);
    let undone = Atoms::first(bounds.atoms).without(world.processes[index].record.covered());
    let process = &mut world.processes[index];
    if bounds.stale_plans && process.planned_from.is_none() {
        process.planned_from = Some(process.record.covered());
    }
    let Some(head) = process.head else {
        return match process.role {
            Role::Driver => append::draft(process, Kind::Open, setting),
            Role::Operator => process.end(End::Nothing),
        };
    };
    let unfinished = head.commits.open.is_some() || !process.pending().is_empty();
    match process.role {
        Role::Driver if undone.is_empty() && !unfinished => return process.end(End::Nothing),
        Role::Operator if !unfinished && (!bounds.retracts || head.commits.done.is_empty()) => {
            return process.end(End::Nothing);
        }
        Role::Operator if !rules.has(Rule::OwnEpoch) => {
            (process.epoch, process.at) = (head.epoch, At::Holding);
            return;
        }
        _ => {}
    }
    append::draft(process, Kind::Open, setting);
}
