//! The tasks of one round: handed out a few at a time, tried again, and taken back when a worker does not answer.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use lakemark::{AtomFilter, Error, ErrorKind, Result, Run, Seal, SealKind, SealOutcome, SealedFile, Sink, TaskPart};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::chance::Chance;
use crate::driver::{believed, commit};
use crate::site::Site;
use crate::situations::Situation;
use crate::variants::Variant;
use crate::worker::{Attempt, Done, Hands, Job};

/// Attempts of one task that fail before the run gives up on it.
const TRIES: u32 = 4;

/// What the tasks of a round run in.
pub(crate) struct Tasks<'a> {
    pub(crate) site: &'a Site,
    pub(crate) chance: &'a mut Chance,
    pub(crate) run: &'a Arc<Run>,
    pub(crate) sink: &'a dyn Sink,
    pub(crate) filter: Option<AtomFilter>,
}

/// What a round came to.
#[derive(Default)]
pub(crate) struct Round {
    /// Paths of files that were not there in the version planned.
    pub(crate) changed: BTreeSet<Arc<str>>,
    /// The first error; tasks that were running went on.
    pub(crate) error: Option<Error>,
    /// Files were gone at a commit: what was sealed need not be done.
    withdrawn: bool,
    sealed: Vec<Arc<Seal>>,
}

/// How one attempt ended, as its driver sees it.
enum Ended {
    Answered(Result<Done>),
    Silent,
}

struct Attempted {
    job: Job,
    tries: u32,
    ended: Ended,
}

