//! The contract of every [`Sink`], as a test suite that directories, buckets and tables run alike: whole runs of a store, whose
//! commits lose their answers, stall, or find that their files are gone.
#![allow(clippy::unwrap_used, reason = "a broken contract is to panic")]

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_schema::Schema;
use async_trait::async_trait;
use futures::future::BoxFuture;
use object_store::memory::InMemory;

use super::table::{Stall, WriteRows};
use super::{Intent, OutputSink, Settled, Sink};
use crate::coverage::Coverage;
use crate::error::{Error, ErrorKind, Result};
use crate::faults::{Commits, CommitsBy};
use crate::identity::{Evidence, FileVersion, Root};
use crate::run::{BeginOptions, Run, Wait};
use crate::store::{CheckpointStore, Counts, ObjectCheckpointStore, OutputFile, SealedFile, output_name};

/// A destination that nobody has used, as any number of processes open it.
pub struct NewSink {
    /// Opens it.
    pub open: Box<dyn Fn() -> Arc<dyn OutputSink> + Send + Sync>,
    /// The names of the files that readers see in it, without their folders.
    pub seen: Box<dyn Fn() -> BoxFuture<'static, BTreeSet<String>> + Send + Sync>,
}

/// The suite for one kind of destination.
pub struct SinkContract {
    /// A new destination, another one at each call.
    pub fresh: Box<dyn Fn() -> NewSink + Send + Sync>,
    /// The columns of the rows.
    pub schema: Arc<Schema>,
    /// Writes a file of three of them.
    pub write: WriteRows,
    /// Whether a file that waits and is discarded is gone, and told to be. Azure keeps the blocks of an upload for a week.
    pub loses: bool,
}

/// How a commit goes wrong.
#[derive(Debug)]
enum Fault {
    /// It is brought about, and the answer is lost.
    Unanswered,
    /// The driver dies before.
    Died,
    /// It waits until it is let go.
    Stalled(Arc<Stall>),
}

#[async_trait]
impl Commits for Fault {
    async fn commit(&self, sink: &dyn Sink, intent: &Intent<'_>) -> Result<Settled> {
        match self {
            Self::Unanswered => drop(sink.commit(intent).await?),
            Self::Died => {}
            Self::Stalled(stall) => {
                stall.stop().await;
                return sink.commit(intent).await;
            }
        }
        Err(Error::new(ErrorKind::Unavailable, "the driver died"))
    }
}

/// One destination and the store that belongs to it.
struct Site {
    new: NewSink,
    store: ObjectCheckpointStore,
    schema: Arc<Schema>,
    write: WriteRows,
}

impl Site {
    fn new(contract: &SinkContract) -> Self {
        let schema = Arc::clone(&contract.schema);
        Self { new: (contract.fresh)(), store: store(), schema, write: contract.write }
    }

    async fn open(&self) -> Arc<dyn OutputSink> {
        (self.new.open)().of_rows(&self.schema).await.unwrap()
    }

    /// A run that takes over, with what earlier ones left finished.
    async fn run(&self) -> (Run, Arc<dyn OutputSink>) {
        let sink = self.open().await;
        sink.check(self.store.read().await.unwrap().expected().as_ref()).await.unwrap();
        let options = BeginOptions { sink: Some(sink.binding()), wait: Wait::Takeover, ..BeginOptions::default() };
        let run = self.store.begin(options).await.unwrap();
        sink.bind(run.worker().store_id()).await.unwrap();
        run.recover(Some(&*sink)).await.unwrap();
        (run, sink)
    }

    /// Does those of `paths` that are not done, each with one output file.
    async fn work(&self, run: &Run, sink: &Arc<dyn OutputSink>, paths: &[&str]) -> Vec<OutputFile> {
        let done: BTreeSet<String> =
            run.with_live(|_, live| live.files("docs").map(|(path, _)| path.to_owned()).collect()).await;
        let mut outputs = Vec::new();
        for path in paths.iter().filter(|path| !done.contains(**path)) {
            let id = run.checkpoints().assign(run.next_input());
            let name = output_name(&run.worker().store_id().short(), id, run.attempt(id), 0, "parquet");
            let mut file = sink.stage(&name, "").await.unwrap();
            let mut bytes = Vec::new();
            (self.write)(&mut bytes);
            file.write_all(&bytes).unwrap();
            let (size, upload) = file.finish().await.unwrap();
            sink.sync().await.unwrap();
            let output = OutputFile { name, folder: String::new(), size, rows: 3, upload };
            outputs.push(output.clone());
            let key = SealedFile {
                source: "docs".into(),
                file: FileVersion::new(*path, 100).with_mtime(7),
                coverage: Coverage::Whole,
                evidence: Evidence::new(&[3], "00".into()),
                unsettled: false,
            };
            run.stage_keys(id, vec![key]).unwrap();
            run.stage_files(id, Box::pin(async { Ok(vec![output]) })).unwrap();
            let _ = run.checkpoint(id, Counts { rows_in: 3, rows_out: 3, rows_failed: 0 }).await.unwrap();
        }
        outputs
    }

