//! Operators' verbs: what a person changes in a store, each under an epoch of its own.
//!
//! Each verb has a plan that is made by reading and says what it will do, and an act on a won epoch
//! ([`ObjectCheckpointStore::operate`]) that does exactly that, or refuses when the store has changed meanwhile.

mod bless;
mod forget;
mod gc;
mod rebase;

use crate::error::{Error, Result};
use crate::run::{BeginOptions, Run, Wait};
use crate::store::{Lease, ObjectCheckpointStore};

pub use bless::{Blessing, bless_plan};
pub use forget::{ForgetPlan, Forgotten, Selection};
pub use gc::Garbage;
pub use rebase::Rebase;

impl ObjectCheckpointStore {
    /// Wins an epoch for an operator's verb: with the sources and the destination that the store has.
    ///
    /// # Errors
    /// As [`begin`](Self::begin); [`Invalid`](crate::ErrorKind::Invalid) when there is no store: a verb never makes one.
    pub async fn operate(&self, wait: Wait, lease: Lease) -> Result<Run> {
        let Some(head) = self.newest().await? else { return Err(no_store(self)) };
        let (sources, sink) = (head.manifest.sources, head.manifest.sink);
        self.begin(BeginOptions { sources, sink, wait, lease }).await
    }
}

fn no_store(store: &ObjectCheckpointStore) -> Error {
    Error::invalid("there is no store here")
        .at(store.root())
        .safe("nothing was changed")
        .way("check the path of the store")
}

/// The refusal to do other things than a person was shown.
fn changed(store: &ObjectCheckpointStore) -> Error {
    Error::refused("the store changed since it was looked at")
        .at(store.root())
        .safe("nothing was changed")
        .way("look again, and decide again")
}
