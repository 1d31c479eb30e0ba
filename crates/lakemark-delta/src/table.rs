//! The table: what the driver of commits asks, answered from the log.

use std::sync::Arc;

use arrow_schema::{DataType, Schema};
use async_trait::async_trait;
use lakemark::disk::{Disk, RealDisk};
use lakemark::{
    Attempted, Bucket, Error, ErrorKind, FilesAt, History, KnownFile, Noted, OutputFile, Result, Root, SchemaMode,
    StorageOptions, StoreId, Table, TableCommit, TableState, VOID,
};
use object_store::{ObjectStore, PutMode};
use parquet::file::metadata::ParquetMetaData;
use serde_json::Value;

use crate::entry::{self, APPLICATION, NewTable, Shape};
use crate::kernel::DeltaBase;
use crate::place::{Place, entry_path};
use crate::protocol::Demands;
use crate::schema::DeltaTypes;
use crate::{KIND, history, schema, statistics};

/// A Delta table. Clones share what is known of the files that were written, and nothing else.
#[derive(Debug, Clone)]
pub struct DeltaTable {
    place: Place,
    partition_by: Vec<String>,
    schema_mode: SchemaMode,
    /// The rows to write, in types that Delta has.
    rows: Option<Arc<Schema>>,
    /// The statistics of the files that wait.
    noted: Arc<Noted<String>>,
}

impl DeltaTable {
    /// The table at `url`, reached with `options`. Nothing is asked of it yet.
    ///
    /// # Errors
    /// As [`Root::parse`] and [`Bucket::connect`].
    pub fn connect(url: &str, options: &StorageOptions) -> Result<Self> {
        let root = Root::parse(url)?;
        if root.is_local() {
            return Self::on_disk(root, Arc::new(RealDisk));
        }
        let bucket = Bucket::connect(&root, options)?;
        Self::in_bucket(root, &bucket)
    }

    /// The table in the folder `root` of `disk`.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for what is no folder of a disk.
    pub fn on_disk(root: Root, disk: Arc<dyn Disk>) -> Result<Self> {
        Ok(Self::at(Place::on_disk(root, disk)?))
    }

    /// The table below the prefix of `root` in `bucket`.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for a prefix that cannot be a key.
    pub fn in_bucket(root: Root, bucket: &Bucket) -> Result<Self> {
        Ok(Self::at(Place::in_bucket(root, bucket)?))
    }

    fn at(place: Place) -> Self {
        Self { place, partition_by: Vec::new(), schema_mode: SchemaMode::default(), rows: None, noted: Arc::default() }
    }

    /// The same table, to be made of rows of `schema`, in types that Delta has.
    #[must_use]
    pub fn with_rows(mut self, schema: &Schema) -> Self {
        self.rows = Some(Arc::new(schema.clone()));
        self
    }

    /// The same table, with columns of the rows that it lacks added or refused.
    #[must_use]
    pub fn with_schema_mode(mut self, mode: SchemaMode) -> Self {
        self.schema_mode = mode;
        self
    }

    /// What the table is made of: as it is, or as it is to be.
    fn shape(&self, base: Option<&DeltaBase>) -> Result<Shape> {
        if let Some(base) = base {
            let metadata = base.snapshot().table_configuration().metadata();
            let schema = self.parsed_schema(metadata.schema_string())?;
            return Ok(Shape { schema, partition_by: metadata.partition_columns().to_vec() });
        }
        let rows = self.rows.as_ref().ok_or_else(|| {
            Error::new(ErrorKind::Refused, "there is no table, and the rows that it would be made of are not known")
                .at(&self.place.root)
                .safe("nothing was written")
                .way("run the job, which makes it")
        })?;
        Ok(Shape { schema: schema::to_delta(rows), partition_by: self.partition_by.clone() })
    }

