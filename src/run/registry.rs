//! What the tasks of one process are doing: which checkpoint each seals into, and what each really read.

use std::sync::Arc;

use dashmap::DashMap;

use crate::identity::{CheckpointId, Epoch, InputId};
use crate::store::SealedFile;

/// Input id -> checkpoint id, for every task that was handed out in this epoch.
#[derive(Debug)]
pub struct CheckpointIdMap {
    epoch: Epoch,
    ids: DashMap<InputId, CheckpointId>,
}

impl CheckpointIdMap {
    /// The map of an epoch, empty.
    pub fn new(epoch: Epoch) -> Self {
        Self { epoch, ids: DashMap::new() }
    }

    /// The checkpoint that `input` seals into; assigned at the first call and the same ever after.
    pub fn assign(&self, input: InputId) -> CheckpointId {
        *self.ids.entry(input).or_insert_with(|| CheckpointId::first(self.epoch, input))
    }

    /// The checkpoint of `input`, if one was assigned.
    pub fn get(&self, input: InputId) -> Option<CheckpointId> {
        self.ids.get(&input).map(|id| *id)
    }

    /// How many tasks have one.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether none has.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}

/// What one attempt of a task opened: what its seal will list, and what it left out.
#[derive(Debug, Clone, Default)]
pub struct TaskRead {
    /// The parts it reads, with the evidence seen when they were opened.
    pub files: Vec<SealedFile>,
    /// Rows read from files whose evidence does not say how many they have.
    pub counted_rows: u64,
    /// Rows of these files that were not read, since their table has deleted them.
    pub deleted_rows: u64,
    /// Source and path of files that are not the version planned any more: planned again, never sealed.
    pub changed: Vec<(Arc<str>, Arc<str>)>,
    /// Source, path and reason of files that cannot be read.
    pub unusable: Vec<(Arc<str>, Arc<str>, String)>,
    /// Source and path of files that are gone.
    pub vanished: Vec<(Arc<str>, Arc<str>)>,
}

/// Input id -> what its present attempt reads. The scan writes it before the first row, the seal takes it after the last.
#[derive(Debug, Default)]
pub struct AtomRegistry {
    reads: DashMap<InputId, TaskRead>,
}

impl AtomRegistry {
    /// Records what the present attempt of `input` opened, in place of what an earlier attempt did.
    pub fn record(&self, input: InputId, read: TaskRead) {
        self.reads.insert(input, read);
    }

    /// Takes the record of `input`; `None` when its scan never started, and then nothing may be sealed.
    pub fn take(&self, input: InputId) -> Option<TaskRead> {
        self.reads.remove(&input).map(|(_, read)| read)
    }
}
