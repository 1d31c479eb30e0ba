//! The scan of a tracked source: one partition a task, its footers opened before the first row.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::config::ConfigOptions;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::{ParquetAccessPlan, RowGroupAccess};
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfig, FileScanConfigBuilder};
use datafusion::datasource::source::{DataSource, DataSourceExec};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::{CardinalityEffect, ReplaceChildrenOptions};
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterDescription, FilterPushdownPhase, FilterPushdownPropagation,
};
use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, EmptyRecordBatchStream, ExecutionPlan, PlanProperties};
use futures::{StreamExt, TryStreamExt};
use lakemark::steps::reach;
use lakemark::{Coverage, FileVersion, Footer, FooterRead, InputId, RangeSet, SealedFile, Task, TaskRead};
use object_store::ObjectMeta;
use parquet::arrow::arrow_reader::{RowSelection, RowSelector};

use crate::checkpoints::{Checkpoints, Source};
use crate::errors::to_datafusion;
use crate::schema::{file_schema, fits, nulls, table_file_schema};
use crate::whole::{PinnedStore, label, look_at, take_evidence};

/// A task and the input id that its seal will have.
#[derive(Debug, Clone)]
pub(crate) struct ScanTask {
    pub(crate) task: Task,
    pub(crate) input: InputId,
}

/// Reads one task a partition. Its child is the native scan that takes filters and projections; each partition of it is
/// narrowed to the usable files of the task when it runs.
#[derive(Debug, Clone)]
pub struct CheckpointedScanExec {
    checkpoints: Checkpoints,
    source: Arc<Source>,
    files: SchemaRef,
    tasks: Arc<Vec<ScanTask>>,
    excluded: u64,
    child: Arc<dyn ExecutionPlan>,
    /// The child's configuration without its file groups. An optimizer rule may try another child for a moment, to
    /// compare; such a plan has none and cannot run.
    template: Option<FileScanConfig>,
    metrics: ExecutionPlanMetricsSet,
    properties: Arc<PlanProperties>,
}

impl CheckpointedScanExec {
    pub(crate) fn new(
        checkpoints: Checkpoints,
        source: Arc<Source>,
        files: SchemaRef,
        tasks: Arc<Vec<ScanTask>>,
        excluded: u64,
        child: Arc<dyn ExecutionPlan>,
    ) -> Self {
        let template = template(&child);
        let properties = Arc::new(PlanProperties::clone(child.properties()));
        let metrics = ExecutionPlanMetricsSet::new();
        Self { checkpoints, source, files, tasks, excluded, child, template, metrics, properties }
    }

    /// Whether its child is a plain file scan, without a limit; or there is no task, and nothing to read.
    pub(crate) fn is_runnable(&self) -> bool {
        self.template.is_some() || self.tasks.is_empty()
    }

    fn with_child(&self, child: Arc<dyn ExecutionPlan>) -> Self {
        let mut new = self.clone();
        new.template = template(&child);
        new.properties = Arc::new(PlanProperties::clone(child.properties()));
        new.child = child;
        new
    }