    /// What `base`, or the table to be, is made of once `files` are in it, and their statistics. A table that is there stays
    /// as it is, or gets the columns that it lacks where these may be added: what it gets is told by the files alone, or
    /// also by the rows, if it is `to_fit` these too.
    async fn appended(
        &self,
        base: Option<&DeltaBase>,
        files: &[OutputFile],
        to_fit: bool,
    ) -> Result<(Shape, Vec<String>)> {
        let mut shape = self.shape(base)?;
        if let (Some(base), Some(rows), true) = (base, &self.rows, to_fit) {
            let rows = schema::to_delta(rows);
            self.check_writable(base, &shape, &rows)?;
            shape.schema =
                schema::appended(&rows, &shape.schema, self.schema_mode).map_err(|e| e.at(&self.place.root))?;
        }
        let at = FilesAt { root: &self.place.root, objects: &*self.place.objects };
        let known = self.noted.of(at, files, statistics::of_file).await?;
        for alike in known.chunk_by(KnownFile::is_alike) {
            let file = &alike[0];
            let columns = schema::to_delta(&file.columns);
            if let Some(base) = base {
                self.check_writable(base, &shape, &columns)?;
            }
            let mode = file.schema_mode.or(self.schema_mode);
            shape.schema = schema::appended(&columns, &shape.schema, mode).map_err(|e| e.at(&file.place))?;
        }
        Ok((shape, known.into_iter().map(|file| file.facts).collect()))
    }

    /// Checks that this version of lakemark may write rows of `columns` to `base`, which is of `shape`.
    fn check_writable(&self, base: &DeltaBase, shape: &Shape, columns: &Value) -> Result<()> {
        let configuration = base.snapshot().table_configuration();
        let (protocol, metadata) = (configuration.protocol(), configuration.metadata());
        let features: Vec<String> =
            protocol.writer_features().unwrap_or_default().iter().map(ToString::to_string).collect();
        let demands = Demands {
            reader_version: protocol.min_reader_version(),
            writer_version: protocol.min_writer_version(),
            writer_features: &features,
            configuration: metadata.configuration(),
            schema: &shape.schema,
        };
        demands.check(schema::has_timestamp_ntz(columns)).map_err(|error| error.at(&self.place.root))
    }

    /// The lines of an entry by which `base` gets `schema`: none if it has it.
    fn changes(&self, base: &DeltaBase, schema: &Value) -> Result<Vec<Value>> {
        let metadata = base.snapshot().table_configuration().metadata();
        if self.parsed_schema(metadata.schema_string())? == *schema {
            return Ok(Vec::new());
        }
        // An entry replaces all of it: the rest is as it was.
        let Ok(Value::Object(mut whole)) = serde_json::to_value(metadata) else {
            return Err(Error::new(ErrorKind::Corrupt, "the metadata of the table cannot be written again")
                .at(&self.place.root)
                .safe("nothing was written to the table"));
        };
        whole.retain(|_, value| !value.is_null());
        whole.insert("schemaString".to_owned(), schema.to_string().into());
        Ok(vec![serde_json::json!({ "metaData": whole })])
    }

    fn parsed_schema(&self, text: &str) -> Result<Value> {
        serde_json::from_str(text).map_err(|e| {
            Error::new(ErrorKind::Corrupt, "the schema of the table is no JSON")
                .at(&self.place.root)
                .safe("nothing was changed")
                .way("mend the table with its own tools")
                .caused_by(e)
        })
    }

    /// Whether the entry of `version`, which was just created on `base`, is the end of the log. It is not where somebody
    /// else went on, and where the log it was created in is not the one that was looked at: a clean-up frees the names of
    /// old entries, and a table that was dropped those of all.
    async fn is_newest(&self, base: Option<&DeltaBase>, version: u64) -> Result<bool> {
        let versions = self.place.versions_from(base.map_or(version, DeltaBase::version)).await?;
        let follows = base.is_none_or(|base| versions.contains(&base.version()));
        Ok(follows && versions.iter().all(|other| *other <= version))
    }

