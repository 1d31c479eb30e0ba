//! Wrapped tables of files without row groups: each file is one atom.

use std::fmt::Write as _;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::catalog::{Session as Catalog, TableProvider};
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::csv::CsvFormat;
use datafusion::datasource::file_format::json::JsonFormat;
use datafusion::datasource::listing::ListingOptions;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfig, FileScanConfigBuilder};
use datafusion::datasource::source::DataSourceExec;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionContext;
use lakemark::{ErrorKind, OnChange, OnMoved, SourcePolicy};
use lakemark_datafusion::Outcome;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use rstest::rstest;
use url::Url;

use crate::support::{Lab, data, udf};
use crate::wrapped::{Session, listing, refusal};

#[derive(Debug, Clone, Copy)]
enum Format {
    Csv,
    Json,
}

impl Format {
    fn name(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Json => "json",
        }
    }

    fn text(self, ids: std::ops::Range<i64>) -> String {
        let mut text = String::new();
        if matches!(self, Self::Csv) {
            text.push_str("id,k,text\n");
        }
        for id in ids {
            let k = ["a", "b", "c", "d", "e"][id as usize % 5];
            let _ = match self {
                Self::Csv => writeln!(text, "{id},{k},\"text, {id}\""),
                Self::Json => writeln!(text, r#"{{"id":{id},"k":"{k}","text":"text, {id}"}}"#),
            };
        }
        text
    }

    fn options(self, folders: bool) -> ListingOptions {
        let format: Arc<dyn FileFormat> = match self {
            Self::Csv => Arc::new(CsvFormat::default().with_has_header(true)),
            Self::Json => Arc::new(JsonFormat::default()),
        };
        let options = ListingOptions::new(format).with_file_extension(format!(".{}", self.name()));
        if !folders {
            return options;
        }
        options.with_table_partition_cols(vec![("lang".into(), DataType::Utf8)])
    }
}

fn write(lab: &Lab, name: &str, text: &str) {
    fs::create_dir_all(lab.path(name).parent().unwrap()).unwrap();
    fs::write(lab.path(name), text).unwrap();
    lab.age(name);
}

/// Six files of 30 rows in folders of `lang`.
async fn on_disk(lab: &Lab, format: Format) -> Session<'_> {
    for file in 0..6 {
        let lang = ["en", "de", "fr"][file as usize % 3];
        let name = format!("docs/lang={lang}/part {file}.{}", format.name());
        write(lab, &name, &format.text(file * 30..file * 30 + 30));
    }
    session(lab, format, "docs", true).await
}

async fn session<'a>(lab: &'a Lab, format: Format, folder: &str, folders: bool) -> Session<'a> {
    let ctx = SessionContext::new();
    data::register_lookups(&ctx);
    let provider = listing(&ctx, &lab.url(folder), format.options(folders)).await;
    Session { lab, ctx, provider, max_tasks: 0, policy: SourcePolicy::default() }
}

const SQL: &str =
    "SELECT d.id, upper(d.text) AS text, d.lang, l.label FROM docs d JOIN dim l ON d.k = l.k WHERE d.id <> 7";

#[rstest]
#[tokio::test]
async fn whole_files_are_exact_over_many_runs(#[values(Format::Csv, Format::Json)] format: Format) {
    let lab = Lab::new();
    let mut session = on_disk(&lab, format).await;
    session.max_tasks = 4;
    let first = session.run(SQL).await.unwrap();
    assert_eq!((first.tasks.planned, first.tasks.sealed, first.rows.rows_in), (6, 4, 120));
    session.max_tasks = 0;
    let second = session.run(SQL).await.unwrap();
    assert_eq!((second.tasks.sealed, second.rows.rows_in, second.atoms.done), (2, 60, 4));
    // Each byte once: the digest is taken as the rows are read.
    let bytes: u64 = ["docs/lang=de/part 4", "docs/lang=fr/part 2", "docs/lang=fr/part 5", "docs/lang=en/part 3"]
        .iter()
        .map(|name| fs::metadata(lab.path(&format!("{name}.{}", format.name()))).unwrap().len())
        .sum();
    assert!(second.bytes.read > 0 && second.bytes.read < bytes, "{} of {bytes}", second.bytes.read);
    session.check(SQL).await;
    let third = session.run(SQL).await.unwrap();
    assert_eq!((third.outcome, third.requests.source.get, third.requests.source.head), (Outcome::Nothing, 0, 0));
    assert_eq!((third.requests.store.put, third.atoms.done), (0, 6));

    write(&lab, &format!("docs/lang=it/new.{}", format.name()), &format.text(500..503));
    assert_eq!(session.run(SQL).await.unwrap().tasks.sealed, 1);
    session.check(SQL).await;
}

