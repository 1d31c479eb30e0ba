//! A table of a database as a source.

use std::fmt;
use std::sync::Arc;

use datafusion::datasource::TableProvider;
use lakemark::{Result, Root, StorageOptions};

use crate::name::TableName;
use crate::options::Options;
use crate::table::SqlTable;
use crate::{postgres, sqlite};

/// The kind of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Database {
    /// A PostgreSQL server.
    Postgres,
    /// A SQLite file.
    Sqlite,
}

impl Database {
    /// Its name, as jobs give it in `format`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Sqlite => "sqlite",
        }
    }
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One table or view of a database, found and with all its columns understood.
///
/// Each execution of a scan has a connection of its own. Nothing that it shows holds a password.
#[derive(Debug, Clone)]
pub struct SqlSource {
    table: Arc<SqlTable>,
    root: Root,
}

impl SqlSource {
    /// Finds `table` in the database at `url`.
    ///
    /// - PostgreSQL: `postgres://user@host:port/database?sslmode=verify-full`. The user may also be in `options` or in
    ///   `PGUSER`; the password is taken from `options`, `PGPASSWORD`, or the password file (`PGPASSFILE`, `~/.pgpass`).
    ///   Options are `user`, `password`, `passfile`, `sslmode`, `sslrootcert`, `connect_timeout` (seconds) and
    ///   `application_name`; all but the first three may be in the URL instead.
    /// - SQLite: a path, `sqlite:path` or a `file:` URL. It has no options.
    ///
    /// `table` is `table` or `schema.table`, as the database spells it: nothing is folded to lower case. A part with a dot
    /// in it is quoted: `public."my.docs"`.
    ///
    /// # Errors
    /// [`Unavailable`](lakemark::ErrorKind::Unavailable) if the database does not answer;
    /// [`Unsupported`](lakemark::ErrorKind::Unsupported) if columns have types without an exact equal, all of them named;
    /// [`Invalid`](lakemark::ErrorKind::Invalid) for the rest: a password in the URL, a wrong one, no such file or table.
    pub async fn connect(database: Database, url: &str, table: &str, options: &StorageOptions) -> Result<Self> {
        let name = TableName::parse(table)?;
        let options = Options::new(options);
        let (table, root) = match database {
            Database::Postgres => postgres::open(url, &name, options).await?,
            Database::Sqlite => sqlite::open(url, &name, options).await?,
        };
        Ok(Self { table: Arc::new(table), root })
    }

    /// The table for DataFusion, with the columns the database has. A scan is one partition; projections reach the
    /// database, filters do not.
    pub fn provider(&self) -> Arc<dyn TableProvider> {
        Arc::clone(&self.table) as Arc<dyn TableProvider>
    }

    /// What the table is known by, without credentials: `postgres://host:port/database/schema.table`, or the path of the
    /// SQLite file, symbolic links followed, with the table below it. What would be ambiguous in a name is escaped.
    pub fn root(&self) -> Root {
        self.root.clone()
    }
}
