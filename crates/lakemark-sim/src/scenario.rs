//! What a seed decides before anything happens: the format, the policy, the size of things, the weather.

use std::time::Duration;

use lakemark::store::Patience;
use lakemark::{Lease, MaxReplaced, OnChange, OnDelete, OnMoved, SourcePolicy, TaskSizing};

use crate::chance::Chance;
use crate::variants::Variant;

/// The name of the one source.
pub(crate) const SOURCE: &str = "docs";

/// How the lake tells two versions of a path apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tokens {
    /// Each write has an etag of its own.
    CountedEtag,
    /// Equal content has an equal etag.
    ContentEtag,
    /// There are no etags.
    Mtime,
}

/// The setting of one simulation.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) seed: u64,
    pub(crate) variant: Option<Variant>,
    pub(crate) tokens: Tokens,
    /// Parquet with row groups, else lines of text that are never split.
    pub(crate) parquet: bool,
    pub(crate) files: u64,
    pub(crate) policy: SourcePolicy,
    pub(crate) sizing: TaskSizing,
    /// Drivers plan whole files, also done ones, and workers leave out what is done.
    pub(crate) unpruned: bool,
    /// Workers are processes of their own: they outlive their driver.
    pub(crate) remote: bool,
    pub(crate) drivers: u64,
    /// Tasks of a driver at a time.
    pub(crate) concurrency: usize,
    pub(crate) task_timeout: Duration,
    pub(crate) lease: Lease,
    pub(crate) patience: Patience,
    pub(crate) kept_manifests: usize,
    /// How long faults, kills and changes of the lake go on.
    pub(crate) chaos: Duration,
    /// In the hundred.
    pub(crate) kills: u64,
    pub(crate) weather: Weather,
    /// Uploads that are older are removed by the bucket now and then.
    pub(crate) uploads_expire: Option<Duration>,
}

/// How often a request goes wrong, in the thousand.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Weather {
    pub(crate) failed: u64,
    pub(crate) lost: u64,
    pub(crate) throttled: u64,
    pub(crate) torn: u64,
    pub(crate) late: u64,
    pub(crate) partition: u64,
    pub(crate) stopped: u64,
}

impl Weather {
    fn of(chance: &mut Chance) -> Self {
        // Some seeds are quiet, so that what needs a long calm happens too.
        let most = *chance.pick(&[0, 10, 30, 60]);
        let mut upto = |most: u64| chance.between(0..most + 1);
        Self {
            failed: upto(most),
            lost: upto(most),
            throttled: upto(most / 2),
            torn: upto(most / 2),
            late: upto(most / 2),
            partition: upto(most / 10),
            stopped: upto(4 + most / 10),
        }
    }
}

impl Scenario {
    /// What `seed` decides.
    pub(crate) fn of(seed: u64, variant: Option<Variant>) -> Self {
        let mut chance = Chance::of(seed, "scenario");
        let chance = &mut chance;
        let seconds = |chance: &mut Chance, range| Duration::from_secs(chance.between(range));
        let parquet = chance.percent(60);
        let policy = SourcePolicy {
            on_change: OnChange::Reprocess,
            on_moved: *chance.pick(&[OnMoved::Accept, OnMoved::Reprocess]),
            on_delete: OnDelete::Keep,
            max_replaced: MaxReplaced::Percent(100.0),
            verify: chance.percent(10),
        };
        let sizing = TaskSizing {
            bytes: chance.between(100..2_000),
            rows: if parquet && chance.percent(30) { chance.between(1..5) } else { 0 },
        };
        Self {
            seed,
            variant,
            tokens: *chance.pick(&[Tokens::CountedEtag, Tokens::ContentEtag, Tokens::Mtime]),
            parquet,
            files: chance.between(2..9),
            policy,
            sizing,
            unpruned: chance.percent(25),
            remote: chance.percent(70),
            drivers: chance.between(1..4),
            concurrency: chance.between(1..5) as usize,
            task_timeout: seconds(chance, 1..10),
            lease: Lease { beat: seconds(chance, 1..4), lease: seconds(chance, 5..20) },
            patience: Patience { tries: chance.between(2..6) as u32, pause: Duration::from_millis(100) },
            kept_manifests: *chance.pick(&[2, 4, 8, 100]),
            chaos: seconds(chance, 20..110),
            kills: chance.between(0..60),
            weather: Weather::of(chance),
            uploads_expire: chance.percent(40).then(|| seconds(chance, 1..20)),
        }
    }
}
