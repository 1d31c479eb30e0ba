//! Small lakes, runs over them, and what plain DataFusion says of the same files.

pub mod data;
pub mod udf;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::dataframe::DataFrame;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use lakemark::{DirectorySink, Error, ObjectCheckpointStore, OutputOptions, TaskSizing, Wait};
use lakemark_datafusion::{Checkpoints, LakemarkExt, Options, Output, Progress, RunReport, SourceSpec, StopSignal};
use tempfile::TempDir;

/// A folder with lakes, stores and sinks.
pub struct Lab {
    dir: TempDir,
}

impl Lab {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    /// A lake `docs` of 6 files of 2 row groups, a lake `more` of 2 files, see [`data`].
    pub fn standard() -> Self {
        let lab = Self::new();
        for file in 0..6 {
            let lang = ["en", "de", "fr"][file % 3];
            lab.write(&format!("docs/lang={lang}/part-{file}.parquet"), &data::docs(file as i64 * 40, 40), 20);
        }
        for file in 0..2 {
            lab.write(&format!("more/part-{file}.parquet"), &data::docs(1_000 + file * 20, 20), 10);
        }
        lab
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn url(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Writes one Parquet file with `group` rows a row group.
    pub fn write(&self, name: &str, batch: &RecordBatch, group: usize) {
        data::write_parquet(&self.path(name), batch, group);
    }

    /// Makes a file old enough for its mtime to be trusted at once; a fresh one is settled by its footer later.
    pub fn age(&self, name: &str) {
        let hour = std::time::Duration::from_secs(3_600);
        let file = fs::File::options().write(true).open(self.path(name)).unwrap();
        file.set_modified(std::time::SystemTime::now() - hour).unwrap();
    }

    /// A job of this lab with the store and sink `name`.
    pub fn job<'a>(&'a self, name: &str, sql: &'a str) -> Job<'a> {
        Job {
            lab: self,
            sql,
            store: format!("{name}.store"),
            sink: Some(format!("{name}.out")),
            options: options(),
            parquet: OutputOptions::default(),
            config: SessionConfig::new(),
            sources: vec![SourceSpec::new("docs", self.url("docs"))],
            setup: Arc::new(data::register_lookups),
            progress: Arc::new(()),
        }
        .with_more()
    }

    /// The rows of a directory of Parquet files, as plain DataFusion reads it.
    pub async fn rows_of(&self, name: &str, partitions: &[&str]) -> Rows {
        let path = self.path(name);
        if files_below(&path).is_empty() {
            return Rows::default();
        }
        let ctx = SessionContext::new();
        let options = ParquetReadOptions::default().table_partition_cols(text_columns(partitions));
        Rows::of(ctx.read_parquet(path.to_str().unwrap(), options).await.unwrap()).await
    }

    /// What plain DataFusion makes of `sql` over the same files.
    pub async fn plain(&self, sql: &str, setup: &(dyn Fn(&SessionContext) + Send + Sync)) -> Rows {
        let ctx = SessionContext::new();
        setup(&ctx);
        for name in ["docs", "more"] {
            if self.path(name).exists() {
                let folders =
                    files_below(&self.path(name)).iter().any(|file| file.to_string_lossy().contains("/lang="));
                let partitions = if folders { &["lang"][..] } else { &[] };
                let options = ParquetReadOptions::default().table_partition_cols(text_columns(partitions));
                ctx.register_parquet(name, self.url(name), options).await.unwrap();
            }
        }
        Rows::of(ctx.sql(sql).await.unwrap()).await
    }
}

fn text_columns(names: &[&str]) -> Vec<(String, datafusion::arrow::datatypes::DataType)> {
    names.iter().map(|name| ((*name).to_owned(), datafusion::arrow::datatypes::DataType::Utf8)).collect()
}

/// Every row group a task of its own, nothing waits.
pub fn options() -> Options {
    Options { concurrency: 2, sizing: TaskSizing { bytes: 1, rows: 0 }, wait: Wait::Takeover, ..Options::default() }
}

/// One query from a lake to a directory; each call of [`run`](Self::run) is a run of its own, as in a new process.
#[derive(Clone)]
pub struct Job<'a> {
    lab: &'a Lab,
    sql: &'a str,
    pub store: String,
    pub sink: Option<String>,
    pub options: Options,
    pub parquet: OutputOptions,
    pub config: SessionConfig,
    pub sources: Vec<SourceSpec>,
    pub setup: Arc<dyn Fn(&SessionContext) + Send + Sync>,
    pub progress: Arc<dyn Progress>,
}

impl<'a> Job<'a> {
    pub fn sql(&self) -> &'a str {
        self.sql
    }

