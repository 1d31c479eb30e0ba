//! lakemark behind a planner that is not DataFusion.
//!
//! The planner below knows one thing: a task is a file and some of its row groups. It gives its tasks to
//! [`SchedulerHook::prune`] and gets back what is not done. Each task upper-cases a column of text into a Parquet file of
//! its own, seals what it covered, and the driver commits the files to a directory. A second run finds nothing to do.
//!
//! ```text
//! cargo run --example custom_planner
//! ```

use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, RecordBatch, StringArray};
use futures::{StreamExt, TryStreamExt, stream};
use lakemark::{
    BeginOptions, CheckpointStore, Counts, Coverage, DirectorySink, Error, FileVersion, FooterRead, Lake,
    ObjectCheckpointStore, OutputOptions, RangeSet, Result, Run, ScanPart, ScanTask, SchedulerHook, SealedFile, Sink,
    SourceSettings, TaskWriter,
};
use parquet::arrow::{ArrowWriter, ParquetRecordBatchStreamBuilder};

/// The name under which the store keeps what is done of this source.
const SOURCE: &str = "texts";

/// What the planner schedules: some row groups of one version of one file.
struct MyTask {
    file: FileVersion,
    groups: RangeSet,
    /// Whether its mtime was too fresh to be trusted when it was listed.
    unsettled: bool,
}

/// All that lakemark asks of a planner: say what a task reads, and how it looks when a part of that is done.
impl ScanTask for MyTask {
    fn parts(&self) -> Vec<ScanPart> {
        vec![ScanPart::parquet(SOURCE, self.file.clone(), Coverage::groups(self.groups.clone()))]
    }

    fn with_parts(mut self, left: Vec<ScanPart>) -> Self {
        // The task reads one file and whole groups of it, so that is what is left of it too.
        if let [part] = &left[..]
            && let Coverage::Groups { full, .. } = part.coverage()
        {
            self.groups = full.clone();
        }
        self
    }
}

/// The planner: each file is cut into tasks of at most two row groups.
async fn my_planner(lake: &Lake) -> Result<Vec<MyTask>> {
    let mut tasks = Vec::new();
    let listing = lake.list().await?;
    for file in listing.files {
        // A footer tells how many groups there are. What is no Parquet file, or changed meanwhile, is left for later.
        let FooterRead::Read(footer) = lake.footer(&file).await? else { continue };
        let groups = footer.group_rows.len() as u64;
        for start in (0..groups).step_by(2) {
            let groups = RangeSet::of(start..groups.min(start + 2));
            // By the time of the listing, not of the seal: a fresh mtime must not look old.
            let unsettled = lakemark::unsettled(&file, listing.taken_at, true);
            tasks.push(MyTask { file: file.clone(), groups, unsettled });
        }
    }
    Ok(tasks)
}

/// One run: plan, prune, do what is left, commit. How many tasks were done.
async fn run_once(lake: &Lake, store: &ObjectCheckpointStore, sink: &Arc<DirectorySink>) -> Result<usize> {
    // Planning only reads. The hook is of this plan: the next run makes another.
    let view = store.read().await?;
    sink.check(view.expected().as_ref()).await?;
    let hook = SchedulerHook::new(&view);
    let todo: Vec<MyTask> = hook.prune(stream::iter(my_planner(lake).await?)).collect().await;
    println!("{} of {} tasks are to be done", todo.len(), hook.counts().tasks);
    if todo.is_empty() && !view.needs_epoch() {
        return Ok(0); // No work, no write.
    }
    // Now this process becomes the holder of the store. What is fixed for the source is recorded and compared.
    let settings = SourceSettings::files(lake.root().clone(), "parquet");
    let run = store
        .begin(BeginOptions {
            sources: [(SOURCE.to_owned(), settings)].into(),
            sink: Some(sink.binding()),
            ..BeginOptions::default()
        })
        .await?;
    sink.bind(run.worker().store_id()).await?;
    sink.prepare()?;
    for task in &todo {
        work(&run, lake, sink, task).await?;
    }
    for commit in run.commit(Some(&**sink)).await? {
        println!("commit {} made {} files with {} rows visible", commit.n, commit.files, commit.rows);
    }
    run.close().await?;
    Ok(todo.len())
}

