//! A lake of Parquet files whose rows the tests know.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

use super::rng::Rng;

/// The query of most scenarios; [`Row::transformed`] is the same in plain Rust.
pub(crate) const SQL: &str = "SELECT id, upper(text) AS text, n * 2 AS n2 FROM docs WHERE n % 10 <> 0";

/// A row of the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) id: i64,
    pub(crate) n: i64,
    pub(crate) text: Option<String>,
}

/// A row of the output: id, text, n2.
pub(crate) type OutRow = (i64, Option<String>, i64);

/// Rows, each with how often it occurs.
pub(crate) type Multiset = HashMap<OutRow, u64>;

impl Row {
    fn transformed(&self) -> Option<OutRow> {
        (self.n % 10 != 0).then(|| (self.id, self.text.as_ref().map(|t| t.to_uppercase()), self.n * 2))
    }
}

/// A directory of files, and the row groups that each holds.
pub(crate) struct Lake {
    pub(crate) dir: PathBuf,
    pub(crate) files: BTreeMap<String, Vec<Vec<Row>>>,
    next_id: i64,
    /// Seconds since 1970 of the last mtime given: each write gets its own, all far in the past.
    clock: u64,
    rng: Rng,
}

impl Lake {
    pub(crate) fn new(dir: PathBuf, seed: u64) -> Self {
        fs::create_dir_all(&dir).unwrap();
        Self { dir, files: BTreeMap::new(), next_id: 0, clock: 1_700_000_000, rng: Rng::new(seed) }
    }

    /// `groups` row groups of `rows` new rows each, with `bytes` bytes of text a row; here and there a null, a row that
    /// the query drops, and a row that is there twice.
    pub(crate) fn groups(&mut self, groups: usize, rows: usize, bytes: usize) -> Vec<Vec<Row>> {
        (0..groups).map(|_| self.rows(rows, bytes)).collect()
    }

    pub(crate) fn rows(&mut self, rows: usize, bytes: usize) -> Vec<Row> {
        let mut made: Vec<Row> = Vec::with_capacity(rows);
        for i in 0..rows {
            if i > 0 && self.rng.below(16) == 0 {
                made.push(made[i - 1].clone());
                continue;
            }
            self.next_id += 1;
            let text: String = (0..bytes.div_ceil(16)).map(|_| format!("{:016x}", self.rng.next())).collect();
            let text = (self.rng.below(10) > 0).then(|| format!("t{} {}", self.next_id, &text[..bytes]));
            made.push(Row { id: self.next_id, n: self.rng.below(1_000) as i64, text });
        }
        made
    }

    /// Writes (or replaces) the file `path`.
    pub(crate) fn put(&mut self, path: &str, groups: Vec<Vec<Row>>) {
        let file = self.dir.join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        // A new file under the name, as pipelines replace files; a reader of the old one keeps it.
        let temporary = self.dir.parent().unwrap().join(format!("writing-{}", self.next_id));
        write_rows(&temporary, &groups);
        self.clock += 1;
        set_mtime(&temporary, UNIX_EPOCH + Duration::from_secs(self.clock));
        fs::rename(&temporary, &file).unwrap();
        self.files.insert(path.to_owned(), groups);
    }

    /// Writes `count` files of one row group with one row each, named after `prefix`.
    pub(crate) fn put_singles(&mut self, prefix: &str, count: usize, bytes: usize) {
        for i in 0..count {
            let groups = self.groups(1, 1, bytes);
            self.put(&format!("{prefix}{i:04}.parquet"), groups);
        }
    }

    /// Writes a file that is no Parquet file of rows: markers, torn files.
    pub(crate) fn put_raw(&mut self, path: &str, bytes: &[u8]) {
        let file = self.dir.join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, bytes).unwrap();
        self.clock += 1;
        set_mtime(&file, UNIX_EPOCH + Duration::from_secs(self.clock));
        self.files.remove(path);
    }

    /// Deletes the file `path`.
    pub(crate) fn remove(&mut self, path: &str) {
        fs::remove_file(self.dir.join(path)).unwrap();
        self.files.remove(path);
    }

    /// Gives the file another mtime and leaves its bytes.
    pub(crate) fn touch(&mut self, path: &str) {
        self.clock += 1_000_000;
        set_mtime(&self.dir.join(path), UNIX_EPOCH + Duration::from_secs(self.clock));
    }

    pub(crate) fn bytes_of(&self, path: &str) -> u64 {
        fs::metadata(self.dir.join(path)).unwrap().len()
    }

    /// What the query makes of all files.
    pub(crate) fn expected(&self) -> Multiset {
        expected(self.files.values())
    }

    /// What the query makes of one file.
    pub(crate) fn expected_of(&self, path: &str) -> Multiset {
        expected([&self.files[path]])
    }

    /// How many rows the files hold.
    pub(crate) fn row_count(&self) -> u64 {
        self.files.values().flatten().map(|group| group.len() as u64).sum()
    }
}

fn expected<'a>(files: impl IntoIterator<Item = &'a Vec<Vec<Row>>>) -> Multiset {
    let mut rows = Multiset::new();
    for row in files.into_iter().flatten().flatten().filter_map(Row::transformed) {
        *rows.entry(row).or_default() += 1;
    }
    rows
}

pub(crate) fn set_mtime(path: &Path, at: SystemTime) {
    File::options().write(true).open(path).unwrap().set_modified(at).unwrap();
}

fn schema(names: [&str; 3], types: [DataType; 3]) -> SchemaRef {
    let fields = names.into_iter().zip(types).enumerate();
    Arc::new(Schema::new(fields.map(|(i, (name, t))| Field::new(name, t, i == 1)).collect::<Vec<_>>()))
}

fn write_rows(path: &Path, groups: &[Vec<Row>]) {
    let schema = schema(["id", "text", "n"], [DataType::Int64, DataType::Utf8, DataType::Int64]);
    let batches = groups.iter().map(|rows| {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.id))),
            Arc::new(StringArray::from_iter(rows.iter().map(|row| row.text.as_deref()))),
            Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.n))),
        ];
        RecordBatch::try_new(Arc::clone(&schema), columns).unwrap()
    });
    write_parquet(path, &schema, batches);
}

/// Writes one row group a batch.
pub(crate) fn write_parquet(path: &Path, schema: &SchemaRef, batches: impl IntoIterator<Item = RecordBatch>) {
    let properties = WriterProperties::builder()
        .set_compression(Compression::UNCOMPRESSED)
        .set_dictionary_enabled(false)
        .set_data_page_row_count_limit(1)
        .set_write_batch_size(1)
        .build();
    let file = File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, Arc::clone(schema), Some(properties)).unwrap();
    for batch in batches {
        writer.write(&batch).unwrap();
        writer.flush().unwrap();
    }
    writer.close().unwrap();
}

/// Writes output rows as one file, for independent readers.
pub(crate) fn write_reference(path: &Path, rows: &Multiset) {
    let schema = schema(["id", "text", "n2"], [DataType::Int64, DataType::Utf8, DataType::Int64]);
    let rows: Vec<&OutRow> = rows.iter().flat_map(|(row, count)| std::iter::repeat_n(row, *count as usize)).collect();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.0))),
        Arc::new(StringArray::from_iter(rows.iter().map(|row| row.1.as_deref()))),
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.2))),
    ];
    let file = File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, Arc::clone(&schema), None).unwrap();
    writer.write(&RecordBatch::try_new(schema, columns).unwrap()).unwrap();
    writer.close().unwrap();
}
