//! One link of the chain of store states.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::holder::Holder;
use super::names::ObjectName;
use crate::identity::{AttemptNonce, Epoch, ManifestVersion, Root, StoreId};
use crate::keys::KeySpec;

/// A segment as a manifest names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentRef {
    /// The manifest version it was written for.
    pub version: ManifestVersion,
    /// Its writer's nonce.
    pub nonce: AttemptNonce,
    /// 0 is the newest; a higher level is older.
    pub level: u8,
    /// Bytes.
    pub bytes: u64,
    /// XXH3-128 of its bytes.
    pub digest: String,
    /// Rows in it, of all kinds.
    pub rows: u64,
}

impl SegmentRef {
    /// Its object.
    pub fn name(&self) -> ObjectName {
        ObjectName::Segment(self.version, self.nonce)
    }
}

/// A segment of row keys as a manifest names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeySegmentRef {
    /// The source whose keys they are.
    pub source: Arc<str>,
    /// The manifest version it was written for.
    pub version: ManifestVersion,
    /// Its writer's nonce.
    pub nonce: AttemptNonce,
    /// Bytes.
    pub bytes: u64,
    /// XXH3-128 of its bytes.
    pub digest: String,
    /// Keys in it.
    pub keys: u64,
}

impl KeySegmentRef {
    /// Its object.
    pub fn name(&self) -> ObjectName {
        ObjectName::KeySegment(self.version, self.nonce)
    }
}

/// An intent that is neither done nor void.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenIntent {
    /// The commit's number.
    pub n: u64,
    /// The nonce in the name of its commit object.
    pub nonce: AttemptNonce,
    /// XXH3-128 of the commit object's bytes: the exact set (I6).
    pub digest: String,
    /// Files it adds.
    pub files: u64,
    /// Rows it adds.
    pub rows: u64,
    /// Committed files that it takes out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub leaving_files: u64,
    /// Rows in those.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub leaving_rows: u64,
    /// The table as it was when the commit was decided: whatever brings it about is in the versions after this one.
    /// `None` for a directory, and for a table that was not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<TableState>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl OpenIntent {
    /// Its commit object.
    pub fn name(&self) -> ObjectName {
        ObjectName::Commit(self.n, self.nonce)
    }
}

/// Where commits stand.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CommitState {
    /// The last number used; 0 before the first intent.
    pub last: u64,
    /// The one intent that is open.
    pub open: Option<OpenIntent>,
    /// Files that all commits so far made visible and none removed.
    pub files: u64,
    /// Rows in them.
    pub rows: u64,
}

/// The store's side of the binding between a store and a destination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    /// The sink's kind, as in the job.
    pub kind: String,
    /// Where it is.
    pub root: Root,
    /// The columns that become folders: files of two layouts would not be one table.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub partition_by: Vec<String>,
}

/// A table as one look at its log or catalog shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableState {
    /// What tells it from another table of the same name, as its format says it.
    pub id: String,
    /// The newest version of it, as its format counts them.
    pub version: u64,
    /// A digest of its schema and partitioning: of what files must fit.
    pub schema: String,
    /// The number of this store's last commit in it, a barrier's too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<u64>,
}

impl Binding {
    /// Whether it is of the same kind at the same place.
    pub(super) fn is_at(&self, other: &Self) -> bool {
        self.kind == other.kind && self.root == other.root
    }
}

/// What is fixed for a source when it is first used (R121, R122).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceSettings {
    /// The canonical root.
    pub root: Root,
    /// The format, as in the job.
    pub format: String,
    /// `files` or `rows`.
    pub mode: String,
    /// What a key is; in rows mode only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<KeySpec>,
}

impl SourceSettings {
    /// In files mode.
    pub fn files(root: Root, format: impl Into<String>) -> Self {
        Self { root, format: format.into(), mode: "files".into(), keys: None }
    }

    /// In rows mode, by `keys`.
    pub fn rows(root: Root, format: impl Into<String>, keys: KeySpec) -> Self {
        Self { root, format: format.into(), mode: "rows".into(), keys: Some(keys) }
    }

    /// Whether it is of the same kind at the same place; what a key is may differ.
    pub(super) fn is_at(&self, other: &Self) -> bool {
        self.root == other.root && self.format == other.format && self.mode == other.mode
    }
}

/// Which transition made a manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransitionKind {
    /// A new epoch.
    Open,
    /// Seals folded into a segment.
    Fold,
    /// A commit was decided.
    CommitIntent,
    /// A commit is visible in the sink.
    CommitDone,
    /// A commit was given up.
    CommitVoid,
    /// Checkpoints were made undone.
    Withdraw,
    /// A person recorded files as done.
    Bless,
    /// A person made files undone.
    Forget,
    /// A source or the destination is at another root.
    Rebase,
    /// A person said which table to go on with.
    Table,
    /// The holder is finished.
    Close,
}

/// One immutable state of a store. Under 64 KiB whatever the history: long lists live in segments and commit objects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The store.
    pub store: StoreId,
    /// Its place in the chain.
    pub version: ManifestVersion,
    /// The digest of its parent's bytes; `None` for the first.
    pub parent: Option<String>,
    /// The epoch it belongs to.
    pub epoch: Epoch,
    /// Its writer's nonce.
    pub nonce: AttemptNonce,
    /// When it was written, milliseconds since 1970.
    pub at: i64,
    /// What made it.
    pub transition: TransitionKind,
    /// Who holds the epoch; `None` once it is closed.
    pub holder: Option<Holder>,
    /// All segments, newest (lowest level) first.
    pub segments: Vec<SegmentRef>,
    /// All segments of row keys, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<KeySegmentRef>,
    /// Where commits stand.
    pub commits: CommitState,
    /// The destination this store belongs to.
    pub sink: Option<Binding>,
    /// The table as this store left it, when the destination is one and it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<TableState>,
    /// The sources, by name.
    pub sources: BTreeMap<String, SourceSettings>,
    /// Where the store was reached when its epoch was opened: another endpoint is probed before it is used.
    #[serde(default)]
    pub endpoint: String,
}

/// A manifest and the digest of its bytes, by which its child names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The manifest.
    pub manifest: Manifest,
    /// XXH3-128 of its bytes.
    pub digest: String,
}
