//! The loop by which a commit gets into a table: load the base, read the chain again, look for the marker, commit on
//! exactly that base; after a conflict or an unknown answer from the start.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use arrow_schema::{Schema, SchemaRef};
use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt, stream};
use parquet::file::metadata::ParquetMetaData;

use super::files::DataFiles;
use super::judge::{Evidence, Verdict};
use super::{Attempted, History, SchemaMode, Table, TableCommit, VOID};
use crate::error::{Error, ErrorKind, Result};
use crate::identity::{Root, StoreId};
use crate::sink::{Fitness, Intent, Leftover, OutputSink, Settled, Sink, StagedOutput, cannot_leave, check_can_leave};
use crate::steps::reach;
use crate::store::{Binding, Expected, OutputFile, TableState, parse_output_name};

/// Attempts that others may overtake before one gives up: each of theirs is a version of the table.
const CONFLICTS: u32 = 100;
/// Answers in a row that say nothing before one gives up.
const UNKNOWNS: u32 = 4;
/// Files whose sizes are asked for at a time.
const LOOKS: usize = 32;

/// A table as a destination: files wait under its root, where no reader of the table sees them, until one commit names all.
#[derive(Debug, Clone)]
pub struct CommitDriver<T> {
    table: T,
    files: DataFiles,
    pause: Duration,
}

impl<T: Table> CommitDriver<T> {
    /// A driver of commits to `table`, whose files are `files`.
    pub fn new(table: T, files: DataFiles) -> Self {
        Self { table, files, pause: Duration::from_millis(50) }
    }

    /// The same, which waits about `pause` after a first lost race, and longer after each further one.
    #[must_use]
    pub fn with_pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// The table.
    pub fn table(&self) -> &T {
        &self.table
    }

    fn state(&self, base: Option<&T::Base>) -> Option<TableState> {
        base.map(|base| self.table.state(base))
    }

    /// `base` as it was at `version`, with commit `n` in it.
    fn state_at(&self, base: Option<&T::Base>, version: Option<u64>, n: u64) -> Option<TableState> {
        let now = self.state(base)?;
        Some(TableState { version: version.unwrap_or(now.version), last: Some(n), ..now })
    }

    async fn state_of(&self, base: Option<&T::Base>, store: StoreId) -> Result<Option<TableState>> {
        let Some(base) = base else { return Ok(None) };
        let last = self.table.last_marker(base, store).await?;
        Ok(Some(TableState { last, ..self.table.state(base) }))
    }

    fn refuse(&self, what: String) -> Error {
        Error::refused(what).at(self.table.name()).safe("nothing was changed; nothing was written to the table")
    }

    /// What `base` says about `intent`.
    async fn look(&self, base: Option<&T::Base>, intent: &Intent<'_>, doubt: bool) -> Result<Verdict> {
        let now = self.state(base);
        let history = match base {
            Some(base) => {
                // Of another table, or of one that went back, the history means nothing.
                let same = intent.base.zip(now.as_ref()).is_none_or(|(then, now)| then.id == now.id);
                let since = intent.base.map(|base| base.version);
                if same { self.table.history(base, since, intent.store).await? } else { History::default() }
            }
            None => History::default(),
        };
        let (n, digest) = (intent.n, intent.digest);
        let evidence = Evidence { n, digest, base: intent.base, now: now.as_ref(), history: &history, live: None };
        let verdict = evidence.judge();
        if verdict != Verdict::LookAtFiles {
            return Ok(verdict);
        }
        // Nobody but this process can have begun, and the log since its base is whole: the files need not be looked for.
        let is_whole = history.gap.is_none() || history.has_all_markers;
        if !doubt && is_whole && history.rolled_back.is_none() {
            return Ok(Verdict::Absent);
        }
        if let Some(base) = base
            && is_whole
            && self.table.last_marker(base, intent.store).await? >= Some(n)
        {
            return Ok(Verdict::Undecided(format!(
                "commit {n} was in the table, and is not any more: it was taken back"
            )));
        }
        let live = match base {
            Some(base) => {
                let paths: Vec<String> = intent.files.iter().map(OutputFile::path).collect();
                self.table.live(base, &paths).await?
            }
            None => 0,
        };
        Ok(Evidence { live: Some((live, intent.files.len())), ..evidence }.judge())
    }

