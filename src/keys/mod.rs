//! Row keys: what rows mode tracks instead of atoms.

mod encode;
#[cfg(test)]
mod encode_tests;
mod growing;
mod kind;
mod known;
mod set;
mod spec;

pub use encode::KeyEncoder;
pub use kind::KeyKind;
pub use known::{Claimant, Known, KnownKeys};
pub use set::{KeySet, KeySetBuilder};
pub use spec::{KEY_VERSION, KeyColumn, KeySpec, NullKeys};
