//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgAction, Args, CommandFactory, Parser, Subcommand, ValueEnum};

/// Verbs of the contract that this version does not have.
const LATER: [&str; 2] = ["report", "cluster"];

const EXAMPLES: &str = "\
Examples:
  lakemark plan job.toml                     what a run would do, and why
  lakemark run job.toml                      do what is not done, and commit it
  lakemark run job.toml --max-tasks 10 --set source.docs.on_change=ignore
  lakemark run --source docs=/lake/docs --sql 'SELECT upper(text) AS t FROM docs' \\
               --sink parquet:/data/out
  lakemark status job.toml docs/a.parquet    what is known about a file
  lakemark log --store /data/out.lakemark/store
  lakemark forget job.toml docs/a.parquet    do it again with the next run
  lakemark gc job.toml --dry-run             what killed runs left

Exit codes:
  0 done or nothing to do, 1 stopped by an error, 2 usage, 3 partial, 4 busy or fenced,
  5 refused, 6 cannot decide";

/// Checkpoints for data-lake pipelines: a re-run does only what is not done, and the output is exact.
#[derive(Debug, Parser)]
#[command(name = "lakemark", version, after_help = EXAMPLES, subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

impl Cli {
    /// Reads the command line of `args`, whose first is the program.
    pub(crate) fn read(args: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Result<Self, clap::Error> {
        Self::try_parse_from(args).map_err(|error| match error.get(ContextKind::InvalidSubcommand) {
            Some(ContextValue::String(verb)) if LATER.contains(&verb.as_str()) => {
                let what = format!("`{verb}` is not in this version");
                clap::Error::raw(ErrorKind::InvalidSubcommand, what).format(&mut Self::command())
            }
            _ => error,
        })
    }
}

/// How the command speaks.
#[derive(Debug, Args)]
pub(crate) struct OutputArgs {
    /// Say more on stderr; twice for even more
    #[arg(short, long, global = true, action = ArgAction::Count, conflicts_with = "quiet")]
    pub(crate) verbose: u8,
    /// Say only what went wrong
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Colour and progress bars on stderr
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN")]
    pub(crate) color: Color,
    /// Write the result to stdout as one JSON document
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// When to use colour. `Auto`: on a terminal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    #[default]
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Plan, run what is not done, seal it, commit it
    Run(RunArgs),
    /// Say what a run would do and why, without reading rows or changing anything
    Plan(RunArgs),
    /// Show the store: epoch, holder, what is done, what is not committed; or what is known about paths
    Status(StatusArgs),
    /// List epochs, seals, commits and operator actions, newest first
    Log(JobArgs),
    /// List the known files, one row each
    Files(FilesArgs),
    /// Check every object of the store, and the store against its destination, without changing anything
    Verify(JobArgs),
    /// Make finished work undone, by path, pattern or epoch
    Forget(ForgetArgs),
    /// Record the present files of the sources as done, without running
    Bless(BlessArgs),
    /// Remove what is proven dead: what killed and superseded runs left
    Gc(GcArgs),
    /// Go on where the job says now, after a source or the destination was moved
    Rebase(RebaseArgs),
    /// Move damaged objects away, make again what can be, and undo the work whose output is lost
    Repair(RepairArgs),
    /// Say that commit N is in the table; or, with --table, go on with the table as it is
    Accept(DecideArgs),
    /// Say that commit N is not in the table: its work is done again; or, with --table, everything is
    Reopen(DecideArgs),
}

/// A job: a file, flags over it, or flags alone.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct JobArgs {
    /// The job file (TOML); or give the job as flags, or only --store to look at a store
    #[arg(value_name = "JOB")]
    pub(crate) job: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) flags: JobFlags,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Also compare the footers of finished files with the recorded digests
    #[arg(long)]
    pub(crate) verify: bool,
    /// Take the schema from the files again
    #[arg(long)]
    pub(crate) refresh_schema: bool,
    /// Take the store from a live holder, which is fenced
    #[arg(long)]
    pub(crate) takeover: bool,
    /// Stop at once if the store has a holder, instead of waiting one lease
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) job: JobArgs,
}

