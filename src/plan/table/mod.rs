//! What of a table is left to do: its files as its log tells them, against the live set and what others did to them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use xxhash_rust::xxh3::xxh3_128;

use super::policy::{OnChange, OnDelete, SourcePolicy};
use super::source_plan::{PlannedFile, Reason, SourcePlan, SourceReport, check_replaced, rest};
use crate::error::{Error, ErrorKind, Result, first_few};
use crate::identity::{FileVersion, TableFile, TablePosition, TableStep};
use crate::source::{FileRead, SourceTable, TableHistory, TableSnapshot};
use crate::store::{Live, LiveVersion};

/// What a run over a table records beside its work: up to where others' commits are taken into account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableReached {
    /// Up to where.
    pub position: TablePosition,
    /// Commits since the recorded position that changed files with finished work.
    pub steps: Vec<TableStep>,
}

/// Plans the table `name`: `snapshot` of `table` against `live`. Nothing is listed, and no file of the table is opened
/// (unless `policy.verify`). Entries of its log are read only when a file with finished work has left it.
///
/// A file that others made of files with finished work, with the same rows, is done when all of those are; where only some
/// are, the others are still read, under their own names. A commit that takes finished rows out otherwise falls under
/// `policy.on_change`: it is refused, or what it wrote is done as new rows (`Reprocess`), or what it wrote is left and the
/// files that it took out are read as they were before it (`Ignore`).
///
/// # Errors
/// [`Refused`](ErrorKind::Refused) by the policy, and for another table at the same place;
/// [`CannotDecide`](ErrorKind::CannotDecide) when it is not known any more what became of finished work;
/// [`Unsupported`](ErrorKind::Unsupported) for a policy that would take output of a table's files out.
pub async fn plan_table(
    name: &str,
    table: &dyn SourceTable,
    snapshot: &TableSnapshot,
    live: &Live,
    policy: SourcePolicy,
) -> Result<SourcePlan> {
    check_policy(name, table, policy)?;
    let seen = Seen::look(name, table, snapshot, live).await?;
    let source: Arc<str> = name.into();
    let mut report = SourceReport {
        name: name.to_owned(),
        listed: snapshot.files.len() as u64,
        vanished: seen.absent.count,
        verified: policy.verify,
        ..SourceReport::default()
    };
    let mut files = Vec::new();
    let mut bases: BTreeMap<Key<'_>, &TableFile> = BTreeMap::new();
    let (mut changed, mut undecided) = (Vec::new(), Vec::new());
    let whole = |file: &FileVersion, reason| PlannedFile::whole(&source, file, reason, false, policy.keeps_apart());
    for file in &snapshot.files {
        let path = &file.file.path;
        let standing = seen.standing(file);
        match standing {
            Standing::Done(version) => {
                report.done += 1;
                if policy.verify {
                    verify(table, file, version).await?;
                }
            }
            Standing::Covered => report.done += 1,
            Standing::PartlyDone(version) => {
                report.partly_done += 1;
                files.push(rest(whole(&file.file, Reason::PartlyDone), Some(version)));
            }
            Standing::Forced => {
                report.forced += 1;
                files.push(whole(&file.file, Reason::Forced));
            }
            Standing::New => {
                report.new += 1;
                files.push(whole(&file.file, Reason::New));
            }
            Standing::Waits(i) | Standing::Changed(i) => {
                let waits = matches!(standing, Standing::Waits(_));
                let is_change = !seen.cause(i).same_rows;
                let count = if waits && !is_change { &mut report.partly_done } else { &mut report.replaced };
                *count += 1;
                match policy.on_change {
                    OnChange::Fail if is_change => changed.push((path, i)),
                    OnChange::Ignore => seen.collect_before(i, &mut bases),
                    _ if waits => seen.collect_left(i, &mut bases),
                    _ => files.push(whole(&file.file, Reason::Replaced)),
                }
            }
            Standing::Unknown => undecided.push(&**path),
        }
    }
    if let (Some(what), false) = (&seen.gap, undecided.is_empty()) {
        return Err(seen.gap_error(what, &undecided));
    }
    if let Some((path, i)) = changed.first() {
        let what = format!("`{path}`, which it made, is not done");
        return Err(seen.changed_error(seen.cause(*i), &what).way(format!(
            "leave what it wrote for good: lakemark bless JOB --glob '{path}', and so for each file that it made"
        )));
    }
    seen.check_changes(policy)?;
    let planned: HashSet<Arc<str>> = files.iter().map(|file| Arc::clone(&file.file.path)).collect();
    let mut left_table = Vec::new();
    for base in bases.into_values() {
        if snapshot.has(base) {
            // It came back by a change, or stands for itself.
            if !planned.contains(&base.file.path) {
                files.push(whole(&base.file, Reason::Replaced));
            }
            continue;
        }
        (report.listed, report.partly_done) = (report.listed + 1, report.partly_done + 1);
        let file = seen.still_there(base).await?;
        files.push(rest(whole(&file.file, Reason::PartlyDone), seen.find(base)));
        left_table.push(file);
    }
    files.sort_by(|a, b| a.file.path.cmp(&b.file.path));
    check_replaced(&report, live, policy)?;
    let reached = seen.reached_when(true);
    let is_news = seen.gap.is_some() || seen.new_steps().next().is_some();
    let table = Some(PlannedTable { left_table, reached, is_news });
    Ok(SourcePlan { files, table, ..SourcePlan::of(report) })
}

