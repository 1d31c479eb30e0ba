//! Random sequences of everything a driver does, against a plain model.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use lakemark::{CheckpointStore, Counts, Coverage, Run, SealOutcome};
use proptest::prelude::*;

use crate::harness::{SOURCE, Site, check_i5, group, next, part, write_staged};

#[derive(Debug, Clone)]
enum Step {
    /// Seals some groups of some files, with one output file.
    Seal(Vec<(u8, u8)>),
    /// Seals without output.
    SealNothing(u8, u8),
    /// The driver takes the name of a task that then tries to seal.
    Void(u8, u8),
    Fold,
    /// The driver dies, or closes, and another run begins.
    Reopen(bool),
    Commit,
    /// The staged file of a checkpoint that waits for its commit is lost.
    Lose(prop::sample::Index),
}

type Atom = (u8, u8);

fn atom() -> impl Strategy<Value = Atom> {
    (0u8..5, 0u8..2)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => prop::collection::vec(atom(), 1..4).prop_map(Step::Seal),
        1 => atom().prop_map(|(f, g)| Step::SealNothing(f, g)),
        1 => atom().prop_map(|(f, g)| Step::Void(f, g)),
        2 => Just(Step::Fold),
        2 => any::<bool>().prop_map(Step::Reopen),
        2 => Just(Step::Commit),
        2 => any::<prop::sample::Index>().prop_map(Step::Lose),
    ]
}

#[derive(Debug, Default)]
struct Model {
    /// Sealed and in no commit: what it covers, and its output file.
    pending: BTreeMap<u64, (BTreeSet<Atom>, Option<String>)>,
    committed: BTreeSet<Atom>,
    visible: BTreeSet<String>,
    lost: BTreeSet<String>,
    counter: u64,
}

impl Model {
    fn live(&self) -> BTreeSet<Atom> {
        self.pending.values().flat_map(|(atoms, _)| atoms).chain(&self.committed).copied().collect()
    }

    fn seal(&mut self, atoms: &[Atom], output: Option<String>) {
        let set: BTreeSet<Atom> = atoms.iter().copied().collect();
        // Covered already, or twice by itself: rejected whole.
        if set.is_disjoint(&self.live()) && set.len() == atoms.len() {
            self.counter += 1;
            self.pending.insert(self.counter, (set, output));
        }
    }

    fn commit(&mut self) {
        for (_, (atoms, output)) in std::mem::take(&mut self.pending) {
            if output.as_ref().is_some_and(|name| self.lost.contains(name)) {
                continue; // Withdrawn: its atoms are undone.
            }
            self.committed.extend(atoms);
            self.visible.extend(output);
        }
    }
}

async fn seal(run: &Run, site: &Site, model: &mut Model, atoms: &[Atom], with_output: bool) {
    let id = next(run);
    let mut output = None;
    if with_output {
        let file = write_staged(run, &site.sink(), id, "d=1", &format!("{id}: {atoms:?}")).unwrap();
        output = Some(file.name.clone());
        run.stage_files(id, Box::pin(async { Ok(vec![file]) })).unwrap();
    }
    let parts = atoms.iter().map(|(file, g)| part(&file.to_string(), group(u64::from(*g)))).collect();
    run.stage_keys(id, parts).unwrap();
    assert!(matches!(run.checkpoint(id, Counts::default()).await.unwrap(), SealOutcome::Sealed(_)));
    model.seal(atoms, output);
}

async fn check(site: &Site, model: &Model) {
    let view = site.store().read().await.unwrap();
    check_i5(&view.live);
    let mut live = BTreeSet::new();
    for (path, versions) in view.live.files(SOURCE) {
        for version in versions {
            for g in 0..2 {
                if version.coverage.overlaps(&group(g)) {
                    live.insert((path.parse().unwrap(), g as u8));
                }
            }
            let whole = [0, 1].iter().all(|g| version.coverage.overlaps(&group(*g)));
            assert_eq!(whole, version.coverage == Coverage::Whole);
        }
    }
    assert_eq!(live, model.live(), "the live set");
    let pending: BTreeSet<String> = view.live.pending().flat_map(|row| &row.outputs).map(|o| o.name.clone()).collect();
    assert_eq!(pending, model.pending.values().filter_map(|(_, output)| output.clone()).collect(), "pending files");
    let names: BTreeSet<String> = fs::read_dir(site.at("out/d=1"))
        .map(|entries| entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect())
        .unwrap_or_default();
    assert_eq!(names, model.visible, "the destination");
    let commits = view.head.unwrap().manifest.commits;
    assert_eq!((commits.files, commits.open), (model.visible.len() as u64, None));
}

async fn play(steps: Vec<Step>) {
    let site = Site::quick();
    let mut model = Model::default();
    let mut run = site.begin().await;
    for step in steps {
        match step {
            Step::Seal(atoms) => seal(&run, &site, &mut model, &atoms, true).await,
            Step::SealNothing(file, g) => seal(&run, &site, &mut model, &[(file, g)], false).await,
            Step::Void(file, g) => {
                let input = run.next_input();
                let id = run.checkpoints().assign(input);
                run.stage_keys(id, vec![part(&file.to_string(), group(u64::from(g)))]).unwrap();
                let _ = run.worker().void(input).await.unwrap();
                assert!(matches!(run.checkpoint(id, Counts::default()).await.unwrap(), SealOutcome::Already(_)));
            }
            Step::Fold => run.fold().await.unwrap(),
            Step::Reopen(closed) => {
                if closed {
                    run.close().await.unwrap();
                } else {
                    drop(run);
                }
                run = site.begin().await;
            }
            Step::Commit => {
                run.commit(Some(&site.sink())).await.unwrap();
                model.commit();
            }
            Step::Lose(which) => {
                let staged: Vec<_> = model.pending.values().filter_map(|(_, output)| output.clone()).collect();
                if !staged.is_empty() {
                    let name = which.get(&staged);
                    let _ = fs::remove_file(site.staged().join(name));
                    model.lost.insert(name.clone());
                }
            }
        }
        check(&site, &model).await;
    }
    run.commit(Some(&site.sink())).await.unwrap();
    model.commit();
    run.close().await.unwrap();
    check(&site, &model).await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_work_and_losses_equals_the_model(steps in prop::collection::vec(step(), 1..14)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(play(steps));
    }
}