    /// The names of staged files that are gone or of another size.
    async fn unfit(&self, files: &[OutputFile]) -> Result<Vec<String>> {
        let one = async |file: &OutputFile| {
            let size = self.files.size_of(&file.path()).await?;
            Ok::<_, Error>((size != Some(file.size)).then(|| file.name.clone()))
        };
        let looks: Vec<_> = files.iter().map(one).collect();
        let unfit: Vec<Option<String>> = stream::iter(looks).buffered(LOOKS).try_collect().await?;
        Ok(unfit.into_iter().flatten().collect())
    }

    fn cannot_decide(&self, intent: &Intent<'_>, why: &str) -> Error {
        let n = intent.n;
        Error::new(ErrorKind::CannotDecide, format!("whether commit {n} is in the table cannot be decided: {why}"))
            .at(self.table.name())
            .safe("nothing was committed, and nothing was deleted")
            .way(format!(
                "look at the table; if the {} files of commit {n} are in it: lakemark accept {n} JOB",
                intent.files.len()
            ))
            .way(format!("if they are not, and are not to be: lakemark reopen {n} JOB does their work again"))
    }

    /// Waits before the next attempt, longer each time, not at the same time as others.
    async fn pause(&self, attempt: u32, intent: &Intent<'_>) {
        let longest = self.pause * 2u32.pow(attempt.min(6));
        // Two drivers have other digests: no clock and no chance is asked.
        let share = xxhash_rust::xxh3::xxh3_64(format!("{} {} {attempt}", intent.store, intent.digest).as_bytes());
        let millis = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
        if millis > 0 {
            tokio::time::sleep(Duration::from_millis(millis / 2 + share % (millis / 2 + 1))).await;
        }
    }

    async fn drive(&self, intent: &Intent<'_>) -> Result<Settled> {
        let (mut conflicts, mut unknowns) = (0, 0);
        loop {
            let base = self.table.load().await?;
            // An irreversible act outside the chain: the newest version must still be the one that was decided on.
            intent.holder.check().await?;
            let doubt = intent.recovered || unknowns > 0;
            match self.look(base.as_ref(), intent, doubt).await? {
                // What happened after it is not known to be harmless: the next check looks from there on.
                Verdict::Done(version) => {
                    return Ok(Settled::Done {
                        missing: Vec::new(),
                        table: self.state_at(base.as_ref(), version, intent.n),
                    });
                }
                Verdict::Void(version) => {
                    let unfit = self.unfit(intent.files).await?;
                    return Ok(Settled::Void { unfit, table: self.state_at(base.as_ref(), Some(version), intent.n) });
                }
                Verdict::Absent if intent.unbound => {
                    // Another store's first commit may have been faster, and be of the same job.
                    if let Some(base) = &base {
                        self.check_others(base, Some(intent.store)).await?;
                    }
                }
                Verdict::Absent => {}
                Verdict::Undecided(why) => {
                    // Perhaps a successor committed meanwhile: then this is no doubt, but an answer of its own.
                    intent.holder.check().await?;
                    return Err(self.cannot_decide(intent, &why));
                }
                Verdict::LookAtFiles => return Err(self.cannot_decide(intent, "the files were not looked at")),
            }
            // What this process has just written it need not look for.
            let unfit = if doubt { self.unfit(intent.files).await? } else { Vec::new() };
            let (store, n) = (intent.store, intent.n);
            // Others may have moved or deleted rows of what is to leave since it was decided: then it cannot come about.
            let removable = match self.check_leaving(base.as_ref(), intent.leaving).await {
                Err(error) if error.kind() == ErrorKind::Refused => {
                    tracing::warn!(n, %error, "what was to leave the table is not as it was");
                    false
                }
                checked => checked.map(|()| true)?,
            };
            let goes = unfit.is_empty() && removable;
            let commit = if goes {
                TableCommit { store, n, digest: intent.digest, files: intent.files, leaving: intent.leaving }
            } else {
                // Given up: first what makes a late call of a stalled predecessor fail.
                TableCommit { store, n, digest: VOID, files: &[], leaving: &[] }
            };
            reach("table.before");
            let attempted = self.table.append(base.as_ref(), &commit).await.map_err(|error| match error.kind() {
                ErrorKind::Refused | ErrorKind::Unsupported | ErrorKind::Corrupt | ErrorKind::Invalid if goes => {
                    error.way(format!("do the work of commit {n} again, by this query: lakemark reopen {n} JOB"))
                }
                _ => error,
            })?;
            reach("table.after");
            match attempted {
                Attempted::Landed(table) => {
                    let table = Some(TableState { last: Some(n), ..table });
                    return Ok(match goes {
                        true => Settled::Done { missing: Vec::new(), table },
                        false => Settled::Void { unfit, table },
                    });
                }
                Attempted::Conflict => {
                    (conflicts, unknowns) = (conflicts + 1, 0);
                    tracing::debug!(n, conflicts, "another writer was faster");
                    if conflicts >= CONFLICTS {
                        return Err(self.overtaken(n));
                    }
                }
                Attempted::Unknown(error) => {
                    unknowns += 1;
                    tracing::warn!(n, %error, "whether the commit landed is not known; looking");
                    if unknowns >= UNKNOWNS {
                        return Err(error);
                    }
                }
            }
            self.pause(conflicts + unknowns, intent).await;
        }
    }

