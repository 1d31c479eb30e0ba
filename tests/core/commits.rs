//! Hand-over to a directory: what becomes visible, when, and what a crash at each point leaves.

use std::fs;

use async_trait::async_trait;
use lakemark::disk::{Disk, LossyDisk, RealDisk};
use lakemark::faults::{Commits, CommitsBy};
use lakemark::{
    CheckpointState, CheckpointStore, Committed, Counts, DirectorySink, ErrorKind, Expected, Intent, OutputFile,
    OutputSink, Result, Settled, Sink, StoreId,
};
use rstest::rstest;

use crate::harness::{
    Site, check_i5, done, expected, newest, next, results, seen_done, takeover, whole, with_sink, work, work_left,
    write_staged,
};

fn totals(committed: &[Committed]) -> (u64, u64, u64) {
    (
        committed.iter().map(|c| c.checkpoints).sum(),
        committed.iter().map(|c| c.files).sum(),
        committed.iter().map(|c| c.rows).sum(),
    )
}

/// Where a driver dies inside a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dies {
    /// The intent is durable, nothing is visible.
    BeforePublish,
    /// Everything is visible, `done` is not written.
    AfterPublish,
    /// So many of the files are visible.
    After(usize),
}

#[async_trait]
impl Commits for Dies {
    async fn commit(&self, sink: &dyn Sink, intent: &Intent<'_>) -> Result<Settled> {
        let most = match self {
            Dies::BeforePublish => 0,
            Dies::After(n) => *n,
            Dies::AfterPublish => intent.files.len(),
        };
        if most > 0 {
            sink.commit(&Intent { files: &intent.files[..most], ..*intent }).await?;
        }
        Err(lakemark::Error::new(ErrorKind::Unavailable, "the driver died"))
    }
}

/// Makes `files` visible in `sink`, for no store's chain; the names of those that are missing.
pub async fn publish(sink: &impl Sink, files: &[OutputFile]) -> Vec<String> {
    match sink.commit(&Intent::bare(files)).await.unwrap() {
        Settled::Done { missing, .. } => missing,
        void => panic!("a directory is never given up: {void:?}"),
    }
}

/// The names of the files below a folder that is there or not.
fn names_below(folder: &std::path::Path) -> std::collections::BTreeSet<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[tokio::test]
async fn a_directory_keeps_the_contract_of_all_destinations() {
    let fresh = || {
        let site = std::sync::Arc::new(Site::quick());
        let out = site.at("out");
        let open = move || std::sync::Arc::new(site.sink()) as std::sync::Arc<dyn lakemark::OutputSink>;
        let seen = move || {
            let names = names_below(&out);
            Box::pin(async { names }) as _
        };
        lakemark::NewSink { open: Box::new(open), seen: Box::new(seen) }
    };
    let write = |file: &mut dyn std::io::Write| file.write_all(b"three rows").unwrap();
    lakemark::check_sink_contract(&lakemark::SinkContract {
        fresh: Box::new(fresh),
        schema: std::sync::Arc::new(arrow_schema::Schema::empty()),
        write,
        loses: true,
    })
    .await;
}

/// A site with `paths` sealed and a driver that died inside their commit.
async fn died(paths: &[&str], dies: Dies) -> Site {
    let site = Site::quick();
    let run = site.begin().await;
    work_left(&run, &site.sink(), paths).await.unwrap();
    let sink = site.sink();
    let dying = CommitsBy(&sink, dies);
    assert_eq!(run.commit(Some(&dying)).await.unwrap_err().to_string(), "the driver died");
    site
}

/// The staged file of `path`.
fn staged(site: &Site, path: &str) -> std::path::PathBuf {
    let wanted = format!("result of {path}");
    let files = fs::read_dir(site.staged()).unwrap().map(|entry| entry.unwrap().path());
    files.into_iter().find(|file| fs::read_to_string(file).unwrap() == wanted).unwrap()
}

