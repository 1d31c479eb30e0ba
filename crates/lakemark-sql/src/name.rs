//! Names of tables: as users write them, as errors show them, as SQL has them.

use std::fmt;

use lakemark::{Error, Result};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

/// What cannot be in one segment of a root.
const SEGMENT: &AsciiSet = &CONTROLS.add(b'/').add(b'%');

/// A table, perhaps with its schema. Names are as the database spells them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableName {
    pub(crate) schema: Option<String>,
    pub(crate) table: String,
}

impl TableName {
    /// `table` or `schema.table`; a part in double quotes can hold dots, and quotes by doubling them.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let bad = |why: &str| {
            Error::invalid(format!("`{}` names no table: {why}", text.escape_debug()))
                .way("write `table` or `schema.table`, as the database spells them")
                .way("quote a part that has a dot or a quote in it: `public.\"my.docs\"`")
        };
        let mut parts = Vec::new();
        let mut rest = text.trim();
        loop {
            let (part, after) = first_part(rest).map_err(bad)?;
            if part.is_empty() || part.contains('\0') {
                return Err(bad("a part is empty or has a NUL character"));
            }
            parts.push(part);
            match after.strip_prefix('.') {
                Some(next) => rest = next,
                None if after.is_empty() => break,
                None => return Err(bad("there is text after a closing quote")),
            }
        }
        let mut parts = parts.into_iter().rev();
        match (parts.next(), parts.next(), parts.next()) {
            (Some(table), schema, None) => Ok(Self { schema, table }),
            _ => Err(bad("it has more than two parts; the database is in the URL")),
        }
    }

    /// As one segment of a root.
    pub(crate) fn segment(&self) -> String {
        segment(&self.to_string())
    }

    /// Quoted for SQL.
    pub(crate) fn sql(&self) -> String {
        match &self.schema {
            Some(schema) => format!("{}.{}", quoted(schema), quoted(&self.table)),
            None => quoted(&self.table),
        }
    }
}

/// As users write it.
impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |name: &str| {
            let plain = !name.contains(['.', '"']) && name.trim() == name;
            if plain { name.to_owned() } else { quoted(name) }
        };
        if let Some(schema) = &self.schema {
            write!(f, "{}.", part(schema))?;
        }
        f.write_str(&part(&self.table))
    }
}

/// `text` with what cannot be in one segment of a root escaped.
pub(crate) fn segment(text: &str) -> String {
    utf8_percent_encode(text, SEGMENT).to_string()
}

/// `name` as an identifier of SQL, whatever is in it.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The names most like `wanted`, best first.
pub(crate) fn nearest(wanted: &str, names: Vec<String>) -> Vec<String> {
    let wanted = wanted.to_lowercase();
    let mut ranked: Vec<(usize, String)> =
        names.into_iter().map(|name| (strsim::damerau_levenshtein(&wanted, &name.to_lowercase()), name)).collect();
    ranked.sort();
    ranked.into_iter().take(5).map(|(_, name)| name).collect()
}

fn first_part(text: &str) -> Result<(String, &str), &'static str> {
    let Some(mut rest) = text.strip_prefix('"') else {
        let end = text.find('.').unwrap_or(text.len());
        let (part, after) = text.split_at(end);
        return if part.contains('"') { Err("a quote is inside a part") } else { Ok((part.to_owned(), after)) };
    };
    let mut part = String::new();
    loop {
        let (before, after) = rest.split_once('"').ok_or("a quote is not closed")?;
        part.push_str(before);
        match after.strip_prefix('"') {
            Some(more) => {
                part.push('"');
                rest = more;
            }
            None => return Ok((part, after)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_shown() {
        for (text, schema, table) in [
            ("docs", None, "docs"),
            ("public.Docs", Some("public"), "Docs"),
            ("\"my.schema\".\"a\"\"b\"", Some("my.schema"), "a\"b"),
            ("s.\"..\"", Some("s"), ".."),
            ("select", None, "select"),
        ] {
            let name = TableName::parse(text).unwrap();
            assert_eq!((name.schema.as_deref(), name.table.as_str()), (schema, table), "{text}");
            assert_eq!(TableName::parse(&name.to_string()).unwrap(), name, "{text}");
        }
        for bad in ["", ".", "a.", ".b", "a.b.c", "\"a", "a\"b", "\"a\"b", "a\0b"] {
            assert!(TableName::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn no_name_leaves_its_quotes_or_its_segment() {
        let name = TableName { schema: Some("a\".b".into()), table: "x/../y%2F".into() };
        assert_eq!(name.sql(), "\"a\"\".b\".\"x/../y%2F\"");
        assert!(!name.segment().contains('/') && name.segment().contains("%252F"));
        assert_eq!(TableName { schema: None, table: "..".into() }.segment(), "\"..\"");
    }
}
