//! A worker: one attempt of one task, from the guard to the seal.
//!
//! It opens what it reads, leaves out what changed and what is done, writes its output under names of its own attempt,
//! and seals exactly what it read.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use futures::TryStreamExt;
use lakemark::{
    AtomFilter, AttemptNonce, CheckpointId, CheckpointStore, ContentDigest, Counts, Coverage, Error, ErrorKind,
    Evidence, FileRead, FileVersion, Footer, Lake, OutputFile, OutputSink, Result, Run, ScanPart, Seal, SealKind,
    SealOutcome, SealedFile, TaskPart, Worker, output_name,
};
use parquet::arrow::ParquetRecordBatchStreamBuilder;
use parquet::arrow::arrow_reader::ArrowReaderOptions;

use crate::lake::map;
use crate::scenario::SOURCE;
use crate::situations::Situation;
use crate::variants::Variant;
use crate::world::World;

/// A task that was handed out.
#[derive(Clone)]
pub(crate) struct Job {
    pub(crate) id: CheckpointId,
    pub(crate) parts: Vec<TaskPart>,
    /// What is done already, when the driver did not prune.
    pub(crate) filter: Option<AtomFilter>,
    /// Handed out although another task has sealed the same: it must be rejected, and matters to nobody.
    pub(crate) careless: bool,
}

/// What came of an attempt that ended well.
pub(crate) struct Done {
    /// The seal of the task: of this attempt or of another one.
    pub(crate) seal: Arc<Seal>,
    /// Files that are not there in the version planned.
    pub(crate) changed: Vec<Arc<str>>,
}

/// How a worker seals: within its driver's process, or with a handle that outlives the driver.
#[derive(Clone)]
pub(crate) enum Hands {
    Near(Arc<Run>),
    Remote(Worker),
}

impl Hands {
    fn worker(&self) -> &Worker {
        match self {
            Self::Near(run) => run.worker(),
            Self::Remote(worker) => worker,
        }
    }
}

/// A worker's ways to lake and destination.
#[derive(Clone)]
pub(crate) struct Attempt {
    pub(crate) world: World,
    pub(crate) actor: Arc<str>,
    pub(crate) lake: Lake,
    pub(crate) sink: Arc<dyn OutputSink>,
    pub(crate) hands: Hands,
}

/// What one attempt has read.
#[derive(Default)]
struct Read {
    files: Vec<SealedFile>,
    rows: Vec<i64>,
    changed: Vec<Arc<str>>,
}

impl Attempt {
    /// Does `job` once.
    pub(crate) async fn run(&self, job: &Job) -> Result<Done> {
        let worker = self.hands.worker();
        worker.guard().await?;
        if let Some(seal) = worker.sealed(job.id) {
            return Ok(Done { seal, changed: Vec::new() });
        }
        let mut read = Read::default();
        for part in &job.parts {
            self.read(part, job.filter.as_ref(), &mut read).await?;
        }
        let nonce = match &self.hands {
            Hands::Near(run) => run.attempt(job.id),
            Hands::Remote(_) => AttemptNonce::random(),
        };
        let outputs = self.write(job.id, nonce, &read.rows).await?;
        let counts = Counts {
            rows_in: read.rows.len() as u64,
            rows_out: outputs.iter().map(|output| output.rows).sum(),
            rows_failed: 0,
        };
        let outcome = self.seal(job.id, nonce, read.files, outputs.clone(), counts).await?;
        if let SealOutcome::Already(seal) = &outcome
            && seal.attempt != nonce
        {
            let void = seal.kind == SealKind::Void;
            self.world.note(if void { Situation::FoundVoid } else { Situation::LostSeal });
            // It has read that another attempt holds the seal.
            self.sink.discard(&outputs).await;
        }
        let (SealOutcome::Sealed(seal) | SealOutcome::Already(seal)) = outcome;
        Ok(Done { seal, changed: read.changed })
    }

    async fn seal(
        &self,
        id: CheckpointId,
        attempt: AttemptNonce,
        files: Vec<SealedFile>,
        outputs: Vec<OutputFile>,
        counts: Counts,
    ) -> Result<SealOutcome> {
        match &self.hands {
            Hands::Near(run) => {
                run.stage_keys(id, files)?;
                run.stage_files(id, Box::pin(async { Ok(outputs) }))?;
                run.checkpoint(id, counts).await
            }
            Hands::Remote(worker) => {
                let (store, planned_from) = (worker.store_id(), worker.known_version());
                let (kind, sealed_at) = (SealKind::Sealed, lakemark::time::now_ms());
                let seal =
                    Seal { store, id, attempt, kind, planned_from, sealed_at, files, keys: None, outputs, counts };
                worker.seal(seal).await
            }
        }
    }

