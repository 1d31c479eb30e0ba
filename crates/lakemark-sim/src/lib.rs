//! The real core of lakemark on one seed.
//!
//! Drivers and workers run the core's own planning, epochs, seals, folds and commits against a bucket in memory. Time is
//! virtual, requests are lost, late and torn, processes are killed and stopped, files change under the readers, and an
//! auditor checks the law: **the committed output equals the pipeline applied to the lake, each atom version exactly
//! once**. Everything random comes from the seed, so a failing seed fails again.
//!
//! ```
//! let outcome = lakemark_sim::simulate(1, None, false);
//! assert!(outcome.complaints.is_empty(), "{:?}", outcome.complaints);
//! assert_eq!(outcome.digest, lakemark_sim::simulate(1, None, false).digest);
//! ```
//!
//! `docs/simulation.md` says what is simulated, how to run it, and what it cannot see.

mod auditor;
mod chance;
mod driver;
mod handle;
mod lake;
mod objects;
mod operator;
mod scenario;
mod simulation;
mod site;
mod situations;
mod tasks;
mod trace;
mod variants;
mod watch;
mod worker;
mod world;

pub use simulation::{Outcome, simulate};
pub use situations::Situation;
pub use variants::Variant;
