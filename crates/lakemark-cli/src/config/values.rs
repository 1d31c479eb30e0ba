//! The types of single settings: how each is written, and what a message says it takes.

use std::fmt;
use std::num::NonZeroUsize;
use std::time::Duration;

use lakemark::{Error, Result, StorageOptions};

use super::section::nearest;
use super::tree::{Item, Value, is_secret, join};

/// The value of a key, of any shape.
pub(super) trait Setting: Sized {
    /// Reads the value written for the dotted `key`.
    fn read(item: Item, key: &str) -> Result<Self>;
}

/// A setting written as one text or number.
pub(super) trait Scalar: Sized {
    /// The only values there are, if they can be listed.
    const NAMES: &'static [&'static str] = &[];
    /// Whether a number or boolean without quotes is a mistake.
    const QUOTED: bool = false;

    /// What may be written, as in "it takes ...".
    fn takes() -> String {
        format!("one of {}", Self::NAMES.join(", "))
    }

    fn parse(text: &str) -> Option<Self>;
}

impl<T: Scalar> Setting for T {
    fn read(item: Item, key: &str) -> Result<Self> {
        let text = match &item.value {
            Value::Text(text) => text,
            Value::Bare(text) if !T::QUOTED => text,
            _ => return Err(reject(&item.place, &item.value, key, &T::takes())),
        };
        T::parse(text).ok_or_else(|| {
            let error = reject(&item.place, &item.value, key, &T::takes());
            match nearest(text, T::NAMES) {
                Some(name) => error.way(format!("did you mean \"{name}\"?")),
                None => error,
            }
        })
    }
}

/// An empty text is no value.
impl<T: Scalar> Setting for Option<T> {
    fn read(item: Item, key: &str) -> Result<Self> {
        match &item.value {
            Value::Text(text) if text.is_empty() => Ok(None),
            _ => T::read(item, key).map(Some),
        }
    }
}

impl Setting for Vec<String> {
    fn read(item: Item, key: &str) -> Result<Self> {
        match item.value {
            Value::List(items) => {
                items.into_iter().enumerate().map(|(i, item)| String::read(item, &format!("{key}[{i}]"))).collect()
            }
            _ => Err(reject(&item.place, &item.value, key, "a list of texts such as [\"a\", \"b\"]")),
        }
    }
}

impl Scalar for String {
    const QUOTED: bool = true;

    fn takes() -> String {
        "a text in quotes".into()
    }

    fn parse(text: &str) -> Option<Self> {
        Some(text.to_owned())
    }
}

macro_rules! whole_numbers {
    ($($type:ty)*) => {$(
        impl Scalar for $type {
            fn takes() -> String {
                "a whole number, 0 or more".into()
            }

            fn parse(text: &str) -> Option<Self> {
                text.replace('_', "").parse().ok()
            }
        }
    )*};
}

whole_numbers!(u32 u64);

impl Scalar for NonZeroUsize {
    fn takes() -> String {
        "a whole number, 1 or more".into()
    }

    fn parse(text: &str) -> Option<Self> {
        text.replace('_', "").parse().ok()
    }
}

impl Scalar for bool {
    const NAMES: &'static [&'static str] = &["true", "false"];

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

/// One character of ASCII.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Letter(pub(crate) u8);

impl Scalar for Letter {
    const QUOTED: bool = true;

    fn takes() -> String {
        "one character of ASCII, such as \";\" or \"\\t\"".into()
    }

    fn parse(text: &str) -> Option<Self> {
        match text.as_bytes() {
            [letter] if letter.is_ascii() => Some(Self(*letter)),
            _ => None,
        }
    }
}

impl Scalar for Duration {
    fn takes() -> String {
        "a duration such as \"25s\" or \"15m\"".into()
    }

    fn parse(text: &str) -> Option<Self> {
        humantime::parse_duration(text).ok()
    }
}

/// A number of bytes, 1 or more, written as `"128MiB"`, `"1GB"` or a plain number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Bytes(pub(crate) u64);

impl Scalar for Bytes {
    fn takes() -> String {
        "a size such as \"128MiB\" or \"1GB\", or a number of bytes, 1 or more".into()
    }

    fn parse(text: &str) -> Option<Self> {
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let unit = unit.trim().to_ascii_lowercase();
        let (base, power) = match unit.as_bytes() {
            b"" | b"b" => (1, 0),
            [prefix, b'i', b'b'] => (1024, power(*prefix)?),
            [prefix, b'b'] => (1000, power(*prefix)?),
            _ => return None,
        };
        u64::parse(number)?.checked_mul(u64::pow(base, power)).filter(|bytes| *bytes > 0).map(Self)
    }
}

fn power(prefix: u8) -> Option<u32> {
    b"kmgt".iter().position(|p| *p == prefix).map(|i| i as u32 + 1)
}

/// How much of a source may be redone because its files were replaced, before a run is refused.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum MaxReplaced {
    /// Of the known files, 0 to 100.
    Percent(f64),
    Files(u64),
}

impl Scalar for MaxReplaced {
    fn takes() -> String {
        "a share such as \"10%\" (0% to 100%) or a number of files".into()
    }