/// How a verb that changes the store goes about it.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct ChangeArgs {
    /// Only say what would be done
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Take the store from a live holder, which is fenced
    #[arg(long)]
    pub(crate) takeover: bool,
    /// Stop at once if the store has a holder, instead of waiting one lease
    #[arg(long)]
    pub(crate) no_wait: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ForgetArgs {
    /// All files whose path matches, e.g. 'day=2026-11-*/**'; can be repeated
    #[arg(long, value_name = "PATTERN")]
    pub(crate) glob: Vec<String>,
    /// All files of which something was done in this epoch, as `lakemark log` shows it
    #[arg(long, value_name = "N")]
    pub(crate) epoch: Option<u64>,
    /// All files whose task failed; none are set aside in this version
    #[arg(long)]
    pub(crate) failed: bool,
    /// Also take their committed output out of the destination, so that nothing is there twice
    #[arg(long)]
    pub(crate) retract: bool,
    /// Go on also if that takes rows away whose source is gone
    #[arg(long)]
    pub(crate) lose_rows: bool,
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
    #[command(flatten)]
    pub(crate) what: StatusArgs,
}

#[derive(Debug, Args)]
pub(crate) struct BlessArgs {
    /// Only files whose path matches; can be repeated
    #[arg(long, value_name = "PATTERN")]
    pub(crate) glob: Vec<String>,
    /// Only files last written before this time, e.g. 2026-11-30 or 2026-11-30T06:00:00Z
    #[arg(long, value_name = "TIME")]
    pub(crate) before: Option<String>,
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
    #[command(flatten)]
    pub(crate) job: JobArgs,
}

