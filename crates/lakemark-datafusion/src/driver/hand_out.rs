//! A run whose destination is the caller.

use std::sync::Arc;

use datafusion::dataframe::DataFrame;
use futures::FutureExt;
use lakemark::{Error, ErrorKind, Result};
use tokio::sync::{mpsc, oneshot};

use super::progress::StopSignal;
use super::run::drive;
use crate::checkpoints::Checkpoints;
use crate::handover::{Handover, TaskStream};
use crate::report::RunReport;
use crate::seal::TaskDone;

/// The caller of a run, as its driver sees it.
pub(super) struct Caller {
    pub(super) handover: Handover,
    /// Tasks that were offered.
    pub(super) handed: u64,
    acked: mpsc::UnboundedReceiver<TaskDone>,
    begun: Option<oneshot::Sender<()>>,
}

/// What the caller acked.
#[derive(Default)]
pub(super) struct Acks {
    pub(super) done: Vec<TaskDone>,
    /// Whether tasks were offered and not acked.
    pub(super) missing: bool,
}

impl Caller {
    /// The epoch is won.
    pub(super) fn begin(&mut self) {
        if let Some(begun) = self.begun.take() {
            // Who does not wait any more has dropped the stream, too.
            let _ = begun.send(());
        }
    }

    /// No more tasks come, because of `error` if there is one. Waits until all that were handed out are acked or dropped; not
    /// where no ack can count any more.
    pub(super) async fn end(self, error: Option<&Error>, fenced: bool) -> Acks {
        let Self { handover, handed, mut acked, .. } = self;
        if let Some(error) = error {
            handover.fail(error).await;
        }
        drop(handover);
        let mut done = Vec::new();
        if fenced {
            acked.close();
        }
        while let Some(one) = acked.recv().await {
            done.push(one);
        }
        let missing = (done.len() as u64) < handed;
        Acks { done, missing }
    }
}

/// Runs `query`, and hands its tasks out. Gives the stream of them when the epoch is won, or there is nothing to do.
pub(crate) async fn hand_out(checkpoints: &Checkpoints, query: DataFrame) -> Result<TaskStream> {
    let (handover, tasks, acked) = Handover::new();
    let (begun, begins) = oneshot::channel();
    let (stop, stopping) = StopSignal::new();
    let caller = Caller { handover, handed: 0, acked, begun: Some(begun) };
    let checkpoints = checkpoints.clone();
    let run = async move { drive(&checkpoints, query, None, Some(caller), Arc::new(()), stopping).await };
    let run = tokio::spawn(run).map(|ended| ended.unwrap_or_else(stopped));
    let stream = TaskStream::new(tasks, run.boxed(), stop);
    match begins.await {
        Ok(()) => Ok(stream),
        Err(_) => stream.ended().await,
    }
}

fn stopped(why: tokio::task::JoinError) -> (RunReport, Option<Error>) {
    let error = Error::new(ErrorKind::Indeterminate, "a run was interrupted")
        .caused_by(why)
        .safe("what was acked is kept")
        .way("run again: what is not sealed is given again");
    (RunReport::default(), Some(error))
}
