//! One run's view of a store and its tracked sources: what is planned is planned from it.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use datafusion::arrow::datatypes::{FieldRef, Schema, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::common::ScalarValue;
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::execution::SessionState;
use futures::{StreamExt, TryStreamExt};
use lakemark::steps::reach;
use lakemark::{
    AtomRegistry, Error, ErrorKind, FileRead, FileVersion, FooterRead, InputId, Lake, Lease, Listing, Live,
    ObjectCheckpointStore, OnChange, Reason, Result, Root, Select, SourcePlan, SourcePolicy, SourceSettings,
    SourceTable, StorageOptions, TaskSizing, Unusable, View, Wait, plan_source, plan_table,
};

use crate::formats::SourceFormat;
use crate::hive::{partition_columns, partition_field, partition_values};
use crate::rows::{RowKeys, RowSource, RowsSpec};
use crate::schema::{file_schema, from_hex};
use crate::snapshot::OpenTable;
use crate::wrap::take_apart;

/// The format of sources that are opened by URL.
pub(crate) const PARQUET: &str = "parquet";

/// How a run goes. The defaults are those of the `lakemark` command.
#[derive(Debug, Clone)]
pub struct Options {
    /// Tasks at once.
    pub concurrency: usize,
    /// How large a task is.
    pub sizing: TaskSizing,
    /// Stop cleanly after this many tasks; 0 is no limit.
    pub max_tasks: usize,
    /// Further attempts of a task after `Unavailable` and `ChangedSincePlanning`, and no other kind.
    pub retries: u32,
    /// A task that takes longer is ended, as `Unavailable`.
    pub task_timeout: Option<Duration>,
    /// How long running tasks may go on after a stop was asked for.
    pub grace: Duration,
    /// Commit what is sealed this often while tasks run; `None`: only at the end.
    pub commit_every: Option<Duration>,
    /// What to do about another holder.
    pub wait: Wait,
    /// Beat and lease.
    pub lease: Lease,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            concurrency: std::thread::available_parallelism().map_or(1, usize::from),
            sizing: TaskSizing::default(),
            max_tasks: 0,
            retries: 2,
            task_timeout: None,
            grace: Duration::from_secs(25),
            commit_every: None,
            wait: Wait::default(),
            lease: Lease::default(),
        }
    }
}

/// A tracked source.
#[derive(Debug, Clone)]
pub struct SourceSpec {
    /// The table's name; explicit, and the key of what is recorded.
    pub name: String,
    /// Directory, glob or file, by path or URL.
    pub url: String,
    /// What to do about files that are not what they were.
    pub policy: SourcePolicy,
    /// The files' schema, without partition columns; else the store's, else the first file's by path.
    pub schema: Option<SchemaRef>,
    /// Take the first file's schema anew and record it.
    pub refresh_schema: bool,
    /// How an object store is reached.
    pub storage: StorageOptions,
    /// What its files are.
    pub format: SourceFormat,
    /// The table that it is, for a source that is one: then `url`, `storage` and `format` say nothing.
    pub table: Option<Arc<dyn SourceTable>>,
    /// What tells its rows apart: then it is read whole, in rows mode, and what is done is told by row.
    pub rows: Option<RowKeys>,
}

impl SourceSpec {
    /// A source with the default policy.
    pub fn new(name: impl Into<String>, url: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            url: url.into(),
            policy: SourcePolicy::default(),
            schema: None,
            refresh_schema: false,
            storage: StorageOptions::default(),
            format: SourceFormat::default(),
            table: None,
            rows: None,
        }
    }

    /// A table of a table format, by its log or its catalog. Versions of it that change rows which are done are refused,
    /// unless another policy is set.
    pub fn of_table(name: impl Into<String>, table: Arc<dyn SourceTable>) -> Self {
        let policy = SourcePolicy { on_change: OnChange::Fail, ..SourcePolicy::default() };
        let spec = Self::new(name, table.lake().root().to_string());
        Self { policy, table: Some(table), ..spec }
    }

    /// In rows mode, by these keys.
    #[must_use]
    pub fn with_rows(mut self, keys: RowKeys) -> Self {
        self.rows = Some(keys);
        self
    }

    /// With a policy.
    #[must_use]
    pub fn with_policy(mut self, policy: SourcePolicy) -> Self {
        self.policy = policy;
        self
    }
}

