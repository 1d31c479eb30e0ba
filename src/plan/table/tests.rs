//! Tables whose files others compact, change and delete, between runs that do some of what is left.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Mutex;

use async_trait::async_trait;
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::coverage::{Coverage, RangeSet};
use crate::identity::{
    AttemptNonce, CheckpointId, Epoch, Evidence, IMMUTABLE, InputId, ManifestVersion, Root, StoreId,
};
use crate::plan::MaxReplaced;
use crate::source::Lake;
use crate::storage::StorageOptions;
use crate::store::{Counts, Event, EventRow, Seal, SealKind, SealedFile};

/// A table of files whose rows are numbers, each used once.
#[derive(Debug)]
struct Fake {
    lake: Lake,
    folder: TempDir,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    version: u64,
    /// Rows of every file that ever was.
    rows: BTreeMap<String, Vec<u32>>,
    now: BTreeSet<String>,
    /// What every version had.
    past: Vec<BTreeSet<String>>,
    log: Vec<(u64, TableStep)>,
    /// Entries of the log before this are gone.
    first: u64,
    next_row: u32,
}

fn file(path: &str) -> TableFile {
    TableFile { file: FileVersion::new(path, 16).with_etag(IMMUTABLE), values: BTreeMap::new() }
}

impl Fake {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::parse(&folder.path().to_string_lossy()).unwrap();
        let lake = Lake::of_table(root, &StorageOptions::default()).unwrap();
        Self { lake, folder, state: Mutex::default() }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// One commit: `removed` leave, and files of `added` rows come.
    fn commit(&self, removed: &[String], added: Vec<Vec<u32>>, same_rows: bool) -> Vec<String> {
        let mut state = self.state();
        state.version += 1;
        let version = state.version;
        let mut names = Vec::new();
        for (i, rows) in added.into_iter().enumerate() {
            let name = format!("f{version:04}-{i}");
            fs::write(self.folder.path().join(&name), [0; 16]).unwrap();
            state.rows.insert(name.clone(), rows);
            state.now.insert(name.clone());
            names.push(name);
        }
        state.now.retain(|name| !removed.contains(name));
        let of = |names: &[String]| names.iter().map(|name| file(name)).collect();
        let operation = if same_rows { "OPTIMIZE" } else { "DELETE" }.to_owned();
        let (removed_files, added) = (of(removed), of(&names));
        let (at, brings_back) = (version.to_string(), false);
        let step = TableStep { at, operation, same_rows, brings_back, removed: removed_files, added };
        if !removed.is_empty() {
            state.log.push((version, step));
        }
        let now = state.now.clone();
        state.past.push(now);
        names
    }

    fn append(&self, counts: &[u32]) -> Vec<String> {
        let mut added = Vec::new();
        for count in counts {
            let mut state = self.state();
            let first = state.next_row;
            state.next_row += count;
            added.push((first..first + count).collect());
        }
        self.commit(&[], added, false)
    }

    fn optimize(&self, files: &[String], into: usize) -> Vec<String> {
        let rows: Vec<u32> = files.iter().flat_map(|name| self.rows(name)).collect();
        let size = rows.len().div_ceil(into).max(1);
        self.commit(files, rows.chunks(size).map(<[u32]>::to_vec).collect(), true)
    }

    /// Takes every second row out of `files`.
    fn delete(&self, files: &[String]) -> Vec<String> {
        let half = |name: &String| self.rows(name).into_iter().step_by(2).collect();
        self.commit(files, files.iter().map(half).collect(), false)
    }

    /// The table is as it was at the `which`th version.
    fn restore(&self, which: usize) {
        let (then, now) = {
            let state = self.state();
            (state.past[which % state.past.len()].clone(), state.now.clone())
        };
        let removed: Vec<String> = now.difference(&then).cloned().collect();
        let added: Vec<String> = then.difference(&now).cloned().collect();
        self.commit(&removed, Vec::new(), false);
        let mut state = self.state();
        state.now.extend(added.iter().cloned());
        let of = |names: &[String]| names.iter().map(|name| file(name)).collect();
        let (at, operation) = (state.version.to_string(), "RESTORE".to_owned());
        let (removed, added) = (of(&removed), of(&added));
        let step = TableStep { at, operation, same_rows: false, brings_back: true, removed, added };
        let version = state.version;
        state.log.retain(|(of, _)| *of != version);
        state.log.push((version, step));
        let now = state.now.clone();
        *state.past.last_mut().unwrap() = now;
    }

