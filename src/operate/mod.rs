//! Operators' verbs: what a person changes in a store, each under an epoch of its own.
//!
//! Each verb has a plan that is made by reading and says what it will do, and an act on a won epoch
//! ([`ObjectCheckpointStore::operate`]) that does exactly that, or refuses when the store has changed meanwhile.

mod bless;
mod forget;
mod gc;
mod rebase;
mod repair;

use crate::error::{Error, Result};
use crate::identity::Root;
use crate::run::{BeginOptions, Run, Wait};
use crate::sink::Sink;
use crate::store::{Lease, Manifest, ObjectCheckpointStore};

pub use bless::{Blessing, bless_plan, bless_table_plan};
pub use forget::{ForgetPlan, Forgotten, ForgottenRows, Selection};
pub use gc::Garbage;
pub use rebase::Rebase;
pub use repair::{Lost, Repair};

impl ObjectCheckpointStore {
    /// Wins an epoch for an operator's verb: with the sources and the destination that the store has.
    ///
    /// # Errors
    /// As [`begin`](Self::begin); [`Invalid`](crate::ErrorKind::Invalid) when there is no store: a verb never makes one;
    /// [`Refused`](crate::ErrorKind::Refused) when the store was at another place when it last worked.
    pub async fn operate(&self, wait: Wait, lease: Lease) -> Result<Run> {
        let Some(head) = self.newest().await? else { return Err(no_store(self)) };
        self.check_place(&head.manifest)?;
        self.operate_anywhere(wait, lease).await
    }

    /// As [`operate`](Self::operate), also for a store that was moved: this epoch makes the new place its own.
    ///
    /// # Errors
    /// As [`operate`](Self::operate), but for the place.
    pub async fn operate_anywhere(&self, wait: Wait, lease: Lease) -> Result<Run> {
        let Some(head) = self.newest().await? else { return Err(no_store(self)) };
        let (sources, sink) = (head.manifest.sources, head.manifest.sink);
        self.begin(BeginOptions { sources, sink, wait, lease }).await
    }
}

impl ObjectCheckpointStore {
    /// A copy of a store has the same destination as the store itself: what it says there is not to be acted on.
    fn check_place(&self, manifest: &Manifest) -> Result<()> {
        let (recorded, here) = (&manifest.endpoint, self.endpoint());
        let resolved = |place: &str| Root::parse(place).ok().filter(Root::is_local).map(|root| root.resolved());
        if recorded.is_empty()
            || *recorded == here
            || resolved(recorded).is_some_and(|root| Some(root) == resolved(&here))
        {
            return Ok(());
        }
        Err(Error::refused(format!("this store was at {recorded} when it last worked, and is a copy or was moved"))
            .at(self.root())
            .safe("nothing was changed in the store or the destination")
            .way("if it is a copy: give the store itself")
            .way("if it was moved: lakemark rebase JOB (or --store URL)"))
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

/// Only what is under the recorded roots is ever removed.
fn check_sink(store: &ObjectCheckpointStore, manifest: &Manifest, sink: Option<&dyn Sink>) -> Result<()> {
    let Some(given) = sink.map(Sink::binding) else { return Ok(()) };
    match &manifest.sink {
        Some(recorded) if recorded.kind == given.kind && recorded.root == given.root => Ok(()),
        recorded => {
            let refused = Error::refused(format!("the store does not belong to {} {}", given.kind, given.root))
                .at(store.root())
                .safe("nothing was removed");
            Err(match recorded {
                Some(recorded) => refused
                    .way(format!("give the destination that the store belongs to: {} {}", recorded.kind, recorded.root))
                    .way("if that was moved, whole: lakemark rebase JOB"),
                None => refused.way("give the store without a destination: it has none"),
            })
        }
    }
}

/// As [`check_sink`], and what is there says that it belongs to the store, too: another directory at its place, or one that
/// is not mounted, is not changed.
async fn check_bound(store: &ObjectCheckpointStore, manifest: &Manifest, sink: &dyn Sink) -> Result<()> {
    check_sink(store, manifest, Some(sink))?;
    let refused = |what: String| {
        Error::refused(what).at(sink.binding().root).safe("nothing was changed in the store or the destination")
    };
    match sink.bound_to(manifest.store).await? {
        Some(bound) if bound == manifest.store => Ok(()),
        Some(bound) => Err(refused(format!("the destination belongs to store {bound}, which is not the one given"))
            .way("give the destination that the store belongs to")),
        None if manifest.commits.last == 0 => Ok(()),
        // A format that forgets markers: the table itself tells.
        None if !sink.keeps_files() && is_the_same(manifest, sink).await? => Ok(()),
        None => Err(refused("the destination lost its binding: is it mounted?".into())
            .way("if it is the right one: lakemark repair JOB makes the binding again")),
    }
}

/// Whether the table is the one that the store wrote to.
async fn is_the_same(manifest: &Manifest, sink: &dyn Sink) -> Result<bool> {
    let now = sink.table(manifest.store).await?;
    Ok(manifest.table.as_ref().is_some_and(|left| now.is_some_and(|now| now.id == left.id)))
}
