//! Destinations: where committed output becomes visible, and how it waits before.

mod bucket;
mod contents;
#[cfg(feature = "testing")]
mod contract;
mod directory;
mod encoder;
mod hive;
mod intent;
mod leftover;
mod output;
mod staged;
mod table;
mod task_writer;

use std::fmt::Debug;

use async_trait::async_trait;

use crate::error::{Error, ErrorKind, Result};
use crate::identity::StoreId;
use crate::store::{Binding, Expected, OutputFile, TableState};

pub use bucket::BucketSink;
#[cfg(feature = "testing")]
pub use contract::{NewSink, SinkContract, check as check_sink_contract};
pub use directory::DirectorySink;
pub use encoder::OutputFormat;
pub use hive::{NULL_PARTITION, decode_partition_value, encode_partition_value, partition_folder};
pub use intent::{Holder, Intent, Settled};
pub use leftover::Leftover;
pub use output::{Fault, OutputSink, StagedOutput};
pub use staged::StagedFile;
pub use table::*;
pub use task_writer::{OutputOptions, TaskWriter};

/// What became of a staged file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fitness {
    /// It is there with its size, staged or already visible.
    Fit,
    /// It is gone.
    Missing,
    /// It has another size.
    Unfit,
}

/// A destination whose commits are idempotent.
#[async_trait]
pub trait Sink: Debug + Send + Sync {
    /// Kind and place, as the store records them.
    fn binding(&self) -> Binding;

    /// Checks, without changing anything, that the destination belongs to this store and holds exactly what was
    /// committed: `expected`, or `None` for a new store.
    ///
    /// # Errors
    /// [`Refused`](crate::ErrorKind::Refused) with the ways on.
    async fn check(&self, expected: Option<&Expected>) -> Result<()>;

    /// Records in the destination that it belongs to `store`. Done again, it is a no-op.
    async fn bind(&self, store: StoreId) -> Result<()>;

    /// The store that the destination says it belongs to, `store` if it is one of several; `None`: it does not say.
    ///
    /// # Errors
    /// [`Corrupt`](crate::ErrorKind::Corrupt) when its record of that is damaged.
    async fn bound_to(&self, store: StoreId) -> Result<Option<StoreId>>;

    /// Whether a committed file stays as it is until lakemark takes it out. A table's own tools may put its rows elsewhere.
    fn keeps_files(&self) -> bool {
        true
    }

    /// Whether a commit can take files out with those that it brings in.
    fn replaces_files(&self) -> bool {
        self.keeps_files()
    }

    /// Makes a lost or damaged record of that anew, for `store`. A damaged one is kept beside the destination; one that is
    /// sound is left alone.
    async fn bind_again(&self, store: StoreId) -> Result<()>;

    /// The size of an output file where readers see it; `None` when it is not there.
    async fn visible_size(&self, file: &OutputFile) -> Result<Option<u64>>;

    /// What became of one output file of a seal.
    async fn fitness(&self, file: &OutputFile) -> Result<Fitness>;

    /// Output files that wait or were set aside, and what a crash left beside them: whatever is not visible, of any store.
    /// Object stores do not list uploads: those that wait there are not among them.
    async fn leftovers(&self) -> Result<Vec<Leftover>>;

    /// Removes exactly `leftovers`, which are proven garbage. One that is gone is success.
    async fn remove(&self, leftovers: &[Leftover]) -> Result<()>;

    /// Takes visible `files` out of the destination; they are kept beside it as leftovers. One that is not there is
    /// success: done again, it ends in the same state.
    async fn take_out(&self, files: &[OutputFile]) -> Result<()>;

    /// The table as it is now, as `store` sees it. `None`: the destination is none, or there is none yet.
    async fn table(&self, _store: StoreId) -> Result<Option<TableState>> {
        Ok(None)
    }

    /// The table that a commit of the store of `expected` is decided on: as [`table`](Self::table), after it was
    /// [checked](Self::check) that this one goes on from where the store left it, and that the files that wait fit it, and
    /// that those that are to leave it are in it as they were written.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    async fn base(
        &self,
        _expected: &Expected,
        _waiting: &[OutputFile],
        _leaving: &[OutputFile],
    ) -> Result<Option<TableState>> {
        Ok(None)
    }

    /// Makes sure that `intent` is not in the table and never will be, by a barrier. Done again, it ends in the same state.
    ///
    /// # Errors
    /// [`Refused`](crate::ErrorKind::Refused) when the table says that it is there;
    /// [`Unsupported`](crate::ErrorKind::Unsupported) for a directory, whose intents are never given up.
    async fn give_up(&self, _intent: &Intent<'_>) -> Result<Option<TableState>> {
        Err(Error::new(ErrorKind::Unsupported, "a commit into a directory is never given up")
            .at(self.binding().root)
            .safe("nothing was changed")
            .way("run again: what is there of it tells what became of it"))
    }

    /// Brings `intent` about. Done again, also after a crash half-way or by a stalled predecessor at the same time, it ends
    /// in the same state.
    ///
    /// # Errors
    /// [`Fenced`](crate::ErrorKind::Fenced) when another epoch decides by now; [`CannotDecide`](crate::ErrorKind::CannotDecide)
    /// when what is there tells neither that the intent came about nor that it did not.
    async fn commit(&self, intent: &Intent<'_>) -> Result<Settled>;
}

/// Refuses what would take output out of a destination that does not keep its files.
pub(crate) fn check_can_leave(sink: &dyn Sink) -> Result<()> {
    if sink.keeps_files() { Ok(()) } else { Err(cannot_leave(sink)) }
}

pub(crate) fn cannot_leave(sink: &dyn Sink) -> Error {
    Error::new(ErrorKind::Unsupported, "output cannot be taken out of this table in this version")
        .at(sink.binding().root)
        .safe("nothing was changed")
        .way("delete the rows with the table's own tools; the store keeps them as done")
        .way("keep the old output: run with --on-change reprocess and --on-delete keep")
}
