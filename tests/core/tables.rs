//! Tables as destinations: the contract on the reference table, and whole runs over it.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arrow_schema::{DataType, Field, Schema};
use lakemark::faults::CommitsBy;
use lakemark::store::{Decision, Event};
use lakemark::{
    BeginOptions, CheckpointStore, CommitDriver, Counts, DataFiles, DirectorySink, ErrorKind, MemoryTable, NewSink,
    OutputFile, OutputSink, Root, Run, Sink, SinkContract, TableContract, TableSubject, check_sink_contract,
    check_table_contract, output_name,
};
use rstest::rstest;

use crate::commits::Dies;
use crate::harness::{Site, collect_garbage, done, newest, next, seen_done, takeover, whole};

#[tokio::test]
async fn the_reference_table_keeps_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let count = AtomicU32::new(0);
    let fresh = move || {
        let n = count.fetch_add(1, Ordering::Relaxed);
        let url = path.join(format!("table-{n}"));
        let url = url.to_str().unwrap();
        let files = DataFiles::on_disk(DirectorySink::open("memory", url).unwrap());
        (MemoryTable::new(Root::parse(url).unwrap()), files)
    };
    check_table_contract(&TableContract {
        fresh: Box::new(fresh),
        schema: Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, true)])),
        write: |file| file.write_all(b"three rows").unwrap(),
        // It has no columns.
        merging: None,
        keeps_markers: false,
    })
    .await;
}

#[tokio::test]
async fn the_reference_table_keeps_the_contract_of_all_destinations() {
    let fresh = || {
        let site = Arc::new(Site::quick());
        let table = MemoryTable::new(site.root("out"));
        let (of_site, of_table) = (Arc::clone(&site), table.clone());
        let open =
            move || Arc::new(CommitDriver::new(table.clone(), DataFiles::on_disk(site.sink()))) as Arc<dyn OutputSink>;
        let seen = move || {
            let (site, table) = (Arc::clone(&of_site), of_table.clone());
            let live = async move {
                let live = table.live_paths().await;
                drop(site);
                live.into_iter().collect()
            };
            Box::pin(live) as _
        };
        NewSink { open: Box::new(open), seen: Box::new(seen) }
    };
    let write = |file: &mut dyn Write| file.write_all(b"three rows").unwrap();
    check_sink_contract(&SinkContract {
        fresh: Box::new(fresh),
        schema: std::sync::Arc::new(arrow_schema::Schema::empty()),
        write,
        loses: true,
    })
    .await;
}

/// A site whose destination is a table.
struct Place {
    site: Site,
    table: MemoryTable,
}

impl Place {
    fn new() -> Self {
        let site = Site::quick();
        let table = MemoryTable::new(site.root("out"));
        Self { site, table }
    }

    fn sink(&self) -> CommitDriver<MemoryTable> {
        CommitDriver::new(self.table.clone(), DataFiles::on_disk(self.site.sink()))
    }

    async fn begin(&self) -> Run {
        let options = BeginOptions { sink: Some(self.sink().binding()), ..takeover() };
        self.site.store().begin(options).await.unwrap()
    }

    /// Does `path`, with one output file; its name.
    async fn work(&self, run: &Run, path: &str) -> String {
        let (id, sink) = (next(run), self.sink());
        let name = output_name(&run.worker().store_id().short(), id, run.attempt(id), 0, "txt");
        let mut file = sink.stage(&name, "d=1").await.unwrap();
        file.write_all(path.as_bytes()).unwrap();
        let (size, upload) = file.finish().await.unwrap();
        sink.sync().await.unwrap();
        let output = OutputFile { name, folder: "d=1".into(), size, rows: 1, upload };
        let at = output.path();
        run.stage_keys(id, vec![whole(path)]).unwrap();
        run.stage_files(id, Box::pin(async { Ok(vec![output]) })).unwrap();
        let _ = run.checkpoint(id, Counts { rows_in: 20, rows_out: 1, rows_failed: 0 }).await.unwrap();
        at
    }

