//! What a simulation came to: so that a thousand quiet seeds cannot pass for a thousand hard ones.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use crate::world::lock;

macro_rules! situations {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Something that a simulation must come to in some seeds.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Situation {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Situation {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];
        }
    };
}

situations! {
    /// A request was done, and its answer lost.
    LostAnswer,
    /// A request failed and was not done.
    FailedRequest,
    /// A request was refused: too many.
    Throttled,
    /// A read ended early.
    TornRead,
    /// A request was given up by who asked, and done much later.
    LateRequest,
    /// A process was cut off from the store for a while.
    Partition,
    /// A process was stopped for a while, and then went on.
    Stopped,
    /// A driver was killed.
    DriverKilled,
    /// A worker was killed.
    WorkerKilled,
    /// An epoch was opened while another one was held.
    Takeover,
    /// A driver was told that another one is live.
    Busy,
    /// A holder found itself fenced.
    Fenced,
    /// A write ended without a known outcome.
    Indeterminate,
    /// A manifest was created after a higher one, under a name that was free again.
    PrunedName,
    /// Two writers wanted the same version of the chain.
    LostCreate,
    /// A segment was written that no manifest names: its writer was overtaken or killed.
    OrphanSegment,
    /// A seal was written in an epoch that was fenced.
    ZombieSeal,
    /// Two attempts of one task: the second one found the seal of the first.
    LostSeal,
    /// A task's name was taken by the driver, and its atoms planned under another id.
    Voided,
    /// The driver wanted to take a task's name, and found it sealed.
    VoidFoundSeal,
    /// A zombie worker found its task void.
    FoundVoid,
    /// A seal over atoms that were covered already was rejected.
    Rejected,
    /// An output file was gone at its commit: its checkpoint was withdrawn, its atoms done again.
    Withdrawn,
    /// A commit was finished by a successor of who decided it.
    FinishedCommit,
    /// An upload was completed by another process than the one that records it.
    FoundVisible,
    /// A file changed between planning and reading.
    Changed,
    /// A file was gone when it was read.
    Vanished,
    /// A replaced file was done again.
    Replaced,
    /// A file had the same content under another token.
    Moved,
    /// The rest of a partly done file was done.
    PartlyDone,
    /// Fresh modification times were settled by reading.
    Settled,
    /// A worker left out atoms that were done.
    Skipped,
    /// An operator changed the state in an epoch of its own.
    Operated,
    /// An operator removed garbage.
    Collected,
    /// An operator made work undone that was not committed.
    Forgotten,
    /// An operator took committed output out of the destination.
    Retracted,
    /// A retraction was ended by a successor of who decided it.
    EndedRetraction,
    /// A run found nothing to do, and wrote nothing.
    Nothing,
}

/// What one simulation came to.
#[derive(Clone, Default)]
pub(crate) struct Seen(Arc<Mutex<BTreeSet<Situation>>>);

impl Seen {
    pub(crate) fn note(&self, situation: Situation) {
        lock(&self.0).insert(situation);
    }

    pub(crate) fn all(&self) -> BTreeSet<Situation> {
        lock(&self.0).clone()
    }
}
