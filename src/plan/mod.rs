//! Planning: which files have something left to do, which tasks do it, and the two layers of pruning for planners of others.

mod atom_filter;
mod policy;
mod prune;
mod scan_part;
mod source_plan;
mod superseded;
mod table;
mod tasks;

pub use atom_filter::AtomFilter;
pub use policy::{MaxReplaced, OnChange, OnDelete, OnMoved, SourcePolicy};
pub use prune::{PruneCounts, ScanTask, SchedulerHook};
pub use scan_part::{OtherFormat, ScanPart};
pub use source_plan::{KeyReport, PlannedFile, Reason, SourcePlan, SourceReport, plan_source};
pub(crate) use superseded::Leaving;
pub use superseded::{Successor, Superseded};
pub(crate) use table::blessable;
pub use table::{PlannedTable, TableReached, plan_table};
pub use tasks::{FormedTasks, Task, TaskPart, TaskSizing, form_tasks};
