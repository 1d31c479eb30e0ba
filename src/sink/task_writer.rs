//! The output of one task: batches in, durable staged files out.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, Schema, SchemaRef};
use parquet::arrow::{ARROW_SCHEMA_META_KEY, encode_arrow_schema};
use parquet::basic::Compression;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;

use super::encoder::{EncodeError, Encoder, OutputFormat};
use super::output::{Fault, OutputSink, StagedOutput};
use super::partition_folder;
use crate::error::{Error, Result};
use crate::identity::{AttemptNonce, CheckpointId};
use crate::steps::reach;
use crate::store::{OutputFile, output_name};

/// How output files are written.
#[derive(Debug, Clone)]
pub struct OutputOptions {
    /// What files are. Tables are of Parquet.
    pub format: OutputFormat,
    /// Compression of every column, in Parquet.
    pub compression: Compression,
    /// Rows in a row group at most, in Parquet.
    pub max_row_group_size: usize,
    /// Begin a further file when one has reached about this many bytes.
    pub target_file_size: Option<u64>,
    /// Columns that become `column=value` folders and are left out of the files.
    pub partition_by: Vec<String>,
}

impl Default for OutputOptions {
    fn default() -> Self {
        let level = parquet::basic::ZstdLevel::try_new(3).unwrap_or_default();
        Self {
            format: OutputFormat::default(),
            compression: Compression::ZSTD(level),
            max_row_group_size: 1_048_576,
            target_file_size: None,
            partition_by: Vec::new(),
        }
    }
}

/// Writes what one attempt of a task puts out. Files are created when there is something to put in them: a task whose
/// rows are all filtered away writes none (R47).
pub struct TaskWriter {
    sink: Arc<dyn OutputSink>,
    options: Arc<OutputOptions>,
    properties: WriterProperties,
    store: String,
    id: CheckpointId,
    attempt: AttemptNonce,
    /// Columns of the files, by position in the input.
    kept: Vec<usize>,
    partitions: Vec<usize>,
    file_schema: SchemaRef,
    /// What the destination stores rows as, when that is not what they are.
    stored: Option<SchemaRef>,
    open: HashMap<String, Open>,
    written: Vec<(Box<dyn StagedOutput>, OutputFile)>,
    parts: u32,
    rows: u64,
}

struct Open {
    encoder: Encoder,
    /// What the disk said last, which the Parquet writer does not always pass on.
    fault: Fault,
    output: OutputFile,
}

/// What encoding says when it is not the disk: the types of the output cannot be written in this format.
fn unwritable(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::invalid("the output cannot be written in the format of the sink")
        .safe("nothing of this task was sealed; what was sealed before is kept")
        .way("cast the columns in question to other types in the query")
        .caused_by(error)
}

/// An error of an encoder: of the disk below it, or of the encoding.
fn write_failed(error: EncodeError, fault: &Fault, sink: &dyn OutputSink) -> Error {
    if let Some(io) = fault.take() {
        return sink.failed(io);
    }
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(inner) = cause {
        if let Some(io) = inner.downcast_ref::<std::io::Error>() {
            let io = std::io::Error::new(io.kind(), io.to_string());
            return sink.failed(io);
        }
        cause = inner.source();
    }
    unwritable(error)
}

impl TaskWriter {
    /// A writer of rows of `schema` for the attempt `attempt` of `id`, in the store whose short id is `store`. Readers
    /// see the types of `readable`: `schema` in layouts that every reader of Arrow schemas knows.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) when a partition column is missing or is every column.
    pub fn new(
        sink: Arc<dyn OutputSink>,
        options: Arc<OutputOptions>,
        schema: &Schema,
        readable: &Schema,
        store: String,
        id: CheckpointId,
        attempt: AttemptNonce,
    ) -> Result<Self> {
        let (kept, partitions) = Self::split_columns(schema, &options.partition_by)?;
        let given = Arc::new(schema.clone());
        let stored = Some(sink.storable(&given)?).filter(|stored| *stored != given);
        let (schema, readable) = stored.as_deref().map_or((schema, readable), |stored| (stored, stored));
        let file_schema = Arc::new(schema.project(&kept).map_err(unwritable)?);
        let readable = readable.project(&kept).map_err(unwritable)?;
        let arrow = KeyValue::new(ARROW_SCHEMA_META_KEY.to_owned(), encode_arrow_schema(&readable));
        let said = [Some(arrow), sink.schema_mode().to_footer()];
        let properties = WriterProperties::builder()
            .set_key_value_metadata(Some(said.into_iter().flatten().collect()))
            .set_compression(options.compression)
            .set_max_row_group_row_count(Some(options.max_row_group_size))
            .set_created_by(concat!("lakemark ", env!("CARGO_PKG_VERSION")).to_owned())
            .build();
        Ok(Self {
            sink,
            options,
            properties,
            store,
            id,
            attempt,
            kept,
            partitions,
            file_schema,
            stored,
            open: HashMap::new(),
            written: Vec::new(),
            parts: 0,
            rows: 0,
        })
    }

