//! A table as somebody else works on it: snapshots and metadata as other writers of Iceberg make them.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::str::FromStr;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Fields, Schema};
use async_trait::async_trait;
use iceberg::spec::{
    DataContentType, DataFile, DataFileBuilder, DataFileFormat, ManifestListWriter, ManifestWriterBuilder, NestedField,
    Operation, PrimitiveType, Snapshot, SnapshotReference, SnapshotRetention, Summary, TableMetadata,
    TableMetadataBuilder, Type,
};
use iceberg::table::Table;
use iceberg::transaction::{ApplyTransactionAction, Transaction};
use iceberg::{Catalog, CatalogBuilder, MetadataLocation, TableCreation, TableIdent};
use iceberg_catalog_rest::RestCatalogBuilder;
use iceberg_catalog_sql::SqlCatalogBuilder;
use lakemark::{AttemptNonce, SchemaMode, TableSubject};
use lakemark_iceberg::{CatalogOptions, IcebergTable};
use parquet::arrow::{ArrowWriter, PARQUET_FIELD_ID_META_KEY};

use crate::rest::Rest;

/// The rows of the files here: one column, known as 1.
pub fn one_column() -> Arc<Schema> {
    let id = HashMap::from([(PARQUET_FIELD_ID_META_KEY.to_owned(), "1".to_owned())]);
    Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, true).with_metadata(id)]))
}

/// Writes a Parquet file of three of them.
pub fn write_three_rows(file: &mut dyn Write) {
    write(file, one_column().fields(), SchemaMode::Fail);
}

/// Writes one with a column more, which its table may get, and then knows as 2.
pub fn write_a_column_more(file: &mut dyn Write) {
    let id = HashMap::from([(PARQUET_FIELD_ID_META_KEY.to_owned(), "2".to_owned())]);
    let more = Arc::new(Field::new("more", DataType::Int64, true).with_metadata(id));
    write(file, &one_column().fields().iter().cloned().chain([more]).collect(), SchemaMode::Merge);
}

fn write(file: &mut dyn Write, columns: &Fields, mode: SchemaMode) {
    let three = || Arc::new(Int64Array::from(vec![1, 2, 3])) as ArrayRef;
    let schema = Arc::new(Schema::new(columns.clone()));
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns.iter().map(|_| three()).collect()).unwrap();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, schema, None).unwrap();
    writer.write(&batch).unwrap();
    mode.to_footer().into_iter().for_each(|said| writer.append_key_value_metadata(said));
    writer.close().unwrap();
    file.write_all(&bytes).unwrap();
}

/// The settings of the table `lake.docs` in a catalog.
pub fn options(kind: &str, uri: &str) -> CatalogOptions {
    let settings = [("type", kind), ("uri", uri), ("table", "lake.docs")];
    CatalogOptions::parse(&settings.map(|(key, value)| (key.to_owned(), value.to_owned())).into()).unwrap()
}

/// The table `lake.docs`, at a location, in a catalog.
#[derive(Debug)]
pub struct Subject {
    table: IcebergTable,
    pub catalog: Arc<dyn Catalog>,
    location: String,
    /// The server, if the catalog is on one.
    pub rest: Option<Rest>,
}

fn ident() -> TableIdent {
    TableIdent::from_strs(["lake", "docs"]).unwrap()
}

impl Subject {
    /// In the database at `path`, on the disk or in the bucket of `url`.
    pub async fn in_database(table: IcebergTable, url: &str, location: &str, path: &std::path::Path) -> Self {
        let storage = lakemark_iceberg::storage(url, &Default::default()).unwrap();
        let uri = format!("sqlite:{}?mode=rwc", path.display());
        let properties = [("uri", uri.as_str()), ("sql_bind_style", "QMark")];
        let properties = properties.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let catalog = SqlCatalogBuilder::default().with_storage_factory(storage);
        let catalog = Arc::new(catalog.load("default", properties.into()).await.unwrap());
        Self { table, catalog, location: location.to_owned(), rest: None }
    }

