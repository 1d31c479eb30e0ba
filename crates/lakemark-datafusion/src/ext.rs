//! The one extension trait: a checkpointed read, a sealed write, a sink-less run and rows for the caller, for a `SessionContext`
//! and its `DataFrame`s.

use async_trait::async_trait;
use datafusion::catalog::TableProvider;
use datafusion::common::TableReference;
use datafusion::dataframe::DataFrame;
use datafusion::prelude::SessionContext;
use lakemark::{Error, ErrorKind, Result, SourcePolicy};
use std::sync::Arc;

use crate::checkpoints::{Checkpoints, SourceSpec};
use crate::driver::{Plan, Progress, StopSignal, hand_out, plan_query, run_query};
use crate::errors::from_datafusion;
use crate::handover::{CollectedTask, TaskStream};
use crate::report::RunReport;
use crate::rows::{KeyedTable, RowsSpec};
use crate::seal::Output;
use crate::table::CheckpointedTable;
use crate::validate::check_sql;

/// lakemark on a [`SessionContext`].
#[async_trait]
pub trait LakemarkExt {
    /// Registers a tracked source as a table. Lists it and reads the store; writes nothing.
    async fn register_checkpointed(&self, checkpoints: &Checkpoints, source: SourceSpec) -> Result<()>;

    /// Registers a tracked source and reads it.
    async fn read_checkpointed(&self, checkpoints: &Checkpoints, source: SourceSpec) -> Result<DataFrame>;

    /// Registers `provider` as the tracked source `name`: any table whose scan is a plain file scan
    /// ([`FileScanConfig`](datafusion::datasource::physical_plan::FileScanConfig)), such as a `ListingTable`, on a local
    /// disk or any object store that the session knows. It is listed through `provider` now; its schema and its
    /// partition columns are those of `provider`. Parquet is tracked by row groups, other formats by whole files.
    ///
    /// The recorded root is the path of a `ListingTable`, else the folder that all its files share.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) for a table whose scan is of another kind, or does more than read whole
    /// files.
    async fn wrap_checkpointed(
        &self,
        checkpoints: &Checkpoints,
        name: &str,
        provider: Arc<dyn TableProvider>,
        policy: SourcePolicy,
    ) -> Result<()>;

    /// Registers any table as a source in rows mode: all of its rows are read at each run, and those whose keys are not done
    /// are worked on. Reads the store; writes nothing.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for key columns that the table lacks, [`Unsupported`](ErrorKind::Unsupported) for such
    /// of a type that is no key, [`Refused`](ErrorKind::Refused) when the store has other ones.
    async fn register_rows(&self, checkpoints: &Checkpoints, source: RowsSpec) -> Result<()>;

    /// A query, with the checks that only its text allows (TABLESAMPLE, statements that are no query).
    async fn checkpointed_sql(&self, sql: &str) -> Result<DataFrame>;

    /// What [`write_sealed`](Self::write_sealed) or [`run_sealed`](Self::run_sealed) (`output: None`) would do. Reads no
    /// rows and changes nothing.
    async fn plan_sealed(&self, checkpoints: &Checkpoints, query: DataFrame, output: Option<Output>) -> Result<Plan>;

    /// Runs what of `query` is not done, seals it task by task, and commits it to `output`, exactly once.
    ///
    /// # Errors
    /// The first error of a task; what was sealed by then is committed and kept.
    async fn write_sealed(&self, checkpoints: &Checkpoints, query: DataFrame, output: Output) -> Result<RunReport>;

    /// Runs `query` for its effects: its rows are discarded, and each task is sealed when it was drained.
    async fn run_sealed(&self, checkpoints: &Checkpoints, query: DataFrame) -> Result<RunReport>;

