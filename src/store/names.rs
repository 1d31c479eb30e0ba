//! Every object name of a store, built and parsed here and nowhere else.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;
use crate::identity::{AttemptNonce, CheckpointId, Epoch, InputId, ManifestVersion};

/// Seals are kept in blocks of this many input ids.
const BLOCK: u32 = 1_000;

/// The name of one object, relative to the store's prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ObjectName {
    /// One link of the chain.
    Manifest(ManifestVersion),
    /// One seal.
    Seal(CheckpointId),
    /// The row keys that one attempt staged.
    Keys(CheckpointId, AttemptNonce),
    /// One beat of an epoch's holder.
    Beat(Epoch, u64),
    /// A segment, named for the manifest version it was written for.
    Segment(ManifestVersion, AttemptNonce),
    /// A segment of row keys, named likewise.
    KeySegment(ManifestVersion, AttemptNonce),
    /// What a commit adds and removes.
    Commit(u64, AttemptNonce),
    /// The name that sixteen creates race for before a store is used; left only by a crash.
    Probe(AttemptNonce),
    /// On disks: an object that is being written, or was when its writer died. Listed only when it is asked for.
    Unfinished(AttemptNonce),
}

impl ObjectName {
    /// The most bytes that such an object has: more are neither written nor read. Segments and commit objects are named
    /// with their digests by a manifest, which bounds them.
    pub(crate) fn most_bytes(&self) -> u64 {
        match self {
            Self::Manifest(_) | Self::Beat(..) | Self::Probe(_) => 64 << 20,
            Self::Seal(_) => 1 << 30,
            Self::Keys(..) | Self::Segment(..) | Self::KeySegment(..) | Self::Commit(..) | Self::Unfinished(_) => {
                u64::MAX
            }
        }
    }

    /// The folder of all manifests.
    pub const MANIFESTS: &str = "manifests";

    /// The folder of objects that are being written, on disks.
    pub const UNFINISHED: &str = "unfinished";

    /// The folder of damaged objects that were moved away, each under a nonce and its old name.
    pub const QUARANTINE: &str = "quarantine";

    /// Whether `name` is of this format: an object, or what became of one.
    pub fn is_known(name: &str) -> bool {
        let quarantined = || name.strip_prefix(Self::QUARANTINE)?.strip_prefix('/')?.split_once('/');
        let is_object = |name: &str| name.parse::<Self>().is_ok();
        is_object(name) || quarantined().is_some_and(|(_, name)| is_object(name))
    }

    /// The folder of an epoch's seals.
    pub fn seals(epoch: Epoch) -> String {
        format!("epochs/{epoch}/seals")
    }

    /// The folder of the seals of a task, and of those of its neighbours.
    pub fn seals_beside(epoch: Epoch, input: InputId) -> String {
        format!("{}/{:05}", Self::seals(epoch), input.0 / BLOCK)
    }

    /// The folder of an epoch's beats.
    pub fn beats(epoch: Epoch) -> String {
        format!("epochs/{epoch}/beats")
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Manifest(version) => write!(f, "manifests/{version}.json"),
            Self::Seal(CheckpointId { epoch, input, sequence }) => {
                write!(f, "epochs/{epoch}/seals/{:05}/{input}.{sequence:04}.json", input.0 / BLOCK)
            }
            Self::Keys(id, attempt) => write!(f, "epochs/{}/keys/{id}/{attempt}.parquet", id.epoch),
            Self::Beat(epoch, n) => write!(f, "epochs/{epoch}/beats/{n:010}.json"),
            Self::Segment(version, nonce) => write!(f, "segments/{version}-{nonce}.parquet"),
            Self::KeySegment(version, nonce) => write!(f, "keys/{version}-{nonce}.parquet"),
            Self::Commit(n, nonce) => write!(f, "commits/{n:010}-{nonce}.parquet"),
            Self::Probe(nonce) => write!(f, "probes/{nonce}"),
            Self::Unfinished(nonce) => write!(f, "{}/{nonce}", Self::UNFINISHED),
        }
    }
}

impl FromStr for ObjectName {
    type Err = Error;

    /// Strict: a name that is not exactly what [`Display`](fmt::Display) gives is foreign (R85).
    fn from_str(text: &str) -> Result<Self, Error> {
        let parsed = parse(text).filter(|name| name.to_string() == text);
        parsed.ok_or_else(|| Error::invalid(format!("`{text}` is not the name of an object of a lakemark store")))
    }
}

fn parse(text: &str) -> Option<ObjectName> {
    let mut parts = text.split('/');
    let name = match (parts.next()?, parts.next()?) {
        ("manifests", file) => ObjectName::Manifest(file.strip_suffix(".json")?.parse().ok()?),
        ("segments", file) => {
            let (version, nonce) = file.strip_suffix(".parquet")?.split_once('-')?;
            ObjectName::Segment(version.parse().ok()?, nonce.parse().ok()?)
        }
        ("keys", file) => {
            let (version, nonce) = file.strip_suffix(".parquet")?.split_once('-')?;
            ObjectName::KeySegment(version.parse().ok()?, nonce.parse().ok()?)
        }
        ("commits", file) => {
            let (n, nonce) = file.strip_suffix(".parquet")?.split_once('-')?;
            ObjectName::Commit(n.parse().ok()?, nonce.parse().ok()?)
        }
        ("probes", nonce) => ObjectName::Probe(nonce.parse().ok()?),
        (ObjectName::UNFINISHED, nonce) => ObjectName::Unfinished(nonce.parse().ok()?),
        ("epochs", epoch) => {
            let epoch: Epoch = epoch.parse().ok()?;
            match parts.next()? {
                "beats" => ObjectName::Beat(epoch, parts.next()?.strip_suffix(".json")?.parse().ok()?),
                "keys" => {
                    let id: CheckpointId = parts.next()?.parse().ok().filter(|id: &CheckpointId| id.epoch == epoch)?;
                    ObjectName::Keys(id, parts.next()?.strip_suffix(".parquet")?.parse().ok()?)
                }
                "seals" => {
                    let _block = parts.next()?;
                    let (input, sequence) = parts.next()?.strip_suffix(".json")?.split_once('.')?;
                    let input: InputId = input.parse().ok()?;
                    ObjectName::Seal(CheckpointId { epoch, input, sequence: sequence.parse().ok()? })
                }
                _ => return None,
            }
        }
        _ => return None,
    };
    parts.next().is_none().then_some(name)
}

