//! What a file says of itself, beside path, size and token.

use std::fmt;

use futures::{Stream, TryStreamExt, stream};
use xxhash_rust::xxh3::Xxh3;

use super::lake::Lake;
use super::pinned::{Pin, PinnedReader};
use crate::error::Result;
use crate::identity::{Evidence, FileVersion};

/// Bytes of one read of a file that is read from end to end.
const CHUNK: u64 = 4 << 20;

/// What became of reading something of one version of a file. Only a proven fault of the format is `Unusable`; a failed
/// read is an error (R56).
#[derive(Debug, Clone)]
#[must_use]
pub enum FileRead<T> {
    /// It was read from the planned version.
    Read(T),
    /// The planned version was read, and cannot be used: why. Never sealed (R33, R34).
    Unusable(String),
    /// Another version is there.
    Changed,
    /// No file is there.
    Vanished,
}

impl<T> FileRead<T> {
    /// With what was read made into something else.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> FileRead<U> {
        match self {
            Self::Read(read) => FileRead::Read(f(read)),
            Self::Unusable(why) => FileRead::Unusable(why),
            Self::Changed => FileRead::Changed,
            Self::Vanished => FileRead::Vanished,
        }
    }
}

/// The digest of all bytes of a file, as they pass.
#[derive(Clone, Default)]
pub struct ContentDigest {
    hash: Xxh3,
    bytes: u64,
}

impl ContentDigest {
    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
    }

    /// How many bytes passed.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The evidence of a file of these bytes.
    pub fn evidence(&self) -> Evidence {
        Evidence::new(&[], format!("{:032x}", self.hash.digest128()))
    }
}

impl fmt::Debug for ContentDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContentDigest").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Lake {
    /// The evidence of `file`: from its footer, or of all its bytes where files have none.
    ///
    /// # Errors
    /// [`Unavailable`](crate::error::ErrorKind::Unavailable) if it could not be read. That says nothing about the file.
    pub async fn evidence(&self, file: &FileVersion) -> Result<FileRead<Evidence>> {
        if !self.has_whole_files() {
            return Ok(self.footer(file).await?.map(|footer| footer.evidence()));
        }
        let mut reader = self.reader(file);
        let mut digest = ContentDigest::default();
        loop {
            match reader.one(next(digest.bytes(), file.size)).await? {
                Pin::Read(bytes) => digest.update(&bytes),
                Pin::Changed => return Ok(FileRead::Changed),
                Pin::Vanished => return Ok(FileRead::Vanished),
            }
            if digest.bytes() == file.size {
                return Ok(FileRead::Read(digest.evidence()));
            }
        }
    }
}

impl PinnedReader {
    /// All bytes of the file, from its start to its end, a few megabytes at a time.
    ///
    /// # Errors
    /// Each item as [`read`](Self::read).
    pub fn chunks(self) -> impl Stream<Item = Result<bytes::Bytes>> + Send + 'static {
        stream::try_unfold((self, 0), |(mut reader, at)| async move {
            let range = next(at, reader.file().size);
            if range.is_empty() && at > 0 {
                return Ok(None);
            }
            let end = range.end;
            let bytes = reader.read(&[range]).await?.pop().unwrap_or_default();
            // An empty file is looked at once too: it must be the planned one.
            Ok(Some((bytes, (reader, end.max(1)))))
        })
        .try_filter(|bytes| std::future::ready(!bytes.is_empty()))
    }
}

/// The next part of a file of `size` bytes, from byte `at`.
fn next(at: u64, size: u64) -> std::ops::Range<u64> {
    at.min(size)..at.saturating_add(CHUNK).min(size)
}
