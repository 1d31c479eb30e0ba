//! What part of one file version: all of it, or row groups, some of them by row ranges.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::RangeSet;
use super::group_rows::{GroupRows, Lookup};
use crate::error::{Error, Result};

/// A part of one version of a file.
///
/// Byte ranges cannot be expressed, on purpose: byte ranges and row groups do not map one to one (R43). A row group
/// is its position in the footer's list, a row its ordinal inside the group.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Coverage {
    /// The whole file, whatever it holds; also a file without row groups.
    Whole,
    /// Row groups.
    Groups {
        /// Groups that are in it completely.
        full: RangeSet,
        /// Groups of which only some row ordinals are in it; disjoint from `full`, never empty sets.
        partial: BTreeMap<u32, RangeSet>,
    },
}

impl Coverage {
    /// Nothing.
    pub fn none() -> Self {
        Self::Groups { full: RangeSet::new(), partial: BTreeMap::new() }
    }

    /// Complete row groups.
    pub fn groups(full: RangeSet) -> Self {
        Self::Groups { full, partial: BTreeMap::new() }
    }

    /// Row ordinals inside one row group.
    pub fn rows(group: u32, rows: RangeSet) -> Self {
        if rows.is_empty() {
            return Self::none();
        }
        Self::Groups { full: RangeSet::new(), partial: BTreeMap::from([(group, rows)]) }
    }

    /// Whether it is nothing.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Groups { full, partial } if full.is_empty() && partial.is_empty())
    }

    /// Both together.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let (Self::Groups { full: a, partial: pa }, Self::Groups { full: b, partial: pb }) = (self, other) else {
            return Self::Whole;
        };
        let full = a.union(b);
        let mut partial: BTreeMap<u32, RangeSet> = BTreeMap::new();
        for (&group, rows) in pa.iter().chain(pb) {
            if !full.contains(u64::from(group)) {
                let entry = partial.entry(group).or_default();
                *entry = entry.union(rows);
            }
        }
        Self::Groups { full, partial }
    }

    /// Whether some row could be in both. [`Whole`](Self::Whole) overlaps everything that is not empty, and itself.
    pub fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Whole, Self::Whole) => true,
            (Self::Whole, some) | (some, Self::Whole) => !some.is_empty(),
            (Self::Groups { full: a, partial: pa }, Self::Groups { full: b, partial: pb }) => {
                a.intersects(b)
                    || pa.keys().any(|&g| b.contains(u64::from(g)))
                    || pb.keys().any(|&g| a.contains(u64::from(g)))
                    || pa.iter().any(|(g, rows)| pb.get(g).is_some_and(|other| rows.intersects(other)))
            }
        }
    }

    /// What of a file with `group_rows` rows in each of its row groups is not in this coverage.
    #[must_use]
    pub fn missing<R: GroupRows + ?Sized>(&self, group_rows: &R) -> Self {
        let Self::Groups { full, partial } = self else { return Self::none() };
        let left = RangeSet::of(0..group_rows.groups()).minus(full);
        let mut lookup = Lookup::new(group_rows.runs());
        let (mut touched, mut cut) = (RangeSet::new(), BTreeMap::new());
        for (&group, rows) in partial {
            if !left.contains(u64::from(group)) {
                continue;
            }
            touched.insert(u64::from(group)..u64::from(group) + 1);
            let rest = RangeSet::of(0..lookup.rows(group).unwrap_or(0)).minus(rows);
            if !rest.is_empty() {
                cut.insert(group, rest);
            }
        }
        Self::Groups { full: left.minus(&touched), partial: cut }
    }

    /// The same part with groups whose every row is in it counted as full, and as [`Whole`](Self::Whole) when
    /// every group of the file is.
    #[must_use]
    pub fn normalised<R: GroupRows + ?Sized>(&self, group_rows: &R) -> Self {
        let Self::Groups { full, partial } = self else { return Self::Whole };
        let mut lookup = Lookup::new(group_rows.runs());
        let (mut filled, mut left) = (RangeSet::new(), BTreeMap::new());
        for (&group, rows) in partial {
            if lookup.rows(group).is_some_and(|all| RangeSet::of(0..all).minus(rows).is_empty()) {
                filled.insert(u64::from(group)..u64::from(group) + 1);
            } else {
                left.insert(group, rows.clone());
            }
        }
        let full = full.union(&filled);
        if left.is_empty() && full.count() == group_rows.groups() {
            return Self::Whole;
        }
        Self::Groups { full, partial: left }
    }

    /// How many atoms it touches in a file of `row_groups` groups: a file without groups is one atom.
    pub fn touched_atoms(&self, row_groups: u64) -> u64 {
        match self {
            Self::Whole => row_groups.max(1),
            Self::Groups { full, partial } => full.count() + partial.len() as u64,
        }
    }
}