    fn rows(&self, name: &str) -> Vec<u32> {
        self.state().rows[name].clone()
    }

    fn now(&self) -> Vec<String> {
        self.state().now.iter().cloned().collect()
    }

    fn vacuum(&self) {
        let state = self.state();
        for name in state.rows.keys().filter(|name| !state.now.contains(*name)) {
            let _ = fs::remove_file(self.folder.path().join(name));
        }
    }
}

#[async_trait]
impl SourceTable for Fake {
    fn kind(&self) -> &'static str {
        "fake"
    }

    fn lake(&self) -> &Lake {
        &self.lake
    }

    async fn snapshot(&self) -> Result<TableSnapshot> {
        let state = self.state();
        let (version, files) = (state.version, state.now.iter().map(|name| file(name)).collect());
        let (schema, partition_by) = (Arc::new(arrow_schema::Schema::empty()), Vec::new());
        let (id, at, mark) = ("t".to_owned(), version.to_string(), String::new());
        Ok(TableSnapshot { id, version, at, mark, files, schema, partition_by, has_all_columns: false })
    }

    async fn history(&self, since: &TablePosition, to: &TableSnapshot) -> Result<TableHistory> {
        let state = self.state();
        if since.version + 1 < state.first {
            return Ok(TableHistory::Gap("entries were cleaned up".into()));
        }
        let steps = state.log.iter().filter(|(version, _)| (since.version + 1..=to.version).contains(version));
        Ok(TableHistory::Steps(steps.map(|(_, step)| step.clone()).collect()))
    }

    async fn deleted(&self, _: &FileVersion) -> Result<RangeSet> {
        Ok(RangeSet::new())
    }
}

/// What runs over a table have done.
struct Runs {
    live: Live,
    inputs: u32,
    read: Vec<u32>,
    /// Files in checkpoints, to take them back.
    sealed: Vec<(CheckpointId, String)>,
}

impl Runs {
    fn new() -> Self {
        Self { live: Live::default(), inputs: 0, read: Vec::new(), sealed: Vec::new() }
    }

    async fn plan(&self, table: &Fake, on_change: OnChange) -> Result<SourcePlan> {
        let policy = SourcePolicy { on_change, max_replaced: MaxReplaced::Files(u64::MAX), ..SourcePolicy::default() };
        let snapshot = table.snapshot().await?;
        plan_table("t", table, &snapshot, &self.live, policy).await
    }

    fn happen(&mut self, event: Event) {
        self.live.happen(EventRow { version: ManifestVersion(1), epoch: Epoch(1), at: 0, event });
    }

    /// A run that does the first `most` files of what is left; how many there were.
    async fn run(&mut self, table: &Fake, on_change: OnChange, most: usize) -> Result<usize> {
        let plan = self.plan(table, on_change).await?;
        let sums = &plan.report;
        let all = sums.done + sums.new + sums.replaced + sums.partly_done + sums.forced;
        assert_eq!(all, sums.listed, "{sums:?}");
        if !plan.files.is_empty() || plan.has_updates() {
            let TableReached { position, steps } = plan.table.unwrap().reached.unwrap_or_else(|| TableReached {
                position: self.live.table_position("t").unwrap().clone(),
                steps: Vec::new(),
            });
            self.happen(Event::Table { source: "t".into(), position, steps });
        }
        for planned in plan.files.iter().take(most) {
            self.seal(table, planned);
        }
        Ok(plan.files.len())
    }

