//! The lake, and what it truly held: every version of every file that ever was, with its rows.
//!
//! A row is a number that no other content has. The pipeline drops some rows and makes two of others, so that a row that
//! is lost, and one that is there twice, are both seen.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use bytes::Bytes;
use lakemark::{Coverage, FileVersion};
use parquet::arrow::ArrowWriter;

use crate::chance::Chance;
use crate::objects::LAKE;
use crate::world::{World, lock};

/// The rows of one content, in row groups. Text has one group, whatever it holds.
#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) groups: Vec<Vec<i64>>,
    bytes: Bytes,
}

/// Every version there ever was.
#[derive(Debug, Default)]
pub(crate) struct Truth {
    next_row: i64,
    /// By path and token.
    versions: BTreeMap<(String, String), Arc<Content>>,
    /// What is at each path now.
    now: BTreeMap<String, Arc<Content>>,
    /// All that was ever at a path, oldest first.
    history: BTreeMap<String, Vec<Arc<Content>>>,
}

/// What comes out of one row.
pub(crate) fn map(row: i64) -> Vec<String> {
    (0..row.rem_euclid(3)).map(|k| format!("{row}.{k}")).collect()
}

impl Content {
    fn new(groups: Vec<Vec<i64>>, parquet: bool) -> Self {
        let bytes = if parquet { as_parquet(&groups) } else { as_text(&groups) };
        Self { groups, bytes }
    }

    /// The rows that `coverage` names.
    pub(crate) fn rows(&self, coverage: &Coverage) -> Vec<i64> {
        let mut rows = Vec::new();
        for (g, group) in self.groups.iter().enumerate() {
            let chosen = |r: usize| match coverage {
                Coverage::Whole => true,
                Coverage::Groups { full, partial } => {
                    full.contains(g as u64) || partial.get(&(g as u32)).is_some_and(|rows| rows.contains(r as u64))
                }
            };
            rows.extend(group.iter().enumerate().filter(|(r, _)| chosen(*r)).map(|(_, row)| *row));
        }
        rows
    }
}

fn as_text(groups: &[Vec<i64>]) -> Bytes {
    groups.iter().flatten().map(|row| format!("{row}\n")).collect::<String>().into()
}

fn as_parquet(groups: &[Vec<i64>]) -> Bytes {
    let batch = |rows: &Vec<i64>| {
        let column: ArrayRef = Arc::new(Int64Array::from(rows.clone()));
        RecordBatch::try_from_iter([("row", column)]).expect("one column is a batch")
    };
    let batches: Vec<RecordBatch> = groups.iter().map(batch).collect();
    let mut writer = ArrowWriter::try_new(Vec::new(), batches[0].schema(), None).expect("the schema can be written");
    for batch in &batches {
        writer.write(batch).expect("memory takes all");
        writer.flush().expect("memory takes all");
    }
    writer.into_inner().expect("memory takes all").into()
}

fn token(file: &FileVersion) -> String {
    match (&file.etag, file.mtime) {
        (Some(etag), _) => etag.trim_matches('"').to_owned(),
        (None, mtime) => mtime.unwrap_or(0).to_string(),
    }
}

impl Truth {
    fn fresh(&mut self, chance: &mut Chance, parquet: bool) -> Arc<Content> {
        let groups = if parquet { chance.between(1..4) } else { 1 };
        let mut group = || {
            let rows = chance.between(1..5) as i64;
            let first = self.next_row;
            self.next_row += rows;
            (first..first + rows).collect()
        };
        Arc::new(Content::new((0..groups).map(|_| group()).collect(), parquet))
    }

    /// The content of one version; `None`: it never was.
    pub(crate) fn content(&self, file: &FileVersion) -> Option<&Arc<Content>> {
        self.versions.get(&(file.path.to_string(), token(file)))
    }

    /// How many versions ever had each row: no more often may it have been done.
    pub(crate) fn row_versions(&self) -> BTreeMap<i64, u64> {
        let mut count = BTreeMap::new();
        for content in self.versions.values() {
            content.groups.iter().flatten().for_each(|row| *count.entry(*row).or_default() += 1);
        }
        count
    }

