//! Tables of SQLite files.

mod catalog;
mod file;
mod kind;
mod scan;

use std::sync::Arc;

use arrow_schema::Schema;
use lakemark::{Error, Result, Root};

use crate::name::{TableName, segment};
use crate::options::Options;
use crate::table::SqlTable;

/// The table `name` of the file at `url`.
pub(crate) async fn open(url: &str, name: &TableName, options: Options) -> Result<(SqlTable, Root)> {
    options.none_left(&[])?;
    let path = file::locate(url)?;
    let (place, wanted) = (path.clone(), name.clone());
    let look = move || catalog::find(&file::open(&place)?, &place, &wanted);
    let found = tokio::task::spawn_blocking(look).await.map_err(|error| {
        Error::new(lakemark::ErrorKind::Unavailable, "the file could not be looked at").caused_by(error)
    })??;
    let root = Root::parse(&path)?.join(&segment(&found.name.to_string()));
    let fields: Vec<_> = found.columns.iter().map(catalog::Column::field).collect();
    Ok((SqlTable::new(Arc::new(Schema::new(fields)), Arc::new(scan::Table { path, found })), root))
}
