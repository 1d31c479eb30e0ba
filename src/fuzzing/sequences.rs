//! Operation sequences: the store on objects answers as the lifecycle in memory does.

use std::sync::Arc;

use object_store::memory::InMemory;

use crate::identity::{CheckpointId, Evidence, FileVersion, InputId, Root};
use crate::store::{CheckpointStore, Counts, MemoryCheckpointStore, OutputFile, SealOutcome, SealedFile};
use crate::{
    BeginOptions, Coverage, Error, ErrorKind, ObjectCheckpointStore, RangeSet, Result, Run, Wait, output_name,
};

const SOURCE: &str = "docs";
/// Ids and files are few, so that sequences come back to them.
const TASKS: u8 = 6;
const FILES: u8 = 3;
/// Rows of each row group of each file.
const GROUPS: [u64; 3] = [4, 4, 2];
/// Longer sequences say nothing that short ones do not.
const STEPS: usize = 48;

/// One step, of two bytes: what to do, and with what.
#[derive(Debug, Clone, Copy)]
enum Step {
    StageKeys { task: u8, with: u8 },
    StageFile { task: u8, with: u8 },
    StageFailure { task: u8 },
    Checkpoint { task: u8 },
    MarkCommitted { tasks: u8 },
    Fold,
    Reopen { closed: bool },
}

impl Step {
    fn of(what: u8, with: u8) -> Self {
        let task = (what >> 4) % TASKS;
        match what & 0x0f {
            0..=4 => Self::StageKeys { task, with },
            5..=6 => Self::StageFile { task, with },
            7 => Self::StageFailure { task },
            8..=11 => Self::Checkpoint { task },
            12..=13 => Self::MarkCommitted { tasks: with },
            14 => Self::Fold,
            _ => Self::Reopen { closed: with & 1 == 1 },
        }
    }
}

/// Both stores, and the epoch that both work in.
struct Pair {
    memory: MemoryCheckpointStore,
    store: ObjectCheckpointStore,
    run: Run,
}

/// Sequences of the lifecycle's operations, folds and new epochs: each answer of the store on objects is the answer of
/// the one in memory.
///
/// # Panics
/// When an answer differs.
pub fn sequences(bytes: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime of one thread").block_on(async {
        let mut pair = Pair::new().await.expect("a fresh store in memory");
        for step in bytes.as_chunks::<2>().0.iter().take(STEPS) {
            let step = Step::of(step[0], step[1]);
            pair = pair.take(step).await;
            // Looking folds, which costs most of the time: what is staged is looked at with the next step that counts.
            if !matches!(step, Step::StageKeys { .. } | Step::StageFile { .. } | Step::StageFailure { .. }) {
                pair.compare(step).await;
            }
        }
        pair.compare(Step::Fold).await;
    });
}

impl Pair {
    async fn new() -> Result<Self> {
        let store = ObjectCheckpointStore::on(Root::parse("memory://x/store")?, Arc::new(InMemory::new()));
        let run = begin(&store).await?;
        Ok(Self { memory: MemoryCheckpointStore::default(), store, run })
    }

    fn id(&self, task: u8) -> CheckpointId {
        CheckpointId::first(self.run.worker().epoch(), InputId(task.into()))
    }

    async fn take(self, step: Step) -> Self {
        match step {
            Step::StageKeys { task, with } => {
                let key = key(with);
                let staged = self.both(|store| store.stage_keys(self.id(task), vec![key.clone()]));
                same(step, staged);
            }
            Step::StageFile { task, with } => {
                let id = self.id(task);
                let name = |part| {
                    output_name(&self.run.worker().store_id().short(), id, self.run.attempt(id), part, "parquet")
                };
                let file = OutputFile {
                    name: name(with.into()),
                    folder: if with & 1 == 1 { "d=1".into() } else { String::new() },
                    size: with.into(),
                    rows: 1,
                    upload: None,
                };
                let write = || {
                    let file = file.clone();
                    Box::pin(async { Ok(vec![file]) })
                };
                same(step, self.both(|store| store.stage_files(id, write())));
            }
            Step::StageFailure { task } => {
                let fail = || Box::pin(async { Err(Error::new(ErrorKind::Unavailable, "the disk is full")) });
                same(step, self.both(|store| store.stage_files(self.id(task), fail())));
            }
            Step::Checkpoint { task } => {
                let (id, counts) = (self.id(task), Counts { rows_in: task.into(), rows_out: 1, rows_failed: 0 });
                let sealed = [self.memory.checkpoint(id, counts).await, self.run.checkpoint(id, counts).await];
                same(step, sealed.map(|outcome| outcome.map(told)));
            }
            Step::MarkCommitted { tasks } => {
                let ids: Vec<_> = (0..TASKS).filter(|task| tasks >> task & 1 == 1).map(|task| self.id(task)).collect();
                same(step, [self.memory.mark_committed(&ids).await, self.run.mark_committed(&ids).await]);
            }
            Step::Fold => self.run.fold().await.expect("nothing fails"),
            Step::Reopen { closed } => return self.reopen(closed).await,
        }
        self
    }

