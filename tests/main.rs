//! Scenarios of the core: the store, its epochs, commits, planning, and what faults and power cuts do to them.

#![allow(clippy::unwrap_used)]

/// Counts for the fuzz corpus what its replay takes.
#[global_allocator]
static COUNTING: lakemark::fuzzing::Counting = lakemark::fuzzing::Counting;

#[path = "core/backends.rs"]
mod backends;
#[path = "core/commits.rs"]
mod commits;
#[path = "core/contract.rs"]
mod contract;
#[path = "core/crash.rs"]
mod crash;
#[path = "core/damage.rs"]
mod damage;
#[path = "core/epochs.rs"]
mod epochs;
#[path = "core/example.rs"]
mod example;
#[path = "core/faults.rs"]
mod faults;
#[path = "core/fuzz_corpus.rs"]
mod fuzz_corpus;
#[path = "core/gcs.rs"]
mod gcs;
#[path = "core/golden.rs"]
mod golden;
#[path = "core/growth.rs"]
mod growth;
#[path = "core/harness.rs"]
mod harness;
#[path = "core/lake.rs"]
mod lake;
#[path = "core/model.rs"]
mod model;
#[path = "core/operate.rs"]
mod operate;
#[path = "core/power_loss.rs"]
mod power_loss;
#[path = "core/pruning.rs"]
mod pruning;
#[path = "core/rows.rs"]
mod rows;
#[path = "core/source_plan.rs"]
mod source_plan;
#[path = "core/tables.rs"]
mod tables;
#[path = "core/tasks.rs"]
mod tasks;
