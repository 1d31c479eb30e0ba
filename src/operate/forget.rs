//! `forget`: make finished work undone, and say first what else that undoes and doubles.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{changed, check_bound};
use crate::error::{Error, Result};
use crate::identity::{CheckpointId, Epoch, FileVersion};
use crate::run::{Change, Run};
use crate::sink::Sink;
use crate::source::Pattern;
use crate::store::transition::{Gone, Transition};
use crate::store::{Decision, Event, ForgottenFile, Head, Live, LiveVersion, OutputFile, View};

/// Which file versions a person means. What none of its parts chooses stays.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// These raw paths, relative to their sources' roots; of the named source, or of all.
    pub paths: Vec<(Option<String>, String)>,
    /// Paths that match.
    pub globs: Vec<Pattern>,
    /// Files of which something was done in this epoch.
    pub epoch: Option<Epoch>,
    /// Also take committed output of what is chosen out of the destination: nothing is there twice afterwards.
    pub retract: bool,
}

/// One file version that is undone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Forgotten {
    /// The source.
    pub source: String,
    /// The version.
    pub file: FileVersion,
    /// Whether it was chosen; else it is undone, in part or whole, because its rows share output files with a chosen one.
    pub chosen: bool,
    /// Whether the whole record of it is dropped; else only what the withdrawn checkpoints cover.
    pub dropped: bool,
    /// Row groups of it that are done in checkpoints whose output is committed: their rows will be there twice once it is
    /// done again.
    pub committed_atoms: u64,
    /// Those checkpoints.
    #[serde(skip)]
    kept: Vec<CheckpointId>,
}

/// Rows of a source in rows mode that are undone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ForgottenRows {
    /// The source.
    pub source: String,
    /// How many.
    pub rows: u64,
    /// How many of them have their output in committed files that stay: it will be there twice once they are done again.
    pub committed_rows: u64,
    /// The checkpoints that stay, and whose keys are undone.
    #[serde(skip)]
    kept: Vec<CheckpointId>,
}

/// What forgetting would do.
#[derive(Debug, Clone, Serialize)]
pub struct ForgetPlan {
    /// What is undone, ascending by source and path.
    pub files: Vec<Forgotten>,
    /// What is undone of sources in rows mode, ascending by source.
    pub rows: Vec<ForgottenRows>,
    /// Checkpoints that are withdrawn whole: those that wait for a commit, and those whose output is retracted.
    pub withdrawn: Vec<CheckpointId>,
    /// Committed output files that are taken out of the destination.
    pub retracted_outputs: Vec<String>,
    /// Rows in those: until the next run they are missing from the destination.
    pub retracted_rows: u64,
    /// Committed output files that hold rows of chosen files and stay: doing those files again doubles the rows.
    pub doubled_outputs: Vec<String>,
    /// Source rows whose output is in those, at most.
    pub doubled_rows: u64,
    /// Chosen paths of which nothing is done.
    pub unknown: Vec<String>,
    #[serde(skip)]
    selection: Selection,
}

impl ForgetPlan {
    /// What forgetting `selection` would do in the state of `view`.
    ///
    /// # Errors
    /// [`Refused`](crate::ErrorKind::Refused) when something chosen is in a commit that is not finished.
    pub fn of(view: &View, selection: Selection) -> Result<Self> {
        match &view.head {
            Some(head) => Self::in_state(head, &view.live, selection),
            None => Err(Error::invalid("there is no store here").safe("nothing was changed")),
        }
    }

    /// Whether nothing would be undone.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.rows.is_empty() && self.withdrawn.is_empty()
    }

    /// Whether it would undo and double exactly what `other` would.
    fn is_same(&self, other: &Self) -> bool {
        self.files == other.files
            && self.rows == other.rows
            && self.withdrawn == other.withdrawn
            && self.retracted_outputs == other.retracted_outputs
            && self.doubled_outputs == other.doubled_outputs
            && self.doubled_rows == other.doubled_rows
    }

    fn in_state(head: &Head, live: &Live, selection: Selection) -> Result<Self> {
        let open = head.manifest.commits.open.as_ref().map(|intent| intent.n);
        let mut found = Found { retract: selection.retract, ..Found::default() };
        for (source, version) in versions(live) {
            if selection.chooses(source, version) {
                found.choose(live, open, source, version)?;
            }
        }
        if selection.retract {
            found.choose_kept(live, open, &selection)?;
        }
        found.share(live);
        if let Some(epoch) = selection.epoch {
            found.choose_rows(live, open, epoch)?;
        }
        let known =
            |path: &String| found.files.keys().any(|(_, known)| known == path) || found.kept_paths.contains(path);
        let unknown = selection.paths.iter().map(|(_, path)| path).filter(|path| !known(path)).cloned().collect();
        let retracted = retracted(live, &found.withdrawn);
        Ok(Self {
            retracted_outputs: retracted.iter().map(OutputFile::path).collect(),
            retracted_rows: retracted.iter().map(|output| output.rows).sum(),
            files: found.files.into_values().flatten().collect(),
            rows: found.rows.into_values().collect(),
            withdrawn: found.withdrawn.into_iter().collect(),
            doubled_outputs: found.doubled_outputs.into_iter().collect(),
            doubled_rows: found.doubled_rows,
            unknown,
            selection,
        })
    }
}

