//! SIGKILL at random moments of every phase, over and over.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Mutex;
use std::time::Duration;

use super::process::phase;
use super::readers::Wanted;
use super::rng::Rng;
use super::scene::Scene;

/// The phases that kills are aimed at.
const PHASES: [&str; 9] = ["list", "open", "run", "seal", "fold", "intent", "rename", "done", "close"];
/// Each phase must be hit so often.
const EACH: usize = 5;
/// A lake that has grown to so many files is finished, and another one begun.
const LARGEST: usize = 450;

struct Tally {
    wanted: usize,
    each: usize,
    hits: BTreeMap<String, usize>,
    lakes: usize,
}

impl Tally {
    fn total(&self) -> usize {
        self.hits.values().sum()
    }

    fn is_complete(&self) -> bool {
        self.total() >= self.wanted && PHASES.iter().all(|phase| self.of(phase) >= self.each)
    }

    fn of(&self, phase: &str) -> usize {
        self.hits.get(phase).copied().unwrap_or(0)
    }

    /// One of the phases that were hit least.
    fn aim(&self, rng: &mut Rng) -> &'static str {
        let least = PHASES.iter().map(|phase| self.of(phase)).min().unwrap_or(0);
        let candidates: Vec<_> = PHASES.into_iter().filter(|phase| self.of(phase) <= least + 1).collect();
        candidates[rng.below(candidates.len() as u64) as usize]
    }
}

/// At least 200 tasks: files of one row, a file of 40 row groups, files of several groups larger than a task, and files so
/// small that several are packed into one.
fn lake(seed: u64) -> Scene {
    let mut scene = Scene::seeded(seed);
    let lake = &mut scene.lake;
    lake.put_singles("single/f", 170, 1_000);
    let groups = lake.groups(40, 1, 1_500);
    lake.put("forty groups.parquet", groups);
    for i in 0..5 {
        let groups = lake.groups(3, 1, 1_200);
        lake.put(&format!("several/{i}.parquet"), groups);
    }
    lake.put_singles("tiny/t", 20, 1);
    let largest = |prefix: &str| {
        let files = lake.files.keys().filter(|path| path.starts_with(prefix));
        files.map(|path| lake.bytes_of(path)).max().unwrap()
    };
    let (single, tiny) = (largest("single"), largest("tiny"));
    let task = single + 100;
    assert!(2 * tiny < task && task < 2 * single, "tiny files have {tiny} bytes, single ones {single}");
    scene.set("run.task_bytes", format!("\"{task}B\""));
    assert!(scene.plan(&[]).count("tasks/planned") >= 200, "{}", scene.plan(&[]));
    scene
}

/// Runs and kills one lake until it has grown large or the tally is complete, then finishes it.
fn kill_lake(seed: u64, tally: &Mutex<Tally>) {
    let mut rng = Rng::new(seed);
    let mut scene = lake(seed);
    let mut killed = 0;
    loop {
        let aim = {
            let tally = tally.lock().unwrap();
            if tally.is_complete() || scene.lake.files.len() > LARGEST {
                break;
            }
            tally.aim(&mut rng)
        };
        let mut nth = 1 + rng.below(if matches!(aim, "run" | "seal" | "rename") { 24 } else { 2 });
        let mut running = scene.start(&[], &[]);
        let aimed = running.until(|step| {
            nth -= u64::from(phase(step) == aim);
            nth == 0
        });
        // 0 to 2 ms, short ones more often: some phases are shorter than that.
        let micros = rng.below(2_001) * rng.below(1_001) / 1_000;
        if aimed {
            std::thread::sleep(Duration::from_micros(micros));
        }
        let ended = if aimed { running.kill() } else { running.wait() };
        if ended.was_killed() {
            killed += 1;
            let phase = ended.phase().unwrap_or("start").to_owned();
            *tally.lock().unwrap().hits.entry(phase).or_default() += 1;
            scene.assert_part();
            if killed % 10 == 0 {
                scene.readers(&scene.lake.expected(), Wanted::Part);
            }
        } else {
            let ran = Scene::ran(&ended);
            assert!(matches!(ran.outcome(), "done" | "nothing"), "{ran}");
            scene.assert_exact();
            // New files arrive.
            let count = 12 + rng.below(24) as usize;
            let prefix = format!("later{}/n", scene.lake.files.len());
            scene.lake.put_singles(&prefix, count, 1_000);
        }
    }
    let ran = scene.run(&[]);
    assert!(matches!(ran.outcome(), "done" | "nothing"), "{ran}");
    scene.assert_exact_for_all();
    scene.run(&[]).nothing();
    tally.lock().unwrap().lakes += 1;
}

#[test]
fn killed_again_and_again_the_output_is_exact() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seed = number("LAKEMARK_SEED").unwrap_or_else(|| RandomState::new().hash_one(0));
    let wanted = number("LAKEMARK_KILLS").unwrap_or(100) as usize;
    println!("LAKEMARK_SEED={seed} LAKEMARK_KILLS={wanted}");
    let each = EACH.min(wanted.div_ceil(20));
    let tally = Mutex::new(Tally { wanted, each, hits: BTreeMap::new(), lakes: 0 });
    std::thread::scope(|scope| {
        for worker in 0..2 {
            let tally = &tally;
            scope.spawn(move || {
                let mut rng = Rng::new(seed.wrapping_add(worker));
                loop {
                    kill_lake(rng.next(), tally);
                    if tally.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).is_complete() {
                        return;
                    }
                }
            });
        }
    });
    let tally = tally.into_inner().unwrap();
    println!("{} kills over {} lakes: {:?}", tally.total(), tally.lakes, tally.hits);
    assert!(tally.is_complete() && tally.lakes >= 2);
}
