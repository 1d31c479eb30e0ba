//! From a query to tasks, without changing anything.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use datafusion::dataframe::DataFrame;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use lakemark::{
    Error, ErrorKind, FileVersion, OutputFormat, PlannedFile, Reason, Result, Root, SourcePlan, SourceReport, Unusable,
    View,
};

use super::broadcast::BroadcastLookups;
use crate::checkpoints::{Checkpoints, Source};
use crate::errors::from_datafusion;
use crate::report::{Outcome, RequestReport, RunReport};
use crate::rows::key_filters;
use crate::scan::{CheckpointedScanExec, scans};
use crate::seal::Output;
use crate::validate::{Mapped, check_logical, check_physical};

/// How much a run will do, as far as it is known before files are opened.
#[derive(Debug, Clone, Copy, Default)]
pub struct PlannedTasks {
    /// Tasks.
    pub tasks: u64,
    /// Files.
    pub files: u64,
    /// Row groups, of files that were opened.
    pub row_groups: u64,
}

/// What a run would do.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The report that the run would begin with.
    pub report: RunReport,
    /// The files with something left to do, by source and path.
    pub files: Vec<PlannedFile>,
}

/// A query that may run.
pub(super) struct Query {
    pub(super) state: SessionState,
    pub(super) logical: LogicalPlan,
    /// The sources that it names.
    names: HashSet<String>,
}

/// A plan that may run: each partition is one task.
pub(super) struct Planned {
    pub(super) physical: Arc<dyn ExecutionPlan>,
    pub(super) mapped: Mapped,
}

impl Planned {
    pub(super) fn tasks(&self) -> u64 {
        self.mapped.iter().flatten().count() as u64
    }
}

impl Query {
    pub(super) fn new(query: DataFrame) -> Result<Self> {
        let (state, logical) = query.into_parts();
        let names = check_logical(&logical)?;
        Ok(Self { state: one_task_one_partition(state), logical, names })
    }

    /// The physical plan over what the sources have left now; `None` when they have nothing.
    pub(super) async fn physical(&self, checkpoints: &Checkpoints) -> Result<Option<Planned>> {
        let files = checkpoints.sources();
        let has_table =
            checkpoints.row_sources().iter().any(|rows| files.iter().all(|source| source.name != rows.name));
        if !has_table && files.iter().all(|source| source.plan().files.is_empty()) {
            return Ok(None);
        }
        let physical = self.state.create_physical_plan(&self.logical).await;
        let physical = physical.map_err(|e| {
            from_datafusion(e, ErrorKind::Invalid, "the query cannot be planned").safe("nothing was read or written")
        })?;
        let mapped = check_physical(&physical)?;
        self.check_all_read(checkpoints, &physical)?;
        let planned = Planned { physical, mapped };
        Ok((planned.tasks() > 0).then_some(planned))
    }

    /// A filter that is false whatever the files hold takes a source out of the plan: its files would stay undone for ever,
    /// and the run would look finished.
    fn check_all_read(&self, checkpoints: &Checkpoints, physical: &Arc<dyn ExecutionPlan>) -> Result<()> {
        let mut read: HashSet<&str> = scans(physical).into_iter().map(CheckpointedScanExec::source).collect();
        read.extend(key_filters(physical).into_iter().map(|filter| &*filter.source().name));
        let rows = checkpoints.row_sources();
        let unread_rows = rows.iter().find(|rows| self.names.contains(&*rows.name) && !read.contains(&*rows.name));
        let sources = checkpoints.sources();
        let unread =
            |s: &&Arc<Source>| self.names.contains(&*s.name) && !read.contains(&*s.name) && !s.plan().files.is_empty();
        let unread = sources.iter().find(unread).map(|source| &source.name);
        let Some(name) = unread.or(unread_rows.map(|rows| &rows.name)) else { return Ok(()) };
        Err(Error::invalid(format!("the query keeps no row of source `{name}`, whatever its files hold"))
            .safe("nothing was read or written; its files stay as they are, to be done by another query")
            .way("correct the condition that is never true (WHERE or ON)")
            .way(format!("leave `{name}` out of the query and of the sources")))
    }
}

/// DataFusion's settings under which one partition is one task from scan to sink.
fn one_task_one_partition(state: SessionState) -> SessionState {
    let mut config = state.config().clone();
    let options = config.options_mut();
    // One partition would stop the swap of join sides.
    options.execution.target_partitions = options.execution.target_partitions.max(2);
    options.execution.enable_file_stream_work_stealing = false;
    options.optimizer.enable_round_robin_repartition = false;
    options.optimizer.repartition_file_scans = false;
    // It waits for all partitions of the probe side, which run a few at a time.
    options.optimizer.enable_join_dynamic_filter_pushdown = false;
    options.optimizer.prefer_hash_join = true;
    // The catalog is shared with the caller's session: a new default catalog would take its tables away.
    options.catalog.create_default_catalog_and_schema = false;
    let rules = BroadcastLookups::among(state.physical_optimizers());
    SessionStateBuilder::new_from_existing(state).with_config(config).with_physical_optimizer_rules(rules).build()
}

