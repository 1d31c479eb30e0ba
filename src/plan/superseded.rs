//! Output that is to leave because its source file was replaced, or is gone: which checkpoints, and when.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use crate::error::{Error, Result, first_few};
use crate::identity::{CheckpointId, FileVersion};
use crate::store::{Decision, Live, LiveVersion};

/// A file whose old output is to leave, in the commit with which its new output enters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superseded {
    /// The source.
    pub source: Arc<str>,
    /// The raw path.
    pub path: Arc<str>,
    /// What it is now.
    pub by: Successor,
}

impl Superseded {
    pub(crate) fn new(source: impl Into<Arc<str>>, path: impl Into<Arc<str>>, by: Successor) -> Self {
        Self { source: source.into(), path: path.into(), by }
    }
}

/// What is in the place of a superseded file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Successor {
    /// This version: when it is done, all others leave.
    Version(FileVersion),
    /// Nothing, and its output leaves.
    Gone,
    /// What cannot be done, or nothing, and its output stays: what is done of a further version never enters.
    Unusable,
}

/// What a commit does about superseded files.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Leaving {
    /// Committed checkpoints whose output leaves.
    pub(crate) out: BTreeSet<CheckpointId>,
    /// Checkpoints that wait for a commit and are never to be in one.
    pub(crate) dropped: BTreeSet<CheckpointId>,
    /// Checkpoints that wait until all of their files' new versions are done.
    pub(crate) held: HashSet<CheckpointId>,
    /// Superseded files whose output is beside that of files that are not, with those.
    pub(crate) shared: BTreeMap<String, BTreeSet<String>>,
}

impl Leaving {
    /// Whether something leaves without any further work.
    pub(crate) fn is_empty(&self) -> bool {
        self.out.is_empty() && self.dropped.is_empty()
    }

    /// What of the output of `superseded` can leave in the state `live`.
    pub(crate) fn of(live: &Live, superseded: &[Superseded]) -> Self {
        let mut leaving = Self::default();
        let files: Vec<File> = superseded.iter().filter_map(|file| File::of(live, file)).collect();
        if files.is_empty() {
            return leaving;
        }
        let mut old: HashMap<CheckpointId, Vec<usize>> = HashMap::new();
        for (i, file) in files.iter().enumerate() {
            for id in &file.old {
                old.entry(*id).or_default().push(i);
            }
        }
        let others = others(live, &files, &old);
        let mut goes: Vec<bool> = files.iter().map(|file| file.is_complete).collect();
        let free = |goes: &[bool], id: &CheckpointId| {
            !others.contains_key(id) && old.get(id).is_some_and(|of| of.iter().all(|i| goes[*i]))
        };
        // One that has to wait keeps those whose output is beside its own.
        loop {
            let now: Vec<bool> =
                files.iter().enumerate().map(|(i, f)| goes[i] && f.old.iter().all(|id| free(&goes, id))).collect();
            if now == goes {
                break;
            }
            goes = now;
        }
        let is_pending = |id: &&CheckpointId| live.checkpoint(**id).is_some_and(|row| row.is_pending());
        for (file, goes) in files.iter().zip(&goes) {
            if *goes {
                let (dropped, out): (Vec<CheckpointId>, Vec<_>) = file.old.iter().partition(is_pending);
                leaving.dropped.extend(dropped);
                leaving.out.extend(out);
            } else {
                leaving.held.extend(file.new.iter().chain(&file.old).filter(is_pending));
            }
            let beside = file.old.iter().filter_map(|id| others.get(id)).flatten();
            let beside: BTreeSet<String> = beside.map(|path| (*path).to_owned()).collect();
            if !beside.is_empty() {
                leaving.shared.insert(file.path.to_string(), beside);
            }
        }
        leaving
    }

    /// Refuses what would take the output of other files away.
    ///
    /// # Errors
    /// [`Refused`](crate::ErrorKind::Refused), naming a superseded file and those beside it.
    pub(crate) fn check_apart(&self, source: &str) -> Result<()> {
        let Some((path, beside)) = self.shared.iter().next() else { return Ok(()) };
        Err(Error::refused(format!(
            "the old output of `{path}` of source `{source}` is to leave, and holds rows of {} too",
            first_few(beside.iter())
        ))
        .safe("nothing was planned")
        .way("undo these together with it, and do them again: lakemark forget JOB PATH... with all of them, then run")
        .way("keep the old output: run with --on-change reprocess and --on-delete keep"))
    }
}

/// A superseded file in one state of the store.
struct File<'a> {
    source: &'a str,
    path: &'a str,
    by: Option<&'a FileVersion>,
    /// Accepted checkpoints with rows of what it was.
    old: BTreeSet<CheckpointId>,
    /// Those with rows of what it is.
    new: BTreeSet<CheckpointId>,
    is_complete: bool,
}

