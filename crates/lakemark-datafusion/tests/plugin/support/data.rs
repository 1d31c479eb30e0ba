//! Tables of tests.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, Float64Array, Int32Array, Int64Array, ListBuilder, RecordBatch, StringArray, StringBuilder,
};
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::catalog::streaming::StreamingTable;
use datafusion::datasource::MemTable;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use datafusion::prelude::SessionContext;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::{EnabledStatistics, WriterProperties};

/// `rows` documents with ids from `first` on: `id` unique, `k` a nullable join key, `n` = id % 50, `f` with nulls, `text`
/// unique, `tags` null, empty, or up to three.
pub fn docs(first: i64, rows: i64) -> RecordBatch {
    let ids = || first..first + rows;
    let mut tags = ListBuilder::new(StringBuilder::new());
    for id in ids() {
        for tag in 0..(id % 4) {
            tags.values().append_value(format!("t{tag}"));
        }
        tags.append(id % 7 != 0);
    }
    let key = |id: i64| ["a", "b", "c", "zz"].get((id % 5) as usize).copied();
    let columns: Vec<(&str, ArrayRef, bool)> = vec![
        ("id", Arc::new(ids().collect::<Int64Array>()), false),
        ("k", Arc::new(ids().map(key).collect::<StringArray>()), true),
        ("n", Arc::new(ids().map(|id| Some((id % 50) as i32)).collect::<Int32Array>()), true),
        ("f", Arc::new(ids().map(|id| (id % 3 != 0).then_some(id as f64 / 4.0)).collect::<Float64Array>()), true),
        ("text", Arc::new(ids().map(|id| Some(format!("Document {id}"))).collect::<StringArray>()), true),
        ("tags", Arc::new(tags.finish()), true),
    ];
    table(columns)
}

/// A batch of named columns.
pub fn table(columns: Vec<(&str, ArrayRef, bool)>) -> RecordBatch {
    let field = |(name, column, null): &(&str, ArrayRef, bool)| Field::new(*name, column.data_type().clone(), *null);
    let schema = Schema::new(columns.iter().map(field).collect::<Vec<_>>());
    RecordBatch::try_new(Arc::new(schema), columns.into_iter().map(|(_, column, _)| column).collect()).unwrap()
}

/// Lookups: `dim` with a doubled and a null key, `dim_full` without nulls, `dim_empty`, and `dim_stream`,
/// which has no statistics.
pub fn register_lookups(ctx: &SessionContext) {
    let dim = |rows: &[(Option<&str>, &str, i64)], null: bool| {
        table(vec![
            ("k", Arc::new(rows.iter().map(|row| row.0).collect::<StringArray>()), null),
            ("label", Arc::new(rows.iter().map(|row| Some(row.1)).collect::<StringArray>()), true),
            ("w", Arc::new(rows.iter().map(|row| Some(row.2)).collect::<Int64Array>()), null),
        ])
    };
    let all = [(Some("a"), "first", 10), (Some("a"), "second", 20), (Some("b"), "third", 30), (None, "none", 40)];
    for (name, batch) in [("dim", dim(&all, true)), ("dim_full", dim(&all[..3], false)), ("dim_empty", dim(&[], true))]
    {
        let table = MemTable::try_new(batch.schema(), vec![vec![batch]]).unwrap();
        ctx.register_table(name, Arc::new(table)).unwrap();
    }
    let stream = Unmeasured(dim(&all, true));
    let stream = StreamingTable::try_new(Arc::clone(stream.schema()), vec![Arc::new(stream)]).unwrap();
    ctx.register_table("dim_stream", Arc::new(stream)).unwrap();
}

/// A lookup of which nothing is known before it is read: neither rows nor bytes.
#[derive(Debug)]
struct Unmeasured(RecordBatch);

impl PartitionStream for Unmeasured {
    fn schema(&self) -> &SchemaRef {
        self.0.schema_ref()
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let stream = futures::stream::iter([Ok(self.0.clone())]);
        Box::pin(RecordBatchStreamAdapter::new(self.0.schema(), stream))
    }
}

/// A file of its own, with page indexes.
pub fn write_parquet(path: &Path, batch: &RecordBatch, group: usize) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(group))
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_data_page_row_count_limit(10)
        .set_write_batch_size(10)
        .build();
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}
