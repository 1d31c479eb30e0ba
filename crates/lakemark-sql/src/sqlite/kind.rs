//! What the values of a column are declared to be. SQLite keeps any value in any column; a scan holds it to its word.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::builder::{BinaryBuilder, BooleanBuilder, Float64Builder, Int64Builder, StringBuilder};
use arrow_schema::DataType;
use rusqlite::types::ValueRef;

/// A declared type that says how its values are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    Integer,
    Real,
    Text,
    Blob,
}

impl Kind {
    /// By the rules of <https://www.sqlite.org/datatype3.html>, and the names of what is kept as text by custom. A type
    /// that says neither (`NUMERIC`, none at all) has no kind: one row could hold a number, the next a text.
    pub(super) fn of(declared: &str) -> Option<Self> {
        let declared = declared.to_ascii_uppercase();
        let has = |words: &[&str]| words.iter().any(|word| declared.contains(word));
        let is = |words: &[&str]| words.contains(&declared.split('(').next().unwrap_or_default().trim());
        Some(if is(&["BOOL", "BOOLEAN"]) {
            Self::Bool
        } else if has(&["INT"]) {
            Self::Integer
        } else if has(&["CHAR", "CLOB", "TEXT"]) {
            Self::Text
        } else if has(&["BLOB"]) {
            Self::Blob
        } else if has(&["REAL", "FLOA", "DOUB"]) {
            Self::Real
        } else if is(&["DATE", "DATETIME", "TIME", "TIMESTAMP", "UUID", "JSON"]) {
            Self::Text
        } else {
            return None;
        })
    }

    pub(super) fn data_type(self) -> DataType {
        match self {
            Self::Bool => DataType::Boolean,
            Self::Integer => DataType::Int64,
            Self::Real => DataType::Float64,
            Self::Text => DataType::Utf8,
            Self::Blob => DataType::Binary,
        }
    }
}

/// Values collected for a column.
pub(super) enum Values {
    Bool(BooleanBuilder),
    Integer(Int64Builder),
    Real(Float64Builder),
    Text(StringBuilder),
    Blob(BinaryBuilder),
}

impl Values {
    pub(super) fn new(kind: Kind) -> Self {
        match kind {
            Kind::Bool => Self::Bool(BooleanBuilder::new()),
            Kind::Integer => Self::Integer(Int64Builder::new()),
            Kind::Real => Self::Real(Float64Builder::new()),
            Kind::Text => Self::Text(StringBuilder::new()),
            Kind::Blob => Self::Blob(BinaryBuilder::new()),
        }
    }

    /// Adds one value, and says how many bytes it has; or why it is not what the column is declared to be.
    pub(super) fn add(&mut self, value: ValueRef<'_>) -> Result<usize, String> {
        match (&mut *self, value) {
            (Self::Bool(to), ValueRef::Null) => to.append_null(),
            (Self::Integer(to), ValueRef::Null) => to.append_null(),
            (Self::Real(to), ValueRef::Null) => to.append_null(),
            (Self::Text(to), ValueRef::Null) => to.append_null(),
            (Self::Blob(to), ValueRef::Null) => to.append_null(),
            (Self::Bool(to), ValueRef::Integer(value @ (0 | 1))) => to.append_value(value == 1),
            (Self::Integer(to), ValueRef::Integer(value)) => to.append_value(value),
            (Self::Real(to), ValueRef::Real(value)) => to.append_value(value),
            (Self::Text(to), ValueRef::Text(bytes)) => {
                to.append_value(std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8")?);
                return Ok(bytes.len());
            }
            (Self::Blob(to), ValueRef::Blob(bytes)) => {
                to.append_value(bytes);
                return Ok(bytes.len());
            }
            (Self::Bool(_), ValueRef::Integer(_)) => return Err("it is an integer other than 0 and 1".into()),
            (_, value) => {
                return Err(format!("it is stored as {}", value.data_type().to_string().to_lowercase()));
            }
        }
        Ok(8)
    }

    /// The values so far as an array; then there are none.
    pub(super) fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Bool(from) => Arc::new(from.finish()),
            Self::Integer(from) => Arc::new(from.finish()),
            Self::Real(from) => Arc::new(from.finish()),
            Self::Text(from) => Arc::new(from.finish()),
            Self::Blob(from) => Arc::new(from.finish()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declared_types_have_a_kind_or_none() {
        for (declared, kind) in [
            ("INTEGER", Some(Kind::Integer)),
            ("unsigned big int", Some(Kind::Integer)),
            ("POINT", Some(Kind::Integer)),
            ("varchar(20)", Some(Kind::Text)),
            ("BLOB", Some(Kind::Blob)),
            ("double precision", Some(Kind::Real)),
            ("Boolean", Some(Kind::Bool)),
            ("timestamp", Some(Kind::Text)),
            ("DECIMAL(10,2)", None),
            ("NUM", None),
            ("", None),
        ] {
            assert_eq!(Kind::of(declared), kind, "{declared}");
        }
    }
}
