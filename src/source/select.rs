//! Which files below a root belong to a source.

use std::fmt;

use globset::{GlobBuilder, GlobMatcher};

use crate::error::{Error, Result};
use crate::identity::Root;

/// Which files below a [`Root`] belong to the source; hidden ones never do.
#[derive(Debug, Clone)]
pub enum Select {
    /// Every file.
    All,
    /// One file, by its raw path below the root. It is never taken for a pattern (R35).
    File(String),
    /// The files whose path below the root matches.
    Glob(Pattern),
}

/// A pattern for paths below a root: `*` and `?` stay within one segment, `**` spans segments, `[ab]` and `{a,b}` as
/// usual. `d=*/x?.parquet`.
#[derive(Debug, Clone)]
pub struct Pattern {
    text: String,
    whole: GlobMatcher,
    /// Matchers of the leading segments that stand for exactly one directory level.
    levels: Vec<GlobMatcher>,
    /// How many segments a match has, if that is fixed.
    depth: Option<usize>,
}

impl Pattern {
    /// Compiles `text`.
    ///
    /// # Errors
    /// [`Invalid`](crate::error::ErrorKind::Invalid) if it is no pattern.
    pub fn new(text: impl Into<String>) -> Result<Self> {
        let text = text.into();
        let compile = |part: &str| GlobBuilder::new(part).literal_separator(true).backslash_escape(false).build();
        let whole = compile(&text)
            .map_err(|e| Error::invalid("the pattern cannot be used").at(&text).caused_by(e))?
            .compile_matcher();
        let mut levels = Vec::new();
        let mut depth = Some(0);
        for segment in text.split('/') {
            // Braces and brackets can hold a slash, so from there on segments are not levels.
            let level = if segment.contains("**") || segment.contains('{') { None } else { compile(segment).ok() };
            match level {
                Some(level) if depth.is_some() => levels.push(level.compile_matcher()),
                Some(_) => {}
                None => depth = None,
            }
            depth = depth.map(|d| d + 1);
        }
        Ok(Self { text, whole, levels, depth })
    }

    /// Whether the file at `path`, relative to the root, matches.
    pub fn matches(&self, path: &str) -> bool {
        self.whole.is_match(path)
    }

    /// Whether a file below the directory `path` can match.
    fn descends(&self, path: &str) -> bool {
        let deep = path.split('/').count();
        self.depth.is_none_or(|depth| deep < depth)
            && path.split('/').zip(&self.levels).all(|(name, level)| level.is_match(name))
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Select {
    /// Whether the file at `path`, relative to the root, belongs to the source.
    pub fn accepts(&self, path: &str) -> bool {
        match self {
            Self::All => true,
            Self::File(name) => name == path,
            Self::Glob(pattern) => pattern.matches(path),
        }
    }

    /// Whether a file below the directory `path` can belong to the source.
    pub(super) fn descends(&self, path: &str) -> bool {
        match self {
            Self::All => true,
            Self::File(name) => name.strip_prefix(path).is_some_and(|rest| rest.starts_with('/')),
            Self::Glob(pattern) => pattern.descends(path),
        }
    }
}

/// Takes apart what does not exist as it is written: the longest part that is literal or does exist by its literal
/// name is the root, the rest the pattern. `None` if there is nothing of a pattern in it.
pub(super) fn split_pattern(root: &Root, exists: impl Fn(&Root) -> bool) -> Result<Option<(Root, Pattern)>> {
    let segments: Vec<&str> = root.prefix().split('/').collect();
    let mut base = root.join(&"../".repeat(segments.len()));
    for (i, segment) in segments.iter().enumerate() {
        let next = base.join(segment);
        if segment.contains(['*', '?', '[', '{']) && !exists(&next) {
            return Ok(Some((base, Pattern::new(segments[i..].join("/"))?)));
        }
        base = next;
    }
    Ok(None)
}

/// The one file `root` as its directory and its name.
pub(super) fn split_file(root: &Root) -> (Root, Select) {
    let name = root.prefix().rsplit('/').next().unwrap_or_default();
    (root.join(".."), Select::File(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_are_literal_and_directories_that_cannot_match_are_not_read() {
        let pattern = Pattern::new("d=*/x?.parquet").unwrap();
        assert!(pattern.matches("d=1/x1.parquet"));
        assert!(!pattern.matches("d=1/y/x1.parquet"));
        assert!(!pattern.matches("d=1/x/.parquet"));
        assert!(pattern.descends("d=1") && !pattern.descends("e=1") && !pattern.descends("d=1/y"));
        let deep = Pattern::new("a*/**/z.parquet").unwrap();
        assert!(deep.matches("a/z.parquet") && deep.matches("a1/b/c/z.parquet"));
        assert!(deep.descends("a1/b/c") && !deep.descends("b"));
        let choice = Pattern::new("{a,b/c}/*.parquet").unwrap();
        assert!(choice.matches("b/c/x.parquet") && choice.descends("b") && choice.descends("b/c"));
        assert!(Pattern::new("a[").is_err());
    }

    #[test]
    fn the_root_is_the_longest_literal_part() {
        let split = |text: &str, existing: &str| {
            let exists = Root::parse(existing).unwrap();
            split_pattern(&Root::parse(text).unwrap(), |r| *r == exists)
                .unwrap()
                .map(|(r, p)| (r.to_string(), p.to_string()))
        };
        assert_eq!(split("/lake/d=*/x?.parquet", "/"), Some(("file:///lake".into(), "d=*/x?.parquet".into())));
        assert_eq!(split("/lake[1]/*", "/lake[1]"), Some(("file:///lake%5B1%5D".into(), "*".into())), "R35");
        assert_eq!(split("/*", "/"), Some(("file:///".into(), "*".into())));
        assert_eq!(split("/lake/x", "/"), None);
    }
}
