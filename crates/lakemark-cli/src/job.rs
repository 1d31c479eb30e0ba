//! A job's configuration as lakemark's and DataFusion's own objects.

use std::sync::Arc;

use datafusion::dataframe::DataFrame;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use lakemark::{
    BucketSink, CommitDriver, DataFiles, DirectorySink, Error, ErrorKind, Lake, Lease, Listing, NullKeys,
    ObjectCheckpointStore, OutputFormat, OutputOptions, OutputSink, Result, Root, SourcePolicy, SourceTable,
    TaskSizing, Wait,
};
use lakemark_datafusion::{
    Checkpoints, CsvFileOptions, LakemarkExt, OnDuplicate, Options, Output, RowKeys, RowsSpec, SourceFormat,
    SourceSpec, from_datafusion, read_lookup,
};
use lakemark_delta::{DeltaSource, DeltaTable};
use lakemark_iceberg::{IcebergSource, IcebergTable};
use lakemark_sql::{Database, SqlSource};
use parquet::basic::{BrotliLevel, Compression as Codec, GzipLevel, ZstdLevel};

use crate::args::RunArgs;
use crate::config::{self, JobConfig, Mode, Role, SinkConfig, SinkKind, SourceConfig};

/// A job that is ready to be planned.
pub(crate) struct Job {
    pub(crate) ctx: SessionContext,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) output: Option<Output>,
    /// `None` when no source has ever had a file: there is no schema to plan a query with.
    pub(crate) query: Option<DataFrame>,
}

impl Job {
    /// Opens store and destination, lists the sources, plans the query. Writes nothing.
    pub(crate) async fn open(config: &JobConfig, args: &RunArgs) -> Result<Self> {
        let store = store(config)?;
        let output = output(config)?;
        let checkpoints = Checkpoints::new(store, options(config, args));
        let ctx = context(config)?;
        for source in config.tracked() {
            match rows(source).await? {
                Some(rows) => ctx.register_rows(&checkpoints, rows).await?,
                None => ctx.register_checkpointed(&checkpoints, planned_spec(source, args)?).await?,
            }
        }
        let query = if checkpoints.has_schemas()? {
            for source in config.sources.iter().filter(|source| source.role == Role::Lookup) {
                register_lookup(&ctx, source).await?;
            }
            Some(ctx.checkpointed_sql(&config.sql()).await?)
        } else {
            None
        };
        Ok(Self { ctx, checkpoints, output, query })
    }
}

/// The store of a job: reached as the sink is, or, without one, as the first source is.
pub(crate) fn store(config: &JobConfig) -> Result<ObjectCheckpointStore> {
    let store = ObjectCheckpointStore::connect(&config.store_url(), config.store_options())?;
    Ok(store.with_key_memory(config.run.key_memory.0, std::env::temp_dir()))
}

fn context(config: &JobConfig) -> Result<SessionContext> {
    let mut runtime = RuntimeEnvBuilder::new();
    if let Some(memory) = config.run.memory {
        runtime = runtime.with_memory_limit(usize::try_from(memory.0).unwrap_or(usize::MAX), 1.0);
    }
    let runtime =
        runtime.build_arc().map_err(|e| from_datafusion(e, ErrorKind::Invalid, "the engine cannot be started"))?;
    let session = SessionConfig::new().with_target_partitions(config.run.concurrency.get());
    Ok(SessionContext::new_with_config_rt(session, runtime))
}

/// What the flags say to do about another holder.
pub(crate) fn wait(takeover: bool, no_wait: bool) -> Wait {
    match (takeover, no_wait) {
        (true, _) => Wait::Takeover,
        (false, true) => Wait::No,
        (false, false) => Wait::default(),
    }
}

fn options(config: &JobConfig, args: &RunArgs) -> Options {
    let run = &config.run;
    Options {
        concurrency: run.concurrency.get(),
        sizing: TaskSizing { bytes: run.task_bytes.0, rows: run.task_rows },
        max_tasks: usize::try_from(run.max_tasks).unwrap_or(usize::MAX),
        retries: run.retries,
        task_timeout: run.task_timeout,
        grace: run.grace,
        commit_every: config.sink.kind.is_table().then_some(run.commit_every),
        wait: wait(args.takeover, args.no_wait),
        lease: Lease { beat: run.beat, lease: run.lease },
    }
}