/// What the plan of a table has beside its files.
#[derive(Debug, Clone)]
pub struct PlannedTable {
    /// Files that are to be read although they have left the table: their rows are in others that are not read.
    pub left_table: Vec<TableFile>,
    /// What to record; `None`: it is recorded.
    pub reached: Option<TableReached>,
    /// Whether that is work of its own: it says what became of finished work.
    pub is_news: bool,
}

/// Files of `snapshot` that no run has done and that `chosen` takes, to be recorded as done as they are; and what to record of
/// the table beside them.
///
/// # Errors
/// As [`plan_table`], but for what depends on its policy.
pub(crate) async fn blessable(
    name: &str,
    table: &dyn SourceTable,
    snapshot: &TableSnapshot,
    live: &Live,
    chosen: impl Fn(&FileVersion) -> bool,
) -> Result<(Vec<PlannedFile>, Option<TableReached>)> {
    let seen = Seen::look(name, table, snapshot, live).await?;
    let source: Arc<str> = name.into();
    let mut files = Vec::new();
    for file in snapshot.files.iter().filter(|file| chosen(&file.file)) {
        let whole = |reason| PlannedFile::whole(&source, &file.file, reason, false, false);
        files.push(match seen.standing(file) {
            Standing::Done(_) | Standing::Covered => continue,
            Standing::PartlyDone(version) => rest(whole(Reason::PartlyDone), Some(version)),
            Standing::Forced => whole(Reason::Forced),
            Standing::Waits(_) | Standing::Changed(_) => whole(Reason::Replaced),
            Standing::New | Standing::Unknown => whole(Reason::New),
        });
    }
    // What is not known of the past stays so, until every file of the present is known.
    let all = files.len() == snapshot.files.iter().filter(|file| !seen.is_done(file)).count();
    let reached = seen.reached_when(seen.gap.is_none() || all);
    Ok((files, reached))
}

/// How a file of the table relates to what is recorded.
#[derive(Clone, Copy)]
enum Standing<'a> {
    Done(&'a LiveVersion),
    /// All its rows are those of files that are done.
    Covered,
    PartlyDone(&'a LiveVersion),
    Forced,
    New,
    /// Some of the files that it was made of are done, others are not: the step that made it.
    Waits(usize),
    /// A commit that took finished rows out brought it: its place among the steps.
    Changed(usize),
    /// Whether its rows are those of files that are done cannot be told.
    Unknown,
}

/// A file, as maps have it: sizes are not compared.
type Key<'a> = (&'a str, &'a str);

fn key(file: &TableFile) -> Key<'_> {
    (&file.file.path, file.file.etag.as_deref().unwrap_or_default())
}