/// One run over a store. Tables registered through it share its view of the store and its listing, which are taken once:
/// a plan is frozen, and what arrives later belongs to the next run (R23).
#[derive(Debug, Clone)]
pub struct Checkpoints {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) store: ObjectCheckpointStore,
    pub(crate) options: Options,
    pub(crate) atoms: AtomRegistry,
    next_input: AtomicU32,
    view: tokio::sync::Mutex<Option<Arc<View>>>,
    sources: Mutex<BTreeMap<String, Arc<Source>>>,
    /// Those in rows mode; the files of some of them are among `sources` too.
    rows: Mutex<BTreeMap<String, Arc<RowSource>>>,
    pub(crate) seconds: Mutex<Seconds>,
}

/// Time spent before the run.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Seconds {
    pub(crate) list: f64,
    pub(crate) open: f64,
    pub(crate) plan: f64,
}

/// Why a file of a table cannot be read.
const UNLIKE: &str = "it is not what the table's log says: its size is another";
const GONE: &str = "the table has it, and it is not in the storage";

/// A tracked source of one run.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) name: Arc<str>,
    pub(crate) lake: Lake,
    pub(crate) policy: SourcePolicy,
    pub(crate) listing: Listing,
    /// The files' schema; `None` when there is neither a recorded one nor any file.
    pub(crate) schema: Option<SchemaRef>,
    /// Whether `schema` is to be recorded.
    pub(crate) schema_is_new: bool,
    /// Whether another one is recorded: to record it anew is work, also when no file is left to do.
    pub(crate) schema_changed: bool,
    /// Partition columns, in the order of the folders.
    pub(crate) partitions: Vec<FieldRef>,
    /// What its files are, as the job calls it.
    pub(crate) format: String,
    /// How it was opened, by URL; for a wrapped table it says nothing.
    pub(crate) opened_as: SourceFormat,
    /// How its files are scanned; `None`: as Parquet, as the session says.
    pub(crate) native: Option<Arc<FileScanConfig>>,
    /// Their values by path, where a wrapped table gave them; else they are read from the folders.
    given_values: Option<HashMap<Arc<str>, Vec<ScalarValue>>>,
    /// The table that it is, for a source that is one.
    pub(crate) table: Option<OpenTable>,
    /// Whether what is done of it is told by row: then each of its files is read.
    pub(crate) in_rows: bool,
    plan: Mutex<Arc<SourcePlan>>,
    scanned: Mutex<Scanned>,
}

/// What the last scan of a source left out or found.
#[derive(Debug, Default, Clone)]
pub(crate) struct Scanned {
    /// Files ruled out by partition values, and why they were planned.
    pub(crate) excluded: Vec<(Arc<str>, Reason)>,
    pub(crate) unusable: Vec<Unusable>,
    pub(crate) changed: Vec<Arc<str>>,
    pub(crate) vanished: Vec<Arc<str>>,
    /// Whether no task was formed.
    pub(crate) nothing_left: bool,
    /// Row groups of all tasks, as far as they are known.
    pub(crate) atoms: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

impl Source {
    pub(crate) fn plan(&self) -> Arc<SourcePlan> {
        Arc::clone(&lock(&self.plan))
    }

    pub(crate) fn set_plan(&self, plan: SourcePlan) {
        *lock(&self.plan) = Arc::new(plan);
    }

    pub(crate) fn scanned(&self) -> Scanned {
        lock(&self.scanned).clone()
    }

    pub(crate) fn set_scanned(&self, scanned: Scanned) {
        *lock(&self.scanned) = scanned;
    }

