//! PostgreSQL: a real server, values as it has them, or an error.

use std::sync::atomic::{AtomicU32, Ordering};

use futures::StreamExt;
use lakemark::{ErrorKind, Result, Root};
use lakemark_sql::{Database, SqlSource};
use tokio_postgres::{Client, NoTls};

use crate::harness::{columns, lines, options, partitions, query, resident, session};

static SCHEMAS: AtomicU32 = AtomicU32::new(0);

/// A schema of its own on the server, dropped by the next run of the same process id.
struct Server {
    url: String,
    schema: String,
    client: Client,
}

impl Server {
    async fn with(sql: &str) -> Self {
        let url = std::env::var("LAKEMARK_TEST_POSTGRES").expect("LAKEMARK_TEST_POSTGRES; `cargo xtask test` sets it");
        let mut config: tokio_postgres::Config = url.parse().unwrap();
        config.password(std::env::var("PGPASSWORD").expect("PGPASSWORD; `cargo xtask test` sets it"));
        let (client, connection) = config.connect(NoTls).await.unwrap();
        tokio::spawn(connection);
        let schema = format!("t{}_{}", std::process::id(), SCHEMAS.fetch_add(1, Ordering::Relaxed));
        let start =
            format!("DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}; SET search_path = {schema};");
        client.batch_execute(&format!("{start}{sql}")).await.unwrap();
        Self { url, schema, client }
    }

    async fn open(&self, table: &str) -> Result<SqlSource> {
        SqlSource::connect(Database::Postgres, &self.url, &format!("{}.{table}", self.schema), &options(&[])).await
    }

    async fn query(&self, table: &str) -> Result<Vec<arrow_array::RecordBatch>, String> {
        query(&self.open(table).await.unwrap(), "SELECT * FROM t").await
    }
}

