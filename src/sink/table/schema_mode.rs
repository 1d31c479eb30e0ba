//! What becomes of columns that a query has and its table lacks.

use parquet::file::metadata::{KeyValue, ParquetMetaData};

/// The key in the footer of an output file under which the mode it was written in is found.
const KEY: &str = "lakemark.schema_mode";

/// What becomes of a column that a query has and its table lacks. Nothing else of a table is ever changed: a column that the
/// query lacks stays, and is null in new rows; another type is refused in any mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SchemaMode {
    /// The query is refused.
    #[default]
    Fail,
    /// The commit that adds the first file with it adds it to the table, as the last one and nullable.
    Merge,
}

impl SchemaMode {
    /// The word for it, in jobs and footers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Merge => "merge",
        }
    }

    /// The mode that the file with this footer was written in: whoever commits it, by whatever job, is to do what its own
    /// job asked for.
    pub fn of_file(metadata: &ParquetMetaData) -> Self {
        let mut pairs = metadata.file_metadata().key_value_metadata().into_iter().flatten();
        match pairs.any(|pair| pair.key == KEY && pair.value.as_deref() == Some(Self::Merge.as_str())) {
            true => Self::Merge,
            false => Self::Fail,
        }
    }

    /// What the footer of a file has to say of it.
    pub fn to_footer(self) -> Option<KeyValue> {
        (self == Self::Merge).then(|| KeyValue::new(KEY.to_owned(), self.as_str().to_owned()))
    }

    /// Whether columns are added, when one or the other asked for it.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        if self == Self::Merge { self } else { other }
    }
}
