//! `lakemark run` and `lakemark plan`.

use std::sync::Arc;

use lakemark_datafusion::{ErrorReport, LakemarkExt, Outcome, Plan, RunReport, StopSignal};

use crate::args::{OutputArgs, RunArgs};
use crate::config;
use crate::job::Job;
use crate::progress::Bars;
use crate::render;
use crate::{Ended, Failure};

pub(crate) async fn run(args: &RunArgs, output: &OutputArgs) -> Ended {
    let opened = open(args).await;
    let (report, error) = match opened {
        Ok((_, job)) => execute(job, output).await,
        Err(failure) => {
            // What the user gave is wrong: nothing was refused for being unsafe.
            let usage = failure.code == 2;
            let outcome = if usage { Outcome::Failed } else { Outcome::of(failure.error.kind()) };
            let report = RunReport { outcome, error: Some(ErrorReport::from(&failure.error)), ..RunReport::default() };
            if output.json {
                render::json(&report);
            }
            return Err(failure);
        }
    };
    if output.json {
        render::json(&report);
    }
    render::run(&report, output);
    match error {
        Some(error) => Err(error.into()),
        None => Ok(report.outcome),
    }
}

async fn open(args: &RunArgs) -> Result<(config::JobConfig, Job), Failure> {
    let config = config::load(&args.job).map_err(Failure::usage)?;
    config.check().map_err(Failure::usage)?;
    let job = Job::open(&config, args).await?;
    Ok((config, job))
}

async fn execute(job: Job, output: &OutputArgs) -> (RunReport, Option<lakemark::Error>) {
    let Job { ctx, checkpoints, output: sink, query } = job;
    let Some(query) = query else {
        tracing::warn!("the sources have no files yet");
        return (checkpoints.blank_report().await, None);
    };
    let bars = Arc::new(Bars::new(output));
    let stop = stop_on_signals();
    let ended = ctx.run_job(&checkpoints, query, sink, Arc::clone(&bars) as _, stop).await;
    bars.clear();
    ended
}

pub(crate) async fn plan(args: &RunArgs, output: &OutputArgs) -> Ended {
    let (_, job) = open(args).await?;
    let plan = match job.query {
        Some(query) => job.ctx.plan_sealed(&job.checkpoints, query, job.output).await?,
        None => Plan { report: job.checkpoints.blank_report().await, files: Vec::new() },
    };
    if output.json {
        render::json(&plan.report);
    } else {
        render::plan(&plan);
    }
    Ok(plan.report.outcome)
}

/// The first SIGINT or SIGTERM stops dispatching, a second one drops what runs.
fn stop_on_signals() -> StopSignal {
    use tokio::signal::unix::{SignalKind, signal};
    let (level, stop) = StopSignal::new();
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return StopSignal::never();
    };
    tokio::spawn(async move {
        for n in 1..=2 {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            if n == 1 {
                eprintln!("stopping: running tasks may finish; once more drops them (they are done again next time)");
            }
            if level.send(n).is_err() {
                return;
            }
        }
    });
    stop
}