    /// Checks that `leaving` can leave `base`.
    async fn check_leaving(&self, base: Option<&T::Base>, leaving: &[OutputFile]) -> Result<()> {
        if leaving.is_empty() {
            return Ok(());
        }
        if !self.table.can_remove() {
            return Err(cannot_leave(self));
        }
        self.table.check_removable(base, leaving).await
    }

    fn overtaken(&self, n: u64) -> Error {
        Error::new(
            ErrorKind::Unavailable,
            format!("commit {n} was overtaken {CONFLICTS} times by other writers of the table"),
        )
        .at(self.table.name())
        .safe("its files wait; nothing of it is visible")
        .way("run again when the table is less busy: only the commit is left to do")
    }

    /// Whether `base` belongs to the store of `expected` (none: a new one) and went on from where that left it.
    async fn check_table(&self, base: Option<&T::Base>, expected: Option<&Expected>) -> Result<()> {
        let left = expected.and_then(|expected| expected.table.as_ref());
        let (Some(base), Some(now)) = (base, self.state(base)) else {
            return match left {
                None => Ok(()),
                Some(left) => Err(self
                    .refuse(format!("the table is gone: this store left it at version {}", left.version))
                    .way("put the table back")
                    .way("make it anew from everything: lakemark reopen --table JOB")),
            };
        };
        let open = expected.is_some_and(|expected| expected.intent.is_some());
        if !open {
            self.table.check_fits(base)?;
        }
        let Some((left, expected)) = left.zip(expected) else {
            return self.check_unknown(base, expected).await;
        };
        let ways = |error: Error| {
            error
                .way("put the table back as it was")
                .way("if this is the table to go on with, as it is: lakemark accept --table JOB")
                .way("do everything again, into this table: lakemark reopen --table JOB")
        };
        if left.id != now.id {
            let what =
                format!("the table is another one than this store wrote to: its id was {}, and is {}", left.id, now.id);
            return Err(ways(self.refuse(what)));
        }
        if now.version < left.version {
            let what = format!(
                "the table went back: this store left it at version {}, and it is at {}",
                left.version, now.version
            );
            return Err(ways(self.refuse(what)));
        }
        let history = self.table.history(base, Some(left.version), expected.store).await?;
        let known = self.table.last_marker(base, expected.store).await?;
        let newest = history.markers.iter().map(|marker| marker.n).chain(known).max();
        if known.zip(left.last).is_some_and(|(known, last)| known < last) {
            let (known, last) = (known.unwrap_or_default(), left.last.unwrap_or_default());
            return Err(ways(self.refuse(format!(
                "the table is an older one than this store wrote to: it has commit {last} of this store no more, only those \
                 up to {known}"
            ))));
        }
        if let Some(n) = newest.filter(|n| *n > expected.last_commit) {
            return Err(self
                .refuse(format!(
                    "the table has commit {n} of this store, and the store knows {} only: it is older than its table, as \
                     after a restore from a copy",
                    expected.last_commit
                ))
                .way("restore the newest copy of the store")
                .way("fill another table from the start, with another `store`"));
        }
        if let Some(what) = history.rolled_back {
            return Err(ways(self.refuse(format!("the table was taken back after this store wrote to it: {what}"))));
        }
        if let Some(version) = history.gap.filter(|_| !open) {
            return self.check_committed(base, expected, version).await.map_err(ways);
        }
        Ok(())
    }

