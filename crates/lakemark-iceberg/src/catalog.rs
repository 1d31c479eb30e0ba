//! Catalogs: which one, how it is reached, and how exactly one attempt is made with it.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use iceberg::table::Table;
use iceberg::{
    Catalog, CatalogBuilder, Namespace, NamespaceIdent, Result as IcebergResult, TableCommit, TableCreation, TableIdent,
};
use iceberg_catalog_rest::RestCatalogBuilder;
use iceberg_catalog_sql::SqlCatalogBuilder;
use lakemark::{Error, ErrorKind, Result};
use tokio::sync::OnceCell;

use crate::place::Place;
use crate::storage::TableStorage;

/// Where a table is registered.
#[derive(Clone)]
pub struct CatalogOptions {
    kind: Kind,
    name: String,
    table: TableIdent,
    /// What is passed on to the catalog.
    properties: HashMap<String, String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Sql,
    Rest,
}

impl std::fmt::Debug for CatalogOptions {
    /// Without the properties, some of which are secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} in the {:?} catalog `{}`", self.table, self.kind, self.name)
    }
}

impl CatalogOptions {
    /// Of the settings of a job: `type` (`sql` or `rest`), `uri`, `table` (`namespace.name`), `warehouse` and `name`, by which
    /// catalogs in one database are told apart (`default`). Everything else is passed on to the catalog.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) naming the setting that is missing or is none.
    pub fn parse(settings: &BTreeMap<String, String>) -> Result<Self> {
        let missing = |key: &str, what: &str| {
            Error::invalid(format!("sink.catalog has no `{key}`"))
                .safe("nothing was read or written")
                .way(format!("give `{key}`, {what}"))
        };
        let kind = match settings.get("type").map(String::as_str) {
            Some("sql") => Kind::Sql,
            Some("rest") => Kind::Rest,
            Some("memory") => {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    "a catalog in memory ends with the process: the next run would find no table",
                )
                .safe("nothing was read or written")
                .way("use type = \"sql\" with uri = \"sqlite:///path/to/catalog.db\"")
                .way("in the library, give any catalog to lakemark_iceberg::in_catalog"));
            }
            Some(other) => {
                return Err(Error::invalid(format!("sink.catalog.type is \"{other}\""))
                    .safe("nothing was read or written")
                    .way("it takes one of sql, rest"));
            }
            None => return Err(missing("type", "one of sql, rest")),
        };
        let table = settings.get("table").ok_or_else(|| missing("table", "for example \"lake.docs\""))?;
        let mut names: Vec<&str> = table.split('.').collect();
        let name = names.pop().unwrap_or_default();
        if name.is_empty() || names.is_empty() || names.iter().any(|name| name.is_empty()) {
            return Err(Error::invalid(format!("sink.catalog.table is \"{table}\""))
                .safe("nothing was read or written")
                .way("write it as namespace.table, for example \"lake.docs\""));
        }
        let uri = settings.get("uri").ok_or_else(|| missing("uri", "for example \"sqlite:///lake/catalog.db\""))?;
        if kind == Kind::Sql && !uri.starts_with("sqlite:") {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "sink.catalog.uri is of a database that this version does not reach",
            )
            .safe("nothing was read or written")
            .way("use an SQLite database: \"sqlite:///path/to/catalog.db\""));
        }
        let namespace = NamespaceIdent::from_strs(names)
            .map_err(|e| Error::invalid(format!("sink.catalog.table is \"{table}\"")).caused_by(e))?;
        let own = ["type", "table", "name"];
        let properties = settings.iter().filter(|(key, _)| !own.contains(&key.as_str()));
        Ok(Self {
            kind,
            name: settings.get("name").cloned().unwrap_or_else(|| "default".to_owned()),
            table: TableIdent::new(namespace, name.to_owned()),
            properties: properties.map(|(key, value)| (key.clone(), value.clone())).collect(),
        })
    }

    /// The database file, if it is one.
    fn database(&self) -> Option<PathBuf> {
        let path = self.properties.get("uri")?.strip_prefix("sqlite:")?;
        let path = path.strip_prefix("//").unwrap_or(path);
        let path = path.split('?').next().unwrap_or(path);
        (!path.is_empty() && path != ":memory:").then(|| PathBuf::from(path))
    }

    async fn open(&self, place: &Place) -> Result<Arc<dyn Catalog>> {
        let storage = Arc::new(TableStorage::new(place.clone()));
        let failed = |e: iceberg::Error| {
            Error::new(ErrorKind::Unavailable, "the catalog cannot be reached")
                .at(&place.root)
                .safe("nothing was changed")
                .way("look at sink.catalog: type, uri")
                .caused_by(e)
        };
        let mut properties = self.properties.clone();
        Ok(match self.kind {
            Kind::Sql => {
                let uri = properties.entry("uri".to_owned()).or_default();
                // As other tools do it: a database that is not there is made.
                if self.database().is_some() && !uri.contains("mode=") {
                    uri.push_str(if uri.contains('?') { "&mode=rwc" } else { "?mode=rwc" });
                }
                properties.insert("sql_bind_style".to_owned(), "QMark".to_owned());
                let builder = SqlCatalogBuilder::default().with_storage_factory(storage);
                Arc::new(builder.load(self.name.clone(), properties).await.map_err(failed)?)
            }
            Kind::Rest => {
                let builder = RestCatalogBuilder::default().with_storage_factory(storage);
                Arc::new(builder.load(self.name.clone(), properties).await.map_err(failed)?)
            }
        })
    }
}