    fn parse(text: &str) -> Option<Self> {
        match text.strip_suffix('%') {
            Some(share) => share.parse().ok().filter(|share| (0.0..=100.0).contains(share)).map(Self::Percent),
            None => u64::parse(text).map(Self::Files),
        }
    }
}

/// The compression of Parquet output. `zstd` alone is `zstd(3)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compression {
    None,
    Snappy,
    /// The level is 1 to 22.
    Zstd(u8),
    Lz4,
    Gzip,
    Brotli,
}

impl Scalar for Compression {
    const NAMES: &'static [&'static str] = &["none", "snappy", "zstd", "zstd(1)", "zstd(22)", "lz4", "gzip", "brotli"];

    fn takes() -> String {
        "one of none, snappy, zstd, zstd(1) to zstd(22), lz4, gzip, brotli".into()
    }

    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "none" => Self::None,
            "snappy" => Self::Snappy,
            "zstd" => Self::Zstd(3),
            "lz4" => Self::Lz4,
            "gzip" => Self::Gzip,
            "brotli" => Self::Brotli,
            _ => {
                let level = text.strip_prefix("zstd(")?.strip_suffix(')')?.parse().ok()?;
                Self::Zstd(Some(level).filter(|level| (1..=22).contains(level))?)
            }
        })
    }
}

impl Setting for StorageOptions {
    fn read(item: Item, key: &str) -> Result<Self> {
        let Value::Table(table) = item.value else {
            return Err(reject(&item.place, &item.value, key, "a table of texts"));
        };
        let one = |(name, item): (String, Item)| match item.value {
            Value::Text(text) | Value::Bare(text) => Ok((name, text)),
            _ => Err(reject(&item.place, &item.value, &join(key, &name), "a text")),
        };
        table.into_iter().map(one).collect()
    }
}

/// What was found at the dotted `key`, and what it takes.
pub(super) fn reject(place: &str, value: &Value, key: &str, takes: &str) -> Error {
    let found = match value {
        Value::Text(_) | Value::Bare(_) if is_secret(key) => "not usable".to_owned(),
        Value::Text(text) => format!("{text:?}"),
        Value::Bare(text) => text.clone(),
        Value::List(_) => "a list".to_owned(),
        Value::Table(_) => "a table".to_owned(),
    };
    Error::invalid(format!("`{key}` is {found}; it takes {takes}")).at(place)
}

macro_rules! choices {
    ($($(#[$meta:meta])* $name:ident { $($(#[$note:meta])* $variant:ident = $text:literal,)* })*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum $name { $($(#[$note])* $variant,)* }

        impl $name {
            pub(crate) fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl Scalar for $name {
            const NAMES: &'static [&'static str] = &[$($text,)*];

            fn parse(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$variant),)* _ => None }
            }
        }
    )*};
}

choices! {
    /// The format of a source.
    Format {
        Parquet = "parquet",
        Csv = "csv",
        Json = "json",
        Delta = "delta",
        Iceberg = "iceberg",
        Postgres = "postgres",
        Sqlite = "sqlite",
    }

    /// What the columns of CSV files are.
    CsvTypes {
        /// What the first rows of the first file look like.
        Infer = "infer",
        Text = "text",
    }

    /// What a key of finished work is: an atom of a file, or the user's own columns.
    Mode {
        Files = "files",
        Rows = "rows",
    }

    /// What happens to a file that was replaced.
    OnChange {
        Reprocess = "reprocess",
        Replace = "replace",
        Ignore = "ignore",
        Fail = "fail",
    }

    /// What happens to a file whose token changed and whose footer did not.
    OnMoved {
        Fail = "fail",
        Accept = "accept",
        Reprocess = "reprocess",
    }

    /// What happens to the output of a file that is gone.
    OnDelete {
        Keep = "keep",
        Retract = "retract",
    }

    /// What happens to a second row with a known key.
    OnDuplicate {
        First = "first",
        Fail = "fail",
    }

    /// What nulls are in a key.
    OnNull {
        Equal = "equal",
        Refuse = "refuse",
    }

    /// Whether work on a source is recorded.
    Role {
        Tracked = "tracked",
        /// A broadcast table to join with.
        Lookup = "lookup",
    }

    /// What becomes of a column of the query that the table lacks.
    SchemaMode {
        Fail = "fail",
        Merge = "merge",
    }

    /// Where output goes.
    SinkKind {
        Parquet = "parquet",
        Csv = "csv",
        Json = "json",
        Delta = "delta",
        Iceberg = "iceberg",
        None = "none",
    }

    /// What happens when a task fails for good.
    OnError {
        Fail = "fail",
        SetAside = "set-aside",
    }
}

impl Format {
    /// Whether its files are known by a log or a catalog, and never change.
    pub(crate) fn is_table(self) -> bool {
        matches!(self, Self::Delta | Self::Iceberg)
    }

    /// Whether it is a table of a database, which has no files.
    pub(crate) fn is_database(self) -> bool {
        matches!(self, Self::Postgres | Self::Sqlite)
    }
}

impl SinkKind {
    /// Whether one commit makes all its files visible at once.
    pub(crate) fn is_table(self) -> bool {
        matches!(self, Self::Delta | Self::Iceberg)
    }
}
