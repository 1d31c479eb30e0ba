//! `rebase`: a source, or the destination with its store, is at another root.

use std::collections::BTreeMap;

use crate::error::{Error, Result};
use crate::identity::Root;
use crate::run::{Change, Run};
use crate::source::Listing;
use crate::store::transition::Transition;
use crate::store::{Event, Live, Manifest};

/// The roots that change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rebase {
    /// The new roots of sources, by name.
    pub sources: BTreeMap<String, Root>,
    /// The new root of the destination.
    pub sink: Option<Root>,
}

impl Rebase {
    /// Whether no root changes.
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty() && self.sink.is_none()
    }

    /// Without the roots that are as recorded already.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for a source that the store does not know, or a destination when it has none;
    /// [`Refused`](crate::ErrorKind::Refused) when the destination and a source would lie one in the other.
    pub fn against(mut self, manifest: &Manifest) -> Result<Self> {
        if let Some(stranger) = self.sources.keys().find(|name| !manifest.sources.contains_key(*name)) {
            let known: Vec<_> = manifest.sources.keys().map(|name| format!("`{name}`")).collect();
            return Err(Error::invalid(format!("the store has no source `{stranger}`; it has {}", known.join(", ")))
                .safe("nothing was changed"));
        }
        if manifest.sink.is_none() && self.sink.is_some() {
            return Err(Error::invalid("the store has no destination").safe("nothing was changed"));
        }
        self.sources.retain(|name, root| manifest.sources.get(name).is_some_and(|known| known.root != *root));
        self.sink = self.sink.filter(|root| manifest.sink.as_ref().is_some_and(|known| known.root != *root));
        self.check_apart(manifest)?;
        Ok(self)
    }

    /// Every run refuses a destination within a source, and a source within it.
    fn check_apart(&self, manifest: &Manifest) -> Result<()> {
        let Some(sink) = self.sink.as_ref().or(manifest.sink.as_ref().map(|sink| &sink.root)) else { return Ok(()) };
        for (name, settings) in &manifest.sources {
            let source = self.sources.get(name).unwrap_or(&settings.root);
            let (a, b) = (sink.resolved(), source.resolved());
            if a.contains(&b) || b.contains(&a) {
                return Err(Error::refused(format!(
                    "the destination {sink} and source `{name}` ({source}) lie one in the other"
                ))
                .safe("nothing was changed")
                .way("move the destination to a place outside the source"));
            }
        }
        Ok(())
    }

    /// How a listing of the new root of `source` fits what is known: files with path and size as recorded, files with
    /// another size, and files that are gone.
    pub fn fit(live: &Live, source: &str, listing: &Listing) -> (u64, u64, u64) {
        let (mut same, mut other, mut gone) = (0, 0, 0);
        for (path, versions) in live.files(source) {
            match listing.files.binary_search_by(|file| (*file.path).cmp(path)) {
                Err(_) => gone += 1,
                Ok(at) if versions.iter().any(|known| known.file.size == listing.files[at].size) => same += 1,
                Ok(_) => other += 1,
            }
        }
        (same, other, gone)
    }
}

impl Run {
    /// Records the new roots, in one manifest. Nothing is moved: that was done already.
    ///
    /// # Errors
    /// [`Refused`](crate::ErrorKind::Refused) while a commit is not finished: its files are at the old root.
    pub async fn rebase(&self, rebase: Rebase) -> Result<()> {
        let Rebase { sources, sink } = rebase.clone();
        self.operate(
            |segments| Transition::Rebase { sources, sink, segments },
            |head, _| {
                if let Some(intent) = &head.manifest.commits.open
                    && rebase.sink.is_some()
                {
                    return Err(Error::refused(format!("commit {} is not finished", intent.n))
                        .at(self.store().root())
                        .safe("nothing was changed")
                        .way("put the destination back, finish the commit with `lakemark run JOB`, then move it"));
                }
                let from = |name: &str| head.manifest.sources.get(name).map(|settings| settings.root.to_string());
                let sources = rebase
                    .sources
                    .iter()
                    .map(|(name, to)| format!("source `{name}` from {} to {to}", from(name).unwrap_or_default()));
                let sink = rebase.sink.iter().map(|to| {
                    let from = head.manifest.sink.as_ref().map(|sink| sink.root.to_string());
                    format!("destination from {} to {to}", from.unwrap_or_default())
                });
                let what = sources.chain(sink).collect::<Vec<_>>().join(", ");
                Ok(vec![Change::Event(Event::Operated { verb: "rebase".into(), what })])
            },
        )
        .await
    }
}