    /// A table that the store has not committed to.
    async fn check_unknown(&self, base: &T::Base, expected: Option<&Expected>) -> Result<()> {
        let store = expected.map(|expected| expected.store);
        self.check_others(base, store).await?;
        // The first commit may have landed before it was recorded.
        let own = match (expected, store) {
            (Some(expected), Some(store)) if expected.intent.is_some() => {
                self.table.last_marker(base, store).await?.is_some()
            }
            _ => false,
        };
        if own || self.table.is_empty(base).await? {
            return Ok(());
        }
        Err(self
            .refuse("the table is not empty and does not belong to this store".into())
            .way("write to a new or empty table")
            .way("to append to it: lakemark accept --table JOB")
            .way("if its rows are of an earlier store, give that `store`"))
    }

    /// Refuses a table that belongs to another store.
    async fn check_others(&self, base: &T::Base, store: Option<StoreId>) -> Result<()> {
        let Some(other) = self.table.other_store(base, store).await? else { return Ok(()) };
        Err(self
            .refuse(format!("the table belongs to store {other}, which is not the store given"))
            .way("give the `store` that the table belongs to")
            .way("write to another table")
            .way("if both are to write to it: lakemark accept --table JOB"))
    }

    /// The log does not go back to where the store left the table: what it committed last tells whether it was taken back.
    async fn check_committed(&self, base: &T::Base, expected: &Expected, gap: u64) -> Result<()> {
        let paths: Vec<String> = expected.committed.iter().map(OutputFile::path).collect();
        let live = self.table.live(base, &paths).await?;
        if live == paths.len() {
            return Ok(());
        }
        Err(self.refuse(format!(
            "{} of the {} files that this store committed are not in the table any more, and version {gap}, which could \
             tell why, is gone from its log: it may have been compacted, or taken back",
            paths.len() - live,
            paths.len()
        )))
    }
}

#[async_trait]
impl<T: Table> Sink for CommitDriver<T> {
    fn binding(&self) -> Binding {
        Binding {
            kind: self.table.kind().to_owned(),
            root: self.table.root().clone(),
            partition_by: self.table.partition_by().to_vec(),
        }
    }

    async fn check(&self, expected: Option<&Expected>) -> Result<()> {
        let base = self.table.load().await?;
        self.check_table(base.as_ref(), expected).await
    }

    /// The table says so with the first commit: its marker carries the store.
    async fn bind(&self, _store: StoreId) -> Result<()> {
        Ok(())
    }

    async fn bound_to(&self, store: StoreId) -> Result<Option<StoreId>> {
        let Some(base) = self.table.load().await? else { return Ok(None) };
        if self.table.last_marker(&base, store).await?.is_some() {
            return Ok(Some(store));
        }
        self.table.other_store(&base, Some(store)).await
    }

    fn keeps_files(&self) -> bool {
        false
    }

    fn replaces_files(&self) -> bool {
        self.table.can_remove()
    }

    async fn bind_again(&self, _store: StoreId) -> Result<()> {
        Ok(())
    }

    async fn visible_size(&self, file: &OutputFile) -> Result<Option<u64>> {
        self.files.size_of(&file.path()).await
    }

    async fn fitness(&self, file: &OutputFile) -> Result<Fitness> {
        Ok(match self.files.size_of(&file.path()).await? {
            Some(size) if size == file.size => Fitness::Fit,
            Some(_) => Fitness::Unfit,
            None => Fitness::Missing,
        })
    }

    /// None: what lies under a table and is not in it, the table's own vacuum removes. A file that an intent ever named is
    /// never deleted here.
    async fn leftovers(&self) -> Result<Vec<Leftover>> {
        Ok(Vec::new())
    }

    async fn remove(&self, _leftovers: &[Leftover]) -> Result<()> {
        Ok(())
    }

    async fn take_out(&self, files: &[OutputFile]) -> Result<()> {
        if files.is_empty() {
            return Ok(());
        }
        check_can_leave(self)
    }

    async fn table(&self, store: StoreId) -> Result<Option<TableState>> {
        let base = self.table.load().await?;
        self.state_of(base.as_ref(), store).await
    }

