//! What the fuzz targets call, so that their corpus is replayed by a plain test. `docs/fuzzing.md` tells how to run them.
//!
//! Each target takes any bytes and must neither panic, nor break the law it states, nor take more memory than [`bound`].

mod memory;
mod sequences;

pub use memory::{Counting, bound, peak};
pub use sequences::sequences;

use std::panic::PanicHookInfo;

use bytes::Bytes;

use crate::identity::{AtomKey, Root};
use crate::plan::AtomFilter;
use crate::sink::{decode_partition_value, encode_partition_value};
use crate::store::envelope::{FORMAT, decode, digest, encode};
use crate::store::segment::SegmentData;
use crate::store::{Head, Live, Manifest, ObjectName, Seal, View, commit_object, segment};
use crate::{CheckpointId, Coverage, ErrorKind, Evidence, RangeSet, Result};

/// A fuzz target.
pub type Target = fn(&[u8]);

/// Every target, by the name of its corpus folder.
pub const TARGETS: &[(&str, Target)] = &[
    ("texts", texts),
    ("objects", objects),
    ("manifests", manifests),
    ("seals", seals),
    ("segments", segments),
    ("commits", commits),
    ("footers", footers),
    ("roots", roots),
    ("partition_values", partition_values),
    ("sequences", sequences),
];

/// Runs the target `name` on `bytes`, within the memory that it may take.
///
/// # Panics
/// When the target does, or takes more.
pub fn run(name: &str, bytes: &[u8]) {
    let (_, target) = TARGETS.iter().find(|(known, _)| *known == name).expect("a name of TARGETS");
    check_memory(bytes, || target(bytes));
}

/// Runs `target`, whose input is `bytes`, within the memory that it may take.
///
/// # Panics
/// When it takes more.
pub fn check_memory(bytes: &[u8], target: impl FnOnce()) {
    let (peak, bound) = (peak(target), bound(bytes.len()));
    assert!(peak <= bound, "{peak} bytes were held for an input of {}; {bound} is the bound", bytes.len());
}

/// Whether a panic is one of Parquet's or Arrow's decoders, which the store catches and makes an error of.
pub fn is_caught(panic: &PanicHookInfo<'_>) -> bool {
    panic.location().is_some_and(|at| ["/parquet-", "/arrow-"].iter().any(|name| at.file().contains(name)))
}

fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// What is not read must be the object's fault, with its place.
fn read<T>(result: Result<T>) -> Option<T> {
    result
        .map_err(|error| {
            assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Incompatible), "{error}");
            assert_eq!(error.place(), Some("fuzz"), "{error}");
        })
        .ok()
}

/// Text forms: what parses prints as it was read, or parses again to the same value.
///
/// # Panics
/// When a form does not round-trip.
pub fn texts(bytes: &[u8]) {
    let text = text(bytes);
    if let Ok(name) = text.parse::<ObjectName>() {
        assert_eq!(name.to_string(), text);
    }
    if let Ok(id) = text.parse::<CheckpointId>() {
        assert_eq!(id.to_string().parse::<CheckpointId>().ok(), Some(id));
    }
    if let Ok(set) = text.parse::<RangeSet>() {
        assert_eq!(set.to_string().parse::<RangeSet>().ok(), Some(set));
    }
    if let Ok(coverage) = text.parse::<Coverage>() {
        let file = Evidence { group_runs: vec![(10, 1 << 20), (3, 7)], digest: String::new() };
        let missing = coverage.missing(&file);
        assert!(!missing.overlaps(&coverage) || coverage == Coverage::Whole);
        assert_eq!(coverage.union(&missing).normalised(&file).missing(&file), Coverage::none());
        assert_eq!(coverage.to_string().parse::<Coverage>().ok(), Some(coverage));
    }
    if let Ok(key) = text.parse::<AtomKey>() {
        assert_eq!(key.to_string().parse::<AtomKey>().ok(), Some(key));
    }
}

/// JSON objects of a store, as they are read: damage is an error.
pub fn objects(bytes: &[u8]) {
    let _ = read(decode::<Manifest>("manifest", "fuzz", bytes));
    let _ = read(decode::<Seal>("seal", "fuzz", bytes));
}

