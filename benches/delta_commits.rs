//! Large commits into a Delta table: `cargo bench -p lakemark-delta --bench delta_commits`.
#![allow(clippy::unwrap_used, reason = "a bound that does not hold is to end the bench")]

#[path = "table_commits.rs"]
mod table_commits;

use lakemark::{CommitDriver, DataFiles};
use lakemark_delta::{DeltaTable, KIND};
use table_commits::{Format, root};

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let format = Format {
        driver: Box::new(|bucket, rows| {
            let table = DeltaTable::in_bucket(root(), bucket).unwrap().with_rows(&rows.schema());
            CommitDriver::new(table, DataFiles::in_bucket(KIND, root(), bucket.clone()).unwrap())
        }),
        ids: false,
        data: "",
        is_log: |path| path.contains("_delta_log"),
    };
    table_commits::run(format).await;
}
