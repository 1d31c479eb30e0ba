//! Committing: intent, sink, done; and finishing what earlier runs left.

use std::sync::PoisonError;

use super::state::{Change, Run, State};
use crate::error::{Error, ErrorKind, Result};
use crate::identity::{AttemptNonce, CheckpointId};
use crate::plan::Leaving;
use crate::sink::{Fitness, Intent, Settled, Sink, cannot_leave, check_can_leave};
use crate::steps::reach;
use crate::store::commit_object::{self, CommitMember};
use crate::store::envelope::digest;
use crate::store::invariants;
use crate::store::medium::Created;
use crate::store::segment::Event;
use crate::store::transition::{Gone, SegmentChange, Transition};
use crate::store::{Binding, Expected, Head, Live, OpenIntent, OutputFile, TableState};

/// A commit that is visible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// Its number.
    pub n: u64,
    /// Checkpoints in it.
    pub checkpoints: u64,
    /// Files it made visible.
    pub files: u64,
    /// Rows in them.
    pub rows: u64,
    /// Files that it took out of the destination: what they held is undone.
    pub taken_out: u64,
    /// Files that were gone from staging: their checkpoints were withdrawn, their atoms are undone.
    pub missing: Vec<String>,
}

/// What a run finished for earlier ones.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recovered {
    /// The intent that was open.
    pub committed: Option<Committed>,
    /// Whether something that counted as done is undone now: plan again.
    pub undone: bool,
}

/// The checkpoints of a commit.
enum Members {
    /// All that wait.
    All(Vec<CheckpointId>),
    /// Those that need not wait for others.
    Complete(Vec<CheckpointId>),
    /// Some, into a sink of the caller's own.
    Callers(Vec<CheckpointId>),
}

/// Withdraws checkpoints that were in no commit.
fn withdraw(segments: SegmentChange) -> Transition {
    Transition::Withdraw(Gone { segments, ..Gone::default() })
}

