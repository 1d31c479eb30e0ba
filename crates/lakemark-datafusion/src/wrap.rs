//! Tables of other kinds as tracked sources: what their scan would read, taken apart.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use datafusion::arrow::datatypes::{FieldRef, Schema, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::common::ScalarValue;
use datafusion::datasource::listing::{ListingTable, PartitionedFile};
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::empty::EmptyExec;
use lakemark::{
    Error, ErrorKind, FileVersion, Lake, Listing, OtherFormat, Result, Root, ScanPart, Select, object_version,
};
use object_store::ObjectMeta;

use crate::checkpoints::PARQUET;
use crate::errors::from_datafusion;

/// A table, as a tracked source sees it.
pub(crate) struct Wrapped {
    pub(crate) lake: Lake,
    pub(crate) listing: Listing,
    /// The files' schema.
    pub(crate) schema: SchemaRef,
    pub(crate) partitions: Vec<FieldRef>,
    /// What the files are.
    pub(crate) format: String,
    /// How the table reads its files; `None` when it has none.
    pub(crate) native: Option<Arc<FileScanConfig>>,
    /// The values of the partition columns by path.
    pub(crate) values: HashMap<Arc<str>, Vec<ScalarValue>>,
}

/// What a scan of the whole table reads.
struct Scan {
    url: ObjectStoreUrl,
    schema: SchemaRef,
    partitions: Vec<FieldRef>,
    format: String,
    native: Option<Arc<FileScanConfig>>,
    files: Vec<PartitionedFile>,
}

/// Takes the scan of `provider` apart, as it is now. `known` is the root under which the store knows the source.
///
/// # Errors
/// [`ErrorKind::Unsupported`], saying why.
pub(crate) async fn take_apart(
    name: &str,
    provider: &Arc<dyn TableProvider>,
    state: &SessionState,
    known: Option<&Root>,
) -> Result<Wrapped> {
    let taken_at = lakemark::time::now_ns();
    let state = for_listing(state)?;
    let mut scan = scan(name, provider, &state).await?;
    let bucket = Root::parse(scan.url.as_str())?;
    let keys: Vec<&str> = scan.files.iter().map(|file| file.object_meta.location.as_ref()).collect();
    let root = match (listing_folder(provider, &keys), known) {
        (Some(folder), _) => bucket.join(&folder),
        (None, Some(known)) if keys.iter().all(|key| known.contains(&bucket.join(key))) => known.clone(),
        (None, _) if keys.is_empty() => {
            return Err(unsupported(name, "it has no files yet, so nothing tells where it is"));
        }
        (None, _) => bucket.join(shared_folder(&keys, scan.partitions.len())),
    };
    let lake = if root.is_local() {
        Lake::open(&root.to_string())?
    } else {
        let store = state.runtime_env().object_store(&scan.url);
        let store = store.map_err(|e| from_datafusion(e, ErrorKind::Invalid, "the object store is not registered"))?;
        Lake::on(root.clone(), Select::All, store)
    };
    // One listing at least: how many requests the table makes for it is the table's own business.
    lake.counters().listed();
    let lake = if scan.format == PARQUET { lake } else { lake.with_whole_files() };
    let mut values = HashMap::with_capacity(scan.files.len());
    let mut files = Vec::with_capacity(scan.files.len());
    for file in std::mem::take(&mut scan.files) {
        let version = version(&root, &file.object_meta);
        check_whole(name, &scan.format, &file, &version)?;
        if values.insert(Arc::clone(&version.path), file.partition_values).is_some() {
            return Err(unsupported(name, &format!("it reads `{}` more than once", version.path)));
        }
        files.push(version);
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let listing = Listing { files, taken_at, ..Listing::default() };
    let Scan { schema, partitions, format, native, .. } = scan;
    Ok(Wrapped { lake, listing, schema, partitions, format, native, values })
}

fn unsupported(name: &str, why: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("table `{name}` cannot be wrapped: {why}"))
        .safe("nothing was read or written")
        .way("wrap a ListingTable, or another table whose scan is a plain DataSourceExec over whole files")
        .way("register the files themselves, if they are Parquet: register_checkpointed with their directory")
}

/// The same session, for a listing: a remembered one does not see new files, and statistics cost a read of every footer.
fn for_listing(state: &SessionState) -> Result<SessionState> {
    let wrong = |e| from_datafusion(e, ErrorKind::Invalid, "the session cannot be used");
    let mut runtime = RuntimeEnvBuilder::from_runtime_env(state.runtime_env());
    runtime.cache_manager.list_files_cache = None;
    let runtime = runtime.with_object_list_cache_limit(0).build_arc().map_err(wrong)?;
    // The catalog is shared with the caller's session: a new default catalog would take its tables away.
    let config = state.config().clone().with_collect_statistics(false).with_create_default_catalog_and_schema(false);
    Ok(SessionStateBuilder::new_from_existing(state.clone()).with_config(config).with_runtime_env(runtime).build())
}

fn listing_table(provider: &Arc<dyn TableProvider>) -> Option<&ListingTable> {
    (provider.as_ref() as &dyn std::any::Any).downcast_ref()
}

