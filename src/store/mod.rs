//! The checkpoint store: a chain of manifests, seals, segments and commit objects on any object store.
//!
//! In layers: `Medium` (objects by name), `Chain` (versions), [`ObjectCheckpointStore`] (state, read-only), and, once an
//! epoch is won, [`Run`](crate::Run).

mod bounded;
pub(crate) mod chain;
pub(crate) mod checkpoint;
pub(crate) mod commit_object;
#[cfg(feature = "testing")]
pub mod contract;
pub(crate) mod envelope;
pub(crate) mod holder;
pub(crate) mod invariants;
pub(crate) mod keys;
mod live;
pub(crate) mod manifest;
pub(crate) mod medium;
mod memory;
pub(crate) mod names;
mod object;
pub(crate) mod seal;
pub(crate) mod segment;
pub(crate) mod staging;
pub(crate) mod transition;
mod verify;

pub use checkpoint::{Checkpoint, CheckpointState, CheckpointStore, SealOutcome};
pub use holder::{Holder, Lease};
pub use keys::KeyRows;
pub use live::{Live, LiveVersion};
pub use manifest::{
    Binding, CommitState, Head, KeySegmentRef, Manifest, OpenIntent, SegmentRef, SourceSettings, TableState,
    TransitionKind,
};
pub use medium::{Patience, StoreRequests};
pub use memory::MemoryCheckpointStore;
pub(crate) use names::parse_output_name;
pub use names::{ObjectName, output_name};
pub(crate) use object::Counted;
pub use object::{Expected, KnownBySource, ObjectCheckpointStore, View};
pub use seal::{Counts, OutputFile, Seal, SealKind, SealedFile, SealedKeys, Upload};
pub use segment::{CheckpointRow, Decision, Event, EventRow, FileUpdate, ForgottenFile};
pub use transition::{check_settings, check_source};
pub use verify::{Fault, Verified};
