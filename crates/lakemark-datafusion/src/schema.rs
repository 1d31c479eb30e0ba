//! Schemas: of a source, of its files, of the output.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit};
use datafusion::datasource::physical_plan::parquet::Int96Coercer;
use lakemark::{Error, Footer, Result};
use parquet::arrow::parquet_to_arrow_schema;

/// How timestamps in Parquet's oldest form are read from the files of tables: both Delta and Iceberg have instants in
/// microseconds, and Spark writes them so.
pub(crate) const INT96: (TimeUnit, &str, &str) = (TimeUnit::Microsecond, "us", "UTC");

/// The Arrow schema of one Parquet file of a table, without its key-value metadata.
pub(crate) fn table_file_schema(footer: &Footer) -> Result<Schema, String> {
    let schema = file_schema(footer)?;
    let parquet = footer.metadata.file_metadata().schema_descr();
    let (unit, _, zone) = INT96;
    Ok(Int96Coercer::new(parquet, &schema, &unit).with_timezone(Some(zone.into())).coerce().unwrap_or(schema))
}

/// The Arrow schema of one Parquet file, without its key-value metadata.
pub(crate) fn file_schema(footer: &Footer) -> Result<Schema, String> {
    let meta = footer.metadata.file_metadata();
    parquet_to_arrow_schema(meta.schema_descr(), meta.key_value_metadata())
        .map(|schema| Schema::new(schema.fields().clone()))
        .map_err(|e| format!("its schema cannot be read: {e}"))
}

/// Why a file of schema `file` cannot be read as `table`, if it cannot; and how many columns it has beyond `table`.
///
/// A missing nullable column is null, a column of a narrower type is widened, an extra column is ignored. Anything that
/// could change a value or fail on some rows only is refused.
pub(crate) fn fits(file: &Schema, table: &Schema) -> Result<usize, String> {
    for wanted in table.fields() {
        match file.field_with_name(wanted.name()) {
            Ok(found) if widens(found.data_type(), wanted.data_type()) => {}
            Ok(found) => {
                return Err(format!(
                    "column `{}` is {}, but {} in the source's schema",
                    wanted.name(),
                    found.data_type(),
                    wanted.data_type()
                ));
            }
            Err(_) => {
                let twin = |f: &&FieldRef| {
                    f.name().eq_ignore_ascii_case(wanted.name()) && table.field_with_name(f.name()).is_err()
                };
                if let Some(twin) = file.fields().iter().find(twin) {
                    return Err(format!(
                        "column `{}` of the source's schema is missing, and `{}` differs from it in case only",
                        wanted.name(),
                        twin.name()
                    ));
                }
                if !wanted.is_nullable() {
                    return Err(format!("column `{}` is missing and cannot be null", wanted.name()));
                }
            }
        }
    }
    let extra = file.fields().iter().filter(|f| table.field_with_name(f.name()).is_err()).count();
    if extra == file.fields().len() && !table.fields().is_empty() {
        return Err("it has none of the source's columns".to_owned());
    }
    Ok(extra)
}

/// Why a file cannot be read as `table`, where its rows decide: it may have nulls in a column that cannot be null there.
pub(crate) fn nulls(footer: &Footer, file: &Schema, table: &Schema) -> Result<(), String> {
    let optional = |name: &str| file.field_with_name(name).is_ok_and(Field::is_nullable);
    let required = table.fields().iter().filter(|field| !field.is_nullable() && optional(field.name()));
    for field in required {
        let groups = footer.metadata.row_groups().iter();
        let mut columns = groups
            .flat_map(|group| group.columns())
            .filter(|column| column.column_path().parts().first() == Some(field.name()));
        if columns.any(|column| column.statistics().and_then(|s| s.null_count_opt()) != Some(0)) {
            return Err(format!("column `{}` may have nulls, and cannot be null in the source's schema", field.name()));
        }
    }
    Ok(())
}

/// Whether every value of `from` is a value of `to`.
fn widens(from: &DataType, to: &DataType) -> bool {
    use DataType as T;
    let integer = |t: &DataType| match t {
        T::Int8 => Some((true, 8)),
        T::Int16 => Some((true, 16)),
        T::Int32 => Some((true, 32)),
        T::Int64 => Some((true, 64)),
        T::UInt8 => Some((false, 8)),
        T::UInt16 => Some((false, 16)),
        T::UInt32 => Some((false, 32)),
        T::UInt64 => Some((false, 64)),
        _ => None,
    };
    if let (Some((from_signed, from_bits)), Some((to_signed, to_bits))) = (integer(from), integer(to)) {
        return match (from_signed, to_signed) {
            (a, b) if a == b => from_bits <= to_bits,
            (false, true) => from_bits < to_bits,
            _ => false,
        };
    }
    match (from, to) {
        (T::Null, _) => true,
        (T::Dictionary(_, value), to) => widens(value, to),
        (from, T::Dictionary(_, value)) => widens(from, value),
        (T::Utf8 | T::LargeUtf8 | T::Utf8View, T::Utf8 | T::LargeUtf8 | T::Utf8View) => true,
        (T::Binary | T::LargeBinary | T::BinaryView, T::Binary | T::LargeBinary | T::BinaryView) => true,
        (T::Float16, T::Float32 | T::Float64) | (T::Float32, T::Float64) => true,
        (T::Int8 | T::Int16 | T::UInt8 | T::UInt16, T::Float32 | T::Float64) | (T::Int32 | T::UInt32, T::Float64) => {
            true
        }
        (T::Date32, T::Date64) => true,
        (T::Decimal128(p, s), T::Decimal128(q, t)) => s == t && p <= q,
        (T::Timestamp(_, a), T::Timestamp(TimeUnit::Microsecond, b)) if a == b => {
            !matches!(from, T::Timestamp(TimeUnit::Nanosecond, _))
        }
        (T::Timestamp(u, a), T::Timestamp(v, b)) => u == v && a == b,
        (T::List(a) | T::LargeList(a), T::List(b) | T::LargeList(b)) => widens(a.data_type(), b.data_type()),
        (T::Struct(a), T::Struct(b)) => {
            a.len() == b.len()
                && a.iter().zip(b).all(|(x, y)| x.name() == y.name() && widens(x.data_type(), y.data_type()))
        }
        _ => from.equals_datatype(to),
    }
}

