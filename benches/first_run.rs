//! The first run against plain DataFusion `COPY` of the same query followed by fsync of its files, and the idle re-run
//! against an object_store listing: in one process, interleaved, quoted as ratios.
//!
//! `cargo bench -p lakemark-datafusion -- [--files 1000] [--rounds 7] [--check 1]`; `LAKEMARK_BENCH_LAKE` names a lake to
//! use instead of a generated one. With `--check 1` it fails when a promise does not hold: on a quiet machine only.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use datafusion::arrow::array::{Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::{Compression, ZstdLevel};
use datafusion::parquet::file::properties::WriterProperties;
use datafusion::prelude::*;
use futures::TryStreamExt;
use lakemark::{DirectorySink, ObjectCheckpointStore};
use lakemark_datafusion::{Checkpoints, LakemarkExt, Options, Outcome, Output, RunReport, SourceSpec};
use object_store::ObjectStore;

const GROUPS: usize = 4;
const ROWS: usize = 2_500;

fn main() {
    let argument = |name: &str, default: usize| {
        let args: Vec<String> = std::env::args().collect();
        let at = args.iter().position(|a| a == name);
        at.and_then(|i| args.get(i + 1)).and_then(|v| v.parse().ok()).unwrap_or(default)
    };
    let (files, rounds, check) = (argument("--files", 1_000), argument("--rounds", 7), argument("--check", 0) > 0);
    let work = tempfile::tempdir().expect("a temporary directory");
    let lake = std::env::var_os("LAKEMARK_BENCH_LAKE").map(PathBuf::from).unwrap_or_else(|| {
        let lake = work.path().join("lake");
        write_lake(&lake, files);
        lake
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(bench(&lake, work.path(), rounds, check));
}

/// Deterministic rows like those of the yardstick lake: unique ids, 64 pseudo-random characters, a number.
fn write_lake(lake: &Path, files: usize) {
    std::fs::create_dir_all(lake).expect("the lake's folder");
    let schema = Arc::new(Schema::new(vec![
        Field::new("doc_id", DataType::Utf8, true),
        Field::new("text", DataType::Utf8, true),
        Field::new("n", DataType::Int64, true),
    ]));
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut text = || {
        let mut out = String::with_capacity(64);
        for _ in 0..64 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            out.push(char::from(b"abcdefghijklmnopqrstuvwxyz 01234"[(seed >> 59) as usize]));
        }
        out
    };
    for file in 0..files {
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(1).expect("a level")))
            .set_dictionary_enabled(false)
            .build();
        let out = File::create(lake.join(format!("part-{file:05}.parquet"))).expect("a file");
        let mut writer = ArrowWriter::try_new(out, Arc::clone(&schema), Some(properties)).expect("a writer");
        for group in 0..GROUPS {
            let ids: Vec<i64> = (0..ROWS).map(|r| ((file * GROUPS + group) * ROWS + r) as i64).collect();
            let names: StringArray = ids.iter().map(|id| Some(format!("doc-{id:012}"))).collect();
            let texts: StringArray = ids.iter().map(|_| Some(text())).collect();
            let columns: Vec<Arc<dyn datafusion::arrow::array::Array>> =
                vec![Arc::new(names), Arc::new(texts), Arc::new(Int64Array::from(ids))];
            writer.write(&RecordBatch::try_new(Arc::clone(&schema), columns).expect("a batch")).expect("a write");
            writer.flush().expect("a row group");
        }
        writer.close().expect("a close");
    }
}

const SQL: &str = "SELECT doc_id, upper(text) AS text, n FROM docs";

fn context() -> SessionContext {
    SessionContext::new_with_config(SessionConfig::new())
}

/// Plain DataFusion: COPY, then fsync of every file and of the folder. Seconds and rows.
async fn copy(lake: &Path, out: &Path) -> (f64, u64) {
    let began = Instant::now();
    let ctx = context();
    ctx.register_parquet("docs", lake.to_string_lossy(), ParquetReadOptions::default()).await.expect("the lake");
    let sql = format!(
        "COPY ({SQL}) TO '{}/' STORED AS PARQUET OPTIONS (compression 'zstd(3)', max_row_group_size 1048576)",
        out.display()
    );
    let result = ctx.sql(&sql).await.expect("a plan").collect().await.expect("a copy");
    for entry in std::fs::read_dir(out).expect("the output") {
        File::open(entry.expect("an entry").path()).and_then(|f| f.sync_all()).expect("a sync");
    }
    File::open(out).and_then(|f| f.sync_all()).expect("a sync");
    let seconds = began.elapsed().as_secs_f64();
    let rows = result[0].column(0).as_any().downcast_ref::<datafusion::arrow::array::UInt64Array>().expect("a count");
    (seconds, rows.value(0))
}

