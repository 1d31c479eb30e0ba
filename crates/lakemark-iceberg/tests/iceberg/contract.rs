//! The contract of every table format, by catalog and by storage.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures::executor::block_on;
use iceberg::memory::MemoryCatalogBuilder;
use iceberg::{CatalogBuilder, TableIdent};
use lakemark::{
    CommitDriver, DataFiles, NewSink, OutputSink, SinkContract, StorageOptions, TableContract, TableSubject, WriteRows,
    check_sink_contract, check_table_contract,
};
use lakemark_iceberg::IcebergTable;
use rstest::rstest;

use crate::rest::Rest;
use crate::subject::{Subject, one_column, options, write_a_column_more, write_three_rows};

async fn check(merging: Option<WriteRows>, fresh: impl Fn(u32) -> (Subject, DataFiles) + 'static) {
    let count = AtomicU32::new(0);
    check_table_contract(&TableContract {
        fresh: Box::new(move || fresh(count.fetch_add(1, Ordering::Relaxed))),
        schema: one_column(),
        write: write_three_rows,
        merging,
        // The property survives the snapshots.
        keeps_markers: true,
    })
    .await;
}

fn none() -> StorageOptions {
    StorageOptions::default()
}

/// A table in a new folder below `folder` that no URL can spell as it is, in a database of its own.
pub fn on_disk(folder: &Path, n: u32) -> (Subject, DataFiles) {
    let path = folder.join(format!("ta ble%20é[{n}]"));
    let url = path.to_str().unwrap();
    let database = folder.join(format!("cata log {n}.db"));
    let catalog = options("sql", &format!("sqlite:{}", database.display()));
    let table = IcebergTable::connect(url, &none(), catalog).unwrap();
    let location = format!("file://{url}");
    let subject = Subject::in_database(table, url, &location, &database);
    let subject = tokio::task::block_in_place(|| block_on(subject));
    (subject, lakemark_iceberg::data_files(url, &none()).unwrap())
}

#[rstest]
#[case::of_one_shape(None)]
#[case::merging(Some(write_a_column_more as WriteRows))]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_table_on_a_disk_in_a_database_keeps_the_contract(#[case] merging: Option<WriteRows>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    check(merging, move |n| on_disk(&path, n)).await;
}

/// A table in a bucket, on a server of its own.
pub fn on_server(url: &str, location: &str) -> (Subject, DataFiles) {
    let rest = Rest::start();
    let table = IcebergTable::connect(url, &none(), options("rest", &rest.uri)).unwrap();
    let subject = Subject::on_server(table, url, location, rest);
    let subject = tokio::task::block_in_place(|| block_on(subject));
    (subject, lakemark_iceberg::data_files(url, &none()).unwrap())
}

#[rstest]
#[case::of_one_shape(None)]
#[case::merging(Some(write_a_column_more as WriteRows))]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_table_in_a_bucket_on_a_server_keeps_the_contract(#[case] merging: Option<WriteRows>) {
    check(merging, |n| {
        on_server(&format!("memory://rest/pre%20fix%2520é/{n}"), &format!("memory://rest/pre fix%20é/{n}"))
    })
    .await;
}

#[rstest]
#[case::of_one_shape(None)]
#[case::merging(Some(write_a_column_more as WriteRows))]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_table_in_a_bucket_in_a_catalog_in_memory_keeps_the_contract(#[case] merging: Option<WriteRows>) {
    check(merging, |n| {
        let url = format!("memory://catalog/{n}");
        let storage = lakemark_iceberg::storage(&url, &none()).unwrap();
        let catalog = MemoryCatalogBuilder::default().with_storage_factory(storage);
        let warehouse = [("warehouse".to_owned(), url.clone())].into();
        let catalog = tokio::task::block_in_place(|| block_on(catalog.load("memory", warehouse))).unwrap();
        let catalog = Arc::new(catalog);
        let table = TableIdent::from_strs(["lake", "docs"]).unwrap();
        let table = IcebergTable::in_catalog(&url, &none(), Arc::clone(&catalog) as _, table).unwrap();
        let files = lakemark_iceberg::data_files(&url, &none()).unwrap();
        (Subject::in_catalog(table, catalog, &url), files)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_table_keeps_the_contract_of_all_destinations() {
    let folder = tempfile::tempdir().unwrap();
    let (path, count) = (folder.path().to_owned(), AtomicU32::new(0));
    let fresh = move || {
        let (subject, files) = on_disk(&path, count.fetch_add(1, Ordering::Relaxed));
        let subject = Arc::new(subject);
        let of_subject = Arc::clone(&subject);
        let open = move || Arc::new(CommitDriver::new(subject.open(), files.clone())) as Arc<dyn OutputSink>;
        let seen = move || {
            let subject = Arc::clone(&of_subject);
            let name = |path: String| path.rsplit('/').next().unwrap_or_default().to_owned();
            Box::pin(async move { subject.live_paths().await.into_iter().map(name).collect() }) as _
        };
        NewSink { open: Box::new(open), seen: Box::new(seen) }
    };
    check_sink_contract(&SinkContract {
        fresh: Box::new(fresh),
        schema: one_column(),
        write: write_three_rows,
        loses: true,
    })
    .await;
}
