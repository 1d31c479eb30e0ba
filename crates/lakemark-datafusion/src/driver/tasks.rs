//! Running tasks: some at once, each retried only where that can help.

use std::sync::Arc;
use std::time::Duration;

use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use futures::StreamExt;
use lakemark::{Error, ErrorKind, InputId, Result, Run};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;

use super::progress::{Progress, StopSignal};
use crate::checkpoints::Options;
use crate::errors::from_datafusion;
use crate::rows::Slices;
use crate::seal::{SealExec, TaskDone};
use crate::timed::timed;

/// What became of a plan's tasks.
#[derive(Debug, Default)]
pub(super) struct Ran {
    pub(super) done: Vec<TaskDone>,
    pub(super) failed: u64,
    /// The first error; tasks that were running went on.
    pub(super) error: Option<Error>,
    /// Whether tasks were left undone on request: a stop, or the limit.
    pub(super) stopped: bool,
}

/// One task of a plan.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlannedTask {
    pub(super) partition: usize,
    pub(super) input: InputId,
    /// Whether it is one of rows, which is cut into slices when it runs.
    pub(super) of_rows: bool,
}

/// What the tasks of one plan run in.
pub(super) struct Stage<'a> {
    pub(super) seal: &'a Arc<SealExec>,
    pub(super) context: &'a Arc<TaskContext>,
    pub(super) options: &'a Options,
    pub(super) progress: &'a dyn Progress,
    pub(super) run: &'a Run,
    pub(super) slices: &'a Slices,
    /// What slices of tasks of rows came to.
    pub(super) sliced: UnboundedReceiver<TaskDone>,
}

/// Runs `tasks`: of those of files, and of the slices of the others, no more than may begin.
pub(super) async fn run_tasks(stage: Stage<'_>, tasks: &[PlannedTask], stop: &mut StopSignal) -> Ran {
    let Stage { seal, context, options, progress, run, slices, mut sliced } = stage;
    let mut ran = Ran::default();
    let mut waiting = tasks.iter();
    let mut ended = 0;
    let mut running: JoinSet<Result<TaskDone>> = JoinSet::new();
    let mut deadline = None;
    loop {
        let may_start = ran.error.is_none() && stop.level() == 0;
        if !may_start {
            slices.stop();
        }
        while may_start && running.len() < options.concurrency.max(1) {
            let Some(&PlannedTask { partition, input, of_rows }) = waiting.as_slice().first() else { break };
            if !of_rows && !slices.begin() {
                break;
            }
            waiting.next();
            let mut options = options.clone();
            if of_rows {
                // Of each slice, not of the task.
                options.task_timeout = None;
            }
            running.spawn(run_task(Arc::clone(seal), partition, input, Arc::clone(context), options));
        }
        if running.is_empty() {
            break;
        }
        if stop.level() > 0 && deadline.is_none() {
            tracing::warn!(running = running.len(), grace = ?options.grace, "stopping: running tasks may finish");
            deadline = Some(tokio::time::Instant::now() + options.grace);
        }
        let next_level = stop.level() + 1;
        let joined = tokio::select! {
            joined = running.join_next() => joined,
            Some(done) = sliced.recv() => {
                count(&mut ran, done, progress, run).await;
                continue;
            }
            () = stop.reached(next_level), if next_level <= 2 => None,
            () = sleep_until(deadline) => None,
        };
        let out_of_grace = deadline.is_some_and(|deadline| tokio::time::Instant::now() >= deadline);
        if stop.level() >= 2 || out_of_grace {
            // Not waited for: a function that does not yield cannot be interrupted. What is dropped seals nothing, since
            // a task is cancelled at its next step.
            tracing::warn!(running = running.len(), "dropping what runs; it is done again next time");
            running.abort_all();
            running.detach_all();
            break;
        }
        let Some(joined) = joined else { continue };
        match joined {
            Ok(Ok(done)) => {
                ended += u64::from(!done.stopped);
                count(&mut ran, done, progress, run).await;
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, "a task failed");
                ran.failed += 1;
                // Fenced says more than what it broke.
                if ran.error.is_none() || error.kind() == ErrorKind::Fenced {
                    ran.error = Some(error);
                }
            }
            Err(join) if join.is_cancelled() => {}
            Err(join) => {
                ran.failed += 1;
                let what = panic_text(join.into_panic());
                let error = Error::new(ErrorKind::Invalid, format!("a task panicked: {what}"))
                    .safe("nothing of it was sealed; what was sealed before is kept")
                    .way("look for a user-defined function that panics");
                ran.error.get_or_insert(error);
            }
        }
    }
    while let Ok(done) = sliced.try_recv() {
        count(&mut ran, done, progress, run).await;
    }
    ran.stopped = ran.error.is_none() && (ended + ran.failed) < tasks.len() as u64;
    ran
}

/// Counts a task that is done, or a slice of one.
async fn count(ran: &mut Ran, done: TaskDone, progress: &dyn Progress, run: &Run) {
    let read = done.read.changed.len() + done.read.unusable.len();
    tracing::debug!(rows = done.counts.rows_out, left_out = read, "a task is done");
    progress.task_done(done.files, done.atoms, done.counts.rows_in);
    ran.done.push(done);
    if let Err(error) = run.fold_if_due().await {
        ran.error.get_or_insert(error);
    }
}

async fn sleep_until(deadline: Option<tokio::time::Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

fn panic_text(panic: Box<dyn std::any::Any + Send>) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

/// How many files may change under one task before it counts as failing.
const CHANGES: u32 = 1_000;

/// One task, attempt after attempt.
async fn run_task(
    seal: Arc<SealExec>,
    partition: usize,
    input: InputId,
    context: Arc<TaskContext>,
    options: Options,
) -> Result<TaskDone> {
    let mut pause = Duration::from_millis(200);
    let mut left = options.retries;
    let mut changes = 0;
    loop {
        let outcome = match options.task_timeout {
            Some(limit) => {
                let (seal, context) = (Arc::clone(&seal), Arc::clone(&context));
                let outcome = timed(limit, async move { attempt(&seal, partition, input, &context).await }).await;
                outcome.unwrap_or_else(|| {
                    Err(Error::new(ErrorKind::Unavailable, format!("a task took longer than {limit:?}"))
                        .safe("nothing of it was sealed; what was sealed before is kept")
                        .way("raise run.task_timeout"))
                })
            }
            None => attempt(&seal, partition, input, &context).await,
        };
        match outcome {
            // The next attempt leaves the file out, so that each is found once: no retry is used up by it.
            Err(error) if error.kind() == ErrorKind::ChangedSincePlanning && changes < CHANGES => {
                tracing::debug!(%error, "a task is begun anew without a file that changed");
                changes += 1;
            }
            Err(error) if left > 0 && error.kind().is_retryable() => {
                tracing::warn!(%error, left, "a task is tried again");
                left -= 1;
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            outcome => return outcome,
        }
    }
}

async fn attempt(
    seal: &Arc<SealExec>,
    partition: usize,
    input: InputId,
    context: &Arc<TaskContext>,
) -> Result<TaskDone> {
    let failed = |e| {
        from_datafusion(e, ErrorKind::Invalid, "the query failed")
            .safe("what failed is not sealed; what was sealed before is kept")
    };
    let mut stream = seal.execute(partition, Arc::clone(context)).map_err(failed)?;
    while let Some(batch) = stream.next().await {
        batch.map_err(failed)?;
    }
    seal.take_done(input).ok_or_else(|| {
        Error::new(ErrorKind::Indeterminate, "a task ended without saying how").safe("what was sealed is kept")
    })
}
