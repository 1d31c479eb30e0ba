//! Work that must not take longer than a limit.

use std::time::Duration;

use tokio::task::JoinSet;

/// Does `work` on a task of its own, so that a function that does not yield cannot hold up the clock; `None` when it takes
/// longer than `limit`, and then it is cancelled at its next step.
pub(crate) async fn timed<T: Send + 'static>(
    limit: Duration,
    work: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    let mut alone = JoinSet::new();
    alone.spawn(work);
    match tokio::time::timeout(limit, alone.join_next()).await {
        Ok(Some(Ok(outcome))) => Some(outcome),
        Ok(Some(Err(join))) if join.is_panic() => std::panic::resume_unwind(join.into_panic()),
        Ok(_) | Err(_) => None,
    }
}
