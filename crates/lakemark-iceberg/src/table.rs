//! The table: what the driver of commits asks, answered from its catalog and its metadata.

use std::collections::{HashMap, HashSet};
use std::str::FromStr;
use std::sync::Arc;

use arrow_schema::Schema as ArrowSchema;
use async_trait::async_trait;
use iceberg::spec::{DataFile, FormatVersion, ManifestContentType, ManifestFile, NestedFieldRef, Transform};
use iceberg::table::Table as Loaded;
use iceberg::transaction::{AddColumn, ApplyTransactionAction, Transaction};
use iceberg::{Catalog, MetadataLocation, TableCreation, TableIdent};
use lakemark::disk::Disk;
use lakemark::{
    Attempted, Bucket, Error, ErrorKind, FilesAt, History, KnownFile, Noted, OutputFile, Result, Root, SchemaMode,
    StorageOptions, StoreId, Table, TableCommit, TableState, VOID,
};
use parquet::file::metadata::ParquetMetaData;

use crate::KIND;
use crate::appended::{Appended, Shape};
use crate::catalog::{CatalogOptions, Pinned, Registry};
use crate::facts::Facts;
use crate::history::{self, COMMIT, DIGEST, PROPERTY, STORE};
use crate::place::{DATA, Place};
use crate::schema::{self, IcebergTypes};

/// An Iceberg table. Clones share what is known of the files that were written, the open catalog, and nothing else.
#[derive(Debug, Clone)]
pub struct IcebergTable {
    pub(crate) place: Place,
    pub(crate) registry: Registry,
    partition_by: Vec<String>,
    schema_mode: SchemaMode,
    /// The rows to write, in types that Iceberg has, by the ids that the table has for them or will get.
    rows: Option<Arc<ArrowSchema>>,
    noted: Arc<Noted<Facts>>,
}

/// A table as its catalog showed it.
#[derive(Debug)]
pub struct IcebergBase(pub(crate) Loaded);

impl IcebergTable {
    /// The table at `url`, reached with `options`, and registered in `catalog`. Nothing is asked of it yet.
    ///
    /// # Errors
    /// As [`Root::parse`] and [`Bucket::connect`]; [`Unsupported`](ErrorKind::Unsupported) on Azure.
    pub fn connect(url: &str, options: &StorageOptions, catalog: CatalogOptions) -> Result<Self> {
        Ok(Self::at(Place::connect(url, options)?, Registry::new(catalog)))
    }