#[rstest]
#[tokio::test]
async fn changed_whole_files_are_told_from_touched_ones(#[values(Format::Csv, Format::Json)] format: Format) {
    let lab = Lab::new();
    let mut session = on_disk(&lab, format).await;
    session.run(SQL).await.unwrap();
    let touched = format!("docs/lang=en/part 0.{}", format.name());
    session.touch(&touched);
    assert_eq!(session.run(SQL).await.unwrap_err().kind(), ErrorKind::Refused);
    session.policy.on_moved = OnMoved::Accept;
    let accepted = session.run(SQL).await.unwrap();
    assert_eq!((accepted.tasks.sealed, accepted.sources[0].moved), (0, 1));
    // Other content of the same size.
    write(&lab, &touched, &fs::read_to_string(lab.path(&touched)).unwrap().replace("text, 3", "Text; 3"));
    session.policy.on_change = OnChange::Fail;
    assert_eq!(session.run(SQL).await.unwrap_err().kind(), ErrorKind::Refused);
    session.policy.on_change = OnChange::Reprocess;
    let redone = session.run(SQL).await.unwrap();
    assert_eq!((redone.tasks.sealed, redone.sources[0].replaced, redone.rows.rows_in), (1, 1, 30));
    assert_eq!(session.run(SQL).await.unwrap().outcome, Outcome::Nothing);
    // A rewrite that keeps size and mtime is seen by `verify`.
    let text = fs::read_to_string(lab.path(&touched)).unwrap().replace("Text", "TEXT");
    write(&lab, &touched, &text);
    let same = fs::metadata(lab.path(&touched)).unwrap().modified().unwrap();
    session.run(SQL).await.unwrap();
    fs::write(lab.path(&touched), text.replace("TEXT", "text")).unwrap();
    fs::File::options().write(true).open(lab.path(&touched)).unwrap().set_modified(same).unwrap();
    assert_eq!(session.run(SQL).await.unwrap().outcome, Outcome::Nothing);
    session.policy.verify = true;
    assert_eq!(session.run(SQL).await.unwrap().sources[0].replaced, 1);
}

#[rstest]
#[tokio::test]
async fn a_whole_file_replaced_before_it_is_read_is_planned_again(#[values(Format::Csv, Format::Json)] format: Format) {
    let lab = Lab::new();
    let session = on_disk(&lab, format).await;
    // Tasks are in the order of paths: `de` is read first, with ids from 30 on; `fr` last.
    let (path, text) = (lab.path(&format!("docs/lang=fr/part 5.{}", format.name())), format.text(900..910));
    udf::register(&session.ctx, "look", move |ids| {
        if ids.contains(&31) {
            fs::write(&path, &text).unwrap();
        }
        Ok(())
    });
    let report = session.run("SELECT look(id) AS id, lang FROM docs").await.unwrap();
    assert_eq!((report.outcome, report.rows.out), (Outcome::Done, 160));
    session.check("SELECT id, lang FROM docs").await;
}

/// Larger than one read: the rest of it is of another version, and none of its rows may stay.
#[rstest]
#[tokio::test]
async fn a_whole_file_replaced_while_it_is_read_is_read_anew(#[values(Format::Csv, Format::Json)] format: Format) {
    let lab = Lab::new();
    let name = format!("docs/large.{}", format.name());
    write(&lab, &name, &format.text(0..400_000));
    assert!(fs::metadata(lab.path(&name)).unwrap().len() > 8 << 20);
    let session = session(&lab, format, "docs", false).await;
    let (path, text, times) = (lab.path(&name), format.text(400_000..500_000), Arc::new(AtomicUsize::new(0)));
    let seen = Arc::clone(&times);
    udf::register(&session.ctx, "look", move |ids| {
        if ids.contains(&5) && seen.fetch_add(1, Ordering::SeqCst) == 0 {
            fs::write(&path, &text).unwrap();
        }
        Ok(())
    });
    let report = session.run("SELECT look(id) AS id, text FROM docs").await.unwrap();
    assert_eq!((report.outcome, report.rows.out, times.load(Ordering::SeqCst)), (Outcome::Done, 100_000, 1));
    session.check("SELECT id, text FROM docs").await;
}

