//! What the file says about a table.

use arrow_schema::Field;
use lakemark::{Error, Result};
use rusqlite::{Connection, OptionalExtension};

use super::file::failure;
use super::kind::Kind;
use crate::batches::unreadable;
use crate::name::{TableName, nearest};

/// SQLite knows no case in names; the one it stores is the table's.
const TABLE: &str = "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name = ?1 COLLATE NOCASE";
const TABLES: &str =
    "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'";
/// Hidden columns of virtual tables are arguments, not data; generated columns (2 and 3) are data.
const COLUMNS: &str = "SELECT name, type, \"notnull\" FROM pragma_table_xinfo(?1) WHERE hidden <> 1 ORDER BY cid";

/// A column that can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) declared: String,
    pub(super) kind: Kind,
    required: bool,
}

impl Column {
    pub(super) fn field(&self) -> Field {
        Field::new(&self.name, self.kind.data_type(), !self.required)
    }
}

/// A table and its columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) name: TableName,
    pub(super) columns: Vec<Column>,
}

/// Finds the table `name` and all its columns.
pub(super) fn find(connection: &Connection, path: &str, name: &TableName) -> Result<Found> {
    let failed = |error| failure(error, path);
    if let Some(schema) = name.schema.as_deref().filter(|schema| !schema.eq_ignore_ascii_case("main")) {
        return Err(Error::invalid(format!("a SQLite file has no schema `{schema}`")).at(path).way(&name.table));
    }
    let stored: Option<String> =
        connection.query_row(TABLE, [&name.table], |row| row.get(0)).optional().map_err(failed)?;
    let Some(stored) = stored else { return Err(missing(connection, path, name).unwrap_or_else(failed)) };
    let name = TableName { schema: None, table: stored };
    let mut columns = Vec::new();
    let mut unknown = Vec::new();
    for (column, declared, required) in declared(connection, &name).map_err(failed)? {
        match Kind::of(&declared) {
            Some(kind) => columns.push(Column { name: column, declared, kind, required }),
            None if declared.is_empty() => unknown.push(format!("`{column}` (no type)")),
            None => unknown.push(format!("`{column}` ({declared})")),
        }
    }
    if unknown.is_empty() {
        return Ok(Found { name, columns });
    }
    let way = "read a view that casts them: CAST(x AS REAL), AS INTEGER, AS TEXT or AS BLOB";
    Err(unreadable(&format!("{path}, table {name}"), &unknown, way))
}

fn declared(connection: &Connection, name: &TableName) -> rusqlite::Result<Vec<(String, String, bool)>> {
    let mut statement = connection.prepare(COLUMNS)?;
    statement.query_map([&name.table], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?.collect()
}

fn missing(connection: &Connection, path: &str, name: &TableName) -> rusqlite::Result<Error> {
    let error = Error::invalid(format!("there is no table `{name}`")).at(path);
    let mut statement = connection.prepare(TABLES)?;
    let names = statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<String>>>()?;
    let shown = |table| TableName { schema: None, table }.to_string();
    let near = nearest(&name.table, names.into_iter().map(shown).collect());
    Ok(if near.is_empty() { error } else { error.way(format!("tables with names like it: {}", near.join(", "))) })
}
