//! Arrow types as Delta stores them, and Delta's schema as JSON.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, TimeUnit};
use lakemark::{Error, Result};
use serde_json::{Value, json};

/// What Delta does not take in a column name while columns are mapped by name.
const NOT_IN_NAMES: [char; 9] = [' ', ',', ';', '{', '}', '(', ')', '\n', '\t'];

/// The schema in which rows of `schema` are stored: no value changes by it.
///
/// # Errors
/// [`Invalid`](lakemark::ErrorKind::Invalid) naming the column.
pub(crate) fn storable(schema: &Schema) -> Result<Schema> {
    check_names(schema.fields())?;
    let fields = schema.fields().iter().map(|field| stored_field(field, field.name())).collect::<Result<Fields>>()?;
    Ok(Schema::new(fields))
}

/// Checks the names of columns, or of the fields of one.
fn check_names(fields: &Fields) -> Result<()> {
    let mut names = HashSet::new();
    for field in fields {
        let name = field.name();
        if name.is_empty() || name.contains(NOT_IN_NAMES) || name.contains('=') {
            return Err(Error::invalid(format!("a Delta table cannot have a column or field named `{name}`"))
                .safe("nothing was read or written")
                .way("give the column another name in the query with AS: without spaces and any of , ; { } ( ) ="));
        }
        if !names.insert(name.to_lowercase()) {
            return Err(Error::invalid(format!(
                "the query has two columns or fields that differ from `{name}` in upper and lower case only: to a Delta table they \
                 are one"
            ))
            .safe("nothing was read or written")
            .way("give one of them another name with AS"));
        }
    }
    Ok(())
}

/// `field` as it is stored; `column` is the one it is in.
fn stored_field(field: &FieldRef, column: &str) -> Result<FieldRef> {
    // What one query calls never null another one may make null: the table promises nothing.
    Ok(Arc::new(Field::new(field.name(), stored(field.data_type(), column)?, true)))
}

fn stored(from: &DataType, column: &str) -> Result<DataType> {
    let list = |element: &FieldRef| {
        let element = Field::new("element", stored(element.data_type(), column)?, true);
        Ok(DataType::List(Arc::new(element)))
    };
    Ok(match from {
        DataType::Boolean
        | DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::Float32
        | DataType::Float64
        | DataType::Date32 => from.clone(),
        DataType::UInt8 => DataType::Int16,
        DataType::UInt16 => DataType::Int32,
        DataType::UInt32 => DataType::Int64,
        DataType::UInt64 => DataType::Decimal128(20, 0),
        DataType::Float16 => DataType::Float32,
        DataType::Date64 => DataType::Date32,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            DataType::Binary
        }
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
        DataType::Dictionary(_, values) => stored(values, column)?,
        DataType::RunEndEncoded(_, values) => stored(values.data_type(), column)?,
        DataType::List(element)
        | DataType::LargeList(element)
        | DataType::ListView(element)
        | DataType::LargeListView(element)
        | DataType::FixedSizeList(element, _) => list(element)?,
        DataType::Struct(fields) if !fields.is_empty() => {
            check_names(fields)?;
            DataType::Struct(fields.iter().map(|field| stored_field(field, column)).collect::<Result<Fields>>()?)
        }
        DataType::Map(entries, sorted) => {
            let DataType::Struct(pair) = entries.data_type() else { return Err(no_type(column, from)) };
            let [key, value] = &pair[..] else { return Err(no_type(column, from)) };
            let key = Field::new("key", stored(key.data_type(), column)?, false);
            let value = Field::new("value", stored(value.data_type(), column)?, true);
            let pair = DataType::Struct(Fields::from(vec![key, value]));
            DataType::Map(Arc::new(Field::new("key_value", pair, false)), *sorted)
        }
        _ => return Err(no_type(column, from)),
    })
}

fn no_type(column: &str, from: &DataType) -> Error {
    Error::invalid(format!("column `{column}` has the type {from}, and a Delta table has none for it"))
        .safe("nothing was read or written")
        .way(format!("cast it in the query, for example arrow_cast({column}, 'Utf8')"))
}