#[tokio::test]
async fn every_type_is_read_as_the_database_has_it() {
    let values: &[(&str, &str, &str, &str)] = &[
        ("bool", "true", "Boolean", "true"),
        ("int2", "-32768", "Int16", "-32768"),
        ("int4", "7", "Int32", "7"),
        ("int8", "9223372036854775807", "Int64", "9223372036854775807"),
        ("oid", "4294967295", "UInt32", "4294967295"),
        ("float4", "'NaN'", "Float32", "NaN"),
        ("float8", "0.1", "Float64", "0.1"),
        (
            "numeric(38, 10)",
            "-1234567890123456789012345678.0123456789",
            "Decimal128(38, 10)",
            "-1234567890123456789012345678.0123456789",
        ),
        (
            "numeric(60, 20)",
            "1234567890123456789012345678901234567890.5",
            "Decimal256(60, 20)",
            "1234567890123456789012345678901234567890.50000000000000000000",
        ),
        ("text", "E'it''s \\\\ \"q\"'", "Utf8", "it's \\ \"q\""),
        ("varchar(5)", "'äöü'", "Utf8", "äöü"),
        ("char(3)", "'a'", "Utf8", "a"),
        ("bytea", "'\\x00ff'", "Binary", "00ff"),
        ("uuid", "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "Utf8", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        ("date", "'0001-12-31 BC'", "Date32", "0000-12-31"),
        ("time", "'23:59:59.999999'", "Time64(µs)", "23:59:59.999999"),
        ("timestamp", "'1969-12-31 23:59:59.999999'", "Timestamp(µs)", "1969-12-31T23:59:59.999999"),
        ("timestamp(0)", "'9999-12-31'", "Timestamp(µs)", "9999-12-31T00:00:00"),
        ("timestamptz", "'2020-01-01 00:00+02'", "Timestamp(µs, \"UTC\")", "2019-12-31T22:00:00Z"),
        ("json", "'{\"b\": 1,  \"a\":2}'", "Utf8", "{\"b\": 1,  \"a\":2}"),
        ("jsonb", "'{\"b\":1,\"a\":2}'", "Utf8", "{\"a\": 2, \"b\": 1}"),
        ("inet", "'10.0.0.1/8'", "Utf8", "10.0.0.1/8"),
        ("mood", "'sad'", "Utf8", "sad"),
        ("price", "1.5", "Decimal128(6, 2)", "1.50"),
        ("nested", "2", "Decimal128(6, 2)", "2.00"),
        ("int4[]", "'{1,NULL,3}'", "List(Int32)", "[1, , 3]"),
        ("text[]", "'{a,\"b,c\"}'", "List(Utf8)", "[a, b,c]"),
        ("varchar(3)[]", "'{a}'", "List(Utf8)", "[a]"),
        ("uuid[]", "'{}'", "List(Utf8)", "[]"),
        ("mood[]", "'{ok}'", "List(Utf8)", "[ok]"),
        ("numeric(5,1)[]", "'{1.5}'", "List(Decimal128(5, 1))", "[1.5]"),
        ("timestamp[]", "'{1969-01-01}'", "List(Timestamp(µs))", "[1969-01-01T00:00:00]"),
    ];
    let types =
        "CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE DOMAIN price AS numeric(6, 2); CREATE DOMAIN nested AS price;";
    let declared: Vec<String> = values.iter().enumerate().map(|(n, (sql, ..))| format!("c{n} {sql}")).collect();
    let inserted: Vec<&str> = values.iter().map(|(_, value, ..)| *value).collect();
    let (declared, inserted) = (declared.join(", "), inserted.join(", "));
    let sql =
        format!("{types} CREATE TABLE v ({declared}); INSERT INTO v VALUES ({inserted}); INSERT INTO v DEFAULT VALUES");
    let server = Server::with(&sql).await;
    let source = server.open("v").await.unwrap();
    let wanted: Vec<String> = values.iter().enumerate().map(|(n, (_, _, arrow, _))| format!("c{n} {arrow}")).collect();
    assert_eq!(columns(&source), wanted);
    for (n, (sql, _, _, shown)) in values.iter().enumerate() {
        let got = lines(&source, &format!("SELECT c{n} FROM t")).await;
        assert_eq!(got, [*shown, ""], "{sql}");
    }
    assert_eq!(lines(&source, "SELECT octet_length(c11) FROM t WHERE c11 IS NOT NULL").await, ["3"], "padded");
    assert_eq!(partitions(&source).await, 1);
}

#[tokio::test]
async fn types_without_an_exact_equal_are_named_when_the_source_is_opened() {
    let server = Server::with(
        "CREATE TYPE pair AS (a int, b int);
         CREATE TABLE v (id int, n numeric, s numeric(2, 5), i interval, z timetz, p point, m money, r int4range, b bit(3), c pair, l numeric[], e numeric(99, 1));
         CREATE VIEW w AS SELECT id, n::numeric(38, 9) AS n, i::text AS i FROM v; INSERT INTO v (id, n, i) VALUES (1, 2.5, '1 day')",
    )
    .await;
    let error = server.open("v").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    for column in [
        "`n` (numeric)",
        "`s` (numeric(2,5))",
        "`i` (interval)",
        "`z` (time with time zone)",
        "`p` (point)",
        "`m` (money)",
        "`r` (int4range)",
        "`b` (bit(3))",
        "`l` (numeric[])",
        "`e` (numeric(99,1))",
    ] {
        assert!(error.what().contains(column), "{column}: {error}");
    }
    assert!(error.what().contains("`c` (") && !error.what().contains("`id`"), "{error}");
    assert_eq!(
        lines(&server.open("w").await.unwrap(), "SELECT * FROM t").await,
        ["1|2.500000000|1 day"],
        "as the error says"
    );
}

#[tokio::test]
async fn values_without_an_exact_equal_are_errors_that_name_their_column() {
    for (declared, value, why) in [
        ("numeric(5,2)", "'NaN'", "NaN"),
        ("date", "'infinity'", "infinite"),
        ("timestamp", "'-infinity'", "infinite"),
        ("timestamptz", "'infinity'", "infinite"),
        ("time", "'24:00:00'", "24:00:00"),
        ("int4[]", "'{{1,2},{3,4}}'", "2 dimensions"),
    ] {
        let server = Server::with(&format!("CREATE TABLE v (a {declared}); INSERT INTO v VALUES ({value})")).await;
        let error = server.query("v").await.unwrap_err();
        assert!(error.contains(why) && error.contains("column `a` ("), "{error}");
    }
}

#[tokio::test]
async fn names_are_what_the_database_has_whatever_is_in_them() {
    let server = Server::with(
        "CREATE TABLE \"Select a.\"\"b/..\" (\"Group\" int, \"q\"\"x\" text); INSERT INTO \"Select a.\"\"b/..\" VALUES (1, 'y');
         CREATE TABLE docs (id int); CREATE INDEX docs_by_id ON docs (id); CREATE TABLE nothing (); INSERT INTO nothing DEFAULT VALUES",
    )
    .await;
    let odd = server.open("\"Select a.\"\"b/..\"").await.unwrap();
    assert_eq!(lines(&odd, "SELECT \"q\"\"x\", \"Group\" FROM t").await, ["y|1"]);
    assert_eq!(Root::parse(&odd.root().to_string()).unwrap(), odd.root());
    let docs = server.open("docs").await.unwrap().root();
    assert_eq!(docs.scheme(), "postgres");
    assert!(docs.prefix().ends_with(&format!("/{}.docs", server.schema)), "{docs}");
    for missing in ["Docs", "doc"] {
        let error = server.open(missing).await.unwrap_err();
        assert!(
            error.kind() == ErrorKind::Invalid && error.ways()[0].contains(&format!("{}.docs", server.schema)),
            "{error}"
        );
    }
    assert_eq!(server.open("docs_by_id").await.unwrap_err().kind(), ErrorKind::Invalid, "an index is no table");
    assert_eq!(lines(&server.open("nothing").await.unwrap(), "SELECT count(*) FROM t").await, ["1"]);
}

#[tokio::test]
async fn a_password_is_shown_nowhere() {
    let server = Server::with("CREATE TABLE v (a int)").await;
    let table = format!("{}.v", server.schema);
    let open = |url: String, password: &'static str| {
        let table = table.clone();
        async move { SqlSource::connect(Database::Postgres, &url, &table, &options(&[("password", password)])).await }
    };
    let password = std::env::var("PGPASSWORD").unwrap();
    let source = server.open("v").await.unwrap();
    let plan = session(&source).table("t").await.unwrap().create_physical_plan().await.unwrap();
    for shown in [format!("{source:?} {:?} {plan:?}", source.provider()), source.root().to_string()] {
        assert!(!shown.contains(&password), "{shown}");
    }
    assert!(!source.root().to_string().contains('@'));
    let wrong = open(server.url.clone(), "hush").await.unwrap_err();
    assert!(wrong.kind() == ErrorKind::Invalid && wrong.what().contains("does not let the user in"), "{wrong}");
    let refused = open("postgres://me@127.0.0.1:1/d".into(), "hush").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    for error in [wrong, refused] {
        assert!(!format!("{error} {error:?}").contains("hush"));
    }
}

