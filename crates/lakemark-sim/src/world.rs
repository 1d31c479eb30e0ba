//! What all actors share: the objects, the trace, the complaints. Nobody reaches past a [`Handle`](crate::handle::Handle)
//! but the auditor and the lake itself.

use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::chance::Chance;
use crate::lake::Truth;
use crate::objects::Objects;
use crate::scenario::Scenario;
use crate::situations::{Seen, Situation};
use crate::trace::Trace;

/// One simulated world.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) scenario: Arc<Scenario>,
    pub(crate) objects: Arc<Mutex<Objects>>,
    pub(crate) truth: Arc<Mutex<Truth>>,
    pub(crate) trace: Trace,
    pub(crate) seen: Seen,
    complaints: Arc<Mutex<Vec<String>>>,
}

impl World {
    /// An empty world for `scenario`.
    pub(crate) fn new(scenario: Scenario, kept_trace: bool) -> Self {
        let seen = Seen::default();
        Self {
            objects: Arc::new(Mutex::new(Objects::new(scenario.tokens, seen.clone()))),
            scenario: Arc::new(scenario),
            truth: Arc::default(),
            trace: Trace::new(kept_trace),
            seen,
            complaints: Arc::default(),
        }
    }

    /// The same world with the objects as they are now: nobody else changes them.
    pub(crate) fn still(&self) -> Self {
        Self { objects: Arc::new(Mutex::new(lock(&self.objects).clone())), ..self.clone() }
    }

    /// The stream of random numbers of `name`.
    pub(crate) fn chance(&self, name: &str) -> Chance {
        Chance::of(self.scenario.seed, name)
    }

    /// Lets `actor` do something to the objects, and hears what the watch says of it.
    pub(crate) fn with_objects<T>(&self, actor: &str, act: impl FnOnce(&mut Objects) -> T) -> T {
        let mut objects = lock(&self.objects);
        objects.now_ns = crate::simulation::EPOCH_NS + self.trace.elapsed().as_nanos() as i64;
        let done = act(&mut objects);
        let said = objects.watch.take_complaints();
        drop(objects);
        said.into_iter().for_each(|what| self.complain(actor, what));
        done
    }

    /// The highest manifest version and epoch that were ever created.
    pub(crate) fn highest(&self) -> (u64, u64) {
        let objects = lock(&self.objects);
        (objects.watch.highest_version, objects.watch.highest_epoch)
    }

    pub(crate) fn say(&self, actor: &str, what: impl Display) {
        self.trace.say(actor, what);
    }

    pub(crate) fn note(&self, situation: Situation) {
        self.seen.note(situation);
    }

    /// Records that the law was broken, as `actor` found.
    pub(crate) fn complain(&self, actor: &str, what: impl Display) {
        self.say(actor, format!("COMPLAINT: {what}"));
        lock(&self.complaints).push(format!("{actor}: {what}"));
    }

    pub(crate) fn complaints(&self) -> Vec<String> {
        lock(&self.complaints).clone()
    }
}

/// What a panic left behind is still there.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
