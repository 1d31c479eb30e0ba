//! Only map-only plans run: what regroups or selects rows across tasks is refused, with the operator named.
//!
//! Twice: on the logical plan, in the words of the query; and on the final physical plan, which is what runs.

mod logical;
mod physical;
mod sql;

pub(crate) use logical::check_logical;
pub(crate) use physical::{Mapped, check_physical, has_scan};
pub(crate) use sql::check_sql;

use lakemark::Error;

/// The refusal of an operator.
fn refuse(operator: &str, why: &str) -> Error {
    Error::refused(format!("the query is not map-only: {operator} {why}"))
        .safe("nothing was read or written")
        .way("write the map-only part with lakemark, and do the rest in a second query over its output")
}
