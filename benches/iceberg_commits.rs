//! Large commits into an Iceberg table: `cargo bench -p lakemark-iceberg --bench iceberg_commits`.
#![allow(clippy::unwrap_used, reason = "a bound that does not hold is to end the bench")]

#[path = "table_commits.rs"]
mod table_commits;

use futures::executor::block_on;
use lakemark::{CommitDriver, DataFiles, Table};
use lakemark_iceberg::{CatalogOptions, IcebergTable, KIND};
use table_commits::{Format, root};

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let folder = tempfile::tempdir().unwrap();
    let uri = format!("sqlite:{}", folder.path().join("catalog.db").display());
    let format = Format {
        driver: Box::new(move |bucket, rows| {
            let catalog = [("type", "sql"), ("uri", uri.as_str()), ("table", "lake.docs")];
            let catalog = catalog.map(|(key, value)| (key.to_owned(), value.to_owned()));
            let table =
                IcebergTable::in_bucket(root(), bucket, CatalogOptions::parse(&catalog.into()).unwrap()).unwrap();
            let table = tokio::task::block_in_place(|| block_on(table.of_rows(&rows.schema()))).unwrap();
            CommitDriver::new(table, DataFiles::in_bucket(KIND, root().join("data"), bucket.clone()).unwrap())
        }),
        ids: true,
        data: "data/",
        is_log: |path| path.contains("/metadata/"),
    };
    table_commits::run(format).await;
}