    /// The values of the partition columns for the file at `path`; `None` when it lacks one.
    pub(crate) fn partition_values(&self, path: &str) -> Option<Vec<ScalarValue>> {
        match (&self.table, &self.given_values) {
            (Some(table), _) => table.partition_values(&self.plan(), path, &self.partitions),
            (None, Some(given)) => given.get(path).cloned(),
            (None, None) => partition_values(path, &self.partitions),
        }
    }

    /// What was read of a file: of a table, one that is gone or of another size is not what the table says that it has.
    pub(crate) fn as_its_table_has_it<T>(&self, read: FileRead<T>) -> FileRead<T> {
        match read {
            FileRead::Changed if self.table.is_some() => FileRead::Unusable(UNLIKE.to_owned()),
            FileRead::Vanished if self.table.is_some() => FileRead::Unusable(GONE.to_owned()),
            read => read,
        }
    }

    /// What of it is left to do by `live`, from the listing or the snapshot that was taken.
    pub(crate) async fn plan_against(&self, live: &Live) -> Result<SourcePlan> {
        let nothing = Live::default();
        let live = if self.in_rows { &nothing } else { live };
        match &self.table {
            Some(open) => plan_table(&self.name, &*open.table, &open.snapshot(), live, self.policy).await,
            None => plan_source(&self.name, &self.lake, &self.listing, live, self.policy).await,
        }
    }

    /// Checks that each of its files has the key columns: a column that a file lacks would be read as null (R126).
    pub(crate) async fn check_keys(&self, keys: &RowKeys) -> Result<()> {
        if self.native.is_some() || self.lake.has_whole_files() {
            return Ok(());
        }
        let plan = self.plan();
        let look = async |file: &FileVersion| Ok::<_, Error>((Arc::clone(&file.path), self.lake.footer(file).await?));
        let looks: Vec<_> = plan.files.iter().map(|planned| look(&planned.file)).collect();
        let mut looks = futures::stream::iter(looks).buffered(16);
        while let Some((path, footer)) = looks.try_next().await? {
            // What cannot be read is left out, and named by the scan.
            let FooterRead::Read(footer) = footer else { continue };
            let Ok(schema) = file_schema(&footer) else { continue };
            let lacks = |name: &&String| {
                let in_folders = self.partitions.iter().any(|field| field.name() == *name);
                !in_folders && schema.field_with_name(name).is_err()
            };
            if let Some(name) = keys.on.iter().find(lacks) {
                let what = format!("a file of source `{}` lacks the key column `{name}`", self.name);
                return Err(Error::invalid(what)
                    .at(format!("{}/{path}", self.lake.root()))
                    .safe("nothing was read or written")
                    .way("move the file away, or write it again with the column, then run again"));
            }
        }
        Ok(())
    }

    /// Files that some task is to read: not those that partition values rule out or that cannot be read.
    pub(crate) fn planned_files(&self) -> u64 {
        let scanned = self.scanned();
        let left_out = scanned.excluded.len() + scanned.unusable.len() + scanned.vanished.len();
        self.plan().files.len().saturating_sub(left_out) as u64
    }

    /// Whether what is recorded of the source is to change, beside its finished work.
    pub(crate) fn has_updates(&self) -> bool {
        (self.schema_is_new && self.schema_changed) || self.plan().has_updates()
    }

    pub(crate) fn settings(&self) -> SourceSettings {
        SourceSettings::files(self.lake.root().clone(), &*self.format)
    }
}

impl Checkpoints {
    /// A run over `store`. Nothing is read yet.
    pub fn new(store: ObjectCheckpointStore, options: Options) -> Self {
        Self {
            shared: Arc::new(Shared {
                store,
                options,
                atoms: AtomRegistry::default(),
                next_input: AtomicU32::new(0),
                view: tokio::sync::Mutex::default(),
                sources: Mutex::default(),
                rows: Mutex::default(),
                seconds: Mutex::default(),
            }),
        }
    }

