//! A table of a table format as a source: its columns, and the values that are in its log only.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::common::ScalarValue;
use lakemark::{Error, ErrorKind, Lake, Listing, Result, SourcePlan, SourceTable, TableFile, TableSnapshot};

use crate::checkpoints::first_schema;

/// A table, and the snapshot that a run reads.
#[derive(Debug)]
pub(crate) struct OpenTable {
    pub(crate) table: Arc<dyn SourceTable>,
    pub(crate) snapshot: TableSnapshot,
}

impl OpenTable {
    pub(crate) fn new(table: Arc<dyn SourceTable>, snapshot: TableSnapshot) -> Self {
        Self { table, snapshot }
    }

    /// The columns in its files, and those that are in its log only; `None`: there is no file to tell them.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) for a partition column whose values have no text.
    pub(crate) async fn columns(&self, lake: &Lake, listing: &Listing) -> Result<Option<(SchemaRef, Vec<FieldRef>)>> {
        let Some(schema) = &self.snapshot.schema else {
            return Ok(first_schema(lake, listing).await?.map(|schema| (schema, Vec::new())));
        };
        let is_partition = |field: &FieldRef| self.snapshot.partition_by.iter().any(|name| name == field.name());
        let (partitions, files): (Vec<FieldRef>, Vec<FieldRef>) =
            schema.fields().iter().cloned().partition(is_partition);
        if let Some(field) = partitions.iter().find(|field| !has_text(field.data_type())) {
            let (name, of) = (field.name(), field.data_type());
            return Err(Error::new(ErrorKind::Unsupported, format!("partition column `{name}` is {of}"))
                .at(lake.root())
                .safe("nothing was read or written")
                .way("read a table that is partitioned by text, numbers, dates or times"));
        }
        // A partition without a value is null, whatever the table says of its column.
        let partitions = partitions.iter().map(|field| Arc::new(Field::clone(field).with_nullable(true)) as FieldRef);
        Ok(Some((Arc::new(Schema::new(files)), partitions.collect())))
    }

    /// The places of `schema`'s columns in the order of the table; columns that it does not know come last.
    pub(crate) fn order(&self, schema: &Schema) -> Vec<usize> {
        let place = |i: &usize| {
            let place = self.snapshot.schema.as_ref().and_then(|all| all.index_of(schema.field(*i).name()).ok());
            place.unwrap_or(usize::MAX)
        };
        let mut order: Vec<usize> = (0..schema.fields().len()).collect();
        order.sort_by_key(place);
        order
    }

    /// The values of `columns` for the file at `path`; `None` when it is not known or one is no value of its column.
    pub(crate) fn partition_values(
        &self,
        plan: &SourcePlan,
        path: &str,
        columns: &[FieldRef],
    ) -> Option<Vec<ScalarValue>> {
        let left = || plan.table.as_ref()?.left_table.iter().find(|file| *file.file.path == *path);
        let file = self.snapshot.find(path).or_else(left)?;
        columns.iter().map(|column| value(file, column)).collect()
    }
}

fn value(file: &TableFile, column: &FieldRef) -> Option<ScalarValue> {
    match file.values.get(column.name().as_str())? {
        None => ScalarValue::try_from(column.data_type()).ok(),
        Some(text) => ScalarValue::try_from_string(text.to_string(), column.data_type()).ok().filter(|v| !v.is_null()),
    }
}

/// Whether values of this type are told as text.
fn has_text(of: &DataType) -> bool {
    of.is_integer()
        || of.is_floating()
        || matches!(
            of,
            DataType::Boolean | DataType::Utf8 | DataType::Date32 | DataType::Timestamp(..) | DataType::Decimal128(..)
        )
}
