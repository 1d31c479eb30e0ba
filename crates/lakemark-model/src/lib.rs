//! The protocol of the store as a model in which every interleaving within small bounds is tried.
//!
//! The model is written from the design, not from the code: `docs/model.md` maps its steps to functions. It is plain data
//! and pure steps, each one request to the store or to the sink, so that a checker can put any other actor's step between
//! two of them. Rules of the protocol can be taken away one by one to show which property they keep.
//!
//! - [`Bounds`] says how many actors and faults there are, [`Rules`] which rules are followed.
//! - [`World`] is a state: objects, sink, and the memory of each process.
//! - [`Protocol`] is the model; [`properties`] says what must hold.

mod attempt;
mod bounds;
mod collector;
mod model;
mod monitor;
mod objects;
mod process;
pub mod properties;
mod reached;
mod recovery;
mod rules;
mod sink;
mod store;
mod tell;
mod words;
mod world;

pub use attempt::WorkerStep;
pub use bounds::{Bounds, SinkKind};
pub use model::{Action, Protocol};
pub use process::Choice;
pub use rules::{Rule, Rules};
pub use tell::tell;
pub use world::{Setting, World};
