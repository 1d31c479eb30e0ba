//! Everything random: one stream of numbers for each name, all from the seed.
//!
//! Streams are apart, so that one actor that asks once more does not change what all others get.

use std::ops::Range;

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// A stream of numbers (SplitMix64).
#[derive(Debug, Clone)]
pub(crate) struct Chance(u64);

impl Chance {
    /// The stream of `name` in the world of `seed`.
    pub(crate) fn of(seed: u64, name: &str) -> Self {
        Self(xxh3_64_with_seed(name.as_bytes(), seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number of `range`; its start when it is empty.
    pub(crate) fn between(&mut self, range: Range<u64>) -> u64 {
        let width = range.end.saturating_sub(range.start).max(1);
        range.start + self.next() % width
    }

    /// True so many times of a hundred.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.between(0..100) < percent
    }

    /// True so many times of a thousand.
    pub(crate) fn per_mille(&mut self, per_mille: u64) -> bool {
        self.between(0..1_000) < per_mille
    }

    /// One of `choices`, which are not none.
    pub(crate) fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.between(0..choices.len() as u64) as usize]
    }
}
