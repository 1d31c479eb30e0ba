//! A person's answers where the destination itself does not tell: what became of a commit, and which table to go on with.

use super::state::{Run, State};
use crate::error::{Error, ErrorKind, Result};
use crate::identity::CheckpointId;
use crate::sink::{Intent, Sink};
use crate::store::commit_object::CommitMember;
use crate::store::segment::Event;
use crate::store::transition::{Gone, Transition};
use crate::store::{OpenIntent, OutputFile, TableState};

/// What a person's answer made of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    /// Checkpoints that it is about.
    pub checkpoints: u64,
    /// Their files.
    pub files: u64,
    /// Rows in those.
    pub rows: u64,
    /// The table to go on from.
    pub table: Option<TableState>,
}

impl Run {
    /// Records that commit `n`, which is open, is in the table: a person has looked.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) when `n` is not open; [`Unsupported`](ErrorKind::Unsupported) for a directory, whose
    /// files tell.
    pub async fn accept_commit(&self, n: u64, sink: &dyn Sink) -> Result<Decided> {
        let mut state = self.state.lock().await;
        let state = &mut *state;
        let (open, members) = self.open_commit(state, n, sink).await?;
        let now = sink.table(self.worker.store_id()).await?;
        if now.as_ref().is_none_or(|now| now.last.is_some_and(|last| last < n)) {
            let what = match now.and_then(|now| now.last) {
                Some(last) => format!("the table has commits of this store up to number {last} only"),
                None => "there is no table".to_owned(),
            };
            return Err(Error::refused(what)
                .at(sink.binding().root)
                .safe("nothing was changed")
                .way(format!("its work is not there: lakemark reopen {n} JOB does it again")));
        }
        let table = Self::left_with(state, now, n);
        let (leaving, entering) = apart(members);
        let decided = decided(&open, &entering, table.clone());
        self.worker.guard().await?;
        self.note(state, operated("accept", format!("commit {n} is in the table")));
        if !leaving.is_empty() {
            let checkpoints = leaving.iter().map(|member| member.checkpoint).collect();
            let why = format!("their output was taken out by commit {n}");
            self.note(state, Event::Withdrawn { checkpoints, why });
        }
        self.note(state, Event::Done { n });
        let done = |segments| Transition::CommitDone { missing_files: 0, missing_rows: 0, table, segments };
        self.advance(state, done).await?;
        Ok(decided)
    }

    /// Records that commit `n`, which is open, is not in the table and never will be: first a barrier makes a late call fail.
    /// Its work is undone; nothing is deleted.
    ///
    /// # Errors
    /// As [`accept_commit`](Self::accept_commit); [`Refused`](ErrorKind::Refused) when the table says that it is there.
    pub async fn reopen_commit(&self, n: u64, sink: &dyn Sink) -> Result<Decided> {
        let mut state = self.state.lock().await;
        let state = &mut *state;
        let (open, members) = self.open_commit(state, n, sink).await?;
        let (leaving, members) = apart(members);
        let outputs = |members: &[CommitMember]| members.iter().flat_map(|m| m.outputs.clone()).collect();
        let (files, leaving): (Vec<OutputFile>, Vec<OutputFile>) = (outputs(&members), outputs(&leaving));
        let intent = Intent {
            store: self.worker.store_id(),
            n,
            digest: &open.digest,
            base: open.base.as_ref(),
            unbound: false,
            files: &files,
            leaving: &leaving,
            recovered: true,
            holder: &self.worker,
        };
        let table = Self::left_with(state, sink.give_up(&intent).await?, n);
        let decided = decided(&open, &members, table.clone());
        let checkpoints: Vec<CheckpointId> = members.iter().map(|member| member.checkpoint).collect();
        self.note(state, operated("reopen", format!("commit {n} is not in the table")));
        let why = format!("commit {n} was given up by a person");
        self.note(state, Event::Withdrawn { checkpoints, why });
        self.note(state, Event::Void { n });
        self.advance(state, |segments| Transition::CommitVoid { table, segments }).await?;
        Ok(decided)
    }

    /// Goes on with the table as it is: what was committed counts as being in it.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) for a directory.
    pub async fn accept_table(&self, sink: &dyn Sink) -> Result<Decided> {
        let mut state = self.state.lock().await;
        self.bind_to_table(&mut state, sink, false).await
    }

