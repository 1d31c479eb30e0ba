//! Several writers of one table.

use std::sync::Arc;

use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use lakemark::{ErrorKind, Intent, Settled, TableSubject, run_python};

use crate::contract::on_disk;
use crate::writer::{PYICEBERG, Site};

/// Of one column, which no table has numbered yet.
pub fn one_column() -> Arc<Schema> {
    Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, true)]))
}

/// Rows with these ids.
pub fn rows(ids: std::ops::Range<i64>) -> RecordBatch {
    RecordBatch::try_new(one_column(), vec![Arc::new(Int64Array::from_iter_values(ids))]).unwrap()
}

const APPEND: &str = "
import pyarrow as pa
table.append(pa.table({'id': pa.array([1000, 1001], pa.int64())}))
";

/// Writes all rows anew, and forgets every snapshot but the last.
const MAINTAIN: &str = "
table.overwrite(table.scan().to_arrow())
table.refresh()
current = table.current_snapshot().snapshot_id
for snapshot in list(table.metadata.snapshots):
    if snapshot.snapshot_id != current:
        table.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
        table.refresh()
assert len(table.metadata.snapshots) == 1, table.metadata.snapshots
";

const ROLL_BACK: &str = "
first = min(table.metadata.snapshots, key=lambda snapshot: snapshot.sequence_number)
with table.manage_snapshots() as manage:
    manage.rollback_to_snapshot(first.snapshot_id)
";

/// Prints the ids in the table, sorted.
const IDS: &str = "
print(sorted(table.scan().to_arrow()['id'].to_pylist()))
";

fn python(site: &Site, script: &str) -> Option<String> {
    run_python(&format!("{PYICEBERG}{script}"), &[&site.database])
}

