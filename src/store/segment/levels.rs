//! Levels: a fold rewrites little, a history of any length stays in few segments.

use std::collections::BTreeMap;

use super::decode::decode;
use super::encode::encode;
use super::rows::SegmentData;
use crate::blocking::off_thread;
use crate::error::{Error, Result};
use crate::identity::{AttemptNonce, ManifestVersion};
use crate::store::envelope::digest;
use crate::store::manifest::{Manifest, SegmentRef};
use crate::store::medium::{Created, Medium};

/// Rows that level 0 holds at most; each further level holds [`RATIO`] times more.
const LEVEL_ROWS: u64 = 1_000;
/// How much more a level holds than the one before.
const RATIO: u64 = 8;

/// Segments of a manifest, by level.
#[derive(Debug)]
pub struct Levels;

impl Levels {
    /// Rows that `level` holds at most.
    pub fn capacity(level: u8) -> u64 {
        LEVEL_ROWS.saturating_mul(RATIO.saturating_pow(u32::from(level)))
    }

    /// Reads every segment of `manifest`, oldest first, and lets each act on those before it.
    ///
    /// # Errors
    /// [`Corrupt`](crate::ErrorKind::Corrupt) naming the segment that is missing or damaged: never an empty set (R81).
    pub async fn read(medium: &Medium, manifest: &Manifest) -> Result<SegmentData> {
        use futures::{StreamExt, TryStreamExt};
        let reads: Vec<_> = manifest.segments.iter().rev().map(|segment| read_one(medium, segment)).collect();
        let parts: Vec<SegmentData> = futures::stream::iter(reads).buffered(4).try_collect().await?;
        Ok(parts.into_iter().fold(SegmentData::default(), SegmentData::then))
    }
}

/// Writes `delta` as part of the levels of `old` (none: no segments yet), for manifest `version`. Returns all segments after it.
///
/// A level that would overflow is merged into the next one, so a row is rewritten O(log n) times over the store's life.
pub async fn flush(
    medium: &Medium,
    old: &[SegmentRef],
    delta: SegmentData,
    version: ManifestVersion,
) -> Result<Vec<SegmentRef>> {
    let mut levels: BTreeMap<u8, SegmentRef> = old.iter().map(|s| (s.level, s.clone())).collect();
    let mut carry = delta;
    let mut level = 0;
    loop {
        if let Some(older) = levels.remove(&level) {
            carry = read_one(medium, &older).await?.then(carry);
        }
        if carry.rows() <= Levels::capacity(level) {
            break;
        }
        level += 1;
    }
    carry.sort();
    let bytes = encode(&carry)?;
    let segment = SegmentRef {
        version,
        nonce: AttemptNonce::random(),
        level,
        bytes: bytes.len() as u64,
        digest: digest(&bytes),
        rows: carry.rows(),
    };
    match medium.create(segment.name(), bytes).await? {
        Created::Ours => {}
        Created::Taken(_) => {
            return Err(Error::corrupt(medium.place(segment.name()), "another object has the name of a new segment"));
        }
    }
    levels.insert(level, segment);
    Ok(levels.into_values().collect())
}

async fn read_one(medium: &Medium, segment: &SegmentRef) -> Result<SegmentData> {
    let place = medium.place(segment.name());
    let Some(bytes) = medium.get(segment.name()).await? else {
        return Err(Error::corrupt(&place, "a segment that the newest manifest names is missing"));
    };
    if digest(&bytes) != segment.digest {
        return Err(Error::corrupt(&place, "this segment is damaged: its checksum is not the one in the manifest"));
    }
    off_thread(move || decode(&place, bytes))
        .await
        .map_err(|e| Error::invalid("reading a segment was interrupted").caused_by(e))?
}