/// Checks store, destination and sources against each other. Reads only.
pub(super) async fn check_places(checkpoints: &Checkpoints, view: &View, output: Option<&Output>) -> Result<()> {
    let binding = output.map(|output| output.sink.binding());
    if let Some(head) = &view.head {
        lakemark::store::check_settings(&head.manifest, &checkpoints.settings(), binding.as_ref())?;
    }
    let Some(output) = output else { return Ok(()) };
    let sink = output.sink.root().resolved();
    for source in checkpoints.sources() {
        apart("destination", &sink, &format!("source `{}`", source.name), &source.lake.root().resolved())?;
    }
    apart("destination", &sink, "store", &checkpoints.store().root().resolved())?;
    let mut newer: Option<View> = None;
    loop {
        let seen = newer.as_ref().unwrap_or(view);
        let Err(refused) = output.sink.check(seen.expected().as_ref()).await else { return Ok(()) };
        // Since the store was read, another driver may have made it, or committed. If not, the refusal stands.
        if checkpoints.store().newest().await? == seen.head {
            return Err(refused);
        }
        newer = Some(checkpoints.store().read().await?);
    }
}

fn apart(a: &str, a_root: &Root, b: &str, b_root: &Root) -> Result<()> {
    if a_root.contains(b_root) || b_root.contains(a_root) {
        return Err(Error::refused(format!("the {a} {a_root} and {b} ({b_root}) lie one in the other"))
            .safe("nothing was read or written")
            .way(format!("put the {a} outside the {}", b.split(' ').next().unwrap_or(b))));
    }
    Ok(())
}

/// Checks that the rows of `query` can be written, and gives the destination as it is for them.
pub(super) async fn check_output(query: &Query, output: Option<&Output>) -> Result<Option<Output>> {
    let Some(output) = output else { return Ok(None) };
    let schema = query.logical.schema().as_arrow();
    let mut names = HashSet::new();
    if let Some(twice) = schema.fields().iter().find(|field| !names.insert(field.name())) {
        return Err(Error::invalid(format!("the query has two columns named `{}`", twice.name()))
            .safe("nothing was read or written")
            .way("give one of them another name with AS"));
    }
    if !output.sink.keeps_files() && output.options.format != OutputFormat::Parquet {
        return Err(Error::invalid("a table is of Parquet files")
            .at(output.sink.root())
            .safe("nothing was read or written"));
    }
    let stored = output.sink.storable(&Arc::new(schema.clone()))?;
    lakemark::TaskWriter::check(&stored, &output.options)?;
    let sink = Arc::clone(&output.sink).of_rows(&stored).await?;
    Ok(Some(Output { sink, options: Arc::clone(&output.options) }))
}

pub(crate) async fn plan_query(checkpoints: &Checkpoints, query: DataFrame, output: Option<Output>) -> Result<Plan> {
    let began = Instant::now();
    let view = checkpoints.view().await?;
    let query = Query::new(query)?;
    let output = check_output(&query, output.as_ref()).await?;
    check_places(checkpoints, &view, output.as_ref()).await?;
    let planned = query.physical(checkpoints).await?;
    let mut report = start_report(checkpoints, &view);
    report.tasks.planned = planned.as_ref().map_or(0, Planned::tasks);
    report.atoms.planned = checkpoints.sources().iter().map(|source| source.scanned().atoms).sum();
    report.seconds.plan += began.elapsed().as_secs_f64();
    let idle = planned.is_none() && !view.needs_epoch() && !checkpoints.sources().iter().any(|s| s.has_updates());
    report.outcome = match (has_unusable(&report), idle) {
        (true, _) => Outcome::Partial,
        (false, true) => Outcome::Nothing,
        (false, false) => Outcome::Done,
    };
    finish_requests(checkpoints, &mut report);
    let mut files = Vec::new();
    // What is new of a source in rows mode is known when its rows are read.
    for source in checkpoints.sources().into_iter().filter(|source| !source.in_rows) {
        let plan = source.plan();
        let scanned = source.scanned();
        // Only what the counts call planned: not what partition values rule out or what cannot be read.
        let left_out: HashSet<&str> = scanned
            .excluded
            .iter()
            .map(|(path, _)| &**path)
            .chain(scanned.unusable.iter().map(|unusable| unusable.path.as_str()))
            .chain(scanned.vanished.iter().map(|path| &**path))
            .collect();
        files.extend(plan.files.iter().filter(|file| !left_out.contains(&*file.file.path)).cloned());
    }
    Ok(Plan { report, files })
}

pub(crate) async fn blank_report(checkpoints: &Checkpoints) -> RunReport {
    let view = checkpoints.view().await.unwrap_or_default();
    let mut report = start_report(checkpoints, &view);
    finish_requests(checkpoints, &mut report);
    report.outcome = if has_unusable(&report) { Outcome::Partial } else { Outcome::Nothing };
    report
}

