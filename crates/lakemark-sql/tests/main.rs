//! Tables of databases as sources: one binary, a module a database. PostgreSQL needs `LAKEMARK_TEST_POSTGRES`, the URL of
//! a database where tables can be made, and `PGPASSWORD`; without them its tests fail and say so.

#![allow(clippy::unwrap_used, reason = "a harness panics where it is used wrongly")]

#[path = "sql/harness.rs"]
mod harness;
#[path = "sql/postgres.rs"]
mod postgres;
#[path = "sql/sqlite.rs"]
mod sqlite;
