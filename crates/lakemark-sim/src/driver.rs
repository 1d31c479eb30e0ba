//! A driver: from a listing to a closed epoch, in the order that the core asks for.
//!
//! It keeps two laws of its own. Who is told that a manifest is the newest is told the truth ([`believed`]), and who is
//! fenced is fenced by a newer epoch.

use std::collections::BTreeSet;
use std::sync::Arc;

use lakemark::faults::CommitsBy;
use lakemark::{
    AtomFilter, Coverage, Error, ErrorKind, Intent, Lake, Listing, Live, OutputSink, PlannedFile, Reason, Result, Run,
    Sink, SourcePlan, TaskPart, View, Wait, form_tasks, plan_source,
};

use crate::chance::Chance;
use crate::scenario::SOURCE;
use crate::site::Site;
use crate::situations::Situation;
use crate::tasks::Tasks;
use crate::variants::{GivingUp, Variant, open_with_unnamed_segment};

/// Plans again at most this often in one run, for files that keep changing.
const ROUNDS: u32 = 3;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// There was nothing to do, and nothing was written.
    Nothing,
    /// What was sealed is committed.
    Worked,
}

/// One run of the process `site`.
pub(crate) async fn drive(site: &Site, wait: Wait) -> Result<Ended> {
    let mut driver = Driver {
        site,
        chance: site.world.chance(&format!("{} decides", site.actor)),
        lake: site.lake(),
        sink: site.sink(),
    };
    let ended = driver.run(wait).await;
    let shown =
        ended.as_ref().map_or_else(|error| format!("{:?}: {error}", error.kind()), |ended| format!("{ended:?}"));
    site.world.say(&site.actor, format_args!("ends: {}", shown.replace('\n', " ")));
    if let Err(error) = &ended {
        judge(site, error);
    }
    ended
}

/// What an error may be when nothing is wrong with store, lake and destination.
pub(crate) fn judge(site: &Site, error: &Error) {
    match error.kind() {
        ErrorKind::Busy => site.world.note(Situation::Busy),
        ErrorKind::Fenced => site.world.note(Situation::Fenced),
        ErrorKind::Indeterminate => site.world.note(Situation::Indeterminate),
        ErrorKind::Unavailable | ErrorKind::ChangedSincePlanning => {}
        _ => site.world.complain(&site.actor, format_args!("false alarm: {error}").to_string().replace('\n', " ")),
    }
}

/// Waits for `step` of `run`, and checks what the run believes after it.
pub(crate) async fn believed<T>(site: &Site, run: &Run, step: impl Future<Output = Result<T>>) -> Result<T> {
    let (before, (highest, _)) = (run.version().await.0, site.world.highest());
    let done = step.await;
    let now = run.version().await.0;
    if now > before && now < highest {
        site.world.complain(&site.actor, format_args!("it believes in manifest {now}, and {highest} was there before"));
    }
    if let Err(error) = &done
        && error.kind() == ErrorKind::Fenced
        && site.world.highest().1 <= run.worker().epoch().0
    {
        site.world.complain(&site.actor, format_args!("it was fenced in the newest epoch: {}", error.what()));
    }
    done
}

/// Commits what is sealed. Whether files were gone, so that their atoms are undone.
pub(crate) async fn commit(site: &Site, run: &Run, sink: &dyn Sink) -> Result<bool> {
    let step = async {
        match site.world.scenario.variant {
            Some(Variant::CommitWithoutIntent) => {
                run.fold().await?;
                let ready = |live: &Live| live.pending().flat_map(|row| row.outputs.clone()).collect::<Vec<_>>();
                let files = run.with_live(|_, live| ready(live)).await;
                sink.commit(&Intent::bare(&files)).await?;
                run.commit(Some(sink)).await
            }
            Some(Variant::GivesUpWithoutBarrier) => run.commit(Some(&CommitsBy(sink, GivingUp))).await,
            _ => run.commit(Some(sink)).await,
        }
    };
    let committed = believed(site, run, step).await?;
    let withdrawn = committed.iter().any(|committed| !committed.missing.is_empty());
    if withdrawn {
        site.world.note(Situation::Withdrawn);
    }
    for committed in &committed {
        site.world.say(&site.actor, format_args!("committed {} with {} files", committed.n, committed.files));
    }
    Ok(withdrawn)
}

struct Driver<'a> {
    site: &'a Site,
    chance: Chance,
    lake: Lake,
    sink: Arc<dyn OutputSink>,
}

