//! What a run did, in the fields that scripts rely on (`run --json`, `plan --json`): extended, never renamed.

use lakemark::{Committed, Error, ErrorKind, SourceReport, SourceRequests, StoreRequests};
use serde::Serialize;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Everything planned is done and committed.
    #[default]
    Done,
    /// There was nothing to do, and nothing was written.
    Nothing,
    /// Finished, with unusable or failed files left, or stopped before the end on request.
    Partial,
    /// Stopped by an error.
    Failed,
    /// Another holder is live.
    Busy,
    /// Another run took over.
    Fenced,
    /// Not done because it would probably lose or double something.
    Refused,
    /// Whether a commit landed cannot be told.
    CannotDecide,
}

impl Outcome {
    /// The outcome that an error makes.
    pub fn of(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Busy => Self::Busy,
            ErrorKind::Fenced => Self::Fenced,
            ErrorKind::Refused | ErrorKind::Unsupported => Self::Refused,
            ErrorKind::CannotDecide => Self::CannotDecide,
            _ => Self::Failed,
        }
    }

    /// The process's exit code.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Done | Self::Nothing => 0,
            Self::Failed => 1,
            Self::Partial => 3,
            Self::Busy | Self::Fenced => 4,
            Self::Refused => 5,
            Self::CannotDecide => 6,
        }
    }
}

/// Tasks of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct TaskReport {
    /// Planned.
    pub planned: u64,
    /// Sealed.
    pub sealed: u64,
    /// Ended by an error.
    pub failed: u64,
    /// Set aside by policy.
    pub set_aside: u64,
}

/// Row groups.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct AtomReport {
    /// Done before this run.
    pub done: u64,
    /// Of this run, as far as they are known.
    pub planned: u64,
    /// Files that were finished and never opened.
    pub files_unopened: u64,
}

/// Rows of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct RowReport {
    /// In the atoms that were sealed.
    #[serde(rename = "in")]
    pub rows_in: u64,
    /// In output files that were sealed.
    pub out: u64,
    /// Left out by policy.
    pub failed: u64,
}

/// Bytes of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct BytesReport {
    /// Asked of the sources.
    pub read: u64,
    /// Of sealed output files.
    pub written: u64,
}

/// Requests of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RequestReport {
    /// To the sources.
    pub source: SourceRequests,
    /// To the store.
    pub store: StoreRequests,
}

/// One commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CommitReport {
    /// Its number.
    pub n: u64,
    /// Checkpoints in it.
    pub checkpoints: u64,
    /// Files in it.
    pub files: u64,
    /// Rows in it.
    pub rows: u64,
    /// Files of old output that it took out.
    pub taken_out: u64,
}

impl From<&Committed> for CommitReport {
    fn from(c: &Committed) -> Self {
        Self { n: c.n, checkpoints: c.checkpoints, files: c.files, rows: c.rows, taken_out: c.taken_out }
    }
}

/// Seconds by phase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct SecondsReport {
    /// Listing the sources.
    pub list: f64,
    /// Reading the store and winning an epoch.
    pub open: f64,
    /// Planning.
    pub plan: f64,
    /// Running tasks.
    pub run: f64,
    /// Committing and closing.
    pub commit: f64,
}

/// An error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ErrorReport {
    /// The kind's name.
    pub kind: String,
    /// All of it, as people read it.
    pub message: String,
}

impl From<&Error> for ErrorReport {
    fn from(error: &Error) -> Self {
        Self { kind: error.kind().to_string(), message: error.to_string() }
    }
}

/// What a run did, or what a plan would do.
#[derive(Debug, Clone, Default, Serialize)]
pub struct RunReport {
    /// The store's URL.
    pub store: String,
    /// The epoch; 0 when none was opened.
    pub epoch: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// By source.
    pub sources: Vec<SourceReport>,
    /// Tasks.
    pub tasks: TaskReport,
    /// Row groups.
    pub atoms: AtomReport,
    /// Rows.
    pub rows: RowReport,
    /// Bytes.
    pub bytes: BytesReport,
    /// Requests.
    pub requests: RequestReport,
    /// Commits, in order.
    pub commits: Vec<CommitReport>,
    /// Seconds.
    pub seconds: SecondsReport,
    /// What stopped it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorReport>,
}
