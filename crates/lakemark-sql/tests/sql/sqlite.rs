//! SQLite: values as stored, or an error.

use futures::StreamExt;
use lakemark::{ErrorKind, Result, Root};
use lakemark_sql::{Database, SqlSource};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::harness::{columns, lines, options, partitions, query, resident, session};

/// A file with what `sql` makes.
fn file(sql: &str) -> (TempDir, String, Connection) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a b.db");
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch(sql).unwrap();
    (folder, path.to_str().unwrap().to_owned(), connection)
}

async fn open(url: &str, table: &str) -> Result<SqlSource> {
    SqlSource::connect(Database::Sqlite, url, table, &options(&[])).await
}

#[tokio::test]
async fn every_kind_of_value_is_read_as_it_is_stored() {
    let (_folder, path, _connection) = file(
        "CREATE TABLE v (i INTEGER, b BOOLEAN, r DOUBLE, t VARCHAR(9), x BLOB, d DATETIME, g INT AS (i + 1) STORED);
         INSERT INTO v VALUES (-9223372036854775808, 1, 2, 'it''s' || char(0) || 'x', x'00ff', '2020-01-01');
         INSERT INTO v VALUES (NULL, NULL, NULL, NULL, NULL, NULL);",
    );
    let source = open(&path, "v").await.unwrap();
    let types = ["i Int64", "b Boolean", "r Float64", "t Utf8", "x Binary", "d Utf8", "g Int64"];
    assert_eq!(columns(&source), types);
    let sql = "SELECT i, b, r, octet_length(t), strpos(t, 'x'), x, d FROM t";
    assert_eq!(lines(&source, sql).await, ["-9223372036854775808|true|2.0|6|6|00ff|2020-01-01", "||||||"]);
    assert_eq!(partitions(&source).await, 1);
}

#[tokio::test]
async fn a_value_that_breaks_the_word_of_its_column_is_an_error() {
    for (declared, value, why) in [
        ("INTEGER", "'seven'", "stored as text"),
        ("TEXT", "x'00'", "stored as blob"),
        ("TEXT", "CAST(x'ff' AS TEXT)", "not UTF-8"),
        ("BOOLEAN", "2", "other than 0 and 1"),
        ("DATE", "2020", "stored as integer"),
        ("REAL", "'x'", "stored as text"),
    ] {
        let (_folder, path, _connection) =
            file(&format!("CREATE TABLE v (a {declared}); INSERT INTO v VALUES ({value})"));
        let error = query(&open(&path, "v").await.unwrap(), "SELECT * FROM t").await.unwrap_err();
        assert!(error.contains(why) && error.contains(&format!("`a` ({declared})")), "{error}");
    }
}

#[tokio::test]
async fn columns_without_a_kind_are_named_when_the_source_is_opened() {
    let (_folder, path, _connection) = file(
        "CREATE TABLE v (id INTEGER, price DECIMAL(10,2), anything);
         CREATE VIEW w AS SELECT id, CAST(price AS REAL) AS price, CAST(anything AS TEXT) AS anything FROM v;
         INSERT INTO v VALUES (1, 2, 3)",
    );
    let error = open(&path, "v").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.what().contains("`price` (DECIMAL(10,2)), `anything` (no type)"), "{error}");
    assert_eq!(lines(&open(&path, "w").await.unwrap(), "SELECT * FROM t").await, ["1|2.0|3"], "as the error says");
}

#[tokio::test]
async fn names_are_what_the_file_has_whatever_is_in_them() {
    let (_folder, path, _connection) = file(
        "CREATE TABLE \"Select a.\"\"b/..\" (\"Group\" INT, \"q\"\"x\" TEXT); INSERT INTO \"Select a.\"\"b/..\" VALUES (1, 'y');
         CREATE TABLE Docs (id INT)",
    );
    let odd = open(&path, "\"Select a.\"\"b/..\"").await.unwrap();
    assert_eq!(lines(&odd, "SELECT \"q\"\"x\", \"Group\" FROM t").await, ["y|1"]);
    assert_eq!(Root::parse(&odd.root().to_string()).unwrap(), odd.root());
    let docs = open(&format!("sqlite:{path}"), "main.dOCS").await.unwrap();
    let real = std::fs::canonicalize(&path).unwrap();
    assert_eq!(docs.root(), Root::parse(real.to_str().unwrap()).unwrap().join("Docs"));
    assert_eq!(open(&format!("file://{}", path.replace(' ', "%20")), "Docs").await.unwrap().root(), docs.root());
    let error = open(&path, "Doc").await.unwrap_err();
    assert!(error.kind() == ErrorKind::Invalid && error.ways()[0].contains(": Docs,"), "{error}");
}

