//! What a reader that knows nothing of lakemark finds: every row as it was written, and only the files it needs.

use std::path::Path;

use lakemark::{rows_of_every_type, run_python, write_reference};

use crate::writer::{PYICEBERG, Site};

/// Compares the table, whole and through filters that skip files, with Parquet files of what was written.
const COMPARE: &str = "
import pyarrow as pa, pyarrow.parquet as pq
from pyiceberg.expressions import EqualTo
references = sys.argv[2:]
def rows(of): return sorted(of.to_pylist(), key=lambda row: row['id'])
wanted = [row for reference in references for row in rows(pq.read_table(reference))]
found = rows(table.scan().to_arrow())
assert len(found) == len(wanted), (len(found), len(wanted))
for a, b in zip(found, wanted):
    assert set(a) == set(b), (a, b)
    for key in b:
        x, y = a[key], b[key]
        assert x == y or (x != x and y != y), (key, x, y)
for row in wanted:
    for key in ('id', 'text', 'large', 'money', 'wide', 'day', 'u32', 'u64'):
        if row[key] is None: continue
        value = row[key].date() if hasattr(row[key], 'date') else row[key]
        scan = table.scan(row_filter=EqualTo(key, value.isoformat() if key == 'day' else value))
        got = rows(scan.to_arrow())
        assert any(hit['id'] == row['id'] for hit in got), (key, row[key], got)
    planned = list(table.scan(row_filter=EqualTo('id', row['id'])).plan_files())
    assert len(planned) == 1, (row['id'], planned)
import duckdb
# DuckDB knows the files that the table names.
files = [task.file.file_path.removeprefix('file://') for task in table.scan().plan_files()]
n = duckdb.sql(f'SELECT count(*), count(DISTINCT id) FROM read_parquet({files!r})').fetchall()[0]
assert n == (len(wanted), len(wanted)), n
print(len(found), table.schema())
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_row_of_every_type_is_read_as_it_was_written() {
    let site = Site::new();
    let batches = [0, 3, 6].map(rows_of_every_type);
    let mut writer = site.writer(&batches[0].schema(), &[]).await;
    let mut references = Vec::new();
    for (n, batch) in batches.iter().enumerate() {
        writer.add(batch).await;
        references.push(write_reference(site.folder(), &format!("{n}.parquet"), batch));
    }
    let arguments: Vec<&Path> =
        [site.database.as_path()].into_iter().chain(references.iter().map(|path| path.as_path())).collect();
    let Some(read) = run_python(&format!("{PYICEBERG}{COMPARE}"), &arguments) else { return };
    assert!(read.starts_with("9 "), "{read}");
    for of in ["decimal(20, 0)", "timestamp", "timestamptz", "list<", "map<", "struct<"] {
        assert!(read.contains(of), "{of} in {read}");
    }
}
