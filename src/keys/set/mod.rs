//! An immutable set of fingerprints: sorted, in memory or on a disk.

mod disk;
mod memory;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use self::disk::{DiskKeys, DiskKeysBuilder};
use self::memory::{SortedKeys, SortedKeysBuilder};
use crate::error::Result;

/// Bytes of memory that a key takes: itself, and its part of the index.
const BYTES_A_KEY: u64 = 17;

/// Fingerprints that do not change, each once, shared by all tasks of a process.
#[derive(Debug)]
pub struct KeySet(Place);

#[derive(Debug)]
enum Place {
    Memory(SortedKeys),
    Disk(DiskKeys),
}

/// Takes fingerprints in any order.
#[derive(Debug)]
pub struct KeySetBuilder(Building);

#[derive(Debug)]
enum Building {
    Memory { keys: SortedKeysBuilder, memory: u64, folder: PathBuf },
    Disk(DiskKeysBuilder),
}

impl KeySetBuilder {
    /// For about `expected` keys. More than fit into `memory` bytes go to a file in `folder`, which is gone with the set.
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable) when the file cannot be made.
    pub fn new(expected: u64, memory: u64, folder: &Path) -> Result<Self> {
        if expected.saturating_mul(BYTES_A_KEY) > memory {
            return Ok(Self(Building::Disk(DiskKeysBuilder::new(memory, folder)?)));
        }
        Ok(Self(Building::Memory { keys: SortedKeysBuilder::default(), memory, folder: folder.to_owned() }))
    }

    /// Adds fingerprints, in any order; one that is there already is there once.
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable) when the file cannot be written.
    pub fn push(&mut self, fingerprints: &[u128]) -> Result<()> {
        match &mut self.0 {
            Building::Memory { keys, memory, folder } => {
                let all = (keys.len() + fingerprints.len()) as u64;
                if all.saturating_mul(BYTES_A_KEY) > *memory {
                    // More came than were expected.
                    let mut disk = DiskKeysBuilder::new(*memory, folder)?;
                    for keys in keys.drain() {
                        disk.push(&keys)?;
                    }
                    disk.push(fingerprints)?;
                    self.0 = Building::Disk(disk);
                } else {
                    keys.push(fingerprints);
                }
                Ok(())
            }
            Building::Disk(disk) => disk.push(fingerprints),
        }
    }

    /// The set.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn finish(self) -> Result<KeySet> {
        Ok(KeySet(match self.0 {
            Building::Memory { keys, .. } => Place::Memory(keys.finish()),
            Building::Disk(disk) => Place::Disk(disk.finish()?),
        }))
    }
}

impl KeySet {
    /// Without any key.
    pub fn empty() -> Self {
        Self(Place::Memory(SortedKeysBuilder::default().finish()))
    }

    /// How many keys.
    pub fn len(&self) -> u64 {
        match &self.0 {
            Place::Memory(keys) => keys.as_slice().len() as u64,
            Place::Disk(keys) => keys.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory that it takes.
    pub fn memory_bytes(&self) -> u64 {
        match &self.0 {
            Place::Memory(keys) => keys.memory_bytes(),
            Place::Disk(keys) => keys.memory_bytes(),
        }
    }

    /// Whether its keys are in a file.
    pub fn is_on_disk(&self) -> bool {
        matches!(self.0, Place::Disk(_))
    }

    /// Whether each of `fingerprints` is in it; `found` is cleared first.
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable) when the file cannot be read: never "not found".
    pub fn probe(&self, fingerprints: &[u128], found: &mut Vec<bool>) -> Result<()> {
        found.clear();
        match &self.0 {
            Place::Memory(keys) => {
                keys.probe(fingerprints, found);
                Ok(())
            }
            Place::Disk(keys) => keys.probe(fingerprints, found),
        }
    }

    /// Hands over all of them, ascending, in pieces.
    ///
    /// # Errors
    /// Those of `take`, and as [`probe`](Self::probe).
    pub fn for_each_sorted(&self, mut take: impl FnMut(&[u128]) -> Result<()>) -> Result<()> {
        match &self.0 {
            Place::Memory(keys) => take(keys.as_slice()),
            Place::Disk(keys) => keys.for_each_sorted(take),
        }
    }
}
