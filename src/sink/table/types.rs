//! Arrow types as table formats store them: without what only Arrow tells apart.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, TimeUnit};

use crate::error::{Error, Result};

/// What a table format has to say about columns.
pub trait StoredTypes {
    /// What messages call such a table: `a Delta table`.
    fn table(&self) -> &'static str;

    /// Whether a column or field may be called `name`, which is not empty.
    fn takes_name(&self, _name: &str) -> bool {
        true
    }

    /// What names are, for messages: `without spaces`.
    fn names(&self) -> &'static str {
        "one that is not empty"
    }

    /// The type in which values of `from`, which is neither nested nor encoded, are stored; no value changes by it. `None`:
    /// there is none.
    fn scalar(&self, from: &DataType) -> Option<DataType> {
        plain_scalar(from)
    }
}

/// What the table formats have in common: signed integers, one kind of text, microseconds.
pub fn plain_scalar(from: &DataType) -> Option<DataType> {
    Some(match from {
        DataType::Boolean
        | DataType::Int32
        | DataType::Int64
        | DataType::Float32
        | DataType::Float64
        | DataType::FixedSizeBinary(_)
        | DataType::Date32 => from.clone(),
        DataType::Int8 | DataType::Int16 | DataType::UInt8 | DataType::UInt16 => DataType::Int32,
        DataType::UInt32 => DataType::Int64,
        DataType::UInt64 => DataType::Decimal128(20, 0),
        DataType::Float16 => DataType::Float32,
        DataType::Date64 => DataType::Date32,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => DataType::Binary,
        DataType::Decimal32(p, s)
        | DataType::Decimal64(p, s)
        | DataType::Decimal128(p, s)
        | DataType::Decimal256(p, s)
            if *p <= 38 && u8::try_from(*s).is_ok_and(|s| s <= *p) =>
        {
            DataType::Decimal128(*p, *s)
        }
        DataType::Timestamp(_, Some(_)) => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        DataType::Timestamp(_, None) => DataType::Timestamp(TimeUnit::Microsecond, None),
        _ => return None,
    })
}

/// The schema in which rows of `schema` are stored by `types`: no value changes by it.
///
/// # Errors
/// [`Invalid`](crate::ErrorKind::Invalid) naming the column.
pub fn storable(types: &impl StoredTypes, schema: &Schema) -> Result<Schema> {
    check_names(types, schema.fields())?;
    let fields = schema.fields().iter().map(|field| stored_field(types, field, field.name()));
    Ok(Schema::new(fields.collect::<Result<Fields>>()?))
}

/// Checks the names of columns, or of the fields of one.
fn check_names(types: &impl StoredTypes, fields: &Fields) -> Result<()> {
    let mut seen = HashSet::new();
    for field in fields {
        let name = field.name();
        if name.is_empty() || !types.takes_name(name) {
            let what = format!("{} cannot have a column or field named `{name}`", types.table());
            return Err(Error::invalid(what)
                .safe("nothing was read or written")
                .way(format!("give the column another name in the query with AS: {}", types.names())));
        }
        if !seen.insert(name.to_lowercase()) {
            return Err(Error::invalid(format!(
                "the query has two columns or fields that differ from `{name}` in upper and lower case only: to {} they are \
                 one",
                types.table()
            ))
            .safe("nothing was read or written")
            .way("give one of them another name with AS"));
        }
    }
    Ok(())
}

/// `field` as it is stored; `column` is the one it is in.
fn stored_field(types: &impl StoredTypes, field: &FieldRef, column: &str) -> Result<FieldRef> {
    // What one query calls never null another one may make null: the table promises nothing.
    Ok(Arc::new(Field::new(field.name(), stored(types, field.data_type(), column)?, true)))
}

fn stored(types: &impl StoredTypes, from: &DataType, column: &str) -> Result<DataType> {
    let no_type = || {
        let what = format!("column `{column}` has the type {from}, and {} has none for it", types.table());
        Error::invalid(what)
            .safe("nothing was read or written")
            .way(format!("cast it in the query, for example arrow_cast({column}, 'Utf8')"))
    };
    Ok(match from {
        DataType::Dictionary(_, values) => stored(types, values, column)?,
        DataType::RunEndEncoded(_, values) => stored(types, values.data_type(), column)?,
        DataType::List(element)
        | DataType::LargeList(element)
        | DataType::ListView(element)
        | DataType::LargeListView(element)
        | DataType::FixedSizeList(element, _) => {
            let element = Field::new("element", stored(types, element.data_type(), column)?, true);
            DataType::List(Arc::new(element))
        }
        DataType::Struct(fields) if !fields.is_empty() => {
            check_names(types, fields)?;
            let fields = fields.iter().map(|field| stored_field(types, field, column));
            DataType::Struct(fields.collect::<Result<Fields>>()?)
        }
        DataType::Map(entries, sorted) => {
            let DataType::Struct(pair) = entries.data_type() else { return Err(no_type()) };
            let [key, value] = &pair[..] else { return Err(no_type()) };
            let key = Field::new("key", stored(types, key.data_type(), column)?, false);
            let value = Field::new("value", stored(types, value.data_type(), column)?, true);
            let pair = DataType::Struct(Fields::from(vec![key, value]));
            DataType::Map(Arc::new(Field::new("key_value", pair, false)), *sorted)
        }
        scalar => types.scalar(scalar).ok_or_else(no_type)?,
    })
}
