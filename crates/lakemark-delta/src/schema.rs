//! Arrow types as Delta stores them, and Delta's schema as JSON.

use arrow_schema::{DataType, FieldRef, Fields, Schema};
use lakemark::{Error, Result, StoredTypes, plain_scalar};
use serde_json::{Value, json};

/// What Delta does not take in a column name while columns are mapped by name.
const NOT_IN_NAMES: [char; 10] = [' ', ',', ';', '{', '}', '(', ')', '\n', '\t', '='];

/// Delta's types.
pub(crate) struct DeltaTypes;

impl StoredTypes for DeltaTypes {
    fn table(&self) -> &'static str {
        "a Delta table"
    }

    fn takes_name(&self, name: &str) -> bool {
        !name.contains(NOT_IN_NAMES)
    }

    fn names(&self) -> &'static str {
        "without spaces and any of , ; { } ( ) ="
    }

    fn scalar(&self, from: &DataType) -> Option<DataType> {
        Some(match from {
            DataType::Int8 | DataType::Int16 => from.clone(),
            DataType::UInt8 => DataType::Int16,
            DataType::FixedSizeBinary(_) => DataType::Binary,
            _ => return plain_scalar(from),
        })
    }
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
        let is_required = column["nullable"] == Value::Bool(false);
        if is_required || has_required(&column["type"]) {
            let within = if is_required { "" } else { " has something within that" };
            return Err(refuse(format!(
                "column `{name}` of the table{within} is NOT NULL, which is not checked in this version"
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

/// Whether something within a Delta type must not be null; keys of maps never are.
fn has_required(of: &Value) -> bool {
    let no = Value::Bool(false);
    let mut fields = of["fields"].as_array().into_iter().flatten();
    of["containsNull"] == no
        || of["valueContainsNull"] == no
        || ["elementType", "keyType", "valueType"].iter().any(|part| of[*part].is_object() && has_required(&of[*part]))
        || fields.any(|field| field["nullable"] == no || has_required(&field["type"]))
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
    use std::sync::Arc;

    use arrow_schema::{Field, TimeUnit};
    use lakemark::storable;

    use super::*;

    fn schema(columns: &[(&str, DataType)]) -> Schema {
        Schema::new(columns.iter().map(|(name, of)| Field::new(*name, of.clone(), false)).collect::<Vec<_>>())
    }

    #[test]
    fn every_type_is_stored_without_loss_or_refused_by_name() {
        let list = |of: DataType| DataType::LargeList(Arc::new(Field::new("item", of, false)));
        let stored = |of: DataType| {
            let storable = storable(&DeltaTypes, &schema(&[("c", of)])).unwrap();
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
            let error = storable(&DeltaTypes, &schema(&[("fine", DataType::Int64), ("odd", of)])).unwrap_err();
            assert!(error.to_string().contains("`odd`") && error.to_string().contains("arrow_cast"), "{error}");
        }
    }

    #[test]
    fn names_that_delta_does_not_take_are_refused() {
        for names in [["a b", "c"], ["a=1", "c"], ["", "c"], ["Text", "text"]] {
            let error = storable(&DeltaTypes, &schema(&names.map(|name| (name, DataType::Int64)))).unwrap_err();
            assert!(error.to_string().contains("AS"), "{error}");
            let fields = names.map(|name| Field::new(name, DataType::Int64, true));
            let within = DataType::Struct(Fields::from(fields.to_vec()));
            let list = DataType::LargeList(Arc::new(Field::new("item", within, true)));
            assert!(storable(&DeltaTypes, &schema(&[("c", list)])).is_err(), "at any depth");
        }
    }

    #[test]
    fn rows_fit_a_table_by_name_and_type() {
        let rows = storable(&DeltaTypes, &schema(&[("id", DataType::Int64), ("tags", DataType::Utf8)])).unwrap();
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
