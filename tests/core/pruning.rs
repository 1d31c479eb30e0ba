//! Both layers of pruning, with a planner's own kind of task.

use std::sync::Arc;

use futures::StreamExt;
use lakemark::{
    AtomFilter, AttemptNonce, CheckpointId, Counts, Coverage, Epoch, ErrorKind, Evidence, FileVersion, InputId, Live,
    ManifestVersion, OtherFormat, PruneCounts, RangeSet, ScanPart, ScanTask, SchedulerHook, Seal, SealKind, SealedFile,
    StoreId, View,
};
use proptest::prelude::*;

use crate::harness::{SOURCE, faulty, group, newest, part, seal, takeover, whole};
use crate::lake::rows_of;

/// A planner's task: it knows nothing of lakemark but the trait.
#[derive(Debug, Clone, PartialEq)]
struct ToyTask {
    name: &'static str,
    reads: Vec<ScanPart>,
    narrowed: bool,
}

impl ToyTask {
    fn new(name: &'static str, reads: Vec<ScanPart>) -> Self {
        Self { name, reads, narrowed: false }
    }
}

impl ScanTask for ToyTask {
    fn parts(&self) -> Vec<ScanPart> {
        self.reads.clone()
    }

    fn with_parts(self, left: Vec<ScanPart>) -> Self {
        assert!(!left.is_empty());
        Self { reads: left, narrowed: true, ..self }
    }
}

fn version(path: &str) -> FileVersion {
    FileVersion::new(path, 100).with_mtime(7)
}

fn reads(path: &str, coverage: Coverage) -> ScanPart {
    ScanPart::parquet(SOURCE, version(path), coverage)
}

/// A view in which `parts` are done, each by its own checkpoint.
fn view(parts: impl IntoIterator<Item = SealedFile>) -> View {
    let mut live = Live::default();
    for (i, part) in parts.into_iter().enumerate() {
        let seal = Seal {
            store: StoreId::random(),
            id: CheckpointId::first(Epoch(1), InputId(i as u32)),
            attempt: AttemptNonce::random(),
            kind: SealKind::Sealed,
            planned_from: ManifestVersion(1),
            sealed_at: 0,
            files: vec![part],
            keys: None,
            outputs: vec![],
            counts: Counts::default(),
        };
        live.decide(&seal);
    }
    View { live, ..View::default() }
}

#[tokio::test]
async fn the_hook_drops_what_is_done_cuts_what_is_partly_done_and_leaves_the_rest() {
    let (_, store) = faulty();
    let run = store.begin(takeover()).await.unwrap();
    let _ = seal(&run, vec![whole("done"), part("half", group(0))]).await.unwrap();
    run.close().await.unwrap();
    // Loose seals count as well: they are sealed.
    let run = store.begin(takeover()).await.unwrap();
    let _ = seal(&run, vec![whole("loose")]).await.unwrap();
    drop(run);
    let hook = SchedulerHook::new(&store.read().await.unwrap());
    assert_eq!(hook.version(), newest(&store).await.version);
    assert_eq!(hook.filter().version(), hook.version());

    let tasks = [
        ToyTask::new("all done", vec![reads("done", Coverage::Whole), reads("loose", group(1))]),
        ToyTask::new(
            "some done",
            vec![reads("done", group(0)), reads("half", Coverage::Whole), reads("new", group(1))],
        ),
        ToyTask::new("none done", vec![reads("new", Coverage::Whole)]),
        ToyTask::new("other version", vec![ScanPart::whole(SOURCE, version("done").with_mtime(8))]),
        ToyTask::new("other source", vec![ScanPart::whole("other", version("done"))]),
        ToyTask::new("whole group left", vec![reads("half", group(1))]),
    ];
    let left: Vec<ToyTask> = hook.prune(futures::stream::iter(tasks.clone())).collect().await;
    assert_eq!(
        left.iter().map(|t| t.name).collect::<Vec<_>>(),
        ["some done", "none done", "other version", "other source", "whole group left"]
    );
    assert_eq!(left[0].reads, [reads("half", group(1)), reads("new", group(1))]);
    assert!(left[0].narrowed);
    assert_eq!(left[1..], tasks[2..], "untouched tasks are given back as they came");
    assert_eq!(hook.counts(), PruneCounts { tasks: 6, dropped: 1, parts: 9, done: 3, cut: 1 });

    assert!(hook.filter().is_done(SOURCE, &version("half"), 0) && !hook.filter().is_done(SOURCE, &version("half"), 1));
    assert!(!hook.filter().is_done(SOURCE, &version("unknown"), 0));
}

