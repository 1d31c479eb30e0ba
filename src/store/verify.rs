//! Looking at every object of a store, whatever the first fault says.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use bytes::Bytes;
use futures::{StreamExt, stream};
use serde::Serialize;

use super::chain::kept;
use super::envelope::{decode, digest};
use super::invariants::may_prune;
use super::keys::decode_keys;
use super::live::Live;
use super::manifest::{Head, Manifest};
use super::names::ObjectName;
use super::object::ObjectCheckpointStore;
use super::segment::{Levels, SegmentData, decode_segment};
use super::{Seal, commit_object};
use crate::blocking::off_thread;
use crate::error::{Error, Result};
use crate::identity::{AttemptNonce, ManifestVersion};

/// How many objects are read at a time.
const READS: usize = 16;

/// What was found at one object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// Its name in the store.
    pub object: String,
    /// What is wrong with it.
    pub what: String,
}

/// What a look at every object found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// Objects that were read.
    pub objects: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// What is wrong, by name. Without any the store is sound.
    pub faults: Vec<Fault>,
    /// Names that are no objects of a store (R85): they mean nothing.
    pub unknown: Vec<String>,
}

impl ObjectCheckpointStore {
    /// Reads every object: each must be whole and what its name says, each manifest must follow its parent, and what the
    /// newest manifest names must be there. Goes on after each fault; changes nothing.
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable) when the store cannot be listed or an object not be read;
    /// [`Invalid`](crate::ErrorKind::Invalid) when there is no store.
    pub async fn verify(&self) -> Result<Verified> {
        let names = self.medium.list("").await?;
        if names.is_empty() {
            return Err(Error::invalid("there is no store here").at(self.root()).way("check the path of the store"));
        }
        let mut verified = Verified::default();
        let mut objects = Vec::new();
        for name in names {
            match name.parse::<ObjectName>() {
                Ok(object) => objects.push(object),
                Err(_) if ObjectName::is_known(&name) => {}
                Err(_) => verified.unknown.push(name),
            }
        }
        objects.sort_unstable();
        let mut manifests: BTreeMap<ManifestVersion, Head> = BTreeMap::new();
        let mut segments: BTreeMap<ObjectName, String> = BTreeMap::new();
        let mut commits: BTreeMap<ObjectName, String> = BTreeMap::new();
        let mut keys: BTreeMap<ObjectName, String> = BTreeMap::new();
        let mut seals: Vec<(ObjectName, Seal)> = Vec::new();
        let read = async |name: ObjectName| (name, self.medium.get(name).await);
        let reads: Vec<_> = objects.into_iter().map(read).collect();
        let mut reads = stream::iter(reads).buffered(READS);
        while let Some((name, read)) = reads.next().await {
            // Pruned or cleaned up since the listing.
            let Some(bytes) = read? else { continue };
            verified.objects += 1;
            verified.bytes += bytes.len() as u64;
            let place = self.medium.place(name);
            let looked = match name {
                ObjectName::Manifest(version) => decode::<Manifest>("manifest", &place, &bytes).and_then(|manifest| {
                    if manifest.version != version {
                        return Err(Error::corrupt(&place, format!("it says it is version {}", manifest.version.0)));
                    }
                    manifests.insert(version, Head { manifest, digest: digest(&bytes) });
                    Ok(())
                }),
                ObjectName::Seal(_) => decode::<Seal>("seal", &place, &bytes).map(|seal| seals.push((name, seal))),
                ObjectName::Segment(..) => {
                    segments.insert(name, digest(&bytes));
                    whole(place, bytes, |place, bytes| decode_segment(place, bytes).map(drop)).await
                }
                ObjectName::Commit(..) => {
                    commits.insert(name, digest(&bytes));
                    whole(place, bytes, |place, bytes| commit_object::decode(place, bytes).map(drop)).await
                }
                ObjectName::KeySegment(..) => {
                    segments.insert(name, digest(&bytes));
                    whole(place, bytes, |place, bytes| decode_keys(place, bytes).map(drop)).await
                }
                ObjectName::Keys(..) => {
                    keys.insert(name, digest(&bytes));
                    whole(place, bytes, |place, bytes| decode_keys(place, bytes).map(drop)).await
                }
                ObjectName::Beat(..) => decode::<AttemptNonce>("beat", &place, &bytes).map(drop),
                ObjectName::Probe(_) | ObjectName::Unfinished(_) => Ok(()),
            };
            if let Err(error) = looked {
                verified.fault(name, error.what());
            }
        }
        let Some(newest) = manifests.values().next_back() else {
            verified
                .faults
                .push(Fault { object: ObjectName::MANIFESTS.into(), what: "no manifest can be read".into() });
            return Ok(verified);
        };
        let manifest = newest.manifest.clone();
        for (name, seal) in &seals {
            let ObjectName::Seal(id) = *name else { continue };
            if let Err(error) = seal.check(manifest.store, id, "") {
                verified.fault(*name, error.what());
            }
            // Those of older epochs are folded, and their keys may be collected before them.
            let staged = seal.keys_name().zip(seal.keys.as_ref()).filter(|_| id.epoch == manifest.epoch);
            if let Some((object, sealed)) = staged {
                match keys.get(&object) {
                    Some(found) if *found == sealed.digest => {}
                    Some(_) => verified.fault(*name, "the row keys that it names are not what it says"),
                    None => verified.fault(*name, "the row keys that it names are not there"),
                }
            }
        }
        // A fenced writer can have created a pruned name again: nothing is decided from it.
        manifests.retain(|version, _| !may_prune(*version, manifest.version, kept()));
        verified.check_chain(&manifests);
        verified.check_digests(&manifests, &segments, &commits);
        for segment in manifest.segments.iter().filter(|segment| !segments.contains_key(&segment.name())) {
            verified.fault(segment.name(), "the newest manifest names it, and it is not there");
        }
        for segment in manifest.keys.iter().filter(|segment| !segments.contains_key(&segment.name())) {
            verified.fault(segment.name(), "the newest manifest names it, and it is not there");
        }
        for intent in manifest.commits.open.iter().filter(|intent| !commits.contains_key(&intent.name())) {
            verified.fault(intent.name(), "the open intent names it, and it is not there");
        }
        if verified.faults.is_empty() {
            let live = verified.check_live(Levels::read(&self.medium, &manifest).await?);
            for source in manifest.keys.iter().map(|segment| &*segment.source).collect::<BTreeSet<_>>() {
                if self.twice_covered(&manifest, &live, source).await? > 0 {
                    let what = format!("I5: a key of source `{source}` is covered twice");
                    verified.faults.push(Fault { object: "keys".into(), what });
                }
            }
        }
        verified.faults.sort_by(|a, b| a.object.cmp(&b.object));
        verified.faults.dedup();
        Ok(verified)
    }
}

