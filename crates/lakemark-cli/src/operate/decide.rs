//! `lakemark accept` and `lakemark reopen`: answers where a table does not tell what became of a commit, or is another one.

use lakemark::store::TableState;
use lakemark::{BeginOptions, Decided, Error, Lease, Sink, StoreId, View};
use lakemark_datafusion::{Checkpoints, Options, Outcome};
use serde::Serialize;

use super::{act, confirmed, count, sink_of, tell, wait};
use crate::args::{DecideArgs, OutputArgs};
use crate::{Ended, Failure, config, job};

/// Which answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is there.
    Accept,
    /// It is not, and its work is done again.
    Reopen,
}

impl Answer {
    fn verb(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Reopen => "reopen",
        }
    }
}

#[derive(Serialize)]
struct Answered {
    /// The commit that is decided, or `null`: the table is.
    n: Option<u64>,
    checkpoints: u64,
    files: u64,
    rows: u64,
    table: Option<TableState>,
}

pub(crate) async fn decide(answer: Answer, args: &DecideArgs, output: &OutputArgs) -> Ended {
    let (job, n) = args.split().map_err(Failure::usage)?;
    let config = config::load(&job).map_err(Failure::usage)?;
    let store = job::store(&config)?;
    let view = store.read().await?;
    let sink = match &view.head {
        Some(head) => sink_of(&config, &head.manifest)?,
        None => job::output(&config)?.map(|output| output.sink),
    };
    let Some(sink) = sink else {
        return Err(Error::invalid("the store has no destination").safe("nothing was changed").into());
    };
    // Nobody has the id of a store that is not there yet.
    let state = sink.table(view.store_id().unwrap_or_else(StoreId::random)).await?;
    if !confirmed(&args.change, output, &shown(answer, n, &view, state.as_ref()))? {
        let nothing = Answered { n, checkpoints: 0, files: 0, rows: 0, table: state };
        tell(answer.verb(), &store, output, false, &nothing);
        return Ok(Outcome::Nothing);
    }
    let lease = Lease { beat: config.run.beat, lease: config.run.lease };
    let run = match (&view.head, n, answer) {
        (Some(_), ..) => store.operate(wait(&args.change), lease).await?,
        // A new store, for a table that is not empty.
        (None, None, Answer::Accept) => {
            config.check().map_err(Failure::usage)?;
            let checkpoints = Checkpoints::new(store.clone(), Options::default());
            for source in config.tracked() {
                job::add(&checkpoints, source).await?;
            }
            let (sources, sink) = (checkpoints.settings(), Some(sink.binding()));
            store.begin(BeginOptions { sources, sink, wait: wait(&args.change), lease }).await?
        }
        (None, ..) => return Err(Error::invalid("there is no store here").safe("nothing was changed").into()),
    };
    let sink: &dyn Sink = &*sink;
    let decided = act(run, async |run| match (n, answer) {
        (Some(n), Answer::Accept) => run.accept_commit(n, sink).await,
        (Some(n), Answer::Reopen) => run.reopen_commit(n, sink).await,
        (None, Answer::Accept) => run.accept_table(sink).await,
        (None, Answer::Reopen) => run.reopen_table(sink).await,
    })
    .await?;
    let Decided { checkpoints, files, rows, table } = decided;
    if !output.quiet {
        eprintln!("{}", if answer == Answer::Accept { "accepted" } else { "the next run does it again" });
    }
    tell(answer.verb(), &store, output, true, &Answered { n, checkpoints, files, rows, table });
    Ok(Outcome::Done)
}

fn shown(answer: Answer, n: Option<u64>, view: &View, state: Option<&TableState>) -> Vec<String> {
    let open = view.head.as_ref().and_then(|head| head.manifest.commits.open.as_ref());
    let of = open
        .filter(|open| Some(open.n) == n)
        .map_or(String::new(), |open| format!(" ({}, {})", count(open.files, "file"), count(open.rows, "row")));
    let table = state.map_or("no table is there".to_owned(), |table| {
        format!("the table as it is now: version {} of {}", table.version, table.id)
    });
    let committed = view.expected().map_or(0, |expected| expected.committed.len() as u64);
    match (answer, n) {
        (Answer::Accept, Some(n)) => vec![format!("records that commit {n}{of} is in the table; nothing is committed")],
        (Answer::Reopen, Some(n)) => vec![
            format!("records that commit {n}{of} is not in the table, behind a barrier in it; nothing is deleted"),
            "its work is done again: what of it is in the table after all, is there twice then".to_owned(),
        ],
        (Answer::Accept, None) => vec![
            format!("goes on with {table}"),
            format!("what was committed ({}) counts as being in it", count(committed, "file")),
        ],
        (Answer::Reopen, None) => vec![
            format!("goes on with {table}"),
            format!(
                "everything is done again ({} were committed): what of it is in the table, is there twice then",
                count(committed, "file")
            ),
        ],
    }
}
