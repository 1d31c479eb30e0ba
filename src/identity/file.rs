//! One version of one file, and when two of them are the same.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::coverage::GroupRows;

/// A file as a listing shows it: raw path, size and token.
///
/// The token is the etag where the listing has one, else the mtime (see [`Root`](super::Root) for what each kind of
/// root gives); both are kept, since two identities compare by the strongest kind of evidence both have.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileVersion {
    /// The raw path relative to the source's root, byte-exact, never re-encoded.
    pub path: Arc<str>,
    /// Bytes.
    pub size: u64,
    /// The etag of the listing, without `W/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<Arc<str>>,
    /// Nanoseconds since 1970, at the full precision of the listing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtime: Option<i64>,
}

/// How two versions of one path compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sameness {
    /// Size and the strongest common evidence are equal.
    Same,
    /// Size or the strongest common evidence differ, or there is none in common.
    Different,
}

impl FileVersion {
    /// A version with no token yet.
    pub fn new(path: impl Into<Arc<str>>, size: u64) -> Self {
        Self { path: path.into(), size, etag: None, mtime: None }
    }

    /// With an etag; a weak etag counts as its strong form.
    #[must_use]
    pub fn with_etag(mut self, etag: &str) -> Self {
        self.etag = Some(etag.strip_prefix("W/").unwrap_or(etag).into());
        self
    }

    /// With an mtime in nanoseconds since 1970.
    #[must_use]
    pub fn with_mtime(mut self, nanoseconds: i64) -> Self {
        self.mtime = Some(nanoseconds);
        self
    }

    /// Whether it has a token at all. Without one, files mode refuses the source.
    pub fn has_token(&self) -> bool {
        self.etag.is_some() || self.mtime.is_some()
    }

    /// Compares size and token; the paths are the caller's business. Absent never equals absent.
    pub fn compare(&self, other: &Self) -> Sameness {
        let same = self.size == other.size
            && match (&self.etag, &other.etag, self.mtime, other.mtime) {
                (Some(a), Some(b), _, _) => same_etag(a, b),
                (_, _, Some(a), Some(b)) => a == b,
                _ => false,
            };
        if same { Sameness::Same } else { Sameness::Different }
    }

    /// Whether [`compare`](Self::compare) says the same.
    pub fn is_same(&self, other: &Self) -> bool {
        self.compare(other) == Sameness::Same
    }
}

/// Whether two etags are one: some servers quote them in one kind of answer only.
pub(crate) fn same_etag(a: &str, b: &str) -> bool {
    a.trim_matches('"') == b.trim_matches('"')
}

impl fmt::Display for FileVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} bytes", self.path, self.size)?;
        if let Some(etag) = &self.etag {
            write!(f, ", etag {etag}")?;
        } else if let Some(mtime) = self.mtime {
            write!(f, ", mtime {mtime} ns")?;
        }
        f.write_str(")")
    }
}

/// What else is known of a file version from having opened it; recorded when it is sealed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Evidence {
    /// Rows in each row group, run-length coded by [`Evidence::group_rows`]'s inverse; empty if there are no groups.
    #[serde(deserialize_with = "possible_runs")]
    pub group_runs: Vec<(u64, u64)>,
    /// XXH3-128 of the footer's bytes (of the bytes read, for formats without one), as 32 hex digits.
    pub digest: String,
}

/// The most row groups that a record of a file can have: a text of a few bytes could claim any number.
const MOST_GROUPS: u64 = 1 << 24;

fn possible_runs<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Vec<(u64, u64)>, D::Error> {
    let runs = Vec::deserialize(d)?;
    if Evidence::are_possible(&runs) { Ok(runs) } else { Err(serde::de::Error::custom("`group_runs` of no file")) }
}

impl Evidence {
    /// Whether a file can have row groups such as these: Parquet counts rows in 63 bits.
    pub(crate) fn are_possible(runs: &[(u64, u64)]) -> bool {
        let sum = |(groups, all): (u64, u64), &(rows, times): &(u64, u64)| {
            Some((groups.checked_add(times)?, all.checked_add(rows.checked_mul(times)?)?))
        };
        let sums = runs.iter().try_fold((0, 0), sum);
        sums.is_some_and(|(groups, rows)| groups <= MOST_GROUPS && i64::try_from(rows).is_ok())
    }

    /// Evidence of a file whose row groups have `group_rows` rows.
    pub fn new(group_rows: &[u64], digest: String) -> Self {
        let mut group_runs: Vec<(u64, u64)> = Vec::new();
        for &rows in group_rows {
            match group_runs.last_mut() {
                Some((last, times)) if *last == rows => *times += 1,
                _ => group_runs.push((rows, 1)),
            }
        }
        Self { group_runs, digest }
    }

    /// Rows in each row group.
    pub fn group_rows(&self) -> Vec<u64> {
        self.group_runs.iter().flat_map(|&(rows, times)| std::iter::repeat_n(rows, times as usize)).collect()
    }

    /// How many row groups.
    pub fn row_groups(&self) -> u64 {
        self.group_runs.iter().map(|&(_, times)| times).sum()
    }

    /// How many rows.
    pub fn rows(&self) -> u64 {
        self.group_runs.iter().map(|&(rows, times)| rows * times).sum()
    }
}

impl GroupRows for Evidence {
    fn runs(&self) -> impl Iterator<Item = (u64, u64)> {
        self.group_runs.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strongest_common_evidence_decides() {
        let base = FileVersion::new("a", 10);
        let both = base.clone().with_etag("\"x\"").with_mtime(5);
        assert!(both.is_same(&base.clone().with_etag("W/\"x\"").with_mtime(6)));
        assert!(both.is_same(&base.clone().with_etag("x").with_mtime(6)), "quoted in one kind of answer only");
        assert!(!both.is_same(&base.clone().with_etag("\"y\"").with_mtime(5)));
        assert!(both.is_same(&base.clone().with_mtime(5)));
        assert!(!base.clone().with_etag("x").is_same(&base.clone().with_mtime(5)));
        assert!(!base.is_same(&base.clone()), "absent never equals absent");
        assert!(!both.is_same(&FileVersion { size: 11, ..both.clone() }));
    }

    #[test]
    fn group_rows_round_trip() {
        let rows = [5, 5, 5, 2, 7, 7];
        let evidence = Evidence::new(&rows, String::new());
        assert_eq!(evidence.group_rows(), rows);
        assert_eq!((evidence.row_groups(), evidence.rows()), (6, 31));
        assert_eq!(Evidence::new(&[1; 40_000], String::new()).group_runs.len(), 1);
    }

    #[test]
    fn runs_of_no_file_are_refused() {
        let read = |runs: &str| serde_json::from_str::<Evidence>(&format!(r#"{{"group_runs":{runs},"digest":""}}"#));
        assert_eq!(read("[[2500,4],[17,1]]").unwrap().rows(), 10_017);
        for runs in ["[[1,18446744073709551615]]", "[[0,16777217]]", "[[9223372036854775807,2]]", "[[1,-1]]"] {
            assert!(read(runs).is_err(), "{runs}");
        }
    }
}
