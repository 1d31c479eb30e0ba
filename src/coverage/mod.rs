//! What of a file version is done or to do, as ranges: never one entry a row group.

mod group_rows;
mod ranges;
mod spans;

pub use group_rows::GroupRows;
pub use ranges::RangeSet;
pub use spans::Coverage;
