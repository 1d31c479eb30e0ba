//! `lakemark gc`.

use lakemark_datafusion::Outcome;

use super::{confirmed, count, sink_of, some, tell, under_an_epoch};
use crate::args::{GcArgs, OutputArgs};
use crate::status::open_view;
use crate::{Ended, Failure, config};

pub(crate) async fn gc(args: &GcArgs, output: &OutputArgs) -> Ended {
    let wrong = |e| lakemark::Error::invalid(format!("--min-age {} is no duration", args.min_age)).caused_by(e);
    let min_age = humantime::parse_duration(&args.min_age).map_err(|e| Failure::usage(wrong(e)))?;
    let config = config::load(&args.job).map_err(Failure::usage)?;
    let (store, view) = open_view(&args.job).await?;
    let Some(head) = &view.head else { return Ok(Outcome::Nothing) };
    let sink = sink_of(&config, &head.manifest)?;
    let garbage = store.garbage(sink.as_ref().map(|sink| &**sink as _), min_age).await?;
    let young = match garbage.too_young {
        0 => String::new(),
        n => format!("; {} younger than {}", count(n, "dead thing"), args.min_age),
    };
    if garbage.is_empty() {
        if !output.quiet {
            eprintln!("there is no garbage{young}");
        }
        tell("gc", &store, output, false, &garbage);
        return Ok(Outcome::Nothing);
    }
    let objects = garbage.objects.iter().map(|(name, bytes)| format!("{name} ({bytes} bytes)"));
    let outputs = garbage.outputs.iter().map(|file| format!("{} ({} bytes)", file.path, file.size));
    let all: Vec<String> = objects.chain(outputs).collect();
    let mut shown = vec![format!(
        "removes {} of the store and {} beside the destination, {} bytes, all proven dead{young}:",
        count(garbage.objects.len() as u64, "object"),
        count(garbage.outputs.len() as u64, "file"),
        garbage.bytes(),
    )];
    shown.extend(some(all.into_iter()));
    if !confirmed(&args.change, output, &shown)? {
        tell("gc", &store, output, false, &garbage);
        return Ok(Outcome::Nothing);
    }
    let removed = under_an_epoch(&store, &config, &args.change, async |run| {
        run.collect(sink.as_ref().map(|sink| &**sink as _), min_age).await
    })
    .await?;
    if !output.quiet {
        eprintln!(
            "removed {}, {} bytes",
            count((removed.objects.len() + removed.outputs.len()) as u64, "file"),
            removed.bytes()
        );
    }
    tell("gc", &store, output, true, &removed);
    Ok(Outcome::Done)
}
