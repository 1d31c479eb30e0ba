//! What a manifest says of a data file: what readers may skip it by, and its partition.

use std::collections::HashMap;

use iceberg::spec::{
    DataContentType, DataFile, DataFileBuilder, DataFileFormat, Datum, Literal, PartitionSpec, PrimitiveType, Schema,
    Struct,
};
use lakemark::{Bound, Error, OutputFile, Result, bounds, decode_partition_value, null_count};
use parquet::basic::LogicalType;
use parquet::file::metadata::ParquetMetaData;
use parquet::schema::types::ColumnDescriptor;

/// Leaf columns with bounds and counts, as Iceberg's `write.metadata.metrics.max-inferred-column-defaults` has it.
const COLUMNS: usize = 100;
/// Characters of a text that its bound keeps, as Iceberg's `truncate(16)`.
const CHARACTERS: usize = 16;

/// What the footer of a file says, by the ids of its columns.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    sizes: HashMap<i32, u64>,
    values: HashMap<i32, u64>,
    nulls: HashMap<i32, u64>,
    least: HashMap<i32, Datum>,
    most: HashMap<i32, Datum>,
    offsets: Vec<i64>,
}

impl Facts {
    /// Of the file with this footer. Bounds are kept only where they surely are bounds.
    pub(crate) fn of_file(metadata: &ParquetMetaData) -> Self {
        let mut facts = Self::default();
        let groups = metadata.row_groups();
        let columns = metadata.file_metadata().schema_descr().columns();
        for (i, column) in columns.iter().enumerate().take(COLUMNS) {
            let info = column.self_type().get_basic_info();
            if !info.has_id() {
                continue;
            }
            let id = info.id();
            let chunks = || groups.iter().map(|group| group.column(i));
            facts.sizes.insert(id, chunks().map(|chunk| chunk.compressed_size().max(0) as u64).sum());
            // Of lists and maps no count is one of rows.
            if column.max_rep_level() > 0 {
                continue;
            }
            facts.values.insert(id, chunks().map(|chunk| chunk.num_values().max(0) as u64).sum());
            if let Some(nulls) = null_count(metadata, i) {
                facts.nulls.insert(id, nulls);
            }
            let datums = || {
                let (low, high) = bounds(metadata, i)?;
                Some((datum(&low, column, false)?, datum(&high, column, true)?))
            };
            if let Some((low, high)) = datums() {
                facts.least.insert(id, low);
                facts.most.insert(id, high);
            }
        }
        let mut offsets: Vec<i64> = groups.iter().filter_map(|group| group.file_offset()).collect();
        offsets.sort_unstable();
        if offsets.len() == groups.len() {
            facts.offsets = offsets;
        }
        facts
    }

    /// `file`, which is named `path` in the metadata, as an entry of a manifest of `schema` and `spec`.
    ///
    /// # Errors
    /// [`Invalid`](lakemark::ErrorKind::Invalid) for a file in a folder that is not one of the table's.
    pub(crate) fn entry(
        self,
        file: &OutputFile,
        path: String,
        schema: &Schema,
        spec: &PartitionSpec,
    ) -> Result<DataFile> {
        let mut entry = DataFileBuilder::default();
        entry
            .content(DataContentType::Data)
            .file_path(path)
            .file_format(DataFileFormat::Parquet)
            .partition(partition(file, schema, spec)?)
            .partition_spec_id(spec.spec_id())
            .record_count(file.rows)
            .file_size_in_bytes(file.size)
            .column_sizes(self.sizes)
            .value_counts(self.values)
            .null_value_counts(self.nulls)
            .lower_bounds(self.least)
            .upper_bounds(self.most)
            .split_offsets((!self.offsets.is_empty()).then_some(self.offsets));
        entry
            .build()
            .map_err(|e| Error::invalid("an output file cannot be an entry of a manifest").at(&file.name).caused_by(e))
    }
}

