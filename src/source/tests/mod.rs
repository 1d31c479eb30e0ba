//! Scenarios of listing and of pinned reads, on a disk and on object stores that misbehave.

mod evidence;
mod listing;
mod reading;
mod store;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use object_store::memory::InMemory;
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;

use super::{Footer, FooterRead, Lake, Listing, Select, Unusable};
use crate::identity::{FileVersion, Root};

/// A Parquet file with the numbers `0..rows`.
pub(super) fn parquet(rows: i64, rows_per_group: usize) -> Vec<u8> {
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
    let batch = RecordBatch::try_from_iter([("n", column)]).unwrap();
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(rows_per_group)).build();
    let mut file = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut file, batch.schema(), Some(properties)).unwrap();
    // `write` calls itself once for each row group a batch fills: thousands of them overflow the stack.
    for start in (0..batch.num_rows()).step_by(rows_per_group) {
        writer.write(&batch.slice(start, rows_per_group.min(batch.num_rows() - start))).unwrap();
    }
    writer.close().unwrap();
    file
}

/// A directory of a disk.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new(files: &[&str]) -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        files.iter().for_each(|file| tree.write(file, b"x"));
        tree
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn write(&self, path: &str, bytes: &[u8]) {
        std::fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
        std::fs::write(self.at(path), bytes).unwrap();
    }

    fn link(&self, path: &str, target: impl AsRef<Path>) {
        std::os::unix::fs::symlink(target, self.at(path)).unwrap();
    }

    fn open(&self, below: &str) -> Lake {
        Lake::open(self.at(below).to_str().unwrap()).unwrap()
    }

    async fn list(&self) -> Listing {
        self.open("").list().await.unwrap()
    }
}

/// A bucket in memory with `files`, seen through `wrap`.
async fn bucket<S: ObjectStore>(
    files: &[(&str, &[u8])],
    wrap: impl FnOnce(Arc<InMemory>) -> S,
) -> (Arc<InMemory>, Lake) {
    let memory = Arc::new(InMemory::new());
    for (path, bytes) in files {
        put(&memory, path, bytes).await;
    }
    let store = wrap(Arc::clone(&memory));
    (memory, Lake::on(Root::parse("s3://b/lake").unwrap(), Select::All, Arc::new(store)))
}

async fn put(store: &InMemory, path: &str, bytes: &[u8]) {
    let key = object_store::path::Path::parse(format!("lake/{path}")).unwrap();
    store.put(&key, bytes.to_vec().into()).await.unwrap();
}

fn paths(listing: &Listing) -> Vec<&str> {
    listing.files.iter().map(|file| &*file.path).collect()
}

fn one(listing: Listing) -> FileVersion {
    assert_eq!(listing.files.len(), 1, "{listing:?}");
    listing.files.into_iter().next().unwrap()
}

async fn footer(lake: &Lake, file: &FileVersion) -> Arc<Footer> {
    match lake.footer(file).await.unwrap() {
        FooterRead::Read(footer) => footer,
        other => panic!("{other:?}"),
    }
}

async fn unusable(lake: &Lake, file: &FileVersion) -> String {
    match lake.footer(file).await.unwrap() {
        FooterRead::Unusable(why) => why,
        other => panic!("{other:?}"),
    }
}
