//! What the files of a source are, when it is opened by URL.

use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::csv::reader::Format;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit};
use datafusion::common::config::CsvOptions as NativeCsvOptions;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::object_store::ObjectStoreUrl;
use datafusion::datasource::physical_plan::{CsvSource, FileScanConfig, FileScanConfigBuilder, FileSource, JsonSource};
use datafusion::datasource::table_schema::TableSchema;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use lakemark::{Error, ErrorKind, FileVersion, Lake, Listing, Result};

use crate::checkpoints::{PARQUET, first_schema};
use crate::compression::{compression_of, decompressed, not_read};
use crate::look::{csv_schema, json_schema};

/// How much of a file its header line may take.
const HEADER: u64 = 64 << 10;

/// The format of the files of a source. Those of CSV and JSON may be compressed, each as the end of its name says: `.gz`,
/// `.bz2`, `.xz` or `.zst`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SourceFormat {
    /// Parquet, tracked by row groups.
    #[default]
    Parquet,
    /// Comma-separated values, tracked by whole files.
    Csv(CsvFileOptions),
    /// One JSON object a line, tracked by whole files.
    Json,
}

/// How CSV files are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsvFileOptions {
    /// Whether the first line names the columns. Without one they are `column_1`, `column_2` and so on.
    pub header: bool,
    /// What is between two values.
    pub delimiter: u8,
    /// What is around a value that holds a delimiter or a line break.
    pub quote: u8,
    /// Whether all columns are text, for the query to cast; else their types are those of the first file's first rows.
    pub all_text: bool,
}

impl Default for CsvFileOptions {
    fn default() -> Self {
        Self { header: true, delimiter: b',', quote: b'"', all_text: false }
    }
}

