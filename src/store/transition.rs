//! The transitions of the chain: pure functions from the old state to the new one.

use std::collections::BTreeMap;

use super::holder::Holder;
use super::invariants;
use super::manifest::{
    Binding, CommitState, Head, KeySegmentRef, Manifest, OpenIntent, SegmentRef, SourceSettings, TableState,
    TransitionKind,
};
use crate::error::{Error, Result};
use crate::identity::{AttemptNonce, Epoch, ManifestVersion, Root, StoreId};

/// What makes two writers' manifests of one version differ.
#[derive(Debug, Clone, Copy)]
pub struct Stamp {
    /// The id of the store, if this is its first manifest.
    pub store: StoreId,
    /// The writer.
    pub nonce: AttemptNonce,
    /// Milliseconds since 1970.
    pub at: i64,
}

/// How the list of segments changes: always with the transition that needs it, in one manifest.
#[derive(Debug, Clone, Default)]
pub struct SegmentChange {
    /// All segments after it, newest first; `None` leaves the list as it is.
    pub now: Option<Vec<SegmentRef>>,
    /// All segments of row keys after it, oldest first; `None` leaves the list as it is.
    pub keys: Option<Vec<KeySegmentRef>>,
}

/// What makes finished work undone.
#[derive(Debug, Clone, Default)]
pub struct Gone {
    /// Committed files that are no longer in the destination.
    pub files: u64,
    /// Rows in them.
    pub rows: u64,
    /// Segments with the record of it.
    pub segments: SegmentChange,
}

/// A step of the chain.
#[derive(Debug, Clone)]
pub enum Transition {
    /// Begin an epoch, naming the accepted seals of the one before in a segment.
    Open {
        /// The new holder.
        holder: Holder,
        /// Sources to record; one that is known must be equal.
        sources: BTreeMap<String, SourceSettings>,
        /// The destination to record; a known one must be equal.
        sink: Option<Binding>,
        /// Where the store was reached and probed.
        endpoint: String,
        /// Segments with the folded seals.
        segments: SegmentChange,
    },
    /// Name folded seals.
    Fold(SegmentChange),
    /// Decide commit `intent.n`.
    CommitIntent {
        /// The decided set.
        intent: OpenIntent,
        /// Segments in which every checkpoint of it is folded.
        segments: SegmentChange,
    },
    /// The open intent is visible.
    CommitDone {
        /// Files of it that are missing: their checkpoints are withdrawn in `segments`.
        missing_files: u64,
        /// Rows in them.
        missing_rows: u64,
        /// The table with it.
        table: Option<TableState>,
        /// Segments with the withdrawals and the record of the commit.
        segments: SegmentChange,
    },
    /// The open intent was given up, after its barrier landed. A directory's never is.
    CommitVoid {
        /// The table with the barrier.
        table: Option<TableState>,
        /// Segments with the withdrawals.
        segments: SegmentChange,
    },
    /// Checkpoints are undone: those whose files are gone.
    Withdraw(Gone),
    /// A person recorded files as done.
    Bless(SegmentChange),
    /// A person made files undone.
    Forget(Gone),
    /// Sources or the destination are at other roots.
    Rebase {
        /// The new roots of sources, by name; each is known.
        sources: BTreeMap<String, Root>,
        /// The new root of the destination.
        sink: Option<Root>,
        /// Segments with the record of it.
        segments: SegmentChange,
    },
    /// A person said which table to go on with.
    Table {
        /// As it is now; `None`: there is none.
        table: Option<TableState>,
        /// What does not count as being in it any more.
        gone: Gone,
    },
    /// The holder is finished.
    Close(SegmentChange),
}

impl Transition {
    /// Its kind, as recorded.
    pub fn kind(&self) -> TransitionKind {
        match self {
            Self::Open { .. } => TransitionKind::Open,
            Self::Fold(_) => TransitionKind::Fold,
            Self::CommitIntent { .. } => TransitionKind::CommitIntent,
            Self::CommitDone { .. } => TransitionKind::CommitDone,
            Self::CommitVoid { .. } => TransitionKind::CommitVoid,
            Self::Withdraw(_) => TransitionKind::Withdraw,
            Self::Bless(_) => TransitionKind::Bless,
            Self::Forget(_) => TransitionKind::Forget,
            Self::Rebase { .. } => TransitionKind::Rebase,
            Self::Table { .. } => TransitionKind::Table,
            Self::Close(_) => TransitionKind::Close,
        }
    }