fn versions(live: &Live) -> impl Iterator<Item = (&str, &LiveVersion)> {
    live.sources().flat_map(|source| {
        live.files(source).flat_map(move |(_, versions)| versions.iter().map(move |version| (source, version)))
    })
}

/// The output of those of `withdrawn` that are committed.
fn retracted<'a>(live: &Live, withdrawn: impl IntoIterator<Item = &'a CheckpointId>) -> Vec<OutputFile> {
    let rows = withdrawn.into_iter().filter_map(|id| live.checkpoint(*id)).filter(|row| row.commit.is_some());
    rows.flat_map(|row| row.outputs.clone()).collect()
}

impl Selection {
    fn chooses(&self, source: &str, version: &LiveVersion) -> bool {
        self.chooses_one(source, &version.file, version.parts.iter().map(|(id, _)| *id))
    }

    fn chooses_one(&self, source: &str, file: &FileVersion, mut of: impl Iterator<Item = CheckpointId>) -> bool {
        let path = &*file.path;
        let is_named =
            |(of, chosen): &(Option<String>, String)| chosen == path && of.as_deref().is_none_or(|of| of == source);
        self.paths.iter().any(is_named)
            || self.globs.iter().any(|glob| glob.matches(path))
            || self.epoch.is_some_and(|epoch| of.any(|id| id.epoch == epoch))
    }
}

/// What was found so far.
#[derive(Default)]
struct Found {
    files: BTreeMap<(String, String), Vec<Forgotten>>,
    withdrawn: BTreeSet<CheckpointId>,
    doubled_outputs: BTreeSet<String>,
    doubled_rows: u64,
    /// Of sources in rows mode, by their names.
    rows: BTreeMap<String, ForgottenRows>,
    /// Chosen paths that were forgotten before, and whose rows were kept.
    kept_paths: BTreeSet<String>,
    retract: bool,
}

impl Found {
    fn choose(&mut self, live: &Live, open: Option<u64>, source: &str, version: &LiveVersion) -> Result<()> {
        let (mut committed_atoms, mut kept) = (0, Vec::new());
        let leaving = live.leaving(open);
        for (id, coverage) in &version.parts {
            let Some(row) = live.checkpoint(*id) else { continue };
            if row.commit.is_some() && row.commit == open || leaving.contains(id) {
                return Err(in_open_commit(&format!("`{}` is", version.file.path), open));
            }
            if row.decision == Decision::Blessed {
                // Its rows are where an earlier forgetting left them.
                for kept_id in live.kept_of(source, &version.file.path) {
                    if self.retract {
                        self.withdrawn.insert(kept_id);
                        continue;
                    }
                    committed_atoms += coverage.touched_atoms(version.evidence.row_groups());
                    kept.push(kept_id);
                    let outputs = live.checkpoint(kept_id).into_iter().flat_map(|row| &row.outputs);
                    self.doubled_outputs.extend(outputs.map(OutputFile::path));
                }
            }
            if row.is_pending() || (self.retract && row.commit.is_some()) {
                self.withdrawn.insert(*id);
            } else if row.commit.is_some() {
                committed_atoms += coverage.touched_atoms(version.evidence.row_groups());
                kept.push(*id);
                self.doubled_outputs.extend(row.outputs.iter().map(OutputFile::path));
            }
        }
        self.doubled_rows += if committed_atoms > 0 { version.evidence.rows() } else { 0 };
        let file = version.file.clone();
        self.add(Forgotten { source: source.to_owned(), file, chosen: true, dropped: true, committed_atoms, kept });
        Ok(())
    }

    /// Chooses the output that keeps rows of chosen versions which were forgotten before.
    fn choose_kept(&mut self, live: &Live, open: Option<u64>, selection: &Selection) -> Result<()> {
        for (source, forgotten) in live.kept_rows() {
            if !selection.chooses_one(source, &forgotten.file, forgotten.kept.iter().copied()) {
                continue;
            }
            let counts = |id: &&CheckpointId| live.checkpoint(**id).is_some_and(|row| row.commit.is_some());
            for id in forgotten.kept.iter().filter(counts) {
                if live.checkpoint(*id).is_some_and(|row| row.commit == open) {
                    return Err(in_open_commit(&format!("`{}` is", forgotten.file.path), open));
                }
                self.withdrawn.insert(*id);
                self.kept_paths.insert(forgotten.file.path.to_string());
                self.add(Forgotten {
                    source: source.to_owned(),
                    file: forgotten.file.clone(),
                    chosen: true,
                    dropped: false,
                    committed_atoms: 0,
                    kept: Vec::new(),
                });
            }
        }
        Ok(())
    }