    /// Checks that rows of `schema` can be written so.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid), naming the column.
    pub fn check(schema: &Schema, options: &OutputOptions) -> Result<()> {
        let (kept, _) = Self::split_columns(schema, &options.partition_by)?;
        let files = schema.project(&kept).map_err(unwritable)?;
        options.format.check(&files).map_err(unwritable)
    }

    /// The positions in `schema` of the columns of the files, and of those that become folders, in the order of `partition_by`.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid), naming the column.
    fn split_columns(schema: &Schema, partition_by: &[String]) -> Result<(Vec<usize>, Vec<usize>)> {
        let names = || schema.fields().iter().map(|f| format!("`{}`", f.name())).collect::<Vec<_>>().join(", ");
        let mut partitions = Vec::new();
        for column in partition_by {
            let index = schema.index_of(column).map_err(|_| {
                Error::invalid(format!("`partition_by` names `{column}`, which is not in the output ({})", names()))
                    .way("add the column to the query, or take it out of `partition_by`")
            })?;
            if column.starts_with(['_', '.']) {
                return Err(Error::invalid(format!(
                    "`partition_by` names `{column}`: readers hide folders like `{column}=...`"
                ))
                .safe("nothing was read or written")
                .way("give the column another name in the query, one that begins with neither `_` nor `.`"));
            }
            if partitions.contains(&index) {
                return Err(Error::invalid(format!("`partition_by` names `{column}` twice")).way("name it once"));
            }
            partitions.push(index);
        }
        let kept: Vec<usize> = (0..schema.fields().len()).filter(|i| !partitions.contains(i)).collect();
        if schema.fields().is_empty() {
            return Err(Error::invalid("the query has no columns").way("select at least one"));
        }
        if kept.is_empty() {
            return Err(Error::invalid("every column of the output is in `partition_by`: the files would have none")
                .way("leave at least one column out of `partition_by`"));
        }
        Ok((kept, partitions))
    }

    /// Writes the rows of `batch`.
    pub async fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        self.rows += batch.num_rows() as u64;
        let cast;
        let batch = match &self.stored {
            Some(stored) => {
                cast = as_stored(batch, stored)?;
                &cast
            }
            None => batch,
        };
        if self.partitions.is_empty() {
            return self.write_to(String::new(), batch).await;
        }
        let inner = batch.project(&self.kept).map_err(unwritable)?;
        let groups = group_by_folder(batch, &self.partitions, self.sink.has_empty_partition())?;
        if let [(folder, _)] = &groups[..] {
            return self.write_to(folder.clone(), &inner).await;
        }
        for (folder, rows) in groups {
            let columns = inner.columns().iter().map(|c| arrow_select::take::take(c, &rows, None));
            let columns = columns.collect::<std::result::Result<Vec<_>, _>>().map_err(unwritable)?;
            let part = RecordBatch::try_new(inner.schema(), columns).map_err(unwritable)?;
            self.write_to(folder, &part).await?;
        }
        Ok(())
    }

    async fn write_to(&mut self, folder: String, batch: &RecordBatch) -> Result<()> {
        if !self.open.contains_key(&folder) {
            self.sink.check_folder(&folder)?;
            reach("run.output");
            let name = output_name(&self.store, self.id, self.attempt, self.parts, self.options.format.extension());
            self.parts += 1;
            let file = self.sink.stage(&name, &folder).await?;
            let fault = file.fault();
            let encoder =
                Encoder::new(self.options.format, file, &self.file_schema, &self.properties).map_err(unwritable)?;
            let output = OutputFile { name, folder: folder.clone(), size: 0, rows: 0, upload: None };
            self.open.insert(folder.clone(), Open { encoder, fault, output });
        }
        let Some(open) = self.open.get_mut(&folder) else { return Ok(()) };
        // The query's schema may differ from the file's in metadata only.
        let batch = batch.clone().with_schema(Arc::clone(&self.file_schema)).map_err(unwritable)?;
        open.encoder.write(&batch).map_err(|e| write_failed(e, &open.fault, &*self.sink))?;
        if let Some(file) = open.encoder.file() {
            file.settle().await?;
        }
        open.output.rows += batch.num_rows() as u64;
        if self.options.target_file_size.is_some_and(|target| open.encoder.bytes() >= target)
            && let Some(full) = self.open.remove(&folder)
        {
            let ended = self.end(full)?;
            self.written.push(ended);
        }
        Ok(())
    }

    fn end(&self, open: Open) -> Result<(Box<dyn StagedOutput>, OutputFile)> {
        let Open { encoder, fault, output } = open;
        let (file, metadata) = encoder.finish().map_err(|e| write_failed(e, &fault, &*self.sink))?;
        if let Some(metadata) = metadata {
            self.sink.wrote(&output, &metadata);
        }
        Ok((file, output))
    }

    /// Rows taken so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Ends every file and makes them all durable, bytes and names.
    ///
    /// # Errors
    /// Then no seal names a file of this attempt; those that were durable already stay in staging, as garbage.
    pub async fn finish(mut self) -> Result<Vec<OutputFile>> {
        for (_, open) in std::mem::take(&mut self.open) {
            let ended = self.end(open)?;
            self.written.push(ended);
        }
        reach("run.written");
        if self.written.is_empty() {
            return Ok(Vec::new());
        }
        let mut outputs = Vec::with_capacity(self.written.len());
        for (file, mut output) in self.written {
            (output.size, output.upload) = file.finish().await?;
            outputs.push(output);
        }
        self.sink.sync().await?;
        Ok(outputs)
    }
}

