//! A step in words, so that a counterexample can be read.

use crate::model::Action;
use crate::process::{At, Choice, Role};
use crate::world::World;

/// What `action` is, in the state that it happens in.
pub fn tell(world: &World, action: &Action) -> String {
    match action {
        Action::Process(index, choice) => {
            let process = &world.processes[*index];
            let who = if process.role == Role::Driver { "driver" } else { "operator" };
            format!("{who} {index}: {}", tell_process(process.at, *choice))
        }
        Action::Worker(step) => format!("worker: {step:?}"),
        Action::Collector => format!("collector: after {:?}", world.collector),
        Action::Land(late) => format!("store: {:?} lands", world.store.late[*late]),
        Action::Damage(seal, attempt) => format!("disk: the file of {seal:?}, attempt {attempt}, is damaged"),
        Action::Lose(seal, attempt) => format!("disk: the file of {seal:?}, attempt {attempt}, vanishes"),
    }
}

fn tell_process(at: At, choice: Choice) -> String {
    let answer = if choice == Choice::Unanswered { ", unanswered" } else { "" };
    match at {
        At::Start | At::Reading => "reads the newest manifest".to_owned(),
        At::Listing => "lists the loose seals".to_owned(),
        At::Writing(manifest) => format!("writes the segment for manifest {}", manifest.version),
        At::Creating(manifest) => {
            let (version, kind, epoch) = (manifest.version, manifest.kind, manifest.epoch);
            format!("creates manifest {version}, {kind:?} in epoch {epoch}{answer}")
        }
        At::Settling(draft) => format!("lists again after manifest {}", draft.manifest.version),
        At::Holding => format!("{choice:?}"),
        At::Publishing(publication) if choice == Choice::GiveUp => format!("{:?}, giving up", publication.step),
        At::Publishing(publication) => format!("{:?}{answer}", publication.step),
        At::Ended(end) => format!("{end:?}"),
    }
}
