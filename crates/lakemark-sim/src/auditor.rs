//! The auditor's law: the committed output equals the pipeline applied to the lake, each atom version exactly once.
//!
//! It looks at still copies of the bucket, so that nothing moves under its eyes, and trusts the store only as far as it
//! must: how often a row may be in the output at all is known from the lake alone.

use std::collections::BTreeMap;

use lakemark::store::Decision;
use lakemark::{Live, View};

use crate::lake::map;
use crate::objects::OUT;
use crate::scenario::SOURCE;
use crate::site::Site;
use crate::situations::Situation;
use crate::world::{World, lock};

/// Looks now and then, until `chaos` is over.
pub(crate) async fn watch(world: World) {
    let mut chance = world.chance("auditor");
    loop {
        tokio::time::sleep(std::time::Duration::from_millis(chance.between(5_000..60_000))).await;
        if world.trace.elapsed() > world.scenario.chaos {
            return;
        }
        audit(&world, "auditor", false).await;
    }
}

/// Checks the law as far as it holds at any time; `settled`: nothing is left to do, so that all of it must hold.
pub(crate) async fn audit(world: &World, actor: &str, settled: bool) {
    Audit { world: world.still(), actor: actor.to_owned() }.run(settled).await;
}

struct Audit {
    world: World,
    actor: String,
}

type Rows = BTreeMap<String, u64>;

impl Audit {
    fn complain(&self, what: impl std::fmt::Display) {
        self.world.complain(&self.actor, what);
    }

    async fn run(&self, settled: bool) {
        let site = Site::calm(&self.world, &format!("{} at {}", self.actor, self.world.trace.elapsed().as_millis()));
        let view = match site.store().read().await {
            Ok(view) => view,
            Err(error) => return self.complain(format!("the store cannot be read: {}", error.what())),
        };
        if view.head.is_none() {
            return;
        }
        match site.store().verify().await {
            Ok(verified) => verified.faults.iter().for_each(|fault| {
                self.complain(format!("verify: {}: {}", fault.object, fault.what));
            }),
            Err(error) => self.complain(format!("verify: {}", error.what())),
        }
        if let Err(error) = site.sink().check(view.expected().as_ref()).await {
            self.complain(format!("the destination: {}", error.what()));
        }
        self.check_i5(&view.live);
        let rows = self.output();
        self.check_that_no_row_is_too_often(&rows);
        self.note(&view.live);
        if settled {
            self.check_law(&view, &rows);
        }
    }

    /// What a reader of the destination sees.
    fn output(&self) -> Rows {
        let mut rows = Rows::new();
        for (_, bytes) in lock(&self.world.objects).contents(OUT) {
            for line in String::from_utf8_lossy(&bytes).lines() {
                *rows.entry(line.to_owned()).or_default() += 1;
            }
        }
        rows
    }

    /// I5: no part of a file version is covered by two live checkpoints.
    fn check_i5(&self, live: &Live) {
        for (path, versions) in live.files(SOURCE) {
            for version in versions {
                let parts = &version.parts;
                if (0..parts.len()).any(|i| parts[..i].iter().any(|(_, part)| part.overlaps(&parts[i].1))) {
                    self.complain(format!("I5: a part of {path} is covered twice"));
                }
            }
        }
    }

    /// Whatever the store says: a row is in the output at most once for each version of a file that had it.
    fn check_that_no_row_is_too_often(&self, rows: &Rows) {
        let versions = lock(&self.world.truth).row_versions();
        let most: Rows = versions.iter().flat_map(|(row, n)| map(*row).into_iter().map(|line| (line, *n))).collect();
        for (line, n) in rows {
            let most = most.get(line).copied().unwrap_or(0);
            if *n > most {
                self.complain(format!("row {line} is in the output {n} times, and was in the lake {most} times"));
            }
        }
    }

    /// The law when nothing is left to do.
    fn check_law(&self, view: &View, rows: &Rows) {
        if view.needs_epoch() {
            self.complain("something is left to do");
        }
        let truth = lock(&self.world.truth);
        // Nothing of the lake is missing.
        for line in truth.present().into_iter().flat_map(map) {
            if !rows.contains_key(&line) {
                self.complain(format!("row {line} is in the lake and not in the output"));
            }
        }
        // The output is what the record says, version by version.
        let mut expected = Rows::new();
        for (path, versions) in view.live.files(SOURCE) {
            for version in versions {
                let Some(content) = truth.content(&version.file) else {
                    self.complain(format!("{path} is recorded in a version that never was: {}", version.file));
                    continue;
                };
                for line in content.rows(&version.coverage).into_iter().flat_map(map) {
                    *expected.entry(line).or_default() += 1;
                }
            }
        }
        drop(truth);
        if expected != *rows {
            let differs = |line: &&String| expected.get(*line) != rows.get(*line);
            let line = expected.keys().chain(rows.keys()).find(differs).cloned().unwrap_or_default();
            let (said, is) = (expected.get(&line).unwrap_or(&0), rows.get(&line).unwrap_or(&0));
            self.complain(format!("row {line} is in the output {is} times, and {said} times by the record"));
        }
    }

    fn note(&self, live: &Live) {
        if live.checkpoints().any(|row| row.decision == Decision::Rejected) {
            self.world.note(Situation::Rejected);
        }
        let objects = lock(&self.world.objects);
        // The newest segment that the manifest does not name, if it was written for a version that came after all.
        let segments = objects.contents("store/segments");
        if segments.last().is_some_and(|(key, _)| !objects.watch.names(key)) {
            self.world.note(Situation::OrphanSegment);
        }
    }
}