#[derive(Debug, Args)]
pub(crate) struct GcArgs {
    /// Leave what was written less than this before the newest object, e.g. 1h
    #[arg(long, value_name = "D", default_value = "0s")]
    pub(crate) min_age: String,
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
    #[command(flatten)]
    pub(crate) job: JobArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RebaseArgs {
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
    #[command(flatten)]
    pub(crate) job: JobArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RepairArgs {
    /// Go on also if none of the committed files is in the destination
    #[arg(long)]
    pub(crate) all_lost: bool,
    /// Go on also if that takes rows away whose source is gone
    #[arg(long)]
    pub(crate) lose_rows: bool,
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
    #[command(flatten)]
    pub(crate) job: JobArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DecideArgs {
    /// Decide about the table, not about a commit
    #[arg(long)]
    pub(crate) table: bool,
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
    /// The number of the commit, and the job file
    #[arg(value_name = "N] [JOB")]
    targets: Vec<PathBuf>,
    #[command(flatten)]
    flags: JobFlags,
}

impl DecideArgs {
    /// The job, and the commit; `None`: the table.
    pub(crate) fn split(&self) -> lakemark::Result<(JobArgs, Option<u64>)> {
        let number = |path: &&PathBuf| path.to_str().is_some_and(|text| text.parse::<u64>().is_ok());
        let (numbers, jobs): (Vec<_>, Vec<_>) = self.targets.iter().partition(|path| number(path));
        let n = numbers.first().and_then(|path| path.to_str()?.parse().ok());
        if numbers.len() > 1 || jobs.len() > 1 || n.is_some() == self.table {
            return Err(lakemark::Error::invalid("it is not clear what is to be decided")
                .safe("nothing was changed")
                .way("name one commit, as the message of the run or `lakemark status` shows it, and the job: N JOB")
                .way("or the table: --table JOB"));
        }
        Ok((JobArgs { job: jobs.first().map(|path| (*path).clone()), flags: self.flags.clone() }, n))
    }
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// The job file, if one ends in `.toml`; the others are paths of source files
    #[arg(value_name = "JOB] [PATH")]
    targets: Vec<PathBuf>,
    #[command(flatten)]
    flags: JobFlags,
}

impl StatusArgs {
    /// The job, and the paths to tell about.
    pub(crate) fn split(&self) -> (JobArgs, Vec<PathBuf>) {
        let mut paths = self.targets.clone();
        let job = paths.iter().position(|path| path.extension().is_some_and(|extension| extension == "toml"));
        let job = job.map(|index| paths.remove(index));
        (JobArgs { job, flags: self.flags.clone() }, paths)
    }
}

#[derive(Debug, Args)]
pub(crate) struct FilesArgs {
    /// Only files of which something is left
    #[arg(long)]
    pub(crate) pending: bool,
    /// Only files whose task failed; none are set aside in this version
    #[arg(long)]
    pub(crate) failed: bool,
    /// Only paths that match, e.g. 'day=*/x?.parquet'
    #[arg(long, value_name = "PATTERN")]
    pub(crate) glob: Option<String>,
    /// How to write the rows; --json is one document
    #[arg(long = "as", value_name = "FORM", value_enum, default_value_t)]
    pub(crate) form: Form,
    /// Where to write them [default: stdout]
    #[arg(short, long, value_name = "FILE", required_if_eq("form", "parquet"))]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) job: JobArgs,
}

/// A way to write rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// Columns that line up
    #[default]
    Table,
    Csv,
    Parquet,
}

/// The settings of a job as flags, as they were written; [`load`](crate::config::load) judges them.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Job (wins over the job file)")]
pub(crate) struct JobFlags {
    /// The store [default: beside the sink, in <SINK>.lakemark/store]
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// A source: its table name in SQL, and a directory, glob or file; can be repeated
    #[arg(long, value_name = "NAME=URL")]
    pub(crate) source: Vec<String>,
    /// The format of the one source
    #[arg(long, value_name = "F")]
    pub(crate) format: Option<String>,
    /// What finished work of the one source is known by: files, rows
    #[arg(long, value_name = "M")]
    pub(crate) mode: Option<String>,
    /// The key columns of the one source, in rows mode
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub(crate) on: Option<Vec<String>>,
    /// For replaced files of the one source: reprocess, replace, ignore, fail
    #[arg(long, value_name = "P")]
    pub(crate) on_change: Option<String>,
    /// For files of the one source whose token alone changed: fail, accept, reprocess
    #[arg(long, value_name = "P")]
    pub(crate) on_moved: Option<String>,
    /// For files of the one source that are gone: keep, retract
    #[arg(long, value_name = "P")]
    pub(crate) on_delete: Option<String>,
    /// The query [default: everything of the one tracked source]
    #[arg(long, value_name = "Q")]
    pub(crate) sql: Option<String>,
    /// A command to pipe rows through, after the query; its words are split at spaces
    #[arg(long, value_name = "CMD")]
    pub(crate) map: Option<String>,
    /// Where output goes, e.g. parquet:/lake/out; or none
    #[arg(long, value_name = "KIND:URL")]
    pub(crate) sink: Option<String>,
    /// The columns that name the folders of the sink
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub(crate) partition_by: Option<Vec<String>>,
    /// Tasks at once [default: the number of cores]
    #[arg(long, value_name = "N")]
    pub(crate) concurrency: Option<String>,
    /// How much a task reads, e.g. 128MiB
    #[arg(long, value_name = "B")]
    pub(crate) task_bytes: Option<String>,
    /// Split inside row groups after that many rows, for very expensive rows
    #[arg(long, value_name = "N")]
    pub(crate) task_rows: Option<String>,
    /// Stop cleanly after that many tasks
    #[arg(long, value_name = "N")]
    pub(crate) max_tasks: Option<String>,
    /// Retries of a task whose store did not answer or whose file changed
    #[arg(long, value_name = "N")]
    pub(crate) retries: Option<String>,
    /// For tasks that fail for good: fail, set-aside
    #[arg(long, value_name = "P")]
    pub(crate) on_error: Option<String>,
    /// How often a table sink commits, e.g. 15m
    #[arg(long, value_name = "D")]
    pub(crate) commit_every: Option<String>,
    /// Any key of the job file, e.g. run.grace=1m or source.docs.on_change=fail; can be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// A Ballista scheduler (not in this version)
    #[arg(long, value_name = "URL")]
    pub(crate) cluster: Option<String>,
}
