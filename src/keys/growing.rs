//! A set of fingerprints that grows.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::path::{Path, PathBuf};

use super::set::{KeySet, KeySetBuilder};
use crate::error::Result;

/// Fingerprints are as good as hashed.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u128(&mut self, fingerprint: u128) {
        self.0 = fingerprint as u64;
    }
}

pub(super) type Hashed = BuildHasherDefault<AsItIs>;

/// This many are kept in a hash table, where they take most room, before they are sorted.
const RECENT: usize = 1 << 18;
/// A set is merged into a newer one that has at least this part of its keys.
const RATIO: u64 = 4;

/// Fingerprints that came one after another: the newest in a hash table, the others in sorted sets, each much larger than the
/// next.
#[derive(Debug)]
pub(crate) struct GrowingKeys {
    sets: Vec<KeySet>,
    recent: HashSet<u128, Hashed>,
    memory: u64,
    folder: PathBuf,
}

impl GrowingKeys {
    /// None yet; more than `memory` bytes of them go to a file in `folder`.
    pub(crate) fn new(memory: u64, folder: &Path) -> Self {
        Self { sets: Vec::new(), recent: HashSet::default(), memory, folder: folder.to_owned() }
    }

    /// How many.
    pub(crate) fn len(&self) -> u64 {
        self.sets.iter().map(KeySet::len).sum::<u64>() + self.recent.len() as u64
    }

    /// Whether each of `fingerprints` is in it; `found` is cleared first.
    ///
    /// # Errors
    /// Those of reading a file.
    pub(crate) fn probe(&self, fingerprints: &[u128], found: &mut Vec<bool>) -> Result<()> {
        found.clear();
        found.extend(fingerprints.iter().map(|fingerprint| self.recent.contains(fingerprint)));
        let mut here = Vec::new();
        for set in &self.sets {
            set.probe(fingerprints, &mut here)?;
            found.iter_mut().zip(&here).for_each(|(found, here)| *found |= here);
        }
        Ok(())
    }

    /// Adds what is not in it.
    ///
    /// # Errors
    /// Those of writing and reading a file.
    pub(crate) fn insert(&mut self, fingerprints: &[u128]) -> Result<()> {
        let mut found = Vec::new();
        for part in fingerprints.chunks(RECENT) {
            if self.sets.is_empty() {
                self.recent.extend(part);
            } else {
                self.probe(part, &mut found)?;
                let new = part.iter().zip(&found).filter(|(_, found)| !**found).map(|(fingerprint, _)| *fingerprint);
                self.recent.extend(new);
            }
            if self.recent.len() >= RECENT {
                self.sort()?;
            }
        }
        Ok(())
    }

    /// Makes a set of the newest, and of the sets that are not much larger.
    fn sort(&mut self) -> Result<()> {
        let mut newest: Vec<u128> = std::mem::take(&mut self.recent).into_iter().collect();
        newest.sort_unstable();
        let mut keys = newest.len() as u64;
        let mut merged = Vec::new();
        while self.sets.last().is_some_and(|set| set.len() <= RATIO * keys) {
            let Some(set) = self.sets.pop() else { break };
            keys += set.len();
            merged.push(set);
        }
        let taken: u64 = self.sets.iter().map(KeySet::memory_bytes).sum();
        let mut builder = KeySetBuilder::new(keys, self.memory.saturating_sub(taken), &self.folder)?;
        builder.push(&newest)?;
        for set in merged {
            set.for_each_sorted(|part| builder.push(part))?;
        }
        self.sets.push(builder.finish()?);
        Ok(())
    }
}