/// Lets `decode` look at `bytes` on a thread of its own: a decoder that panics on damage finds a fault, too.
async fn whole(place: String, bytes: Bytes, decode: fn(&str, Bytes) -> Result<()>) -> Result<()> {
    let at = place.clone();
    let decoded = off_thread(move || decode(&place, bytes)).await;
    decoded.unwrap_or_else(|_| Err(Error::corrupt(at, "it cannot be decoded: the decoder stopped")))
}

impl Verified {
    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.faults.is_empty()
    }

    fn fault(&mut self, object: ObjectName, what: &str) {
        self.faults.push(Fault { object: object.to_string(), what: what.to_owned() });
    }

    /// I8: the chain is one line, as far back as it is kept.
    fn check_chain(&mut self, manifests: &BTreeMap<ManifestVersion, Head>) {
        let mut before: Option<&Head> = None;
        for head in manifests.values() {
            let name = ObjectName::Manifest(head.manifest.version);
            if let Some(parent) = before.filter(|p| p.manifest.version.next() == head.manifest.version) {
                if head.manifest.parent.as_ref() != Some(&parent.digest) {
                    self.fault(name, "its parent is not the manifest before it");
                }
                if head.manifest.epoch < parent.manifest.epoch || head.manifest.store != parent.manifest.store {
                    self.fault(name, "its epoch or store does not follow from the manifest before it");
                }
            }
            before = Some(head);
        }
    }

    /// Whatever a manifest that is kept once named is what it named, also when nothing needs it any more.
    fn check_digests(
        &mut self,
        manifests: &BTreeMap<ManifestVersion, Head>,
        segments: &BTreeMap<ObjectName, String>,
        commits: &BTreeMap<ObjectName, String>,
    ) {
        for head in manifests.values() {
            let named = head.manifest.segments.iter().map(|s| (s.name(), &s.digest, segments));
            let keys = head.manifest.keys.iter().map(|s| (s.name(), &s.digest, segments));
            let intent = head.manifest.commits.open.iter().map(|i| (i.name(), &i.digest, commits));
            for (name, digest, found) in named.chain(keys).chain(intent) {
                let is_told = || self.faults.iter().any(|fault| fault.object == name.to_string());
                if found.get(&name).is_some_and(|is| is != digest) && !is_told() {
                    self.fault(name, "its checksum is not the one that a manifest names");
                }
            }
        }
    }

    /// I5: no part of a file version is covered by two live checkpoints; and every record has its checkpoint.
    fn check_live(&mut self, data: SegmentData) -> Live {
        let ids: HashSet<_> = data.checkpoints.iter().map(|row| row.id).collect();
        let orphan = data.files.iter().find(|row| !ids.contains(&row.checkpoint)).map(|row| row.checkpoint);
        if let Some(id) = orphan {
            self.faults.push(Fault { object: "segments".into(), what: format!("files of {id} without its record") });
        }
        let live = Live::new(data);
        let sources: Vec<String> = live.sources().map(str::to_owned).collect();
        for source in &sources {
            for (path, versions) in live.files(source) {
                for version in versions {
                    let parts = &version.parts;
                    let twice = (0..parts.len()).any(|i| parts[..i].iter().any(|(_, p)| p.overlaps(&parts[i].1)));
                    if twice {
                        let what = format!("I5: a part of `{path}` of source `{source}` is covered twice");
                        self.faults.push(Fault { object: "segments".into(), what });
                    }
                }
            }
        }
        live
    }
}
