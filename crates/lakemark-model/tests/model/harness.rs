//! Running a check and telling what it found.

use std::collections::BTreeSet;
use std::time::Instant;

use lakemark_model::{Bounds, Protocol, Rule, Rules, tell};
use stateright::{Checker, HasDiscoveries, Model, Property};

/// Set to anything, the steps to each counterexample are printed.
const TRACE: &str = "LAKEMARK_MODEL_TRACE";

/// Bounds in words.
pub fn bounds(words: &str) -> Bounds {
    words.parse().expect("known bounds")
}

/// All rules but these.
pub fn without(rules: &[Rule]) -> Rules {
    rules.iter().fold(Rules::all(), |left, rule| left.without(*rule))
}

/// Tries every interleaving; what must hold and does not, and what must be reached and is not.
pub fn check(words: &str, rules: Rules) -> BTreeSet<&'static str> {
    // Only when everything that must hold is found broken is there nothing left to look for.
    run(words, rules, HasDiscoveries::AllFailures)
}

/// Searches until all of `expected` are found broken; what was not.
pub fn missed(words: &str, rules: Rules, expected: &[&'static str]) -> BTreeSet<&'static str> {
    let wanted: BTreeSet<_> = expected.iter().copied().collect();
    let wrong = run(words, rules, HasDiscoveries::AllOf(wanted.clone()));
    wanted.difference(&wrong).copied().collect()
}

fn run(words: &str, rules: Rules, finish: HasDiscoveries) -> BTreeSet<&'static str> {
    let began = Instant::now();
    let model = Protocol::new(bounds(words), rules);
    let checker = model.checker().threads(2).finish_when(finish).spawn_bfs().join();
    let found = checker.discoveries();
    let wrong = |property: &&Property<Protocol>| {
        found.contains_key(property.name) == property.expectation.discovery_is_failure()
    };
    let wrong: BTreeSet<_> = model.properties().iter().filter(wrong).map(|property| property.name).collect();
    let seconds = began.elapsed().as_secs_f64();
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    println!("{words}: {states} states, depth {depth}, {seconds:.1} s; wrong: {wrong:#?}");
    if std::env::var_os(TRACE).is_some() {
        for (name, path) in found.into_iter().filter(|(name, _)| wrong.contains(name)) {
            println!("{name}");
            let steps = path.into_vec();
            let told = steps.iter().filter_map(|(world, action)| Some(tell(world, action.as_ref()?)));
            told.enumerate().for_each(|(i, step)| println!("  {:>2}. {step}", i + 1));
        }
    }
    wrong
}