#[tokio::test]
async fn tls_is_as_the_mode_says() {
    let server = Server::with("CREATE TABLE v (a int); INSERT INTO v VALUES (1)").await;
    let table = format!("{}.v", server.schema);
    let base = server.url.split('?').next().unwrap().to_owned();
    let open = |settings: String| {
        let (url, table) = (format!("{base}?{settings}"), table.clone());
        async move { SqlSource::connect(Database::Postgres, &url, &table, &options(&[])).await }
    };
    assert!(open("sslmode=disable".into()).await.is_ok() && open("sslmode=prefer".into()).await.is_ok());
    let Ok(certificate) = std::env::var("LAKEMARK_TEST_POSTGRES_CERTIFICATE") else {
        assert!(open("sslmode=require".into()).await.unwrap_err().what().contains("no TLS"));
        return;
    };
    assert!(open("sslmode=require".into()).await.is_ok());
    open(format!("sslmode=verify-full&sslrootcert={certificate}")).await.unwrap();
    let unknown = open("sslmode=verify-full".into()).await.unwrap_err();
    assert!(unknown.kind() == ErrorKind::Invalid && unknown.what().contains("not accepted"), "{unknown}");
}

#[tokio::test]
async fn a_scan_sees_one_moment_and_a_changed_table_is_an_error() {
    let server =
        Server::with("CREATE TABLE v (a int, b text); INSERT INTO v SELECT i, 'x' FROM generate_series(1, 200000) i")
            .await;
    let source = server.open("v").await.unwrap();
    let mut rows = session(&source).table("t").await.unwrap().execute_stream().await.unwrap();
    let mut seen = rows.next().await.unwrap().unwrap().num_rows();
    server
        .client
        .batch_execute("INSERT INTO v SELECT i, 'y' FROM generate_series(1, 1000) i; DELETE FROM v WHERE a > 100000")
        .await
        .unwrap();
    while let Some(batch) = rows.next().await {
        seen += batch.unwrap().num_rows();
    }
    assert_eq!(seen, 200_000);
    assert_eq!(lines(&source, "SELECT count(*) FROM t").await, ["101000"], "another execution looks again");
    assert_eq!(lines(&source, "SELECT a FROM t WHERE a = 100000 LIMIT 1").await, ["100000"]);
    for change in ["ALTER TABLE v ALTER a TYPE text", "ALTER TABLE v DROP a", "DROP TABLE v"] {
        server.client.batch_execute(change).await.unwrap();
        assert!(query(&source, "SELECT a FROM t").await.unwrap_err().contains("have changed"), "{change}");
    }
}

