//! `lakemark repair`.

use std::collections::BTreeSet;

use lakemark::{ErrorKind, Lost, ObjectCheckpointStore, OutputSink, Repair, Result, StoreId};
use lakemark_datafusion::Outcome;
use serde::Serialize;

use super::{check_lost_rows, confirmed, count, sink_of, some, tell, under_an_epoch, wait, without_source};
use crate::args::{OutputArgs, RepairArgs};
use crate::{Ended, Failure, config, job};

#[derive(Serialize)]
struct Repaired {
    #[serde(flatten)]
    objects: Repair,
    lost: Vec<Lost>,
    /// Whether the destination's record of whom it belongs to was lost or damaged.
    binding: bool,
    /// Whether what waited for a commit was committed, since a part of it was in the destination already.
    committed: bool,
}

pub(crate) async fn repair(args: &RepairArgs, output: &OutputArgs) -> Ended {
    let config = config::load(&args.job).map_err(Failure::usage)?;
    let store = job::store(&config)?;
    let mut told = Repaired { objects: store.repair_plan().await?, lost: Vec::new(), binding: false, committed: false };
    let mut done = false;
    if !told.objects.is_empty() {
        let shown = objects_shown(&store, &told.objects);
        if told.objects.beyond.is_empty() && !confirmed(&args.change, output, &shown)? {
            tell("repair", &store, output, false, &told);
            return Ok(Outcome::Nothing);
        }
        store.repair(&told.objects, wait(&args.change)).await?;
        done = true;
    }
    let view = store.read().await?;
    if let Some(head) = &view.head
        && let Some(sink) = sink_of(&config, &head.manifest)?
    {
        told.lost = store.lost_output(&*sink, args.all_lost).await?;
        if !told.lost.is_empty() {
            let without =
                without_source(&config, &head.manifest, told.lost.iter().flat_map(|lost| lost.undone.clone())).await?;
            let gone = |of: &dyn Fn(&Lost) -> bool| -> Vec<String> {
                let undone = told.lost.iter().filter(|lost| of(lost)).flat_map(|lost| &lost.undone);
                let gone: BTreeSet<String> =
                    undone.filter(|file| without.contains(file)).map(|(_, file)| file.to_string()).collect();
                gone.into_iter().collect()
            };
            check_lost_rows(args.lose_rows, &gone(&|lost| !lost.taken_out.is_empty()))?;
            if !confirmed(&args.change, output, &lost_shown(&told.lost, &gone(&|_| true)))? {
                tell("repair", &store, output, done, &told);
                return Ok(Outcome::Nothing);
            }
            let lost = &told.lost;
            under_an_epoch(&store, &config, &args.change, async |run| {
                // It may have waited: what was there then may be gone by now.
                let now =
                    without_source(&config, &head.manifest, lost.iter().flat_map(|lost| lost.undone.clone())).await?;
                let beside = lost.iter().filter(|lost| !lost.taken_out.is_empty()).flat_map(|lost| &lost.undone);
                let gone: BTreeSet<String> =
                    beside.filter(|file| now.contains(file)).map(|(_, file)| file.to_string()).collect();
                check_lost_rows(args.lose_rows, &gone.into_iter().collect::<Vec<_>>())?;
                run.withdraw_lost(lost, &*sink).await
            })
            .await?;
            done = true;
        }
        // All that was committed is there: it is the destination of this store.
        told.binding = view.expected().is_some_and(|expected| expected.last_commit > 0)
            && sink.keeps_files()
            && has_no_binding(&*sink, head.manifest.store).await?;
        if let (true, Some(store_id)) = (told.binding, view.store_id()) {
            let shown = format!("makes the binding of {} to this store again", sink.root());
            if !confirmed(&args.change, output, &[shown])? {
                tell("repair", &store, output, done, &told);
                return Ok(Outcome::Nothing);
            }
            sink.bind_again(store_id).await?;
            done = true;
        }
        told.committed = lost_an_intent(&store, &*sink).await?;
        if told.committed {
            let shown =
                "commits what waits for it: a part is in the destination already, its intent was lost".to_owned();
            if !confirmed(&args.change, output, &[shown])? {
                tell("repair", &store, output, done, &told);
                return Ok(Outcome::Nothing);
            }
            under_an_epoch(&store, &config, &args.change, async |run| run.commit(Some(&*sink)).await).await?;
            done = true;
        }
    }
    if !output.quiet {
        let undone = !told.lost.is_empty() || !told.objects.quarantined.is_empty();
        eprintln!(
            "{}",
            match (done, undone) {
                (true, true) => "repaired; the next run does again what was undone",
                (true, false) => "repaired; nothing is undone",
                _ => "nothing is damaged",
            }
        );
    }
    tell("repair", &store, output, done, &told);
    Ok(if done { Outcome::Done } else { Outcome::Nothing })
}

