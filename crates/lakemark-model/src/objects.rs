//! The objects of a store: manifests, segments, seals. Each is created once and never changed.

use crate::words::{Atoms, SealId, SealSet};

/// The transition that made a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Begins an epoch.
    Open,
    /// Names folded seals.
    Fold,
    /// Decides a commit.
    Intent,
    /// The open intent is visible.
    Done,
    /// The open intent is given up.
    Void,
    /// Checkpoints are undone.
    Withdraw,
    /// The holder is finished.
    Close,
}

/// What tells two manifests apart. A process writes at most one manifest of a version, so this stands for the digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Digest {
    /// The version.
    pub version: u8,
    /// The nonce of its writer: the process.
    pub writer: u8,
}

/// The commits of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Commits {
    /// The last number that was used.
    pub last: u8,
    /// The exact set of the open intent, whose number is `last`.
    pub open: Option<SealSet>,
    /// Committed checkpoints whose output the open intent takes out.
    pub leaving: SealSet,
    /// Checkpoints that are committed.
    pub done: SealSet,
}

impl Commits {
    /// The same, without an open intent.
    #[must_use]
    pub fn closed(self) -> Self {
        Self { open: None, leaving: SealSet::default(), ..self }
    }

    /// Checkpoints in the open intent or in a commit.
    pub fn taken(&self) -> SealSet {
        self.done.and(self.open.unwrap_or_default())
    }
}

/// One link of the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Manifest {
    /// Its version, which is its name.
    pub version: u8,
    /// The epoch.
    pub epoch: u8,
    /// The process that wrote it.
    pub writer: u8,
    /// The transition.
    pub kind: Kind,
    /// The digest of the manifest before it.
    pub parent: Option<Digest>,
    /// The segment with all decisions; none yet in a new store.
    pub segment: Option<Digest>,
    /// The commits.
    pub commits: Commits,
}

impl Manifest {
    /// Its digest.
    pub fn digest(&self) -> Digest {
        Digest { version: self.version, writer: self.writer }
    }
}

/// What was decided about a seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// It counts.
    Accepted,
    /// Its atoms were covered already.
    Rejected,
    /// It counted once; its atoms are undone.
    Withdrawn,
}

/// A decided checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    /// Its seal.
    pub seal: SealId,
    /// The attempt that sealed it, whose output file is the checkpoint's.
    pub attempt: u8,
    /// What it covers.
    pub covers: Atoms,
    /// Whether it counts.
    pub decision: Decision,
}

/// The work of one task, or the driver's hand on its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seal {
    /// Its name.
    pub id: SealId,
    /// The attempt; none in a void seal.
    pub attempt: Option<u8>,
    /// What it covers.
    pub covers: Atoms,
}

/// All decisions up to a manifest: the content of its segment, and what a process holds in memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Record(pub Vec<Row>);

impl Record {
    /// The decision about `id`.
    pub fn row(&self, id: SealId) -> Option<&Row> {
        self.0.iter().find(|row| row.seal == id)
    }

    /// Checkpoints that count.
    pub fn live(&self) -> impl Iterator<Item = &Row> {
        self.0.iter().filter(|row| row.decision == Decision::Accepted)
    }

    /// What is done.
    pub fn covered(&self) -> Atoms {
        self.live().fold(Atoms::NONE, |all, row| all.and(row.covers))
    }

    /// Checkpoints that count and are in no commit.
    pub fn pending(&self, commits: &Commits) -> SealSet {
        self.live().map(|row| row.seal).filter(|id| !commits.taken().has(*id)).collect()
    }

    /// Decides `seal`, once and for good, unless `blind` rejecting what overlaps. Void seals leave no record.
    pub fn decide(&mut self, seal: &Seal, blind: bool) {
        let Some(attempt) = seal.attempt else { return };
        if self.row(seal.id).is_some() {
            return;
        }
        let overlaps = !blind && self.covered().overlaps(seal.covers);
        let decision = if overlaps { Decision::Rejected } else { Decision::Accepted };
        self.insert(Row { seal: seal.id, attempt, covers: seal.covers, decision });
    }

    /// Adds `row`, in the order of names.
    pub fn insert(&mut self, row: Row) {
        let at = self.0.partition_point(|other| other.seal < row.seal);
        self.0.insert(at, row);
    }

    /// Undoes `ids`.
    pub fn withdraw(&mut self, ids: SealSet) {
        for row in self.0.iter_mut().filter(|row| ids.has(row.seal)) {
            row.decision = Decision::Withdrawn;
        }
    }
}

/// An output file: staged, or visible in a sink. Its name carries the seal and the attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OutputFile {
    /// The seal that its attempt is for.
    pub seal: SealId,
    /// The attempt that wrote it.
    pub attempt: u8,
    /// The atoms whose rows are in it.
    pub atoms: Atoms,
    /// Whether it has the size that was sealed.
    pub fit: bool,
}

impl OutputFile {
    /// Whether it is the file of the checkpoint `row`.
    pub fn is_of(&self, row: &Row) -> bool {
        (self.seal, self.attempt) == (row.seal, row.attempt)
    }
}

/// A request on its way whose sender has stopped waiting.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// Create this manifest.
    Manifest(Manifest),
    /// Create this seal.
    Seal(Seal),
    /// Append this entry to the table, on exactly this base.
    Table {
        /// The length of the log that it was made for.
        base: u8,
        /// The entry.
        entry: Entry,
    },
}

/// An entry in a table's log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The commit number in its marker.
    pub n: u8,
    /// The files that it adds, which stand for the digest; none: the barrier, whose digest is `void`.
    pub files: Option<Vec<OutputFile>>,
}
