//! The live set: what is done, by source and path, and the seals that say so.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::seal::{OutputFile, Seal, SealKind};
use super::segment::{
    CheckpointRow, Decision, Event, EventRow, FileRow, FileUpdate, ForgottenFile, SegmentData, act_on,
};
use crate::coverage::Coverage;
use crate::identity::{CheckpointId, Epoch, Evidence, FileVersion, TableFile, TablePosition, TableStep};

/// One version of a file, as far as it is done.
#[derive(Debug, Clone)]
pub struct LiveVersion {
    /// The version.
    pub file: FileVersion,
    /// What of it is done, by all checkpoints together.
    pub coverage: Coverage,
    /// What else was seen of it.
    pub evidence: Evidence,
    /// Whether its mtime was too fresh to be trusted when it was sealed (R04).
    pub unsettled: bool,
    /// Which checkpoint covers what.
    pub parts: Vec<(CheckpointId, Coverage)>,
}

impl LiveVersion {
    /// Whether nothing of it is left to do.
    pub fn is_complete(&self) -> bool {
        self.coverage == Coverage::Whole
    }
}

type Files = HashMap<Arc<str>, Vec<LiveVersion>>;

/// What is done and what is decided. Read in one piece from the chain; changed only by decided seals and events.
#[derive(Debug, Clone, Default)]
pub struct Live {
    sources: HashMap<Arc<str>, Files>,
    checkpoints: BTreeMap<CheckpointId, CheckpointRow>,
    events: Vec<EventRow>,
    /// Versions that a person made undone at some time, by source and path.
    forgotten: HashMap<Arc<str>, HashMap<Arc<str>, Vec<ForgottenFile>>>,
    /// Checkpoints whose row keys a person made undone while their output stayed.
    rows_forgotten: HashSet<CheckpointId>,
}

impl Live {
    /// The state that all segments together describe.
    pub fn new(data: SegmentData) -> Self {
        let mut live = Self::default();
        for row in &data.events {
            live.forget(&row.event);
        }
        live.events = data.events;
        live.checkpoints = data.checkpoints.into_iter().map(|row| (row.id, row)).collect();
        for row in data.files {
            live.insert(row);
        }
        live
    }

    fn insert(&mut self, FileRow { checkpoint, sealed }: FileRow) {
        let files = self.sources.entry(sealed.source).or_default();
        let versions = files.entry(Arc::clone(&sealed.file.path)).or_default();
        let part = (checkpoint, sealed.coverage);
        match versions.iter_mut().find(|v| v.file.is_same(&sealed.file)) {
            Some(version) => {
                version.coverage = version.coverage.union(&part.1).normalised(&sealed.evidence);
                version.unsettled |= sealed.unsettled;
                version.parts.push(part);
            }
            None => versions.push(LiveVersion {
                coverage: match &part.1 {
                    Coverage::Whole => Coverage::Whole,
                    groups => groups.normalised(&sealed.evidence),
                },
                file: sealed.file,
                evidence: sealed.evidence,
                unsettled: sealed.unsettled,
                parts: vec![part],
            }),
        }
    }

    fn forget(&mut self, event: &Event) {
        if let Event::RowsForgotten { checkpoints, .. } = event {
            self.rows_forgotten.extend(checkpoints);
        }
        if let Event::Forgotten { source, files } = event {
            let paths = self.forgotten.entry(source.as_str().into()).or_default();
            for forgotten in files {
                paths.entry(Arc::clone(&forgotten.file.path)).or_default().push(forgotten.clone());
            }
        }
    }

    /// Whether exactly this version is undone because a person made it so.
    pub fn is_forgotten(&self, source: &str, file: &FileVersion) -> bool {
        let versions = self.forgotten.get(source).and_then(|paths| paths.get(&file.path));
        self.find(source, file).is_none() && versions.is_some_and(|all| all.iter().any(|gone| gone.file.is_same(file)))
    }

    /// Versions that a person made undone while their rows were in committed output, with their sources and the checkpoints
    /// of that output, in no order.
    pub(crate) fn kept_rows(&self) -> impl Iterator<Item = (&str, &ForgottenFile)> {
        let all =
            self.forgotten.iter().flat_map(|(source, paths)| paths.values().flatten().map(move |f| (&**source, f)));
        all.filter(|(_, forgotten)| !forgotten.kept.is_empty())
    }

    /// Committed checkpoints that keep rows of some version of `path`, which was forgotten.
    pub(crate) fn kept_of(&self, source: &str, path: &str) -> BTreeSet<CheckpointId> {
        let of = self.forgotten.get(source).and_then(|paths| paths.get(path)).into_iter().flatten();
        let is_committed = |id: &CheckpointId| self.checkpoint(*id).is_some_and(|row| row.commit.is_some());
        of.flat_map(|forgotten| forgotten.kept.iter().copied()).filter(is_committed).collect()
    }

