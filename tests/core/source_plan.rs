//! The listing against what is done: new, replaced, moved, partly done, unusable, vanished.

use lakemark::{
    CheckpointStore, Coverage, ErrorKind, Lake, Live, MaxReplaced, OnChange, OnMoved, Reason, Run, SourcePlan,
    SourcePolicy,
};
use rstest::rstest;

use crate::harness::{SOURCE, faulty, group, seal, takeover};
use crate::lake::{Fixture, do_plan, parquet, plan, read_part};

/// A lake whose files are all done, and the run that did them.
async fn finished(files: usize) -> (Fixture, Lake, Run) {
    let fixture = Fixture::with_files(files, &[4, 4]);
    let (_, store) = faulty();
    let run = store.begin(takeover()).await.unwrap();
    let lake = fixture.open();
    let first = plan(&lake, &Live::default(), SourcePolicy::default()).await.unwrap();
    assert_eq!((first.report.new, first.report.listed), (files as u64, files as u64));
    do_plan(&run, &lake, &first).await;
    (fixture, lake, run)
}

async fn plan_now(run: &Run, lake: &Lake, policy: SourcePolicy) -> lakemark::Result<SourcePlan> {
    run.fold().await.unwrap();
    plan(lake, &run.view().await.1, policy).await
}

fn planned(plan: &SourcePlan) -> Vec<(&str, Reason)> {
    plan.files.iter().map(|file| (&*file.file.path, file.reason)).collect()
}

#[tokio::test]
async fn what_is_done_is_not_opened_and_what_is_new_is_planned() {
    let (fixture, _, run) = finished(3).await;
    fixture.put("d=1/new.parquet", &parquet(0, &[1]), 0);
    fixture.put("_SUCCESS", b"", 0);
    let lake = fixture.open();
    let next = plan_now(&run, &lake, SourcePolicy::default()).await.unwrap();
    assert_eq!(planned(&next), [("d=1/new.parquet", Reason::New)]);
    assert_eq!((next.report.done, next.report.hidden, next.report.verified), (3, 1, false));
    assert_eq!(lake.counters().snapshot().get, 0);
    do_plan(&run, &lake, &next).await;
    assert!(plan_now(&run, &lake, SourcePolicy::default()).await.unwrap().is_empty(), "R28");
}

#[tokio::test]
async fn a_replaced_file_is_done_again_and_the_old_version_is_kept_on_record() {
    let (fixture, lake, run) = finished(2).await;
    fixture.put("f0.parquet", &parquet(500, &[4, 4, 4]), 50);
    let next = plan_now(&run, &lake, SourcePolicy::default()).await.unwrap();
    assert_eq!(planned(&next), [("f0.parquet", Reason::Replaced)]);
    assert!(next.updates.is_empty());
    do_plan(&run, &lake, &next).await;
    assert!(plan_now(&run, &lake, SourcePolicy::default()).await.unwrap().is_empty());
    run.fold().await.unwrap();
    assert_eq!(run.view().await.1.versions(SOURCE, "f0.parquet").len(), 2);
    // And back again: the first version is still done.
    fixture.put("f0.parquet", &parquet(0, &[4, 4]), 0);
    assert!(plan_now(&run, &lake, SourcePolicy::default()).await.unwrap().is_empty());
}

#[rstest]
#[case::reprocess(OnMoved::Reprocess)]
#[case::accept(OnMoved::Accept)]
#[case::fail(OnMoved::Fail)]
#[tokio::test]
async fn a_moved_file_is_treated_as_told(#[case] on_moved: OnMoved) {
    let (fixture, lake, run) = finished(3).await;
    for path in ["f0.parquet", "f1.parquet"] {
        fixture.touch(path, 777);
    }
    let policy = SourcePolicy { on_moved, ..SourcePolicy::default() };
    let next = plan_now(&run, &lake, policy).await;
    match on_moved {
        OnMoved::Fail => {
            let error = next.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Refused);
            let text = error.to_string();
            assert!(text.contains("f0.parquet") && text.contains("--on-moved accept"), "{text}");
            return;
        }
        OnMoved::Reprocess => {
            let next = next.unwrap();
            assert_eq!(planned(&next), [("f0.parquet", Reason::Moved), ("f1.parquet", Reason::Moved)]);
            do_plan(&run, &lake, &next).await;
        }
        OnMoved::Accept => {
            let next = next.unwrap();
            assert_eq!((next.report.moved, next.files.len(), next.updates.len()), (2, 0, 2));
            assert!(!next.is_empty(), "the record has to change");
            do_plan(&run, &lake, &next).await;
        }
    }
    let after = plan_now(&run, &lake, SourcePolicy::default()).await.unwrap();
    assert!(after.is_empty() && after.report.done == 3, "{:?}", after.report);
    // Durable, through a fold and in a fresh reading.
    let view = run.store().read().await.unwrap();
    assert!(plan(&lake, &view.live, SourcePolicy::default()).await.unwrap().is_empty());
}