#[tokio::test]
async fn a_file_that_is_none_is_an_error_and_is_not_made() {
    let (folder, path, _connection) = file("CREATE TABLE v (a INT)");
    let none = folder.path().join("none.db");
    let text = folder.path().join("text.db");
    std::fs::write(&text, "no database at all, but long enough to look like one".repeat(99)).unwrap();
    for bad in [none.to_str().unwrap(), text.to_str().unwrap(), folder.path().to_str().unwrap(), ":memory:", "s3://b/x"]
    {
        assert_eq!(open(bad, "v").await.unwrap_err().kind(), ErrorKind::Invalid, "{bad}");
    }
    assert!(!none.exists());
    let error = SqlSource::connect(Database::Sqlite, &path, "v", &options(&[("password", "hush")])).await.unwrap_err();
    assert!(!format!("{error:?}").contains("hush") && error.what().contains("`password`"));
}

#[tokio::test]
async fn no_columns_are_rows_nevertheless_and_filters_and_limits_hold() {
    let (_folder, path, _connection) = file(
        "CREATE TABLE v (a INT, b TEXT);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1050) INSERT INTO v SELECT i, 'x' FROM n",
    );
    let source = open(&path, "v").await.unwrap();
    assert_eq!(lines(&source, "SELECT count(*) FROM t").await, ["1050"]);
    assert_eq!(lines(&source, "SELECT a FROM t WHERE a > 1048").await, ["1049", "1050"]);
    assert_eq!(lines(&source, "SELECT 1 FROM t LIMIT 2").await, ["1", "1"]);
    let batches = query(&source, "SELECT * FROM t").await.unwrap();
    assert!(batches.len() >= 10, "the session's batch size counts");
}

#[tokio::test]
async fn a_scan_sees_one_moment_and_a_changed_table_is_an_error() {
    let (_folder, path, connection) = file("PRAGMA journal_mode = WAL; CREATE TABLE v (a INT)");
    let insert =
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000) INSERT INTO v SELECT i FROM n";
    connection.execute_batch(insert).unwrap();
    let source = open(&path, "v").await.unwrap();
    let mut rows = session(&source).table("t").await.unwrap().execute_stream().await.unwrap();
    let mut seen = rows.next().await.unwrap().unwrap().num_rows();
    connection.execute_batch(insert).unwrap();
    while let Some(batch) = rows.next().await {
        seen += batch.unwrap().num_rows();
    }
    assert_eq!(seen, 5000);
    connection.execute_batch("ALTER TABLE v ADD COLUMN b INT").unwrap();
    assert!(query(&source, "SELECT a FROM t").await.unwrap_err().contains("have changed"));
}

#[tokio::test]
async fn a_large_table_streams() {
    let (_folder, path, _connection) = file(
        "CREATE TABLE v (a INT, b TEXT); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000)
         INSERT INTO v SELECT i, printf('%0200d', i) FROM n",
    );
    let source = open(&path, "v").await.unwrap();
    let mut rows = session(&source).table("t").await.unwrap().execute_stream().await.unwrap();
    let (before, mut most, mut seen) = (resident(), 0, 0);
    while let Some(batch) = rows.next().await {
        seen += batch.unwrap().num_rows();
        most = most.max(resident());
    }
    println!("sqlite: {seen} rows, {} MB more memory", most.saturating_sub(before) >> 20);
    assert!(seen == 1_000_000 && most.saturating_sub(before) < 128 << 20);
}