async fn lakemark(lake: &Path, out: &Path) -> (f64, RunReport) {
    let began = Instant::now();
    let ctx = context();
    let store = ObjectCheckpointStore::open(&format!("{}.lakemark/store", out.display())).expect("a store");
    let checkpoints = Checkpoints::new(store, Options::default());
    ctx.register_checkpointed(&checkpoints, SourceSpec::new("docs", lake.to_string_lossy())).await.expect("the lake");
    let query = ctx.checkpointed_sql(SQL).await.expect("a plan");
    let sink = DirectorySink::open("parquet", &out.to_string_lossy()).expect("a sink");
    let report = ctx.write_sealed(&checkpoints, query, Output::parquet(sink)).await.expect("a run");
    (began.elapsed().as_secs_f64(), report)
}

/// What a listing with object_store alone costs.
async fn list(lake: &Path) -> f64 {
    let began = Instant::now();
    let store = object_store::local::LocalFileSystem::new_with_prefix(lake).expect("the lake");
    let files: Vec<_> = store.list(None).try_collect().await.expect("a listing");
    assert!(!files.is_empty());
    began.elapsed().as_secs_f64()
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

async fn bench(lake: &Path, work: &Path, rounds: usize, check: bool) {
    let (mut ratios, mut copies, mut runs, mut idles, mut lists) = (vec![], vec![], vec![], vec![], vec![]);
    let mut last = None;
    for round in 0..=rounds {
        let (plain, ours) = (work.join(format!("plain-{round}")), work.join(format!("ours-{round}")));
        // In turn, so that neither always has the warmer cache.
        let ((copy_seconds, rows), (seconds, report)) = if round % 2 == 0 {
            let first = copy(lake, &plain).await;
            (first, lakemark(lake, &ours).await)
        } else {
            let first = lakemark(lake, &ours).await;
            (copy(lake, &plain).await, first)
        };
        assert_eq!((report.outcome, report.rows.out), (Outcome::Done, rows));
        let (idle_seconds, idle) = lakemark(lake, &ours).await;
        assert_eq!(idle.outcome, Outcome::Nothing);
        assert_eq!((idle.requests.source.get, idle.requests.source.head, idle.requests.store.put), (0, 0, 0));
        let list_seconds = list(lake).await;
        for dir in [plain, ours.clone(), PathBuf::from(format!("{}.lakemark", ours.display()))] {
            std::fs::remove_dir_all(dir).expect("a clean-up");
        }
        // The first round warms up.
        if round > 0 {
            println!(
                "round {round}: copy {copy_seconds:.3} s, lakemark {seconds:.3} s, idle {idle_seconds:.4} s, listing {list_seconds:.4} s"
            );
            ratios.push(seconds / copy_seconds);
            copies.push(copy_seconds);
            runs.push(seconds);
            idles.push(idle_seconds);
            lists.push(list_seconds);
        }
        last = Some((report, idle));
    }
    let Some((first, idle)) = last else { return };
    let ratio = median(&mut ratios);
    println!("first run / copy + fsync: {ratio:.3} (median of {rounds} pairs)");
    println!("  copy {:.3} s, lakemark {:.3} s (medians)", median(&mut copies), median(&mut runs));
    println!("  tasks {}, store requests {:?}", first.tasks.sealed, first.requests.store);
    println!("  source requests {:?}", first.requests.source);
    let (idle_seconds, list_seconds) = (median(&mut idles), median(&mut lists));
    println!("idle re-run: {idle_seconds:.4} s, object_store listing {list_seconds:.4} s (medians)");
    println!("  store requests {:?}, source requests {:?}", idle.requests.store, idle.requests.source);
    let asked = idle.requests.store;
    assert!(asked.list + asked.get + asked.put + asked.delete <= 10, "an idle re-run asks the store at most 10 times");
    assert!(first.requests.store.put <= first.tasks.sealed + 16 + 10, "one write a task, beside probe and manifests");
    if check {
        assert!(ratio <= 1.03, "the first run is at most 3 % slower: {ratio:.3}");
        assert!(idle_seconds <= 0.05 + 3.0 * list_seconds, "an idle re-run takes at most 50 ms and three listings");
    }
}