#[tokio::test]
async fn what_is_staged_becomes_visible_with_the_commit_and_not_before() {
    let site = Site::quick();
    let (sink, run) = (site.sink(), site.begin().await);
    work_left(&run, &sink, &["a", "b", "c"]).await.unwrap();
    // An attempt that never sealed.
    let _ = write_staged(&run, &sink, next(&run), "", "half a result").unwrap();
    run.fold().await.unwrap();
    assert!(site.visible().is_empty(), "nothing but committed output is under the root");
    let committed = run.commit(Some(&sink)).await.unwrap();
    assert_eq!((committed.len(), totals(&committed)), (1, (3, 3, 3)));
    assert!(committed[0].missing.is_empty());
    assert_eq!(site.visible(), results(&["a", "b", "c"]));
    sink.check(expected(&site.store()).await.as_ref()).await.unwrap();

    // I7, R72: a further commit is of the new work only.
    work_left(&run, &sink, &["a", "d"]).await.unwrap();
    assert_eq!(run.get_checkpointed_files().await.unwrap().len(), 1);
    let committed = run.commit(Some(&sink)).await.unwrap();
    assert_eq!((committed[0].n, totals(&committed)), (2, (1, 1, 1)));
    run.close().await.unwrap();
    assert_eq!(site.visible(), results(&["a", "b", "c", "d"]));

    let run = site.begin().await;
    assert!(run.commit(Some(&sink)).await.unwrap().is_empty(), "committed checkpoints contribute keys, never files");
    run.close().await.unwrap();
    assert_eq!(seen_done(&site.store()).await, ["a", "b", "c", "d"]);
    let manifest = newest(&site.store()).await;
    assert_eq!((manifest.commits.last, manifest.commits.files, manifest.commits.rows), (2, 4, 4));
}

/// R58: the run that finds everything done still finishes the commit.
#[rstest]
#[case::before_publish(Dies::BeforePublish)]
#[case::amid_publish(Dies::After(1))]
#[case::after_publish(Dies::AfterPublish)]
#[tokio::test]
async fn r58_an_open_intent_is_rolled_forward_by_the_next_run(#[case] dies: Dies) {
    let site = died(&["a", "b", "c"], dies).await;
    let view = site.store().read().await.unwrap();
    assert!(view.needs_epoch());
    let sink = site.sink();
    sink.check(view.expected().as_ref()).await.unwrap();
    let run = site.begin().await;
    work_left(&run, &sink, &["a", "b", "c", "d"]).await.unwrap();
    let committed = run.commit(Some(&sink)).await.unwrap();
    let of: Vec<_> = committed.iter().map(|c| (c.n, c.files)).collect();
    assert_eq!(of, [(1, 3), (2, 1)], "the old intent unchanged, then the new work");
    run.close().await.unwrap();
    assert_eq!(site.visible(), results(&["a", "b", "c", "d"]));
    let manifest = newest(&site.store()).await;
    assert_eq!((manifest.commits.files, manifest.commits.open), (4, None));
}

#[rstest]
#[case::deleted(|file: &std::path::Path| fs::remove_file(file).unwrap())]
#[case::truncated(|file: &std::path::Path| fs::write(file, "re").unwrap())]
#[case::emptied(|file: &std::path::Path| fs::write(file, "").unwrap())]
#[tokio::test]
async fn a_file_lost_after_the_intent_withdraws_exactly_its_checkpoint(
    #[case] lose: fn(&std::path::Path),
    #[values(true, false)] sealed_twice: bool,
) {
    let site = died(&["a", "b", "c"], Dies::BeforePublish).await;
    let lost = staged(&site, "b");
    lose(&lost);
    let (sink, run) = (site.sink(), site.begin().await);
    let committed = run.commit(Some(&sink)).await.unwrap();
    assert_eq!((committed.len(), totals(&committed)), (1, (2, 2, 2)));
    assert_eq!(committed[0].missing, [lost.file_name().unwrap().to_str().unwrap()]);
    assert_eq!(site.visible(), results(&["a", "c"]));
    assert!(!lost.exists(), "what is unfit is out of staging: a stalled driver cannot publish it");
    assert_eq!(seen_done(&site.store()).await, ["a", "c"], "exactly its atoms are undone");
    let states: Vec<_> = run.list_checkpoints().await.unwrap().iter().map(|c| c.state).collect();
    use CheckpointState::{Committed, Withdrawn};
    assert_eq!(states, [Committed(1), Withdrawn, Committed(1)]);
    let manifest = newest(&site.store()).await;
    assert_eq!((manifest.commits.files, manifest.commits.rows), (2, 2));
    sink.check(expected(&site.store()).await.as_ref()).await.unwrap();
    // Done again, it is there once; also by a later run.
    let run = if sealed_twice {
        run
    } else {
        run.close().await.unwrap();
        site.begin().await
    };
    work_left(&run, &sink, &["a", "b", "c"]).await.unwrap();
    assert_eq!(totals(&run.commit(Some(&sink)).await.unwrap()), (1, 1, 1));
    run.close().await.unwrap();
    assert_eq!(site.visible(), results(&["a", "b", "c"]));
}

