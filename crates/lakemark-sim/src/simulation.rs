//! One simulation: a world from a seed, its actors, and the verdict.

use std::collections::BTreeSet;
use std::time::Duration;

use lakemark::Wait;
use lakemark::injected::Injected;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::auditor::{self, audit};
use crate::chance::Chance;
use crate::driver::{Ended, drive};
use crate::lake::LakeWriter;
use crate::operator::operate;
use crate::scenario::Scenario;
use crate::site::Site;
use crate::situations::Situation;
use crate::variants::Variant;
use crate::world::{World, lock};

/// When every world begins, in nanoseconds since 1970; not at a whole second, which times of a store can be cut to.
pub(crate) const EPOCH_NS: i64 = 1_700_000_000_123_456_789;
/// After this long the last request is answered and the last process goes on.
const ALL_STILL: Duration = Duration::from_secs(600);
/// Clean runs until nothing is left.
const CLEAN_RUNS: u32 = 12;

/// What one simulation came to.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// What broke the law. Empty: nothing.
    pub complaints: Vec<String>,
    /// What happened in it.
    pub seen: BTreeSet<Situation>,
    /// XXH3-128 of the trace.
    pub digest: String,
    /// Events of the trace.
    pub events: u64,
    /// The trace, line by line, if it was asked for.
    pub trace: Vec<String>,
}

/// Runs the simulation of `seed`, with the rule of `variant` left out; `kept_trace`: the trace is in the outcome.
///
/// # Panics
/// When the core or the simulation panics.
pub fn simulate(seed: u64, variant: Option<Variant>, kept_trace: bool) -> Outcome {
    let scenario = Scenario::of(seed, variant);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime of one thread").block_on(async {
        let world = World::new(scenario, kept_trace);
        let (clock, mut ids) = (world.trace.clone(), world.chance("ids"));
        let _here = Injected {
            now_ns: Box::new(move || EPOCH_NS + clock.elapsed().as_nanos() as i64),
            random: Box::new(move || (u128::from(ids.next()) << 64) | u128::from(ids.next())),
            kept_manifests: world.scenario.kept_manifests,
        }
        .enter();
        live(&world).await;
        let (digest, events, trace) = world.trace.finish();
        Outcome { complaints: world.complaints(), seen: world.seen.all(), digest, events, trace }
    })
}

async fn live(world: &World) {
    world.say("world", format_args!("{:?}", world.scenario));
    let mut writer = LakeWriter::new(world);
    writer.fill();
    let mut actors = JoinSet::new();
    actors.spawn(writer.write());
    actors.spawn(operate(world.clone()));
    actors.spawn(auditor::watch(world.clone()));
    actors.spawn(expire(world.clone()));
    for slot in 0..world.scenario.drivers {
        actors.spawn(drivers(world.clone(), slot));
    }
    while let Some(actor) = actors.join_next().await {
        if let Err(error) = actor
            && error.is_panic()
        {
            std::panic::resume_unwind(error.into_panic());
        }
    }
    // Zombies are still on their way: the law must hold before they arrive, and after.
    settle(world, "first").await;
    sleep(ALL_STILL).await;
    settle(world, "last").await;
}

/// One driver after another, each killed at any time, perhaps.
async fn drivers(world: World, slot: u64) {
    let mut chance = world.chance(&format!("drivers {slot}"));
    for n in 0.. {
        sleep(Duration::from_millis(chance.between(0..12_000))).await;
        if world.trace.elapsed() > world.scenario.chaos {
            return;
        }
        let site = Site::new(&world, &format!("driver-{slot}.{n}"));
        let wait = *chance.pick(&[Wait::Lease, Wait::Lease, Wait::No, Wait::Takeover]);
        world.say(&site.actor, format_args!("begins, {wait:?}"));
        let life = life(&mut chance, world.scenario.kills);
        let running = {
            let site = site.clone();
            tokio::spawn(async move { drive(&site, wait).await })
        };
        let stop = running.abort_handle();
        match timeout(life, running).await {
            Ok(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Ok(_) => {}
            // Some are killed; others are only not waited for, and become zombies.
            Err(_) if chance.percent(60) => {
                world.note(Situation::DriverKilled);
                world.say(&site.actor, "is killed");
                stop.abort();
            }
            Err(_) => world.say(&site.actor, "is not waited for"),
        }
    }
}

/// How long a driver may run: most to their end, others cut off early or late.
fn life(chance: &mut Chance, kills: u64) -> Duration {
    let longest = *chance.pick(&[500, 2_000, 10_000]);
    let killed = Duration::from_millis(chance.between(1..longest));
    if chance.percent(kills) { killed } else { Duration::from_secs(60) }
}

/// The rule of a bucket that removes old uploads.
async fn expire(world: World) {
    let Some(age) = world.scenario.uploads_expire else { return };
    while world.trace.elapsed() < world.scenario.chaos {
        sleep(Duration::from_secs(3)).await;
        world.with_objects("bucket", |objects| {
            for (key, id) in objects.uploads_older_than(age.as_nanos() as i64) {
                let _ = objects.abort(&key, &id);
            }
        });
    }
}

/// Runs clean drivers until nothing is left, then checks all of the law; a run that finds nothing writes no object.
async fn settle(world: &World, when: &str) {
    for n in 0..CLEAN_RUNS {
        let writes = lock(&world.objects).watch.writes;
        match drive(&Site::calm(world, &format!("clean-{when}.{n}")), Wait::Takeover).await {
            Ok(Ended::Nothing) => {
                if lock(&world.objects).watch.writes != writes && when == "last" {
                    world.complain("clean", "a run that found nothing wrote an object");
                }
                audit(world, when, true).await;
                return;
            }
            Ok(Ended::Worked) => {}
            Err(error) => world.say("clean", format_args!("{error}")),
        }
    }
    world.complain(when, format_args!("after {CLEAN_RUNS} clean runs something is left to do"));
}