    /// The input id of each partition's task. Where nothing is left to do there is one partition, without a task.
    pub fn inputs(&self) -> impl Iterator<Item = Option<InputId>> + '_ {
        (0..self.properties.partitioning.partition_count()).map(|p| self.tasks.get(p).map(|task| task.input))
    }

    /// What of the task `input` can be read: from its footers, or from its files' presence where they have none.
    pub(crate) async fn look_at_task(&self, input: InputId) -> lakemark::Result<TaskRead> {
        match self.tasks.iter().find(|task| task.input == input) {
            Some(found) if self.source.lake.has_whole_files() => look_at(&self.source, &found.task).await,
            Some(found) => Ok(prepare(&self.source, &self.files, &found.task).await?.1),
            None => Ok(TaskRead::default()),
        }
    }

    /// What a seal of the task `input` has to list, without a row of it having been read.
    pub(crate) async fn open_task(&self, input: InputId) -> lakemark::Result<TaskRead> {
        let mut read = self.look_at_task(input).await?;
        if self.source.lake.has_whole_files() {
            take_evidence(&self.source.lake, &mut read).await?;
        }
        Ok(read)
    }

    /// The rows of a task of whole files. Their evidence is on record when the stream has ended.
    fn open_whole(
        self,
        mut read: TaskRead,
        input: InputId,
        template: FileScanConfig,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let atoms = self.checkpoints.clone();
        // Without evidence: for the names in an error, never for a seal.
        atoms.shared.atoms.record(input, read.clone());
        if read.files.is_empty() {
            return Ok(Box::pin(EmptyRecordBatchStream::new(self.schema())));
        }
        let versions = || read.files.iter().map(|sealed| sealed.file.clone());
        // A wrapped table says it for all of its files, the name of another for itself.
        let compression = |file: &FileVersion| match template.file_compression_type {
            FileCompressionType::UNCOMPRESSED => self.source.opened_as.compression(&file.path),
            of_all => of_all,
        };
        let store = PinnedStore::new(
            self.source.lake.clone(),
            versions().map(|file| {
                let compression = compression(&file);
                (file, compression)
            }),
        );
        let files = versions().map(|file| pinned_file(&self.source, &file)).collect();
        let config = FileScanConfigBuilder::from(template)
            .with_file_groups(vec![FileGroup::new(files)])
            .with_file_compression_type(FileCompressionType::UNCOMPRESSED)
            .build();
        let rows = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&rows);
        let stream = config.open(0, store.context(&context)?)?.inspect_ok(move |batch| {
            counted.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
        });
        let end = futures::stream::once(async move {
            store.settle(&mut read).await.map_err(to_datafusion)?;
            read.counted_rows = rows.load(Ordering::Relaxed);
            atoms.shared.atoms.record(input, read);
            Ok(None)
        });
        let stream = stream.map_ok(Some).chain(end).try_filter_map(|batch| std::future::ready(Ok(batch)));
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), stream)))
    }

    /// The source's name.
    pub fn source(&self) -> &str {
        &self.source.name
    }
}

/// The checkpointed scans of a plan.
pub(crate) fn scans(plan: &Arc<dyn ExecutionPlan>) -> Vec<&CheckpointedScanExec> {
    match plan.downcast_ref::<CheckpointedScanExec>() {
        Some(scan) => vec![scan],
        None => plan.children().into_iter().flat_map(scans).collect(),
    }
}

/// The configuration of a native file scan, without groups and with nothing that could select or order rows.
fn template(child: &Arc<dyn ExecutionPlan>) -> Option<FileScanConfig> {
    let exec = child.downcast_ref::<DataSourceExec>()?;
    let config = exec.data_source().downcast_ref::<FileScanConfig>()?;
    let mut template = config.clone();
    template.file_groups = Vec::new();
    template.output_partitioning = None;
    template.limit.is_none().then_some(template)
}

/// A file for DataFusion: the raw key travels in the extensions, the object path is only a label.
pub(crate) fn pinned_file(source: &Source, file: &FileVersion) -> PartitionedFile {
    let meta = ObjectMeta {
        location: label(file),
        last_modified: Default::default(),
        size: file.size,
        e_tag: None,
        version: None,
    };
    let values = source.partition_values(&file.path).unwrap_or_default();
    PartitionedFile::new_from_meta(meta).with_partition_values(values).with_extension(file.clone())
}