    async fn work_left(&self, run: &Run, paths: &[&str]) {
        let already = run.with_live(|_, live| done(live)).await;
        for path in paths.iter().filter(|path| !already.iter().any(|done| done == *path)) {
            self.work(run, path).await;
        }
    }

    /// What is in the live files of the table, sorted.
    async fn rows(&self) -> Vec<String> {
        let live = self.table.live_paths().await;
        let mut rows: Vec<String> =
            live.iter().map(|path| std::fs::read_to_string(self.site.at("out").join(path)).unwrap()).collect();
        rows.sort_unstable();
        rows
    }

    /// A driver that dies within the commit of a, b and c.
    async fn died(&self, dies: Dies) -> Vec<String> {
        let run = self.begin().await;
        let mut files = Vec::new();
        for path in ["a", "b", "c"] {
            files.push(self.work(&run, path).await);
        }
        assert!(run.commit(Some(&CommitsBy(&self.sink(), dies))).await.is_err());
        files
    }
}

#[rstest]
#[case::before_the_table(Dies::BeforePublish)]
#[case::after_it(Dies::AfterPublish)]
#[tokio::test]
async fn r58_an_open_intent_ends_in_the_table_once(#[case] dies: Dies, #[values(0, 25)] foreign: usize) {
    let place = Place::new();
    place.died(dies).await;
    for _ in 0..foreign {
        place.table.foreign_append().await;
    }
    let run = place.begin().await;
    let recovered = run.recover(Some(&place.sink())).await.unwrap();
    assert_eq!((recovered.committed.unwrap().files, recovered.undone), (3, false));
    run.close().await.unwrap();
    assert_eq!(place.table.live_paths().await.len(), 3 + foreign);
    let manifest = newest(&place.site.store()).await;
    assert_eq!((manifest.commits.last, manifest.commits.files, manifest.commits.open), (1, 3, None));
    let left = manifest.table.unwrap();
    assert!(left.version <= foreign as u64, "the table as the commit left it: {left:?}");
    place.sink().check(place.site.store().read().await.unwrap().expected().as_ref()).await.unwrap();
}

/// Staged files that are missing or cut: a barrier, and exactly their work is undone.
#[rstest]
#[tokio::test]
async fn a_commit_whose_files_are_gone_is_given_up_and_the_rest_goes_with_the_next(
    #[values(false, true)] in_this_run: bool,
    #[values(false, true)] cut: bool,
) {
    let place = Place::new();
    let files = place.died(Dies::BeforePublish).await;
    let victim = place.site.at("out").join(&files[1]);
    if cut {
        std::fs::write(victim, "").unwrap()
    } else {
        std::fs::remove_file(victim).unwrap()
    }
    let run = place.begin().await;
    if in_this_run {
        let committed = run.commit(Some(&place.sink())).await.unwrap();
        let numbers: Vec<_> = committed.iter().map(|c| (c.n, c.checkpoints, c.files, c.missing.len())).collect();
        assert_eq!(numbers, [(1, 0, 0, 1), (2, 2, 2, 0)]);
    } else {
        let recovered = run.recover(Some(&place.sink())).await.unwrap();
        assert!(recovered.undone, "plan again");
        assert_eq!(place.rows().await, Vec::<String>::new());
        let waiting = run.with_live(|_, live| live.pending().count()).await;
        assert_eq!(waiting, 2, "what is fit waits for the next commit");
        run.commit(Some(&place.sink())).await.unwrap();
    }
    run.close().await.unwrap();
    assert_eq!(place.rows().await, ["a", "c"]);
    assert_eq!(seen_done(&place.site.store()).await, ["a", "c"]);
    let view = place.site.store().read().await.unwrap();
    let withdrawn: Vec<_> = view.live.checkpoints().filter(|row| row.decision == Decision::Withdrawn).collect();
    assert_eq!(withdrawn.len(), 1);
    assert!(view.live.events().iter().any(|row| row.event == Event::Void { n: 1 }));
    let manifest = view.head.as_ref().unwrap().manifest.clone();
    assert_eq!((manifest.commits.last, manifest.commits.files, manifest.commits.rows), (2, 2, 2));

    let run = place.begin().await;
    place.work_left(&run, &["a", "b", "c"]).await;
    run.commit(Some(&place.sink())).await.unwrap();
    run.close().await.unwrap();
    assert_eq!(place.rows().await, ["a", "b", "c"]);
    collect_garbage(&place.site.store(), &place.site.objects(), &place.sink()).await;
    assert_eq!(place.rows().await, ["a", "b", "c"]);
}

