//! How output files are written.

use std::fs::File;
use std::path::PathBuf;

use lakemark::OutputOptions;
use parquet::basic::Compression;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};
use rstest::rstest;

use crate::support::{Lab, data, files_below};

fn footer(path: &PathBuf) -> ParquetMetaData {
    SerializedFileReader::new(File::open(path).unwrap()).unwrap().metadata().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partition_by_makes_folders_over_many_tasks() {
    let lab = Lab::standard();
    let mut job = lab.job("job", "SELECT id, text, n, lang, k FROM docs");
    job.parquet.partition_by = vec!["k".into(), "lang".into()];
    job.clone().max_tasks(5).ok().await;
    job.ok().await;
    let out = lab.path("job.out");
    let mut folders: Vec<String> = files_below(&out)
        .iter()
        .map(|file| file.parent().unwrap().strip_prefix(&out).unwrap().to_str().unwrap().to_owned())
        .collect();
    folders.sort();
    folders.dedup();
    assert_eq!(folders.len(), 5 * 3, "{folders:?}");
    assert!(folders.contains(&"k=__HIVE_DEFAULT_PARTITION__/lang=de".to_owned()), "{folders:?}");
    let (found, expected) = (lab.rows_of("job.out", &["k", "lang"]).await, job.expected().await);
    assert_eq!(found.columns, ["id", "text", "n", "k", "lang"]);
    let nulls = |row: &String| row.replace("__HIVE_DEFAULT_PARTITION__", "NULL");
    let swapped = |row: &String| {
        let cells: Vec<&str> = row.split(" | ").collect();
        [cells[0], cells[1], cells[2], cells[4], cells[3]].join(" | ")
    };
    let mut found: Vec<_> = found.rows.iter().map(nulls).collect();
    let mut expected: Vec<_> = expected.rows.iter().map(swapped).collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}

#[rstest]
#[case::missing(&["nothing"], "names `nothing`")]
#[case::all(&["id", "text"], "every column")]
#[case::hidden(&["_id"], "readers hide folders")]
#[case::dotted(&[".id"], "readers hide folders")]
#[case::twice(&["text", "text"], "names `text` twice")]
#[tokio::test]
async fn impossible_partitions_are_refused_before_anything_is_written(#[case] columns: &[&str], #[case] needle: &str) {
    let lab = Lab::standard();
    let mut job = lab.job("job", "SELECT id, text, id AS \"_id\", id AS \".id\" FROM docs");
    if columns.len() > 1 {
        job = lab.job("job", "SELECT id, text FROM docs");
    }
    job.parquet.partition_by = columns.iter().map(|c| (*c).to_owned()).collect();
    let error = job.err().await;
    assert!(error.to_string().contains(needle), "{error}");
    assert!(!lab.path("job.store").exists() && !lab.path("job.out").exists());
}

/// R121: files of two layouts would not be one table.
#[tokio::test]
async fn r121_another_layout_in_the_same_destination_is_refused() {
    let lab = Lab::standard();
    let mut job = lab.job("job", "SELECT id, lang FROM docs");
    job.clone().max_tasks(2).ok().await;
    job.parquet.partition_by = vec!["lang".into()];
    let error = job.err().await;
    assert_eq!(error.kind(), lakemark::ErrorKind::Refused, "{error}");
    assert!(error.what().contains("partitioned by lang here, but not partitioned so far"), "{error}");
    job.parquet.partition_by.clear();
    job.exact().await;
}

#[tokio::test]
async fn a_value_too_long_for_a_folder_fails_its_task_only_and_names_the_column() {
    let lab = Lab::standard();
    let sql = "SELECT id, CASE WHEN id = 100 THEN repeat('%', 120) ELSE 'ok' END AS s FROM docs";
    let mut job = lab.job("job", sql);
    job.parquet.partition_by = vec!["s".into()];
    let error = job.err().await;
    assert_eq!(error.kind(), lakemark::ErrorKind::Invalid, "{error}");
    assert!(error.what().contains("`s`"), "{error}");
    let mended = "SELECT id, CASE WHEN id = 100 THEN 'long' ELSE 'ok' END AS s FROM docs";
    let mut job = lab.job("job", mended);
    job.parquet.partition_by = vec!["s".into()];
    job.ok().await;
    assert_eq!(job.rows().await.len(), 240);
}

#[tokio::test]
async fn files_have_the_size_groups_and_compression_asked_for() {
    let lab = Lab::new();
    for file in 0..3 {
        lab.write(&format!("docs/part-{file}.parquet"), &data::docs(file * 3_000, 3_000), 500);
    }
    let mut job = lab.job("job", "SELECT id, text, f FROM docs").packed();
    job.config = job.config.clone().with_batch_size(100);
    job.parquet = OutputOptions {
        format: lakemark::OutputFormat::Parquet,
        compression: Compression::SNAPPY,
        max_row_group_size: 250,
        target_file_size: Some(20_000),
        partition_by: Vec::new(),
    };
    let report = job.exact().await;
    let files = files_below(&lab.path("job.out"));
    assert_eq!((report.tasks.sealed, report.commits[0].files as usize), (1, files.len()));
    assert!(files.len() >= 3, "{} files", files.len());
    for file in &files {
        let footer = footer(file);
        assert!(file.metadata().unwrap().len() < 60_000, "{}", file.metadata().unwrap().len());
        assert_eq!(footer.file_metadata().created_by(), Some(concat!("lakemark ", env!("CARGO_PKG_VERSION"))));
        for group in footer.row_groups() {
            assert!(group.num_rows() <= 250);
            assert!(group.columns().iter().all(|column| column.compression() == Compression::SNAPPY));
        }
    }

    let plain = lab.job("plain", "SELECT id, text, f FROM docs").packed();
    plain.exact().await;
    let [file] = files_below(&lab.path("plain.out")).try_into().unwrap();
    let footer = footer(&file);
    assert_eq!(footer.num_row_groups(), 1);
    assert!(matches!(footer.row_group(0).column(0).compression(), Compression::ZSTD(_)));
}
