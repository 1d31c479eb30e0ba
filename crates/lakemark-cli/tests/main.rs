//! End-to-end tests of the `lakemark` command: the real process, killed, stopped, starved and fed bad input.
//!
//! What was committed is compared with a reference that the tests compute themselves from the rows they put into the lake,
//! by a Parquet reader of their own after every step, and by DuckDB, Polars and pyarrow at the end of each scenario. Those
//! need `LAKEMARK_READERS_PYTHON`, which `cargo xtask test` sets.

#![allow(clippy::unwrap_used)]

mod e2e;
