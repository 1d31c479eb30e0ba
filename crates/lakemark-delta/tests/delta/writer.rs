//! One store's side of a Delta table.

use std::sync::Arc;

use arrow_schema::Schema;
use lakemark::{StorageOptions, TableWriter};

/// A writer of rows of `schema`, to the table at `url`.
pub fn store_writer(url: &str, schema: &Arc<Schema>, partition_by: &[&str]) -> TableWriter {
    let sink = lakemark_delta::connect(url, &StorageOptions::default()).unwrap();
    // Nothing is asked of a table for it.
    futures::executor::block_on(TableWriter::new(sink, schema, partition_by))
}

/// The lines of the entry of `version` of the table in the folder `at`.
pub fn entry(at: &std::path::Path, version: u64) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(at.join(format!("_delta_log/{version:020}.json"))).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
