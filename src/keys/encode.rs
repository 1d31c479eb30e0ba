//! Canonical bytes of keys, version 1, and their fingerprints.
//!
//! A key's bytes are those of its columns, one after another. A column begins with a byte: 0 for null, and then there is no
//! more of it, else the number of its kind. What follows is of a length that the kind says, or says its own length first. So
//! no two keys have the same bytes, and keys that are equal have, whatever Arrow types they come in.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, RecordBatch, StringArray};
use arrow_buffer::i256;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{ArrowError, DataType, Schema, TimeUnit};
use xxhash_rust::xxh3::xxh3_128;

use super::kind::KeyKind;
use super::spec::{KeySpec, NullKeys};
use crate::error::{Error, Result};

/// Turns rows into fingerprints of their keys.
#[derive(Debug, Clone)]
pub struct KeyEncoder {
    spec: KeySpec,
    /// Where in a batch each key column is.
    places: Vec<usize>,
}

/// The rows of a batch as bytes, one behind another, while columns are written into them.
struct Buffer {
    bytes: Vec<u8>,
    /// Where each row goes on.
    at: Vec<usize>,
}

impl KeyEncoder {
    /// For batches of `schema`.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) when it lacks a key column, or has one of another kind.
    pub fn new(spec: &KeySpec, schema: &Schema) -> Result<Self> {
        let place = |column: &super::spec::KeyColumn| {
            let found = schema.column_with_name(&column.name);
            let place = found.filter(|(_, field)| KeyKind::of(field).is_some_and(|kind| kind == column.kind));
            place.map(|(place, _)| place).ok_or_else(|| {
                let is = found.map_or("not there".to_owned(), |(_, field)| format!("of type {}", field.data_type()));
                let what = format!("the key column `{}` ({}) is {is}", column.name, column.kind);
                Error::invalid(what).safe("nothing was sealed")
            })
        };
        let places = spec.columns.iter().map(place).collect::<Result<_>>()?;
        Ok(Self { spec: spec.clone(), places })
    }

    /// Appends the fingerprint of each row of `batch`.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for a null in a key, where they are refused.
    pub fn fingerprints(&self, batch: &RecordBatch, fingerprints: &mut Vec<u128>) -> Result<()> {
        let columns = self.columns(batch)?;
        if self.spec.nulls == NullKeys::Refuse {
            self.check_nulls(batch, &columns)?;
        }
        let (bytes, ends) = self.encode(&columns, batch.num_rows(), true);
        fingerprints.reserve(ends.len());
        let mut start = 0;
        for end in ends {
            fingerprints.push(xxh3_128(&bytes[start..end]));
            start = end;
        }
        Ok(())
    }

    /// The canonical bytes of one row's key.
    ///
    /// # Errors
    /// As [`fingerprints`](Self::fingerprints), but for nulls.
    pub fn canonical(&self, batch: &RecordBatch, row: usize) -> Result<Vec<u8>> {
        Ok(self.encode(&self.columns(&batch.slice(row, 1))?, 1, false).0)
    }

    /// The values of the keys as text, an array a key column: for people. Long ones are cut, and what has no text, such as a
    /// date beyond the calendar, is null: nothing is told by them.
    pub fn values(&self, batch: &RecordBatch) -> Vec<ArrayRef> {
        let none = || -> ArrayRef { Arc::new(StringArray::new_null(batch.num_rows())) };
        let Ok(columns) = self.columns(batch) else { return self.places.iter().map(|_| none()).collect() };
        let shown = |(column, key): (&ArrayRef, &super::spec::KeyColumn)| {
            text(column, key.kind).ok().and_then(|column| cut(&column)).unwrap_or_else(none)
        };
        columns.iter().zip(&self.spec.columns).map(shown).collect()
    }

    /// One row's key, for messages: `id = 7, name = "a"`.
    pub fn describe(&self, batch: &RecordBatch, row: usize) -> String {
        let values = self.values(&batch.slice(row, 1));
        let is_null = |place: &usize| batch.column(*place).is_null(row);
        let mut nulls = self.places.iter().map(is_null);
        let mut shown = |(column, key): (&ArrayRef, &super::spec::KeyColumn)| {
            let is_null = nulls.next() == Some(true);
            let value = column.as_string_opt::<i32>().filter(|column| column.is_valid(0)).map(|column| column.value(0));
            let cut = |value: &str| match value.char_indices().nth(100) {
                Some((end, _)) => format!("{}...", &value[..end]),
                None => value.to_owned(),
            };
            match (value, key.kind) {
                (None, _) if is_null => format!("{} is null", key.name),
                (None, _) => format!("{} has a value that cannot be shown", key.name),
                (Some(value), KeyKind::String) => format!("{} = {:?}", key.name, cut(value)),
                (Some(value), _) => format!("{} = {}", key.name, cut(value)),
            }
        };
        values.iter().zip(&self.spec.columns).map(&mut shown).collect::<Vec<_>>().join(", ")
    }

