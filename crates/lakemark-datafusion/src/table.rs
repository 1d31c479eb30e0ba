//! A tracked source as a DataFusion table.

use std::any::Any;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::datasource::TableType;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfig, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::error::Result;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::{ExecutionPlan, Partitioning};
use lakemark::{FileRead, PlannedFile, Unusable, form_tasks};

use crate::checkpoints::{Checkpoints, Scanned, Source};
use crate::errors::to_datafusion;
use crate::reader::PinnedReaderFactory;
use crate::rows::KeyedTable;
use crate::scan::{CheckpointedScanExec, ScanTask, pinned_file};
use crate::schema::INT96;

/// A tracked source: a scan of it reads only what is not done, one task a partition.
///
/// Filters and projections are pushed down as into any Parquet table; row groups that statistics rule out count as done
/// when their task is sealed. Files ruled out by partition values are no work and are not sealed.
#[derive(Debug)]
pub struct CheckpointedTable {
    checkpoints: Checkpoints,
    source: Arc<Source>,
    files: SchemaRef,
    schema: SchemaRef,
    /// The columns of `schema` by their places among those of the files and the partitions; `None`: as they are.
    order: Option<Vec<usize>>,
}

impl CheckpointedTable {
    pub(crate) fn new(checkpoints: Checkpoints, source: Arc<Source>, views: bool) -> Self {
        let files = match &source.schema {
            Some(schema) if views => {
                Arc::new(datafusion::datasource::file_format::parquet::transform_schema_to_view(schema))
            }
            Some(schema) => Arc::clone(schema),
            None => Arc::new(Schema::empty()),
        };
        let fields = files.fields().iter().chain(&source.partitions);
        let schema = Arc::new(Schema::new(fields.cloned().collect::<Vec<_>>()));
        let order = source.table.as_ref().map(|table| table.order(&schema));
        let schema = match &order {
            Some(order) => Arc::new(Schema::new(order.iter().map(|i| schema.field(*i).clone()).collect::<Vec<_>>())),
            None => schema,
        };
        Self { checkpoints, source, files, schema, order }
    }

    /// The source's name.
    pub fn name(&self) -> &str {
        &self.source.name
    }

    fn partition_names(&self) -> String {
        let names: Vec<&str> = self.source.partitions.iter().map(|field| field.name().as_str()).collect();
        names.join(", ")
    }

    fn lacks(&self) -> &'static str {
        if self.source.table.is_some() { "the table's log has no usable value of" } else { "its folders lack" }
    }

    /// Files that `filters` on partition columns do not rule out, with their partition values.
    fn select(&self, state: &dyn Session, filters: &[Expr]) -> Result<(Vec<PlannedFile>, Scanned)> {
        let plan = self.source.plan();
        let mut scanned = Scanned::default();
        let mut files = Vec::with_capacity(plan.files.len());
        for file in &plan.files {
            match self.source.partition_values(&file.file.path) {
                Some(values) => files.push((file, values)),
                None => scanned.unusable.push(Unusable {
                    path: file.file.path.to_string(),
                    why: format!("{} one of the partition columns {}", self.lacks(), self.partition_names()),
                }),
            }
        }
        let keep = self.partition_mask(state, filters, &files)?;
        let mut chosen = Vec::with_capacity(files.len());
        for (i, (file, _)) in files.iter().enumerate() {
            if keep.as_ref().is_none_or(|mask| mask.is_valid(i) && mask.value(i)) {
                chosen.push((*file).clone());
            } else {
                scanned.excluded.push((Arc::clone(&file.file.path), file.reason));
            }
        }
        Ok((chosen, scanned))
    }

    fn tracked(&self, tasks: Vec<ScanTask>, scanned: &Scanned, child: Arc<dyn ExecutionPlan>) -> CheckpointedScanExec {
        CheckpointedScanExec::new(
            self.checkpoints.clone(),
            Arc::clone(&self.source),
            Arc::clone(&self.files),
            Arc::new(tasks),
            scanned.excluded.len() as u64,
            child,
        )
    }

    /// The places of the projected columns among those of the files and the partitions.
    fn in_files(&self, projection: Option<&Vec<usize>>) -> Option<Vec<usize>> {
        let Some(order) = &self.order else { return projection.cloned() };
        Some(projection.map_or_else(|| order.clone(), |columns| columns.iter().map(|i| order[*i]).collect()))
    }

    /// The scan of its files by DataFusion.
    fn native(&self, state: &dyn Session) -> FileScanConfigBuilder {
        let reader = || Arc::new(PinnedReaderFactory { lake: self.source.lake.clone() });
        if let Some(native) = &self.source.native {
            let builder = FileScanConfigBuilder::from(FileScanConfig::clone(native));
            // With the table's own options; only where the bytes come from is ours.
            return match native.file_source().downcast_ref::<ParquetSource>() {
                Some(parquet) => {
                    builder.with_source(Arc::new(parquet.clone().with_parquet_file_reader_factory(reader())))
                }
                None => builder,
            };
        }
        let table = TableSchema::builder(Arc::clone(&self.files))
            .with_table_partition_cols(self.source.partitions.clone())
            .build();
        let mut options = state.table_options().parquet.clone();
        if self.source.table.is_some() {
            let (_, unit, zone) = INT96;
            options.global.coerce_int96 = Some(unit.to_owned());
            options.global.coerce_int96_tz = Some(zone.to_owned());
        }
        let parquet =
            ParquetSource::new(table).with_table_parquet_options(options).with_parquet_file_reader_factory(reader());
        FileScanConfigBuilder::new(ObjectStoreUrl::local_filesystem(), Arc::new(parquet))
    }

    /// Which files the filters that name only partition columns keep; `None`: all.
    fn partition_mask(
        &self,
        state: &dyn Session,
        filters: &[Expr],
        files: &[(&PlannedFile, Vec<ScalarValue>)],
    ) -> Result<Option<BooleanArray>> {
        let is_partition = |name: &str| self.source.partitions.iter().any(|p| p.name() == name);
        let usable: Vec<&Expr> = filters
            .iter()
            .filter(|f| {
                let columns = f.column_refs();
                !columns.is_empty() && columns.iter().all(|c| is_partition(&c.name)) && !f.is_volatile()
            })
            .collect();
        if usable.is_empty() || files.is_empty() {
            return Ok(None);
        }
        let schema = Arc::new(Schema::new(self.source.partitions.clone()));
        let columns: Vec<ArrayRef> = (0..self.source.partitions.len())
            .map(|i| ScalarValue::iter_to_array(files.iter().map(|(_, values)| values[i].clone())))
            .collect::<Result<_>>()?;
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns)?;
        let df_schema = DFSchema::try_from(schema)?;
        let mut mask: Option<BooleanArray> = None;
        for filter in usable {
            let filter = unqualified(filter)?;
            let value = state.create_physical_expr(filter, &df_schema)?.evaluate(&batch)?.into_array(files.len())?;
            let value = datafusion::arrow::compute::cast(&value, &DataType::Boolean)?;
            let value = datafusion::common::cast::as_boolean_array(&value)?;
            mask = Some(match mask {
                Some(mask) => datafusion::arrow::compute::and_kleene(&mask, value)?,
                None => value.clone(),
            });
        }
        Ok(mask)
    }
}

