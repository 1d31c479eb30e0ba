//! Lookups are read by the rules of sources, and never without some of their files.

use std::fs;

use lakemark::ErrorKind;
use lakemark_datafusion::{SourceSpec, read_lookup};
use rstest::rstest;

use crate::support::{Lab, Rows, data};

async fn rows(lab: &Lab, url: &str) -> lakemark::Result<usize> {
    let table = read_lookup(SourceSpec::new("dim", lab.url(url))).await?;
    let ctx = datafusion::prelude::SessionContext::new();
    Ok(Rows::of(ctx.read_table(table).unwrap()).await.len())
}

#[rstest]
#[case("dim/b.parquet")]
#[case("dim/b.parq")]
#[case("dim/b")]
#[case("dim/b.PARQUET")]
#[case("dim/x/b.parquet")]
#[case("dim/b %41[1].parquet")]
#[tokio::test]
async fn every_file_of_a_lookup_counts(#[case] second: &str) {
    let lab = Lab::new();
    lab.write("dim/a.parquet", &data::docs(0, 10), 5);
    lab.write(second, &data::docs(10, 7), 5);
    assert_eq!(rows(&lab, "dim").await.unwrap(), 17);
    assert_eq!(rows(&lab, second).await.unwrap(), 7, "alone");
}

#[tokio::test]
async fn folders_of_a_lookup_are_columns_and_hidden_files_are_hidden() {
    let lab = Lab::new();
    lab.write("dim/p=1/a.parquet", &data::docs(0, 10), 5);
    lab.write("dim/p=2/a.parquet", &data::docs(10, 10), 5);
    lab.write("dim/_temporary/a.parquet", &data::docs(20, 10), 5);
    let table = read_lookup(SourceSpec::new("dim", lab.url("dim"))).await.unwrap();
    assert!(table.schema().field_with_name("p").is_ok());
    assert_eq!(rows(&lab, "dim").await.unwrap(), 20);
}

#[rstest]
#[case::empty(b"")]
#[case::torn(b"PAR1 and then nothing more")]
#[tokio::test]
async fn a_lookup_is_never_read_without_some_of_its_files(#[case] bytes: &[u8]) {
    let lab = Lab::new();
    lab.write("dim/a.parquet", &data::docs(0, 10), 5);
    fs::write(lab.path("dim/b.parquet"), bytes).unwrap();
    let error = rows(&lab, "dim").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("b.parquet") && !error.ways().is_empty(), "{error}");
    fs::create_dir(lab.path("none")).unwrap();
    assert_eq!(rows(&lab, "none").await.unwrap_err().kind(), ErrorKind::Invalid);
}
