//! Where a table is: its objects, by their paths below its root.

use std::path::PathBuf;
use std::sync::Arc;

use futures::TryStreamExt;
use lakemark::disk::{Disk, DiskStore};
use lakemark::{Bucket, Error, ErrorKind, Result, Root};
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use url::Url;

use crate::synced::SyncedDisk;

/// The folder of the log.
const LOG: &str = "_delta_log";

/// A table's objects. Clones are the same place.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) root: Root,
    /// Reads everything, and writes what may be overwritten.
    pub(crate) objects: Arc<dyn ObjectStore>,
    /// Creates log entries: durable, and only when nobody else has.
    pub(crate) entries: Arc<dyn ObjectStore>,
    /// What the kernel calls the root. All stores here are relative to it, so that no character of a prefix is ever part
    /// of a URL.
    pub(crate) url: Url,
    /// The folder of the log on its disk, if it is on one.
    folder: Option<(PathBuf, Arc<dyn Disk>)>,
}

/// The entry of `version`.
pub(crate) fn entry_path(version: u64) -> Path {
    Path::from(format!("{LOG}/{version:020}.json"))
}

impl Place {
    /// The folder `root` of a disk, which need not exist.
    pub(crate) fn on_disk(root: Root, disk: Arc<dyn Disk>) -> Result<Self> {
        let bad = |e: Box<dyn std::error::Error + Send + Sync>| {
            Error::invalid("the folder cannot be a table's").at(&root).safe("nothing was read or written").caused_by(e)
        };
        let folder = root.local_path().ok_or_else(|| bad("it is not on a disk".into()))?;
        let prefix = Path::parse(root.prefix()).map_err(|e| bad(e.into()))?;
        let objects = PrefixStore::new(LocalFileSystem::new(), prefix);
        let objects = Arc::new(SyncedDisk::new(objects, folder.clone(), Arc::clone(&disk)));
        let url = Url::parse("file:///").map_err(|e| bad(e.into()))?;
        let entries = Arc::new(DiskStore::new(folder.clone(), Arc::clone(&disk)));
        Ok(Self { root, objects, entries, url, folder: Some((folder.join(LOG), disk)) })
    }

    /// The prefix of `root` in `bucket`.
    pub(crate) fn in_bucket(root: Root, bucket: &Bucket) -> Result<Self> {
        let objects = bucket.below(&root)?;
        // The name of the bucket tells the kernel whether its listings are in order.
        let url = format!("{}://{}/", root.scheme(), root.bucket().unwrap_or_default());
        let url = Url::parse(&url).map_err(|e| {
            Error::invalid("the bucket's name cannot be part of a URL")
                .at(&root)
                .safe("nothing was read or written")
                .caused_by(e)
        })?;
        Ok(Self { root, entries: Arc::clone(&objects), objects, url, folder: None })
    }

    /// Whether there is anything in the log, readable or not.
    ///
    /// # Errors
    /// When it cannot be listed: never `false` for that.
    pub(crate) async fn has_log(&self) -> Result<bool> {
        let first = self.objects.list(Some(&Path::from(LOG))).try_next().await;
        first.map(|first| first.is_some()).map_err(|e| self.unavailable("the log cannot be listed", e))
    }

    /// The versions that objects in the log from `version` on are of.
    ///
    /// # Errors
    /// When it cannot be listed.
    pub(crate) async fn versions_from(&self, version: u64) -> Result<Vec<u64>> {
        // Nothing is named so: all names of the version follow it.
        let before = Path::from(format!("{LOG}/{version:020}"));
        let listed = self.objects.list_with_offset(Some(&Path::from(LOG)), &before);
        let versions = listed.try_filter_map(|meta| async move { Ok(version_of(&meta.location)) });
        versions.try_collect().await.map_err(|e| self.unavailable("the log cannot be listed", e))
    }

    /// Makes the names in the log durable. An entry that is seen on a disk may be of a writer that died before it synced
    /// its name: what is recorded because of it must not outlive it.
    ///
    /// # Errors
    /// When it cannot be done: then nothing that was seen may be relied on.
    pub(crate) async fn settle(&self) -> Result<()> {
        let Some((folder, disk)) = self.folder.clone() else { return Ok(()) };
        let synced = tokio::task::spawn_blocking(move || disk.sync_dir(&folder)).await;
        synced.unwrap_or_else(|e| Err(e.into())).map_err(|e| {
            Error::new(ErrorKind::Unavailable, "what is in the log cannot be made durable")
                .at(&self.root)
                .safe("nothing was changed")
                .way("run again when the disk is sound")
                .caused_by(e)
        })
    }

    pub(crate) fn unavailable(&self, what: &str, error: object_store::Error) -> Error {
        Error::new(ErrorKind::Unavailable, what)
            .at(&self.root)
            .safe("nothing was changed")
            .way("run again when the table can be reached")
            .caused_by(error)
    }
}

/// The version of a log entry, a checkpoint or whatever else of one version; the last one of what spans several.
fn version_of(location: &Path) -> Option<u64> {
    let (folder, name) = location.as_ref().rsplit_once('/')?;
    let (digits, rest) = name.split_at_checked(20)?;
    let is_version = folder == LOG && rest.starts_with('.') && digits.bytes().all(|b| b.is_ascii_digit());
    if is_version { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_a_version_have_one() {
        for (name, version) in [
            ("_delta_log/00000000000000000007.json", Some(7)),
            ("_delta_log/00000000000000000012.checkpoint.parquet", Some(12)),
            ("_delta_log/_last_checkpoint", None),
            ("_delta_log/_sidecars/00000000000000000012.parquet", None),
            ("_delta_log/é00000000000000000000.json", None),
            ("_delta_log/7.json", None),
        ] {
            assert_eq!(version_of(&Path::parse(name).unwrap()), version, "{name}");
        }
        assert_eq!(version_of(&entry_path(3)), Some(3));
    }
}