/// The name of the output file number `part` of one attempt, the same in staging and in the destination.
///
/// It carries store id, epoch, input id, sequence and nonce, so that a seal can name only its own files and an
/// orphan can be traced to the attempt that left it.
pub fn output_name(store: &str, id: CheckpointId, attempt: AttemptNonce, part: u32, extension: &str) -> String {
    format!("{}{part:04}.{extension}", output_stem(store, id, attempt))
}

/// What every output name of one attempt starts with.
pub fn output_stem(store: &str, id: CheckpointId, attempt: AttemptNonce) -> String {
    format!("lm-{store}-{id}-{attempt}-")
}

/// What the name of an output file says: the store (its first 12 hex digits), the checkpoint, the attempt. `None` for a
/// name that [`output_name`] does not give.
pub fn parse_output_name(name: &str) -> Option<(&str, CheckpointId, AttemptNonce)> {
    let rest = name.strip_prefix("lm-")?;
    let (store, rest) = rest.split_once('-')?;
    let is_store = store.len() == 12 && store.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    let mut parts = rest.rsplitn(3, '-');
    let (part, attempt, id) = (parts.next()?, parts.next()?, parts.next()?);
    let (number, extension) = part.split_once('.')?;
    let is_part = number.len() >= 4 && number.bytes().all(|b| b.is_ascii_digit()) && !extension.is_empty();
    (is_store && is_part).then_some((store, id.parse().ok()?, attempt.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names() -> impl Strategy<Value = ObjectName> {
        let nonce = || Just(()).prop_map(|()| AttemptNonce::random());
        prop_oneof![
            any::<u64>().prop_map(|v| ObjectName::Manifest(ManifestVersion(v))),
            (0..u64::from(u32::MAX), any::<u32>(), 0u32..20_000).prop_map(|(e, i, sequence)| {
                ObjectName::Seal(CheckpointId { epoch: Epoch(e), input: InputId(i), sequence })
            }),
            (0..u64::from(u32::MAX), any::<u32>(), 0u32..20_000, nonce()).prop_map(|(e, i, sequence, n)| {
                ObjectName::Keys(CheckpointId { epoch: Epoch(e), input: InputId(i), sequence }, n)
            }),
            (0..1_000u64, 0..1_000u64).prop_map(|(e, n)| ObjectName::Beat(Epoch(e), n)),
            (any::<u64>(), nonce()).prop_map(|(v, n)| ObjectName::Segment(ManifestVersion(v), n)),
            (any::<u64>(), nonce()).prop_map(|(v, n)| ObjectName::KeySegment(ManifestVersion(v), n)),
            (0..u64::from(u32::MAX), nonce()).prop_map(|(v, n)| ObjectName::Commit(v, n)),
        ]
    }

    proptest! {
        #[test]
        fn names_round_trip(name in names()) {
            prop_assert_eq!(name.to_string().parse::<ObjectName>().unwrap(), name);
        }

        #[test]
        fn output_names_round_trip(e in 0..9_999_999_999u64, i in any::<u32>(), sequence in 0u32..20_000, part in 0u32..20_000) {
            let (id, nonce) = (CheckpointId { epoch: Epoch(e), input: InputId(i), sequence }, AttemptNonce::random());
            let store = crate::identity::StoreId::random().short();
            let name = output_name(&store, id, nonce, part, "csv.gz");
            prop_assert_eq!(parse_output_name(&name), Some((store.as_str(), id, nonce)));
            prop_assert_eq!(parse_output_name(&name[..name.len() - 8]), None);
        }

        #[test]
        fn seals_sort_as_their_ids(a in 0u32..99_999_999, b in 0u32..99_999_999) {
            let seal = |i| ObjectName::Seal(CheckpointId::first(Epoch(1), InputId(i))).to_string();
            // Blocks of five digits order names up to 100 million tasks; the fold sorts by id, not by text.
            prop_assert_eq!(seal(a).cmp(&seal(b)), a.cmp(&b));
        }
    }

    #[test]
    fn foreign_names_are_foreign() {
        for name in [
            "notes.txt",
            ".DS_Store",
            "manifests/42.json",
            "manifests/00000000000000000042.json.tmp",
            "segments/backup.parquet",
            "epochs/0000000001/seals/00001/0000000001.0000.json",
            "epochs/0000000001/seals/00000/0000000001.0000.json/x",
            "commits/0000000003-zz.parquet",
            "epochs/0000000001/keys/0000000002-0000000001-0000/af9e26d63ea9f82b.parquet",
            "unfinished/x",
        ] {
            assert!(name.parse::<ObjectName>().is_err(), "{name}");
        }
    }
}
