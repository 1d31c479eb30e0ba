//! Progress bars: files, row groups, rows a second, time left. Only on a terminal.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::Duration;

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};
use lakemark_datafusion::{PlannedTasks, Progress};

use crate::args::OutputArgs;

/// One line that tells how far a run is.
pub(crate) struct Bars {
    bar: ProgressBar,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    files: u64,
    files_planned: u64,
    row_groups: u64,
    rows: u64,
}

impl Bars {
    pub(crate) fn new(output: &OutputArgs) -> Self {
        // Log lines and a bar would write over each other.
        let hidden = output.quiet || output.verbose > 0 || !std::io::stderr().is_terminal();
        let target = if hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(None, target);
        let style = ProgressStyle::with_template(
            "{spinner} [{elapsed_precise}] {wide_bar} {pos}/{len} tasks, {msg}, {eta} left",
        );
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(Duration::from_millis(120));
        Self { bar, counts: Mutex::default() }
    }

    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }

    fn tell(&self, change: impl FnOnce(&mut Counts)) {
        let mut counts = self.counts.lock().unwrap_or_else(|e| e.into_inner());
        change(&mut counts);
        let seconds = self.bar.elapsed().as_secs_f64().max(0.001);
        self.bar.set_message(format!(
            "{}/{} files, {} row groups, {} rows/s",
            HumanCount(counts.files),
            HumanCount(counts.files_planned),
            HumanCount(counts.row_groups),
            HumanCount((counts.rows as f64 / seconds) as u64),
        ));
    }
}

impl Progress for Bars {
    fn planned(&self, tasks: &PlannedTasks) {
        self.bar.set_length(self.bar.position() + tasks.tasks);
        self.tell(|counts| counts.files_planned += tasks.files);
    }

    fn task_done(&self, files: u64, row_groups: u64, rows: u64) {
        self.tell(|counts| {
            // A large file is in several tasks; it is one file.
            counts.files = (counts.files + files).min(counts.files_planned);
            counts.row_groups += row_groups;
            counts.rows += rows;
        });
        self.bar.inc(1);
    }

    fn committing(&self) {
        self.bar.set_message("committing");
    }
}
