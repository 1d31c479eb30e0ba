//! Segments: folded seals and events as sorted rows, in levels, each an immutable Parquet object.

mod codec;
mod levels;
mod rows;

pub(super) use codec::decode as decode_segment;
pub use levels::{Levels, flush};
pub(super) use rows::act_on;
pub use rows::{CheckpointRow, Decision, Event, EventRow, FileRow, FileUpdate, SegmentData};