impl<'a> File<'a> {
    fn of(live: &Live, file: &'a Superseded) -> Option<Self> {
        let (source, path) = (&*file.source, &*file.path);
        let by = match &file.by {
            Successor::Version(by) => Some(by),
            Successor::Gone | Successor::Unusable => None,
        };
        let counts = |id: &CheckpointId| live.checkpoint(*id).is_some_and(|row| row.decision == Decision::Accepted);
        let ids = |version: &LiveVersion| version.parts.iter().map(|(id, _)| *id).collect::<Vec<_>>();
        let is_new = |version: &&LiveVersion| by.is_some_and(|by| version.file.is_same(by));
        let (new, old): (Vec<_>, Vec<_>) = live.versions(source, path).iter().partition(is_new);
        let new_ids: BTreeSet<CheckpointId> = new.iter().flat_map(|version| ids(version)).collect();
        // A person said that it is done without its rows: what is in the output is what is to be there.
        if new_ids.iter().any(|id| !counts(id)) {
            return None;
        }
        let kept = live.kept_of(source, path);
        let old: BTreeSet<CheckpointId> = if file.by == Successor::Unusable {
            // Only what would enter beside committed rows of another version.
            let pending = |id: &CheckpointId| live.checkpoint(*id).is_some_and(|row| row.is_pending());
            let is_committed = |version: &LiveVersion| ids(version).iter().any(|id| counts(id) && !pending(id));
            let beside = |version: &&&LiveVersion| {
                let other = |other: &&&LiveVersion| !other.file.is_same(&version.file);
                old.iter().filter(other).any(|other| is_committed(other)) || !kept.is_empty()
            };
            old.iter().filter(beside).flat_map(|v| ids(v)).filter(|id| counts(id) && pending(id)).collect()
        } else {
            old.iter().flat_map(|version| ids(version)).filter(counts).chain(kept).collect()
        };
        let is_complete = by.is_none() || new.iter().any(|version| version.is_complete());
        let file = Self { source, path, by, old, new: new_ids, is_complete };
        (!file.old.is_empty()).then_some(file)
    }

    fn is(&self, source: &str, path: &str) -> bool {
        self.source == source && self.path == path
    }
}