    /// The store.
    pub fn store(&self) -> &ObjectCheckpointStore {
        &self.shared.store
    }

    /// The options.
    pub fn options(&self) -> &Options {
        &self.shared.options
    }

    /// The state that this run plans from; read at the first call, and the same ever after.
    ///
    /// # Errors
    /// As [`ObjectCheckpointStore::read`].
    pub async fn view(&self) -> Result<Arc<View>> {
        let mut view = self.shared.view.lock().await;
        if let Some(view) = &*view {
            return Ok(Arc::clone(view));
        }
        let began = Instant::now();
        let read = Arc::new(self.shared.store.read().await?);
        lock(&self.shared.seconds).open += began.elapsed().as_secs_f64();
        *view = Some(Arc::clone(&read));
        Ok(read)
    }

    /// Whether every source has a schema. No source has one when none has ever had a file: then there is nothing to do.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`], naming a source without a schema beside others that have work, or whose files vanished
    /// while they were opened: it must not look as if there were nothing to do.
    pub fn has_schemas(&self) -> Result<bool> {
        let sources = self.sources();
        let Some(without) = sources.iter().find(|source| source.schema.is_none()) else { return Ok(true) };
        if sources.iter().all(|source| source.schema.is_none() && source.plan().files.is_empty()) {
            return Ok(false);
        }
        let name = &without.name;
        Err(Error::invalid(format!("source `{name}` has no file that can be read yet, and so no schema"))
            .at(without.lake.root())
            .safe("nothing was read or written")
            .way(format!("put a file into `{name}`, then run again"))
            .way(format!("leave `{name}` out of the query until it has one")))
    }

    /// The report of a run that has nothing to plan a query with: see [`has_schemas`](Self::has_schemas).
    pub async fn blank_report(&self) -> crate::report::RunReport {
        crate::driver::blank_report(self).await
    }

    /// Plans from `view` from now on.
    pub(crate) async fn set_view(&self, view: View) {
        *self.shared.view.lock().await = Some(Arc::new(view));
    }

    /// How many input ids were given.
    pub(crate) fn inputs(&self) -> u32 {
        self.shared.next_input.load(Ordering::Relaxed)
    }

    pub(crate) fn next_input(&self) -> InputId {
        InputId(self.shared.next_input.fetch_add(1, Ordering::Relaxed))
    }

    /// Adds a tracked source without a table for it: for what needs no query. What is left of a table is not told either.
    ///
    /// # Errors
    /// As [`LakemarkExt::register_checkpointed`](crate::LakemarkExt::register_checkpointed).
    pub async fn add(&self, spec: SourceSpec) -> Result<()> {
        let keys = spec.rows.clone();
        let source = self.add_source(spec, false).await?;
        let (Some(keys), Some(files)) = (keys, &source.schema) else { return Ok(()) };
        let schema = Schema::new(files.fields().iter().chain(&source.partitions).cloned().collect::<Vec<_>>());
        self.add_rows(&source.name, source.lake.root(), &source.format, &schema, &keys).await.map(drop)
    }