    async fn base(
        &self,
        expected: &Expected,
        waiting: &[OutputFile],
        leaving: &[OutputFile],
    ) -> Result<Option<TableState>> {
        let base = self.table.load().await?;
        self.check_table(base.as_ref(), Some(expected)).await?;
        self.table.check_files(base.as_ref(), waiting).await.map_err(|error| {
            let epochs: BTreeSet<_> =
                waiting.iter().filter_map(|file| parse_output_name(&file.name)).map(|(_, id, _)| id.epoch.0).collect();
            let again = |error: Error, n: u64| {
                error.way(format!("do again what waits, by this query: lakemark forget JOB --epoch {n}"))
            };
            match error.kind() {
                ErrorKind::Unavailable => error,
                _ => epochs.into_iter().fold(error, again),
            }
        })?;
        self.check_leaving(base.as_ref(), leaving).await?;
        self.state_of(base.as_ref(), expected.store).await
    }

    async fn give_up(&self, intent: &Intent<'_>) -> Result<Option<TableState>> {
        let (store, n) = (intent.store, intent.n);
        for attempt in 0..CONFLICTS {
            let base = self.table.load().await?;
            intent.holder.check().await?;
            if base.is_none() && intent.base.is_some() {
                // Nothing can be committed to a table that is gone, and none is made in its place here.
                return Ok(None);
            }
            let history = match &base {
                Some(base) => {
                    let then = intent.base.filter(|then| then.id == self.table.state(base).id);
                    self.table.history(base, then.map(|then| then.version), store).await?
                }
                None => History::default(),
            };
            match history.markers.iter().find(|marker| marker.n == n) {
                Some(marker) if marker.digest == VOID => {
                    return Ok(self.state_at(base.as_ref(), Some(marker.version), n));
                }
                Some(marker) => {
                    return Err(self
                        .refuse(format!("version {} of the table is commit {n} of this store", marker.version))
                        .way(format!("lakemark accept {n} JOB")));
                }
                None => {}
            }
            let barrier = TableCommit { store, n, digest: VOID, files: &[], leaving: &[] };
            match self.table.append(base.as_ref(), &barrier).await? {
                Attempted::Landed(table) => return Ok(Some(TableState { last: Some(n), ..table })),
                Attempted::Conflict => {}
                Attempted::Unknown(error) if attempt >= UNKNOWNS => return Err(error),
                Attempted::Unknown(error) => {
                    tracing::warn!(n, %error, "whether the barrier landed is not known; looking")
                }
            }
            self.pause(attempt, intent).await;
        }
        Err(self.overtaken(n))
    }

    async fn commit(&self, intent: &Intent<'_>) -> Result<Settled> {
        self.drive(intent).await
    }
}

#[async_trait]
impl<T: Table> OutputSink for CommitDriver<T> {
    fn root(&self) -> &Root {
        self.table.root()
    }

    fn partitioned(&self, columns: &[String]) -> Arc<dyn OutputSink> {
        Arc::new(Self { table: self.table.partitioned(columns), ..self.clone() })
    }

    fn storable(&self, schema: &SchemaRef) -> Result<SchemaRef> {
        self.table.storable(schema).map(Arc::new)
    }

    async fn of_rows(self: Arc<Self>, schema: &Schema) -> Result<Arc<dyn OutputSink>> {
        Ok(Arc::new(Self { table: self.table.of_rows(schema).await?, ..Self::clone(&self) }))
    }

    fn has_empty_partition(&self) -> bool {
        self.table.has_empty_partition()
    }

    fn schema_mode(&self) -> SchemaMode {
        self.table.schema_mode()
    }

    fn wrote(&self, output: &OutputFile, metadata: &ParquetMetaData) {
        self.table.wrote(output, metadata);
    }

    fn check_folder(&self, folder: &str) -> Result<()> {
        self.files.check_folder(folder)
    }

    async fn stage(&self, name: &str, folder: &str) -> Result<Box<dyn StagedOutput>> {
        self.files.stage(name, folder).await
    }

    async fn sync(&self) -> Result<()> {
        self.files.sync().await
    }

    async fn discard(&self, files: &[OutputFile]) {
        self.files.discard(files).await;
    }

    fn failed(&self, error: io::Error) -> Error {
        self.files.failed(error)
    }
}