    /// The table `table` at `url`, reached with `options`, and registered in `catalog`, which has to reach
    /// the metadata by itself: through [`storage`](crate::storage), it is as durable as the rest.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn in_catalog(
        url: &str,
        options: &StorageOptions,
        catalog: Arc<dyn Catalog>,
        table: TableIdent,
    ) -> Result<Self> {
        Ok(Self::at(Place::connect(url, options)?, Registry::of(catalog, table)))
    }

    /// The table in the folder `root` of `disk`.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for what is no folder of a disk.
    pub fn on_disk(root: Root, disk: Arc<dyn Disk>, catalog: CatalogOptions) -> Result<Self> {
        Ok(Self::at(Place::on_disk(root, disk)?, Registry::new(catalog)))
    }

    /// The table below the prefix of `root` in `bucket`.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for a prefix that cannot be a key; [`Unsupported`](ErrorKind::Unsupported) on Azure.
    pub fn in_bucket(root: Root, bucket: &Bucket, catalog: CatalogOptions) -> Result<Self> {
        Ok(Self::at(Place::in_bucket(root, bucket)?, Registry::new(catalog)))
    }

    fn at(place: Place, registry: Registry) -> Self {
        let schema_mode = SchemaMode::default();
        Self { place, registry, partition_by: Vec::new(), schema_mode, rows: None, noted: Arc::default() }
    }

    /// The same table, with columns of the rows that it lacks added or refused.
    #[must_use]
    pub fn with_schema_mode(mut self, mode: SchemaMode) -> Self {
        self.schema_mode = mode;
        self
    }

    pub(crate) fn here(&self, error: Error) -> Error {
        error.at(&self.place.root)
    }

    pub(crate) fn unavailable(&self, what: &str, error: iceberg::Error) -> Error {
        self.here(Error::new(ErrorKind::Unavailable, what))
            .safe("nothing was changed")
            .way("run again when the catalog and the table can be reached")
            .caused_by(error)
    }

    fn indeterminate(&self, what: &str) -> Error {
        self.here(Error::new(ErrorKind::Indeterminate, what))
            .safe("the files of the commit wait; none of them is deleted")
            .way("run again: whether it landed is looked up first")
    }

    /// The table in `catalog`, as it is now.
    async fn look_up(&self, catalog: &dyn Catalog) -> Result<Option<Loaded>> {
        use iceberg::ErrorKind::{DataInvalid, NamespaceNotFound, TableNotFound};
        match catalog.load_table(&self.registry.table).await {
            Ok(table) => Ok(Some(table)),
            Err(error) if matches!(error.kind(), TableNotFound | NamespaceNotFound) => Ok(None),
            Err(error) if error.kind() == DataInvalid => Err(self
                .here(Error::new(
                    ErrorKind::Corrupt,
                    format!("the metadata of the table {} is damaged", self.registry.table),
                ))
                .safe("nothing was changed")
                .way("mend the table with its own tools")
                .caused_by(error)),
            Err(error) => Err(self.unavailable("the table cannot be loaded from its catalog", error)),
        }
    }

    fn rows(&self) -> Result<&Arc<ArrowSchema>> {
        self.rows.as_ref().ok_or_else(|| {
            self.here(Error::refused("there is no table, and the rows that it would be made of are not known"))
                .safe("nothing was written")
                .way("run the job, which makes it")
        })
    }

    /// The columns that a table of `shape` gets with `files`, and what is to be known of these. What it gets is told by the
    /// files alone, or also by the rows, if it is `to_fit` these too.
    async fn appended(
        &self,
        shape: &Shape,
        files: &[OutputFile],
        to_fit: bool,
    ) -> Result<(Vec<NestedFieldRef>, Vec<Facts>)> {
        let mut appended = Appended::to(shape);
        if let (Some(rows), true) = (&self.rows, to_fit) {
            appended.take(rows, self.schema_mode, &self.place.root.to_string())?;
        }
        let at = FilesAt { root: &self.place.root.join(DATA), objects: &*self.place.files };
        let known = self.noted.of(at, files, Facts::of_file).await?;
        for alike in known.chunk_by(KnownFile::is_alike) {
            let file = &alike[0];
            appended.take(&file.columns, file.schema_mode.or(self.schema_mode), &file.place)?;
        }
        Ok((appended.columns()?, known.into_iter().map(|file| file.facts).collect()))
    }

    /// Checks that this version of lakemark may write to `base`.
    fn check_writable(&self, base: &Loaded) -> Result<()> {
        let metadata = base.metadata();
        if !self.place.is_at(metadata.location()) {
            return Err(self
                .here(Error::refused(format!("the table {} is at {}", self.registry.table, metadata.location())))
                .safe("nothing was written to the table")
                .way(format!("set sink.url to {}", metadata.location()))
                .way("set sink.catalog.table to the table that is here, or to a new one"));
        }
        if metadata.format_version() != FormatVersion::V2 {
            let what = format!("the table has format version {}", metadata.format_version() as u8);
            return Err(self
                .here(Error::new(ErrorKind::Unsupported, format!("{what}, and this version of lakemark writes 2")))
                .safe("nothing was written to the table")
                .way("write to a table of format version 2, or to a new one"));
        }
        if let Some(location) = base.metadata_location().filter(|at| MetadataLocation::from_str(at).is_err()) {
            return Err(self
                .here(Error::new(
                    ErrorKind::Unsupported,
                    format!("the metadata of the table is in {location}, a name that cannot be counted on from"),
                ))
                .safe("nothing was written to the table")
                .way("let another tool commit to it once: it names the next one in the catalogs' way"));
        }
        if let Some(field) =
            metadata.default_partition_spec().fields().iter().find(|field| field.transform != Transform::Identity)
        {
            return Err(self
                .here(Error::new(
                    ErrorKind::Unsupported,
                    format!(
                        "the table is partitioned by {}({}), and lakemark by values as they are",
                        field.transform, field.name
                    ),
                ))
                .safe("nothing was written to the table")
                .way("write to a table with other partitions, or to a new one"));
        }
        Ok(())
    }

    /// The name of a data file in the metadata.
    fn name_of(&self, path: &str) -> String {
        format!("{}/{DATA}/{path}", self.place.location)
    }

    /// Makes the empty table.
    async fn create(&self, catalog: &dyn Catalog) -> Result<Created> {
        let schema = schema::new_schema(self.rows()?)?;
        let spec = schema::identity_spec(&schema, &self.partition_by)?;
        let creation = TableCreation::builder()
            .name(self.registry.table.name().to_owned())
            .location(self.place.location.clone())
            .schema(schema)
            .partition_spec(spec)
            .format_version(FormatVersion::V2)
            .build();
        let namespace = self.registry.table.namespace();
        let is_known = async || {
            let known = catalog.namespace_exists(namespace).await;
            known.map_err(|e| self.unavailable("the catalog does not tell its namespaces", e))
        };
        // Others may make it at the same time, which not every catalog tells from a fault.
        if !is_known().await?
            && let Err(error) = catalog.create_namespace(namespace, HashMap::new()).await
            && !is_known().await?
        {
            return Err(self.unavailable("the namespace of the table cannot be made", error));
        }
        match catalog.create_table(namespace, creation).await {
            Ok(table) => Ok(Created::Made(Box::new(table))),
            Err(error) if error.kind() == iceberg::ErrorKind::TableAlreadyExists => Ok(Created::Overtaken),
            Err(error) => {
                let what = "whether the table was made is not known: its catalog did not say";
                Ok(Created::Unknown(self.indeterminate(what).caused_by(error)))
            }
        }
    }
}