    /// Adds a tracked source: lists it and plans it against the store; a table only if it is to be `planned`.
    pub(crate) async fn add_source(&self, spec: SourceSpec, planned: bool) -> Result<Arc<Source>> {
        self.check_new(&spec.name)?;
        if let Some(table) = &spec.table {
            return self.add_table(&spec, Arc::clone(table), planned).await;
        }
        reach("list.begin");
        let began = Instant::now();
        let lake = Lake::connect(&spec.url, &spec.storage).await?;
        let lake = if spec.format.is_parquet() { lake } else { lake.with_whole_files() };
        check_apart(&spec.name, &lake, &self.shared.store)?;
        let (listing, view) = tokio::join!(lake.list(), self.view());
        let (listing, view) = (listing?, view?);
        check_no_table(&spec.name, &lake, &listing)?;
        spec.format.check(&lake, &listing)?;
        lock(&self.shared.seconds).list += began.elapsed().as_secs_f64();
        reach("list.end");
        let began = Instant::now();
        let nothing = Live::default();
        let live = if spec.rows.is_some() { &nothing } else { &view.live };
        let plan = plan_source(&spec.name, &lake, &listing, live, spec.policy).await?;
        let known = view.live.schema(&spec.name).map(from_hex).transpose()?;
        let recorded = known.clone().filter(|_| !spec.refresh_schema);
        let schema_is_new = recorded.is_none();
        let (recorded, names) = recorded.unzip();
        let schema = match spec.schema.clone().or(recorded) {
            Some(schema) => Some(schema),
            None => spec.format.schema(&lake, &listing).await?,
        };
        // Once recorded they stay: a stray file must not take a column out of the output.
        let names = names.flatten().unwrap_or_else(|| {
            let paths = listing.files.iter().map(|file| &*file.path);
            schema.as_ref().map(|schema| partition_columns(paths, schema)).unwrap_or_default()
        });
        let partitions: Vec<FieldRef> = names.iter().map(|name| partition_field(name)).collect();
        let native = schema.as_ref().and_then(|schema| spec.format.scan(schema, &partitions)).map(Arc::new);
        lock(&self.shared.seconds).plan += began.elapsed().as_secs_f64();
        Ok(self.insert(Source {
            name: spec.name.as_str().into(),
            lake,
            policy: spec.policy,
            listing,
            schema_changed: known.is_some_and(|(known, _)| schema.as_ref().is_some_and(|schema| **schema != *known)),
            schema,
            schema_is_new,
            partitions,
            format: spec.format.recorded(),
            native,
            opened_as: spec.format,
            given_values: None,
            table: None,
            in_rows: spec.rows.is_some(),
            plan: Mutex::new(Arc::new(plan)),
            scanned: Mutex::default(),
        }))
    }

    /// Adds a table of a table format: takes its snapshot and plans it against the store.
    async fn add_table(&self, spec: &SourceSpec, table: Arc<dyn SourceTable>, planned: bool) -> Result<Arc<Source>> {
        reach("list.begin");
        let began = Instant::now();
        let lake = table.lake().clone();
        check_apart(&spec.name, &lake, &self.shared.store)?;
        let (snapshot, view) = tokio::join!(table.snapshot(), self.view());
        let (snapshot, view) = (snapshot?, view?);
        lock(&self.shared.seconds).list += began.elapsed().as_secs_f64();
        reach("list.end");
        let began = Instant::now();
        let listing = snapshot.listing();
        let known = view.live.schema(&spec.name).map(from_hex).transpose()?;
        let recorded = known.clone().filter(|_| !spec.refresh_schema);
        let schema_is_new = recorded.is_none();
        let (recorded, _) = recorded.unzip();
        let table = OpenTable::new(table, snapshot);
        let (files, partitions) = table.columns()?;
        let schema = spec.schema.clone().or(recorded).or(Some(files));
        let twice = |field: &&FieldRef| schema.as_ref().is_some_and(|s| s.field_with_name(field.name()).is_ok());
        if let Some(field) = partitions.iter().find(twice) {
            let what = format!("the table is partitioned by `{}` now, which was a column of its files", field.name());
            return Err(Error::refused(what)
                .at(lake.root())
                .safe("nothing was read or written")
                .way("take the columns as they are now: run with --refresh-schema"));
        }
        let source = Source {
            name: spec.name.as_str().into(),
            lake,
            policy: spec.policy,
            listing,
            schema_changed: known.is_some_and(|(known, _)| schema.as_ref().is_some_and(|schema| **schema != *known)),
            schema,
            schema_is_new,
            partitions,
            format: table.table.kind().to_owned(),
            native: None,
            opened_as: SourceFormat::Parquet,
            given_values: None,
            table: Some(table),
            in_rows: spec.rows.is_some(),
            plan: Mutex::new(Arc::new(SourcePlan::default())),
            scanned: Mutex::default(),
        };
        if planned {
            source.set_plan(source.plan_against(&view.live).await?);
        }
        lock(&self.shared.seconds).plan += began.elapsed().as_secs_f64();
        Ok(self.insert(source))
    }

