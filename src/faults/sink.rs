//! A sink that is another one but for how its commits are brought about.

use std::fmt::Debug;

use async_trait::async_trait;

use crate::error::Result;
use crate::identity::StoreId;
use crate::sink::{Fitness, Intent, Leftover, Settled, Sink};
use crate::store::{Binding, Expected, OutputFile, TableState};

/// How the commits of a [`CommitsBy`] go.
#[async_trait]
pub trait Commits: Debug + Send + Sync {
    /// Brings `intent` about in `sink`, or fails to.
    ///
    /// # Errors
    /// As the test wants it.
    async fn commit(&self, sink: &dyn Sink, intent: &Intent<'_>) -> Result<Settled>;
}

/// The sink, whose commits go as the second says.
#[derive(Debug)]
pub struct CommitsBy<'a, C>(pub &'a dyn Sink, pub C);

#[async_trait]
impl<C: Commits> Sink for CommitsBy<'_, C> {
    fn binding(&self) -> Binding {
        self.0.binding()
    }

    async fn check(&self, expected: Option<&Expected>) -> Result<()> {
        self.0.check(expected).await
    }

    async fn bind(&self, store: StoreId) -> Result<()> {
        self.0.bind(store).await
    }

    async fn bound_to(&self, store: StoreId) -> Result<Option<StoreId>> {
        self.0.bound_to(store).await
    }

    fn keeps_files(&self) -> bool {
        self.0.keeps_files()
    }

    fn replaces_files(&self) -> bool {
        self.0.replaces_files()
    }

    async fn bind_again(&self, store: StoreId) -> Result<()> {
        self.0.bind_again(store).await
    }

    async fn visible_size(&self, file: &OutputFile) -> Result<Option<u64>> {
        self.0.visible_size(file).await
    }

    async fn fitness(&self, file: &OutputFile) -> Result<Fitness> {
        self.0.fitness(file).await
    }

    async fn leftovers(&self) -> Result<Vec<Leftover>> {
        self.0.leftovers().await
    }

    async fn remove(&self, leftovers: &[Leftover]) -> Result<()> {
        self.0.remove(leftovers).await
    }

    async fn take_out(&self, files: &[OutputFile]) -> Result<()> {
        self.0.take_out(files).await
    }

    async fn table(&self, store: StoreId) -> Result<Option<TableState>> {
        self.0.table(store).await
    }

    async fn base(
        &self,
        expected: &Expected,
        waiting: &[OutputFile],
        leaving: &[OutputFile],
    ) -> Result<Option<TableState>> {
        self.0.base(expected, waiting, leaving).await
    }

    async fn give_up(&self, intent: &Intent<'_>) -> Result<Option<TableState>> {
        self.0.give_up(intent).await
    }

    async fn commit(&self, intent: &Intent<'_>) -> Result<Settled> {
        self.1.commit(self.0, intent).await
    }
}