fn owned_key(file: &TableFile) -> (Arc<str>, Arc<str>) {
    (Arc::clone(&file.file.path), file.file.etag.clone().unwrap_or_default())
}

/// A file that a step took out: the step, and its place among what it took out.
type Removed = (usize, usize);

/// A table, what is done of it, and what others did to it since.
struct Seen<'a> {
    name: &'a str,
    table: &'a dyn SourceTable,
    snapshot: &'a TableSnapshot,
    live: &'a Live,
    known: Option<&'a TablePosition>,
    /// All steps, the recorded ones first.
    steps: Vec<TableStep>,
    /// How many of them are recorded.
    recorded: usize,
    /// By the files that they brought.
    origins: HashMap<(Arc<str>, Arc<str>), Vec<usize>>,
    /// What each step's rows are of, once it was asked for. No step is asked for more than those before it.
    bases: Vec<OnceLock<Vec<Removed>>>,
    /// Whether each step touches finished work, in the same way.
    touched: Vec<OnceLock<bool>>,
    /// What of the past is not known.
    gap: Option<String>,
    absent: Absent,
}

impl<'a> Seen<'a> {
    async fn look(
        name: &'a str,
        table: &'a dyn SourceTable,
        snapshot: &'a TableSnapshot,
        live: &'a Live,
    ) -> Result<Self> {
        let known = live.table_position(name);
        if let Some(known) = known.filter(|known| known.id != snapshot.id) {
            return Err(Error::refused(format!(
                "the table of source `{name}` is another one than before: it has the id {}, and had {}",
                snapshot.id, known.id
            ))
            .at(table.lake().root())
            .safe("nothing was planned")
            .way("put the table back that was there")
            .way("it is meant to be another table: give the job another store and another destination"));
        }
        let mut steps: Vec<TableStep> = live.table_steps(name).cloned().collect();
        let recorded = steps.len();
        let absent = Absent::look(name, snapshot, live, &steps);
        let mut gap = None;
        match known {
            Some(known) if known.absent != absent.text() && snapshot.version < known.version => {
                gap = Some(format!("it was taken back from version {} to {}", known.at, snapshot.at));
            }
            // Else every known file that was there is there: what else is new, is new.
            Some(known) if known.absent != absent.text() => match table.history(known, snapshot).await? {
                TableHistory::Steps(more) => steps.extend(more.into_iter().flat_map(by_partition)),
                TableHistory::Gap(what) => gap = Some(what),
            },
            _ => {}
        }
        let mut origins: HashMap<_, Vec<usize>> = HashMap::new();
        for (i, step) in steps.iter().enumerate() {
            for file in &step.added {
                origins.entry(owned_key(file)).or_default().push(i);
            }
        }
        let bases = steps.iter().map(|_| OnceLock::new()).collect();
        let touched = steps.iter().map(|_| OnceLock::new()).collect();
        Ok(Self { name, table, snapshot, live, known, steps, recorded, origins, bases, touched, gap, absent })
    }

