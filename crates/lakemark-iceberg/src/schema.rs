//! Arrow columns as Iceberg columns, which are known by their ids.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields, Schema as ArrowSchema, TimeUnit};
use iceberg::spec::{
    ListType, MapType, NestedField, NestedFieldRef, PrimitiveType, Schema, StructType, Transform, Type,
    UnboundPartitionSpec,
};
use lakemark::{Error, Result, StoredTypes, plain_scalar};
use parquet::arrow::PARQUET_FIELD_ID_META_KEY;

/// Iceberg's types.
pub(crate) struct IcebergTypes;

impl StoredTypes for IcebergTypes {
    fn table(&self) -> &'static str {
        "an Iceberg table"
    }

    fn scalar(&self, from: &DataType) -> Option<DataType> {
        match from {
            DataType::Time32(_) | DataType::Time64(_) => Some(DataType::Time64(TimeUnit::Microsecond)),
            _ => plain_scalar(from),
        }
    }
}

/// Whether a partition value of this type has a text from which it can be told again. Times with a zone have one, but the
/// crate panics over those before 1970 (0.10.1, `microseconds_to_datetimetz`).
pub(crate) fn can_partition(of: &DataType) -> bool {
    matches!(
        of,
        DataType::Boolean
            | DataType::Int32
            | DataType::Int64
            | DataType::Utf8
            | DataType::Date32
            | DataType::Timestamp(_, None)
            | DataType::Decimal128(..)
    )
}

pub(crate) fn type_of(of: &DataType) -> Option<Type> {
    Some(Type::Primitive(match of {
        DataType::Boolean => PrimitiveType::Boolean,
        DataType::Int32 => PrimitiveType::Int,
        DataType::Int64 => PrimitiveType::Long,
        DataType::Float32 => PrimitiveType::Float,
        DataType::Float64 => PrimitiveType::Double,
        DataType::Date32 => PrimitiveType::Date,
        DataType::Time64(TimeUnit::Microsecond) => PrimitiveType::Time,
        DataType::Timestamp(TimeUnit::Microsecond, None) => PrimitiveType::Timestamp,
        DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => PrimitiveType::Timestamptz,
        DataType::Utf8 => PrimitiveType::String,
        DataType::Binary => PrimitiveType::Binary,
        DataType::FixedSizeBinary(length) => PrimitiveType::Fixed(u64::try_from(*length).ok()?),
        DataType::Decimal128(precision, scale) => {
            PrimitiveType::Decimal { precision: u32::from(*precision), scale: u32::try_from(*scale).ok()? }
        }
        DataType::List(element) => {
            let element = NestedField::list_element(id_of(element), type_of(element.data_type())?, false);
            return Some(Type::List(ListType::new(Arc::new(element))));
        }
        DataType::Map(entries, _) => {
            let DataType::Struct(pair) = entries.data_type() else { return None };
            let [key, value] = &pair[..] else { return None };
            let key_field = NestedField::map_key_element(id_of(key), type_of(key.data_type())?);
            let value_field = NestedField::map_value_element(id_of(value), type_of(value.data_type())?, false);
            return Some(Type::Map(MapType::new(Arc::new(key_field), Arc::new(value_field))));
        }
        DataType::Struct(fields) => return Some(Type::Struct(StructType::new(columns_of(fields)?))),
        _ => return None,
    }))
}

/// The columns of a table as they are read; `None` when one is of a type that is not.
pub(crate) fn to_arrow(table: &Schema) -> Option<ArrowSchema> {
    Some(ArrowSchema::new(fields_read(table.as_struct().fields())?))
}

fn fields_read(columns: &[NestedFieldRef]) -> Option<Fields> {
    columns.iter().map(|column| field_read(column, &column.name)).collect()
}

fn field_read(column: &NestedField, name: &str) -> Option<FieldRef> {
    Some(Arc::new(Field::new(name, type_read(&column.field_type)?, !column.required)))
}

