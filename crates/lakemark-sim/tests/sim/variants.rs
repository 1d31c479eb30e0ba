//! Each known-bad variant is caught within a fixed range of seeds.

use lakemark_sim::{Variant, simulate};

/// Seeds that are tried for each variant.
const SEEDS: u64 = 200;

#[test]
fn each_variant_is_caught() {
    let mut missed = Vec::new();
    for variant in Variant::ALL {
        let caught = (0..SEEDS).find_map(|seed| {
            let outcome = simulate(seed, Some(*variant), false);
            outcome.complaints.first().map(|what| (seed, what.clone()))
        });
        match caught {
            Some((seed, what)) => println!("{variant:?}: seed {seed}: {what}"),
            None => missed.push(variant),
        }
    }
    assert!(missed.is_empty(), "not caught in {SEEDS} seeds: {missed:?}");
}
