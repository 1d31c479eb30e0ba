//! A process that dies at one request, to an object store of which nothing else is lost.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartId, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult,
};

use crate::storage::Bucket;

/// One process's way to a bucket, which ends with its request number `dies_at`.
#[derive(Debug, Clone)]
pub struct Mortal {
    bucket: Arc<InMemory>,
    asked: Arc<AtomicU64>,
    dies_at: u64,
    /// Whether that last request is done.
    done: bool,
}

impl Mortal {
    /// A way to `bucket` that ends with request number `dies_at`, which is done if `done`, and whose answer nobody gets.
    pub fn new(bucket: &Arc<InMemory>, dies_at: u64, done: bool) -> Self {
        Self { bucket: Arc::clone(bucket), asked: Arc::default(), dies_at, done }
    }

    /// Whether it has not come to that request.
    pub fn is_alive(&self) -> bool {
        self.asked.load(Ordering::SeqCst) < self.dies_at
    }

    async fn ask<T>(&self, request: impl Future<Output = object_store::Result<T>>) -> object_store::Result<T> {
        let n = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        let dead = || Error::Generic { store: "mortal", source: "the process is dead".into() };
        match n.cmp(&self.dies_at) {
            std::cmp::Ordering::Less => request.await,
            std::cmp::Ordering::Equal if self.done => request.await.and(Err(dead())),
            _ => Err(dead()),
        }
    }

    /// The bucket, by this process's way.
    pub fn bucket(&self) -> Bucket {
        Bucket { objects: Arc::new(self.clone()), uploads: Arc::new(self.clone()) }
    }
}

impl fmt::Display for Mortal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("mortal")
    }
}

#[async_trait]
impl ObjectStore for Mortal {
    async fn put_opts(&self, at: &Path, bytes: PutPayload, opts: PutOptions) -> object_store::Result<PutResult> {
        self.ask(self.bucket.put_opts(at, bytes, opts)).await
    }

    async fn put_multipart_opts(
        &self,
        at: &Path,
        opts: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        self.ask(self.bucket.put_multipart_opts(at, opts)).await
    }

    async fn get_opts(&self, at: &Path, opts: GetOptions) -> object_store::Result<GetResult> {
        self.ask(self.bucket.get_opts(at, opts)).await
    }

    fn delete_stream(
        &self,
        all: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        let mortal = self.clone();
        let delete = move |at: Path| {
            let mortal = mortal.clone();
            async move {
                mortal.ask(mortal.bucket.delete(&at)).await?;
                Ok(at)
            }
        };
        all.and_then(delete).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        let (mortal, listing) = (self.clone(), self.bucket.list(prefix));
        futures::stream::once(async move { mortal.ask(async { Ok(listing) }).await }).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        self.ask(self.bucket.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, opts: CopyOptions) -> object_store::Result<()> {
        self.ask(self.bucket.copy_opts(from, to, opts)).await
    }
}

#[async_trait]
impl MultipartStore for Mortal {
    async fn create_multipart(&self, at: &Path) -> object_store::Result<MultipartId> {
        self.ask(self.bucket.create_multipart(at)).await
    }

    async fn put_part(&self, at: &Path, id: &MultipartId, i: usize, p: PutPayload) -> object_store::Result<PartId> {
        self.ask(self.bucket.put_part(at, id, i, p)).await
    }

    async fn complete_multipart(
        &self,
        at: &Path,
        id: &MultipartId,
        parts: Vec<PartId>,
    ) -> object_store::Result<PutResult> {
        self.ask(self.bucket.complete_multipart(at, id, parts)).await
    }

    async fn abort_multipart(&self, at: &Path, id: &MultipartId) -> object_store::Result<()> {
        self.ask(self.bucket.abort_multipart(at, id)).await
    }
}
