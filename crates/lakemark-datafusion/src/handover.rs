//! Rows of tasks for the caller, who says when they are safe: only then is their task sealed.

use std::fmt;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt, TryStreamExt};
use lakemark::store::Decision;
use lakemark::{AttemptNonce, CheckpointId, Error, ErrorKind, Result, SealOutcome, TaskRead, View};
use tokio::sync::{mpsc, watch};

use crate::errors::to_datafusion;
use crate::report::RunReport;
use crate::seal::{Sealing, TaskDone};

/// Names one attempt of a task, unlike any other attempt of any run: `0000000007-0000000123-0000-00c0ffee00c0ffee`. As text it
/// sorts by epoch and task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskName {
    /// What the task seals into: its epoch and its input id.
    pub checkpoint: CheckpointId,
    /// The attempt.
    pub attempt: AttemptNonce,
}

impl TaskName {
    /// Whether `view` has this attempt's seal, and counts it: no run gives its rows again.
    pub fn is_sealed_in(&self, view: &View) -> bool {
        let row = view.live.checkpoint(self.checkpoint);
        row.is_some_and(|row| row.attempt == self.attempt && row.decision == Decision::Accepted)
    }
}

impl fmt::Display for TaskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.checkpoint, self.attempt)
    }
}

impl FromStr for TaskName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parts = text.rsplit_once('-');
        let (checkpoint, attempt) = parts.ok_or_else(|| Error::invalid(format!("`{text}` is no name of a task")))?;
        Ok(Self { checkpoint: checkpoint.parse()?, attempt: attempt.parse()? })
    }
}

/// What an ack came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "rows whose task another attempt holds do not count"]
pub enum Acked {
    /// The task is sealed: its rows count, and no run gives them again.
    Sealed,
    /// The task's seal is another one: that of another attempt, or one by which the run gave the task up. These rows do not
    /// count, and are to be thrown away.
    Taken,
}

/// One attempt of one task: a stream of its rows, then its [`ack`](Self::ack). Dropped, it seals nothing, and the next run gives
/// its rows again.
///
/// A stream that ends in an error gave a part of the task at most: throw away what came of it. If trying again can help, the
/// same run gives the task once more, under another name.
#[derive(Debug)]
pub struct HandedTask {
    name: TaskName,
    rows: Rows,
    ack: TaskAck,
}

impl HandedTask {
    /// The name of this attempt, to store the rows under.
    pub fn name(&self) -> TaskName {
        self.name
    }

    /// The schema of its rows.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.rows.schema)
    }

    /// Seals the task: all of its rows are safe with the caller.
    ///
    /// # Errors
    /// As [`TaskAck::ack`].
    pub async fn ack(self) -> Result<Acked> {
        self.ack.ack().await
    }

    /// All rows at once.
    ///
    /// # Errors
    /// That of its stream. Nothing is sealed.
    pub async fn collect(self) -> Result<CollectedTask> {
        let Self { name, rows, ack } = self;
        let schema = Arc::clone(&rows.schema);
        Ok(CollectedTask { name, schema, batches: rows.try_collect().await?, ack })
    }

    /// Its rows as a stream of DataFusion's, and its ack, for when that stream has ended.
    pub fn split(self) -> (SendableRecordBatchStream, TaskAck) {
        let rows = RecordBatchStreamAdapter::new(self.schema(), self.rows.map_err(to_datafusion));
        (Box::pin(rows), self.ack)
    }
}

impl Stream for HandedTask {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.rows.poll_next_unpin(context)
    }
}

/// One attempt of one task, with all of its rows.
#[derive(Debug)]
pub struct CollectedTask {
    /// The name of this attempt, to store the rows under.
    pub name: TaskName,
    /// The schema of its rows.
    pub schema: SchemaRef,
    /// Its rows; none, if the query kept none.
    pub batches: Vec<RecordBatch>,
    /// Seals it.
    pub ack: TaskAck,
}

