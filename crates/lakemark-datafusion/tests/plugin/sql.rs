//! Which queries run, exactly, and which are refused, by which name.

use lakemark::ErrorKind;
use rstest::rstest;

use crate::support::Lab;

/// Runs `sql` in two runs, the first of them stopped after five tasks.
async fn in_two_runs(lab: &Lab, sql: &str) -> (usize, usize) {
    let job = lab.job("job", sql);
    let first = job.clone().max_tasks(5).ok().await;
    let second = job.ok().await;
    let (tasks, sealed) = (first.tasks.planned, first.tasks.sealed);
    assert!(tasks == 0 || tasks >= 8, "{sql}: {tasks} tasks");
    assert_eq!(sealed, tasks.min(5), "{sql}");
    assert_eq!(second.tasks.planned, tasks - sealed, "{sql}");
    assert_eq!(second.rows.rows_in + first.rows.rows_in > 0, tasks > 0, "{sql}");
    let third = job.ok().await;
    assert_eq!((third.tasks.planned, third.commits.len()), (0, 0), "{sql}");
    (job.rows().await.len(), job.expected().await.len())
}

#[rstest]
#[case("SELECT * FROM docs")]
#[case("SELECT id, text FROM docs")]
#[case("SELECT text, id, lang FROM docs")]
#[case("SELECT id FROM docs WHERE n > 10")]
#[case("SELECT id FROM docs WHERE n > 10 AND f IS NOT NULL OR k = 'b'")]
#[case("SELECT id, text FROM docs WHERE text LIKE '%7%' AND id NOT IN (7, 17)")]
#[case("SELECT id FROM docs WHERE n BETWEEN 10 AND 20 AND k IS NULL")]
#[case("SELECT id, CASE WHEN n > 10 THEN 'big' WHEN n IS NULL THEN NULL ELSE 'small' END AS size FROM docs")]
#[case("SELECT id, upper(text) AS t, length(text) AS l, md5(text) AS h FROM docs")]
#[case("SELECT id, regexp_replace(text, '[0-9]+', '#') AS t, coalesce(f, -1.0) AS f FROM docs")]
#[case("SELECT CAST(id AS VARCHAR) AS id, CAST(n AS DOUBLE) / 3 AS n, TRY_CAST(text AS INT) AS t FROM docs")]
#[case("SELECT id, unnest(tags) AS tag FROM docs")]
#[case("SELECT id, unnest([1, 2, 3]) AS x FROM docs WHERE n < 7")]
#[case("SELECT id, tag FROM (SELECT id, unnest(tags) AS tag FROM docs) WHERE tag <> 't0'")]
#[case("SELECT id, tags[1] AS first, cardinality(tags) AS c, array_length(tags) AS l FROM docs")]
#[case("SELECT d.id AS doc FROM docs AS d WHERE d.n = 3")]
#[case("SELECT id FROM (SELECT id, n * 2 AS m FROM docs) WHERE m > 30")]
#[case("WITH a AS (SELECT id, n FROM docs WHERE n > 5), b AS (SELECT id + 1 AS i FROM a) SELECT i FROM b WHERE i < 90")]
#[case("(SELECT id FROM docs)")]
#[case("SELECT * EXCLUDE (tags) FROM docs")]
#[case("SELECT 1 AS one FROM docs")]
#[case("SELECT lang FROM docs")]
#[case("SELECT id FROM docs WHERE lang <> 'en' OR n = 3")]
#[case("SELECT id FROM docs WHERE n > 1000000")]
#[case("SELECT id, text FROM docs UNION ALL SELECT id, upper(text) FROM more")]
#[case("SELECT id FROM docs WHERE n > 5 UNION ALL (SELECT id FROM more WHERE n > 5)")]
#[case("SELECT d.id, l.label FROM docs d JOIN dim l ON d.k = l.k UNION ALL SELECT id, text FROM more")]
#[case("SELECT d.id, l.label FROM more d JOIN dim l ON d.k = l.k UNION ALL SELECT id, text FROM docs")]
#[case("SELECT d.id, l.label FROM docs d JOIN dim l ON d.k = l.k")]
#[case("SELECT d.id, l.label FROM dim l JOIN docs d ON d.k = l.k")]
#[case("SELECT d.id, l.label FROM docs d LEFT JOIN dim l ON d.k = l.k")]
#[case("SELECT d.id, l.label FROM dim l RIGHT JOIN docs d ON d.k = l.k")]
#[case("SELECT id FROM docs d LEFT SEMI JOIN dim l ON d.k = l.k")]
#[case("SELECT id FROM docs d LEFT ANTI JOIN dim l ON d.k = l.k")]
#[case("SELECT id FROM dim l RIGHT SEMI JOIN docs d ON d.k = l.k")]
#[case("SELECT id FROM dim l RIGHT ANTI JOIN docs d ON d.k = l.k")]
#[case("SELECT d.id, l.label FROM docs d JOIN dim l ON d.k = l.k AND d.n > l.w")]
#[case("SELECT d.id, l.label FROM docs d LEFT JOIN dim l ON d.k = l.k AND d.n > l.w AND l.w < 25")]
#[case("SELECT d.id, l.label FROM docs d JOIN dim l ON upper(d.k) = upper(l.k) WHERE l.w > 10")]
#[case("SELECT d.id, l.label FROM docs d, dim l WHERE d.k = l.k")]
#[case("SELECT id, k, label FROM docs NATURAL JOIN dim")]
#[case("SELECT id, k, label FROM docs JOIN dim USING (k)")]
#[case("SELECT id, k, label FROM docs LEFT JOIN dim USING (k)")]
#[case("SELECT d.id, a.label, b.w FROM docs d JOIN dim a ON d.k = a.k LEFT JOIN dim_full b ON d.n = b.w")]
#[case(
    "SELECT d.id, l.label FROM docs d JOIN (dim a JOIN dim_full b ON a.k = b.k) AS l (k, label, w, k2, l2, w2) ON d.k = l.k"
)]
#[case("SELECT d.id, l.label FROM docs d JOIN dim_empty l ON d.k = l.k")]
#[case("SELECT d.id, l.label FROM docs d LEFT JOIN dim_empty l ON d.k = l.k")]
#[case(
    "SELECT d.id, a.c, a.m FROM docs d JOIN (SELECT k, count(*) AS c, max(w) AS m FROM dim GROUP BY k) a ON d.k = a.k"
)]
#[case(
    "SELECT d.id, a.c FROM docs d LEFT JOIN (SELECT k, count(*) AS c FROM dim GROUP BY k HAVING count(*) > 1) a ON d.k = a.k"
)]
#[case(
    "SELECT d.id, l.label FROM docs d JOIN (SELECT DISTINCT k, label FROM dim ORDER BY label LIMIT 2) l ON d.k = l.k"
)]
#[case("SELECT d.id, l.label FROM docs d JOIN dim_stream l ON d.k = l.k")]
#[case("SELECT d.id, l.label FROM dim_stream l RIGHT JOIN docs d ON d.k = l.k")]
#[case("SELECT id FROM docs WHERE k IN (SELECT k FROM dim_stream GROUP BY k)")]
#[case("SELECT d.id, r.value FROM docs d JOIN range(200000) r ON d.id = r.value")]
#[case("SELECT d.id, v.x FROM docs d JOIN (VALUES ('a', 1), ('c', 2)) AS v (k, x) ON d.k = v.k")]
#[case("SELECT d.id, l.r FROM docs d JOIN (SELECT k, row_number() OVER (ORDER BY w) AS r FROM dim) l ON d.k = l.k")]
#[case("SELECT id FROM docs WHERE k IN (SELECT k FROM dim)")]
#[case("SELECT id FROM docs WHERE k IN (SELECT k FROM dim GROUP BY k HAVING count(*) > 1)")]
#[case("SELECT id FROM docs WHERE EXISTS (SELECT 1 FROM dim WHERE dim.k = docs.k AND dim.w > 15)")]
#[case("SELECT id FROM docs WHERE NOT EXISTS (SELECT 1 FROM dim WHERE dim.k = docs.k)")]
#[case("SELECT id FROM docs WHERE k IN (SELECT k FROM dim_full) OR n > 40")]
#[case("SELECT id FROM docs WHERE EXISTS (SELECT 1 FROM dim WHERE dim.k = docs.k) OR n > 40")]
#[case("SELECT id FROM docs WHERE id NOT IN (SELECT w FROM dim_full)")]
#[case("SELECT k FROM docs EXCEPT ALL SELECT k FROM dim")]
#[case("SELECT k FROM docs INTERSECT ALL SELECT k FROM dim_full")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_map_only_query_is_exact_over_two_runs(#[case] sql: &str) {
    let lab = Lab::standard();
    in_two_runs(&lab, sql).await;
    let job = lab.job("job", sql);
    assert_eq!(job.rows().await, job.expected().await, "{sql}");
}

