//! One scan: one `SELECT` in one read transaction, on a thread of its own.

use arrow_array::RecordBatch;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use lakemark::{Error, ErrorKind, Result};
use rusqlite::Connection;
use tokio::sync::mpsc::{Sender, channel};

use super::catalog::{Column, Found, find};
use super::file::{failure, open};
use super::kind::Values;
use crate::batches::{Filled, altered, batch, misfit};
use crate::name::quoted;
use crate::table::{Request, Rows};

/// A table that was found.
#[derive(Debug, Clone)]
pub(super) struct Table {
    pub(super) path: String,
    pub(super) found: Found,
}

impl Rows for Table {
    fn read(&self, request: Request) -> BoxStream<'static, Result<RecordBatch>> {
        let table = self.clone();
        let start = async move {
            // One batch waits while the next is read.
            let (to, from) = channel(1);
            let reading = tokio::task::spawn_blocking(move || {
                if let Err(error) = table.send(&request, &to) {
                    // If nobody listens any more, nobody misses it.
                    let _ = to.blocking_send(Err(error));
                }
            });
            stream::unfold((from, Some(reading)), |(mut from, mut reading)| async move {
                if let Some(batch) = from.recv().await {
                    return Some((batch, (from, reading)));
                }
                // The end counts only if the reader got there.
                let stopped = reading.take()?.await.err()?;
                let error = Error::new(ErrorKind::Unavailable, "reading the database stopped").caused_by(stopped);
                Some((Err(error), (from, None)))
            })
        };
        stream::once(start).flatten().boxed()
    }
}

impl Table {
    fn place(&self) -> String {
        format!("{}, table {}", self.path, self.found.name)
    }

    /// Sends all batches, up to where nobody listens any more.
    fn send(&self, request: &Request, to: &Sender<Result<RecordBatch>>) -> Result<()> {
        let connection = open(&self.path)?;
        let place = self.place();
        let failed = |error| failure(error, &place);
        // What is read first, the columns, fixes what this transaction sees.
        connection.execute_batch("BEGIN").map_err(failed)?;
        self.check(&connection)?;
        let columns: Vec<&Column> = request.columns.iter().map(|&index| &self.found.columns[index]).collect();
        let mut statement = connection.prepare(&self.sql(&columns, request.limit)).map_err(failed)?;
        let mut rows = statement.query([]).map_err(failed)?;
        loop {
            let mut values: Vec<Values> = columns.iter().map(|column| Values::new(column.kind)).collect();
            let mut filled = Filled::default();
            let mut ended = false;
            while !filled.is_full(request.batch_rows) {
                let Some(row) = rows.next().map_err(failed)? else {
                    ended = true;
                    break;
                };
                for (index, (values, column)) in values.iter_mut().zip(&columns).enumerate() {
                    let added = values.add(row.get_ref(index).map_err(failed)?);
                    let bytes = added.map_err(|why| misfit(&place, &column.name, &column.declared, &why))?;
                    filled.bytes += bytes;
                }
                filled.rows += 1;
            }
            if filled.rows > 0 {
                let arrays = values.iter_mut().map(Values::finish).collect();
                let batch = batch(&request.schema, arrays, filled.rows)?;
                if to.blocking_send(Ok(batch)).is_err() {
                    return Ok(());
                }
            }
            if ended {
                return Ok(());
            }
        }
    }

    /// Whether the table is still what was found.
    fn check(&self, connection: &Connection) -> Result<()> {
        match find(connection, &self.path, &self.found.name) {
            Ok(found) if found == self.found => Ok(()),
            Err(error) if error.kind() == ErrorKind::Unavailable => Err(error),
            _ => Err(altered(&self.place())),
        }
    }

    fn sql(&self, columns: &[&Column], limit: Option<usize>) -> String {
        let list: Vec<String> = columns.iter().map(|column| quoted(&column.name)).collect();
        // SQLite has no `SELECT` of nothing.
        let list = if list.is_empty() { "NULL".to_owned() } else { list.join(", ") };
        let limit = limit.map(|rows| format!(" LIMIT {rows}")).unwrap_or_default();
        format!("SELECT {list} FROM {}{limit}", self.found.name.sql())
    }
}
