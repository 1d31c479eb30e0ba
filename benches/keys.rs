//! Row keys: fingerprints of batches, loading a set, probing it. `cargo bench -p lakemark --bench keys`;
//! `LAKEMARK_BENCH_KEYS` is the number of keys in the set, 4,000,000 if it is not set. At 100,000,000 it takes 4 GB.
#![allow(clippy::unwrap_used, reason = "a bench that cannot do its work is to end")]
#![allow(missing_docs, reason = "the macro of criterion makes a public function")]

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use lakemark::{KeyEncoder, KeySet, KeySetBuilder, KeySpec, NullKeys};

const BATCH: usize = 8_192;
const BATCHES: usize = 64;

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10).warm_up_time(Duration::from_secs(1));
    targets = encode, in_memory, on_disk
}
criterion_main!(benches);

fn encode(c: &mut Criterion) {
    let batches: Vec<_> = (0..BATCHES).map(batch).collect();
    let mut group = c.benchmark_group("encode");
    group.throughput(Throughput::Elements((BATCH * BATCHES) as u64));
    for (name, on) in [("int", &["n"][..]), ("string", &["doc_id"]), ("composite", &["doc_id", "n", "at"])] {
        let schema = batches[0].schema();
        let on: Vec<_> = on.iter().map(|name| (*name).to_owned()).collect();
        let spec = KeySpec::of(&schema, &on, NullKeys::Equal, false).unwrap();
        let encoder = KeyEncoder::new(&spec, &schema).unwrap();
        let mut out = Vec::with_capacity(BATCH);
        group.bench_function(name, |b| {
            b.iter(|| {
                for batch in &batches {
                    out.clear();
                    encoder.fingerprints(batch, &mut out).unwrap();
                    black_box(&out);
                }
            });
        });
    }
}

fn batch(number: usize) -> RecordBatch {
    let ids = (number * BATCH) as i64..((number + 1) * BATCH) as i64;
    let columns: [(&str, ArrayRef); 3] = [
        ("doc_id", Arc::new(ids.clone().map(|id| Some(format!("doc-{id:012}"))).collect::<StringArray>())),
        ("n", Arc::new(Int64Array::from_iter_values(ids.clone()))),
        ("at", Arc::new(TimestampMicrosecondArray::from_iter_values(ids.map(|id| id * 1_000)))),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

fn in_memory(c: &mut Criterion) {
    let count = std::env::var("LAKEMARK_BENCH_KEYS").ok().and_then(|n| n.parse().ok()).unwrap_or(4_000_000);
    set(c, "memory", count, u64::MAX);
}

fn on_disk(c: &mut Criterion) {
    let count = 4_000_000;
    set(c, "disk", count, count * 4);
}

fn set(c: &mut Criterion, place: &str, count: u64, memory: u64) {
    let folder = tempfile::tempdir().unwrap();
    let mut keys: Vec<u128> = (0..count).map(scattered).collect();
    let mut group = c.benchmark_group(place);
    group.throughput(Throughput::Elements(count));
    group.bench_function("load", |b| b.iter_custom(|rounds| load(rounds, &keys, memory, folder.path())));
    // As segments of the store hold them.
    keys.chunks_mut((count as usize / 20).max(1)).for_each(<[u128]>::sort_unstable);
    group.bench_function("load segments", |b| b.iter_custom(|rounds| load(rounds, &keys, memory, folder.path())));
    keys.sort_unstable();
    group.bench_function("load sorted", |b| b.iter_custom(|rounds| load(rounds, &keys, memory, folder.path())));

    let set = build(&keys, memory, folder.path());
    drop(keys);
    assert_eq!((set.len(), set.is_on_disk()), (count, memory != u64::MAX));
    // Every second one is in the set.
    let probes = if set.is_on_disk() { 16 * BATCH } else { 4 * BATCHES * BATCH } as u64;
    let step = (count / probes).max(1);
    let probe = |i: u64| if i.is_multiple_of(2) { scattered(i * step % count) } else { scattered(count + i) };
    let probes: Vec<u128> = (0..probes).map(probe).collect();
    let mut found = Vec::new();
    group.throughput(Throughput::Elements(probes.len() as u64));
    group.bench_function("probe", |b| {
        b.iter(|| {
            let mut hits = 0;
            for batch in probes.chunks(BATCH) {
                set.probe(batch, &mut found).unwrap();
                hits += found.iter().filter(|found| **found).count();
            }
            assert_eq!(hits, probes.len() / 2);
        });
    });
    println!("{place}: {} keys, {:.2} bytes of memory each", set.len(), set.memory_bytes() as f64 / count as f64);
}

fn load(rounds: u64, keys: &[u128], memory: u64, folder: &Path) -> Duration {
    let mut took = Duration::ZERO;
    for _ in 0..rounds {
        let began = Instant::now();
        let set = build(keys, memory, folder);
        took += began.elapsed();
        assert_eq!(set.len(), keys.len() as u64);
    }
    took
}

fn build(keys: &[u128], memory: u64, folder: &Path) -> KeySet {
    let mut builder = KeySetBuilder::new(keys.len() as u64, memory, folder).unwrap();
    for batch in keys.chunks(BATCH) {
        builder.push(batch).unwrap();
    }
    builder.finish().unwrap()
}

/// Different for each number below 2^64, and as uniform as fingerprints are: two rounds of splitmix64.
fn scattered(number: u64) -> u128 {
    let mix = |mut x: u64| {
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    };
    let high = mix(number.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1));
    u128::from(high) << 64 | u128::from(mix(high.wrapping_add(0x9e37_79b9_7f4a_7c15)))
}