    /// The key columns of `batch`, no dictionaries among them.
    fn columns(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
        let plain = |place: &usize| -> Result<ArrayRef> {
            let column = batch.column(*place);
            match column.data_type() {
                DataType::Dictionary(_, values) => arrow_cast::cast(column, values).map_err(unreadable),
                DataType::RunEndEncoded(_, values) => arrow_cast::cast(column, values.data_type()).map_err(unreadable),
                _ => Ok(Arc::clone(column)),
            }
        };
        self.places.iter().map(plain).collect()
    }

    fn check_nulls(&self, batch: &RecordBatch, columns: &[ArrayRef]) -> Result<()> {
        let is_null = |row: &usize| columns.iter().any(|column| column.is_null(*row));
        let rows: Vec<usize> = (0..batch.num_rows()).filter(is_null).collect();
        let Some(first) = rows.first() else { return Ok(()) };
        let what = format!(
            "{} of {} rows that were read have a null in their key; one of them has {}",
            rows.len(),
            batch.num_rows(),
            self.describe(batch, *first)
        );
        Err(Error::invalid(what)
            .safe("none of them was worked on; what was sealed before is kept")
            .way("leave them out, or give them a key, where the rows come from")
            .way("let a null be a value like others: on_null = \"equal\""))
    }

    /// The keys' bytes, one behind another, and where each ends.
    fn encode(&self, columns: &[ArrayRef], rows: usize, with_version: bool) -> (Vec<u8>, Vec<usize>) {
        let mut ends = vec![usize::from(with_version); rows];
        for (column, key) in columns.iter().zip(&self.spec.columns) {
            add_lengths(column, key.kind, &mut ends);
        }
        let mut at = Vec::with_capacity(rows);
        let mut end = 0;
        for length in &mut ends {
            at.push(end);
            end += *length;
            *length = end;
        }
        let mut buffer = Buffer { bytes: vec![0; end], at };
        if with_version {
            buffer.at.iter_mut().for_each(|at| {
                buffer.bytes[*at] = self.spec.version as u8;
                *at += 1;
            });
        }
        for (column, key) in columns.iter().zip(&self.spec.columns) {
            write(column, key.kind, &mut buffer);
        }
        (buffer.bytes, ends)
    }
}

fn unreadable(error: ArrowError) -> Error {
    Error::invalid("a key column cannot be read").caused_by(error).safe("nothing was sealed")
}

/// How many bytes a value of a kind has, if that does not depend on the value.
fn width(kind: KeyKind) -> Option<usize> {
    Some(match kind {
        KeyKind::Boolean => 1,
        KeyKind::Integer | KeyKind::Uuid | KeyKind::Timestamp | KeyKind::Instant => 16,
        KeyKind::Decimal => 34,
        KeyKind::Float | KeyKind::Date | KeyKind::Time => 8,
        KeyKind::String | KeyKind::Binary => return None,
    })
}

fn add_lengths(column: &ArrayRef, kind: KeyKind, lengths: &mut [usize]) {
    let mut add = |length: &dyn Fn(usize) -> usize| {
        for (row, total) in lengths.iter_mut().enumerate() {
            *total += 1 + if column.is_null(row) { 0 } else { length(row) };
        }
    };
    match width(kind) {
        Some(width) => add(&|_| width),
        None => with_bytes(column, |value| add(&|row| 8 + value(row).len())),
    }
}

/// Lets `then` look at the bytes of each value of a column of texts or bytes.
fn with_bytes<'a>(column: &'a ArrayRef, then: impl FnOnce(&dyn Fn(usize) -> &'a [u8])) {
    match column.data_type() {
        DataType::Utf8 => {
            let column = column.as_string::<i32>();
            then(&|row| column.value(row).as_bytes());
        }
        DataType::LargeUtf8 => {
            let column = column.as_string::<i64>();
            then(&|row| column.value(row).as_bytes());
        }
        DataType::Utf8View => {
            let column = column.as_string_view();
            then(&|row| column.value(row).as_bytes());
        }
        DataType::Binary => {
            let column = column.as_binary::<i32>();
            then(&|row| column.value(row));
        }
        DataType::LargeBinary => {
            let column = column.as_binary::<i64>();
            then(&|row| column.value(row));
        }
        DataType::BinaryView => {
            let column = column.as_binary_view();
            then(&|row| column.value(row));
        }
        DataType::FixedSizeBinary(_) => {
            let column = column.as_fixed_size_binary();
            then(&|row| column.value(row));
        }
        other => unreachable!("{other} is no key of texts or bytes"),
    }
}

