//! A query with a column that the table lacks, by whole processes.

use std::collections::BTreeSet;

use lakemark::run_python;
use rstest::rstest;

use super::lake::{Multiset, SQL};
use super::scene::Scene;
use super::tables::Kind::{self, Delta, Iceberg};
use super::tables::{ended, scene, steps, versions};

/// The column that later queries have.
pub(crate) const MORE: &str = "n3";

fn with_more() -> String {
    format!("{:?}", SQL.replace(" FROM", &format!(", n * 3 AS {MORE} FROM")))
}

/// Prints the ids of rows without the column, and checks the others. By `pyiceberg`, or by `deltalake` and Polars.
const READ: &str = "
import sys
if sys.argv[1].endswith('.db'):
    from pyiceberg.catalog.sql import SqlCatalog
    rows = SqlCatalog('default', uri='sqlite:///' + sys.argv[1]).load_table('lake.docs').scan().to_arrow().to_pylist()
else:
    import deltalake, polars
    rows = deltalake.DeltaTable(sys.argv[1]).to_pyarrow_table().to_pylist()
    key = lambda row: (row['id'], str(row['n3']))
    assert sorted(polars.read_delta(sys.argv[1]).to_dicts(), key=key) == sorted(rows, key=key)
assert all(list(row) == ['id', 'text', 'n2', 'n3'] for row in rows), rows[0]
assert all(row['n3'] is None or row['n3'] == row['n2'] // 2 * 3 for row in rows), rows
print(sorted({row['id'] for row in rows if row['n3'] is None}))
";

/// The rows are those of the lake, and exactly those of `old` lack the column.
#[track_caller]
fn expect_null_in(scene: &Scene, kind: Kind, old: &Multiset) {
    scene.assert_exact();
    let table = match kind {
        Delta => scene.out(),
        Iceberg => scene.out().with_file_name(super::readers::CATALOG),
    };
    let ids: BTreeSet<i64> = old.keys().map(|row| row.0).collect();
    let read = run_python(READ, &[&table]).expect("LAKEMARK_READERS_PYTHON is set");
    assert_eq!(read, format!("{:?}", ids.into_iter().collect::<Vec<_>>()));
}

#[rstest]
fn a_query_with_a_column_more_is_refused_or_adds_it(#[values(Delta, Iceberg)] kind: Kind) {
    let mut scene = scene(kind);
    scene.run(&[]).done();
    let old = scene.lake.expected();
    scene.lake.put_singles("later/f", 3, 20);
    scene.set("transform.sql", with_more());
    let refused = ["no column `n3`", "--set sink.schema_mode=merge"];
    scene.run(&[]).error(5, "Refused", &refused);
    scene.plan(&[]).error(5, "Refused", &refused);
    assert_eq!(versions(&scene), 1, "nothing was written");
    scene.plan(&["--set", "sink.schema_mode=merge"]).done();
    assert_eq!(versions(&scene), 1, "a plan changes nothing");
    scene.run(&["--set", "sink.schema_mode=merge"]).done();
    assert_eq!(versions(&scene), 2, "one commit, with the column");
    expect_null_in(&scene, kind, &old);
    // It is there: nobody has to ask for it any more.
    scene.run(&[]).nothing();
    scene.lake.put_singles("last/f", 3, 20);
    scene.run(&[]).done();
    expect_null_in(&scene, kind, &old);
    assert_eq!(scene.look("verify")["destination"], "as the store says");
    assert_eq!(scene.look("verify")["sound"], true);

    // The same column of another type is another thing.
    scene.set("transform.sql", with_more().replace("n * 3", "CAST(n AS VARCHAR)"));
    scene.lake.put_singles("never/f", 1, 20);
    let words = ["column `n3` is string in the query and long in the table", "CAST(n3 AS", "widens no type"];
    scene.run(&["--set", "sink.schema_mode=merge"]).error(5, "Refused", &words);
}

/// Files of the lake that have a column more, which the source gets by `--refresh-schema`.
#[rstest]
fn a_column_that_the_source_got_goes_through_to_the_table(#[values(Delta, Iceberg)] kind: Kind) {
    const WRITE: &str = "
import sys, pyarrow.parquet as pq
table = pq.read_table(sys.argv[1])
pq.write_table(table.append_column('n3', [[3 * n for n in table['n'].to_pylist()]]), sys.argv[1])
";
    let mut scene = scene(kind);
    scene.run(&[]).done();
    let old = scene.lake.expected();
    // The first file by its path tells the schema.
    scene.lake.put_singles("a/f", 2, 20);
    for n in 0..2 {
        run_python(WRITE, &[&scene.lake.dir.join(format!("a/f000{n}.parquet"))]).unwrap();
    }
    scene.set("transform.sql", format!("{:?}", SQL.replace(" FROM", &format!(", {MORE} FROM"))));
    scene.run(&["--set", "sink.schema_mode=merge"]).error(1, "Invalid", &[MORE]);
    scene.run(&["--refresh-schema"]).error(5, "Refused", &["no column `n3`"]);
    scene.run(&["--refresh-schema", "--set", "sink.schema_mode=merge"]).done();
    expect_null_in(&scene, kind, &old);
    scene.run(&[]).nothing();
}

/// A run that adds a column dies at every step of its commit. The next one is of the query without the column, and may add
/// none: what the other one left is committed as it is.
#[rstest]
fn a_job_that_was_changed_back_ends_the_commit_that_adds_a_column(#[values(Delta, Iceberg)] kind: Kind) {
    // What three files leave is folded with the intent.
    for step in steps().filter(|step| !step.starts_with("fold.") || *step == "fold.before_segment") {
        let mut scene = scene(kind);
        scene.run(&[]).done();
        let old = scene.lake.expected();
        println!("killed at {step}");
        scene.lake.put_singles("later/f", 3, 20);
        scene.set("transform.sql", with_more()).set("sink.schema_mode", "\"merge\"");
        scene.crash_at(step, 1);
        scene.settings_without("sink.schema_mode");
        scene.set("transform.sql", format!("{SQL:?}"));
        let ran = scene.run(&[]);
        assert!(matches!(ran.outcome(), "done" | "nothing"), "{step}: {ran}");
        assert_eq!(versions(&scene), 2, "{step}: one commit");
        scene.run(&[]).nothing();
        assert_eq!(scene.look("verify")["sound"], true);
        // Before the first task was sealed, its rows are made by the query without the column.
        let sealed_first = ["intent", "table", "done", "close"].iter().any(|part| step.starts_with(part));
        if sealed_first {
            expect_null_in(&scene, kind, &old);
        } else {
            scene.assert_exact();
        }
    }
}

/// What waits and does not fit the table any more is done again, by a person's word.
#[rstest]
fn a_column_that_somebody_else_took_meanwhile_is_refused_and_done_again(#[values(Delta, Iceberg)] kind: Kind) {
    const ADD: &str = "
import sys
if sys.argv[1].endswith('.db'):
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.types import DateType
    table = SqlCatalog('default', uri='sqlite:///' + sys.argv[1]).load_table('lake.docs')
    with table.update_schema() as update:
        update.add_column('n3', DateType())
else:
    import deltalake
    column = deltalake.Field('n3', 'date')
    deltalake.DeltaTable(sys.argv[1]).alter.add_columns(column)
";
    for (step, verb, args) in [
        ("intent.before_object", "forget", &["--epoch", "2", "--yes"][..]),
        ("table.before", "reopen", &["2", "--yes"][..]),
    ] {
        let mut scene = scene(kind);
        scene.run(&[]).done();
        let before = versions(&scene);
        scene.lake.put_singles("later/f", 3, 20);
        scene.set("transform.sql", with_more()).set("sink.schema_mode", "\"merge\"");
        scene.crash_at(step, 1);
        let table = if kind == Delta { scene.out() } else { scene.out().with_file_name(super::readers::CATALOG) };
        run_python(ADD, &[&table]).unwrap();
        scene.set("transform.sql", format!("{SQL:?}"));
        let words = ["column `n3` is long in the query and date in the table", &format!("lakemark {verb}")];
        scene.run(&[]).error(5, "Refused", &words);
        let told = ended(&scene, verb, args);
        assert_eq!(told.code(), 0, "{step}: {}", told.stderr);
        scene.run(&[]).done();
        scene.assert_exact();
        assert!(versions(&scene) > before, "{step}");
        scene.run(&[]).nothing();
    }
}