impl CollectedTask {
    /// Seals the task: all of its rows are safe with the caller.
    ///
    /// # Errors
    /// As [`TaskAck::ack`].
    pub async fn ack(self) -> Result<Acked> {
        self.ack.ack().await
    }
}

/// The right to seal one attempt of a task. Dropped, it seals nothing.
#[derive(Debug)]
#[must_use = "a task that is not acked is done again by the next run"]
pub struct TaskAck {
    name: TaskName,
    drained: Drain,
}

/// Where the end of a task's rows leaves what there is to seal.
type Drain = Arc<Mutex<Option<Box<Drained>>>>;

impl TaskAck {
    /// The name of the attempt.
    pub fn name(&self) -> TaskName {
        self.name
    }

    /// Seals the task: all of its rows are safe with the caller. Once begun it is brought to its end, also when this future is
    /// dropped.
    ///
    /// # Errors
    /// Nothing is sealed then, but by the last:
    /// - [`Invalid`](ErrorKind::Invalid) when its rows were not read until the stream gave `None`;
    /// - [`Fenced`](ErrorKind::Fenced) when another run took the store over;
    /// - [`Unavailable`](ErrorKind::Unavailable) when the store does not answer;
    /// - [`Indeterminate`](ErrorKind::Indeterminate) when it cannot be told whether it is sealed: the next run tells, see
    ///   [`TaskName::is_sealed_in`].
    pub async fn ack(self) -> Result<Acked> {
        let drained = self.drained.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(drained) = drained else {
            return Err(Error::invalid("a task was acked before its rows had come to their end")
                .at(format!("task {}", self.name))
                .safe("nothing of it was sealed; the next run does it again")
                .way("read its rows until the stream gives None, put them where they are safe, then ack"));
        };
        // On a task of its own: of a seal that is half-way nobody could tell what it came to.
        tokio::spawn(drained.seal()).await.unwrap_or_else(|stopped| {
            Err(Error::new(ErrorKind::Indeterminate, "an ack was interrupted")
                .caused_by(stopped)
                .at(format!("task {}", self.name))
                .safe("its seal counts, or it does not")
                .way("run again: what is not sealed is given again"))
        })
    }
}

/// An attempt whose rows have all been given.
#[derive(Debug)]
pub(crate) struct Drained {
    // Before the sender: when the last of those is gone, nobody holds the run.
    sealing: Sealing,
    acked: mpsc::UnboundedSender<TaskDone>,
}

impl Drained {
    async fn seal(self: Box<Self>) -> Result<Acked> {
        let Self { sealing, acked } = *self;
        let outcome = sealing.seal().await?;
        let (said, done) = match outcome {
            SealOutcome::Sealed(_) => (Acked::Sealed, sealing.done(TaskRead::default())),
            SealOutcome::Already(_) => (Acked::Taken, TaskDone::default()),
        };
        drop(sealing);
        // A run that was fenced does not count any more.
        let _ = acked.send(done);
        Ok(said)
    }
}

/// What an attempt sends.
enum Part {
    Rows(RecordBatch),
    Failed(Error),
    End(Box<Drained>),
}

/// The rows of an attempt.
struct Rows {
    schema: SchemaRef,
    parts: mpsc::Receiver<Part>,
    drained: Drain,
    ended: bool,
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").field("schema", &self.schema).field("ended", &self.ended).finish_non_exhaustive()
    }
}

impl Stream for Rows {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let part = std::task::ready!(self.parts.poll_recv(context));
        self.ended = !matches!(part, Some(Part::Rows(_)));
        Poll::Ready(match part {
            Some(Part::Rows(batch)) => Some(Ok(batch)),
            Some(Part::Failed(error)) => Some(Err(error)),
            Some(Part::End(drained)) => {
                *self.drained.lock().unwrap_or_else(PoisonError::into_inner) = Some(drained);
                None
            }
            None => Some(Err(Error::new(ErrorKind::Unavailable, "a task was ended before its last row")
                .safe("nothing of it was sealed; throw away what came of it")
                .way("go on with the other tasks; it is given again, by this run or the next"))),
        })
    }
}

