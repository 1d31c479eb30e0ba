//! Tables of PostgreSQL and SQLite as sources: read exactly, as one look, with no password left behind.
//!
//! ```no_run
//! use lakemark::StorageOptions;
//! use lakemark_sql::{Database, SqlSource};
//!
//! # async fn example() -> lakemark::Result<()> {
//! let url = "postgres://reader@db.example/shop?sslmode=verify-full";
//! let docs = SqlSource::connect(Database::Postgres, url, "public.docs", &StorageOptions::default()).await?;
//! assert_eq!(docs.root().to_string(), "postgres://db.example:5432/shop/public.docs");
//! let table = docs.provider(); // a DataFusion table
//! # Ok(())
//! # }
//! ```
//!
//! A scan is one `SELECT` of the columns asked for, in one partition, streamed: what it returns is the table at one moment.
//! Filters are left to the engine. A column whose type has no exact equal is an error when the source is opened, and a
//! value that does not fit its column is an error when it is read; neither becomes a null.

mod batches;
mod name;
mod options;
mod postgres;
mod source;
mod sqlite;
mod table;

pub use source::{Database, SqlSource};
