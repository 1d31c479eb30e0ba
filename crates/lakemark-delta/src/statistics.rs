//! What readers may skip a file by: row count, smallest and largest values and nulls of its first columns.

use lakemark::{Bound, bounds, null_count};
use parquet::basic::LogicalType;
use parquet::file::metadata::ParquetMetaData;
use parquet::schema::types::ColumnDescriptor;
use serde_json::Value;

/// Leaf columns with statistics, as Delta has it by default.
const COLUMNS: usize = 32;

/// The statistics of a file, in Delta's JSON. Bounds are kept only where they surely are bounds.
pub(crate) fn of_file(metadata: &ParquetMetaData) -> String {
    let (mut least, mut most, mut nulls) = (Tree::default(), Tree::default(), Tree::default());
    let columns = metadata.file_metadata().schema_descr().columns();
    // Of lists and maps no bound is one of rows.
    let plain = columns.iter().enumerate().filter(|(_, column)| column.max_rep_level() == 0);
    for (i, column) in plain.take(COLUMNS) {
        let path = column.path().parts();
        // All or nothing: deltalake takes a missing bound beside a count of nulls for null, and skips rows by it.
        let json = || {
            let (low, high) = bounds(metadata, i)?;
            Some((null_count(metadata, i)?.to_string(), to_json(&low, column, false)?, to_json(&high, column, true)?))
        };
        if let Some((count, low, high)) = json() {
            nulls.put(path, count);
            least.put(path, low);
            most.put(path, high);
        }
    }
    let rows = metadata.file_metadata().num_rows();
    format!(
        r#"{{"numRecords":{rows},"minValues":{},"maxValues":{},"nullCount":{}}}"#,
        least.to_json(),
        most.to_json(),
        nulls.to_json()
    )
}

/// JSON objects by path, with values that are JSON already: numbers keep every digit.
#[derive(Default)]
struct Tree(Vec<(String, Node)>);

enum Node {
    Leaf(String),
    Inner(Tree),
}

impl Tree {
    fn put(&mut self, path: &[String], json: String) {
        let Some((first, rest)) = path.split_first() else { return };
        if rest.is_empty() {
            self.0.push((first.clone(), Node::Leaf(json)));
            return;
        }
        let at = self.0.iter().position(|(name, _)| name == first).unwrap_or_else(|| {
            self.0.push((first.clone(), Node::Inner(Self::default())));
            self.0.len() - 1
        });
        if let Node::Inner(inner) = &mut self.0[at].1 {
            inner.put(rest, json);
        }
    }

    fn to_json(&self) -> String {
        let entry = |(name, node): &(String, Node)| {
            let value = match node {
                Node::Leaf(json) => json.clone(),
                Node::Inner(inner) => inner.to_json(),
            };
            format!("{}:{value}", Value::String(name.clone()))
        };
        format!("{{{}}}", self.0.iter().map(entry).collect::<Vec<_>>().join(","))
    }
}

/// A bound as JSON: the lower one, or `up` the upper one, which may only move outward.
fn to_json(bound: &Bound, of: &ColumnDescriptor, up: bool) -> Option<String> {
    let logical = of.logical_type_ref();
    Some(match (bound, logical) {
        (Bound::Integer(days), Some(LogicalType::Date)) => Value::String(date(i64::try_from(*days).ok()?)?).to_string(),
        (Bound::Integer(micros), Some(LogicalType::Timestamp(kind))) => {
            let micros = i64::try_from(*micros).ok()?;
            // Readers keep milliseconds: the bound moves outward.
            let millis = micros.div_euclid(1_000) + i64::from(up && micros.rem_euclid(1_000) != 0);
            let zone = if kind.is_adjusted_to_u_t_c { "Z" } else { "" };
            let (days, rest) = (millis.div_euclid(86_400_000), millis.rem_euclid(86_400_000));
            let (hours, minutes, seconds) = (rest / 3_600_000, rest / 60_000 % 60, rest / 1_000 % 60);
            let text = format!("{}T{hours:02}:{minutes:02}:{seconds:02}.{:03}{zone}", date(days)?, rest % 1_000);
            Value::String(text).to_string()
        }
        (Bound::Integer(unscaled), Some(LogicalType::Decimal(kind))) => {
            decimal(*unscaled, u32::try_from(kind.scale).ok()?)
        }
        (Bound::Integer(number), _) => number.to_string(),
        (Bound::Text(text), _) => Value::String(text.clone()).to_string(),
    })
}

/// A decimal as a JSON number with all its digits.
fn decimal(unscaled: i128, scale: u32) -> String {
    let digits = format!("{:0>width$}", unscaled.unsigned_abs(), width = scale as usize + 1);
    let (whole, part) = digits.split_at(digits.len() - scale as usize);
    let sign = if unscaled < 0 { "-" } else { "" };
    if part.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{part}") }
}

/// The day number `days` after 1970-01-01 as a date (Howard Hinnant's civil_from_days); `None` for one whose year has not
/// four digits, which not every reader can parse.
fn date(days: i64) -> Option<String> {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (1..=9999).contains(&year).then(|| format!("{year:04}-{month:02}-{day:02}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_dates_keep_every_digit() {
        assert_eq!(decimal(-5, 2), "-0.05");
        assert_eq!(decimal(12_345_678_901_234_567_890, 3), "12345678901234567.890");
        assert_eq!(decimal(7, 0), "7");
        for (days, text) in [(0, "1970-01-01"), (-1, "1969-12-31"), (19_782, "2024-02-29"), (11_016, "2000-02-29")] {
            assert_eq!(date(days).as_deref(), Some(text));
        }
        assert_eq!(date(2_932_896).as_deref(), Some("9999-12-31"));
        assert_eq!((date(2_932_897), date(-719_529)), (None, None));
    }

    #[test]
    fn nested_columns_are_nested_objects() {
        let mut tree = Tree::default();
        tree.put(&["a".into(), "b".into()], "1".into());
        tree.put(&["a".into(), "c\"".into()], "2".into());
        tree.put(&["d".into()], "\"x\"".into());
        assert_eq!(tree.to_json(), r#"{"a":{"b":1,"c\"":2},"d":"x"}"#);
        assert!(serde_json::from_str::<serde_json::Map<String, Value>>(&tree.to_json()).is_ok());
    }
}
