//! From a URL to the bucket it names.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use object_store::ObjectStore;
use object_store::memory::InMemory;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::prefix::PrefixStore;

use super::options::StorageOptions;
use crate::error::{Error, ErrorKind, Result};
use crate::identity::Root;

/// A whole bucket, for objects and for uploads in parts. Nothing is asked of it before the first request.
#[derive(Clone)]
pub struct Bucket {
    /// Its objects, by their keys in the bucket.
    pub objects: Arc<dyn ObjectStore>,
    /// Uploads in parts, which are no objects before they are completed.
    pub uploads: Arc<dyn MultipartStore>,
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.objects)
    }
}

/// Buckets in memory live as long as the process, by name, so that two openings of one URL are one bucket.
static MEMORY: LazyLock<Mutex<HashMap<String, Arc<InMemory>>>> = LazyLock::new(Mutex::default);

impl Bucket {
    /// The bucket that `root` names.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) for a disk, and for a provider this build does not have;
    /// [`Invalid`](ErrorKind::Invalid) for options that the provider does not know or cannot use.
    pub fn connect(root: &Root, options: &StorageOptions) -> Result<Self> {
        let endpoint = options.endpoint();
        // The client would panic at its first request.
        let broken = endpoint.contains(char::is_whitespace) || url::Url::parse(endpoint).is_err();
        if !endpoint.is_empty() && broken {
            return Err(Error::invalid(format!("{endpoint:?} is no URL of a server"))
                .at(root)
                .safe("nothing was read or written")
                .way("write it as http://host:port or https://host"));
        }
        match root.scheme() {
            "memory" => Ok(Self::memory(root)),
            #[cfg(feature = "aws")]
            "s3" => super::cloud::s3(root, options),
            #[cfg(not(feature = "aws"))]
            "s3" => Err(left_out(root, "aws")),
            #[cfg(feature = "gcp")]
            "gs" => super::cloud::gs(root, options),
            #[cfg(not(feature = "gcp"))]
            "gs" => Err(left_out(root, "gcp")),
            #[cfg(feature = "azure")]
            "az" => super::cloud::az(root, options),
            #[cfg(not(feature = "azure"))]
            "az" => Err(left_out(root, "azure")),
            _ => Err(Error::new(ErrorKind::Unsupported, format!("{root} is not on an object store")).at(root)),
        }
    }

    pub(super) fn of<S: ObjectStore + MultipartStore>(store: Arc<S>) -> Self {
        Self { objects: Arc::clone(&store) as Arc<dyn ObjectStore>, uploads: store }
    }

    fn memory(root: &Root) -> Self {
        let mut buckets = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
        Self::of(Arc::clone(buckets.entry(root.bucket().unwrap_or_default().to_owned()).or_default()))
    }

    /// The objects below the prefix of `root`, by their keys relative to it.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for a prefix that cannot be a key.
    pub fn below(&self, root: &Root) -> Result<Arc<dyn ObjectStore>> {
        if root.prefix().is_empty() {
            return Ok(Arc::clone(&self.objects));
        }
        let bad = || Error::invalid("the prefix cannot be a key of an object store").at(root).way("use another prefix");
        let prefix = exact_key(root.prefix(), bad)?;
        Ok(Arc::new(PrefixStore::new(Arc::clone(&self.objects), prefix)))
    }
}

/// The key with exactly this text: never re-encoded, never cleaned up into another one. `bad` says what cannot be a key.
pub(crate) fn exact_key(text: &str, bad: impl Fn() -> Error) -> Result<Path> {
    let key = Path::parse(text).map_err(|e| bad().caused_by(e))?;
    if key.as_ref() == text { Ok(key) } else { Err(bad()) }
}

#[cfg(any(not(feature = "aws"), not(feature = "azure"), not(feature = "gcp")))]
fn left_out(root: &Root, feature: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("this build has no support for {}", root.scheme()))
        .at(root)
        .way(format!("build with the feature `{feature}` of the crate `lakemark`"))
}

#[cfg(test)]
mod tests {
    use object_store::{ObjectStoreExt, PutPayload};

    use super::*;

    fn root(url: &str) -> Root {
        Root::parse(url).unwrap()
    }

    #[test]
    fn unknown_options_are_refused_and_values_are_never_shown() {
        let options: StorageOptions = [("aws_regoin", "secret-value")].into_iter().collect();
        for url in ["s3://b/x", "gs://b/x", "az://c@account/x"] {
            let error = Bucket::connect(&root(url), &options).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            assert!(error.to_string().contains("aws_regoin") && !error.to_string().contains("secret"), "{error}");
        }
        assert!(!format!("{options:?}").contains("secret"));
        let options: StorageOptions = [("bucket", "other")].into_iter().collect();
        assert!(Bucket::connect(&root("s3://b/x"), &options).unwrap_err().to_string().contains("another bucket"));
        for endpoint in ["http://a b", "localhost", "http://x\ny"] {
            let options: StorageOptions = [("endpoint", endpoint)].into_iter().collect();
            let error = Bucket::connect(&root("s3://b/x"), &options).unwrap_err();
            assert!(error.to_string().contains("no URL of a server"), "{error}");
        }
        assert_eq!(Bucket::connect(&root("/x"), &options).unwrap_err().kind(), ErrorKind::Unsupported);
    }

    #[tokio::test]
    async fn a_bucket_in_memory_is_one_by_its_name_and_prefixes_are_apart() {
        let (a, b) = (root("memory://one/a"), root("memory://one/b"));
        let store = |root: &Root| Bucket::connect(root, &StorageOptions::default()).unwrap().below(root).unwrap();
        store(&a).put(&Path::from("x"), PutPayload::from_static(b"1")).await.unwrap();
        assert!(store(&a).head(&Path::from("x")).await.is_ok());
        assert!(store(&b).head(&Path::from("x")).await.is_err());
    }
}
