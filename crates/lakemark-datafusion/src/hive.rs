//! Partition columns from `column=value` folders.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::common::ScalarValue;
use lakemark::decode_partition_value;

/// The columns that the folders of every path have, in the same order, and that no file has; at most those that all
/// paths share from the start.
pub(crate) fn partition_columns<'a>(mut paths: impl Iterator<Item = &'a str>, file_schema: &Schema) -> Vec<String> {
    let Some(first) = paths.next() else { return Vec::new() };
    let mut shared: Vec<String> = columns(first).map(str::to_owned).collect();
    for path in paths {
        let same = shared.iter().zip(columns(path)).take_while(|(a, b)| a.as_str() == *b).count();
        shared.truncate(same);
    }
    let mut seen = HashSet::new();
    shared.retain(|column| file_schema.field_with_name(column).is_err() && seen.insert(column.clone()));
    shared
}

/// The field of a partition column that is read from folders.
pub(crate) fn partition_field(name: &str) -> FieldRef {
    Arc::new(Field::new(name, DataType::Utf8, true))
}

fn folders(path: &str) -> impl Iterator<Item = (&str, &str)> {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    folder.split('/').filter_map(|part| part.split_once('='))
}

fn columns(path: &str) -> impl Iterator<Item = &str> {
    folders(path).map(|(column, _)| column)
}

/// The values of `columns` in the folders of `path`; `None` when one is missing.
pub(crate) fn partition_values(path: &str, columns: &[FieldRef]) -> Option<Vec<ScalarValue>> {
    let value = |column: &FieldRef| {
        let (_, text) = folders(path).find(|(name, _)| name == column.name())?;
        Some(ScalarValue::Utf8(decode_partition_value(text).map(|v| v.into_owned())))
    };
    columns.iter().map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_what_all_paths_share() {
        let none = Schema::empty();
        let of = |paths: &[&str], schema: &Schema| partition_columns(paths.iter().copied(), schema);
        assert_eq!(of(&["a=1/b=2/x", "a=2/b=3/y"], &none), ["a", "b"]);
        assert_eq!(of(&["a=1/b=2/x", "a=2/y"], &none), ["a"]);
        assert_eq!(of(&["a=1/x", "y"], &none), Vec::<String>::new());
        let schema = Schema::new(vec![Field::new("a", DataType::Utf8, true)]);
        assert_eq!(of(&["a=1/b=2/x"], &schema), ["b"], "a column of the files wins");
        assert_eq!(of(&["plain/x=y.parquet"], &none), Vec::<String>::new(), "the file name is no folder");
    }

    #[test]
    fn values_are_decoded_once() {
        let columns = ["a", "b"].map(partition_field);
        let values = partition_values("a=x%2Fy%2520/b=__HIVE_DEFAULT_PARTITION__/f", &columns).unwrap();
        assert_eq!(values, [ScalarValue::from("x/y%20"), ScalarValue::Utf8(None)]);
        assert_eq!(partition_values("a=1/f", &columns), None);
    }
}