    /// Goes on with the table as it is, and does everything again that was committed: nothing of it counts as being there.
    /// Nothing is deleted.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) for a directory; [`Refused`](ErrorKind::Refused) while a commit is open.
    pub async fn reopen_table(&self, sink: &dyn Sink) -> Result<Decided> {
        let mut state = self.state.lock().await;
        self.bind_to_table(&mut state, sink, true).await
    }

    async fn bind_to_table(&self, state: &mut State, sink: &dyn Sink, again: bool) -> Result<Decided> {
        self.check_table(state, sink)?;
        self.gather(state).await?;
        if let (true, Some(open)) = (again, &state.head.manifest.commits.open) {
            let n = open.n;
            return Err(Error::refused(format!("commit {n} is not decided"))
                .at(sink.binding().root)
                .safe("nothing was changed")
                .way(format!("decide it first: lakemark accept {n} JOB, or lakemark reopen {n} JOB")));
        }
        let table = sink.table(self.worker.store_id()).await?;
        let rows: Vec<_> = match again {
            true => state.live.committed_checkpoints().collect(),
            false => Vec::new(),
        };
        let outputs = || rows.iter().flat_map(|row| &row.outputs);
        let (files, total) = (outputs().count() as u64, outputs().map(|output| output.rows).sum());
        let checkpoints: Vec<CheckpointId> = rows.iter().map(|row| row.id).collect();
        let decided = Decided { checkpoints: checkpoints.len() as u64, files, rows: total, table: table.clone() };
        self.worker.guard().await?;
        let which = table.as_ref().map_or_else(
            || "no table is there".to_owned(),
            |table| format!("table {} at version {}", table.id, table.version),
        );
        self.note(state, operated(if again { "reopen" } else { "accept" }, which));
        if !checkpoints.is_empty() {
            let why = "everything is done again, into the table as it is".to_owned();
            self.note(state, Event::Withdrawn { checkpoints, why });
        }
        self.advance(state, |segments| Transition::Table { table, gone: Gone { files, rows: total, segments } })
            .await?;
        Ok(decided)
    }

    /// The table as the store left it, with number `n` in it too. It is not moved on to where it is `now`: what happened in
    /// between, the next check is to see.
    fn left_with(state: &State, now: Option<TableState>, n: u64) -> Option<TableState> {
        let left = state.head.manifest.table.clone().or(now)?;
        Some(TableState { last: Some(n), ..left })
    }

    async fn open_commit(&self, state: &mut State, n: u64, sink: &dyn Sink) -> Result<(OpenIntent, Vec<CommitMember>)> {
        self.check_table(state, sink)?;
        self.gather(state).await?;
        let open = state.head.manifest.commits.open.clone();
        let Some(open) = open.filter(|open| open.n == n) else {
            let now = state.head.manifest.commits.open.as_ref();
            let now = now.map_or_else(|| "none is open".to_owned(), |open| format!("commit {} is open", open.n));
            return Err(Error::invalid(format!("commit {n} is not open: {now}"))
                .at(self.store.root())
                .safe("nothing was changed")
                .way("see what is open: lakemark status JOB"));
        };
        let members = self.read_intent(&open).await?;
        Ok((open, members))
    }

    fn check_table(&self, state: &State, sink: &dyn Sink) -> Result<()> {
        self.check_sink(state, Some(sink))?;
        if sink.keeps_files() {
            return Err(Error::new(ErrorKind::Unsupported, "what became of a commit into a directory, its files tell")
                .at(sink.binding().root)
                .safe("nothing was changed")
                .way("move the file away that the message of the run names, then run again"));
        }
        Ok(())
    }
}

/// What leaves, and what enters.
fn apart(members: Vec<CommitMember>) -> (Vec<CommitMember>, Vec<CommitMember>) {
    members.into_iter().partition(|member| member.leaves)
}

fn decided(open: &OpenIntent, members: &[CommitMember], table: Option<TableState>) -> Decided {
    Decided { checkpoints: members.len() as u64, files: open.files, rows: open.rows, table }
}

fn operated(verb: &str, what: String) -> Event {
    Event::Operated { verb: verb.to_owned(), what }
}
