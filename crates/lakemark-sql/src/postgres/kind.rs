//! What the values of a column are, and how they are asked for.

use std::sync::Arc;

use arrow_schema::{DataType, Field, TimeUnit};
use tokio_postgres::types::Type;

/// A type that has an exact equal in Arrow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    Int2,
    Int4,
    Int8,
    Oid,
    Float4,
    Float8,
    Decimal {
        precision: u8,
        scale: i8,
    },
    Text,
    /// Blanks at the end are kept, as the server sends them.
    Padded,
    Name,
    Bytea,
    Date,
    Time,
    Timestamp,
    TimestampTz,
    /// Of one dimension.
    List(Box<Kind>),
}

/// How the server is asked for a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// As it is.
    Plain,
    /// In the server's own text form, which is exact.
    Text,
}

/// A type of the catalog, domains resolved.
pub(super) struct Named<'a> {
    pub(super) name: &'a str,
    /// `b` base, `e` enum, `c` composite, ...
    pub(super) class: &'a str,
    pub(super) builtin: bool,
    /// Of numeric: precision and scale.
    pub(super) modifier: i32,
}

impl Kind {
    /// What `named` is, if it has an exact equal.
    pub(super) fn of(named: &Named<'_>) -> Option<(Self, Form)> {
        if named.class == "e" || named.name == "citext" {
            return Some((Self::Text, Form::Text));
        }
        if !named.builtin {
            return None;
        }
        let kind = match named.name {
            "bool" => Self::Bool,
            "int2" => Self::Int2,
            "int4" => Self::Int4,
            "int8" => Self::Int8,
            "oid" => Self::Oid,
            "float4" => Self::Float4,
            "float8" => Self::Float8,
            "numeric" => decimal(named.modifier)?,
            "text" | "varchar" => Self::Text,
            "bpchar" => Self::Padded,
            "name" => Self::Name,
            "bytea" => Self::Bytea,
            "date" => Self::Date,
            "time" => Self::Time,
            "timestamp" => Self::Timestamp,
            "timestamptz" => Self::TimestampTz,
            "uuid" | "json" | "jsonb" | "xml" | "inet" | "cidr" | "macaddr" | "macaddr8" => {
                return Some((Self::Text, Form::Text));
            }
            _ => return None,
        };
        Some((kind, Form::Plain))
    }

    pub(super) fn data_type(&self) -> DataType {
        match self {
            Self::Bool => DataType::Boolean,
            Self::Int2 => DataType::Int16,
            Self::Int4 => DataType::Int32,
            Self::Int8 => DataType::Int64,
            Self::Oid => DataType::UInt32,
            Self::Float4 => DataType::Float32,
            Self::Float8 => DataType::Float64,
            Self::Decimal { precision, scale } if *precision <= 38 => DataType::Decimal128(*precision, *scale),
            Self::Decimal { precision, scale } => DataType::Decimal256(*precision, *scale),
            Self::Text | Self::Padded | Self::Name => DataType::Utf8,
            Self::Bytea => DataType::Binary,
            Self::Date => DataType::Date32,
            Self::Time => DataType::Time64(TimeUnit::Microsecond),
            Self::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            Self::TimestampTz => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Self::List(item) => DataType::List(Arc::new(Field::new_list_field(item.data_type(), true))),
        }
    }

    /// What the server must say that it sends.
    pub(super) fn wire(&self, form: Form) -> Type {
        match (self, form) {
            (Self::List(_), Form::Text) => Type::TEXT_ARRAY,
            (_, Form::Text) => Type::TEXT,
            (Self::Bool, _) => Type::BOOL,
            (Self::Int2, _) => Type::INT2,
            (Self::Int4, _) => Type::INT4,
            (Self::Int8, _) => Type::INT8,
            (Self::Oid, _) => Type::OID,
            (Self::Float4, _) => Type::FLOAT4,
            (Self::Float8, _) => Type::FLOAT8,
            (Self::Decimal { .. }, _) => Type::NUMERIC,
            (Self::Text, _) => Type::TEXT,
            (Self::Padded, _) => Type::BPCHAR,
            (Self::Name, _) => Type::NAME,
            (Self::Bytea, _) => Type::BYTEA,
            (Self::Date, _) => Type::DATE,
            (Self::Time, _) => Type::TIME,
            (Self::Timestamp, _) => Type::TIMESTAMP,
            (Self::TimestampTz, _) => Type::TIMESTAMPTZ,
            (Self::List(item), _) => match **item {
                Self::Bool => Type::BOOL_ARRAY,
                Self::Int2 => Type::INT2_ARRAY,
                Self::Int4 => Type::INT4_ARRAY,
                Self::Int8 => Type::INT8_ARRAY,
                Self::Oid => Type::OID_ARRAY,
                Self::Float4 => Type::FLOAT4_ARRAY,
                Self::Float8 => Type::FLOAT8_ARRAY,
                Self::Decimal { .. } => Type::NUMERIC_ARRAY,
                Self::Text => Type::TEXT_ARRAY,
                Self::Padded => Type::BPCHAR_ARRAY,
                Self::Name => Type::NAME_ARRAY,
                Self::Bytea => Type::BYTEA_ARRAY,
                Self::Date => Type::DATE_ARRAY,
                Self::Time => Type::TIME_ARRAY,
                Self::Timestamp => Type::TIMESTAMP_ARRAY,
                Self::TimestampTz => Type::TIMESTAMPTZ_ARRAY,
                // The database knows no arrays of arrays; they are dimensions.
                Self::List(_) => Type::UNKNOWN,
            },
        }
    }
}

/// A numeric with precision and scale that Arrow has too; without them each value has a scale of its own.
pub(super) fn decimal(modifier: i32) -> Option<Kind> {
    let modifier = modifier.checked_sub(4).filter(|modifier| *modifier >= 0)?;
    let precision = u8::try_from(modifier >> 16).ok().filter(|precision| *precision <= 76)?;
    // Eleven bits with a sign.
    let scale = ((modifier & 0x7ff) ^ 0x400) - 0x400;
    let scale = i8::try_from(scale).ok().filter(|scale| *scale >= 0 && *scale as u8 <= precision)?;
    Some(Kind::Decimal { precision, scale })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_numeric_is_a_decimal_if_both_have_its_scale() {
        let modifier = |precision: i32, scale: i32| ((precision << 16) | (scale & 0x7ff)) + 4;
        assert_eq!(decimal(modifier(10, 2)), Some(Kind::Decimal { precision: 10, scale: 2 }));
        assert_eq!(decimal(modifier(76, 76)), Some(Kind::Decimal { precision: 76, scale: 76 }));
        for none in [-1, modifier(77, 0), modifier(1000, 10), modifier(2, 5), modifier(5, -2)] {
            assert_eq!(decimal(none), None);
        }
    }
}