#[rstest]
#[case::one(&["b"], &["a", "c"])]
#[case::all(&["a", "b", "c"], &[])]
#[tokio::test]
async fn files_lost_before_the_intent_are_withdrawn_before_it(#[case] lost: &[&str], #[case] kept: &[&str]) {
    let site = Site::quick();
    let run = site.begin().await;
    work_left(&run, &site.sink(), &["a", "b", "c"]).await.unwrap();
    drop(run);
    for path in lost {
        fs::remove_file(staged(&site, path)).unwrap();
    }
    let (sink, run) = (site.sink(), site.begin().await);
    let committed = run.commit(Some(&sink)).await.unwrap();
    assert!(committed.iter().all(|c| c.missing.is_empty()), "they are not in the intent: {committed:?}");
    assert_eq!(totals(&committed).1, kept.len() as u64);
    assert_eq!(site.visible(), results(kept));
    assert_eq!(seen_done(&site.store()).await, kept, "durable, whether or not something was committed");
    work_left(&run, &sink, &["a", "b", "c"]).await.unwrap();
    run.commit(Some(&sink)).await.unwrap();
    run.close().await.unwrap();
    assert_eq!(site.visible(), results(&["a", "b", "c"]));
    let view = site.store().read().await.unwrap();
    check_i5(&view.live);
    assert_eq!(view.head.unwrap().manifest.commits.files, 3);
}

#[tokio::test]
async fn publishing_is_idempotent_also_when_two_do_it_at_once() {
    let site = Site::quick();
    let (sink, run) = (site.sink(), site.begin().await);
    work_left(&run, &sink, &["a", "b", "c", "d", "e"]).await.unwrap();
    let files = run.get_checkpointed_files().await.unwrap();
    let stalled = site.sink();
    for outcome in futures::future::join_all((0..4).map(|_| publish(&stalled, &files))).await {
        assert!(outcome.is_empty());
    }
    assert!(publish(&sink, &files).await.is_empty());
    assert_eq!(totals(&run.commit(Some(&sink)).await.unwrap()), (5, 5, 5));
    assert!(publish(&stalled, &files).await.is_empty(), "a stalled driver wakes up after the commit");
    run.close().await.unwrap();
    assert_eq!(site.visible(), results(&["a", "b", "c", "d", "e"]));
}

/// R47, R49.
#[tokio::test]
async fn r47_checkpoints_without_files_are_committed_too() {
    let site = Site::quick();
    let (sink, run) = (site.sink(), site.begin().await);
    let _ = crate::harness::seal(&run, vec![whole("all filtered away")]).await.unwrap();
    let committed = run.commit(Some(&sink)).await.unwrap();
    assert_eq!(totals(&committed), (1, 0, 0));
    run.close().await.unwrap();
    assert!(site.visible().is_empty());
    let view = site.store().read().await.unwrap();
    assert!(!view.needs_epoch());
    assert_eq!(done(&view.live), ["all filtered away"]);
}

/// R71: a seal that comes after the intent waits for the next commit.
#[tokio::test]
async fn r71_a_late_seal_is_not_part_of_the_commit_that_was_decided() {
    let site = Site::quick();
    let (sink, run) = (site.sink(), site.begin().await);
    let _ = work(&run, &sink, "a").await.unwrap();
    let sink = site.sink();
    let dying = CommitsBy(&sink, Dies::BeforePublish);
    assert!(run.commit(Some(&dying)).await.is_err());
    let _ = work(&run, &sink, "b").await.unwrap();
    let committed = run.commit(Some(&sink)).await.unwrap();
    assert_eq!(committed.iter().map(|c| (c.n, c.files)).collect::<Vec<_>>(), [(1, 1), (2, 1)]);
    run.close().await.unwrap();
    assert_eq!(site.visible(), results(&["a", "b"]));
}

