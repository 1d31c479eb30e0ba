//! The public example runs, and what it asserts is true.

#[path = "../../examples/custom_planner.rs"]
#[allow(dead_code)]
mod custom_planner;

#[test]
fn a_planner_of_its_own_runs_twice_and_has_nothing_to_do_the_second_time() {
    custom_planner::main().unwrap();
}
