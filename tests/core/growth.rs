//! What many runs cost (R99, R103).

use lakemark::CheckpointStore;

use crate::harness::{done, faulty, group, names, part, seal, store_on, takeover};
use lakemark::faults::{FaultStore, Op, Request};

const RUNS: u64 = 300;
const ATOMS: u64 = 3;

/// Runs `runs` times over `ATOMS` new atoms; bytes and requests of each run.
async fn many_runs(runs: u64) -> (FaultStore, Vec<(u64, usize)>) {
    let (faults, store) = faulty();
    let mut costs = Vec::new();
    for i in 0..runs {
        faults.take_log();
        let run = store.begin(takeover()).await.unwrap();
        let parts = |n: u64| vec![part(&format!("day={}/file-{i:05}-{n}", i / 30), group(0))];
        for n in 0..ATOMS {
            let _ = seal(&run, parts(n)).await.unwrap();
        }
        assert_eq!(run.commit(None).await.unwrap()[0].checkpoints, ATOMS);
        run.close().await.unwrap();
        let log = faults.take_log();
        costs.push((log.iter().map(|request| request.bytes).sum(), log.len()));
    }
    (faults, costs)
}

fn count(log: &[Request], op: Op) -> usize {
    log.iter().filter(|request| request.op == op).count()
}

#[tokio::test]
async fn hundreds_of_runs_stay_cheap_to_open_and_to_add_to() {
    let (faults, costs) = many_runs(RUNS).await;
    let objects = names(&faults).await;
    let of = |folder: &str| objects.iter().filter(|name| name.starts_with(folder)).count();
    assert!(of("manifests/") <= 100, "{} manifests are kept", of("manifests/"));

    // A fresh process: planning reads, opening writes one manifest.
    let store = store_on(std::sync::Arc::new(faults.clone()));
    faults.take_log();
    let view = store.read().await.unwrap();
    let log = faults.take_log();
    let segments = view.head.as_ref().unwrap().manifest.segments.clone();
    let rows: u64 = segments.iter().map(|segment| segment.rows).sum();
    let mut levels = 1;
    while 1_000 * 8u64.pow(levels - 1) < rows {
        levels += 1;
    }
    assert!(segments.len() <= levels as usize, "{} segments for {rows} rows", segments.len());
    assert!(log.len() <= 4 + levels as usize, "{} requests to read: {log:?}", log.len());
    assert_eq!(count(&log, Op::Put), 0, "planning writes nothing");
    assert_eq!(view.live.files(crate::harness::SOURCE).count() as u64, RUNS * ATOMS);
    assert!(done(&view.live).is_empty() && view.live.atoms() == RUNS * ATOMS);
    assert_eq!(view.live.events().len() as u64, 4 * RUNS, "opened, intent, done, closed: the whole history");
    let run = store.begin(takeover()).await.unwrap();
    let log = faults.take_log();
    assert!(log.len() <= 7 + levels as usize, "{} requests to open: {log:?}", log.len());
    assert_eq!(count(&log, Op::Put), 1);
    assert_eq!(run.list_checkpoints().await.unwrap().len() as u64, RUNS * ATOMS);
    run.close().await.unwrap();

    // Amortised O(log n) a row: late runs write little more than early ones, and make no more requests.
    let bytes = |range: std::ops::Range<usize>| costs[range].iter().map(|(bytes, _)| bytes).sum::<u64>() as f64 / 50.0;
    let (early, late) = (bytes(50..100), bytes(250..300));
    assert!(late < 1.6 * early, "{early} bytes a run early, {late} late");
    let requests = |range: std::ops::Range<usize>| costs[range].iter().map(|(_, n)| *n).max().unwrap();
    assert!(requests(200..300) <= requests(1..100) + 4, "requests of a run grow with history");
}

/// R127: a file of 40,000 groups is a range, in a seal and in a segment.
#[tokio::test]
async fn r127_many_groups_of_one_file_cost_one_range() {
    use lakemark::{Coverage, Evidence, RangeSet};
    let (faults, store) = faulty();
    let run = store.begin(takeover()).await.unwrap();
    let mut sealed = part("big", Coverage::groups(RangeSet::of(0..39_999)));
    sealed.evidence = Evidence::new(&vec![1; 40_000], "00".into());
    faults.take_log();
    let _ = seal(&run, vec![sealed.clone()]).await.unwrap();
    sealed.coverage = group(39_999);
    let _ = seal(&run, vec![sealed]).await.unwrap();
    run.fold().await.unwrap();
    let bytes: u64 = faults.take_log().iter().map(|request| request.bytes).sum();
    assert!(bytes < 20_000, "{bytes} bytes");
    assert_eq!(run.with_live(|_, live| done(live)).await, ["big"]);
    run.close().await.unwrap();
}
