//! An [`ObjectStore`] that does what it is told to go wrong with, and counts what it is asked for; for tests of this
//! workspace and of implementors (feature `testing`).
//!
//! A fault is planted for one kind of request, some of the paths and some of the occurrences. The returned [`Planted`]
//! panics when it is dropped without having fired, so that no test passes because its fault missed.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use std::sync::Arc;
//! use lakemark::faults::{Act, Failure, FaultStore, Op, When};
//! use object_store::{ObjectStoreExt, memory::InMemory, path::Path};
//!
//! let faults = FaultStore::new(Arc::new(InMemory::new()));
//! let lost = faults.plant(Op::Put, |path| path == "a", When::First(1), Act::DoneThenFail(Failure::Unanswered));
//! assert!(faults.put(&Path::from("a"), "x".into()).await.is_err(), "the answer was lost");
//! assert!(faults.get(&Path::from("a")).await.is_ok(), "but it was done");
//! assert_eq!(lost.fired(), 1);
//! # });
//! ```

mod mortal;
mod sink;

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetRange, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use tokio::sync::Semaphore;

pub use mortal::Mortal;
pub use sink::{Commits, CommitsBy};

/// A kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// A write.
    Put,
    /// A read.
    Get,
    /// A listing; its path is its prefix.
    List,
    /// A deletion.
    Delete,
}

/// What a failing request reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// A timeout, a lost connection, a 5xx.
    Unanswered,
    /// 403.
    Denied,
    /// 404.
    NotFound,
    /// 409, or 412 on some stores.
    AlreadyExists,
    /// 412.
    Precondition,
    /// 429: too many requests.
    Throttled,
    /// 503: slow down.
    Overloaded,
    /// The backend has no such operation.
    NotSupported,
}

/// What goes wrong.
#[derive(Debug, Clone)]
pub enum Act {
    /// Nothing is done, and a failure reported.
    Fail(Failure),
    /// It is done, and a failure reported: the answer was lost.
    DoneThenFail(Failure),
    /// A read ends in success after this many bytes; a listing after this many entries.
    Torn(usize),
    /// A read fails after this many bytes; a listing after this many entries.
    Cut(usize),
    /// A create overwrites: the condition is ignored.
    IgnoreCondition,
    /// It waits at the gate, and is then done.
    Hold(Gate),
    /// It is done after a pause.
    Delay(Duration),
}

/// `body` as an object of a store of the kind `kind`, as a process of this version writes it.
///
/// # Panics
/// When it cannot be written as JSON.
#[expect(clippy::expect_used, reason = "a test that gives what is no JSON is to end")]
pub fn framed<T: serde::Serialize>(kind: &str, body: &T) -> Bytes {
    crate::store::envelope::encode(kind, body).expect("it can be written as JSON")
}

/// Holds requests until it is opened.
#[derive(Debug, Clone)]
pub struct Gate {
    arrived: Arc<Semaphore>,
    opened: Arc<Semaphore>,
}

impl Default for Gate {
    fn default() -> Self {
        Self { arrived: Arc::new(Semaphore::new(0)), opened: Arc::new(Semaphore::new(0)) }
    }
}

impl Gate {
    /// A closed gate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits until one request more waits at the gate.
    pub async fn reached(&self) {
        take(&self.arrived).await;
    }

    /// Lets one request through.
    pub fn open(&self) {
        self.opened.add_permits(1);
    }

    async fn wait(&self) {
        self.arrived.add_permits(1);
        take(&self.opened).await;
    }
}

/// A semaphore that nobody closes always gives a permit.
async fn take(semaphore: &Semaphore) {
    if let Ok(permit) = semaphore.acquire().await {
        permit.forget();
    }
}

/// Which of the matching requests are hit; from 1.
#[derive(Debug, Clone)]
pub enum When {
    /// All.
    Always,
    /// The first so many.
    First(u64),
    /// Exactly these.
    Nth(RangeInclusive<u64>),
    /// Each so-manyth.
    Every(u64),
}