impl Driver<'_> {
    async fn run(&mut self, wait: Wait) -> Result<Ended> {
        let world = &self.site.world;
        let store = self.site.store();
        let listing = self.lake.list().await?;
        let view = store.read().await?;
        self.check_destination(&view).await?;
        let plan = self.plan(&listing, &view.live).await?;
        if plan.is_empty() && !view.needs_epoch() {
            world.note(Situation::Nothing);
            return Ok(Ended::Nothing);
        }
        if world.scenario.variant == Some(Variant::FoldsUnnamedSegment) {
            open_with_unnamed_segment(world, &self.site.actor);
        }
        let (highest, _) = world.highest();
        let run = Arc::new(store.begin(self.site.options(wait)).await?);
        let won = run.version().await.0;
        if won < highest {
            world.complain(&self.site.actor, format_args!("it opened {won}, and {highest} was there before"));
        }
        self.sink.bind(run.worker().store_id()).await?;
        let sink: &dyn Sink = &*Arc::clone(&self.sink);
        let recovered = believed(self.site, &run, run.recover(Some(sink))).await?;
        if recovered.committed.is_some() {
            world.note(Situation::FinishedCommit);
        }
        if recovered.committed.as_ref().is_some_and(|committed| committed.taken_out > 0) {
            world.note(Situation::EndedRetraction);
        } else if recovered.undone {
            world.note(Situation::Withdrawn);
        }
        let worked = self.work(&run, &listing).await;
        if let Err(error) = &worked
            && error.kind() == ErrorKind::Fenced
        {
            believed(self.site, &run, async { Err::<(), _>(Error::new(ErrorKind::Fenced, error.what())) }).await?;
        }
        // On a failure too: what is sealed is committed.
        commit(self.site, &run, sink).await?;
        worked?;
        self.close(run).await?;
        Ok(Ended::Worked)
    }

    async fn close(&mut self, run: Arc<Run>) -> Result<()> {
        // Some programs just end, or hold the run in a task that they dropped: the next run does not need the close.
        let Ok(run) = Arc::try_unwrap(run) else { return Ok(()) };
        if self.chance.percent(10) {
            return Ok(());
        }
        let (version, epoch, (highest, _)) = (run.version().await.0, run.worker().epoch().0, self.site.world.highest());
        let closed = run.close().await;
        let complain = |what: String| self.site.world.complain(&self.site.actor, what);
        match &closed {
            Ok(_) if version + 1 < highest => complain(format!("it closed {}, and {highest} was there", version + 1)),
            Err(error) if error.kind() == ErrorKind::Fenced && self.site.world.highest().1 <= epoch => {
                complain("it was fenced in the newest epoch, at its close".to_owned());
            }
            _ => {}
        }
        closed.map(drop)
    }

    /// Reads only. Since the store was read, another driver may have committed; if not, a refusal stands.
    async fn check_destination(&self, view: &View) -> Result<()> {
        let store = self.site.store();
        let mut view = view.clone();
        loop {
            let Err(refused) = self.sink.check(view.expected().as_ref()).await else { return Ok(()) };
            if store.newest().await? == view.head {
                return Err(refused);
            }
            view = store.read().await?;
        }
    }

    async fn plan(&self, listing: &Listing, live: &Live) -> Result<SourcePlan> {
        plan_source(SOURCE, &self.lake, listing, live, self.site.world.scenario.policy).await
    }

    /// Does what is left, and again what changed meanwhile.
    async fn work(&mut self, run: &Arc<Run>, listing: &Listing) -> Result<()> {
        let mut listing = listing.clone();
        let mut only: Option<BTreeSet<Arc<str>>> = None;
        for round in 0..=ROUNDS {
            if let Some(paths) = &only {
                listing = self.lake.list().await?;
                listing.files.retain(|file| paths.contains(&file.path));
                believed(self.site, run, run.fold()).await?;
            }
            let (head, live) = run.view().await;
            let mut plan = self.plan(&listing, &live).await?;
            if round == 0 && !plan.unsettled.is_empty() {
                self.site.world.note(Situation::Settled);
                plan.settle(&self.lake, &live, self.site.world.scenario.policy).await?;
            }
            self.note(&plan);
            believed(self.site, run, run.update_files(SOURCE, plan.updates.clone())).await?;
            let view = View { head: Some(head), live, ..View::default() };
            let filter = (round == 0 && self.site.world.scenario.unpruned).then(|| AtomFilter::new(&view));
            if filter.is_some() {
                self.plan_done_files_too(&mut plan, &listing, &view.live);
            }
            let formed = form_tasks(&self.lake, &plan.files, self.site.world.scenario.sizing).await?;
            let tasks: Vec<Vec<TaskPart>> = formed.tasks.into_iter().map(|task| task.parts).collect();
            let sink = Arc::clone(&self.sink);
            let mut tasks_of_round = Tasks { site: self.site, chance: &mut self.chance, run, sink: &*sink, filter };
            let mut done = tasks_of_round.run(tasks).await?;
            if let Some(error) = done.error.take() {
                return Err(error);
            }
            done.changed.extend(formed.changed);
            if done.changed.is_empty() {
                return Ok(());
            }
            only = Some(done.changed);
        }
        Ok(())
    }

    fn note(&self, plan: &SourcePlan) {
        let report = &plan.report;
        let counts = [
            (report.replaced, Situation::Replaced),
            (report.moved, Situation::Moved),
            (report.partly_done, Situation::PartlyDone),
        ];
        counts.iter().filter(|(n, _)| *n > 0).for_each(|(_, situation)| self.site.world.note(*situation));
        for unusable in &report.unusable {
            // A file that changes while it is looked at can be neither done nor planned: the next run looks again.
            if !unusable.why.contains("changed") {
                self.site
                    .world
                    .complain(&self.site.actor, format_args!("{} is unusable: {}", unusable.path, unusable.why));
            }
        }
    }

    /// As a planner that knows nothing of what is done: its workers filter.
    fn plan_done_files_too(&self, plan: &mut SourcePlan, listing: &Listing, live: &Live) {
        let planned: BTreeSet<Arc<str>> = plan.files.iter().map(|planned| Arc::clone(&planned.file.path)).collect();
        let local = self.lake.root().is_local();
        for file in listing.files.iter().filter(|file| !planned.contains(&file.path)) {
            if live.find(SOURCE, file).is_some() {
                plan.files.push(PlannedFile {
                    apart: false,
                    source: SOURCE.into(),
                    file: file.clone(),
                    left: Coverage::Whole,
                    group_rows: None,
                    reason: Reason::New,
                    unsettled: lakemark::unsettled(file, listing.taken_at, local),
                });
            }
        }
        plan.files.sort_by(|a, b| a.file.path.cmp(&b.file.path));
    }
}
