//! The checks: the protocol within its bounds, and what each rule is good for.

mod explore;
mod harness;
mod protocol;
mod variants;
