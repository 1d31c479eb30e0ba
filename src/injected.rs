//! Time, randomness and the process, as a simulation gives them to what runs on its thread (feature `testing`).
//!
//! With [`Injected`] in place on a thread, the core asks nothing of the machine: its clock, its nonces and ids, and the
//! holder that it records come from there, and decoding runs on this thread in its turn. Together with a store that is
//! deterministic, and a runtime of one thread, a run is then a function of a seed.
//!
//! ```
//! use lakemark::injected::Injected;
//!
//! let nonces = || {
//!     let mut last = 0u128;
//!     let random = Box::new(move || { last += 1; last });
//!     let _here = Injected { now_ns: Box::new(|| 0), random, kept_manifests: 100 }.enter();
//!     (lakemark::AttemptNonce::random(), lakemark::AttemptNonce::random())
//! };
//! assert_eq!(nonces(), nonces());
//! ```

use std::cell::RefCell;
use std::fmt;

/// What the core asks instead of the machine.
pub struct Injected {
    /// Nanoseconds since 1970.
    pub now_ns: Box<dyn Fn() -> i64>,
    /// Fresh bits for nonces and ids.
    pub random: Box<dyn FnMut() -> u128>,
    /// How many manifests are kept: with few of them their names are soon free again, as they are for a writer that
    /// slept through a long run.
    pub kept_manifests: usize,
}

impl fmt::Debug for Injected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Injected").finish_non_exhaustive()
    }
}

/// While it lives, this thread is not the machine's.
#[derive(Debug)]
#[must_use = "dropping it gives the thread back to the machine"]
pub struct Entered(());

thread_local! {
    static HERE: RefCell<Option<Injected>> = const { RefCell::new(None) };
}

impl Injected {
    /// Puts it in place on this thread.
    pub fn enter(self) -> Entered {
        HERE.set(Some(self));
        Entered(())
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        HERE.set(None);
    }
}

fn ask<T>(ask: impl FnOnce(&mut Injected) -> T) -> Option<T> {
    HERE.with_borrow_mut(|here| here.as_mut().map(ask))
}

/// Whether this thread is a simulation's.
pub(crate) fn is_here() -> bool {
    ask(|_| ()).is_some()
}

pub(crate) fn now_ns() -> Option<i64> {
    ask(|here| (here.now_ns)())
}

pub(crate) fn random() -> Option<u128> {
    ask(|here| (here.random)())
}

pub(crate) fn kept_manifests() -> Option<usize> {
    ask(|here| here.kept_manifests)
}
