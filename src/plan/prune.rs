//! Layer 1: pruning a planner's tasks on the driver.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::{Stream, StreamExt};

use super::atom_filter::AtomFilter;
use super::scan_part::ScanPart;
use crate::identity::ManifestVersion;
use crate::store::View;

/// A task of a scan planner, of any engine.
pub trait ScanTask: Sized + Send {
    /// What it reads.
    fn parts(&self) -> Vec<ScanPart>;

    /// The same task reading only `left`: parts of [`parts`](Self::parts), in their order, each as it was or smaller,
    /// none empty. Called only when something was pruned and something is left.
    #[must_use]
    fn with_parts(self, left: Vec<ScanPart>) -> Self;
}

/// What a hook has seen so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PruneCounts {
    /// Tasks that came in.
    pub tasks: u64,
    /// Tasks dropped because everything in them is done.
    pub dropped: u64,
    /// Parts that came in.
    pub parts: u64,
    /// Parts dropped whole.
    pub done: u64,
    /// Parts made smaller.
    pub cut: u64,
}

#[derive(Debug, Default)]
struct Counters {
    tasks: AtomicU64,
    dropped: AtomicU64,
    parts: AtomicU64,
    done: AtomicU64,
    cut: AtomicU64,
}

/// The hook that a planner calls with its stream of tasks. Valid for one plan: the next plan reads the store afresh (R95).
#[derive(Debug, Clone)]
pub struct SchedulerHook {
    filter: AtomFilter,
    counters: Arc<Counters>,
}

impl SchedulerHook {
    /// The hook for a plan made from `view`.
    pub fn new(view: &View) -> Self {
        Self { filter: AtomFilter::new(view), counters: Arc::default() }
    }

    /// The manifest version that the plan is made from.
    pub fn version(&self) -> ManifestVersion {
        self.filter.version()
    }

    /// The filter that workers use, of the same version.
    pub fn filter(&self) -> &AtomFilter {
        &self.filter
    }

    /// `tasks` without what is done; tasks with nothing left are dropped.
    pub fn prune<T: ScanTask>(&self, tasks: impl Stream<Item = T> + Send) -> impl Stream<Item = T> + Send {
        let hook = self.clone();
        tasks.filter_map(move |task| std::future::ready(hook.prune_one(task)))
    }

    /// One task without what is done; `None` when nothing is left.
    pub fn prune_one<T: ScanTask>(&self, task: T) -> Option<T> {
        let add = |counter: &AtomicU64, n: usize| counter.fetch_add(n as u64, Ordering::Relaxed);
        let parts = task.parts();
        add(&self.counters.tasks, 1);
        add(&self.counters.parts, parts.len());
        let mut left = Vec::with_capacity(parts.len());
        let mut changed = false;
        for part in parts {
            let coverage = self.filter.left(&part);
            if coverage.is_empty() {
                // An empty file that was never sealed is still to do: only a done part is dropped.
                changed = true;
                add(&self.counters.done, 1);
            } else if coverage == *part.coverage() {
                left.push(part);
            } else {
                changed = true;
                add(&self.counters.cut, 1);
                left.push(part.with_coverage(coverage));
            }
        }
        if left.is_empty() {
            add(&self.counters.dropped, 1);
            return None;
        }
        Some(if changed { task.with_parts(left) } else { task })
    }

    /// What the hook has seen so far.
    pub fn counts(&self) -> PruneCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { tasks, dropped, parts, done, cut } = &*self.counters;
        PruneCounts { tasks: read(tasks), dropped: read(dropped), parts: read(parts), done: read(done), cut: read(cut) }
    }
}
