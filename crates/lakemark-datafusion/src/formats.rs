//! What the files of a source are, when it is opened by URL.

use std::sync::Arc;

use datafusion::arrow::csv::reader::Format;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit};
use datafusion::common::config::CsvOptions as NativeCsvOptions;
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::csv::CsvFormat;
use datafusion::datasource::file_format::json::JsonFormat;
use datafusion::datasource::object_store::ObjectStoreUrl;
use datafusion::datasource::physical_plan::{CsvSource, FileScanConfig, FileScanConfigBuilder, FileSource, JsonSource};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::prelude::SessionContext;
use lakemark::{Error, ErrorKind, FileVersion, Lake, Listing, Result};
use object_store::{ObjectMeta, ObjectStore};

use crate::checkpoints::{PARQUET, first_schema};
use crate::errors::from_datafusion;
use crate::whole::{PinnedStore, label};

/// How much of a file its header line may take.
const HEADER: u64 = 64 << 10;
/// What the name of a compressed file ends with.
const COMPRESSED: [&str; 5] = [".gz", ".bz2", ".xz", ".zst", ".zip"];

/// The format of the files of a source.
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

    /// Refuses what is not read.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported), naming a compressed file.
    pub(crate) fn check(&self, lake: &Lake, listing: &Listing) -> Result<()> {
        let is_compressed = |file: &&FileVersion| COMPRESSED.iter().any(|end| file.path.ends_with(end));
        let compressed = listing.files.iter().find(is_compressed).filter(|_| !self.is_parquet());
        let Some(file) = compressed else { return Ok(()) };
        Err(Error::new(ErrorKind::Unsupported, "compressed files are not read in this version")
            .at(lake.place(&file.path))
            .safe("nothing was read or written")
            .way("decompress it, or select other files with a glob in the source's `url`"))
    }

    /// The schema of the first file by path that can be read.
    pub(crate) async fn schema(&self, lake: &Lake, listing: &Listing) -> Result<Option<SchemaRef>> {
        if self.is_parquet() {
            return first_schema(lake, listing).await;
        }
        let Some(file) = listing.files.iter().find(|file| file.size > 0) else { return Ok(None) };
        let schema = self.schema_of(lake, file).await.map_err(|error| {
            error.at(lake.place(&file.path)).safe("nothing was changed").way("check the source's `url` and `format`")
        })?;
        if schema.fields().is_empty() {
            return Err(Error::invalid("the first file has no column")
                .at(lake.place(&file.path))
                .safe("nothing was changed")
                .way("check the source's `url` and `format`"));
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
        let format: Arc<dyn FileFormat> = match self {
            Self::Csv(options) => Arc::new(CsvFormat::default().with_options(options.native())),
            _ => Arc::new(JsonFormat::default().with_schema_infer_max_rec(usize::MAX)),
        };
        let object = ObjectMeta {
            location: label(file),
            last_modified: Default::default(),
            size: file.size,
            e_tag: None,
            version: None,
        };
        let store: Arc<dyn ObjectStore> = Arc::new(PinnedStore::new(lake.clone(), std::iter::once(file.clone())));
        let state = SessionContext::new().state();
        let schema = format.infer_schema(&state, &store, &[object]).await;
        let schema = schema.map_err(|e| from_datafusion(e, ErrorKind::Invalid, "its columns cannot be told"))?;
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
            _ if file.size == 0 => return Ok(None),
            Self::Parquet => return Ok(None),
            Self::Csv(options) if options.header => names_of(lake, file, options).await?,
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
            Err(error) if error.kind() == ErrorKind::Invalid => return Ok(Some(error.to_string().replace('\n', ";"))),
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
async fn names_of(
    lake: &Lake,
    file: &FileVersion,
    options: &CsvFileOptions,
) -> Result<std::result::Result<Option<Vec<String>>, String>> {
    let range = 0..file.size.min(HEADER);
    let bytes = lake.reader(file).read(std::slice::from_ref(&range)).await?;
    let Some(bytes) = bytes.first() else { return Ok(Ok(None)) };
    if file.size > HEADER && !bytes.contains(&b'\n') {
        return Ok(Err(format!("its first line is longer than {HEADER} bytes")));
    }
    let format = Format::default().with_header(true).with_delimiter(options.delimiter).with_quote(options.quote);
    Ok(match format.infer_schema(&bytes[..], Some(0)) {
        Ok((found, _)) => Ok(Some(found.fields().iter().map(|field| field.name().clone()).collect())),
        Err(error) => Err(format!("its first line cannot be read as CSV: {error}")),
    })
}

impl CsvFileOptions {
    fn native(&self) -> NativeCsvOptions {
        NativeCsvOptions {
            has_header: Some(self.header),
            delimiter: self.delimiter,
            quote: self.quote,
            // A value may hold line breaks: files are never cut into ranges here.
            newlines_in_values: Some(true),
            schema_infer_max_rec: Some(usize::MAX),
            ..NativeCsvOptions::default()
        }
    }
}
