//! The chain of manifests: reading its newest link, appending one.

use bytes::Bytes;

use super::envelope::{decode, digest, encode};
use super::invariants::may_prune;
use super::manifest::{Head, Manifest};
use super::medium::{Created, Medium};
use super::names::ObjectName;
use super::transition::{Stamp, Transition};
use crate::error::{Error, ErrorKind, Result};
use crate::identity::{AttemptNonce, ManifestVersion, StoreId};

/// Manifests that are kept.
const KEPT: usize = 100;
/// A manifest may not be larger, whatever the history.
const MANIFEST_BYTES: usize = 64 * 1024;

/// [`KEPT`], or what a simulation says.
pub(super) fn kept() -> usize {
    #[cfg(feature = "testing")]
    if let Some(kept) = crate::injected::kept_manifests() {
        return kept;
    }
    KEPT
}

/// How an append ended.
#[derive(Debug)]
#[must_use]
pub enum Appended {
    /// The new manifest is the newest.
    Newest(Head),
    /// It is not: another writer has the version, or one has already gone on. What is newest now.
    Overtaken(Head),
}

/// The chain of one store.
#[derive(Debug, Clone)]
pub struct Chain {
    medium: Medium,
}

impl Chain {
    /// The chain on `medium`.
    pub fn new(medium: Medium) -> Self {
        Self { medium }
    }

    async fn versions(&self) -> Result<Vec<ManifestVersion>> {
        let names = self.medium.list(ObjectName::MANIFESTS).await?;
        let mut versions: Vec<_> = names
            .iter()
            .filter_map(|name| match name.parse() {
                Ok(ObjectName::Manifest(version)) => Some(version),
                _ => None,
            })
            .collect();
        versions.sort_unstable();
        Ok(versions)
    }

    /// The newest version number, by one listing; `None` when there is no manifest.
    pub async fn newest_version(&self) -> Result<Option<ManifestVersion>> {
        Ok(self.versions().await?.last().copied())
    }

    /// The newest manifest. `None`: the prefix is empty, the store is new.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] when there are objects but no manifest, or the newest one is damaged: never "new" (R62, R81).
    pub async fn newest(&self) -> Result<Option<Head>> {
        // A manifest can be pruned between the listing and the read, or the first one made between two listings: list
        // again.
        for _ in 0..5 {
            let Some(version) = self.newest_version().await? else {
                if self.is_empty().await? {
                    return Ok(None);
                }
                continue;
            };
            if let Some(head) = self.read(version).await? {
                return Ok(Some(head));
            }
        }
        Err(Error::new(ErrorKind::Unavailable, "the newest manifest vanished each time it was listed")
            .at(self.medium.place(ObjectName::MANIFESTS))
            .safe("nothing was changed")
            .way("run again; if it stays so, the store does not list consistently and cannot be used"))
    }

    /// Whether a store without a manifest is new. Not, when another driver has made its first manifest by now.
    async fn is_empty(&self) -> Result<bool> {
        let names = self.medium.list("").await?;
        if names.iter().any(|name| matches!(name.parse(), Ok(ObjectName::Manifest(_)))) {
            return Ok(false);
        }
        let left: Vec<_> = names.iter().filter(|name| !matches!(name.parse(), Ok(ObjectName::Probe(_)))).collect();
        match left.first() {
            None => Ok(true),
            Some(name) => Err(Error::corrupt(
                self.medium.url(),
                format!("there is no manifest here, but {} objects such as `{name}`", left.len()),
            )
            .way("use an empty prefix for a new store")),
        }
    }

    /// One manifest; `None` when it is not there.
    pub async fn read(&self, version: ManifestVersion) -> Result<Option<Head>> {
        let name = ObjectName::Manifest(version);
        let Some(bytes) = self.medium.get(name).await? else { return Ok(None) };
        let place = self.medium.place(name);
        let manifest: Manifest = decode("manifest", &place, &bytes)?;
        if manifest.version != version {
            return Err(Error::corrupt(place, format!("this manifest says it is version {}", manifest.version.0)));
        }
        Ok(Some(Head { manifest, digest: digest(&bytes) }))
    }

    /// All retained manifests, oldest first.
    pub async fn history(&self) -> Result<Vec<Head>> {
        use futures::{StreamExt, TryStreamExt};
        let reads: Vec<_> = self.versions().await?.into_iter().map(|v| self.read(v)).collect();
        let heads: Vec<Option<Head>> = futures::stream::iter(reads).buffered(8).try_collect().await?;
        Ok(heads.into_iter().flatten().collect())
    }

    /// Appends the result of `transition` after `old`, then lists and reads again: what counts is what is newest,
    /// never what was meant to be written.
    pub async fn append(&self, old: Option<&Head>, transition: &Transition) -> Result<Appended> {
        let stamp = Stamp { store: StoreId::random(), nonce: AttemptNonce::random(), at: crate::time::now_ms() };
        let manifest = transition.apply(old, stamp)?;
        let bytes = encode("manifest", &manifest)?;
        let name = ObjectName::Manifest(manifest.version);
        if bytes.len() > MANIFEST_BYTES {
            return Err(Error::invalid(format!(
                "the manifest would be {} bytes, more than {MANIFEST_BYTES}",
                bytes.len()
            ))
            .at(self.medium.place(name))
            .way("track fewer sources in one store"));
        }
        let created = self.medium.create(name, bytes.clone()).await?;
        self.settle(manifest, &bytes, created).await
    }

    async fn settle(&self, mine: Manifest, bytes: &Bytes, created: Created) -> Result<Appended> {
        let versions = self.versions().await?;
        let mine_is_newest = versions.last() == Some(&mine.version) && created == Created::Ours;
        if mine_is_newest {
            let head = Head { digest: digest(bytes), manifest: mine };
            self.prune(&versions).await;
            return Ok(Appended::Newest(head));
        }
        match self.newest().await? {
            Some(head) => Ok(Appended::Overtaken(head)),
            None => Err(Error::corrupt(self.medium.url(), "the chain is gone since the last manifest was written")),
        }
    }

    /// Deletes what is older than the newest [`KEPT`] manifests. Failing is harmless: the next append tries again.
    async fn prune(&self, versions: &[ManifestVersion]) {
        let Some(newest) = versions.last() else { return };
        for version in versions.iter().filter(|version| may_prune(**version, *newest, kept())) {
            if let Err(error) = self.medium.delete(ObjectName::Manifest(*version)).await {
                tracing::debug!(%error, "an old manifest was not deleted");
                return;
            }
        }
    }
}
