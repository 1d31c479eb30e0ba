//! Tables of PostgreSQL, over its binary protocol.

mod address;
mod catalog;
mod decode;
mod failure;
mod kind;
mod passfile;
mod scan;
mod session;
mod tls;
mod values;

use std::sync::Arc;

use arrow_schema::Schema;
use lakemark::{Result, Root};

use crate::name::TableName;
use crate::options::Options;
use crate::table::SqlTable;

/// The table `name` of the database at `url`.
pub(crate) async fn open(url: &str, name: &TableName, options: Options) -> Result<(SqlTable, Root)> {
    let environment = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let address = address::Address::of(url, options, &environment)?;
    let session = session::Session::start(&address).await?;
    let found = catalog::find(&session, &address, name).await?;
    let root = Root::parse(&address.root(&found.name))?;
    let fields: Vec<_> = found.columns.iter().map(catalog::Column::field).collect();
    let table = scan::Table { address, name: found.name, columns: found.columns };
    Ok((SqlTable::new(Arc::new(Schema::new(fields)), Arc::new(table)), root))
}
