//! The end of a pipeline: writes what a task puts out, and seals it; or hands it to the caller, who seals it. Without either it
//! is the discarding terminus.

use std::fmt;
use std::sync::Arc;

use dashmap::DashMap;
use datafusion::arrow::array::{ArrayRef, RecordBatch, UInt32Array, UInt64Array};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{
    Boundedness, ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet, Time};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use futures::StreamExt;
use lakemark::{
    AttemptNonce, CheckpointId, CheckpointStore, Counts, Coverage, ErrorKind, InputId, OutputFile, OutputOptions,
    OutputSink, Run, SealKind, SealOutcome, SealedFile, TaskRead, TaskWriter,
};

use crate::checkpoints::Checkpoints;
use crate::errors::{from_datafusion, to_datafusion};
use crate::handover::{Handing, Handover, TaskName};
use crate::rows::{SliceKeys, Slices, key_filter_of};
use crate::scan::scans;
use crate::schema::without_views;
use crate::whole::is_known;

/// A destination and how files are written.
#[derive(Debug, Clone)]
pub struct Output {
    /// The destination.
    pub sink: Arc<dyn OutputSink>,
    /// How files are written.
    pub options: Arc<OutputOptions>,
}

impl Output {
    /// Parquet files with the default options.
    pub fn parquet(sink: impl OutputSink + 'static) -> Self {
        Self { sink: Arc::new(sink), options: Arc::default() }
    }

    /// With other options.
    #[must_use]
    pub fn with_options(mut self, options: OutputOptions) -> Self {
        self.sink = self.sink.partitioned(&options.partition_by);
        self.options = Arc::new(options);
        self
    }
}

/// How one task ended, other than by an error.
#[derive(Debug, Clone, Default)]
pub(crate) struct TaskDone {
    /// Whether there is a seal that counts. Not when every file of the task was left out, nor before the caller's ack.
    pub(crate) sealed: bool,
    /// Whether it was offered to the caller, whose ack is another `TaskDone`.
    pub(crate) handed: bool,
    /// Whether it was ended on request, with rows that are not done.
    pub(crate) stopped: bool,
    pub(crate) counts: Counts,
    /// Files in the seal.
    pub(crate) files: u64,
    /// Row groups of what was sealed.
    pub(crate) atoms: u64,
    pub(crate) bytes_written: u64,
    pub(crate) read: TaskRead,
}

/// Writes and seals: one partition, one task, one seal.
#[derive(Debug)]
pub struct SealExec {
    input: Arc<dyn ExecutionPlan>,
    checkpoints: Checkpoints,
    run: Arc<Run>,
    output: Option<Output>,
    caller: Option<Handover>,
    /// The task of each partition; `None` where a source of a union has none.
    inputs: Arc<Vec<Option<InputId>>>,
    slices: Arc<Slices>,
    done: Arc<DashMap<InputId, TaskDone>>,
    metrics: ExecutionPlanMetricsSet,
    properties: Arc<PlanProperties>,
}

impl SealExec {
    pub(crate) fn new(
        input: Arc<dyn ExecutionPlan>,
        checkpoints: Checkpoints,
        run: Arc<Run>,
        output: Option<Output>,
        caller: Option<Handover>,
        inputs: Vec<Option<InputId>>,
        slices: Arc<Slices>,
    ) -> Self {
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(result_schema()),
            Partitioning::UnknownPartitioning(inputs.len()),
            EmissionType::Final,
            Boundedness::Bounded,
        ));
        Self {
            input,
            checkpoints,
            run,
            output,
            caller,
            inputs: Arc::new(inputs),
            slices,
            done: Arc::default(),
            metrics: ExecutionPlanMetricsSet::new(),
            properties,
        }
    }

    /// How the task `input` ended, once its partition was run to the end.
    pub(crate) fn take_done(&self, input: InputId) -> Option<TaskDone> {
        self.done.remove(&input).map(|(_, done)| done)
    }
}

fn result_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("input", DataType::UInt32, false),
        Field::new("rows_in", DataType::UInt64, false),
        Field::new("rows_out", DataType::UInt64, false),
    ]))
}