async fn scan(name: &str, provider: &Arc<dyn TableProvider>, state: &SessionState) -> Result<Scan> {
    let plan = provider.scan(state, None, &[], None).await;
    let plan = plan.map_err(|e| from_datafusion(e, ErrorKind::Invalid, "the table cannot be listed"))?;
    if let (Some(table), Some(_)) = (listing_table(provider), plan.downcast_ref::<EmptyExec>()) {
        return empty(name, table);
    }
    let Some(config) =
        plan.downcast_ref::<DataSourceExec>().and_then(|exec| exec.data_source().downcast_ref::<FileScanConfig>())
    else {
        return Err(unsupported(name, &format!("its scan is {}, not a scan of files", plan.name())));
    };
    check_plain(name, config, &provider.schema())?;
    let files: Vec<PartitionedFile> = config.file_groups.iter().flat_map(|group| group.files()).cloned().collect();
    let format = config.file_source().file_type().to_owned();
    let native = Some(Arc::new(config.clone()));
    Ok(Scan {
        url: config.object_store_url.clone(),
        schema: Arc::clone(config.file_schema()),
        partitions: config.table_partition_cols().iter().cloned().collect(),
        format,
        native,
        files,
    })
}

/// Checks that the scan reads the whole of `file`.
fn check_whole(name: &str, format: &str, file: &PartitionedFile, version: &FileVersion) -> Result<()> {
    if let (Some(range), true) = (&file.range, format != PARQUET) {
        let other = match format {
            "csv" => OtherFormat::Csv,
            "json" => OtherFormat::Json,
            _ => OtherFormat::Other("non-Parquet"),
        };
        let bytes = |at: i64| u64::try_from(at).unwrap_or(0);
        ScanPart::bytes(name, version.clone(), other, bytes(range.start)..bytes(range.end))?;
    } else if file.range.is_some() || !file.extensions.is_empty() {
        return Err(unsupported(name, &format!("it reads only a part of `{}`", version.path)));
    }
    Ok(())
}

/// A listing table without files.
fn empty(name: &str, table: &ListingTable) -> Result<Scan> {
    let partitions = &table.options().table_partition_cols;
    let schema = table.schema();
    let (partitions, files): (Vec<FieldRef>, Vec<FieldRef>) =
        schema.fields().iter().cloned().partition(|field| partitions.iter().any(|(name, _)| name == field.name()));
    let Some(path) = table.table_paths().first() else { return Err(unsupported(name, "it has no path")) };
    let format = table.options().format.get_ext();
    let schema = Arc::new(Schema::new(files));
    Ok(Scan { url: path.object_store(), schema, partitions, format, native: None, files: Vec::new() })
}

/// Checks that the scan gives exactly the rows and columns of its files.
fn check_plain(name: &str, config: &FileScanConfig, table: &Schema) -> Result<()> {
    let source = config.file_source();
    if source.filter().is_some() || config.limit.is_some() {
        return Err(unsupported(name, "its scan selects rows"));
    }
    if config.expr_adapter_factory.is_some() {
        return Err(unsupported(name, "it adapts its files in a way of its own"));
    }
    let wanted: HashSet<usize> = (0..table.fields().len()).collect();
    let columns = source.projection().map(|projection| {
        let column = |(i, expr): (usize, _)| -> Option<usize> {
            let expr: &Arc<dyn datafusion::physical_plan::PhysicalExpr> = AsRef::as_ref(expr);
            expr.downcast_ref::<Column>().map(Column::index).filter(|index| *index == i)
        };
        projection.iter().enumerate().map(column).collect::<Option<HashSet<usize>>>()
    });
    let as_stored = columns.is_none_or(|columns| columns.is_some_and(|columns| columns == wanted));
    if !as_stored || source.table_schema().table_schema().fields() != table.fields() {
        return Err(unsupported(name, "its columns are not those of its files"));
    }
    Ok(())
}

/// The folder of a listing table with one path.
fn listing_folder(provider: &Arc<dyn TableProvider>, keys: &[&str]) -> Option<String> {
    let [path] = listing_table(provider)?.table_paths().as_slice() else { return None };
    let prefix = path.prefix().as_ref();
    // The path of one file names that file.
    let folder = if keys == [prefix] { prefix.rsplit_once('/').map_or("", |(folder, _)| folder) } else { prefix };
    Some(folder.to_owned())
}

/// The longest folder that all `keys` share, above the folders of `partitions` partition columns.
fn shared_folder<'a>(keys: &[&'a str], partitions: usize) -> &'a str {
    let folder = |key: &'a str| key.rsplit_once('/').map_or("", |(folder, _)| folder);
    let Some(first) = keys.first().map(|key| folder(key)) else { return "" };
    let below =
        |key: &str, folder: &str| folder.is_empty() || key.strip_prefix(folder).is_some_and(|r| r.starts_with('/'));
    let mut shared = first;
    while !keys.iter().all(|key| below(key, shared)) {
        shared = folder(shared);
    }
    // With files in one partition only, its folder is still not the root.
    for _ in 0..partitions {
        match shared.rsplit_once('/') {
            Some((above, last)) if last.contains('=') => shared = above,
            _ => break,
        }
    }
    shared
}

/// The version of an object below `root`, as [`Lake`] would list it.
fn version(root: &Root, object: &ObjectMeta) -> FileVersion {
    let key = object.location.as_ref();
    let path = key.strip_prefix(root.prefix()).unwrap_or(key).trim_start_matches('/');
    object_version(root, path, object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shared_folder_is_above_the_partitions() {
        assert_eq!(shared_folder(&["a/b/x", "a/b/y"], 0), "a/b");
        assert_eq!(shared_folder(&["a/b/x", "a/bc/y"], 0), "a");
        assert_eq!(shared_folder(&["x", "a/y"], 0), "");
        assert_eq!(shared_folder(&["a/d=1/x"], 1), "a");
        assert_eq!(shared_folder(&["a/d=1/e=2/x", "a/d=1/e=3/x"], 2), "a");
        assert_eq!(shared_folder(&["a/d=1/x"], 0), "a/d=1");
    }
}