/// `whole`, or full groups and then partial ones: `0-4,7;9:0-99,200`.
impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => f.write_str("whole"),
            Self::Groups { full, partial } => {
                write!(f, "{full}")?;
                for (group, rows) in partial {
                    write!(f, ";{group}:{rows}")?;
                }
                Ok(())
            }
        }
    }
}

impl FromStr for Coverage {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "whole" {
            return Ok(Self::Whole);
        }
        let bad = || Error::invalid(format!("`{text}` is not a coverage like `whole` or `0-4,7;9:0-99`"));
        let mut parts = text.split(';');
        let full: RangeSet = parts.next().unwrap_or_default().parse()?;
        if full.ranges().last().is_some_and(|r| r.end > u64::from(u32::MAX) + 1) {
            return Err(bad());
        }
        let mut partial = BTreeMap::new();
        for part in parts {
            let (group, rows) = part.split_once(':').ok_or_else(bad)?;
            let group: u32 = group.parse().map_err(|_| bad())?;
            let rows: RangeSet = rows.parse()?;
            if rows.is_empty() || full.contains(u64::from(group)) || partial.insert(group, rows).is_some() {
                return Err(bad());
            }
        }
        Ok(Self::Groups { full, partial })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ROWS: [u64; 5] = [3, 1, 4, 2, 5];

    fn part() -> impl Strategy<Value = Coverage> {
        prop_oneof![
            1 => Just(Coverage::Whole),
            6 => prop::collection::vec((0u32..5, 0u64..5, 1u64..4), 0..6).prop_map(|picks| {
                picks.into_iter().fold(Coverage::none(), |all, (g, start, n)| {
                    let end = (start + n).min(ROWS[g as usize]);
                    let rows = RangeSet::of(start.min(end)..end);
                    let piece = if n == 3 { Coverage::groups(RangeSet::of(u64::from(g)..u64::from(g) + 1)) } else { Coverage::rows(g, rows) };
                    all.union(&piece)
                })
            }),
        ]
    }

    fn rows_of(c: &Coverage) -> Vec<(usize, u64)> {
        let mut out = Vec::new();
        for (g, &n) in ROWS.iter().enumerate() {
            for r in 0..n {
                let has = match c {
                    Coverage::Whole => true,
                    Coverage::Groups { full, partial } => {
                        full.contains(g as u64) || partial.get(&(g as u32)).is_some_and(|rows| rows.contains(r))
                    }
                };
                if has {
                    out.push((g, r));
                }
            }
        }
        out
    }

    proptest! {
        #[test]
        fn parts_behave_as_sets_of_rows(a in part(), b in part()) {
            let (ra, rb) = (rows_of(&a), rows_of(&b));
            let mut union = [ra.clone(), rb.clone()].concat();
            union.sort_unstable();
            union.dedup();
            prop_assert_eq!(rows_of(&a.union(&b)), union);
            prop_assert_eq!(a.overlaps(&b), ra.iter().any(|x| rb.contains(x)));
            let missing = a.missing(&ROWS);
            prop_assert!(!missing.overlaps(&a));
            prop_assert_eq!(a.union(&missing).normalised(&ROWS), Coverage::Whole);
            prop_assert_eq!(rows_of(&a.normalised(&ROWS)), ra);
        }

        #[test]
        fn text_round_trips(a in part()) {
            prop_assert_eq!(a.to_string().parse::<Coverage>().unwrap(), a);
        }
    }

    #[test]
    fn forty_thousand_groups_are_one_range() {
        let c = Coverage::groups(RangeSet::of(0..40_000));
        assert_eq!(c.to_string(), "0-39999");
        assert_eq!(c.normalised(&vec![1; 40_000]), Coverage::Whole);
    }
}
