//! SQLite files: where they are, and what their errors mean.

use std::path::Path;
use std::time::Duration;

use lakemark::{Error, ErrorKind, Result, Root};
use rusqlite::{Connection, ErrorCode, OpenFlags};

/// How long to wait for a writer that holds the file.
const PATIENCE: Duration = Duration::from_secs(30);

/// The absolute path of the file that `url` names, symbolic links followed.
pub(super) fn locate(url: &str) -> Result<String> {
    let path = match url.strip_prefix("sqlite:") {
        Some(rest) => rest.strip_prefix("//").unwrap_or(rest).to_owned(),
        None => url.to_owned(),
    };
    if path.is_empty() || path == ":memory:" {
        return Err(Error::invalid("a database in memory, or without a name, has nothing to read").way("name a file"));
    }
    let path = Root::parse(&path)?.local_path().ok_or_else(|| {
        Error::invalid("a SQLite database is a file of this machine").at(&path).way("copy it here and name the copy")
    })?;
    let failed = |error: std::io::Error| {
        let what = match error.kind() {
            std::io::ErrorKind::NotFound => "there is no such file",
            _ => "the file cannot be looked at",
        };
        Error::invalid(what).at(path.display()).caused_by(error).way("name a SQLite file that is there")
    };
    let real = path.canonicalize().map_err(failed)?;
    if !real.is_file() {
        return Err(Error::invalid("a SQLite database is a file, and this is none").at(real.display()));
    }
    let name = real.to_str().ok_or_else(|| Error::invalid("the name of the file is not UTF-8").at(real.display()))?;
    Ok(name.to_owned())
}

/// A connection that cannot write.
pub(super) fn open(path: &str) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = || {
        let connection = Connection::open_with_flags(Path::new(path), flags)?;
        connection.busy_timeout(PATIENCE)?;
        // The file is not looked at before something is read.
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
        Ok(connection)
    };
    open().map_err(|error| failure(error, path))
}

/// `error` as one of ours: what can pass by itself is unavailable.
pub(super) fn failure(error: rusqlite::Error, path: &str) -> Error {
    let (kind, what, way) = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            (ErrorKind::Unavailable, "a writer holds the database", "run again when it is done")
        }
        Some(ErrorCode::NotADatabase) => (ErrorKind::Invalid, "this is no SQLite database", "name another file"),
        Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly) => (
            ErrorKind::Invalid,
            "the database cannot be opened for reading",
            "check the permissions of the file, and of its folder if a writer left a journal or a WAL there",
        ),
        Some(ErrorCode::DatabaseCorrupt) => {
            (ErrorKind::Invalid, "the database is damaged", "look at it with `PRAGMA integrity_check`")
        }
        Some(ErrorCode::SystemIoFailure | ErrorCode::OutOfMemory | ErrorCode::SchemaChanged) => {
            (ErrorKind::Unavailable, "the database could not be read", "run again")
        }
        _ => (ErrorKind::Invalid, "the database refused", "try the table with the `sqlite3` command"),
    };
    Error::new(kind, what).at(path).caused_by(error).way(way)
}
