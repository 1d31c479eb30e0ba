//! Tables that rows do not fit, or that this version must not write to; metadata that cannot be read.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, TimeUnit};
use iceberg::spec::{
    FormatVersion, NestedField, PrimitiveType, TableMetadataBuilder, Transform, Type, UnboundPartitionSpec,
};
use lakemark::{ErrorKind, Table, TableSubject};

use crate::contract::on_disk;
use crate::subject::Subject;
use crate::writer::Site;
use crate::writers::{one_column, rows};

type Change = fn(TableMetadataBuilder) -> TableMetadataBuilder;

fn column(id: i32, name: &str, of: PrimitiveType, required: bool) -> Arc<NestedField> {
    Arc::new(NestedField::new(id, name, Type::Primitive(of), required))
}

fn columns(fields: Vec<Arc<NestedField>>) -> impl FnOnce(TableMetadataBuilder) -> TableMetadataBuilder {
    move |builder| {
        let schema = iceberg::spec::Schema::builder().with_fields(fields).build().unwrap();
        builder.add_current_schema(schema).unwrap()
    }
}

async fn table(folder: &std::path::Path) -> Subject {
    let (subject, _) = on_disk(folder, 0);
    subject.recreate().await;
    subject
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_this_version_does_not_write_is_refused_by_name() {
    let bucketed: Change = |builder| {
        let spec = UnboundPartitionSpec::builder().add_partition_field(1, "id_bucket", Transform::Bucket(4)).unwrap();
        builder.add_default_partition_spec(spec.build()).unwrap()
    };
    let newer: Change = |builder| builder.upgrade_format_version(FormatVersion::V3).unwrap();
    for (change, named) in [(bucketed, "bucket[4](id_bucket)"), (newer, "format version 3")] {
        let folder = tempfile::tempdir().unwrap();
        let subject = table(folder.path()).await;
        subject.change(change).await;
        let open = subject.open().of_rows(&one_column()).await.unwrap();
        let error = open.check_fits(&open.load().await.unwrap().unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains(named), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn rows_that_do_not_fit_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let subject = table(folder.path()).await;
    let open = subject.open();
    let of =
        async |name: &str, of: DataType| open.of_rows(&Schema::new(vec![Field::new(name, of, true)])).await.unwrap();
    let long = of("id", DataType::Int64).await;
    let base = || async { open.load().await.unwrap().unwrap() };
    long.check_fits(&base().await).unwrap();
    for (table, what) in [
        (of("id", DataType::Int32).await, "`id` is int in the query and long"),
        (of("other", DataType::Int64).await, "no column `other`"),
        (of("id", DataType::Timestamp(TimeUnit::Microsecond, None)).await, "`id` is timestamp"),
        (long.partitioned(&["id".to_owned()]), "by (), and the job by (id)"),
    ] {
        let error = table.check_fits(&base().await).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
        assert!(error.to_string().contains(what), "{error}");
    }

    // What happens between the plan and the commit.
    for (fields, what) in [
        (vec![column(1, "id", PrimitiveType::Long, true)], "`id` of the table is required"),
        (
            vec![column(1, "id", PrimitiveType::Long, false), column(2, "more", PrimitiveType::Long, true)],
            "lacks column `more`",
        ),
        (
            vec![column(3, "id", PrimitiveType::Long, false)],
            "`id` has another id in the table (3) than in the files (1)",
        ),
    ] {
        subject.change(columns(fields)).await;
        let error = long.check_fits(&base().await).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
        assert!(error.to_string().contains(what), "{error}");
    }
    let inner = NestedField::new(5, "x", Type::Primitive(PrimitiveType::Long), true);
    let inner = Type::Struct(iceberg::spec::StructType::new(vec![Arc::new(inner)]));
    let nested = vec![column(3, "id", PrimitiveType::Long, false), Arc::new(NestedField::optional(4, "s", inner))];
    subject.change(columns(nested)).await;
    let x = DataType::Struct(vec![Field::new("x", DataType::Int64, true)].into());
    let error = of("s", x).await.check_fits(&base().await).unwrap_err();
    assert!(error.to_string().contains("`s` of the table has something within that is required"), "{error}");
    // A query that is planned anew takes the ids that the table has.
    of("id", DataType::Int64).await.check_fits(&base().await).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_table_somewhere_else_is_not_written_to() {
    let (here, there) = (Site::new(), Site::new());
    there.writer(&one_column(), &[]).await.add(&rows(0..1)).await;
    std::fs::copy(&there.database, &here.database).unwrap();
    let writer = here.writer(&one_column(), &[]).await;
    let error = writer.sink.check(Some(&writer.expected())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(error.to_string().contains(&format!("is at file://{}", there.at.display())), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn metadata_that_cannot_be_read_is_never_no_table() {
    let site = Site::new();
    let mut writer = site.writer(&one_column(), &[]).await;
    writer.add(&rows(0..1)).await;
    let metadata = std::fs::read_dir(site.at.join("metadata")).unwrap().map(|entry| entry.unwrap().path());
    let metadata = metadata.filter(|path| path.to_str().unwrap().contains("/00001-"));
    let newest = metadata.max().unwrap();
    let whole = std::fs::read(&newest).unwrap();
    std::fs::write(&newest, &whole[..whole.len() / 2]).unwrap();
    let error = writer.sink.table(writer.store).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    std::fs::remove_file(&newest).unwrap();
    let error = writer.sink.table(writer.store).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    std::fs::write(&newest, &whole).unwrap();
    std::fs::write(&site.database, "no database").unwrap();
    let error = site.sink().table(writer.store).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

/// A file that is there and is no catalog is not made one by who only looks; a folder that is not there is told at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn who_only_looks_changes_nothing() {
    let site = Site::new();
    let sql = async |text: &'static str| {
        use sqlx::{ConnectOptions, Connection};
        let how = sqlx::sqlite::SqliteConnectOptions::new().filename(&site.database).create_if_missing(true);
        let mut connection = how.connect().await.unwrap();
        sqlx::query(text).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    };
    sql("CREATE TABLE of_somebody_else (n INT)").await;
    let before = std::fs::read(&site.database).unwrap();
    let store = lakemark::StoreId::random();
    assert_eq!(site.sink().table(store).await.unwrap(), None);
    assert_eq!(std::fs::read(&site.database).unwrap(), before);
    site.writer(&one_column(), &[]).await.add(&rows(0..1)).await;
    sql("ALTER TABLE iceberg_tables DROP COLUMN iceberg_type").await;
    let error = site.sink().table(store).await.unwrap_err();
    assert!(error.to_string().contains("ADD COLUMN iceberg_type"), "{error}");
    std::fs::remove_dir_all(site.folder()).unwrap();
    let error = site.sink().table(store).await.unwrap_err();
    assert!(error.to_string().contains("a folder that is not there"), "{error}");
}

/// No value is changed by how it is stored.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn values_that_lose_digits_end_their_task() {
    use arrow_array::{ArrayRef, Time64NanosecondArray, TimestampNanosecondArray};
    let columns: [ArrayRef; 2] =
        [Arc::new(Time64NanosecondArray::from(vec![1_001])), Arc::new(TimestampNanosecondArray::from(vec![1_001]))];
    for column in columns {
        let site = Site::new();
        let batch = arrow_array::RecordBatch::try_from_iter([("t", column)]).unwrap();
        let writer = site.writer(&batch.schema(), &[]).await;
        let error = writer.try_stage(&batch).await.unwrap_err();
        assert!(error.to_string().contains("`t` has a value that"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_schema_of_a_state_is_of_the_columns_and_the_partitions() {
    let schema =
        Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true), Field::new("b", DataType::Int64, true)]));
    let mut digests = Vec::new();
    for partition_by in [&[][..], &["a"], &["b"]] {
        let site = Site::new();
        let mut writer = site.writer(&schema, partition_by).await;
        let made = writer.commit(Vec::new()).await;
        assert_eq!(writer.sink.table(writer.store).await.unwrap(), Some(made.clone()), "as it is read");
        digests.push(made.schema);
    }
    digests.dedup();
    assert_eq!(digests.len(), 3);
}