/// Whether the destination does not say whom it belongs to, or says it in a damaged record. One that cannot be read may say it.
async fn has_no_binding(sink: &dyn OutputSink, store: StoreId) -> Result<bool> {
    match sink.bound_to(store).await {
        Ok(bound) => Ok(bound.is_none()),
        Err(error) if error.kind() == ErrorKind::Corrupt => Ok(true),
        Err(error) => Err(error),
    }
}

/// Whether the only strange files in the destination are of checkpoints that wait for a commit.
async fn lost_an_intent(store: &ObjectCheckpointStore, sink: &dyn OutputSink) -> Result<bool> {
    let view = store.read().await?;
    let Some(strict) = view.expected() else { return Ok(false) };
    if strict.last_commit == 0 && sink.bound_to(strict.store).await?.is_none()
        || sink.check(Some(&strict)).await.is_ok()
    {
        return Ok(false);
    }
    let mut lenient = strict;
    lenient.open.extend(view.live.pending().flat_map(|row| row.outputs.iter().cloned()));
    Ok(sink.check(Some(&lenient)).await.is_ok())
}

fn objects_shown(store: &ObjectCheckpointStore, repair: &Repair) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(version) = repair.back_to {
        lines.push(format!(
            "the newest manifest is damaged: goes back to version {}, the one before it. What the damaged one said is \
             decided again by what is there; make sure that no run is live",
            version.0
        ));
    }
    let mut list = |what: String, faults: &[lakemark::store::Fault]| {
        if !faults.is_empty() {
            lines.push(what);
            lines.extend(some(faults.iter().map(|fault| format!("{}: {}", fault.object, fault.what))));
        }
    };
    let n = count(repair.quarantined.len() as u64, "damaged object");
    list(format!("moves {n} to {}/quarantine; what only they said is done again:", store.root()), &repair.quarantined);
    list("makes again, from what else the store has:".into(), &repair.rebuilt);
    lines
}

fn lost_shown(lost: &[Lost], without_source: &[String]) -> Vec<String> {
    let gone: Vec<_> = lost.iter().flat_map(|lost| lost.gone.clone()).collect();
    let taken: Vec<_> = lost.iter().flat_map(|lost| lost.taken_out.clone()).collect();
    // Several lost checkpoints can cover one file.
    let undone: BTreeSet<_> =
        lost.iter().flat_map(|lost| &lost.undone).map(|(source, file)| format!("{source}: {file}")).collect();
    let mut lines = vec![format!(
        "{} of the destination are gone or changed. If you can, put them back instead:",
        count(gone.len() as u64, "committed file")
    )];
    lines.extend(some(gone.into_iter()));
    if !taken.is_empty() {
        let n = count(taken.len() as u64, "file");
        lines.push(format!("takes {n} of the same work out of the destination, since it is done again whole:"));
        lines.extend(some(taken.into_iter()));
    }
    lines.push(format!("makes {} undone, to be done again:", count(undone.len() as u64, "source file")));
    lines.extend(some(undone.into_iter()));
    if !without_source.is_empty() {
        lines.push("of these the source has no longer, so that they will not be done again:".to_owned());
        lines.extend(some(without_source.iter().cloned()));
    }
    lines
}