/// Whether some column needs the feature `timestampNtz`.
pub(crate) fn has_timestamp_ntz(schema: &Schema) -> bool {
    fn within(of: &DataType) -> bool {
        match of {
            DataType::Timestamp(_, None) => true,
            DataType::List(inner) | DataType::Map(inner, _) => within(inner.data_type()),
            DataType::Struct(fields) => fields.iter().any(|field| within(field.data_type())),
            _ => false,
        }
    }
    schema.fields().iter().any(|field| within(field.data_type()))
}

/// Delta's schema of [`storable`] columns.
pub(crate) fn to_delta(schema: &Schema) -> Value {
    fields_to_delta(schema.fields())
}

fn fields_to_delta(fields: &Fields) -> Value {
    let field = |field: &FieldRef| {
        json!({
            "name": field.name(), "type": type_to_delta(field.data_type()), "nullable": field.is_nullable(), "metadata": {},
        })
    };
    json!({ "type": "struct", "fields": fields.iter().map(field).collect::<Vec<_>>() })
}

fn type_to_delta(of: &DataType) -> Value {
    match of {
        DataType::Boolean => "boolean".into(),
        DataType::Int8 => "byte".into(),
        DataType::Int16 => "short".into(),
        DataType::Int32 => "integer".into(),
        DataType::Int64 => "long".into(),
        DataType::Float32 => "float".into(),
        DataType::Float64 => "double".into(),
        DataType::Date32 => "date".into(),
        DataType::Binary => "binary".into(),
        DataType::Decimal128(precision, scale) => format!("decimal({precision},{scale})").into(),
        DataType::Timestamp(_, Some(_)) => "timestamp".into(),
        DataType::Timestamp(_, None) => "timestamp_ntz".into(),
        DataType::List(element) => json!({
            "type": "array", "elementType": type_to_delta(element.data_type()), "containsNull": true,
        }),
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(pair) if pair.len() == 2 => json!({
                "type": "map", "keyType": type_to_delta(pair[0].data_type()),
                "valueType": type_to_delta(pair[1].data_type()), "valueContainsNull": true,
            }),
            _ => Value::Null,
        },
        DataType::Struct(fields) => fields_to_delta(fields),
        _ => "string".into(),
    }
}

