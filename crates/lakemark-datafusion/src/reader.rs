//! Pinned reads for DataFusion's Parquet source.

use std::ops::Range;

use bytes::Bytes;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::ParquetFileMetrics;
use datafusion::datasource::physical_plan::parquet::ParquetFileReaderFactory;
use datafusion::error::{DataFusionError, Result};
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::future::BoxFuture;
use lakemark::{FileVersion, Footer, Lake, PinnedReader};
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::file::metadata::ParquetMetaData;
use std::sync::Arc;

/// Opens files by the version in their extensions: the bytes read are of that version, or the read fails. Footers that
/// the task opened before its first row are used again.
#[derive(Debug)]
pub(crate) struct PinnedReaderFactory {
    pub(crate) lake: Lake,
}

impl ParquetFileReaderFactory for PinnedReaderFactory {
    fn create_reader(
        &self,
        partition: usize,
        file: PartitionedFile,
        _metadata_size_hint: Option<usize>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Result<Box<dyn AsyncFileReader + Send>> {
        // Not through the object path: a raw key does not survive it.
        let Some(version) = file.extension::<FileVersion>() else {
            return Err(DataFusionError::Internal(format!("{} was not planned by lakemark", file.path())));
        };
        let metrics = ParquetFileMetrics::new(partition, &version.path, metrics);
        // A task may have more files than are remembered.
        let inner = match file.extension::<Arc<Footer>>() {
            Some(footer) => self.lake.reader_with(version, Arc::clone(footer)),
            None => self.lake.reader(version),
        };
        Ok(Box::new(CountedReader { inner, metrics }))
    }
}

/// A [`PinnedReader`] that counts into DataFusion's metrics.
struct CountedReader {
    inner: PinnedReader,
    metrics: ParquetFileMetrics,
}

impl AsyncFileReader for CountedReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, parquet::errors::Result<Bytes>> {
        self.metrics.bytes_scanned.add((range.end - range.start) as usize);
        self.inner.get_bytes(range)
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, parquet::errors::Result<Vec<Bytes>>> {
        self.metrics.bytes_scanned.add(ranges.iter().map(|r| (r.end - r.start) as usize).sum());
        self.inner.get_byte_ranges(ranges)
    }

    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, parquet::errors::Result<Arc<ParquetMetaData>>> {
        self.inner.get_metadata(options)
    }
}
