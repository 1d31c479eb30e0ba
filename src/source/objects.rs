//! Listing a prefix of an object store.

use std::collections::{BTreeSet, HashSet};

use futures::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};

use super::counters::SourceCounters;
use super::listing::{DELTA_LOG, Found, is_hidden};
use super::select::Select;
use crate::error::{Error, ErrorKind, Result};
use crate::identity::{FileVersion, Root};
use crate::storage::exact_key;

/// How many prefixes are listed at a time.
const FAN_OUT: usize = 16;

/// One listing of one prefix.
pub(super) struct Objects<'a> {
    pub(super) root: &'a Root,
    pub(super) select: &'a Select,
    pub(super) store: &'a dyn ObjectStore,
    pub(super) counters: &'a SourceCounters,
}

impl Objects<'_> {
    /// Everything below the root that is selected; in no order (R39), a path can come twice.
    ///
    /// The prefixes right below the root are listed side by side; if there is a single one, those below it.
    pub(super) async fn list(&self) -> Result<Found> {
        let mut found = Found::default();
        let mut hidden = HashSet::new();
        let mut below = self.level("", &mut found, &mut hidden).await?;
        if let [only] = below.as_slice() {
            let only = only.clone();
            below = self.level(&only, &mut found, &mut hidden).await?;
        }
        let mut parts = stream::iter(below).map(|prefix| self.deep(prefix)).buffer_unordered(FAN_OUT);
        while let Some(objects) = parts.try_next().await? {
            objects.iter().for_each(|object| self.take(object, &mut found, &mut hidden));
        }
        drop(parts);
        found.hidden = hidden.len() as u64;
        found.has_delta_log = hidden.contains(DELTA_LOG);
        Ok(found)
    }

    /// The objects right below `prefix`, and the prefixes there that can hold selected ones.
    async fn level(&self, prefix: &str, found: &mut Found, hidden: &mut HashSet<String>) -> Result<Vec<String>> {
        self.counters.listed();
        let key = key(self.root, prefix)?;
        let level = self.store.list_with_delimiter(key.as_ref()).await.map_err(|e| failed(self.root, prefix, e))?;
        level.objects.iter().for_each(|object| self.take(object, found, hidden));
        let mut below = BTreeSet::new();
        for path in level.common_prefixes.iter().filter_map(|path| relative(self.root, path)) {
            if path.rsplit('/').next().is_some_and(is_hidden) {
                hidden.insert(path.to_owned());
            } else if self.select.descends(path) {
                below.insert(path.to_owned());
            }
        }
        Ok(below.into_iter().collect())
    }

    async fn deep(&self, prefix: String) -> Result<Vec<ObjectMeta>> {
        self.counters.listed();
        let key = key(self.root, &prefix)?;
        self.store.list(key.as_ref()).try_collect().await.map_err(|e| failed(self.root, &prefix, e))
    }

    fn take(&self, object: &ObjectMeta, found: &mut Found, hidden: &mut HashSet<String>) {
        let Some(path) = relative(self.root, &object.location) else { return };
        let mut end = 0;
        for segment in path.split('/') {
            end += segment.len();
            if is_hidden(segment) {
                hidden.insert(path[..end].to_owned());
                return;
            }
            end += 1;
        }
        if self.select.accepts(path) {
            found.files.push(object_version(self.root, path, object));
        }
    }
}

/// The version of the object at `path` below `root`. object_store makes etags for files on disks out of their inodes, which a copy or a restore
/// changes (R10): they are no token.
pub fn object_version(root: &Root, path: &str, object: &ObjectMeta) -> FileVersion {
    let mut file = FileVersion::new(path, object.size);
    if let Some(etag) = object.e_tag.as_deref().filter(|_| !root.is_local()) {
        file = file.with_etag(etag);
    }
    match object.last_modified.timestamp_nanos_opt() {
        Some(mtime) => file.with_mtime(mtime),
        None => file,
    }
}

/// The key of the raw path `relative` below the root; `None` for the whole store. Never re-encoded.
///
/// # Errors
/// [`Invalid`](ErrorKind::Invalid) for a path that cannot be a key, or would be another one once cleaned up.
pub(super) fn key(root: &Root, relative: &str) -> Result<Option<Path>> {
    let raw = match (root.prefix(), relative) {
        ("", path) | (path, "") => path.to_owned(),
        (prefix, path) => format!("{prefix}/{path}"),
    };
    if raw.is_empty() {
        return Ok(None);
    }
    let bad = || {
        Error::invalid("the path cannot be read through object_store").at(root.place(relative)).way("rename the object")
    };
    exact_key(&raw, bad).map(Some)
}

fn relative<'a>(root: &Root, key: &'a Path) -> Option<&'a str> {
    let key = key.as_ref();
    let path = if root.prefix().is_empty() { key } else { key.strip_prefix(root.prefix())?.strip_prefix('/')? };
    (!path.is_empty()).then_some(path)
}

/// A request that failed, and what to do about it. A listing in parts is no listing: it fails as a whole.
pub(super) fn failed(root: &Root, relative: &str, error: object_store::Error) -> Error {
    use object_store::Error as E;
    let (kind, what, way) = match error {
        E::InvalidPath { .. } => (
            ErrorKind::Unsupported,
            "a name in it cannot be read through object_store (an empty, `.` or `..` segment, or a control character)",
            "rename the object that the cause names, or use a root that does not contain it",
        ),
        E::PermissionDenied { .. } | E::Unauthenticated { .. } => (
            ErrorKind::Unavailable,
            "permission to read it is denied",
            "give these credentials permission to list and read it",
        ),
        _ => (ErrorKind::Unavailable, "the object store did not answer", "run again when it can be reached"),
    };
    Error::new(kind, what).at(root.place(relative)).caused_by(error).way(way)
}