/// R75: one name in two seals is corruption, found before anything is decided.
#[tokio::test]
async fn r75_a_file_is_named_once() {
    let site = Site::quick();
    let (sink, run) = (site.sink(), site.begin().await);
    let id = next(&run);
    let output = write_staged(&run, &sink, id, "", "x").unwrap();
    run.stage_keys(id, vec![whole("a")]).unwrap();
    run.stage_files(id, Box::pin(async move { Ok(vec![output.clone(), output]) })).unwrap();
    assert!(run.checkpoint(id, Counts::default()).await.is_ok());
    assert_eq!(run.commit(Some(&sink)).await.unwrap_err().kind(), ErrorKind::Corrupt);
    assert!(site.visible().is_empty());
    assert_eq!(newest(&site.store()).await.commits.last, 0);
}

/// A seal may name only files of its own attempt.
#[tokio::test]
async fn a_seal_that_names_anothers_file_is_not_written() {
    let site = Site::quick();
    let (sink, run) = (site.sink(), site.begin().await);
    let theirs = write_staged(&run, &sink, next(&run), "", "x").unwrap();
    let id = next(&run);
    run.stage_files(id, Box::pin(async move { Ok(vec![theirs]) })).unwrap();
    assert_eq!(run.checkpoint(id, Counts::default()).await.unwrap_err().kind(), ErrorKind::Corrupt);
    assert!(run.list_checkpoints().await.unwrap().is_empty());
    run.close().await.unwrap();
}

async fn refused(sink: &DirectorySink, expected: Option<&Expected>) -> String {
    let error = sink.check(expected).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(!error.ways().is_empty() && error.place().is_some(), "{error}");
    error.to_string()
}

#[tokio::test]
async fn a_destination_with_foreign_files_is_refused() {
    let site = Site::quick();
    fs::create_dir_all(site.at("out/x=1")).unwrap();
    site.sink().check(None).await.unwrap(); // Empty folders hold nothing.
    fs::write(site.at("out/x=1/data.parquet"), "theirs").unwrap();
    assert!(refused(&site.sink(), None).await.contains("data.parquet"));
    let site = Site::quick();
    fs::write(site.at("out"), "a file").unwrap();
    refused(&site.sink(), None).await;
}

#[tokio::test]
async fn a_destination_of_another_store_is_refused() {
    let site = Site::quick();
    let run = site.begin().await;
    let (sink, mine) = (site.sink(), expected(&site.store()).await.unwrap());
    sink.check(Some(&mine)).await.unwrap();
    sink.bind(mine.store).await.unwrap(); // Again: a no-op.
    run.close().await.unwrap();
    refused(&sink, None).await;
    let other = Site::quick();
    let run = other.store().begin(takeover()).await.unwrap();
    let theirs = expected(&other.store()).await.unwrap();
    assert!(refused(&sink, Some(&theirs)).await.contains(&mine.store.to_string()));
    // Two new stores looked at the empty destination at the same time: the second to bind is refused.
    let error = sink.bind(theirs.store).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    run.close().await.unwrap();
}

#[tokio::test]
async fn of_stores_that_bind_one_destination_at_once_one_wins() {
    let site = Site::quick();
    let sink = site.sink();
    let ids: Vec<StoreId> = (0..8).map(|_| StoreId::random()).collect();
    let bound = futures::future::join_all(ids.iter().map(|id| sink.bind(*id))).await;
    assert_eq!(bound.iter().filter(|outcome| outcome.is_ok()).count(), 1, "{bound:?}");
    assert_eq!(fs::read_dir(site.at("out.lakemark")).unwrap().count(), 2, "staging and one binding");
}