/// `body` in a sound frame: a fuzzer does not find the checksum by itself.
fn framed(kind: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(r#"{{"lakemark":"{kind}","format":{FORMAT},"checksum":"{}","body":"#, digest(body));
    [head.as_bytes(), body, b"}"].concat()
}

/// Bodies of manifests: what is read is written and read as the same.
///
/// # Panics
/// When it is not.
pub fn manifests(bytes: &[u8]) {
    if let Some(manifest) = read(decode::<Manifest>("manifest", "fuzz", &framed("manifest", bytes))) {
        let again = encode("manifest", &manifest).and_then(|bytes| decode::<Manifest>("manifest", "fuzz", &bytes));
        assert_eq!(read(again).as_ref(), Some(&manifest));
        let head = Head { manifest, digest: String::new() };
        let _ = View { head: Some(head), ..View::default() }.expected();
    }
}

/// Bodies of seals: what is read is written and read as the same, and can be decided.
///
/// # Panics
/// When it is not.
pub fn seals(bytes: &[u8]) {
    let Some(seal) = read(decode::<Seal>("seal", "fuzz", &framed("seal", bytes))) else { return };
    let again = encode("seal", &seal).and_then(|bytes| decode::<Seal>("seal", "fuzz", &bytes));
    assert_eq!(read(again).as_ref(), Some(&seal));
    if read(seal.check(seal.store, seal.id, "fuzz")).is_some() {
        let mut live = Live::default();
        let _ = live.decide(&seal);
        assert!(live.decide(&seal).is_none(), "a seal is decided once");
        look_at(live);
    }
}

/// Does with a live set what planning and reports do.
fn look_at(live: Live) {
    let _ = live.atoms();
    let _ = live.committed_outputs().count();
    for source in live.sources() {
        for (_, versions) in live.files(source) {
            for version in versions {
                let missing = version.coverage.missing(&version.evidence);
                assert!(!missing.overlaps(&version.coverage) || version.is_complete());
            }
        }
    }
    let _ = AtomFilter::new(&View { live, ..View::default() });
}

/// Segments: what is read is written and read as the same, and is a state.
///
/// # Panics
/// When it is not.
pub fn segments(bytes: &[u8]) {
    let Some(data) = read(segment::decode_segment("fuzz", Bytes::copy_from_slice(bytes))) else { return };
    let again = segment::encode_segment(&data).and_then(|bytes| segment::decode_segment("fuzz", bytes));
    assert_eq!(read(again).as_ref(), Some(&data));
    // Its events act on its own rows, as on those of an older segment.
    let mut data = data.clone().then(SegmentData { events: data.events, ..SegmentData::default() });
    data.sort();
    look_at(Live::new(data));
}

/// Commit objects: what is read is written and read as the same.
///
/// # Panics
/// When it is not.
pub fn commits(bytes: &[u8]) {
    let Some(members) = read(commit_object::decode("fuzz", Bytes::copy_from_slice(bytes))) else { return };
    let again = commit_object::encode(&members).and_then(|bytes| commit_object::decode("fuzz", bytes));
    assert_eq!(read(again).as_ref(), Some(&members));
}

/// Footers of source files, without the magic and the length: damage is said, and never ends the process.
pub fn footers(bytes: &[u8]) {
    let _ = crate::source::decode_footer(&Bytes::copy_from_slice(bytes));
}

/// Roots: the canonical text names the same root.
///
/// # Panics
/// When it does not.
pub fn roots(bytes: &[u8]) {
    if let Ok(root) = Root::parse(&text(bytes)) {
        assert_eq!(Root::parse(&root.to_string()).ok(), Some(root));
    }
}

/// Partition values: what is encoded decodes to itself.
///
/// # Panics
/// When it does not.
pub fn partition_values(bytes: &[u8]) {
    let text = text(bytes);
    let encoded = encode_partition_value(Some(&text));
    assert!(!encoded.contains('/'));
    assert_eq!(decode_partition_value(&encoded).as_deref(), Some(&*text));
    let _ = decode_partition_value(&text);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_corpus_reaches_what_it_is_for() {
        let object = |name: &str| {
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
            std::fs::read(path).unwrap()
        };
        assert!(decode::<Manifest>("manifest", "corpus", &object("objects/manifest")).is_ok());
        assert!(decode::<Seal>("seal", "corpus", &object("objects/seal")).is_ok());
        for writer in ["pyarrow", "polars", "duckdb"] {
            let footer = crate::source::decode_footer(&object(&format!("footers/{writer}")).into());
            assert!(footer.is_ok_and(|footer| !footer.group_rows.is_empty()), "{writer}");
        }
    }

    proptest! {
        #[test]
        fn random_bytes_keep_the_laws(bytes in prop::collection::vec(any::<u8>(), 0..64), text in "[a-z0-9:;,#=%/.-]{0,40}") {
            // A sequence takes too long to be tried by the hundred.
            for (_, target) in TARGETS.iter().filter(|(name, _)| *name != "sequences") {
                target(&bytes);
                target(text.as_bytes());
            }
        }
    }
}
