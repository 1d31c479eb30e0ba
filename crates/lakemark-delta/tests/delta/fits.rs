//! Tables that rows do not fit, or that this version must not write to; logs that cannot be read.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, TimeUnit};
use lakemark::{ErrorKind, Table, TableSubject};
use rstest::rstest;
use serde_json::{Value, json};

use crate::contract::on_disk;
use crate::subject::{Subject, new_table, one_column};
use crate::writer::store_writer;
use crate::writers::rows;

/// The table of [`new_table`] after `change`.
async fn table(folder: &std::path::Path, change: impl FnOnce(&mut Value, &mut Value)) -> Subject {
    let (subject, _) = on_disk(folder, 0);
    let [mut protocol, mut metadata] = new_table();
    change(&mut protocol["protocol"], &mut metadata["metaData"]);
    subject.commit("CREATE TABLE", json!({}), &[protocol, metadata]).await;
    subject
}

fn features(features: &[&str]) -> Value {
    json!({ "minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features })
}

#[rstest]
#[case::constraints(features(&["checkConstraints"]), json!({ "delta.constraints.c": "id > 0" }), "delta.constraints.c")]
#[case::rows(features(&["rowTracking", "domainMetadata"]), json!({}), "rowTracking")]
#[case::unknown(features(&["somethingNew"]), json!({}), "somethingNew")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_this_version_does_not_write_is_refused_by_name(
    #[case] protocol: Value,
    #[case] configuration: Value,
    #[case] named: &str,
) {
    let folder = tempfile::tempdir().unwrap();
    let subject = table(folder.path(), |of, metadata| {
        *of = protocol;
        metadata["configuration"] = configuration;
    })
    .await;
    let base = subject.open().load().await.unwrap().unwrap();
    let error = subject.open().check_fits(&base).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains(named), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_do_not_fit_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let subject = table(folder.path(), |_, _| {}).await;
    let open = subject.open();
    let base = open.load().await.unwrap().unwrap();
    let of = |name: &str, of: DataType| open.clone().with_rows(&Schema::new(vec![Field::new(name, of, true)]));
    of("id", DataType::Int64).check_fits(&base).unwrap();
    let refused = [
        (of("id", DataType::Int32), ErrorKind::Refused, "`id`"),
        (of("other", DataType::Int64), ErrorKind::Refused, "`other`"),
        (of("id", DataType::Timestamp(TimeUnit::Microsecond, None)), ErrorKind::Unsupported, "timestampNtz"),
        (of("id", DataType::Int64).partitioned(&["id".to_owned()]), ErrorKind::Refused, "by (), and the job by (id)"),
    ];
    for (table, kind, what) in refused {
        let error = table.check_fits(&base).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(what), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_cannot_be_read_is_never_no_table() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("table");
    let mut writer = store_writer(at.to_str().unwrap(), &one_column(), &[]);
    assert_eq!(writer.sink.table(writer.store).await.unwrap(), None);
    writer.add(&rows(0..1)).await;
    let entry = at.join("_delta_log/00000000000000000000.json");
    let whole = std::fs::read(&entry).unwrap();
    std::fs::write(&entry, &whole[..whole.len() / 2]).unwrap();
    let error = writer.sink.table(writer.store).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    std::fs::rename(&entry, at.join("_delta_log/kept")).unwrap();
    assert!(writer.sink.table(writer.store).await.is_err(), "something is there");
    std::fs::remove_file(at.join("_delta_log/kept")).unwrap();
    assert_eq!(writer.sink.table(writer.store).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_schema_of_a_state_is_of_the_columns_and_the_partitions() {
    let folder = tempfile::tempdir().unwrap();
    let schema =
        Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true), Field::new("b", DataType::Int64, true)]));
    let mut digests = Vec::new();
    for (n, partition_by) in [&[][..], &["a"], &["b"]].into_iter().enumerate() {
        let at = folder.path().join(n.to_string());
        let mut writer = store_writer(at.to_str().unwrap(), &schema, partition_by);
        let made = writer.commit(Vec::new()).await;
        assert_eq!(writer.sink.table(writer.store).await.unwrap(), Some(made.clone()), "as it is read");
        digests.push(made.schema);
    }
    digests.dedup();
    assert_eq!(digests.len(), 3);
}
