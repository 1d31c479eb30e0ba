//! One process's way to the bucket, with all that can go wrong on it.
//!
//! A request is on its way for a while, also when who asked is killed or gave up: then it is done all the same, perhaps
//! long after somebody else has gone on. That is what makes a zombie.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartId, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::chance::Chance;
use crate::objects::Objects;
use crate::scenario::Weather;
use crate::situations::Situation;
use crate::variants::{Belief, Variant};
use crate::world::{World, lock};

/// A process's handle onto the bucket. Clones are of the same process.
#[derive(Clone)]
pub(crate) struct Handle {
    pub(crate) world: World,
    pub(crate) actor: Arc<str>,
    process: Arc<Process>,
}

/// What the requests of one process share.
struct Process {
    chance: Mutex<Chance>,
    weather: Weather,
    /// Until then it does nothing, and knows nothing of it.
    stopped: Mutex<Instant>,
    /// Until then none of its requests arrives.
    cut_off: Mutex<Instant>,
    belief: Belief,
}

/// What becomes of one request.
struct Fate {
    there: Duration,
    back: Duration,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Answered,
    Failed,
    Lost,
    Throttled,
    Torn,
    Late,
}

fn unanswered(what: &str) -> Error {
    Error::Generic { store: "simulated", source: format!("no answer: {what}").into() }
}

impl Handle {
    /// The handle of a new process `actor`, in the scenario's weather.
    pub(crate) fn new(world: &World, actor: &str) -> Self {
        Self::in_weather(world, actor, world.scenario.weather)
    }

    /// The handle of a process to which nothing happens.
    pub(crate) fn calm(world: &World, actor: &str) -> Self {
        Self::in_weather(world, actor, Weather::default())
    }

    fn in_weather(world: &World, actor: &str, weather: Weather) -> Self {
        let now = Instant::now();
        let process = Process {
            chance: Mutex::new(world.chance(actor)),
            weather,
            stopped: Mutex::new(now),
            cut_off: Mutex::new(now),
            belief: Belief::default(),
        };
        Self { world: world.clone(), actor: actor.into(), process: Arc::new(process) }
    }

    /// Waits while the process is stopped; another stop can begin meanwhile.
    async fn thaw(&self) {
        loop {
            let until = *lock(&self.process.stopped);
            if until <= Instant::now() {
                return;
            }
            sleep_until(until).await;
        }
    }

    /// Draws what becomes of a request.
    fn draw(&self) -> Fate {
        let Process { chance, weather, stopped, cut_off, .. } = &*self.process;
        let mut chance = lock(chance);
        let ms = |n| Duration::from_millis(n);
        let (there, back) = (ms(chance.between(1..25)), ms(chance.between(1..25)));
        if chance.per_mille(weather.stopped) {
            self.world.note(Situation::Stopped);
            let until = Instant::now() + ms(chance.between(5_000..120_000));
            self.world.say(&self.actor, "is stopped");
            *lock(stopped) = until;
        }
        if chance.per_mille(weather.partition) {
            self.world.note(Situation::Partition);
            *lock(cut_off) = Instant::now() + ms(chance.between(500..20_000));
        }
        let kinds = [
            (weather.failed, Kind::Failed, Situation::FailedRequest),
            (weather.lost, Kind::Lost, Situation::LostAnswer),
            (weather.throttled, Kind::Throttled, Situation::Throttled),
            (weather.torn, Kind::Torn, Situation::TornRead),
            (weather.late, Kind::Late, Situation::LateRequest),
        ];
        let mut kind = if *lock(cut_off) > Instant::now() { Kind::Failed } else { Kind::Answered };
        for (often, wrong, situation) in kinds {
            if kind == Kind::Answered && chance.per_mille(often) {
                self.world.note(situation);
                kind = wrong;
            }
        }
        let there = if kind == Kind::Late { ms(chance.between(2_000..90_000)) } else { there };
        Fate { there, back, kind }
    }

    /// Sends a request, which `apply` does when it arrives. The answer, and whether it is torn.
    async fn request<T: Send + 'static>(
        &self,
        what: String,
        apply: impl FnOnce(&mut Objects) -> Result<T> + Send + 'static,
    ) -> Result<(T, bool)> {
        self.thaw().await;
        let Fate { there, back, kind } = self.draw();
        let (world, actor, shown) = (self.world.clone(), Arc::clone(&self.actor), what.clone());
        let sent = tokio::spawn(async move {
            sleep(there).await;
            if matches!(kind, Kind::Failed | Kind::Throttled) {
                world.say(&actor, format_args!("{what} -> not done"));
                sleep(back).await;
                let text = if kind == Kind::Failed { "failed" } else { "429 Too Many Requests" };
                return Err(unanswered(text));
            }
            let answer = world.with_objects(&actor, apply);
            let outcome = answer.as_ref().map_or_else(|e| label(e), |_| "done");
            let lost = if kind == Kind::Lost { ", and the answer is lost" } else { "" };
            world.say(&actor, format_args!("{what} -> {outcome}{lost}"));
            sleep(back).await;
            if kind == Kind::Lost { Err(unanswered("lost")) } else { answer }
        });
        let answer = match kind {
            // Who asked gives up; the request is still on its way.
            Kind::Late => match timeout(Duration::from_millis(1_500), sent).await {
                Ok(answer) => answer,
                Err(_) => Ok(Err(unanswered("timed out"))),
            },
            _ => sent.await,
        };
        self.thaw().await;
        match answer {
            Ok(answer) => answer.map(|answer| (answer, kind == Kind::Torn)),
            Err(stopped) if stopped.is_panic() => std::panic::resume_unwind(stopped.into_panic()),
            Err(_) => Err(unanswered(&shown)),
        }
    }

    /// As [`request`](Self::request), where an answer that is torn is none.
    async fn ask<T: Send + 'static>(
        &self,
        what: String,
        apply: impl FnOnce(&mut Objects) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        match self.request(what, apply).await? {
            (_, true) => Err(unanswered("cut off")),
            (answer, false) => Ok(answer),
        }
    }
}