/// A lake of one file of which only group 0 is done.
async fn half_done() -> (Fixture, Lake, Run) {
    let fixture = Fixture::with_files(1, &[4, 4]);
    let (_, store) = faulty();
    let run = store.begin(takeover()).await.unwrap();
    let lake = fixture.open();
    let first = plan(&lake, &Live::default(), SourcePolicy::default()).await.unwrap();
    let _ = seal(&run, vec![read_part(&lake, &first.files[0], &group(0)).await]).await.unwrap();
    (fixture, lake, run)
}

/// R44.
#[tokio::test]
async fn r44_the_rest_of_a_partly_done_file_is_planned_by_its_footer_alone() {
    let (fixture, _, run) = half_done().await;
    let lake = fixture.open();
    let next = plan_now(&run, &lake, SourcePolicy::default()).await.unwrap();
    assert_eq!(planned(&next), [("f0.parquet", Reason::PartlyDone)]);
    assert_eq!((&next.files[0].left, next.files[0].group_rows.as_deref()), (&group(1), Some(&[4, 4][..])));
    assert_eq!(lake.counters().snapshot().get, 1, "one footer, which the scan uses again");
    do_plan(&run, &lake, &next).await;
    assert!(plan_now(&run, &lake, SourcePolicy::default()).await.unwrap().is_empty());
}

#[tokio::test]
async fn the_rest_of_a_moved_and_accepted_file_is_done_under_its_new_token() {
    let (fixture, lake, run) = half_done().await;
    fixture.touch("f0.parquet", 777);
    let policy = SourcePolicy { on_moved: OnMoved::Accept, ..SourcePolicy::default() };
    let next = plan_now(&run, &lake, policy).await.unwrap();
    assert_eq!((planned(&next), &next.files[0].left), (vec![("f0.parquet", Reason::Moved)], &group(1)));
    do_plan(&run, &lake, &next).await;
    assert!(plan_now(&run, &lake, SourcePolicy::default()).await.unwrap().is_empty());
    assert_eq!(run.view().await.1.versions(SOURCE, "f0.parquet").len(), 1, "one version, whole");
}

#[tokio::test]
async fn ignoring_a_replaced_file_leaves_it_unless_its_rest_would_be_stranded() {
    let ignore = SourcePolicy { on_change: OnChange::Ignore, ..SourcePolicy::default() };
    let (fixture, lake, run) = finished(2).await;
    fixture.put("f0.parquet", &parquet(500, &[4, 4]), 50);
    let next = plan_now(&run, &lake, ignore).await.unwrap();
    assert!(next.is_empty() && next.report.replaced == 1);
    let (fixture, lake, run) = half_done().await;
    fixture.put("f0.parquet", &parquet(500, &[4, 4]), 50);
    let error = plan_now(&run, &lake, ignore).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.to_string().contains("f0.parquet") && error.to_string().contains("--on-change reprocess"), "{error}");
}

#[tokio::test]
async fn a_source_whose_files_must_not_change_refuses() {
    let (fixture, lake, run) = finished(2).await;
    fixture.put("f1.parquet", &parquet(500, &[4, 4]), 50);
    let policy = SourcePolicy { on_change: OnChange::Fail, ..SourcePolicy::default() };
    let error = plan_now(&run, &lake, policy).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.to_string().contains("f1.parquet"), "{error}");
}