    /// Every path of `source` of which something is done, or was forgotten with rows in committed output, sorted.
    pub(crate) fn paths(&self, source: &str) -> BTreeSet<&str> {
        let forgotten = self.forgotten.get(source).into_iter().flatten().map(|(path, _)| &**path);
        let kept = forgotten.filter(|path| !self.kept_of(source, path).is_empty());
        self.files(source).map(|(path, _)| path).chain(kept).collect()
    }

    /// Every known version of `path`, in no order; the newest is not known to the store.
    pub fn versions(&self, source: &str, path: &str) -> &[LiveVersion] {
        self.sources.get(source).and_then(|files| files.get(path)).map_or(&[], Vec::as_slice)
    }

    /// The record of exactly this version, if any of it is done.
    pub fn find(&self, source: &str, file: &FileVersion) -> Option<&LiveVersion> {
        self.versions(source, &file.path).iter().find(|v| v.file.is_same(file))
    }

    /// Every known path of `source` with its versions, in no order.
    pub fn files(&self, source: &str) -> impl Iterator<Item = (&str, &[LiveVersion])> {
        self.sources.get(source).into_iter().flatten().map(|(path, versions)| (&**path, versions.as_slice()))
    }

    /// The names of sources with finished work.
    pub fn sources(&self) -> impl Iterator<Item = &str> {
        self.sources.keys().map(|name| &**name)
    }

    /// Row groups that are done, in live versions of all files. A file that is done whole counts as its groups.
    pub fn atoms(&self) -> u64 {
        let versions = self.sources.values().flat_map(HashMap::values).flatten();
        versions.map(|v| v.coverage.touched_atoms(v.evidence.row_groups())).sum()
    }

    /// Whether the seal of that name is decided.
    pub fn is_decided(&self, id: CheckpointId) -> bool {
        self.checkpoints.contains_key(&id)
    }

    /// A decided checkpoint.
    pub fn checkpoint(&self, id: CheckpointId) -> Option<&CheckpointRow> {
        self.checkpoints.get(&id)
    }

    /// All decided checkpoints, ascending by id.
    pub fn checkpoints(&self) -> impl Iterator<Item = &CheckpointRow> {
        self.checkpoints.values()
    }

    /// Accepted checkpoints that are in no commit.
    pub fn pending(&self) -> impl Iterator<Item = &CheckpointRow> {
        self.checkpoints.values().filter(|row| row.is_pending())
    }

    /// History, ascending by version.
    pub fn events(&self) -> &[EventRow] {
        &self.events
    }

    /// The schema recorded last for `source`, as IPC bytes in hex.
    pub fn schema(&self, source: &str) -> Option<&str> {
        self.events.iter().rev().find_map(|row| match &row.event {
            Event::Schema { source: s, ipc } if s == source => Some(ipc.as_str()),
            _ => None,
        })
    }

    /// Up to where the table `source` was taken into account.
    pub fn table_position(&self, source: &str) -> Option<&TablePosition> {
        self.events.iter().rev().find_map(|row| match &row.event {
            Event::Table { source: of, position, .. } if of == source => Some(position),
            _ => None,
        })
    }

