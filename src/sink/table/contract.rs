//! The contract of a [`Table`] behind its [`CommitDriver`], as a test suite that every table format runs; and the faults of
//! a log or catalog that it is run with.
#![allow(clippy::unwrap_used, reason = "a broken contract is to panic")]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arrow_schema::Schema;
use async_trait::async_trait;
use parquet::file::metadata::ParquetMetaData;
use tokio::sync::Notify;

use super::{Attempted, CommitDriver, DataFiles, History, SchemaMode, Table, TableCommit, WriteRows};
use crate::error::{Error, ErrorKind, Result};
use crate::identity::{AttemptNonce, CheckpointId, Epoch, InputId, Root, StoreId};
use crate::sink::{Holder, Intent, OutputSink, Settled, Sink};
use crate::store::{Expected, OutputFile, TableState, output_name};

/// What happens to one attempt to commit.
#[derive(Debug, Clone)]
pub enum TableFault {
    /// It is done, and the answer is lost.
    Unanswered,
    /// It is not done, and the answer is lost.
    Lost,
    /// Somebody else commits just before it.
    Overtaken,
    /// It waits inside the call until it is let go.
    Stalled(Arc<Stall>),
}

/// A call that waits.
#[derive(Debug, Default)]
pub struct Stall {
    arrived: Notify,
    go: Notify,
}

impl Stall {
    /// The call: says that it is there, and waits.
    pub(in crate::sink) async fn stop(&self) {
        self.arrived.notify_one();
        self.go.notified().await;
    }

    /// Waits until the call is there.
    pub async fn arrived(&self) {
        self.arrived.notified().await;
    }

    /// Lets it go.
    pub fn release(&self) {
        self.go.notify_one();
    }
}

/// What the suite does to a table behind the back of its driver.
#[async_trait]
pub trait TableSubject: Send + Sync {
    /// The table.
    type Table: Table;

    /// The table, as a further process opens it.
    fn open(&self) -> Self::Table;

    /// The paths of all live files, below the root, sorted.
    async fn live_paths(&self) -> Vec<String>;

    /// Somebody else appends a file; makes the table if there is none.
    async fn foreign_append(&self);

    /// Somebody else writes all live rows into one new file.
    async fn compact(&self);

    /// The log is cleaned up to the newest version, whose state can still be read.
    async fn clean_log(&self);

    /// The table is taken back to `version`, by a new version.
    async fn restore(&self, version: u64);

    /// The table is dropped, and made anew without files.
    async fn recreate(&self);
}

/// A table whose next attempts to commit meet faults.
#[derive(Debug)]
pub struct FaultyTable<S: TableSubject> {
    table: S::Table,
    subject: Arc<S>,
    faults: Arc<Mutex<VecDeque<TableFault>>>,
}

impl<S: TableSubject> Clone for FaultyTable<S> {
    fn clone(&self) -> Self {
        self.with(self.table.clone())
    }
}

impl<S: TableSubject> FaultyTable<S> {
    fn new(subject: &Arc<S>, faults: impl IntoIterator<Item = TableFault>) -> Self {
        let faults = Arc::new(Mutex::new(faults.into_iter().collect()));
        Self { table: subject.open(), subject: Arc::clone(subject), faults }
    }

    fn with(&self, table: S::Table) -> Self {
        Self { table, subject: Arc::clone(&self.subject), faults: Arc::clone(&self.faults) }
    }

    fn next(&self) -> Option<TableFault> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

#[async_trait]
impl<S: TableSubject + std::fmt::Debug + 'static> Table for FaultyTable<S> {
    type Base = <S::Table as Table>::Base;

    fn kind(&self) -> &str {
        self.table.kind()
    }

    fn root(&self) -> &Root {
        self.table.root()
    }

    fn name(&self) -> String {
        self.table.name()
    }

    fn partition_by(&self) -> &[String] {
        self.table.partition_by()
    }

    fn partitioned(&self, columns: &[String]) -> Self {
        self.with(self.table.partitioned(columns))
    }

    fn schema_mode(&self) -> SchemaMode {
        self.table.schema_mode()
    }

    fn storable(&self, schema: &Schema) -> Result<Schema> {
        self.table.storable(schema)
    }

    async fn of_rows(&self, schema: &Schema) -> Result<Self> {
        Ok(self.with(self.table.of_rows(schema).await?))
    }

