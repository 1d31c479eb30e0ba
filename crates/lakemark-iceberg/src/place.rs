//! Where a table is, and how the names in its metadata lead to objects.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use lakemark::disk::{Disk, DiskStore, RealDisk};
use lakemark::{Bucket, Error, ErrorKind, Result, Root, StorageOptions};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{ObjectStore, ObjectStoreExt, PutMode};

/// The folder of the data files below a table, as every writer of Iceberg has it.
pub(crate) const DATA: &str = "data";

/// A table's objects. Clones are the same place.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) root: Root,
    /// The root as names in the metadata begin: raw text, never percent-encoded.
    pub(crate) location: String,
    /// The data files, below their folder.
    pub(crate) files: Arc<dyn ObjectStore>,
    /// Where new metadata is created: durable, and only when nothing is there.
    created: Arc<dyn ObjectStore>,
    /// Everything that a name can lead to.
    reached: Reached,
}

#[derive(Debug, Clone)]
enum Reached {
    Disk,
    /// By the name of the bucket.
    Bucket(String, Arc<dyn ObjectStore>),
}

impl Place {
    /// The place that `url` names, reached with `options`.
    pub(crate) fn connect(url: &str, options: &StorageOptions) -> Result<Self> {
        let root = Root::parse(url)?;
        if root.prefix().contains(['#', '?']) {
            return Err(Error::invalid(
                "an Iceberg table cannot be where `#` or `?` is in the path: other tools end it there",
            )
            .at(&root)
            .safe("nothing was read or written")
            .way("put it somewhere else"));
        }
        if root.is_local() {
            return Self::on_disk(root, Arc::new(RealDisk));
        }
        let bucket = Bucket::connect(&root, options)?;
        Self::in_bucket(root, &bucket)
    }

    /// The folder `root` of a disk, which need not exist.
    pub(crate) fn on_disk(root: Root, disk: Arc<dyn Disk>) -> Result<Self> {
        let bad = |e: Box<dyn std::error::Error + Send + Sync>| {
            Error::invalid("the folder cannot be a table's").at(&root).safe("nothing was read or written").caused_by(e)
        };
        let folder = root.local_path().ok_or_else(|| bad("it is not on a disk".into()))?;
        let data = Path::parse(root.join(DATA).prefix()).map_err(|e| bad(e.into()))?;
        Ok(Self {
            location: format!("file:///{}", root.prefix()),
            files: Arc::new(PrefixStore::new(LocalFileSystem::new(), data)),
            created: Arc::new(DiskStore::new(folder, disk)),
            reached: Reached::Disk,
            root,
        })
    }

    /// The prefix of `root` in `bucket`.
    pub(crate) fn in_bucket(root: Root, bucket: &Bucket) -> Result<Self> {
        if root.scheme() == "az" {
            return Err(Error::new(ErrorKind::Unsupported, "Iceberg tables on Azure are not written in this version")
                .at(&root)
                .safe("nothing was read or written")
                .way("put the table on a disk, on S3 or on Google Cloud Storage"));
        }
        let name = format!("{}://{}", root.scheme(), root.bucket().unwrap_or_default());
        Ok(Self {
            location: root.place("").trim_end_matches('/').to_owned(),
            files: bucket.below(&root.join(DATA))?,
            created: bucket.below(&root)?,
            reached: Reached::Bucket(name, Arc::clone(&bucket.objects)),
            root,
        })
    }

