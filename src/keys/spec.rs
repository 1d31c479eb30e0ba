//! What a key of a source is, as it is recorded.

use arrow_schema::Schema;
use serde::{Deserialize, Serialize};

use super::kind::KeyKind;
use crate::error::{Error, ErrorKind, Result};

/// The version of the canonical bytes: what a fingerprint is taken of.
pub const KEY_VERSION: u32 = 1;

/// A column of a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyColumn {
    /// Its name in the source.
    pub name: String,
    /// What it holds.
    pub kind: KeyKind,
}

/// What to do about nulls in a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NullKeys {
    /// A null is a value like others, equal to itself.
    #[default]
    Equal,
    /// A row with a null in its key is an error.
    Refuse,
}

/// What a key of a source is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeySpec {
    /// That of the canonical bytes.
    pub version: u32,
    /// The columns; together they are one key.
    pub columns: Vec<KeyColumn>,
    /// What to do about nulls.
    pub nulls: NullKeys,
    /// Whether the values are kept beside the fingerprints.
    pub values: bool,
}

impl KeySpec {
    /// Keys of the columns `on` of rows of `schema`.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) when `on` is empty or has a column twice or one that is not there,
    /// [`Unsupported`](ErrorKind::Unsupported) when a column's type is no key (R108).
    pub fn of(schema: &Schema, on: &[String], nulls: NullKeys, values: bool) -> Result<Self> {
        let safe = |error: Error| error.safe("nothing was read or written");
        if on.is_empty() {
            let error = Error::invalid("rows mode needs key columns, and `on` names none");
            return Err(safe(error).way("name them: on = [\"id\"]"));
        }
        let mut columns: Vec<KeyColumn> = Vec::with_capacity(on.len());
        for name in on {
            if columns.iter().any(|column| column.name == *name) {
                return Err(safe(Error::invalid(format!("`on` names the key column `{name}` twice"))));
            }
            let Some((_, field)) = schema.column_with_name(name) else {
                let others: Vec<_> = schema.fields().iter().map(|field| format!("`{}`", field.name())).collect();
                let what = format!("there is no key column `{name}`; there are {}", others.join(", "));
                let near = schema.fields().iter().find(|field| field.name().eq_ignore_ascii_case(name));
                let error = safe(Error::invalid(what)).way("name a column that is there: on = [\"...\"]");
                return Err(match near {
                    Some(near) => error.way(format!("did you mean `{}`?", near.name())),
                    None => error,
                });
            };
            let Some(kind) = KeyKind::of(field) else {
                let what = format!("the column `{name}` is of type {}, which is no key", field.data_type());
                return Err(safe(Error::new(ErrorKind::Unsupported, what))
                    .way(format!("take columns of these kinds: {}", KeyKind::all()))
                    .way("make such a column where the rows come from, for example a text or a digest of it"));
            };
            columns.push(KeyColumn { name: name.clone(), kind });
        }
        Ok(Self { version: KEY_VERSION, columns, nulls, values })
    }

    /// Checks that keys of this kind can be told from those that a store has `recorded` for `source` (R109). Whether nulls are
    /// refused and whether values are kept may differ.
    ///
    /// # Errors
    /// [`Refused`](ErrorKind::Refused), naming both and the ways on; [`Incompatible`](ErrorKind::Incompatible) for keys of a
    /// newer version.
    pub fn check_against(&self, recorded: &Self, source: &str) -> Result<()> {
        if recorded.version != self.version {
            let (there, here) = (recorded.version, self.version);
            let what = format!("the keys of source `{source}` are of version {there} in the store, and of {here} here");
            return Err(Error::new(ErrorKind::Incompatible, what)
                .safe("nothing was changed")
                .way("use the version of lakemark that wrote them"));
        }
        if recorded.columns == self.columns {
            return Ok(());
        }
        let shown = |spec: &Self| {
            let column = |column: &KeyColumn| format!("`{}` ({})", column.name, column.kind);
            spec.columns.iter().map(column).collect::<Vec<_>>().join(", ")
        };
        let names = |spec: &Self| spec.columns.iter().map(|column| column.name.clone()).collect::<Vec<_>>();
        let what =
            format!("the key of source `{source}` is {} here, but {} in the store", shown(self), shown(recorded));
        let error = Error::refused(what).safe("nothing was changed");
        let error = match names(self) == names(recorded) {
            true => error.way("cast the column to what it was, where the rows come from"),
            false => error
                .way(format!("take the key that the store has: on = {:?}", names(recorded)))
                .way("if a column was renamed: give it its old name where the rows come from, for example in a view"),
        };
        Err(error
            .way("give the source another `name`, to track it as a further source")
            .way("use another `store` and destination, to begin anew"))
    }
}

#[cfg(test)]
mod tests {
    use arrow_schema::{DataType, Field, Fields, TimeUnit};

    use super::*;

    fn schema() -> Schema {
        Schema::new(vec![
            Field::new("id", DataType::Int64, true),
            Field::new("name", DataType::Utf8View, true),
            Field::new("at", DataType::Timestamp(TimeUnit::Second, Some("+02:00".into())), true),
            Field::new("tags", DataType::Struct(Fields::from(vec![Field::new("a", DataType::Utf8, true)])), true),
        ])
    }

    fn spec(on: &[&str]) -> Result<KeySpec> {
        let on: Vec<String> = on.iter().map(|name| (*name).to_owned()).collect();
        KeySpec::of(&schema(), &on, NullKeys::Equal, true)
    }

    #[test]
    fn r108_what_is_no_key_is_refused_at_once() {
        for (on, kind, words) in [
            (&[][..], ErrorKind::Invalid, "`on` names none"),
            (&["id", "id"], ErrorKind::Invalid, "`id` twice"),
            (&["ID"], ErrorKind::Invalid, "did you mean `id`?"),
            (&["doc"], ErrorKind::Invalid, "there are `id`, `name`, `at`, `tags`"),
            (&["tags"], ErrorKind::Unsupported, "boolean, integer, decimal"),
        ] {
            let error = spec(on).unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(words), "{error}");
        }
        let kinds: Vec<_> = spec(&["at", "name", "id"]).unwrap().columns.iter().map(|column| column.kind).collect();
        assert_eq!(kinds, [KeyKind::Instant, KeyKind::String, KeyKind::Integer]);
    }

    #[test]
    fn r109_another_key_is_refused_with_both_named() {
        let recorded = spec(&["id"]).unwrap();
        recorded.check_against(&KeySpec { nulls: NullKeys::Refuse, values: false, ..recorded.clone() }, "s").unwrap();
        let other = KeyColumn { name: "id".into(), kind: KeyKind::String };
        for (now, words) in [
            (spec(&["name"]).unwrap(), "on = [\"id\"]"),
            (spec(&["id", "name"]).unwrap(), "`id` (integer), `name` (string) here"),
            (KeySpec { columns: vec![other], ..recorded.clone() }, "cast the column"),
        ] {
            let error = now.check_against(&recorded, "s").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Refused);
            assert!(error.to_string().contains(words) && error.to_string().contains("another `store`"), "{error}");
        }
        let newer = KeySpec { version: 2, ..recorded.clone() };
        assert_eq!(recorded.check_against(&newer, "s").unwrap_err().kind(), ErrorKind::Incompatible);
    }
}
