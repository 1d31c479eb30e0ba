//! A table for DataFusion: one partition, columns chosen by the database, rows as they come.

use std::fmt;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::datasource::{TableProvider, TableType};
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use futures::TryStreamExt;
use futures::stream::BoxStream;
use lakemark::Result;

/// What a scan reads.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// The columns, by their place in the table.
    pub(crate) columns: Vec<usize>,
    pub(crate) schema: SchemaRef,
    pub(crate) limit: Option<usize>,
    /// Most rows in a batch.
    pub(crate) batch_rows: usize,
}

/// Where the rows come from.
pub(crate) trait Rows: fmt::Debug + Send + Sync {
    /// Starts one `SELECT` on a connection of its own; dropping the stream ends it.
    fn read(&self, request: Request) -> BoxStream<'static, Result<RecordBatch>>;
}

/// A table of a database.
#[derive(Debug)]
pub(crate) struct SqlTable {
    schema: SchemaRef,
    rows: Arc<dyn Rows>,
}

impl SqlTable {
    pub(crate) fn new(schema: SchemaRef, rows: Arc<dyn Rows>) -> Self {
        Self { schema, rows }
    }
}

#[async_trait]
impl TableProvider for SqlTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let columns = projection.cloned().unwrap_or_else(|| (0..self.schema.fields().len()).collect());
        let schema = Arc::new(self.schema.project(&columns)?);
        let scan = Scan { rows: Arc::clone(&self.rows), columns, schema: Arc::clone(&schema), limit };
        Ok(Arc::new(StreamingTableExec::try_new(schema, vec![Arc::new(scan)], None, [], false, limit)?))
    }
}

/// The one partition of a scan; executed again, it looks again.
#[derive(Debug)]
struct Scan {
    rows: Arc<dyn Rows>,
    columns: Vec<usize>,
    schema: SchemaRef,
    limit: Option<usize>,
}

impl PartitionStream for Scan {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let request = Request {
            columns: self.columns.clone(),
            schema: Arc::clone(&self.schema),
            limit: self.limit,
            batch_rows: context.session_config().batch_size().max(1),
        };
        let batches = self.rows.read(request).map_err(|error| DataFusionError::External(Box::new(error)));
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), batches))
    }
}
