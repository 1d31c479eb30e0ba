//! Arrow types as Delta stores them, and Delta's schema as JSON.

use arrow_schema::{DataType, FieldRef, Fields, Schema};
use lakemark::{Error, Result, SchemaMode, StoredTypes, plain_scalar};
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

/// Whether something in a Delta type needs the feature `timestampNtz`.
pub(crate) fn has_timestamp_ntz(of: &Value) -> bool {
    let mut fields = of["fields"].as_array().into_iter().flatten();
    of == "timestamp_ntz"
        || ["type", "elementType", "keyType", "valueType"]
            .iter()
            .any(|part| of.get(part).is_some_and(has_timestamp_ntz))
        || fields.any(has_timestamp_ntz)
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

/// The Delta schema of a table of `table` to which rows of `ours` are appended: the same or, where columns may be added, with
/// those that it lacks at its end.
///
/// # Errors
/// [`Refused`](lakemark::ErrorKind::Refused), naming the column.
pub(crate) fn appended(ours: &Value, table: &Value, mode: SchemaMode) -> Result<Value> {
    let refuse = |what: String| {
        Error::refused(what).safe("nothing was written to the table").way("change the query so that it fits the table")
    };
    let known: Vec<&Value> = table["fields"].as_array().into_iter().flatten().collect();
    let mut added = Vec::new();
    for field in ours["fields"].as_array().into_iter().flatten() {
        let name = name_of(field);
        let Some(column) = known.iter().find(|column| name_of(column) == name) else {
            if let Some(other) = known.iter().find(|column| name_of(column).to_lowercase() == name.to_lowercase()) {
                let what = format!(
                    "the table has a column `{}`, and the query `{name}`: to a Delta table they are one",
                    name_of(other)
                );
                return Err(refuse(what).way(format!("name it as the table does: AS \"{}\"", name_of(other))));
            }
            if mode == SchemaMode::Merge {
                let mut field = field.clone();
                // Rows that are there have no value for it.
                field["nullable"] = true.into();
                added.push(field);
                continue;
            }
            let names: Vec<_> = known.iter().map(|column| format!("`{}`", name_of(column))).collect();
            return Err(refuse(format!("the table has no column `{name}`; it has {}", names.join(", ")))
                .way("let the commit add it: schema_mode = \"merge\" in [sink], or --set sink.schema_mode=merge")
                .way("or add the column to the table first (ALTER TABLE ... ADD COLUMN)"));
        };
        if !is_same_type(&field["type"], &column["type"]) {
            let refused = refuse(format!(
                "column `{name}` is {} in the query and {} in the table",
                shown(&field["type"]),
                shown(&column["type"])
            ))
            .way(format!("cast it in the query, for example CAST({name} AS ...)"));
            return Err(match mode {
                SchemaMode::Fail => refused,
                SchemaMode::Merge => refused.way(
                    "change the table with its own tools: schema_mode = \"merge\" adds columns; it widens no type, and adds \
                     no field within a column",
                ),
            });
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
    let has = |name: &str| ours["fields"].as_array().into_iter().flatten().any(|field| name_of(field) == name);
    let lacking = known.iter().find(|column| column["nullable"] == Value::Bool(false) && !has(name_of(column)));
    if let Some(column) = lacking {
        return Err(refuse(format!("the query lacks column `{}`, which is NOT NULL in the table", name_of(column))));
    }
    let mut appended = table.clone();
    if let Some(columns) = appended["fields"].as_array_mut() {
        columns.extend(added);
    }
    Ok(appended)
}

fn name_of(field: &Value) -> &str {
    field["name"].as_str().unwrap_or_default()
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

    fn column(name: &str, of: &str, nullable: bool) -> Value {
        json!({ "name": name, "type": of, "nullable": nullable, "metadata": {} })
    }

    fn table(fields: &[Value]) -> Value {
        json!({ "type": "struct", "fields": fields })
    }

    #[test]
    fn rows_fit_a_table_by_name_and_type() {
        let rows = storable(&DeltaTypes, &schema(&[("id", DataType::Int64), ("tags", DataType::Utf8)])).unwrap();
        let fits = |fields: &[Value], mode| appended(&to_delta(&rows), &table(fields), mode);
        let fitting = [column("more", "date", true), column("tags", "string", true), column("id", "long", true)];
        for mode in [SchemaMode::Fail, SchemaMode::Merge] {
            assert_eq!(fits(&fitting, mode).unwrap(), table(&fitting), "what the query lacks stays");
            for (fields, what) in [
                (vec![column("id", "integer", true), column("tags", "string", true)], "long in the query and integer"),
                (vec![column("id", "long", false), column("tags", "string", true)], "NOT NULL"),
                (
                    vec![column("id", "long", true), column("tags", "string", true), column("x", "long", false)],
                    "lacks column `x`",
                ),
                (vec![column("id", "long", true), column("Tags", "string", true)], "AS \"Tags\""),
            ] {
                let error = fits(&fields, mode).unwrap_err();
                assert!(error.to_string().contains(what), "{error}");
            }
        }
        let error = fits(&[column("id", "long", true)], SchemaMode::Fail).unwrap_err();
        assert!(error.to_string().contains("no column `tags`"), "{error}");
        assert!(error.to_string().contains("sink.schema_mode=merge"), "{error}");
    }

    #[test]
    fn columns_that_a_table_lacks_are_added_at_its_end() {
        let mut kept = column("id", "long", true);
        kept["metadata"] = json!({ "comment": "of theirs", "n": 7 });
        let within = DataType::Struct(vec![Field::new("n", DataType::Int64, true)].into());
        let columns =
            [("new", DataType::Timestamp(TimeUnit::Microsecond, None)), ("id", DataType::Int64), ("inner", within)];
        let rows = to_delta(&storable(&DeltaTypes, &schema(&columns)).unwrap());
        let before = table(&[kept.clone(), column("other", "date", true)]);
        let grown = appended(&rows, &before, SchemaMode::Merge).unwrap();
        let inner =
            json!({ "name": "inner", "type": table(&[column("n", "long", true)]), "nullable": true, "metadata": {} });
        let added = [kept, column("other", "date", true), column("new", "timestamp_ntz", true), inner];
        assert_eq!(grown, table(&added));
        assert!(has_timestamp_ntz(&grown) && !has_timestamp_ntz(&before));
        // Fields within a column are none of its own.
        let more = DataType::Struct(
            vec![Field::new("n", DataType::Int64, true), Field::new("m", DataType::Int64, true)].into(),
        );
        let rows = to_delta(&storable(&DeltaTypes, &schema(&[("inner", more)])).unwrap());
        let error = appended(&rows, &grown, SchemaMode::Merge).unwrap_err();
        assert!(
            error.to_string().contains("`inner`") && error.to_string().contains("no field within a column"),
            "{error}"
        );
    }
}