#[rstest]
#[case("SELECT id, random() AS r FROM docs")]
#[case("SELECT id, uuid() AS u FROM docs WHERE random() >= 0.0")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volatile_query_has_each_row_once(#[case] sql: &str) {
    let lab = Lab::standard();
    let (rows, expected) = in_two_runs(&lab, sql).await;
    assert_eq!(rows, expected);
}

/// Partition values rule out files: fewer tasks, and the others are no work for good.
#[rstest]
#[case("SELECT id FROM docs WHERE lang = 'en'", 4)]
#[case("SELECT id FROM docs WHERE lang IN ('en', 'de') AND n > 5", 8)]
#[case("SELECT id FROM docs WHERE upper(lang) LIKE 'D%'", 4)]
#[case("SELECT id, lang FROM docs WHERE lang IS NULL", 0)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_over_some_partitions_is_exact(#[case] sql: &str, #[case] tasks: u64) {
    let lab = Lab::standard();
    let job = lab.job("job", sql);
    let first = job.clone().max_tasks(3).ok().await;
    assert_eq!(first.tasks.planned, tasks);
    job.exact().await;
    assert_eq!(job.ok().await.tasks.planned, 0);
}

#[rstest]
#[case("SELECT id FROM docs LIMIT 5", "LIMIT")]
#[case("SELECT id FROM docs LIMIT 5 OFFSET 2", "LIMIT")]
#[case("SELECT id FROM docs OFFSET 2", "OFFSET")]
#[case("SELECT id FROM (SELECT id FROM docs LIMIT 5) WHERE id > 1", "LIMIT")]
#[case("SELECT id FROM docs ORDER BY id", "ORDER BY")]
#[case("SELECT id FROM docs ORDER BY id LIMIT 3", "LIMIT")]
#[case("SELECT DISTINCT k FROM docs", "DISTINCT")]
#[case("SELECT DISTINCT ON (k) id FROM docs", "DISTINCT")]
#[case("SELECT k, count(*) AS c FROM docs GROUP BY k", "GROUP BY")]
#[case("SELECT k FROM docs GROUP BY k", "GROUP BY")]
#[case("SELECT k FROM docs GROUP BY k HAVING count(*) > 1", "GROUP BY")]
#[case("SELECT count(*) AS c FROM docs", "an aggregate function")]
#[case("SELECT max(id) AS m FROM docs HAVING max(id) > 1", "an aggregate function")]
#[case("SELECT id, row_number() OVER () AS r FROM docs", "a window function")]
#[case("SELECT id, sum(n) OVER (PARTITION BY k) AS s FROM docs", "a window function")]
#[case("SELECT id, lag(id) OVER (ORDER BY id) AS l FROM docs", "a window function")]
#[case("SELECT id FROM docs QUALIFY row_number() OVER (PARTITION BY k ORDER BY id) = 1", "a window function")]
#[case("SELECT id FROM docs UNION SELECT id FROM more", "UNION")]
#[case("SELECT id FROM docs INTERSECT SELECT id FROM more", "INTERSECT")]
#[case("SELECT id FROM docs EXCEPT SELECT id FROM more", "EXCEPT")]
#[case("SELECT k FROM docs EXCEPT SELECT k FROM dim", "EXCEPT")]
#[case("SELECT a.id FROM docs a JOIN docs b ON a.id = b.id", "`docs` occurs more than once")]
#[case("SELECT id FROM docs UNION ALL SELECT id FROM docs", "`docs` occurs more than once")]
#[case("SELECT id FROM docs WHERE id IN (SELECT id FROM docs WHERE n > 5)", "`docs` occurs more than once")]
#[case("WITH a AS (SELECT id FROM docs) SELECT id FROM a UNION ALL SELECT id FROM a", "`docs` occurs more than once")]
#[case("SELECT d.id FROM docs d FULL JOIN dim l ON d.k = l.k", "a Full join")]
#[case("SELECT d.id FROM docs d RIGHT JOIN dim l ON d.k = l.k", "a Right join")]
#[case("SELECT d.id FROM dim l LEFT JOIN docs d ON d.k = l.k", "a Left join")]
#[case("SELECT l.k FROM dim l LEFT SEMI JOIN docs d ON d.k = l.k", "a LeftSemi join")]
#[case("SELECT l.k FROM dim l LEFT ANTI JOIN docs d ON d.k = l.k", "a LeftAnti join")]
#[case("SELECT l.k FROM docs d RIGHT SEMI JOIN dim l ON d.k = l.k", "a RightSemi join")]
#[case("SELECT l.k FROM docs d RIGHT ANTI JOIN dim l ON d.k = l.k", "a RightAnti join")]
#[case("SELECT d.id, l.w FROM docs d CROSS JOIN dim l", "a cross join")]
#[case("SELECT d.id, l.w FROM docs d, dim l", "a cross join")]
#[case("SELECT d.id, l.w FROM docs d JOIN dim l ON d.n < l.w", "a join without an equality")]
#[case("SELECT d.id, l.w FROM docs d LEFT JOIN dim l ON d.n < l.w", "a join without an equality")]
#[case("SELECT d.id, m.text FROM docs d JOIN more m ON d.id = m.id", "joins two tracked sources")]
#[case("SELECT id FROM docs WHERE id IN (SELECT id FROM more)", "IN (SELECT ...)")]
#[case("SELECT id FROM docs WHERE EXISTS (SELECT 1 FROM more WHERE more.id = docs.id)", "EXISTS")]
#[case("SELECT id, (SELECT max(w) FROM dim) AS m FROM docs", "a scalar subquery")]
#[case("SELECT id FROM docs WHERE n > (SELECT min(w) FROM dim)", "a scalar subquery")]
#[case("SELECT id, (SELECT max(id) FROM more) AS m FROM docs", "a scalar subquery")]
#[case("SELECT id, (SELECT max(w) FROM dim WHERE dim.k = docs.k) AS m FROM docs", "a scalar subquery")]
#[case("SELECT id FROM docs WHERE k NOT IN (SELECT k FROM dim)", "NOT IN (SELECT ...)")]
#[case("SELECT id FROM docs WHERE k NOT IN (SELECT k FROM dim_full)", "NOT IN (SELECT ...)")]
#[case("SELECT id FROM docs TABLESAMPLE BERNOULLI (10)", "TABLESAMPLE")]
#[case("SELECT id FROM docs TABLESAMPLE (10 ROWS)", "TABLESAMPLE")]
#[case("SELECT id FROM (SELECT id FROM docs) SAMPLE (10)", "TABLESAMPLE")]
#[case(
    "WITH RECURSIVE r AS (SELECT id, n FROM docs UNION ALL SELECT id, n - 1 FROM r WHERE n > 0) SELECT id, n FROM r",
    "WITH RECURSIVE"
)]
#[case("SELECT id FROM docs UNION ALL SELECT w FROM dim", "UNION ALL")]
#[case("SELECT id FROM docs UNION ALL VALUES (1)", "UNION ALL")]
#[case("SELECT id FROM docs UNION ALL SELECT 1", "UNION ALL")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_map_only_is_refused_by_name(#[case] sql: &str, #[case] operator: &str) {
    let lab = Lab::standard();
    let error = lab.job("job", sql).err().await;
    assert_eq!(error.kind(), ErrorKind::Refused, "{sql}: {error}");
    assert!(error.what().contains("not map-only"), "{sql}: {error}");
    assert!(error.what().contains(operator), "{sql}: {error}");
    assert!(!error.ways().is_empty(), "{sql}: {error}");
    assert!(!lab.path("job.store").exists() && !lab.path("job.out").exists(), "{sql} left something behind");
}

