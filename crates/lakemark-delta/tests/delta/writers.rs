//! Several writers of one table.

use std::path::Path;
use std::sync::Arc;

use arrow_array::{Int64Array, RecordBatch};
use lakemark::{ErrorKind, run_python};

use crate::subject::one_column;
use crate::writer::store_writer;

/// Rows with these ids.
pub fn rows(ids: std::ops::Range<i64>) -> RecordBatch {
    RecordBatch::try_new(one_column(), vec![Arc::new(Int64Array::from_iter_values(ids))]).unwrap()
}

const APPEND: &str = "
import sys, deltalake, pyarrow as pa
deltalake.write_deltalake(sys.argv[1], pa.table({'id': pa.array([1000, 1001], pa.int64())}), mode='append')
";

const MAINTAIN: &str = "
import sys, deltalake
table = deltalake.DeltaTable(sys.argv[1])
assert table.optimize.compact()['numFilesRemoved'] > 1
assert len(table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)) > 1
table.create_checkpoint()
";

const RESTORE: &str = "
import sys, deltalake
deltalake.DeltaTable(sys.argv[1]).restore(int(sys.argv[2]))
";

/// Prints the ids in the table, sorted.
const IDS: &str = "
import sys, deltalake
print(sorted(deltalake.DeltaTable(sys.argv[1]).to_pyarrow_table()['id'].to_pylist()))
";

fn expect_ids(at: &Path, ids: impl IntoIterator<Item = i64>) {
    if let Some(read) = run_python(IDS, &[at]) {
        assert_eq!(read, format!("{:?}", ids.into_iter().collect::<Vec<_>>()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_stores_commit_to_one_table_at_the_same_time() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("table");
    let url = at.to_str().unwrap().to_owned();
    let store = async |from: i64| {
        let mut writer = store_writer(&url, &one_column(), &[]);
        for n in 0..8 {
            writer.add(&rows(from + n..from + n + 1)).await;
        }
        writer
    };
    let (one, two) = tokio::join!(store(0), store(100));
    for writer in [&one, &two] {
        writer.sink.check(Some(&writer.expected())).await.unwrap();
        assert_eq!(writer.sink.bound_to(writer.store).await.unwrap(), Some(writer.store));
    }
    let last = one.table.iter().chain(&two.table).map(|table| table.version).max();
    assert_eq!(last, Some(15), "each commit is one version");
    expect_ids(&at, (0..8).chain(100..108));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn we_go_on_after_what_others_append_and_compact() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("table");
    let mut writer = store_writer(at.to_str().unwrap(), &one_column(), &[]);
    writer.add(&rows(0..3)).await;
    if run_python(APPEND, &[&at]).is_none() {
        return;
    }
    writer.sink.check(Some(&writer.expected())).await.unwrap();
    assert_eq!(writer.add(&rows(3..5)).await.version, 2);
    writer.sink.check(Some(&writer.expected())).await.unwrap();
    expect_ids(&at, (0..5).chain(1000..1002));

    // None of our files is there any more, and all rows are.
    run_python(MAINTAIN, &[&at]).unwrap();
    writer.sink.check(Some(&writer.expected())).await.unwrap();
    writer.add(&rows(5..6)).await;
    expect_ids(&at, (0..6).chain(1000..1002));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_by_others_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("table");
    let mut writer = store_writer(at.to_str().unwrap(), &one_column(), &[]);
    for n in 0..3 {
        writer.add(&rows(n..n + 1)).await;
    }
    writer.sink.check(Some(&writer.expected())).await.unwrap();
    if run_python(RESTORE, &[&at, Path::new("0")]).is_none() {
        return;
    }
    let error = writer.sink.check(Some(&writer.expected())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(error.to_string().contains("version 3 restored version 0"), "{error}");
    assert!(error.to_string().contains("lakemark accept --table"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_says_whose_it_is_also_while_it_is_empty() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("table");
    let new = || store_writer(at.to_str().unwrap(), &one_column(), &[]);
    let (mut first, second) = (new(), new());
    second.sink.check(Some(&second.expected())).await.unwrap();
    assert_eq!(second.sink.bound_to(second.store).await.unwrap(), None);
    first.commit(Vec::new()).await;
    assert_eq!(second.sink.bound_to(second.store).await.unwrap(), Some(first.store));
    let error = second.sink.check(Some(&second.expected())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(error.to_string().contains(&first.store.to_string()), "{error}");
}

/// Runtimes of one thread write no checkpoints, and otherwise the same.
#[tokio::test]
async fn a_runtime_of_one_thread_commits_too() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("table");
    let mut writer = store_writer(at.to_str().unwrap(), &one_column(), &[]);
    for n in 0..12 {
        assert_eq!(writer.add(&rows(n..n + 1)).await.version, n as u64);
    }
    writer.sink.check(Some(&writer.expected())).await.unwrap();
    assert!(!at.join("_delta_log/_last_checkpoint").exists());
    expect_ids(&at, 0..12);
}