    fn has_empty_partition(&self) -> bool {
        self.table.has_empty_partition()
    }

    fn check_fits(&self, base: &Self::Base) -> Result<()> {
        self.table.check_fits(base)
    }

    async fn check_files(&self, base: Option<&Self::Base>, files: &[OutputFile]) -> Result<()> {
        self.table.check_files(base, files).await
    }

    fn can_remove(&self) -> bool {
        self.table.can_remove()
    }

    async fn check_removable(&self, base: Option<&Self::Base>, files: &[OutputFile]) -> Result<()> {
        self.table.check_removable(base, files).await
    }

    fn wrote(&self, output: &OutputFile, metadata: &ParquetMetaData) {
        self.table.wrote(output, metadata);
    }

    async fn load(&self) -> Result<Option<Self::Base>> {
        self.table.load().await
    }

    fn state(&self, base: &Self::Base) -> TableState {
        self.table.state(base)
    }

    async fn last_marker(&self, base: &Self::Base, store: StoreId) -> Result<Option<u64>> {
        self.table.last_marker(base, store).await
    }

    async fn other_store(&self, base: &Self::Base, store: Option<StoreId>) -> Result<Option<StoreId>> {
        self.table.other_store(base, store).await
    }

    async fn history(&self, base: &Self::Base, since: Option<u64>, store: StoreId) -> Result<History> {
        self.table.history(base, since, store).await
    }

    async fn live(&self, base: &Self::Base, paths: &[String]) -> Result<usize> {
        self.table.live(base, paths).await
    }

    async fn is_empty(&self, base: &Self::Base) -> Result<bool> {
        self.table.is_empty(base).await
    }

    async fn append(&self, base: Option<&Self::Base>, commit: &TableCommit<'_>) -> Result<Attempted> {
        let lost = || Ok(Attempted::Unknown(Error::new(ErrorKind::Indeterminate, "the answer was lost")));
        match self.next() {
            Some(TableFault::Lost) => return lost(),
            Some(TableFault::Unanswered) => {
                let attempted = self.table.append(base, commit).await?;
                assert!(matches!(attempted, Attempted::Landed(_)), "the fault fired on {attempted:?}");
                return lost();
            }
            Some(TableFault::Overtaken) => self.subject.foreign_append().await,
            Some(TableFault::Stalled(stall)) => {
                stall.stop().await;
            }
            None => {}
        }
        self.table.append(base, commit).await
    }
}

/// A holder that can be fenced.
#[derive(Debug, Default)]
struct TestHolder(AtomicBool);

#[async_trait]
impl Holder for TestHolder {
    async fn check(&self) -> Result<()> {
        match self.0.load(Ordering::SeqCst) {
            true => Err(Error::new(ErrorKind::Fenced, "fenced")),
            false => Ok(()),
        }
    }
}

type Driver<S> = CommitDriver<FaultyTable<S>>;

/// One table with its store's side.
struct Scene<S: TableSubject> {
    subject: Arc<S>,
    files: DataFiles,
    schema: Arc<Schema>,
    store: StoreId,
    holder: TestHolder,
    write: WriteRows,
    merging: Option<WriteRows>,
}