    /// Adds a table of another kind as the tracked source `name`, and plans it against the store.
    pub(crate) async fn add_wrapped(
        &self,
        name: &str,
        provider: &Arc<dyn TableProvider>,
        state: &SessionState,
        policy: SourcePolicy,
    ) -> Result<Arc<Source>> {
        self.check_new(name)?;
        let view = self.view().await?;
        let known = view.head.as_ref().and_then(|head| head.manifest.sources.get(name));
        let began = Instant::now();
        let wrapped = take_apart(name, provider, state, known.map(|settings| &settings.root)).await?;
        check_apart(name, &wrapped.lake, &self.shared.store)?;
        lock(&self.shared.seconds).list += began.elapsed().as_secs_f64();
        let began = Instant::now();
        let plan = plan_source(name, &wrapped.lake, &wrapped.listing, &view.live, policy).await?;
        lock(&self.shared.seconds).plan += began.elapsed().as_secs_f64();
        Ok(self.insert(Source {
            name: name.into(),
            lake: wrapped.lake,
            policy,
            listing: wrapped.listing,
            schema: Some(wrapped.schema),
            schema_is_new: false,
            schema_changed: false,
            partitions: wrapped.partitions,
            format: wrapped.format,
            opened_as: SourceFormat::Parquet,
            native: wrapped.native,
            given_values: Some(wrapped.values),
            table: None,
            in_rows: false,
            plan: Mutex::new(Arc::new(plan)),
            scanned: Mutex::default(),
        }))
    }

    fn check_new(&self, name: &str) -> Result<()> {
        if lock(&self.shared.sources).contains_key(name) || lock(&self.shared.rows).contains_key(name) {
            return Err(Error::invalid(format!("source `{name}` is given twice")));
        }
        Ok(())
    }

    fn insert(&self, source: Source) -> Arc<Source> {
        let source = Arc::new(source);
        lock(&self.shared.sources).insert(source.name.to_string(), Arc::clone(&source));
        source
    }

    /// Plans every source again against `view`, from the listings that were taken; of tables from a new snapshot, since the
    /// view can be of a newer one than that which was taken.
    pub(crate) async fn replan(&self, mut view: View) -> Result<()> {
        for source in self.row_sources() {
            source.set_known(self.shared.store.keys_of(&mut view, &source.name).await?);
        }
        for source in self.sources() {
            if let Some(table) = &source.table {
                table.look_again().await?;
            }
            source.set_plan(source.plan_against(&view.live).await?);
        }
        self.set_view(view).await;
        Ok(())
    }

    pub(crate) fn sources(&self) -> Vec<Arc<Source>> {
        lock(&self.shared.sources).values().cloned().collect()
    }

    /// What is fixed for each source when it is first used, by name.
    pub fn settings(&self) -> BTreeMap<String, SourceSettings> {
        let files = self.sources();
        let files = files.iter().map(|source| (source.name.to_string(), source.settings()));
        let rows = self.row_sources();
        files.chain(rows.iter().map(|source| (source.name.to_string(), source.settings()))).collect()
    }

    pub(crate) fn row_sources(&self) -> Vec<Arc<RowSource>> {
        lock(&self.shared.rows).values().cloned().collect()
    }

