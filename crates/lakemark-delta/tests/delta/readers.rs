//! What a reader that knows nothing of lakemark finds: every row as it was written.

use std::path::Path;

use lakemark::{rows_of_every_type, run_python, write_reference};

use crate::writer::store_writer;

/// Compares the table, whole and through a filter that skips files, with Parquet files of what was written.
const COMPARE: &str = "
import sys, deltalake, pyarrow as pa, pyarrow.parquet as pq, pyarrow.dataset as ds
table, references = deltalake.DeltaTable(sys.argv[1]), sys.argv[2:]
def rows(of): return sorted(of.to_pylist(), key=lambda row: row['id'])
wanted = [row for reference in references for row in rows(pq.read_table(reference))]
found = rows(table.to_pyarrow_table())
assert len(found) == len(wanted), (len(found), len(wanted))
for a, b in zip(found, wanted):
    assert set(a) == set(b), (a, b)
    for key in b:
        x, y = a[key], b[key]
        assert x == y or (x != x and y != y), (key, x, y)
dataset = table.to_pyarrow_dataset()
# Bounds are usable, and true: each of these finds its row, and skips all files but one.
for row in wanted:
    for key in ('id', 'text', 'money', 'day', 'zoned', 'local', 'u64'):
        if row[key] is None: continue
        filter = ds.field(key) == pa.scalar(row[key], dataset.schema.field(key).type)
        got = rows(dataset.to_table(filter=filter))
        assert any(hit['id'] == row['id'] for hit in got), (key, row[key], got)
    fragments = list(dataset.get_fragments(filter=ds.field('id') == row['id']))
    assert len(fragments) == 1, (row['id'], fragments)
print(len(found), table.schema().to_json())
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_row_of_every_type_is_read_as_it_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("ta ble");
    let batches = [0, 3, 6].map(rows_of_every_type);
    let mut writer = store_writer(at.to_str().unwrap(), &batches[0].schema(), &[]);
    let mut references = Vec::new();
    for (n, batch) in batches.iter().enumerate() {
        writer.add(batch).await;
        references.push(write_reference(folder.path(), &format!("{n}.parquet"), batch));
    }
    let arguments: Vec<&Path> =
        [at.as_path()].into_iter().chain(references.iter().map(|path| path.as_path())).collect();
    let Some(read) = run_python(COMPARE, &arguments) else { return };
    assert!(read.starts_with("9 "), "{read}");
    for of in ["decimal(20,0)", "timestamp_ntz", "\"timestamp\"", "containsNull", "valueContainsNull"] {
        assert!(read.contains(of), "{of} in {read}");
    }
}
