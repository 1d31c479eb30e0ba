//! What a later run makes of a state: the part of the law that says that nothing is lost.

use crate::attempt::{self, WorkerStep};
use crate::process::{self, At, Choice, End, Process, Role};
use crate::words::Atoms;
use crate::world::{Setting, World};

/// More steps than any run alone takes.
const STEPS: usize = 200;

/// Lets one more driver run alone from `world` to its end, without faults; how it ended, and what there is then.
///
/// `None`: it came to no end.
pub fn run_alone(setting: &Setting, world: &World) -> Option<(End, World)> {
    let mut world = world.clone();
    (world.losses, world.harms, world.retries) = (0, 0, 0);
    let index = world.processes.len();
    world.processes.push(Process { at: At::Reading, ..Process::new(Role::Driver, index as u8) });
    let mut setting = *setting;
    setting.bounds.commits = 1;
    for _ in 0..STEPS {
        if let At::Ended(end) = world.processes[index].at {
            return Some((end, world));
        }
        let epoch = world.processes[index].epoch;
        if let Some(step) = next_of_workers(&world, epoch) {
            attempt::step(&setting, &mut world, step);
        } else {
            let choice = process::choices(&setting, &world, index).first().copied().unwrap_or(Choice::Go);
            process::step(&setting, &mut world, index, choice);
        }
    }
    None
}

/// What the workers of the epoch are to do before its driver goes on.
fn next_of_workers(world: &World, epoch: u8) -> Option<WorkerStep> {
    let mut steps = Vec::new();
    attempt::steps(world, &mut steps);
    steps.into_iter().find(|step| match step {
        WorkerStep::Write(task) | WorkerStep::Seal(task, _) => task.epoch == epoch,
        _ => false,
    })
}

/// Whether the output holds every atom of the source exactly once.
pub fn is_complete(setting: &Setting, world: &World) -> bool {
    let mut seen = Atoms::NONE;
    for file in world.sink.visible() {
        if seen.overlaps(file.atoms) {
            return false;
        }
        seen = seen.and(file.atoms);
    }
    seen == Atoms::first(setting.bounds.atoms)
}