/// The report as planning leaves it.
pub(super) fn start_report(checkpoints: &Checkpoints, view: &View) -> RunReport {
    let mut report = RunReport { store: checkpoints.store().root().to_string(), ..RunReport::default() };
    for source in checkpoints.sources() {
        report.sources.push(source_report(&source));
    }
    for rows in checkpoints.row_sources() {
        let report = &mut report.sources;
        match report.iter().position(|source| source.name == *rows.name) {
            Some(_) => {}
            None => report.push(SourceReport { name: rows.name.to_string(), ..SourceReport::default() }),
        }
    }
    report.sources.sort_by(|a, b| a.name.cmp(&b.name));
    report.atoms.done = view.live.atoms();
    report.atoms.files_unopened = report.sources.iter().filter(|s| !s.verified).map(|s| s.done).sum();
    let seconds = *checkpoints.shared.seconds.lock().unwrap_or_else(|e| e.into_inner());
    (report.seconds.list, report.seconds.open, report.seconds.plan) = (seconds.list, seconds.open, seconds.plan);
    report
}

fn source_report(source: &Source) -> SourceReport {
    let plan = source.plan();
    let scanned = source.scanned();
    let mut report = plan.report.clone();
    for (_, reason) in &scanned.excluded {
        uncount(&mut report, *reason);
        report.excluded += 1;
    }
    for unusable in scanned.unusable {
        reclassify_unusable(&mut report, &plan, unusable);
    }
    if scanned.nothing_left {
        // Otherwise they are planned again in the same run.
        for path in &scanned.changed {
            let why = "it changed since it was listed".to_owned();
            reclassify_unusable(&mut report, &plan, Unusable { path: path.to_string(), why });
        }
    }
    for path in &scanned.vanished {
        reclassify_vanished(&mut report, &plan, path);
    }
    report
}

/// Takes one file out of the count of `reason`; a file that changed meanwhile may have been counted under another one.
fn uncount(report: &mut SourceReport, reason: Reason) {
    let SourceReport { new, replaced, moved, partly_done, forced, .. } = report;
    let counts = match reason {
        Reason::New => [new, replaced, moved, partly_done, forced],
        Reason::Replaced => [replaced, moved, partly_done, new, forced],
        Reason::Moved => [moved, replaced, partly_done, new, forced],
        Reason::PartlyDone => [partly_done, replaced, moved, new, forced],
        Reason::Forced => [forced, new, replaced, moved, partly_done],
    };
    if let Some(count) = counts.into_iter().find(|count| **count > 0) {
        *count -= 1;
    }
}

fn reason_of(plan: &SourcePlan, path: &str) -> Option<Reason> {
    let index = plan.files.binary_search_by(|file| (*file.file.path).cmp(path)).ok()?;
    Some(plan.files[index].reason)
}

/// A planned file that could not be read is unusable, not new or replaced: the counts keep adding up.
pub(super) fn reclassify_unusable(report: &mut SourceReport, plan: &SourcePlan, unusable: Unusable) {
    if report.unusable.iter().any(|known| known.path == unusable.path) {
        return;
    }
    if let Some(reason) = reason_of(plan, &unusable.path) {
        uncount(report, reason);
        report.unusable.push(unusable);
    }
}

/// A planned file that is gone is beside the sum.
pub(super) fn reclassify_vanished(report: &mut SourceReport, plan: &SourcePlan, path: &str) {
    if let Some(reason) = reason_of(plan, path) {
        uncount(report, reason);
        report.listed = report.listed.saturating_sub(1);
        report.vanished += 1;
    }
}

pub(super) fn has_unusable(report: &RunReport) -> bool {
    report.sources.iter().any(|source| !source.unusable.is_empty())
}

/// Fills in the counted requests and bytes.
pub(super) fn finish_requests(checkpoints: &Checkpoints, report: &mut RunReport) {
    let mut requests = RequestReport { store: checkpoints.store().requests(), ..RequestReport::default() };
    for source in checkpoints.sources() {
        let counted = source.lake.counters().snapshot();
        requests.source.list += counted.list;
        requests.source.head += counted.head;
        requests.source.get += counted.get;
        requests.source.bytes += counted.bytes;
    }
    for source in checkpoints.sources().iter().filter(|source| source.in_rows) {
        if let Some(report) = report.sources.iter_mut().find(|report| report.name == *source.name) {
            // What is done of its files is told by row.
            (report.listed, report.new) = (report.unusable.len() as u64, 0);
        }
    }
    for rows in checkpoints.row_sources() {
        if let Some(source) = report.sources.iter_mut().find(|source| source.name == *rows.name) {
            source.keys = Some(rows.report());
        }
    }
    report.bytes.read = requests.source.bytes;
    report.requests = requests;
}

/// The files of `paths` as they are now; those that are gone are left out.
pub(super) async fn stat_again(source: &Source, paths: &[Arc<str>]) -> Result<Vec<FileVersion>> {
    let mut files = Vec::with_capacity(paths.len());
    for path in paths {
        files.extend(source.lake.stat(path).await?);
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files.dedup_by(|a, b| a.path == b.path);
    Ok(files)
}
