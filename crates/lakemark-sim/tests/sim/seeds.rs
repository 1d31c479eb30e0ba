//! Seeds that must keep the law.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lakemark_sim::{Outcome, Situation, simulate};

/// Seeds of a run of the tests.
const SEEDS: u64 = 1_000;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {text}")))
}

/// The line with which a failing seed is run again, and nothing else.
fn reproduction(seed: u64) -> String {
    format!("reproduce: LAKEMARK_SIM_SEED={seed} cargo test -p lakemark-sim one_seed -- --nocapture")
}

/// Calls `each` with the outcome of every seed from `first` on while `more` says so, on as many threads as there are
/// processors: worlds know nothing of each other.
fn run(first: u64, more: impl Fn(u64) -> bool + Sync, each: impl Fn(u64, Outcome) + Sync) {
    let next = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if !more(n) {
                        return;
                    }
                    let seed = first + n;
                    let outcome = std::panic::catch_unwind(|| simulate(seed, None, false));
                    each(seed, outcome.unwrap_or_else(|_| panic!("a panic; {}", reproduction(seed))));
                }
            });
        }
    });
}

#[test]
fn every_seed_keeps_the_law_and_all_situations_occur() {
    let first = number("LAKEMARK_SIM_SEED").unwrap_or(0);
    let seeds = number("LAKEMARK_SIM_SEEDS").unwrap_or(SEEDS);
    let until = number("LAKEMARK_SIM_HOURS").map(|hours| Instant::now() + Duration::from_secs(hours * 3_600));
    let counts: Mutex<BTreeMap<Situation, u64>> = Mutex::default();
    let (done, failed) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let more = |n| match until {
        Some(until) => Instant::now() < until,
        None => n < seeds,
    };
    run(first, more, |seed, outcome| {
        done.fetch_add(1, Ordering::Relaxed);
        let mut counts = counts.lock().unwrap();
        outcome.seen.iter().for_each(|situation| *counts.entry(*situation).or_default() += 1);
        if let Some(what) = outcome.complaints.first() {
            eprintln!("{}", reproduction(seed));
            failed.lock().unwrap().push((seed, what.clone()));
        }
    });
    let (counts, failed) = (counts.into_inner().unwrap(), failed.into_inner().unwrap());
    let seeds = done.into_inner();
    println!("{seeds} seeds from {first}");
    for situation in Situation::ALL {
        println!("{:>6} {situation:?}", counts.get(situation).unwrap_or(&0));
    }
    assert!(failed.is_empty(), "{} of {seeds} seeds broke the law: {failed:#?}", failed.len());
    if seeds >= SEEDS {
        let never: Vec<_> = Situation::ALL.iter().filter(|situation| !counts.contains_key(situation)).collect();
        assert!(never.is_empty(), "the simulation has become hollow: {never:?} never happened");
    }
}

#[test]
fn one_seed() {
    let seed = number("LAKEMARK_SIM_SEED").unwrap_or(0);
    let outcome = simulate(seed, None, true);
    outcome.trace.iter().for_each(|line| println!("{line}"));
    assert!(outcome.complaints.is_empty(), "{:#?}\n{}", outcome.complaints, reproduction(seed));
}

#[test]
fn two_runs_of_a_seed_leave_the_same_trace() {
    let again = |seed: u64, outcome: Outcome| {
        let second = simulate(seed, None, false);
        assert_eq!((outcome.digest, outcome.events), (second.digest, second.events), "seed {seed}");
        assert_eq!(outcome.seen, second.seen, "seed {seed}");
    };
    run(7_000, |n| n < 50, again);
}