#[rstest]
#[case("VALUES (1), (2)", "reads no tracked source")]
#[case("SELECT k FROM dim", "reads no tracked source")]
#[case("EXPLAIN SELECT id FROM docs", "EXPLAIN")]
#[case("EXPLAIN ANALYZE SELECT id FROM docs", "EXPLAIN")]
#[case("INSERT INTO dim SELECT k, text, id FROM docs", "must be one query")]
#[case("CREATE TABLE t AS SELECT id FROM docs", "must be one query")]
#[case("CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION '/tmp/x'", "must be one query")]
#[case("DROP TABLE docs", "must be one query")]
#[case("DELETE FROM docs", "must be one query")]
#[case("COPY docs TO '/tmp/x.parquet'", "must be one query")]
#[case("COPY (SELECT id FROM docs) TO '/tmp/x.parquet'", "must be one query")]
#[case("SET datafusion.execution.batch_size = 1", "must be one query")]
#[case("SHOW TABLES", "must be one query")]
#[case("SELECT id FROM docs; SELECT id FROM docs", "cannot be planned")]
#[case("SELECT id FROM docs FETCH FIRST 3 ROWS ONLY", "FETCH clause")]
#[case("SELECT id FROM docs WHERE false", "keeps no row of source `docs`")]
#[case("SELECT id FROM docs WHERE 1 = 2 AND n = 1", "keeps no row of source `docs`")]
#[case("SELECT id FROM docs WHERE false UNION ALL SELECT id FROM more", "keeps no row of source `docs`")]
#[case("SELECT d.id FROM docs d JOIN dim l ON false", "keeps no row of source `docs`")]
#[case("SELECT nothing FROM docs", "cannot be planned")]
#[case("SELECT id FROM nowhere", "cannot be planned")]
#[case("SELEC id FROM docs", "cannot be planned")]
#[case("", "cannot be planned")]
#[case("SELECT id, text AS id FROM docs", "id")]
#[case("SELECT d.id, m.w, d.k, m.k FROM docs d JOIN dim m ON d.k = m.k", "two columns named `k`")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_query_over_a_source_is_invalid(#[case] sql: &str, #[case] needle: &str) {
    let lab = Lab::standard();
    let error = lab.job("job", sql).err().await;
    assert_eq!(error.kind(), ErrorKind::Invalid, "{sql}: {error}");
    assert!(error.to_string().contains(needle), "{sql}: {error}");
    assert!(!lab.path("job.store").exists() && !lab.path("job.out").exists(), "{sql} left something behind");
}