#[rstest]
#[case::deleted(|file: &std::path::Path| fs::remove_file(file).unwrap(), "1 of the 2")]
#[case::moved(|file: &std::path::Path| fs::rename(file, file.with_file_name("renamed")).unwrap(), "1 of the 2")]
#[case::truncated(|file: &std::path::Path| fs::write(file, "").unwrap(), "has 0 bytes")]
#[case::copied(
    |file: &std::path::Path| {
        fs::create_dir(file.parent().unwrap().join("copy")).unwrap();
        fs::copy(file, file.parent().unwrap().join("copy").join(file.file_name().unwrap())).map(drop).unwrap();
    },
    "does not know, `d=1/copy/lm-"
)]
#[tokio::test]
async fn a_destination_whose_files_were_changed_by_hand_is_refused(
    #[case] change: fn(&std::path::Path),
    #[case] said: &str,
) {
    let site = Site::quick();
    let (sink, run) = (site.sink(), site.begin().await);
    work_left(&run, &sink, &["a", "b"]).await.unwrap();
    run.commit(Some(&sink)).await.unwrap();
    run.close().await.unwrap();
    let expected = expected(&site.store()).await;
    sink.check(expected.as_ref()).await.unwrap();
    let a_file = fs::read_dir(site.at("out/d=1")).unwrap().next().unwrap().unwrap().path();
    change(&a_file);
    let message = refused(&sink, expected.as_ref()).await;
    assert!(message.contains(said), "{message}");
    // Gone with its binding: a new directory of the same name.
    fs::remove_dir_all(site.at("out")).unwrap();
    fs::remove_file(site.at("out.lakemark/binding.json")).unwrap();
    assert!(refused(&sink, expected.as_ref()).await.contains("binding"));
}

/// A store restored from a copy is behind its destination, also when the numbers of files happen to be equal.
#[tokio::test]
async fn a_store_older_than_its_destination_is_refused_by_the_names_of_the_files() {
    let site = died(&["a", "b", "c"], Dies::BeforePublish).await;
    let copy = expected(&site.store()).await;
    fs::remove_file(staged(&site, "c")).unwrap();
    let (sink, run) = (site.sink(), site.begin().await);
    work_left(&run, &sink, &["d"]).await.unwrap();
    run.commit(Some(&sink)).await.unwrap();
    run.close().await.unwrap();
    assert_eq!(site.visible(), results(&["a", "b", "d"]));
    sink.check(expected(&site.store()).await.as_ref()).await.unwrap();
    assert_eq!(copy.as_ref().map(|copy| (copy.committed.len(), copy.open.len())), Some((0, 3)), "as many as are there");
    let message = refused(&sink, copy.as_ref()).await;
    assert!(message.contains("older than its destination"), "{message}");
}

