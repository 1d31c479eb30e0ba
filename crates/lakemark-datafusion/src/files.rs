//! What a store knows of files, as a table.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BooleanArray, RecordBatch, StringArray, TimestampMillisecondArray, TimestampNanosecondArray, UInt64Array,
};
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{ScalarValue, plan_err};
use datafusion::datasource::MemTable;
use datafusion::error::{DataFusionError, Result as DfResult};
use datafusion::logical_expr::Expr;
use datafusion::prelude::SessionContext;
use lakemark::store::Decision;
use lakemark::{Error, LiveVersion, ObjectCheckpointStore, Result, StorageOptions, View};

use crate::errors::to_datafusion;

/// One row a file version that the store knows, ascending by source and path.
///
/// | column | type | |
/// |---|---|---|
/// | `source`, `path` | text | |
/// | `size` | uint64 | bytes |
/// | `etag` | text | if any |
/// | `mtime` | timestamp | if any, as it was listed |
/// | `state` | text | `done`; `partly done`; `superseded`: not whole, and a later version of the path was worked on |
/// | `row_groups`, `rows` | uint64 | of the file; 0 for formats without them |
/// | `atoms` | uint64 | that are done |
/// | `left` | text | row groups (and rows in them) that are not done |
/// | `committed` | boolean | whether all of what is done is in a commit |
/// | `blessed` | boolean | whether a person recorded it as done |
/// | `epoch` | uint64 | of the last checkpoint |
/// | `sealed_at` | timestamp | of the last checkpoint |
/// | `outputs` | uint64 | output files of its checkpoints, which can hold other files' rows too |
///
/// # Errors
/// [`Invalid`](lakemark::ErrorKind::Invalid) when the columns do not fit together: a fault of this crate.
pub fn files_batch(view: &View) -> Result<RecordBatch> {
    let mut known: BTreeMap<(&str, &str), Vec<&LiveVersion>> = BTreeMap::new();
    for source in view.live.sources() {
        for (path, versions) in view.live.files(source) {
            known.entry((source, path)).or_default().extend(versions);
        }
    }
    let rows: Vec<(&str, &str, &LiveVersion)> =
        known.iter().flat_map(|((source, path), versions)| versions.iter().map(|v| (*source, *path, *v))).collect();
    let text = |get: &dyn Fn(&LiveVersion) -> Option<String>| -> ArrayRef {
        Arc::new(rows.iter().map(|(_, _, v)| get(v)).collect::<StringArray>())
    };
    let number = |get: &dyn Fn(&LiveVersion) -> u64| -> ArrayRef {
        Arc::new(rows.iter().map(|(_, _, v)| Some(get(v))).collect::<UInt64Array>())
    };
    let checkpoints = |v: &LiveVersion| {
        let rows: Vec<_> = v.parts.iter().filter_map(|(id, _)| view.live.checkpoint(*id)).collect();
        rows
    };
    let last = |v: &LiveVersion| checkpoints(v).into_iter().max_by_key(|row| row.id).map(|row| (row.id, row.sealed_at));
    // Of several versions of a path, one that is not whole and not the last that was worked on is not finished by any run.
    let state = |(source, path, v): &(&str, &str, &LiveVersion)| {
        let later = |other: &&LiveVersion| last(other).map(|(id, _)| id) > last(v).map(|(id, _)| id);
        Some(match v.is_complete() {
            true => "done",
            false if known[&(*source, *path)].iter().any(later) => "superseded",
            false => "partly done",
        })
    };
    let is_blessed = |v: &LiveVersion| {
        let rows = checkpoints(v);
        !rows.is_empty() && rows.iter().all(|row| row.decision == Decision::Blessed)
    };
    let left = |v: &LiveVersion| (!v.is_complete()).then(|| v.coverage.missing(&v.evidence).to_string());
    let mtimes = rows.iter().map(|(_, _, v)| v.file.mtime);
    let sealed = rows.iter().map(|(_, _, v)| last(v).map(|(_, at)| at));
    let committed = rows.iter().map(|(_, _, v)| Some(checkpoints(v).iter().all(|row| row.commit.is_some())));
    let columns: Vec<(&str, ArrayRef, bool)> = vec![
        ("source", Arc::new(rows.iter().map(|(source, ..)| Some(*source)).collect::<StringArray>()), false),
        ("path", Arc::new(rows.iter().map(|(_, path, _)| Some(*path)).collect::<StringArray>()), false),
        ("size", number(&|v| v.file.size), false),
        ("etag", text(&|v| v.file.etag.as_ref().map(ToString::to_string)), true),
        ("mtime", Arc::new(mtimes.collect::<TimestampNanosecondArray>().with_timezone("UTC")), true),
        ("state", Arc::new(rows.iter().map(state).collect::<StringArray>()), false),
        ("row_groups", number(&|v| v.evidence.row_groups()), false),
        ("rows", number(&|v| v.evidence.rows()), false),
        ("atoms", number(&|v| v.coverage.touched_atoms(v.evidence.row_groups())), false),
        ("left", text(&left), true),
        ("committed", Arc::new(committed.collect::<BooleanArray>()), false),
        ("blessed", Arc::new(rows.iter().map(|(_, _, v)| Some(is_blessed(v))).collect::<BooleanArray>()), false),
        ("epoch", number(&|v| last(v).map_or(0, |(id, _)| id.epoch.0)), false),
        ("sealed_at", Arc::new(sealed.collect::<TimestampMillisecondArray>().with_timezone("UTC")), true),
        ("outputs", number(&|v| checkpoints(v).iter().map(|row| row.outputs.len() as u64).sum()), false),
    ];
    RecordBatch::try_from_iter_with_nullable(columns)
        .map_err(|e| Error::invalid("the table of files cannot be made").caused_by(e))
}

/// Gives `ctx` the table function `lakemark_files('<store>')`: [`files_batch`] of what the store says when a query is
/// planned. `options` reach a store on an object store.
pub fn register_files_function(ctx: &SessionContext, options: StorageOptions) {
    ctx.register_udtf("lakemark_files", Arc::new(FilesFunction { options }));
}

#[derive(Debug)]
struct FilesFunction {
    options: StorageOptions,
}

impl TableFunctionImpl for FilesFunction {
    fn call_with_args(&self, args: TableFunctionArgs) -> DfResult<Arc<dyn TableProvider>> {
        let url = match args.exprs() {
            [Expr::Literal(ScalarValue::Utf8(Some(url)) | ScalarValue::Utf8View(Some(url)), _)] => url.clone(),
            _ => return plan_err!("lakemark_files takes one text: the URL of a store"),
        };
        let store = ObjectCheckpointStore::connect(&url, &self.options).map_err(to_datafusion)?;
        // Table functions are called within a runtime, and cannot wait in it.
        let read = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|e| Error::invalid("no runtime can be started").caused_by(e))?;
            runtime.block_on(store.read()).and_then(|view| files_batch(&view))
        });
        let batch = read.join().map_err(|_| DataFusionError::Internal("reading the store stopped".into()))?;
        let batch = batch.map_err(to_datafusion)?;
        Ok(Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]])?))
    }
}
