//! A set of ordinals as sorted, disjoint, non-adjacent half-open ranges.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use crate::error::{Error, Result};

/// A set of `u64` ordinals kept as ranges. 40,000 consecutive ordinals are one range.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct RangeSet(Vec<Range<u64>>);

impl RangeSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// The set of `range`; empty if `range` is.
    pub fn of(range: Range<u64>) -> Self {
        if range.is_empty() { Self::new() } else { Self(vec![range]) }
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many ordinals are in it.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|r| r.end - r.start).sum()
    }

    /// The ranges, ascending.
    pub fn ranges(&self) -> &[Range<u64>] {
        &self.0
    }

    /// The ordinals, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.iter().cloned().flatten()
    }

    /// Whether `ordinal` is in it.
    pub fn contains(&self, ordinal: u64) -> bool {
        let after = self.0.partition_point(|r| r.start <= ordinal);
        after > 0 && self.0[after - 1].end > ordinal
    }

    /// Adds `range`.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let first = self.0.partition_point(|r| r.end < range.start);
        let last = self.0.partition_point(|r| r.start <= range.end);
        let mut merged = range;
        if first < last {
            merged.start = merged.start.min(self.0[first].start);
            merged.end = merged.end.max(self.0[last - 1].end);
        }
        self.0.splice(first..last, [merged]);
    }

    /// Both sets together.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut all: Vec<Range<u64>> = Vec::with_capacity(self.0.len() + other.0.len());
        let (mut a, mut b) = (self.0.iter().peekable(), other.0.iter().peekable());
        while let Some(first) = match (a.peek(), b.peek()) {
            (Some(x), Some(y)) if x.start <= y.start => a.next(),
            (Some(_), None) => a.next(),
            _ => b.next(),
        } {
            match all.last_mut() {
                Some(last) if first.start <= last.end => last.end = last.end.max(first.end),
                _ => all.push(first.clone()),
            }
        }
        Self(all)
    }

    /// What of this set is not in `other`.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        let mut left = Vec::new();
        let mut cuts = other.0.iter().peekable();
        for range in &self.0 {
            let mut start = range.start;
            while let Some(cut) = cuts.peek() {
                if cut.end <= start {
                    cuts.next();
                    continue;
                }
                if cut.start >= range.end {
                    break;
                }
                if cut.start > start {
                    left.push(start..cut.start);
                }
                start = cut.end;
                if cut.end > range.end {
                    break;
                }
                cuts.next();
            }
            if start < range.end {
                left.push(start..range.end);
            }
        }
        Self(left)
    }

    /// What is in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.minus(&self.minus(other))
    }

    /// Whether some ordinal is in both.
    pub fn intersects(&self, other: &Self) -> bool {
        !self.intersection(other).is_empty()
    }
}

impl FromIterator<u64> for RangeSet {
    fn from_iter<I: IntoIterator<Item = u64>>(ordinals: I) -> Self {
        let mut set = Self::new();
        for ordinal in ordinals {
            set.insert(ordinal..ordinal + 1);
        }
        set
    }
}

/// `0-4,7` with inclusive ends; the empty set is the empty string.
impl fmt::Display for RangeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, range) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            if range.end - range.start == 1 {
                write!(f, "{}", range.start)?;
            } else {
                write!(f, "{}-{}", range.start, range.end - 1)?;
            }
        }
        Ok(())
    }
}

impl FromStr for RangeSet {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = || Error::invalid(format!("`{text}` is not a set of ranges like `0-4,7`"));
        let mut set = Self::new();
        if text.is_empty() {
            return Ok(set);
        }
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first: u64 = first.parse().map_err(|_| bad())?;
            let last: u64 = last.parse().map_err(|_| bad())?;
            if first > last || last == u64::MAX || set.0.last().is_some_and(|r| r.end >= first) {
                return Err(bad());
            }
            set.0.push(first..last + 1);
        }
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn set() -> impl Strategy<Value = (RangeSet, BTreeSet<u64>)> {
        prop::collection::btree_set(0u64..60, 0..40).prop_map(|s| (s.iter().copied().collect(), s))
    }

    proptest! {
        #[test]
        fn operations_equal_those_on_plain_sets((a, pa) in set(), (b, pb) in set()) {
            let plain = |s: &RangeSet| s.iter().collect::<BTreeSet<_>>();
            prop_assert_eq!(plain(&a.union(&b)), &pa | &pb);
            prop_assert_eq!(plain(&a.minus(&b)), &pa - &pb);
            prop_assert_eq!(plain(&a.intersection(&b)), &pa & &pb);
            prop_assert_eq!(a.intersects(&b), !pa.is_disjoint(&pb));
            prop_assert_eq!(a.count(), pa.len() as u64);
            for x in 0..62 { prop_assert_eq!(a.contains(x), pa.contains(&x)); }
            // Canonical: equal sets are equal values, whatever the order of operations.
            prop_assert_eq!(a.minus(&b).union(&b), a.union(&b));
        }

        #[test]
        fn text_round_trips((a, _) in set()) {
            prop_assert_eq!(a.to_string().parse::<RangeSet>().unwrap(), a);
        }
    }

    #[test]
    fn text_that_is_not_canonical_is_refused() {
        for bad in ["3-1", "1,1", "1-2,3", "5,1", "x", "1-", "-", "18446744073709551615"] {
            assert!(bad.parse::<RangeSet>().is_err(), "{bad}");
        }
    }
}
