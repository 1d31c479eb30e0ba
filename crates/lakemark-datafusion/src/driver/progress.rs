//! What a run tells while it goes, and how it is asked to stop.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use tokio::sync::watch;

use super::plan::PlannedTasks;

/// Hears of a run's progress. Every method may be ignored.
pub trait Progress: Send + Sync {
    /// Tasks were planned (again, when files changed since planning).
    fn planned(&self, _tasks: &PlannedTasks) {}
    /// A task ended well: its files, row groups and rows in.
    fn task_done(&self, _files: u64, _row_groups: u64, _rows: u64) {}
    /// A plan of tasks ran as far as it will: its operators have their metrics.
    fn executed(&self, _plan: &Arc<dyn ExecutionPlan>) {}
    /// Sealed work is being committed.
    fn committing(&self) {}
}

impl Progress for () {}

/// A request to stop, seen by a run.
#[derive(Debug, Clone)]
pub struct StopSignal(watch::Receiver<u8>);

impl StopSignal {
    /// A signal and the sender of its level: 1 stops dispatching and lets running tasks finish within the grace time,
    /// 2 drops what runs.
    pub fn new() -> (watch::Sender<u8>, Self) {
        let (sender, receiver) = watch::channel(0);
        (sender, Self(receiver))
    }

    /// A signal that never comes.
    pub fn never() -> Self {
        Self(watch::channel(0).1)
    }

    /// The present level.
    pub(super) fn level(&self) -> u8 {
        *self.0.borrow()
    }

    /// Waits until the level is at least `level`.
    pub(super) async fn reached(&mut self, level: u8) {
        if self.0.wait_for(|now| *now >= level).await.is_err() {
            // The sender is gone: the signal never comes.
            std::future::pending::<()>().await;
        }
    }
}
