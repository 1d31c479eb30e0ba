//! The logical kinds of key columns.

use std::fmt;

use arrow_schema::{DataType, Field};
use serde::{Deserialize, Serialize};

/// What a key column holds, whatever Arrow type it comes in. Values of one kind compare by what they mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyKind {
    /// True or false.
    Boolean,
    /// A whole number, by value, of any width and sign.
    Integer,
    /// A decimal, by value: 1.0 and 1.00 are equal.
    Decimal,
    /// A floating point number: 0.0 and -0.0 are equal, and so is every NaN to every other.
    Float,
    /// Text, byte by byte.
    String,
    /// Bytes.
    Binary,
    /// A UUID, as sixteen bytes.
    Uuid,
    /// A day.
    Date,
    /// A time of day.
    Time,
    /// A date and a time without a zone.
    Timestamp,
    /// A moment, whatever zone it is shown in.
    Instant,
}

/// Every kind, in the words in which it is recorded.
const WORDS: &[(KeyKind, &str)] = &[
    (KeyKind::Boolean, "boolean"),
    (KeyKind::Integer, "integer"),
    (KeyKind::Decimal, "decimal"),
    (KeyKind::Float, "float"),
    (KeyKind::String, "string"),
    (KeyKind::Binary, "binary"),
    (KeyKind::Uuid, "uuid"),
    (KeyKind::Date, "date"),
    (KeyKind::Time, "time"),
    (KeyKind::Timestamp, "timestamp"),
    (KeyKind::Instant, "instant"),
];

impl KeyKind {
    /// The kind of `field`; `None` for types that are no keys: lists, structs, maps, unions, intervals, durations, null.
    pub fn of(field: &Field) -> Option<Self> {
        use DataType as T;
        Some(match field.data_type() {
            T::Dictionary(_, values) => return Self::of(&Field::new("", values.as_ref().clone(), true)),
            T::RunEndEncoded(_, values) => return Self::of(values),
            T::Boolean => Self::Boolean,
            kind if kind.is_integer() => Self::Integer,
            T::Decimal32(..) | T::Decimal64(..) | T::Decimal128(..) | T::Decimal256(..) => Self::Decimal,
            T::Float16 | T::Float32 | T::Float64 => Self::Float,
            T::Utf8 | T::LargeUtf8 | T::Utf8View => Self::String,
            T::FixedSizeBinary(16) if field.extension_type_name() == Some("arrow.uuid") => Self::Uuid,
            T::Binary | T::LargeBinary | T::BinaryView | T::FixedSizeBinary(_) => Self::Binary,
            T::Date32 | T::Date64 => Self::Date,
            T::Time32(_) | T::Time64(_) => Self::Time,
            T::Timestamp(_, None) => Self::Timestamp,
            T::Timestamp(_, Some(_)) => Self::Instant,
            _ => return None,
        })
    }

    /// All kinds, in words.
    pub(super) fn all() -> String {
        WORDS.iter().map(|(_, word)| *word).collect::<Vec<_>>().join(", ")
    }

    /// The byte that begins a value of it in canonical bytes; 0 is null.
    pub(super) fn tag(self) -> u8 {
        WORDS.iter().position(|(kind, _)| *kind == self).map_or(0, |place| place as u8 + 1)
    }
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(WORDS.iter().find(|(kind, _)| kind == self).map_or("", |(_, word)| word))
    }
}
