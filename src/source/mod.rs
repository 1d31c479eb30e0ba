//! A tracked input: what is in it now, and reads that give the planned version or fail.

mod cache;
mod counters;
mod disk;
mod evidence;
mod footer;
mod lake;
mod listing;
mod many_groups;
mod objects;
mod pinned;
mod ranges;
mod select;
mod table;

#[cfg(feature = "testing")]
pub(crate) use footer::decode_alone as decode_footer;

#[cfg(test)]
mod tests;

pub use counters::{SourceCounters, SourceRequests};
pub use evidence::{ContentDigest, FileRead};
pub use footer::{Footer, FooterRead};
pub use lake::Lake;
pub use listing::{Listing, Unusable, unsettled};
pub use objects::object_version;
pub use pinned::PinnedReader;
pub use select::{Pattern, Select};
pub use table::{SourceTable, TableHistory, TableSnapshot};