    fn with_more(mut self) -> Self {
        if self.sql.contains("more") {
            self.sources.push(SourceSpec::new("more", self.lab.url("more")));
        }
        self
    }

    /// With tasks of about 128 MiB: small files are packed whole, and opened by workers only.
    pub fn packed(mut self) -> Self {
        self.options.sizing = TaskSizing::default();
        self
    }

    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.options.concurrency = concurrency;
        self
    }

    /// With only `max_tasks` tasks a run.
    pub fn max_tasks(mut self, max_tasks: usize) -> Self {
        self.options.max_tasks = max_tasks;
        self
    }

    /// Without a destination.
    pub fn without_sink(mut self) -> Self {
        self.sink = None;
        self
    }

    /// With more of the session than the lookups.
    pub fn with_setup(mut self, setup: impl Fn(&SessionContext) + Send + Sync + 'static) -> Self {
        self.setup = Arc::new(setup);
        self
    }

    pub fn output(&self) -> Option<Output> {
        let sink = DirectorySink::open("parquet", &self.lab.url(self.sink.as_deref()?)).unwrap();
        Some(Output::parquet(sink).with_options(self.parquet.clone()))
    }

    /// A session over what is there now.
    pub async fn session(&self) -> Result<(SessionContext, Checkpoints), Error> {
        let ctx = SessionContext::new_with_config(self.config.clone());
        (self.setup)(&ctx);
        let store = ObjectCheckpointStore::open(&self.lab.url(&self.store))?;
        let checkpoints = Checkpoints::new(store, self.options.clone());
        for source in &self.sources {
            ctx.register_checkpointed(&checkpoints, source.clone()).await?;
        }
        Ok((ctx, checkpoints))
    }

    pub async fn run(&self) -> (RunReport, Option<Error>) {
        let prepared = async {
            let (ctx, checkpoints) = self.session().await?;
            let query = ctx.checkpointed_sql(self.sql).await?;
            Ok((ctx, checkpoints, query))
        };
        match prepared.await {
            Ok((ctx, checkpoints, query)) => {
                ctx.run_job(&checkpoints, query, self.output(), Arc::clone(&self.progress), StopSignal::never()).await
            }
            Err(error) => (RunReport::default(), Some(error)),
        }
    }

    /// A run that must succeed.
    pub async fn ok(&self) -> RunReport {
        let (report, error) = self.run().await;
        if let Some(error) = error {
            panic!("{}: {error}", self.sql);
        }
        report
    }

    /// A run that must fail.
    pub async fn err(&self) -> Error {
        self.run().await.1.unwrap_or_else(|| panic!("{} went well", self.sql))
    }

    /// What the destination holds.
    pub async fn rows(&self) -> Rows {
        let partitions: Vec<&str> = self.parquet.partition_by.iter().map(String::as_str).collect();
        self.lab.rows_of(self.sink.as_deref().unwrap(), &partitions).await
    }

    /// What plain DataFusion says it should hold.
    pub async fn expected(&self) -> Rows {
        self.lab.plain(self.sql, &*self.setup).await
    }

    /// Runs to the end and compares.
    pub async fn exact(&self) -> RunReport {
        let report = self.ok().await;
        assert_eq!(self.rows().await, self.expected().await, "{}", self.sql);
        report
    }
}

/// A multiset of rows, each as text, with the names of the columns.
#[derive(Debug, Default, PartialEq, Eq, Clone)]
pub struct Rows {
    pub columns: Vec<String>,
    pub rows: Vec<String>,
}

impl Rows {
    pub async fn of(frame: DataFrame) -> Self {
        let columns = frame.schema().fields().iter().map(|field| field.name().clone()).collect();
        Self::of_batches(columns, &frame.collect().await.unwrap())
    }

    pub fn of_batches(columns: Vec<String>, batches: &[RecordBatch]) -> Self {
        let options = FormatOptions::default().with_null("NULL");
        let mut rows = Vec::new();
        for batch in batches {
            let columns: Vec<_> =
                batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options).unwrap()).collect();
            rows.extend(
                (0..batch.num_rows()).map(|row| {
                    columns.iter().map(|column| column.value(row).to_string()).collect::<Vec<_>>().join(" | ")
                }),
            );
        }
        rows.sort();
        // A directory without rows has no files, and so no columns.
        if rows.is_empty() { Self::default() } else { Self { columns, rows } }
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }
}

/// Rows as [`Rows`] shows them.
pub fn rows(columns: &[&str], rows: impl IntoIterator<Item = String>) -> Rows {
    let mut rows: Vec<String> = rows.into_iter().collect();
    rows.sort();
    Rows { columns: columns.iter().map(|c| (*c).to_owned()).collect(), rows }
}

/// All files below `path`.
pub fn files_below(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(path) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] })
        .collect();
    files.sort();
    files
}
