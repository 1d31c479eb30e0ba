//! Catalogs: which one, how it is reached, and how exactly one attempt is made with it.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use iceberg::table::Table;
use iceberg::{
    Catalog, CatalogBuilder, Namespace, NamespaceIdent, Result as IcebergResult, TableCommit, TableCreation, TableIdent,
};
use iceberg_catalog_rest::RestCatalogBuilder;
use iceberg_catalog_sql::SqlCatalogBuilder;
use lakemark::{Error, ErrorKind, Result};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};
use tokio::sync::OnceCell;

use crate::place::Place;
use crate::storage::TableStorage;

/// Where a table is registered.
#[derive(Clone)]
pub struct CatalogOptions {
    kind: Kind,
    name: String,
    table: TableIdent,
    /// The file of a database.
    database: Option<PathBuf>,
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
        let Self { table, name, .. } = self;
        match (&self.database, self.properties.get("uri")) {
            (Some(path), _) => write!(f, "{table} in the catalog `{name}` in {}", path.display()),
            (None, uri) => write!(f, "{table} in the catalog at {}", uri.map_or("", |uri| without_user(uri))),
        }
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
            Error::invalid(format!("catalog has no `{key}`"))
                .safe("nothing was read or written")
                .way(format!("give `{key}`, {what}"))
        };
        let kind = match settings.get("type").map(String::as_str) {
            Some("sql") => Kind::Sql,
            Some("rest") => Kind::Rest,
            Some("memory") => {
                return Err(Error::invalid(
                    "a catalog in memory ends with the process: the next run would find no table",
                )
                .safe("nothing was read or written")
                .way("use type = \"sql\" with uri = \"sqlite:////path/to/catalog.db\"")
                .way("in the library, give any catalog to lakemark_iceberg::in_catalog"));
            }
            Some(other) => {
                return Err(Error::invalid(format!("catalog.type is \"{other}\""))
                    .safe("nothing was read or written")
                    .way("it takes one of sql, rest"));
            }
            None => return Err(missing("type", "one of sql, rest")),
        };
        let table = settings.get("table").ok_or_else(|| missing("table", "for example \"lake.docs\""))?;
        let mut names: Vec<&str> = table.split('.').collect();
        let name = names.pop().unwrap_or_default();
        if name.is_empty() || names.is_empty() || names.iter().any(|name| name.is_empty()) {
            return Err(Error::invalid(format!("catalog.table is \"{table}\""))
                .safe("nothing was read or written")
                .way("write it as namespace.table, for example \"lake.docs\""));
        }
        let uri = settings.get("uri").ok_or_else(|| missing("uri", "for example \"sqlite:////lake/catalog.db\""))?;
        let database = match kind {
            Kind::Sql => Some(database(uri)?),
            Kind::Rest => None,
        };
        if uri.contains('?') {
            return Err(Error::invalid("catalog.uri has a query, which is not passed on")
                .safe("nothing was read or written")
                .way("give what the catalog takes as `properties`"));
        }
        let namespace = NamespaceIdent::from_strs(names)
            .map_err(|e| Error::invalid(format!("catalog.table is \"{table}\"")).caused_by(e))?;
        let own = ["type", "table", "name", "uri", "warehouse"];
        let others = || settings.iter().filter(|(key, _)| !own.contains(&key.as_str()));
        if let (Kind::Sql, Some((key, _))) = (kind, others().next()) {
            return Err(Error::invalid(format!("catalog.properties.{key} has no effect: a database takes none"))
                .safe("nothing was read or written")
                .way(format!("remove `{key}`")));
        }
        // Of a header it would be shown, with its value, by who refuses it.
        if let Some((key, _)) = others().find(|(_, value)| value.chars().any(char::is_control)) {
            let what = format!("catalog.properties.{key} has a line break or another control character");
            return Err(Error::invalid(what)
                .safe("nothing was read or written")
                .way("take it out: files with secrets often end with a line break"));
        }
        let passed = settings.iter().filter(|(key, _)| !["type", "table", "name"].contains(&key.as_str()));
        Ok(Self {
            kind,
            name: settings.get("name").cloned().unwrap_or_else(|| "default".to_owned()),
            table: TableIdent::new(namespace, name.to_owned()),
            database,
            properties: passed.map(|(key, value)| (key.clone(), value.clone())).collect(),
        })
    }

    async fn open(&self, place: &Place) -> Result<Arc<dyn Catalog>> {
        let storage = Arc::new(TableStorage::new(place.clone()));
        let failed = |e: iceberg::Error| {
            Error::new(ErrorKind::Unavailable, "the catalog cannot be reached")
                .at(format!("{self:?}, of {}", place.location))
                .safe("nothing was changed")
                .way("run again when it can be: it may be locked or down")
                .way("look at catalog: type, uri")
                .caused_by(e)
        };
        let mut properties = self.properties.clone();
        Ok(match self.kind {
            Kind::Sql => {
                // As other tools do it: a database that is not there is made.
                let path = self.database.as_deref().unwrap_or(Path::new("")).to_string_lossy();
                let uri = format!("sqlite:{}?mode=rwc", utf8_percent_encode(&path, ESCAPED));
                properties.insert("uri".to_owned(), uri);
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

/// What the path of a database is escaped by in its URI, which is decoded again.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%').add(b'?').add(b'#');

/// The file that `uri` names, an absolute path.
fn database(uri: &str) -> Result<PathBuf> {
    let refuse = |what: &str| {
        Error::invalid(format!("catalog.uri is \"{}\", {what}", without_user(uri)))
            .safe("nothing was read or written")
            .way("write an SQLite database with its whole path: \"sqlite:////path/to/catalog.db\"")
    };
    let Some(path) = uri.strip_prefix("sqlite:") else {
        return Err(refuse("and type \"sql\" is for SQLite databases only in this version"));
    };
    // pyiceberg, by SQLAlchemy, takes the part behind three slashes for the path, relative or not.
    let path = match path.strip_prefix("///") {
        Some(path) if path.starts_with('/') => path,
        Some(_) => return Err(refuse("which is a relative path to some tools and an absolute one to others")),
        None if path.starts_with('/') && !path.starts_with("//") => path,
        None => return Err(refuse("which is no absolute path")),
    };
    if path.contains('?') {
        return Err(refuse("and has a query"));
    }
    // Not decoded: nor does pyiceberg.
    Ok(PathBuf::from(path))
}

/// How the database `path` is looked at without changing it.
fn to_look(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new().filename(path).read_only(true).busy_timeout(Duration::from_secs(20))
}

/// Whether the file `path` is a catalog, found out without changing it. An error when it, or its folder, cannot be.
async fn is_catalog(options: &CatalogOptions, path: &Path) -> Result<bool> {
    let unavailable = |what: &str| {
        Error::new(ErrorKind::Unavailable, format!("the database of the catalog {what}"))
            .at(path.display())
            .safe("nothing was read or written")
            .way("look at catalog.uri")
    };
    match tokio::fs::try_exists(path).await {
        Ok(true) => {}
        Ok(false) => {
            let folder = path.parent().unwrap_or(Path::new("/"));
            let is_there = matches!(tokio::fs::metadata(folder).await, Ok(meta) if meta.is_dir());
            return if is_there { Ok(false) } else { Err(unavailable("is to be in a folder that is not there")) };
        }
        Err(error) => return Err(unavailable("cannot be looked at").caused_by(error)),
    }
    let failed = |error: sqlx::Error| unavailable("cannot be read").way("run again when it can be").caused_by(error);
    let mut connection = to_look(path).connect().await.map_err(failed)?;
    let columns = "SELECT name FROM pragma_table_info('iceberg_tables')";
    let columns: Vec<String> = sqlx::query_scalar(columns).fetch_all(&mut connection).await.map_err(failed)?;
    connection.close().await.map_err(failed)?;
    if !columns.is_empty() && !columns.iter().any(|column| column == "iceberg_type") {
        let what = "the catalog is of an older form, without the column iceberg_type";
        return Err(Error::new(ErrorKind::Unsupported, what)
            .at(format!("{options:?}"))
            .safe("nothing was read or written")
            .way("add it: ALTER TABLE iceberg_tables ADD COLUMN iceberg_type VARCHAR(5)"));
    }
    Ok(!columns.is_empty())
}

/// Catalogs of other names in the database `path` that have the table of `options`.
async fn namesakes(options: &CatalogOptions, path: &Path) -> Result<Vec<String>> {
    let failed = |error: sqlx::Error| {
        Error::new(ErrorKind::Unavailable, "the database of the catalog cannot be read")
            .at(path.display())
            .safe("nothing was read or written")
            .way("run again when it can be")
            .caused_by(error)
    };
    let mut connection = to_look(path).connect().await.map_err(failed)?;
    let query =
        "SELECT catalog_name FROM iceberg_tables WHERE table_namespace = ? AND table_name = ? AND catalog_name <> ?";
    let names = sqlx::query_scalar(query)
        .bind(options.table.namespace().as_ref().join("."))
        .bind(options.table.name())
        .bind(&options.name);
    let names = names.fetch_all(&mut connection).await.map_err(failed)?;
    connection.close().await.map_err(failed)?;
    Ok(names)
}

/// A URL without who it is for, which may be a secret.
fn without_user(uri: &str) -> &str {
    uri.split_once("://").and_then(|(_, rest)| rest.split_once('@')).map_or(uri, |(_, host)| host)
}

/// A catalog that is opened when it is first asked.
#[derive(Clone)]
pub(crate) struct Registry {
    pub(crate) table: TableIdent,
    options: Option<CatalogOptions>,
    catalog: Arc<OnceCell<Arc<dyn Catalog>>>,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.options {
            Some(options) => write!(f, "{options:?}"),
            None => write!(f, "{} in a catalog", self.table),
        }
    }
}

impl Registry {
    pub(crate) fn new(options: CatalogOptions) -> Self {
        Self { table: options.table.clone(), options: Some(options), catalog: Arc::default() }
    }

    pub(crate) fn of(catalog: Arc<dyn Catalog>, table: TableIdent) -> Self {
        Self { table, options: None, catalog: Arc::new(OnceCell::new_with(Some(catalog))) }
    }

    /// Refuses to take a table for one that is not there when the same database has it in a catalog of another name.
    pub(crate) async fn check_nowhere_else(&self, place: &Place) -> Result<()> {
        let Some((options, path)) = self.options.as_ref().and_then(|of| Some((of, of.database.as_deref()?))) else {
            return Ok(());
        };
        let names = namesakes(options, path).await?;
        let Some(other) = names.first() else { return Ok(()) };
        let what = format!(
            "the catalog `{}` has no table {}, and `{other}` in the same database has",
            options.name, self.table
        );
        Err(Error::refused(what)
            .at(&place.root)
            .safe("nothing was read or written")
            .way(format!("it is that table: set name = \"{other}\" in `catalog`"))
            .way("it is to be another one: give it another name"))
    }

    /// The catalog. `None`: it is not there yet, and is only made `to_write`.
    pub(crate) async fn catalog(&self, place: &Place, to_write: bool) -> Result<Option<Arc<dyn Catalog>>> {
        let options = self.options.as_ref();
        if let Some((options, path)) = options.and_then(|options| Some((options, options.database.as_deref()?)))
            && !to_write
            && !self.catalog.initialized()
            && !is_catalog(options, path).await?
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
