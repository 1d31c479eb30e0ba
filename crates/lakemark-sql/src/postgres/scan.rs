//! One scan: one `SELECT`, streamed.

use std::sync::Arc;

use arrow_array::RecordBatch;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use lakemark::Result;
use tokio_postgres::types::{FromSql, Type};
use tokio_postgres::{Row, RowStream};

use super::address::Address;
use super::catalog::Column;
use super::failure;
use super::kind::{Kind, decimal};
use super::session::Session;
use super::values::Values;
use crate::batches::{Filled, altered, batch, misfit};
use crate::name::TableName;
use crate::table::{Request, Rows};

/// A table that was found.
#[derive(Debug, Clone)]
pub(super) struct Table {
    pub(super) address: Address,
    pub(super) name: TableName,
    pub(super) columns: Vec<Column>,
}

impl Rows for Table {
    fn read(&self, request: Request) -> BoxStream<'static, Result<RecordBatch>> {
        let table = self.clone();
        stream::once(async move { Ok(stream::try_unfold(Scan::start(table, request).await?, Scan::next)) })
            .try_flatten()
            .boxed()
    }
}

impl Table {
    fn place(&self) -> String {
        format!("{}, table {}", self.address.place(), self.name)
    }

    fn sql(&self, columns: &[Column], limit: Option<usize>) -> String {
        let list: Vec<String> = columns.iter().map(Column::sql).collect();
        let limit = limit.map(|rows| format!(" LIMIT {rows}")).unwrap_or_default();
        format!("SELECT {} FROM {}{limit}", list.join(", "), self.name.sql())
    }
}

/// A scan under way.
struct Scan {
    place: String,
    request: Request,
    columns: Vec<Column>,
    rows: std::pin::Pin<Box<RowStream>>,
    /// Ends with the scan, and the answer with it.
    _session: Session,
    ended: bool,
}

impl Scan {
    async fn start(table: Table, request: Request) -> Result<Self> {
        let place = table.place();
        let failed = |error| failure::reading(error, &place);
        let columns: Vec<Column> = request.columns.iter().map(|&index| table.columns[index].clone()).collect();
        let session = Session::start(&table.address).await?;
        // The table cannot be altered between here and the end of the transaction.
        let statement = session.client.prepare(&table.sql(&columns, request.limit)).await;
        let statement = statement.map_err(|error| if is_altered(&error) { altered(&place) } else { failed(error) })?;
        let same = |(sent, column): (&tokio_postgres::Column, &Column)| {
            let scale = match &column.kind {
                Kind::Decimal { .. } => decimal(sent.type_modifier()).as_ref() == Some(&column.kind),
                Kind::List(item) if matches!(**item, Kind::Decimal { .. }) => {
                    decimal(sent.type_modifier()).as_ref() == Some(&**item)
                }
                _ => true,
            };
            *sent.type_() == column.kind.wire(column.form) && scale
        };
        if statement.columns().len() != columns.len() || !statement.columns().iter().zip(&columns).all(same) {
            return Err(altered(&place));
        }
        let rows = session.client.query_raw(&statement, Vec::<String>::new()).await.map_err(failed)?;
        Ok(Self { place, request, columns, rows: Box::pin(rows), _session: session, ended: false })
    }

    /// The next batch, and the scan behind it.
    async fn next(mut self) -> Result<Option<(RecordBatch, Self)>> {
        if self.ended {
            return Ok(None);
        }
        let mut values: Vec<Values> = self.columns.iter().map(|column| Values::new(&column.kind)).collect();
        let mut filled = Filled::default();
        while !filled.is_full(self.request.batch_rows) {
            let row = self.rows.try_next().await.map_err(|error| failure::reading(error, &self.place))?;
            let Some(row) = row else {
                self.ended = true;
                break;
            };
            self.add(&row, &mut values)?;
            filled.rows += 1;
            filled.bytes += row.raw_size_bytes();
        }
        if filled.rows == 0 {
            return Ok(None);
        }
        let arrays = values.iter_mut().map(Values::finish).collect();
        let batch = batch(&Arc::clone(&self.request.schema), arrays, filled.rows)?;
        Ok(Some((batch, self)))
    }

    fn add(&self, row: &Row, values: &mut [Values]) -> Result<()> {
        for (index, (values, column)) in values.iter_mut().zip(&self.columns).enumerate() {
            let raw: Option<Raw<'_>> = row.try_get(index).map_err(|error| failure::reading(error, &self.place))?;
            let added = values.add(raw.map(|Raw(bytes)| bytes));
            added.map_err(|why| misfit(&self.place, &column.name, &column.declared, &why))?;
        }
        Ok(())
    }
}

/// Whether what was there is gone: a table, a column, or a cast of it.
fn is_altered(error: &tokio_postgres::Error) -> bool {
    // undefined_table, undefined_column, cannot_coerce
    error.code().is_some_and(|code| matches!(code.code(), "42P01" | "42703" | "42846"))
}

/// The bytes of a value, whatever its type.
struct Raw<'a>(&'a [u8]);

impl<'a> FromSql<'a> for Raw<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(raw))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}
