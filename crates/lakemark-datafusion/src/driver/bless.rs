//! Recording what the sources hold as done, without a run.

use lakemark::{Blessing, FileVersion, Result, bless_plan, bless_table_plan};

use super::plan::check_places;
use super::run::{begin, record_schemas};
use crate::checkpoints::Checkpoints;
use crate::seal::Output;

impl Checkpoints {
    /// What [`bless`](Self::bless) would record of the files that `chosen` takes, for every source. Their footers are
    /// read; nothing is changed.
    ///
    /// # Errors
    /// As [`bless_plan`]; those of a run whose store, sources and `output` do not go together.
    pub async fn blessings(
        &self,
        output: Option<&Output>,
        chosen: impl Fn(&FileVersion) -> bool,
    ) -> Result<Vec<Blessing>> {
        let view = self.view().await?;
        check_places(self, &view, output).await?;
        let mut blessings = Vec::new();
        for source in self.sources() {
            let name = &source.name;
            blessings.push(match &source.table {
                Some(open) => bless_table_plan(name, &*open.table, &open.snapshot(), &view.live, &chosen).await?,
                None => bless_plan(name, &source.lake, &source.listing, &view.live, &chosen).await?,
            });
        }
        Ok(blessings)
    }

    /// Records `blessings` under an epoch of its own; makes the store if there is none.
    ///
    /// # Errors
    /// As [`lakemark::ObjectCheckpointStore::begin`] and [`lakemark::Run::bless`].
    pub async fn bless(&self, output: Option<&Output>, blessings: Vec<Blessing>) -> Result<()> {
        let view = self.view().await?;
        let run = begin(self, &view, output).await?;
        // Later runs plan without opening a file, as after a run.
        let recorded = record_schemas(self, &run).await;
        let blessed = recorded.and(run.bless(blessings).await);
        let closed = run.close().await;
        blessed.and(closed.map(drop))
    }
}