    fn segments(&self) -> &SegmentChange {
        match self {
            Self::Open { segments, .. }
            | Self::CommitIntent { segments, .. }
            | Self::CommitDone { segments, .. }
            | Self::CommitVoid { segments, .. }
            | Self::Rebase { segments, .. } => segments,
            Self::Withdraw(gone) | Self::Forget(gone) | Self::Table { gone, .. } => &gone.segments,
            Self::Fold(s) | Self::Bless(s) | Self::Close(s) => s,
        }
    }

    /// The manifest that follows `old` (none: the store is new).
    ///
    /// # Errors
    /// [`Refused`](crate::ErrorKind::Refused) when a setting differs from the recorded one; an error naming the
    /// invariant when the step is not legal.
    pub fn apply(&self, old: Option<&Head>, stamp: Stamp) -> Result<Manifest> {
        let mut new = match old {
            Some(head) => Manifest { parent: Some(head.digest.clone()), ..head.manifest.clone() },
            None => first(stamp),
        };
        new.version = old.map_or(ManifestVersion(1), |head| head.manifest.version.next());
        (new.nonce, new.at, new.transition) = (stamp.nonce, stamp.at, self.kind());
        if let Some(now) = &self.segments().now {
            new.segments.clone_from(now);
        }
        if let Some(keys) = &self.segments().keys {
            new.keys.clone_from(keys);
        }
        match self {
            Self::Open { holder, sources, sink, endpoint, .. } => {
                new.endpoint.clone_from(endpoint);
                new.epoch = new.epoch.next();
                new.holder = Some(holder.clone());
                record(&mut new, sources, sink.as_ref())?;
            }
            Self::CommitIntent { intent, .. } => {
                new.commits.last = intent.n;
                new.commits.open = Some(intent.clone());
            }
            Self::CommitDone { missing_files, missing_rows, table, .. } => {
                if let Some(intent) = new.commits.open.take() {
                    new.commits.files += intent.files - missing_files;
                    new.commits.rows += intent.rows - missing_rows;
                    new.commits.files = new.commits.files.saturating_sub(intent.leaving_files);
                    new.commits.rows = new.commits.rows.saturating_sub(intent.leaving_rows);
                }
                keep_table(&mut new, table.as_ref());
            }
            Self::CommitVoid { table, .. } => {
                new.commits.open = None;
                keep_table(&mut new, table.as_ref());
            }
            Self::Close(_) => new.holder = None,
            Self::Rebase { sources, sink, .. } => {
                for (name, root) in sources {
                    if let Some(settings) = new.sources.get_mut(name) {
                        settings.root = root.clone();
                    }
                }
                if let (Some(binding), Some(root)) = (&mut new.sink, sink) {
                    binding.root = root.clone();
                }
            }
            Self::Withdraw(gone) | Self::Forget(gone) | Self::Table { gone, .. } => {
                if let Self::Table { table, .. } = self {
                    new.table.clone_from(table);
                }
                new.commits.files = new.commits.files.saturating_sub(gone.files);
                new.commits.rows = new.commits.rows.saturating_sub(gone.rows);
            }
            Self::Fold(_) | Self::Bless(_) => {}
        }
        invariants::check_step(old.map(|head| &head.manifest), &new)?;
        Ok(new)
    }
}

/// The state in which a commit left the table.
fn keep_table(new: &mut Manifest, table: Option<&TableState>) {
    if let Some(table) = table {
        new.table = Some(table.clone());
    }
}

/// The state before the first manifest.
fn first(stamp: Stamp) -> Manifest {
    Manifest {
        store: stamp.store,
        version: ManifestVersion(0),
        parent: None,
        epoch: Epoch(0),
        nonce: stamp.nonce,
        at: stamp.at,
        transition: TransitionKind::Open,
        holder: None,
        segments: Vec::new(),
        keys: Vec::new(),
        commits: CommitState::default(),
        sink: None,
        table: None,
        sources: BTreeMap::new(),
        endpoint: String::new(),
    }
}

/// Records sources and sink; what is known must be equal.
fn record(new: &mut Manifest, sources: &BTreeMap<String, SourceSettings>, sink: Option<&Binding>) -> Result<()> {
    check_settings(new, sources, sink)?;
    for (name, settings) in sources {
        new.sources.entry(name.clone()).or_insert_with(|| settings.clone());
    }
    if let Some(sink) = sink {
        new.sink.get_or_insert_with(|| sink.clone());
    }
    Ok(())
}