impl When {
    fn hits(&self, n: u64) -> bool {
        match self {
            Self::Always => true,
            Self::First(most) => n <= *most,
            Self::Nth(range) => range.contains(&n),
            Self::Every(each) => n.is_multiple_of(*each),
        }
    }
}

type Matches = Box<dyn Fn(&str) -> bool + Send + Sync>;

struct Rule {
    op: Op,
    path: Matches,
    when: When,
    act: Act,
    seen: AtomicU64,
    fired: AtomicU64,
}

/// A fault in place. Dropped, it is taken out, and must have fired.
#[must_use = "dropping it takes the fault out"]
pub struct Planted {
    faults: Arc<Faults>,
    rule: Arc<Rule>,
}

impl Planted {
    /// How often it fired.
    pub fn fired(&self) -> u64 {
        self.rule.fired.load(Ordering::SeqCst)
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        self.faults.lock().retain(|rule| !Arc::ptr_eq(rule, &self.rule));
        if !std::thread::panicking() {
            assert!(self.fired() > 0, "the planted fault never fired: {:?} {:?}", self.rule.op, self.rule.act);
        }
    }
}

#[derive(Default)]
struct Faults(Mutex<Vec<Arc<Rule>>>);

impl Faults {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Rule>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One request that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// What was asked.
    pub op: Op,
    /// Of which key, or prefix.
    pub path: String,
    /// Bytes that were to be put.
    pub bytes: u64,
    /// Bytes that were to be read, at most; `None`: the whole object, or what is no read.
    pub range: Option<u64>,
}

/// The store with faults.
#[derive(Clone)]
pub struct FaultStore {
    inner: Arc<dyn ObjectStore>,
    faults: Arc<Faults>,
    log: Arc<Mutex<Vec<Request>>>,
}

impl FaultStore {
    /// `inner`, without any fault yet.
    pub fn new(inner: Arc<dyn ObjectStore>) -> Self {
        Self { inner, faults: Arc::default(), log: Arc::default() }
    }

    /// Lets `act` happen to the requests of kind `op` whose path (a listing's prefix) satisfies `path`, `when`.
    pub fn plant(&self, op: Op, path: impl Fn(&str) -> bool + Send + Sync + 'static, when: When, act: Act) -> Planted {
        let rule = Rule { op, path: Box::new(path), when, act, seen: AtomicU64::new(0), fired: AtomicU64::new(0) };
        let rule = Arc::new(rule);
        self.faults.lock().push(Arc::clone(&rule));
        Planted { faults: Arc::clone(&self.faults), rule }
    }

    /// The requests made since the last call.
    pub fn take_log(&self) -> Vec<Request> {
        std::mem::take(&mut *self.log.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Logs the request and gives the first act that hits it. Every rule that matches counts it.
    fn ask(&self, op: Op, path: &str, bytes: u64) -> Option<Act> {
        self.asked(Request { op, path: path.to_owned(), bytes, range: None })
    }

    fn asked(&self, request: Request) -> Option<Act> {
        let (op, path) = (request.op, request.path.clone());
        let path = path.as_str();
        self.log.lock().unwrap_or_else(PoisonError::into_inner).push(request);
        let rules: Vec<_> = self.faults.lock().clone();
        let matching = rules.iter().filter(|rule| rule.op == op && (rule.path)(path));
        let mut hit = None;
        for rule in matching {
            let n = rule.seen.fetch_add(1, Ordering::SeqCst) + 1;
            if hit.is_none() && rule.when.hits(n) {
                rule.fired.fetch_add(1, Ordering::SeqCst);
                hit = Some(rule.act.clone());
            }
        }
        hit
    }
}

fn error(failure: Failure, path: &str) -> Error {
    let generic =
        |what: &str| Error::Generic { store: "faulty", source: format!("injected: {what} for {path}").into() };
    let (path, source) = (path.to_owned(), "injected".into());
    match failure {
        Failure::Unanswered => generic("no answer"),
        Failure::Throttled => generic("429 Too Many Requests"),
        Failure::Overloaded => generic("503 Service Unavailable"),
        Failure::Denied => Error::PermissionDenied { path, source },
        Failure::NotFound => Error::NotFound { path, source },
        Failure::AlreadyExists => Error::AlreadyExists { path, source },
        Failure::Precondition => Error::Precondition { path, source },
        Failure::NotSupported => Error::NotSupported { source },
    }
}

/// What comes before the request itself: a pause, or the failure instead of it.
async fn before(act: Option<&Act>, path: &str) -> Result<()> {
    match act {
        Some(Act::Fail(failure)) => return Err(error(*failure, path)),
        Some(Act::Hold(gate)) => gate.wait().await,
        Some(Act::Delay(pause)) => tokio::time::sleep(*pause).await,
        _ => {}
    }
    Ok(())
}

/// What comes after the request was done.
fn after<T>(act: Option<&Act>, path: &str, done: T) -> Result<T> {
    match act {
        Some(Act::DoneThenFail(failure)) => Err(error(*failure, path)),
        _ => Ok(done),
    }
}

impl fmt::Display for FaultStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "faulty {}", self.inner)
    }
}

