//! What the footer of a file says of a column: nulls, and bounds where they surely are bounds.

use parquet::basic::{LogicalType, Type};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::statistics::Statistics;
use parquet::schema::types::ColumnDescriptor;

/// A bound of a column, in its physical order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bound {
    /// An integer, a date, a time, or a decimal without its point.
    Integer(i128),
    /// A text, which may be cut.
    Text(String),
}

impl Bound {
    fn is_less(&self, other: &Self) -> Option<bool> {
        match (self, other) {
            (Self::Integer(a), Self::Integer(b)) => Some(a < b),
            (Self::Text(a), Self::Text(b)) => Some(a.as_bytes() < b.as_bytes()),
            _ => None,
        }
    }

    fn min(self, other: Self) -> Option<Self> {
        Some(if other.is_less(&self)? { other } else { self })
    }

    fn max(self, other: Self) -> Option<Self> {
        Some(if self.is_less(&other)? { other } else { self })
    }
}

/// The nulls in the leaf column `column` of a file. `None` when some row group does not say.
pub fn null_count(metadata: &ParquetMetaData, column: usize) -> Option<u64> {
    metadata.row_groups().iter().map(|group| group.column(column).statistics()?.null_count_opt()).sum()
}

/// The smallest and the largest value of the leaf column `column` over all row groups. `None` when one of them does not say,
/// when none has a value, and for types whose order not all readers share.
pub fn bounds(metadata: &ParquetMetaData, column: usize) -> Option<(Bound, Bound)> {
    let of = metadata.file_metadata().schema_descr().column(column);
    let mut whole: Option<(Bound, Bound)> = None;
    for group in metadata.row_groups() {
        let chunk = group.column(column);
        let statistics = chunk.statistics()?;
        if statistics.min_bytes_opt().is_none() || statistics.max_bytes_opt().is_none() {
            // A group of nulls has no bounds, and widens none.
            if statistics.null_count_opt() == Some(chunk.num_values() as u64) {
                continue;
            }
            return None;
        }
        let (low, high) = bounds_of(statistics, &of)?;
        whole = Some(match whole {
            None => (low, high),
            Some((least, most)) => (least.min(low)?, most.max(high)?),
        });
    }
    whole
}

fn bounds_of(statistics: &Statistics, of: &ColumnDescriptor) -> Option<(Bound, Bound)> {
    let logical = of.logical_type_ref();
    let is_decimal = matches!(logical, Some(LogicalType::Decimal(_)));
    let integers = |low: i128, high: i128| Some((Bound::Integer(low), Bound::Integer(high)));
    match statistics {
        Statistics::Int32(s) => integers((*s.min_opt()?).into(), (*s.max_opt()?).into()),
        Statistics::Int64(s) => integers((*s.min_opt()?).into(), (*s.max_opt()?).into()),
        Statistics::FixedLenByteArray(_) if is_decimal && of.physical_type() == Type::FIXED_LEN_BYTE_ARRAY => {
            integers(big_endian(statistics.min_bytes_opt()?)?, big_endian(statistics.max_bytes_opt()?)?)
        }
        Statistics::ByteArray(_) if matches!(logical, Some(LogicalType::String)) => {
            let text = |bytes: &[u8]| std::str::from_utf8(bytes).ok().map(|text| Bound::Text(text.to_owned()));
            Some((text(statistics.min_bytes_opt()?)?, text(statistics.max_bytes_opt()?)?))
        }
        // Of floats too: a footer does not tell whether there are NaNs, which to some readers are larger than any number.
        _ => None,
    }
}

fn big_endian(bytes: &[u8]) -> Option<i128> {
    let sign = if bytes.first()? & 0x80 == 0 { 0 } else { 0xff };
    let mut wide = [sign; 16];
    let at = wide.len().checked_sub(bytes.len())?;
    wide[at..].copy_from_slice(bytes);
    Some(i128::from_be_bytes(wide))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_of_any_width_keep_their_sign() {
        assert_eq!(big_endian(&[0xff, 0xfe]), Some(-2));
        assert_eq!(big_endian(&[0x7f, 0xff]), Some(32_767));
        assert_eq!(big_endian(&[0; 17]), None);
    }
}