/// Writes values of `N` bytes each.
fn fixed<const N: usize>(column: &ArrayRef, kind: KeyKind, buffer: &mut Buffer, value: impl Fn(usize) -> [u8; N]) {
    let Buffer { bytes, at } = buffer;
    for (row, at) in at.iter_mut().enumerate() {
        if column.is_null(row) {
            *at += 1;
            continue;
        }
        bytes[*at] = kind.tag();
        bytes[*at + 1..*at + 1 + N].copy_from_slice(&value(row));
        *at += 1 + N;
    }
}

macro_rules! numbers {
    ($column:expr, $kind:expr, $buffer:expr, $type:ty, $value:expr) => {{
        let values = $column.as_primitive::<$type>().values();
        fixed($column, $kind, $buffer, |row| ($value)(values[row]))
    }};
}

fn write(column: &ArrayRef, kind: KeyKind, buffer: &mut Buffer) {
    use DataType as T;
    match column.data_type() {
        T::Boolean => {
            let values = column.as_boolean();
            fixed(column, kind, buffer, |row| [u8::from(values.value(row))]);
        }
        T::Int8 => numbers!(column, kind, buffer, Int8Type, |n: i8| i128::from(n).to_le_bytes()),
        T::Int16 => numbers!(column, kind, buffer, Int16Type, |n: i16| i128::from(n).to_le_bytes()),
        T::Int32 => numbers!(column, kind, buffer, Int32Type, |n: i32| i128::from(n).to_le_bytes()),
        T::Int64 => numbers!(column, kind, buffer, Int64Type, |n: i64| i128::from(n).to_le_bytes()),
        T::UInt8 => numbers!(column, kind, buffer, UInt8Type, |n: u8| i128::from(n).to_le_bytes()),
        T::UInt16 => numbers!(column, kind, buffer, UInt16Type, |n: u16| i128::from(n).to_le_bytes()),
        T::UInt32 => numbers!(column, kind, buffer, UInt32Type, |n: u32| i128::from(n).to_le_bytes()),
        T::UInt64 => numbers!(column, kind, buffer, UInt64Type, |n: u64| i128::from(n).to_le_bytes()),
        T::Float16 => numbers!(column, kind, buffer, Float16Type, |n: <Float16Type as ArrowPrimitiveType>::Native| {
            float(f64::from(n))
        }),
        T::Float32 => numbers!(column, kind, buffer, Float32Type, |n: f32| float(f64::from(n))),
        T::Float64 => numbers!(column, kind, buffer, Float64Type, float),
        T::Decimal32(_, scale) => {
            numbers!(column, kind, buffer, Decimal32Type, |n: i32| decimal(i256::from(n), *scale))
        }
        T::Decimal64(_, scale) => {
            numbers!(column, kind, buffer, Decimal64Type, |n: i64| decimal(i256::from(n), *scale))
        }
        T::Decimal128(_, scale) => {
            numbers!(column, kind, buffer, Decimal128Type, |n: i128| decimal(i256::from_i128(n), *scale))
        }
        T::Decimal256(_, scale) => numbers!(column, kind, buffer, Decimal256Type, |n: i256| decimal(n, *scale)),
        T::Date32 => numbers!(column, kind, buffer, Date32Type, |days: i32| i64::from(days).to_le_bytes()),
        // A day, whatever time of it there is.
        T::Date64 => numbers!(column, kind, buffer, Date64Type, |ms: i64| ms.div_euclid(86_400_000).to_le_bytes()),
        T::Time32(TimeUnit::Second) => {
            numbers!(column, kind, buffer, Time32SecondType, |n: i32| (i64::from(n) * 1_000_000_000).to_le_bytes())
        }
        T::Time32(_) => {
            numbers!(column, kind, buffer, Time32MillisecondType, |n: i32| (i64::from(n) * 1_000_000).to_le_bytes())
        }
        T::Time64(TimeUnit::Microsecond) => {
            numbers!(column, kind, buffer, Time64MicrosecondType, |n: i64| n.wrapping_mul(1_000).to_le_bytes())
        }
        T::Time64(_) => numbers!(column, kind, buffer, Time64NanosecondType, |n: i64| n.to_le_bytes()),
        T::Timestamp(unit, _) => {
            let times = |factor: i128| move |n: i64| (i128::from(n) * factor).to_le_bytes();
            match unit {
                TimeUnit::Second => numbers!(column, kind, buffer, TimestampSecondType, times(1_000_000_000)),
                TimeUnit::Millisecond => numbers!(column, kind, buffer, TimestampMillisecondType, times(1_000_000)),
                TimeUnit::Microsecond => numbers!(column, kind, buffer, TimestampMicrosecondType, times(1_000)),
                TimeUnit::Nanosecond => numbers!(column, kind, buffer, TimestampNanosecondType, times(1)),
            }
        }
        T::FixedSizeBinary(16) if kind == KeyKind::Uuid => {
            let values = column.as_fixed_size_binary();
            fixed::<16>(column, kind, buffer, |row| values.value(row).try_into().unwrap_or_default());
        }
        _ => with_bytes(column, |value| {
            let Buffer { bytes, at } = buffer;
            for (row, at) in at.iter_mut().enumerate() {
                if column.is_null(row) {
                    *at += 1;
                    continue;
                }
                let value = value(row);
                bytes[*at] = kind.tag();
                bytes[*at + 1..*at + 9].copy_from_slice(&(value.len() as u64).to_le_bytes());
                bytes[*at + 9..*at + 9 + value.len()].copy_from_slice(value);
                *at += 9 + value.len();
            }
        }),
    }
}

