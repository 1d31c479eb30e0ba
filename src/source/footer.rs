//! The footer of one version of one file.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use xxhash_rust::xxh3::xxh3_128;

use super::evidence::FileRead;
use super::lake::Lake;
use super::many_groups::decode_metadata;
use super::pinned::{Pin, PinnedReader};
use crate::blocking::off_thread;
use crate::error::Result;
use crate::identity::{Evidence, FileVersion};

/// Bytes of the end of a file that are read at first.
const TAIL: u64 = 64 * 1024;
/// The footer's length (4 bytes, little-endian) and the magic.
const SUFFIX: u64 = 8;
/// The magic at the start of a file.
const MAGIC: u64 = 4;
/// What a remembered footer costs beside its metadata: key, digest, map entry.
const ENTRY: usize = 512;

/// The footer of one version of one file.
#[derive(Clone)]
pub struct Footer {
    /// The decoded footer, without page indexes.
    pub metadata: Arc<ParquetMetaData>,
    /// Rows in each row group.
    pub group_rows: Vec<u64>,
    /// XXH3-128 of the footer's Thrift bytes, as 32 hex digits.
    pub digest: String,
    memory: usize,
}

/// What became of reading a footer.
pub type FooterRead = FileRead<Arc<Footer>>;

impl Footer {
    /// The evidence to record when the file is sealed.
    pub fn evidence(&self) -> Evidence {
        Evidence::new(&self.group_rows, self.digest.clone())
    }

    pub(super) fn memory_size(&self) -> usize {
        self.memory
    }
}

impl fmt::Debug for Footer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Footer")
            .field("group_rows", &Evidence::new(&self.group_rows, String::new()).group_runs)
            .field("digest", &self.digest)
            .finish()
    }
}

impl Lake {
    /// The footer of `file`: remembered, or read with one request for the last 64 KiB and a second one if it is larger.
    ///
    /// # Errors
    /// [`Unavailable`](crate::error::ErrorKind::Unavailable) if it could not be read. That says nothing about the file.
    pub async fn footer(&self, file: &FileVersion) -> Result<FooterRead> {
        match self.footers().get(file) {
            Some(footer) => Ok(FooterRead::Read(footer)),
            None => self.reader(file).footer().await,
        }
    }

    /// Drops the remembered footer of `file`.
    pub fn forget_footer(&self, file: &FileVersion) {
        self.footers().forget(file);
    }
}

impl PinnedReader {
    /// Reads the footer and remembers it.
    pub(super) async fn footer(&mut self) -> Result<FooterRead> {
        let size = self.file().size;
        let start = size.saturating_sub(TAIL);
        let mut tail = match self.one(start..size).await? {
            Pin::Read(bytes) => bytes,
            Pin::Changed => return Ok(FooterRead::Changed),
            Pin::Vanished => return Ok(FooterRead::Vanished),
        };
        let length = match thrift_length(&tail, size) {
            Ok(length) => length,
            Err(why) => return Ok(FooterRead::Unusable(why)),
        };
        if length + SUFFIX > tail.len() as u64 {
            match self.one(size - SUFFIX - length..start).await? {
                Pin::Read(head) => tail = [head, tail].concat().into(),
                Pin::Changed => return Ok(FooterRead::Changed),
                Pin::Vanished => return Ok(FooterRead::Vanished),
            }
        }
        let end = tail.len() - SUFFIX as usize;
        let thrift = tail.slice(end - length as usize..end);
        // A decoder that panics on hostile bytes must not take the driver down.
        let decoded = off_thread(move || decode(&thrift, size)).await;
        match decoded.unwrap_or_else(|_| Err("its footer cannot be decoded: the decoder stopped".to_owned())) {
            Ok(footer) => {
                let footer = Arc::new(footer);
                self.lake().footers().put(self.file(), Arc::clone(&footer));
                Ok(FooterRead::Read(footer))
            }
            Err(why) => Ok(FooterRead::Unusable(why)),
        }
    }
}

/// The length of the Thrift bytes, from the last bytes of a file of `size` bytes.
fn thrift_length(tail: &Bytes, size: u64) -> Result<u64, String> {
    if size == 0 {
        return Err("it is empty".to_owned());
    }
    let Some((_, [a, b, c, d, magic @ ..])) = tail.split_last_chunk::<{ SUFFIX as usize }>() else {
        return Err(format!("it has {size} bytes, too few for a Parquet file"));
    };
    match magic {
        b"PAR1" => {}
        b"PARE" => return Err("its footer is encrypted".to_owned()),
        _ => {
            return Err(
                "it does not end in a Parquet footer: still being written, truncated, or not Parquet".to_owned()
            );
        }
    }
    let length = u64::from(u32::from_le_bytes([*a, *b, *c, *d]));
    if length + SUFFIX + MAGIC > size {
        return Err(format!("its footer would have {length} bytes, but the file has {size}"));
    }
    Ok(length)
}

/// Decodes a footer and checks that it can be true of a file of `size` bytes.
pub(super) fn decode(thrift: &Bytes, size: u64) -> Result<Footer, String> {
    let metadata = decode_metadata(thrift).map_err(|e| format!("its footer cannot be decoded: {e}"))?;
    let data_end = size - SUFFIX - thrift.len() as u64;
    let mut group_rows = Vec::with_capacity(metadata.num_row_groups());
    for (i, group) in metadata.row_groups().iter().enumerate() {
        let rows = group.num_rows();
        group_rows.push(u64::try_from(rows).map_err(|_| format!("row group {i} claims {rows} rows"))?);
        if !group.columns().iter().all(|column| fits(column, data_end)) {
            return Err(format!("row group {i} claims bytes that are not in the file"));
        }
    }
    let sum =
        group_rows.iter().try_fold(0u64, |sum, &rows| sum.checked_add(rows)).and_then(|sum| i64::try_from(sum).ok());
    let claimed = metadata.file_metadata().num_rows();
    if sum != Some(claimed) {
        return Err(format!(
            "its footer contradicts itself: {claimed} rows in the file are not the rows of its row groups"
        ));
    }
    let memory = metadata.memory_size() + group_rows.len() * size_of::<u64>() + ENTRY;
    Ok(Footer { metadata: Arc::new(metadata), group_rows, digest: format!("{:032x}", xxh3_128(thrift)), memory })
}

/// Decodes a footer as of a file that is as large as it claims.
#[cfg(feature = "testing")]
pub(crate) fn decode_alone(thrift: &Bytes) -> Result<Footer, String> {
    decode(thrift, u64::MAX)
}

/// Whether the bytes of a column chunk and of its page indexes lie before the footer. Chunks in other files are not ours
/// to judge.
fn fits(column: &ColumnChunkMetaData, data_end: u64) -> bool {
    let inside = |start: i64, length: i64| {
        start >= 0 && length >= 0 && start.checked_add(length).is_some_and(|end| end as u64 <= data_end)
    };
    let index = |start: Option<i64>, length: Option<i32>| {
        start.zip(length).is_none_or(|(start, length)| inside(start, length.into()))
    };
    let start = column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset());
    column.file_path().is_some()
        || (inside(start, column.compressed_size())
            && index(column.column_index_offset(), column.column_index_length())
            && index(column.offset_index_offset(), column.offset_index_length()))
}
