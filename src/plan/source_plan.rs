//! What of one source is left to do: the listing against the live set.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};

use super::policy::{OnChange, OnDelete, OnMoved, SourcePolicy};
use super::superseded::{Leaving, Successor, Superseded};
use super::table::PlannedTable;
use crate::coverage::Coverage;
use crate::error::{Error, Result, first_few};
use crate::identity::FileVersion;
use crate::source::{FileRead, Lake, Listing, Unusable};
use crate::store::{FileUpdate, Live, LiveVersion};

/// A Parquet file is at least magic, footer length and magic.
const SMALLEST_PARQUET: u64 = 12;

/// Why a file is planned (R120).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The path was never seen.
    New,
    /// The path is known with other content.
    Replaced,
    /// The path is known, with the same content under another token.
    Moved,
    /// A part of this version is done.
    PartlyDone,
    /// A person made exactly this version undone.
    Forced,
}

impl Reason {
    /// As people read it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Replaced => "replaced",
            Self::Moved => "moved",
            Self::PartlyDone => "partly done",
            Self::Forced => "forced",
        }
    }
}

/// A file with something left to do.
#[derive(Debug, Clone)]
pub struct PlannedFile {
    /// The source's name.
    pub source: Arc<str>,
    /// The version to read, and no other.
    pub file: FileVersion,
    /// What of it is left; [`Coverage::Whole`] for a file that no one has opened yet.
    pub left: Coverage,
    /// Rows in each of its row groups, where known without opening it.
    pub group_rows: Option<Vec<u64>>,
    /// Why it is planned.
    pub reason: Reason,
    /// Whether its mtime was too fresh to be trusted when it was listed (R04).
    pub unsettled: bool,
    /// Whether its output may have to leave without that of other files, and so has files of its own.
    pub apart: bool,
}

/// Counts of a source's files, as reports show them. `listed` is the sum of `done` to `unusable`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SourceReport {
    /// The source.
    pub name: String,
    /// Files that were considered.
    pub listed: u64,
    /// Nothing left to do.
    pub done: u64,
    /// See [`Reason`].
    pub new: u64,
    /// See [`Reason`].
    pub replaced: u64,
    /// See [`Reason`].
    pub moved: u64,
    /// See [`Reason`].
    pub partly_done: u64,
    /// Made undone by a person.
    pub forced: u64,
    /// Failed before.
    pub failed: u64,
    /// Ruled out by partition values: no work, not sealed.
    pub excluded: u64,
    /// Partly done in a version that is gone, under a policy that leaves replaced files alone.
    pub stranded: u64,
    /// Cannot be read, each with the reason.
    pub unusable: Vec<Unusable>,
    /// Ignored by the rule: a path segment begins with `_` or `.`.
    pub hidden: u64,
    /// Known to the store, and not listed any more.
    pub vanished: u64,
    /// What a person should know of the listing: links that were not followed, names that look alike.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Whether footers of finished files were compared. Without it, `done` means: same path, size and token.
    pub verified: bool,
    /// What was told by row; in rows mode only, and then files are counted only where they cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<KeyReport>,
}

/// Rows of a source in rows mode, by what was known of their keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct KeyReport {
    /// Keys that were done before.
    pub keys: u64,
    /// Rows that were read.
    pub read: u64,
    /// Rows whose keys were done.
    pub done: u64,
    /// Rows whose keys other rows of this run have.
    pub repeated: u64,
    /// Rows that were not done.
    pub new: u64,
}

/// What of one source is left to do.
#[derive(Debug, Clone, Default)]
pub struct SourcePlan {
    /// Files with something left, ascending by path.
    pub files: Vec<PlannedFile>,
    /// Changes of the record: accepted tokens, found rewrites.
    pub updates: Vec<FileUpdate>,
    /// Files with finished work whose mtime was too fresh to be trusted when they were sealed (R04). A run that works
    /// compares their footers: see [`settle`](Self::settle).
    pub unsettled: Vec<FileVersion>,
    /// Files whose old output is to leave: replaced ones when they are done, and those that are gone.
    pub superseded: Vec<Superseded>,
    /// Whether some of it can leave without any further work.
    pub leaves: bool,
    /// Of a table: what else there is.
    pub table: Option<PlannedTable>,
    /// Counts. Files that only a worker opens can still turn out unusable.
    pub report: SourceReport,
}

impl SourcePlan {
    /// Nothing to do, and `report`.
    pub(super) fn of(report: SourceReport) -> Self {
        Self { report, ..Self::default() }
    }

