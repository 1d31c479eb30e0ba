//! Checkpoints of the log, which the table's own interval asks for.

use lakemark::run_python;

use crate::subject::one_column;
use crate::writer::store_writer;
use crate::writers::rows;

/// Removes every entry up to the last checkpoint, and prints the ids that are found by it, sorted, and the transactions.
const WITHOUT_ENTRIES: &str = "
import sys, os, json, deltalake
log = os.path.join(sys.argv[1], '_delta_log')
last = json.load(open(os.path.join(log, '_last_checkpoint')))['version']
for name in os.listdir(log):
    if name.endswith('.json') and int(name[:20]) < last: os.remove(os.path.join(log, name))
table = deltalake.DeltaTable(sys.argv[1])
print(last, sorted(table.to_pyarrow_table()['id'].to_pylist()), table.transaction_version(sys.argv[2]))
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thirty_commits_make_checkpoints_that_others_read() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("table");
    let mut writer = store_writer(at.to_str().unwrap(), &one_column(), &[]);
    for n in 0..31 {
        writer.add(&rows(n..n + 1)).await;
    }
    for version in [10, 20, 30] {
        assert!(at.join(format!("_delta_log/{version:020}.checkpoint.parquet")).exists(), "{version}");
    }
    let unfinished: Vec<_> = std::fs::read_dir(at.join("unfinished")).unwrap().collect();
    assert!(unfinished.is_empty(), "nothing of them is left: {unfinished:?}");
    let application = format!("lakemark-{}", writer.store);
    let Some(read) = run_python(WITHOUT_ENTRIES, &[&at, application.as_ref()]) else { return };
    assert_eq!(read, format!("30 {:?} 31", (0..31).collect::<Vec<_>>()));
    // All files are live, and the log is gone: the store goes on.
    writer.sink.check(Some(&writer.expected())).await.unwrap();
    assert_eq!(writer.add(&rows(31..32)).await.version, 31);
}
