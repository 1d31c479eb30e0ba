//! The simulation over many seeds: the law, determinism, coverage, and the known-bad variants.
//!
//! `LAKEMARK_SIM_SEED` is the first seed, `LAKEMARK_SIM_SEEDS` how many, `LAKEMARK_SIM_HOURS` for how long instead.

mod seeds;
mod variants;
