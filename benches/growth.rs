//! Years of runs on one store: what each run asks for and writes, what opening takes, and what is left.
//!
//! `cargo bench -p lakemark --bench growth -- [--runs N]`. The store is in memory and counts requests and bytes; the
//! runs follow each other at once, since no rule of the protocol asks for the time. Every run does 100 new atoms in 25
//! files of 4 row groups, commits them and closes. One process makes the runs, each from what the last one left; every
//! 100th is followed by a collection of garbage and by another process that opens the store and knows nothing.
//! Ends with an error when a bound does not hold.
#![allow(clippy::unwrap_used, reason = "a bound that does not hold is to end the bench")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::TryStreamExt;
use lakemark::faults::{FaultStore, Op, Request};
use lakemark::{
    BeginOptions, CheckpointStore, Counts, Coverage, Evidence, FileVersion, Lease, ObjectCheckpointStore, Root,
    SealedFile, View, Wait,
};
use object_store::memory::InMemory;
use object_store::{ObjectStore, ObjectStoreExt};

const FILES: u64 = 25;
const GROUPS: u64 = 4;
const TASKS: u64 = 5;

/// What one stretch of runs cost.
#[derive(Debug, Default, Clone, Copy)]
struct Cost {
    requests: u64,
    most_requests: u64,
    written: u64,
    read: u64,
    open_requests: u64,
    open_seconds: f64,
}

fn sealed(run: u64, file: u64) -> SealedFile {
    let n = run * FILES + file;
    let path = format!("day={:05}/part-{n:08}-5f3759df-0000.parquet", run / 10);
    SealedFile {
        source: "docs".into(),
        file: FileVersion::new(path.as_str(), 440_000 + n * 7_919 % 1_000)
            .with_mtime(1_700_000_000_000_000_000 + i64::try_from(n).unwrap() * 1_234_567),
        coverage: Coverage::Whole,
        // As good as random, as the digests of footers are: nothing compresses them.
        evidence: Evidence::new(
            &[2_500; GROUPS as usize],
            format!("{:032x}", xxhash_rust::xxh3::xxh3_128(path.as_bytes())),
        ),
        unsettled: false,
    }
}

/// One run, from what the last one left.
async fn run(store: &ObjectCheckpointStore, view: View, n: u64) -> View {
    let options = BeginOptions { wait: Wait::Takeover, ..BeginOptions::default() };
    let run = store.begin_from(view, options).await.unwrap();
    for task in 0..TASKS {
        let id = run.checkpoints().assign(run.next_input());
        let files = (0..FILES / TASKS).map(|file| sealed(n, task * (FILES / TASKS) + file)).collect();
        run.stage_keys(id, files).unwrap();
        let counts = Counts { rows_in: 50_000, rows_out: 50_000, rows_failed: 0 };
        let _ = run.checkpoint(id, counts).await.unwrap();
    }
    assert_eq!(run.commit(None).await.unwrap()[0].checkpoints, TASKS);
    run.close().await.unwrap()
}

/// Another process opens the store: what it asked for, and how long it took.
async fn open(faults: &FaultStore, runs: u64) -> (Vec<Request>, f64) {
    let store = on(faults);
    faults.take_log();
    let began = Instant::now();
    let view = store.read().await.unwrap();
    let seconds = began.elapsed().as_secs_f64();
    let opening = faults.take_log();
    assert_eq!(view.live.files("docs").count() as u64, runs * FILES, "every file is known");
    (opening, seconds)
}

fn on(faults: &FaultStore) -> ObjectCheckpointStore {
    ObjectCheckpointStore::on(Root::parse("memory://growth/store").unwrap(), Arc::new(faults.clone()))
}

async fn collect(store: &ObjectCheckpointStore) -> (u64, View) {
    let run = store.operate(Wait::Takeover, Lease::default()).await.unwrap();
    let garbage = run.collect(None, Duration::ZERO).await.unwrap();
    (garbage.objects.len() as u64, run.close().await.unwrap())
}

/// Levels that so many rows need.
fn levels(rows: u64) -> u64 {
    (0..).find(|level| 1_000 * 8u64.pow(*level) >= rows).map_or(0, |level| u64::from(level) + 1)
}

