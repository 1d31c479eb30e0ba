//! The contract of every table format, on a disk and in a bucket.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lakemark::disk::RealDisk;
use lakemark::{
    Bucket, CommitDriver, DataFiles, DirectorySink, NewSink, OutputSink, Root, SinkContract, TableContract,
    TableSubject, WriteRows, check_sink_contract, check_table_contract,
};
use lakemark_delta::{DeltaTable, KIND};
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use rstest::rstest;

use crate::subject::{Subject, one_column, write_a_column_more, write_three_rows};

async fn check(merging: Option<WriteRows>, fresh: impl Fn(u32) -> (Subject, DataFiles) + 'static) {
    let count = AtomicU32::new(0);
    check_table_contract(&TableContract {
        fresh: Box::new(move || fresh(count.fetch_add(1, Ordering::Relaxed))),
        schema: one_column(),
        write: write_three_rows,
        merging,
        // The transaction keeps its number, and the digest is gone with the log.
        keeps_markers: false,
    })
    .await;
}

/// A table in a new folder below `folder` that no URL can spell as it is.
pub fn on_disk(folder: &std::path::Path, n: u32) -> (Subject, DataFiles) {
    let path = folder.join(format!("ta ble%20é#[{n}]"));
    std::fs::create_dir(&path).unwrap();
    let url = path.to_str().unwrap();
    let table = DeltaTable::on_disk(Root::parse(url).unwrap(), Arc::new(RealDisk)).unwrap();
    let objects = Arc::new(LocalFileSystem::new_with_prefix(&path).unwrap());
    let files = DataFiles::on_disk(DirectorySink::open(KIND, url).unwrap());
    (Subject::new(table, objects, "file:///"), files)
}

/// A table below a prefix of a new bucket that no URL can spell as it is.
pub fn in_bucket(n: u32) -> (Subject, DataFiles) {
    let store = Arc::new(InMemory::new());
    let bucket = Bucket { objects: Arc::clone(&store) as _, uploads: store };
    let root = Root::parse(&format!("memory://bucket/pre%20fix%2520é/{n}")).unwrap();
    let table = DeltaTable::in_bucket(root.clone(), &bucket).unwrap();
    let objects = bucket.below(&root).unwrap();
    let files = DataFiles::in_bucket(KIND, root, bucket).unwrap();
    (Subject::new(table, objects, "memory:///"), files)
}

#[rstest]
#[case::of_one_shape(None)]
#[case::merging(Some(write_a_column_more as WriteRows))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_on_a_disk_keeps_the_contract(#[case] merging: Option<WriteRows>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    check(merging, move |n| on_disk(&path, n)).await;
}

#[rstest]
#[case::of_one_shape(None)]
#[case::merging(Some(write_a_column_more as WriteRows))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_in_a_bucket_keeps_the_contract(#[case] merging: Option<WriteRows>) {
    check(merging, in_bucket).await;
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