fn float(number: f64) -> [u8; 8] {
    let one = if number.is_nan() {
        f64::NAN.to_bits() & !(1 << 63)
    } else if number == 0.0 {
        0
    } else {
        number.to_bits()
    };
    one.to_le_bytes()
}

/// The scale and the digits of a decimal, without zeros at its end.
fn decimal(mut digits: i256, scale: i8) -> [u8; 34] {
    let mut scale = i16::from(scale);
    let ten = i256::from_i128(10);
    if digits == i256::ZERO {
        scale = 0;
    }
    while digits != i256::ZERO && digits.wrapping_rem(ten) == i256::ZERO {
        digits = digits.wrapping_div(ten);
        scale -= 1;
    }
    let mut bytes = [0; 34];
    bytes[..2].copy_from_slice(&scale.to_le_bytes());
    bytes[2..].copy_from_slice(&digits.to_le_bytes());
    bytes
}

/// Bytes of a value's text, at most: it is for people.
const LONGEST: usize = 256;

/// The texts of `column`, none longer than [`LONGEST`].
fn cut(column: &ArrayRef) -> Option<ArrayRef> {
    let texts = column.as_string_opt::<i32>()?;
    let cut =
        |text: &'_ str| -> usize { if text.len() <= LONGEST { text.len() } else { text.floor_char_boundary(LONGEST) } };
    if texts.iter().flatten().all(|text| text.len() <= LONGEST) {
        return Some(Arc::clone(column));
    }
    Some(Arc::new(texts.iter().map(|text| text.map(|text| &text[..cut(text)])).collect::<StringArray>()))
}

/// The values of a column as text.
fn text(column: &ArrayRef, kind: KeyKind) -> Result<ArrayRef> {
    let by = |shown: &dyn Fn(usize) -> Result<String>| -> Result<ArrayRef> {
        let rows = (0..column.len()).map(|row| column.is_valid(row).then(|| shown(row).ok()).flatten());
        Ok(Arc::new(rows.collect::<StringArray>()))
    };
    match kind {
        KeyKind::String | KeyKind::Boolean | KeyKind::Integer => {
            arrow_cast::cast(column, &DataType::Utf8).map_err(unreadable)
        }
        KeyKind::Binary | KeyKind::Uuid => {
            let mut shown = None;
            with_bytes(column, |value| {
                shown = Some(by(&|row| {
                    let bytes = value(row);
                    let uuid = uuid::Uuid::from_slice(bytes).ok().filter(|_| kind == KeyKind::Uuid);
                    Ok(match uuid {
                        Some(uuid) => uuid.to_string(),
                        None => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
                    })
                }));
            });
            shown.unwrap_or_else(|| Err(Error::invalid("a key column has no bytes")))
        }
        KeyKind::Decimal => {
            let formatter = formatter(column)?;
            by(&|row| {
                let text = formatter.value(row).try_to_string().map_err(unreadable)?;
                let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
                Ok(text.to_owned())
            })
        }
        KeyKind::Instant => {
            let DataType::Timestamp(unit, _) = column.data_type() else { return Ok(Arc::clone(column)) };
            let utc = DataType::Timestamp(*unit, Some("+00:00".into()));
            let column = arrow_cast::cast(column, &utc).map_err(unreadable)?;
            let formatter = formatter(&column)?;
            by(&|row| formatter.value(row).try_to_string().map_err(unreadable))
        }
        KeyKind::Float | KeyKind::Date | KeyKind::Time | KeyKind::Timestamp => {
            let formatter = formatter(column)?;
            by(&|row| formatter.value(row).try_to_string().map_err(unreadable))
        }
    }
}

fn formatter(column: &ArrayRef) -> Result<ArrayFormatter<'_>> {
    const OPTIONS: FormatOptions<'static> = FormatOptions::new().with_display_error(false);
    ArrayFormatter::try_new(column, &OPTIONS).map_err(unreadable)
}
