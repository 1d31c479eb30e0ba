//! Known-bad protocols. Each is one rule left out; the simulation must find each, or it proves nothing.

use std::sync::Mutex;

use async_trait::async_trait;
use bytes::Bytes;
use lakemark::faults::Commits;
use lakemark::{Intent, Result, Settled, Sink};
use object_store::ObjectMeta;
use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_128;

use crate::objects::{Objects, STORE};
use crate::world::{World, lock};

/// A rule that is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// A writer believes that what it created is the newest manifest.
    NoListAfterCreate,
    /// Files are made visible before the chain says which.
    CommitWithoutIntent,
    /// A file whose upload could not be completed is given up without ending the upload: the barrier of a directory on
    /// an object store.
    GivesUpWithoutBarrier,
    /// A task that does not answer is planned again while it can still be sealed.
    ReplansWithoutVoid,
    /// What is not named and is old is deleted.
    GarbageByAge,
    /// An operator writes a manifest under the epoch of the driver.
    OperatorInDriversEpoch,
    /// A segment that is there counts, although the manifest does not name it.
    FoldsUnnamedSegment,
    /// A worker seals what it left out as done.
    SkipsCountAsCovered,
}

impl Variant {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::NoListAfterCreate,
        Self::CommitWithoutIntent,
        Self::GivesUpWithoutBarrier,
        Self::ReplansWithoutVoid,
        Self::GarbageByAge,
        Self::OperatorInDriversEpoch,
        Self::FoldsUnnamedSegment,
        Self::SkipsCountAsCovered,
    ];
}

/// What one process believes of the chain ([`Variant::NoListAfterCreate`]).
#[derive(Default)]
pub(crate) struct Belief(Mutex<Option<String>>);

impl Belief {
    /// It created `key`.
    pub(crate) fn created(&self, key: &str) {
        if key.starts_with(MANIFESTS) {
            *lock(&self.0) = Some(key.to_owned());
        }
    }

    /// The listing after a create shows nothing that is newer: as if it had not been made.
    pub(crate) fn leave_out_later(&self, prefix: &str, found: &mut Vec<ObjectMeta>) {
        if MANIFESTS.strip_suffix('/') == Some(prefix)
            && let Some(created) = lock(&self.0).take()
        {
            found.retain(|meta| meta.location.as_ref() <= created.as_str());
        }
    }
}

const MANIFESTS: &str = "store/manifests/";

/// Takes every failure for a proof ([`Variant::GivesUpWithoutBarrier`]).
#[derive(Debug)]
pub(crate) struct GivingUp;

#[async_trait]
impl Commits for GivingUp {
    async fn commit(&self, sink: &dyn Sink, intent: &Intent<'_>) -> Result<Settled> {
        let mut missing = Vec::new();
        for file in intent.files {
            match sink.commit(&Intent { files: std::slice::from_ref(file), ..*intent }).await {
                Ok(Settled::Done { missing: gone, .. }) => missing.extend(gone),
                _ => missing.push(file.name.clone()),
            }
        }
        Ok(Settled::Done { missing, table: None })
    }
}

/// The bytes of a manifest that follows the newest one, as no API of the core would write it.
fn follow(objects: &Objects, change: impl FnOnce(&mut Value)) -> Option<(String, Bytes)> {
    let (_, newest) = objects.contents(MANIFESTS.trim_end_matches('/')).pop()?;
    let frame: Value = serde_json::from_slice(&newest).ok()?;
    let mut body = frame["body"].clone();
    let version = body["version"].as_u64()? + 1;
    body["version"] = version.into();
    body["parent"] = format!("{:032x}", xxh3_128(&newest)).into();
    change(&mut body);
    let text = body.to_string();
    let checksum = format!("{:032x}", xxh3_128(text.as_bytes()));
    let bytes = format!(r#"{{"lakemark":"manifest","format":1,"checksum":"{checksum}","body":{text}}}"#);
    Some((format!("{MANIFESTS}{version:020}.json"), bytes.into()))
}

/// Closes the epoch of whoever holds it ([`Variant::OperatorInDriversEpoch`]).
pub(crate) fn close_anothers_epoch(world: &World, actor: &str) {
    let written = world.with_objects(actor, |objects| {
        let close = |body: &mut Value| {
            body["transition"] = "close".into();
            body["holder"] = Value::Null;
        };
        let (key, bytes) = follow(objects, close)?;
        objects.put(actor, &key, bytes, true).ok()
    });
    world.say(actor, format_args!("closed another's epoch: {}", written.is_some()));
}

/// Opens an epoch that names a segment which nobody named ([`Variant::FoldsUnnamedSegment`]).
pub(crate) fn open_with_unnamed_segment(world: &World, actor: &str) {
    world.with_objects(actor, |objects| {
        let all = objects.contents(&format!("{STORE}/segments"));
        let (key, bytes) = all.into_iter().rev().find(|(key, _)| !objects.watch.names(key))?;
        let name = key.rsplit('/').next()?.strip_suffix(".parquet")?;
        let (version, nonce) = name.split_once('-')?;
        let segment = json!({
            "version": version.parse::<u64>().ok()?, "nonce": nonce, "level": 40, "bytes": bytes.len(),
            "digest": format!("{:032x}", xxh3_128(&bytes)), "rows": 1,
        });
        let open = |body: &mut Value| {
            body["transition"] = "open".into();
            body["epoch"] = (body["epoch"].as_u64().unwrap_or(0) + 1).into();
            body["holder"] = json!({
                "host": "x", "boot_id": null, "pid_namespace": null, "pid": 0, "started_ticks": null, "since": 0,
            });
            if let Some(segments) = body["segments"].as_array_mut() {
                segments.retain(|segment| segment["level"] != 40);
                segments.push(segment);
            }
        };
        let (key, bytes) = follow(objects, open)?;
        objects.put(actor, &key, bytes, true).ok()
    });
}