    /// In a catalog of this process.
    pub fn in_catalog(table: IcebergTable, catalog: Arc<dyn Catalog>, location: &str) -> Self {
        Self { table, catalog, location: location.to_owned(), rest: None }
    }

    /// On a server.
    pub async fn on_server(table: IcebergTable, url: &str, location: &str, rest: Rest) -> Self {
        let storage = lakemark_iceberg::storage(url, &Default::default()).unwrap();
        let catalog = RestCatalogBuilder::default().with_storage_factory(storage);
        let catalog = catalog.load("default", HashMap::from([("uri".to_owned(), rest.uri.clone())])).await.unwrap();
        Self { table, catalog: Arc::new(catalog), location: location.to_owned(), rest: Some(rest) }
    }

    /// The table as its catalog has it.
    pub async fn loaded(&self) -> Option<Table> {
        match self.catalog.load_table(&ident()).await {
            Ok(table) => Some(table),
            Err(error) => {
                let absent = [iceberg::ErrorKind::TableNotFound, iceberg::ErrorKind::NamespaceNotFound];
                assert!(absent.contains(&error.kind()), "{error}");
                None
            }
        }
    }

    async fn create(&self) -> Table {
        let namespace = ident().namespace().clone();
        if !self.catalog.namespace_exists(&namespace).await.unwrap() {
            self.catalog.create_namespace(&namespace, HashMap::new()).await.unwrap();
        }
        let id = NestedField::optional(1, "id", Type::Primitive(PrimitiveType::Long));
        let schema = iceberg::spec::Schema::builder().with_fields([Arc::new(id)]).build().unwrap();
        let creation =
            TableCreation::builder().name("docs".into()).location(self.location.clone()).schema(schema).build();
        self.catalog.create_table(&namespace, creation).await.unwrap()
    }

    /// Somebody else changes the metadata, in a way that no transaction of the crate can.
    pub async fn change(&self, change: impl FnOnce(TableMetadataBuilder) -> TableMetadataBuilder) {
        let table = self.loaded().await.unwrap();
        let from = table.metadata_location().unwrap().to_owned();
        let builder = table.metadata().clone().into_builder(Some(from.clone()));
        self.swap(&table, &from, change(builder).build().unwrap().metadata).await;
    }

    /// What is left of the snapshots does not say any more where it came from: so does pyiceberg leave it.
    async fn forget_parents(&self) {
        let table = self.loaded().await.unwrap();
        let mut metadata = serde_json::to_value(table.metadata()).unwrap();
        for snapshot in metadata["snapshots"].as_array_mut().unwrap() {
            snapshot.as_object_mut().unwrap().remove("parent-snapshot-id");
        }
        let from = table.metadata_location().unwrap().to_owned();
        self.swap(&table, &from, serde_json::from_value(metadata).unwrap()).await;
    }

    async fn swap(&self, table: &Table, from: &str, metadata: TableMetadata) {
        if let Some(rest) = &self.rest {
            return rest.put("lake.docs", metadata);
        }
        let to = MetadataLocation::from_str(from).unwrap().with_next_version();
        metadata.write_to(table.file_io(), &to).await.unwrap();
        self.catalog.drop_table(&ident()).await.unwrap();
        self.catalog.register_table(&ident(), to.to_string()).await.unwrap();
    }

