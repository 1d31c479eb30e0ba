//! Which row keys are done, sealed or being worked on: what a process filters by.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::growing::{GrowingKeys, Hashed};
use super::set::KeySet;
use crate::error::Result;
use crate::identity::InputId;

/// What is known of a row's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Known {
    /// Nothing: the row is the asker's from now on.
    New,
    /// It was done before this run.
    Done,
    /// Another row of this run has it.
    Taken,
}

/// Who works on a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Claimant {
    /// The task.
    pub input: InputId,
    /// Which of its attempts in this process.
    pub attempt: u64,
}

/// All keys of a source that count, shared by the tasks of a process, and those that its tasks are at.
#[derive(Debug)]
pub struct KnownKeys {
    /// As the store had it when it was read.
    done: KeySet,
    now: Mutex<Now>,
}

#[derive(Debug)]
struct Now {
    /// What folds of this process accepted since.
    accepted: GrowingKeys,
    /// What no fold has decided: `None` is sealed.
    claims: HashMap<u128, Option<Claimant>, Hashed>,
}

impl KnownKeys {
    /// What is `done`; what comes beyond `memory` bytes goes to a file in `folder`.
    pub fn new(done: KeySet, memory: u64, folder: &Path) -> Self {
        let left = memory.saturating_sub(done.memory_bytes());
        let now = Now { accepted: GrowingKeys::new(left, folder), claims: HashMap::default() };
        Self { done, now: Mutex::new(now) }
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keys that count.
    pub fn len(&self) -> u64 {
        self.done.len() + self.now().accepted.len()
    }

    /// Whether no key counts yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What is known of each of `fingerprints`, in their order; what is new is claimed by `who`. `known` is cleared first.
    ///
    /// An attempt takes over what another attempt of its own task is at: which of them counts, their seals decide.
    ///
    /// # Errors
    /// Those of reading keys that are on a disk.
    pub fn claim(&self, who: Claimant, fingerprints: &[u128], known: &mut Vec<Known>) -> Result<()> {
        let (mut done, mut accepted) = (Vec::new(), Vec::new());
        self.done.probe(fingerprints, &mut done)?;
        let mut now = self.now();
        now.accepted.probe(fingerprints, &mut accepted)?;
        known.clear();
        for ((fingerprint, done), accepted) in fingerprints.iter().zip(&done).zip(&accepted) {
            let is_mine = |claim: &Option<Claimant>| {
                claim.is_some_and(|other| other.input == who.input && other.attempt != who.attempt)
            };
            known.push(if *done {
                Known::Done
            } else if *accepted || now.claims.get(fingerprint).is_some_and(|claim| !is_mine(claim)) {
                Known::Taken
            } else {
                now.claims.insert(*fingerprint, Some(who));
                Known::New
            });
        }
        Ok(())
    }

    /// Which of `fingerprints` were done before this run, without claiming any; `known` is cleared first.
    ///
    /// # Errors
    /// As [`claim`](Self::claim).
    pub fn look(&self, fingerprints: &[u128], known: &mut Vec<Known>) -> Result<()> {
        let mut done = Vec::new();
        self.done.probe(fingerprints, &mut done)?;
        known.clear();
        known.extend(done.iter().map(|done| if *done { Known::Done } else { Known::New }));
        Ok(())
    }

    /// Gives up what `who` claimed of `fingerprints` and did not seal.
    pub fn release(&self, who: Claimant, fingerprints: &[u128]) {
        let mut now = self.now();
        for fingerprint in fingerprints {
            if now.claims.get(fingerprint) == Some(&Some(who)) {
                now.claims.remove(fingerprint);
            }
        }
    }

    /// Records that a seal has `fingerprints`, which no fold has decided yet.
    pub fn seal(&self, fingerprints: &[u128]) {
        let mut now = self.now();
        now.claims.extend(fingerprints.iter().map(|fingerprint| (*fingerprint, None)));
    }

    /// Whether one of `fingerprints` counts already.
    ///
    /// # Errors
    /// As [`claim`](Self::claim).
    pub fn is_covered(&self, fingerprints: &[u128]) -> Result<bool> {
        let (mut done, mut accepted) = (Vec::new(), Vec::new());
        self.done.probe(fingerprints, &mut done)?;
        if done.contains(&true) {
            return Ok(true);
        }
        self.now().accepted.probe(fingerprints, &mut accepted)?;
        Ok(accepted.contains(&true))
    }

    /// Records that a fold decided a seal of `fingerprints`: it `counts`, or is as if it had never been.
    ///
    /// # Errors
    /// Those of writing keys to a disk.
    pub fn decide(&self, fingerprints: &[u128], counts: bool) -> Result<()> {
        let mut now = self.now();
        if counts {
            now.accepted.insert(fingerprints)?;
        }
        for fingerprint in fingerprints {
            if now.claims.get(fingerprint) == Some(&None) {
                now.claims.remove(fingerprint);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_task_is_at_another_leaves_alone() {
        let folder = tempfile::tempdir().unwrap();
        let known = KnownKeys::new(KeySet::empty(), 1 << 30, folder.path());
        let who = |input, attempt| Claimant { input: InputId(input), attempt };
        let mut said = Vec::new();
        let mut claim = |claimant, keys: &[u128]| {
            known.claim(claimant, keys, &mut said).unwrap();
            said.clone()
        };
        use Known::{New, Taken};
        assert_eq!(claim(who(0, 0), &[1, 2, 1]), [New, New, Taken]);
        assert_eq!(claim(who(1, 1), &[2, 3]), [Taken, New]);
        // Another attempt of the first task takes over, and the first one's end takes nothing from it.
        assert_eq!(claim(who(0, 2), &[1, 2]), [New, New]);
        known.release(who(0, 0), &[1, 2]);
        assert_eq!(claim(who(1, 1), &[1, 2]), [Taken, Taken]);
        known.release(who(0, 2), &[2]);
        assert_eq!(claim(who(1, 1), &[2]), [New]);
        known.seal(&[1]);
        assert_eq!(claim(who(0, 3), &[1]), [Taken]);
        assert!(!known.is_covered(&[1]).unwrap());
        known.decide(&[1], true).unwrap();
        assert!(known.is_covered(&[5, 1]).unwrap());
        assert_eq!((known.len(), claim(who(0, 3), &[1, 7])), (1, vec![Taken, New]));
        // What a fold rejects is free again.
        known.seal(&[3]);
        known.decide(&[3], false).unwrap();
        assert_eq!(claim(who(0, 3), &[3]), [New]);
    }
}
