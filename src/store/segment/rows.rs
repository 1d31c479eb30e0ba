//! The rows of a segment, and how a newer segment's events act on an older one's rows.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::identity::{AttemptNonce, CheckpointId, Epoch, FileVersion, ManifestVersion, TablePosition, TableStep};
use crate::store::keys::KeyRows;
use crate::store::seal::{Counts, OutputFile, Seal, SealedFile};

/// What a fold decided about a seal, once and for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// It counts.
    Accepted,
    /// Some of its atoms were covered by a live checkpoint already (I5): none of it counts.
    Rejected,
    /// It counted, and was made undone later.
    Withdrawn,
    /// A person recorded its files as done: no work, no seal, no output.
    Blessed,
}

/// One file version (or a part of one) that one checkpoint covers.
#[derive(Debug, Clone, PartialEq)]
pub struct FileRow {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// What it covers.
    pub sealed: SealedFile,
}

/// One decided seal.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckpointRow {
    /// Its id.
    pub id: CheckpointId,
    /// The attempt that sealed it.
    pub attempt: AttemptNonce,
    /// The source whose row keys it covers; none when it covers files.
    pub source: Option<Arc<str>>,
    /// What was decided.
    pub decision: Decision,
    /// Milliseconds since 1970.
    pub sealed_at: i64,
    /// Rows.
    pub counts: Counts,
    /// Output files.
    pub outputs: Vec<OutputFile>,
    /// The commit it belongs to, from its intent on.
    pub commit: Option<u64>,
}

impl CheckpointRow {
    /// The row of `seal`, decided as `decision`.
    pub fn new(seal: &Seal, decision: Decision) -> Self {
        Self {
            id: seal.id,
            attempt: seal.attempt,
            source: seal.keys.as_ref().map(|keys| Arc::clone(&keys.source)),
            decision,
            sealed_at: seal.sealed_at,
            counts: seal.counts,
            outputs: seal.outputs.clone(),
            commit: None,
        }
    }

    /// Whether it counts and is in no commit yet.
    pub fn is_pending(&self) -> bool {
        self.decision == Decision::Accepted && self.commit.is_none()
    }
}

/// A change of what is recorded about a file version, whatever checkpoint covers it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileUpdate {
    /// The version as recorded.
    pub recorded: FileVersion,
    /// The same content under its token now; `None`: the record describes no file any more, and is dropped.
    pub now: Option<FileVersion>,
    /// Whether the mtime of `now` is too fresh to be trusted (R04).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unsettled: bool,
}

/// A version that a person made undone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForgottenFile {
    /// The version.
    #[serde(flatten)]
    pub file: FileVersion,
    /// Committed checkpoints that it was taken out of: their output keeps its rows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<CheckpointId>,
}

/// Something that happened, kept for ever. The first four, and `Void`, also act on the rows of older segments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// Every pending checkpoint (or only those named) belongs to commit `n`.
    Intent {
        /// The commit.
        n: u64,
        /// Its files.
        files: u64,
        /// Its rows.
        rows: u64,
        /// The checkpoints, when they are not all that were pending: the commit is into a sink of the caller's own...
        only: Option<Vec<CheckpointId>>,
        /// ... or others wait, since they replace what is not complete yet.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        holds: bool,
    },
    /// Checkpoints are undone.
    Withdrawn {
        /// Which.
        checkpoints: Vec<CheckpointId>,
        /// Why, for people.
        why: String,
    },
    /// Tokens were accepted for the same content, or records of rewritten files dropped.
    Updated {
        /// The source.
        source: String,
        /// What changed.
        files: Vec<FileUpdate>,
    },
    /// A person made file versions undone. Checkpoints that were in no commit are withdrawn beside it.
    Forgotten {
        /// The source.
        source: String,
        /// The versions.
        files: Vec<ForgottenFile>,
    },
    /// A person made rows undone whose output was committed, and stays.
    RowsForgotten {
        /// The source.
        source: String,
        /// The checkpoints whose keys are undone.
        checkpoints: Vec<CheckpointId>,
    },
    /// Commit `n` takes the output of committed checkpoints out of the destination, and makes them undone when it is done.
    Retract {
        /// The commit.
        n: u64,
        /// The checkpoints.
        checkpoints: Vec<CheckpointId>,
        /// Their files.
        files: u64,
        /// Rows in those.
        rows: u64,
    },
    /// An epoch was opened.
    Opened {
        /// By whom.
        holder: String,
    },
    /// Commit `n` became visible.
    Done {
        /// The commit.
        n: u64,
    },
    /// Commit `n` was given up.
    Void {
        /// The commit.
        n: u64,
    },
    /// The schema of a source was recorded.
    Schema {
        /// The source.
        source: String,
        /// Arrow IPC bytes of the schema message, in hex.
        ipc: String,
    },
    /// A table was taken into account up to a version.
    Table {
        /// The source.
        source: String,
        /// Up to where.
        position: TablePosition,
        /// Commits since the last such event that changed files with finished work.
        steps: Vec<TableStep>,
    },
    /// The epoch was closed.
    Closed {
        /// Checkpoints sealed in it.
        sealed: u64,
    },
    /// An operator's verb did something.
    Operated {
        /// The verb, as in the command.
        verb: String,
        /// What it did, for people.
        what: String,
    },
}