    /// Whether what is recorded is to change, beside finished work.
    pub fn has_updates(&self) -> bool {
        !self.updates.is_empty() || self.leaves || self.table.as_ref().is_some_and(|table| table.is_news)
    }

    /// Whether a run has nothing to do for this source.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && !self.has_updates()
    }

    /// Settles the unsettled files by their footers: an equal one is trusted from now on, another one makes the file a
    /// replaced one, which `policy` decides about. Whether there is more to do than before.
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable) when a footer cannot be read;
    /// [`Refused`](crate::ErrorKind::Refused) by the policy.
    pub async fn settle(&mut self, lake: &Lake, live: &Live, policy: SourcePolicy) -> Result<bool> {
        let mut rewritten = false;
        for file in std::mem::take(&mut self.unsettled) {
            let Some(version) = live.find(&self.report.name, &file) else { continue };
            // What is remembered of the same path, size and token is what is in doubt.
            lake.forget_footer(&file);
            match lake.evidence(&file).await? {
                FileRead::Read(evidence) if evidence.digest == version.evidence.digest => {
                    self.updates.push(FileUpdate { recorded: file.clone(), now: Some(file), unsettled: false });
                }
                FileRead::Read(_) => rewritten |= self.rewritten(file, live, policy)?,
                // Unreadable or changed since the listing: the next run looks again.
                FileRead::Unusable(_) | FileRead::Changed | FileRead::Vanished => {}
            }
        }
        check_replaced(&self.report, live, policy)?;
        Ok(rewritten)
    }

    /// A file that counted as done or partly done, and whose content is another under the same token.
    fn rewritten(&mut self, file: FileVersion, live: &Live, policy: SourcePolicy) -> Result<bool> {
        let source: Arc<str> = self.report.name.as_str().into();
        let at = self.files.binary_search_by(|planned| planned.file.path.cmp(&file.path));
        match at {
            Ok(at) => {
                self.report.partly_done -= 1;
                self.files.remove(at);
            }
            Err(_) => self.report.done -= 1,
        }
        let before = self.files.len();
        let planned = PlannedFile::whole(&source, &file, Reason::Replaced, false, policy.keeps_apart());
        if policy.on_change == OnChange::Replace {
            return Err(rewritten_error(&planned));
        }
        replaced(self, planned, live.versions(&source, &file.path), policy)?;
        if self.files.len() == before {
            return Ok(false);
        }
        self.files.sort_by(|a, b| a.file.path.cmp(&b.file.path));
        self.updates.push(FileUpdate { recorded: file, now: None, unsettled: false });
        Ok(true)
    }
}

impl PlannedFile {
    pub(super) fn whole(source: &Arc<str>, file: &FileVersion, reason: Reason, unsettled: bool, apart: bool) -> Self {
        Self {
            source: Arc::clone(source),
            file: file.clone(),
            left: Coverage::Whole,
            group_rows: None,
            reason,
            unsettled,
            apart,
        }
    }
}

/// How a listed file relates to what is recorded.
enum Verdict {
    Done,
    /// Done, in whole or in part, by size and token, but its footer is another.
    Rewritten,
    Work(Reason),
    Moved {
        recorded: FileVersion,
        complete: bool,
    },
    Unusable(String),
    Gone,
}

