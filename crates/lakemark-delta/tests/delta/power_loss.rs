//! The power goes off at every step of two commits on a disk: what was told to be in the table is, and is whole.

use std::path::Path;
use std::sync::Arc;

use lakemark::disk::{Disk, LossyDisk, RealDisk};
use lakemark::{
    AttemptNonce, CommitDriver, DataFiles, DirectorySink, Fitness, Intent, OutputFile, OutputSink, Result, Root,
    Settled, Sink, StoreId, Table, TableState,
};
use lakemark_delta::{DeltaTable, KIND};

use crate::subject::{one_column, write_three_rows};

/// What one driver was told.
#[derive(Default)]
struct Told {
    /// The files of each commit that are durable.
    staged: Vec<Vec<OutputFile>>,
    committed: Vec<TableState>,
}

fn driver(at: &Path, disk: Arc<dyn Disk>) -> CommitDriver<DeltaTable> {
    let root = Root::parse(at.to_str().unwrap()).unwrap();
    let files = DataFiles::on_disk(DirectorySink::open_on(KIND, root.clone(), Arc::clone(&disk)).unwrap());
    CommitDriver::new(DeltaTable::on_disk(root, disk).unwrap().of_rows(&one_column()), files)
}

async fn stage(driver: &CommitDriver<DeltaTable>, folder: &str) -> Result<Vec<OutputFile>> {
    let name = format!("{}.parquet", AttemptNonce::random());
    let mut file = driver.stage(&name, folder).await?;
    let mut bytes = Vec::new();
    write_three_rows(&mut bytes);
    std::io::Write::write_all(&mut file, &bytes).map_err(|e| driver.failed(e))?;
    let (size, upload) = file.finish().await?;
    driver.sync().await?;
    Ok(vec![OutputFile { name, folder: folder.into(), size, rows: 3, upload }])
}

async fn commit(driver: &CommitDriver<DeltaTable>, intent: &Intent<'_>) -> Result<TableState> {
    match driver.commit(intent).await? {
        Settled::Done { missing, table: Some(table) } if missing.is_empty() => Ok(table),
        other => panic!("not done: {other:?}"),
    }
}

async fn run(driver: &CommitDriver<DeltaTable>, store: StoreId, told: &mut Told) -> Result<()> {
    for n in 1..=2 {
        told.staged.push(stage(driver, "").await?);
        let (base, digest) = (told.committed.last().cloned(), format!("digest {n}"));
        let files = &told.staged[n as usize - 1];
        let intent = Intent { store, n, digest: &digest, base: base.as_ref(), ..Intent::bare(files) };
        told.committed.push(commit(driver, &intent).await?);
    }
    Ok(())
}

/// Whether the run got through with the power off from step `k` on.
async fn stopped_at(k: u64) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("table");
    let (disk, store, mut told) =
        (Arc::new(LossyDisk::new(k, folder.path().join("spare"))), StoreId::random(), Told::default());
    let outcome = run(&driver(&at, disk.clone()), store, &mut told).await;
    disk.power_loss().unwrap();

    let driver = driver(&at, Arc::new(RealDisk));
    let base = driver.table().load().await.unwrap_or_else(|e| panic!("step {k}: {e}"));
    for files in told.staged.iter().take(told.committed.len()) {
        let base = base.as_ref().unwrap_or_else(|| panic!("step {k}: the table was told to be there"));
        let paths = [files[0].path()];
        assert_eq!(driver.table().live(base, &paths).await.unwrap(), 1, "step {k}: the commit was told to be in it");
        assert_eq!(driver.fitness(&files[0]).await.unwrap(), Fitness::Fit, "step {k}");
    }
    // What was decided is brought about, whatever became of it.
    let mut base = told.committed.last().cloned();
    for (n, files) in (1..).zip(&told.staged).skip(told.committed.len()) {
        let digest = format!("digest {n}");
        let intent = Intent { store, n, digest: &digest, base: base.as_ref(), recovered: true, ..Intent::bare(files) };
        let recovered = commit(&driver, &intent).await.unwrap_or_else(|e| panic!("step {k}: {e}\n{outcome:?}"));
        assert_eq!(recovered.version, n - 1, "step {k}: each commit is one version");
        base = Some(recovered);
    }
    outcome.is_ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_told_to_be_committed_is() {
    let mut k = 1;
    while !stopped_at(k).await {
        k += 1;
    }
    assert!(k > 20, "every step was stopped at: {k}");
}
