//! Workers: attempts of tasks, each of which writes its output, seals, and perhaps finds itself beaten.
//!
//! A worker asks whether its epoch is the newest before its first row and before its seal. Those two questions save work
//! and no more, so the model has none of them: every attempt here behaves as one that asked in time and stalled then.

use crate::monitor;
use crate::objects::{OutputFile, Request, Seal};
use crate::rules::Rule;
use crate::words::{Atoms, SealId};
use crate::world::{Setting, World, insert};

/// A group of atoms that was dispatched under an input id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Task {
    /// The name of its seal.
    pub id: SealId,
    /// What was planned.
    pub atoms: Atoms,
    /// What its worker skips: done in the manifest version that the plan was made from.
    pub skips: Atoms,
}

/// How far an attempt is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Its output is durable; it is about to seal.
    Written,
    /// It has read another one's seal and has not looked at the newest epoch since.
    Beaten,
    /// It knows that it was beaten in the newest epoch: its output is nobody's.
    Discarding,
    /// It believes that its seal is there.
    Sealed,
    /// It has ended without a seal.
    Ended,
}

/// One execution of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Attempt {
    /// The task.
    pub task: SealId,
    /// Its number among the attempts of the task, which is its nonce.
    pub nonce: u8,
    /// How far it is.
    pub stage: Stage,
}

/// A step of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerStep {
    /// An attempt of the task writes its output and makes it durable.
    Write(SealId),
    /// The attempt creates its seal and gets an answer.
    Seal(SealId, u8),
    /// The attempt sends its seal; the answer is lost, and it will try again.
    SealUnanswered(SealId, u8),
    /// The beaten attempt reads the newest epoch.
    LookAgain(SealId, u8),
    /// The beaten attempt deletes its output.
    Discard(SealId, u8),
}

/// What workers can do.
pub fn steps(world: &World, steps: &mut Vec<WorkerStep>) {
    for task in &world.tasks {
        let begun = world.attempts.iter().filter(|attempt| attempt.task == task.id).count();
        if begun == 0 || world.retries > 0 {
            steps.push(WorkerStep::Write(task.id));
        }
    }
    for &Attempt { task, nonce, stage } in &world.attempts {
        match stage {
            Stage::Written => {
                steps.push(WorkerStep::Seal(task, nonce));
                if world.losses > 0 {
                    steps.push(WorkerStep::SealUnanswered(task, nonce));
                }
            }
            Stage::Beaten => steps.push(WorkerStep::LookAgain(task, nonce)),
            Stage::Discarding => steps.push(WorkerStep::Discard(task, nonce)),
            Stage::Sealed | Stage::Ended => {}
        }
    }
}

/// Lets `step` happen.
pub fn step(setting: &Setting, world: &mut World, step: WorkerStep) {
    match step {
        WorkerStep::Write(task) => write(world, task),
        WorkerStep::Seal(task, nonce) => {
            let Some(seal) = seal_of(setting, world, task, nonce) else { return };
            let exists = world.store.seal(task).is_some();
            let ours = world.put_seal(seal) && (!exists || setting.rules.has(Rule::OwnEcho));
            move_on(world, task, nonce, if ours { Stage::Sealed } else { beaten(setting) });
        }
        WorkerStep::SealUnanswered(task, nonce) => {
            if let Some(seal) = seal_of(setting, world, task, nonce) {
                world.losses -= 1;
                world.store.late.push(Request::Seal(seal));
            }
        }
        WorkerStep::LookAgain(task, nonce) => {
            let next = if world.store.epoch() == task.epoch { Stage::Discarding } else { Stage::Ended };
            move_on(world, task, nonce, next);
        }
        WorkerStep::Discard(task, nonce) => {
            let own = |file: &OutputFile| (file.seal, file.attempt) == (task, nonce);
            if let Some(file) = world.staged.iter().find(|file| own(file)).copied() {
                monitor::deletes_file(world, &file);
            }
            world.staged.retain(|file| !own(file));
            move_on(world, task, nonce, Stage::Ended);
        }
    }
}

fn beaten(setting: &Setting) -> Stage {
    if setting.rules.has(Rule::CurrentBeforeDiscard) { Stage::Beaten } else { Stage::Discarding }
}

fn write(world: &mut World, id: SealId) {
    let Some(task) = world.tasks.iter().find(|task| task.id == id) else { return };
    let nonce = world.attempts.iter().filter(|attempt| attempt.task == id).count() as u8;
    if nonce > 0 {
        world.retries -= 1;
    }
    let file = OutputFile { seal: id, attempt: nonce, atoms: task.atoms.without(task.skips), fit: true };
    insert(&mut world.staged, file);
    let at = world.attempts.partition_point(|other| (other.task, other.nonce) < (id, nonce));
    world.attempts.insert(at, Attempt { task: id, nonce, stage: Stage::Written });
}

fn seal_of(setting: &Setting, world: &World, id: SealId, nonce: u8) -> Option<Seal> {
    let task = world.tasks.iter().find(|task| task.id == id)?;
    let read = task.atoms.without(task.skips);
    let covers = if setting.rules.has(Rule::ExactCoverage) { read } else { task.atoms };
    Some(Seal { id, attempt: Some(nonce), covers })
}

fn move_on(world: &mut World, task: SealId, nonce: u8, stage: Stage) {
    let same = |attempt: &&mut Attempt| (attempt.task, attempt.nonce) == (task, nonce);
    if let Some(attempt) = world.attempts.iter_mut().find(same) {
        attempt.stage = stage;
    }
}
