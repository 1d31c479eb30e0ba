//! Operators' verbs: what each does, what it says first, and what it refuses.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use lakemark::faults::CommitsBy;
use lakemark::store::{Decision, Event, TransitionKind};
use lakemark::{
    CheckpointStore, Counts, DirectorySink, ErrorKind, ForgetPlan, Intent, Lake, Lease, Pattern, Reason, Rebase, Root,
    Selection, Sink, SourcePolicy, Wait, bless_plan, plan_source,
};
use rstest::rstest;

use crate::commits::Dies;
use crate::harness::{
    SOURCE, Site, collect_garbage, done, names, newest, next, put, results, seen_done, work, work_left, write_staged,
};

async fn operator(site: &Site) -> lakemark::Run {
    site.store().operate(Wait::Takeover, Lease::default()).await.unwrap()
}

fn paths(paths: &[&str]) -> Selection {
    let paths = paths.iter().map(|path| (None, path.to_string())).collect();
    Selection { paths, ..Selection::default() }
}

/// A site with each of `paths` done and committed.
async fn committed(paths: &[&str]) -> Site {
    let site = Site::quick();
    let run = site.begin().await;
    work_left(&run, &site.sink(), paths).await.unwrap();
    run.commit(Some(&site.sink())).await.unwrap();
    run.close().await.unwrap();
    site
}

