//! An operator: looks at the store, and changes its state in epochs of its own.
//!
//! A verb is one function of [`Verb::run`]; a new one is a line in [`Verb::ALL`] and an arm there.

use lakemark::{ErrorKind, Result, Wait};

use crate::driver::{believed, judge};
use crate::objects::STORE;
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
}

impl Verb {
    const ALL: &'static [Self] = &[Self::Verify, Self::TakeOver, Self::Finish];

    async fn run(self, site: &Site, wait: Wait) -> Result<()> {
        match self {
            Self::Verify => verify(site).await,
            Self::TakeOver => change(site, wait, false).await,
            Self::Finish => change(site, wait, true).await,
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
        if let Err(error) = verb.run(&site, wait).await {
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