    fn indeterminate(&self, what: &str) -> Error {
        Error::new(ErrorKind::Indeterminate, what)
            .at(&self.place.root)
            .safe("the files of the commit wait; none of them is deleted")
            .way("run again: whether it landed is looked up first")
    }
}

/// Whether Delta has a text form for a partition value of this type.
fn can_partition(of: &DataType) -> bool {
    !matches!(of, DataType::List(_) | DataType::Struct(_) | DataType::Map(..) | DataType::Binary)
}

#[async_trait]
impl Table for DeltaTable {
    type Base = DeltaBase;

    fn kind(&self) -> &str {
        KIND
    }

    fn root(&self) -> &Root {
        &self.place.root
    }

    fn partition_by(&self) -> &[String] {
        &self.partition_by
    }

    fn partitioned(&self, columns: &[String]) -> Self {
        Self { partition_by: columns.to_vec(), ..self.clone() }
    }

    fn schema_mode(&self) -> SchemaMode {
        self.schema_mode
    }

    fn storable(&self, schema: &Schema) -> Result<Schema> {
        let storable = lakemark::storable(&DeltaTypes, schema)?;
        for column in &self.partition_by {
            let Ok(field) = storable.field_with_name(column) else { continue };
            if !can_partition(field.data_type()) {
                let what =
                    format!("`partition_by` names `{column}`, and a Delta table cannot be partitioned by its type");
                return Err(Error::invalid(format!("{what}, {}", field.data_type()))
                    .safe("nothing was read or written")
                    .way("take it out of `partition_by`")
                    .way(format!("cast it in the query, for example arrow_cast({column}, 'Utf8')")));
            }
        }
        Ok(storable)
    }

    async fn of_rows(&self, schema: &Schema) -> Result<Self> {
        Ok(self.clone().with_rows(schema))
    }

    fn check_fits(&self, base: &DeltaBase) -> Result<()> {
        let shape = self.shape(Some(base))?;
        let Some(rows) = &self.rows else { return self.check_writable(base, &shape, &Value::Null) };
        let here = |error: Error| error.at(&self.place.root);
        let rows = schema::to_delta(rows);
        self.check_writable(base, &shape, &rows)?;
        schema::appended(&rows, &shape.schema, self.schema_mode).map_err(here)?;
        if shape.partition_by != self.partition_by {
            let named = |columns: &[String]| format!("({})", columns.join(", "));
            return Err(here(
                Error::refused(format!(
                    "the table is partitioned by {}, and the job by {}",
                    named(&shape.partition_by),
                    named(&self.partition_by)
                ))
                .safe("nothing was written to the table")
                .way("set `partition_by` to the columns of the table, in their order")
                .way("write to another table"),
            ));
        }
        Ok(())
    }

    async fn check_files(&self, base: Option<&DeltaBase>, files: &[OutputFile]) -> Result<()> {
        if files.is_empty() {
            return Ok(());
        }
        self.appended(base, files, true).await.map(drop)
    }

    fn can_remove(&self) -> bool {
        true
    }

