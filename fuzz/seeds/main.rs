//! Writes small real inputs into a corpus folder: the objects of stores that the core made, whole and in parts.
//!
//! `cargo run --example seeds -- <folder>`; then `cargo fuzz cmin` makes them few.

use std::path::Path;
use std::sync::Arc;

use lakemark::{
    BeginOptions, CheckpointStore, Counts, Coverage, Evidence, FileUpdate, FileVersion, ObjectCheckpointStore,
    OutputFile, RangeSet, Root, Run, SealedFile, SourceSettings, Upload, Wait, output_name,
};
use object_store::memory::InMemory;
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).ok_or("usage: seeds FOLDER")?;
    let folder = Path::new(&folder);
    let objects = Arc::new(InMemory::new());
    let root = Root::parse("memory://x/store")?;
    live(&ObjectCheckpointStore::on(root, Arc::clone(&objects) as _)).await?;
    let mut listing = objects.list(None);
    let mut n = 0;
    while let Some(meta) = futures_next(&mut listing).await {
        let path = meta?.location.to_string();
        let bytes = objects.get(&path.as_str().into()).await?.bytes().await?;
        n += 1;
        put(folder, "texts", &format!("name{n}"), path.as_bytes())?;
        if path.ends_with(".json") {
            let target = if path.starts_with("manifests") { "manifests" } else { "seals" };
            put(folder, "objects", &format!("o{n}"), &bytes)?;
            put(folder, target, &format!("o{n}"), body(&bytes)?.as_bytes())?;
        } else if path.ends_with(".parquet") {
            let target = if path.starts_with("segments") { "segments" } else { "commits" };
            put(folder, target, &format!("o{n}"), &bytes)?;
            for (name, version) in [("v1", WriterVersion::PARQUET_1_0), ("v2", WriterVersion::PARQUET_2_0)] {
                put(folder, target, &format!("o{n}.{name}"), &plain(&bytes, version)?)?;
            }
            let length = u32::from_le_bytes(bytes[bytes.len() - 8..][..4].try_into()?) as usize;
            put(folder, "footers", &format!("o{n}"), &bytes[bytes.len() - 8 - length..bytes.len() - 8])?;
        }
    }
    Ok(())
}

async fn futures_next<S: futures_core::Stream + Unpin>(stream: &mut S) -> Option<S::Item> {
    std::future::poll_fn(|cx| std::pin::Pin::new(&mut *stream).poll_next(cx)).await
}

fn put(folder: &Path, target: &str, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    std::fs::create_dir_all(folder.join(target))?;
    std::fs::write(folder.join(target).join(name), bytes)
}

fn body(object: &[u8]) -> serde_json::Result<String> {
    #[derive(serde::Deserialize)]
    struct Frame<'a> {
        #[serde(borrow)]
        body: &'a serde_json::value::RawValue,
    }
    Ok(serde_json::from_slice::<Frame<'_>>(object)?.body.get().to_owned())
}

/// The same without compression, so that a fuzzer reaches what is in it.
fn plain(object: &bytes::Bytes, version: WriterVersion) -> parquet::errors::Result<Vec<u8>> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(object.clone())?;
    let schema = Arc::clone(reader.schema());
    let properties = WriterProperties::builder().set_writer_version(version);
    let properties = properties.set_statistics_enabled(EnabledStatistics::None).set_offset_index_disabled(true).build();
    let mut writer = ArrowWriter::try_new(Vec::new(), schema, Some(properties))?;
    for batch in reader.build()? {
        writer.write(&batch?)?;
        writer.flush()?;
    }
    writer.into_inner()
}

/// A store in which everything happens once.
async fn live(store: &ObjectCheckpointStore) -> lakemark::Result<()> {
    let settings =
        SourceSettings { root: Root::parse("s3://lake/docs")?, format: "parquet".to_owned(), mode: "files".to_owned() };
    let options = || BeginOptions {
        sources: [("docs".to_owned(), settings.clone())].into(),
        wait: Wait::Takeover,
        ..BeginOptions::default()
    };
    let run = store.begin(options()).await?;
    run.record_schema("docs", b"a schema").await?;
    seal(&run, vec![part("a", Coverage::Whole), part("é#1%", Coverage::groups(RangeSet::of(1..3)))], 2).await?;
    let first = seal(&run, vec![part("b", Coverage::rows(1, RangeSet::of(2..9)))], 0).await?;
    run.fold().await?;
    run.mark_committed(&[first]).await?;
    seal(&run, vec![part("a", Coverage::Whole)], 1).await?;
    let now = FileVersion::new("a", 100).with_etag("\"x\"");
    let update = FileUpdate { recorded: FileVersion::new("a", 100).with_mtime(7), now: Some(now), unsettled: true };
    run.update_files("docs", vec![update]).await?;
    run.close().await?;
    let run = store.begin(options()).await?;
    seal(&run, vec![part("c", Coverage::Whole)], 1).await?;
    run.commit(None).await?;
    for i in 0..40 {
        seal(&run, vec![part(&format!("day=2026-01-{i:02}/part.parquet"), Coverage::Whole)], 1).await?;
    }
    run.commit(None).await?;
    seal(&run, vec![part("d", Coverage::groups(RangeSet::of(0..2)))], 1).await?;
    drop(run);
    Ok(())
}

async fn seal(run: &Run, parts: Vec<SealedFile>, outputs: u32) -> lakemark::Result<lakemark::CheckpointId> {
    let id = run.checkpoints().assign(run.next_input());
    let output = |part| OutputFile {
        name: output_name(&run.worker().store_id().short(), id, run.attempt(id), part, "parquet"),
        folder: if part > 0 { "day=2026-01-01".to_owned() } else { String::new() },
        size: 100,
        rows: 10,
        upload: (part > 0)
            .then(|| Upload { id: "u".to_owned(), parts: vec!["\"e1\"".to_owned(), "\"e2\"".to_owned()] }),
    };
    let files: Vec<_> = (0..outputs).map(output).collect();
    run.stage_keys(id, parts)?;
    run.stage_files(id, Box::pin(async { Ok(files) }))?;
    run.checkpoint(id, Counts { rows_in: 20, rows_out: 10, rows_failed: 0 }).await.map(|_| id)
}

fn part(path: &str, coverage: Coverage) -> SealedFile {
    SealedFile {
        source: "docs".into(),
        file: FileVersion::new(path, 100).with_mtime(7),
        coverage,
        evidence: Evidence::new(&[10, 10, 10, 4], "00ff00ff00ff00ff00ff00ff00ff00ff".into()),
        unsettled: path.len() == 1,
    }
}
