//! The small values that everything else is made of: sets as bits, ids as bytes.

use std::fmt;

/// A set of source atoms.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Atoms(u8);

impl Atoms {
    /// None.
    pub const NONE: Self = Self(0);

    /// The first `count` atoms: the whole source.
    pub fn first(count: u8) -> Self {
        Self((1 << count) - 1)
    }

    /// Each atom of the set on its own.
    pub fn each(self) -> impl Iterator<Item = Self> {
        (0..8).map(|bit| Self(1 << bit)).filter(move |atom| self.overlaps(*atom))
    }

    /// All of both.
    pub fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Without those of `other`.
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether some atom is in both.
    pub fn overlaps(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Debug for Atoms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: String =
            ('a'..).take(8).enumerate().filter(|(i, _)| self.0 & (1 << i) != 0).map(|(_, c)| c).collect();
        write!(f, "{{{names}}}")
    }
}

/// The name of a seal: an epoch and an input id. In files mode the sequence is always 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SealId {
    /// The epoch it was dispatched in.
    pub epoch: u8,
    /// The task in that epoch.
    pub input: u8,
}

impl fmt::Debug for SealId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.input)
    }
}

/// A set of seals, by name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SealSet(u64);

/// Input ids that an epoch has room for.
pub const INPUTS: u8 = 4;

impl SealSet {
    fn bit(id: SealId) -> u64 {
        debug_assert!(id.epoch >= 1 && id.epoch <= 16 && id.input < INPUTS, "{id:?} is out of the bounds of the model");
        1 << ((id.epoch - 1) * INPUTS + id.input)
    }

    /// Whether `id` is in it.
    pub fn has(self, id: SealId) -> bool {
        self.0 & Self::bit(id) != 0
    }

    /// With `ids`.
    pub fn extend(&mut self, ids: impl IntoIterator<Item = SealId>) {
        ids.into_iter().for_each(|id| self.0 |= Self::bit(id));
    }

    /// All of both.
    pub fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Without those of `other`.
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those in it, in the order of their names.
    pub fn iter(self) -> impl Iterator<Item = SealId> {
        (0..64u8)
            .filter(move |bit| self.0 & (1 << bit) != 0)
            .map(|bit| SealId { epoch: bit / INPUTS + 1, input: bit % INPUTS })
    }
}

impl FromIterator<SealId> for SealSet {
    fn from_iter<I: IntoIterator<Item = SealId>>(ids: I) -> Self {
        let mut set = Self::default();
        set.extend(ids);
        set
    }
}

impl fmt::Debug for SealSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