/// A rule of the session's own that deals rows out to other partitions after ours have been planned.
#[derive(Debug)]
struct Shuffle;

impl datafusion::physical_optimizer::PhysicalOptimizerRule for Shuffle {
    fn optimize(
        &self,
        plan: std::sync::Arc<dyn datafusion::physical_plan::ExecutionPlan>,
        _: &datafusion::config::ConfigOptions,
    ) -> datafusion::error::Result<std::sync::Arc<dyn datafusion::physical_plan::ExecutionPlan>> {
        use datafusion::physical_plan::{Partitioning, repartition::RepartitionExec};
        Ok(std::sync::Arc::new(RepartitionExec::try_new(plan, Partitioning::RoundRobinBatch(3))?))
    }

    fn name(&self) -> &str {
        "shuffle"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// What runs is checked, not only what was written.
#[tokio::test]
async fn a_plan_whose_partitions_are_not_its_tasks_is_refused() {
    use lakemark_datafusion::LakemarkExt;
    let lab = Lab::standard();
    let job = lab.job("job", "SELECT id FROM docs");
    let (ctx, checkpoints) = job.session().await.unwrap();
    let state = ctx.state();
    let mut rules = state.physical_optimizers().to_vec();
    rules.push(std::sync::Arc::new(Shuffle));
    let state = datafusion::execution::SessionStateBuilder::new_from_existing(state)
        .with_physical_optimizer_rules(rules)
        .build();
    let ctx = datafusion::prelude::SessionContext::new_with_state(state);
    ctx.register_checkpointed(&checkpoints, lakemark_datafusion::SourceSpec::new("twin", lab.url("docs")))
        .await
        .unwrap();
    let query = ctx.checkpointed_sql("SELECT id FROM twin").await.unwrap();
    let error = ctx.plan_sealed(&checkpoints, query, None).await.unwrap_err();
    assert_eq!(error.kind(), lakemark::ErrorKind::Refused, "{error}");
    assert!(error.what().contains("a repartitioning"), "{error}");
}
