//! Checkpoints for data-lake pipelines: a re-run does only what is not done, and the output is exact.
//!
//! lakemark is a plug-in for scan planners, not an engine. A planner that has scan tasks asks
//! [`SchedulerHook::prune`] which of them are done; a worker checks single atoms with [`AtomFilter`], and seals what it
//! finished through [`CheckpointStore`]; a driver commits it to a [`Sink`]. The store remembers what went in (atoms of
//! file versions) and what came out (output files), on any object store with create-if-absent.
//!
//! The order of a run:
//!
//! 1. [`Lake::list`] the source, [`ObjectCheckpointStore::read`] the store, [`plan_source`]: what is left to do.
//! 2. Nothing? Then nothing is written. Else [`ObjectCheckpointStore::begin`] wins an epoch: a [`Run`].
//! 3. For each task: [`Worker::guard`], read pinned to the planned versions, write output under attempt-unique names,
//!    make it durable, [`CheckpointStore::checkpoint`].
//! 4. [`Run::commit`], [`Run::close`].
//!
//! `examples/custom_planner.rs` does this with a planner of forty lines; the crate `lakemark-datafusion` does it for
//! Apache DataFusion. The protocol and its invariants I1-I10 are in `docs/protocol.md`.

#![warn(clippy::disallowed_methods)]

mod blocking;
mod coverage;
pub mod disk;
mod error;
#[cfg(feature = "testing")]
pub mod faults;
#[cfg(feature = "testing")]
pub mod fuzzing;
mod identity;
#[cfg(feature = "testing")]
pub mod injected;
mod keys;
mod operate;
mod plan;
mod run;
mod sink;
mod source;
pub mod steps;
mod storage;
pub mod store;
mod thrift;
pub mod time;

pub use coverage::{Coverage, GroupRows, RangeSet};
pub use error::{Error, ErrorKind, Result};
pub use identity::{
    AtomKey, AttemptNonce, CheckpointId, Epoch, Evidence, FileVersion, IMMUTABLE, InputId, ManifestVersion, Root,
    Sameness, StoreId, TableFile, TablePosition, TableStep,
};
pub use keys::*;
pub use operate::{
    Blessing, ForgetPlan, Forgotten, ForgottenRows, Garbage, Lost, Rebase, Repair, Selection, bless_plan,
    bless_table_plan,
};
pub use plan::*;
pub use run::{
    AtomRegistry, BeginOptions, CheckpointIdMap, Committed, Decided, Recovered, Run, SealRows, TaskRead, Wait, Worker,
};
pub use sink::*;
pub use source::*;
pub use storage::{Bucket, StorageOptions};
pub use store::{
    Binding, Checkpoint, CheckpointState, CheckpointStore, Counts, Expected, FileUpdate, KeyRows, KnownBySource, Lease,
    Live, LiveVersion, MemoryCheckpointStore, ObjectCheckpointStore, OutputFile, Seal, SealKind, SealOutcome,
    SealedFile, SealedKeys, SourceSettings, StoreRequests, TableState, Upload, View, output_name,
};

/// What the guide shows compiles.
#[cfg(doctest)]
mod shown {
    #[doc = include_str!("../docs/guide/custom-planner.md")]
    struct CustomPlannerGuide;
}