    fn find(&self, file: &TableFile) -> Option<&'a LiveVersion> {
        self.live.find_table_file(self.name, file)
    }

    /// The step before `end` that `file` came by: that which wrote it from others with the same rows, if something of them
    /// is done, since what is in a file never changes; else the last that brought it, also back.
    fn origin(&self, file: &TableFile, end: usize) -> Option<usize> {
        if self.origins.is_empty() {
            return None;
        }
        let all = self.origins.get(&owned_key(file))?;
        let before = || all.iter().copied().filter(|i| *i < end);
        before().rfind(|i| self.steps[*i].same_rows && self.touches(*i)).or_else(|| before().next_back())
    }

    /// Adds what is not done of the files that step `i` wrote anew.
    fn collect_left<'s>(&'s self, i: usize, into: &mut BTreeMap<Key<'s>, &'s TableFile>) {
        let left = self.bases(i).iter().map(|of| self.file(*of)).filter(|file| !self.is_settled(file));
        into.extend(left.map(|file| (key(file), file)));
    }

    /// Adds what is not done of the files that step `i` took out, as if no change before it had been.
    fn collect_before<'s>(&'s self, i: usize, into: &mut BTreeMap<Key<'s>, &'s TableFile>) {
        for of in self.bases(i) {
            let file = self.file(*of);
            match self.change_before(*of) {
                Some(before) => self.collect_before(before, into),
                None if self.is_settled(file) => {}
                None => drop(into.insert(key(file), file)),
            }
        }
    }

    /// Whether nothing of the file is left to do.
    fn is_settled(&self, file: &TableFile) -> bool {
        self.find(file).is_some_and(LiveVersion::is_complete)
    }

    fn standing(&self, file: &TableFile) -> Standing<'_> {
        if let Some(version) = self.find(file) {
            return if version.is_complete() { Standing::Done(version) } else { Standing::PartlyDone(version) };
        }
        if self.live.is_forgotten(self.name, &file.file) {
            return Standing::Forced;
        }
        let Some(i) = self.origin(file, self.steps.len()) else {
            return if self.gap.is_some() { Standing::Unknown } else { Standing::New };
        };
        if !self.touches(i) {
            return Standing::New;
        }
        let bases = || self.bases(i).iter().map(|of| self.file(*of));
        if !self.steps[i].same_rows || !bases().any(|base| self.find(base).is_some()) {
            return Standing::Changed(i);
        }
        match bases().all(|base| self.is_settled(base)) {
            true => Standing::Covered,
            false => Standing::Waits(i),
        }
    }

    fn is_done(&self, file: &TableFile) -> bool {
        matches!(self.standing(file), Standing::Done(_) | Standing::Covered)
    }

    /// The files whose rows are all those that step `i` wrote anew, as far back as something of them is done: by the steps
    /// that took them out.
    fn bases(&self, i: usize) -> &[Removed] {
        self.bases[i].get_or_init(|| {
            let mut bases = Vec::new();
            for (at, file) in self.steps[i].removed.iter().enumerate() {
                // What an earlier step wrote has a base that is done, or is one itself.
                let before = self.origin(file, i).filter(|before| self.steps[*before].same_rows);
                match before.filter(|before| self.find(file).is_none() && self.touches(*before)) {
                    Some(before) => bases.extend_from_slice(self.bases(before)),
                    None => bases.push((i, at)),
                }
            }
            bases.sort_unstable_by_key(|of| key(self.file(*of)));
            bases.dedup_by_key(|of| key(self.file(*of)));
            bases
        })
    }

    fn file(&self, (step, at): Removed) -> &TableFile {
        &self.steps[step].removed[at]
    }

    /// Whether something of what step `i` took out is done, or is what is left of rows that are; or what it brought may be.
    fn touches(&self, i: usize) -> bool {
        *self.touched[i].get_or_init(|| {
            // What it brought back and is not done can hold rows of what came later, and is.
            let step = &self.steps[i];
            let may_bring_done = step.brings_back
                && step.added.iter().any(|file| self.find(file).is_none())
                && self.live.files(self.name).next().is_some();
            let is_of_done = |of: &Removed| self.find(self.file(*of)).is_some() || self.change_before(*of).is_some();
            may_bring_done || self.bases(i).iter().any(is_of_done)
        })
    }

    /// The commit before step `of.0` that took finished rows out and brought this file, if one did.
    fn change_before(&self, of: Removed) -> Option<usize> {
        let file = self.file(of);
        let origin = self.origin(file, of.0).filter(|_| self.find(file).is_none())?;
        (!self.steps[origin].same_rows && self.touches(origin)).then_some(origin)
    }

    /// The commit that took finished rows out, of a step that rewrote what it left.
    fn cause(&self, i: usize) -> &TableStep {
        let before = self.bases(i).iter().find_map(|of| self.change_before(*of));
        before.filter(|_| self.steps[i].same_rows).map_or(&self.steps[i], |before| self.cause(before))
    }

    fn new_steps(&self) -> impl Iterator<Item = &TableStep> {
        (self.recorded..self.steps.len()).filter(|i| self.touches(*i)).map(|i| &self.steps[i])
    }

    fn reached_when(&self, is_reached: bool) -> Option<TableReached> {
        let steps: Vec<TableStep> = self.new_steps().cloned().collect();
        let mut absent = self.absent.clone();
        absent.made_by(&steps, self.snapshot);
        let TableSnapshot { id, version, at, mark, .. } = self.snapshot;
        let (id, at, mark) = (id.clone(), at.clone(), mark.clone());
        let position = TablePosition { id, version: *version, at, mark, absent: absent.text() };
        let is_known = self.known == Some(&position) && steps.is_empty();
        (is_reached && !is_known).then_some(TableReached { position, steps })
    }

    /// Refuses commits that took finished rows out, where the policy does.
    fn check_changes(&self, policy: SourcePolicy) -> Result<()> {
        if policy.on_change != OnChange::Fail {
            return Ok(());
        }
        if let Some(gap) = &self.gap {
            return Err(Error::refused(format!(
                "files with finished work have left the table of source `{}`, and why is not known: {gap}",
                self.name
            ))
            .at(self.table.lake().root())
            .safe("nothing was planned")
            .way("the rows that are done may stay as they are: run with --on-change ignore")
            .way("begin anew, with another store and another destination"));
        }
        match self.new_steps().find(|step| !step.same_rows) {
            None => Ok(()),
            Some(step) => {
                let removed: Vec<_> = step.removed.iter().map(|file| &file.file.path).collect();
                Err(self.changed_error(step, &format!("it took out {}", first_few(removed.iter()))))
            }
        }
    }

    fn changed_error(&self, step: &TableStep, what: &str) -> Error {
        Error::refused(format!(
            "version {} of the table of source `{}` ({}) removed or changed rows that are done: {what}",
            step.at, self.name, step.operation
        ))
        .at(self.table.lake().root())
        .safe("nothing was planned")
        .way("do what it wrote as new rows: run with --on-change reprocess; the rows of before stay in the output")
        .way("go on as if such versions had not been, and leave what they wrote, as long as it is set: --on-change ignore")
        .way("begin anew, with another store and another destination")
    }

    fn gap_error(&self, gap: &str, files: &[&str]) -> Error {
        Error::new(
            ErrorKind::CannotDecide,
            format!(
                "files with finished work have left the table of source `{}`, and what became of their rows is not known: \
                 {gap}. It has {} files that no run has read: {}",
                self.name,
                files.len(),
                first_few(files.iter())
            ),
        )
        .at(self.table.lake().root())
        .safe("nothing was planned; a file is neither left out nor read twice without a word")
        .way("their rows are those that are done: lakemark bless JOB records the files as done")
        .way("only those of some are: lakemark bless JOB, then lakemark forget JOB with the paths of the others, then run")
        .way("begin anew, with another store and another destination")
    }

    /// A file that has left the table and is to be read still.
    async fn still_there(&self, file: &TableFile) -> Result<TableFile> {
        let path = &file.file.path;
        let has_its_rows = |now: &&TableFile| match self.standing(now) {
            Standing::Waits(i) | Standing::Changed(i) => {
                self.bases(i).iter().any(|of| key(self.file(*of)) == key(file))
            }
            _ => false,
        };
        let gone = |what: &str| {
            Error::new(
                ErrorKind::CannotDecide,
                format!(
                    "`{path}` of source `{}` is not done, and was rewritten together with files that are: its rows can only \
                     be read from itself, and {what}",
                    self.name
                ),
            )
            .at(self.table.lake().place(path))
            .safe("nothing was planned; no row is left out or read twice without a word")
            .way("restore the file from a copy, then run again")
            .way(match self.snapshot.files.iter().find(has_its_rows) {
                Some(now) => {
                    let now = &now.file.path;
                    format!("give its rows up: lakemark bless JOB --glob '{now}' records the file that they are in now as done")
                }
                None => "begin anew, with another store and another destination".to_owned(),
            })
        };
        let Some(now) = self.table.lake().stat(path).await? else {
            return Err(gone("it was deleted (vacuumed)"));
        };
        if file.file.size > 0 && now.size != file.file.size {
            return Err(gone("it does not have the size that the table's log says"));
        }
        let mut file = file.clone();
        file.file.size = now.size;
        Ok(file)
    }
}