impl<S: TableSubject + std::fmt::Debug + 'static> Scene<S> {
    async fn driver(&self, faults: impl IntoIterator<Item = TableFault>) -> Driver<S> {
        let table = FaultyTable::<S>::new(&self.subject, faults).of_rows(&self.schema).await.unwrap();
        CommitDriver::new(table, self.files.clone()).with_pause(Duration::ZERO)
    }

    /// Two files that wait.
    async fn staged(&self) -> Vec<OutputFile> {
        let driver = self.driver([]).await;
        // What comes after the first commit brings a column along.
        let is_there = driver.table().load().await.unwrap().is_some();
        let write = self.merging.filter(|_| is_there).unwrap_or(self.write);
        let mut outputs = Vec::new();
        for part in 0..2 {
            let id = CheckpointId::first(Epoch(1), InputId(part));
            let name = output_name(&self.store.short(), id, AttemptNonce::random(), part, "parquet");
            let mut file = driver.stage(&name, "").await.unwrap();
            write(&mut file);
            let (size, upload) = file.finish().await.unwrap();
            assert_eq!(upload, None, "a file of a table is where it stays");
            outputs.push(OutputFile { name, folder: String::new(), size, rows: 3, upload });
        }
        driver.sync().await.unwrap();
        outputs
    }

    fn intent<'a>(&'a self, n: u64, base: Option<&'a TableState>, files: &'a [OutputFile]) -> Intent<'a> {
        let digest = if n == 1 { "first" } else { "next" };
        let (store, holder) = (self.store, &self.holder);
        Intent { store, n, digest, base, unbound: false, files, leaving: &[], recovered: false, holder }
    }

    async fn expect_live(&self, wanted: &[OutputFile], foreign: usize, what: &str) {
        let live = self.subject.live_paths().await;
        let mut twice = live.clone();
        twice.dedup();
        assert_eq!(live, twice, "{what}: a file is live twice");
        for file in wanted {
            assert!(live.contains(&file.path()), "{what}: {} is not live in {live:?}", file.name);
        }
        assert_eq!(live.len(), wanted.len() + foreign, "{what}: {live:?}");
    }

    fn expected(&self, table: &TableState, last: u64, committed: &[OutputFile]) -> Expected {
        Expected {
            store: self.store,
            last_commit: last,
            committed: committed.to_vec(),
            open: Vec::new(),
            intent: None,
            table: Some(table.clone()),
        }
    }

    /// A first commit that landed.
    async fn committed(&self) -> (Vec<OutputFile>, TableState) {
        let files = self.staged().await;
        let settled = self.driver([]).await.commit(&self.intent(1, None, &files)).await.unwrap();
        (files, done(settled))
    }
}

fn done(settled: Settled) -> TableState {
    match settled {
        Settled::Done { missing, table: Some(table) } if missing.is_empty() => table,
        other => panic!("not done: {other:?}"),
    }
}

/// Gives the suite tables.
pub struct TableContract<S> {
    /// A table that is not there yet, and its files.
    pub fresh: Box<dyn Fn() -> (S, DataFiles)>,
    /// The rows of its files.
    pub schema: Arc<Schema>,
    /// Writes a file of three such rows.
    pub write: WriteRows,
    /// Writes one with a column more, which says that its table may get it: all commits but the first of each scene are of
    /// such files, by drivers whose own rows lack the column.
    pub merging: Option<WriteRows>,
    /// Whether a marker is known for ever, log or not.
    pub keeps_markers: bool,
}

/// Runs the whole suite.
///
/// # Panics
/// When the contract is broken, naming the clause.
pub async fn check<S: TableSubject + std::fmt::Debug + 'static>(contract: &TableContract<S>) {
    let scene = || {
        let (subject, files) = (contract.fresh)();
        Scene {
            subject: Arc::new(subject),
            files,
            schema: Arc::clone(&contract.schema),
            store: StoreId::random(),
            holder: TestHolder::default(),
            write: contract.write,
            merging: contract.merging,
        }
    };
    commits_once(&scene()).await;
    for overtaken in 0..3 {
        lost_answers(&scene(), overtaken).await;
    }
    after_foreign_commits(&scene()).await;
    after_maintenance(scene, contract.keeps_markers).await;
    gives_up_behind_a_barrier(&scene(), &scene()).await;
    stalled_predecessors(scene).await;
    takes_out_what_it_replaces(scene).await;
    two_first_commits(&scene()).await;
    is_the_same_table(scene).await;
}

async fn commits_once<S: TableSubject + std::fmt::Debug + 'static>(scene: &Scene<S>) {
    let driver = scene.driver([]).await;
    assert_eq!(driver.table().load().await.unwrap().map(drop), None, "there is no table yet");
    driver.check(None).await.unwrap();
    let files = scene.staged().await;
    assert_eq!(driver.table().load().await.unwrap().map(drop), None, "staged files make no table");
    scene.holder.0.store(true, Ordering::SeqCst);
    let error = driver.commit(&scene.intent(1, None, &files)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced, "who is fenced commits nothing");
    scene.expect_live(&[], 0, "who is fenced commits nothing").await;
    scene.holder.0.store(false, Ordering::SeqCst);
    let table = done(driver.commit(&scene.intent(1, None, &files)).await.unwrap());
    scene.expect_live(&files, 0, "the first commit makes the table").await;
    let again = Intent { recovered: true, ..scene.intent(1, None, &files) };
    assert_eq!(done(scene.driver([]).await.commit(&again).await.unwrap()), table, "recovery finds it");
    let more = scene.staged().await;
    let next = done(driver.commit(&scene.intent(2, Some(&table), &more)).await.unwrap());
    assert!(next.version > table.version && next.id == table.id);
    assert_eq!(next.schema != table.schema, scene.merging.is_some(), "a column more is another schema");
    let last = scene.staged().await;
    let third = done(driver.commit(&scene.intent(3, Some(&next), &last)).await.unwrap());
    assert_eq!(third.schema, next.schema, "what is there is not added again");
    let (more, next) = ([more, last].concat(), third);
    let all: Vec<OutputFile> = files.iter().chain(&more).cloned().collect();
    scene.expect_live(&all, 0, "the next commits add").await;
    driver.check(Some(&scene.expected(&next, 3, &all))).await.unwrap();
    let error = driver.check(Some(&scene.expected(&next, 1, &files))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "the store is older than its table (R63): {error}");
}

