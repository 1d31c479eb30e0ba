//! Row keys in the store: staged with a seal, folded into key segments, loaded as one set.

mod levels;
mod object;
mod rows;

pub(crate) use levels::{flush_keys, load_keys};
pub(crate) use object::{decode_keys, encode_keys};
pub use rows::KeyRows;