    /// A run that does a and b, and whose commit goes wrong; its output files.
    async fn failed(&self, fault: Fault) -> Vec<OutputFile> {
        let (run, sink) = self.run().await;
        let outputs = self.work(&run, &sink, &["a", "b"]).await;
        assert!(run.commit(Some(&CommitsBy(&*sink, fault))).await.is_err());
        outputs
    }

    /// A run that does what is left, and one file more; then the destination holds exactly what the store says.
    async fn finish(&self, what: &str) {
        let (run, sink) = self.run().await;
        // Object stores tell only at its commit that a file is lost.
        for _ in 0..2 {
            self.work(&run, &sink, &["a", "b", "c"]).await;
            run.commit(Some(&*sink)).await.unwrap();
        }
        assert!(run.commit(Some(&*sink)).await.unwrap().is_empty(), "{what}: nothing is committed twice");
        run.close().await.unwrap();
        self.is_exact(what, 3).await;
    }

    async fn is_exact(&self, what: &str, files: usize) {
        let view = self.store.read().await.unwrap();
        let said: BTreeSet<String> = view.live.committed_outputs().map(|(_, output)| output.name.clone()).collect();
        assert_eq!(said.len(), files, "{what}: {said:?}");
        assert_eq!((self.new.seen)().await, said, "{what}: what readers see is what was committed");
        assert!(!view.needs_epoch(), "{what}: nothing is left to finish");
        self.open().await.check(view.expected().as_ref()).await.unwrap_or_else(|e| panic!("{what}: {e}"));
    }
}

fn store() -> ObjectCheckpointStore {
    ObjectCheckpointStore::on(Root::parse("memory://contract/store").unwrap(), Arc::new(InMemory::new()))
}

/// Runs the suite.
///
/// # Panics
/// When the contract is broken, saying by what.
pub async fn check(contract: &SinkContract) {
    commits_become_visible_once(&Site::new(contract)).await;
    for (what, fault) in [("the answer was lost", Fault::Unanswered), ("the driver died before", Fault::Died)] {
        let site = Site::new(contract);
        site.failed(fault).await;
        site.finish(what).await;
    }
    for released_first in [true, false] {
        stalled(&Site::new(contract), released_first).await;
    }
    for with_intent in [false, true].into_iter().filter(|_| contract.loses) {
        lost_files(&Site::new(contract), with_intent).await;
    }
    of_one_store(&Site::new(contract)).await;
}

async fn commits_become_visible_once(site: &Site) {
    let (run, sink) = site.run().await;
    site.work(&run, &sink, &["a", "b"]).await;
    assert!((site.new.seen)().await.is_empty(), "nothing is visible before its commit");
    let committed = run.commit(Some(&*sink)).await.unwrap();
    assert_eq!((committed.len(), committed[0].files, committed[0].rows), (1, 2, 6));
    assert!(run.commit(Some(&*sink)).await.unwrap().is_empty());
    run.close().await.unwrap();
    site.is_exact("a run", 2).await;
    site.finish("a second run").await;
}

/// A driver stalls within its commit, and goes on while another one has taken over: before that one has finished what was
/// left, or after.
async fn stalled(site: &Site, released_first: bool) {
    let what = if released_first { "a stalled driver goes on first" } else { "a stalled driver goes on last" };
    let stall = Arc::new(Stall::default());
    let (run, sink) = site.run().await;
    site.work(&run, &sink, &["a", "b"]).await;
    let by = CommitsBy(&*sink, Fault::Stalled(Arc::clone(&stall)));
    let successor = async {
        stall.arrived().await;
        if released_first {
            // Fenced by then: it must see that by itself.
            let options = BeginOptions { wait: Wait::Takeover, ..BeginOptions::default() };
            let fencing = site.store.begin(BeginOptions { sink: Some(sink.binding()), ..options }).await.unwrap();
            stall.release();
            drop(fencing);
        }
        site.finish(what).await;
        stall.release();
    };
    let (stalled, ()) = futures::join!(run.commit(Some(&by)), successor);
    assert_eq!(stalled.unwrap_err().kind(), ErrorKind::Fenced, "{what}");
    site.is_exact(what, 3).await;
}

/// Files that wait are lost: what they held is undone, and nothing else.
async fn lost_files(site: &Site, with_intent: bool) {
    let what = if with_intent { "a file was lost after the intent" } else { "a file was lost before the intent" };
    let outputs = if with_intent {
        site.failed(Fault::Died).await
    } else {
        let (run, sink) = site.run().await;
        site.work(&run, &sink, &["a", "b"]).await
    };
    site.open().await.discard(&outputs[..1]).await;
    site.finish(what).await;
    let seen = (site.new.seen)().await;
    assert!(!seen.contains(&outputs[0].name) && seen.contains(&outputs[1].name), "{what}: {seen:?}");
}

/// It belongs to the store that has filled it.
async fn of_one_store(site: &Site) {
    site.finish("a run").await;
    let sink = site.open().await;
    let refused = sink.check(None).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused, "{refused}");
    let other = store();
    let run = other.begin(BeginOptions { sink: Some(sink.binding()), ..BeginOptions::default() }).await.unwrap();
    run.close().await.unwrap();
    let refused = sink.check(other.read().await.unwrap().expected().as_ref()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused, "{refused}");
}
