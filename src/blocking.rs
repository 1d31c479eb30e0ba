//! Work that takes long or may panic, away from who waits for answers of others.

use tokio::task::{JoinError, spawn_blocking};

/// Does `work` on a thread of its own; a panic of it is an error.
pub(crate) async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
    // Threads race each other. In a simulation everything has its turn.
    #[cfg(feature = "testing")]
    if crate::injected::is_here() {
        return tokio::spawn(async move { work() }).await;
    }
    spawn_blocking(work).await
}