/// Hands tasks out to the caller, for a driver.
#[derive(Debug, Clone)]
pub(crate) struct Handover {
    tasks: mpsc::Sender<Result<HandedTask>>,
    acked: mpsc::UnboundedSender<TaskDone>,
}

impl Handover {
    /// A handover, the tasks that come of it, and those that were acked.
    pub(crate) fn new() -> (Self, mpsc::Receiver<Result<HandedTask>>, mpsc::UnboundedReceiver<TaskDone>) {
        let (tasks, handed) = mpsc::channel(1);
        let (acked, sealed) = mpsc::unbounded_channel();
        (Self { tasks, acked }, handed, sealed)
    }

    /// Tells the caller why no more tasks come.
    pub(crate) async fn fail(&self, error: &Error) {
        let _ = self.tasks.send(Err(again(error))).await;
    }

    /// The attempt `name`, whose rows have `schema`. The caller sees it when there is something to see.
    pub(crate) fn attempt(&self, name: TaskName, schema: SchemaRef) -> Handing {
        Handing { to: self.clone(), name, schema, parts: None }
    }
}

/// One attempt on its way to the caller.
pub(crate) struct Handing {
    to: Handover,
    name: TaskName,
    schema: SchemaRef,
    parts: Option<mpsc::Sender<Part>>,
}

impl Handing {
    /// Whether the caller took `batch`, and did not drop the task.
    pub(crate) async fn give(&mut self, batch: RecordBatch) -> bool {
        self.send(Part::Rows(batch)).await
    }

    /// Tells the caller, if it has seen the attempt, that it failed.
    pub(crate) async fn fail(&mut self, error: &Error) {
        if let Some(parts) = &self.parts {
            let _ = parts.send(Part::Failed(again(error))).await;
        }
    }

    /// All rows were given: the rest is up to the caller.
    pub(crate) async fn end(mut self, sealing: Sealing) {
        let drained = Drained { sealing, acked: self.to.acked.clone() };
        self.send(Part::End(Box::new(drained))).await;
    }

    async fn send(&mut self, part: Part) -> bool {
        let parts = match &self.parts {
            Some(parts) => parts,
            None => {
                let (sender, parts) = mpsc::channel(1);
                let drained = Drain::default();
                let rows =
                    Rows { schema: Arc::clone(&self.schema), parts, drained: Arc::clone(&drained), ended: false };
                let ack = TaskAck { name: self.name, drained };
                if self.to.tasks.send(Ok(HandedTask { name: self.name, rows, ack })).await.is_err() {
                    return false;
                }
                self.parts.insert(sender)
            }
        };
        parts.send(part).await.is_ok()
    }
}

/// The same error once more: one is for the caller, one for the report.
fn again(error: &Error) -> Error {
    let mut same = Error::new(error.kind(), error.what());
    if let Some(place) = error.place() {
        same = same.at(place);
    }
    same = same.safe("nothing of the task is sealed; throw away what came of it");
    error.ways().iter().fold(same, |same, way| same.way(way.clone()))
}

/// The tasks of a run, as they are handed out. An `Err` says why no more come; [`finish`](Self::finish) says it again.
///
/// At most [`concurrency`](crate::Options::concurrency) tasks are out whose rows have not come to their end: who waits for more
/// while holding those unread waits for ever. Tasks that were read to their end can be held and acked in any order, also at
/// once and after the stream has ended. Dropped, it hands out no more; what was handed out can still be read (within
/// [`grace`](crate::Options::grace)) and acked.
#[must_use = "a run is closed, and its errors are told, by `finish`"]
pub struct TaskStream<T = HandedTask> {
    tasks: BoxStream<'static, Result<T>>,
    driver: BoxFuture<'static, (RunReport, Option<Error>)>,
    stop: Stop,
}