/// R59, R60, R61, R76.
async fn lost_answers<S: TableSubject + std::fmt::Debug + 'static>(scene: &Scene<S>, overtaken: usize) {
    let mut committed = Vec::new();
    let (mut table, mut foreign) = (None, 0);
    for (n, fault) in [TableFault::Unanswered, TableFault::Lost].into_iter().enumerate() {
        let files = scene.staged().await;
        let mut faults = vec![TableFault::Overtaken; overtaken];
        faults.push(fault);
        let driver = scene.driver(faults).await;
        let intent = scene.intent(n as u64 + 1, table.as_ref(), &files);
        table = Some(done(driver.commit(&intent).await.unwrap()));
        assert!(driver.table().next().is_none(), "every fault fired");
        committed.extend(files);
        foreign += overtaken;
        scene.expect_live(&committed, foreign, "an answer that was lost").await;
    }
    let always = vec![TableFault::Lost; 9];
    let files = scene.staged().await;
    let error = scene.driver(always).await.commit(&scene.intent(3, table.as_ref(), &files)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate, "no answer at all is an error");
    scene.expect_live(&committed, foreign, "no answer at all").await;
}

/// R67.
async fn after_foreign_commits<S: TableSubject + std::fmt::Debug + 'static>(scene: &Scene<S>) {
    let (files, table) = scene.committed().await;
    for _ in 0..25 {
        scene.subject.foreign_append().await;
    }
    let again = Intent { recovered: true, ..scene.intent(1, None, &files) };
    assert_eq!(done(scene.driver([]).await.commit(&again).await.unwrap()), table, "found behind 25 foreign commits");
    scene.expect_live(&files, 25, "found behind 25 foreign commits").await;
    scene.driver([]).await.check(Some(&scene.expected(&table, 1, &files))).await.unwrap();
}

async fn after_maintenance<S: TableSubject + std::fmt::Debug + 'static>(scene: impl Fn() -> Scene<S>, keeps: bool) {
    for (compacted, cleaned) in [(true, false), (false, true), (true, true)] {
        let what = format!("compacted: {compacted}, log cleaned: {cleaned}");
        let scene = scene();
        let (_, first) = scene.committed().await;
        let files = scene.staged().await;
        let second = done(scene.driver([]).await.commit(&scene.intent(2, Some(&first), &files)).await.unwrap());
        if compacted {
            scene.subject.compact().await;
        }
        if cleaned {
            scene.subject.foreign_append().await;
            scene.subject.clean_log().await;
        }
        let before = scene.subject.live_paths().await;
        let again = Intent { recovered: true, ..scene.intent(2, Some(&first), &files) };
        let recovered = scene.driver([]).await.commit(&again).await;
        if compacted && cleaned && !keeps {
            let error = recovered.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::CannotDecide, "{what}: {error}");
        } else {
            let table = done(recovered.unwrap());
            assert!(table.version >= second.version, "{what}");
        }
        assert_eq!(scene.subject.live_paths().await, before, "{what}: never a blind append");
    }
}

