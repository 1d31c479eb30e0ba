//! What a listing is, and which names it leaves out.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use unicode_normalization::UnicodeNormalization;

use crate::identity::FileVersion;

/// One complete look at a source. It is taken fresh each time and never remembered (R32).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// Every regular file that is selected and not hidden, whatever its extension; sorted by the bytes of the path,
    /// each path once.
    pub files: Vec<FileVersion>,
    /// What was left out as hidden: one for a file, one for a directory that was not descended into.
    ///
    /// Hidden is every segment below the root that starts with `_` or `.`, except `_key=value` (R33).
    pub hidden: u64,
    /// Names that are there and cannot be read as files, sorted by path.
    pub unusable: Vec<Unusable>,
    /// What a person should know, sorted.
    pub warnings: Vec<String>,
    /// Nanoseconds since 1970, from before the first directory was read.
    pub taken_at: i64,
    /// Whether the log of a Delta table is among what is hidden: then not every file here is one of that table.
    pub has_delta_log: bool,
    /// Whether it is of some files only: then nothing is known of those that are not in it.
    pub partial: bool,
}

/// A file that is left out, and why.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Unusable {
    /// Its path relative to the root; with `U+FFFD` for what is not UTF-8.
    pub path: String,
    /// Why it cannot be read.
    pub why: String,
}

/// Whether a listing at `taken_at` may have caught `file` between two writes of one clock step, so that its token does
/// not yet tell the second from the first (R04). Only an mtime token can be: the steps are 10 ms on a disk and 2 s
/// elsewhere. An mtime ahead of the clock is unsettled too.
pub fn unsettled(file: &FileVersion, taken_at: i64, local: bool) -> bool {
    let step = if local { 10_000_000 } else { 2_000_000_000 };
    file.etag.is_none() && file.mtime.is_none_or(|mtime| mtime > taken_at.saturating_sub(step))
}

/// The folder of the log right below a Delta table.
pub(super) const DELTA_LOG: &str = "_delta_log";

/// Whether a path segment is hidden by its name.
pub(super) fn is_hidden(segment: &str) -> bool {
    segment.starts_with('.') || (segment.starts_with('_') && !segment.contains('='))
}

/// What a walk has found so far, in any order.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) files: Vec<FileVersion>,
    pub(super) hidden: u64,
    pub(super) unusable: Vec<Unusable>,
    pub(super) warnings: Vec<String>,
    pub(super) has_delta_log: bool,
}

impl Found {
    pub(super) fn unusable(&mut self, path: impl Into<String>, why: impl Into<String>) {
        self.unusable.push(Unusable { path: path.into(), why: why.into() });
    }

    pub(super) fn extend(&mut self, other: Self) {
        self.files.extend(other.files);
        self.hidden += other.hidden;
        self.has_delta_log |= other.has_delta_log;
        self.unusable.extend(other.unusable);
        self.warnings.extend(other.warnings);
    }

    /// Sorts, and keeps the newer of two versions of one path (R29, R39).
    pub(super) fn finish(mut self, taken_at: i64) -> Listing {
        self.files.sort_unstable_by(|a, b| {
            a.path.cmp(&b.path).then_with(|| (b.mtime, &b.etag, b.size).cmp(&(a.mtime, &a.etag, a.size)))
        });
        let warnings = &mut self.warnings;
        self.files.dedup_by(|older, newer| {
            let twice = older.path == newer.path;
            if twice && older != newer {
                warnings.push(format!(
                    "`{}` was listed twice with two versions; the newer one counts: {newer}",
                    newer.path
                ));
            }
            twice
        });
        warnings.extend(twins(&self.files));
        self.unusable.sort_unstable();
        self.unusable.dedup();
        self.warnings.sort_unstable();
        let Self { files, hidden, unusable, warnings, has_delta_log } = self;
        Listing { files, hidden, unusable, warnings, taken_at, has_delta_log, partial: false }
    }
}

/// Paths that look alike and are not (R16): composed and decomposed forms of one text are two files here, and may be one
/// elsewhere.
fn twins(files: &[FileVersion]) -> Vec<String> {
    let mut seen: HashMap<String, &str> = HashMap::new();
    let mut warnings = Vec::new();
    for file in files.iter().filter(|file| !file.path.is_ascii()) {
        if let Some(other) = seen.insert(file.path.nfc().collect(), &file.path) {
            warnings.push(format!(
                "`{}` and `{}` look alike and are two files: their names differ only in how accents are encoded",
                other.escape_unicode(),
                file.path.escape_unicode()
            ));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r04_a_token_within_the_clock_step_is_unsettled() {
        const MS: i64 = 1_000_000;
        let at = |mtime| FileVersion::new("a", 1).with_mtime(mtime);
        let now = 1_000_000 * MS;
        assert!(unsettled(&at(now - 9 * MS), now, true));
        assert!(!unsettled(&at(now - 11 * MS), now, true));
        assert!(unsettled(&at(now - 1999 * MS), now, false));
        assert!(!unsettled(&at(now - 2001 * MS), now, false));
        assert!(unsettled(&at(now + 5 * MS), now, true), "written while the listing ran");
        assert!(!unsettled(&at(now).with_etag("x"), now, false), "an etag has no clock");
    }

    #[test]
    fn r33_the_hidden_rule() {
        for hidden in ["_SUCCESS", ".part.crc", "_temporary", ".x=1", "_"] {
            assert!(is_hidden(hidden), "{hidden}");
        }
        for seen in ["a_b", "_d=1", "x.parquet", "=_"] {
            assert!(!is_hidden(seen), "{seen}");
        }
    }

    #[test]
    fn r16_names_that_look_alike_are_two_files_and_a_warning() {
        let file = |path: &str| FileVersion::new(path, 1).with_mtime(1);
        let files = vec![file("e\u{301}.parquet"), file("\u{e9}.parquet"), file("\u{e8}.parquet")];
        let listing = Found { files, ..Found::default() }.finish(0);
        assert_eq!((listing.files.len(), listing.warnings.len()), (3, 1), "{:?}", listing.warnings);
    }

    #[test]
    fn r29_a_path_listed_twice_counts_once() {
        let old = FileVersion::new("a", 1).with_etag("x").with_mtime(1);
        let new = FileVersion::new("a", 2).with_etag("y").with_mtime(2);
        let found = Found { files: vec![old.clone(), new.clone(), old.clone()], ..Found::default() };
        let listing = found.finish(0);
        assert_eq!(listing.files, [new]);
        assert_eq!(listing.warnings.len(), 2);
        assert!(Found { files: vec![old.clone(), old], ..Found::default() }.finish(0).warnings.is_empty());
    }
}