fn planned_spec(source: &SourceConfig, args: &RunArgs) -> Result<SourceSpec> {
    let policy = SourcePolicy {
        on_change: match source.on_change() {
            config::OnChange::Ignore => lakemark::OnChange::Ignore,
            config::OnChange::Fail => lakemark::OnChange::Fail,
            config::OnChange::Reprocess => lakemark::OnChange::Reprocess,
            config::OnChange::Replace => lakemark::OnChange::Replace,
        },
        on_delete: match source.on_delete {
            config::OnDelete::Keep => lakemark::OnDelete::Keep,
            config::OnDelete::Retract => lakemark::OnDelete::Retract,
        },
        on_moved: match source.on_moved {
            config::OnMoved::Fail => lakemark::OnMoved::Fail,
            config::OnMoved::Accept => lakemark::OnMoved::Accept,
            config::OnMoved::Reprocess => lakemark::OnMoved::Reprocess,
        },
        max_replaced: match source.max_replaced {
            config::MaxReplaced::Percent(percent) => lakemark::MaxReplaced::Percent(percent),
            config::MaxReplaced::Files(files) => lakemark::MaxReplaced::Files(files),
        },
        verify: args.verify,
    };
    let mut spec = spec(source)?.with_policy(policy);
    spec.refresh_schema = args.refresh_schema;
    Ok(spec)
}

/// Where a source is, with the default policy.
///
/// # Errors
/// Of a table, when it cannot be known by what is configured.
pub(crate) fn spec(source: &SourceConfig) -> Result<SourceSpec> {
    if let Some(table) = table(source)? {
        let spec = SourceSpec::of_table(&source.name, table);
        return Ok(SourceSpec { rows: keys(source), ..spec });
    }
    let mut spec = SourceSpec::new(&source.name, &source.url);
    spec.storage = source.storage_options.clone();
    spec.rows = keys(source);
    spec.format = match source.format {
        config::Format::Csv => SourceFormat::Csv(CsvFileOptions {
            header: source.csv.header,
            delimiter: source.csv.delimiter.0,
            quote: source.csv.quote.0,
            all_text: source.csv.types == config::CsvTypes::Text,
        }),
        config::Format::Json => SourceFormat::Json,
        // Others are refused by the check of the configuration.
        _ => SourceFormat::Parquet,
    };
    Ok(spec)
}

/// What tells the rows of a source apart, in rows mode.
fn keys(source: &SourceConfig) -> Option<RowKeys> {
    (source.role == Role::Tracked && source.mode == Mode::Rows).then(|| RowKeys {
        on: source.on.clone(),
        nulls: match source.on_null {
            config::OnNull::Equal => NullKeys::Equal,
            config::OnNull::Refuse => NullKeys::Refuse,
        },
        values: source.key_values,
        on_duplicate: match source.on_duplicate {
            config::OnDuplicate::First => OnDuplicate::First,
            config::OnDuplicate::Fail => OnDuplicate::Fail,
        },
    })
}

/// The table of a database that a source is, if it is one.
async fn rows(source: &SourceConfig) -> Result<Option<RowsSpec>> {
    let database = match source.format {
        config::Format::Postgres => Database::Postgres,
        config::Format::Sqlite => Database::Sqlite,
        _ => return Ok(None),
    };
    let (Some(table), Some(keys)) = (&source.table, keys(source)) else {
        return Err(Error::invalid(format!("source `{}` names no table, or no key", source.name)));
    };
    let opened = SqlSource::connect(database, &source.url, table, &source.storage_options).await?;
    Ok(Some(RowsSpec {
        name: source.name.clone(),
        root: opened.root(),
        format: database.as_str().to_owned(),
        provider: opened.provider(),
        keys,
    }))
}

/// Adds a source without a table for a query.
pub(crate) async fn add(checkpoints: &Checkpoints, source: &SourceConfig) -> Result<()> {
    match rows(source).await? {
        Some(rows) => checkpoints.add_table_by_rows(&rows).await,
        None => checkpoints.add(spec(source)?).await,
    }
}

