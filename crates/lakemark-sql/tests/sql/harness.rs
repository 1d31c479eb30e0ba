//! What the tests of both databases share.

use std::sync::Arc;

use arrow_array::RecordBatch;
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::prelude::{SessionConfig, SessionContext};
use lakemark::{Error, StorageOptions};
use lakemark_sql::SqlSource;

/// Options of a source.
pub(crate) fn options(options: &[(&str, &str)]) -> StorageOptions {
    options.iter().copied().collect()
}

/// A session in which the source is `t`.
pub(crate) fn session(source: &SqlSource) -> SessionContext {
    let context = SessionContext::new_with_config(SessionConfig::new().with_batch_size(100));
    context.register_table("t", source.provider()).unwrap();
    context
}

/// The rows that `sql` has, or the error of ours that it met.
pub(crate) async fn query(source: &SqlSource, sql: &str) -> Result<Vec<RecordBatch>, String> {
    let rows = session(source).sql(sql).await.unwrap().collect().await;
    rows.map_err(|error| Error::find(&error).unwrap_or_else(|| panic!("not an error of ours: {error}")).to_string())
}

/// The rows of `sql` as lines, without header and frame.
pub(crate) async fn lines(source: &SqlSource, sql: &str) -> Vec<String> {
    let table = pretty_format_batches(&query(source, sql).await.unwrap()).unwrap().to_string();
    let cells = |line: &str| line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>().join("|");
    table.lines().filter(|line| line.starts_with('|')).skip(1).map(cells).collect()
}

/// The columns of a source, with their Arrow types.
pub(crate) fn columns(source: &SqlSource) -> Vec<String> {
    let schema = source.provider().schema();
    schema.fields().iter().map(|field| format!("{} {}", field.name(), field.data_type())).collect()
}

/// How a scan of the whole table is planned.
pub(crate) async fn partitions(source: &SqlSource) -> usize {
    let plan = session(source).sql("SELECT * FROM t").await.unwrap().create_physical_plan().await.unwrap();
    Arc::clone(plan.properties()).output_partitioning().partition_count()
}

/// How many bytes this process has in memory.
pub(crate) fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    status.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4096
}