    /// Adds a source in rows mode, with rows of `schema`; its keys are read.
    pub(crate) async fn add_rows(
        &self,
        name: &str,
        root: &Root,
        format: &str,
        schema: &Schema,
        keys: &RowKeys,
    ) -> Result<Arc<RowSource>> {
        let spec = keys.spec(schema).map_err(|error| error.at(format!("source `{name}`, {root}")))?;
        self.view().await?;
        let mut guard = self.shared.view.lock().await;
        let mut view = guard.take().map(Arc::unwrap_or_clone).unwrap_or_default();
        if let Some(head) = &view.head {
            let settings = SourceSettings::rows(root.clone(), format, spec.clone());
            if let Err(refused) = lakemark::store::check_source(&head.manifest, name, &settings) {
                *guard = Some(Arc::new(view));
                return Err(refused);
            }
        }
        let began = Instant::now();
        let known = self.shared.store.keys_of(&mut view, name).await;
        *guard = Some(Arc::new(view));
        drop(guard);
        lock(&self.shared.seconds).open += began.elapsed().as_secs_f64();
        let source = RowSource::new(name.into(), root.clone(), format.to_owned(), spec, keys.on_duplicate, known?);
        let source = Arc::new(source);
        lock(&self.shared.rows).insert(name.to_owned(), Arc::clone(&source));
        Ok(source)
    }

    /// Adds a table of any kind in rows mode, without a table for a query.
    ///
    /// # Errors
    /// As [`LakemarkExt::register_rows`](crate::LakemarkExt::register_rows).
    pub async fn add_table_by_rows(&self, spec: &RowsSpec) -> Result<()> {
        self.add_keyed(spec).await.map(drop)
    }

    /// Adds a table of any kind in rows mode.
    pub(crate) async fn add_keyed(&self, spec: &RowsSpec) -> Result<Arc<RowSource>> {
        self.check_new(&spec.name)?;
        self.add_rows(&spec.name, &spec.root, &spec.format, &spec.provider.schema(), &spec.keys).await
    }
}

/// The folder of a table holds files that are not in the table any more, and metadata: as a folder of files, rows would be
/// read that it does not have.
fn check_no_table(name: &str, lake: &Lake, listing: &Listing) -> Result<()> {
    let is_metadata = |path: &str| path.starts_with("metadata/") && path.ends_with(".metadata.json");
    let format = match listing {
        _ if !matches!(lake.select(), Select::All) => return Ok(()),
        listing if listing.has_delta_log => "delta",
        listing if listing.files.iter().any(|file| is_metadata(&file.path)) => "iceberg",
        _ => return Ok(()),
    };
    Err(Error::refused(format!("source `{name}` is the folder of a table, and is to be read as a folder of files"))
        .at(lake.root())
        .safe("nothing was read or written: files that have left the table would be read with it")
        .way(format!("read the table: format = \"{format}\""))
        .way("read files of it, also those that have left it: select them by a glob in the source's `url`"))
}

/// R41: a store inside a source would be taken for input, and the reverse.
fn check_apart(name: &str, lake: &Lake, store: &ObjectCheckpointStore) -> Result<()> {
    let (source, store) = (lake.root().resolved(), store.root().resolved());
    if source.contains(&store) || store.contains(&source) {
        return Err(Error::refused(format!("the store {store} and source `{name}` ({source}) lie one in the other"))
            .safe("nothing was read or written")
            .way("put the store outside the source, for example `store = \"<sink url>.lakemark/store\"`"));
    }
    Ok(())
}

/// The schema of the first file by path that can be read: one footer.
pub(crate) async fn first_schema(lake: &Lake, listing: &Listing) -> Result<Option<SchemaRef>> {
    let mut last = None;
    for file in listing.files.iter().filter(|file| file.size >= 12) {
        match lake.footer(file).await? {
            FooterRead::Read(footer) => match file_schema(&footer) {
                Ok(schema) => return Ok(Some(Arc::new(schema))),
                Err(why) => last = Some(format!("{}: {why}", file.path)),
            },
            FooterRead::Unusable(why) => last = Some(format!("{}: {why}", file.path)),
            FooterRead::Changed | FooterRead::Vanished => {}
        }
    }
    match last {
        None => Ok(None),
        Some(why) => {
            Err(Error::new(ErrorKind::Invalid, format!("no file can be read as Parquet; the last one tried: {why}"))
                .at(lake.root())
                .safe("nothing was changed")
                .way("check the source's `url` and `format`"))
        }
    }
}
