//! Store I/O with its outcomes told apart: done, not done, taken by another, unknown.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{GetResult, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode};
use serde::{Deserialize, Serialize};

use super::names::ObjectName;
use crate::error::{Error, ErrorKind, Result};

/// How a create-if-absent ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Created {
    /// The object is there and it is ours: made now, or by our own earlier try whose answer was lost (R93).
    Ours,
    /// Another writer's object has the name.
    Taken(Bytes),
}

/// Requests made to a store since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreRequests {
    /// Listings.
    pub list: u64,
    /// Reads.
    pub get: u64,
    /// Writes.
    pub put: u64,
    /// Deletions.
    pub delete: u64,
}

#[derive(Debug, Default)]
struct Counters {
    list: AtomicU64,
    get: AtomicU64,
    put: AtomicU64,
    delete: AtomicU64,
}

/// How often and how patiently a request is repeated when the store does not answer.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Tries in all.
    pub tries: u32,
    /// The pause after the first failure; doubled after each further one.
    pub pause: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { tries: 6, pause: Duration::from_millis(100) }
    }
}

/// A store's objects, by name.
#[derive(Clone)]
pub struct Medium {
    objects: Arc<dyn ObjectStore>,
    /// The store's URL, for messages.
    url: Arc<str>,
    patience: Patience,
    counters: Arc<Counters>,
}