/// A bound as Iceberg keeps it: the lower one, or `up` the upper one, which may only move outward.
fn datum(bound: &Bound, of: &ColumnDescriptor, up: bool) -> Option<Datum> {
    match (bound, of.logical_type_ref()) {
        (Bound::Text(text), _) => cut(text, up).map(Datum::string),
        (Bound::Integer(days), Some(LogicalType::Date)) => Some(Datum::date(i32::try_from(*days).ok()?)),
        (Bound::Integer(micros), Some(LogicalType::Time(_))) => Datum::time_micros(i64::try_from(*micros).ok()?).ok(),
        (Bound::Integer(micros), Some(LogicalType::Timestamp(kind))) => {
            let micros = i64::try_from(*micros).ok()?;
            Some(if kind.is_adjusted_to_u_t_c {
                Datum::timestamptz_micros(micros)
            } else {
                Datum::timestamp_micros(micros)
            })
        }
        (Bound::Integer(unscaled), Some(LogicalType::Decimal(kind))) => {
            let (precision, scale) = (u32::try_from(kind.precision).ok()?, u32::try_from(kind.scale).ok()?);
            let of = PrimitiveType::Decimal { precision, scale };
            Datum::try_from_bytes(&shortest(*unscaled), of).ok()
        }
        (Bound::Integer(number), None | Some(LogicalType::Integer(_))) => match of.physical_type() {
            parquet::basic::Type::INT32 => Some(Datum::int(i32::try_from(*number).ok()?)),
            parquet::basic::Type::INT64 => Some(Datum::long(i64::try_from(*number).ok()?)),
            _ => None,
        },
        _ => None,
    }
}

/// The first characters of a text; for the upper bound followed by the least text that is above all that begin so.
fn cut(text: &str, up: bool) -> Option<String> {
    let Some((at, _)) = text.char_indices().nth(CHARACTERS) else { return Some(text.to_owned()) };
    let mut kept: Vec<char> = text[..at].chars().collect();
    if !up {
        return Some(kept.into_iter().collect());
    }
    while let Some(last) = kept.pop() {
        // Readers order texts by their code points; some of them are no characters.
        let next = (u32::from(last) + 1..=u32::from(char::MAX)).find_map(char::from_u32);
        if let Some(next) = next {
            kept.push(next);
            return Some(kept.into_iter().collect());
        }
    }
    None
}

/// A number in two's complement with as few bytes as it takes, the highest first.
fn shortest(number: i128) -> Vec<u8> {
    let bytes = number.to_be_bytes();
    let spare = |i: usize| {
        let sign = if bytes[i + 1] & 0x80 == 0 { 0x00 } else { 0xff };
        bytes[i] == sign
    };
    let skipped = (0..15).take_while(|&i| spare(i)).count();
    bytes[skipped..].to_vec()
}

/// The partition that the folder `a=1/b=x%2Fy` of a file stands for.
fn partition(file: &OutputFile, schema: &Schema, spec: &PartitionSpec) -> Result<Struct> {
    let names: Vec<&str> = spec.fields().iter().filter_map(|field| schema.name_by_field_id(field.source_id)).collect();
    let wrong = || {
        Error::invalid(format!(
            "a file waits in the folder `{}`, and the table is partitioned by ({})",
            file.folder,
            names.join(", ")
        ))
        .at(&file.name)
        .safe("nothing was written to the table")
    };
    let parts: Vec<&str> = file.folder.split('/').filter(|part| !part.is_empty()).collect();
    if parts.len() != spec.fields().len() {
        return Err(wrong());
    }
    let values = parts.into_iter().zip(spec.fields()).map(|(part, field)| {
        let column = schema.field_by_id(field.source_id).ok_or_else(wrong)?;
        let (name, value) = part.split_once('=').ok_or_else(wrong)?;
        if decode_partition_value(name).as_deref() != Some(&*column.name) {
            return Err(wrong());
        }
        let Some(value) = decode_partition_value(value) else { return Ok(None) };
        let of = column.field_type.as_primitive_type().ok_or_else(wrong)?;
        literal(&value, of).map(Some).ok_or_else(wrong)
    });
    values.collect()
}

/// The value whose text, as Arrow writes it, is `text`.
fn literal(text: &str, of: &PrimitiveType) -> Option<Literal> {
    Some(match of {
        PrimitiveType::Boolean => Literal::bool(text.parse::<bool>().ok()?),
        PrimitiveType::Int => Literal::int(text.parse::<i32>().ok()?),
        PrimitiveType::Long => Literal::long(text.parse::<i64>().ok()?),
        PrimitiveType::String => Literal::string(text),
        PrimitiveType::Date => Literal::date_from_str(text).ok()?,
        PrimitiveType::Timestamp => Literal::timestamp(micros(text)?),
        PrimitiveType::Decimal { scale, .. } => {
            let digits = text.split_once('.').map_or(0, |(_, digits)| digits.len());
            if digits != *scale as usize {
                return None;
            }
            Literal::decimal(text.replacen('.', "", 1).parse().ok()?)
        }
        _ => return None,
    })
}

