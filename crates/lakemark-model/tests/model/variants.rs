//! Known-bad variants: the protocol without one of its rules, and the properties that catch it.

use lakemark_model::Rule;
use lakemark_model::properties::name;

use crate::harness::{check, missed, without};

fn caught(rules: &[Rule], bounds: &str, by: &[&'static str]) {
    let missed = missed(bounds, without(rules), by);
    assert!(missed.is_empty(), "without {rules:?} at `{bounds}` nothing breaks {missed:#?}");
}

/// What a rule keeps is kept by another one, too, within these bounds.
fn harmless(rules: &[Rule], bounds: &str) {
    let wrong = check(bounds, without(rules));
    assert!(wrong.is_empty(), "without {rules:?} at `{bounds}`: {wrong:#?}");
}

#[test]
fn no_list_after_create() {
    caught(&[Rule::ListAfterCreate], "directory", &[name::I1]);
    // The guard of a publish is what still keeps the output right.
    caught(&[Rule::ListAfterCreate, Rule::GuardBeforePublish], "directory", &[name::I1, name::I6, name::ONCE]);
}

#[test]
fn no_guard_before_publish() {
    harmless(&[Rule::GuardBeforePublish], "directory");
    harmless(&[Rule::GuardBeforePublish], "table gives_up");
}

#[test]
fn a_commit_without_intent() {
    caught(&[Rule::Intent], "directory", &[name::I6, name::I6_ORDER, name::ONCE]);
    caught(&[Rule::Intent], "table", &[name::I6, name::I6_ORDER]);
}

#[test]
fn an_intent_given_up_without_a_barrier() {
    caught(&[Rule::Barrier], "table gives_up tries=1", &[name::ONCE, name::COUNTED]);
}

#[test]
fn an_intent_for_a_directory_given_up() {
    caught(&[Rule::DirectoryNeverVoid], "directory", &[name::COUNTED]);
}

#[test]
fn output_taken_out_before_that_is_decided() {
    caught(&[Rule::DecideLeaving], "directory operators=1 retracts atoms=1 tries=1", &[name::COMMITTED]);
}

#[test]
fn a_task_planned_again_without_a_void_seal() {
    caught(&[Rule::VoidSeal], "directory drivers=1 replans=1", &[name::I5_SEALS]);
    // That overlaps are rejected is what still keeps the output right.
    caught(&[Rule::VoidSeal, Rule::RejectOverlap], "directory drivers=1 replans=1", &[name::I5, name::ONCE]);
}

#[test]
fn garbage_decided_by_age_alone() {
    caught(&[Rule::ProvenGarbage], "directory atoms=1 collections=1 tries=1", &[name::I9, name::I9_THERE]);
}

#[test]
fn an_operator_under_the_drivers_epoch() {
    let bounds = "directory atoms=1 drivers=1 operators=1";
    caught(&[Rule::OwnEpoch], bounds, &[name::I8_WRITER]);
    // That a lost create fences is what still keeps the record right.
    caught(&[Rule::OwnEpoch, Rule::LostCreateFences], bounds, &[name::I8_WRITER, name::I8]);
}

#[test]
fn a_fold_of_a_segment_that_no_manifest_names() {
    caught(&[Rule::NamedSegments], "directory", &[name::I4, name::I5, name::ONCE]);
}

#[test]
fn a_manifest_that_does_not_name_its_fold() {
    caught(&[Rule::NameTheFold], "directory", &[name::I7, name::I10, name::COUNTED]);
}

#[test]
fn skips_counted_as_covered() {
    caught(&[Rule::ExactCoverage], "directory packs harms=1 tries=1", &[name::I2, name::COMMITTED]);
}

#[test]
fn an_opener_that_keeps_its_list_of_seals() {
    caught(&[Rule::ListSealsAgain], "directory drivers=3 atoms=1", &[name::I4]);
}

#[test]
fn loose_seals_of_older_epochs() {
    caught(&[Rule::CurrentSealsOnly], "directory", &[name::I4]);
}

#[test]
fn overlapping_seals_accepted() {
    caught(&[Rule::RejectOverlap], "directory stale_plans packs", &[name::I5, name::ONCE]);
}

#[test]
fn looking_at_the_target_first() {
    caught(&[Rule::RenameFirst], "directory", &[name::ONCE, name::COUNTED]);
}

#[test]
fn an_unfit_file_left_in_staging() {
    caught(&[Rule::UnfitAside], "directory atoms=1 harms=1 tries=1", &[name::ONCE, name::COUNTED]);
    caught(&[Rule::LookAfterAside], "directory atoms=1 harms=1 tries=1", &[name::ONCE, name::COUNTED]);
}

#[test]
fn an_echo_taken_for_another() {
    caught(&[Rule::OwnEcho], "directory atoms=1 losses=1", &[name::I9, name::I9_THERE]);
}

#[test]
fn garbage_without_a_second_list() {
    caught(&[Rule::ListAgainBeforeDelete], "directory atoms=1 collections=1", &[name::I1, name::I9_THERE]);
}

#[test]
fn garbage_by_the_name_of_a_seal_alone() {
    caught(&[Rule::LiveIsNotGarbage], "directory atoms=1 collections=2 retries=1 tries=1", &[name::I9]);
}

#[test]
fn a_beaten_attempt_that_deletes_without_a_look_at_the_epoch() {
    let bounds = "directory atoms=1 losses=1 retries=1 collections=1 tries=1";
    caught(&[Rule::CurrentBeforeDiscard], bounds, &[name::I9, name::I9_THERE]);
}
