//! Key segments: folds rewrite little, and many seals' keys are in few objects.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};

use super::object::{decode_keys, encode_keys, read_fingerprints};
use super::rows::KeyRows;
use crate::blocking::off_thread;
use crate::error::{Error, Result};
use crate::identity::{AttemptNonce, CheckpointId, ManifestVersion};
use crate::keys::{KeySet, KeySetBuilder};
use crate::store::envelope::digest;
use crate::store::manifest::KeySegmentRef;
use crate::store::medium::{Created, Medium};

/// A segment is merged into a newer one that has at least this part of its keys.
const RATIO: u64 = 8;
/// A segment of so many bytes is not merged any more: it bounds the memory of a fold.
const FULL: u64 = 64 << 20;
/// Keys with so many bytes of values are merged with no more.
const TEXT: usize = 256 << 20;
/// Segments read at a time.
const READS: usize = 4;

/// Writes `delta`, keys by source, beside the key segments `old`, for manifest `version`. Returns all of them after it, oldest
/// first. What is merged loses the keys of checkpoints that are `dead`.
pub(crate) async fn flush_keys(
    medium: &Medium,
    old: &[KeySegmentRef],
    delta: BTreeMap<Arc<str>, Vec<KeyRows>>,
    version: ManifestVersion,
    dead: &HashSet<CheckpointId>,
) -> Result<Vec<KeySegmentRef>> {
    let mut segments = old.to_vec();
    for (source, parts) in delta {
        let mut carry = KeyRows::default();
        for part in parts {
            carry = carry.then(part.without(dead)?)?;
        }
        if carry.is_empty() {
            continue;
        }
        loop {
            let newest = segments.iter().rposition(|segment| segment.source == source);
            let merged = newest.filter(|at| {
                let segment = &segments[*at];
                let small = segment.bytes < FULL && carry.text_bytes() < TEXT;
                small && segment.keys <= RATIO.saturating_mul(carry.len() as u64)
            });
            let Some(at) = merged else { break };
            let older = segments.remove(at);
            let (place, bytes) = read_segment(medium, &older).await?;
            carry = decode_keys(&place, bytes)?.without(dead)?.then(carry)?;
        }
        let encode = move || {
            carry.sort()?;
            Ok::<_, Error>((carry.len() as u64, encode_keys(&carry)?))
        };
        let (keys, bytes) = off_thread(encode).await.map_err(interrupted)??;
        let nonce = AttemptNonce::random();
        let segment = KeySegmentRef { source, version, nonce, bytes: bytes.len() as u64, digest: digest(&bytes), keys };
        match medium.create(segment.name(), bytes).await? {
            Created::Ours => segments.push(segment),
            Created::Taken(_) => {
                let place = medium.place(segment.name());
                return Err(Error::corrupt(place, "another object has the name of a new segment"));
            }
        }
    }
    Ok(segments)
}

/// All keys in `segments` that no `dead` checkpoint covers, as one set; and how many of them are in it more than once.
///
/// # Errors
/// [`Corrupt`](crate::ErrorKind::Corrupt) naming the segment that is missing or damaged: never an empty set (R81).
pub(crate) async fn load_keys(
    medium: &Medium,
    segments: Vec<KeySegmentRef>,
    dead: &HashSet<CheckpointId>,
    memory: u64,
    folder: &Path,
) -> Result<(KeySet, u64)> {
    let expected = segments.iter().map(|segment| segment.keys).sum();
    let mut builder = KeySetBuilder::new(expected, memory, folder)?;
    let reads: Vec<_> = segments.iter().map(|segment| read_segment(medium, segment)).collect();
    let mut reads = futures::stream::iter(reads).buffered(READS);
    let dead = Arc::new(dead.clone());
    let mut found = 0;
    while let Some((place, bytes)) = reads.try_next().await? {
        let dead = Arc::clone(&dead);
        let decode = move || {
            let is_dead = |id| dead.contains(&id);
            let is_dead: Option<&dyn Fn(CheckpointId) -> bool> = if dead.is_empty() { None } else { Some(&is_dead) };
            let mut count = 0;
            read_fingerprints(&place, bytes, is_dead, |fingerprints| {
                count += fingerprints.len() as u64;
                builder.push(fingerprints)
            })?;
            Ok::<_, Error>((builder, count))
        };
        let (loaded, count) = off_thread(decode).await.map_err(interrupted)??;
        (builder, found) = (loaded, found + count);
    }
    drop(reads);
    let set = off_thread(move || builder.finish()).await.map_err(interrupted)??;
    let twice = found - set.len();
    Ok((set, twice))
}

async fn read_segment(medium: &Medium, segment: &KeySegmentRef) -> Result<(String, Bytes)> {
    let place = medium.place(segment.name());
    let Some(bytes) = medium.get(segment.name()).await? else {
        return Err(Error::corrupt(&place, "a key segment that the newest manifest names is missing"));
    };
    if digest(&bytes) != segment.digest {
        return Err(Error::corrupt(&place, "this key segment is damaged: its checksum is not the one in the manifest"));
    }
    Ok((place, bytes))
}

fn interrupted(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::invalid("reading or writing keys was interrupted").caused_by(error)
}
