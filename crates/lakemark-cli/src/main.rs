//! The `lakemark` command.

mod args;
mod config;
mod files;
mod job;
mod log;
mod operate;
mod progress;
mod render;
mod run;
mod status;
mod verify;

use std::io::IsTerminal;
use std::process::ExitCode;

use args::{Cli, Color, OutputArgs, Verb};
use lakemark_datafusion::{ErrorReport, Outcome};
use tracing_subscriber::EnvFilter;

/// How a verb ended, for the process's exit code.
type Ended = Result<Outcome, Failure>;

/// An error and the exit code that goes with where it arose.
struct Failure {
    error: lakemark::Error,
    code: u8,
}

impl Failure {
    /// An error in what the user gave: exit code 2.
    fn usage(error: lakemark::Error) -> Self {
        Self { error, code: 2 }
    }
}

impl From<lakemark::Error> for Failure {
    fn from(error: lakemark::Error) -> Self {
        let code = Outcome::of(error.kind()).exit_code();
        Self { error, code }
    }
}

fn main() -> ExitCode {
    let cli = Cli::read(std::env::args_os()).unwrap_or_else(|error| error.exit());
    start_tracing(&cli.output);
    // More threads than tasks: functions that do not yield must not keep signals and the clock from being seen.
    let threads = std::thread::available_parallelism().map_or(2, usize::from) + 4;
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: the runtime cannot be started: {error}");
            return ExitCode::from(1);
        }
    };
    let ended = runtime.block_on(dispatch(&cli));
    // Tasks that were dropped by a second signal may still be blocked in a read; nothing waits for them.
    runtime.shutdown_background();
    match ended {
        // What was done is done and recorded; who asked did not get the answer.
        Ok(_) if render::lost() => ExitCode::from(1),
        Ok(outcome) => ExitCode::from(outcome.exit_code()),
        Err(Failure { error, code }) => {
            if cli.output.json && !matches!(cli.verb, Verb::Run(_)) {
                render::json(&serde_json::json!({ "error": ErrorReport::from(&error) }));
            }
            render::error(&error, &cli.output);
            ExitCode::from(code)
        }
    }
}

async fn dispatch(cli: &Cli) -> Ended {
    match &cli.verb {
        Verb::Run(args) => run::run(args, &cli.output).await,
        Verb::Plan(args) => run::plan(args, &cli.output).await,
        Verb::Status(args) => status::status(args, &cli.output).await,
        Verb::Log(args) => log::log(args, &cli.output).await,
        Verb::Files(args) => files::files(args, &cli.output).await,
        Verb::Verify(args) => verify::verify(args, &cli.output).await,
        Verb::Forget(args) => operate::forget(args, &cli.output).await,
        Verb::Bless(args) => operate::bless(args, &cli.output).await,
        Verb::Gc(args) => operate::gc(args, &cli.output).await,
        Verb::Repair(args) => operate::repair(args, &cli.output).await,
        Verb::Rebase(args) => operate::rebase(args, &cli.output).await,
        Verb::Accept(args) => operate::decide(operate::Answer::Accept, args, &cli.output).await,
        Verb::Reopen(args) => operate::decide(operate::Answer::Reopen, args, &cli.output).await,
    }
}

fn start_tracing(output: &OutputArgs) {
    let level = match (output.quiet, output.verbose) {
        (true, _) => "error",
        (false, 0) => "warn",
        (false, 1) => "warn,lakemark=info,lakemark_datafusion=info",
        (false, 2) => "info,lakemark=debug,lakemark_datafusion=debug",
        (false, _) => "debug,lakemark=trace,lakemark_datafusion=trace",
    };
    let filter = EnvFilter::try_from_env("LAKEMARK_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colour(output, &std::io::stderr()))
        .with_target(output.verbose > 1)
        .init();
}

/// Whether `stream` gets colour.
fn colour(output: &OutputArgs, stream: &impl IsTerminal) -> bool {
    match output.color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => stream.is_terminal() && std::env::var_os("NO_COLOR").is_none(),
    }
}
