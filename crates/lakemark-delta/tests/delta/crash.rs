//! A whole run with a bucket for its store and its table, whose process dies at every single request: before it is done, and
//! after it was done and before the answer.

use std::io::Write;
use std::sync::Arc;

use lakemark::faults::Mortal;
use lakemark::store::Patience;
use lakemark::{
    BeginOptions, CheckpointStore, CommitDriver, Counts, Coverage, DataFiles, Evidence, FileVersion,
    ObjectCheckpointStore, OutputFile, OutputSink, Result, Root, Run, SealedFile, Sink, Table, Wait, output_name,
};
use lakemark_delta::{DeltaTable, KIND};
use object_store::memory::InMemory;
use object_store::prefix::PrefixStore;
use rstest::rstest;

use crate::subject::{one_column, write_three_rows};

const PATHS: [&str; 3] = ["a", "b", "c"];

fn root() -> Root {
    Root::parse("memory://mortal/out").unwrap()
}

fn store(process: &Mortal) -> ObjectCheckpointStore {
    let root = Root::parse("memory://mortal/out.lakemark/store").unwrap();
    let below = PrefixStore::new(process.clone(), "out.lakemark/store");
    let patience = Patience { tries: 1, pause: std::time::Duration::ZERO };
    ObjectCheckpointStore::on(root, Arc::new(below)).with_patience(patience)
}

fn sink(process: &Mortal) -> CommitDriver<DeltaTable> {
    let table = DeltaTable::in_bucket(root(), &process.bucket()).unwrap().of_rows(&one_column());
    let files = DataFiles::in_bucket(KIND, root(), process.bucket()).unwrap();
    CommitDriver::new(table, files).with_pause(std::time::Duration::ZERO)
}

async fn done(run: &Run) -> Vec<String> {
    run.with_live(|_, live| live.files("docs").map(|(path, _)| path.to_owned()).collect()).await
}

/// Does the file `path` with one output file.
async fn work(run: &Run, sink: &CommitDriver<DeltaTable>, path: &str) -> Result<()> {
    let id = run.checkpoints().assign(run.next_input());
    let name = output_name(&run.worker().store_id().short(), id, run.attempt(id), 0, "parquet");
    let mut output = sink.stage(&name, "").await?;
    let mut bytes = Vec::new();
    write_three_rows(&mut bytes);
    output.write_all(&bytes).unwrap();
    let (size, upload) = output.finish().await?;
    let output = OutputFile { name, folder: String::new(), size, rows: 3, upload };
    let key = SealedFile {
        source: "docs".into(),
        file: FileVersion::new(path, 100).with_mtime(7),
        coverage: Coverage::Whole,
        evidence: Evidence::new(&[3], "00".into()),
        unsettled: false,
    };
    run.stage_keys(id, vec![key])?;
    run.stage_files(id, Box::pin(async { Ok(vec![output]) }))?;
    run.checkpoint(id, Counts { rows_in: 3, rows_out: 3, rows_failed: 0 }).await.map(drop)
}

/// The run: what earlier ones left, each file that is not done, a commit on the way and one at the end.
async fn run_once(process: &Mortal) -> Result<()> {
    let (store, sink) = (store(process), sink(process));
    sink.check(store.read().await?.expected().as_ref()).await?;
    let options = BeginOptions { sink: Some(sink.binding()), wait: Wait::Takeover, ..BeginOptions::default() };
    let run = store.begin(options).await?;
    run.recover(Some(&sink)).await?;
    let already = done(&run).await;
    for path in PATHS.into_iter().filter(|path| !already.iter().any(|done| done == path)) {
        work(&run, &sink, path).await?;
        if path == "b" {
            run.commit(Some(&sink)).await?;
        }
    }
    run.commit(Some(&sink)).await?;
    run.close().await.map(drop)
}

/// A process dies at its request `k`, another one finishes. Whether the first one got through.
async fn died_at(k: u64, done_first: bool) -> bool {
    let bucket = Arc::new(InMemory::new());
    let first = Mortal::new(&bucket, k, done_first);
    let ended = run_once(&first).await;
    let through = first.is_alive();
    assert!(!through || ended.is_ok(), "request {k}: {ended:?}");
    let second = Mortal::new(&bucket, u64::MAX, false);
    run_once(&second).await.unwrap_or_else(|e| panic!("request {k}: {e}"));
    let view = store(&second).read().await.unwrap();
    let committed: Vec<String> = view.live.committed_outputs().map(|(_, output)| output.path()).collect();
    assert_eq!(committed.len(), 3, "request {k}");
    assert!(!view.needs_epoch(), "request {k}");
    let sink = sink(&second);
    let base = sink.table().load().await.unwrap().unwrap();
    assert_eq!(sink.table().live(&base, &committed).await.unwrap(), 3, "request {k}: each file is live");
    let markers = sink.table().history(&base, None, view.store_id().unwrap()).await.unwrap().markers;
    let manifest = view.head.as_ref().unwrap().manifest.clone();
    assert_eq!(markers.len() as u64, manifest.commits.last, "request {k}: each number once: {markers:?}");
    assert_eq!((manifest.commits.files, manifest.commits.rows), (3, 9), "request {k}");
    sink.check(view.expected().as_ref()).await.unwrap();
    assert!(store(&second).verify().await.unwrap().is_sound(), "request {k}");
    let run = store(&second).operate(Wait::Takeover, lakemark::Lease::default()).await.unwrap();
    run.collect(Some(&sink), std::time::Duration::ZERO).await.unwrap();
    run.close().await.unwrap();
    assert_eq!(sink.table().live(&base, &committed).await.unwrap(), 3, "request {k}: gc removes nothing that is live");
    through
}

#[rstest]
#[case::before_it_is_done(false)]
#[case::after_it_is_done(true)]
#[tokio::test]
async fn the_table_is_exact_after_a_death_at_any_request(#[case] done_first: bool) {
    let mut k = 1;
    while !died_at(k, done_first).await {
        k += 1;
    }
    assert!(k > 60, "the run makes {k} requests: were they all seen?");
}