    /// A snapshot of `operation` with exactly `files`.
    async fn replace(&self, operation: Operation, files: Vec<DataFile>) {
        let table = self.loaded().await.unwrap();
        let metadata = table.metadata();
        let name = format!("{}/metadata/{}", self.location, AttemptNonce::random());
        let id = i64::from(rand(&name));
        let schema = metadata.current_schema().clone();
        let spec = metadata.default_partition_spec().as_ref().clone();
        let manifest = table.file_io().new_output(format!("{name}-m0.avro")).unwrap();
        let mut manifest = ManifestWriterBuilder::new(manifest, Some(id), schema, spec).build_v2_data();
        for file in files {
            manifest.add_file(file, metadata.next_sequence_number()).unwrap();
        }
        let manifest = manifest.write_manifest_file().await.unwrap();
        let list = table.file_io().new_output(format!("{name}-list.avro")).unwrap().writer().await.unwrap();
        let parent = metadata.current_snapshot_id();
        let mut list = ManifestListWriter::v2(list, id, parent, metadata.next_sequence_number());
        list.add_manifests([manifest].into_iter()).unwrap();
        list.close().await.unwrap();
        let snapshot = Snapshot::builder()
            .with_snapshot_id(id)
            .with_parent_snapshot_id(parent)
            .with_sequence_number(metadata.next_sequence_number())
            .with_timestamp_ms(metadata.last_updated_ms() + 1)
            .with_manifest_list(format!("{name}-list.avro"))
            .with_summary(Summary { operation, additional_properties: HashMap::new() })
            .with_schema_id(metadata.current_schema_id())
            .build();
        self.change(|builder| builder.set_branch_snapshot(snapshot, "main").unwrap()).await;
    }

    fn new_file(&self) -> DataFile {
        DataFileBuilder::default()
            .content(DataContentType::Data)
            .file_path(format!("{}/data/part {}.parquet", self.location, AttemptNonce::random()))
            .file_format(DataFileFormat::Parquet)
            .record_count(3)
            .file_size_in_bytes(300)
            .partition_spec_id(0)
            .build()
            .unwrap()
    }

    /// Each live file, by its path below the data.
    pub async fn live(&self) -> BTreeMap<String, DataFile> {
        let mut live = BTreeMap::new();
        let Some(table) = self.loaded().await else { return live };
        let Some(snapshot) = table.metadata().current_snapshot() else { return live };
        let manifests = table.manifest_list_reader(snapshot).load().await.unwrap();
        for manifest in manifests.entries() {
            for entry in manifest.load_manifest(table.file_io()).await.unwrap().entries() {
                if entry.is_alive() {
                    let path = entry.file_path().strip_prefix(&format!("{}/data/", self.location)).unwrap();
                    let twice = live.insert(path.to_owned(), entry.data_file().clone());
                    assert_eq!(twice, None, "{path} is live twice");
                }
            }
        }
        live
    }
}

fn rand(text: &str) -> u32 {
    xxhash_rust::xxh3::xxh3_64(text.as_bytes()) as u32
}

fn branch(snapshot_id: i64) -> SnapshotReference {
    SnapshotReference::new(snapshot_id, SnapshotRetention::branch(None, None, None))
}

#[async_trait]
impl TableSubject for Subject {
    type Table = IcebergTable;

    fn open(&self) -> IcebergTable {
        self.table.clone()
    }

    async fn live_paths(&self) -> Vec<String> {
        self.live().await.into_keys().collect()
    }

    async fn foreign_append(&self) {
        let table = match self.loaded().await {
            Some(table) => table,
            None => self.create().await,
        };
        let transaction = Transaction::new(&table);
        let append = transaction.fast_append().with_check_duplicate(false).add_data_files([self.new_file()]);
        append.apply(transaction).unwrap().commit(&*self.catalog).await.unwrap();
    }

    async fn compact(&self) {
        self.replace(Operation::Replace, vec![self.new_file()]).await;
    }

    async fn clean_log(&self) {
        let table = self.loaded().await.unwrap();
        let current = table.metadata().current_snapshot_id().unwrap();
        let snapshots = table.metadata().snapshots().map(|snapshot| snapshot.snapshot_id());
        let old: Vec<i64> = snapshots.filter(|id| *id != current).collect();
        self.change(|builder| builder.remove_snapshots(&old)).await;
        if self.rest.is_some() {
            self.forget_parents().await;
        }
    }

    async fn restore(&self, version: u64) {
        let table = self.loaded().await.unwrap();
        let then = table.metadata().snapshots().find(|s| s.sequence_number() as u64 == version).unwrap();
        let then = branch(then.snapshot_id());
        self.change(|builder| builder.set_ref("main", then).unwrap()).await;
    }

    async fn recreate(&self) {
        if self.loaded().await.is_some() {
            self.catalog.drop_table(&ident()).await.unwrap();
        }
        self.create().await;
    }
}
