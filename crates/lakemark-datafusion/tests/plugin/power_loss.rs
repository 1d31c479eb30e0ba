//! The whole plug-in on a disk that stops at every few steps and forgets what was not durable.

use std::sync::Arc;

use datafusion::prelude::SessionContext;
use lakemark::disk::{Disk, LossyDisk, RealDisk};
use lakemark::{DirectorySink, ObjectCheckpointStore, OutputOptions, Result, Root};
use lakemark_datafusion::{Checkpoints, LakemarkExt, Output, RunReport, SourceSpec};

use crate::support::{Lab, data, options};

async fn run(lab: &Lab, disk: Arc<dyn Disk>) -> Result<RunReport> {
    let root = |name: &str| Root::parse(&lab.url(name));
    let patience = lakemark::store::Patience { tries: 1, pause: std::time::Duration::ZERO };
    let store = ObjectCheckpointStore::open_on(root("job.store")?, Arc::clone(&disk))?.with_patience(patience);
    let checkpoints = Checkpoints::new(store, options());
    let ctx = SessionContext::new();
    ctx.register_checkpointed(&checkpoints, SourceSpec::new("docs", lab.url("docs"))).await?;
    let query = ctx.checkpointed_sql("SELECT id, text, k FROM docs WHERE n <> 7").await?;
    let sink = DirectorySink::open_on("parquet", root("job.out")?, disk)?;
    let parquet = OutputOptions { partition_by: vec!["k".into()], ..OutputOptions::default() };
    ctx.write_sealed(&checkpoints, query, Output::parquet(sink).with_options(parquet)).await
}

/// Stops at step `k`, loses what was not durable, and finishes on a sound disk. Whether the first run got through.
async fn stopped_at(k: u64, expected: &crate::support::Rows) -> bool {
    let lab = Lab::new();
    lab.write("docs/part.parquet", &data::docs(0, 18), 6);
    let disk = Arc::new(LossyDisk::new(k, lab.path("spare")));
    let through = run(&lab, Arc::clone(&disk) as Arc<dyn Disk>).await.is_ok();
    disk.power_loss().unwrap();
    let seen = lab.rows_of("job.out", &["k"]).await;
    let strange = seen.rows.iter().find(|row| !expected.rows.contains(row));
    assert!(strange.is_none(), "step {k}: {strange:?} is visible");
    // A disk that does not sync is much faster, and as sound while the power stays on.
    let sound: Arc<dyn Disk> =
        if k.is_multiple_of(16) { Arc::new(RealDisk) } else { Arc::new(LossyDisk::new(u64::MAX, lab.path("spare2"))) };
    run(&lab, sound).await.unwrap_or_else(|error| panic!("step {k}: {error}"));
    assert_eq!(lab.rows_of("job.out", &["k"]).await, *expected, "step {k}");
    through
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_output_is_exact_after_a_power_cut_at_any_step_of_a_query() {
    let lab = Lab::new();
    lab.write("docs/part.parquet", &data::docs(0, 18), 6);
    run(&lab, Arc::new(RealDisk)).await.unwrap();
    let expected = lab.rows_of("job.out", &["k"]).await;
    assert!(expected.len() > 10);
    let mut k = 0;
    loop {
        k += 1;
        if stopped_at(k, &expected).await {
            break;
        }
    }
    assert!(k > 150, "the run has {k} steps: were they all seen?");
}