/// Everything of the commit is gone: nothing is left for the next number.
#[tokio::test]
async fn a_commit_of_which_nothing_is_left_is_given_up() {
    let place = Place::new();
    for file in place.died(Dies::BeforePublish).await {
        std::fs::remove_file(place.site.at("out").join(file)).unwrap();
    }
    let run = place.begin().await;
    let committed = run.commit(Some(&place.sink())).await.unwrap();
    assert_eq!((committed.len(), committed[0].files, committed[0].missing.len()), (1, 0, 3));
    place.work_left(&run, &["a", "b", "c"]).await;
    assert_eq!(run.commit(Some(&place.sink())).await.unwrap()[0].n, 2);
    run.close().await.unwrap();
    assert_eq!(place.rows().await, ["a", "b", "c"]);
}

/// A driver stalled before its catalog call, and a successor that gives the intent up and commits the rest.
#[tokio::test]
async fn a_stalled_driver_does_not_bring_back_what_its_successor_gave_up() {
    let place = Place::new();
    let stalled = place.begin().await;
    let file = place.work(&stalled, "a").await;
    place.work(&stalled, "b").await;
    assert!(stalled.commit(Some(&CommitsBy(&place.sink(), Dies::BeforePublish))).await.is_err());
    let at = place.site.at("out").join(file);
    let bytes = std::fs::read(&at).unwrap();
    std::fs::remove_file(&at).unwrap();
    let run = place.begin().await;
    assert_eq!(run.commit(Some(&place.sink())).await.unwrap().len(), 2);
    place.work_left(&run, &["a", "b"]).await;
    run.commit(Some(&place.sink())).await.unwrap();
    run.close().await.unwrap();
    // A file that a slow disk brought back, too.
    std::fs::write(&at, bytes).unwrap();
    assert_eq!(stalled.commit(Some(&place.sink())).await.unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!(place.rows().await, ["a", "b"]);
}

#[tokio::test]
async fn a_table_that_was_taken_back_is_refused_before_anything_is_done() {
    let place = Place::new();
    commit_a_and_b(&place).await;
    let expected = || async { place.site.store().read().await.unwrap().expected() };
    place.sink().check(expected().await.as_ref()).await.unwrap();
    place.table.restore(0).await;
    let error = place.sink().check(expected().await.as_ref()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(error.to_string().contains("lakemark reopen --table"), "{error}");
}

/// A commit of which nothing tells whether it landed: compacted, and the log cleaned, before the driver's successor looked.
async fn undecided() -> Place {
    let place = Place::new();
    let run = place.begin().await;
    place.work(&run, "z").await;
    run.commit(Some(&place.sink())).await.unwrap();
    run.close().await.unwrap();
    place.died(Dies::AfterPublish).await;
    place.table.compact().await;
    place.table.foreign_append().await;
    place.table.clean_log().await;
    let run = place.begin().await;
    let error = run.recover(Some(&place.sink())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CannotDecide, "{error}");
    assert!(
        error.to_string().contains("lakemark accept 2") && error.to_string().contains("lakemark reopen 2"),
        "{error}"
    );
    place
}

async fn operator(place: &Place) -> Run {
    place.site.store().operate(lakemark::Wait::Takeover, lakemark::Lease::default()).await.unwrap()
}

#[tokio::test]
async fn a_commit_that_a_person_saw_is_accepted() {
    let place = undecided().await;
    let live = place.table.live_paths().await;
    let run = operator(&place).await;
    assert_eq!(run.accept_commit(3, &place.sink()).await.unwrap_err().kind(), ErrorKind::Invalid, "it is number 2");
    let decided = run.accept_commit(2, &place.sink()).await.unwrap();
    assert_eq!((decided.checkpoints, decided.files, decided.rows), (3, 3, 3));
    run.close().await.unwrap();
    assert_eq!(place.table.live_paths().await, live, "nothing was committed");
    assert_eq!(seen_done(&place.site.store()).await, ["a", "b", "c", "z"]);
    let manifest = newest(&place.site.store()).await;
    assert_eq!((manifest.commits.files, manifest.commits.open), (4, None));
    let run = place.begin().await;
    assert_eq!(run.recover(Some(&place.sink())).await.unwrap(), lakemark::Recovered::default());
    run.close().await.unwrap();
}

#[tokio::test]
async fn a_commit_that_did_not_land_is_reopened_behind_a_barrier() {
    let place = undecided().await;
    let before = place.table.live_paths().await.len();
    let run = operator(&place).await;
    assert_eq!(run.reopen_commit(2, &place.sink()).await.unwrap().checkpoints, 3);
    // The log does not say either whether commit 1 was taken back: that is asked for itself.
    let error = check(&place).await.unwrap_err();
    assert!(error.to_string().contains("lakemark accept --table"), "{error}");
    run.accept_table(&place.sink()).await.unwrap();
    run.close().await.unwrap();
    assert_eq!(seen_done(&place.site.store()).await, ["z"]);
    let run = place.begin().await;
    place.work_left(&run, &["a", "b", "c", "z"]).await;
    assert_eq!(run.commit(Some(&place.sink())).await.unwrap()[0].n, 3);
    run.close().await.unwrap();
    assert_eq!(place.table.live_paths().await.len(), before + 3, "done again, as was said");

    // What the table says is there is not given up.
    let place = Place::new();
    place.died(Dies::AfterPublish).await;
    let run = operator(&place).await;
    let error = run.reopen_commit(1, &place.sink()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(error.to_string().contains("lakemark accept 1"), "{error}");
}

/// R78 and roll-backs: a person says which table to go on with, and what counts as being in it.
#[rstest]
#[tokio::test]
async fn a_table_is_accepted_as_it_is_or_filled_again(#[values(false, true)] again: bool) {
    let place = Place::new();
    commit_a_and_b(&place).await;
    place.table.recreate().await;
    let expected = || async { place.site.store().read().await.unwrap().expected() };
    let error = place.sink().check(expected().await.as_ref()).await.unwrap_err();
    assert!(error.to_string().contains("lakemark accept --table"), "{error}");
    let run = operator(&place).await;
    let sink = place.sink();
    let decided = if again { run.reopen_table(&sink).await } else { run.accept_table(&sink).await }.unwrap();
    assert_eq!(decided.checkpoints, if again { 2 } else { 0 });
    run.close().await.unwrap();
    place.sink().check(expected().await.as_ref()).await.unwrap();
    let run = place.begin().await;
    place.work_left(&run, &["a", "b", "c"]).await;
    run.commit(Some(&place.sink())).await.unwrap();
    run.close().await.unwrap();
    assert_eq!(place.rows().await, if again { vec!["a", "b", "c"] } else { vec!["c"] });
    place.sink().check(expected().await.as_ref()).await.unwrap();
    assert_eq!(newest(&place.site.store()).await.commits.files, 3);
}

/// Two runs with a commit each.
async fn commit_a_and_b(place: &Place) {
    for path in ["a", "b"] {
        let run = place.begin().await;
        place.work(&run, path).await;
        run.commit(Some(&place.sink())).await.unwrap();
        run.close().await.unwrap();
    }
}

/// Two commits of a and b, and c sealed.
async fn two_commits(place: &Place) -> Run {
    commit_a_and_b(place).await;
    let run = place.begin().await;
    place.work(&run, "c").await;
    run
}

async fn check(place: &Place) -> lakemark::Result<()> {
    let expected = place.site.store().read().await.unwrap().expected();
    place.sink().check(expected.as_ref()).await
}

/// What happens to a table between the check of a run and its commit is noticed at the commit.
#[rstest]
#[case::taken_back(0)]
#[case::made_anew(1)]
#[case::an_older_copy(2)]
#[case::dropped(3)]
#[tokio::test]
async fn a_table_that_changes_under_a_run_is_refused_by_its_commit(#[case] how: u8) {
    let place = Place::new();
    let run = two_commits(&place).await;
    check(&place).await.unwrap();
    match how {
        0 => place.table.restore(0).await,
        1 => place.table.recreate().await,
        2 => {
            place.table.put_back(Some(0));
            // Others went on with it, so that it is no older by its version.
            place.table.foreign_append().await;
        }
        _ => place.table.put_back(None),
    }
    let before = place.table.live_paths().await;
    let error = run.commit(Some(&place.sink())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(error.to_string().contains("--table"), "{error}");
    assert_eq!(place.table.live_paths().await, before, "nothing was committed");
    assert_eq!(check(&place).await.unwrap_err().kind(), ErrorKind::Refused, "and by every later run");
    // A person's word: everything again, and c once.
    run.close().await.unwrap();
    let run = operator(&place).await;
    run.reopen_table(&place.sink()).await.unwrap();
    run.close().await.unwrap();
    let run = place.begin().await;
    place.work_left(&run, &["a", "b", "c"]).await;
    run.commit(Some(&place.sink())).await.unwrap();
    run.close().await.unwrap();
    assert_eq!(place.table.live_paths().await.len(), before.len() + 3);
    check(&place).await.unwrap();
}

/// A roll-back while a commit was open is noticed by who ends it, before any work is done for it.
#[tokio::test]
async fn a_table_taken_back_after_a_commit_landed_is_noticed_by_its_recovery() {
    let place = Place::new();
    let run = two_commits(&place).await;
    assert!(run.commit(Some(&CommitsBy(&place.sink(), Dies::AfterPublish))).await.is_err());
    drop(run);
    place.table.restore(1).await;
    check(&place).await.unwrap();
    let run = place.begin().await;
    let error = run.recover(Some(&place.sink())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(error.to_string().contains("restored"), "{error}");
}

/// Deciding about one commit says nothing of the others: what happened to the table is still to be seen.
#[rstest]
#[tokio::test]
async fn a_commit_that_is_decided_hides_nothing_of_its_table(#[values(false, true)] anew: bool) {
    let place = Place::new();
    let run = two_commits(&place).await;
    assert!(run.commit(Some(&CommitsBy(&place.sink(), Dies::BeforePublish))).await.is_err());
    drop(run);
    if anew {
        place.table.recreate().await
    } else {
        place.table.restore(0).await
    }
    let run = operator(&place).await;
    let error = run.accept_commit(3, &place.sink()).await;
    if !anew {
        let error = error.unwrap_err();
        assert!(error.to_string().contains("lakemark reopen 3"), "it is not there: {error}");
    }
    drop(run);
    let run = operator(&place).await;
    let _ = run.reopen_commit(3, &place.sink()).await;
    run.close().await.unwrap();
    assert_eq!(check(&place).await.unwrap_err().kind(), ErrorKind::Refused);
}

/// A table that is gone with a commit open: the commit is given up without one, and then the table is decided about.
#[tokio::test]
async fn a_dropped_table_with_an_open_commit_has_a_way_on() {
    let place = Place::new();
    let run = two_commits(&place).await;
    assert!(run.commit(Some(&CommitsBy(&place.sink(), Dies::BeforePublish))).await.is_err());
    drop(run);
    place.table.put_back(None);
    assert!(check(&place).await.unwrap_err().to_string().contains("lakemark reopen --table"));
    let run = operator(&place).await;
    let error = run.reopen_table(&place.sink()).await.unwrap_err();
    assert!(error.to_string().contains("lakemark reopen 3"), "{error}");
    assert_eq!(run.accept_commit(3, &place.sink()).await.unwrap_err().kind(), ErrorKind::Refused);
    run.reopen_commit(3, &place.sink()).await.unwrap();
    run.reopen_table(&place.sink()).await.unwrap();
    run.close().await.unwrap();
    let run = place.begin().await;
    place.work_left(&run, &["a", "b", "c"]).await;
    run.commit(Some(&place.sink())).await.unwrap();
    run.close().await.unwrap();
    assert_eq!(place.rows().await, ["a", "b", "c"]);
    check(&place).await.unwrap();
}
