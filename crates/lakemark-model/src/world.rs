//! The state of a check: what is durable, what every process holds in memory, and what the monitor remembers.

use crate::attempt::{Attempt, Task};
use crate::bounds::Bounds;
use crate::collector::Collector;
use crate::monitor::{self, Broken};
use crate::objects::{Manifest, OutputFile, Request, Row, Seal};
use crate::process::{Process, Role};
use crate::rules::Rules;
use crate::sink::Sink;
use crate::store::{Created, Store};
use crate::words::{SealId, SealSet};

/// What a step may read but never changes.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// How much there is.
    pub bounds: Bounds,
    /// The rules that are followed.
    pub rules: Rules,
}

/// One state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    /// The store's objects.
    pub store: Store,
    /// Output files that are not renamed: in staging, or at their place under a table.
    pub staged: Vec<OutputFile>,
    /// The sink.
    pub sink: Sink,
    /// Drivers, then operators.
    pub processes: Vec<Process>,
    /// What was dispatched.
    pub tasks: Vec<Task>,
    /// Attempts that have begun, in the order of their names.
    pub attempts: Vec<Attempt>,
    /// The garbage collector.
    pub collector: Collector,
    /// Collections that may still begin.
    pub collections: u8,
    /// Attempts that may still be retried.
    pub retries: u8,
    /// Answers that may still be lost.
    pub losses: u8,
    /// Files that may still be damaged or vanish.
    pub harms: u8,
    /// Files that were harmed, by seal and attempt: not the protocol's fault.
    pub harmed: Vec<(SealId, u8)>,
    /// The set of each intent that was ever on the chain, by number.
    pub intents: Vec<SealSet>,
    /// What the monitor saw broken.
    pub broken: Broken,
}

impl World {
    /// The world before anything happened.
    pub fn new(bounds: &Bounds) -> Self {
        let role = |nonce| if nonce < bounds.drivers { Role::Driver } else { Role::Operator };
        Self {
            store: Store::default(),
            staged: Vec::new(),
            sink: Sink::new(bounds.sink),
            processes: (0..bounds.drivers + bounds.operators).map(|nonce| Process::new(role(nonce), nonce)).collect(),
            tasks: Vec::new(),
            attempts: Vec::new(),
            collector: Collector::Idle,
            collections: bounds.collections,
            retries: bounds.retries,
            losses: bounds.losses,
            harms: bounds.harms,
            harmed: Vec::new(),
            intents: Vec::new(),
            broken: Broken::default(),
        }
    }

    /// Creates `manifest`, under the eyes of the monitor.
    pub fn put_manifest(&mut self, manifest: Manifest) -> Created {
        let before = self.store.newest().copied();
        let created = self.store.create_manifest(manifest);
        let is_new = self.store.newest().copied() != before;
        if is_new {
            monitor::appended(self, before.as_ref(), &manifest);
        }
        created
    }

    /// Creates `seal`, under the eyes of the monitor; whether the object of that name is this one now.
    pub fn put_seal(&mut self, seal: Seal) -> bool {
        let was_free = self.store.seal(seal.id).is_none();
        let ours = self.store.create_seal(seal);
        if was_free {
            monitor::sealed(self, &seal);
        }
        ours
    }

    /// Lets a late request arrive.
    pub fn land(&mut self, index: usize) {
        match self.store.late.remove(index) {
            Request::Manifest(manifest) => {
                self.put_manifest(manifest);
            }
            Request::Seal(seal) => {
                self.put_seal(seal);
            }
            Request::Table { base, entry } => {
                self.sink.append(base, entry);
            }
        }
    }

    /// Damages a staged file, or lets it vanish.
    pub fn harm(&mut self, seal: SealId, attempt: u8, vanishes: bool) {
        let is = |file: &OutputFile| (file.seal, file.attempt) == (seal, attempt);
        self.harms -= 1;
        self.harmed.push((seal, attempt));
        self.staged.iter_mut().filter(|file| is(file)).for_each(|file| file.fit = false);
        self.staged.retain(|file| !(vanishes && is(file)));
    }

    /// The staged file of the checkpoint `row`.
    pub fn staged_of(&self, row: &Row) -> Option<&OutputFile> {
        self.staged.iter().find(|file| file.is_of(row))
    }

    /// Whether the file of the checkpoint `row` is somewhere, staged or visible, with its size.
    pub fn is_fit(&self, row: &Row) -> bool {
        self.staged.iter().chain(self.sink.visible()).any(|file| file.is_of(row) && file.fit)
    }
}

/// Adds `file` in the order of names, so that the order of events leaves no trace.
pub fn insert(files: &mut Vec<OutputFile>, file: OutputFile) {
    let at = files.partition_point(|other| (other.seal, other.attempt) < (file.seal, file.attempt));
    files.insert(at, file);
}
