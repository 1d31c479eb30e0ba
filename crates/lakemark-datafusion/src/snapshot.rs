//! A table of a table format as a source: its columns, and the values that are in its log only.

use std::sync::{Arc, Mutex, PoisonError};

use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::common::ScalarValue;
use lakemark::{Error, ErrorKind, Result, SourcePlan, SourceTable, TableFile, TableSnapshot};

/// A table, and the snapshot that a run reads.
#[derive(Debug)]
pub(crate) struct OpenTable {
    pub(crate) table: Arc<dyn SourceTable>,
    snapshot: Mutex<Arc<TableSnapshot>>,
}

impl OpenTable {
    pub(crate) fn new(table: Arc<dyn SourceTable>, snapshot: TableSnapshot) -> Self {
        Self { table, snapshot: Mutex::new(Arc::new(snapshot)) }
    }

    /// The snapshot that is read.
    pub(crate) fn snapshot(&self) -> Arc<TableSnapshot> {
        Arc::clone(&self.snapshot.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes a new snapshot: another driver may have worked on a newer one.
    pub(crate) async fn look_again(&self) -> Result<()> {
        let newer = Arc::new(self.table.snapshot().await?);
        *self.snapshot.lock().unwrap_or_else(PoisonError::into_inner) = newer;
        Ok(())
    }

    /// The columns in its files, and those that are in its log only.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) for a partition column whose values have no text.
    pub(crate) fn columns(&self) -> Result<(SchemaRef, Vec<FieldRef>)> {
        let snapshot = self.snapshot();
        let is_partition = |field: &FieldRef| snapshot.partition_by.iter().any(|name| name == field.name());
        let (partitions, files): (Vec<FieldRef>, Vec<FieldRef>) =
            snapshot.schema.fields().iter().cloned().partition(is_partition);
        if let Some(field) = partitions.iter().find(|field| !has_text(field.data_type())) {
            let (name, of) = (field.name(), field.data_type());
            return Err(Error::new(ErrorKind::Unsupported, format!("partition column `{name}` is {of}"))
                .at(self.table.lake().root())
                .safe("nothing was read or written")
                .way("read a table that is partitioned by text, numbers, dates or times"));
        }
        // A partition without a value is null, whatever the table says of its column.
        let partitions = partitions.iter().map(|field| Arc::new(Field::clone(field).with_nullable(true)) as FieldRef);
        Ok((Arc::new(Schema::new(files)), partitions.collect()))
    }

    /// Why a file of schema `file` cannot be read as `wanted`, where each file has each column: one that is not there has
    /// another name, as some writers give those that are no plain words.
    pub(crate) fn lacks_no_column(&self, file: &Schema, wanted: &Schema) -> Result<(), String> {
        let lacks = |field: &&FieldRef| file.field_with_name(field.name()).is_err();
        match wanted.fields().iter().find(lacks).filter(|_| self.snapshot().has_all_columns) {
            None => Ok(()),
            Some(field) => Err(format!("it has column `{}` under another name, and is read by names", field.name())),
        }
    }

    /// The places of `schema`'s columns in the order of the table; columns that it does not know come last.
    pub(crate) fn order(&self, schema: &Schema) -> Vec<usize> {
        let snapshot = self.snapshot();
        let place = |i: &usize| snapshot.schema.index_of(schema.field(*i).name()).unwrap_or(usize::MAX);
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
        let snapshot = self.snapshot();
        let left = || plan.table.as_ref()?.left_table.iter().find(|file| *file.file.path == *path);
        let file = snapshot.find(path).or_else(left)?;
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
