//! The named points between two durable steps of a run.
//!
//! Reaching one is traced (target `lakemark::step`, level debug), so that a person sees how far a run got. With the
//! feature `testing` a process can be killed or stopped at one: `LAKEMARK_KILL_AT=seal.before` (SIGKILL at the first
//! time), `LAKEMARK_KILL_AT=seal.before:3` (at the third), `LAKEMARK_STOP_AT=…` (SIGSTOP).

/// Every point, in the order of a run. The part before the dot is the phase.
pub const STEPS: &[&str] = &[
    "list.begin",
    "list.end",
    "open.before_manifest",
    "open.after_manifest",
    "open.before_binding",
    "open.after_binding",
    "run.task",
    "run.output",
    "run.written",
    "keys.after",
    "seal.before",
    "seal.after",
    "fold.before_segment",
    "fold.before_manifest",
    "fold.after_manifest",
    "intent.before_object",
    "intent.before_segment",
    "intent.before_manifest",
    "intent.after_manifest",
    "rename.before",
    "rename.after",
    "rename.synced",
    "table.before",
    "table.after",
    "done.before_manifest",
    "done.after_manifest",
    "close.before_segment",
    "close.before_manifest",
    "close.after_manifest",
];

/// Says that the point `step` of [`STEPS`] is reached.
pub fn reach(step: &'static str) {
    debug_assert!(STEPS.contains(&step), "{step} is not in the list");
    tracing::debug!(target: "lakemark::step", step);
    #[cfg(feature = "testing")]
    faults::act(step);
}

#[cfg(feature = "testing")]
mod faults {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    use rustix::process::{Signal, getpid, kill_process};

    struct Fault {
        step: String,
        left: AtomicU64,
        signal: Signal,
    }

    static FAULTS: LazyLock<Vec<Fault>> = LazyLock::new(|| {
        let read = |name: &str, signal| {
            let text = std::env::var(name).ok()?;
            let (step, nth) = text.split_once(':').unwrap_or((&text, "1"));
            Some(Fault { step: step.to_owned(), left: AtomicU64::new(nth.parse().unwrap_or(1)), signal })
        };
        [read("LAKEMARK_KILL_AT", Signal::KILL), read("LAKEMARK_STOP_AT", Signal::STOP)].into_iter().flatten().collect()
    });

    pub(super) fn act(step: &str) {
        for fault in FAULTS.iter().filter(|fault| fault.step == step) {
            if fault.left.fetch_sub(1, Ordering::SeqCst) == 1 {
                let _ = kill_process(getpid(), fault.signal);
                // A kill is at once. A stop begins when some thread, perhaps another one, takes the signal: go no further.
                std::thread::sleep(std::time::Duration::from_millis(200));
            }
        }
    }
}
