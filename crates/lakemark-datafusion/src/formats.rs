//! What the files of a source are, when it is opened by URL.

use std::sync::Arc;

use datafusion::arrow::csv::reader::Format;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
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
        let format: Arc<dyn FileFormat> = match self {
            Self::Parquet => return first_schema(lake, listing).await,
            Self::Csv(options) => Arc::new(CsvFormat::default().with_options(options.native())),
            Self::Json => Arc::new(JsonFormat::default()),
        };
        let Some(file) = listing.files.iter().find(|file| file.size > 0) else { return Ok(None) };
        let object = ObjectMeta {
            location: label(file),
            last_modified: Default::default(),
            size: file.size,
            e_tag: None,
            version: None,
        };
        let store: Arc<dyn ObjectStore> = Arc::new(PinnedStore::new(lake.clone(), std::iter::once(file.clone())));
        let state = SessionContext::new().state();
        let schema = format.infer_schema(&state, &store, &[object]).await.map_err(|e| {
            from_datafusion(e, ErrorKind::Invalid, "the columns of the first file cannot be told")
                .at(lake.place(&file.path))
                .safe("nothing was changed")
                .way("check the source's `url` and `format`")
        })?;
        Ok(Some(match self {
            Self::Csv(options) if options.all_text => {
                let text = |field: &FieldRef| Field::new(field.name(), DataType::Utf8, true);
                Arc::new(Schema::new(schema.fields().iter().map(text).collect::<Vec<_>>()))
            }
            _ => schema,
        }))
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

    /// Why `file` cannot be read as `schema`, if its first line says so. Values of CSV are known by their places only: a
    /// file with other columns, or in another order, would be read as wrong rows.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) async fn misfit(&self, lake: &Lake, file: &FileVersion, schema: &Schema) -> Result<Option<String>> {
        let Self::Csv(options) = self else { return Ok(None) };
        if !options.header || file.size == 0 {
            return Ok(None);
        }
        let range = 0..file.size.min(HEADER);
        let bytes = lake.reader(file).read(std::slice::from_ref(&range)).await?;
        let Some(bytes) = bytes.first() else { return Ok(None) };
        let format = Format::default().with_header(true).with_delimiter(options.delimiter).with_quote(options.quote);
        let found = match format.infer_schema(&bytes[..], Some(0)) {
            Ok((found, _)) => found,
            Err(error) => return Ok(Some(format!("its first line cannot be read as CSV: {error}"))),
        };
        let names = |schema: &Schema| schema.fields().iter().map(|f| f.name().clone()).collect::<Vec<_>>();
        let (found, wanted) = (names(&found), names(schema));
        let shown = |names: &[String]| format!("({})", names.join(", "));
        Ok((found != wanted).then(|| {
            format!("its first line names {}, and the source's columns are {}", shown(&found), shown(&wanted))
        }))
    }
}

impl CsvFileOptions {
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
