//! `lakemark rebase`.

use lakemark::{Error, Lease, Rebase};
use lakemark_datafusion::Outcome;
use serde::Serialize;

use super::{act, confirmed, tell, wait};
use crate::args::{OutputArgs, RebaseArgs};
use crate::status::open_view;
use crate::{Ended, Failure, config, job};

#[derive(Serialize)]
struct Moves {
    moves: Vec<Move>,
}

#[derive(Serialize)]
struct Move {
    /// A source's name, or `null` for the destination.
    source: Option<String>,
    from: String,
    to: String,
    /// Known files that are at the new root with their size, with another one, and not at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    files: Option<Fit>,
}

#[derive(Serialize)]
struct Fit {
    same_size: u64,
    other_size: u64,
    gone: u64,
}

pub(crate) async fn rebase(args: &RebaseArgs, output: &OutputArgs) -> Ended {
    let config = config::load(&args.job).map_err(Failure::usage)?;
    let (store, view) = open_view(&args.job).await?;
    let Some(head) = &view.head else { return Ok(Outcome::Nothing) };
    let manifest = &head.manifest;
    let mut wanted = Rebase::default();
    let mut lakes = Vec::new();
    for source in config.tracked().filter(|source| !source.format.is_database()) {
        let (lake, listing) = job::look(source).await?;
        wanted.sources.insert(source.name.clone(), lake.root().clone());
        lakes.push((source.name.clone(), lake, listing));
    }
    let to = job::output(&config)?;
    wanted.sink = to.as_ref().map(|to| to.sink.root().clone());
    let rebase = wanted.against(manifest)?;
    let mut moves = Vec::new();
    for (name, lake, listing) in lakes.iter().filter(|(name, ..)| rebase.sources.contains_key(name)) {
        let (same_size, other_size, gone) = Rebase::fit(&view.live, name, listing);
        moves.push(Move {
            source: Some(name.clone()),
            from: manifest.sources.get(name).map(|settings| settings.root.to_string()).unwrap_or_default(),
            to: lake.root().to_string(),
            files: Some(Fit { same_size, other_size, gone }),
        });
    }
    if let (Some(root), Some(to)) = (&rebase.sink, &to) {
        // What was committed must be there: else it is not this destination that was moved.
        let from = manifest.sink.as_ref().map(|sink| sink.root.to_string()).unwrap_or_default();
        // The ways on of a run are for the place that the store has: here they would be refused.
        to.sink.check(view.expected().as_ref()).await.map_err(|e| {
            let left = if to.sink.keeps_files() { format!(", and the folder {from}.lakemark,") } else { String::new() };
            Error::new(e.kind(), format!("at its new place, {}", e.what()))
                .at(root)
                .safe("nothing was changed")
                .way(format!("if something was left behind at {from}: move it{left} along with it"))
                .way(format!(
                    "else move it back to {from}, and see what a run with the old job says; then move it again"
                ))
        })?;
        moves.push(Move { source: None, from, to: root.to_string(), files: None });
    }
    let told = Moves { moves };
    let moved =
        (!manifest.endpoint.is_empty() && manifest.endpoint != store.endpoint()).then(|| manifest.endpoint.clone());
    if rebase.is_empty() && moved.is_none() {
        if !output.quiet {
            eprintln!("the store has the roots of the job already");
        }
        tell("rebase", &store, output, false, &told);
        return Ok(Outcome::Nothing);
    }
    let store_moved =
        moved.map(|from| format!("the store is at {} from now on, no longer at {from}", store.endpoint()));
    let shown: Vec<String> = store_moved.into_iter().chain(told.moves.iter().map(shown)).collect();
    if !confirmed(&args.change, output, &shown)? {
        tell("rebase", &store, output, false, &told);
        return Ok(Outcome::Nothing);
    }
    let lease = Lease { beat: config.run.beat, lease: config.run.lease };
    let run = store.operate_anywhere(wait(&args.change), lease).await?;
    act(run, async |run| if rebase.is_empty() { Ok(()) } else { run.rebase(rebase).await }).await?;
    tell("rebase", &store, output, true, &told);
    Ok(Outcome::Done)
}

fn shown(moved: &Move) -> String {
    let what = moved.source.as_ref().map_or("the destination".to_owned(), |name| format!("source `{name}`"));
    let fit = moved.files.as_ref().map_or(String::new(), |fit| {
        let doubt =
            if fit.same_size < fit.other_size + fit.gone { ". MOST ARE NOT THERE: is it the right place?" } else { "" };
        format!(
            ": of the known files {} are there with their size, {} with another one, {} are gone{doubt}",
            fit.same_size, fit.other_size, fit.gone
        )
    });
    format!("{what} is at {} from now on, no longer at {}{fit}", moved.to, moved.from)
}