    /// Adds the versions that share a withdrawn checkpoint with a chosen one: its output holds rows of all of them.
    fn share(&mut self, live: &Live) {
        let other = |source: &str, file: &FileVersion, dropped| Forgotten {
            source: source.to_owned(),
            file: file.clone(),
            chosen: false,
            dropped,
            committed_atoms: 0,
            kept: Vec::new(),
        };
        let (withdrawn, dropped) = with_blessed_over(live, std::mem::take(&mut self.withdrawn));
        self.withdrawn = withdrawn;
        for (source, file) in dropped {
            self.add(other(&source, &file, true));
        }
        for (source, file) in kept_in(live, &self.withdrawn) {
            self.add(other(&source, &file, false));
        }
        for (source, version) in versions(live) {
            if version.parts.iter().any(|(id, _)| self.withdrawn.contains(id)) {
                self.add(other(source, &version.file, false));
            }
        }
    }

    /// Chooses the rows that were sealed in `epoch`.
    fn choose_rows(&mut self, live: &Live, open: Option<u64>, epoch: Epoch) -> Result<()> {
        let leaving = live.leaving(open);
        for row in live.checkpoints().filter(|row| row.id.epoch == epoch && row.decision == Decision::Accepted) {
            let is_forgotten = live.are_rows_forgotten(row.id);
            // Of what was forgotten before, the output can still leave.
            let may_leave = self.retract && row.commit.is_some();
            let Some(source) = row.source.as_deref().filter(|_| !is_forgotten || may_leave) else { continue };
            if row.commit.is_some() && row.commit == open || leaving.contains(&row.id) {
                return Err(in_open_commit(&format!("rows of source `{source}` are"), open));
            }
            let rows = self.rows.entry(source.to_owned()).or_insert_with(|| ForgottenRows {
                source: source.to_owned(),
                rows: 0,
                committed_rows: 0,
                kept: Vec::new(),
            });
            rows.rows += if is_forgotten { 0 } else { row.counts.rows_in };
            if row.commit.is_none() || self.retract {
                self.withdrawn.insert(row.id);
            } else {
                rows.committed_rows += row.counts.rows_in;
                rows.kept.push(row.id);
                self.doubled_outputs.extend(row.outputs.iter().map(OutputFile::path));
                self.doubled_rows += row.counts.rows_in;
            }
        }
        Ok(())
    }

    /// Adds one version, unless it is there.
    fn add(&mut self, forgotten: Forgotten) {
        let key = (forgotten.source.clone(), forgotten.file.path.to_string());
        let versions = self.files.entry(key).or_default();
        if versions.iter().all(|known| known.file != forgotten.file) {
            versions.push(forgotten);
        }
    }
}

/// Blessed versions of paths with rows in the output of `gone` that were forgotten before: without that output they are
/// not done, whatever the blessing says. Of any version: a blessing may have taken the path under another token, which
/// cannot be told from one of other content.
pub(super) fn blessed_over(live: &Live, gone: &BTreeSet<CheckpointId>) -> Vec<(String, FileVersion)> {
    let is_blessed = |id: CheckpointId| live.checkpoint(id).is_some_and(|row| row.decision == Decision::Blessed);
    let mut found: Vec<_> = live
        .kept_rows()
        .filter(|(_, forgotten)| forgotten.kept.iter().any(|id| gone.contains(id)))
        .flat_map(|(source, forgotten)| live.versions(source, &forgotten.file.path).iter().map(move |v| (source, v)))
        .filter(|(_, version)| version.parts.iter().any(|(id, _)| is_blessed(*id)))
        .map(|(source, version)| (source.to_owned(), version.file.clone()))
        .collect();
    found.sort_by(|a, b| (&a.0, &a.1.path).cmp(&(&b.0, &b.1.path)));
    found.dedup();
    found
}

/// `gone`, and the checkpoints that have to go with it: a file whose blessing goes is done again whole, so that all its
/// rows that an earlier forgetting left somewhere go too. Beside it the blessed versions.
pub(super) fn with_blessed_over(
    live: &Live,
    mut gone: BTreeSet<CheckpointId>,
) -> (BTreeSet<CheckpointId>, Vec<(String, FileVersion)>) {
    loop {
        let blessed = blessed_over(live, &gone);
        let before = gone.len();
        gone.extend(blessed.iter().flat_map(|(source, file)| live.kept_of(source, &file.path)));
        if gone.len() == before {
            return (gone, blessed);
        }
    }
}

