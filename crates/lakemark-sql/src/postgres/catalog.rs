//! What the database says about a table.

use arrow_schema::Field;
use lakemark::{Error, Result};
use tokio_postgres::Row;

use super::address::Address;
use super::failure;
use super::kind::{Form, Kind, Named};
use super::session::Session;
use crate::batches::unreadable;
use crate::name::{TableName, nearest, quoted};

const TABLE: &str = "
SELECT c.oid, n.nspname::text, c.relname::text, c.relkind::text
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = pg_catalog.to_regclass($1::text)";

const TABLES: &str = "
SELECT n.nspname::text, c.relname::text
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'v', 'm', 'f', 'p') AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
LIMIT 10000";

/// Domains are followed to what they are made of.
const COLUMNS: &str = "
WITH RECURSIVE col (number, name, required, typid, modifier) AS (
    SELECT attnum, attname::text, attnotnull, atttypid, atttypmod
    FROM pg_catalog.pg_attribute WHERE attrelid = $1::oid AND attnum > 0 AND NOT attisdropped
    UNION ALL
    SELECT col.number, col.name, col.required, t.typbasetype, t.typtypmod
    FROM col JOIN pg_catalog.pg_type t ON t.oid = col.typid WHERE t.typtype = 'd'
)
SELECT col.name, col.required, pg_catalog.format_type(a.atttypid, a.atttypmod), col.modifier,
    coalesce(e.typname, t.typname)::text, coalesce(e.typtype, t.typtype)::text,
    coalesce(e.typnamespace, t.typnamespace) = 'pg_catalog'::regnamespace, e.oid IS NOT NULL
FROM col
JOIN pg_catalog.pg_attribute a ON a.attrelid = $1::oid AND a.attnum = col.number
JOIN pg_catalog.pg_type t ON t.oid = col.typid AND t.typtype <> 'd'
LEFT JOIN pg_catalog.pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'
ORDER BY col.number";

/// A column that can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) name: String,
    /// Its type in the database's words.
    pub(super) declared: String,
    pub(super) kind: Kind,
    pub(super) form: Form,
    required: bool,
}

impl Column {
    pub(super) fn field(&self) -> Field {
        Field::new(&self.name, self.kind.data_type(), !self.required)
    }

    /// How a `SELECT` asks for it.
    pub(super) fn sql(&self) -> String {
        let name = quoted(&self.name);
        match (self.form, &self.kind) {
            (Form::Plain, Kind::Text) => format!("{name}::pg_catalog.text"),
            (Form::Plain, _) => name,
            (Form::Text, Kind::List(_)) => format!("{name}::pg_catalog.text[]"),
            (Form::Text, _) => format!("{name}::pg_catalog.text"),
        }
    }

    fn of(row: &Row) -> Result<Self, String> {
        let (name, declared): (String, String) = (row.get(0), row.get(2));
        let named = Named { name: row.get(4), class: row.get(5), builtin: row.get(6), modifier: row.get(3) };
        let Some((kind, form)) = Kind::of(&named) else { return Err(format!("`{name}` ({declared})")) };
        let list: bool = row.get(7);
        let (kind, form) = match (list, kind) {
            (false, kind) => (kind, form),
            // Arrays of varchar come as such; as text they need no case of their own.
            (true, Kind::Text) => (Kind::List(Box::new(Kind::Text)), Form::Text),
            (true, kind) => (Kind::List(Box::new(kind)), form),
        };
        Ok(Self { name, declared, kind, form, required: row.get(1) })
    }
}

/// A table and its columns.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) name: TableName,
    pub(super) columns: Vec<Column>,
}

/// Finds the table `name`, along the search path if it has no schema, and all its columns.
pub(super) async fn find(session: &Session, address: &Address, name: &TableName) -> Result<Found> {
    let place = address.place();
    let failed = |error| failure::reading(error, &place);
    let row = session.client.query_opt(TABLE, &[&name.sql()]).await.map_err(failed)?;
    let Some(row) = row else { return Err(missing(session, address, name).await) };
    let found = TableName { schema: Some(row.get(1)), table: row.get(2) };
    let kind: String = row.get(3);
    if !matches!(kind.as_str(), "r" | "v" | "m" | "f" | "p") {
        return Err(Error::invalid(format!("`{found}` is no table and no view")).at(place));
    }
    let columns = columns(session, row.get(0)).await.map_err(failed)?;
    let (columns, unknown): (Vec<_>, Vec<_>) = columns.into_iter().partition(Result::is_ok);
    let unknown: Vec<String> = unknown.into_iter().filter_map(Result::err).collect();
    if !unknown.is_empty() {
        let way = "read a view that casts them: an unbounded numeric to numeric(38, 9) or text, others to text";
        return Err(unreadable(&format!("{place}, table {found}"), &unknown, way));
    }
    Ok(Found { name: found, columns: columns.into_iter().filter_map(Result::ok).collect() })
}

async fn columns(session: &Session, table: u32) -> Result<Vec<Result<Column, String>>, tokio_postgres::Error> {
    Ok(session.client.query(COLUMNS, &[&table]).await?.iter().map(Column::of).collect())
}

async fn missing(session: &Session, address: &Address, name: &TableName) -> Error {
    let error = Error::invalid(format!("there is no table `{name}`, or the user may not see it")).at(address.place());
    let Ok(rows) = session.client.query(TABLES, &[]).await else { return error };
    let shown = |row: &Row| TableName { schema: Some(row.get(0)), table: row.get(1) }.to_string();
    let wanted = if name.schema.is_some() { name.to_string() } else { format!("public.{name}") };
    let near = nearest(&wanted, rows.iter().map(shown).collect());
    if near.is_empty() { error } else { error.way(format!("tables with names like it: {}", near.join(", "))) }
}