    async fn check_removable(&self, base: Option<&DeltaBase>, files: &[OutputFile]) -> Result<()> {
        let refuse = |what: String| {
            Error::refused(what)
                .at(&self.place.root)
                .safe("nothing was written to the table")
                .way("keep the old rows, from now on too: --on-change reprocess and --on-delete keep")
                .way(
                    "begin anew: take all rows out of the table with its own tools, then lakemark reopen --table JOB, which \
                     does everything again, and run",
                )
        };
        let Some(base) = base else { return Err(refuse("there is no table to take old output out of".into())) };
        let configuration = base.snapshot().table_configuration().metadata().configuration();
        if configuration.get("delta.appendOnly").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Err(refuse("old output is to leave, and the table is append-only (delta.appendOnly)".into()));
        }
        let paths: Vec<String> = files.iter().map(OutputFile::path).collect();
        let gone = base.not_whole(&paths).await?;
        match gone.iter().min() {
            None => Ok(()),
            Some(path) => Err(refuse(format!(
                "{} of the {} files of old output are not in the table any more as they were written, `{path}` among them: \
                 others compacted or changed it, so old rows cannot be told from new ones",
                gone.len(),
                paths.len()
            ))),
        }
    }

    fn wrote(&self, output: &OutputFile, metadata: &ParquetMetaData) {
        self.noted.note(&output.name, metadata, statistics::of_file(metadata));
    }

    async fn load(&self) -> Result<Option<DeltaBase>> {
        DeltaBase::newest(&self.place).await
    }

    fn state(&self, base: &DeltaBase) -> TableState {
        let metadata = base.snapshot().table_configuration().metadata();
        let schema = Shape::digest(metadata.schema_string(), metadata.partition_columns());
        TableState { id: metadata.id().to_owned(), version: base.version(), schema, last: None }
    }

    async fn last_marker(&self, base: &DeltaBase, store: StoreId) -> Result<Option<u64>> {
        base.last_transaction(format!("{APPLICATION}{store}")).await
    }

    async fn other_store(&self, base: &DeltaBase, store: Option<StoreId>) -> Result<Option<StoreId>> {
        history::other_store(&self.place, base.version(), store).await
    }

    async fn history(&self, base: &DeltaBase, since: Option<u64>, store: StoreId) -> Result<History> {
        let mut history = history::history(&self.place, since, base.version(), store).await?;
        if !history.markers.is_empty() {
            self.place.settle().await?;
            history::leave_out_strays(&mut history, self.last_marker(base, store).await?);
        }
        Ok(history)
    }

    async fn live(&self, base: &DeltaBase, paths: &[String]) -> Result<usize> {
        let live = base.live(paths).await?;
        if live > 0 {
            self.place.settle().await?;
        }
        Ok(live)
    }

    async fn is_empty(&self, base: &DeltaBase) -> Result<bool> {
        base.is_empty().await
    }

    async fn append(&self, base: Option<&DeltaBase>, commit: &TableCommit<'_>) -> Result<Attempted> {
        let (shape, statistics) = self.appended(base, commit.files, false).await?;
        if let Some(base) = base.filter(|_| commit.digest != VOID) {
            self.check_writable(base, &shape, &Value::Null)?;
        }
        let now = lakemark::time::now_ms();
        let new = NewTable { id: uuid::Uuid::new_v4().to_string() };
        let makes = match base {
            Some(base) => self.changes(base, &shape.schema)?,
            None => new.lines(&shape, now).to_vec(),
        };
        let on = base.map(DeltaBase::version);
        let text = entry::lines(commit, on, &shape, &makes, &statistics, now)?;
        let version = on.map_or(0, |on| on + 1);
        match self.place.entries.put_opts(&entry_path(version), text.into(), PutMode::Create.into()).await {
            Ok(_) => {}
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                return Ok(Attempted::Conflict);
            }
            Err(error) => {
                let what = "whether the commit landed is not known: the table did not say";
                return Ok(Attempted::Unknown(self.indeterminate(what).caused_by(error)));
            }
        }
        self.noted.forget(commit.files);
        match self.is_newest(base, version).await {
            Ok(true) => {}
            Ok(false) => {
                let what = "whether the commit landed is not known: the log went on, or another one is in its place";
                return Ok(Attempted::Unknown(self.indeterminate(what)));
            }
            Err(error) => {
                let what = "whether the commit landed is not known: the log could not be listed";
                return Ok(Attempted::Unknown(self.indeterminate(what).caused_by(error)));
            }
        }
        let schema = match (base, makes.is_empty()) {
            (Some(base), true) => self.state(base).schema,
            _ => Shape::digest(&shape.schema.to_string(), &shape.partition_by),
        };
        let id = match base {
            Some(base) => {
                base.checkpoint_if_due(version).await;
                self.state(base).id
            }
            None => new.id,
        };
        Ok(Attempted::Landed(TableState { id, version, schema, last: Some(commit.n) }))
    }
}
