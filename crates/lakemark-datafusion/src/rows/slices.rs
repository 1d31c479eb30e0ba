//! An attempt of a task of rows: slice after slice, each with a seal of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use datafusion::arrow::array::ArrayRef;
use datafusion::execution::TaskContext;
use lakemark::{
    AttemptNonce, CheckpointId, Counts, ErrorKind, KnownKeys, OutputFile, Result, SealKind, SealOutcome, SealRows,
    Worker,
};
use tokio::sync::mpsc::UnboundedSender;

use super::filter::{KeyFilterExec, with_feed};
use super::{Feed, RowSource};
use crate::errors::from_datafusion;
use crate::seal::{Attempt, Sealing, TaskDone};
use crate::timed::timed;

/// What the slices of all tasks of rows have in common.
#[derive(Debug)]
pub(crate) struct Slices {
    /// How many may still begin.
    left: AtomicUsize,
    /// Set when none is to begin any more.
    stop: AtomicBool,
    /// Told of each that is sealed, or handed to the caller.
    done: UnboundedSender<TaskDone>,
}

impl Slices {
    pub(crate) fn new(limit: usize, done: UnboundedSender<TaskDone>) -> Self {
        Self { left: AtomicUsize::new(limit), stop: AtomicBool::new(false), done }
    }

    /// Lets no other one begin.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether one more, or a task of files, may begin: then it counts.
    pub(crate) fn begin(&self) -> bool {
        let one_less = |left: usize| left.checked_sub(1);
        !self.stop.load(Ordering::Relaxed)
            && self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
    }
}

/// The row keys that a slice covers.
#[derive(Debug)]
pub(crate) struct SliceKeys {
    pub(crate) source: Arc<RowSource>,
    pub(crate) known: Arc<KnownKeys>,
    /// The attempt's.
    pub(crate) nonce: AttemptNonce,
    pub(crate) fingerprints: Vec<u128>,
    pub(crate) values: Vec<ArrayRef>,
}

impl SliceKeys {
    pub(crate) async fn seal(
        &self,
        worker: &Worker,
        id: CheckpointId,
        counts: Counts,
        outputs: Vec<OutputFile>,
    ) -> Result<SealOutcome> {
        let (source, fingerprints) = (Arc::clone(&self.source.name), self.fingerprints.clone());
        let rows = SealRows { source, fingerprints, values: self.values.clone(), outputs, counts };
        let outcome = worker.seal_rows(id, self.nonce, rows).await?;
        if let SealOutcome::Sealed(_) = outcome {
            self.known.seal(&self.fingerprints);
        }
        Ok(outcome)
    }
}

impl Attempt {
    /// Runs the task slice by slice, until it has no row left that is not done.
    pub(crate) async fn run_rows(
        self: Arc<Self>,
        filter: &KeyFilterExec,
        context: &Arc<TaskContext>,
    ) -> Result<TaskDone> {
        let worker = self.run.worker();
        worker.guard().await?;
        let feed = filter.feed(self.input, &self.run, context).await?;
        let context = with_feed(context, &feed);
        let mut sequence = 0;
        for seal in worker.seals_of(self.input).await? {
            sequence = seal.id.sequence + 1;
            if seal.kind == SealKind::Void {
                return Ok(TaskDone::default());
            }
            // What this process sealed or folded it knows already.
            if !worker.is_sealed(seal.id) {
                feed.leave_out(&worker.keys_of(&seal).await?).await?;
            }
        }
        let mut stopped = false;
        while feed.fill().await? {
            if !self.slices.begin() {
                stopped = true;
                break;
            }
            let id = CheckpointId { epoch: worker.epoch(), input: self.input, sequence };
            sequence += 1;
            let (done, goes_on) = self.slice_in_time(id, &feed, &context).await?;
            if let Some(done) = done {
                // Nobody listens any more only when the run is over.
                let _ = self.slices.done.send(done);
            }
            if !goes_on {
                stopped = true;
                break;
            }
        }
        let mut read = self.checkpoints.shared.atoms.take(self.input).unwrap_or_default();
        read.files.clear();
        Ok(TaskDone { stopped, read, ..TaskDone::default() })
    }

    /// One slice, for no longer than a task may take.
    async fn slice_in_time(
        self: &Arc<Self>,
        id: CheckpointId,
        feed: &Arc<Feed>,
        context: &Arc<TaskContext>,
    ) -> Result<(Option<TaskDone>, bool)> {
        let Some(limit) = self.checkpoints.options().task_timeout else { return self.slice(id, feed, context).await };
        let (attempt, feed, context) = (Arc::clone(self), Arc::clone(feed), Arc::clone(context));
        let outcome = timed(limit, async move { attempt.slice(id, &feed, &context).await }).await;
        outcome.unwrap_or_else(|| {
            Err(lakemark::Error::new(ErrorKind::Unavailable, format!("a slice took longer than {limit:?}"))
                .safe("nothing of it was sealed; what was sealed before is kept")
                .way("raise run.task_timeout")
                .way("make slices smaller: run.task_rows"))
        })
    }

    /// Runs the slice of `feed` through the query and seals it as `id`; how it ended, if it is sealed or handed over, and
    /// whether there may be another one.
    async fn slice(
        &self,
        id: CheckpointId,
        feed: &Arc<Feed>,
        context: &Arc<TaskContext>,
    ) -> Result<(Option<TaskDone>, bool)> {
        let failed = |error| from_datafusion(error, ErrorKind::Invalid, "the query failed");
        self.run.worker().guard().await?;
        // Its own: another attempt of the task may be at the same number in this process.
        let nonce = AttemptNonce::random();
        let stream = self.plan.execute(self.partition, Arc::clone(context)).map_err(failed)?;
        let mut rows = self.rows(id, nonce, &stream.schema())?;
        let Some(rows_out) = self.drain(stream, &mut rows).await? else {
            return Ok((Some(TaskDone { handed: true, ..TaskDone::default() }), false));
        };
        let (outputs, caller) = rows.finish(&self.write_time).await?;
        let (fingerprints, values) = feed.keys().await?;
        let counts = Counts { rows_in: fingerprints.len() as u64, rows_out, rows_failed: 0 };
        let (source, known) = (Arc::clone(feed.source()), Arc::clone(feed.known()));
        let keys = SliceKeys { source, known, nonce, fingerprints, values };
        let sealing = Sealing::new(Arc::clone(&self.run), id, counts, Vec::new(), outputs).with_keys(keys);
        if let Some(caller) = caller {
            feed.pass().await;
            caller.end(sealing).await;
            return Ok((Some(TaskDone { handed: true, ..TaskDone::default() }), true));
        }
        let _timer = self.seal_time.timer();
        match sealing.seal().await? {
            SealOutcome::Sealed(_) => {
                self.count_output(rows_out, &sealing);
                feed.pass().await;
                Ok((Some(sealing.done(Default::default())), true))
            }
            SealOutcome::Already(seal) => {
                // Read, not guessed: another attempt holds the seal, so what this one staged is garbage. What the winner does not
                // cover of the slice is done again, under the next number.
                self.discard(&sealing).await;
                if seal.kind == SealKind::Void {
                    return Ok((None, false));
                }
                let theirs = self.run.worker().keys_of(&seal).await?;
                feed.known().seal(&theirs);
                feed.leave_out(&theirs).await?;
                Ok((None, true))
            }
        }
    }
}