/// Stops the driver when it is dropped.
struct Stop(watch::Sender<u8>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.send_replace(1);
    }
}

impl TaskStream {
    pub(crate) fn new(
        handed: mpsc::Receiver<Result<HandedTask>>,
        driver: BoxFuture<'static, (RunReport, Option<Error>)>,
        stop: watch::Sender<u8>,
    ) -> Self {
        let tasks = futures::stream::unfold(handed, async |mut handed| handed.recv().await.map(|task| (task, handed)));
        Self { tasks: tasks.boxed(), driver, stop: Stop(stop) }
    }

    /// The same, of a run that came to its end without a task.
    pub(crate) async fn ended(self) -> Result<Self> {
        let Self { tasks, driver, stop } = self;
        match driver.await {
            (_, Some(error)) => Err(error),
            ended => Ok(Self { tasks, driver: std::future::ready(ended).boxed(), stop }),
        }
    }

    /// The same tasks with all of their rows, `at_once` of them being collected together. Attempts that failed and are tried again
    /// are not seen.
    pub(crate) fn collected(self, at_once: usize) -> TaskStream<CollectedTask> {
        let Self { tasks, driver, stop } = self;
        let collect = async |task: Result<HandedTask>| match task {
            // If it is not tried again, the run ends in its error.
            Ok(task) => task.collect().await.ok().map(Ok),
            Err(error) => Some(Err(error)),
        };
        let tasks = tasks.map(collect).buffer_unordered(at_once.max(1)).filter_map(std::future::ready);
        TaskStream { tasks: tasks.boxed(), driver, stop }
    }
}

impl<T> TaskStream<T> {
    /// Hands out no more, waits until each task that was handed out is acked or dropped, and closes the run. What is held
    /// and neither acked nor dropped, it waits for.
    ///
    /// The report counts what was acked. Its outcome is `Partial` when tasks were left, or handed out and not acked.
    ///
    /// # Errors
    /// The first error of a task; what was acked is kept.
    pub async fn finish(self) -> Result<RunReport> {
        let Self { tasks, driver, stop } = self;
        // Those that nobody took are given up.
        drop(tasks);
        drop(stop);
        match driver.await {
            (_, Some(error)) => Err(error),
            (report, None) => Ok(report),
        }
    }
}

impl<T> Stream for TaskStream<T> {
    type Item = Result<T>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.tasks.poll_next_unpin(context)
    }
}

impl<T> fmt::Debug for TaskStream<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskStream").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::Schema;
    use lakemark::{BeginOptions, Counts, InputId, ObjectCheckpointStore, Root};
    use object_store::memory::InMemory;

    use super::*;

    #[tokio::test]
    async fn rows_do_not_count_where_the_seal_is_another_one() {
        let root = Root::parse("memory://acks/").unwrap();
        let store = ObjectCheckpointStore::on(root, Arc::new(InMemory::new()));
        let run = Arc::new(store.begin(BeginOptions::default()).await.unwrap());
        let checkpoint = run.checkpoints().assign(InputId(0));
        let name = TaskName { checkpoint, attempt: run.attempt(checkpoint) };
        let (handover, mut tasks, mut acked) = Handover::new();
        let attempt = handover.attempt(name, Arc::new(Schema::empty()));
        let sealing = Sealing::new(Arc::clone(&run), checkpoint, Counts::default(), Vec::new(), Vec::new());
        tokio::spawn(attempt.end(sealing));
        let mut task = tasks.recv().await.unwrap().unwrap();
        assert!(task.next().await.is_none());
        let _ = run.worker().void(InputId(0)).await.unwrap();
        assert_eq!(task.ack().await.unwrap(), Acked::Taken);
        assert!(!acked.recv().await.unwrap().sealed);
        assert!(Arc::try_unwrap(run).is_ok(), "nothing holds the run when the ack is heard");
    }
}
