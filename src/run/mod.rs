//! One holder's work under one epoch: winning it, sealing, folding, committing, closing.

mod begin;
mod commit;
mod decide;
mod holder_watch;
mod lifecycle;
mod registry;
mod state;
mod worker;

pub use begin::{BeginOptions, Wait};
pub use commit::{Committed, Recovered};
pub use decide::Decided;
pub use registry::{AtomRegistry, CheckpointIdMap, TaskRead};
pub(crate) use state::Change;
pub use state::Run;
pub use worker::{SealRows, Worker};