impl SourceFormat {
    /// The name, as jobs and stores have it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Parquet => PARQUET,
            Self::Csv(_) => "csv",
            Self::Json => "json",
        }
    }

    /// What the store records: with the options that are not the default, since rows are others by them.
    pub(crate) fn recorded(&self) -> String {
        match self {
            Self::Csv(options) if *options != CsvFileOptions::default() => {
                let CsvFileOptions { header, delimiter, quote, all_text } = options;
                let (delimiter, quote) = (char::from(*delimiter), char::from(*quote));
                format!("csv (header {header}, delimiter {delimiter:?}, quote {quote:?}, text {all_text})")
            }
            _ => self.name().to_owned(),
        }
    }

    pub(crate) fn is_parquet(&self) -> bool {
        *self == Self::Parquet
    }

    /// What the file at `path` is compressed with. Parquet compresses inside.
    pub(crate) fn compression(&self, path: &str) -> FileCompressionType {
        if self.is_parquet() { FileCompressionType::UNCOMPRESSED } else { compression_of(path) }
    }

    /// Refuses what is not read.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported), naming a file that is compressed in another way, or an archive.
    pub(crate) fn check(&self, lake: &Lake, listing: &Listing) -> Result<()> {
        let not_read = |file: &FileVersion| not_read(&file.path).map(|end| (Arc::clone(&file.path), end));
        let found = listing.files.iter().find_map(not_read).filter(|_| !self.is_parquet());
        let Some((path, end)) = found else { return Ok(()) };
        Err(Error::new(ErrorKind::Unsupported, format!("`{end}` files are not read; .gz, .bz2, .xz and .zst are"))
            .at(lake.place(&path))
            .safe("nothing was read or written")
            .way("unpack it or compress it in one of those, or select other files with a glob in the source's `url`"))
    }

    /// The schema of the first file by path that can be read.
    pub(crate) async fn schema(&self, lake: &Lake, listing: &Listing) -> Result<Option<SchemaRef>> {
        if self.is_parquet() {
            return first_schema(lake, listing).await;
        }
        let wrong = |error: Error, file: &FileVersion| {
            error.at(lake.place(&file.path)).safe("nothing was changed").way("check the source's `url` and `format`")
        };
        let mut damaged = None;
        let mut first = None;
        for file in listing.files.iter().filter(|file| file.size > 0) {
            match self.schema_of(lake, file).await {
                Ok(schema) if schema.fields().is_empty() && self.is_empty(lake, file).await? => {}
                Ok(schema) => {
                    first = Some((file, schema));
                    break;
                }
                // Its task will name it; it must not keep the others from being read.
                Err(error) if self.is_damaged(lake, file).await? => damaged = Some(wrong(error, file)),
                Err(error) => return Err(wrong(error, file)),
            }
        }
        let Some((file, schema)) = first else { return damaged.map_or(Ok(None), Err) };
        if schema.fields().is_empty() {
            return Err(wrong(Error::invalid("the first file has no column"), file));
        }
        let all_text = matches!(self, Self::Csv(options) if options.all_text);
        let field = |field: &FieldRef| {
            let of = match field.data_type() {
                // Without a value nothing tells what it is.
                DataType::Null => DataType::Utf8,
                _ if all_text => DataType::Utf8,
                of => of.clone(),
            };
            Field::new(field.name(), of, true)
        };
        Ok(Some(Arc::new(Schema::new(schema.fields().iter().map(field).collect::<Vec<_>>()))))
    }

    /// The schema of all of `file`.
    async fn schema_of(&self, lake: &Lake, file: &FileVersion) -> Result<Schema> {
        let schema = match self {
            Self::Csv(options) => csv_schema(self.content(lake, file), options.format()).await?,
            _ => json_schema(self.content(lake, file)).await?,
        };
        let field = |field: &FieldRef| {
            let of = match field.data_type() {
                // Parquet has no type for it.
                DataType::Timestamp(TimeUnit::Second, zone) => DataType::Timestamp(TimeUnit::Millisecond, zone.clone()),
                of => of.clone(),
            };
            Field::new(field.name(), of, true)
        };
        Ok(Schema::new(schema.fields().iter().map(field).collect::<Vec<_>>()))
    }

    /// What `file` holds, decompressed.
    fn content(&self, lake: &Lake, file: &FileVersion) -> BoxStream<'static, Result<Bytes>> {
        decompressed(self.compression(&file.path), lake.reader(file).chunks().boxed())
    }

    /// The first bytes of what `file` holds.
    async fn head(&self, lake: &Lake, file: &FileVersion) -> Result<Head> {
        if !self.compression(&file.path).is_compressed() {
            let range = 0..file.size.min(HEADER);
            let bytes = lake.reader(file).read(std::slice::from_ref(&range)).await?;
            return Ok(Head { bytes: bytes.concat(), is_all: file.size <= HEADER });
        }
        let mut content = self.content(lake, file);
        let mut bytes = Vec::new();
        while let Some(more) = content.try_next().await? {
            bytes.extend_from_slice(&more);
            if bytes.len() as u64 > HEADER {
                return Ok(Head { bytes, is_all: false });
            }
        }
        Ok(Head { bytes, is_all: true })
    }

    /// Whether a file of some bytes holds nothing, once decompressed.
    async fn is_empty(&self, lake: &Lake, file: &FileVersion) -> Result<bool> {
        let is_compressed = self.compression(&file.path).is_compressed();
        Ok(is_compressed && self.content(lake, file).try_next().await?.is_none())
    }

    /// Whether `file` cannot be decompressed.
    async fn is_damaged(&self, lake: &Lake, file: &FileVersion) -> Result<bool> {
        if !self.compression(&file.path).is_compressed() {
            return Ok(false);
        }
        let read = self.content(lake, file).try_for_each(|_| std::future::ready(Ok(()))).await;
        match read {
            Err(error) if error.kind() == ErrorKind::Invalid => Ok(true),
            read => read.map(|()| false),
        }
    }

    /// How DataFusion scans files of `schema` in folders of `partitions`; `None`: as Parquet, as the session says.
    pub(crate) fn scan(&self, schema: &SchemaRef, partitions: &[FieldRef]) -> Option<FileScanConfig> {
        let table = TableSchema::builder(Arc::clone(schema)).with_table_partition_cols(partitions.to_vec()).build();
        let source: Arc<dyn FileSource> = match self {
            Self::Parquet => return None,
            Self::Csv(options) => Arc::new(CsvSource::new(table).with_csv_options(options.native())),
            Self::Json => Arc::new(JsonSource::new(table)),
        };
        Some(FileScanConfigBuilder::new(ObjectStoreUrl::local_filesystem(), source).build())
    }

    /// Why `file` cannot be read as `schema`, if it cannot. Values of CSV are known by their places only: a file with other
    /// columns, or in another order, would be read as wrong rows. And the engine makes a value fit a type where it can: 9.99
    /// becomes 9, a time becomes its day. So the types of each file are told from all of its values first.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) async fn misfit(&self, lake: &Lake, file: &FileVersion, schema: &Schema) -> Result<Option<String>> {
        let names = match self {
            Self::Parquet => return Ok(None),
            _ if file.size == 0 && !self.compression(&file.path).is_compressed() => return Ok(None),
            Self::Csv(options) if options.header => names_of(self.head(lake, file).await, options)?,
            Self::Csv(_) | Self::Json => Ok(None),
        };
        let wanted: Vec<String> = schema.fields().iter().map(|field| field.name().clone()).collect();
        let shown = |names: &[String]| format!("({})", names.join(", "));
        match names {
            Err(why) => return Ok(Some(why)),
            Ok(Some(found)) if found != wanted => {
                let (found, wanted) = (shown(&found), shown(&wanted));
                return Ok(Some(format!("its first line names {found}, and the source's columns are {wanted}")));
            }
            Ok(_) => {}
        }
        if matches!(self, Self::Csv(options) if options.all_text) {
            return Ok(None);
        }
        let found = match self.schema_of(lake, file).await {
            Ok(found) => found,
            Err(error) if error.kind() == ErrorKind::Invalid => return Ok(Some(error.what().replace('\n', ";"))),
            Err(error) => return Err(error),
        };
        if !found.fields().is_empty()
            && found.fields().iter().all(|field| schema.field_with_name(field.name()).is_err())
        {
            let names: Vec<String> = found.fields().iter().map(|field| field.name().clone()).collect();
            return Ok(Some(format!("it has {}, and none of the source's columns", shown(&names))));
        }
        let is_csv = matches!(self, Self::Csv(_));
        let other = schema.fields().iter().find_map(|wanted| {
            let found = found.field_with_name(wanted.name()).ok()?;
            let fits = holds(wanted.data_type(), found.data_type(), is_csv);
            (!fits).then(|| {
                let (name, found, wanted) = (wanted.name(), found.data_type(), wanted.data_type());
                format!("column `{name}` is {found}, but {wanted} in the source's schema")
            })
        });
        Ok(other)
    }
}

