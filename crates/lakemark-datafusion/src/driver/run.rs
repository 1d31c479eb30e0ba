//! The order of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use datafusion::dataframe::DataFrame;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use futures::StreamExt;
use lakemark::{
    BeginOptions, Committed, Error, ErrorKind, InputId, Listing, Result, Run, Sink, SourcePlan, TaskRead, Unusable,
    View, plan_source,
};

use super::hand_out::{Acks, Caller};
use super::plan::{
    Planned, PlannedTasks, Query, check_output, check_places, finish_requests, has_unusable, reclassify_unusable,
    reclassify_vanished, start_report, stat_again,
};
use super::progress::{Progress, StopSignal};
use super::publisher::Publisher;
use super::tasks::{PlannedTask, Stage, run_tasks};
use crate::checkpoints::Checkpoints;
use crate::report::{ErrorReport, Outcome, RunReport};
use crate::rows::{KeyFilterExec, Slices, key_filter_of, key_filters};
use crate::scan::scans;
use crate::schema::to_ipc;
use crate::seal::{Output, SealExec, TaskDone};

/// Plans again at most this often in one run, for files that keep changing.
const ROUNDS: u32 = 3;

pub(crate) async fn run_query(
    checkpoints: &Checkpoints,
    query: DataFrame,
    output: Option<Output>,
    progress: Arc<dyn Progress>,
    stop: StopSignal,
) -> (RunReport, Option<Error>) {
    drive(checkpoints, query, output, None, progress, stop).await
}

/// Runs `query` without a destination but the `caller`.
pub(super) async fn drive(
    checkpoints: &Checkpoints,
    query: DataFrame,
    output: Option<Output>,
    caller: Option<Caller>,
    progress: Arc<dyn Progress>,
    stop: StopSignal,
) -> (RunReport, Option<Error>) {
    let (report, vanished) = (RunReport::default(), BTreeSet::new());
    let mut driver = Driver { checkpoints, output, caller, progress, stop, report, stopped: false, vanished };
    let error = driver.run(query).await.err();
    let mut report = driver.report;
    finish_requests(checkpoints, &mut report);
    if let Some(error) = &error {
        report.outcome = Outcome::of(error.kind());
        report.error = Some(ErrorReport::from(error));
    } else if report.outcome != Outcome::Nothing || has_unusable(&report) {
        let partial = driver.stopped || has_unusable(&report);
        report.outcome = if partial { Outcome::Partial } else { Outcome::Done };
    }
    (report, error)
}

/// Wins an epoch for a run over `checkpoints`, and binds the destination to the store.
pub(super) async fn begin(checkpoints: &Checkpoints, view: &View, output: Option<&Output>) -> Result<Run> {
    let options = checkpoints.options();
    let begin = BeginOptions {
        sources: checkpoints.settings(),
        sink: output.map(|output| output.sink.binding()),
        wait: options.wait,
        lease: options.lease,
    };
    let run = checkpoints.store().begin_from(view.clone(), begin).await?;
    if let Some(output) = output {
        output.sink.bind(run.worker().store_id()).await?;
    }
    Ok(run)
}

/// Records the schemas that the store does not know yet.
pub(super) async fn record_schemas(checkpoints: &Checkpoints, run: &Run) -> Result<()> {
    for source in checkpoints.sources() {
        if let (true, Some(schema)) = (source.schema_is_new, &source.schema) {
            run.record_schema(&source.name, &to_ipc(schema, &source.partitions)?).await?;
        }
    }
    Ok(())
}

struct Driver<'a> {
    checkpoints: &'a Checkpoints,
    output: Option<Output>,
    caller: Option<Caller>,
    progress: Arc<dyn Progress>,
    stop: StopSignal,
    report: RunReport,
    stopped: bool,
    /// Sources and paths of files that were gone; several tasks can find the same one.
    vanished: BTreeSet<(Arc<str>, Arc<str>)>,
}

