//! What a decided commit asks of a destination, and how it ended.

use std::fmt::Debug;

use async_trait::async_trait;

use crate::error::Result;
use crate::identity::StoreId;
use crate::store::{OutputFile, TableState};

/// Who decided an intent, and may act on it as long as it is the holder.
#[async_trait]
pub trait Holder: Debug + Send + Sync {
    /// Reads whether its epoch is still the newest: before each act that cannot be taken back.
    ///
    /// # Errors
    /// [`Fenced`](crate::ErrorKind::Fenced), never to be retried.
    async fn check(&self) -> Result<()>;
}

/// A decided commit: exactly this set, under exactly this number (I6).
#[derive(Debug, Clone, Copy)]
pub struct Intent<'a> {
    /// The store that decided it.
    pub store: StoreId,
    /// Its number.
    pub n: u64,
    /// The digest of its set, which its marker carries.
    pub digest: &'a str,
    /// The table when it was decided; `None` for a directory, and for a table that was not there.
    pub base: Option<&'a TableState>,
    /// Whether the store never had something in the table, and nobody said that it is the one: then no other store may have,
    /// also at the moment of the commit.
    pub unbound: bool,
    /// The files it makes visible.
    pub files: &'a [OutputFile],
    /// The visible files it takes out.
    pub leaving: &'a [OutputFile],
    /// Whether somebody else may have begun to bring it about.
    pub recovered: bool,
    /// Who brings it about.
    pub holder: &'a dyn Holder,
}

/// How an intent ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// It is visible.
    Done {
        /// The names of its files that are neither staged nor visible. A table never has some.
        missing: Vec<String>,
        /// The table with it.
        table: Option<TableState>,
    },
    /// It never will be: a barrier is in the table.
    Void {
        /// The names of its files that are gone or of another size.
        unfit: Vec<String>,
        /// The table with the barrier.
        table: Option<TableState>,
    },
}

#[cfg(feature = "testing")]
mod bare {
    use super::{Holder, Intent, Result, async_trait};
    use crate::identity::StoreId;
    use crate::store::OutputFile;

    /// A holder that nobody fences.
    #[derive(Debug)]
    struct Unfenced;

    #[async_trait]
    impl Holder for Unfenced {
        async fn check(&self) -> Result<()> {
            Ok(())
        }
    }

    impl<'a> Intent<'a> {
        /// An intent of `files` that no chain knows, to try a destination alone.
        pub fn bare(files: &'a [OutputFile]) -> Self {
            let (store, holder) = (StoreId::random(), &Unfenced);
            Self { store, n: 1, digest: "", base: None, unbound: false, files, leaving: &[], recovered: false, holder }
        }
    }
}