/// Compares what a run says of the source `name` with what a store recorded of it, if it knows it.
///
/// # Errors
/// As [`check_settings`].
pub fn check_source(known: &Manifest, name: &str, settings: &SourceSettings) -> Result<()> {
    let Some(recorded) = known.sources.get(name) else { return Ok(()) };
    if recorded.is_at(settings) {
        return match (&settings.keys, &recorded.keys) {
            (Some(now), Some(before)) => now.check_against(before, name),
            _ => Ok(()),
        };
    }
    let shown = |s: &SourceSettings| format!("{} ({}, {} mode)", s.root, s.format, s.mode);
    let what = format!("source `{name}` is {} here, but {} in the store", shown(settings), shown(recorded));
    let error = Error::refused(what).safe("nothing was changed").way("give the source the settings that the store has");
    let error = match recorded.mode == settings.mode && recorded.format == settings.format {
        true => error.way("if the same files are at another place now: lakemark rebase JOB"),
        // What is done by file says nothing of rows, and the reverse.
        false => error,
    };
    Err(error
        .way("give it another `name`, to track it as a further source")
        .way("use another `store` and destination, to begin anew"))
}

/// Compares the settings of a run with those a store recorded (R13, R121, R122).
///
/// # Errors
/// [`Refused`](crate::ErrorKind::Refused), naming both values and the ways on.
pub fn check_settings(
    known: &Manifest,
    sources: &BTreeMap<String, SourceSettings>,
    sink: Option<&Binding>,
) -> Result<()> {
    for (name, settings) in sources {
        check_source(known, name, settings)?;
        match known.sources.get(name) {
            Some(_) => {}
            None if known.sources.keys().any(|k| !sources.contains_key(k)) => {
                let names: Vec<_> = known.sources.keys().map(|k| format!("`{k}`")).collect();
                return Err(Error::refused(format!(
                    "the store knows no source `{name}`; it knows {}",
                    names.join(", ")
                ))
                .safe("nothing was changed")
                .way("use the known name: it is the key under which finished work is recorded")
                .way("keep the known sources in the job and add this one beside them")
                .way("use another `store` and destination, to begin anew"));
            }
            None => {}
        }
    }
    match (&known.sink, sink) {
        (Some(recorded), Some(given)) if recorded.is_at(given) && recorded != given => {
            let shown = |columns: &[String]| match columns {
                [] => "not partitioned".to_owned(),
                columns => format!("partitioned by {}", columns.join(", ")),
            };
            let (was, is) = (shown(&recorded.partition_by), shown(&given.partition_by));
            Err(Error::refused(format!("the destination is {is} here, but {was} so far"))
                .at(&recorded.root)
                .safe("nothing was changed")
                .way(format!("keep the layout: partition_by = {:?}", recorded.partition_by))
                .way("use another `store` and destination, to write all of it in the new layout"))
        }
        (Some(recorded), Some(given)) if recorded != given => Err(Error::refused(format!(
            "the destination is {} {} here, but the store belongs to {} {}",
            given.kind, given.root, recorded.kind, recorded.root
        ))
        .safe("nothing was changed")
        .way(format!("write to {}", recorded.root))
        .way("if the same destination is at another place now: lakemark rebase JOB")
        .way("use another `store`, to fill the other destination from the start")),
        // A new store has no sources yet.
        (None, Some(given)) if !known.sources.is_empty() => Err(Error::refused(format!(
            "the store was made for runs without a destination, and the job has {} {}",
            given.kind, given.root
        ))
        .safe("nothing was changed; what was done without a destination has no output to commit")
        .way("use another `store`, to fill the destination from the start")),
        (Some(recorded), None) => Err(Error::refused(format!(
            "the job has no destination, but the store belongs to {} {}",
            recorded.kind, recorded.root
        ))
        .safe("nothing was changed")
        .way(format!("write to {}", recorded.root))
        .way("use another `store` for a run without a destination")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp() -> Stamp {
        Stamp { store: StoreId::random(), nonce: AttemptNonce::random(), at: 0 }
    }

    fn head(manifest: Manifest) -> Head {
        Head { digest: manifest.nonce.to_string(), manifest }
    }

    fn open() -> Transition {
        Transition::Open {
            holder: Holder::current(0),
            sources: BTreeMap::new(),
            sink: None,
            endpoint: String::new(),
            segments: SegmentChange::default(),
        }
    }

    fn intent(n: u64) -> Transition {
        let (nonce, digest) = (AttemptNonce::random(), String::new());
        let intent = OpenIntent { n, nonce, digest, files: 3, rows: 30, leaving_files: 0, leaving_rows: 0, base: None };
        Transition::CommitIntent { intent, segments: SegmentChange::default() }
    }

    fn done(missing_files: u64, missing_rows: u64) -> Transition {
        Transition::CommitDone { missing_files, missing_rows, table: None, segments: SegmentChange::default() }
    }

    fn void() -> Transition {
        Transition::CommitVoid { table: None, segments: SegmentChange::default() }
    }

    fn after(steps: &[Transition]) -> Result<Manifest> {
        let mut now: Option<Head> = None;
        for step in steps {
            now = Some(head(step.apply(now.as_ref(), stamp())?));
        }
        now.map(|head| head.manifest).ok_or_else(|| Error::invalid("no step"))
    }

    #[test]
    fn a_run_counts_up_and_names_its_parent() {
        let nothing = SegmentChange::default;
        let end = after(&[
            open(),
            Transition::Fold(nothing()),
            intent(1),
            done(1, 10),
            intent(2),
            void(),
            Transition::Close(nothing()),
            open(),
        ])
        .unwrap();
        assert_eq!((end.version.0, end.epoch.0, end.commits.last), (8, 2, 2));
        assert_eq!((end.commits.files, end.commits.rows), (2, 20));
        assert!(end.parent.is_some() && end.holder.is_some());
    }

    #[test]
    fn what_the_invariants_forbid_is_not_written() {
        let nothing = SegmentChange::default;
        let segment = |version, level| SegmentRef {
            version: ManifestVersion(version),
            nonce: AttemptNonce::random(),
            level,
            bytes: 1,
            digest: String::new(),
            rows: 1,
        };
        let fold =
            |segments: &[SegmentRef]| Transition::Fold(SegmentChange { now: Some(segments.to_vec()), keys: None });
        let (one, two) = (segment(2, 0), segment(2, 0));
        let forbidden: Vec<(&str, Vec<Transition>)> = vec![
            ("I8", vec![Transition::Fold(nothing())]),
            ("I8", vec![open(), Transition::Close(nothing()), Transition::Fold(nothing())]),
            ("I1", vec![open(), fold(&[segment(1, 0)])]),
            ("I1", vec![open(), fold(&[segment(3, 0)])]),
            ("I5", vec![open(), fold(&[one.clone(), one.clone()])]),
            ("I5", vec![open(), fold(&[one.clone(), two])]),
            ("I5", vec![open(), fold(&[segment(2, 1), one])]),
            ("I6", vec![open(), intent(2)]),
            ("I6", vec![open(), intent(1), intent(2)]),
            ("I6", vec![open(), done(0, 0)]),
            ("I6", vec![open(), void()]),
        ];
        for (invariant, steps) in forbidden {
            let error = after(&steps).unwrap_err();
            assert!(error.what().starts_with(invariant), "{error}");
        }
    }

    /// No transition makes such a step: what a fault of lakemark itself would make is not written either.
    #[test]
    fn i8_steps_that_no_transition_makes_are_not_written() {
        let old = after(&[open()]).unwrap();
        let next = after(&[open(), Transition::Fold(SegmentChange::default())]).unwrap();
        let legal = Manifest { store: old.store, ..next };
        assert!(invariants::check_step(Some(&old), &legal).is_ok());
        let wrong: [fn(&mut Manifest); 5] = [
            |new| new.version = ManifestVersion(3),
            |new| new.epoch = new.epoch.next(),
            |new| new.store = StoreId::random(),
            |new| new.parent = None,
            |new| new.commits.last = 1,
        ];
        for (i, spoil) in wrong.iter().enumerate() {
            let mut new = legal.clone();
            spoil(&mut new);
            let error = invariants::check_step(Some(&old), &new).unwrap_err();
            assert!(error.what().starts_with("I8") || error.what().starts_with("I6"), "{i}: {error}");
        }
        let committed = Manifest { commits: CommitState { last: 3, ..CommitState::default() }, ..old };
        let fewer = Manifest { commits: CommitState { last: 2, ..CommitState::default() }, ..legal };
        assert!(invariants::check_step(Some(&committed), &fewer).unwrap_err().what().starts_with("I8"));
    }

    #[test]
    fn an_open_intent_survives_every_other_step() {
        let end = after(&[open(), intent(1), Transition::Fold(SegmentChange::default()), open()]).unwrap();
        assert_eq!(end.commits.open.map(|intent| intent.n), Some(1));
    }
}
