//! A process that dies at every request, and power that goes off at every step. The database of the catalog is of neither:
//! it keeps what it was told.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use lakemark::{CommitDriver, DataFiles, Deaths, DirectorySink, PowerLosses, Root, Table, WriteRows};
use lakemark_iceberg::{IcebergTable, KIND};

use crate::subject::{one_column, options, write_a_column_more, write_three_rows};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_table_is_exact_after_a_death_at_any_request() {
    let schema = schema_after_deaths(None).await;
    assert_ne!(schema_after_deaths(Some(write_a_column_more)).await, schema, "it got the column");
}

async fn schema_after_deaths(merging: Option<WriteRows>) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let deaths = Deaths {
        driver: Box::new(move |process, n| {
            let root = Root::parse("memory://mortal/out").unwrap();
            let catalog = options("sql", &format!("sqlite:{}", path.join(format!("{n}.db")).display()));
            let table = IcebergTable::in_bucket(root.clone(), &process.bucket(), catalog).unwrap();
            let files = DataFiles::in_bucket(KIND, root.join("data"), process.bucket()).unwrap();
            async move { Ok(CommitDriver::new(table.of_rows(&one_column()).await?, files).with_pause(Duration::ZERO)) }
                .boxed()
        }),
        write: write_three_rows,
        merging,
    };
    deaths.check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_told_to_be_committed_is_after_a_loss_of_power() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let losses = PowerLosses {
        driver: Box::new(move |(at, disk), n| {
            let root = Root::parse(at.to_str().unwrap()).unwrap();
            let catalog = options("sql", &format!("sqlite:{}", path.join(format!("{n}.db")).display()));
            let data = DirectorySink::open_on(KIND, root.join("data"), Arc::clone(&disk)).unwrap();
            let table = IcebergTable::on_disk(root, disk, catalog).unwrap();
            async move { Ok(CommitDriver::new(table.of_rows(&one_column()).await?, DataFiles::on_disk(data))) }.boxed()
        }),
        write: write_three_rows,
        first: 1,
    };
    losses.check().await;
}