async fn gives_up_behind_a_barrier<S: TableSubject + std::fmt::Debug + 'static>(new: &Scene<S>, old: &Scene<S>) {
    let (_, base) = old.committed().await;
    for (scene, base, n, live) in [(new, None, 1, 0), (old, Some(&base), 2, 2)] {
        let mut files = scene.staged().await;
        // Of another size: as a file that was cut.
        files[1].size += 1;
        let intent = Intent { recovered: true, ..scene.intent(n, base, &files) };
        let Settled::Void { unfit, table: Some(table) } = scene.driver([]).await.commit(&intent).await.unwrap() else {
            panic!("an intent with an unfit file is given up");
        };
        assert_eq!(unfit, [files[1].name.clone()], "exactly what is unfit");
        scene.expect_live(&[], live, "a barrier adds nothing").await;
        // A predecessor that saw nothing wrong, or the same one after a crash, finds the barrier.
        let whole = scene.staged().await;
        let late = Intent { recovered: true, ..scene.intent(n, base, &whole) };
        let again = scene.driver([]).await.commit(&late).await.unwrap();
        assert!(matches!(again, Settled::Void { unfit, .. } if unfit.is_empty()), "void stays void");
        scene.expect_live(&[], live, "void stays void").await;
        let next = done(scene.driver([]).await.commit(&scene.intent(n + 1, Some(&table), &whole)).await.unwrap());
        assert!(next.version > table.version);
        scene.expect_live(&whole, live, "the next number commits").await;
    }
}

/// A table that was not there when the commit was decided, and that somebody else has made and filled since.
async fn two_first_commits<S: TableSubject + std::fmt::Debug + 'static>(scene: &Scene<S>) {
    let files = scene.staged().await;
    let (other, theirs) = (StoreId::random(), scene.staged().await);
    let intent = Intent { unbound: true, ..scene.intent(1, None, &files) };
    let faster = Intent { store: other, ..Intent { files: &theirs, ..intent } };
    let stall = Arc::new(Stall::default());
    let stalled = scene.driver([TableFault::Stalled(Arc::clone(&stall))]).await;
    let overtake = async {
        stall.arrived().await;
        done(scene.driver([]).await.commit(&faster).await.unwrap());
        stall.release();
    };
    let (late, ()) = tokio::join!(stalled.commit(&intent), overtake);
    let error = late.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(error.to_string().contains(&other.to_string()), "the other store is named: {error}");
    scene.expect_live(&theirs, 0, "one store fills it").await;
    // A person says that both are to write to it.
    done(scene.driver([]).await.commit(&Intent { unbound: false, recovered: true, ..intent }).await.unwrap());
}

/// Files that leave with those that enter: in one version, only as they were written, and never twice.
async fn takes_out_what_it_replaces<S: TableSubject + std::fmt::Debug + 'static>(scene: impl Fn() -> Scene<S>) {
    let what = "one set for another";
    let whole = scene();
    let (old, first) = whole.committed().await;
    let new = whole.staged().await;
    let driver = whole.driver([]).await;
    if !driver.table().can_remove() {
        let refused = driver.base(&whole.expected(&first, 1, &old), &new, &old).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
        return;
    }
    driver.base(&whole.expected(&first, 1, &old), &new, &old).await.unwrap();
    for fault in [None, Some(TableFault::Unanswered), Some(TableFault::Overtaken)] {
        let foreign = usize::from(matches!(fault, Some(TableFault::Overtaken)));
        let scene = scene();
        let (old, first) = scene.committed().await;
        let new = scene.staged().await;
        let intent = Intent { leaving: &old, ..scene.intent(2, Some(&first), &new) };
        let second = done(scene.driver(fault).await.commit(&intent).await.unwrap());
        scene.expect_live(&new, foreign, what).await;
        let again = Intent { recovered: true, ..intent };
        let found = done(scene.driver([]).await.commit(&again).await.unwrap());
        assert_eq!((found.version, found.last), (second.version, Some(2)), "{what}: recovery finds it");
        // Only old ones: nothing enters.
        let last = Intent { files: &[], leaving: &new, ..scene.intent(3, Some(&second), &[]) };
        done(scene.driver([]).await.commit(&last).await.unwrap());
        scene.expect_live(&[], foreign, "the last of it leaves").await;
    }

    // Others moved the old rows, before it was decided or after.
    whole.subject.compact().await;
    let error = driver.base(&whole.expected(&first, 1, &old), &new, &old).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    let before = whole.subject.live_paths().await;
    let intent = Intent { leaving: &old, ..whole.intent(2, Some(&first), &new) };
    let settled = driver.commit(&intent).await.unwrap();
    assert!(matches!(settled, Settled::Void { ref unfit, .. } if unfit.is_empty()), "given up: {settled:?}");
    assert_eq!(whole.subject.live_paths().await, before, "neither enters nor leaves");
}