    /// The epoch ends, by its driver or with it; what was staged is gone, and the next epoch has ids of its own.
    async fn reopen(self, closed: bool) -> Self {
        let Self { memory, store, run } = self;
        if closed {
            run.close().await.expect("nothing fails");
        } else {
            drop(run);
        }
        let run = begin(&store).await.expect("nothing fails");
        Self { memory, store, run }
    }

    fn both<T>(&self, mut ask: impl FnMut(&dyn CheckpointStore) -> T) -> [T; 2] {
        [ask(&self.memory), ask(&self.run)]
    }

    async fn compare(&self, step: Step) {
        let stores: [&dyn CheckpointStore; 2] = [&self.memory, &self.run];
        let mut seen = Vec::new();
        for store in stores {
            let listed = store.list_checkpoints().await.expect("nothing fails");
            for checkpoint in &listed {
                assert_eq!(
                    store.get_checkpoint(checkpoint.id).await.expect("nothing fails").as_ref(),
                    Some(checkpoint)
                );
            }
            let mut keys = store.get_checkpointed_keys(SOURCE).await.expect("nothing fails");
            keys.sort_by(|a, b| a.file.path.cmp(&b.file.path));
            let mut files = store.get_checkpointed_files().await.expect("nothing fails");
            files.sort_by(|a, b| a.name.cmp(&b.name));
            seen.push((listed, keys, files));
        }
        assert_eq!(seen[0], seen[1], "after {step:?}");
        // What a fresh reader sees is what the run knows.
        let view = self.store.read().await.expect("nothing fails");
        assert_eq!(view.live.checkpoints().count(), seen[0].0.len(), "after {step:?}");
    }
}

async fn begin(store: &ObjectCheckpointStore) -> Result<Run> {
    store.begin(BeginOptions { wait: Wait::Takeover, ..BeginOptions::default() }).await
}

/// A part of a file, by the bits of `with`.
fn key(with: u8) -> SealedFile {
    let group = with >> 2 & 3;
    let coverage = match with >> 4 {
        0..=3 => Coverage::Whole,
        4..=11 => Coverage::groups(RangeSet::of(u64::from(group.min(2))..u64::from(group.min(2)) + 1)),
        rows => Coverage::rows(group.min(2).into(), RangeSet::of(u64::from(rows & 1)..2)),
    };
    SealedFile {
        source: SOURCE.into(),
        file: FileVersion::new(format!("f{}", with % (FILES + 1)), 100).with_mtime((with & 1).into()),
        coverage,
        evidence: Evidence::new(&GROUPS, "00".into()),
        unsettled: with & 0x80 != 0,
    }
}

fn told(outcome: SealOutcome) -> (bool, Vec<SealedFile>, Vec<OutputFile>, Counts) {
    let (first, seal) = match outcome {
        SealOutcome::Sealed(seal) => (true, seal),
        SealOutcome::Already(seal) => (false, seal),
    };
    (first, seal.files.clone(), seal.outputs.clone(), seal.counts)
}

fn same<T: PartialEq + std::fmt::Debug>(step: Step, [memory, store]: [Result<T>; 2]) {
    let kind = |error: Error| error.kind();
    assert_eq!(memory.map_err(kind), store.map_err(kind), "{step:?}");
}
