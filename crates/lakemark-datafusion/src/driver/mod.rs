//! A run from plan to commit.

mod bless;
mod broadcast;
mod hand_out;
mod plan;
mod progress;
mod publisher;
mod run;
mod tasks;

pub(crate) use hand_out::hand_out;
pub use plan::{Plan, PlannedTasks};
pub(crate) use plan::{blank_report, plan_query};
pub use progress::{Progress, StopSignal};
pub(crate) use run::run_query;