/// Plans one source: `listing` of `lake` against `live`. Opens only files whose path is known with another token, and files
/// that are done in part (a file that is done is never opened, unless `policy.verify`).
///
/// # Errors
/// [`Refused`](crate::ErrorKind::Refused) by the policy, with every way on; [`Unavailable`](crate::ErrorKind::Unavailable)
/// when a footer that must be compared cannot be read.
pub async fn plan_source(
    name: &str,
    lake: &Lake,
    listing: &Listing,
    live: &Live,
    policy: SourcePolicy,
) -> Result<SourcePlan> {
    let source: Arc<str> = name.into();
    if let Some(file) = listing.files.iter().find(|file| !file.has_token()) {
        return Err(Error::refused(format!("source `{name}` gives neither etag nor mtime for `{}`", file.path))
            .at(lake.root())
            .safe("nothing was planned: without a token a replaced file could not be told from the old one")
            .way("track rows instead of files: mode = \"rows\" with on = [key columns]")
            .way("serve the files from a store whose listings have etags or modification times"));
    }
    let verdicts = judge_all(name, lake, &listing.files, live, policy.verify).await?;

    let mut report = SourceReport {
        name: name.to_owned(),
        listed: listing.files.len() as u64,
        unusable: listing.unusable.clone(),
        hidden: listing.hidden,
        warnings: listing.warnings.clone(),
        verified: policy.verify,
        ..SourceReport::default()
    };
    report.listed += listing.unusable.len() as u64;
    let mut plan = SourcePlan::of(report);
    let local = lake.root().is_local();
    let mut refused_moves = Vec::new();
    for (file, verdict) in listing.files.iter().zip(verdicts) {
        let report = &mut plan.report;
        let unsettled = crate::source::unsettled(file, listing.taken_at, local);
        let whole = |reason| PlannedFile::whole(&source, file, reason, unsettled, policy.keeps_apart());
        if !policy.verify && live.find(name, file).is_some_and(|version| version.unsettled) {
            plan.unsettled.push(file.clone());
        }
        let is_readable = !matches!(&verdict, Verdict::Gone | Verdict::Unusable(_));
        let has_old = || {
            let mut versions = live.versions(name, &file.path).iter();
            versions.any(|version| !version.file.is_same(file)) || !live.kept_of(name, &file.path).is_empty()
        };
        if policy.on_change == OnChange::Replace && is_readable && has_old() {
            plan.superseded.push(Superseded::new(source.clone(), file.path.clone(), Successor::Version(file.clone())));
        }
        match verdict {
            Verdict::Done => report.done += 1,
            Verdict::Gone => {
                if policy.on_change == OnChange::Replace {
                    plan.superseded.push(Superseded::new(source.clone(), file.path.clone(), Successor::Unusable));
                }
                report.listed -= 1;
                report.vanished += 1;
            }
            Verdict::Unusable(why) => report.unusable.push(Unusable { path: file.path.to_string(), why }),
            Verdict::Work(reason @ (Reason::New | Reason::Forced)) => {
                *(if reason == Reason::New { &mut report.new } else { &mut report.forced }) += 1;
                plan.files.push(whole(reason));
            }
            Verdict::Work(Reason::PartlyDone) => {
                report.partly_done += 1;
                plan.files.push(rest(whole(Reason::PartlyDone), live.find(name, file)));
            }
            Verdict::Rewritten if policy.on_change == OnChange::Replace => {
                return Err(rewritten_error(&whole(Reason::Replaced)));
            }
            Verdict::Rewritten => {
                if policy.on_change == OnChange::Reprocess {
                    plan.updates.push(FileUpdate { recorded: file.clone(), now: None, unsettled: false });
                }
                replaced(&mut plan, whole(Reason::Replaced), live.versions(name, &file.path), policy)?;
            }
            Verdict::Work(_) => replaced(&mut plan, whole(Reason::Replaced), live.versions(name, &file.path), policy)?,
            Verdict::Moved { recorded, complete } => match policy.on_moved {
                OnMoved::Fail => refused_moves.push(file.path.to_string()),
                OnMoved::Reprocess => {
                    report.moved += 1;
                    plan.files.push(whole(Reason::Moved));
                }
                OnMoved::Accept => {
                    report.moved += 1;
                    let update = FileUpdate { recorded: recorded.clone(), now: Some(file.clone()), unsettled };
                    plan.updates.push(update);
                    if !complete {
                        plan.files.push(rest(whole(Reason::Moved), live.find(name, &recorded)));
                    }
                }
            },
        }
    }
    if !refused_moves.is_empty() {
        return Err(moved_error(name, &refused_moves));
    }
    let gone = vanished(live.files(name).map(|(path, _)| path), listing);
    if policy.on_change == OnChange::Replace && !listing.partial {
        stuck(&mut plan, live, &gone);
    }
    if policy.on_delete == OnDelete::Retract && !listing.partial {
        // Forgotten files too: their output can be there still.
        let known = live.paths(name);
        let gone = vanished(known.iter().copied(), listing);
        let known = known.len() as u64;
        plan.superseded.retain(|file| !gone.contains(&&*file.path));
        if !listing.files.is_empty() && policy.max_replaced.is_exceeded(gone.len() as u64, known) {
            return Err(too_much_gone(name, gone.len() as u64, known));
        }
        retracted(&mut plan, lake, listing, &gone).await?;
    }
    // As it is once the accepted moves are recorded.
    let moved = |file: &Superseded| {
        let Successor::Version(now) = &file.by else { return file.clone() };
        let update = plan.updates.iter().find(|update| update.now.as_ref() == Some(now));
        let by = Successor::Version(update.map_or(now, |update| &update.recorded).clone());
        Superseded { by, ..file.clone() }
    };
    let leaving = Leaving::of(live, &plan.superseded.iter().map(moved).collect::<Vec<_>>());
    leaving.check_apart(name)?;
    plan.leaves = !leaving.is_empty();
    check_replaced(&plan.report, live, policy)?;
    plan.report.vanished += gone.len() as u64;
    Ok(plan)
}