    fn seal(&mut self, table: &Fake, planned: &PlannedFile) {
        let path = planned.file.path.to_string();
        let rows = table.rows(&path);
        let id = CheckpointId::first(Epoch(1), InputId(self.inputs));
        self.inputs += 1;
        let sealed = SealedFile {
            source: "t".into(),
            file: planned.file.clone(),
            coverage: Coverage::Whole,
            evidence: Evidence::new(&[rows.len() as u64], "d".into()),
            unsettled: false,
        };
        let seal = Seal {
            store: StoreId::random(),
            id,
            attempt: AttemptNonce::random(),
            kind: SealKind::Sealed,
            planned_from: ManifestVersion(1),
            sealed_at: 0,
            files: vec![sealed],
            keys: None,
            outputs: Vec::new(),
            counts: Counts::default(),
        };
        assert!(self.live.may_accept(&seal), "{path} is planned twice");
        self.live.decide(&seal).unwrap();
        self.read.extend(rows);
        self.sealed.push((id, path));
    }

    /// Makes one finished file undone again, as when its staged output was lost.
    fn withdraw(&mut self, table: &Fake, which: usize) {
        if self.sealed.is_empty() {
            return;
        }
        let (id, path) = self.sealed.swap_remove(which % self.sealed.len());
        self.happen(Event::Withdrawn { checkpoints: vec![id], why: "lost".into() });
        for row in table.rows(&path) {
            let at = self.read.iter().position(|read| *read == row).unwrap();
            self.read.swap_remove(at);
        }
    }

    fn sorted(&self) -> Vec<u32> {
        let mut rows = self.read.clone();
        rows.sort_unstable();
        rows
    }
}

fn paths(plan: &SourcePlan) -> Vec<&str> {
    plan.files.iter().map(|file| &*file.file.path).collect()
}

#[tokio::test]
async fn what_was_compacted_is_done_when_all_of_it_is() {
    let (table, mut runs) = (Fake::new(), Runs::new());
    let files = table.append(&[3, 3, 3, 3]);
    runs.run(&table, OnChange::Fail, 2).await.unwrap();
    let compacted = table.optimize(&files, 1);
    let more = table.append(&[2]);
    let plan = runs.plan(&table, OnChange::Fail).await.unwrap();
    assert_eq!(paths(&plan), [&*files[2], &*files[3], &*more[0]], "those that are left, under their own names");
    assert_eq!(runs.run(&table, OnChange::Fail, 9).await.unwrap(), 3);
    let plan = runs.plan(&table, OnChange::Fail).await.unwrap();
    assert!(plan.is_empty(), "{compacted:?} is done: {plan:?}");
    assert_eq!(runs.sorted(), (0..14).collect::<Vec<_>>());
    // Compacted again, before the log is cleaned: nothing to do, but to remember it.
    table.optimize(&table.now(), 2);
    let plan = runs.plan(&table, OnChange::Fail).await.unwrap();
    assert!(plan.files.is_empty() && plan.has_updates(), "{plan:?}");
    runs.run(&table, OnChange::Fail, 9).await.unwrap();
    table.state().first = 99;
    assert!(runs.plan(&table, OnChange::Fail).await.unwrap().is_empty(), "no entry is needed for it");
}

#[tokio::test]
async fn files_compacted_before_they_were_read_are_read_as_they_are_now() {
    let (table, mut runs) = (Fake::new(), Runs::new());
    let files = table.append(&[1, 1, 1]);
    runs.run(&table, OnChange::Fail, 1).await.unwrap();
    let compacted = table.optimize(&files[1..], 1);
    table.vacuum();
    let plan = runs.plan(&table, OnChange::Fail).await.unwrap();
    assert_eq!(paths(&plan), [&*compacted[0]]);
    assert!(!plan.has_updates(), "nothing that is done was touched");
}

#[tokio::test]
async fn what_only_vacuumed_files_had_cannot_be_decided() {
    let (table, mut runs) = (Fake::new(), Runs::new());
    let files = table.append(&[1, 1]);
    runs.run(&table, OnChange::Fail, 1).await.unwrap();
    table.optimize(&files, 1);
    table.vacuum();
    let error = runs.plan(&table, OnChange::Fail).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CannotDecide);
    assert!(error.to_string().contains(&files[1]) && error.to_string().contains("bless"), "{error}");
}

