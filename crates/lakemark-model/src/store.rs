//! The object store: strongly consistent list and get, create-if-absent, delete. Nothing else is asked of it.

use crate::objects::{Digest, Manifest, Record, Request, Seal};
use crate::words::SealId;

/// A manifest that is there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kept {
    /// The manifest.
    pub manifest: Manifest,
    /// Whether it was created on a name that had been pruned: it is not on the chain.
    pub stray: bool,
}

/// How a create ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Created {
    /// It is there and it is ours.
    Ours {
        /// Whether it is off the chain, which its writer cannot know.
        stray: bool,
    },
    /// Another one has the name.
    Taken,
}

/// What is under a store's prefix, and what is on its way there.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Store {
    /// Manifests, ascending by version.
    pub manifests: Vec<Kept>,
    /// Segments, in the order of their names.
    pub segments: Vec<(Digest, Record)>,
    /// Seals, in the order of their names.
    pub seals: Vec<Seal>,
    /// Requests whose answers nobody waits for.
    pub late: Vec<Request>,
}

impl Store {
    /// The newest manifest, by one listing.
    pub fn newest(&self) -> Option<&Manifest> {
        self.manifests.last().map(|kept| &kept.manifest)
    }

    /// The number of the newest manifest; 0 when there is none.
    pub fn newest_version(&self) -> u8 {
        self.newest().map_or(0, |manifest| manifest.version)
    }

    /// The newest epoch.
    pub fn epoch(&self) -> u8 {
        self.newest().map_or(0, |manifest| manifest.epoch)
    }

    /// Creates `manifest` if its name is free.
    pub fn create_manifest(&mut self, manifest: Manifest) -> Created {
        let at = self.manifests.partition_point(|kept| kept.manifest.version < manifest.version);
        match self.manifests.get(at).filter(|kept| kept.manifest.version == manifest.version) {
            Some(kept) if kept.manifest.digest() == manifest.digest() => Created::Ours { stray: kept.stray },
            Some(_) => Created::Taken,
            None => {
                let stray = at < self.manifests.len();
                self.manifests.insert(at, Kept { manifest, stray });
                Created::Ours { stray }
            }
        }
    }

    /// Deletes what is older than the newest `kept` manifests.
    pub fn prune(&mut self, kept: u8) {
        let newest = self.newest_version();
        self.manifests.retain(|there| there.manifest.version + kept > newest);
    }

    /// The content of the segment that `manifest` names; `None` when it is not there.
    pub fn record(&self, manifest: &Manifest) -> Option<Record> {
        let Some(name) = manifest.segment else { return Some(Record::default()) };
        self.segments.iter().find(|(other, _)| *other == name).map(|(_, record)| record.clone())
    }

    /// Creates a segment. Its name carries its writer, so it is free, or its content is this one.
    pub fn put_segment(&mut self, name: Digest, record: &Record) {
        let key = |digest: &Digest| (digest.version, digest.writer);
        let at = self.segments.partition_point(|(other, _)| key(other) < key(&name));
        if self.segments.get(at).is_none_or(|(other, _)| *other != name) {
            self.segments.insert(at, (name, record.clone()));
        }
    }

    /// The seal of that name.
    pub fn seal(&self, id: SealId) -> Option<&Seal> {
        self.seals.iter().find(|seal| seal.id == id)
    }

    /// Creates `seal` if its name is free; whether the object of that name is this one now.
    pub fn create_seal(&mut self, seal: Seal) -> bool {
        let at = self.seals.partition_point(|other| other.id < seal.id);
        match self.seals.get(at).filter(|other| other.id == seal.id) {
            Some(other) => *other == seal,
            None => {
                self.seals.insert(at, seal);
                true
            }
        }
    }
}