/// One attempt of one task.
pub(crate) struct Attempt {
    pub(crate) plan: Arc<dyn ExecutionPlan>,
    pub(crate) partition: usize,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) run: Arc<Run>,
    output: Option<Output>,
    caller: Option<Handover>,
    pub(crate) input: InputId,
    pub(crate) slices: Arc<Slices>,
    rows: Count,
    bytes: Count,
    pub(crate) write_time: Time,
    pub(crate) seal_time: Time,
}

impl Attempt {
    async fn run(self: Arc<Self>, context: Arc<TaskContext>) -> lakemark::Result<TaskDone> {
        match key_filter_of(&self.plan, self.input) {
            Some(filter) => Arc::clone(&self).run_rows(filter, &context).await,
            None => self.run_files(context).await,
        }
    }

    async fn run_files(&self, context: Arc<TaskContext>) -> lakemark::Result<TaskDone> {
        let failed = |error| from_datafusion(error, ErrorKind::Invalid, "the query failed");
        let stream = self.plan.execute(self.partition, context).map_err(failed)?;
        let id = self.run.checkpoints().assign(self.input);
        if let Some(seal) = self.run.worker().sealed(id) {
            // A task that is already sealed returns its sealed result.
            return Ok(done(
                seal.kind == SealKind::Sealed,
                seal.counts,
                &seal.files,
                &seal.outputs,
                TaskRead::default(),
            ));
        }
        self.run.abandon(id);
        self.run.worker().guard().await?;
        let mut rows = self.rows(id, self.run.attempt(id), &stream.schema())?;
        let Some(rows_out) = self.drain(stream, &mut rows).await? else {
            let mut read = self.checkpoints.shared.atoms.take(self.input).unwrap_or_default();
            read.files.clear();
            return Ok(TaskDone { handed: true, read, ..TaskDone::default() });
        };
        let (outputs, caller) = rows.finish(&self.write_time).await?;
        let mut read = match self.checkpoints.shared.atoms.take(self.input) {
            Some(read) if read.files.iter().all(is_known) => read,
            // The plan knew its answer without the rows of the task: a join with an empty lookup.
            _ => self.open_unread().await?,
        };
        let files = std::mem::take(&mut read.files);
        if files.is_empty() {
            return Ok(done(false, Counts::default(), &[], &[], read));
        }
        let rows_in = files.iter().map(rows_of).sum::<u64>() + read.counted_rows - read.deleted_rows;
        let counts = Counts { rows_in, rows_out, rows_failed: 0 };
        let sealing = Sealing::new(Arc::clone(&self.run), id, counts, files, outputs);
        if let Some(caller) = caller {
            caller.end(sealing).await;
            return Ok(TaskDone { handed: true, read, ..TaskDone::default() });
        }
        let _timer = self.seal_time.timer();
        match sealing.seal().await? {
            SealOutcome::Sealed(_) => {
                self.count_output(rows_out, &sealing);
                Ok(sealing.done(read))
            }
            SealOutcome::Already(seal) => {
                // Read, not guessed: another attempt holds the seal, so what this one staged is garbage.
                self.discard(&sealing).await;
                Ok(done(seal.kind == SealKind::Sealed, seal.counts, &seal.files, &seal.outputs, read))
            }
        }
    }

    /// Lets `rows` take all of `stream`; how many they were, or `None` when no more are wanted.
    pub(crate) async fn drain(
        &self,
        mut stream: SendableRecordBatchStream,
        rows: &mut Rows,
    ) -> lakemark::Result<Option<u64>> {
        let mut rows_out = 0;
        while let Some(batch) = stream.next().await {
            let batch = match batch {
                Ok(batch) => batch,
                Err(error) => {
                    let error = from_datafusion(error, ErrorKind::Invalid, "the query failed");
                    return Err(rows.failed(self.locate(error)).await);
                }
            };
            rows_out += batch.num_rows() as u64;
            if !rows.take(batch, &self.write_time).await? {
                return Ok(None);
            }
        }
        Ok(Some(rows_out))
    }