#[tokio::test]
async fn changes_of_finished_rows_fall_under_the_policy() {
    let (table, mut runs) = (Fake::new(), Runs::new());
    let files = table.append(&[4, 4, 4]);
    runs.run(&table, OnChange::Fail, 2).await.unwrap();
    let less = table.delete(&files);
    let error = runs.plan(&table, OnChange::Fail).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.to_string().contains("version 2") && error.to_string().contains("DELETE"), "{error}");
    let plan = runs.plan(&table, OnChange::Reprocess).await.unwrap();
    assert_eq!(paths(&plan), [&*less[0], &*less[1], &*less[2]]);
    let plan = runs.plan(&table, OnChange::Ignore).await.unwrap();
    assert_eq!(paths(&plan), [&*files[2]], "as it was before");
    runs.run(&table, OnChange::Ignore, 9).await.unwrap();
    assert_eq!(runs.sorted(), (0..12).collect::<Vec<_>>());
    assert!(runs.plan(&table, OnChange::Ignore).await.unwrap().files.is_empty());
    let error = runs.plan(&table, OnChange::Fail).await.unwrap_err();
    assert!(error.to_string().contains(&less[0]), "what it wrote is not done: {error}");
    for (on_change, on_delete) in [(OnChange::Replace, OnDelete::Keep), (OnChange::Fail, OnDelete::Retract)] {
        let policy = SourcePolicy { on_change, on_delete, ..SourcePolicy::default() };
        let snapshot = table.snapshot().await.unwrap();
        let error = plan_table("t", &table, &snapshot, &runs.live, policy).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }
}

#[tokio::test]
async fn a_table_whose_past_is_not_known_is_refused_until_a_person_says_so() {
    let (table, mut runs) = (Fake::new(), Runs::new());
    let files = table.append(&[1, 1]);
    runs.run(&table, OnChange::Fail, 9).await.unwrap();
    table.optimize(&files, 1);
    table.state().first = 999;
    for on_change in [OnChange::Fail, OnChange::Ignore] {
        assert_eq!(runs.plan(&table, on_change).await.unwrap_err().kind(), ErrorKind::CannotDecide);
    }
    let error = runs.plan(&table, OnChange::Reprocess).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CannotDecide);
    assert!(error.to_string().contains("cleaned up"), "{error}");
    let snapshot = table.snapshot().await.unwrap();
    let (blessed, reached) = blessable("t", &table, &snapshot, &runs.live, |_| true).await.unwrap();
    assert_eq!(blessed.len(), 1);
    let TableReached { position, steps } = reached.unwrap();
    runs.seal(&table, &blessed[0]);
    runs.happen(Event::Table { source: "t".into(), position, steps });
    assert!(runs.plan(&table, OnChange::Fail).await.unwrap().is_empty());
    // Nothing is new: only the policy says whether that is well.
    table.commit(&table.now(), Vec::new(), false);
    assert_eq!(runs.plan(&table, OnChange::Fail).await.unwrap_err().kind(), ErrorKind::Refused);
    assert!(runs.plan(&table, OnChange::Ignore).await.unwrap().files.is_empty());
}

#[tokio::test]
async fn a_table_that_was_taken_back_or_made_anew_is_noticed() {
    let (table, mut runs) = (Fake::new(), Runs::new());
    table.append(&[1]);
    table.append(&[1]);
    runs.run(&table, OnChange::Fail, 9).await.unwrap();
    let mut back = table.snapshot().await.unwrap();
    (back.version, back.at) = (1, "1".into());
    back.files.pop();
    let policy = |on_change| SourcePolicy { on_change, ..SourcePolicy::default() };
    let plan = plan_table("t", &table, &back, &runs.live, policy(OnChange::Fail)).await;
    assert_eq!(plan.unwrap_err().kind(), ErrorKind::Refused);
    let plan = plan_table("t", &table, &back, &runs.live, policy(OnChange::Ignore)).await.unwrap();
    assert!(plan.files.is_empty() && plan.has_updates(), "{plan:?}");
    let other = TableSnapshot { id: "u".into(), ..table.snapshot().await.unwrap() };
    let error = plan_table("t", &table, &other, &runs.live, policy(OnChange::Ignore)).await.unwrap_err();
    assert!(error.to_string().contains("another one than before"), "{error}");
}

