//! Lookups: small tables to join with, read whole, by the rules of sources.

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::common::TableReference;
use datafusion::datasource::MemTable;
use datafusion::prelude::SessionContext;
use lakemark::{Error, ErrorKind, InputId, ObjectCheckpointStore, Result, Root, TaskRead};
use object_store::memory::InMemory;

use crate::checkpoints::{Checkpoints, Options, SourceSpec};
use crate::errors::from_datafusion;
use crate::ext::LakemarkExt;

/// Reads the files of `spec` into memory, as a table to join with: listed and read as a tracked source is, and recorded
/// nowhere. Its size is known, so it can be broadcast.
///
/// # Errors
/// [`Invalid`](ErrorKind::Invalid) or [`Unavailable`](ErrorKind::Unavailable) naming a file that is left out: a lookup
/// without some of its rows would give wrong results, not fewer ones.
pub async fn read_lookup(spec: SourceSpec) -> Result<Arc<dyn TableProvider>> {
    let name = spec.name.clone();
    let root = Root::parse("memory://lookups/")?;
    // A store that nothing is ever written to: everything is new.
    let store = ObjectCheckpointStore::on(root, Arc::new(InMemory::new()));
    let checkpoints = Checkpoints::new(store, Options::default());
    let wrong = |e| {
        from_datafusion(e, ErrorKind::Invalid, &format!("the lookup `{name}` cannot be read"))
            .safe("nothing was written")
            .way("mend or remove the file, or select others with a glob")
    };
    let ctx = SessionContext::new();
    ctx.register_checkpointed(&checkpoints, spec).await?;
    let source = checkpoints.sources().into_iter().next();
    let Some(source) = source.filter(|source| source.schema.is_some()) else {
        return Err(Error::invalid(format!("the lookup `{name}` has no file that can be read"))
            .safe("nothing was written")
            .way("put a Parquet file there"));
    };
    let frame = ctx.table(TableReference::bare(name.as_str())).await.map_err(wrong)?;
    let schema = Arc::clone(frame.schema().inner());
    let planned = source.plan();
    let batches = if planned.files.is_empty() { Vec::new() } else { frame.collect().await.map_err(wrong)? };
    let scanned = source.scanned();
    let mut left_out: Vec<(String, String)> = Vec::new();
    let listed = planned.report.unusable.iter().chain(&scanned.unusable);
    left_out.extend(listed.map(|unusable| (unusable.path.clone(), unusable.why.clone())));
    let gone = || "it changed or vanished while it was read".to_owned();
    left_out.extend(scanned.changed.iter().chain(&scanned.vanished).map(|path| (path.to_string(), gone())));
    for input in 0..checkpoints.inputs() {
        let read: TaskRead = checkpoints.shared.atoms.take(InputId(input)).unwrap_or_default();
        left_out.extend(read.unusable.into_iter().map(|(_, path, why)| (path.to_string(), why)));
        left_out.extend(read.changed.iter().chain(&read.vanished).map(|(_, path)| (path.to_string(), gone())));
    }
    if let Some((path, why)) = left_out.first() {
        return Err(Error::invalid(format!("a file of the lookup `{name}` cannot be used: {why}"))
            .at(source.lake.place(path))
            .safe("nothing was written: without its rows the join would be wrong")
            .way("mend or remove the file, or select others with a glob"));
    }
    Ok(Arc::new(MemTable::try_new(schema, vec![batches]).map_err(wrong)?))
}