    /// What `name` in the metadata is called below the root; `None`: it is elsewhere.
    pub(crate) fn relative<'a>(&self, name: &'a str) -> Option<&'a str> {
        let rest = match &self.reached {
            Reached::Disk => local_path(name)?.strip_prefix('/')?,
            Reached::Bucket(bucket, _) => key_in(bucket, name)?,
        };
        let prefix = self.root.prefix();
        if prefix.is_empty() { Some(rest) } else { rest.strip_prefix(prefix)?.strip_prefix('/') }
    }

    /// Whether `location`, as the metadata spells it, is this place.
    pub(crate) fn is_at(&self, location: &str) -> bool {
        let location = location.trim_end_matches('/');
        location == self.location || self.relative(&format!("{location}/x")) == Some("x")
    }

    /// The whole object that `name` in the metadata leads to.
    pub(crate) async fn read(&self, name: &str) -> object_store::Result<Bytes> {
        match &self.reached {
            Reached::Disk => {
                let path = PathBuf::from(local_path(name).ok_or_else(|| elsewhere(name))?);
                tokio::fs::read(&path).await.map(Bytes::from).map_err(|error| {
                    let path = path.display().to_string();
                    match error.kind() {
                        std::io::ErrorKind::NotFound => object_store::Error::NotFound { path, source: error.into() },
                        _ => object_store::Error::Generic { store: "disk", source: format!("{path}: {error}").into() },
                    }
                })
            }
            Reached::Bucket(bucket, objects) => {
                let key = Path::parse(key_in(bucket, name).ok_or_else(|| elsewhere(name))?)?;
                objects.get(&key).await?.bytes().await
            }
        }
    }

    /// Creates the object `name`, durable before success.
    pub(crate) async fn create(&self, name: &str, bytes: Bytes) -> object_store::Result<()> {
        let path = Path::parse(self.relative(name).ok_or_else(|| elsewhere(name))?)?;
        self.created.put_opts(&path, bytes.into(), PutMode::Create.into()).await.map(drop)
    }
}

/// The absolute path of a name on a disk: plain, or with the scheme `file` and any number of slashes.
fn local_path(name: &str) -> Option<&str> {
    let rest = name.strip_prefix("file:").unwrap_or(name);
    let rest = rest.strip_prefix("//").filter(|rest| rest.starts_with('/')).unwrap_or(rest);
    rest.starts_with('/').then_some(rest)
}

/// The key of `name` in `bucket`, which has the scheme `s3` for all that S3 is called.
fn key_in<'a>(bucket: &str, name: &'a str) -> Option<&'a str> {
    let (scheme, rest) = name.split_once("://")?;
    let (scheme_of, name_of) = bucket.split_once("://")?;
    let same = match scheme {
        "s3a" | "s3n" => scheme_of == "s3",
        "gcs" => scheme_of == "gs",
        scheme => scheme == scheme_of,
    };
    if same { rest.strip_prefix(name_of)?.strip_prefix('/') } else { None }
}

fn elsewhere(name: &str) -> object_store::Error {
    object_store::Error::Generic {
        store: "table",
        source: format!("{name} is neither below the table nor in its bucket").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_one_object_however_they_are_spelled() {
        let on_disk = Place::on_disk(Root::parse("/lake/ta ble%20é#[1]").unwrap(), Arc::new(RealDisk)).unwrap();
        assert_eq!(on_disk.location, "file:///lake/ta ble%20é#[1]");
        for location in ["/lake/ta ble%20é#[1]", "file:/lake/ta ble%20é#[1]/", "file:///lake/ta ble%20é#[1]"] {
            assert!(on_disk.is_at(location), "{location}");
            assert_eq!(
                on_disk.relative(&format!("{location}/a/b")).map(|path| path.trim_start_matches('/')),
                Some("a/b")
            );
        }
        for location in ["/lake/other", "/lake/ta ble%20é#[1]2", "s3://lake/ta ble%20é#[1]", "lake/ta ble%20é#[1]"] {
            assert!(!on_disk.is_at(location), "{location}");
        }
        let root = Root::parse("memory://bucket/t").unwrap();
        let bucket = Bucket::connect(&root, &StorageOptions::default()).unwrap();
        let in_bucket = Place::in_bucket(root, &bucket).unwrap();
        assert!(in_bucket.is_at("memory://bucket/t/") && !in_bucket.is_at("memory://bucket2/t"));
        assert_eq!(key_in("s3://b", "s3a://b/k/x"), Some("k/x"));
        assert_eq!(key_in("s3://b", "gs://b/k"), None);
        assert_eq!(key_in("s3://b", "s3://bb/k"), None);
    }
}