impl fmt::Debug for Medium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Medium").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Medium {
    /// The objects of `objects`, whose root is the store's prefix; `url` is for messages.
    pub fn new(objects: Arc<dyn ObjectStore>, url: impl Into<Arc<str>>, patience: Patience) -> Self {
        Self { objects, url: url.into(), patience, counters: Arc::default() }
    }

    /// With another patience.
    #[must_use]
    pub fn with_patience(mut self, patience: Patience) -> Self {
        self.patience = patience;
        self
    }

    pub(super) fn patience(&self) -> Patience {
        self.patience
    }

    pub(super) fn count_put(&self) {
        self.counters.put.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn objects(&self) -> Arc<dyn ObjectStore> {
        Arc::clone(&self.objects)
    }

    /// The error for `error` at `name`.
    pub(crate) fn failure(&self, name: ObjectName, error: object_store::Error) -> Error {
        classify(self.place(name), error)
    }

    /// The store's URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where `name` is, for messages.
    pub fn place(&self, name: impl fmt::Display) -> String {
        format!("{}/{name}", self.url)
    }

    /// Requests made so far by this medium and its clones.
    pub fn requests(&self) -> StoreRequests {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { list, get, put, delete } = &*self.counters;
        StoreRequests { list: read(list), get: read(get), put: read(put), delete: read(delete) }
    }

    /// The names under `folder` (all of the store when empty), in the order the store gives them.
    pub async fn list(&self, folder: &str) -> Result<Vec<String>> {
        Ok(self.list_objects(folder).await?.into_iter().map(|meta| meta.location.to_string()).collect())
    }

    /// As [`list`](Self::list), with sizes and times.
    pub async fn list_objects(&self, folder: &str) -> Result<Vec<ObjectMeta>> {
        let prefix = (!folder.is_empty()).then(|| Path::from(folder));
        self.persist(
            || self.place(folder),
            || async {
                self.counters.list.fetch_add(1, Ordering::Relaxed);
                self.objects.list(prefix.as_ref()).try_collect().await
            },
        )
        .await
    }

    /// The bytes of `name`; `None` is a proven "not there".
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] when it is larger than such an object can be: then it is not read.
    pub async fn get(&self, name: ObjectName) -> Result<Option<Bytes>> {
        let path = Path::from(name.to_string());
        let most = name.most_bytes();
        let found = self
            .persist(
                || self.place(name),
                || async {
                    self.counters.get.fetch_add(1, Ordering::Relaxed);
                    match self.objects.get(&path).await {
                        Ok(found) if found.meta.size > most => Ok(Some(Err(found.meta.size))),
                        Ok(found) => whole(found).await.map(|bytes| Some(Ok(bytes))),
                        Err(object_store::Error::NotFound { .. }) => Ok(None),
                        Err(error) => Err(error),
                    }
                },
            )
            .await?;
        let too_large = |size| Error::corrupt(self.place(name), format!("it has {size} bytes; {most} is the limit"));
        found.map(|found| found.map_err(too_large)).transpose()
    }

    /// Creates `name`, which must be free. `bytes` must be unlike every other writer's: they carry a nonce.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] when it would be larger than such an object can be, and
    /// [`ErrorKind::Indeterminate`] when neither a write nor a read told whether the object is there.
    pub async fn create(&self, name: ObjectName, bytes: Bytes) -> Result<Created> {
        use object_store::Error as E;
        if bytes.len() as u64 > name.most_bytes() {
            let what = format!("this object would have {} bytes; {} is the limit", bytes.len(), name.most_bytes());
            return Err(Error::refused(what).at(self.place(name)).safe("it was not written").way("make tasks smaller"));
        }
        let path = Path::from(name.to_string());
        let mut pause = self.patience.pause;
        let mut last = None;
        for attempt in 0..self.patience.tries {
            if attempt > 0 {
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            self.counters.put.fetch_add(1, Ordering::Relaxed);
            let put = self.objects.put_opts(&path, bytes.clone().into(), PutMode::Create.into()).await;
            let error = match put {
                Ok(_) => return Ok(Created::Ours),
                Err(error) if is_definite(&error) => return Err(classify(self.place(name), error)),
                Err(error) => error,
            };
            // "It exists" may be about our own earlier try, or about nothing at all (R59, R93): look. After any other
            // answer only a further try tells: what can be read now need not be durable yet.
            if matches!(error, E::AlreadyExists { .. } | E::Precondition { .. } | E::NotModified { .. }) {
                match self.get(name).await.map_err(|e| self.unknown(name, e))? {
                    Some(found) if found == bytes => return Ok(Created::Ours),
                    Some(found) => return Ok(Created::Taken(found)),
                    None => {}
                }
            }
            last = Some(error);
        }
        match self.get(name).await.map_err(|e| self.unknown(name, e))? {
            Some(found) if found != bytes => return Ok(Created::Taken(found)),
            Some(_) => return Err(self.unknown(name, "it is there, but no answer said that it will stay")),
            None => {}
        }
        let unavailable = Error::new(ErrorKind::Unavailable, "the store did not take this object")
            .at(self.place(name))
            .safe("nothing was lost; what was sealed is kept")
            .way("see the cause (a full disk, for example), then run again");
        Err(match last {
            Some(error) => unavailable.caused_by(error),
            None => unavailable,
        })
    }

    fn unknown(&self, name: ObjectName, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::new(ErrorKind::Indeterminate, "whether this object was written is unknown")
            .at(self.place(name))
            .safe("nothing was deleted; the next run reads what is there and decides")
            .way("run again")
            .caused_by(cause)
    }

    /// Deletes exactly `name`; not there is success.
    pub async fn delete(&self, name: ObjectName) -> Result<()> {
        let path = Path::from(name.to_string());
        self.persist(
            || self.place(name),
            || async {
                self.counters.delete.fetch_add(1, Ordering::Relaxed);
                match self.objects.delete(&path).await {
                    Err(object_store::Error::NotFound { .. }) => Ok(()),
                    other => other,
                }
            },
        )
        .await
    }

    /// Repeats `request` while the store does not answer.
    async fn persist<T, F>(&self, place: impl Fn() -> String, request: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = object_store::Result<T>>,
    {
        let mut pause = self.patience.pause;
        for _ in 1..self.patience.tries {
            match request().await {
                Ok(found) => return Ok(found),
                Err(error) if is_definite(&error) => return Err(classify(place(), error)),
                Err(error) => tracing::warn!(%error, place = place(), "the store did not answer; trying again"),
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        request().await.map_err(|error| classify(place(), error))
    }
}

/// All bytes of an answer. One that ends early is no answer: what it says must not be taken for another's object.
async fn whole(found: GetResult) -> object_store::Result<Bytes> {
    let (path, length) = (found.meta.location.clone(), found.range.end - found.range.start);
    let bytes = found.bytes().await?;
    if bytes.len() as u64 == length {
        return Ok(bytes);
    }
    let source = format!("{} bytes of {path} were read where the answer was to have {length}", bytes.len()).into();
    Err(object_store::Error::Generic { store: "read", source })
}

/// Errors that trying again does not mend.
pub(super) fn is_definite(error: &object_store::Error) -> bool {
    use object_store::Error as E;
    matches!(
        error,
        E::PermissionDenied { .. }
            | E::Unauthenticated { .. }
            | E::NotSupported { .. }
            | E::NotImplemented { .. }
            | E::InvalidPath { .. }
    )
}

fn classify(place: String, error: object_store::Error) -> Error {
    use object_store::Error as E;
    let error = match &error {
        E::PermissionDenied { .. } | E::Unauthenticated { .. } => {
            Error::new(ErrorKind::Unavailable, "the store refused access").way("check the permissions and credentials")
        }
        E::NotSupported { .. } | E::NotImplemented { .. } => {
            Error::new(ErrorKind::Unsupported, "the store cannot create an object only if it is absent")
                .way("put the store on a file system with hard links, or on an object store with conditional writes")
        }
        _ => Error::new(ErrorKind::Unavailable, "the store did not answer").way("run again: what was sealed is kept"),
    }
    .caused_by(error);
    error.at(place).safe("nothing was lost; what was sealed is kept")
}
