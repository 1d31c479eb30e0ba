//! A run from plan to commit.

mod bless;
mod broadcast;
mod plan;
mod progress;
mod publisher;
mod run;
mod tasks;

pub use plan::{Plan, PlannedTasks};
pub(crate) use plan::{blank_report, plan_query};
pub use progress::{Progress, StopSignal};
pub(crate) use run::run_query;