/// Files with rows in the checkpoints `old` that are not superseded, or not in that version.
fn others<'a>(
    live: &'a Live,
    files: &[File<'_>],
    old: &HashMap<CheckpointId, Vec<usize>>,
) -> HashMap<CheckpointId, Vec<&'a str>> {
    let mut others: HashMap<CheckpointId, Vec<&str>> = HashMap::new();
    let leaves = |id: &CheckpointId, source: &str, path: &str, version: Option<&FileVersion>| {
        old[id]
            .iter()
            .map(|i| &files[*i])
            .any(|file| file.is(source, path) && !version.zip(file.by).is_some_and(|(version, by)| version.is_same(by)))
    };
    for source in live.sources() {
        for (path, versions) in live.files(source) {
            for version in versions {
                for (id, _) in version.parts.iter().filter(|(id, _)| old.contains_key(id)) {
                    if !leaves(id, source, path, Some(&version.file)) {
                        others.entry(*id).or_default().push(path);
                    }
                }
            }
        }
    }
    for (source, forgotten) in live.kept_rows() {
        let path = &*forgotten.file.path;
        for id in forgotten.kept.iter().filter(|id| old.contains_key(id)) {
            if !leaves(id, source, path, None) {
                others.entry(*id).or_default().push(path);
            }
        }
    }
    others
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coverage::{Coverage, RangeSet};
    use crate::identity::{AttemptNonce, Epoch, Evidence, InputId, ManifestVersion, StoreId};
    use crate::store::{Counts, Event, EventRow, ForgottenFile, Seal, SealKind, SealedFile};

    /// Version `at` of a file.
    fn file(path: &str, at: i64) -> FileVersion {
        FileVersion::new(path, 10).with_mtime(at)
    }

    fn id(input: u32) -> CheckpointId {
        CheckpointId::first(Epoch(1), InputId(input))
    }

    fn group(n: u64) -> Coverage {
        Coverage::groups(RangeSet::of(n..n + 1))
    }

    fn seal(input: u32, files: &[(FileVersion, Coverage)]) -> Seal {
        let sealed = |(file, coverage): &(FileVersion, Coverage)| SealedFile {
            source: "docs".into(),
            file: file.clone(),
            coverage: coverage.clone(),
            evidence: Evidence::new(&[3, 3], "d".into()),
            unsettled: false,
        };
        Seal {
            store: StoreId::random(),
            id: id(input),
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

    fn happened(live: &mut Live, event: Event) {
        live.happen(EventRow { version: ManifestVersion(2), epoch: Epoch(1), at: 0, event });
    }

    /// A state with sealed checkpoints, numbered from 1; those up to `committed` are in commit 1.
    fn live(seals: &[&[(FileVersion, Coverage)]], committed: u32) -> Live {
        let mut live = Live::default();
        for (input, files) in (1..).zip(seals) {
            live.decide(&seal(input, files)).unwrap();
            if input == committed {
                happened(&mut live, Event::Intent { n: 1, files: 0, rows: 0, only: None, holds: false });
            }
        }
        live
    }

    fn superseded(path: &str, by: Option<i64>) -> Superseded {
        let by = by.map_or(Successor::Gone, |at| Successor::Version(file(path, at)));
        Superseded { source: "docs".into(), path: path.into(), by }
    }

    fn ids<'a>(of: impl IntoIterator<Item = &'a CheckpointId>) -> Vec<u32> {
        let mut ids: Vec<u32> = of.into_iter().map(|id| id.input.0).collect();
        ids.sort_unstable();
        ids
    }

    /// What leaves, is dropped, is held.
    fn told(leaving: &Leaving) -> String {
        format!("{:?} {:?} {:?}", ids(&leaving.out), ids(&leaving.dropped), ids(&leaving.held))
    }

    #[test]
    fn old_output_leaves_when_the_new_version_is_complete() {
        let (old, half) = ([(file("a", 1), Coverage::Whole)], [(file("a", 2), group(0))]);
        let rest = [(file("a", 2), group(1))];
        let of = |live: &Live| Leaving::of(live, &[superseded("a", Some(2))]);
        assert_eq!(told(&of(&live(&[&old], 1))), "[] [] []", "nothing is done yet");
        assert_eq!(told(&of(&live(&[&old, &half], 1))), "[] [] [2]", "a part waits");
        assert_eq!(told(&of(&live(&[&old, &half, &rest], 1))), "[1] [] []");
        let newer = [(file("a", 3), Coverage::Whole)];
        let state = live(&[&old, &half, &newer], 1);
        assert_eq!(told(&Leaving::of(&state, &[superseded("a", Some(3))])), "[1] [2] []");
        // What it is again: the other version never shows.
        assert_eq!(told(&Leaving::of(&live(&[&old, &half], 1), &[superseded("a", Some(1))])), "[] [2] []");
        assert_eq!(told(&Leaving::of(&live(&[&old], 1), &[superseded("a", None)])), "[1] [] []", "gone");
        assert!(Leaving::of(&live(&[&old], 1), &[superseded("a", Some(1)), superseded("b", None)]).is_empty());
    }

    #[test]
    fn nothing_of_a_version_that_cannot_be_done_enters_beside_another() {
        let (old, half) = ([(file("a", 1), Coverage::Whole)], [(file("a", 2), group(0))]);
        let stuck = [Superseded { source: "docs".into(), path: "a".into(), by: Successor::Unusable }];
        assert_eq!(told(&Leaving::of(&live(&[&old, &half], 1), &stuck)), "[] [2] []");
        assert!(Leaving::of(&live(&[&old], 1), &stuck).is_empty());
        assert!(Leaving::of(&live(&[&half], 0), &stuck).is_empty(), "nothing is there beside it");
        let rest = [(file("a", 2), group(1))];
        assert!(Leaving::of(&live(&[&half, &rest], 1), &stuck).is_empty(), "of one version");
    }

    #[test]
    fn output_beside_that_of_others_leaves_only_with_them() {
        let both = [(file("a", 1), Coverage::Whole), (file("b", 1), Coverage::Whole)];
        let (new_a, new_b) = ([(file("a", 2), Coverage::Whole)], [(file("b", 2), Coverage::Whole)]);
        let (a, b) = (superseded("a", Some(2)), superseded("b", Some(2)));
        let one = Leaving::of(&live(&[&both, &new_a], 1), std::slice::from_ref(&a));
        assert_eq!(told(&one), "[] [] [2]");
        let refused = one.check_apart("docs").unwrap_err().to_string();
        assert!(refused.contains("`a`") && refused.contains("rows of `b`"), "{refused}");
        let waits = Leaving::of(&live(&[&both, &new_a], 1), &[a.clone(), b.clone()]);
        assert_eq!(told(&waits), "[] [] [2]", "until the other is done too");
        assert!(waits.check_apart("docs").is_ok());
        assert_eq!(told(&Leaving::of(&live(&[&both, &new_a, &new_b], 1), &[a, b])), "[1] [] []");
    }

    #[test]
    fn rows_that_a_person_left_when_they_forgot_a_file_leave_too() {
        let file_a = [(file("a", 1), Coverage::Whole)];
        let mut state = live(&[&file_a], 1);
        let forgotten = ForgottenFile { file: file("a", 1), kept: vec![id(1)] };
        happened(&mut state, Event::Forgotten { source: "docs".into(), files: vec![forgotten] });
        let by = superseded("a", Some(1));
        assert_eq!(told(&Leaving::of(&state, std::slice::from_ref(&by))), "[] [] []", "it is not done again");
        state.decide(&seal(2, &file_a)).unwrap();
        assert_eq!(told(&Leaving::of(&state, &[by])), "[1] [] []");
    }
}
