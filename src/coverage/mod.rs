//! What of a file version is done or to do, as ranges: never one entry a row group.

mod ranges;
mod spans;

pub use ranges::RangeSet;
pub use spans::Coverage;