#[rstest]
#[tokio::test]
async fn whole_objects_are_read_by_etag(#[values(Format::Csv, Format::Json)] format: Format) {
    let lab = Lab::new();
    let memory = Arc::new(InMemory::new());
    let key = |file: i64| Path::from(format!("tables/docs/part-{file}.{}", format.name()));
    for file in 0..3 {
        memory.put(&key(file), format.text(file * 10..file * 10 + 10).into()).await.unwrap();
    }
    let ctx = SessionContext::new();
    data::register_lookups(&ctx);
    ctx.register_object_store(&Url::parse("memory://lake/").unwrap(), Arc::clone(&memory) as Arc<dyn ObjectStore>);
    let provider = listing(&ctx, "memory://lake/tables/docs/", format.options(false)).await;
    let session = Session { lab: &lab, ctx, provider, max_tasks: 0, policy: SourcePolicy::default() };
    let sql = "SELECT text, id FROM docs";
    assert_eq!(session.run(sql).await.unwrap().rows.out, 30);
    session.check(sql).await;
    assert_eq!(session.run(sql).await.unwrap().outcome, Outcome::Nothing);
    let other = format.text(10..20).replace("text, 1", "TEXT, 1");
    memory.put(&key(1), other.into()).await.unwrap();
    let report = session.run(sql).await.unwrap();
    assert_eq!((report.sources[0].replaced, report.rows.out), (1, 10));
}

#[rstest]
#[tokio::test]
async fn whole_files_without_rows_are_done_once(#[values(Format::Csv, Format::Json)] format: Format) {
    let lab = Lab::new();
    let session = on_disk(&lab, format).await;
    write(&lab, &format!("docs/lang=en/empty.{}", format.name()), "");
    let sql = "SELECT id, text FROM docs";
    let report = session.run(sql).await.unwrap();
    // An object store adapter of DataFusion leaves files without bytes out of the listing; they are nothing to do.
    assert_eq!((report.outcome, report.rows.rows_in), (Outcome::Done, 180));
    session.check(sql).await;
    assert_eq!(session.run(sql).await.unwrap().outcome, Outcome::Nothing);
    // Known without a row: the evidence is read all the same.
    let lab = Lab::new();
    let session = on_disk(&lab, format).await;
    let none = "SELECT d.id, d.text FROM docs d JOIN (SELECT * FROM dim WHERE w > 1000) l ON d.k = l.k";
    assert_eq!(session.run(none).await.unwrap().tasks.sealed, 6);
    assert_eq!(session.run(none).await.unwrap().outcome, Outcome::Nothing);
    session.touch(&format!("docs/lang=en/part 0.{}", format.name()));
    assert!(session.run(none).await.unwrap_err().to_string().contains("only copied or touched"));
}

#[tokio::test]
async fn a_whole_file_that_cannot_be_parsed_fails_its_task_and_names_it() {
    let lab = Lab::new();
    let session = on_disk(&lab, Format::Json).await;
    write(&lab, "docs/lang=en/part 3.json", "{\"id\":1,\"k\":\"a\",\"text\":\"a\"}\n{\"id\":");
    let error = session.run(SQL).await.unwrap_err();
    assert!(error.to_string().contains("part 3.json"), "{error}");
    write(&lab, "docs/lang=en/part 3.json", &Format::Json.text(90..120));
    session.run(SQL).await.unwrap();
    session.check(SQL).await;
}

/// A table of its own, with the first half of a file.
#[derive(Debug)]
struct Half(Arc<dyn TableProvider>);

#[async_trait]
impl TableProvider for Half {
    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Catalog,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> datafusion::error::Result<Arc<dyn ExecutionPlan>> {
        let whole = self.0.scan(state, projection, filters, limit).await?;
        let config = whole.downcast_ref::<DataSourceExec>().unwrap();
        let config = config.data_source().downcast_ref::<FileScanConfig>().unwrap().clone();
        let half = config.file_groups.iter().flat_map(FileGroup::files).map(|file| {
            let size = file.object_meta.size as i64;
            file.clone().with_range(0, size / 2)
        });
        let half = FileGroup::new(half.collect());
        Ok(DataSourceExec::from_data_source(FileScanConfigBuilder::from(config).with_file_groups(vec![half]).build()))
    }
}

#[tokio::test]
async fn r43_a_byte_range_of_a_whole_file_is_refused_and_rows_mode_named() {
    let lab = Lab::new();
    let session = on_disk(&lab, Format::Csv).await;
    let error = refusal(Arc::new(Half(session.provider))).await;
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("rows"), "{error}");
    assert!(error.ways().iter().any(|way| way.contains("mode = \"rows\"")), "{error}");
}