/// Rows that stay the same stay in their partition: a step of several partitions is one for each.
fn by_partition(step: TableStep) -> Vec<TableStep> {
    let all = || step.removed.iter().chain(&step.added);
    if !step.same_rows || step.brings_back || !all().all(|file| !file.values.is_empty()) {
        return vec![step];
    }
    let TableStep { at, operation, same_rows, brings_back, removed, added } = step;
    let mut parts: BTreeMap<_, (Vec<TableFile>, Vec<TableFile>)> = BTreeMap::new();
    for file in removed {
        parts.entry(file.values.clone()).or_default().0.push(file);
    }
    for file in added {
        parts.entry(file.values.clone()).or_default().1.push(file);
    }
    let part = |(removed, added)| TableStep {
        at: at.clone(),
        operation: operation.clone(),
        same_rows,
        brings_back,
        removed,
        added,
    };
    parts.into_values().map(part).collect()
}

/// What of the past is not in a snapshot any more: by it one notices that something has left, without reading the log.
#[derive(Clone, Default)]
struct Absent {
    /// Files with finished work.
    count: u64,
    /// Of the set of them, and of the files that others made of such files: in no order.
    digest: u128,
}

impl Absent {
    fn look(name: &str, snapshot: &TableSnapshot, live: &Live, steps: &[TableStep]) -> Self {
        let mut absent = Self::default();
        for (path, versions) in live.files(name) {
            let now = snapshot.find(path);
            let gone = versions.iter().filter(|version| !now.is_some_and(|now| now.is_same(&version.file)));
            for version in gone {
                absent.count += 1;
                absent.add(&version.file);
            }
        }
        absent.made_by(steps, snapshot);
        absent
    }