/// The table that a source is, if it is one.
fn table(source: &SourceConfig) -> Result<Option<Arc<dyn SourceTable>>> {
    let (url, options) = (&source.url, &source.storage_options);
    Ok(match source.format {
        config::Format::Delta => Some(Arc::new(DeltaSource::connect(url, options)?)),
        config::Format::Iceberg => {
            let catalog = source.catalog.parse(&source.section()).map_err(|error| error.at(url))?;
            Some(Arc::new(IcebergSource::connect(url, options, catalog)?))
        }
        _ => None,
    })
}

/// Where a source is, and what it has now.
pub(crate) async fn look(source: &SourceConfig) -> Result<(Lake, Listing)> {
    match table(source)? {
        Some(table) => Ok((table.lake().clone(), table.snapshot().await?.listing())),
        None => {
            let lake = Lake::connect(&source.url, &source.storage_options).await?;
            let listing = lake.list().await?;
            Ok((lake, listing))
        }
    }
}

pub(crate) fn output(config: &JobConfig) -> Result<Option<Output>> {
    let sink = &config.sink;
    let Some(url) = sink.url.as_ref().filter(|_| sink.kind != SinkKind::None) else { return Ok(None) };
    let level =
        |e: parquet::errors::ParquetError| Error::invalid("sink.compression has a level out of range").caused_by(e);
    let compression = match sink.compression {
        config::Compression::None => Codec::UNCOMPRESSED,
        config::Compression::Snappy => Codec::SNAPPY,
        config::Compression::Zstd(n) => Codec::ZSTD(ZstdLevel::try_new(i32::from(n)).map_err(level)?),
        config::Compression::Lz4 => Codec::LZ4_RAW,
        config::Compression::Gzip => Codec::GZIP(GzipLevel::default()),
        config::Compression::Brotli => Codec::BROTLI(BrotliLevel::default()),
    };
    let options = OutputOptions {
        format: match sink.kind {
            SinkKind::Csv => OutputFormat::Csv,
            SinkKind::Json => OutputFormat::Json,
            _ => OutputFormat::Parquet,
        },
        compression,
        max_row_group_size: sink.max_row_group_size.get(),
        target_file_size: sink.target_file_size.map(|size| size.0),
        partition_by: sink.partition_by.clone(),
    };
    let output = Output { sink: self::sink(sink.kind.as_str(), url, sink)?, options: Arc::default() };
    Ok(Some(output.with_options(options)))
}

/// The destination of `kind` at `url`, on a disk or on an object store, reached as `config` says.
pub(crate) fn sink(kind: &str, url: &str, config: &SinkConfig) -> Result<Arc<dyn OutputSink>> {
    let options = &config.storage_options;
    let schema_mode = match config.schema_mode {
        config::SchemaMode::Fail => lakemark::SchemaMode::Fail,
        config::SchemaMode::Merge => lakemark::SchemaMode::Merge,
    };
    match kind {
        lakemark_delta::KIND => {
            let table = DeltaTable::connect(url, options)?.with_schema_mode(schema_mode);
            return Ok(Arc::new(CommitDriver::new(table, DataFiles::connect(kind, url, options)?)));
        }
        lakemark_iceberg::KIND => {
            let catalog = config.catalog.parse("sink").map_err(|error| error.at(url))?;
            let table = IcebergTable::connect(url, options, catalog)?.with_schema_mode(schema_mode);
            return Ok(Arc::new(CommitDriver::new(table, lakemark_iceberg::data_files(url, options)?)));
        }
        _ => {}
    }
    if Root::parse(url)?.is_local() {
        return Ok(Arc::new(DirectorySink::open(kind, url)?));
    }
    Ok(Arc::new(BucketSink::connect(kind, url, options)?))
}

/// A lookup is read into memory on the driver, so that its size is known and it can be broadcast.
async fn register_lookup(ctx: &SessionContext, source: &SourceConfig) -> Result<()> {
    let table = read_lookup(spec(source)?).await?;
    ctx.register_table(datafusion::common::TableReference::bare(source.name.as_str()), table).map(drop).map_err(|e| {
        from_datafusion(e, ErrorKind::Invalid, &format!("the lookup `{}` cannot be registered", source.name))
    })
}