/// Versions that were forgotten while their rows were in the output of `gone`, and that are not done again since: those
/// rows are the only ones of them.
pub(super) fn kept_in(live: &Live, gone: &BTreeSet<CheckpointId>) -> Vec<(String, FileVersion)> {
    let is_done = |source: &str, file: &FileVersion| live.find(source, file).is_some_and(LiveVersion::is_complete);
    let kept = live.kept_rows().filter(|(source, forgotten)| {
        forgotten.kept.iter().any(|id| gone.contains(id)) && !is_done(source, &forgotten.file)
    });
    kept.map(|(source, forgotten)| (source.to_owned(), forgotten.file.clone())).collect()
}

fn in_open_commit(what: &str, n: Option<u64>) -> Error {
    let n = n.unwrap_or_default();
    Error::refused(format!("{what} in commit {n}, which is not finished"))
        .safe("nothing was changed")
        .way("finish the commit first: lakemark run JOB, then forget")
}

impl Run {
    /// Does what `plan` says, in one manifest. Output that is retracted leaves `sink` by a commit of its own, which the next
    /// run ends if this one is stopped.
    ///
    /// # Errors
    /// [`Refused`](crate::ErrorKind::Refused) when it would do something else by now, or `sink` is not the store's, or a
    /// commit is not finished;
    /// [`Invalid`](crate::ErrorKind::Invalid) when output is to be retracted and there is no `sink`.
    pub async fn forget(&self, plan: &ForgetPlan, sink: Option<&dyn Sink>) -> Result<()> {
        let check = |head: &Head, live: &Live| {
            let now = ForgetPlan::in_state(head, live, plan.selection.clone())?;
            if now.is_same(plan) { Ok(()) } else { Err(changed(self.store())) }
        };
        let (manifest, leaving) = self
            .with_live(|head, live| {
                check(head, live)?;
                let is_committed = |id: &CheckpointId| live.checkpoint(*id).is_some_and(|row| row.commit.is_some());
                let leaving: Vec<CheckpointId> = plan.withdrawn.iter().copied().filter(is_committed).collect();
                Ok::<_, Error>((head.manifest.clone(), leaving))
            })
            .await?;
        if leaving.is_empty() {
            let transition = |segments| Transition::Forget(Gone { segments, ..Gone::default() });
            return self
                .operate(transition, |head, live| {
                    check(head, live)?;
                    Ok(plan.changes(&plan.withdrawn))
                })
                .await;
        }
        let Some(sink) = sink else {
            return Err(Error::invalid("the destination is needed, to take output out of it"));
        };
        check_bound(self.store(), &manifest, sink).await?;
        let outputs = self.with_live(|_, live| retracted(live, &leaving)).await;
        check_there(&outputs, sink).await?;
        self.retract(sink, |head, live| {
            check(head, live)?;
            // Those whose output leaves are undone when it is out.
            let now: Vec<_> = plan.withdrawn.iter().copied().filter(|id| !leaving.contains(id)).collect();
            Ok((plan.changes(&now), leaving.clone()))
        })
        .await
    }
}

/// What is to be taken out is there: an absent file is not a retracted one.
async fn check_there(retracted: &[OutputFile], sink: &dyn Sink) -> Result<()> {
    for output in retracted {
        if sink.visible_size(output).await? != Some(output.size) {
            return Err(Error::refused(format!(
                "the committed file `{}` is not there as it was written",
                output.path()
            ))
            .at(sink.binding().root)
            .safe("nothing was changed")
            .way("see that the destination is the right one, and mounted")
            .way("if its work is lost: lakemark repair JOB, then forget"));
        }
    }
    Ok(())
}

impl ForgetPlan {
    /// What changes at once; `withdrawn` are the checkpoints that are undone with it.
    fn changes(&self, withdrawn: &[CheckpointId]) -> Vec<Change> {
        let mut changes = Vec::new();
        if !withdrawn.is_empty() {
            let (checkpoints, why) = (withdrawn.to_vec(), "forgotten".to_owned());
            changes.push(Change::Event(Event::Withdrawn { checkpoints, why }));
        }
        let mut by_source: BTreeMap<&str, Vec<ForgottenFile>> = BTreeMap::new();
        for forgotten in self.files.iter().filter(|file| file.dropped) {
            let (file, kept) = (forgotten.file.clone(), forgotten.kept.clone());
            by_source.entry(&forgotten.source).or_default().push(ForgottenFile { file, kept });
        }
        for (source, files) in by_source {
            changes.push(Change::Event(Event::Forgotten { source: source.to_owned(), files }));
        }
        for rows in self.rows.iter().filter(|rows| !rows.kept.is_empty()) {
            let (source, checkpoints) = (rows.source.clone(), rows.kept.clone());
            changes.push(Change::Event(Event::RowsForgotten { source, checkpoints }));
        }
        changes
    }
}