    pub(crate) fn count_output(&self, rows: u64, sealing: &Sealing) {
        self.rows.add(rows as usize);
        self.bytes.add(sealing.outputs.iter().map(|o| o.size as usize).sum());
    }

    /// Deletes what this attempt staged, when it has read that another one holds the seal.
    pub(crate) async fn discard(&self, sealing: &Sealing) {
        if let Some(output) = &self.output {
            output.sink.discard(&sealing.outputs).await;
        }
    }

    /// An error that does not say where it arose is of one of the task's files.
    fn locate(&self, error: lakemark::Error) -> lakemark::Error {
        let read = self.checkpoints.shared.atoms.take(self.input).unwrap_or_default();
        if error.place().is_some() || read.files.is_empty() {
            return error;
        }
        let names: Vec<_> = read.files.iter().take(3).map(|sealed| format!("`{}`", sealed.file.path)).collect();
        let more = read.files.len().saturating_sub(names.len());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        error
            .at(format!("source `{}`, in {}{more}", read.files[0].source, names.join(", ")))
            .safe("what failed is not sealed; what was sealed before is kept")
            .way("mend the query, or move the file away, then run again")
            .way("run with a small --task-bytes: fewer files share a task, so that the error names the one")
    }

    /// What the task's scan would have read.
    async fn open_unread(&self) -> lakemark::Result<TaskRead> {
        match scans(&self.plan).into_iter().find(|scan| scan.inputs().any(|id| id == Some(self.input))) {
            Some(scan) => scan.open_task(self.input).await,
            None => Err(lakemark::Error::new(ErrorKind::Unsupported, "the plan does not read its task")
                .safe("nothing was sealed")),
        }
    }

    pub(crate) fn rows(&self, id: CheckpointId, attempt: AttemptNonce, schema: &SchemaRef) -> lakemark::Result<Rows> {
        if let Some(caller) = &self.caller {
            let name = TaskName { checkpoint: id, attempt };
            return Ok(Rows::Handed(caller.attempt(name, Arc::clone(schema))));
        }
        let Some(output) = &self.output else { return Ok(Rows::Discarded) };
        let store = self.run.worker().store_id().short();
        let (sink, options) = (Arc::clone(&output.sink), Arc::clone(&output.options));
        let writer = TaskWriter::new(sink, options, schema, &without_views(schema), store, id, attempt)?;
        Ok(Rows::Written(Box::new(writer)))
    }
}

/// Where the rows of an attempt go.
pub(crate) enum Rows {
    Written(Box<TaskWriter>),
    Handed(Handing),
    Discarded,
}

impl Rows {
    /// Takes one batch of output; whether more is wanted.
    async fn take(&mut self, batch: RecordBatch, time: &Time) -> lakemark::Result<bool> {
        match self {
            Self::Written(writer) => {
                let _timer = time.timer();
                writer.write(&batch).await?;
                Ok(true)
            }
            Self::Handed(caller) => Ok(caller.give(batch).await),
            Self::Discarded => Ok(true),
        }
    }

    /// What was written, durable; or the caller who is to be told that this was all.
    pub(crate) async fn finish(self, time: &Time) -> lakemark::Result<(Vec<OutputFile>, Option<Handing>)> {
        match self {
            Self::Written(writer) => {
                let _timer = time.timer();
                Ok((writer.finish().await?, None))
            }
            Self::Handed(caller) => Ok((Vec::new(), Some(caller))),
            Self::Discarded => Ok((Vec::new(), None)),
        }
    }

    /// Tells the caller of `error` too.
    async fn failed(&mut self, error: lakemark::Error) -> lakemark::Error {
        if let Self::Handed(caller) = self {
            caller.fail(&error).await;
        }
        error
    }
}

/// What an attempt that has all of its rows has to seal.
#[derive(Debug)]
pub(crate) struct Sealing {
    run: Arc<Run>,
    id: CheckpointId,
    counts: Counts,
    files: Vec<SealedFile>,
    keys: Option<SliceKeys>,
    outputs: Vec<OutputFile>,
}

impl Sealing {
    pub(crate) fn new(
        run: Arc<Run>,
        id: CheckpointId,
        counts: Counts,
        files: Vec<SealedFile>,
        outputs: Vec<OutputFile>,
    ) -> Self {
        Self { run, id, counts, files, keys: None, outputs }
    }