/// Refuses a run that would redo too much (R18).
pub(super) fn check_replaced(report: &SourceReport, live: &Live, policy: SourcePolicy) -> Result<()> {
    let known = live.files(&report.name).count() as u64;
    let redone = matches!(policy.on_change, OnChange::Reprocess | OnChange::Replace);
    if redone && policy.max_replaced.is_exceeded(report.replaced, known) {
        return Err(too_much_replaced(&report.name, report.replaced, known, report.new));
    }
    Ok(())
}

/// What is left of a partly done version.
pub(super) fn rest(mut file: PlannedFile, recorded: Option<&LiveVersion>) -> PlannedFile {
    if let Some(recorded) = recorded {
        let group_rows = recorded.evidence.group_rows();
        file.left = recorded.coverage.missing(&group_rows);
        file.group_rows = Some(group_rows);
    }
    file
}

/// A replaced file, by the policy.
fn replaced(plan: &mut SourcePlan, file: PlannedFile, versions: &[LiveVersion], policy: SourcePolicy) -> Result<()> {
    plan.report.replaced += 1;
    match policy.on_change {
        OnChange::Reprocess | OnChange::Replace => plan.files.push(file),
        OnChange::Ignore if versions.iter().all(LiveVersion::is_complete) => {}
        OnChange::Ignore => {
            return Err(Error::refused(format!(
                "`{}` of source `{}` was replaced while it was only partly done: under on_change = \"ignore\" its rest \
                 would never be done",
                file.file.path, file.source
            ))
            .safe("nothing was planned")
            .way("run with --on-change reprocess, to do the new version whole"));
        }
        OnChange::Fail => {
            return Err(Error::refused(format!(
                "`{}` of source `{}` was replaced by other content",
                file.file.path, file.source
            ))
            .safe("nothing was planned")
            .way("run with --on-change reprocess, to do the new version; the old version's rows stay in the output")
            .way("run with --on-change ignore, to leave it"));
        }
    }
    Ok(())
}

/// Judges each file; footers that must be read are read a few at a time.
async fn judge_all(name: &str, lake: &Lake, files: &[FileVersion], live: &Live, verify: bool) -> Result<Vec<Verdict>> {
    let judging: Vec<_> = files
        .iter()
        .map(|file| judge(lake, file, live.versions(name, &file.path), live.is_forgotten(name, file), verify))
        .collect();
    futures::stream::iter(judging).buffered(16).try_collect().await
}

async fn judge(
    lake: &Lake,
    file: &FileVersion,
    versions: &[LiveVersion],
    forgotten: bool,
    verify: bool,
) -> Result<Verdict> {
    if let Some(version) = versions.iter().find(|version| version.file.is_same(file)) {
        // The rest of a partly done file is opened anyway: another content under the same token must not be mixed with it.
        if verify || !version.is_complete() {
            // What is remembered of the same path, size and token is what is in doubt.
            lake.forget_footer(file);
            match lake.evidence(file).await? {
                FileRead::Read(evidence) if evidence.digest == version.evidence.digest => {}
                FileRead::Read(_) => return Ok(Verdict::Rewritten),
                // Its work stays on record: what cannot be read now proves nothing about what was read then.
                FileRead::Unusable(why) => return Ok(Verdict::Unusable(why)),
                FileRead::Changed => return Ok(Verdict::Unusable("it changed since it was listed".to_owned())),
                FileRead::Vanished => return Ok(Verdict::Gone),
            }
        }
        let done = version.is_complete();
        return Ok(if done { Verdict::Done } else { Verdict::Work(Reason::PartlyDone) });
    }
    if file.size < SMALLEST_PARQUET && !lake.has_whole_files() {
        return Ok(Verdict::Unusable(format!("{} bytes: too short to be a Parquet file", file.size)));
    }
    if forgotten {
        return Ok(Verdict::Work(Reason::Forced));
    }
    if versions.is_empty() {
        return Ok(Verdict::Work(Reason::New));
    }
    // A known path with another token: its footer is compared before anything is called replaced.
    Ok(match lake.evidence(file).await? {
        FileRead::Read(evidence) => {
            let same = versions.iter().find(|v| v.evidence.digest == evidence.digest && v.file.size == file.size);
            match same {
                Some(v) => Verdict::Moved { recorded: v.file.clone(), complete: v.is_complete() },
                None => Verdict::Work(Reason::Replaced),
            }
        }
        FileRead::Unusable(why) => Verdict::Unusable(why),
        // Changed since the listing: a worker finds that out for this file too, and plans it again.
        FileRead::Changed => Verdict::Work(Reason::Replaced),
        FileRead::Vanished => Verdict::Gone,
    })
}

