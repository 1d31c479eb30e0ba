//! One holder's work under one epoch: winning it, sealing, folding, committing, closing.

mod begin;
mod holder_watch;
mod lifecycle;
mod registry;
mod state;
mod worker;

pub use begin::{BeginOptions, Wait};
pub use registry::{AtomRegistry, CheckpointIdMap, TaskRead};
pub use state::{Committed, Recovered, Run};
pub use worker::Worker;