/// The files of one task that can be read, narrowed to its parts; and the record of what was opened.
async fn prepare(
    source: &Source,
    files: &SchemaRef,
    task: &Task,
) -> lakemark::Result<(Vec<PartitionedFile>, TaskRead, u64)> {
    // What changed under an earlier attempt is left out of this one: the other files of the task must not wait for it.
    let open = async |file: &FileVersion| {
        if source.lake.take_unstable(&file.path) { Ok(FooterRead::Changed) } else { source.lake.footer(file).await }
    };
    let open: Vec<_> = task.parts.iter().map(|part| open(&part.planned.file)).collect();
    let footers: Vec<FooterRead> = futures::stream::iter(open).buffered(8).try_collect().await?;
    let mut read = TaskRead::default();
    let mut usable = Vec::with_capacity(footers.len());
    let mut extra = 0;
    for (part, footer) in task.parts.iter().zip(footers) {
        let file = &part.planned.file;
        let name = || (Arc::clone(&source.name), Arc::clone(&file.path));
        let footer = match source.as_its_table_has_it(footer) {
            FooterRead::Read(footer) => footer,
            FooterRead::Unusable(why) => {
                read.unusable.push((name().0, name().1, why));
                continue;
            }
            FooterRead::Changed => {
                read.changed.push(name());
                continue;
            }
            FooterRead::Vanished => {
                read.vanished.push(name());
                continue;
            }
        };
        let usable_as = |schema| nulls(&footer, &schema, files).and_then(|()| fits(&schema, files));
        let columns = if source.table.is_some() { table_file_schema(&footer) } else { file_schema(&footer) };
        let columns = columns.and_then(|schema| match &source.table {
            Some(table) => table.lacks_no_column(&schema, files).map(|()| schema),
            None => Ok(schema),
        });
        match columns.and_then(usable_as) {
            Ok(columns) => extra += columns as u64,
            Err(why) => {
                read.unusable.push((name().0, name().1, why));
                continue;
            }
        }
        if let Some(planned) = part.planned.group_rows.as_ref().filter(|rows| **rows != footer.group_rows) {
            let why = format!("{} row groups were recorded, {} are there", planned.len(), footer.group_rows.len());
            read.unusable.push((name().0, name().1, why));
            continue;
        }
        read.files.push(SealedFile {
            source: Arc::clone(&source.name),
            file: file.clone(),
            coverage: part.coverage.normalised(&footer.group_rows),
            evidence: footer.evidence(),
            unsettled: part.planned.unsettled,
        });
        let deleted = match &source.table {
            Some(table) => table.table.deleted(file).await?,
            None => RangeSet::new(),
        };
        if !footer.group_rows.is_empty() {
            let pinned = pinned_file(source, file).with_extension(Arc::clone(&footer));
            usable.push(match access_plan(&part.coverage, &footer, &deleted) {
                Some((plan, skipped)) => {
                    read.deleted_rows += skipped;
                    pinned.with_extension(plan)
                }
                None => pinned,
            });
        }
    }
    Ok((usable, read, extra))
}

/// Which row groups and rows to read, without those that are `deleted` from the file, and how many of these it would have
/// read; `None` is all.
fn access_plan(coverage: &Coverage, footer: &Footer, deleted: &RangeSet) -> Option<(ParquetAccessPlan, u64)> {
    if *coverage == Coverage::Whole && deleted.is_empty() {
        return None;
    }
    let mut plan = ParquetAccessPlan::new_none(footer.group_rows.len());
    let (mut skipped, mut start) = (0, 0);
    for (group, &all) in footer.group_rows.iter().enumerate() {
        let wanted = match coverage {
            Coverage::Whole => RangeSet::of(0..all),
            Coverage::Groups { full, .. } if full.contains(group as u64) => RangeSet::of(0..all),
            Coverage::Groups { partial, .. } => partial.get(&(group as u32)).cloned().unwrap_or_default(),
        };
        let left = if deleted.is_empty() { wanted.clone() } else { wanted.minus(&within(deleted, start..start + all)) };
        skipped += wanted.count() - left.count();
        if left.count() == all {
            plan.scan(group);
        } else if !left.is_empty() {
            plan.set(group, RowGroupAccess::Selection(selection(&left, all)));
        }
        start += all;
    }
    Some((plan, skipped))
}

/// What of `rows` lies within a row group, from the group's start.
fn within(rows: &RangeSet, group: std::ops::Range<u64>) -> RangeSet {
    let inside = rows.intersection(&RangeSet::of(group.clone()));
    let mut shifted = RangeSet::new();
    for range in inside.ranges() {
        shifted.insert(range.start - group.start..range.end - group.start);
    }
    shifted
}

fn selection(rows: &RangeSet, all: u64) -> RowSelection {
    let mut selectors = Vec::new();
    let mut at = 0;
    for range in rows.ranges() {
        if range.start > at {
            selectors.push(RowSelector::skip((range.start - at) as usize));
        }
        selectors.push(RowSelector::select((range.end - range.start) as usize));
        at = range.end;
    }
    if at < all {
        selectors.push(RowSelector::skip((all - at) as usize));
    }
    selectors.into()
}