/// Those of the paths that the store knows which the listing does not have.
fn vanished<'a>(known: impl Iterator<Item = &'a str>, listing: &Listing) -> Vec<&'a str> {
    let listed = |path: &str| listing.files.binary_search_by(|file| (*file.path).cmp(path)).is_ok();
    known.filter(|path| !listed(path)).collect()
}

/// Files of which something waits, and which cannot be finished now: what waits must not enter beside what is there.
fn stuck(plan: &mut SourcePlan, live: &Live, gone: &[&str]) {
    let name = plan.report.name.clone();
    let unusable = plan.report.unusable.iter().map(|unusable| unusable.path.as_str());
    let known = unusable.chain(gone.iter().copied()).filter(|path| !live.versions(&name, path).is_empty());
    let stuck: Vec<_> = known.map(|path| Superseded::new(name.as_str(), path, Successor::Unusable)).collect();
    plan.superseded.extend(stuck);
}

/// Files that are gone, whose output is to leave: only what is surely gone, and never all at once.
async fn retracted(plan: &mut SourcePlan, lake: &Lake, listing: &Listing, gone: &[&str]) -> Result<()> {
    if gone.is_empty() {
        return Ok(());
    }
    let name = plan.report.name.clone();
    let refuse = |what: String| Error::refused(what).at(lake.root()).safe("nothing was planned");
    let keep = "keep their output: run with --on-delete keep";
    if listing.files.is_empty() {
        return Err(refuse(format!(
            "source `{name}` lists no file at all, and all {} that are known are gone",
            gone.len()
        ))
        .way("see that it is the right place, and mounted")
        .way(keep));
    }
    let looks: Vec<_> =
        gone.iter().map(|path| async move { Ok::<_, Error>((*path, lake.stat(path).await?)) }).collect();
    let mut looks = futures::stream::iter(looks).buffered(16);
    while let Some((path, now)) = looks.try_next().await? {
        let unusable = listing.unusable.iter().any(|unusable| unusable.path == path);
        if now.is_some() || unusable {
            return Err(refuse(format!("`{path}` of source `{name}` is not listed any more, and is there"))
                .way("select it again with the source's `url`")
                .way(keep));
        }
        plan.superseded.push(Superseded::new(name.as_str(), path, Successor::Gone));
    }
    Ok(())
}

fn rewritten_error(file: &PlannedFile) -> Error {
    let path = &file.file.path;
    Error::refused(format!(
        "`{path}` of source `{}` has other content under the same size and modification time or etag: its old output \
         cannot be told from a new one's",
        file.source
    ))
    .safe("nothing was planned")
    .way(format!("lakemark forget JOB {path}, then run: its old output leaves when it is done again"))
    .way("keep the old output: run with --on-change reprocess")
}

fn moved_error(name: &str, paths: &[String]) -> Error {
    Error::refused(format!(
        "{} finished files of source `{name}` have another modification time or etag, and the same footer: {}",
        paths.len(),
        first_few(paths.iter())
    ))
    .safe("nothing was planned")
    .way("they were only copied or touched: run with --on-moved accept, and their work stays done")
    .way("their content may differ: run with --on-moved reprocess; the old rows stay in the output")
    .way("restore their modification times (`cp -p`, `rsync -t`, `touch -r`), then run again")
}

fn too_much_gone(name: &str, gone: u64, known: u64) -> Error {
    Error::refused(format!(
        "{gone} of {known} known files of source `{name}` are gone, and their output is to leave: more than `max_replaced` allows"
    ))
    .safe("nothing was planned")
    .way(format!("it is meant: run with --set source.{name}.max_replaced={gone}"))
    .way("keep their output: run with --on-delete keep")
}

fn too_much_replaced(name: &str, replaced: u64, known: u64, new: u64) -> Error {
    Error::refused(format!(
        "{replaced} of {known} known files of source `{name}` were replaced ({new} are new): more than `max_replaced` allows"
    ))
    .safe("nothing was planned")
    .way(format!("it is meant: run with --set source.{name}.max_replaced={replaced}"))
    .way("leave the replaced files: run with --on-change ignore")
}
