//! `lakemark bless`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use lakemark::{Blessing, Error, ErrorKind, FileVersion, Lease, MaxReplaced, SourcePolicy};
use lakemark_datafusion::{Checkpoints, Options, Outcome};
use serde::Serialize;

use super::{confirmed, count, patterns, some, tell, wait};
use crate::args::{BlessArgs, OutputArgs};
use crate::config::{self, JobConfig, Mode};
use crate::{Ended, Failure, job};

#[derive(Serialize)]
struct Blessed {
    sources: Vec<Blessing>,
}

pub(crate) async fn bless(args: &BlessArgs, output: &OutputArgs) -> Ended {
    let config = config::load(&args.job).map_err(Failure::usage)?;
    config.check().map_err(Failure::usage)?;
    let before = args.before.as_deref().map(nanoseconds).transpose().map_err(Failure::usage)?;
    let globs = patterns(&args.glob)?;
    let found = AtomicBool::new(globs.is_empty());
    let chosen = |file: &FileVersion| {
        let named = globs.is_empty() || globs.iter().any(|glob| glob.matches(&file.path));
        found.fetch_or(named, Ordering::Relaxed);
        named && before.is_none_or(|before| file.mtime.is_some_and(|mtime| mtime < before))
    };
    let checkpoints = open(&config, args).await?;
    let to = job::output(&config)?;
    let sources = checkpoints.blessings(to.as_ref(), chosen).await?;
    if !found.into_inner() {
        return Err(Failure::usage(
            Error::invalid("no file of a source is named")
                .at(args.glob.join(", "))
                .safe("nothing was changed")
                .way("see the paths, from the root of their source: lakemark bless JOB --dry-run"),
        ));
    }
    let plan = Blessed { sources };
    if plan.sources.iter().all(Blessing::is_empty) {
        if !output.quiet {
            eprintln!("there is nothing to record: none of the files that are named is left to do");
            let unusable = plan.sources.iter().flat_map(|blessing| &blessing.unusable);
            for line in some(
                unusable.map(|file| format!("unusable: {}: {}", file.path, file.why)).collect::<Vec<_>>().into_iter(),
            ) {
                eprintln!("{line}");
            }
        }
        tell("bless", checkpoints.store(), output, false, &plan);
        return Ok(Outcome::Nothing);
    }
    if !confirmed(&args.change, output, &shown(&plan))? {
        tell("bless", checkpoints.store(), output, false, &plan);
        return Ok(Outcome::Nothing);
    }
    checkpoints.bless(to.as_ref(), plan.sources.clone()).await?;
    if !output.quiet {
        eprintln!("recorded as done; `lakemark forget` undoes it");
    }
    tell("bless", checkpoints.store(), output, true, &plan);
    Ok(Outcome::Done)
}

async fn open(config: &JobConfig, args: &BlessArgs) -> lakemark::Result<Checkpoints> {
    let lease = Lease { beat: config.run.beat, lease: config.run.lease };
    let options = Options { wait: wait(&args.change), lease, ..Options::default() };
    let checkpoints = Checkpoints::new(job::store(config)?, options);
    // What a policy would refuse is what a person decides about here.
    let policy = SourcePolicy {
        on_moved: lakemark::OnMoved::Accept,
        max_replaced: MaxReplaced::Files(u64::MAX),
        ..SourcePolicy::default()
    };
    for source in config.tracked() {
        if source.mode == Mode::Rows {
            let what = format!("files are recorded as done, and of source `{}` rows are", source.name);
            return Err(Error::new(ErrorKind::Unsupported, what)
                .safe("nothing was changed")
                .way("run it: rows that its query drops are done too"));
        }
        checkpoints.add(job::spec(source)?.with_policy(policy)).await?;
    }
    Ok(checkpoints)
}

fn shown(plan: &Blessed) -> Vec<String> {
    let mut lines = Vec::new();
    for Blessing { source, files, updates, unusable, reasons, .. } in &plan.sources {
        let reasons: Vec<_> = reasons.iter().map(|(reason, n)| format!("{n} {reason}")).collect();
        if !files.is_empty() {
            let n = count(files.len() as u64, "file");
            let reasons = reasons.join(", ");
            lines.push(format!("records {n} of source `{source}` as done, without running ({reasons}):"));
            lines.extend(some(files.iter().map(|file| file.file.to_string())));
        }
        if !updates.is_empty() {
            let n = count(updates.len() as u64, "moved file");
            lines.push(format!("takes the new tokens of {n} of source `{source}`, whose content is known"));
        }
        if !unusable.is_empty() {
            lines.push(format!("leaves out {} that cannot be read:", count(unusable.len() as u64, "file")));
            lines.extend(some(unusable.iter().map(|file| format!("{}: {}", file.path, file.why))));
        }
    }
    lines
}

/// Nanoseconds since 1970 of `2026-11-30`, `2026-11-30T06:00:00Z` or `2026-11-30 06:00:00`, UTC.
fn nanoseconds(text: &str) -> lakemark::Result<i64> {
    let date = humantime::parse_rfc3339_weak(&format!("{text}T00:00:00Z"));
    let time: Result<SystemTime, _> = date.or_else(|_| humantime::parse_rfc3339_weak(text));
    let since = time.ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    since.and_then(|since| i64::try_from(since.as_nanos()).ok()).ok_or_else(|| {
        Error::invalid(format!("--before {text:?} is no time"))
            .way("write it as 2026-11-30 or 2026-11-30T06:00:00Z (UTC)")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_days_or_instants_in_utc() {
        let day = nanoseconds("2026-11-30").unwrap();
        assert_eq!(nanoseconds("2026-11-30T06:00:00Z").unwrap() - day, 6 * 3_600 * 1_000_000_000);
        assert_eq!(nanoseconds("2026-11-30 06:00:00").unwrap(), nanoseconds("2026-11-30T06:00:00Z").unwrap());
        for wrong in ["yesterday", "", "2026-13-01", "1969-01-01"] {
            assert!(nanoseconds(wrong).is_err(), "{wrong}");
        }
    }
}