/// Where the names of a source's partition columns are recorded: in the metadata of its schema, as a JSON array.
const PARTITIONS: &str = "lakemark.partition_columns";

/// The files' schema and the names of the partition columns as IPC bytes, to be recorded.
pub(crate) fn to_ipc(schema: &Schema, partitions: &[FieldRef]) -> Result<Vec<u8>> {
    use datafusion::arrow::ipc::writer::StreamWriter;
    let names: Vec<&str> = partitions.iter().map(|field| field.name().as_str()).collect();
    let names = serde_json::to_string(&names).map_err(|e| Error::invalid("a name cannot be recorded").caused_by(e))?;
    let schema = schema.clone().with_metadata([(PARTITIONS.to_owned(), names)].into());
    let writer = StreamWriter::try_new(Vec::new(), &schema).and_then(|writer| writer.into_inner());
    writer.map_err(|e| Error::invalid("the schema cannot be recorded").caused_by(e))
}

/// The inverse of [`to_ipc`], from hex as it is recorded; `None` for partition columns that were not recorded.
pub(crate) fn from_hex(hex: &str) -> Result<(SchemaRef, Option<Vec<String>>)> {
    use datafusion::arrow::ipc::reader::StreamReader;
    let bad = || Error::corrupt("the recorded schema", "it cannot be read");
    let digits: Option<Vec<u8>> =
        (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(hex.get(i..i + 2)?, 16).ok()).collect();
    let bytes = digits.ok_or_else(bad)?;
    let reader = StreamReader::try_new(std::io::Cursor::new(bytes), None).map_err(|e| bad().caused_by(e))?;
    let schema = reader.schema();
    let names = schema.metadata().get(PARTITIONS).map(|names| serde_json::from_str(names)).transpose();
    let names = names.map_err(|e| bad().caused_by(e))?;
    Ok((Arc::new(Schema::new(schema.fields().clone())), names))
}

/// The schema of output files: strings and binaries in the layouts that every Parquet reader knows.
pub(crate) fn without_views(schema: &Schema) -> SchemaRef {
    fn plain(t: &DataType) -> DataType {
        match t {
            DataType::Utf8View => DataType::Utf8,
            DataType::BinaryView => DataType::Binary,
            DataType::List(f) => DataType::List(field(f)),
            DataType::LargeList(f) => DataType::LargeList(field(f)),
            DataType::Struct(fields) => DataType::Struct(fields.iter().map(field).collect()),
            other => other.clone(),
        }
    }
    fn field(f: &Arc<Field>) -> Arc<Field> {
        Arc::new(f.as_ref().clone().with_data_type(plain(f.data_type())))
    }
    Arc::new(Schema::new(schema.fields().iter().map(field).collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(fields: &[(&str, DataType, bool)]) -> Schema {
        Schema::new(fields.iter().map(|(n, t, null)| Field::new(*n, t.clone(), *null)).collect::<Vec<_>>())
    }

    #[test]
    fn only_what_keeps_every_value_fits() {
        use DataType as T;
        let table = schema(&[("a", T::Int64, true), ("b", T::Utf8View, false)]);
        let file = |a, b| schema(&[("a", a, true), ("b", b, true)]);
        assert_eq!(fits(&file(T::Int32, T::Utf8), &table), Ok(0));
        assert_eq!(fits(&file(T::UInt32, T::LargeUtf8), &table), Ok(0));
        assert!(fits(&file(T::UInt64, T::Utf8), &table).unwrap_err().contains("`a` is UInt64"));
        assert!(fits(&file(T::Float64, T::Utf8), &table).is_err());
        assert!(fits(&file(T::Int64, T::Int32), &table).is_err());
        assert_eq!(fits(&schema(&[("b", T::Utf8, true), ("c", T::Int8, true)]), &table), Ok(1));
        assert!(fits(&schema(&[("a", T::Int64, true)]), &table).unwrap_err().contains("`b` is missing"));
    }

    #[test]
    fn a_schema_survives_being_recorded() {
        let all = schema(&[("a", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), true)]);
        let partitions = ["d", "e\"f"].map(crate::hive::partition_field);
        let hex: String = to_ipc(&all, &partitions).unwrap().iter().map(|b| format!("{b:02x}")).collect();
        let (schema, names) = from_hex(&hex).unwrap();
        assert_eq!((schema.as_ref(), names), (&all, Some(vec!["d".to_owned(), "e\"f".to_owned()])));
    }
}
