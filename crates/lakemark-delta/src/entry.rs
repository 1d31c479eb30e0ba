//! One commit as an entry of the log: lines of JSON.

use lakemark::{Error, OutputFile, Result, TableCommit, decode_partition_value};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};

use crate::schema;

/// What is escaped of a path in the log, which is a URI: all that has a meaning there, and some more.
const ESCAPED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'/').remove(b'=').remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The name by which a store's transactions are known.
pub(crate) const APPLICATION: &str = "lakemark-";

/// What a table is made of, in Delta's own terms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Delta's schema.
    pub(crate) schema: Value,
    /// The columns by which it is partitioned.
    pub(crate) partition_by: Vec<String>,
}

impl Shape {
    /// A short text that no other shape has. A change of it is a change of the table's schema.
    pub(crate) fn digest(schema: &str, partition_by: &[String]) -> String {
        let mut text = schema.to_owned();
        for column in partition_by {
            // No JSON ends in one.
            text.push('\0');
            text.push_str(column);
        }
        format!("{:032x}", xxhash_rust::xxh3::xxh3_128(text.as_bytes()))
    }

    fn is_ntz(&self, column: &str) -> bool {
        let fields = self.schema["fields"].as_array();
        fields.into_iter().flatten().any(|field| field["name"] == column && field["type"] == "timestamp_ntz")
    }

    /// The values that the folder `a=1/b=x%2Fy` of a file stands for.
    fn partition_values(&self, file: &OutputFile) -> Result<Value> {
        let wrong = || {
            Error::invalid(format!(
                "a file waits in the folder `{}`, and the table is partitioned by ({})",
                file.folder,
                self.partition_by.join(", ")
            ))
            .at(&file.name)
            .safe("nothing was written to the table")
        };
        let parts: Vec<&str> = file.folder.split('/').filter(|part| !part.is_empty()).collect();
        if parts.len() != self.partition_by.len() {
            return Err(wrong());
        }
        let mut values = Map::new();
        for (part, column) in parts.into_iter().zip(&self.partition_by) {
            let (name, value) = part.split_once('=').ok_or_else(wrong)?;
            if decode_partition_value(name).as_deref() != Some(column) {
                return Err(wrong());
            }
            // Delta has no empty string among its partition values.
            let value = decode_partition_value(value).filter(|value| !value.is_empty()).map_or(Value::Null, |value| {
                // `2024-01-01 00:00:00` is how Delta writes a time without a zone.
                if self.is_ntz(column) { value.replacen('T', " ", 1).into() } else { value.into() }
            });
            values.insert(column.clone(), value);
        }
        Ok(values.into())
    }
}

/// What is to be known of a table that the entry makes.
#[derive(Debug, Clone)]
pub(crate) struct NewTable {
    pub(crate) id: String,
}

impl NewTable {
    /// What makes a table of `shape`, at `now` in milliseconds since 1970.
    pub(crate) fn lines(&self, shape: &Shape, now: i64) -> [Value; 2] {
        let protocol = if schema::has_timestamp_ntz(&shape.schema) {
            json!({
                "minReaderVersion": 3, "minWriterVersion": 7,
                "readerFeatures": ["timestampNtz"], "writerFeatures": ["timestampNtz"],
            })
        } else {
            json!({ "minReaderVersion": 1, "minWriterVersion": 2 })
        };
        let metadata = json!({
            "id": self.id, "format": { "provider": "parquet", "options": {} }, "schemaString": shape.schema.to_string(),
            "partitionColumns": shape.partition_by, "configuration": {}, "createdTime": now,
        });
        [json!({ "protocol": protocol }), json!({ "metaData": metadata })]
    }
}

