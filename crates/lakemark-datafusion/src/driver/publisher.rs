//! Commits while tasks run, so that a long run shows what it has.

use std::sync::Arc;
use std::time::Duration;

use lakemark::{Committed, Error, OutputSink, Run};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Commits what is sealed now and then.
pub(super) struct Publisher {
    stop: oneshot::Sender<()>,
    task: JoinHandle<(Vec<Committed>, Option<Error>)>,
}

impl Publisher {
    /// Commits into `sink` every `every`, until it is [ended](Self::end) or a commit fails.
    pub(super) fn start(run: Arc<Run>, sink: Arc<dyn OutputSink>, every: Duration) -> Self {
        let (stop, mut stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            let mut committed = Vec::new();
            loop {
                tokio::select! {
                    // Between two commits only: one that has begun is brought to its end.
                    _ = &mut stopped => return (committed, None),
                    () = tokio::time::sleep(every) => {}
                }
                match run.commit(Some(&*sink)).await {
                    Ok(more) => committed.extend(more),
                    Err(error) => {
                        tracing::warn!(%error, "a commit failed while tasks run; they go on, and the last commit tries again");
                        return (committed, Some(error));
                    }
                }
            }
        });
        Self { stop, task }
    }

    /// Waits for a commit that is on its way. What was committed, and the error that ended it before.
    pub(super) async fn end(self) -> (Vec<Committed>, Option<Error>) {
        let _ = self.stop.send(());
        self.task.await.unwrap_or_default()
    }
}