#[tokio::test]
async fn a_store_of_another_destination_refuses_this_one() {
    let site = Site::quick();
    site.begin().await.close().await.unwrap();
    let elsewhere = DirectorySink::open("parquet", site.at("elsewhere").to_str().unwrap()).unwrap();
    let error = site.store().begin(with_sink(&elsewhere)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert_eq!(site.store().begin(takeover()).await.unwrap_err().kind(), ErrorKind::Refused, "nor none");
}

/// A commit into any other sink than the store's own would mark as visible what is not.
#[tokio::test]
async fn a_commit_goes_to_the_recorded_destination_or_nowhere() {
    let site = died(&["a"], Dies::BeforePublish).await;
    let run = site.begin().await;
    let elsewhere = DirectorySink::open("parquet", site.at("elsewhere").to_str().unwrap()).unwrap();
    for wrong in [None, Some(&elsewhere as &dyn Sink)] {
        let error = run.commit(wrong).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    }
    let ids: Vec<_> = run.list_checkpoints().await.unwrap().iter().map(|c| c.id).collect();
    assert_eq!(run.mark_committed(&ids).await.unwrap_err().kind(), ErrorKind::Refused);
    assert!(newest(&site.store()).await.commits.open.is_some(), "the intent stays open");
    run.commit(Some(&site.sink())).await.unwrap();
    run.close().await.unwrap();
    assert_eq!(site.visible(), results(&["a"]));
}

#[tokio::test]
async fn a_file_of_another_size_in_the_way_is_for_a_person_to_decide() {
    let site = died(&["a", "b"], Dies::AfterPublish).await;
    let visible = fs::read_dir(site.at("out/d=1")).unwrap().next().unwrap().unwrap().path();
    fs::write(&visible, "changed by hand").unwrap();
    let (sink, run) = (site.sink(), site.begin().await);
    let error = run.commit(Some(&sink)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CannotDecide, "{error}");
    assert!(error.to_string().contains(visible.to_str().unwrap()));
    // Its way on works.
    fs::rename(&visible, site.at("aside")).unwrap();
    assert_eq!(totals(&run.commit(Some(&sink)).await.unwrap()), (1, 1, 1));
    work_left(&run, &sink, &["a", "b"]).await.unwrap();
    run.commit(Some(&sink)).await.unwrap();
    run.close().await.unwrap();
    assert_eq!(site.visible(), results(&["a", "b"]));
}

/// R53: what an attempt left that lost its task is removed by exact name only.
#[tokio::test]
async fn r53_removing_staged_files_takes_exact_names_only() {
    let site = Site::quick();
    let (sink, run) = (site.sink(), site.begin().await);
    let mine = write_staged(&run, &sink, next(&run), "", "mine").unwrap();
    let similar = site.staged().join(format!("{}0", mine.name));
    fs::write(&similar, "theirs").unwrap();
    sink.remove_staged(std::slice::from_ref(&mine));
    assert!(!site.staged().join(&mine.name).exists() && similar.exists());
    sink.remove_staged(&[mine]); // Again: nothing to do.
    run.close().await.unwrap();
}

#[tokio::test]
async fn a_staged_file_that_is_not_finished_is_gone() {
    let site = Site::quick();
    let sink = site.sink();
    sink.prepare().unwrap();
    drop(sink.create("x").unwrap());
    assert_eq!(fs::read_dir(site.staged()).unwrap().count(), 0);
    let file = sink.create("x").unwrap();
    assert!(sink.create("x").is_err(), "nothing is overwritten");
    assert_eq!(file.finish().unwrap(), 0);
}

/// A record of an earlier version, or of another file system: what can never be made visible must not block the others.
/// A task with several output files, of which one is gone at the commit: the others may not stay visible, since its atoms
/// are done again.
#[rstest]
#[case::nothing_is_visible(Dies::BeforePublish)]
#[case::the_other_file_is_visible(Dies::After(1))]
#[tokio::test]
async fn a_checkpoint_of_several_files_is_visible_whole_or_not_at_all(#[case] dies: Dies) {
    let site = Site::quick();
    let (sink, run) = (site.sink(), site.begin().await);
    let id = next(&run);
    let first = write_staged(&run, &sink, id, "d=1", "result 1 of a").unwrap();
    let second = OutputFile { name: first.name.replace("-0000.", "-0001."), folder: "d=2".into(), ..first.clone() };
    fs::copy(site.staged().join(&first.name), site.staged().join(&second.name)).unwrap();
    let outputs = vec![first, second.clone()];
    run.stage_keys(id, vec![whole("a")]).unwrap();
    run.stage_files(id, Box::pin(async { Ok(outputs) })).unwrap();
    let _ = run.checkpoint(id, Counts { rows_in: 20, rows_out: 2, rows_failed: 0 }).await.unwrap();
    let _ = work(&run, &sink, "b").await.unwrap();
    assert!(run.commit(Some(&CommitsBy(&site.sink(), dies))).await.is_err());
    fs::remove_file(site.staged().join(&second.name)).unwrap();

    let run = site.begin().await;
    let recovered = run.recover(Some(&sink)).await.unwrap();
    assert!(recovered.undone);
    assert_eq!(recovered.committed.unwrap().missing.len(), 2);
    assert_eq!(site.visible(), results(&["b"]));
    sink.check(expected(&site.store()).await.as_ref()).await.unwrap();
    work_left(&run, &sink, &["a", "b"]).await.unwrap();
    run.commit(Some(&sink)).await.unwrap();
    run.close().await.unwrap();
    assert_eq!(site.visible(), results(&["a", "b"]));
    sink.check(expected(&site.store()).await.as_ref()).await.unwrap();
    let commits = newest(&site.store()).await.commits;
    assert_eq!((commits.files, commits.rows), (2, 2));
}

#[tokio::test]
async fn a_folder_that_no_file_system_makes_withdraws_its_files_and_not_the_others() {
    let site = Site::quick();
    let (sink, run) = (site.sink(), site.begin().await);
    work_left(&run, &sink, &["a"]).await.unwrap();
    let id = next(&run);
    let output = write_staged(&run, &sink, id, &format!("d={}", "x".repeat(300)), "never").unwrap();
    run.stage_keys(id, vec![whole("b")]).unwrap();
    run.stage_files(id, Box::pin(async move { Ok(vec![output]) })).unwrap();
    let _ = run.checkpoint(id, Counts::default()).await.unwrap();
    let committed = run.commit(Some(&sink)).await.unwrap();
    assert_eq!((totals(&committed), committed[0].missing.len()), ((1, 1, 1), 1));
    assert_eq!(site.visible(), results(&["a"]));
    assert_eq!(seen_done(&site.store()).await, ["a"]);
    work_left(&run, &sink, &["a", "b"]).await.unwrap();
    run.commit(Some(&sink)).await.unwrap();
    run.close().await.unwrap();
    assert_eq!(site.visible(), results(&["a", "b"]));
    for folder in [format!("d={}", "x".repeat(254)), "x/".repeat(2_100)] {
        let error = sink.check_folder(folder.trim_end_matches('/')).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.ways().len() > 1 && error.to_string().len() < 600, "{error}");
    }
    sink.check_folder(&format!("d={}/e=1", "x".repeat(253))).unwrap();
}