/// `batch` in the types of `schema`. No value is changed by it: one that would be is an error.
fn as_stored(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let columns = batch.columns().iter().zip(schema.fields()).map(|(column, field)| {
        let failed = |e: Option<arrow_schema::ArrowError>| {
            let what = format!("column `{}` has a value that {} cannot hold", field.name(), field.data_type());
            let error = Error::invalid(what)
                .safe("nothing of this task was sealed; what was sealed before is kept")
                .way(format!("cast the column in the query, for example arrow_cast({}, 'Utf8')", field.name()));
            match e {
                Some(e) => error.caused_by(e),
                None => error,
            }
        };
        let stored = cast_with_options(column, field.data_type(), &options).map_err(|e| failed(Some(e)))?;
        if is_finer(column.data_type()) {
            let back = cast_with_options(&stored, column.data_type(), &options).map_err(|e| failed(Some(e)))?;
            if back.as_ref() != column.as_ref() {
                return Err(failed(None));
            }
        }
        Ok(stored)
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    RecordBatch::try_new(Arc::clone(schema), columns).map_err(unwritable)
}

/// Whether a cast from this type to a stored one can lose digits without an error.
fn is_finer(from: &DataType) -> bool {
    use arrow_schema::TimeUnit::Nanosecond;
    match from {
        DataType::Timestamp(Nanosecond, _) | DataType::Time64(Nanosecond) | DataType::Date64 => true,
        DataType::List(f)
        | DataType::LargeList(f)
        | DataType::ListView(f)
        | DataType::LargeListView(f)
        | DataType::FixedSizeList(f, _)
        | DataType::RunEndEncoded(_, f)
        | DataType::Map(f, _) => is_finer(f.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| is_finer(field.data_type())),
        DataType::Dictionary(_, values) => is_finer(values),
        _ => false,
    }
}

/// The rows of each partition folder of `batch`.
fn group_by_folder(batch: &RecordBatch, partitions: &[usize], has_empty: bool) -> Result<Vec<(String, UInt32Array)>> {
    let schema = batch.schema();
    let mut values: Vec<(&str, ArrayRef)> = Vec::with_capacity(partitions.len());
    for &i in partitions {
        let column = match batch.column(i).data_type() {
            // The one name of a zone that can be told without a data base of zones.
            DataType::Timestamp(unit, Some(zone)) if &**zone == "UTC" => {
                let utc = DataType::Timestamp(*unit, Some("+00:00".into()));
                arrow_cast::cast(batch.column(i), &utc).map_err(unwritable)?
            }
            _ => Arc::clone(batch.column(i)),
        };
        let text = arrow_cast::cast(&column, &DataType::Utf8).map_err(unwritable)?;
        values.push((schema.field(i).name(), text));
    }
    let mut groups: HashMap<Vec<Option<&str>>, Vec<u32>> = HashMap::new();
    for row in 0..batch.num_rows() {
        let key = values.iter().map(|(_, column)| {
            let column = column.as_string::<i32>();
            // Null and the empty string are one partition, but for who tells them apart.
            column.is_valid(row).then(|| column.value(row)).filter(|value| has_empty || !value.is_empty())
        });
        groups.entry(key.collect()).or_default().push(row as u32);
    }
    let mut folders: Vec<_> = groups
        .into_iter()
        .map(|(key, rows)| {
            let named = values.iter().map(|(name, _)| *name).zip(key);
            (partition_folder(named), UInt32Array::from(rows))
        })
        .collect();
    folders.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(folders)
}
