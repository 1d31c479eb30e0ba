//! A table in memory, whose log is a list: the reference for the contract, and the destination of the core's own tests.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_schema::Schema;
use async_trait::async_trait;
use parquet::file::metadata::ParquetMetaData;

use super::contract::TableSubject;
use super::{Attempted, History, Marker, Table, TableCommit};
use crate::error::{Error, Result};
use crate::identity::{AttemptNonce, Root, StoreId};
use crate::store::{OutputFile, TableState};

/// A table whose log is a list of versions. Clones are the same table, as other processes see it.
#[derive(Debug, Clone)]
pub struct MemoryTable {
    root: Root,
    partition_by: Vec<String>,
    log: Arc<Mutex<Log>>,
}

#[derive(Debug, Default)]
struct Log {
    /// `None`: there is no table.
    id: Option<String>,
    versions: Vec<Entry>,
    /// Versions below this one cannot be read any more; the state of the newest can.
    readable_from: u64,
}

#[derive(Debug, Clone, Default)]
struct Entry {
    marker: Option<(StoreId, u64, String)>,
    live: BTreeSet<String>,
    restored: Option<u64>,
}

/// One version of it.
#[derive(Debug)]
pub struct MemoryBase {
    id: String,
    version: u64,
}

impl MemoryTable {
    /// A table at `root` that is not there yet.
    pub fn new(root: Root) -> Self {
        Self { root, partition_by: Vec::new(), log: Arc::default() }
    }

    /// Puts an older copy of the table in its place, which ends with `version`; `None`: drops it.
    pub fn put_back(&self, version: Option<u64>) {
        let mut log = self.log();
        match version {
            Some(version) => log.versions.truncate(version as usize + 1),
            None => *log = Log::default(),
        }
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut BTreeSet<String>)) {
        let mut log = self.log();
        let mut live = log.versions.last().map(|entry| entry.live.clone()).unwrap_or_default();
        change(&mut live);
        log.id.get_or_insert_with(|| AttemptNonce::random().to_string());
        log.versions.push(Entry { live, ..Entry::default() });
    }
}

#[async_trait]
impl Table for MemoryTable {
    type Base = MemoryBase;

    fn kind(&self) -> &str {
        "memory"
    }

    fn root(&self) -> &Root {
        &self.root
    }

    fn partition_by(&self) -> &[String] {
        &self.partition_by
    }

    fn partitioned(&self, columns: &[String]) -> Self {
        Self { partition_by: columns.to_vec(), ..self.clone() }
    }

    fn storable(&self, schema: &Schema) -> Result<Schema> {
        Ok(schema.clone())
    }

    async fn of_rows(&self, _schema: &Schema) -> Result<Self> {
        Ok(self.clone())
    }

    fn check_fits(&self, _base: &MemoryBase) -> Result<()> {
        Ok(())
    }

    async fn check_files(&self, _base: Option<&MemoryBase>, _files: &[OutputFile]) -> Result<()> {
        Ok(())
    }

    fn can_remove(&self) -> bool {
        true
    }

    async fn check_removable(&self, base: Option<&MemoryBase>, files: &[OutputFile]) -> Result<()> {
        let log = self.log();
        let live = base.and_then(|base| log.versions.get(base.version as usize)).map(|entry| &entry.live);
        match files.iter().find(|file| live.is_none_or(|live| !live.contains(&file.path()))) {
            Some(file) => Err(Error::refused(format!("{} is not in the table any more", file.path()))),
            None => Ok(()),
        }
    }

    fn wrote(&self, _output: &OutputFile, _metadata: &ParquetMetaData) {}

    async fn load(&self) -> Result<Option<MemoryBase>> {
        let log = self.log();
        let version = log.versions.len() as u64;
        Ok(log.id.clone().map(|id| MemoryBase { id, version: version - 1 }))
    }

    fn state(&self, base: &MemoryBase) -> TableState {
        TableState { id: base.id.clone(), version: base.version, schema: String::new(), last: None }
    }

