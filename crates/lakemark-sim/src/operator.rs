//! An operator: looks at the store, and changes its state in epochs of its own.
//!
//! A verb is one function of [`Verb::run`]; a new one is a line in [`Verb::ALL`] and an arm there.

use lakemark::{ErrorKind, ForgetPlan, Result, Selection, Wait};

use crate::driver::{believed, judge};
use crate::objects::STORE;
use crate::scenario::SOURCE;
use crate::site::Site;
use crate::situations::Situation;
use crate::variants::{Variant, close_anothers_epoch};
use crate::world::World;

/// What an operator can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    /// Looks at every object.
    Verify,
    /// Ends a run that hangs: an epoch of its own, closed at once.
    TakeOver,
    /// Finishes what a run left: an epoch of its own, and what is pending committed.
    Finish,
    /// Removes what is proven dead.
    Collect,
    /// Makes a file undone whose output is not committed, and what shares its output.
    Forget,
    /// Takes the output of a file out of the destination, and makes undone whatever has rows in it.
    Retract,
}

impl Verb {
    const ALL: &'static [Self] =
        &[Self::Verify, Self::TakeOver, Self::Finish, Self::Collect, Self::Forget, Self::Retract];

    async fn run(self, site: &Site, wait: Wait, which: u64) -> Result<()> {
        match self {
            Self::Verify => verify(site).await,
            Self::TakeOver => change(site, wait, false).await,
            Self::Finish => change(site, wait, true).await,
            Self::Collect => collect(site, wait).await,
            Self::Forget => forget(site, wait, which, false).await,
            Self::Retract => forget(site, wait, which, true).await,
        }
    }
}

/// An operator comes now and then, until `chaos` is over.
pub(crate) async fn operate(world: World) {
    let mut chance = world.chance("operator");
    for n in 0.. {
        tokio::time::sleep(std::time::Duration::from_millis(chance.between(1_000..80_000))).await;
        if world.trace.elapsed() > world.scenario.chaos {
            return;
        }
        let site = Site::new(&world, &format!("operator-{n}"));
        if act_badly(&site) {
            continue;
        }
        let (verb, wait) = (*chance.pick(Verb::ALL), *chance.pick(&[Wait::No, Wait::Takeover]));
        world.say(&site.actor, format_args!("{verb:?}"));
        if let Err(error) = verb.run(&site, wait, chance.between(0..u64::MAX)).await {
            world.say(&site.actor, format_args!("{:?}: {}", error.kind(), error.what()));
            judge(&site, &error);
        }
    }
}

async fn verify(site: &Site) -> Result<()> {
    let verified = match site.store().verify().await {
        // Nobody made the store yet.
        Err(error) if error.kind() == ErrorKind::Invalid => return Ok(()),
        verified => verified?,
    };
    // It reads object by object while others write: what it finds then, it finds again. The auditor looks at still ones.
    if !verified.is_sound() {
        site.world.say(&site.actor, format_args!("{:?}", verified.faults));
    }
    Ok(())
}

/// Opens an epoch, finishes what is open if asked to, and closes it.
async fn change(site: &Site, wait: Wait, finish: bool) -> Result<()> {
    let store = site.store();
    if store.newest().await?.is_none() {
        return Ok(());
    }
    let sink = site.sink();
    let run = store.begin(site.options(wait)).await?;
    sink.bind(run.worker().store_id()).await?;
    if finish {
        believed(site, &run, run.recover(Some(&*sink))).await?;
        believed(site, &run, run.commit(Some(&*sink))).await?;
    }
    run.close().await?;
    site.world.note(Situation::Operated);
    Ok(())
}

async fn collect(site: &Site, wait: Wait) -> Result<()> {
    let store = site.store();
    if store.newest().await?.is_none() {
        return Ok(());
    }
    let run = store.operate(wait, site.options(wait).lease).await?;
    let garbage = run.collect(Some(&*site.sink()), std::time::Duration::ZERO).await?;
    run.close().await?;
    if !garbage.is_empty() {
        site.world.note(Situation::Collected);
    }
    Ok(())
}

/// Forgets the file number `which` of those that are known; if it is not retracted, only if nothing of it is committed: else
/// its rows would rightly be there twice.
async fn forget(site: &Site, wait: Wait, which: u64, retract: bool) -> Result<()> {
    let store = site.store();
    let view = store.read().await?;
    let mut paths: Vec<&str> = view.live.files(SOURCE).map(|(path, _)| path).collect();
    paths.sort_unstable();
    let Some(path) = paths.get(which as usize % paths.len().max(1)) else { return Ok(()) };
    let selection = Selection { paths: vec![(None, (*path).to_owned())], retract, ..Selection::default() };
    let plan = match ForgetPlan::of(&view, selection) {
        // It is in a commit that is not finished.
        Err(error) if error.kind() == ErrorKind::Refused => return Ok(()),
        plan => plan?,
    };
    if !plan.doubled_outputs.is_empty() {
        return Ok(());
    }
    let leaves = !plan.retracted_outputs.is_empty();
    let sink = site.sink();
    let run = store.operate(wait, site.options(wait).lease).await?;
    let forgotten = believed(site, &run, run.forget(&plan, Some(&*sink))).await;
    if forgotten.is_ok() {
        run.close().await?;
    }
    match forgotten {
        // It changed since it was looked at.
        Err(error) if error.kind() == ErrorKind::Refused => Ok(()),
        Err(error) => Err(error),
        Ok(()) => {
            site.world.note(if leaves { Situation::Retracted } else { Situation::Forgotten });
            Ok(())
        }
    }
}

/// What an operator does that knows no better. Whether it did.
fn act_badly(site: &Site) -> bool {
    let world = &site.world;
    match world.scenario.variant {
        Some(Variant::OperatorInDriversEpoch) => close_anothers_epoch(world, &site.actor),
        Some(Variant::GarbageByAge) => collect_by_age(site),
        _ => return false,
    }
    true
}

/// Deletes what is five seconds old and not named by the newest manifest, and ends such uploads.
fn collect_by_age(site: &Site) {
    const OLD_NS: i64 = 5_000_000_000;
    site.world.with_objects(&site.actor, |objects| {
        for folder in ["segments", "epochs"] {
            for (key, _) in objects.contents(&format!("{STORE}/{folder}")) {
                let old = objects.age_ns(&key).is_some_and(|age| age > OLD_NS);
                if old && !objects.watch.names(&key) {
                    objects.delete(&key);
                }
            }
        }
        for (key, id) in objects.uploads_older_than(OLD_NS) {
            let _ = objects.abort(&key, &id);
        }
    });
}
