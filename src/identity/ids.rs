//! Newtypes for every number and name of the protocol, each with a text form that round-trips.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $inner:ty, $width:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The number of digits of the text form, so that names sort as numbers do.
            pub const WIDTH: usize = $width;

            /// The one after it.
            ///
            /// # Panics
            /// When the numbers are used up.
            #[must_use]
            pub fn next(self) -> Self {
                Self(self.0.checked_add(1).expect("I8: numbers only grow"))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:0width$}", self.0, width = $width)
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self> {
                if text.len() != $width || !text.bytes().all(|b| b.is_ascii_digit()) {
                    return Err(Error::invalid(format!("`{text}` is not a number of {} digits", $width)));
                }
                text.parse().map(Self).map_err(|_| Error::invalid(format!("`{text}` is too large")))
            }
        }
    };
}

number!(
    /// One holder's ownership of a store. A newer epoch fences every older one. Epochs start at 1.
    Epoch, u64, 10
);
number!(
    /// The position of a manifest in the chain; the highest is the truth.
    ManifestVersion, u64, 20
);
number!(
    /// The id of a task, never used again within an epoch.
    InputId, u32, 10
);

/// The identity of a store, made when it is created and never again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StoreId(uuid::Uuid);

impl StoreId {
    /// A new, random id.
    pub fn random() -> Self {
        Self(random_uuid())
    }

    /// The first 12 hex digits: enough to tell stores apart in file names.
    pub fn short(&self) -> String {
        self.0.simple().to_string()[..12].to_owned()
    }
}

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for StoreId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        uuid::Uuid::try_parse(text).map(Self).map_err(|e| Error::invalid(format!("`{text}` is not a store id: {e}")))
    }
}

/// What tells one attempt of a task, or one writer of an object, from every other: 64 random bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AttemptNonce(u64);

impl AttemptNonce {
    /// A new, random nonce.
    pub fn random() -> Self {
        Self(random_uuid().as_u64_pair().1)
    }
}

impl fmt::Display for AttemptNonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for AttemptNonce {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let lower_hex = text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if text.len() != 16 || !lower_hex {
            return Err(Error::invalid(format!("`{text}` is not a nonce of 16 hex digits")));
        }
        u64::from_str_radix(text, 16).map(Self).map_err(|e| Error::invalid(format!("`{text}`: {e}")))
    }
}

/// The only source of randomness.
#[expect(clippy::disallowed_methods, reason = "the one source")]
fn random_uuid() -> uuid::Uuid {
    #[cfg(feature = "testing")]
    if let Some(bits) = crate::injected::random() {
        return uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid();
    }
    uuid::Uuid::new_v4()
}

macro_rules! serde_as_text {
    ($name:ident) => {
        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, s: S) -> std::result::Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> std::result::Result<Self, D::Error> {
                String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

serde_as_text!(AttemptNonce);
serde_as_text!(CheckpointId);

/// Names one checkpoint: the seal (epoch, input id, sequence). At most one seal of that name exists (I3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CheckpointId {
    /// The epoch it was sealed in.
    pub epoch: Epoch,
    /// The task.
    pub input: InputId,
    /// The position in the task's sequence of seals; 0 in files mode.
    pub sequence: u32,
}

impl CheckpointId {
    /// The first (in files mode the only) checkpoint of a task.
    pub fn first(epoch: Epoch, input: InputId) -> Self {
        Self { epoch, input, sequence: 0 }
    }
}

/// `0000000007-0000000123-0000`: sorts as (epoch, input id, sequence) does.
impl fmt::Display for CheckpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{:04}", self.epoch, self.input, self.sequence)
    }
}

impl FromStr for CheckpointId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = || Error::invalid(format!("`{text}` is not a checkpoint id like `0000000007-0000000123-0000`"));
        let mut parts = text.split('-');
        let (Some(epoch), Some(input), Some(sequence), None) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(bad());
        };
        if sequence.len() < 4 || !sequence.bytes().all(|b| b.is_ascii_digit()) {
            return Err(bad());
        }
        Ok(Self { epoch: epoch.parse()?, input: input.parse()?, sequence: sequence.parse().map_err(|_| bad())? })
    }
}
