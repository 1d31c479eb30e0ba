//! `lakemark forget`.

use lakemark::{Epoch, Error, ErrorKind, ForgetPlan, Forgotten, ObjectCheckpointStore, Selection, View};
use lakemark_datafusion::Outcome;
use serde::Serialize;

use super::{check_lost_rows, confirmed, count, patterns, sink_of, some, tell, under_an_epoch, without_source};
use crate::args::{ForgetArgs, OutputArgs};
use crate::config::JobConfig;
use crate::status::{open_view, relative_to};
use crate::{Ended, Failure, config};

pub(crate) async fn forget(args: &ForgetArgs, output: &OutputArgs) -> Ended {
    let (job, paths) = args.what.split();
    if paths.is_empty() && args.glob.is_empty() && args.epoch.is_none() && !args.failed {
        return Err(Failure::usage(
            Error::invalid("nothing is named that is to be forgotten")
                .way("name paths of source files, as `lakemark files` shows them")
                .way("or --glob PATTERN, or --epoch N"),
        ));
    }
    let config = config::load(&job).map_err(Failure::usage)?;
    let (store, view) = open_view(&job).await?;
    let selection = Selection {
        paths: paths.iter().map(|path| known_path(&view, &path.to_string_lossy())).collect(),
        globs: patterns(&args.glob)?,
        epoch: args.epoch.map(Epoch),
        retract: args.retract,
    };
    let (view, finished) = finish_retraction(&config, &store, view, args, output).await?;
    let plan = ForgetPlan::of(&view, selection)?;
    if plan.is_empty() && finished {
        tell("forget", &store, output, true, &Forgetting { plan: &plan, without_source: Vec::new(), is_table: false });
        return Ok(Outcome::Done);
    }
    if plan.is_empty() {
        let named = paths.iter().map(|path| path.display().to_string()).chain(args.glob.iter().cloned());
        let named = named.chain(args.epoch.map(|epoch| format!("epoch {epoch}"))).collect::<Vec<_>>().join(", ");
        return Err(Failure::usage(
            Error::invalid("nothing of what is named is done")
                .at(named)
                .safe("nothing was changed")
                .way("see the paths: lakemark files")
                .way("name a folder as a pattern: --glob 'folder/**'")
                .way("of a source in rows mode, name an epoch, as `lakemark log` shows them: --epoch N"),
        ));
    }
    // What was chosen is what the person wants gone; what goes with it is not.
    let pair = |file: &Forgotten| (file.source.clone(), file.file.clone());
    let Some(head) = &view.head else { return Ok(Outcome::Nothing) };
    let without = without_source(&config, &head.manifest, plan.files.iter().map(pair)).await?;
    let gone: Vec<&Forgotten> = plan.files.iter().filter(|file| without.contains(&pair(file))).collect();
    let shared: Vec<String> = gone.iter().filter(|file| !file.chosen).map(|file| file.file.to_string()).collect();
    check_lost_rows(args.lose_rows, &shared)?;
    let gone = gone.iter().map(|file| file.file.to_string()).collect();
    let sink = sink_of(&config, &head.manifest)?;
    let is_table = sink.as_ref().is_some_and(|sink| !sink.keeps_files());
    if is_table && !plan.retracted_outputs.is_empty() {
        return Err(Error::new(ErrorKind::Unsupported, "output cannot be taken out of a table in this version")
            .at(head.manifest.sink.as_ref().map(|sink| sink.root.to_string()).unwrap_or_default())
            .safe("nothing was changed")
            .way("forget without --retract, and delete the rows with the table's own tools")
            .into());
    }
    let told = Forgetting { plan: &plan, without_source: gone, is_table };
    if !confirmed(&args.change, output, &told.shown())? {
        tell("forget", &store, output, false, &told);
        return Ok(Outcome::Nothing);
    }
    let sink = sink.as_ref().map(|sink| &**sink as _);
    under_an_epoch(&store, &config, &args.change, async |run| {
        // It may have waited: what was there then may be gone by now.
        let now = without_source(&config, &head.manifest, plan.files.iter().map(pair)).await?;
        let gone = plan.files.iter().filter(|file| !file.chosen && now.contains(&pair(file)));
        check_lost_rows(args.lose_rows, &gone.map(|file| file.file.to_string()).collect::<Vec<_>>())?;
        run.forget(&plan, sink).await
    })
    .await?;
    if !output.quiet {
        eprintln!(
            "forgotten; {}",
            if told.all_gone() { "none of it is done again" } else { "the next run does again what the source has" }
        );
    }
    tell("forget", &store, output, true, &told);
    Ok(Outcome::Done)
}