fn type_read(of: &Type) -> Option<DataType> {
    let of = match of {
        Type::Primitive(of) => of,
        Type::Struct(fields) => return Some(DataType::Struct(fields_read(fields.fields())?)),
        Type::List(list) => return Some(DataType::List(field_read(&list.element_field, "element")?)),
        Type::Map(map) => {
            let pair = [field_read(&map.key_field, "key")?, field_read(&map.value_field, "value")?];
            let entries = Field::new("key_value", DataType::Struct(pair.into_iter().collect()), false);
            return Some(DataType::Map(Arc::new(entries), false));
        }
    };
    Some(match of {
        PrimitiveType::Boolean => DataType::Boolean,
        PrimitiveType::Int => DataType::Int32,
        PrimitiveType::Long => DataType::Int64,
        PrimitiveType::Float => DataType::Float32,
        PrimitiveType::Double => DataType::Float64,
        PrimitiveType::Decimal { precision, scale } => {
            DataType::Decimal128(u8::try_from(*precision).ok()?, i8::try_from(*scale).ok()?)
        }
        PrimitiveType::Date => DataType::Date32,
        PrimitiveType::Time => DataType::Time64(TimeUnit::Microsecond),
        PrimitiveType::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
        PrimitiveType::Timestamptz => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        PrimitiveType::String => DataType::Utf8,
        PrimitiveType::Uuid => DataType::FixedSizeBinary(16),
        PrimitiveType::Fixed(length) => DataType::FixedSizeBinary(i32::try_from(*length).ok()?),
        PrimitiveType::Binary => DataType::Binary,
        _ => return None,
    })
}

/// Iceberg's columns of stored ones; `None` when one is of no type of Iceberg's.
pub(crate) fn columns_of(fields: &Fields) -> Option<Vec<NestedFieldRef>> {
    let column = |field: &FieldRef| {
        Some(Arc::new(NestedField::optional(id_of(field), field.name(), type_of(field.data_type())?)))
    };
    fields.iter().map(column).collect()
}

/// The id of a column or field; 0 for one that has none yet.
pub(crate) fn id_of(field: &Field) -> i32 {
    field.metadata().get(PARQUET_FIELD_ID_META_KEY).and_then(|id| id.parse().ok()).unwrap_or_default()
}

/// The schema of a new table of stored columns: its ids are those that the table gets.
///
/// # Errors
/// [`Invalid`](lakemark::ErrorKind::Invalid) for columns that no table can have.
pub(crate) fn new_schema(rows: &ArrowSchema) -> Result<Schema> {
    let impossible =
        || Error::invalid("the output cannot be the columns of an Iceberg table").safe("nothing was written");
    let numbered = number(rows.fields(), &mut 0);
    let columns = columns_of(&numbered).ok_or_else(impossible)?;
    Schema::builder().with_fields(columns).build().map_err(|e| impossible().caused_by(e))
}

/// `fields` with ids from `last` on: all of one level before those within them, as Iceberg numbers new columns.
fn number(fields: &Fields, last: &mut i32) -> Fields {
    let mut next = || {
        *last += 1;
        *last
    };
    let ids: Vec<i32> = fields.iter().map(|_| next()).collect();
    let numbered = fields.iter().zip(ids).map(|(field, id)| {
        let within = match field.data_type() {
            DataType::List(element) => DataType::List(Arc::clone(&number(&vec![Arc::clone(element)].into(), last)[0])),
            DataType::Struct(fields) => DataType::Struct(number(fields, last)),
            DataType::Map(entries, sorted) => match entries.data_type() {
                DataType::Struct(pair) => {
                    let pair = DataType::Struct(number(pair, last));
                    DataType::Map(Arc::new(entries.as_ref().clone().with_data_type(pair)), *sorted)
                }
                other => other.clone(),
            },
            other => other.clone(),
        };
        with_id(field, within, id)
    });
    numbered.collect()
}

fn with_id(field: &Field, of: DataType, id: i32) -> FieldRef {
    let metadata = HashMap::from([(PARQUET_FIELD_ID_META_KEY.to_owned(), id.to_string())]);
    Arc::new(field.clone().with_data_type(of).with_metadata(metadata))
}

/// Stored columns with the ids that `table` knows them by. One that the table does not have, or not of that type, has none.
pub(crate) fn with_ids(rows: &ArrowSchema, table: &Schema) -> ArrowSchema {
    ArrowSchema::new(fields_with_ids(rows.fields(), table.as_struct().fields()))
}

