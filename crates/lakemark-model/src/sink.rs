//! Where committed output is seen: a table with a log, or a directory.

use crate::bounds::SinkKind;
use crate::objects::{Entry, OutputFile};

/// A sink and what is in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Sink {
    /// The log of a table. An entry is appended on exactly the base that it was made for.
    Table(Vec<Entry>),
    /// The files under a directory.
    Directory(Vec<OutputFile>),
}

impl Sink {
    /// An empty one.
    pub fn new(kind: SinkKind) -> Self {
        match kind {
            SinkKind::Table => Self::Table(Vec::new()),
            SinkKind::Directory => Self::Directory(Vec::new()),
        }
    }

    /// Appends `entry` if the table is still at `base`.
    pub fn append(&mut self, base: u8, entry: Entry) -> bool {
        let Self::Table(log) = self else { return false };
        let free = log.len() == usize::from(base);
        if free {
            log.push(entry);
        }
        free
    }

    /// The files that a reader sees.
    pub fn visible(&self) -> impl Iterator<Item = &OutputFile> {
        let (log, files): (&[Entry], &[OutputFile]) = match self {
            Self::Table(log) => (log, &[]),
            Self::Directory(files) => (&[], files),
        };
        log.iter().filter_map(|entry| entry.files.as_ref()).flatten().chain(files)
    }
}