/// A catalog that is opened when it is first asked.
#[derive(Debug, Clone)]
pub(crate) struct Registry {
    pub(crate) table: TableIdent,
    options: Option<CatalogOptions>,
    catalog: Arc<OnceCell<Arc<dyn Catalog>>>,
}

impl Registry {
    pub(crate) fn new(options: CatalogOptions) -> Self {
        Self { table: options.table.clone(), options: Some(options), catalog: Arc::default() }
    }

    pub(crate) fn of(catalog: Arc<dyn Catalog>, table: TableIdent) -> Self {
        Self { table, options: None, catalog: Arc::new(OnceCell::new_with(Some(catalog))) }
    }

    /// The catalog. `None`: it is not there yet, and is only made `to_write`.
    pub(crate) async fn catalog(&self, place: &Place, to_write: bool) -> Result<Option<Arc<dyn Catalog>>> {
        if let Some(database) = self.options.as_ref().and_then(CatalogOptions::database)
            && !to_write
            && matches!(tokio::fs::try_exists(&database).await, Ok(false))
        {
            return Ok(None);
        }
        let open = async || match &self.options {
            Some(options) => options.open(place).await,
            None => Err(Error::new(ErrorKind::Invalid, "no catalog was given")),
        };
        self.catalog.get_or_try_init(open).await.map(|catalog| Some(Arc::clone(catalog)))
    }
}

/// A catalog as one attempt sees it: the table is the checked base, whatever it is by now, so that a commit can only land on
/// that; and nothing is tried again behind the driver's back.
#[derive(Debug)]
pub(crate) struct Pinned {
    catalog: Arc<dyn Catalog>,
    base: Table,
    sent: AtomicBool,
}

impl Pinned {
    pub(crate) fn new(catalog: Arc<dyn Catalog>, base: Table) -> Self {
        Self { catalog, base, sent: AtomicBool::new(false) }
    }

    /// Whether the catalog was asked to commit: an error before that changed nothing.
    pub(crate) fn was_sent(&self) -> bool {
        self.sent.load(Ordering::SeqCst)
    }
}

fn not_here<T>() -> IcebergResult<T> {
    Err(iceberg::Error::new(iceberg::ErrorKind::FeatureUnsupported, "this is not part of a commit"))
}

#[async_trait]
impl Catalog for Pinned {
    async fn load_table(&self, _table: &TableIdent) -> IcebergResult<Table> {
        Ok(self.base.clone())
    }

    async fn update_table(&self, commit: TableCommit) -> IcebergResult<Table> {
        self.sent.store(true, Ordering::SeqCst);
        self.catalog.update_table(commit).await.map_err(|error| error.with_retryable(false))
    }

    async fn list_namespaces(&self, _parent: Option<&NamespaceIdent>) -> IcebergResult<Vec<NamespaceIdent>> {
        not_here()
    }

    async fn create_namespace(
        &self,
        _namespace: &NamespaceIdent,
        _properties: HashMap<String, String>,
    ) -> IcebergResult<Namespace> {
        not_here()
    }

    async fn get_namespace(&self, _namespace: &NamespaceIdent) -> IcebergResult<Namespace> {
        not_here()
    }

    async fn namespace_exists(&self, _namespace: &NamespaceIdent) -> IcebergResult<bool> {
        not_here()
    }

    async fn update_namespace(
        &self,
        _namespace: &NamespaceIdent,
        _properties: HashMap<String, String>,
    ) -> IcebergResult<()> {
        not_here()
    }

    async fn drop_namespace(&self, _namespace: &NamespaceIdent) -> IcebergResult<()> {
        not_here()
    }

    async fn list_tables(&self, _namespace: &NamespaceIdent) -> IcebergResult<Vec<TableIdent>> {
        not_here()
    }

    async fn create_table(&self, _namespace: &NamespaceIdent, _creation: TableCreation) -> IcebergResult<Table> {
        not_here()
    }

    async fn drop_table(&self, _table: &TableIdent) -> IcebergResult<()> {
        not_here()
    }

    async fn purge_table(&self, _table: &TableIdent) -> IcebergResult<()> {
        not_here()
    }

    async fn table_exists(&self, _table: &TableIdent) -> IcebergResult<bool> {
        not_here()
    }

    async fn rename_table(&self, _src: &TableIdent, _dest: &TableIdent) -> IcebergResult<()> {
        not_here()
    }

    async fn register_table(&self, _table: &TableIdent, _location: String) -> IcebergResult<Table> {
        not_here()
    }
}