/// What happens to a table, and between.
#[derive(Debug, Clone)]
enum Act {
    Append(Vec<u32>),
    /// These of the files are written anew, into so many.
    Optimize(Vec<usize>, usize),
    /// Half of the rows of these are deleted.
    Delete(Vec<usize>),
    Restore(usize),
    Run(usize),
    Withdraw(usize),
}

/// Deletes and restores as often as said.
fn acts(deletes: u32, restores: u32) -> impl Strategy<Value = Vec<Act>> {
    let some = || prop::collection::vec(0usize..50, 1..5);
    let act = prop_oneof![
        3 => prop::collection::vec(1u32..5, 1..4).prop_map(Act::Append),
        4 => (some(), 1usize..4).prop_map(|(files, into)| Act::Optimize(files, into)),
        deletes => some().prop_map(Act::Delete),
        restores => (0usize..50).prop_map(Act::Restore),
        4 => (0usize..5).prop_map(Act::Run),
        1 => (0usize..50).prop_map(Act::Withdraw),
    ];
    prop::collection::vec(act, 1..25)
}

fn chosen(now: &[String], which: &[usize]) -> Vec<String> {
    let all: BTreeSet<&String> =
        which.iter().filter(|_| !now.is_empty()).map(|which| &now[which % now.len()]).collect();
    all.into_iter().cloned().collect()
}

async fn live_through(acts: &[Act], on_change: OnChange) -> (Fake, Runs) {
    let (table, mut runs) = (Fake::new(), Runs::new());
    for act in acts {
        let now = table.now();
        match act {
            Act::Append(counts) => drop(table.append(counts)),
            Act::Optimize(which, into) if !now.is_empty() => drop(table.optimize(&chosen(&now, which), *into)),
            Act::Delete(which) if !now.is_empty() => drop(table.delete(&chosen(&now, which))),
            Act::Restore(which) if !now.is_empty() => table.restore(*which),
            Act::Run(most) => drop(runs.run(&table, on_change, *most).await.unwrap()),
            Act::Withdraw(which) => runs.withdraw(&table, *which),
            Act::Optimize(..) | Act::Delete(_) | Act::Restore(_) => {}
        }
    }
    for _ in 0..99 {
        if runs.run(&table, on_change, 9).await.unwrap() == 0 {
            return (table, runs);
        }
    }
    panic!("there is always something left");
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_row_is_read_once_however_files_are_compacted(acts in acts(0, 0)) {
        let (table, runs) = block_on(live_through(&acts, OnChange::Fail));
        let all: Vec<u32> = (0..table.state().next_row).collect();
        prop_assert_eq!(runs.sorted(), all);
    }

    #[test]
    fn ignored_changes_neither_lose_nor_double_a_row_that_was_read(acts in acts(2, 0)) {
        let (table, runs) = block_on(live_through(&acts, OnChange::Ignore));
        let read = runs.sorted();
        let once: BTreeSet<u32> = read.iter().copied().collect();
        prop_assert_eq!(once.len(), read.len());
        let there: BTreeSet<u32> = table.now().iter().flat_map(|name| table.rows(name)).collect();
        prop_assert!(there.is_subset(&once), "{:?} are not read", there.difference(&once).collect::<Vec<_>>());
    }

    #[test]
    fn ignored_restores_double_no_row(acts in acts(2, 2)) {
        // What they bring back and was never read is left, as what any other change writes.
        let (_, runs) = block_on(live_through(&acts, OnChange::Ignore));
        let once: BTreeSet<u32> = runs.read.iter().copied().collect();
        prop_assert_eq!(once.len(), runs.read.len());
    }

    #[test]
    fn reprocessed_changes_lose_no_row(acts in acts(2, 1)) {
        let (table, runs) = block_on(live_through(&acts, OnChange::Reprocess));
        let once: BTreeSet<u32> = runs.read.iter().copied().collect();
        let there: BTreeSet<u32> = table.now().iter().flat_map(|name| table.rows(name)).collect();
        prop_assert!(there.is_subset(&once), "{:?} are not read", there.difference(&once).collect::<Vec<_>>());
    }
}