#[tokio::test]
async fn too_many_replaced_files_are_refused_and_the_named_ways_work() {
    let (fixture, lake, run) = finished(12).await;
    for i in 0..10 {
        fixture.put(&format!("f{i}.parquet"), &parquet(5_000 + i, &[4, 4]), 50);
    }
    let error = plan_now(&run, &lake, SourcePolicy::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(
        error.to_string().contains("max_replaced=10") && error.to_string().contains("--on-change ignore"),
        "{error}"
    );
    let ignore = SourcePolicy { on_change: OnChange::Ignore, ..SourcePolicy::default() };
    assert!(plan_now(&run, &lake, ignore).await.unwrap().is_empty());
    let allowed = SourcePolicy { max_replaced: MaxReplaced::Files(10), ..SourcePolicy::default() };
    assert_eq!(plan_now(&run, &lake, allowed).await.unwrap().files.len(), 10);
}

/// Rewrites `f1.parquet` keeping its size and its mtime.
fn rewrite_unseen(fixture: &Fixture) {
    let (old, new) = (parquet(1_000, &[4, 4]), parquet(1_001, &[4, 4]));
    assert!(old.len() == new.len() && old != new, "the same size, other statistics in the footer");
    fixture.put("f1.parquet", &new, 1);
}

#[tokio::test]
async fn verify_finds_a_rewrite_that_kept_size_and_mtime() {
    let (fixture, _, run) = finished(3).await;
    rewrite_unseen(&fixture);
    let lake = fixture.open();
    assert!(plan_now(&run, &lake, SourcePolicy::default()).await.unwrap().is_empty(), "size and token cannot tell");
    let verify = SourcePolicy { verify: true, ..SourcePolicy::default() };
    let next = plan_now(&run, &lake, verify).await.unwrap();
    assert_eq!(planned(&next), [("f1.parquet", Reason::Replaced)]);
    assert!(next.report.verified && next.report.done == 2);
    do_plan(&run, &lake, &next).await;
    let after = plan_now(&run, &lake, verify).await.unwrap();
    assert!(after.is_empty() && after.report.done == 3, "{:?}", after.report);
}

/// A file that is found to be rewritten is replaced like any other: the policy decides.
#[tokio::test]
async fn a_rewrite_that_verify_finds_is_subject_to_the_policy() {
    let (fixture, lake, run) = finished(3).await;
    rewrite_unseen(&fixture);
    let with = |on_change| SourcePolicy { verify: true, on_change, ..SourcePolicy::default() };
    assert_eq!(plan_now(&run, &lake, with(OnChange::Fail)).await.unwrap_err().kind(), ErrorKind::Refused);
    let ignored = plan_now(&run, &lake, with(OnChange::Ignore)).await.unwrap();
    assert!(ignored.is_empty() && ignored.report.replaced == 1, "{ignored:?}");
}

/// R33, R34: nothing is sealed for a file that is not one yet; complete, it is new.
#[tokio::test]
async fn r34_unusable_files_are_named_and_done_once_they_are_complete() {
    let (fixture, _, run) = finished(1).await;
    fixture.put("zero.parquet", b"", 0);
    fixture.put("short.parquet", b"PAR1PAR1", 0);
    let lake = fixture.open();
    let next = plan_now(&run, &lake, SourcePolicy::default()).await.unwrap();
    assert!(next.is_empty());
    assert_eq!(next.report.unusable.iter().map(|u| &*u.path).collect::<Vec<_>>(), ["short.parquet", "zero.parquet"]);
    assert_eq!(next.report.listed, 3);
    fixture.put("zero.parquet", &parquet(0, &[1]), 5);
    let next = plan_now(&run, &lake, SourcePolicy::default()).await.unwrap();
    assert_eq!(planned(&next), [("zero.parquet", Reason::New)]);
}

/// A known file that is torn now is not replaced, not done again, and not forgotten.
#[tokio::test]
async fn a_known_file_that_is_torn_now_is_unusable() {
    let (fixture, lake, run) = finished(2).await;
    let whole = parquet(0, &[4, 4]);
    fixture.put("f0.parquet", &whole[..whole.len() / 2], 60);
    let next = plan_now(&run, &lake, SourcePolicy::default()).await.unwrap();
    assert!(next.is_empty());
    assert_eq!(next.report.unusable.len(), 1);
    fixture.put("f0.parquet", &whole, 0);
    assert_eq!(plan_now(&run, &lake, SourcePolicy::default()).await.unwrap().report.done, 2);
}

#[tokio::test]
async fn what_vanished_is_counted_and_kept() {
    let (fixture, lake, run) = finished(3).await;
    std::fs::remove_file(fixture.at("f1.parquet")).unwrap();
    let next = plan_now(&run, &lake, SourcePolicy::default()).await.unwrap();
    assert!(next.is_empty());
    assert_eq!((next.report.vanished, next.report.listed, next.report.done), (1, 2, 2));
    fixture.put("f1.parquet", &parquet(1_000, &[4, 4]), 1);
    let next = plan_now(&run, &lake, SourcePolicy::default()).await.unwrap();
    assert!(next.is_empty() && next.report.vanished == 0, "it is still done when it comes back");
}

/// R21, R22: membership decides, never time.
#[tokio::test]
async fn r22_a_late_file_with_an_old_mtime_is_planned() {
    let (fixture, lake, run) = finished(3).await;
    fixture.put("late.parquet", &parquet(0, &[1]), 0);
    let next = plan_now(&run, &lake, SourcePolicy::default()).await.unwrap();
    assert_eq!(planned(&next), [("late.parquet", Reason::New)]);
}

/// R42: a file that is gone between listing and planning stops nothing.
#[tokio::test]
async fn r42_a_file_that_vanishes_while_planning_is_counted() {
    let (fixture, lake, run) = finished(3).await;
    fixture.touch("f2.parquet", 99);
    let listing = lake.list().await.unwrap();
    std::fs::remove_file(fixture.at("f2.parquet")).unwrap();
    run.fold().await.unwrap();
    let live = run.view().await.1;
    let next = lakemark::plan_source(SOURCE, &lake, &listing, &live, SourcePolicy::default()).await.unwrap();
    crate::lake::check_sum(&next);
    assert!(next.is_empty());
    assert_eq!((next.report.vanished, next.report.listed), (1, 2));
}

/// R04: a token taken within its clock step does not tell a second write in it, until it is settled by the footer.
#[tokio::test]
async fn r04_a_fresh_mtime_is_settled_by_the_footer_in_the_next_run() {
    let fixture = Fixture::new();
    let (_, store) = faulty();
    let run = store.begin(takeover()).await.unwrap();
    let lake = fixture.open();
    std::fs::write(fixture.at("a.parquet"), parquet(1, &[4])).unwrap();
    std::fs::write(fixture.at("b.parquet"), parquet(1, &[4])).unwrap();
    let listing = lakemark::Listing { taken_at: 0, ..lake.list().await.unwrap() }; // As if listed in the same step.
    let first =
        lakemark::plan_source(SOURCE, &lake, &listing, &Live::default(), SourcePolicy::default()).await.unwrap();
    assert!(first.files.iter().all(|file| file.unsettled));
    do_plan(&run, &lake, &first).await;
    // `b` is rewritten in the same step: same size, same mtime.
    let mtime = std::fs::metadata(fixture.at("b.parquet")).unwrap().modified().unwrap();
    std::fs::write(fixture.at("b.parquet"), parquet(2, &[4])).unwrap();
    std::fs::File::options().write(true).open(fixture.at("b.parquet")).unwrap().set_modified(mtime).unwrap();

    let lake = fixture.open();
    let mut next = plan_now(&run, &lake, SourcePolicy::default()).await.unwrap();
    assert!(next.is_empty() && next.unsettled.len() == 2, "an idle run does not open them");
    let live = run.view().await.1;
    let fail = SourcePolicy { on_change: OnChange::Fail, ..SourcePolicy::default() };
    assert_eq!(next.clone().settle(&lake, &live, fail).await.unwrap_err().kind(), ErrorKind::Refused);
    assert!(next.settle(&lake, &live, SourcePolicy::default()).await.unwrap(), "there is more to do");
    crate::lake::check_sum(&next);
    assert_eq!(planned(&next), [("b.parquet", Reason::Replaced)]);
    do_plan(&run, &lake, &next).await;
    let after = plan_now(&run, &lake, SourcePolicy::default()).await.unwrap();
    assert!(after.unsettled.iter().all(|file| &*file.path != "a.parquet"), "`a` is settled");
    assert_eq!(after.report.done, 2);
    assert_eq!(run.list_checkpoints().await.unwrap().len(), 3);
    assert_eq!(run.view().await.1.versions(SOURCE, "b.parquet")[0].coverage, Coverage::Whole);
}