/// Ends a retraction that was stopped half-way. Whether there was one.
async fn finish_retraction(
    config: &JobConfig,
    store: &ObjectCheckpointStore,
    view: View,
    args: &ForgetArgs,
    output: &OutputArgs,
) -> Result<(View, bool), Failure> {
    let Some(head) = &view.head else { return Ok((view, false)) };
    let Some(open) = head.manifest.commits.open.as_ref().filter(|open| open.leaving_files > 0) else {
        return Ok((view, false));
    };
    let left = format!(
        "ends commit {} first, a retraction that was stopped: {} leave the destination",
        open.n,
        count(open.leaving_files, "committed file")
    );
    if !confirmed(&args.change, output, &[left])? {
        return Ok((view, false));
    }
    let sink = sink_of(config, &head.manifest)?;
    let sink = sink.as_ref().map(|sink| &**sink as _);
    under_an_epoch(store, config, &args.change, async |run| run.recover(sink).await).await?;
    Ok((store.read().await?, true))
}

/// The path as the store knows it: relative to the root of any source, or whole, and then of the source it lies in.
fn known_path(view: &View, path: &str) -> (Option<String>, String) {
    if view.live.sources().any(|source| !view.live.versions(source, path).is_empty()) {
        return (None, path.to_owned());
    }
    let sources = view.head.iter().flat_map(|head| &head.manifest.sources);
    let mut inside = sources.filter_map(|(source, settings)| Some((source, relative_to(&settings.root, path)?)));
    inside.next().map_or_else(|| (None, path.to_owned()), |(source, relative)| (Some(source.clone()), relative))
}

/// What is to be forgotten, beside what the sources have.
#[derive(Serialize)]
struct Forgetting<'a> {
    #[serde(flatten)]
    plan: &'a ForgetPlan,
    /// Files of the plan that their source does not have any more as they were: they are not done again.
    without_source: Vec<String>,
    #[serde(skip)]
    is_table: bool,
}

impl Forgetting<'_> {
    fn all_gone(&self) -> bool {
        self.plan.rows.is_empty() && self.without_source.len() == self.plan.files.len()
    }

    fn shown(&self) -> Vec<String> {
        let (plan, gone) = (self.plan, &self.without_source);
        let (chosen, others): (Vec<_>, Vec<_>) = plan.files.iter().partition(|file| file.chosen);
        let mut lines = Vec::new();
        for rows in &plan.rows {
            lines.push(format!("makes {} of source `{}` undone", count(rows.rows, "row"), rows.source));
        }
        if !chosen.is_empty() {
            lines.push(format!("makes {} undone:", count(chosen.len() as u64, "file")));
            lines.extend(some(chosen.iter().map(|file| format!("{}: {}", file.source, file.file))));
        }
        if !others.is_empty() {
            lines.push(format!(
                "and with them {}, whose rows are in the same output:",
                count(others.len() as u64, "file")
            ));
            lines.extend(some(others.iter().map(|file| format!("{}: {}", file.source, file.file))));
        }
        if !gone.is_empty() {
            let rows = if plan.retracted_outputs.is_empty() { "" } else { ", and their rows are gone for good" };
            lines.push(format!(
                "of these the source has no longer as they were, so that they are not done again{rows}:"
            ));
            lines.extend(some(gone.iter().cloned()));
        }
        if !plan.retracted_outputs.is_empty() {
            let files = count(plan.retracted_outputs.len() as u64, "committed file");
            lines.push(format!(
                "takes {files} out of the destination; their {} are missing there {}:",
                count(plan.retracted_rows, "row"),
                if self.all_gone() { "from then on" } else { "until the next run" }
            ));
            lines.extend(some(plan.retracted_outputs.iter().cloned()));
        }
        if plan.doubled_rows > 0 {
            lines.push(format!(
            "their rows stay in {} of the destination: what came of up to {} is there twice once they are done again{}:",
            count(plan.doubled_outputs.len() as u64, "committed file"),
            count(plan.doubled_rows, "source row"),
            if self.is_table { "" } else { " (--retract takes it out, now or later)" }
        ));
            lines.extend(some(plan.doubled_outputs.iter().cloned()));
        }
        if !plan.unknown.is_empty() {
            lines.push("nothing is done of:".to_owned());
            lines.extend(some(plan.unknown.iter().cloned()));
        }
        lines
    }
}
