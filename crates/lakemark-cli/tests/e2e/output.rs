//! Reading an output directory with the tests' own Parquet reader.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::datatypes::Int64Type;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::lake::{Multiset, OutRow};

/// Reads one directory again and again; a file that it has read is not read twice, since none may change.
#[derive(Default)]
pub(crate) struct OutputReader {
    seen: HashMap<(PathBuf, u64), Vec<OutRow>>,
}

impl OutputReader {
    /// The rows under `dir`, which may be missing. Panics at anything there that is not committed output.
    pub(crate) fn read(&mut self, dir: &Path) -> Multiset {
        let mut rows = Multiset::new();
        let files = match super::readers::iceberg(dir) {
            Some(table) => table.files,
            None if dir.join("_delta_log").exists() => live_in_delta(dir),
            None => files_below(dir),
        };
        for (path, size) in files {
            let name = path.file_name().unwrap().to_string_lossy();
            let format = name.rsplit_once('.').map_or("", |(_, format)| format);
            let known = ["parquet", "csv", "json"].contains(&format);
            assert!(name.starts_with("lm-") && known, "a stray under the sink root: {path:?}");
            let read = self.seen.entry((path.clone(), size)).or_insert_with(|| match format {
                "parquet" => read_file(&path),
                _ => read_text(&path, format == "csv"),
            });
            for row in read {
                *rows.entry(row.clone()).or_default() += 1;
            }
        }
        rows
    }
}

fn read_file(path: &Path) -> Vec<OutRow> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap());
    let reader = reader.unwrap_or_else(|error| panic!("{path:?} is not a readable Parquet file: {error}"));
    let mut rows = Vec::new();
    for batch in reader.build().unwrap() {
        let batch = batch.unwrap_or_else(|error| panic!("{path:?} is not a readable Parquet file: {error}"));
        let names: Vec<_> = batch.schema().fields().iter().map(|f| f.name().clone()).collect();
        assert_eq!(names[..3], ["id", "text", "n2"], "{path:?}");
        assert!(names.len() == 3 || names[3..] == [super::schema_mode::MORE], "{path:?}: {names:?}");
        let (id, n2) = (batch.column(0).as_primitive::<Int64Type>(), batch.column(2).as_primitive::<Int64Type>());
        let text = batch.column(1).as_string::<i32>();
        rows.extend(
            (0..batch.num_rows())
                .map(|i| (id.value(i), text.is_valid(i).then(|| text.value(i).to_owned()), n2.value(i))),
        );
    }
    rows
}

/// The rows of a file of CSV, or of JSON.
fn read_text(path: &Path, is_csv: bool) -> Vec<OutRow> {
    use datafusion::arrow::datatypes::{DataType, Field, Schema};
    use datafusion::arrow::{csv, json};
    let fields = [("id", DataType::Int64), ("text", DataType::Utf8), ("n2", DataType::Int64)];
    let schema = std::sync::Arc::new(Schema::new(fields.map(|(name, of)| Field::new(name, of, true)).to_vec()));
    let file = std::io::BufReader::new(File::open(path).unwrap());
    let batches: Vec<_> = if is_csv {
        csv::ReaderBuilder::new(schema).with_header(true).build(file).unwrap().map(Result::unwrap).collect()
    } else {
        json::ReaderBuilder::new(schema).build(file).unwrap().map(Result::unwrap).collect()
    };
    let mut rows = Vec::new();
    for batch in batches {
        let (id, n2) = (batch.column(0).as_primitive::<Int64Type>(), batch.column(2).as_primitive::<Int64Type>());
        let text = batch.column(1).as_string::<i32>();
        let row = |i| (id.value(i), text.is_valid(i).then(|| text.value(i).to_owned()), n2.value(i));
        rows.extend((0..batch.num_rows()).map(row));
    }
    rows
}

/// The live files of the Delta table at `dir` with their sizes, by its log alone, entry by entry.
fn live_in_delta(dir: &Path) -> Vec<(PathBuf, u64)> {
    let mut live = BTreeMap::new();
    for (entry, _) in
        files_below(&dir.join("_delta_log")).iter().filter(|(path, _)| path.extension() == Some("json".as_ref()))
    {
        for line in fs::read_to_string(entry).unwrap().lines() {
            let action: serde_json::Value = serde_json::from_str(line).unwrap();
            let path = |action: &serde_json::Value| dir.join(action["path"].as_str().unwrap());
            if let Some(add) = action.get("add") {
                let twice = live.insert(path(add), add["size"].as_u64().unwrap());
                assert_eq!(twice, None, "a file was added twice: {add}");
            } else if let Some(remove) = action.get("remove") {
                live.remove(&path(remove));
            }
        }
    }
    let sizes = live.iter().map(|(path, size)| (path.clone(), *size));
    assert!(sizes.clone().all(|(path, size)| fs::metadata(path).unwrap().len() == size), "a size is wrong: {live:?}");
    sizes.collect()
}

/// All files below a directory with their sizes, sorted; none if it is missing.
pub(crate) fn files_below(dir: &Path) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries {
            let entry = entry.unwrap();
            let meta = entry.metadata().unwrap();
            if meta.is_dir() { folders.push(entry.path()) } else { found.push((entry.path(), meta.len())) }
        }
    }
    found.sort();
    found
}

/// What is wrong with `found` as a part of `whole`; as all of it when `exact`.
pub(crate) fn difference(found: &Multiset, whole: &Multiset, exact: bool) -> Option<String> {
    let more = |a: &Multiset, b: &Multiset| {
        let mut rows: Vec<String> = a
            .iter()
            .filter(|(row, count)| b.get(row).copied().unwrap_or(0) < **count)
            .map(|(row, count)| format!("{row:?}: {count} instead of {}", b.get(row).copied().unwrap_or(0)))
            .collect();
        rows.sort();
        rows
    };
    let mut wrong: Vec<String> = more(found, whole).into_iter().map(|row| format!("too often: {row}")).collect();
    if exact {
        wrong.extend(more(whole, found).into_iter().map(|row| format!("missing: {row}")));
    }
    let count = wrong.len();
    wrong.truncate(5);
    (count > 0).then(|| format!("{count} rows are wrong:\n  {}", wrong.join("\n  ")))
}