    /// With row keys in place of files.
    pub(crate) fn with_keys(self, keys: SliceKeys) -> Self {
        Self { keys: Some(keys), ..self }
    }

    pub(crate) async fn seal(&self) -> lakemark::Result<SealOutcome> {
        if let Some(seal) = self.run.worker().sealed(self.id) {
            return Ok(SealOutcome::Already(seal));
        }
        if let Some(keys) = &self.keys {
            return keys.seal(self.run.worker(), self.id, self.counts, self.outputs.clone()).await;
        }
        self.run.stage_keys(self.id, self.files.clone())?;
        let staged = self.outputs.clone();
        self.run.stage_files(self.id, Box::pin(async move { Ok(staged) }))?;
        self.run.checkpoint(self.id, self.counts).await
    }

    /// How its task ended, now that it is sealed.
    pub(crate) fn done(&self, read: TaskRead) -> TaskDone {
        done(true, self.counts, &self.files, &self.outputs, read)
    }
}

fn done(sealed: bool, counts: Counts, files: &[SealedFile], outputs: &[OutputFile], read: TaskRead) -> TaskDone {
    let atoms = files.iter().map(|f| f.coverage.touched_atoms(f.evidence.row_groups())).sum();
    TaskDone {
        sealed,
        handed: false,
        stopped: false,
        counts,
        files: files.len() as u64,
        atoms,
        bytes_written: outputs.iter().map(|o| o.size).sum(),
        read,
    }
}

/// Rows in the sealed part of a file.
fn rows_of(sealed: &SealedFile) -> u64 {
    let Coverage::Groups { full, partial } = &sealed.coverage else { return sealed.evidence.rows() };
    let rows = sealed.evidence.group_rows();
    let whole: u64 = full.iter().filter_map(|group| rows.get(group as usize)).sum();
    whole + partial.values().map(lakemark::RangeSet::count).sum::<u64>()
}

impl DisplayAs for SealExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sink = self.output.as_ref().map_or_else(|| "none".to_owned(), |output| output.sink.root().to_string());
        write!(f, "SealExec: tasks={}, sink={sink}", self.inputs.iter().flatten().count())
    }
}

impl ExecutionPlan for SealExec {
    fn name(&self) -> &str {
        "SealExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
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
            (Some(child), true) => Ok(Arc::new(Self::new(
                child,
                self.checkpoints.clone(),
                Arc::clone(&self.run),
                self.output.clone(),
                self.caller.clone(),
                self.inputs.to_vec(),
                Arc::clone(&self.slices),
            ))),
            _ => Err(DataFusionError::Internal("SealExec has one child".into())),
        }
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let Some(input) = self.inputs.get(partition).copied().flatten() else {
            return Err(DataFusionError::Internal(format!("partition {partition} has no task")));
        };
        let metric = || MetricBuilder::new(&self.metrics);
        let attempt = Arc::new(Attempt {
            plan: Arc::clone(&self.input),
            partition,
            checkpoints: self.checkpoints.clone(),
            run: Arc::clone(&self.run),
            output: self.output.clone(),
            caller: self.caller.clone(),
            input,
            slices: Arc::clone(&self.slices),
            rows: metric().output_rows(partition),
            bytes: metric().counter("bytes_written", partition),
            write_time: metric().subset_time("write_time", partition),
            seal_time: metric().subset_time("seal_time", partition),
        });
        let outcomes = Arc::clone(&self.done);
        let result = async move {
            let done = attempt.run(context).await.map_err(to_datafusion)?;
            let columns: Vec<ArrayRef> = vec![
                Arc::new(UInt32Array::from(vec![input.0])),
                Arc::new(UInt64Array::from(vec![done.counts.rows_in])),
                Arc::new(UInt64Array::from(vec![done.counts.rows_out])),
            ];
            outcomes.insert(input, done);
            Ok(RecordBatch::try_new(result_schema(), columns)?)
        };
        Ok(Box::pin(RecordBatchStreamAdapter::new(result_schema(), futures::stream::once(result))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
