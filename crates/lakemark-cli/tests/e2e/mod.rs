//! Harness first, scenarios behind.

mod lake;
mod output;
mod process;
mod readers;
mod rng;
mod scene;

mod bad_input;
mod bad_store;
mod command;
mod crash;
mod current;
mod formats;
mod golden;
mod identity;
mod idle;
mod kills;
mod operate;
mod partitions;
mod remote;
mod rows;
mod schema_mode;
mod sources;
mod stops;
mod tables;
mod tasks;
