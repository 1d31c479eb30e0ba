//! Delta tables as destinations: one binary, a module a subject. What other readers and writers see and do needs
//! `LAKEMARK_READERS_PYTHON`, a Python with `deltalake`, `duckdb` and `pyarrow`.

#![allow(clippy::unwrap_used, reason = "a harness panics where it is used wrongly")]

#[path = "delta/checkpoints.rs"]
mod checkpoints;
#[path = "delta/contract.rs"]
mod contract;
#[path = "delta/deaths.rs"]
mod deaths;
#[path = "delta/fits.rs"]
mod fits;
#[path = "delta/partitions.rs"]
mod partitions;
#[path = "delta/readers.rs"]
mod readers;
#[path = "delta/schema_mode.rs"]
mod schema_mode;
#[path = "delta/statistics.rs"]
mod statistics;
#[path = "delta/strays.rs"]
mod strays;
#[path = "delta/subject.rs"]
mod subject;
#[path = "delta/writer.rs"]
mod writer;
#[path = "delta/writers.rs"]
mod writers;
