//! What the snapshots of a table say about the commits of a store.

use iceberg::spec::{SnapshotRef, TableMetadata};
use lakemark::{History, Marker, StoreId};

/// The store in the summary of a snapshot that is a commit of one.
pub(crate) const STORE: &str = "lakemark.store";
/// The number of the commit.
pub(crate) const COMMIT: &str = "lakemark.commit";
/// The digest of its set.
pub(crate) const DIGEST: &str = "lakemark.digest";
/// What the name of a table property begins with that carries the last commit of a store; the store follows.
pub(crate) const PROPERTY: &str = "lakemark.";

/// The version of a table: the sequence number of its current snapshot, 0 for one that has none. It goes back when the table
/// is taken back.
pub(crate) fn version(metadata: &TableMetadata) -> u64 {
    metadata.current_snapshot().map_or(0, sequence)
}

fn sequence(snapshot: &SnapshotRef) -> u64 {
    snapshot.sequence_number().max(0) as u64
}

/// The number and the digest of the last commit of `store`, which survive the snapshot that they came with.
pub(crate) fn last(metadata: &TableMetadata, store: StoreId) -> Option<(u64, String)> {
    let (n, digest) = metadata.properties().get(&format!("{PROPERTY}{store}"))?.split_once(':')?;
    Some((n.parse().ok()?, digest.to_owned()))
}

/// A store other than `store` that has committed to the table.
pub(crate) fn other_store(metadata: &TableMetadata, store: Option<StoreId>) -> Option<StoreId> {
    let mut stores = metadata.properties().keys().filter_map(|name| name.strip_prefix(PROPERTY)?.parse().ok());
    stores.find(|other| Some(*other) != store)
}

/// The current snapshot and those it came from, newest first, as far as they are still known.
pub(crate) fn ancestry(metadata: &TableMetadata) -> impl Iterator<Item = &SnapshotRef> {
    let parent = |snapshot: &&SnapshotRef| metadata.snapshot_by_id(snapshot.parent_snapshot_id()?);
    // Never longer than there are snapshots, whatever parents say.
    std::iter::successors(metadata.current_snapshot(), parent).take(metadata.snapshots().len())
}

fn marker(snapshot: &SnapshotRef, store: &str) -> Option<Marker> {
    let said = &snapshot.summary().additional_properties;
    if said.get(STORE)? != store {
        return None;
    }
    Some(Marker { n: said.get(COMMIT)?.parse().ok()?, digest: said.get(DIGEST)?.clone(), version: sequence(snapshot) })
}

/// What the snapshots after `since` (all, for `None`) that the current one came from say about `store`.
pub(crate) fn history(metadata: &TableMetadata, since: Option<u64>, store: StoreId) -> History {
    let (since_then, id) = (since.unwrap_or_default(), store.to_string());
    let mut history = History::default();
    let mut reached = None;
    let mut oldest: Option<&SnapshotRef> = None;
    for snapshot in ancestry(metadata) {
        if sequence(snapshot) <= since_then {
            reached = Some(sequence(snapshot));
            break;
        }
        history.markers.extend(marker(snapshot, &id));
        oldest = Some(snapshot);
    }
    history.markers.reverse();
    // One without a parent is the first ever, or those before it are expired: some tools keep their ids, others do not.
    let is_first = |oldest: &SnapshotRef| oldest.parent_snapshot_id().is_none() && sequence(oldest) == 1;
    let is_cut = reached.is_none() && oldest.is_some_and(|oldest| !is_first(oldest));
    // The property is of the last commit: what is not in it, and in no snapshot, never was.
    history.has_all_markers = true;
    if is_cut {
        // What is between is known no more, but for the number of the last commit, which cannot be told a version.
        history.gap = Some(since_then + 1);
        if let Some((n, digest)) = last(metadata, store).filter(|last| !history.markers.iter().any(|m| m.n == last.0)) {
            history.markers.insert(0, Marker { n, digest, version: version(metadata) });
        }
    } else if since_then > 0 && reached != Some(since_then) {
        history.rolled_back = Some(format!("the snapshot of version {since_then} is not one that the table came from"));
    }
    history
}
