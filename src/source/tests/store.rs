//! An object store that misbehaves.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, Result,
};

#[derive(Debug)]
pub(super) struct Bad {
    pub(super) inner: Arc<InMemory>,
    /// Listings come in another order, each object twice.
    pub(super) shuffled: bool,
    /// No etags anywhere.
    pub(super) no_etag: bool,
    /// `if_match` is ignored.
    pub(super) unconditional: bool,
    /// Reads without `if_match` fail.
    pub(super) strict: bool,
    /// This many reads are still to fail.
    pub(super) failing: Arc<AtomicU64>,
    /// Listings below a prefix fail.
    pub(super) no_deep_list: bool,
}

impl Bad {
    pub(super) fn new(inner: Arc<InMemory>) -> Self {
        Self {
            inner,
            shuffled: false,
            no_etag: false,
            unconditional: false,
            strict: false,
            failing: Arc::default(),
            no_deep_list: false,
        }
    }

    fn strip(&self, mut meta: ObjectMeta) -> ObjectMeta {
        if self.no_etag {
            meta.e_tag = None;
        }
        meta
    }
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bad")
    }
}

pub(super) fn outage() -> object_store::Error {
    object_store::Error::Generic { store: "Bad", source: "503 slow down".into() }
}

#[async_trait::async_trait]
impl ObjectStore for Bad {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.inner.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, mut options: GetOptions) -> Result<GetResult> {
        if self.failing.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            return Err(outage());
        }
        if self.strict && options.if_match.is_none() {
            return Err(outage());
        }
        if self.unconditional || self.no_etag {
            options.if_match = None;
        }
        let mut result = self.inner.get_opts(location, options).await?;
        result.meta = self.strip(result.meta);
        Ok(result)
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        if self.no_deep_list {
            return stream::once(async { Err(outage()) }).boxed();
        }
        let (inner, prefix, shuffled, no_etag) =
            (Arc::clone(&self.inner), prefix.cloned(), self.shuffled, self.no_etag);
        let all = async move {
            let mut all: Vec<_> = inner.list(prefix.as_ref()).try_collect().await?;
            if shuffled {
                all.sort_by_key(|o: &ObjectMeta| xxhash_rust::xxh3::xxh3_64(o.location.as_ref().as_bytes()));
                all.extend(all.clone());
            }
            if no_etag {
                all.iter_mut().for_each(|o| o.e_tag = None);
            }
            Ok::<_, object_store::Error>(stream::iter(all.into_iter().map(Ok)))
        };
        stream::once(all).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let mut level = self.inner.list_with_delimiter(prefix).await?;
        if self.shuffled {
            level.objects.reverse();
            level.common_prefixes.reverse();
            level.common_prefixes.extend(level.common_prefixes.clone());
        }
        level.objects = level.objects.into_iter().map(|o| self.strip(o)).collect();
        Ok(level)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
