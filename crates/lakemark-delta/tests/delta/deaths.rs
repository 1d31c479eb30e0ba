//! A process that dies at every request, and power that goes off at every step.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use lakemark::{CommitDriver, DataFiles, Deaths, DirectorySink, PowerLosses, Root, WriteRows};
use lakemark_delta::{DeltaTable, KIND};

use crate::subject::{one_column, write_a_column_more, write_three_rows};

#[tokio::test]
async fn the_table_is_exact_after_a_death_at_any_request() {
    let deaths = |merging: Option<WriteRows>| Deaths {
        driver: Box::new(|process, _| {
            let root = Root::parse("memory://mortal/out").unwrap();
            let table = DeltaTable::in_bucket(root.clone(), &process.bucket()).unwrap().with_rows(&one_column());
            let files = DataFiles::in_bucket(KIND, root, process.bucket()).unwrap();
            async { Ok(CommitDriver::new(table, files).with_pause(Duration::ZERO)) }.boxed()
        }),
        write: write_three_rows,
        merging,
    };
    let schema = deaths(None).check().await;
    assert_ne!(deaths(Some(write_a_column_more)).check().await, schema, "it got the column");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_told_to_be_committed_is_after_a_loss_of_power() {
    let losses = PowerLosses {
        driver: Box::new(|(at, disk), _| {
            let root = Root::parse(at.to_str().unwrap()).unwrap();
            let files = DataFiles::on_disk(DirectorySink::open_on(KIND, root.clone(), Arc::clone(&disk)).unwrap());
            let table = DeltaTable::on_disk(root, disk).unwrap().with_rows(&one_column());
            async { Ok(CommitDriver::new(table, files)) }.boxed()
        }),
        write: write_three_rows,
        first: 0,
    };
    losses.check().await;
}
