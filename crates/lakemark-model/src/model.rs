//! The protocol as a `stateright` model: all actors, all their steps.

use stateright::{Model, Property};

use crate::attempt::{self, WorkerStep};
use crate::bounds::Bounds;
use crate::collector;
use crate::process::{self, Choice};
use crate::properties::must_hold;
use crate::reached::situations;
use crate::rules::Rules;
use crate::words::SealId;
use crate::world::{Setting, World};

/// The model at given bounds, under given rules.
#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    /// Bounds and rules.
    pub setting: Setting,
}

/// One step of one actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A driver or operator.
    Process(usize, Choice),
    /// A worker.
    Worker(WorkerStep),
    /// The collector of garbage.
    Collector,
    /// A late request arrives.
    Land(usize),
    /// A staged file changes its size.
    Damage(SealId, u8),
    /// A staged file vanishes.
    Lose(SealId, u8),
}

impl Protocol {
    /// The protocol at `bounds`, under `rules`.
    pub fn new(bounds: Bounds, rules: Rules) -> Self {
        Self { setting: Setting { bounds, rules } }
    }
}

impl Model for Protocol {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(&self.setting.bounds)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        for index in 0..world.processes.len() {
            let choices = process::choices(&self.setting, world, index);
            actions.extend(choices.into_iter().map(|choice| Action::Process(index, choice)));
        }
        let mut steps = Vec::new();
        attempt::steps(world, &mut steps);
        actions.extend(steps.into_iter().map(Action::Worker));
        if collector::can_step(world) {
            actions.push(Action::Collector);
        }
        actions.extend((0..world.store.late.len()).map(Action::Land));
        if world.harms > 0 {
            for file in &world.staged {
                actions.push(Action::Damage(file.seal, file.attempt));
                actions.push(Action::Lose(file.seal, file.attempt));
            }
        }
    }

    fn next_state(&self, before: &World, action: Action) -> Option<World> {
        let mut world = before.clone();
        match action {
            Action::Process(index, choice) => process::step(&self.setting, &mut world, index, choice),
            Action::Worker(step) => attempt::step(&self.setting, &mut world, step),
            Action::Collector => collector::step(&self.setting, &mut world),
            Action::Land(index) => world.land(index),
            Action::Damage(seal, attempt) => world.harm(seal, attempt, false),
            Action::Lose(seal, attempt) => world.harm(seal, attempt, true),
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        must_hold().into_iter().chain(situations(&self.setting.bounds)).collect()
    }
}
