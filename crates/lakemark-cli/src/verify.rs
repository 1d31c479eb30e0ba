//! `lakemark verify`: whether the store is whole, and its destination what it says.

use lakemark::Error;
use lakemark_datafusion::Outcome;

use crate::args::{JobArgs, OutputArgs};
use crate::{Ended, Failure};
use crate::{config, job, render};

pub(crate) async fn verify(args: &JobArgs, output: &OutputArgs) -> Ended {
    let config = config::load(args).map_err(Failure::usage)?;
    let store = job::store(&config)?;
    let verified = store.verify().await?;
    // A damaged store says nothing of its destination.
    let to = job::output(&config)?;
    let is_table = to.as_ref().is_some_and(|to| !to.sink.keeps_files());
    let destination = match to {
        Some(to) if verified.is_sound() => Some(to.sink.check(store.read().await?.expected().as_ref()).await),
        _ => None,
    };
    let refused = destination.as_ref().and_then(|checked| checked.as_ref().err());
    if output.json {
        render::json(&serde_json::json!({
            "store": store.root().to_string(),
            "sound": verified.is_sound() && refused.is_none(),
            "objects": verified.objects,
            "bytes": verified.bytes,
            "faults": verified.faults,
            "unknown": verified.unknown,
            "destination": match (&destination, refused) {
                (None, _) => serde_json::Value::Null,
                (Some(_), None) => "as the store says".into(),
                (Some(_), Some(error)) => error.to_string().into(),
            },
        }));
    } else {
        for fault in &verified.faults {
            render::line(&format!("fault    {}: {}", fault.object, fault.what));
        }
        for name in &verified.unknown {
            render::line(&format!("unknown  {name}"));
        }
        if destination.is_none() && verified.is_sound() && config.sink.url.is_none() {
            render::line("the destination was not looked at: without a job it is not known how it is reached");
        }
        if destination.is_some() && refused.is_none() {
            render::line(match is_table {
                true => "the table went on from where the store left it, by its log; its data files were not looked at",
                false => "the destination holds what the store says, by names and sizes",
            });
        }
        render::line(&format!(
            "{} objects with {} bytes read, {} faults",
            verified.objects,
            verified.bytes,
            verified.faults.len()
        ));
    }
    let error = match (verified.faults.first(), destination) {
        (Some(first), _) => {
            let place = format!("{}/{}", store.root(), first.object);
            Error::corrupt(place, format!("{} faults were found, the first: {}", verified.faults.len(), first.what))
        }
        (None, Some(Err(refused))) => refused,
        _ => return Ok(Outcome::Done),
    };
    render::error(&error, output);
    Ok(Outcome::of(error.kind()))
}