#[rstest]
#[case::inside("out/inner")]
#[case::deep_inside("out/a/b")]
#[case::beside("out.lakemark/inner")]
#[case::in_staging("out.lakemark/staged/inner")]
#[case::through_a_link("link/inner")]
#[tokio::test]
async fn a_destination_inside_another_one_is_refused(#[case] inner: &str) {
    let site = Site::quick();
    site.begin().await.close().await.unwrap();
    std::os::unix::fs::symlink(site.at("out.lakemark"), site.at("link")).unwrap();
    let inner = DirectorySink::open("parquet", site.at(inner).to_str().unwrap()).unwrap();
    assert!(refused(&inner, None).await.contains("lies inside"));
    let apart = DirectorySink::open("parquet", site.at("out2").to_str().unwrap()).unwrap();
    apart.check(None).await.unwrap();
}

/// A disk on which one kind of step fails.
#[derive(Debug)]
struct Failing(&'static str, std::io::ErrorKind);

impl Failing {
    fn step(&self, name: &str) -> std::io::Result<()> {
        if self.0 == name { Err(self.1.into()) } else { Ok(()) }
    }
}

impl Disk for Failing {
    fn create_new(&self, path: &std::path::Path) -> std::io::Result<fs::File> {
        self.step("create")?;
        match self.0 {
            // Takes no byte.
            "write" => fs::File::options().write(true).open("/dev/full"),
            _ => RealDisk.create_new(path),
        }
    }

    fn sync_file(&self, file: &fs::File, path: &std::path::Path) -> std::io::Result<()> {
        self.step("sync").and_then(|()| if self.0 == "write" { Ok(()) } else { RealDisk.sync_file(file, path) })
    }

    fn link(&self, from: &std::path::Path, to: &std::path::Path) -> std::io::Result<()> {
        self.step("link").and_then(|()| RealDisk.link(from, to))
    }

    fn rename_no_replace(&self, from: &std::path::Path, to: &std::path::Path) -> std::io::Result<()> {
        self.step("rename").and_then(|()| RealDisk.rename_no_replace(from, to))
    }

    fn sync_dir(&self, dir: &std::path::Path) -> std::io::Result<()> {
        RealDisk.sync_dir(dir)
    }

    fn create_dir(&self, dir: &std::path::Path) -> std::io::Result<()> {
        self.step("folder").and_then(|()| RealDisk.create_dir(dir))
    }

    fn remove_file(&self, path: &std::path::Path) -> std::io::Result<()> {
        RealDisk.remove_file(path)
    }
}

/// Rows of Parquet for `id` through a sink on `disk`; encoded in memory first, written as groups fill.
async fn write_parquet(site: &Site, run: &lakemark::Run, disk: Failing) -> Result<Vec<OutputFile>> {
    let sink = site.sink_with(std::sync::Arc::new(disk));
    sink.prepare()?;
    let numbers: arrow_array::ArrayRef = std::sync::Arc::new(arrow_array::Int64Array::from_iter_values(0..50_000));
    let batch = arrow_array::RecordBatch::try_from_iter([("n", numbers)]).unwrap();
    let options = lakemark::OutputOptions { max_row_group_size: 10_000, ..Default::default() };
    let id = next(run);
    let mut writer = lakemark::TaskWriter::new(
        std::sync::Arc::new(sink),
        std::sync::Arc::new(options),
        &batch.schema(),
        &batch.schema(),
        run.worker().store_id().short(),
        id,
        run.attempt(id),
    )?;
    for start in (0..50_000).step_by(10_000) {
        writer.write(&batch.slice(start, 10_000)).await?;
    }
    writer.finish().await
}

#[rstest]
#[case::full("write", std::io::ErrorKind::StorageFull, "the disk is full")]
#[case::full_at_sync("sync", std::io::ErrorKind::StorageFull, "the disk is full")]
#[case::no_permission("create", std::io::ErrorKind::PermissionDenied, "no permission to write the output")]
#[case::no_folder("folder", std::io::ErrorKind::PermissionDenied, "no permission to write the output")]
#[case::read_only("create", std::io::ErrorKind::ReadOnlyFilesystem, "no permission to write the output")]
#[tokio::test]
async fn a_disk_that_does_not_take_the_output_is_unavailable_and_says_why(
    #[case] step: &'static str,
    #[case] kind: std::io::ErrorKind,
    #[case] what: &str,
) {
    let site = Site::quick();
    let run =
        if step == "folder" { site.store().begin(with_sink(&site.sink())).await.unwrap() } else { site.begin().await };
    let error = write_parquet(&site, &run, Failing(step, kind)).await.unwrap_err();
    assert_eq!((error.kind(), error.what()), (ErrorKind::Unavailable, what), "{error}");
    assert!(error.place().is_some() && !error.ways().is_empty(), "{error}");
    assert!(site.visible().is_empty());
    run.close().await.unwrap();
}

#[rstest]
#[case("create")]
#[case("folder")]
#[case("link")]
#[tokio::test]
async fn a_store_without_permission_is_an_error_that_says_so(#[case] step: &'static str) {
    let site = Site::quick();
    let disk = Failing(step, std::io::ErrorKind::PermissionDenied);
    let store = site.store_with(std::sync::Arc::new(disk)).with_patience(crate::harness::ONE_TRY);
    let error = store.begin(takeover()).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unsupported), "{error}");
    assert!(error.to_string().to_lowercase().contains("permission"), "{error}");
}