/// The same expression with columns by name only.
fn unqualified(filter: &Expr) -> Result<Expr> {
    use datafusion::common::Column;
    use datafusion::common::tree_node::{Transformed, TreeNode};
    let plain = filter.clone().transform(|expr| {
        Ok(match expr {
            Expr::Column(column) => Transformed::yes(Expr::Column(Column::new_unqualified(column.name))),
            other => Transformed::no(other),
        })
    })?;
    Ok(plain.data)
}

#[async_trait]
impl TableProvider for CheckpointedTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let (files, mut scanned) = self.select(state, filters)?;
        let mut sizing = self.checkpoints.options().sizing;
        if self.source.in_rows {
            // They are cut when they run.
            sizing.rows = 0;
        }
        let formed = form_tasks(&self.source.lake, &files, sizing).await.map_err(to_datafusion)?;
        scanned.unusable.extend(formed.unusable);
        if self.source.table.is_some() {
            let unusable = |path: Arc<str>, read: FileRead<()>| match self.source.as_its_table_has_it(read) {
                FileRead::Unusable(why) => Some(Unusable { path: path.to_string(), why }),
                _ => None,
            };
            scanned.unusable.extend(formed.changed.into_iter().filter_map(|path| unusable(path, FileRead::Changed)));
            scanned.unusable.extend(formed.vanished.into_iter().filter_map(|path| unusable(path, FileRead::Vanished)));
        } else {
            scanned.changed = formed.changed;
            scanned.vanished = formed.vanished;
        }
        scanned.nothing_left = formed.tasks.is_empty();
        let known = |part: &lakemark::TaskPart| match (&part.coverage, &part.planned.group_rows) {
            (lakemark::Coverage::Whole, None) => 0,
            (coverage, groups) => coverage.touched_atoms(groups.as_ref().map_or(0, |g| g.len() as u64)),
        };
        scanned.atoms = formed.tasks.iter().flat_map(|task| &task.parts).map(known).sum();
        self.source.set_scanned(scanned.clone());
        let schema = match projection {
            Some(columns) => Arc::new(self.schema.project(columns)?),
            None => Arc::clone(&self.schema),
        };
        if formed.tasks.is_empty() {
            // Still a tracked scan: it says what was pruned, and keeps its place in a union or a join.
            return Ok(Arc::new(self.tracked(Vec::new(), &scanned, Arc::new(EmptyExec::new(schema)))));
        }
        let tasks: Vec<ScanTask> =
            formed.tasks.into_iter().map(|task| ScanTask { task, input: self.checkpoints.next_input() }).collect();
        // The groups say how many partitions there are; what each reads is decided when it runs.
        let group = |task: &ScanTask| -> FileGroup {
            let files = task.task.parts.iter().map(|part| pinned_file(&self.source, &part.planned.file));
            FileGroup::new(files.collect::<Vec<PartitionedFile>>())
        };
        let groups: Vec<FileGroup> = tasks.iter().map(group).collect();
        let partitions = groups.len();
        let config = self
            .native(state)
            .with_file_groups(groups)
            .with_projection_indices(self.in_files(projection))?
            // Pins one task to one partition: no work stealing, no repartitioning.
            .with_output_partitioning(Some(Partitioning::UnknownPartitioning(partitions)))
            .build();
        let child = DataSourceExec::from_data_source(config);
        Ok(Arc::new(self.tracked(tasks, &scanned, child)))
    }
}

/// The name of the tracked source behind a provider, if it is one.
pub(crate) fn tracked_name(provider: &Arc<dyn TableProvider>) -> Option<&str> {
    let any = provider.as_ref() as &dyn Any;
    let files = any.downcast_ref::<CheckpointedTable>().map(CheckpointedTable::name);
    files.or_else(|| any.downcast_ref::<KeyedTable>().map(KeyedTable::name))
}
