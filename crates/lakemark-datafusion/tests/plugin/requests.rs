//! What a run asks of the source: done files are not opened, small files' footers are read once.

use lakemark_datafusion::{Outcome, RunReport};

use crate::support::{Lab, data};

fn lab_of(files: i64) -> Lab {
    let lab = Lab::new();
    for file in 0..files {
        write(&lab, file);
    }
    lab
}

fn write(lab: &Lab, file: i64) {
    let name = format!("docs/part-{file:02}.parquet");
    lab.write(&name, &data::docs(file * 40, 40), 20);
    lab.age(&name);
}

fn asked(report: &RunReport) -> (u64, u64) {
    (report.requests.source.get, report.requests.source.head)
}

#[tokio::test]
async fn a_small_file_costs_its_footer_and_its_row_groups() {
    let lab = lab_of(4);
    let job = lab.job("job", "SELECT id, text FROM docs").packed();
    assert_eq!(asked(&job.exact().await), (4 + 8, 0), "one footer a file, one read a row group");
    assert_eq!(asked(&job.ok().await), (0, 0), "a finished lake is not opened");

    write(&lab, 9);
    let report = job.exact().await;
    assert_eq!((asked(&report), report.tasks.planned), ((1 + 2, 0), 1), "only the new file is opened");
    assert_eq!(report.atoms.files_unopened, 4);
    assert_eq!(asked(&job.ok().await), (0, 0));
}

#[tokio::test]
async fn planning_reads_one_footer_for_the_schema_and_none_when_it_is_recorded() {
    let lab = lab_of(4);
    let job = lab.job("job", "SELECT id, text FROM docs").packed();
    let gets = async || {
        let (ctx, checkpoints) = job.session().await.unwrap();
        let query = lakemark_datafusion::LakemarkExt::checkpointed_sql(&ctx, job.sql()).await.unwrap();
        let plan =
            lakemark_datafusion::LakemarkExt::plan_sealed(&ctx, &checkpoints, query, job.output()).await.unwrap();
        (plan.report.requests.source.get, plan.report.tasks.planned, plan.report.outcome)
    };
    assert_eq!(gets().await, (1, 1, Outcome::Done));
    assert!(!lab.path("job.store").exists() && !lab.path("job.out").exists(), "planning changes nothing");
    job.ok().await;
    assert_eq!(gets().await, (0, 0, Outcome::Nothing));
    write(&lab, 0x9);
    assert_eq!(gets().await, (0, 1, Outcome::Done));
}

#[tokio::test]
async fn a_half_done_file_costs_only_its_other_half() {
    let lab = Lab::new();
    lab.write("docs/all.parquet", &data::docs(0, 400), 20);
    lab.age("docs/all.parquet");
    let job = lab.job("job", "SELECT id, text FROM docs").concurrency(1);
    let first = job.clone().max_tasks(7).ok().await;
    assert_eq!((asked(&first), first.rows.rows_in), ((1 + 7, 0), 140));
    let second = job.exact().await;
    assert_eq!((asked(&second), second.rows.rows_in), ((1 + 13, 0), 260));
    assert_eq!(asked(&job.ok().await), (0, 0));
}

/// Rows of one row group are tasks of their own with `task_rows`; other sizes in the next run redo nothing.
#[tokio::test]
async fn another_task_size_redoes_nothing() {
    let lab = Lab::new();
    lab.write("docs/all.parquet", &data::docs(0, 400), 100);
    let mut job = lab.job("job", "SELECT id, text FROM docs WHERE n <> 3").concurrency(1);
    job.options.sizing = lakemark::TaskSizing { bytes: u64::MAX, rows: 30 };
    let first = job.clone().max_tasks(5).ok().await;
    assert_eq!((first.tasks.planned, first.rows.rows_in), (16, 130), "4 tasks of a group, and 30 rows of the next");
    job.options.sizing = lakemark::TaskSizing { bytes: u64::MAX, rows: 77 };
    let second = job.clone().max_tasks(2).ok().await;
    job.options.sizing = lakemark::TaskSizing::default();
    let third = job.exact().await;
    assert_eq!(first.rows.rows_in + second.rows.rows_in + third.rows.rows_in, 400);
    assert_eq!(job.ok().await.outcome, Outcome::Nothing);
}

/// At most one write to the store a task, beside folds, manifests and the probe.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_costs_one_write_to_the_store() {
    let lab = Lab::new();
    let writes = async |tasks: i64| {
        let name = format!("docs{tasks}");
        for file in 0..tasks / 10 {
            lab.write(&format!("{name}/part-{file}.parquet"), &data::docs(file * 40, 40), 4);
        }
        let mut job = lab.job(&name, "SELECT id FROM docs");
        job.sources = vec![lakemark_datafusion::SourceSpec::new("docs", lab.url(&name))];
        let report = job.ok().await;
        assert_eq!(report.tasks.sealed, tasks as u64);
        report.requests.store.put
    };
    let (few, many) = (writes(100).await, writes(300).await);
    assert_eq!(many - few, 200, "each further task costs its seal and nothing else");
    assert!(few <= 100 + 16 + 10, "probe, manifests, segments and the commit object beside the seals: {few}");
}