impl DisplayAs for CheckpointedScanExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plan = self.source.plan();
        let report = &plan.report;
        write!(f, "CheckpointedScanExec: source={}, tasks={}", self.source.name, self.tasks.len())?;
        write!(f, ", files={}, done={}", report.listed, report.done)?;
        let mut reasons: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for part in self.tasks.iter().flat_map(|task| &task.task.parts) {
            reasons.entry(part.planned.reason.as_str()).or_default().insert(&part.planned.file.path);
        }
        for (reason, files) in reasons {
            write!(f, ", {reason}={}", files.len())?;
        }
        if self.excluded > 0 {
            write!(f, ", excluded by partition={}", self.excluded)?;
        }
        Ok(())
    }
}

impl ExecutionPlan for CheckpointedScanExec {
    fn name(&self) -> &str {
        "CheckpointedScanExec"
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
            (Some(child), true) => Ok(Arc::new(self.with_child(child))),
            _ => Err(DataFusionError::Internal("CheckpointedScanExec has one child".into())),
        }
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let recompute = datafusion::physical_plan::execution_plan::ChildrenPropertiesMode::Recompute;
        self.replace_children(children, ReplaceChildrenOptions::new(recompute))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if self.tasks.is_empty() {
            return Ok(Box::pin(EmptyRecordBatchStream::new(self.schema())));
        }
        let Some(ScanTask { task, input }) = self.tasks.get(partition).cloned() else {
            return Err(DataFusionError::Internal(format!("there is no task {partition}")));
        };
        let Some(template) = self.template.clone() else {
            return Err(DataFusionError::Internal(format!(
                "{} took the place of a pinned file scan",
                self.child.name()
            )));
        };
        let counter = |name: &'static str| -> Count { MetricBuilder::new(&self.metrics).counter(name, partition) };
        let (opened, left_out, extra_columns) =
            (counter("files_opened"), counter("files_left_out"), counter("extra_columns_ignored"));
        let rows = MetricBuilder::new(&self.metrics).output_rows(partition);
        let (scan, schema) = (self.clone(), self.schema());
        let empty = Arc::clone(&schema);
        let open = async move {
            reach("run.task");
            let whole = scan.source.lake.has_whole_files();
            let (files, read, extra) = if whole {
                (Vec::new(), look_at(&scan.source, &task).await.map_err(to_datafusion)?, 0)
            } else {
                prepare(&scan.source, &scan.files, &task).await.map_err(to_datafusion)?
            };
            opened.add(read.files.len());
            left_out.add(read.changed.len() + read.unusable.len() + read.vanished.len());
            extra_columns.add(extra as usize);
            if whole {
                return scan.open_whole(read, input, template, context);
            }
            scan.checkpoints.shared.atoms.record(input, read);
            if files.is_empty() {
                return Ok(Box::pin(EmptyRecordBatchStream::new(empty)) as SendableRecordBatchStream);
            }
            let config = FileScanConfigBuilder::from(template).with_file_groups(vec![FileGroup::new(files)]);
            config.build().open(0, context)
        };
        let stream = futures::stream::once(open).try_flatten().inspect_ok(move |batch| {
            rows.add(batch.num_rows());
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }

    fn try_swapping_with_projection(&self, projection: &ProjectionExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        match self.child.try_swapping_with_projection(projection)? {
            Some(child) => Ok(Some(Arc::new(self.with_child(child)))),
            None => Ok(None),
        }
    }

    fn gather_filters_for_pushdown(
        &self,
        _phase: FilterPushdownPhase,
        parent_filters: Vec<Arc<dyn PhysicalExpr>>,
        _config: &ConfigOptions,
    ) -> Result<FilterDescription> {
        FilterDescription::from_children(parent_filters, &self.children())
    }

    fn handle_child_pushdown_result(
        &self,
        _phase: FilterPushdownPhase,
        child_pushdown_result: ChildPushdownResult,
        _config: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        Ok(FilterPushdownPropagation::if_all(child_pushdown_result))
    }
}
