//! Byte ranges of one call: near ones are read together.

use std::ops::Range;

use bytes::Bytes;

/// The fewest ranges that cover `ranges`, where ranges at most `gap` bytes apart become one. Ascending, disjoint.
pub(super) fn merge(ranges: &[Range<u64>], gap: u64) -> Vec<Range<u64>> {
    let mut sorted: Vec<Range<u64>> = ranges.iter().filter(|r| !r.is_empty()).cloned().collect();
    sorted.sort_unstable_by_key(|r| (r.start, r.end));
    let mut merged: Vec<Range<u64>> = Vec::with_capacity(sorted.len());
    for range in sorted {
        match merged.last_mut() {
            Some(last) if range.start <= last.end.saturating_add(gap) => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

/// The bytes of each of `ranges`, cut without copying out of what was read for `merged`.
pub(super) fn cut(ranges: &[Range<u64>], merged: &[Range<u64>], read: &[Bytes]) -> Vec<Bytes> {
    let one = |range: &Range<u64>| {
        let at = merged.partition_point(|m| m.end < range.end);
        match (merged.get(at), read.get(at)) {
            (Some(from), Some(bytes)) if !range.is_empty() => {
                bytes.slice((range.start - from.start) as usize..(range.end - from.start) as usize)
            }
            _ => Bytes::new(),
        }
    };
    ranges.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_range_gets_its_own_bytes(starts in prop::collection::vec((0u64..200, 0u64..40), 0..12), gap in 0u64..20) {
            let ranges: Vec<_> = starts.into_iter().map(|(start, n)| start..start + n).collect();
            let file: Vec<u8> = (0..=250).collect();
            let merged = merge(&ranges, gap);
            prop_assert!(merged.windows(2).all(|w| w[0].end + gap < w[1].start));
            let part = |r: &Range<u64>| Bytes::copy_from_slice(&file[r.start as usize..r.end as usize]);
            let read: Vec<Bytes> = merged.iter().map(part).collect();
            for (range, bytes) in ranges.iter().zip(cut(&ranges, &merged, &read)) {
                prop_assert_eq!(bytes, part(range));
            }
        }
    }
}
