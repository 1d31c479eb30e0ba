//! Rows mode: sources whose rows are told apart by key columns, read whole and filtered by what is done.
//!
//! A partition of such a source is one task. It is cut into slices of bounded rows when it runs: each is one stream through
//! the operators of the query, and one seal of the task's sequence.

mod feed;
mod filter;
mod slices;
mod table;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dashmap::DashMap;
use datafusion::arrow::datatypes::Schema;
use datafusion::catalog::TableProvider;
use lakemark::{Claimant, InputId, KeyReport, KeySpec, KnownKeys, NullKeys, Result, Root, SourceSettings};

pub(crate) use feed::{Feed, Limits};
pub(crate) use filter::{KeyFilterExec, key_filter_of, key_filters};
pub(crate) use slices::{SliceKeys, Slices};
pub use table::KeyedTable;

/// What to do about a row whose key another row of the same run has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnDuplicate {
    /// One row of each key is done, whichever comes first; the others are counted.
    #[default]
    First,
    /// Fail, naming the key. What was sealed is kept.
    Fail,
}

/// What tells the rows of a source apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowKeys {
    /// The key columns. Together they are one key.
    pub on: Vec<String>,
    /// Whether nulls are equal to each other, or an error.
    pub nulls: NullKeys,
    /// Whether the values are kept beside the fingerprints.
    pub values: bool,
    /// What to do about a key that comes twice.
    pub on_duplicate: OnDuplicate,
}

impl RowKeys {
    /// Keys of these columns: nulls are equal, values are kept, the first row of a key is done.
    pub fn on<T: Into<String>>(columns: impl IntoIterator<Item = T>) -> Self {
        let on = columns.into_iter().map(Into::into).collect();
        Self { on, nulls: NullKeys::Equal, values: true, on_duplicate: OnDuplicate::First }
    }

    /// What is recorded of them for a source of `schema`.
    pub(crate) fn spec(&self, schema: &Schema) -> Result<KeySpec> {
        KeySpec::of(schema, &self.on, self.nulls, self.values)
    }
}

/// A table of any kind as a source in rows mode.
#[derive(Debug, Clone)]
pub struct RowsSpec {
    /// The table's name; explicit, and the key of what is recorded.
    pub name: String,
    /// What tells it from another table: recorded, and another one is refused.
    pub root: Root,
    /// What kind of table it is, as the job calls it.
    pub format: String,
    /// Its rows. Each partition of a scan of it is one task.
    pub provider: Arc<dyn TableProvider>,
    /// What tells them apart.
    pub keys: RowKeys,
}

/// A source in rows mode.
#[derive(Debug)]
pub(crate) struct RowSource {
    pub(crate) name: Arc<str>,
    pub(crate) root: Root,
    pub(crate) format: String,
    pub(crate) spec: KeySpec,
    pub(crate) on_duplicate: OnDuplicate,
    /// What is done, as the plan saw it.
    known: Mutex<Arc<KnownKeys>>,
    /// Keys that were done when it was planned.
    done: AtomicU64,
    /// What was begun while looking whether there is anything to do.
    looked: DashMap<InputId, Arc<Feed>>,
    /// What each task read so far.
    counts: DashMap<InputId, KeyReport>,
    attempts: AtomicU64,
    /// Who read which key, where a key must not come twice.
    readers: Mutex<HashMap<u128, Claimant>>,
}

impl RowSource {
    pub(crate) fn new(
        name: Arc<str>,
        root: Root,
        format: String,
        spec: KeySpec,
        on_duplicate: OnDuplicate,
        known: Arc<KnownKeys>,
    ) -> Self {
        let done = AtomicU64::new(known.len());
        Self {
            name,
            root,
            format,
            spec,
            on_duplicate,
            known: Mutex::new(known),
            done,
            looked: DashMap::new(),
            counts: DashMap::new(),
            attempts: AtomicU64::new(0),
            readers: Mutex::default(),
        }
    }

    pub(crate) fn settings(&self) -> SourceSettings {
        SourceSettings::rows(self.root.clone(), &*self.format, self.spec.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Arc<KnownKeys>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn known(&self) -> Arc<KnownKeys> {
        Arc::clone(&self.lock())
    }

    /// Plans from `known` from now on; what was begun is begun anew.
    pub(crate) fn set_known(&self, known: Arc<KnownKeys>) {
        self.done.store(known.len(), Ordering::Relaxed);
        *self.lock() = known;
        self.looked.clear();
        self.counts.clear();
        self.readers.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The place of the first of `fingerprints` that was read before: by another task, or by this attempt.
    fn read_twice(&self, who: Claimant, fingerprints: &[u128]) -> Option<usize> {
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        fingerprints.iter().position(|fingerprint| {
            let before = readers.insert(*fingerprint, who);
            before.is_some_and(|before| before.input != who.input || before.attempt == who.attempt)
        })
    }

    fn next_attempt(&self) -> u64 {
        self.attempts.fetch_add(1, Ordering::Relaxed)
    }

    /// What was read of it so far.
    pub(crate) fn report(&self) -> KeyReport {
        let mut report = KeyReport { keys: self.done.load(Ordering::Relaxed), ..KeyReport::default() };
        for counts in &self.counts {
            report.read += counts.read;
            report.done += counts.done;
            report.repeated += counts.repeated;
            report.new += counts.new;
        }
        report
    }
}
