//! What happened: who, when in virtual time, what, and how it ended. Its digest tells two runs of a seed apart.

use std::fmt::Display;
use std::sync::{Arc, Mutex};

use tokio::time::Instant;
use xxhash_rust::xxh3::Xxh3;

use crate::world::lock;

/// The trace of one simulation.
#[derive(Clone)]
pub(crate) struct Trace {
    began: Instant,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    hash: Xxh3,
    events: u64,
    lines: Option<Vec<String>>,
}

impl Trace {
    /// An empty one; `kept`: its lines are remembered, to be shown.
    pub(crate) fn new(kept: bool) -> Self {
        let inner = Inner { lines: kept.then(Vec::new), ..Inner::default() };
        Self { began: Instant::now(), inner: Arc::new(Mutex::new(inner)) }
    }

    /// Records that `actor` did or saw `what`.
    pub(crate) fn say(&self, actor: &str, what: impl Display) {
        let line = format!("{:>8} {actor}: {what}", self.began.elapsed().as_millis());
        let mut inner = lock(&self.inner);
        inner.hash.update(line.as_bytes());
        inner.hash.update(b"\n");
        inner.events += 1;
        if let Some(lines) = &mut inner.lines {
            lines.push(line);
        }
    }

    /// How long it has been in virtual time.
    pub(crate) fn elapsed(&self) -> std::time::Duration {
        self.began.elapsed()
    }

    /// XXH3-128 of all lines, how many there are, and the lines if they were kept.
    pub(crate) fn finish(&self) -> (String, u64, Vec<String>) {
        let mut inner = lock(&self.inner);
        (format!("{:032x}", inner.hash.digest128()), inner.events, inner.lines.take().unwrap_or_default())
    }
}