#[tokio::test]
async fn a_verb_never_makes_a_store_and_waits_for_a_live_holder() {
    let site = Site::quick();
    let error = site.store().operate(Wait::Takeover, Lease::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(!site.at("store").exists());
    let run = site.begin().await;
    let error = site.store().operate(Wait::No, Lease::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    run.close().await.unwrap();
    // No verb forgets what the store belongs to.
    operator(&site).await.close().await.unwrap();
    assert_eq!(newest(&site.store()).await.sink, Some(site.sink().binding()));
}

/// What a killed driver leaves: a staged file without a seal, loose seals, an unfinished object, a beat.
#[tokio::test]
async fn gc_removes_what_a_killed_run_left_and_nothing_that_counts() {
    let site = committed(&["a"]).await;
    let run = site.begin().await;
    work_left(&run, &site.sink(), &["b"]).await.unwrap();
    let orphan = write_staged(&run, &site.sink(), next(&run), "", "half a result").unwrap();
    let epoch = run.worker().epoch();
    drop(run);
    let objects = site.objects();
    put(&objects, "unfinished/0123456789abcdef", "torn").await;
    fs::write(site.at("out.lakemark/binding-0123456789abcdef"), "torn").unwrap();
    fs::write(site.at("out.lakemark/staged/notes.txt"), "a person's").unwrap();
    put(&objects, "notes.txt", "a person's").await;

    // The driver is gone without closing; its process is this one, which lives: nothing of its epoch is dead yet.
    let held = site.store().garbage(Some(&site.sink()), Duration::ZERO).await.unwrap();
    assert!(held.outputs.iter().all(|file| !file.path.contains(&orphan.name)), "{held:?}");
    let run = operator(&site).await;
    let young = run.collect(Some(&site.sink()), Duration::from_secs(3_600)).await.unwrap();
    assert!(young.is_empty() && young.too_young > 0, "{young:?}");
    let garbage = run.collect(Some(&site.sink()), Duration::ZERO).await.unwrap();
    let gone: Vec<&str> = garbage.outputs.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(gone, ["binding-0123456789abcdef", &format!("staged/{}", orphan.name)]);
    let seal = format!("epochs/{epoch}/seals/00000/0000000000.0000.json");
    assert!(garbage.objects.iter().any(|(name, _)| *name == seal), "{garbage:?}");
    assert!(garbage.bytes() > 0);
    run.close().await.unwrap();
    assert!(site.at("out.lakemark/staged/notes.txt").exists() && names(&objects).await.contains(&"notes.txt".into()));
    fs::remove_file(site.at("out.lakemark/staged/notes.txt")).unwrap();
    fs::remove_file(site.at("store/notes.txt")).unwrap();
    collect_garbage(&site.store(), &objects, &site.sink()).await;

    // What was sealed and not committed is.
    let run = site.begin().await;
    work_left(&run, &site.sink(), &["a", "b"]).await.unwrap();
    assert_eq!(run.commit(Some(&site.sink())).await.unwrap()[0].files, 1);
    run.close().await.unwrap();
    assert_eq!(site.visible(), results(&["a", "b"]));
}

/// The files of an open intent, committed files, and files of a store restored from a copy (R97) stay.
#[tokio::test]
async fn gc_leaves_an_open_intent_alone() {
    let site = Site::quick();
    let run = site.begin().await;
    work_left(&run, &site.sink(), &["a", "b"]).await.unwrap();
    run.commit(Some(&CommitsBy(&site.sink(), Dies::After(1)))).await.unwrap_err();
    drop(run);
    let intent = newest(&site.store()).await.commits.open.unwrap();
    collect_garbage(&site.store(), &site.objects(), &site.sink()).await;
    assert_eq!(newest(&site.store()).await.commits.open, Some(intent));
    let run = site.begin().await;
    assert_eq!(run.recover(Some(&site.sink())).await.unwrap().committed.unwrap().files, 2);
    run.close().await.unwrap();
    assert_eq!(site.visible(), results(&["a", "b"]));
}

#[tokio::test]
async fn gc_of_another_destination_is_refused() {
    let site = committed(&["a"]).await;
    let other = DirectorySink::open("parquet", site.at("other").to_str().unwrap()).unwrap();
    let run = operator(&site).await;
    assert_eq!(run.collect(Some(&other), Duration::ZERO).await.unwrap_err().kind(), ErrorKind::Refused);
    run.close().await.unwrap();
}

/// R130: forgetting committed work says what it doubles; the file is planned again as forced, and only it.
#[tokio::test]
async fn r130_a_committed_file_is_forgotten_alone_and_said_to_double() {
    let site = committed(&["a", "b"]).await;
    let view = site.store().read().await.unwrap();
    let plan = ForgetPlan::of(&view, paths(&["a", "nowhere"])).unwrap();
    assert_eq!(plan.unknown, ["nowhere"]);
    assert_eq!((plan.files.len(), plan.withdrawn.len()), (1, 0));
    assert_eq!((plan.doubled_outputs.len(), plan.doubled_rows), (1, 20));
    assert_eq!((plan.files[0].committed_atoms, plan.files[0].chosen), (2, true));
    let run = operator(&site).await;
    run.forget(&plan, None).await.unwrap();
    run.close().await.unwrap();
    let view = site.store().read().await.unwrap();
    assert_eq!(done(&view.live), ["b"]);
    assert!(view.live.is_forgotten(SOURCE, &plan.files[0].file));
    // Its output stays on record: the destination is as the store says.
    site.sink().check(view.expected().as_ref()).await.unwrap();
    collect_garbage(&site.store(), &site.objects(), &site.sink()).await;
    let run = site.begin().await;
    work_left(&run, &site.sink(), &["a", "b"]).await.unwrap();
    run.commit(Some(&site.sink())).await.unwrap();
    run.close().await.unwrap();
    assert_eq!(site.visible(), results(&["a", "a", "b"]), "as it was said");
    let view = site.store().read().await.unwrap();
    assert!(!view.live.is_forgotten(SOURCE, &plan.files[0].file), "it is done again");
}

/// An output file holds the rows of all files of its checkpoint: what is not committed is undone together.
#[tokio::test]
async fn forgetting_one_file_of_an_uncommitted_checkpoint_undoes_the_others_and_says_so() {
    let site = Site::quick();
    let run = site.begin().await;
    let id = next(&run);
    let output = write_staged(&run, &site.sink(), id, "", "result of a and b").unwrap();
    run.stage_keys(id, vec![crate::harness::whole("a"), crate::harness::whole("b")]).unwrap();
    run.stage_files(id, Box::pin(async { Ok(vec![output]) })).unwrap();
    let _ = run.checkpoint(id, Counts::default()).await.unwrap();
    work_left(&run, &site.sink(), &["c"]).await.unwrap();
    run.close().await.unwrap();
    let glob = Selection { globs: vec![Pattern::new("a*").unwrap()], ..Selection::default() };
    let plan = ForgetPlan::of(&site.store().read().await.unwrap(), glob).unwrap();
    let shown: Vec<_> = plan.files.iter().map(|file| (&*file.file.path, file.chosen)).collect();
    assert_eq!((shown, plan.withdrawn.clone()), (vec![("a", true), ("b", false)], vec![id]));
    let run = operator(&site).await;
    run.forget(&plan, None).await.unwrap();
    assert_eq!(run.commit(Some(&site.sink())).await.unwrap()[0].files, 1);
    run.close().await.unwrap();
    assert_eq!((seen_done(&site.store()).await, site.visible()), (vec!["c".to_owned()], results(&["c"])));
    collect_garbage(&site.store(), &site.objects(), &site.sink()).await;
    assert!(fs::read_dir(site.staged()).unwrap().next().is_none(), "the withdrawn output is garbage");
}

#[tokio::test]
async fn forgetting_what_a_commit_holds_or_what_changed_since_is_refused() {
    let site = Site::quick();
    let run = site.begin().await;
    work_left(&run, &site.sink(), &["a"]).await.unwrap();
    run.commit(Some(&CommitsBy(&site.sink(), Dies::BeforePublish))).await.unwrap_err();
    drop(run);
    let view = site.store().read().await.unwrap();
    let error = ForgetPlan::of(&view, paths(&["a"])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.what().contains("commit 1, which is not finished"), "{error}");

    let site = committed(&["a"]).await;
    let run = site.begin().await;
    let _ = work(&run, &site.sink(), "b").await.unwrap();
    run.fold().await.unwrap();
    let plan = ForgetPlan::of(&site.store().read().await.unwrap(), paths(&["b"])).unwrap();
    run.commit(Some(&site.sink())).await.unwrap();
    run.close().await.unwrap();
    let run = operator(&site).await;
    let error = run.forget(&plan, None).await.unwrap_err();
    assert!(error.what().contains("changed since"), "it was not committed when it was looked at: {error}");
    assert_eq!(seen_done(&site.store()).await, ["a", "b"]);
    run.close().await.unwrap();
}

#[tokio::test]
async fn an_epoch_is_forgotten_whole() {
    let site = committed(&["a"]).await;
    let epoch = newest(&site.store()).await.epoch;
    let run = site.begin().await;
    work_left(&run, &site.sink(), &["b", "c"]).await.unwrap();
    run.close().await.unwrap();
    let selection = Selection { epoch: Some(epoch.next()), ..Selection::default() };
    let plan = ForgetPlan::of(&site.store().read().await.unwrap(), selection).unwrap();
    let run = operator(&site).await;
    run.forget(&plan, None).await.unwrap();
    run.close().await.unwrap();
    assert_eq!(seen_done(&site.store()).await, ["a"]);
    let events = site.store().read().await.unwrap().live.events().to_vec();
    assert!(events.iter().any(|row| matches!(&row.event, Event::Forgotten { files, .. } if files.len() == 2)));
    let manifests = site.store().manifests().await.unwrap();
    assert!(manifests.iter().any(|manifest| manifest.transition == TransitionKind::Forget));
}

/// A lake of whole files with `texts`, by path.
fn lake(site: &Site, texts: &[(&str, &str)]) -> Lake {
    for (path, text) in texts {
        fs::create_dir_all(site.at("lake")).unwrap();
        fs::write(site.at("lake").join(path), text).unwrap();
    }
    Lake::open(site.at("lake").to_str().unwrap()).unwrap().with_whole_files()
}

/// R131 and W4: what is there now is done, without having run; it is told from processed work, and never committed.
#[tokio::test]
async fn r131_blessed_files_are_done_without_work() {
    let site = committed(&["a"]).await;
    let lake = lake(&site, &[("x", "one"), ("y", "two"), ("z", "three")]);
    let listing = lake.list().await.unwrap();
    let view = site.store().read().await.unwrap();
    let blessing = bless_plan(SOURCE, &lake, &listing, &view.live, |file| &*file.path != "z").await.unwrap();
    assert_eq!((blessing.files.len(), blessing.reasons["new"]), (2, 2));
    let run = operator(&site).await;
    run.bless(vec![blessing.clone()]).await.unwrap();
    assert!(run.commit(Some(&site.sink())).await.unwrap().is_empty(), "there is nothing to commit");
    let error = run.bless(vec![blessing]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "they are done");
    run.close().await.unwrap();
    collect_garbage(&site.store(), &site.objects(), &site.sink()).await;
    let view = site.store().read().await.unwrap();
    assert_eq!(done(&view.live), ["a", "x", "y"]);
    assert_eq!(view.live.checkpoints().filter(|row| row.decision == Decision::Blessed).count(), 1);
    let plan = plan_source(SOURCE, &lake, &listing, &view.live, SourcePolicy::default()).await.unwrap();
    assert_eq!(plan.files.iter().map(|file| &*file.file.path).collect::<Vec<_>>(), ["z"]);

    // A replaced one is blessed in its new version, a forgotten blessing is undone and doubles nothing.
    fs::write(site.at("lake/x"), "another one").unwrap();
    let listing = lake.list().await.unwrap();
    let blessing = bless_plan(SOURCE, &lake, &listing, &view.live, |file| &*file.path == "x").await.unwrap();
    assert_eq!(blessing.reasons, BTreeMap::from([("replaced", 1)]));
    let run = operator(&site).await;
    run.bless(vec![blessing]).await.unwrap();
    run.close().await.unwrap();
    let view = site.store().read().await.unwrap();
    let plan = ForgetPlan::of(&view, paths(&["y"])).unwrap();
    assert_eq!((plan.files.len(), plan.doubled_rows), (1, 0));
    let run = operator(&site).await;
    run.forget(&plan, None).await.unwrap();
    run.close().await.unwrap();
    let view = site.store().read().await.unwrap();
    let plan = plan_source(SOURCE, &lake, &listing, &view.live, SourcePolicy::default()).await.unwrap();
    let left: Vec<_> = plan.files.iter().map(|file| (&*file.file.path, file.reason)).collect();
    assert_eq!(left, [("y", Reason::Forced), ("z", Reason::New)]);
    assert_eq!((plan.report.forced, plan.report.new, plan.report.done), (1, 1, 1));
}

/// W16: a moved source keeps its finished work; a moved destination keeps its commits.
#[rstest]
#[case::finished(false)]
#[case::in_the_middle_of_a_commit(true)]
#[tokio::test]
async fn w16_a_store_goes_on_at_new_roots(#[case] open: bool) {
    let site = committed(&["a"]).await;
    if open {
        let run = site.begin().await;
        work_left(&run, &site.sink(), &["b"]).await.unwrap();
        run.commit(Some(&CommitsBy(&site.sink(), Dies::BeforePublish))).await.unwrap_err();
        drop(run);
    }
    for (from, to) in [("out", "moved"), ("out.lakemark", "moved.lakemark")] {
        fs::rename(site.at(from), site.at(to)).unwrap();
    }
    let moved = DirectorySink::open("parquet", site.at("moved").to_str().unwrap()).unwrap();
    let options = || crate::harness::with_sink(&moved);
    assert_eq!(site.store().begin(options()).await.unwrap_err().kind(), ErrorKind::Refused);
    let manifest = newest(&site.store()).await;
    let sink = Some(site.root("moved"));
    let stranger = Rebase { sources: BTreeMap::from([("strange".to_owned(), site.root("x"))]), sink: sink.clone() };
    assert_eq!(stranger.against(&manifest).unwrap_err().kind(), ErrorKind::Invalid);
    let rebase = Rebase { sources: BTreeMap::new(), sink }.against(&manifest).unwrap();
    let run = operator(&site).await;
    let rebased = run.rebase(rebase.clone()).await;
    run.close().await.unwrap();
    if open {
        assert_eq!(rebased.unwrap_err().kind(), ErrorKind::Refused);
        return;
    }
    rebased.unwrap();
    assert!(rebase.against(&newest(&site.store()).await).unwrap().is_empty(), "it is there already");
    let run = site.store().begin(options()).await.unwrap();
    moved.check(run.with_live(expected_of).await.as_ref()).await.unwrap();
    work_left(&run, &moved, &["a", "b"]).await.unwrap();
    run.commit(Some(&moved)).await.unwrap();
    run.close().await.unwrap();
    assert_eq!(crate::harness::texts(&site.at("moved")), results(&["a", "b"]));
}

fn expected_of(head: &lakemark::store::Head, live: &lakemark::Live) -> Option<lakemark::Expected> {
    lakemark::View { head: Some(head.clone()), live: live.clone(), ..Default::default() }.expected()
}

#[tokio::test]
async fn a_rebased_source_is_planned_from_its_new_root() {
    let site = Site::quick();
    let root = site.root("lake");
    let settings = lakemark::SourceSettings::files(root, "parquet");
    let sources = BTreeMap::from([(SOURCE.to_owned(), settings.clone())]);
    let begin = |sources| lakemark::BeginOptions { sources, ..crate::harness::takeover() };
    site.store().begin(begin(sources)).await.unwrap().close().await.unwrap();
    let new = Root::parse("s3://bucket/lake").unwrap();
    let rebase = Rebase { sources: BTreeMap::from([(SOURCE.to_owned(), new.clone())]), sink: None };
    let run = operator(&site).await;
    run.rebase(rebase).await.unwrap();
    run.close().await.unwrap();
    let moved = BTreeMap::from([(SOURCE.to_owned(), lakemark::SourceSettings { root: new, ..settings })]);
    site.store().begin(begin(moved)).await.unwrap().close().await.unwrap();
    let events = site.store().read().await.unwrap().live.events().to_vec();
    let told = events.iter().any(|row| matches!(&row.event, Event::Operated { verb, .. } if verb == "rebase"));
    assert!(told);
}

/// R130 with `--retract`: nothing is there twice, and what shared the output is done again with it.
#[tokio::test]
async fn r130_retracted_output_leaves_the_destination() {
    let site = committed(&["a", "b"]).await;
    let view = site.store().read().await.unwrap();
    let plan = ForgetPlan::of(&view, Selection { retract: true, ..paths(&["a"]) }).unwrap();
    assert_eq!((plan.retracted_outputs.len(), plan.withdrawn.len(), plan.doubled_rows), (1, 1, 0));
    let run = operator(&site).await;
    let error = run.forget(&plan, None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "it needs the destination");
    run.forget(&plan, Some(&site.sink())).await.unwrap();
    run.close().await.unwrap();
    assert_eq!(site.visible(), results(&["b"]));
    let commits = newest(&site.store()).await.commits;
    assert_eq!((commits.files, commits.rows), (1, 1));
    site.sink().check(site.store().read().await.unwrap().expected().as_ref()).await.unwrap();
    let run = site.begin().await;
    work_left(&run, &site.sink(), &["a", "b"]).await.unwrap();
    run.commit(Some(&site.sink())).await.unwrap();
    run.close().await.unwrap();
    assert_eq!(site.visible(), results(&["a", "b"]));
    collect_garbage(&site.store(), &site.objects(), &site.sink()).await;
    assert!(fs::read_dir(site.at("out.lakemark/unfit")).unwrap().next().is_none());
}

/// A committed file that is gone: exactly its work is done again.
#[rstest]
#[case::gone(false)]
#[case::changed(true)]
#[tokio::test]
async fn committed_output_that_is_lost_is_repaired_by_doing_its_work_again(#[case] changed: bool) {
    let site = committed(&["a", "b", "c"]).await;
    let victim = fs::read_dir(site.at("out/d=1")).unwrap().next().unwrap().unwrap().path();
    let text = fs::read_to_string(&victim).unwrap();
    if changed {
        fs::write(&victim, "other").unwrap()
    } else {
        fs::remove_file(&victim).unwrap()
    }
    let expected = crate::harness::expected(&site.store()).await;
    let refused = site.sink().check(expected.as_ref()).await.unwrap_err();
    assert!(refused.to_string().contains("lakemark repair"), "{refused}");
    let lost = site.store().lost_output(&site.sink(), false).await.unwrap();
    assert_eq!((lost.len(), lost[0].gone.len(), lost[0].taken_out.len()), (1, 1, 0));
    let undone: Vec<_> = lost[0].undone.iter().map(|(_, file)| &*file.path).collect();
    assert_eq!(undone, [text.strip_prefix("result of ").unwrap()]);
    let run = operator(&site).await;
    run.withdraw_lost(&lost, &site.sink()).await.unwrap();
    run.close().await.unwrap();
    site.sink().check(site.store().read().await.unwrap().expected().as_ref()).await.unwrap();
    assert!(site.store().lost_output(&site.sink(), false).await.unwrap().is_empty());
    let run = site.begin().await;
    work_left(&run, &site.sink(), &["a", "b", "c"]).await.unwrap();
    run.commit(Some(&site.sink())).await.unwrap();
    run.close().await.unwrap();
    assert_eq!(site.visible(), results(&["a", "b", "c"]));
    collect_garbage(&site.store(), &site.objects(), &site.sink()).await;
}

/// One task over `files`, with one output file.
async fn packed(run: &lakemark::Run, site: &Site, files: &[&str]) {
    let id = next(run);
    let output = write_staged(run, &site.sink(), id, "", &format!("result of {files:?}")).unwrap();
    run.stage_keys(id, files.iter().map(|path| crate::harness::whole(path)).collect()).unwrap();
    run.stage_files(id, Box::pin(async { Ok(vec![output]) })).unwrap();
    let _ = run.checkpoint(id, Counts::default()).await.unwrap();
}

async fn forget(site: &Site, selection: Selection) -> ForgetPlan {
    let plan = ForgetPlan::of(&site.store().read().await.unwrap(), selection).unwrap();
    let run = operator(site).await;
    run.forget(&plan, Some(&site.sink())).await.unwrap();
    run.close().await.unwrap();
    plan
}

/// What was forgotten without retracting, and done again, is there twice; retracting it later takes both out.
#[tokio::test]
async fn r130_rows_that_are_there_twice_can_be_retracted_later() {
    let site = committed(&["a", "b"]).await;
    forget(&site, paths(&["a"])).await;
    let run = site.begin().await;
    work_left(&run, &site.sink(), &["a", "b"]).await.unwrap();
    run.commit(Some(&site.sink())).await.unwrap();
    run.close().await.unwrap();
    assert_eq!(site.visible(), results(&["a", "a", "b"]));
    let plan = forget(&site, Selection { retract: true, ..paths(&["a"]) }).await;
    assert_eq!((plan.withdrawn.len(), plan.retracted_outputs.len(), plan.retracted_rows), (2, 2, 2));
    let run = site.begin().await;
    work_left(&run, &site.sink(), &["a", "b"]).await.unwrap();
    run.commit(Some(&site.sink())).await.unwrap();
    run.close().await.unwrap();
    assert_eq!(site.visible(), results(&["a", "b"]));
    // Also before it is done again.
    forget(&site, paths(&["b"])).await;
    let plan = forget(&site, Selection { retract: true, ..paths(&["b"]) }).await;
    assert!(plan.unknown.is_empty() && plan.withdrawn.len() == 1, "{plan:?}");
    assert_eq!(site.visible(), results(&["a"]));
}

/// A blessing says that rows are somewhere. When that output goes, the blessing goes with it: by a retraction of a
/// neighbour, and by a repair of what was lost.
#[rstest]
#[case::retracted(true)]
#[case::lost(false)]
#[tokio::test]
async fn a_blessing_over_kept_rows_goes_with_them(#[case] retract: bool) {
    let site = Site::quick();
    let run = site.begin().await;
    packed(&run, &site, &["b", "c", "d", "e", "f", "g"]).await;
    run.commit(Some(&site.sink())).await.unwrap();
    run.close().await.unwrap();
    forget(&site, paths(&["c"])).await;
    let run = operator(&site).await;
    let (source, files) = (SOURCE.to_owned(), vec![crate::harness::whole("c")]);
    let (updates, unusable, reasons) = (Vec::new(), Vec::new(), BTreeMap::new());
    run.bless(vec![lakemark::Blessing { source, files, updates, unusable, reasons, reached: None }]).await.unwrap();
    run.close().await.unwrap();
    assert_eq!(seen_done(&site.store()).await, ["b", "c", "d", "e", "f", "g"]);
    if retract {
        let plan = forget(&site, Selection { retract: true, ..paths(&["d"]) }).await;
        assert_eq!(plan.files.iter().filter(|file| file.dropped).count(), 2, "{plan:?}");
    } else {
        fs::remove_file(fs::read_dir(site.at("out")).unwrap().next().unwrap().unwrap().path()).unwrap();
        let lost = site.store().lost_output(&site.sink(), true).await.unwrap();
        assert_eq!(lost[0].undone.len(), 6);
        let run = operator(&site).await;
        run.withdraw_lost(&lost, &site.sink()).await.unwrap();
        run.close().await.unwrap();
    }
    assert!(seen_done(&site.store()).await.is_empty(), "none of its rows is there");
    collect_garbage(&site.store(), &site.objects(), &site.sink()).await;
}

/// Who decides a retraction and stalls takes out only what was to be out: its successor ends it, and what that does again is
/// not touched.
#[tokio::test]
async fn a_retraction_that_is_stopped_is_ended_by_the_next_run_and_by_nobody_twice() {
    let site = committed(&["a", "b", "c"]).await;
    let plan =
        ForgetPlan::of(&site.store().read().await.unwrap(), Selection { retract: true, ..paths(&["a", "b"]) }).unwrap();
    let before = site.store().read().await.unwrap();
    let outputs: Vec<_> = before.live.committed_outputs().map(|(_, output)| output.clone()).collect();
    let leaving: Vec<_> =
        outputs.into_iter().filter(|output| plan.retracted_outputs.contains(&output.path())).collect();
    let stalled = operator(&site).await;
    assert!(stalled.forget(&plan, Some(&CommitsBy(&site.sink(), Dies::BeforePublish))).await.is_err());
    assert_eq!(site.visible(), results(&["a", "b", "c"]), "nothing is out yet");
    // One of the files went before it stalled.
    let first = Intent { leaving: &leaving[..1], ..Intent::bare(&[]) };
    site.sink().commit(&first).await.unwrap();
    site.sink().check(site.store().read().await.unwrap().expected().as_ref()).await.unwrap();
    assert!(ForgetPlan::of(&site.store().read().await.unwrap(), Selection { retract: true, ..paths(&["c"]) }).is_ok());

    let run = site.begin().await;
    let recovered = run.recover(Some(&site.sink())).await.unwrap();
    assert_eq!((recovered.committed.unwrap().taken_out, recovered.undone), (2, true));
    assert_eq!(site.visible(), results(&["c"]));
    work_left(&run, &site.sink(), &["a", "b", "c"]).await.unwrap();
    run.commit(Some(&site.sink())).await.unwrap();
    run.close().await.unwrap();
    assert_eq!(site.visible(), results(&["a", "b", "c"]));
    // The stalled one wakes up inside its call.
    site.sink().commit(&Intent { leaving: &leaving, ..Intent::bare(&[]) }).await.unwrap();
    assert_eq!(site.visible(), results(&["a", "b", "c"]));
    assert!(stalled.forget(&plan, Some(&site.sink())).await.is_err());
    let commits = newest(&site.store()).await.commits;
    assert_eq!((commits.last, commits.files, commits.rows), (3, 3, 3));
    collect_garbage(&site.store(), &site.objects(), &site.sink()).await;
    assert_eq!(site.visible(), results(&["a", "b", "c"]));
}

async fn bless_again(site: &Site, path: &str, mtime: i64) {
    let mut file = crate::harness::whole(path);
    file.file.mtime = Some(mtime);
    let (source, updates, unusable, reasons) = (SOURCE.to_owned(), Vec::new(), Vec::new(), BTreeMap::new());
    let run = operator(site).await;
    run.bless(vec![lakemark::Blessing { source, files: vec![file], updates, unusable, reasons, reached: None }])
        .await
        .unwrap();
    run.close().await.unwrap();
}

/// A blessing over rows that an earlier forgetting left: forgetting it says that they are doubled, and retracting a
/// neighbour takes all of them out, so that the file is there once when it is done again. Also when the blessing took the
/// file under another token.
#[rstest]
#[tokio::test]
async fn a_blessing_is_no_better_than_the_rows_it_stands_for(#[values(7, 8)] mtime: i64) {
    let site = Site::quick();
    let run = site.begin().await;
    packed(&run, &site, &["a", "b"]).await;
    run.commit(Some(&site.sink())).await.unwrap();
    run.close().await.unwrap();
    forget(&site, paths(&["a"])).await;
    let run = site.begin().await;
    packed(&run, &site, &["a", "c"]).await;
    run.commit(Some(&site.sink())).await.unwrap();
    run.close().await.unwrap();
    forget(&site, paths(&["a"])).await;
    bless_again(&site, "a", mtime).await;
    let view = site.store().read().await.unwrap();
    let again = ForgetPlan::of(&view, paths(&["a"])).unwrap();
    assert_eq!((again.doubled_outputs.len(), again.doubled_rows > 0), (2, true), "{again:?}");
    let plan = ForgetPlan::of(&view, Selection { retract: true, ..paths(&["b"]) }).unwrap();
    assert_eq!((plan.withdrawn.len(), plan.retracted_outputs.len()), (2, 2), "a's rows are in both: {plan:?}");
    let undone: Vec<_> = plan.files.iter().map(|file| &*file.file.path).collect();
    assert!(["a", "b", "c"].iter().all(|path| undone.contains(path)), "{undone:?}");
    forget(&site, Selection { retract: true, ..paths(&["b"]) }).await;
    assert_eq!(site.visible(), Vec::<String>::new());
    assert!(seen_done(&site.store()).await.is_empty(), "nothing is done whose rows are nowhere");

    // As a repair does when the output of a neighbour is lost.
    let run = site.begin().await;
    packed(&run, &site, &["a", "b"]).await;
    packed(&run, &site, &["c"]).await;
    run.commit(Some(&site.sink())).await.unwrap();
    run.close().await.unwrap();
    forget(&site, paths(&["a"])).await;
    bless_again(&site, "a", mtime).await;
    let victim = fs::read_dir(site.at("out")).unwrap().map(|entry| entry.unwrap().path());
    let victim = victim.into_iter().find(|path| fs::read_to_string(path).unwrap().contains("\"b\"")).unwrap();
    fs::remove_file(victim).unwrap();
    let lost = site.store().lost_output(&site.sink(), false).await.unwrap();
    let run = operator(&site).await;
    run.withdraw_lost(&lost, &site.sink()).await.unwrap();
    run.close().await.unwrap();
    assert_eq!(seen_done(&site.store()).await, ["c"]);
}

/// A chain that lost its newest manifests counts again through numbers that were given: what was sealed under them must not
/// be taken for the work of new tasks.
#[rstest]
#[tokio::test]
async fn the_number_of_an_epoch_that_was_lost_is_not_used_again(#[values(1, 2)] lost: u64) {
    let site = committed(&["a"]).await;
    for _ in 0..lost {
        let run = site.begin().await;
        work_left(&run, &site.sink(), &["b", "c"]).await.unwrap();
        drop(run);
    }
    let manifests = site.at("store/manifests");
    let mut names: Vec<_> = fs::read_dir(&manifests).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    for name in names.iter().rev().take(lost as usize) {
        fs::remove_file(name).unwrap();
    }
    let run = site.begin().await;
    assert!(run.worker().epoch().0 > 2, "{:?}", run.worker().epoch());
    let already = run.with_live(|_, live| done(live)).await;
    for path in ["x", "y", "z", "b", "c"].iter().filter(|path| !already.iter().any(|done| done == *path)) {
        let sealed = work(&run, &site.sink(), path).await.unwrap();
        assert!(matches!(sealed, lakemark::SealOutcome::Sealed(_)), "{path} met a seal of other work");
    }
    run.commit(Some(&site.sink())).await.unwrap();
    run.close().await.unwrap();
    assert_eq!(site.visible(), results(&["a", "b", "c", "x", "y", "z"]));
    assert_eq!(seen_done(&site.store()).await, ["a", "b", "c", "x", "y", "z"]);
}

/// A copy of a store says the same of the same destination; only the store itself may act on it.
#[tokio::test]
async fn a_copy_of_a_store_changes_nothing_of_the_destination() {
    let site = committed(&["a", "b"]).await;
    let (from, to) = (site.at("store"), site.at("copy"));
    copy_folder(&from, &to);
    let copy = lakemark::ObjectCheckpointStore::open(to.to_str().unwrap()).unwrap();
    let error = copy.operate(Wait::Takeover, Lease::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(error.to_string().contains("lakemark rebase"), "{error}");
    let moved = copy.operate_anywhere(Wait::Takeover, Lease::default()).await.unwrap();
    moved.close().await.unwrap();
    copy.operate(Wait::Takeover, Lease::default()).await.unwrap().close().await.unwrap();
    // By a link it is the same place.
    std::os::unix::fs::symlink(&from, site.at("link")).unwrap();
    let linked = lakemark::ObjectCheckpointStore::open(site.at("link").to_str().unwrap()).unwrap();
    linked.operate(Wait::Takeover, Lease::default()).await.unwrap().close().await.unwrap();
}

fn copy_folder(from: &std::path::Path, to: &std::path::Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_folder(&entry.path(), &target)
        } else {
            let _ = fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// A destination that is not mounted, or another one at its place, has lost nothing and is not changed.
#[tokio::test]
async fn a_destination_that_is_not_there_is_not_taken_for_one_that_lost_its_files() {
    let site = committed(&["a", "b"]).await;
    fs::rename(site.at("out"), site.at("away")).unwrap();
    let lost = site.store().lost_output(&site.sink(), false).await.unwrap_err();
    assert!(lost.to_string().contains("--all-lost"), "{lost}");
    let plan =
        ForgetPlan::of(&site.store().read().await.unwrap(), Selection { retract: true, ..paths(&["a"]) }).unwrap();
    let run = operator(&site).await;
    let error = run.forget(&plan, Some(&site.sink())).await.unwrap_err();
    assert!(error.what().contains("is not there as it was written"), "{error}");
    fs::rename(site.at("out.lakemark/binding.json"), site.at("binding.json")).unwrap();
    for refused in [
        run.forget(&plan, Some(&site.sink())).await.unwrap_err(),
        run.collect(Some(&site.sink()), Duration::ZERO).await.unwrap_err(),
    ] {
        assert!(refused.what().contains("lost its binding"), "{refused}");
    }
    fs::rename(site.at("binding.json"), site.at("out.lakemark/binding.json")).unwrap();
    fs::rename(site.at("away"), site.at("out")).unwrap();
    run.forget(&plan, Some(&site.sink())).await.unwrap();
    run.close().await.unwrap();
    assert_eq!((site.visible(), seen_done(&site.store()).await), (results(&["b"]), vec!["b".to_owned()]));
    // What is in staging under a committed name does not hide that the file is gone.
    let file = fs::read_dir(site.at("out/d=1")).unwrap().next().unwrap().unwrap();
    fs::rename(file.path(), site.staged().join(file.file_name())).unwrap();
    assert_eq!(site.store().lost_output(&site.sink(), true).await.unwrap().len(), 1);
}

/// Going back by a manifest, an intent whose files are visible in part: they are found there.
#[tokio::test]
async fn files_that_a_lost_intent_made_visible_are_found_by_their_commit() {
    let site = Site::quick();
    let run = site.begin().await;
    work_left(&run, &site.sink(), &["a", "b"]).await.unwrap();
    run.commit(Some(&CommitsBy(&site.sink(), Dies::After(1)))).await.unwrap_err();
    drop(run);
    let version = newest(&site.store()).await.version;
    let manifest = site.at("store").join(lakemark::store::ObjectName::Manifest(version).to_string());
    fs::write(manifest, "torn").unwrap();
    let repair = site.store().repair_plan().await.unwrap();
    site.store().repair(&repair, Wait::Takeover).await.unwrap();
    let view = site.store().read().await.unwrap();
    assert_eq!((view.live.pending().count(), site.visible().len()), (2, 1));
    // Nothing makes a file visible before its intent: who sees that here is not to go on, but to repair.
    site.sink().check(view.expected().as_ref()).await.unwrap_err();
    let run = operator(&site).await;
    run.commit(Some(&site.sink())).await.unwrap();
    run.close().await.unwrap();
    assert_eq!(site.visible(), results(&["a", "b"]));
    collect_garbage(&site.store(), &site.objects(), &site.sink()).await;
}