    /// Runs `query`, and hands each task's rows to the caller, whose [`ack`](crate::HandedTask::ack) seals it; a task that is
    /// not acked is done again by the next run. The store is that of a run without a sink. Work begins at once, on the
    /// caller's runtime; when this returns, the epoch is won, or there is nothing to do. `retries` and `task_timeout` are of
    /// a task until its last row is taken: the caller's reading is a part of it, the wait for the ack is not.
    ///
    /// What lakemark holds is exact: an atom is in the seal of one acked attempt, and no later run gives its rows again. Towards
    /// the caller rows come *at least* once: who stored them and died before the ack, or never heard what it came to, is
    /// given them again, perhaps in other tasks. They are there exactly once for a caller who stores the rows of an attempt
    /// under its [name](crate::TaskName), all of them or none, acks, and counts only names that are sealed. Of all attempts of
    /// earlier runs [`Checkpoints::view`] says, when this has returned, whether they are
    /// ([`is_sealed_in`](crate::TaskName::is_sealed_in)); what is stored under another name is to be thrown away. That is for
    /// good, since nobody can seal in an older epoch. A run that finds nothing to do opens no epoch: throw away then
    /// only if no earlier run still lives.
    ///
    /// # Errors
    /// Those of planning, and of winning the epoch. What goes wrong later comes from the stream.
    async fn execute_sealed(&self, checkpoints: &Checkpoints, query: DataFrame) -> Result<TaskStream>;

    /// As [`execute_sealed`](Self::execute_sealed), with all rows of a task at once.
    async fn collect_sealed(&self, checkpoints: &Checkpoints, query: DataFrame) -> Result<TaskStream<CollectedTask>>;

    /// As [`write_sealed`](Self::write_sealed) (or `run_sealed` for `None`), with progress and a way to stop. The report
    /// is given also when there is an error.
    async fn run_job(
        &self,
        checkpoints: &Checkpoints,
        query: DataFrame,
        output: Option<Output>,
        progress: Arc<dyn Progress>,
        stop: StopSignal,
    ) -> (RunReport, Option<Error>);
}

/// lakemark on a [`DataFrame`] over tracked sources: the end of a chain of calls.
#[async_trait]
pub trait SealedExt {
    /// As [`LakemarkExt::write_sealed`].
    async fn write_sealed(self, checkpoints: &Checkpoints, output: Output) -> Result<RunReport>;

    /// As [`LakemarkExt::run_sealed`].
    async fn run_sealed(self, checkpoints: &Checkpoints) -> Result<RunReport>;

    /// As [`LakemarkExt::execute_sealed`].
    async fn execute_sealed(self, checkpoints: &Checkpoints) -> Result<TaskStream>;

    /// As [`LakemarkExt::collect_sealed`].
    async fn collect_sealed(self, checkpoints: &Checkpoints) -> Result<TaskStream<CollectedTask>>;
}

#[async_trait]
impl SealedExt for DataFrame {
    async fn write_sealed(self, checkpoints: &Checkpoints, output: Output) -> Result<RunReport> {
        finished(run_query(checkpoints, self, Some(output), Arc::new(()), StopSignal::never()).await)
    }

    async fn run_sealed(self, checkpoints: &Checkpoints) -> Result<RunReport> {
        finished(run_query(checkpoints, self, None, Arc::new(()), StopSignal::never()).await)
    }

    async fn execute_sealed(self, checkpoints: &Checkpoints) -> Result<TaskStream> {
        hand_out(checkpoints, self).await
    }

    async fn collect_sealed(self, checkpoints: &Checkpoints) -> Result<TaskStream<CollectedTask>> {
        Ok(hand_out(checkpoints, self).await?.collected(checkpoints.options().concurrency))
    }
}