impl Run {
    /// Finishes what earlier runs left, before anything is planned: an open intent is brought into the sink, and
    /// checkpoints whose staged files are gone are undone. Nothing is written when there is nothing to finish.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub async fn recover(&self, sink: Option<&dyn Sink>) -> Result<Recovered> {
        let mut state = self.state.lock().await;
        self.check_sink(&state, sink)?;
        let committed = self.finish_intent(&mut state, sink).await?;
        let unfit = self.withdraw_unfit(&mut state, sink).await?;
        if unfit > 0 {
            self.advance(&mut state, withdraw).await?;
        }
        if committed.is_some() || state.live.pending().next().is_some() {
            // Before work is done for it: what happened to the table while the intent was open, the check left out, and
            // what waits may be of another query.
            self.base(&state, &[], sink).await?;
        }
        let undone =
            committed.as_ref().is_some_and(|committed| !committed.missing.is_empty() || committed.taken_out > 0);
        Ok(Recovered { committed, undone: unfit > 0 || undone })
    }

    /// Brings the open intent, if there is one, into the sink.
    async fn finish_intent(&self, state: &mut State, sink: Option<&dyn Sink>) -> Result<Option<Committed>> {
        if state.head.manifest.commits.open.is_none() {
            return Ok(None);
        }
        // What the caller had made visible in a sink of its own is not looked for in this one.
        let sink = if Self::is_callers(state) { None } else { sink };
        self.publish(state, sink, true).await.map(Some)
    }

    /// Finishes an open intent, then commits everything that is sealed and in no commit: intent, sink, done.
    /// `None`: there was nothing to commit.
    ///
    /// # Errors
    /// After any error the sink holds what the intent says or less, and the next run goes on from there.
    pub async fn commit(&self, sink: Option<&dyn Sink>) -> Result<Vec<Committed>> {
        let mut state = self.state.lock().await;
        self.check_sink(&state, sink)?;
        let mut committed: Vec<Committed> = self.finish_intent(&mut state, sink).await?.into_iter().collect();
        self.gather(&mut state).await?;
        let undone = self.withdraw_unfit(&mut state, sink).await?;
        if undone > 0 && state.live.pending().next().is_none() {
            // Durable with the intent; without one, on its own.
            self.advance(&mut state, withdraw).await?;
        }
        // Again after one that was given up: what is fit of it goes with the next number.
        loop {
            let leaving = self.leaving(&state.live, sink)?;
            let waits = |id: &CheckpointId| leaving.held.contains(id) || leaving.dropped.contains(id);
            let all: Vec<CheckpointId> = state.live.pending().map(|row| row.id).collect();
            let ids: Vec<CheckpointId> = all.iter().copied().filter(|id| !waits(id)).collect();
            if !leaving.dropped.is_empty() {
                let why = "their files were replaced before they were in a commit".to_owned();
                let checkpoints = leaving.dropped.iter().copied().collect();
                self.note(&mut state, Event::Withdrawn { checkpoints, why });
            }
            if ids.is_empty() && leaving.out.is_empty() {
                if !leaving.dropped.is_empty() {
                    self.advance(&mut state, withdraw).await?;
                }
                return Ok(committed);
            }
            let out: Vec<CheckpointId> = leaving.out.into_iter().collect();
            let only = if ids.len() == all.len() { Members::All(ids) } else { Members::Complete(ids) };
            let base = self.base(&state, &out, sink).await?;
            self.decide_commit(&mut state, only, &out, base).await?;
            committed.push(self.publish(&mut state, sink, false).await?);
        }
    }

    /// What of the output of superseded files can leave now.
    fn leaving(&self, live: &Live, sink: Option<&dyn Sink>) -> Result<Leaving> {
        let superseded = self.superseded.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(sink) = sink.filter(|_| !superseded.is_empty()) else { return Ok(Leaving::default()) };
        let leaving = Leaving::of(live, &superseded);
        if !leaving.out.is_empty() && !sink.replaces_files() {
            return Err(cannot_leave(sink));
        }
        Ok(leaving)
    }

    /// The table to decide a commit on, which goes on from where this store left it.
    async fn base(
        &self,
        state: &State,
        leaving: &[CheckpointId],
        sink: Option<&dyn Sink>,
    ) -> Result<Option<TableState>> {
        match sink {
            Some(sink) if !sink.keeps_files() => {
                let waiting: Vec<OutputFile> = state.live.pending().flat_map(|row| row.outputs.clone()).collect();
                let leaving: Vec<OutputFile> = state.live.outputs(leaving).into_iter().map(|(_, file)| file).collect();
                let expected = Expected::of(&state.head.manifest, &state.live);
                // What does not fit may be what a successor did.
                self.unless_fenced(sink.base(&expected, &waiting, &leaving).await).await
            }
            _ => Ok(None),
        }
    }

    /// Whether the open intent is of a commit into the caller's own sink.
    fn is_callers(state: &State) -> bool {
        let open = state.head.manifest.commits.open.as_ref().map(|intent| intent.n);
        open.is_some() && state.live.events().iter().rev().any(|row| row.event.callers_commit() == open)
    }

    /// A commit into another sink than the recorded one would call visible what is not.
    pub(super) fn check_sink(&self, state: &State, sink: Option<&dyn Sink>) -> Result<()> {
        let (recorded, given) = (state.head.manifest.sink.as_ref(), sink.map(Sink::binding));
        if recorded == given.as_ref() {
            return Ok(());
        }
        let shown = |binding: Option<&Binding>| binding.map_or("none".to_owned(), |b| format!("{} {}", b.kind, b.root));
        let what =
            format!("the destination is {}, but the run was begun with {}", shown(given.as_ref()), shown(recorded));
        Err(Error::refused(what)
            .at(self.store.root())
            .safe("nothing was committed")
            .way("commit into the destination that the run was begun with (BeginOptions::sink)"))
    }

    /// Records exactly `ids` as one commit into the caller's own sink; see
    /// [`CheckpointStore::mark_committed`](crate::CheckpointStore::mark_committed).
    pub(super) async fn commit_exactly(&self, ids: &[CheckpointId]) -> Result<u64> {
        let mut state = self.state.lock().await;
        self.gather(&mut state).await?;
        if state.head.manifest.commits.open.is_some() {
            if !Self::is_callers(&state) {
                return Err(Error::refused("a commit into the store's destination is not finished")
                    .at(self.store.root())
                    .safe("nothing was marked")
                    .way("finish it first: Run::commit with the destination"));
            }
            self.publish(&mut state, None, true).await?;
        }
        let known = |id: &&CheckpointId| {
            state.live.checkpoint(**id).is_some_and(|row| row.is_pending() || row.commit.is_some())
        };
        if let Some(stranger) = ids.iter().find(|id| !known(id)) {
            return Err(Error::invalid(format!("{stranger} is not a live sealed checkpoint"))
                .at(self.store.root())
                .safe("nothing was marked"));
        }
        let mut fresh: Vec<_> =
            ids.iter().copied().filter(|id| state.live.checkpoint(*id).is_some_and(|r| r.is_pending())).collect();
        fresh.sort_unstable();
        fresh.dedup();
        if fresh.is_empty() {
            return Ok(state.head.manifest.commits.last);
        }
        self.decide_commit(&mut state, Members::Callers(fresh), &[], None).await?;
        Ok(self.publish(&mut state, None, false).await?.n)
    }

    /// Checks the staged files of checkpoints sealed in earlier epochs; those whose files are gone are undone, with the
    /// next manifest.
    async fn withdraw_unfit(&self, state: &mut State, sink: Option<&dyn Sink>) -> Result<usize> {
        let Some(sink) = sink else { return Ok(0) };
        let epoch = self.worker.epoch();
        let older: Vec<_> = state.live.pending().filter(|row| row.id.epoch < epoch).cloned().collect();
        let mut unfit = Vec::new();
        for row in older {
            for output in &row.outputs {
                if sink.fitness(output).await? != Fitness::Fit {
                    tracing::warn!(checkpoint = %row.id, file = output.name, "a staged file is gone; its atoms are undone");
                    unfit.push(row.id);
                    break;
                }
            }
        }
        let undone = unfit.len();
        if undone > 0 {
            let why = "their staged files were missing or of another size".to_owned();
            self.note(state, Event::Withdrawn { checkpoints: unfit, why });
        }
        Ok(undone)
    }

    /// Writes the commit object and the intent that binds commit n to exactly `ids`.
    async fn decide_commit(
        &self,
        state: &mut State,
        entering: Members,
        leaving: &[CheckpointId],
        base: Option<TableState>,
    ) -> Result<()> {
        let (ids, only, holds) = match entering {
            Members::All(ids) => (ids, None, false),
            Members::Complete(ids) => (ids.clone(), Some(ids), true),
            Members::Callers(ids) => (ids.clone(), Some(ids), false),
        };
        let member = |id: &CheckpointId, leaves| {
            let row = state.live.checkpoint(*id)?;
            Some(CommitMember { checkpoint: row.id, outputs: row.outputs.clone(), leaves })
        };
        let entering = ids.iter().filter_map(|id| member(id, false));
        let members: Vec<CommitMember> = entering.chain(leaving.iter().filter_map(|id| member(id, true))).collect();
        let intent = self.write_intent(state, &members, base).await?;
        let (n, files, rows) = (intent.n, intent.files, intent.rows);
        let (leaving_files, leaving_rows) = (intent.leaving_files, intent.leaving_rows);
        if !ids.is_empty() {
            self.note(state, Event::Intent { n, files, rows, only, holds });
        }
        if !leaving.is_empty() {
            let checkpoints = leaving.to_vec();
            self.note(state, Event::Retract { n, checkpoints, files: leaving_files, rows: leaving_rows });
        }
        reach("intent.before_segment");
        self.advance(state, |segments| Transition::CommitIntent { intent, segments }).await
    }

    /// Takes the output of committed checkpoints out of `sink` and makes them undone, as a commit of its own: decided first,
    /// so that whoever stalls in between takes out only what is to be out, and so that a successor ends it. `decide` looks
    /// at the state and says what changes with the decision, and which checkpoints.
    ///
    /// # Errors
    /// Those of `decide`, and then nothing is written; [`Refused`](ErrorKind::Refused) while another commit is not finished.
    pub(crate) async fn retract(
        &self,
        sink: &dyn Sink,
        decide: impl FnOnce(&Head, &Live) -> Result<(Vec<Change>, Vec<CheckpointId>)>,
    ) -> Result<()> {
        let mut state = self.state.lock().await;
        let state = &mut *state;
        self.check_sink(state, Some(sink))?;
        self.gather(state).await?;
        let (changes, checkpoints) = decide(&state.head, &state.live)?;
        if let Some(open) = &state.head.manifest.commits.open {
            return Err(Error::refused(format!("commit {} is not finished", open.n))
                .at(self.store.root())
                .safe("nothing was changed")
                .way("finish it first: lakemark run JOB"));
        }
        check_can_leave(sink)?;
        self.apply(state, changes)?;
        let rows = checkpoints.iter().filter_map(|id| state.live.checkpoint(*id));
        let members: Vec<CommitMember> =
            rows.map(|row| CommitMember { checkpoint: row.id, outputs: row.outputs.clone(), leaves: true }).collect();
        let intent = self.write_intent(state, &members, None).await?;
        let (n, files, rows) = (intent.n, intent.leaving_files, intent.leaving_rows);
        self.note(state, Event::Retract { n, checkpoints, files, rows });
        self.advance(state, |segments| Transition::CommitIntent { intent, segments }).await?;
        self.publish(state, Some(sink), false).await.map(drop).map_err(|error| match error.kind() {
            ErrorKind::Fenced => error,
            _ => error
                .safe(format!("what leaves the destination is decided (commit {n}): what is left of it is still to go"))
                .way("do the same again, or run: both finish it first"),
        })
    }

    /// Writes the commit object of the next intent.
    async fn write_intent(
        &self,
        state: &State,
        members: &[CommitMember],
        base: Option<TableState>,
    ) -> Result<OpenIntent> {
        invariants::check_members(&state.live, members)?;
        let bytes = commit_object::encode(members)?;
        let total = |leaves: bool| {
            let outputs = || members.iter().filter(|member| member.leaves == leaves).flat_map(|member| &member.outputs);
            (outputs().count() as u64, outputs().map(|output| output.rows).sum())
        };
        let ((files, rows), (leaving_files, leaving_rows)) = (total(false), total(true));
        let intent = OpenIntent {
            n: state.head.manifest.commits.last + 1,
            nonce: AttemptNonce::random(),
            digest: digest(&bytes),
            files,
            rows,
            leaving_files,
            leaving_rows,
            base,
        };
        reach("intent.before_object");
        if let Created::Taken(_) = self.store.medium.create(intent.name(), bytes).await? {
            let place = self.store.medium.place(intent.name());
            return Err(Error::corrupt(place, "another object has the name of a new commit object"));
        }
        Ok(intent)
    }

    /// Brings the open intent into the sink and records how it ended.
    async fn publish(&self, state: &mut State, sink: Option<&dyn Sink>, recovered: bool) -> Result<Committed> {
        let Some(open) = state.head.manifest.commits.open.clone() else {
            return Err(Error::invalid("there is no open intent"));
        };
        let (leaving, members): (Vec<_>, Vec<_>) =
            self.unless_fenced(self.read_intent(&open).await).await?.into_iter().partition(|m| m.leaves);
        let outputs =
            |of: &[CommitMember]| of.iter().flat_map(|m| m.outputs.iter().cloned()).collect::<Vec<OutputFile>>();
        let (files, out) = (outputs(&members), outputs(&leaving));
        let intent = Intent {
            store: self.worker.store_id(),
            n: open.n,
            digest: &open.digest,
            base: open.base.as_ref(),
            unbound: state.head.manifest.table.is_none(),
            files: &files,
            leaving: &out,
            recovered,
            holder: &self.worker,
        };
        let settled = match sink {
            Some(sink) => sink.commit(&intent).await?,
            None => {
                self.worker.guard().await?;
                Settled::Done { missing: Vec::new(), table: None }
            }
        };
        let (mut missing, table, is_void) = match settled {
            Settled::Done { missing, table } => (missing, table, false),
            Settled::Void { unfit, table } => (unfit, table, true),
        };
        if let Some(sink) = sink.filter(|_| !missing.is_empty() && !is_void) {
            self.take_torn(sink, &members, &mut missing).await?;
        }
        let gone = |member: &&CommitMember| member.outputs.iter().any(|output| missing.contains(&output.name));
        let withdrawn: Vec<CheckpointId> = members.iter().filter(gone).map(|m| m.checkpoint).collect();
        if !withdrawn.is_empty() {
            tracing::warn!(checkpoints = withdrawn.len(), "staged files are gone; their atoms are undone");
            let why = format!("their files were missing from commit {}", open.n);
            self.note(state, Event::Withdrawn { checkpoints: withdrawn.clone(), why });
        }
        if is_void {
            self.note(state, Event::Void { n: open.n });
            self.advance(state, |segments| Transition::CommitVoid { table, segments }).await?;
            tracing::warn!(n = open.n, "given up, behind a barrier: what is fit of it is committed anew");
            return Ok(Committed { n: open.n, checkpoints: 0, files: 0, rows: 0, taken_out: 0, missing });
        }
        if !leaving.is_empty() {
            let checkpoints = leaving.iter().map(|member| member.checkpoint).collect();
            let why = format!("their output was taken out by commit {}", open.n);
            self.note(state, Event::Withdrawn { checkpoints, why });
        }
        let absent = || files.iter().filter(|file| missing.contains(&file.name));
        let (missing_files, missing_rows) = (absent().count() as u64, absent().map(|f| f.rows).sum());
        self.note(state, Event::Done { n: open.n });
        let done = |segments| Transition::CommitDone { missing_files, missing_rows, table, segments };
        if withdrawn.is_empty() && leaving.is_empty() {
            // The record of the commit is in the intent's segment and in the manifest; history can wait for the next fold.
            self.append(state, &done(SegmentChange::default())).await?;
        } else {
            self.advance(state, done).await?;
        }
        let (files, rows) = (open.files - missing_files, open.rows - missing_rows);
        tracing::info!(n = open.n, files, rows, "committed");
        let checkpoints = (members.len() - withdrawn.len()) as u64;
        Ok(Committed { n: open.n, checkpoints, files, rows, taken_out: open.leaving_files, missing })
    }

    /// A checkpoint is visible whole or not at all: what is visible of one with files missing is taken out, and is missing
    /// too, before its withdrawal is recorded.
    async fn take_torn(&self, sink: &dyn Sink, members: &[CommitMember], missing: &mut Vec<String>) -> Result<()> {
        let is_missing = |output: &OutputFile| missing.contains(&output.name);
        let torn = members.iter().filter(|member| member.outputs.iter().any(is_missing));
        let visible: Vec<OutputFile> =
            torn.flat_map(|member| &member.outputs).filter(|output| !is_missing(output)).cloned().collect();
        if visible.is_empty() {
            return Ok(());
        }
        // Only the holder takes out: for a stalled predecessor the commit is done, and what it misses others moved.
        self.worker.guard().await?;
        sink.take_out(&visible).await?;
        missing.extend(visible.into_iter().map(|output| output.name));
        Ok(())
    }

    /// Reads the exact set of an intent (I6).
    pub(super) async fn read_intent(&self, intent: &OpenIntent) -> Result<Vec<CommitMember>> {
        let place = self.store.medium.place(intent.name());
        let Some(bytes) = self.store.medium.get(intent.name()).await? else {
            return Err(Error::corrupt(place, "the commit object of the open intent is missing"));
        };
        if digest(&bytes) != intent.digest {
            return Err(Error::corrupt(place, "the commit object is not the one that the intent names"));
        }
        commit_object::decode(&place, bytes)
    }
}