fn fields_with_ids(fields: &Fields, known: &[NestedFieldRef]) -> Fields {
    let named = |field: &FieldRef| match known.iter().find(|column| column.name == *field.name()) {
        Some(column) => field_with_ids(field, column),
        None => Arc::clone(field),
    };
    fields.iter().map(named).collect()
}

fn field_with_ids(field: &FieldRef, column: &NestedField) -> FieldRef {
    let of = match (field.data_type(), &*column.field_type) {
        (DataType::List(element), Type::List(list)) => DataType::List(field_with_ids(element, &list.element_field)),
        (DataType::Struct(fields), Type::Struct(known)) => DataType::Struct(fields_with_ids(fields, known.fields())),
        (DataType::Map(entries, sorted), Type::Map(map)) => match entries.data_type() {
            DataType::Struct(pair) if pair.len() == 2 => {
                let (key, value) =
                    (field_with_ids(&pair[0], &map.key_field), field_with_ids(&pair[1], &map.value_field));
                let pair = DataType::Struct(vec![key, value].into());
                DataType::Map(Arc::new(entries.as_ref().clone().with_data_type(pair)), *sorted)
            }
            other => other.clone(),
        },
        (other, _) => other.clone(),
    };
    with_id(field, of, column.id)
}

/// Stored columns, of which those that have no id get one, as a table numbers columns that it gets: after `last`, each before
/// what is within it.
pub(crate) fn with_new_ids(rows: &ArrowSchema, mut last: i32) -> ArrowSchema {
    let numbered =
        |field: &FieldRef| if id_of(field) == 0 { number_added(field, &mut last) } else { Arc::clone(field) };
    ArrowSchema::new(rows.fields().iter().map(numbered).collect::<Fields>())
}

/// `field` with ids after `last`, as the crate gives them to columns that are added (0.10.1, `assign_fresh_ids`).
pub(crate) fn number_added(field: &FieldRef, last: &mut i32) -> FieldRef {
    *last += 1;
    let id = *last;
    let of = match field.data_type() {
        DataType::List(element) => DataType::List(number_added(element, last)),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(|field| number_added(field, last)).collect()),
        DataType::Map(entries, sorted) => match entries.data_type() {
            DataType::Struct(pair) => {
                let pair = DataType::Struct(pair.iter().map(|field| number_added(field, last)).collect());
                DataType::Map(Arc::new(entries.as_ref().clone().with_data_type(pair)), *sorted)
            }
            other => other.clone(),
        },
        other => other.clone(),
    };
    with_id(field, of, id)
}

/// A schema without what columns are known by.
pub(crate) fn without_ids(schema: &ArrowSchema) -> ArrowSchema {
    fn bare(fields: &Fields) -> Fields {
        fields.iter().map(field).collect()
    }
    fn field(field_with: &FieldRef) -> FieldRef {
        let of = match field_with.data_type() {
            DataType::List(element) => DataType::List(field(element)),
            DataType::Struct(fields) => DataType::Struct(bare(fields)),
            DataType::Map(entries, sorted) => DataType::Map(field(entries), *sorted),
            other => other.clone(),
        };
        Arc::new(Field::new(field_with.name(), of, field_with.is_nullable()))
    }
    ArrowSchema::new(bare(schema.fields()))
}

/// The partition spec of a new table: the values of `columns` as they are.
///
/// # Errors
/// [`Invalid`](lakemark::ErrorKind::Invalid) for a column that is not in `schema`.
pub(crate) fn identity_spec(schema: &Schema, columns: &[String]) -> Result<UnboundPartitionSpec> {
    let mut spec = UnboundPartitionSpec::builder();
    for column in columns {
        let impossible = || Error::invalid(format!("an Iceberg table cannot be partitioned by `{column}`"));
        let id = schema.field_id_by_name(column).ok_or_else(impossible)?;
        spec =
            spec.add_partition_field(id, column.clone(), Transform::Identity).map_err(|e| impossible().caused_by(e))?;
    }
    Ok(spec.build())
}