    /// The rows that are in the lake now.
    pub(crate) fn present(&self) -> Vec<i64> {
        self.now.values().flat_map(|content| content.groups.iter().flatten().copied()).collect()
    }
}

/// The writer of the lake: adds, replaces, touches, restores and deletes files, at any time.
pub(crate) struct LakeWriter {
    world: World,
    chance: Chance,
    paths: u64,
}

impl LakeWriter {
    pub(crate) fn new(world: &World) -> Self {
        Self { world: world.clone(), chance: world.chance("lake"), paths: 0 }
    }

    /// The files that are there before anything begins.
    pub(crate) fn fill(&mut self) {
        for _ in 0..self.world.scenario.files {
            self.add();
        }
    }

    /// Changes one thing now and then, until `chaos` is over.
    pub(crate) async fn write(mut self) {
        let chaos = self.world.scenario.chaos;
        // Most lakes change little, some all the time.
        let pause = *self.chance.pick(&[1_500, 4_000, 15_000, 60_000]);
        loop {
            let pause = self.chance.between(1..pause * 2);
            tokio::time::sleep(std::time::Duration::from_millis(pause)).await;
            if self.world.trace.elapsed() > chaos {
                return;
            }
            match self.chance.between(0..10) {
                0..3 => self.add(),
                3..6 => self.replace(),
                6..8 => self.rewrite(),
                _ => self.delete(),
            }
        }
    }

    fn any_path(&mut self) -> Option<String> {
        let truth = lock(&self.world.truth);
        let paths: Vec<String> = truth.now.keys().cloned().collect();
        drop(truth);
        (!paths.is_empty()).then(|| self.chance.pick(&paths).clone())
    }

    fn add(&mut self) {
        let folder = if self.chance.percent(30) { "d=1/" } else { "" };
        let path = format!("{folder}f{}", self.paths);
        self.paths += 1;
        self.put_fresh(&path);
    }

    fn replace(&mut self) {
        if let Some(path) = self.any_path() {
            self.put_fresh(&path);
        }
    }

    fn put_fresh(&mut self, path: &str) {
        let content = lock(&self.world.truth).fresh(&mut self.chance, self.world.scenario.parquet);
        self.put(path, content);
    }

    /// Writes a content again that the path had before, perhaps what it has now: a copy, a restore.
    fn rewrite(&mut self) {
        let history: Vec<(String, Arc<Content>)> = {
            let truth = lock(&self.world.truth);
            let all =
                truth.history.iter().flat_map(|(path, all)| all.iter().map(move |c| (path.clone(), Arc::clone(c))));
            all.collect()
        };
        if !history.is_empty() {
            let (path, content) = self.chance.pick(&history).clone();
            self.put(&path, content);
        }
    }

    fn put(&mut self, path: &str, content: Arc<Content>) {
        let key = format!("{LAKE}/{path}");
        let bytes = content.bytes.clone();
        let meta = self
            .world
            .with_objects("lake", |objects| objects.put("lake", &key, bytes, false).and_then(|_| objects.meta(&key)));
        let meta = meta.expect("an object that was put is there");
        let etag = meta.e_tag.as_deref().map(|etag| etag.trim_matches('"').to_owned());
        let token = etag.unwrap_or_else(|| meta.last_modified.timestamp_nanos_opt().unwrap_or(0).to_string());
        self.world.say("lake", format_args!("wrote {path} as {token}"));
        let mut truth = lock(&self.world.truth);
        truth.versions.insert((path.to_owned(), token), Arc::clone(&content));
        truth.now.insert(path.to_owned(), Arc::clone(&content));
        truth.history.entry(path.to_owned()).or_default().push(content);
    }

    fn delete(&mut self) {
        let Some(path) = self.any_path() else { return };
        self.world.with_objects("lake", |objects| objects.delete(&format!("{LAKE}/{path}")));
        self.world.say("lake", format_args!("deleted {path}"));
        lock(&self.world.truth).now.remove(&path);
    }
}