/// A driver that waits inside its catalog call while its successor recovers, in both orders.
async fn stalled_predecessors<S: TableSubject + std::fmt::Debug + 'static>(scene: impl Fn() -> Scene<S>) {
    for is_new in [true, false] {
        for gives_up in [true, false] {
            for wakes_first in [true, false] {
                let what = format!("new table: {is_new}, given up: {gives_up}, predecessor first: {wakes_first}");
                let scene = scene();
                let base = if is_new { None } else { Some(scene.committed().await.1) };
                let (n, live) = if is_new { (1, 0) } else { (2, 2) };
                let files = scene.staged().await;
                let stall = Arc::new(Stall::default());
                let stalled = scene.driver([TableFault::Stalled(Arc::clone(&stall))]).await;
                let fenced = TestHolder::default();
                let old = Intent { holder: &fenced, ..scene.intent(n, base.as_ref(), &files) };
                let mut seen = files.clone();
                seen[1].size += u64::from(gives_up);
                let new = Intent { recovered: true, ..scene.intent(n, base.as_ref(), &seen) };
                let recover = async {
                    stall.arrived().await;
                    fenced.0.store(true, Ordering::SeqCst);
                    if wakes_first {
                        stall.release();
                        while scene.subject.live_paths().await.len() < live + 2 {
                            tokio::time::sleep(Duration::from_millis(1)).await;
                        }
                    }
                    let settled = scene.driver([]).await.commit(&new).await.unwrap();
                    stall.release();
                    settled
                };
                let (old, new) = tokio::join!(stalled.commit(&old), recover);
                if wakes_first {
                    done(old.unwrap());
                    done(new);
                    scene.expect_live(&files, live, &what).await;
                    continue;
                }
                assert_eq!(old.unwrap_err().kind(), ErrorKind::Fenced, "{what}: it lost, and reads that it is fenced");
                if gives_up {
                    assert!(matches!(new, Settled::Void { .. }), "{what}: {new:?}");
                    scene.expect_live(&[], live, &what).await;
                } else {
                    done(new);
                    scene.expect_live(&files, live, &what).await;
                }
            }
        }
    }
}

/// R78 and the binding: another table, an older one, another store's.
async fn is_the_same_table<S: TableSubject + std::fmt::Debug + 'static>(scene: impl Fn() -> Scene<S>) {
    let refused = async |scene: &Scene<S>, expected: Option<&Expected>, what: &str| {
        let error = scene.driver([]).await.check(expected).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{what}: {error}");
        assert!(error.to_string().contains("lakemark") || error.to_string().contains("`store`"), "{what}: {error}");
    };

    let unknown = scene();
    unknown.subject.foreign_append().await;
    refused(&unknown, None, "somebody else's table that is not empty").await;
    let empty = scene();
    empty.subject.recreate().await;
    empty.driver([]).await.check(None).await.unwrap();
    let (files, table) = empty.committed().await;
    empty.expect_live(&files, 0, "into an empty table that was there").await;
    refused(&empty, None, "another store's table").await;

    let restored = scene();
    let (first, table_one) = restored.committed().await;
    let more = restored.staged().await;
    let two = done(restored.driver([]).await.commit(&restored.intent(2, Some(&table_one), &more)).await.unwrap());
    let all: Vec<OutputFile> = first.iter().chain(&more).cloned().collect();
    let expected = restored.expected(&two, 2, &all);
    restored.driver([]).await.check(Some(&expected)).await.unwrap();
    restored.subject.compact().await;
    restored.driver([]).await.check(Some(&expected)).await.unwrap();
    restored.subject.restore(table_one.version).await;
    refused(&restored, Some(&expected), "taken back to before the last commit").await;

    empty.subject.recreate().await;
    refused(&empty, Some(&empty.expected(&table, 1, &files)), "dropped and made anew").await;
    let files = empty.staged().await;
    let lost = Intent { recovered: true, ..empty.intent(2, Some(&table), &files) };
    let error = empty.driver([]).await.commit(&lost).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CannotDecide, "an intent on a table that is another one: {error}");

    let cleaned = scene();
    let (files, table) = cleaned.committed().await;
    let expected = cleaned.expected(&table, 1, &files);
    cleaned.subject.foreign_append().await;
    cleaned.subject.foreign_append().await;
    cleaned.subject.clean_log().await;
    cleaned.driver([]).await.check(Some(&expected)).await.unwrap();
}
