//! The stable, injective text form of an atom.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use super::FileVersion;
use crate::error::{Error, Result};

/// One unit of work: a row group of one version of one file, the whole file, or row ordinals inside a group.
///
/// Its text form is `path#rg=3#sz=12345#etag=abc`, with `#rows=a-b` (inclusive) for a part of a group and without
/// `#rg=` for a whole file; `%`, `#` and control characters in path and token are percent-escaped, so that the form
/// is injective. It never changes: scripts and logs keep it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AtomKey {
    /// The file version.
    pub file: FileVersion,
    /// The row group's position in the footer's list; `None` is the whole file.
    pub row_group: Option<u32>,
    /// Row ordinals inside the group; `None` is all of them.
    pub rows: Option<Range<u64>>,
}

fn escape(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for c in text.chars() {
        if c == '%' || c == '#' || c.is_control() {
            let mut bytes = [0; 4];
            for b in c.encode_utf8(&mut bytes).bytes() {
                write!(f, "%{b:02X}")?;
            }
        } else {
            write!(f, "{c}")?;
        }
    }
    Ok(())
}

fn unescape(text: &str) -> Result<String> {
    percent_encoding::percent_decode_str(text)
        .decode_utf8()
        .map(|s| s.into_owned())
        .map_err(|_| Error::invalid(format!("`{text}` does not unescape to UTF-8")))
}

impl fmt::Display for AtomKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        escape(&self.file.path, f)?;
        if let Some(row_group) = self.row_group {
            write!(f, "#rg={row_group}")?;
        }
        write!(f, "#sz={}", self.file.size)?;
        if let Some(etag) = &self.file.etag {
            f.write_str("#etag=")?;
            escape(etag, f)?;
        } else if let Some(mtime) = self.file.mtime {
            write!(f, "#mtime={mtime}")?;
        }
        if let Some(rows) = &self.rows {
            write!(f, "#rows={}-{}", rows.start, rows.end.saturating_sub(1))?;
        }
        Ok(())
    }
}

impl FromStr for AtomKey {
    type Err = Error;

    /// Strict: only what [`Display`](fmt::Display) gives is a key.
    fn from_str(text: &str) -> Result<Self> {
        let bad = |why: &str| {
            Error::invalid(format!("`{text}` is not an atom key like `a.parquet#rg=3#sz=12#etag=x`: {why}"))
        };
        let mut parts = text.split('#');
        let path = unescape(parts.next().unwrap_or_default())?;
        let mut key = Self { file: FileVersion::new(path, 0), row_group: None, rows: None };
        let mut sized = false;
        for part in parts {
            let (name, value) = part.split_once('=').ok_or_else(|| bad("a part without `=`"))?;
            let number = |v: &str| v.parse::<u64>().map_err(|_| bad("a number was expected"));
            match name {
                "rg" => key.row_group = Some(value.parse().map_err(|_| bad("`rg` is a number below 2^32"))?),
                "sz" => (key.file.size, sized) = (number(value)?, true),
                "etag" => key.file.etag = Some(unescape(value)?.into()),
                "mtime" => key.file.mtime = Some(value.parse().map_err(|_| bad("`mtime` is a number"))?),
                "rows" => {
                    let (a, b) = value.split_once('-').ok_or_else(|| bad("`rows` is like `0-9`"))?;
                    let (a, b) = (number(a)?, number(b)?);
                    if a > b || b == u64::MAX {
                        return Err(bad("`rows` is like `0-9`"));
                    }
                    key.rows = Some(a..b + 1);
                }
                _ => return Err(bad("an unknown part")),
            }
        }
        if !sized {
            return Err(bad("`sz` is missing"));
        }
        // Two texts of one key would be two keys to whoever compares texts.
        if key.to_string() != text {
            return Err(bad("its parts are in another order, twice, or not escaped"));
        }
        Ok(key)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_form_is_stable() {
        let file = FileVersion::new("d=1/100% #2\n.parquet", 12).with_etag("\"a#b\"").with_mtime(7);
        let key = AtomKey { file, row_group: Some(3), rows: Some(5..10) };
        assert_eq!(key.to_string(), "d=1/100%25 %232%0A.parquet#rg=3#sz=12#etag=\"a%23b\"#rows=5-9");
        let whole = AtomKey { file: FileVersion::new("é", 1).with_mtime(-5), row_group: None, rows: None };
        assert_eq!(whole.to_string(), "é#sz=1#mtime=-5");
    }

    #[test]
    fn another_text_of_a_key_is_none() {
        for text in
            ["a#sz=1#etag=x#mtime=7", "a#sz=1#sz=2", "a#etag=x#sz=1", "a#sz=01", "a#sz=1#etag=\n", "a#sz=1#etag=%2f"]
        {
            assert!(text.parse::<AtomKey>().is_err(), "{text:?}");
        }
        assert!("a#rg=3#sz=1#etag=x#rows=5-9".parse::<AtomKey>().is_ok());
    }

    proptest! {
        #[test]
        fn parse_is_the_inverse(path in ".{0,20}", size: u64, etag in prop::option::of("[^W].{0,9}"), mtime: i64, rg in prop::option::of(any::<u32>()), start in 0u64..1000, n in 1u64..10) {
            let mut file = FileVersion::new(path, size);
            match etag { Some(e) => file = file.with_etag(&e), None => file = file.with_mtime(mtime) }
            let key = AtomKey { file, row_group: rg, rows: rg.map(|_| start..start + n) };
            prop_assert_eq!(key.to_string().parse::<AtomKey>().unwrap(), key);
        }

        #[test]
        fn distinct_keys_have_distinct_texts(a in "[a#%=]{0,4}", b in "[a#%=]{0,4}") {
            let key = |p: &str| AtomKey { file: FileVersion::new(p, 1).with_etag(p), row_group: None, rows: None }.to_string();
            prop_assert_eq!(key(&a) == key(&b), a == b);
        }

        #[test]
        fn odd_text_never_panics(text in ".{0,40}") {
            let _ = text.parse::<AtomKey>();
        }
    }
}
