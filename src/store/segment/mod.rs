//! Segments: folded seals and events as sorted rows, in levels, each an immutable Parquet object.

mod decode;
mod encode;
mod levels;
mod rows;
#[cfg(test)]
mod tests;

pub(crate) use decode::decode as decode_segment;
#[cfg(feature = "testing")]
pub(crate) use encode::encode as encode_segment;
pub use levels::{Levels, flush};
pub(super) use rows::act_on;
pub use rows::{CheckpointRow, Decision, Event, EventRow, FileRow, FileUpdate, ForgottenFile, SegmentData};
