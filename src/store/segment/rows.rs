//! The rows of a segment, and how a newer segment's events act on an older one's rows.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::identity::{AttemptNonce, CheckpointId, Epoch, FileVersion, ManifestVersion};
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

/// Something that happened, kept for ever. The first three also act on the rows of older segments.
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
        /// The checkpoints, when they are not all that were pending.
        only: Option<Vec<CheckpointId>>,
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
    /// The epoch was closed.
    Closed {
        /// Checkpoints sealed in it.
        sealed: u64,
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
}

impl SegmentData {
    /// Rows of all kinds.
    pub fn rows(&self) -> u64 {
        (self.files.len() + self.checkpoints.len() + self.events.len()) as u64
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.rows() == 0
    }

    /// Lets one event act on these rows.
    pub fn act(&mut self, event: &Event) {
        event.act_on(&mut self.checkpoints.iter_mut());
        match event {
            Event::Withdrawn { checkpoints, .. } => {
                let gone: HashSet<_> = checkpoints.iter().copied().collect();
                self.files.retain(|row| !gone.contains(&row.checkpoint));
            }
            Event::Updated { source, files } => {
                let updates: HashMap<&str, &FileUpdate> = files.iter().map(|u| (&*u.recorded.path, u)).collect();
                self.files.retain_mut(|row| {
                    let update = updates
                        .get(&*row.sealed.file.path)
                        .filter(|u| &*row.sealed.source == source && row.sealed.file.is_same(&u.recorded));
                    let Some(update) = update else { return true };
                    let Some(now) = &update.now else { return false };
                    row.sealed.file.clone_from(now);
                    row.sealed.unsettled = update.unsettled;
                    true
                });
            }
            _ => {}
        }
    }

    /// These rows and then `newer`, whose events act on these rows first.
    #[must_use]
    pub fn then(mut self, newer: Self) -> Self {
        for row in &newer.events {
            self.act(&row.event);
        }
        self.files.extend(newer.files);
        self.checkpoints.extend(newer.checkpoints);
        self.events.extend(newer.events);
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

impl Event {
    /// Acts on the rows of checkpoints that were decided before it.
    pub fn act_on(&self, rows: &mut dyn Iterator<Item = &mut CheckpointRow>) {
        match self {
            Self::Intent { n, only, .. } => {
                let only: Option<HashSet<_>> = only.as_ref().map(|ids| ids.iter().copied().collect());
                for row in rows.filter(|row| row.is_pending()) {
                    if only.as_ref().is_none_or(|ids| ids.contains(&row.id)) {
                        row.commit = Some(*n);
                    }
                }
            }
            Self::Withdrawn { checkpoints, .. } => {
                let gone: HashSet<_> = checkpoints.iter().copied().collect();
                for row in rows.filter(|row| gone.contains(&row.id)) {
                    (row.decision, row.commit) = (Decision::Withdrawn, None);
                }
            }
            _ => {}
        }
    }

    /// The number of the commit, if this is the intent of one into the caller's own sink.
    pub fn callers_commit(&self) -> Option<u64> {
        match self {
            Self::Intent { n, only: Some(_), .. } => Some(*n),
            _ => None,
        }
    }

    pub(super) fn to_text(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|e| Error::invalid("an event cannot be written as JSON").caused_by(e))
    }
}