    async fn last_marker(&self, base: &MemoryBase, store: StoreId) -> Result<Option<u64>> {
        let log = self.log();
        let seen = &log.versions[..=base.version as usize];
        Ok(seen.iter().filter_map(|entry| entry.marker.as_ref()).filter(|m| m.0 == store).map(|m| m.1).max())
    }

    async fn other_store(&self, base: &MemoryBase, store: Option<StoreId>) -> Result<Option<StoreId>> {
        let log = self.log();
        let seen = &log.versions[..=base.version as usize];
        let other = seen.iter().filter_map(|entry| entry.marker.as_ref()).find(|marker| Some(marker.0) != store);
        Ok(other.map(|marker| marker.0))
    }

    async fn history(&self, base: &MemoryBase, since: Option<u64>, store: StoreId) -> Result<History> {
        let log = self.log();
        let first = since.map_or(0, |since| since + 1);
        let mut history = History { gap: (first < log.readable_from).then_some(first), ..History::default() };
        for version in first.max(log.readable_from)..=base.version {
            let entry = &log.versions[version as usize];
            if let Some((_, n, digest)) = entry.marker.as_ref().filter(|marker| marker.0 == store) {
                history.markers.push(Marker { n: *n, digest: digest.clone(), version });
            }
            if let Some(to) = entry.restored.filter(|to| since.is_some_and(|since| *to < since)) {
                history.rolled_back = Some(format!("version {version} restored version {to}"));
            }
        }
        Ok(history)
    }

    async fn live(&self, base: &MemoryBase, paths: &[String]) -> Result<usize> {
        let log = self.log();
        let live = &log.versions[base.version as usize].live;
        Ok(paths.iter().filter(|path| live.contains(*path)).count())
    }

    async fn is_empty(&self, base: &MemoryBase) -> Result<bool> {
        Ok(self.log().versions[base.version as usize].live.is_empty())
    }

    async fn append(&self, base: Option<&MemoryBase>, commit: &TableCommit<'_>) -> Result<Attempted> {
        let mut log = self.log();
        let next = base.map_or(0, |base| base.version + 1);
        if log.versions.len() as u64 != next || base.is_some_and(|base| log.id.as_ref() != Some(&base.id)) {
            return Ok(Attempted::Conflict);
        }
        let mut live = log.versions.last().map(|entry| entry.live.clone()).unwrap_or_default();
        for file in commit.leaving {
            live.remove(&file.path());
        }
        live.extend(commit.files.iter().map(OutputFile::path));
        let marker = Some((commit.store, commit.n, commit.digest.to_owned()));
        log.versions.push(Entry { marker, live, restored: None });
        let id = log.id.get_or_insert_with(|| AttemptNonce::random().to_string()).clone();
        Ok(Attempted::Landed(self.state(&MemoryBase { id, version: next })))
    }
}

#[async_trait]
impl TableSubject for MemoryTable {
    type Table = Self;

    fn open(&self) -> Self {
        self.clone()
    }

    async fn live_paths(&self) -> Vec<String> {
        self.log().versions.last().map(|entry| entry.live.iter().cloned().collect()).unwrap_or_default()
    }

    async fn foreign_append(&self) {
        let name = format!("foreign-{}.parquet", AttemptNonce::random());
        self.change(|live| {
            live.insert(name);
        });
    }

    async fn compact(&self) {
        let name = format!("compacted-{}.parquet", AttemptNonce::random());
        self.change(|live| {
            live.clear();
            live.insert(name);
        });
    }

    async fn clean_log(&self) {
        let mut log = self.log();
        log.readable_from = log.versions.len() as u64;
    }

    async fn restore(&self, version: u64) {
        let mut log = self.log();
        let live = log.versions[version as usize].live.clone();
        log.versions.push(Entry { marker: None, live, restored: Some(version) });
    }

    async fn recreate(&self) {
        let mut log = self.log();
        *log = Log { id: Some(AttemptNonce::random().to_string()), versions: vec![Entry::default()], readable_from: 0 };
    }
}