/// Checks that rows of `schema` can be appended to a table of the Delta schema `table`.
///
/// # Errors
/// [`Refused`](lakemark::ErrorKind::Refused), naming the column.
pub(crate) fn check_appendable(schema: &Schema, table: &Value) -> Result<()> {
    let refuse = |what: String| {
        Error::refused(what).safe("nothing was written to the table").way("change the query so that it fits the table")
    };
    let empty = Vec::new();
    let known = table["fields"].as_array().unwrap_or(&empty);
    let named = |name: &str| known.iter().find(|field| field["name"].as_str() == Some(name));
    let ours = to_delta(schema);
    for field in ours["fields"].as_array().unwrap_or(&empty) {
        let name = field["name"].as_str().unwrap_or_default();
        let Some(column) = named(name) else {
            let names: Vec<_> =
                known.iter().filter_map(|field| field["name"].as_str()).map(|n| format!("`{n}`")).collect();
            return Err(refuse(format!("the table has no column `{name}`; it has {}", names.join(", ")))
                .way("or add the column to the table first (ALTER TABLE ... ADD COLUMN)"));
        };
        if !is_same_type(&field["type"], &column["type"]) {
            return Err(refuse(format!(
                "column `{name}` is {} in the query and {} in the table",
                shown(&field["type"]),
                shown(&column["type"])
            ))
            .way(format!("cast it in the query, for example CAST({name} AS ...)")));
        }
        if column["nullable"] == Value::Bool(false) {
            return Err(refuse(format!(
                "column `{name}` of the table is NOT NULL, which is not checked in this version"
            ))
            .way("allow nulls in the table (ALTER TABLE ... ALTER COLUMN ... DROP NOT NULL)"));
        }
    }
    let lacking = known.iter().find(|column| {
        let name = column["name"].as_str().unwrap_or_default();
        column["nullable"] == Value::Bool(false) && schema.field_with_name(name).is_err()
    });
    match lacking {
        None => Ok(()),
        Some(column) => {
            Err(refuse(format!("the query lacks column `{}`, which is NOT NULL in the table", shown(&column["name"]))))
        }
    }
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Whether two Delta types hold the same values; what is nullable within them is not compared.
fn is_same_type(a: &Value, b: &Value) -> bool {
    match (a.as_str(), b.as_str()) {
        (Some(a), Some(b)) => return a == b,
        (None, None) => {}
        _ => return false,
    }
    if a["type"] != b["type"] {
        return false;
    }
    match a["type"].as_str() {
        Some("array") => is_same_type(&a["elementType"], &b["elementType"]),
        Some("map") => is_same_type(&a["keyType"], &b["keyType"]) && is_same_type(&a["valueType"], &b["valueType"]),
        Some("struct") => {
            let (Some(a), Some(b)) = (a["fields"].as_array(), b["fields"].as_array()) else { return false };
            let same = |(a, b): (&Value, &Value)| a["name"] == b["name"] && is_same_type(&a["type"], &b["type"]);
            a.len() == b.len() && a.iter().zip(b).all(same)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(columns: &[(&str, DataType)]) -> Schema {
        Schema::new(columns.iter().map(|(name, of)| Field::new(*name, of.clone(), false)).collect::<Vec<_>>())
    }

    #[test]
    fn every_type_is_stored_without_loss_or_refused_by_name() {
        let list = |of: DataType| DataType::LargeList(Arc::new(Field::new("item", of, false)));
        let stored = |of: DataType| {
            let storable = storable(&schema(&[("c", of)])).unwrap();
            to_delta(&storable)["fields"][0]["type"].clone()
        };
        assert_eq!(stored(DataType::UInt64), "decimal(20,0)");
        assert_eq!(stored(DataType::UInt8), "short");
        assert_eq!(stored(DataType::Utf8View), "string");
        assert_eq!(stored(DataType::Timestamp(TimeUnit::Nanosecond, None)), "timestamp_ntz");
        assert_eq!(stored(DataType::Timestamp(TimeUnit::Second, Some("+01:00".into()))), "timestamp");
        assert_eq!(stored(DataType::Decimal256(38, 10)), "decimal(38,10)");
        assert_eq!(stored(list(DataType::Float16))["elementType"], "float");
        for of in [
            DataType::Null,
            DataType::Decimal256(39, 0),
            DataType::Time64(TimeUnit::Microsecond),
            DataType::Duration(TimeUnit::Second),
            list(DataType::Interval(arrow_schema::IntervalUnit::DayTime)),
        ] {
            let error = storable(&schema(&[("fine", DataType::Int64), ("odd", of)])).unwrap_err();
            assert!(error.to_string().contains("`odd`") && error.to_string().contains("arrow_cast"), "{error}");
        }
    }

    #[test]
    fn names_that_delta_does_not_take_are_refused() {
        for names in [["a b", "c"], ["a=1", "c"], ["", "c"], ["Text", "text"]] {
            let error = storable(&schema(&names.map(|name| (name, DataType::Int64)))).unwrap_err();
            assert!(error.to_string().contains("AS"), "{error}");
            let fields = names.map(|name| Field::new(name, DataType::Int64, true));
            let within = DataType::Struct(Fields::from(fields.to_vec()));
            let list = DataType::LargeList(Arc::new(Field::new("item", within, true)));
            assert!(storable(&schema(&[("c", list)])).is_err(), "at any depth");
        }
    }

    #[test]
    fn rows_fit_a_table_by_name_and_type() {
        let rows = storable(&schema(&[("id", DataType::Int64), ("tags", DataType::Utf8)])).unwrap();
        let table = |fields: Value| json!({ "type": "struct", "fields": fields });
        let column = |name: &str, of: &str, nullable: bool| json!({ "name": name, "type": of, "nullable": nullable });
        let fits = |fields: Value| check_appendable(&rows, &table(fields));
        assert!(
            fits(json!([column("more", "date", true), column("tags", "string", true), column("id", "long", true)]))
                .is_ok()
        );
        for (fields, what) in [
            (json!([column("id", "long", true)]), "no column `tags`"),
            (json!([column("id", "integer", true), column("tags", "string", true)]), "long in the query and integer"),
            (json!([column("id", "long", false), column("tags", "string", true)]), "NOT NULL"),
            (
                json!([column("id", "long", true), column("tags", "string", true), column("x", "long", false)]),
                "lacks column `x`",
            ),
        ] {
            let error = fits(fields).unwrap_err();
            assert!(error.to_string().contains(what), "{error}");
        }
    }
}
