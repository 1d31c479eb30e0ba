//! From rows to the bytes of one output file.

use std::io::{self, Write};
use std::sync::Arc;

use arrow_array::{RecordBatch, new_null_array};
use arrow_json::writer::{LineDelimited, WriterBuilder as JsonBuilder};
use arrow_schema::{ArrowError, DataType, Schema, SchemaRef};
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::arrow::{ArrowSchemaConverter, ArrowWriter};
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::properties::WriterProperties;

use super::output::StagedOutput;

/// What output files are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OutputFormat {
    /// Parquet.
    #[default]
    Parquet,
    /// Comma-separated values, with a line of names. Null and the empty string are the same in it.
    Csv,
    /// One JSON object a line, nulls included. Numbers that are none (NaN, infinities) are null in it.
    Json,
}

impl OutputFormat {
    /// What the names of files end with, behind a dot.
    pub(super) fn extension(self) -> &'static str {
        match self {
            Self::Parquet => "parquet",
            Self::Csv => "csv",
            Self::Json => "json",
        }
    }

    /// Checks that rows of `schema` have a form in it.
    pub(super) fn check(self, schema: &Schema) -> Result<(), EncodeError> {
        if self == Self::Parquet {
            return ArrowSchemaConverter::new().convert(schema).map(drop).map_err(Into::into);
        }
        if let (Self::Csv, Some(field)) = (self, schema.fields().iter().find(|field| is_bytes(field.data_type()))) {
            let what = format!("column `{}` has bytes, which have no form in CSV", field.name());
            return Err(ArrowError::CsvError(what).into());
        }
        // One row says more than the schema: some types fail when they are first written.
        let columns = schema.fields().iter().map(|field| new_null_array(field.data_type(), 1)).collect();
        let nullable = schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
        let row = RecordBatch::try_new(Arc::new(Schema::new(nullable.collect::<Vec<_>>())), columns)?;
        self.text(&row, true).map(drop)
    }

    /// `batch` as text; the first one of a file begins with the names of its columns, if there is a line of them.
    fn text(self, batch: &RecordBatch, is_first: bool) -> Result<Vec<u8>, EncodeError> {
        let mut text = Vec::new();
        if self == Self::Json {
            let mut writer = JsonBuilder::new().with_explicit_nulls(true).build::<_, LineDelimited>(&mut text);
            writer.write(batch)?;
            writer.finish()?;
        } else {
            arrow_csv::WriterBuilder::new().with_header(is_first).build(&mut text).write(batch)?;
        }
        Ok(text)
    }
}

fn is_bytes(of: &DataType) -> bool {
    use DataType::{Binary, BinaryView, Dictionary, FixedSizeBinary, LargeBinary};
    match of {
        Dictionary(_, values) => is_bytes(values),
        of => matches!(of, Binary | LargeBinary | BinaryView | FixedSizeBinary(_)),
    }
}

/// Why rows were not encoded.
#[derive(Debug, thiserror::Error)]
pub(super) enum EncodeError {
    #[error(transparent)]
    Parquet(#[from] ParquetError),
    #[error(transparent)]
    Arrow(#[from] ArrowError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// One file while it is encoded.
pub(super) enum Encoder {
    Parquet(Box<ArrowWriter<Slot>>),
    Text { format: OutputFormat, file: Slot, bytes: u64 },
}

/// A file that can be taken back from the Parquet writer once that is finished.
#[derive(Debug)]
pub(super) struct Slot(Option<Box<dyn StagedOutput>>);

fn gone() -> io::Error {
    io::Error::other("the file was taken from its writer")
}

impl Write for Slot {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.as_mut().ok_or_else(gone)?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.as_mut().ok_or_else(gone)?.flush()
    }
}

impl Encoder {
    pub(super) fn new(
        format: OutputFormat,
        file: Box<dyn StagedOutput>,
        schema: &SchemaRef,
        properties: &WriterProperties,
    ) -> Result<Self, EncodeError> {
        let file = Slot(Some(file));
        if format != OutputFormat::Parquet {
            return Ok(Self::Text { format, file, bytes: 0 });
        }
        let options = ArrowWriterOptions::new().with_properties(properties.clone()).with_skip_arrow_metadata(true);
        Ok(Self::Parquet(Box::new(ArrowWriter::try_new_with_options(file, Arc::clone(schema), options)?)))
    }

    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<(), EncodeError> {
        match self {
            Self::Parquet(writer) => writer.write(batch).map_err(Into::into),
            Self::Text { format, file, bytes } => {
                let text = format.text(batch, *bytes == 0)?;
                file.write_all(&text)?;
                *bytes += text.len() as u64;
                Ok(())
            }
        }
    }

    /// The file below.
    pub(super) fn file(&mut self) -> Option<&mut Box<dyn StagedOutput>> {
        match self {
            Self::Parquet(writer) => writer.inner_mut().0.as_mut(),
            Self::Text { file, .. } => file.0.as_mut(),
        }
    }

    /// Bytes so far, about.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Parquet(writer) => (writer.bytes_written() + writer.in_progress_size()) as u64,
            Self::Text { bytes, .. } => *bytes,
        }
    }

    /// Ends the encoding: the file, with its footer if it has one.
    pub(super) fn finish(self) -> Result<(Box<dyn StagedOutput>, Option<ParquetMetaData>), EncodeError> {
        match self {
            Self::Parquet(mut writer) => {
                let metadata = writer.finish()?;
                // Not `into_inner`, which would write a second footer behind the one of `finish`.
                let file = writer.inner_mut().0.take().ok_or_else(gone)?;
                Ok((file, Some(metadata)))
            }
            Self::Text { mut file, .. } => Ok((file.0.take().ok_or_else(gone)?, None)),
        }
    }
}
