//! Iceberg tables as destinations: one binary, a module a subject. What other readers and writers see and do needs
//! `LAKEMARK_READERS_PYTHON`, a Python with `pyiceberg`, `duckdb` and `pyarrow`.

#![allow(clippy::unwrap_used, reason = "a harness panics where it is used wrongly")]

#[path = "iceberg/catalogs.rs"]
mod catalogs;
#[path = "iceberg/contract.rs"]
mod contract;
#[path = "iceberg/deaths.rs"]
mod deaths;
#[path = "iceberg/fits.rs"]
mod fits;
#[path = "iceberg/partitions.rs"]
mod partitions;
#[path = "iceberg/readers.rs"]
mod readers;
#[path = "iceberg/rest.rs"]
mod rest;
#[path = "iceberg/schema_mode.rs"]
mod schema_mode;
#[path = "iceberg/statistics.rs"]
mod statistics;
#[path = "iceberg/subject.rs"]
mod subject;
#[path = "iceberg/writer.rs"]
mod writer;
#[path = "iceberg/writers.rs"]
mod writers;