/// R95: a hook is of one plan; the next one reads the store afresh.
#[tokio::test]
async fn r95_a_hook_does_not_see_what_was_sealed_after_it() {
    let (_, store) = faulty();
    let run = store.begin(takeover()).await.unwrap();
    let old = SchedulerHook::new(&store.read().await.unwrap());
    let _ = seal(&run, vec![whole("a")]).await.unwrap();
    run.fold().await.unwrap();
    let task = || ToyTask::new("a", vec![reads("a", Coverage::Whole)]);
    assert!(old.prune_one(task()).is_some());
    let new = SchedulerHook::new(&store.read().await.unwrap());
    assert!(new.prune_one(task()).is_none() && new.version() > old.version());
    run.close().await.unwrap();
}

#[test]
fn an_empty_file_is_work_until_it_is_sealed() {
    let mut empty = whole("empty");
    empty.evidence = Evidence::new(&[], "00".into());
    let task = || ToyTask::new("t", vec![reads("empty", Coverage::Whole)]);
    assert!(SchedulerHook::new(&view([])).prune_one(task()).is_some());
    assert!(SchedulerHook::new(&view([empty])).prune_one(task()).is_none());
}

const GROUPS: [u64; 4] = [3, 1, 4, 2];

fn coverage() -> impl Strategy<Value = Coverage> {
    let piece = (0u32..4, 0u64..4, 1u64..5).prop_map(|(g, start, n)| {
        let rows = GROUPS[g as usize];
        let (start, end) = (start.min(rows), (start + n).min(rows));
        if n == 4 { group(u64::from(g)) } else { Coverage::rows(g, RangeSet::of(start..end)) }
    });
    let pieces = prop::collection::vec(piece, 0..6);
    let some = pieces.prop_map(|pieces| pieces.iter().fold(Coverage::none(), |all, piece| all.union(piece)));
    prop_oneof![1 => Just(Coverage::Whole), 8 => some]
}

proptest! {
    #[test]
    fn what_is_left_is_what_is_wanted_and_not_done(done in prop::collection::vec(coverage(), 0..3), wanted in coverage()) {
        let sealed = done.iter().filter(|c| !c.is_empty()).map(|coverage| {
            let mut sealed = part("a", coverage.clone());
            sealed.evidence = Evidence::new(&GROUPS, "00".into());
            sealed
        });
        let view = view(sealed);
        let covered = view.live.find(SOURCE, &version("a")).map_or_else(Coverage::none, |v| v.coverage.clone());
        let left = AtomFilter::new(&view).left(&reads("a", wanted.clone()));
        let (covered, wanted_rows) = (rows_of(&covered, &GROUPS), rows_of(&wanted, &GROUPS));
        prop_assert_eq!(rows_of(&left, &GROUPS), &wanted_rows - &covered);
        prop_assert_eq!(left.is_empty(), rows_of(&left, &GROUPS).is_empty());
        if covered.is_empty() {
            prop_assert_eq!(left, wanted);
        }
    }
}

#[test]
fn a_byte_range_is_a_part_only_when_it_is_the_file() {
    let file = version("a.csv");
    assert_eq!(ScanPart::bytes(SOURCE, file.clone(), OtherFormat::Csv, 0..100).unwrap().coverage(), &Coverage::Whole);
    for (format, range) in
        [(OtherFormat::Csv, 0..99), (OtherFormat::Json, 1..100), (OtherFormat::Other("Avro"), 50..60)]
    {
        let error = ScanPart::bytes(SOURCE, file.clone(), format, range).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let text = error.to_string();
        assert!(text.contains("a.csv") && text.contains("mode = \"rows\""), "{text}");
    }
    let shared: Arc<str> = SOURCE.into();
    assert_eq!(ScanPart::whole(Arc::clone(&shared), file).source(), &shared);
}