/// One task: read pinned, write, make durable, seal.
async fn work(run: &Run, lake: &Lake, sink: &Arc<DirectorySink>, task: &MyTask) -> Result<()> {
    let id = run.checkpoints().assign(run.next_input());
    run.worker().guard().await?; // Does this run still own the store?
    // The evidence is what this worker saw of the file when it opened it.
    let FooterRead::Read(footer) = lake.footer(&task.file).await? else {
        return Ok(()); // Changed since planning: nothing is sealed, the next run plans it as it is then.
    };
    let groups: Vec<usize> = task.groups.iter().map(|group| group as usize).collect();
    // Every byte is of the planned version, or the read fails.
    let builder = ParquetRecordBatchStreamBuilder::new(lake.reader(&task.file)).await.map_err(failed)?;
    let schema = builder.schema().clone();
    let mut batches = builder.with_row_groups(groups.clone()).build().map_err(failed)?;
    // Output files carry store, task and attempt in their names; they are staged beside the destination, not in it.
    let short = run.worker().store_id().short();
    let options = Arc::new(OutputOptions::default());
    let mut writer = TaskWriter::new(sink.clone(), options, &schema, &schema, short, id, run.attempt(id))?;
    while let Some(batch) = batches.try_next().await.map_err(failed)? {
        writer.write(&upper(&batch)?).await?;
    }
    let rows = groups.iter().map(|group| footer.group_rows[*group]).sum();
    let counts = Counts { rows_in: rows, rows_out: writer.rows(), rows_failed: 0 };
    // Exactly what this task covered. The seal waits until the output is durable.
    let covered = SealedFile {
        source: SOURCE.into(),
        file: task.file.clone(),
        coverage: Coverage::groups(task.groups.clone()),
        evidence: footer.evidence(),
        unsettled: task.unsettled,
    };
    run.stage_keys(id, vec![covered])?;
    run.stage_files(id, Box::pin(writer.finish()))?;
    let _sealed_by_this_attempt_or_another = run.checkpoint(id, counts).await?;
    Ok(())
}

/// The pipeline: the expensive part of a real one.
fn upper(batch: &RecordBatch) -> Result<RecordBatch> {
    let texts = batch.column(0).as_string::<i32>();
    let upper: StringArray = texts.iter().map(|text| text.map(str::to_uppercase)).collect();
    RecordBatch::try_new(batch.schema(), vec![Arc::new(upper)]).map_err(failed)
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::invalid("the task failed").caused_by(error)
}

/// A file of three row groups of two rows each.
fn make_file(path: &Path, word: &str) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let rows = |group: usize| (0..2).map(move |row| format!("{word} {group}.{row}"));
    let column = |group| -> ArrayRef { Arc::new(StringArray::from_iter_values(rows(group))) };
    let schema = RecordBatch::try_from_iter([("text", column(0))])?.schema();
    let mut writer = ArrowWriter::try_new(std::fs::File::create(path)?, Arc::clone(&schema), None)?;
    for group in 0..3 {
        writer.write(&RecordBatch::try_new(Arc::clone(&schema), vec![column(group)])?)?;
        writer.flush()?;
    }
    writer.close()?;
    Ok(())
}

/// Makes a lake, runs over it three times, and checks what came out.
#[tokio::main]
pub async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let at = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    std::fs::create_dir(at("lake"))?;
    make_file(&folder.path().join("lake/a.parquet"), "apple")?;
    make_file(&folder.path().join("lake/b.parquet"), "pear")?;

    let lake = Lake::open(&at("lake"))?;
    let store = ObjectCheckpointStore::open(&at("upper.lakemark/store"))?;
    let sink = Arc::new(DirectorySink::open("parquet", &at("upper"))?);
    assert_eq!(run_once(&lake, &store, &sink).await?, 4, "two files of three groups, two groups a task");
    assert_eq!(run_once(&lake, &store, &sink).await?, 0, "the second run has nothing to do");

    // A new file: only that one is done.
    make_file(&folder.path().join("lake/c.parquet"), "plum")?;
    assert_eq!(run_once(&lake, &store, &sink).await?, 2);
    let output = Lake::open(&at("upper"))?;
    let files = output.list().await?.files;
    assert_eq!(files.len(), 6);
    let mut texts = Vec::new();
    for file in &files {
        let rows = ParquetRecordBatchStreamBuilder::new(output.reader(file)).await?.build()?;
        for batch in rows.try_collect::<Vec<_>>().await? {
            texts.extend(batch.column(0).as_string::<i32>().iter().flatten().map(str::to_owned));
        }
    }
    texts.sort_unstable();
    println!("{} rows, from {:?} to {:?}", texts.len(), texts[0], texts[texts.len() - 1]);
    assert_eq!((texts.len(), texts[0].as_str(), texts[17].as_str()), (18, "APPLE 0.0", "PLUM 2.1"));
    Ok(())
}