/// A disk on which a stalled predecessor goes on just before a file is moved out of staging: it renames it into the
/// destination.
#[derive(Debug)]
struct Predecessor(LossyDisk, std::path::PathBuf);

impl Disk for Predecessor {
    fn create_new(&self, path: &std::path::Path) -> std::io::Result<fs::File> {
        self.0.create_new(path)
    }

    fn sync_file(&self, file: &fs::File, path: &std::path::Path) -> std::io::Result<()> {
        self.0.sync_file(file, path)
    }

    fn link(&self, from: &std::path::Path, to: &std::path::Path) -> std::io::Result<()> {
        self.0.link(from, to)
    }

    fn rename_no_replace(&self, from: &std::path::Path, to: &std::path::Path) -> std::io::Result<()> {
        if to.parent().is_some_and(|folder| folder.ends_with("unfit")) {
            fs::create_dir_all(self.1.join("d=1"))?;
            fs::rename(from, self.1.join("d=1").join(from.file_name().unwrap()))?;
        }
        self.0.rename_no_replace(from, to)
    }

    fn sync_dir(&self, dir: &std::path::Path) -> std::io::Result<()> {
        self.0.sync_dir(dir)
    }

    fn create_dir(&self, dir: &std::path::Path) -> std::io::Result<()> {
        self.0.create_dir(dir)
    }

    fn remove_file(&self, path: &std::path::Path) -> std::io::Result<()> {
        self.0.remove_file(path)
    }
}

/// An unfit file that has left staging by itself is looked for at its target: recorded as missing, its rows would be there
/// and be done again. Found by the model.
#[tokio::test]
async fn an_unfit_file_that_a_predecessor_made_visible_is_not_recorded_as_missing() {
    let site = died(&["a", "b"], Dies::BeforePublish).await;
    fs::write(staged(&site, "a"), "torn").unwrap();
    let disk = LossyDisk::new(u64::MAX, site.at("spare2"));
    let sink = site.sink_with(std::sync::Arc::new(Predecessor(disk, site.at("out"))));
    let run = site.store().begin(with_sink(&sink)).await.unwrap();
    assert_eq!(run.recover(Some(&sink)).await.unwrap_err().kind(), ErrorKind::CannotDecide);
    drop(run);
    assert_eq!(seen_done(&site.store()).await, ["a", "b"], "nothing is withdrawn");
    assert!(newest(&site.store()).await.commits.open.is_some(), "a person moves the file away");
}