/// An event with its place in the chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRow {
    /// The manifest version that made it count.
    pub version: ManifestVersion,
    /// The epoch.
    pub epoch: Epoch,
    /// Milliseconds since 1970.
    pub at: i64,
    /// What happened.
    pub event: Event,
}

/// The content of a segment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SegmentData {
    /// What is covered, ascending by source, path and checkpoint.
    pub files: Vec<FileRow>,
    /// Decided seals, ascending by id.
    pub checkpoints: Vec<CheckpointRow>,
    /// History, ascending by version.
    pub events: Vec<EventRow>,
    /// Row keys by source: they go into segments of their own.
    pub keys: BTreeMap<Arc<str>, Vec<KeyRows>>,
}

impl SegmentData {
    /// Rows of all kinds but keys, which no checkpoint's row comes without.
    pub fn rows(&self) -> u64 {
        (self.files.len() + self.checkpoints.len() + self.events.len()) as u64
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.rows() == 0
    }

    /// Lets `events`, which are newer than these rows, act on them.
    ///
    /// All at once: what an event does to a row does not depend on the events between them, but for updates of one file,
    /// which follow each other.
    fn act(&mut self, events: &[EventRow]) {
        act_on(events.iter().map(|row| &row.event), self.checkpoints.iter_mut());
        let mut gone = HashSet::new();
        // By source and path: the recorded version, and what it is from then on; nothing when it is dropped.
        type Step<'a> = (&'a FileVersion, Option<(&'a FileVersion, bool)>);
        let mut updates: HashMap<(&str, &str), Vec<Step<'_>>> = HashMap::new();
        for row in events {
            match &row.event {
                Event::Withdrawn { checkpoints, .. } => gone.extend(checkpoints.iter().copied()),
                Event::Updated { source, files } => {
                    for update in files {
                        let now = update.now.as_ref().map(|now| (now, update.unsettled));
                        updates.entry((source, &update.recorded.path)).or_default().push((&update.recorded, now));
                    }
                }
                Event::Forgotten { source, files } => {
                    for gone in files {
                        updates.entry((source, &gone.file.path)).or_default().push((&gone.file, None));
                    }
                }
                _ => {}
            }
        }
        if gone.is_empty() && updates.is_empty() {
            return;
        }
        self.files.retain_mut(|row| {
            if gone.contains(&row.checkpoint) {
                return false;
            }
            let path = Arc::clone(&row.sealed.file.path);
            let steps = updates.get(&(&*row.sealed.source, &*path)).map_or(&[][..], Vec::as_slice);
            for (recorded, now) in steps {
                if !row.sealed.file.is_same(recorded) {
                    continue;
                }
                let Some((now, unsettled)) = now else { return false };
                row.sealed.file.clone_from(now);
                row.sealed.unsettled = *unsettled;
            }
            true
        });
    }

    /// These rows and then `newer`, whose events act on these rows first.
    #[must_use]
    pub fn then(mut self, newer: Self) -> Self {
        self.act(&newer.events);
        self.files.extend(newer.files);
        self.checkpoints.extend(newer.checkpoints);
        self.events.extend(newer.events);
        for (source, keys) in newer.keys {
            self.keys.entry(source).or_default().extend(keys);
        }
        self
    }

    /// Sorts the rows, as a segment keeps them.
    pub fn sort(&mut self) {
        self.files.sort_by(|a, b| {
            let key = |row: &FileRow| (row.sealed.source.clone(), row.sealed.file.path.clone(), row.checkpoint);
            key(a).cmp(&key(b))
        });
        self.checkpoints.sort_by_key(|row| row.id);
        self.events.sort_by_key(|row| row.version);
    }
}

/// Lets `events` act on the rows of checkpoints that were decided before them.
pub fn act_on<'a>(events: impl Iterator<Item = &'a Event>, rows: impl Iterator<Item = &'a mut CheckpointRow>) {
    let (mut intents, mut withdrawn) = (Vec::new(), HashSet::new());
    let mut voided = HashSet::new();
    for event in events {
        match event {
            Event::Intent { n, only, .. } => {
                intents.push((*n, only.as_ref().map(|ids| ids.iter().copied().collect::<HashSet<_>>())));
            }
            Event::Withdrawn { checkpoints, .. } => withdrawn.extend(checkpoints.iter().copied()),
            Event::Void { n } => {
                voided.insert(*n);
            }
            _ => {}
        }
    }
    // What was given up took nothing: its checkpoints are in the next commit, or in none yet.
    intents.retain(|(n, _)| !voided.contains(n));
    if intents.is_empty() && withdrawn.is_empty() && voided.is_empty() {
        return;
    }
    for row in rows {
        if withdrawn.contains(&row.id) {
            (row.decision, row.commit) = (Decision::Withdrawn, None);
            continue;
        }
        if row.commit.is_some_and(|n| voided.contains(&n)) {
            row.commit = None;
        }
        if row.is_pending() {
            let of = intents.iter().find(|(_, only)| only.as_ref().is_none_or(|ids| ids.contains(&row.id)));
            row.commit = of.map(|(n, _)| *n);
        }
    }
}

impl Event {
    /// The number of the commit, if this is the intent of one into the caller's own sink.
    pub fn callers_commit(&self) -> Option<u64> {
        match self {
            Self::Intent { n, only: Some(_), holds: false, .. } => Some(*n),
            _ => None,
        }
    }

    pub(super) fn to_text(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|e| Error::invalid("an event cannot be written as JSON").caused_by(e))
    }
}
