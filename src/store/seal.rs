//! A seal: the record of one task's finished work, published by one create.

use serde::{Deserialize, Serialize};

use super::names::{ObjectName, output_stem};
use crate::coverage::Coverage;
use crate::error::{Error, Result};
use crate::identity::{AttemptNonce, CheckpointId, Evidence, FileVersion, ManifestVersion, StoreId};

/// What a seal says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SealKind {
    /// The work is done.
    Sealed,
    /// Written by the driver so that no attempt of this id can seal any more; it covers nothing.
    Void,
}

/// A part of one file version that a seal covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedFile {
    /// The source's name.
    pub source: std::sync::Arc<str>,
    /// The version that was read.
    pub file: FileVersion,
    /// What of it is done; in text form.
    #[serde(with = "text")]
    pub coverage: Coverage,
    /// What else was seen of it.
    pub evidence: Evidence,
    /// Whether its mtime was too fresh to be trusted (R04).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unsettled: bool,
}

/// One durable output file that waits in staging for its commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputFile {
    /// Its name; unique, since it carries the attempt (see [`output_name`](super::names::output_name)).
    pub name: String,
    /// The folder under the sink's root where the commit puts it: empty, or partition folders without slashes at the ends.
    pub folder: String,
    /// Bytes.
    pub size: u64,
    /// Rows.
    pub rows: u64,
    /// How it waits on an object store; on a disk it is a file of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload: Option<Upload>,
}

/// An upload in parts, which is no object before it is completed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upload {
    /// As the object store calls it.
    pub id: String,
    /// What it answered for each part, in their order.
    pub parts: Vec<String>,
}

impl Upload {
    /// One text, for a column.
    pub(super) fn to_text(&self) -> String {
        serde_json::json!([self.id, self.parts]).to_string()
    }

    pub(super) fn from_text(text: &str) -> Option<Self> {
        let (id, parts) = serde_json::from_str(text).ok()?;
        Some(Self { id, parts })
    }
}

impl OutputFile {
    /// Checks that it stays below the destination's root, whatever wrote the record.
    pub(crate) fn check(&self, place: &str) -> Result<()> {
        let plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
        let inside = plain(&self.name)
            && !self.name.contains('/')
            && (self.folder.is_empty() || self.folder.split('/').all(plain));
        if inside {
            return Ok(());
        }
        let path = self.path();
        Err(Error::corrupt(place, format!("it names `{}`, which is not below the destination", path.escape_debug())))
    }

    /// The path under the sink's root.
    pub fn path(&self) -> String {
        if self.folder.is_empty() { self.name.clone() } else { format!("{}/{}", self.folder, self.name) }
    }
}

/// The row keys that a seal covers, in an object of their own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedKeys {
    /// The source's name.
    pub source: std::sync::Arc<str>,
    /// How many.
    pub keys: u64,
    /// Bytes of the object.
    pub bytes: u64,
    /// XXH3-128 of its bytes.
    pub digest: String,
}

/// Rows of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Rows in the atoms it covers.
    pub rows_in: u64,
    /// Rows in its output files.
    pub rows_out: u64,
    /// Rows that failed and were left out by policy.
    pub rows_failed: u64,
}

/// The record of one task's finished work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seal {
    /// The store it belongs to.
    pub store: StoreId,
    /// Its name: epoch, input id, sequence.
    pub id: CheckpointId,
    /// The attempt that wrote it.
    pub attempt: AttemptNonce,
    /// What it says.
    pub kind: SealKind,
    /// The manifest version its task was planned from.
    pub planned_from: ManifestVersion,
    /// Milliseconds since 1970.
    pub sealed_at: i64,
    /// What it covers: exactly the atoms whose every row is in `outputs` or was dropped by the pipeline (I2).
    pub files: Vec<SealedFile>,
    /// The row keys that it covers, likewise; in rows mode only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<SealedKeys>,
    /// What came out.
    pub outputs: Vec<OutputFile>,
    /// Rows.
    pub counts: Counts,
}

impl Seal {
    /// A void seal for `id`.
    pub fn void(store: StoreId, id: CheckpointId, planned_from: ManifestVersion, now: i64) -> Self {
        Self {
            store,
            id,
            attempt: AttemptNonce::random(),
            kind: SealKind::Void,
            planned_from,
            sealed_at: now,
            files: Vec::new(),
            keys: None,
            outputs: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// The object of its row keys, if it has any.
    pub fn keys_name(&self) -> Option<ObjectName> {
        self.keys.as_ref().map(|_| ObjectName::Keys(self.id, self.attempt))
    }

    /// Checks that the seal is of `store` and `id` and names only files of its own attempt.
    pub fn check(&self, store: StoreId, id: CheckpointId, place: &str) -> Result<()> {
        if self.store != store {
            return Err(Error::corrupt(place, format!("this seal belongs to store {}, not to {store}", self.store)));
        }
        if self.id != id {
            return Err(Error::corrupt(place, format!("this seal is of checkpoint {}, its name says {id}", self.id)));
        }
        let stem = output_stem(&store.short(), id, self.attempt);
        for output in &self.outputs {
            if !output.name.starts_with(&stem) {
                let what = format!("this seal names `{}`, which is of another attempt", output.name);
                return Err(Error::corrupt(place, what));
            }
            output.check(place)?;
        }
        Ok(())
    }
}

pub(super) mod text {
    //! Values with a text form, as JSON strings.

    use std::fmt::Display;
    use std::str::FromStr;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(in crate::store) fn serialize<T: Display, S: Serializer>(value: &T, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(value)
    }

    pub(in crate::store) fn deserialize<'de, T, D>(d: D) -> Result<T, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}