/// The entry of `commit` on version `base` of a table that is of `shape` by it, at `now` in milliseconds since 1970; `makes`
/// are the lines that make it so. `statistics` are those of the files, in their order.
///
/// # Errors
/// [`Invalid`](lakemark::ErrorKind::Invalid) for a file in a folder that is not one of the table's.
pub(crate) fn lines(
    commit: &TableCommit<'_>,
    base: Option<u64>,
    shape: &Shape,
    makes: &[Value],
    statistics: &[String],
    now: i64,
) -> Result<String> {
    // For people, and for writers who look for conflicts: what removes files did not look at the table in vain.
    let mode = if commit.leaving.is_empty() { "Append" } else { "Overwrite" };
    let mut info = json!({
        "timestamp": now, "operation": "WRITE",
        "operationParameters": { "mode": mode, "partitionBy": json!(shape.partition_by).to_string() },
        "isBlindAppend": commit.leaving.is_empty(), "engineInfo": concat!("lakemark ", env!("CARGO_PKG_VERSION")),
        "lakemark": { "store": commit.store.to_string(), "n": commit.n, "digest": commit.digest },
    });
    if let Some(base) = base {
        info["readVersion"] = base.into();
    }
    let mut text = String::new();
    let mut put = |line: &Value| {
        text.push_str(&line.to_string());
        text.push('\n');
    };
    put(&json!({ "commitInfo": info }));
    makes.iter().for_each(&mut put);
    put(
        &json!({ "txn": { "appId": format!("{APPLICATION}{}", commit.store), "version": commit.n, "lastUpdated": now } }),
    );
    for (file, statistics) in commit.files.iter().zip(statistics) {
        put(&json!({ "add": {
            "path": utf8_percent_encode(&file.path(), ESCAPED).to_string(),
            "partitionValues": shape.partition_values(file)?,
            "size": file.size, "modificationTime": now, "dataChange": true, "stats": statistics,
        } }));
    }
    for file in commit.leaving {
        put(&json!({ "remove": {
            "path": utf8_percent_encode(&file.path(), ESCAPED).to_string(),
            "deletionTimestamp": now, "dataChange": true, "extendedFileMetadata": true,
            "partitionValues": shape.partition_values(file)?, "size": file.size,
        } }));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use lakemark::{StoreId, VOID, partition_folder};

    use super::*;

    fn shape(columns: &[(&str, &str)], partition_by: &[&str]) -> Shape {
        let fields: Vec<_> = columns.iter().map(|(name, of)| json!({ "name": name, "type": of })).collect();
        let partition_by = partition_by.iter().map(|column| (*column).to_owned()).collect();
        Shape { schema: json!({ "type": "struct", "fields": fields }), partition_by }
    }

    fn file(folder: &str) -> OutputFile {
        OutputFile { name: "f.parquet".into(), folder: folder.into(), size: 5, rows: 1, upload: None }
    }

    #[test]
    fn partition_values_are_decoded_once_and_paths_are_uris() {
        let shape = shape(&[("k", "string"), ("t", "timestamp_ntz"), ("z", "timestamp")], &["k", "t", "z"]);
        let folder = partition_folder([
            ("k", Some("T x/y=100%é")),
            ("t", Some("2024-01-01T00:00:00.5")),
            ("z", Some("2024-01-01T00:00:00Z")),
        ]);
        let files = [file(&folder), file(&partition_folder([("k", None), ("t", Some("")), ("z", None)]))];
        let commit = TableCommit { store: StoreId::random(), n: 3, digest: "d", files: &files, leaving: &[] };
        let text = lines(&commit, Some(4), &shape, &[], &["{}".into(), "{}".into()], 7).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[0]["commitInfo"]["readVersion"], 4);
        assert_eq!(lines[0]["commitInfo"]["lakemark"]["digest"], "d");
        assert_eq!(lines[1]["txn"]["version"], 3);
        let values = json!({ "k": "T x/y=100%é", "t": "2024-01-01 00:00:00.5", "z": "2024-01-01T00:00:00Z" });
        assert_eq!(lines[2]["add"]["partitionValues"], values);
        let path = lines[2]["add"]["path"].as_str().unwrap();
        assert!(path.starts_with("k=T%20x%252Fy%253D100%2525%C3%A9/t=2024-01-01T00%253A00%253A00.5/"), "{path}");
        assert_eq!(lines[3]["add"]["partitionValues"], json!({ "k": null, "t": null, "z": null }));
    }

    #[test]
    fn files_in_other_folders_are_refused() {
        let shape = shape(&[("a", "long"), ("b", "long")], &["a"]);
        for folder in ["", "b=1", "a=1/b=2", "a"] {
            let files = [file(folder)];
            let commit = TableCommit { store: StoreId::random(), n: 1, digest: "d", files: &files, leaving: &[] };
            assert!(lines(&commit, None, &shape, &[], &["{}".into()], 0).is_err(), "{folder}");
        }
    }

    #[test]
    fn a_barrier_makes_the_table_when_there_is_none() {
        let shape = shape(&[("t", "timestamp_ntz")], &[]);
        let commit = TableCommit { store: StoreId::random(), n: 1, digest: VOID, files: &[], leaving: &[] };
        let makes = NewTable { id: "x".into() }.lines(&shape, 0);
        let text = lines(&commit, None, &shape, &makes, &[], 0).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[1]["protocol"]["writerFeatures"], json!(["timestampNtz"]));
        assert_eq!(lines[2]["metaData"]["schemaString"], shape.schema.to_string());
        assert_eq!(lines[0]["commitInfo"].get("readVersion"), None);
    }

    #[test]
    fn shapes_have_digests_of_their_own() {
        let of = |schema: &str, columns: &[&str]| {
            let columns: Vec<String> = columns.iter().map(|column| (*column).to_owned()).collect();
            Shape::digest(schema, &columns)
        };
        assert_eq!(of("{}", &["a"]), of("{}", &["a"]));
        assert_ne!(of("{}", &["a", "b"]), of("{}", &["ab"]));
        assert_ne!(of("{}", &["a", "b"]), of("{}", &["b", "a"]));
    }
}
