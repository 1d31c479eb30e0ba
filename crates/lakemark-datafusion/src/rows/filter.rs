//! The anti-join against the store, by key.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{BooleanArray, RecordBatch};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{
    Boundedness, CardinalityEffect, ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties,
};
use futures::StreamExt;
use lakemark::{ErrorKind, InputId, KeyEncoder, Known, KnownKeys, Run};

use super::{Feed, Limits, RowSource};
use crate::errors::{from_datafusion, to_datafusion};
use crate::scan::CheckpointedScanExec;

/// Lets rows through whose keys are not done, and stages their keys: below every operator of the query, so that what these
/// drop is done too. One partition a task.
///
/// No filter passes it: a row that a filter dropped below it would never count as done.
#[derive(Debug)]
pub(crate) struct KeyFilterExec {
    source: Arc<RowSource>,
    child: Arc<dyn ExecutionPlan>,
    inputs: Arc<Vec<InputId>>,
    limits: Limits,
    metrics: ExecutionPlanMetricsSet,
    properties: Arc<PlanProperties>,
}

/// The feed of an attempt, on its way to the filter at the bottom of the plan.
struct FeedOfTask(Arc<Feed>);

impl KeyFilterExec {
    /// Over the rows of `child`, whose partitions are the tasks `inputs`.
    pub(super) fn new(
        source: Arc<RowSource>,
        child: Arc<dyn ExecutionPlan>,
        inputs: Arc<Vec<InputId>>,
        limits: Limits,
    ) -> Self {
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(child.schema()),
            Partitioning::UnknownPartitioning(child.output_partitioning().partition_count()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        ));
        Self { source, child, inputs, limits, metrics: ExecutionPlanMetricsSet::new(), properties }
    }

    pub(crate) fn source(&self) -> &Arc<RowSource> {
        &self.source
    }

    /// The task of each partition.
    pub(crate) fn inputs(&self) -> &[InputId] {
        &self.inputs
    }

    /// Whether each partition of its child is a task of its own, without a limit on its rows.
    pub(crate) fn is_runnable(&self) -> bool {
        let scan = self.child.downcast_ref::<CheckpointedScanExec>();
        self.inputs.len() == self.child.output_partitioning().partition_count()
            && self.child.fetch().is_none()
            && scan.is_none_or(CheckpointedScanExec::is_runnable)
    }

    /// A way through the task of `partition`, from its start.
    fn open(&self, partition: usize, known: Arc<KnownKeys>, context: Arc<TaskContext>) -> lakemark::Result<Feed> {
        let cannot = |error| {
            let what = format!("source `{}` cannot be read", self.source.name);
            from_datafusion(error, ErrorKind::Unavailable, &what).at(&self.source.root)
        };
        let stream = self.child.execute(partition, context).map_err(cannot)?;
        Feed::new(&self.source, known, self.inputs[partition], stream, self.limits)
    }

    /// Whether `partition` has a row that is not done. What was read until then is not read again.
    pub(crate) async fn look(&self, partition: usize, context: Arc<TaskContext>) -> lakemark::Result<bool> {
        let feed = Arc::new(self.open(partition, self.source.known(), context)?);
        let found = feed.fill().await?;
        self.source.looked.insert(feed.input(), feed);
        Ok(found)
    }

    /// The way of a new attempt of the task `input`, under `run`.
    pub(super) async fn feed(
        &self,
        input: InputId,
        run: &Run,
        context: &Arc<TaskContext>,
    ) -> lakemark::Result<Arc<Feed>> {
        let known = run.keys_of(&self.source.name).await?;
        let looked = self.source.looked.remove(&input).map(|(_, feed)| feed);
        if let Some(feed) = looked.filter(|feed| Arc::ptr_eq(feed.known(), &known)) {
            return Ok(feed);
        }
        let partition = self.inputs.iter().position(|known| *known == input).unwrap_or_default();
        Ok(Arc::new(self.open(partition, known, Arc::clone(context))?))
    }
}

/// The context in which the filter hands out the slice of `feed`.
pub(super) fn with_feed(context: &TaskContext, feed: &Arc<Feed>) -> Arc<TaskContext> {
    Arc::new(TaskContext::new(
        context.task_id(),
        context.session_id(),
        context.session_config().clone().with_extension(Arc::new(FeedOfTask(Arc::clone(feed)))),
        context.scalar_functions().clone(),
        context.higher_order_functions().clone(),
        context.aggregate_functions().clone(),
        context.window_functions().clone(),
        context.runtime_env(),
    ))
}

/// The key filters of a plan.
pub(crate) fn key_filters(plan: &Arc<dyn ExecutionPlan>) -> Vec<&KeyFilterExec> {
    match plan.downcast_ref::<KeyFilterExec>() {
        Some(filter) => vec![filter],
        None => plan.children().into_iter().flat_map(key_filters).collect(),
    }
}

/// The key filter that reads the task `input`, if it is one of rows.
pub(crate) fn key_filter_of(plan: &Arc<dyn ExecutionPlan>, input: InputId) -> Option<&KeyFilterExec> {
    key_filters(plan).into_iter().find(|filter| filter.inputs.contains(&input))
}

impl DisplayAs for KeyFilterExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.source.spec.columns.iter().map(|column| column.name.as_str()).collect();
        write!(f, "KeyFilterExec: source={}, on=[{}], tasks={}", self.source.name, names.join(", "), self.inputs.len())
    }
}

impl ExecutionPlan for KeyFilterExec {
    fn name(&self) -> &str {
        "KeyFilterExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.child]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.is_empty()) {
            (Some(child), true) => {
                let (source, inputs) = (Arc::clone(&self.source), Arc::clone(&self.inputs));
                Ok(Arc::new(Self::new(source, child, inputs, self.limits)))
            }
            _ => Err(DataFusionError::Internal("KeyFilterExec has one child".into())),
        }
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let rows = MetricBuilder::new(&self.metrics).output_rows(partition);
        let schema = self.schema();
        if let Some(feed) = context.session_config().get_extension::<FeedOfTask>() {
            let feed = Arc::clone(&feed.0);
            if Some(&feed.input()) != self.inputs.get(partition) {
                return Err(DataFusionError::Internal(format!("partition {partition} is not of the task that runs")));
            }
            let slice = futures::stream::once(async move {
                let batches = feed.slice().await;
                rows.add(batches.iter().map(RecordBatch::num_rows).sum());
                futures::stream::iter(batches.into_iter().map(Ok))
            });
            return Ok(Box::pin(RecordBatchStreamAdapter::new(schema, slice.flatten())));
        }
        // Outside of a run that seals: what is not done, and nothing of it is claimed.
        let encoder = KeyEncoder::new(&self.source.spec, &schema).map_err(to_datafusion)?;
        let known = self.source.known();
        let left = self.child.execute(partition, context)?.map(move |batch| {
            let batch = batch?;
            let (mut fingerprints, mut said) = (Vec::new(), Vec::new());
            encoder.fingerprints(&batch, &mut fingerprints).map_err(to_datafusion)?;
            known.look(&fingerprints, &mut said).map_err(to_datafusion)?;
            let keep: BooleanArray = said.iter().map(|known| Some(*known == Known::New)).collect();
            let left = filter_record_batch(&batch, &keep)?;
            rows.add(left.num_rows());
            Ok(left)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, left)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::LowerEqual
    }
}
