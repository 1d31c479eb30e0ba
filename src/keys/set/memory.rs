//! Sorted fingerprints in memory, with an index on their leading bits.

/// Buckets have about so many keys: what of a bucket is in one or two lines of a cache is found at once.
const KEYS_A_BUCKET: usize = 8;
/// Keys that are looked for together, so that the waits for memory overlap.
const TOGETHER: usize = 64;

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
    /// Of `keys` in any order.
    pub(super) fn new(mut keys: Vec<u128>) -> Self {
        sort(&mut keys);
        keys.dedup();
        keys.shrink_to_fit();
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

/// Sorts in place, by two threads: fingerprints are first put where they belong by their first byte.
fn sort(keys: &mut [u128]) {
    /// Below it a thread is not worth its start.
    const FEW: usize = 1 << 16;
    if keys.is_sorted() {
        return;
    }
    if keys.len() < FEW {
        keys.sort_unstable();
        return;
    }
    let mut ends = [0; 256];
    for key in keys.iter() {
        ends[(key >> 120) as usize] += 1;
    }
    let mut next = [0; 256];
    let mut end = 0;
    for (next, count) in next.iter_mut().zip(&mut ends) {
        *next = end;
        end += *count;
        *count = end;
    }
    // Each swap brings one key to its place for good.
    for byte in 0..256 {
        while next[byte] < ends[byte] {
            let home = (keys[next[byte]] >> 120) as usize;
            if home == byte {
                next[byte] += 1;
            } else {
                keys.swap(next[byte], next[home]);
                next[home] += 1;
            }
        }
    }
    let mut parts = Vec::with_capacity(256);
    let (mut rest, mut begin) = (keys, 0);
    for end in ends {
        let (part, behind) = rest.split_at_mut(end - begin);
        parts.push(part);
        (rest, begin) = (behind, end);
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(8);
    let parts = std::sync::Mutex::new(parts);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let part = parts.lock().unwrap_or_else(std::sync::PoisonError::into_inner).pop();
                    let Some(part) = part else { break };
                    part.sort_unstable();
                }
            });
        }
    });
}