impl Driver<'_> {
    async fn run(&mut self, query: DataFrame) -> Result<()> {
        let checkpoints = self.checkpoints;
        let view = checkpoints.view().await?;
        self.report = start_report(checkpoints, &view);
        let query = Query::new(query)?;
        self.output = check_output(&query, self.output.as_ref()).await?;
        check_places(checkpoints, &view, self.output.as_ref()).await?;
        let began = Instant::now();
        let mut planned = query.physical(checkpoints).await?;
        let plan_seconds = began.elapsed().as_secs_f64();
        self.report = start_report(checkpoints, &view);
        let updates = checkpoints.sources().iter().any(|source| source.has_updates());
        let readable = match &planned {
            Some(planned) => self.something_to_read(planned, &query.state.task_ctx()).await?,
            None => false,
        };
        if !readable && !updates && !view.needs_epoch() {
            self.report.seconds.plan += plan_seconds;
            self.report.outcome = Outcome::Nothing;
            return self.check_roots();
        }

        if self.settle(&view).await? {
            planned = query.physical(checkpoints).await?;
            self.report = start_report(checkpoints, &view);
        }

        let began = Instant::now();
        let mut stop = self.stop.clone();
        let run = tokio::select! {
            run = begin(self.checkpoints, &view, self.output.as_ref()) => Arc::new(run?),
            // Perhaps waiting for another holder: nothing was taken over, nothing was changed.
            () = stop.reached(1) => {
                self.stopped = true;
                return Ok(());
            }
        };
        let mut stale = newer_view(&run, &view).await;
        let recovered = run.recover(self.sink()).await?;
        if recovered.undone {
            stale = Some(run.present().await);
        }
        if let Some(newer) = stale {
            // Somebody worked between the reading and the winning, or work was lost: plan from what is there now.
            checkpoints.replan(newer).await?;
            planned = query.physical(checkpoints).await?;
            let view = checkpoints.view().await?;
            self.report = start_report(checkpoints, &view);
        }
        self.report.commits.extend(recovered.committed.iter().map(Into::into));
        self.report.seconds.plan += plan_seconds;
        self.report.seconds.open += began.elapsed().as_secs_f64();
        self.report.epoch = run.worker().epoch().0;
        if let Some(caller) = &mut self.caller {
            caller.begin();
        }
        let worked = self.work(&run, &query, planned).await;
        let fenced = matches!(&worked, Err(error) if error.kind() == ErrorKind::Fenced);
        let acked = match self.caller.take() {
            Some(caller) => caller.end(worked.as_ref().err(), fenced).await,
            None => Acks::default(),
        };
        acked.done.iter().for_each(|done| self.count(done));
        self.stopped |= acked.missing;
        if fenced {
            return worked;
        }
        // On a failure too: what is sealed is committed.
        let finished = self.finish(run).await;
        worked.and(finished).and_then(|()| self.check_roots())
    }

    /// When files vanished, the source's root must still be there: a directory that is gone is no empty source.
    fn check_roots(&self) -> Result<()> {
        for source in self.checkpoints.sources() {
            let vanished =
                !source.scanned().vanished.is_empty() || self.vanished.iter().any(|(s, _)| *s == source.name);
            let gone = source.lake.root().local_path().is_some_and(|path| !path.exists());
            if vanished && gone {
                return Err(Error::new(ErrorKind::Unavailable, format!("source `{}` is gone", source.name))
                    .at(source.lake.root())
                    .safe("what was sealed before it vanished is kept")
                    .way("put it back, then run again"));
            }
        }
        Ok(())
    }

    fn sink(&self) -> Option<&dyn Sink> {
        self.output.as_ref().map(|output| &*output.sink as &dyn Sink)
    }

    /// Whether some task has a file that can be read, or that changed. Opens footers until one is found, which the scan
    /// uses again: a lake whose new files are all unusable is no work, and nothing is written for it.
    async fn something_to_read(&mut self, planned: &Planned, context: &Arc<TaskContext>) -> Result<bool> {
        let mut left_out = Vec::new();
        let filters = key_filters(&planned.physical);
        for scan in scans(&planned.physical) {
            for input in scan.inputs().flatten().filter(|input| !filters.iter().any(|f| f.inputs().contains(input))) {
                let read = scan.look_at_task(input).await?;
                if !read.files.is_empty() || !read.changed.is_empty() {
                    return Ok(true);
                }
                left_out.push(read);
            }
        }
        for read in left_out {
            self.leave_out(&read);
        }
        self.rows_to_do(&filters, context).await
    }

    /// Whether some task of rows has one that is not done: reads each until one is found, and keeps what was read for the run.
    async fn rows_to_do(&mut self, filters: &[&KeyFilterExec], context: &Arc<TaskContext>) -> Result<bool> {
        let tasks = filters.iter().flat_map(|filter| (0..filter.inputs().len()).map(move |p| (*filter, p)));
        let looks: Vec<_> = tasks.map(|(filter, partition)| filter.look(partition, Arc::clone(context))).collect();
        let mut waiting = looks.into_iter();
        let mut looking = futures::stream::FuturesUnordered::new();
        let mut found = false;
        loop {
            // What has begun goes on to its first slice: what it read would be read again.
            while !found && looking.len() < self.checkpoints.options().concurrency.max(1) {
                let Some(look) = waiting.next() else { break };
                looking.push(look);
            }
            match looking.next().await {
                Some(look) => found |= look?,
                None => break,
            }
        }
        if !found {
            for filter in filters {
                for input in filter.inputs() {
                    let mut read = self.checkpoints.shared.atoms.take(*input).unwrap_or_default();
                    read.files.clear();
                    self.leave_out(&read);
                }
            }
        }
        Ok(found)
    }

    /// Counts what a task could not read.
    fn leave_out(&mut self, read: &TaskRead) {
        for source in self.checkpoints.sources() {
            let Some(report) = source_report(&mut self.report, &source.name) else { continue };
            let plan = source.plan();
            for (_, path, why) in read.unusable.iter().filter(|(name, ..)| *name == source.name) {
                // Every report lists it.
                tracing::info!(source = %source.name, %path, why, "unusable");
                reclassify_unusable(report, &plan, Unusable { path: path.to_string(), why: why.clone() });
            }
            for (_, path) in read.vanished.iter().filter(|(name, _)| *name == source.name) {
                if !self.vanished.insert((Arc::clone(&source.name), Arc::clone(path))) {
                    continue;
                }
                tracing::warn!(source = %source.name, %path, "vanished before it was read");
                reclassify_vanished(report, &plan, path);
            }
        }
    }

    /// Settles files whose mtime was too fresh to be trusted; whether there is more to do than was planned.
    async fn settle(&self, view: &View) -> Result<bool> {
        let mut more = false;
        for source in self.checkpoints.sources() {
            let plan = source.plan();
            if !plan.unsettled.is_empty() {
                let mut plan = SourcePlan::clone(&plan);
                more |= plan.settle(&source.lake, &view.live, source.policy).await?;
                source.set_plan(plan);
            }
        }
        Ok(more)
    }

    /// Runs what is planned, and again what changed meanwhile.
    async fn work(&mut self, run: &Arc<Run>, query: &Query, mut planned: Option<Planned>) -> Result<()> {
        let began = Instant::now();
        record_schemas(self.checkpoints, run).await?;
        for source in self.checkpoints.sources() {
            run.update_files(&source.name, source.plan().updates.clone()).await?;
            if let Some(reached) = source.plan().table.as_ref().and_then(|table| table.reached.clone()) {
                run.reach_table(&source.name, reached).await?;
            }
            run.supersede(&source.plan().superseded);
        }
        let publisher = self.output.as_ref().zip(self.checkpoints.options().commit_every);
        let publisher =
            publisher.map(|(output, every)| Publisher::start(Arc::clone(run), Arc::clone(&output.sink), every));
        let context = query.state.task_ctx();
        let mut result = Ok(());
        let mut round = 0;
        while let Some(now) = planned.take() {
            let changed = self.round(run, &now, &context).await;
            result = result.and(changed.error.map_or(Ok(()), Err));
            round += 1;
            if changed.files.is_empty() || result.is_err() || self.stopped {
                break;
            }
            if round > ROUNDS {
                self.give_up_on(&changed.files);
                break;
            }
            planned = self.plan_changed(run, query, changed.files).await?;
        }
        self.reach_tables(run).await?;
        self.report.seconds.run += began.elapsed().as_secs_f64();
        if let Some(publisher) = publisher {
            let (committed, error) = publisher.end().await;
            self.count_commits(&committed);
            if let Some(error) = error.filter(|error| error.kind() == ErrorKind::Fenced) {
                return Err(error);
            }
        }
        result
    }

    /// Records what this run made of files that had left their tables: else the next run would look for who took them out.
    async fn reach_tables(&self, run: &Run) -> Result<()> {
        for source in self.checkpoints.sources() {
            if source.plan().table.as_ref().is_none_or(|table| table.left_table.is_empty()) {
                continue;
            }
            run.fold().await?;
            let (_, live) = run.view().await;
            // What it would refuse now, the next run refuses.
            let planned = source.plan_against(&live).await.ok();
            if let Some(reached) = planned.and_then(|plan| plan.table).and_then(|table| table.reached) {
                run.reach_table(&source.name, reached).await?;
            }
        }
        Ok(())
    }

    /// Counts what was committed, and warns of what was not.
    fn count_commits(&mut self, committed: &[Committed]) {
        self.report.commits.extend(committed.iter().map(Into::into));
        let missing = || committed.iter().flat_map(|commit| &commit.missing);
        if let Some(first) = missing().next() {
            self.stopped = true;
            tracing::warn!(files = missing().count(), first, "staged files were gone: their work is undone, run again");
        }
    }

    /// Runs the tasks of one plan.
    async fn round(&mut self, run: &Arc<Run>, planned: &Planned, context: &Arc<TaskContext>) -> Changed {
        let options = self.checkpoints.options();
        let task = |(partition, input): (usize, &Option<InputId>)| {
            let input = (*input)?;
            Some(PlannedTask { partition, input, of_rows: key_filter_of(&planned.physical, input).is_some() })
        };
        let tasks: Vec<_> = planned.mapped.iter().enumerate().filter_map(task).collect();
        let before = self.caller.as_ref().map_or(self.report.tasks.sealed, |caller| caller.handed) as usize;
        let limit = if options.max_tasks == 0 { usize::MAX } else { options.max_tasks.saturating_sub(before) };
        let sources = self.checkpoints.sources();
        // What a task of rows comes to is known when it has run.
        self.report.tasks.planned += tasks.iter().filter(|task| !task.of_rows).count() as u64;
        self.progress.planned(&PlannedTasks {
            tasks: tasks.len() as u64,
            files: sources.iter().map(|source| source.planned_files()).sum(),
            row_groups: sources.iter().map(|source| source.scanned().atoms).sum(),
        });
        let (sender, sliced) = tokio::sync::mpsc::unbounded_channel();
        let slices = Arc::new(Slices::new(limit, sender));
        let seal = Arc::new(SealExec::new(
            Arc::clone(&planned.physical),
            self.checkpoints.clone(),
            Arc::clone(run),
            self.output.clone(),
            self.caller.as_ref().map(|caller| caller.handover.clone()),
            planned.mapped.clone(),
            Arc::clone(&slices),
        ));
        let stage = Stage { seal: &seal, context, options, progress: &*self.progress, run, slices: &slices, sliced };
        let ran = run_tasks(stage, &tasks, &mut self.stop).await;
        self.progress.executed(&(seal as Arc<dyn ExecutionPlan>));
        self.stopped |= ran.stopped;
        self.report.tasks.failed += ran.failed;
        let mut changed: BTreeMap<Arc<str>, Vec<Arc<str>>> = BTreeMap::new();
        for source in &sources {
            // Files that the driver opened for splitting and found changed.
            changed.entry(Arc::clone(&source.name)).or_default().extend(source.scanned().changed);
        }
        for done in ran.done {
            self.count(&done);
            for (source, path) in &done.read.changed {
                tracing::warn!(%source, %path, "changed since planning: left out, and planned again");
                changed.entry(Arc::clone(source)).or_default().push(Arc::clone(path));
            }
            self.leave_out(&done.read);
        }
        changed.retain(|_, paths| !paths.is_empty());
        Changed { files: changed, error: ran.error }
    }

    /// Counts what a task did.
    fn count(&mut self, done: &TaskDone) {
        let report = &mut self.report;
        report.tasks.sealed += u64::from(done.sealed);
        report.tasks.planned += u64::from(done.sealed && done.files == 0);
        report.atoms.planned += done.atoms;
        report.rows.rows_in += done.counts.rows_in;
        report.rows.out += done.counts.rows_out;
        report.rows.failed += done.counts.rows_failed;
        report.bytes.written += done.bytes_written;
        if let Some(caller) = &mut self.caller {
            caller.handed += u64::from(done.handed);
        }
    }

    /// Plans the files that changed, as they are now.
    async fn plan_changed(
        &mut self,
        run: &Run,
        query: &Query,
        changed: BTreeMap<Arc<str>, Vec<Arc<str>>>,
    ) -> Result<Option<Planned>> {
        run.fold().await?;
        let (_, live) = run.view().await;
        for source in self.checkpoints.sources() {
            let paths = changed.get(&source.name).map(Vec::as_slice).unwrap_or_default();
            if source.table.is_some() {
                // They never change: what is not as the table says is unusable.
                source.set_plan(SourcePlan { files: Vec::new(), ..SourcePlan::clone(&source.plan()) });
                continue;
            }
            let listing = Listing {
                files: stat_again(&source, paths).await?,
                taken_at: lakemark::time::now_ns(),
                partial: true,
                ..Listing::default()
            };
            let mut plan = plan_source(&source.name, &source.lake, &listing, &live, source.policy).await?;
            run.update_files(&source.name, std::mem::take(&mut plan.updates)).await?;
            run.supersede(&plan.superseded);
            let listed = |path: &Arc<str>| listing.files.binary_search_by(|file| file.path.cmp(path)).is_ok();
            let gone = paths.iter().filter(|path| !listed(path));
            self.leave_out(&TaskRead {
                unusable: named(&source.name, std::mem::take(&mut plan.report.unusable)),
                vanished: gone.map(|path| (Arc::clone(&source.name), Arc::clone(path))).collect(),
                ..TaskRead::default()
            });
            // The report keeps what the first plan said of the others.
            plan.report = source.plan().report.clone();
            source.set_plan(plan);
        }
        let planned = query.physical(self.checkpoints).await?;
        for source in self.checkpoints.sources() {
            let scanned = source.scanned();
            self.leave_out(&TaskRead {
                unusable: named(&source.name, scanned.unusable),
                vanished: scanned.vanished.into_iter().map(|path| (Arc::clone(&source.name), path)).collect(),
                ..TaskRead::default()
            });
        }
        Ok(planned)
    }

    fn give_up_on(&mut self, changed: &BTreeMap<Arc<str>, Vec<Arc<str>>>) {
        for (source, paths) in changed {
            let Some(planned) = self.checkpoints.sources().into_iter().find(|s| s.name == *source) else { continue };
            let Some(report) = source_report(&mut self.report, source) else { continue };
            let plan = planned.plan();
            for path in paths {
                let why = "it changed each time it was read".to_owned();
                reclassify_unusable(report, &plan, Unusable { path: path.to_string(), why });
            }
        }
    }

    /// Commits what is sealed, and closes.
    async fn finish(&mut self, run: Arc<Run>) -> Result<()> {
        let began = Instant::now();
        self.progress.committing();
        let committed = run.commit(self.sink()).await;
        if let Ok(committed) = &committed {
            self.count_commits(committed);
        }
        let epoch = run.worker().epoch();
        let rejected = run.with_live(|_, live| live.rejected_in(epoch)).await;
        if rejected > 0 {
            // Another attempt had a part of what they cover: the rest is not done.
            self.stopped = true;
            tracing::warn!(rejected, "seals of this run do not count, since others cover the same: run again");
        }
        // Tasks that were dropped may still hold the run for a moment; the next run does not need the close.
        let closed = match Arc::try_unwrap(run) {
            Ok(run) if committed.is_ok() => run.close().await.map(drop),
            _ => Ok(()),
        };
        self.report.seconds.commit += began.elapsed().as_secs_f64();
        committed?;
        closed
    }
}

/// Unusable files in the form in which a task reports them.
fn named(source: &Arc<str>, unusable: Vec<Unusable>) -> Vec<(Arc<str>, Arc<str>, String)> {
    unusable.into_iter().map(|u| (Arc::clone(source), u.path.into(), u.why)).collect()
}

/// What a round left over.
struct Changed {
    files: BTreeMap<Arc<str>, Vec<Arc<str>>>,
    error: Option<Error>,
}

fn source_report<'a>(report: &'a mut RunReport, name: &str) -> Option<&'a mut lakemark::SourceReport> {
    report.sources.iter_mut().find(|source| source.name == name)
}

/// The state that `run` won, if it is not what `view` was followed by nothing but the opening.
async fn newer_view(run: &Run, view: &View) -> Option<View> {
    let expected = view.head.as_ref().map_or(lakemark::ManifestVersion(1), |head| head.manifest.version.next());
    let seen = view.live.checkpoints().count();
    let same =
        run.with_live(|head, live| head.manifest.version == expected && live.checkpoints().count() == seen).await;
    if same {
        return None;
    }
    Some(run.present().await)
}