#[async_trait]
impl LakemarkExt for SessionContext {
    async fn register_checkpointed(&self, checkpoints: &Checkpoints, source: SourceSpec) -> Result<()> {
        let (name, keys) = (source.name.clone(), source.rows.clone());
        let source = checkpoints.add_source(source, true).await?;
        let views = self.state().config().options().execution.parquet.schema_force_view_types;
        let views = views && source.native.is_none();
        let table: Arc<dyn TableProvider> =
            Arc::new(CheckpointedTable::new(checkpoints.clone(), Arc::clone(&source), views));
        // Without any file it has no columns, and there is nothing to tell apart.
        let Some(keys) = keys.filter(|_| source.schema.is_some()) else { return register(self, name, table) };
        let root = source.lake.root();
        let rows = checkpoints.add_rows(&name, root, &source.format, &table.schema(), &keys).await?;
        source.check_keys(&keys).await?;
        register(self, name, Arc::new(KeyedTable::new(checkpoints.clone(), rows, table)))
    }

    async fn read_checkpointed(&self, checkpoints: &Checkpoints, source: SourceSpec) -> Result<DataFrame> {
        let name = source.name.clone();
        self.register_checkpointed(checkpoints, source).await?;
        let table = self.table(TableReference::bare(name)).await;
        table.map_err(|e| from_datafusion(e, ErrorKind::Invalid, "the source cannot be read"))
    }

    async fn wrap_checkpointed(
        &self,
        checkpoints: &Checkpoints,
        name: &str,
        provider: Arc<dyn TableProvider>,
        policy: SourcePolicy,
    ) -> Result<()> {
        let source = checkpoints.add_wrapped(name, &provider, &self.state(), policy).await?;
        register(self, name.to_owned(), Arc::new(CheckpointedTable::new(checkpoints.clone(), source, false)))
    }

    async fn register_rows(&self, checkpoints: &Checkpoints, source: RowsSpec) -> Result<()> {
        let rows = checkpoints.add_keyed(&source).await?;
        register(self, source.name, Arc::new(KeyedTable::new(checkpoints.clone(), rows, source.provider)))
    }

    async fn checkpointed_sql(&self, sql: &str) -> Result<DataFrame> {
        let wrong = |e| {
            from_datafusion(e, ErrorKind::Invalid, "the query cannot be planned").safe("nothing was read or written")
        };
        let state = self.state();
        let dialect = state.config().options().sql_parser.dialect;
        let statement = state.sql_to_statement(sql, &dialect).map_err(wrong)?;
        check_sql(&statement)?;
        let plan = state.statement_to_plan(statement).await.map_err(wrong)?;
        self.execute_logical_plan(plan).await.map_err(wrong)
    }

    async fn plan_sealed(&self, checkpoints: &Checkpoints, query: DataFrame, output: Option<Output>) -> Result<Plan> {
        plan_query(checkpoints, query, output).await
    }

    async fn write_sealed(&self, checkpoints: &Checkpoints, query: DataFrame, output: Output) -> Result<RunReport> {
        SealedExt::write_sealed(query, checkpoints, output).await
    }

    async fn run_sealed(&self, checkpoints: &Checkpoints, query: DataFrame) -> Result<RunReport> {
        SealedExt::run_sealed(query, checkpoints).await
    }

    async fn execute_sealed(&self, checkpoints: &Checkpoints, query: DataFrame) -> Result<TaskStream> {
        SealedExt::execute_sealed(query, checkpoints).await
    }

    async fn collect_sealed(&self, checkpoints: &Checkpoints, query: DataFrame) -> Result<TaskStream<CollectedTask>> {
        SealedExt::collect_sealed(query, checkpoints).await
    }

    async fn run_job(
        &self,
        checkpoints: &Checkpoints,
        query: DataFrame,
        output: Option<Output>,
        progress: Arc<dyn Progress>,
        stop: StopSignal,
    ) -> (RunReport, Option<Error>) {
        run_query(checkpoints, query, output, progress, stop).await
    }
}

fn register(ctx: &SessionContext, name: String, table: Arc<dyn TableProvider>) -> Result<()> {
    ctx.register_table(TableReference::bare(name), table)
        .map(drop)
        .map_err(|e| from_datafusion(e, ErrorKind::Invalid, "the source cannot be registered"))
}

fn finished((report, error): (RunReport, Option<Error>)) -> Result<RunReport> {
    match error {
        Some(error) => Err(error),
        None => Ok(report),
    }
}
