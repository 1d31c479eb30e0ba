//! Sorted fingerprints in memory, with an index on their leading bits.

use std::collections::VecDeque;

/// Buckets have about so many keys: what of a bucket is in one or two lines of a cache is found at once.
const KEYS_A_BUCKET: usize = 8;
/// Keys that are looked for together, so that the waits for memory overlap.
const TOGETHER: usize = 64;

/// Keys of a piece of a run: what is freed at once while runs are merged.
const PIECE: usize = 1 << 16;
/// Keys that come in no order wait for so many of them, to be sorted together.
const UNSORTED: usize = 1 << 20;

/// Ascending keys, in pieces.
type SortedRun = VecDeque<Vec<u128>>;

/// Takes keys, and merges them. What was merged is freed on the way: at no time are there two of all.
#[derive(Debug, Default)]
pub(super) struct SortedKeysBuilder {
    runs: Vec<SortedRun>,
    unsorted: Vec<u128>,
    keys: usize,
}

impl SortedKeysBuilder {
    pub(super) fn len(&self) -> usize {
        self.keys
    }

    /// Adds `keys`. Many that ascend are not sorted again.
    pub(super) fn push(&mut self, keys: &[u128]) {
        self.keys += keys.len();
        if keys.len() >= 1_024 && keys.is_sorted() {
            self.add_run(keys);
            return;
        }
        self.unsorted.extend_from_slice(keys);
        if self.unsorted.len() >= UNSORTED {
            self.sort_unsorted();
        }
    }

    fn sort_unsorted(&mut self) {
        let mut keys = std::mem::take(&mut self.unsorted);
        keys.sort_unstable();
        self.runs.push(SortedRun::new());
        self.add_run(&keys);
        keys.clear();
        self.unsorted = keys;
    }

    /// Adds ascending keys, to the last run if they go on from it.
    fn add_run(&mut self, keys: &[u128]) {
        let last = self.runs.last().and_then(|run| run.back()?.last());
        if self.runs.is_empty() || last.is_some_and(|last| keys.first().is_some_and(|first| first < last)) {
            self.runs.push(SortedRun::new());
        }
        if let Some(run) = self.runs.last_mut() {
            run.extend(keys.chunks(PIECE).map(<[u128]>::to_vec));
        }
    }

    /// All keys, in any order; it has none any more.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Vec<u128>> + use<> {
        self.keys = 0;
        let unsorted = std::mem::take(&mut self.unsorted);
        std::mem::take(&mut self.runs).into_iter().flatten().chain([unsorted])
    }

    pub(super) fn finish(mut self) -> SortedKeys {
        self.sort_unsorted();
        drop(std::mem::take(&mut self.unsorted));
        let mut keys: Vec<u128> = Vec::with_capacity(self.keys);
        let mut part = Vec::new();
        // Where each run's first piece goes on.
        let mut begins = vec![0; self.runs.len()];
        // What has its first byte in common is merged together: the pieces that are needed then are few.
        for byte in 0..=u8::MAX {
            part.clear();
            let mut from = 0;
            for (run, begin) in self.runs.iter_mut().zip(&mut begins) {
                while let Some(piece) = run.front() {
                    let left = &piece[*begin..];
                    let end = left.partition_point(|key| (key >> 120) as u8 <= byte);
                    part.extend_from_slice(&left[..end]);
                    if end < left.len() {
                        *begin += end;
                        break;
                    }
                    run.pop_front();
                    *begin = 0;
                }
                from += usize::from(!part.is_empty());
            }
            if from > 1 {
                // Finds the runs in it, and merges them.
                part.sort();
            }
            part.dedup();
            keys.extend_from_slice(&part);
        }
        keys.shrink_to_fit();
        SortedKeys::new(keys)
    }
}

/// Sorted fingerprints.
#[derive(Debug)]
pub(super) struct SortedKeys {
    keys: Vec<u128>,
    /// Where the keys of each bucket begin, and where the last ends. A bucket is what has its leading bits in common.
    starts: Vec<u32>,
    /// How far a fingerprint is shifted to give its bucket.
    shift: u32,
    /// Keys behind 2^32 of them are counted in these many of 2^32, by bucket from which on.
    wraps: Vec<usize>,
}

impl SortedKeys {
    /// Of `keys`, ascending.
    fn new(keys: Vec<u128>) -> Self {
        let bits = (keys.len() / KEYS_A_BUCKET).max(1).next_power_of_two().trailing_zeros().max(1);
        let shift = 128 - bits;
        let mut starts = Vec::with_capacity((1 << bits) + 1);
        let mut wraps = Vec::new();
        let mut place = 0;
        for bucket in 0..=(1u64 << bits) {
            while keys.get(place).is_some_and(|key| ((key >> shift) as u64) < bucket) {
                place += 1;
            }
            while place >> 32 > wraps.len() {
                wraps.push(starts.len());
            }
            starts.push(place as u32);
        }
        Self { keys, starts, shift, wraps }
    }

    pub(super) fn as_slice(&self) -> &[u128] {
        &self.keys
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        (self.keys.capacity() * size_of::<u128>() + self.starts.capacity() * size_of::<u32>()) as u64
    }

    /// Where the keys of the bucket numbered `bucket` begin.
    fn start(&self, bucket: usize) -> usize {
        let wraps = if self.wraps.is_empty() { 0 } else { self.wraps.partition_point(|from| *from <= bucket) };
        (wraps << 32) + self.starts[bucket] as usize
    }

    /// Appends whether each of `fingerprints` is there.
    pub(super) fn probe(&self, fingerprints: &[u128], found: &mut Vec<bool>) {
        if self.keys.is_empty() {
            found.resize(found.len() + fingerprints.len(), false);
            return;
        }
        let mut ranges = [(0, 0); TOGETHER];
        for some in fingerprints.chunks(TOGETHER) {
            // First all ranges, then all keys: each of these reads waits for memory, and none for another.
            for (range, fingerprint) in ranges.iter_mut().zip(some) {
                let bucket = (fingerprint >> self.shift) as usize;
                *range = (self.start(bucket), self.start(bucket + 1));
            }
            let mut seen = 0;
            for (from, _) in &ranges[..some.len()] {
                seen ^= self.keys.get(*from).map_or(0, |key| *key as u64);
            }
            std::hint::black_box(seen);
            found.extend(some.iter().zip(&ranges).map(|(fingerprint, (from, to))| {
                let bucket = &self.keys[*from..*to];
                // What is spread evenly is in small buckets; what is not must not take for ever.
                if bucket.len() <= 32 {
                    bucket.contains(fingerprint)
                } else {
                    bucket.binary_search(fingerprint).is_ok()
                }
            }));
        }
    }
}
