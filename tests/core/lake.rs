//! A small lake of real Parquet files for the planning scenarios.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use lakemark::{
    CheckpointStore, Counts, Coverage, FooterRead, Lake, Live, PlannedFile, Run, SealedFile, SourcePlan, SourcePolicy,
    Task, plan_source,
};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use tempfile::TempDir;

use crate::harness::{SOURCE, next};

/// A Parquet file whose groups have `groups` rows, with numbers from `first`.
pub fn parquet(first: i64, groups: &[usize]) -> Vec<u8> {
    let rows: usize = groups.iter().sum();
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(first..first + rows as i64));
    let batch = RecordBatch::try_from_iter([("n", column)]).unwrap();
    let properties = WriterProperties::builder().set_dictionary_enabled(false).build();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
    let mut start = 0;
    for rows in groups {
        writer.write(&batch.slice(start, *rows)).unwrap();
        writer.flush().unwrap();
        start += rows;
    }
    writer.into_inner().unwrap()
}

/// The footer of a file of `groups` one-row groups, more than this writer can write; the data of all is that of one.
pub fn many_groups(groups: usize) -> Vec<u8> {
    use parquet::file::metadata::{FileMetaData, ParquetMetaData, ParquetMetaDataReader, ParquetMetaDataWriter};
    let one = bytes::Bytes::from(parquet(0, &[1]));
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&one).unwrap();
    let file = metadata.file_metadata();
    let created_by = file.created_by().map(str::to_owned);
    let file = FileMetaData::new(file.version(), groups as i64, created_by, None, file.schema_descr_ptr(), None);
    let many = ParquetMetaData::new(file, vec![metadata.row_group(0).clone(); groups]);
    let mut bytes = one.to_vec();
    let mut footer = Vec::new();
    ParquetMetaDataWriter::new(&mut footer, &many).finish().unwrap();
    bytes.extend(footer);
    bytes
}

/// A directory of files whose mtimes are long past, so that their tokens are settled.
pub struct Fixture(TempDir);

impl Fixture {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    /// Writes `bytes` at `path` with the mtime 2023-11-14 plus `seconds`.
    pub fn put(&self, path: &str, bytes: &[u8], seconds: u64) {
        std::fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
        std::fs::write(self.at(path), bytes).unwrap();
        self.touch(path, seconds);
    }

    pub fn touch(&self, path: &str, seconds: u64) {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + seconds);
        File::options().write(true).open(self.at(path)).unwrap().set_modified(time).unwrap();
    }

    /// `f0.parquet` and so on, each with `groups`.
    pub fn with_files(files: usize, groups: &[usize]) -> Self {
        let lake = Self::new();
        for i in 0..files {
            lake.put(&format!("f{i}.parquet"), &parquet(1_000 * i as i64, groups), i as u64);
        }
        lake
    }

    pub fn open(&self) -> Lake {
        Lake::open(self.0.path().to_str().unwrap()).unwrap()
    }
}

pub async fn plan(lake: &Lake, live: &Live, policy: SourcePolicy) -> lakemark::Result<SourcePlan> {
    let listing = lake.list().await.unwrap();
    let plan = plan_source(SOURCE, lake, &listing, live, policy).await?;
    check_sum(&plan);
    Ok(plan)
}

/// `listed` adds up.
pub fn check_sum(plan: &SourcePlan) {
    let r = &plan.report;
    let parts = [r.done, r.new, r.replaced, r.moved, r.partly_done, r.forced, r.failed, r.excluded, r.stranded];
    assert_eq!(r.listed, parts.iter().sum::<u64>() + r.unusable.len() as u64, "{r:?}");
}

/// What a worker seals for a part of a file that it read.
pub async fn read_part(lake: &Lake, planned: &PlannedFile, coverage: &Coverage) -> SealedFile {
    let FooterRead::Read(footer) = lake.footer(&planned.file).await.unwrap() else { panic!("{planned:?}") };
    SealedFile {
        source: Arc::clone(&planned.source),
        file: planned.file.clone(),
        coverage: coverage.clone(),
        evidence: footer.evidence(),
        unsettled: planned.unsettled,
    }
}

/// Does `task` and seals it.
pub async fn do_task(run: &Run, lake: &Lake, task: &Task) {
    let id = next(run);
    for part in &task.parts {
        run.stage_keys(id, vec![read_part(lake, &part.planned, &part.coverage).await]).unwrap();
    }
    assert!(run.checkpoint(id, Counts::default()).await.is_ok());
}

/// Closes `run`, none of whose tasks did what was done already.
pub async fn close(run: Run) {
    for checkpoint in run.list_checkpoints().await.unwrap() {
        assert_eq!(checkpoint.state, lakemark::CheckpointState::Checkpointed, "{}", checkpoint.id);
    }
    run.close().await.unwrap();
}

/// Does every planned file whole (or what is left of it), one task each, and records the plan's updates.
pub async fn do_plan(run: &Run, lake: &Lake, plan: &SourcePlan) {
    run.update_files(SOURCE, plan.updates.clone()).await.unwrap();
    for file in &plan.files {
        let part = lakemark::TaskPart { planned: Arc::new(file.clone()), coverage: file.left.clone() };
        do_task(run, lake, &Task { parts: vec![part], ..Task::default() }).await;
    }
}

/// The rows of `coverage` in a file whose groups have `group_rows` rows.
pub fn rows_of(coverage: &Coverage, group_rows: &[u64]) -> BTreeSet<(u32, u64)> {
    let mut rows = BTreeSet::new();
    for (g, &n) in group_rows.iter().enumerate() {
        for row in 0..n {
            let has = match coverage {
                Coverage::Whole => true,
                Coverage::Groups { full, partial } => {
                    full.contains(g as u64) || partial.get(&(g as u32)).is_some_and(|rows| rows.contains(row))
                }
            };
            if has {
                rows.insert((g as u32, row));
            }
        }
    }
    rows
}
