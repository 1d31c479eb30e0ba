//! The rules of the design, each of which can be taken away to see what breaks.

/// A rule of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Rule {
    /// After each create of a manifest its writer lists again, and believes only in the newest.
    ListAfterCreate,
    /// A commit is decided in the chain before anything is visible.
    Intent,
    /// An intent on a table is given up only after a marker without files has landed.
    Barrier,
    /// Before atoms of a dispatched task are planned again, the driver takes the name of the task's seal.
    VoidSeal,
    /// Only what is proven dead is garbage; age proves nothing.
    ProvenGarbage,
    /// A verb that changes state opens an epoch of its own.
    OwnEpoch,
    /// Only segments that the newest manifest names are read and merged.
    NamedSegments,
    /// A manifest names the segment into which its seals were folded.
    NameTheFold,
    /// A seal lists what its attempt read, not what was planned: skipped atoms are not covered.
    ExactCoverage,
    /// A holder that loses a create is fenced, whoever has won it.
    LostCreateFences,
    /// Who loses the create of an epoch lists the seals again.
    ListSealsAgain,
    /// Only loose seals of the newest epoch count.
    CurrentSealsOnly,
    /// A seal that overlaps a live checkpoint is rejected.
    RejectOverlap,
    /// The read that proves garbage is list, get, list again.
    ListAgainBeforeDelete,
    /// What is live, in an intent or committed is never garbage, whoever holds its seal's name now.
    LiveIsNotGarbage,
    /// Before files are made visible, the newest version is read once more.
    GuardBeforePublish,
    /// An intent for a directory is never given up.
    DirectoryNeverVoid,
    /// A file is renamed first, and its target is looked at second.
    RenameFirst,
    /// A staged file that is unfit leaves staging before anything is recorded.
    UnfitAside,
    /// When the unfit file is not in staging any more, the target is looked at.
    LookAfterAside,
    /// On "it exists" the object is read back: equal content is one's own.
    OwnEcho,
    /// A beaten attempt deletes its output only if its epoch is the newest after it has read the other's seal.
    CurrentBeforeDiscard,
    /// That committed output leaves is decided in the chain before it is taken out.
    DecideLeaving,
}

impl Rule {
    /// All rules.
    pub const ALL: [Self; 23] = [
        Self::ListAfterCreate,
        Self::Intent,
        Self::Barrier,
        Self::VoidSeal,
        Self::ProvenGarbage,
        Self::OwnEpoch,
        Self::NamedSegments,
        Self::NameTheFold,
        Self::ExactCoverage,
        Self::LostCreateFences,
        Self::ListSealsAgain,
        Self::CurrentSealsOnly,
        Self::RejectOverlap,
        Self::ListAgainBeforeDelete,
        Self::LiveIsNotGarbage,
        Self::GuardBeforePublish,
        Self::DirectoryNeverVoid,
        Self::RenameFirst,
        Self::UnfitAside,
        Self::LookAfterAside,
        Self::OwnEcho,
        Self::CurrentBeforeDiscard,
        Self::DecideLeaving,
    ];
}

/// The rules that are followed.
#[derive(Clone, Copy, Debug)]
pub struct Rules(u32);

impl Rules {
    /// All of them: the protocol.
    pub fn all() -> Self {
        Self(u32::MAX)
    }

    /// All but `rule`.
    #[must_use]
    pub fn without(self, rule: Rule) -> Self {
        Self(self.0 & !(1 << rule as u8))
    }

    /// Whether `rule` is followed.
    pub fn has(self, rule: Rule) -> bool {
        self.0 & (1 << rule as u8) != 0
    }
}
