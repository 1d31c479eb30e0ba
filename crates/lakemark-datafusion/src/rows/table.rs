//! A source in rows mode as a DataFusion table.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::datasource::TableType;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use lakemark::InputId;

use super::{KeyFilterExec, Limits, RowSource};
use crate::checkpoints::Checkpoints;
use crate::scan::CheckpointedScanExec;

/// Rows in a slice, where `task_rows` does not say how many.
const SLICE_ROWS: usize = 1 << 20;

/// A source in rows mode: a scan of it reads all of its rows and lets through those whose keys are not done.
///
/// Of the columns, those of the query and those of the key are read. No filter is pushed into it: what a query drops is done,
/// and that is known only of a row that was read.
#[derive(Debug)]
pub struct KeyedTable {
    checkpoints: Checkpoints,
    source: Arc<RowSource>,
    inner: Arc<dyn TableProvider>,
}

impl KeyedTable {
    pub(crate) fn new(checkpoints: Checkpoints, source: Arc<RowSource>, inner: Arc<dyn TableProvider>) -> Self {
        Self { checkpoints, source, inner }
    }

    /// The source's name.
    pub fn name(&self) -> &str {
        &self.source.name
    }

    fn limits(&self) -> Limits {
        let sizing = self.checkpoints.options().sizing;
        let rows = if sizing.rows == 0 { SLICE_ROWS } else { usize::try_from(sizing.rows).unwrap_or(usize::MAX) };
        Limits { rows, bytes: usize::try_from(sizing.bytes).unwrap_or(usize::MAX).max(1) }
    }
}

#[async_trait]
impl TableProvider for KeyedTable {
    fn schema(&self) -> SchemaRef {
        self.inner.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Unsupported; filters.len()])
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = self.schema();
        let mut columns = projection.cloned().unwrap_or_else(|| (0..schema.fields().len()).collect());
        let wanted = columns.len();
        for key in &self.source.spec.columns {
            let key = schema.index_of(&key.name)?;
            if !columns.contains(&key) {
                columns.push(key);
            }
        }
        let child = self.inner.scan(state, Some(&columns), &[], None).await?;
        let inputs: Vec<InputId> = match child.downcast_ref::<CheckpointedScanExec>() {
            // What it leaves out of a task, it reports under the task's id.
            Some(scan) => {
                let own = |input: Option<InputId>| input.unwrap_or_else(|| self.checkpoints.next_input());
                scan.inputs().map(own).collect()
            }
            None => {
                let partitions = child.output_partitioning().partition_count();
                (0..partitions).map(|_| self.checkpoints.next_input()).collect()
            }
        };
        let filter = KeyFilterExec::new(Arc::clone(&self.source), child, Arc::new(inputs), self.limits());
        let filter: Arc<dyn ExecutionPlan> = Arc::new(filter);
        if columns.len() == wanted {
            return Ok(filter);
        }
        let column = |(i, place): (usize, &usize)| {
            let name = schema.field(*place).name();
            ProjectionExpr { expr: Arc::new(Column::new(name, i)), alias: name.clone() }
        };
        let kept: Vec<_> = columns[..wanted].iter().enumerate().map(column).collect();
        Ok(Arc::new(ProjectionExec::try_new(kept, filter)?))
    }
}
