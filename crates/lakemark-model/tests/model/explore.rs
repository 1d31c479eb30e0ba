//! A check at bounds and under rules that the caller gives.

use lakemark_model::{Rule, Rules};

use crate::harness::check;

/// `LAKEMARK_MODEL_BOUNDS="table drivers=3 losses=1" LAKEMARK_MODEL_WITHOUT="Barrier"`; prints, and never fails.
#[test]
#[ignore = "the bounds are given by the caller and have no limit"]
fn explore() {
    let words = std::env::var("LAKEMARK_MODEL_BOUNDS").unwrap_or_default();
    let gone = std::env::var("LAKEMARK_MODEL_WITHOUT").unwrap_or_default();
    let rules = gone.split_whitespace().fold(Rules::all(), |rules, name| {
        let rule = Rule::ALL.iter().find(|rule| format!("{rule:?}") == name);
        rules.without(*rule.unwrap_or_else(|| panic!("{name}: no such rule")))
    });
    check(&words, rules);
}
