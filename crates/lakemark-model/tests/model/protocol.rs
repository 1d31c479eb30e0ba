//! The protocol with all its rules: everything holds in every state within these bounds, and every situation is reached.

use lakemark_model::Rules;

use crate::harness::check;

fn holds(bounds: &str) {
    let wrong = check(bounds, Rules::all());
    assert!(wrong.is_empty(), "{bounds}: {wrong:#?}");
}

#[test]
fn two_drivers_and_a_directory() {
    holds("directory completes");
}

#[test]
fn two_drivers_and_a_table_whose_intents_are_given_up() {
    holds("table gives_up completes");
}

#[test]
fn a_driver_commits_twice() {
    holds("directory commits=2 tries=1 completes");
    holds("table commits=2 gives_up tries=1 completes");
}

#[test]
fn three_drivers() {
    holds("directory drivers=3 atoms=1 tries=1 completes");
}

#[test]
fn an_answer_is_lost_and_the_request_lands_late() {
    holds("directory losses=1 tries=1 completes");
    holds("table losses=1 gives_up tries=1 atoms=1 completes");
}

#[test]
fn a_staged_file_is_damaged_or_vanishes() {
    holds("directory harms=1 tries=1 completes");
}

#[test]
fn tasks_are_planned_from_a_stale_view() {
    holds("directory stale_plans packs completes");
}

#[test]
fn a_dispatched_task_is_planned_again_and_seals_are_folded_early() {
    holds("directory replans=1 folds=1 atoms=1 tries=1 completes");
}

#[test]
fn a_task_has_two_attempts() {
    holds("directory retries=1 tries=1 completes");
}

#[test]
fn an_operator_withdraws_or_gives_up() {
    holds("directory operators=1 atoms=1 completes");
    holds("table operators=1 gives_up atoms=1 tries=1 completes");
}

#[test]
fn an_operator_takes_committed_output_out() {
    holds("directory drivers=2 operators=1 retracts atoms=1 tries=1 completes");
}

#[test]
fn garbage_is_collected_while_all_work() {
    holds("directory collections=1 tries=1");
}

#[test]
fn everything_at_once() {
    holds("directory operators=1 collections=1 atoms=1 tries=1 completes");
    holds("table operators=1 collections=1 gives_up atoms=1 tries=1");
}

#[test]
#[ignore = "minutes"]
fn larger_with_lost_answers() {
    holds("directory losses=1 completes");
    holds("table losses=1 gives_up tries=1 completes");
}

#[test]
#[ignore = "minutes"]
fn larger_with_an_operator() {
    holds("directory operators=1 tries=1 completes");
    holds("table operators=1 gives_up tries=1 completes");
}

#[test]
#[ignore = "minutes"]
fn larger_with_garbage() {
    holds("directory losses=1 retries=1 collections=1 atoms=1 tries=1");
}