async fn bytes_read(faults: &FaultStore, log: &[Request]) -> u64 {
    let mut bytes = 0;
    for request in log.iter().filter(|request| request.op == Op::Get) {
        bytes += faults.head(&request.path.as_str().into()).await.map_or(0, |meta| meta.size);
    }
    bytes
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let args: Vec<String> = std::env::args().collect();
    let runs = args.iter().position(|arg| arg == "--runs").map_or(10_000, |at| args[at + 1].parse().unwrap());
    let faults = FaultStore::new(Arc::new(InMemory::new()));
    let store = on(&faults);
    println!(
        "runs | requests a run | most | to open | KB written a run | KB read to open | ms to open | objects | KB live | bytes an atom | segments"
    );
    let (mut cost, mut view) = (Cost::default(), View::default());
    let (stretch, mut written, mut removed) = ((runs / 10).max(100), 0, 0);
    for n in 1..=runs {
        view = run(&store, view, n - 1).await;
        let log = faults.take_log();
        let wrote: u64 = log.iter().map(|request| request.bytes).sum();
        written += wrote;
        cost.requests += log.len() as u64;
        cost.most_requests = cost.most_requests.max(log.len() as u64);
        cost.written += wrote;
        if n % 100 == 0 {
            let (dead, after) = collect(&store).await;
            (removed, view) = (removed + dead, after);
            let (opening, seconds) = open(&faults, n).await;
            cost.open_requests = cost.open_requests.max(opening.len() as u64);
            cost.open_seconds = seconds;
            cost.read = bytes_read(&faults, &opening).await;
            faults.take_log();
        }
        if n % stretch == 0 {
            report(&store, &faults, n, stretch, cost).await;
            cost = Cost::default();
        }
    }
    let atoms = runs * FILES * GROUPS;
    let live: u64 = store.newest().await.unwrap().unwrap().manifest.segments.iter().map(|s| s.bytes).sum();
    println!(
        "{runs} runs, {atoms} atoms: {:.1} bytes written an atom ({:.1} times what is live), {removed} dead objects removed",
        written as f64 / atoms as f64,
        written as f64 / live as f64
    );
}

async fn report(store: &ObjectCheckpointStore, faults: &FaultStore, runs: u64, stretch: u64, cost: Cost) {
    let head = store.newest().await.unwrap().unwrap();
    let segments = &head.manifest.segments;
    let (rows, live) = (segments.iter().map(|s| s.rows).sum::<u64>(), segments.iter().map(|s| s.bytes).sum::<u64>());
    let objects: Vec<_> = faults.list(None).try_collect().await.unwrap();
    faults.take_log();
    let manifests = objects.iter().filter(|meta| meta.location.as_ref().starts_with("manifests/"));
    let (kept, largest) = manifests.fold((0, 0), |(n, most), meta| (n + 1, meta.size.max(most)));
    let per_atom = live as f64 / (runs * FILES * GROUPS) as f64;
    let mean = |n: u64| n as f64 / stretch as f64;
    println!(
        "{runs} | {:.1} | {} | {} | {:.1} | {:.0} | {:.1} | {} | {:.0} | {per_atom:.1} | {}",
        mean(cost.requests),
        cost.most_requests,
        cost.open_requests,
        mean(cost.written) / 1e3,
        cost.read as f64 / 1e3,
        1e3 * cost.open_seconds,
        objects.len(),
        live as f64 / 1e3,
        segments.len()
    );
    assert!(segments.len() as u64 <= levels(rows), "{} segments for {rows} rows", segments.len());
    assert!(cost.open_requests <= 4 + levels(rows), "{} requests to open {rows} rows", cost.open_requests);
    assert!(kept <= 100 && largest < 64 << 10, "{kept} manifests of up to {largest} bytes");
    assert!(per_atom <= 40.0, "{per_atom} bytes an atom");
    // A row is rewritten at most once for each fold of its level, and moves up one level at a time.
    let bound = 40.0 * (FILES * GROUPS) as f64 * 8.0 * levels(rows) as f64;
    assert!(mean(cost.written) < bound, "{} bytes written a run", mean(cost.written));
}
