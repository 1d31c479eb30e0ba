use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::{AsArray, Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema};
use datafusion::catalog::TableProvider;
use datafusion::datasource::MemTable;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use futures::StreamExt;
use lakemark::{BeginOptions, DirectorySink, InputId, NullKeys, ObjectCheckpointStore, Run, Wait};

use super::*;
use crate::checkpoints::{Checkpoints, Options};
use crate::seal::{Output, SealExec};

fn table(rows: i64, batch: usize) -> MemTable {
    let schema = Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false)]));
    let ids: Vec<i64> = (0..rows).collect();
    let batches = ids
        .chunks(batch)
        .map(|ids| RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(Int64Array::from(ids.to_vec()))]).unwrap());
    MemTable::try_new(Arc::clone(&schema), vec![batches.collect()]).unwrap()
}

/// An attempt of the task 0, whose slices have `rows` rows.
async fn attempt(
    checkpoints: &Checkpoints,
    run: &Arc<Run>,
    output: &Output,
    source: &Arc<RowSource>,
    rows: usize,
) -> Arc<dyn ExecutionPlan> {
    let ctx = SessionContext::new();
    let child = table(100, 7).scan(&ctx.state(), None, &[], None).await.unwrap();
    let limits = Limits { rows, bytes: usize::MAX };
    let filter = KeyFilterExec::new(Arc::clone(source), child, Arc::new(vec![InputId(0)]), limits);
    let (done, _) = tokio::sync::mpsc::unbounded_channel();
    let slices = Arc::new(Slices::new(usize::MAX, done));
    let (run, output) = (Arc::clone(run), Some(output.clone()));
    Arc::new(SealExec::new(Arc::new(filter), checkpoints.clone(), run, output, None, vec![Some(InputId(0))], slices))
}

async fn drive(attempt: Arc<dyn ExecutionPlan>) {
    let mut stream = attempt.execute(0, Arc::new(TaskContext::default())).unwrap();
    while let Some(batch) = stream.next().await {
        batch.unwrap();
    }
}

/// A slow attempt that goes on while another one has begun, cut otherwise: each row is sealed by one of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_attempts_of_one_task_that_are_cut_differently_seal_each_row_once() {
    let mut lost = 0;
    for (one, other) in [(3, 5), (10, 9), (100, 1), (4, 4), (50, 33), (7, 100)] {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        let store = ObjectCheckpointStore::open(&at("store")).unwrap();
        let sink = DirectorySink::open("parquet", &at("out")).unwrap();
        let output = Output::parquet(sink);
        let begin = BeginOptions { sink: Some(output.sink.binding()), wait: Wait::Takeover, ..BeginOptions::default() };
        let run = Arc::new(store.begin(begin).await.unwrap());
        output.sink.bind(run.worker().store_id()).await.unwrap();
        let checkpoints = Checkpoints::new(store.clone(), Options::default());
        let spec = RowKeys::on(["id"]).spec(&table(1, 1).schema()).unwrap();
        assert_eq!(spec.nulls, NullKeys::Equal);
        let known = run.keys_of("docs").await.unwrap();
        let (name, root) = ("docs".into(), lakemark::Root::parse("memory://shop/docs").unwrap());
        let source = Arc::new(RowSource::new(name, root, "table".into(), spec, OnDuplicate::First, known));
        let first = attempt(&checkpoints, &run, &output, &source, one).await;
        let second = attempt(&checkpoints, &run, &output, &source, other).await;
        tokio::join!(drive(first), drive(second));
        let seals = run.worker().seals_of(InputId(0)).await.unwrap();
        let sizes: BTreeMap<u64, usize> = seals.iter().fold(BTreeMap::new(), |mut sizes, seal| {
            *sizes.entry(seal.counts.rows_in).or_default() += 1;
            sizes
        });
        lost += usize::from(sizes.len() > 1);
        assert_eq!(seals.iter().map(|seal| seal.counts.rows_in).sum::<u64>(), 100, "{sizes:?}");
        assert!(seals.iter().zip(0..).all(|(seal, sequence)| seal.id.sequence == sequence));
        run.commit(Some(&*output.sink)).await.unwrap();
        Arc::try_unwrap(run).unwrap().close().await.unwrap();
        assert!(store.verify().await.unwrap().is_sound());
        let ctx = SessionContext::new();
        let rows = ctx.read_parquet(at("out"), ParquetReadOptions::default()).await.unwrap().collect().await.unwrap();
        let mut ids: Vec<i64> =
            rows.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec()).collect();
        ids.sort_unstable();
        assert_eq!(ids, (0..100).collect::<Vec<_>>(), "{one} and {other}");
    }
    assert!(lost > 0, "no two attempts ever met");
}