/// The microseconds since 1970 of a time without a zone, `2024-02-29T23:59:59.5`, of any year.
fn micros(text: &str) -> Option<i64> {
    let (date, time) = text.split_once('T')?;
    let (sign, date) = match (date.strip_prefix('-'), date.strip_prefix('+')) {
        (Some(rest), _) => (-1, rest),
        (None, Some(rest)) => (1, rest),
        (None, None) => (1, date),
    };
    let mut numbers = date.split('-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (sign * numbers.next()??, numbers.next()??, numbers.next()??);
    let (clock, fraction) = time.split_once('.').unwrap_or((time, ""));
    let mut numbers = clock.split(':').map(|part| part.parse::<i64>().ok());
    let (hours, minutes, seconds) = (numbers.next()??, numbers.next()??, numbers.next().unwrap_or(Some(0))?);
    let fraction: i64 = format!("{fraction:0<6}").get(..6)?.parse().ok()?;
    let seconds = days(year, month, day)?.checked_mul(86_400)?.checked_add(hours * 3_600 + minutes * 60 + seconds)?;
    seconds.checked_mul(1_000_000)?.checked_add(fraction)
}

/// The day number of a date after 1970-01-01 (Howard Hinnant's days_from_civil).
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    Some(era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + day_of_year - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_long_texts_stay_bounds() {
        let long = "abcdefghijklmnopqrstuvwxyz";
        assert_eq!(cut(long, false).unwrap(), "abcdefghijklmnop");
        assert_eq!(cut(long, true).unwrap(), "abcdefghijklmnoq");
        assert_eq!(cut("short", true).unwrap(), "short");
        assert_eq!(cut(&"\u{10ffff}".repeat(17), true), None);
        let last = format!("{}\u{d7ff}y", "é".repeat(15));
        assert_eq!(cut(&last, true).unwrap(), format!("{}\u{e000}", "é".repeat(15)), "no half of a pair");
    }

    #[test]
    fn decimals_are_as_short_as_they_can_be() {
        for (number, bytes) in [(0, &[0][..]), (127, &[127]), (128, &[0, 128]), (-1, &[255]), (-129, &[255, 127])] {
            assert_eq!(shortest(number), bytes, "{number}");
        }
        assert_eq!(shortest(i128::MIN).len(), 16);
    }

    #[test]
    fn partition_values_are_told_from_their_text() {
        let decimal = PrimitiveType::Decimal { precision: 9, scale: 2 };
        assert_eq!(literal("-12.05", &decimal), Some(Literal::decimal(-1205)));
        assert_eq!(literal("-0.05", &decimal), Some(Literal::decimal(-5)));
        assert_eq!(literal("12", &decimal), None);
        assert_eq!(literal("2024-02-29", &PrimitiveType::Date), Some(Literal::date(19_782)));
        let at = 1_700_000_000_000_001;
        assert_eq!(literal("2023-11-14T22:13:20.000001", &PrimitiveType::Timestamp), Some(Literal::timestamp(at)));
        assert_eq!(literal("2023-11-14T22:13:20", &PrimitiveType::Timestamp), Some(Literal::timestamp(at - 1)));
        for micros in [i64::from(i32::MAX) * 1_000_000, -1, -62_135_596_800_000_001, 253_402_300_800_000_000, 0] {
            let array = arrow_array::TimestampMicrosecondArray::from(vec![micros]);
            let text = arrow_cast::cast(&array, &arrow_schema::DataType::Utf8).unwrap();
            let text = arrow_array::cast::AsArray::as_string::<i32>(&text).value(0).to_owned();
            assert_eq!(literal(&text, &PrimitiveType::Timestamp), Some(Literal::timestamp(micros)), "{text}");
        }
        assert_eq!(literal("", &PrimitiveType::String), Some(Literal::string("")));
        assert_eq!(literal("0x1", &PrimitiveType::Long), None);
    }
}