#[tokio::test]
async fn a_connection_that_ends_in_the_middle_is_an_error() {
    let server = Server::with(
        "CREATE TABLE v (a int, b text); INSERT INTO v SELECT i, repeat('x', 100) FROM generate_series(1, 500000) i",
    )
    .await;
    let source = server.open("v").await.unwrap();
    let mut rows = session(&source).table("t").await.unwrap().execute_stream().await.unwrap();
    rows.next().await.unwrap().unwrap();
    let end =
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'lakemark' AND query LIKE $1";
    let ended = server.client.query(end, &[&format!("%{}%", server.schema)]).await.unwrap();
    assert!(!ended.is_empty(), "the scan was under way");
    let mut last = Ok(());
    while let Some(batch) = rows.next().await {
        last = batch.map(drop);
        if last.is_err() {
            break;
        }
    }
    let error = last.expect_err("the rest of the rows did not come");
    assert_eq!(lakemark::Error::find(&error).unwrap().kind(), ErrorKind::Unavailable, "{error}");
}

#[tokio::test]
async fn a_large_table_streams_and_a_scan_that_is_dropped_ends() {
    let server = Server::with(
        "CREATE TABLE v (a int, b text); INSERT INTO v SELECT i, repeat('x', 200) FROM generate_series(1, 1000000) i",
    )
    .await;
    let source = server.open("v").await.unwrap();
    let mut rows = session(&source).table("t").await.unwrap().execute_stream().await.unwrap();
    let (before, mut most, mut seen) = (resident(), 0, 0);
    while let Some(batch) = rows.next().await {
        seen += batch.unwrap().num_rows();
        most = most.max(resident());
    }
    println!("postgres: {seen} rows, {} MB more memory", most.saturating_sub(before) >> 20);
    assert!(seen == 1_000_000 && most.saturating_sub(before) < 128 << 20);

    let mut rows = session(&source).table("t").await.unwrap().execute_stream().await.unwrap();
    rows.next().await.unwrap().unwrap();
    drop(rows);
    let running = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'lakemark' AND query LIKE $1";
    for _ in 0..100 {
        let left: i64 = server.client.query_one(running, &[&format!("%{}%", server.schema)]).await.unwrap().get(0);
        if left == 0 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("the server still sends");
}