enum Created {
    Made(Box<Loaded>),
    Overtaken,
    Unknown(Error),
}

/// The manifests of data in the current snapshot.
async fn manifests(base: &Loaded) -> iceberg::Result<Vec<ManifestFile>> {
    let Some(snapshot) = base.metadata().current_snapshot() else { return Ok(Vec::new()) };
    let list = base.manifest_list_reader(snapshot).load().await?;
    Ok(list.consume_entries().into_iter().filter(|manifest| manifest.content == ManifestContentType::Data).collect())
}

#[async_trait]
impl Table for IcebergTable {
    type Base = IcebergBase;

    fn kind(&self) -> &str {
        KIND
    }

    fn root(&self) -> &Root {
        &self.place.root
    }

    fn name(&self) -> String {
        format!("{}, {:?}", self.place.location, self.registry)
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

    fn storable(&self, schema: &ArrowSchema) -> Result<ArrowSchema> {
        let storable = lakemark::storable(&IcebergTypes, schema)?;
        for column in &self.partition_by {
            let Ok(field) = storable.field_with_name(column) else { continue };
            if !schema::can_partition(field.data_type()) {
                let what = format!(
                    "`partition_by` names `{column}`, and lakemark does not partition an Iceberg table by its type, {}",
                    field.data_type()
                );
                return Err(Error::invalid(what)
                    .safe("nothing was read or written")
                    .way("take it out of `partition_by`")
                    .way(format!("cast it in the query, for example arrow_cast({column}, 'Utf8')")));
            }
        }
        match &self.rows {
            Some(rows) if schema::without_ids(rows) == storable => Ok(rows.as_ref().clone()),
            _ => Ok(storable),
        }
    }

    async fn of_rows(&self, schema: &ArrowSchema) -> Result<Self> {
        let rows = schema::without_ids(schema);
        let rows = match self.load().await? {
            Some(base) => {
                let metadata = base.0.metadata();
                let known = schema::with_ids(&rows, metadata.current_schema());
                match self.schema_mode {
                    SchemaMode::Fail => known,
                    SchemaMode::Merge => schema::with_new_ids(&known, metadata.last_column_id()),
                }
            }
            None => schema::with_ids(&rows, &schema::new_schema(&rows)?),
        };
        Ok(Self { rows: Some(Arc::new(rows)), ..self.clone() })
    }

    fn has_empty_partition(&self) -> bool {
        true
    }

    fn check_fits(&self, base: &IcebergBase) -> Result<()> {
        self.check_writable(&base.0)?;
        let Some(rows) = &self.rows else { return Ok(()) };
        let shape = Shape::of_table(base.0.metadata());
        if shape.partition_by != self.partition_by {
            let named = |columns: &[String]| format!("({})", columns.join(", "));
            let (theirs, ours) = (named(&shape.partition_by), named(&self.partition_by));
            return Err(self
                .here(Error::refused(format!("the table is partitioned by {theirs}, and the job by {ours}")))
                .safe("nothing was written to the table")
                .way("set `partition_by` to the columns of the table, in their order")
                .way("write to another table"));
        }
        let mut appended = Appended::to(&shape);
        appended.take(rows, self.schema_mode, &self.place.root.to_string())?;
        appended.columns().map(drop)
    }

    async fn check_files(&self, base: Option<&IcebergBase>, files: &[OutputFile]) -> Result<()> {
        if files.is_empty() {
            return Ok(());
        }
        let shape = match base {
            Some(base) => Shape::of_table(base.0.metadata()),
            None => Shape::of_rows(self.rows()?, &self.partition_by)?,
        };
        self.appended(&shape, files, base.is_some()).await.map(drop)
    }

    fn wrote(&self, output: &OutputFile, metadata: &ParquetMetaData) {
        self.noted.note(&output.name, metadata, Facts::of_file(metadata));
    }

    async fn load(&self) -> Result<Option<IcebergBase>> {
        let Some(catalog) = self.registry.catalog(&self.place, false).await? else { return Ok(None) };
        let table = self.look_up(&*catalog).await?;
        if table.is_none() {
            self.registry.check_nowhere_else(&self.place).await?;
        }
        Ok(table.map(IcebergBase))
    }

    fn state(&self, base: &IcebergBase) -> TableState {
        let metadata = base.0.metadata();
        let shape = (metadata.current_schema().as_struct(), metadata.default_partition_spec().fields());
        let text = serde_json::to_vec(&shape).unwrap_or_default();
        let schema = format!("{:032x}", xxhash_rust::xxh3::xxh3_128(&text));
        TableState { id: metadata.uuid().to_string(), version: history::version(metadata), schema, last: None }
    }

    async fn last_marker(&self, base: &IcebergBase, store: StoreId) -> Result<Option<u64>> {
        Ok(history::last(base.0.metadata(), store).map(|(n, _)| n))
    }

    async fn other_store(&self, base: &IcebergBase, store: Option<StoreId>) -> Result<Option<StoreId>> {
        Ok(history::other_store(base.0.metadata(), store))
    }

    async fn history(&self, base: &IcebergBase, since: Option<u64>, store: StoreId) -> Result<History> {
        Ok(history::history(base.0.metadata(), since, store))
    }

    async fn live(&self, base: &IcebergBase, paths: &[String]) -> Result<usize> {
        let failed = |e| self.unavailable("the manifests of the table cannot be read", e);
        let mut wanted: HashSet<&str> = paths.iter().map(String::as_str).collect();
        let data = format!("{DATA}/");
        for manifest in manifests(&base.0).await.map_err(failed)? {
            // One at a time: a table can have any number of them.
            let manifest = manifest.load_manifest(base.0.file_io()).await.map_err(failed)?;
            for entry in manifest.entries().iter().filter(|entry| entry.is_alive()) {
                if let Some(path) = self.place.relative(entry.file_path()).and_then(|path| path.strip_prefix(&data)) {
                    wanted.remove(path);
                }
            }
        }
        Ok(paths.len() - wanted.len())
    }

    async fn is_empty(&self, base: &IcebergBase) -> Result<bool> {
        let manifests = manifests(&base.0).await;
        let manifests = manifests.map_err(|e| self.unavailable("the manifests of the table cannot be read", e))?;
        Ok(manifests.iter().all(|manifest| !manifest.has_added_files() && !manifest.has_existing_files()))
    }

    async fn append(&self, base: Option<&IcebergBase>, commit: &TableCommit<'_>) -> Result<Attempted> {
        let catalog = self.registry.catalog(&self.place, true).await?;
        let catalog = catalog.ok_or_else(|| self.indeterminate("the catalog is gone"))?;
        let base = match base {
            Some(base) => base.0.clone(),
            None => match self.create(&*catalog).await? {
                Created::Made(table) => *table,
                Created::Overtaken => return Ok(Attempted::Conflict),
                Created::Unknown(error) => return Ok(Attempted::Unknown(error)),
            },
        };
        if commit.digest != VOID {
            self.check_writable(&base)?;
        }
        let shape = Shape::of_table(base.metadata());
        let (added, facts) = self.appended(&shape, commit.files, false).await?;
        let spec = base.metadata().default_partition_spec();
        let entries = commit.files.iter().zip(facts);
        let entries = entries.map(|(file, facts)| facts.entry(file, self.name_of(&file.path()), &shape.schema, spec));
        let entries = entries.collect::<Result<Vec<DataFile>>>()?;
        let unsent = |e| self.unavailable("the manifests of a commit cannot be written", e);
        let summary = [
            (STORE.to_owned(), commit.store.to_string()),
            (COMMIT.to_owned(), commit.n.to_string()),
            (DIGEST.to_owned(), commit.digest.to_owned()),
            ("engine-name".to_owned(), "lakemark".to_owned()),
            ("engine-version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ];
        let mut transaction = Transaction::new(&base);
        if !added.is_empty() {
            // Before the snapshot, which is then one of the new schema. The crate asserts the schema that this was built on.
            let columns = added.iter().map(|column| AddColumn::optional(&column.name, (*column.field_type).clone()));
            let schema = columns.fold(transaction.update_schema(), |schema, column| schema.add_column(column));
            transaction = schema.apply(transaction).map_err(unsent)?;
        }
        // The names are new, and are looked for by the driver where that is in doubt: not in every manifest at every commit.
        let snapshot = transaction.fast_append().with_check_duplicate(false);
        let snapshot = snapshot.set_snapshot_properties(HashMap::from(summary)).add_data_files(entries);
        let transaction = snapshot.apply(transaction).map_err(unsent)?;
        let property = (format!("{PROPERTY}{}", commit.store), format!("{}:{}", commit.n, commit.digest));
        let properties = transaction.update_table_properties().set(property.0, property.1);
        let transaction = properties.apply(transaction).map_err(unsent)?;
        let pinned = Pinned::new(Arc::clone(&catalog), base);
        let landed = match transaction.commit(&pinned).await {
            Ok(table) => table.metadata().current_snapshot_id(),
            Err(error) if !pinned.was_sent() => return Err(unsent(error)),
            Err(error) if error.kind() == iceberg::ErrorKind::CatalogCommitConflicts => return Ok(Attempted::Conflict),
            Err(error) => {
                let what = "whether the commit landed is not known: the catalog did not say";
                return Ok(Attempted::Unknown(self.indeterminate(what).caused_by(error)));
            }
        };
        // What a catalog says it did is not always what it did: the table is looked at.
        let unknown = |what: &str| format!("whether the commit landed is not known: {what}");
        let now = match self.look_up(&*catalog).await {
            Ok(Some(table)) => IcebergBase(table),
            Ok(None) => {
                return Ok(Attempted::Unknown(self.indeterminate(&unknown("the table is gone"))));
            }
            Err(error) => {
                let what = unknown("the table could not be loaded again");
                return Ok(Attempted::Unknown(self.indeterminate(&what).caused_by(error)));
            }
        };
        let snapshot = history::ancestry(now.0.metadata()).find(|snapshot| Some(snapshot.snapshot_id()) == landed);
        let Some(snapshot) = snapshot else {
            let what = unknown("the catalog said so, and the table does not have it");
            return Ok(Attempted::Unknown(self.indeterminate(&what)));
        };
        let version = snapshot.sequence_number().max(0) as u64;
        self.noted.forget(commit.files);
        Ok(Attempted::Landed(TableState { version, last: Some(commit.n), ..self.state(&now) }))
    }
}
