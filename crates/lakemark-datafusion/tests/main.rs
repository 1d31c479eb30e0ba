//! The plug-in against plain DataFusion: one binary, a module a subject.

#![allow(clippy::unwrap_used, reason = "a harness panics where it is used wrongly")]

#[path = "plugin/acks.rs"]
mod acks;
#[path = "plugin/changes.rs"]
mod changes;
#[path = "plugin/compressed.rs"]
mod compressed;
#[path = "plugin/lookups.rs"]
mod lookups;
#[path = "plugin/output.rs"]
mod output;
#[path = "plugin/power_loss.rs"]
mod power_loss;
#[path = "plugin/requests.rs"]
mod requests;
#[path = "plugin/rows.rs"]
mod rows;
#[path = "plugin/scan.rs"]
mod scan;
#[path = "plugin/schemas.rs"]
mod schemas;
#[path = "plugin/sql.rs"]
mod sql;
#[path = "plugin/support/mod.rs"]
mod support;
#[path = "plugin/tasks.rs"]
mod tasks;
#[path = "plugin/udfs.rs"]
mod udfs;
#[path = "plugin/whole.rs"]
mod whole;
#[path = "plugin/wrapped.rs"]
mod wrapped;