    /// Reads what is left of one part.
    async fn read(&self, part: &TaskPart, filter: Option<&AtomFilter>, read: &mut Read) -> Result<()> {
        let file = &part.planned.file;
        let asked = ScanPart::parquet(SOURCE, file.clone(), part.coverage.clone());
        let left = filter.map_or_else(|| part.coverage.clone(), |filter| filter.left(&asked));
        if left != part.coverage {
            self.world.note(Situation::Skipped);
        }
        let skips_count = self.world.scenario.variant == Some(Variant::SkipsCountAsCovered);
        if left.is_empty() && !skips_count {
            return Ok(());
        }
        let opened = match self.lake.has_whole_files() {
            true => self.read_text(file).await?,
            false => match self.lake.footer(file).await? {
                FileRead::Read(footer) => {
                    let rows = self.read_parquet(file, &footer, &left).await?;
                    FileRead::Read((footer.evidence(), rows))
                }
                other => other.map(|_| (Evidence::default(), Vec::new())),
            },
        };
        let (evidence, rows) = match opened {
            FileRead::Read(opened) => opened,
            FileRead::Unusable(why) => {
                self.world.complain(&self.actor, format_args!("{file} was called unusable: {why}"));
                return Ok(());
            }
            other => {
                let gone = matches!(other, FileRead::Vanished);
                self.world.note(if gone { Situation::Vanished } else { Situation::Changed });
                read.changed.push(Arc::clone(&file.path));
                return Ok(());
            }
        };
        read.rows.extend(rows);
        read.files.push(SealedFile {
            source: SOURCE.into(),
            file: file.clone(),
            coverage: if skips_count { part.coverage.clone() } else { left },
            evidence,
            unsettled: part.planned.unsettled,
        });
        Ok(())
    }

    async fn read_text(&self, file: &FileVersion) -> Result<FileRead<(Evidence, Vec<i64>)>> {
        let (mut digest, mut bytes) = (ContentDigest::default(), Vec::new());
        let chunks: Result<Vec<_>> = self.lake.reader(file).chunks().try_collect().await;
        let chunks = match chunks {
            Err(error) if error.kind() == ErrorKind::ChangedSincePlanning => return Ok(FileRead::Changed),
            chunks => chunks?,
        };
        for chunk in &chunks {
            digest.update(chunk);
            bytes.extend_from_slice(chunk);
        }
        let text = String::from_utf8_lossy(&bytes);
        Ok(FileRead::Read((digest.evidence(), text.lines().filter_map(|line| line.parse().ok()).collect())))
    }

    /// The rows of `left`, group by group.
    async fn read_parquet(&self, file: &FileVersion, footer: &Arc<Footer>, left: &Coverage) -> Result<Vec<i64>> {
        let failed = |error: parquet::errors::ParquetError| match Error::find(&error) {
            Some(found) => Error::new(found.kind(), found.what().to_owned()),
            None => Error::new(ErrorKind::Unavailable, error.to_string()),
        };
        let mut rows = Vec::new();
        for (g, group_rows) in footer.group_rows.iter().enumerate() {
            let wanted = |row: u64| match left {
                Coverage::Whole => true,
                Coverage::Groups { full, partial } => {
                    full.contains(g as u64) || partial.get(&(g as u32)).is_some_and(|rows| rows.contains(row))
                }
            };
            if !(0..*group_rows).any(wanted) {
                continue;
            }
            let reader = self.lake.reader_with(file, Arc::clone(footer));
            let options = ArrowReaderOptions::new();
            let builder = ParquetRecordBatchStreamBuilder::new_with_options(reader, options).await.map_err(failed)?;
            let stream = builder.with_row_groups(vec![g]).build().map_err(failed)?;
            let batches: Vec<_> = stream.try_collect().await.map_err(failed)?;
            let all = batches.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec());
            rows.extend(all.zip(0..).filter(|(_, row)| wanted(*row)).map(|(value, _)| value));
        }
        Ok(rows)
    }

    /// Writes what comes out of `rows`: one durable file for even rows and one for odd ones, as far as there are any.
    async fn write(&self, id: CheckpointId, nonce: AttemptNonce, rows: &[i64]) -> Result<Vec<OutputFile>> {
        let mut folders: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for row in rows {
            let out = map(*row);
            if !out.is_empty() {
                folders.entry(format!("odd={}", row % 2)).or_default().extend(out);
            }
        }
        let store = self.hands.worker().store_id().short();
        let mut outputs = Vec::new();
        for (part, (folder, lines)) in folders.into_iter().enumerate() {
            let name = output_name(&store, id, nonce, part as u32, "txt");
            let mut staged = self.sink.stage(&name, &folder).await?;
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            staged.write_all(text.as_bytes()).map_err(|error| self.sink.failed(error))?;
            let (size, upload) = staged.finish().await?;
            outputs.push(OutputFile { name, folder, size, rows: lines.len() as u64, upload });
        }
        self.sink.sync().await?;
        Ok(outputs)
    }
}
