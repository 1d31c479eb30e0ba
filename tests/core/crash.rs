//! A whole run with an object store as store and destination, whose process dies at every single request: before it is
//! done, and after it was done and before the answer. (Disks: `power_loss`.)

use std::io::Write;
use std::sync::Arc;

use futures::TryStreamExt;
use lakemark::faults::Mortal;
use lakemark::{
    BeginOptions, BucketSink, CheckpointStore, Counts, ObjectCheckpointStore, OutputFile, OutputSink, Result, Root,
    Run, SealOutcome, Sink, output_name,
};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{ObjectStore, ObjectStoreExt};
use rstest::rstest;

use crate::harness::{ONE_TRY, check_i5, collect_garbage, done, next, results, takeover, whole};

const PATHS: [&str; 3] = ["a", "b", "c"];

/// The store and the destination of one process.
struct Process(Mortal);

impl Process {
    fn new(bucket: &Arc<InMemory>, dies_at: u64, done: bool) -> Self {
        Self(Mortal::new(bucket, dies_at, done))
    }

    fn store(&self) -> ObjectCheckpointStore {
        let root = Root::parse("memory://mortal/out.lakemark/store").unwrap();
        let below = PrefixStore::new(self.0.clone(), "out.lakemark/store");
        ObjectCheckpointStore::on(root, Arc::new(below)).with_patience(ONE_TRY)
    }

    fn sink(&self) -> BucketSink {
        BucketSink::on("parquet", Root::parse("memory://mortal/out").unwrap(), self.0.bucket()).unwrap()
    }
}

/// Does the file `path` with one output file.
async fn work(run: &Run, sink: &BucketSink, path: &str) -> Result<SealOutcome> {
    let id = next(run);
    let name = output_name(&run.worker().store_id().short(), id, run.attempt(id), 0, "txt");
    let mut output = sink.stage(&name, "d=1").await?;
    output.write_all(format!("result of {path}").as_bytes()).unwrap();
    let (size, upload) = output.finish().await?;
    let output = OutputFile { name, folder: "d=1".into(), size, rows: 1, upload };
    run.stage_keys(id, vec![whole(path)])?;
    run.stage_files(id, Box::pin(async { Ok(vec![output]) }))?;
    run.checkpoint(id, Counts { rows_in: 20, rows_out: 1, rows_failed: 0 }).await
}

/// The run: what earlier ones left, each file that is not done, a fold on the way, a commit, the close.
async fn run_once(process: &Process, told: &mut Vec<&'static str>) -> Result<()> {
    let (store, sink) = (process.store(), process.sink());
    sink.check(store.read().await?.expected().as_ref()).await?;
    let run = store.begin(BeginOptions { sink: Some(sink.binding()), ..takeover() }).await?;
    sink.bind(run.worker().store_id()).await?;
    run.recover(Some(&sink)).await?;
    let already = run.with_live(|_, live| done(live)).await;
    for path in PATHS.into_iter().filter(|path| !already.iter().any(|done| done == path)) {
        let _ = work(&run, &sink, path).await?;
        told.push(path);
        if path == "b" {
            run.fold().await?;
        }
    }
    run.commit(Some(&sink)).await?;
    told.push("committed");
    run.close().await.map(drop)
}

async fn visible(bucket: &InMemory) -> Vec<String> {
    let objects: Vec<_> = bucket.list(Some(&Path::from("out"))).try_collect().await.unwrap();
    let mut texts = Vec::new();
    for object in objects {
        let bytes = bucket.get(&object.location).await.unwrap().bytes().await.unwrap();
        texts.push(String::from_utf8(bytes.to_vec()).unwrap());
    }
    texts.sort_unstable();
    texts
}

/// A process dies at its request `k`, another one finishes. Whether the first one got through.
async fn died_at(k: u64, done_first: bool) -> bool {
    let bucket = Arc::new(InMemory::new());
    let mut told = Vec::new();
    let first = Process::new(&bucket, k, done_first);
    let ended = run_once(&first, &mut told).await;
    let through = first.0.is_alive();
    assert_eq!(through, ended.is_ok(), "request {k}: {ended:?}");

    let second = Process::new(&bucket, u64::MAX, false);
    let live = done(&second.store().read().await.unwrap_or_else(|e| panic!("request {k}: {e}")).live);
    for path in told.iter().filter(|told| **told != "committed") {
        assert!(live.iter().any(|done| done == path), "request {k}: `{path}` was told to be sealed and is not");
    }
    if told.contains(&"committed") {
        assert_eq!(visible(&bucket).await, results(&PATHS), "request {k}: the commit was told to be visible");
    }
    run_once(&second, &mut Vec::new()).await.unwrap_or_else(|e| panic!("request {k}: {e}"));
    assert_eq!(visible(&bucket).await, results(&PATHS), "request {k}");
    let view = second.store().read().await.unwrap();
    check_i5(&view.live);
    assert_eq!(done(&view.live), PATHS, "request {k}");
    assert!(!view.needs_epoch(), "request {k}");
    let commits = view.head.unwrap().manifest.commits;
    assert_eq!((commits.files, commits.rows, commits.open), (3, 3, None), "request {k}");
    let objects = PrefixStore::new(Arc::clone(&bucket), "out.lakemark/store");
    collect_garbage(&second.store(), &objects, &second.sink()).await;
    assert_eq!(visible(&bucket).await, results(&PATHS), "request {k}");
    through
}

#[rstest]
#[case::before_it_is_done(false)]
#[case::after_it_is_done(true)]
#[tokio::test]
async fn the_output_is_exact_after_a_death_at_any_request(#[case] done_first: bool) {
    let mut k = 1;
    while !died_at(k, done_first).await {
        k += 1;
    }
    assert!(k > 60, "the run makes {k} requests: were they all seen?");
}