/// The first bytes of a file.
struct Head {
    bytes: Vec<u8>,
    is_all: bool,
}

/// Whether every value of a file whose values are of `found` is kept in a column of `wanted`.
fn holds(wanted: &DataType, found: &DataType, is_csv: bool) -> bool {
    match (wanted, found) {
        (_, DataType::Null) => true,
        // In CSV every value is a text.
        (DataType::Utf8, _) if is_csv => true,
        (DataType::Float64, DataType::Int64) => true,
        (DataType::List(wanted), DataType::List(found)) => holds(wanted.data_type(), found.data_type(), is_csv),
        (DataType::Struct(wanted), DataType::Struct(found)) => found.iter().all(|field| {
            let known = wanted.iter().find(|known| known.name() == field.name());
            known.is_none_or(|known| holds(known.data_type(), field.data_type(), is_csv))
        }),
        (wanted, found) => wanted == found,
    }
}

/// The names in the first line of a CSV file, or why there are none.
fn names_of(head: Result<Head>, options: &CsvFileOptions) -> Result<std::result::Result<Option<Vec<String>>, String>> {
    let head = match head {
        Ok(head) => head,
        Err(error) if error.kind() == ErrorKind::Invalid => return Ok(Err(error.what().to_owned())),
        Err(error) => return Err(error),
    };
    if !head.is_all && !head.bytes.contains(&b'\n') {
        return Ok(Err(format!("its first line is longer than {HEADER} bytes")));
    }
    let format = Format::default().with_header(true).with_delimiter(options.delimiter).with_quote(options.quote);
    Ok(match format.infer_schema(&head.bytes[..], Some(0)) {
        _ if head.bytes.is_empty() => Ok(None),
        Ok((found, _)) => Ok(Some(found.fields().iter().map(|field| field.name().clone()).collect())),
        Err(error) => Err(format!("its first line cannot be read as CSV: {error}")),
    })
}

impl CsvFileOptions {
    fn format(&self) -> Format {
        Format::default().with_header(self.header).with_delimiter(self.delimiter).with_quote(self.quote)
    }

    fn native(&self) -> NativeCsvOptions {
        NativeCsvOptions {
            has_header: Some(self.header),
            delimiter: self.delimiter,
            quote: self.quote,
            // A value may hold line breaks: files are never cut into ranges here.
            newlines_in_values: Some(true),
            ..NativeCsvOptions::default()
        }
    }
}