impl Tasks<'_> {
    /// Runs `tasks`.
    ///
    /// # Errors
    /// [`ErrorKind::Fenced`]: nothing of this run counts any more.
    pub(crate) async fn run(&mut self, tasks: Vec<Vec<TaskPart>>) -> Result<Round> {
        let mut waiting: VecDeque<Vec<TaskPart>> = tasks.into();
        let mut running: JoinSet<Attempted> = JoinSet::new();
        let mut round = Round::default();
        loop {
            while round.error.is_none() && running.len() < self.site.world.scenario.concurrency {
                let Some(parts) = waiting.pop_front() else { break };
                let id = self.run.checkpoints().assign(self.run.next_input());
                self.attempt(&mut running, Job { id, parts, filter: self.filter.clone(), careless: false }, 1);
            }
            let Some(attempted) = running.join_next().await else { break };
            let Attempted { job, tries, ended } = attempted.expect("an attempt does not panic");
            match ended {
                Ended::Answered(Err(error)) if error.kind() == ErrorKind::Fenced => return Err(error),
                _ if job.careless => {}
                Ended::Answered(Ok(done)) => self.done(&mut running, &mut round, &job, done),
                Ended::Answered(Err(error)) if error.kind().is_retryable() && tries < TRIES => {
                    self.attempt(&mut running, job, tries + 1);
                }
                Ended::Answered(Err(error)) => drop(round.error.get_or_insert(error)),
                // Nobody knows whether it still works: another attempt of the same name is safe, one of them seals.
                Ended::Silent if tries < TRIES && self.chance.percent(60) => {
                    self.attempt(&mut running, job, tries + 1);
                }
                Ended::Silent => match self.take_back(&mut round, job).await {
                    Ok(parts) => give_back(&mut waiting, parts),
                    Err(error) if error.kind() == ErrorKind::Fenced => return Err(error),
                    Err(error) => drop(round.error.get_or_insert(error)),
                },
            }
            match self.chance.between(0..20) {
                0..2 => believed(self.site, self.run, self.run.fold()).await?,
                2 => round.withdrawn |= commit(self.site, self.run, self.sink).await?,
                _ => {}
            }
        }
        if round.error.is_none() && !round.withdrawn {
            self.check_that_all_is_sealed(&round).await;
        }
        Ok(round)
    }

    /// Begins an attempt, in this process or in one of its own.
    fn attempt(&mut self, running: &mut JoinSet<Attempted>, job: Job, tries: u32) {
        let scenario = &self.site.world.scenario;
        let (world, run) = (self.site.world.clone(), Arc::clone(self.run));
        let pause = Duration::from_millis(if tries > 1 { self.chance.between(10..500) } else { 0 });
        if !scenario.remote {
            let attempt = self.attempt_on(self.site.clone(), Hands::Near(Arc::clone(&run)));
            running.spawn(async move {
                sleep(pause).await;
                let ended = attempt.run(&job).await;
                if ended.is_err() {
                    run.abandon(job.id);
                }
                Attempted { job, tries, ended: Ended::Answered(ended) }
            });
            return;
        }
        let actor = format!("{}/{}.{tries}.{}", self.site.actor, job.id, self.chance.between(0..1 << 20));
        let attempt = self.attempt_on(self.site.worker(&actor), Hands::Remote(run.worker().clone()));
        let killed = !self.site.is_calm && self.chance.percent(scenario.kills / 4);
        let life = Duration::from_millis(self.chance.between(1..1_000));
        let (limit, own) = (scenario.task_timeout, job.clone());
        // A process of its own: it goes on when this one is killed, and when nobody waits for it any more.
        let process = tokio::spawn(async move {
            sleep(pause).await;
            if !killed {
                return Some(attempt.run(&own).await);
            }
            let ended = timeout(life, attempt.run(&own)).await.ok();
            if ended.is_none() {
                world.note(Situation::WorkerKilled);
                world.say(&actor, "is killed");
            }
            ended
        });
        running.spawn(async move {
            let ended = match timeout(limit, process).await {
                Ok(Ok(Some(ended))) => Ended::Answered(ended),
                _ => Ended::Silent,
            };
            Attempted { job, tries, ended }
        });
    }

    fn attempt_on(&self, site: Site, hands: Hands) -> Attempt {
        Attempt {
            world: site.world.clone(),
            actor: Arc::clone(&site.actor),
            lake: site.lake(),
            sink: site.sink(),
            hands,
        }
    }

    fn done(&mut self, running: &mut JoinSet<Attempted>, round: &mut Round, job: &Job, done: Done) {
        round.changed.extend(done.changed);
        let sealed = done.seal.kind == SealKind::Sealed && !done.seal.files.is_empty();
        round.sealed.push(done.seal);
        // A caller that hands out what is sealed already: its seal must be rejected.
        if sealed && self.chance.percent(2) {
            let id = self.run.checkpoints().assign(self.run.next_input());
            self.attempt(running, Job { id, careless: true, ..job.clone() }, TRIES);
        }
    }

    /// Takes the name of a task that does not answer, so that no attempt of it can seal any more. Its parts, or none
    /// when it is sealed.
    async fn take_back(&mut self, round: &mut Round, job: Job) -> Result<Vec<TaskPart>> {
        if self.site.world.scenario.variant == Some(Variant::ReplansWithoutVoid) {
            return Ok(job.parts);
        }
        match self.run.worker().void(job.id.input).await? {
            SealOutcome::Already(seal) if seal.kind == SealKind::Sealed => {
                self.site.world.note(Situation::VoidFoundSeal);
                // What it left out is what it does not list.
                let listed = |part: &TaskPart| seal.files.iter().any(|file| file.file.path == part.planned.file.path);
                let left_out = job.parts.iter().filter(|part| !listed(part));
                round.changed.extend(left_out.map(|part| Arc::clone(&part.planned.file.path)));
                round.sealed.push(seal);
                Ok(Vec::new())
            }
            _ => {
                self.site.world.note(Situation::Voided);
                Ok(job.parts)
            }
        }
    }

    /// A report is true: what was sealed counts, unless a careless caller sealed it twice.
    async fn check_that_all_is_sealed(&self, round: &Round) {
        if self.run.fold().await.is_err() {
            return;
        }
        let rejected = self
            .run
            .with_live(|_, live| {
                let is_done = |file: &SealedFile| {
                    live.find(&file.source, &file.file).is_some_and(|done| {
                        let rows = done.evidence.group_rows();
                        done.coverage.union(&file.coverage).normalised(&rows) == done.coverage.normalised(&rows)
                    })
                };
                let counts = |seal: &&Arc<Seal>| seal.files.iter().all(is_done);
                round.sealed.iter().find(|seal| !counts(seal)).map(|seal| seal.id)
            })
            .await;
        if let Some(id) = rejected {
            self.site.world.complain(&self.site.actor, format_args!("{id} was sealed, and what it covers is not done"));
        }
    }
}

/// Puts parts back, together with those of a task that waits: the new task is another one than before.
fn give_back(waiting: &mut VecDeque<Vec<TaskPart>>, mut parts: Vec<TaskPart>) {
    if parts.is_empty() {
        return;
    }
    for part in waiting.pop_front().unwrap_or_default() {
        match parts.iter_mut().find(|known| known.planned.file == part.planned.file) {
            // A seal lists a file once.
            Some(known) => known.coverage = known.coverage.union(&part.coverage),
            None => parts.push(part),
        }
    }
    waiting.push_back(parts);
}
