//! What is checked at every single write, whoever makes it: I1 and the one line of the chain as the bucket sees them.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use lakemark::store::ObjectName;
use serde_json::Value;

use crate::objects::{OUT, STORE};
use crate::situations::{Seen, Situation};

/// The watch over one bucket.
#[derive(Clone)]
pub(crate) struct Watch {
    /// The highest manifest version that was ever created.
    pub(crate) highest_version: u64,
    /// The highest epoch that was ever opened.
    pub(crate) highest_epoch: u64,
    /// Objects that were created or changed below store and destination.
    pub(crate) writes: u64,
    /// Who wrote the manifests of an epoch.
    writers: BTreeMap<u64, String>,
    held: bool,
    commit_is_open: bool,
    named_segments: BTreeSet<String>,
    complaints: Vec<String>,
    seen: Seen,
}

/// The name below the store's prefix.
fn in_store(key: &str) -> Option<ObjectName> {
    key.strip_prefix(STORE)?.strip_prefix('/')?.parse().ok()
}

impl Watch {
    pub(crate) fn new(seen: Seen) -> Self {
        Self {
            highest_version: 0,
            highest_epoch: 0,
            writes: 0,
            writers: BTreeMap::new(),
            held: false,
            commit_is_open: false,
            named_segments: BTreeSet::new(),
            complaints: Vec::new(),
            seen,
        }
    }

    pub(crate) fn take_complaints(&mut self) -> Vec<String> {
        std::mem::take(&mut self.complaints)
    }

    /// Somebody puts `bytes` at `key`; `over` another object.
    pub(crate) fn put(&mut self, actor: &str, key: &str, bytes: &Bytes, over: bool) {
        let ours = key.starts_with(STORE) || key.starts_with(OUT);
        self.writes += u64::from(ours);
        if over && ours {
            self.complaints.push(format!("I1: {key} was overwritten"));
        }
        match in_store(key) {
            Some(ObjectName::Manifest(_)) => self.manifest(actor, key, bytes),
            Some(ObjectName::Seal(id)) if id.epoch.0 < self.highest_epoch => self.seen.note(Situation::ZombieSeal),
            _ => {}
        }
    }

    fn manifest(&mut self, actor: &str, key: &str, bytes: &Bytes) {
        let frame: Value = serde_json::from_slice(bytes).unwrap_or_default();
        let body = &frame["body"];
        let (version, epoch) = (body["version"].as_u64().unwrap_or(0), body["epoch"].as_u64().unwrap_or(0));
        if version <= self.highest_version {
            self.seen.note(Situation::PrunedName);
            return;
        }
        let writer = self.writers.entry(epoch).or_insert_with(|| actor.to_owned());
        if writer != actor {
            self.complaints.push(format!("{key}: epoch {epoch} is of {writer}, and {actor} writes under it"));
        }
        if body["transition"] == "open" && self.held {
            self.seen.note(Situation::Takeover);
        }
        self.held = !body["holder"].is_null();
        self.commit_is_open = !body["commits"]["open"].is_null();
        self.named_segments = body["segments"].as_array().into_iter().flatten().map(segment_key).collect();
        (self.highest_version, self.highest_epoch) = (version, self.highest_epoch.max(epoch));
    }

    /// A create found an object; `own`: with the bytes that were to be written.
    pub(crate) fn lost_create(&mut self, key: &str, own: bool) {
        if !own && matches!(in_store(key), Some(ObjectName::Manifest(_))) {
            self.seen.note(Situation::LostCreate);
        }
    }

    /// An upload becomes an object; `over` another one.
    pub(crate) fn complete(&mut self, key: &str, over: bool) {
        self.writes += 1;
        if over {
            self.complaints.push(format!("I1: {key} was overwritten by the completion of an upload"));
        }
    }

    pub(crate) fn delete(&mut self, key: &str) {
        let is_visible = key.strip_prefix(OUT).is_some_and(|rest| rest.starts_with('/'));
        // A commit takes out what is visible of a checkpoint whose other files are gone.
        if is_visible && !self.commit_is_open {
            self.complaints.push(format!("I9: {key} was deleted, and no commit is open"));
        }
    }

    /// Whether the newest manifest names the segment at `key`.
    pub(crate) fn names(&self, key: &str) -> bool {
        self.named_segments.contains(key)
    }
}

fn segment_key(segment: &Value) -> String {
    let version = segment["version"].as_u64().unwrap_or(0);
    format!("{STORE}/segments/{version:020}-{}.parquet", segment["nonce"].as_str().unwrap_or_default())
}