    /// What others did to files of the table `source` with finished work, oldest first.
    pub(crate) fn table_steps<'a>(&'a self, source: &'a str) -> impl Iterator<Item = &'a TableStep> {
        let of = move |row: &'a EventRow| match &row.event {
            Event::Table { source: of, steps, .. } if of == source => steps.as_slice(),
            _ => &[],
        };
        self.events.iter().flat_map(of)
    }

    /// The record of this file of a table, if any of it is done.
    pub(crate) fn find_table_file(&self, source: &str, file: &TableFile) -> Option<&LiveVersion> {
        self.versions(source, &file.file.path).iter().find(|version| file.is_same(&version.file))
    }

    /// I5 for one seal: whether nothing it covers is covered already, also not by itself twice.
    pub fn may_accept(&self, seal: &Seal) -> bool {
        let free = |(i, sealed): (usize, &super::seal::SealedFile)| {
            let same = |other: &&super::seal::SealedFile| {
                other.source == sealed.source && other.file.path == sealed.file.path && other.file.is_same(&sealed.file)
            };
            let twice = seal.files[..i].iter().filter(same).any(|other| other.coverage.overlaps(&sealed.coverage));
            let known = self.find(&sealed.source, &sealed.file);
            !twice && !known.is_some_and(|v| v.coverage.overlaps(&sealed.coverage))
        };
        seal.files.iter().enumerate().all(free)
    }

    /// Decides `seal`, once and for good, and adds it. Void seals are not recorded: they cover nothing.
    ///
    /// A seal whose atoms are covered already is rejected, so that it cannot block the fold. Of its row keys the live set
    /// knows nothing.
    pub fn decide(&mut self, seal: &Seal) -> Option<SegmentData> {
        self.decide_with(seal, false)
    }

    /// As [`decide`](Self::decide), for who knows whether a row key of it `is_covered` already.
    pub(crate) fn decide_with(&mut self, seal: &Seal, is_covered: bool) -> Option<SegmentData> {
        if seal.kind == SealKind::Void || self.is_decided(seal.id) {
            return None;
        }
        let accepted = !is_covered && self.may_accept(seal);
        Some(self.add(seal, if accepted { Decision::Accepted } else { Decision::Rejected }))
    }

    /// Row keys that are done, of all sources in rows mode.
    pub fn row_keys(&self) -> u64 {
        let counts = |row: &&CheckpointRow| {
            row.source.is_some() && row.decision == Decision::Accepted && !self.rows_forgotten.contains(&row.id)
        };
        self.checkpoints.values().filter(counts).map(|row| row.counts.rows_in).sum()
    }

    /// How many seals of `epoch` were rejected: what they cover is done elsewhere, in part or whole, and the rest of it is not.
    pub fn rejected_in(&self, epoch: Epoch) -> u64 {
        let rejected = |row: &&CheckpointRow| row.id.epoch == epoch && row.decision == Decision::Rejected;
        self.checkpoints.values().filter(rejected).count() as u64
    }

    /// Checkpoints that count no more, whose row keys are undone.
    pub(crate) fn undone(&self) -> HashSet<CheckpointId> {
        let undone = self.checkpoints.values().filter(|row| row.decision == Decision::Withdrawn);
        undone.map(|row| row.id).chain(self.rows_forgotten.iter().copied()).collect()
    }

    /// Whether a person made the row keys of this checkpoint undone while its output stayed.
    pub(crate) fn are_rows_forgotten(&self, id: CheckpointId) -> bool {
        self.rows_forgotten.contains(&id)
    }

    /// Adds `seal`, decided as `decision`; its rows.
    pub(crate) fn add(&mut self, seal: &Seal, decision: Decision) -> SegmentData {
        let row = CheckpointRow::new(seal, decision);
        let mut data = SegmentData { checkpoints: vec![row.clone()], ..SegmentData::default() };
        self.checkpoints.insert(seal.id, row);
        if decision != Decision::Rejected {
            for sealed in &seal.files {
                let row = FileRow { checkpoint: seal.id, sealed: sealed.clone() };
                self.insert(row.clone());
                data.files.push(row);
            }
        }
        data
    }

    /// Lets `row` happen.
    pub fn happen(&mut self, row: EventRow) {
        act_on(std::iter::once(&row.event), self.checkpoints.values_mut());
        match &row.event {
            Event::Withdrawn { checkpoints, .. } => self.drop_parts(checkpoints),
            Event::Updated { source, files } => self.update(source, files),
            Event::Forgotten { source, files } => {
                let gone = |f: &ForgottenFile| FileUpdate { recorded: f.file.clone(), now: None, unsettled: false };
                self.update(source, &files.iter().map(gone).collect::<Vec<_>>());
            }
            _ => {}
        }
        self.forget(&row.event);
        self.events.push(row);
    }

    fn update(&mut self, source: &str, updates: &[FileUpdate]) {
        let Some(files) = self.sources.get_mut(source) else { return };
        for update in updates {
            let Some(versions) = files.get_mut(&update.recorded.path) else { continue };
            match &update.now {
                Some(now) => {
                    for version in versions.iter_mut().filter(|v| v.file.is_same(&update.recorded)) {
                        version.file.clone_from(now);
                        version.unsettled = update.unsettled;
                    }
                }
                None => versions.retain(|v| !v.file.is_same(&update.recorded)),
            }
            if versions.is_empty() {
                files.remove(&update.recorded.path);
            }
        }
    }

    fn drop_parts(&mut self, gone: &[CheckpointId]) {
        for files in self.sources.values_mut() {
            for versions in files.values_mut() {
                versions.retain_mut(|version| {
                    let before = version.parts.len();
                    version.parts.retain(|(id, _)| !gone.contains(id));
                    if version.parts.len() < before {
                        let all = version.parts.iter().fold(Coverage::none(), |all, (_, part)| all.union(part));
                        version.coverage = all.normalised(&version.evidence);
                    }
                    !version.parts.is_empty()
                });
            }
            files.retain(|_, versions| !versions.is_empty());
        }
    }

    /// The checkpoints whose output commit `n` takes out.
    pub(crate) fn leaving(&self, n: Option<u64>) -> &[CheckpointId] {
        let found = self.events.iter().rev().find_map(|row| match &row.event {
            Event::Retract { n: of, checkpoints, .. } if Some(*of) == n => Some(checkpoints.as_slice()),
            _ => None,
        });
        found.unwrap_or_default()
    }

    /// Checkpoints of commits into the store's destination, from their intents on.
    pub(crate) fn committed_checkpoints(&self) -> impl Iterator<Item = &CheckpointRow> {
        // What a caller brought into a sink of its own is not in this one.
        let callers: HashSet<u64> = self.events.iter().filter_map(|row| row.event.callers_commit()).collect();
        self.checkpoints.values().filter(move |row| row.commit.is_some_and(|n| !callers.contains(&n)))
    }

    /// The versions that a checkpoint covers, with their sources, in no order.
    pub(crate) fn files_of(&self, id: CheckpointId) -> impl Iterator<Item = (&str, &LiveVersion)> {
        self.sources.iter().flat_map(move |(source, files)| {
            let covers = move |version: &&LiveVersion| version.parts.iter().any(|(part, _)| *part == id);
            files.values().flatten().filter(covers).map(move |version| (&**source, version))
        })
    }

    /// The output files of commits into the store's destination, from their intents on, with the commits' numbers.
    pub fn committed_outputs(&self) -> impl Iterator<Item = (u64, &OutputFile)> {
        let rows = self.committed_checkpoints().filter_map(|row| Some((row.commit?, row)));
        rows.flat_map(|(n, row)| row.outputs.iter().map(move |o| (n, o)))
    }

    /// The output files of `ids`, each name once (R75).
    pub fn outputs(&self, ids: &[CheckpointId]) -> Vec<(CheckpointId, OutputFile)> {
        let rows = ids.iter().filter_map(|id| self.checkpoints.get(id));
        rows.flat_map(|row| row.outputs.iter().map(|output| (row.id, output.clone()))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coverage::RangeSet;
    use crate::identity::{AttemptNonce, Epoch, InputId, ManifestVersion, StoreId};
    use crate::store::seal::{Counts, SealedFile};

    fn seal(input: u32, files: &[(&str, Coverage)]) -> Seal {
        let sealed = |(path, coverage): &(&str, Coverage)| SealedFile {
            source: "docs".into(),
            file: FileVersion::new(*path, 10).with_mtime(1),
            coverage: coverage.clone(),
            evidence: Evidence::new(&[3, 3], "d".into()),
            unsettled: false,
        };
        Seal {
            store: StoreId::random(),
            id: CheckpointId::first(Epoch(1), InputId(input)),
            attempt: AttemptNonce::random(),
            kind: SealKind::Sealed,
            planned_from: ManifestVersion(1),
            sealed_at: 0,
            files: files.iter().map(sealed).collect(),
            keys: None,
            outputs: Vec::new(),
            counts: Counts::default(),
        }
    }

    fn group(n: u64) -> Coverage {
        Coverage::groups(RangeSet::of(n..n + 1))
    }

    #[test]
    fn a_seal_that_overlaps_a_live_one_is_rejected_whole_and_does_not_block() {
        let mut live = Live::default();
        assert!(live.decide(&seal(1, &[("a", group(0))])).is_some());
        live.decide(&seal(2, &[("b", Coverage::Whole), ("a", group(0))]));
        assert_eq!(live.checkpoint(CheckpointId::first(Epoch(1), InputId(2))).unwrap().decision, Decision::Rejected);
        assert!(live.versions("docs", "b").is_empty());
        live.decide(&seal(3, &[("a", group(1))]));
        assert!(live.versions("docs", "a")[0].is_complete(), "groups of two checkpoints make the file whole");
        assert!(!live.may_accept(&seal(4, &[("c", group(0)), ("c", Coverage::Whole)])), "twice in one seal");
    }

    #[test]
    fn what_is_withdrawn_is_undone_and_nothing_else() {
        let mut live = Live::default();
        live.decide(&seal(1, &[("a", group(0)), ("b", Coverage::Whole)]));
        live.decide(&seal(2, &[("a", group(1))]));
        let event =
            Event::Withdrawn { checkpoints: vec![CheckpointId::first(Epoch(1), InputId(1))], why: "gone".into() };
        live.happen(EventRow { version: ManifestVersion(2), epoch: Epoch(1), at: 0, event });
        assert!(live.versions("docs", "b").is_empty());
        assert_eq!(live.versions("docs", "a")[0].coverage, group(1));
        assert_eq!(live.pending().count(), 1);
        assert!(live.may_accept(&seal(3, &[("b", Coverage::Whole)])));
    }

    #[test]
    fn another_version_of_a_path_is_another_file() {
        let mut live = Live::default();
        live.decide(&seal(1, &[("a", Coverage::Whole)]));
        let mut newer = seal(2, &[("a", Coverage::Whole)]);
        newer.files[0].file.mtime = Some(2);
        assert!(live.may_accept(&newer));
    }
}
