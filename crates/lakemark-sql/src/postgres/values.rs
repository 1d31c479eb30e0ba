//! The values of one column of one batch.

use std::sync::Arc;

use arrow_array::builder::{
    BinaryBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, Decimal256Builder, Float32Builder, Float64Builder,
    Int16Builder, Int32Builder, Int64Builder, StringBuilder, Time64MicrosecondBuilder, TimestampMicrosecondBuilder,
    UInt32Builder,
};
use arrow_array::{ArrayRef, ListArray};
use arrow_buffer::{NullBufferBuilder, OffsetBuffer, i256};
use arrow_schema::Field;

use super::decode::{self, Reason, fixed};
use super::kind::Kind;

/// Values collected for a column.
#[derive(Debug)]
pub(super) enum Values {
    Bool(BooleanBuilder),
    Int2(Int16Builder),
    Int4(Int32Builder),
    Int8(Int64Builder),
    Oid(UInt32Builder),
    Float4(Float32Builder),
    Float8(Float64Builder),
    Decimal128(Decimal128Builder, u8, i8),
    Decimal256(Decimal256Builder, u8, i8),
    Text(StringBuilder),
    Bytea(BinaryBuilder),
    Date(Date32Builder),
    Time(Time64MicrosecondBuilder),
    Timestamp(TimestampMicrosecondBuilder),
    List(List),
}

/// Lists: where each ends among the items.
#[derive(Debug)]
pub(super) struct List {
    lengths: Vec<usize>,
    valid: NullBufferBuilder,
    items: Box<Values>,
}

impl Values {
    pub(super) fn new(kind: &Kind) -> Self {
        match kind {
            Kind::Bool => Self::Bool(BooleanBuilder::new()),
            Kind::Int2 => Self::Int2(Int16Builder::new()),
            Kind::Int4 => Self::Int4(Int32Builder::new()),
            Kind::Int8 => Self::Int8(Int64Builder::new()),
            Kind::Oid => Self::Oid(UInt32Builder::new()),
            Kind::Float4 => Self::Float4(Float32Builder::new()),
            Kind::Float8 => Self::Float8(Float64Builder::new()),
            Kind::Decimal { precision, scale } if *precision <= 38 => {
                let builder = Decimal128Builder::new().with_data_type(kind.data_type());
                Self::Decimal128(builder, *precision, *scale)
            }
            Kind::Decimal { precision, scale } => {
                let builder = Decimal256Builder::new().with_data_type(kind.data_type());
                Self::Decimal256(builder, *precision, *scale)
            }
            Kind::Text | Kind::Padded | Kind::Name => Self::Text(StringBuilder::new()),
            Kind::Bytea => Self::Bytea(BinaryBuilder::new()),
            Kind::Date => Self::Date(Date32Builder::new()),
            Kind::Time => Self::Time(Time64MicrosecondBuilder::new()),
            Kind::Timestamp | Kind::TimestampTz => {
                Self::Timestamp(TimestampMicrosecondBuilder::new().with_data_type(kind.data_type()))
            }
            Kind::List(item) => Self::List(List {
                lengths: Vec::new(),
                valid: NullBufferBuilder::new(0),
                items: Box::new(Self::new(item)),
            }),
        }
    }

    /// Adds one value of the binary protocol, or a null.
    pub(super) fn add(&mut self, raw: Option<&[u8]>) -> Result<(), Reason> {
        match self {
            Self::Bool(to) => to.append_option(raw.map(fixed::<1>).transpose()?.map(|[byte]| byte != 0)),
            Self::Int2(to) => to.append_option(raw.map(fixed).transpose()?.map(i16::from_be_bytes)),
            Self::Int4(to) => to.append_option(raw.map(fixed).transpose()?.map(i32::from_be_bytes)),
            Self::Int8(to) => to.append_option(raw.map(fixed).transpose()?.map(i64::from_be_bytes)),
            Self::Oid(to) => to.append_option(raw.map(fixed).transpose()?.map(u32::from_be_bytes)),
            Self::Float4(to) => to.append_option(raw.map(fixed).transpose()?.map(f32::from_be_bytes)),
            Self::Float8(to) => to.append_option(raw.map(fixed).transpose()?.map(f64::from_be_bytes)),
            Self::Decimal128(to, precision, scale) => {
                let value = raw.map(|raw| decimal(raw, *precision, *scale)).transpose()?;
                let narrow = |value: i256| value.to_i128().ok_or("it has more digits than its column");
                to.append_option(value.map(narrow).transpose()?);
            }
            Self::Decimal256(to, precision, scale) => {
                to.append_option(raw.map(|raw| decimal(raw, *precision, *scale)).transpose()?);
            }
            Self::Text(to) => to.append_option(raw.map(decode::text).transpose()?),
            Self::Bytea(to) => to.append_option(raw),
            Self::Date(to) => to.append_option(raw.map(decode::date).transpose()?),
            Self::Time(to) => to.append_option(raw.map(decode::time).transpose()?),
            Self::Timestamp(to) => to.append_option(raw.map(decode::timestamp).transpose()?),
            Self::List(to) => {
                let items = raw.map(decode::items).transpose()?;
                to.valid.append(items.is_some());
                let items = items.unwrap_or_default();
                to.lengths.push(items.len());
                for item in items {
                    to.items.add(item)?;
                }
            }
        }
        Ok(())
    }

    /// The values so far as an array; then there are none.
    pub(super) fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Bool(from) => Arc::new(from.finish()),
            Self::Int2(from) => Arc::new(from.finish()),
            Self::Int4(from) => Arc::new(from.finish()),
            Self::Int8(from) => Arc::new(from.finish()),
            Self::Oid(from) => Arc::new(from.finish()),
            Self::Float4(from) => Arc::new(from.finish()),
            Self::Float8(from) => Arc::new(from.finish()),
            Self::Decimal128(from, ..) => Arc::new(from.finish()),
            Self::Decimal256(from, ..) => Arc::new(from.finish()),
            Self::Text(from) => Arc::new(from.finish()),
            Self::Bytea(from) => Arc::new(from.finish()),
            Self::Date(from) => Arc::new(from.finish()),
            Self::Time(from) => Arc::new(from.finish()),
            Self::Timestamp(from) => Arc::new(from.finish()),
            Self::List(from) => {
                let items = from.items.finish();
                let offsets = OffsetBuffer::from_lengths(std::mem::take(&mut from.lengths));
                let field = Arc::new(Field::new_list_field(items.data_type().clone(), true));
                Arc::new(ListArray::new(field, offsets, items, from.valid.finish()))
            }
        }
    }
}

/// A numeric that has no more digits than its column; the server sees to that, but not in arrays of a cast.
fn decimal(raw: &[u8], precision: u8, scale: i8) -> Result<i256, Reason> {
    let value = decode::numeric(raw, scale)?;
    let digits = value.to_string().trim_start_matches('-').len();
    if digits <= usize::from(precision) { Ok(value) } else { Err("it has more digits than its column".into()) }
}