fn label(error: &Error) -> &'static str {
    match error {
        Error::NotFound { .. } => "not found",
        Error::AlreadyExists { .. } => "exists",
        Error::Precondition { .. } => "changed",
        _ => "refused",
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the bucket of {}", self.actor)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn text(path: Option<&Path>) -> String {
    path.map(ToString::to_string).unwrap_or_default()
}

fn put_result(etag: String) -> PutResult {
    PutResult { e_tag: Some(etag), version: None }
}

fn never(operation: &str) -> Error {
    Error::NotImplemented { operation: operation.to_owned(), implementer: "the simulated bucket".to_owned() }
}

#[async_trait]
impl ObjectStore for Handle {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let (key, bytes, create) = (location.to_string(), Bytes::from(payload), options.mode == PutMode::Create);
        let actor = Arc::clone(&self.actor);
        let put = {
            let key = key.clone();
            move |objects: &mut Objects| objects.put(&actor, &key, bytes, create)
        };
        let etag = self.ask(format!("put {key}"), put).await?;
        self.process.belief.created(&key);
        Ok(put_result(etag))
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Err(never("put_multipart"))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let (key, head) = (location.to_string(), options.head);
        let get = {
            let key = key.clone();
            move |objects: &mut Objects| objects.get(&key, &options)
        };
        let what = if head { "head" } else { "get" };
        let ((meta, range, bytes), torn) = self.request(format!("{what} {key}"), get).await?;
        let parts = match torn && !head {
            true => vec![Ok(bytes.slice(..bytes.len() / 2)), Err(unanswered("cut off"))],
            false => vec![Ok(bytes)],
        };
        let payload = GetResultPayload::Stream(stream::iter(parts).boxed());
        Ok(GetResult { payload, meta, range, attributes: Default::default() })
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let handle = self.clone();
        let delete = move |location: Path| {
            let (handle, key) = (handle.clone(), location.to_string());
            async move {
                let what = format!("delete {key}");
                handle
                    .ask(what, move |objects| {
                        objects.delete(&key);
                        Ok(())
                    })
                    .await?;
                Ok(location)
            }
        };
        locations.and_then(delete).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (handle, prefix) = (self.clone(), text(prefix));
        let listing = async move {
            let below = prefix.clone();
            let (mut found, torn) =
                handle.request(format!("list {prefix}"), move |objects| objects.list(&below)).await?;
            if handle.world.scenario.variant == Some(Variant::NoListAfterCreate) {
                handle.process.belief.leave_out_later(&prefix, &mut found);
            }
            let end = torn.then(|| {
                found.truncate(found.len() / 2);
                Err(unanswered("cut off"))
            });
            Ok::<_, Error>(stream::iter(found.into_iter().map(Ok)).chain(stream::iter(end)))
        };
        stream::once(listing).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let prefix = text(prefix);
        self.ask(format!("level {prefix}"), move |objects| objects.level(&prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, _: CopyOptions) -> Result<()> {
        let (from, to, actor) = (from.to_string(), to.to_string(), Arc::clone(&self.actor));
        let what = format!("copy {from} to {to}");
        let copy = move |objects: &mut Objects| {
            let (_, _, bytes) = objects.get(&from, &GetOptions::default())?;
            objects.put(&actor, &to, bytes, false).map(drop)
        };
        self.ask(what, copy).await
    }
}

#[async_trait]
impl MultipartStore for Handle {
    async fn create_multipart(&self, path: &Path) -> Result<MultipartId> {
        let key = path.to_string();
        self.ask(format!("begin upload {key}"), move |objects| Ok(objects.begin_upload(&key))).await
    }

    async fn put_part(&self, path: &Path, id: &MultipartId, part: usize, data: PutPayload) -> Result<PartId> {
        let (key, id, bytes) = (path.to_string(), id.clone(), Bytes::from(data));
        let what = format!("part {part} of {id} {key}");
        let content_id = self.ask(what, move |objects| objects.put_part(&key, &id, part, bytes)).await?;
        Ok(PartId { content_id })
    }

    async fn complete_multipart(&self, path: &Path, id: &MultipartId, parts: Vec<PartId>) -> Result<PutResult> {
        let (key, id) = (path.to_string(), id.clone());
        let what = format!("complete {id} {key}");
        self.ask(what, move |objects| objects.complete(&key, &id, parts.len())).await.map(put_result)
    }

    async fn abort_multipart(&self, path: &Path, id: &MultipartId) -> Result<()> {
        let (key, id) = (path.to_string(), id.clone());
        self.ask(format!("abort {id} {key}"), move |objects| objects.abort(&key, &id)).await
    }
}
