//! What the fuzz targets call, so that their corpus is replayed by a plain test.
//!
//! Each function takes any bytes and must neither panic nor break the law it states.

use crate::identity::{AtomKey, Root};
use crate::sink::{decode_partition_value, encode_partition_value};
use crate::store::envelope::decode;
use crate::store::{Manifest, ObjectName, Seal};
use crate::{CheckpointId, Coverage, RangeSet};

/// A fuzz target.
pub type Target = fn(&[u8]);

/// Every target, by the name of its corpus folder.
pub const TARGETS: &[(&str, Target)] =
    &[("texts", texts), ("objects", objects), ("roots", roots), ("partition_values", partition_values)];

fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
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
        assert_eq!(coverage.to_string().parse::<Coverage>().ok(), Some(coverage));
    }
    if let Ok(key) = text.parse::<AtomKey>() {
        assert_eq!(key.to_string().parse::<AtomKey>().ok(), Some(key));
    }
}

/// JSON objects of a store: damage is an error.
pub fn objects(bytes: &[u8]) {
    let _ = decode::<Manifest>("manifest", "fuzz", bytes);
    if let Ok(seal) = decode::<Seal>("seal", "fuzz", bytes) {
        let _ = seal.check(seal.store, seal.id, "fuzz");
    }
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
    if !text.is_empty() && text != crate::sink::NULL_PARTITION {
        assert_eq!(decode_partition_value(&encoded).as_deref(), Some(&*text));
    }
    let _ = decode_partition_value(&text);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_corpus_replays() {
        let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
        for (name, target) in TARGETS {
            let files: Vec<_> = std::fs::read_dir(corpus.join(name)).unwrap().map(|f| f.unwrap().path()).collect();
            assert!(!files.is_empty(), "the corpus of {name} is empty");
            for file in files {
                let bytes = std::fs::read(&file).unwrap();
                if std::panic::catch_unwind(|| target(&bytes)).is_err() {
                    panic!("{name}: {}", file.display());
                }
            }
        }
    }

    #[test]
    fn the_corpus_reaches_what_it_is_for() {
        let object = |name: &str| {
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/objects").join(name);
            std::fs::read(path).unwrap()
        };
        assert!(decode::<Manifest>("manifest", "corpus", &object("manifest")).is_ok());
        assert!(decode::<Seal>("seal", "corpus", &object("seal")).is_ok());
    }

    proptest! {
        #[test]
        fn random_bytes_keep_the_laws(bytes in prop::collection::vec(any::<u8>(), 0..64), text in "[a-z0-9:;,#=%/.-]{0,40}") {
            for (_, target) in TARGETS {
                target(&bytes);
                target(text.as_bytes());
            }
        }
    }
}