fn expect_ids(site: &Site, ids: impl IntoIterator<Item = i64>) {
    if let Some(read) = python(site, IDS) {
        assert_eq!(read, format!("{:?}", ids.into_iter().collect::<Vec<_>>()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_stores_commit_to_one_table_at_the_same_time() {
    let site = Site::new();
    let store = async |from: i64| {
        let mut writer = site.writer(&one_column(), &[]).await;
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
    assert_eq!(last, Some(16), "each commit is one version");
    expect_ids(&site, (0..8).chain(100..108));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn we_go_on_after_what_others_append_and_compact() {
    let site = Site::new();
    let mut writer = site.writer(&one_column(), &[]).await;
    writer.add(&rows(0..3)).await;
    if python(&site, APPEND).is_none() {
        return;
    }
    writer.sink.check(Some(&writer.expected())).await.unwrap();
    assert_eq!(writer.add(&rows(3..5)).await.version, 3);
    writer.sink.check(Some(&writer.expected())).await.unwrap();
    expect_ids(&site, (0..5).chain(1000..1002));

    // Neither our files nor our snapshots are there any more, and all rows are: that is told by nothing but a person.
    python(&site, MAINTAIN).unwrap();
    let error = writer.sink.check(Some(&writer.expected())).await.unwrap_err();
    assert!(error.to_string().contains("lakemark accept --table"), "{error}");
    writer.table = writer.sink.table(writer.store).await.unwrap();
    writer.sink.check(Some(&writer.expected())).await.unwrap();
    writer.add(&rows(5..6)).await;
    expect_ids(&site, (0..6).chain(1000..1002));
}

const EXPIRE: &str = "
import datetime
table.maintenance.expire_snapshots().older_than(datetime.datetime.now() + datetime.timedelta(days=1)).commit()
";

/// Snapshots that expire take their parents' ids along, and leave the files and the property.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_snapshots_are_no_reason_to_stop() {
    let site = Site::new();
    let mut writer = site.writer(&one_column(), &[]).await;
    writer.add(&rows(0..3)).await;
    for n in 0..3 {
        if python(&site, &format!("{APPEND}{EXPIRE}")).is_none() {
            return;
        }
        writer.sink.check(Some(&writer.expected())).await.unwrap();
        writer.add(&rows(3 + n..4 + n)).await;
    }
    expect_ids(&site, (0..6).chain([1000, 1000, 1000, 1001, 1001, 1001]));
}

/// An answer that was lost, and then nothing is left of the commit but its property.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_rows_others_rewrote_is_not_made_again() {
    for first in [true, false] {
        let site = Site::new();
        let mut writer = site.writer(&one_column(), &[]).await;
        if !first {
            writer.add(&rows(10..12)).await;
        }
        let (n, base) = (writer.n + 1, writer.table.clone());
        let files = writer.stage(&rows(0..3)).await;
        writer.commit(files.clone()).await;
        if python(&site, &format!("{MAINTAIN}{EXPIRE}")).is_none() {
            return;
        }
        let digest = format!("digest {n}");
        let again = Intent {
            store: writer.store,
            n,
            digest: &digest,
            base: base.as_ref(),
            recovered: true,
            ..Intent::bare(&files)
        };
        let settled = site.writer(&one_column(), &[]).await.sink.commit(&again).await.unwrap();
        assert!(matches!(settled, Settled::Done { .. }), "{settled:?}");
        let error = writer.sink.give_up(&again).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
        expect_ids(&site, (0..3).chain(if first { 0..0 } else { 10..12 }));
    }
}

/// A commit that landed and was taken back before its answer came is not made again behind the back of who did that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_others_took_back_is_not_made_again() {
    let site = Site::new();
    let mut writer = site.writer(&one_column(), &[]).await;
    let base = writer.add(&rows(0..1)).await;
    let files = writer.stage(&rows(1..2)).await;
    writer.commit(files.clone()).await;
    if python(&site, ROLL_BACK).is_none() {
        return;
    }
    let again = Intent {
        store: writer.store,
        n: 2,
        digest: "digest 2",
        base: Some(&base),
        recovered: true,
        ..Intent::bare(&files)
    };
    let error = writer.sink.commit(&again).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CannotDecide, "{error}");
    assert!(error.to_string().contains("taken back"), "{error}");
    expect_ids(&site, 0..1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_others_took_back_is_noticed() {
    let site = Site::new();
    let mut writer = site.writer(&one_column(), &[]).await;
    for n in 0..3 {
        writer.add(&rows(n..n + 1)).await;
    }
    writer.sink.check(Some(&writer.expected())).await.unwrap();
    if python(&site, ROLL_BACK).is_none() {
        return;
    }
    let error = writer.sink.check(Some(&writer.expected())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(error.to_string().contains("went back"), "{error}");
    python(&site, APPEND).unwrap();
    python(&site, APPEND).unwrap();
    python(&site, APPEND).unwrap();
    let error = writer.sink.check(Some(&writer.expected())).await.unwrap_err();
    assert!(error.to_string().contains("taken back"), "{error}");
    assert!(error.to_string().contains("lakemark accept --table"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_says_whose_it_is_also_while_it_is_empty() {
    let site = Site::new();
    let (mut first, second) = (site.writer(&one_column(), &[]).await, site.writer(&one_column(), &[]).await);
    second.sink.check(Some(&second.expected())).await.unwrap();
    assert!(!site.database.exists() && !site.at.exists(), "what only looks makes nothing");
    assert_eq!(second.sink.bound_to(second.store).await.unwrap(), None);
    first.commit(Vec::new()).await;
    assert_eq!(second.sink.bound_to(second.store).await.unwrap(), Some(first.store));
    let error = second.sink.check(Some(&second.expected())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(error.to_string().contains(&first.store.to_string()), "{error}");
}

/// A branch that another one works on is none of ours: its snapshots take numbers, and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn work_on_a_branch_is_no_change_of_the_table() {
    let folder = tempfile::tempdir().unwrap();
    let (subject, _) = on_disk(folder.path(), 0);
    subject.foreign_append().await;
    subject.foreign_append().await;
    let loaded = subject.loaded().await.unwrap();
    let (head, first) = {
        let mut ids: Vec<_> = loaded.metadata().snapshots().map(|s| (s.sequence_number(), s.snapshot_id())).collect();
        ids.sort_unstable();
        (ids[1].1, ids[0].1)
    };
    // The newest snapshot is of a branch only.
    let reference = |id| {
        let retention = iceberg::spec::SnapshotRetention::branch(None, None, None);
        iceberg::spec::SnapshotReference::new(id, retention)
    };
    let change = |builder: iceberg::spec::TableMetadataBuilder| {
        builder.set_ref("work", reference(head)).unwrap().set_ref("main", reference(first)).unwrap()
    };
    subject.change(change).await;
    use lakemark::Table;
    let table = subject.open();
    let base = table.load().await.unwrap().unwrap();
    assert_eq!(table.state(&base).version, 1);
    subject.foreign_append().await;
    let base = table.load().await.unwrap().unwrap();
    assert_eq!(table.state(&base).version, 3);
    let history = table.history(&base, Some(1), lakemark::StoreId::random()).await.unwrap();
    assert_eq!((history.gap, history.rolled_back), (None, None), "version 2 is not missing");
}