impl fmt::Debug for FaultStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[async_trait]
impl ObjectStore for FaultStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, mut opts: PutOptions) -> Result<PutResult> {
        let act = self.ask(Op::Put, location.as_ref(), payload.content_length() as u64);
        before(act.as_ref(), location.as_ref()).await?;
        if matches!(act, Some(Act::IgnoreCondition)) {
            opts.mode = PutMode::Overwrite;
        }
        let done = self.inner.put_opts(location, payload, opts).await?;
        after(act.as_ref(), location.as_ref(), done)
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let range = match &options.range {
            Some(GetRange::Bounded(range)) => Some(range.end.saturating_sub(range.start)),
            Some(GetRange::Suffix(bytes)) => Some(*bytes),
            Some(GetRange::Offset(_)) | None => options.head.then_some(0),
        };
        let act = self.asked(Request { op: Op::Get, path: location.to_string(), bytes: 0, range });
        before(act.as_ref(), location.as_ref()).await?;
        let found = self.inner.get_opts(location, options).await?;
        let (Some(Act::Torn(n)) | Some(Act::Cut(n))) = act else {
            return after(act.as_ref(), location.as_ref(), found);
        };
        let GetResult { meta, range, attributes, .. } = &found;
        let (meta, range, attributes) = (meta.clone(), range.clone(), attributes.clone());
        let all: Bytes = found.bytes().await?;
        let mut parts = vec![Ok(all.slice(..n.min(all.len())))];
        if matches!(act, Some(Act::Cut(_))) {
            parts.push(Err(error(Failure::Unanswered, location.as_ref())));
        }
        Ok(GetResult { payload: GetResultPayload::Stream(stream::iter(parts).boxed()), meta, range, attributes })
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        locations
            .and_then(move |location| {
                let store = store.clone();
                async move {
                    let act = store.ask(Op::Delete, location.as_ref(), 0);
                    before(act.as_ref(), location.as_ref()).await?;
                    store.inner.delete(&location).await?;
                    after(act.as_ref(), location.as_ref(), location.clone())
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let path = prefix.map(ToString::to_string).unwrap_or_default();
        let act = self.ask(Op::List, &path, 0);
        let inner = self.inner.list(prefix);
        let listing = async move {
            before(act.as_ref(), &path).await?;
            let (Some(Act::Torn(n)) | Some(Act::Cut(n))) = act else {
                return after(act.as_ref(), &path, inner);
            };
            let end = matches!(act, Some(Act::Cut(_))).then(|| Err(error(Failure::Unanswered, &path)));
            Ok(inner.take(n).chain(stream::iter(end)).boxed())
        };
        stream::once(listing).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
