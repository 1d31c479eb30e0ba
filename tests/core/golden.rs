//! Stores that earlier versions wrote, checked in under `tests/golden/`: each later version reads them as they were meant.
//!
//! `LAKEMARK_GOLDEN=<folder> cargo test -p lakemark write_a_golden_store -- --ignored` writes one, with what the store says
//! of itself beside it. One is added for each format; none is ever changed.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lakemark::disk::{DiskStore, RealDisk};
use lakemark::faults::{Act, Failure, FaultStore, Op, When};
use lakemark::store::{Event, EventRow};
use lakemark::{
    Blessing, CheckpointStore, Counts, Evidence, FileUpdate, FileVersion, ForgetPlan, Lease, ObjectCheckpointStore,
    OutputFile, Root, SealedFile, Selection, View, Wait, output_name,
};

use crate::harness::{ONE_TRY, SOURCE, collect_objects, group, next, part, seal, takeover, whole};

/// One of each thing that a store can say, and a driver that died: an open intent, loose seals.
async fn write(folder: &Path) {
    let faults = FaultStore::new(Arc::new(DiskStore::new(folder.to_owned(), Arc::new(RealDisk))));
    let root = Root::parse("/golden/store").unwrap();
    let store = &ObjectCheckpointStore::on(root, Arc::new(faults.clone())).with_patience(ONE_TRY);
    let run = store.begin(takeover()).await.unwrap();
    run.record_schema(SOURCE, b"not a schema").await.unwrap();
    let id = next(&run);
    let name = output_name(&run.worker().store_id().short(), id, run.attempt(id), 0, "parquet");
    let output = OutputFile { name, folder: "d=1/e=%2F".into(), size: 5, rows: 2, upload: None };
    run.stage_keys(id, vec![whole("committed"), part("partly", group(1))]).unwrap();
    run.stage_files(id, Box::pin(async { Ok(vec![output]) })).unwrap();
    let _ = run.checkpoint(id, Counts { rows_in: 30, rows_out: 2, rows_failed: 1 }).await.unwrap();
    let etag = SealedFile {
        file: FileVersion::new("odd #%\u{e9}\n.parquet", 7).with_etag("\"x-1\""),
        evidence: Evidence::new(&[1, 1, 2], "ab".into()),
        ..whole("")
    };
    let _ = seal(&run, vec![etag]).await.unwrap();
    run.commit(None).await.unwrap();
    for path in ["moved", "forgotten"] {
        let _ = seal(&run, vec![whole(path), whole(&format!("beside {path}"))]).await.unwrap();
    }
    let _ = seal(&run, vec![whole("committed")]).await.unwrap();
    let _ = run.worker().void(run.next_input()).await.unwrap();
    run.fold().await.unwrap();
    let recorded = whole("moved").file;
    let now = Some(recorded.clone().with_mtime(8));
    run.update_files(SOURCE, vec![FileUpdate { recorded, now, unsettled: true }]).await.unwrap();
    run.close().await.unwrap();

    let selection = Selection { paths: vec![(None, "forgotten".into())], ..Selection::default() };
    let plan = ForgetPlan::of(&store.read().await.unwrap(), selection).unwrap();
    let run = store.operate(Wait::Takeover, Lease::default()).await.unwrap();
    run.forget(&plan, None).await.unwrap();
    let (source, files) = (SOURCE.to_owned(), vec![whole("blessed")]);
    let (updates, unusable, reasons) = (Vec::new(), Vec::new(), BTreeMap::new());
    run.bless(vec![Blessing { source, files, updates, unusable, reasons, reached: None }]).await.unwrap();
    run.close().await.unwrap();

    let run = store.begin(takeover()).await.unwrap();
    let _ = seal(&run, vec![whole("in the open commit")]).await.unwrap();
    {
        let is_manifest = |path: &str| path.starts_with("manifests/");
        let _dies = faults.plant(Op::Put, is_manifest, When::Nth(2..=2), Act::Fail(Failure::Denied));
        run.commit(None).await.unwrap_err();
    }
    let _ = seal(&run, vec![whole("loose")]).await.unwrap();
    drop(run);
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap()
}

/// What a store says, without what differs each time.
fn describe(view: &View) -> String {
    let manifest = &view.head.as_ref().unwrap().manifest;
    let mut text = String::new();
    let mut line = |what: std::fmt::Arguments<'_>| writeln!(text, "{what}").unwrap();
    line(format_args!("version {} epoch {} {}", manifest.version.0, manifest.epoch.0, json(&manifest.commits)));
    let mut files: Vec<_> = view.live.files(SOURCE).flat_map(|(_, versions)| versions).collect();
    files.sort_by(|a, b| a.file.path.cmp(&b.file.path));
    for version in files {
        let parts: Vec<_> = version.parts.iter().map(|(id, part)| format!("{part} by {id}")).collect();
        let (file, evidence) = (json(&version.file), json(&version.evidence));
        line(format_args!("{file} {} {evidence} unsettled {} {parts:?}", version.coverage, version.unsettled));
    }
    for row in view.live.checkpoints() {
        let (counts, outputs) = (json(&row.counts), json(&row.outputs));
        line(format_args!("{} {} {counts} commit {:?} {outputs}", row.id, json(&row.decision), row.commit));
    }
    for EventRow { version, event, .. } in view.live.events() {
        // Who opened it and when is of the machine.
        let shown = if let Event::Opened { .. } = event { "opened".to_owned() } else { json(event) };
        line(format_args!("at {} {shown}", version.0));
    }
    text
}

fn at(folder: &Path) -> ObjectCheckpointStore {
    ObjectCheckpointStore::open(folder.to_str().unwrap()).unwrap()
}

#[tokio::test]
#[ignore = "writes files that are checked in"]
async fn write_a_golden_store() {
    let folder = PathBuf::from(std::env::var_os("LAKEMARK_GOLDEN").expect("LAKEMARK_GOLDEN names a folder"));
    write(&folder.join("store")).await;
    let view = at(&folder.join("store")).read().await.unwrap();
    fs::write(folder.join("says.txt"), describe(&view)).unwrap();
    let _ = fs::remove_dir(folder.join("store/unfinished"));
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let to = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &to);
        } else {
            fs::copy(&path, &to).unwrap();
        }
    }
}

#[tokio::test]
async fn every_golden_store_is_read_as_it_was_written_and_goes_on() {
    let folders = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden")).unwrap();
    let mut seen = 0;
    for folder in folders.map(|entry| entry.unwrap().path()).filter(|path| path.join("says.txt").exists()) {
        let dir = tempfile::tempdir().unwrap();
        copy(&folder.join("store"), &dir.path().join("store"));
        let store = at(&dir.path().join("store"));
        assert!(store.verify().await.unwrap().is_sound());
        let view = store.read().await.unwrap();
        assert_eq!(describe(&view), fs::read_to_string(folder.join("says.txt")).unwrap(), "{}", folder.display());
        let before: Vec<_> = view.live.files(SOURCE).map(|(path, _)| path.to_owned()).collect();

        let run = store.begin_from(view, takeover()).await.unwrap();
        run.commit(None).await.unwrap();
        let live = run.close().await.unwrap().live;
        assert!(before.iter().all(|path| !live.versions(SOURCE, path).is_empty()), "nothing is to be done again");
        assert!(live.pending().next().is_none());
        let objects = DiskStore::new(dir.path().join("store"), Arc::new(RealDisk));
        collect_objects(&store, &objects).await;
        seen += 1;
    }
    assert!(seen > 0, "no golden store is checked in");
}