    fn made_by<'a>(&mut self, steps: impl IntoIterator<Item = &'a TableStep>, snapshot: &TableSnapshot) {
        let made = steps.into_iter().flat_map(|step| &step.added);
        made.filter(|file| !snapshot.has(file)).for_each(|file| self.add(&file.file));
    }

    fn add(&mut self, file: &FileVersion) {
        let text = format!("{}\0{}", file.path, file.etag.as_deref().unwrap_or_default());
        self.digest = self.digest.wrapping_add(xxh3_128(text.as_bytes()));
    }

    fn text(&self) -> String {
        format!("{:032x}", self.digest)
    }
}

fn check_policy(name: &str, table: &dyn SourceTable, policy: SourcePolicy) -> Result<()> {
    let what = match (policy.on_change, policy.on_delete) {
        (OnChange::Replace, _) => "on_change = \"replace\"",
        (_, OnDelete::Retract) => "on_delete = \"retract\"",
        _ => return Ok(()),
    };
    Err(Error::new(
        ErrorKind::Unsupported,
        format!("source `{name}` is a {} table, and {what} is for files in this version", table.kind()),
    )
    .safe("nothing was planned")
    .way("refuse versions that change rows (the default): --on-change fail")
    .way("do what they wrote as new rows, beside the old ones: --on-change reprocess"))
}

/// Checks that a file that is done has the footer that it had.
async fn verify(table: &dyn SourceTable, file: &TableFile, version: &LiveVersion) -> Result<()> {
    let place = table.lake().place(&file.file.path);
    let is_other = |what: &str| {
        Error::refused(format!("a file of a table that is done {what}: files of tables are never changed"))
            .at(&place)
            .safe("nothing was planned")
            .way("restore the file from a copy")
            .way("do it again, beside its old rows: lakemark forget JOB with its path, then run")
    };
    table.lake().forget_footer(&file.file);
    match table.lake().evidence(&file.file).await? {
        FileRead::Read(evidence) if evidence.digest == version.evidence.digest => Ok(()),
        FileRead::Read(_) => Err(is_other("has another footer than when it was read")),
        FileRead::Unusable(why) => Err(is_other(&format!("cannot be read any more ({why})"))),
        FileRead::Changed => Err(is_other("has another size than the table's log says")),
        FileRead::Vanished => Err(is_other("is gone")),
    }
}

#[cfg(test)]
mod tests;
