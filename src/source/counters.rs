//! What a source was asked for.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// Requests to one source, counted by all clones of its [`Lake`](super::Lake).
///
/// On a disk a directory read counts as a list, one call for a footer or for data as a get whatever its ranges, and an
/// explicit question for one file as a head; what a listing asks about its entries is part of the listing. On an object
/// store each request counts once, as it is sent; the pages of one listing are one list.
#[derive(Debug, Default)]
pub struct SourceCounters {
    list: AtomicU64,
    head: AtomicU64,
    get: AtomicU64,
    bytes: AtomicU64,
}

/// A snapshot of [`SourceCounters`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SourceRequests {
    /// Listings.
    pub list: u64,
    /// Questions for the version of one file.
    pub head: u64,
    /// Reads.
    pub get: u64,
    /// Bytes read, footers and gaps between near ranges included.
    pub bytes: u64,
}

impl SourceCounters {
    /// The counts so far.
    pub fn snapshot(&self) -> SourceRequests {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SourceRequests { list: of(&self.list), head: of(&self.head), get: of(&self.get), bytes: of(&self.bytes) }
    }

    /// Counts one listing; of a source that others list, they do.
    pub fn listed(&self) {
        self.list.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn headed(&self) {
        self.head.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one read; of what others read, they do.
    pub fn got(&self) {
        self.get.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}
