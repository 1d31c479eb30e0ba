//! The pages of a Parquet object, judged by their headers before one is decoded.
//!
//! Encodings that can say much in few bytes are judged further: a dictionary by its longest value, since each row can
//! repeat it; texts as differences (`DELTA_BYTE_ARRAY`) by the counts they begin with, which their decoder allocates for.

use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::Type;
use parquet::column::page::{Page, PageReader};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::file::serialized_reader::SerializedPageReader;

use super::{Allowance, BATCH, ROWS};
use crate::thrift::{Cursor, I32, STRUCT};

// Numbers of Parquet's Thrift definition.
const DATA_PAGE: i64 = 0;
const DICTIONARY_PAGE: i64 = 2;
const DATA_PAGE_V2: i64 = 3;
const PLAIN: i64 = 0;
const PLAIN_DICTIONARY: i64 = 2;
const RLE: i64 = 3;
const DELTA_BINARY_PACKED: i64 = 5;
const DELTA_BYTE_ARRAY: i64 = 7;
const RLE_DICTIONARY: i64 = 8;

/// A page header, as far as it matters here.
#[derive(Debug, Default)]
struct Header {
    kind: i64,
    /// Before compression.
    size: u64,
    compressed: u64,
    values: u64,
    encoding: i64,
    /// How levels are encoded, in a data page of the first version.
    levels: [i64; 2],
    /// Bytes of levels, in a data page of the second version.
    level_bytes: u64,
}

impl Header {
    /// Reads the header at `cursor`. Fields ascend, and there is one kind of page in it: a decoder sees the same.
    fn read(cursor: &mut Cursor<'_>) -> Option<Self> {
        let mut header = Self { levels: [RLE; 2], ..Self::default() };
        let (mut last, mut about) = (0, None);
        loop {
            let (kind, id) = cursor.field(last)?;
            if kind == 0 {
                break;
            }
            if id <= last {
                return None;
            }
            last = id;
            match (id, kind) {
                (1, I32) => header.kind = cursor.signed()?,
                (2, I32) => header.size = cursor.signed()?.try_into().ok()?,
                (3, I32) => header.compressed = cursor.signed()?.try_into().ok()?,
                (4, I32) => drop(cursor.signed()?),
                (5 | 7 | 8, STRUCT) if about.is_none() => {
                    about = Some(id);
                    header.about(cursor, id)?;
                }
                _ => return None,
            }
        }
        let page = match about? {
            5 => DATA_PAGE,
            7 => DICTIONARY_PAGE,
            _ => DATA_PAGE_V2,
        };
        (page == header.kind).then_some(header)
    }

    /// Reads the struct that is about one kind of page.
    fn about(&mut self, cursor: &mut Cursor<'_>, page: i16) -> Option<()> {
        let mut last = 0;
        loop {
            let (kind, id) = cursor.field(last)?;
            if kind == 0 {
                return Some(());
            }
            if id <= last {
                return None;
            }
            last = id;
            match (page, id, kind) {
                (_, 1, I32) => self.values = cursor.signed()?.try_into().ok()?,
                (5 | 7, 2, I32) | (8, 4, I32) => self.encoding = cursor.signed()?,
                (5, 3, I32) => self.levels[0] = cursor.signed()?,
                (5, 4, I32) => self.levels[1] = cursor.signed()?,
                (8, 5 | 6, I32) => self.level_bytes += u64::try_from(cursor.signed()?).ok()?,
                (8, 2..=3, I32) => drop(cursor.signed()?),
                // Whether a dictionary is sorted, whether levels are compressed too, and statistics.
                (7, 3, 1 | 2) | (8, 7, 1 | 2) => {}
                (5, 5, STRUCT) | (8, 8, STRUCT) => cursor.skip_field(kind, 0)?,
                _ => return None,
            }
        }
    }

    fn is_dictionary_coded(&self) -> bool {
        matches!(self.encoding, PLAIN_DICTIONARY | RLE_DICTIONARY)
    }

    /// Whether lakemark writes such pages for texts, or for anything else.
    fn is_known(&self, texts: bool) -> bool {
        match (self.kind, self.encoding) {
            // Each value of a dictionary takes four bytes at least.
            (DICTIONARY_PAGE, PLAIN | PLAIN_DICTIONARY) => self.values <= self.size / 4,
            (DICTIONARY_PAGE, _) => false,
            (_, PLAIN | PLAIN_DICTIONARY | RLE_DICTIONARY) => true,
            (_, DELTA_BYTE_ARRAY) => texts && self.levels == [RLE; 2],
            (_, RLE | DELTA_BINARY_PACKED) => !texts,
            _ => false,
        }
    }
}

/// Checks all pages of `bytes` against `allowance`. Returns how many rows a batch of each row group may have.
pub(super) fn check(bytes: &Bytes, metadata: &ParquetMetaData, allowance: Allowance) -> Result<Vec<usize>, String> {
    let leaves = metadata.file_metadata().schema_descr().num_columns();
    let mut left = allowance.pages;
    let mut values = vec![0u64; leaves];
    let mut batches = Vec::with_capacity(metadata.num_row_groups());
    for group in metadata.row_groups() {
        let mut longest = 0;
        for (column, values) in group.columns().iter().zip(&mut values) {
            let chunk = Chunk::walk(bytes, column, &mut left)?;
            *values = values.saturating_add(chunk.values);
            if *values > allowance.values {
                return Err(format!("{} claims {values} values", column.column_path()));
            }
            longest += chunk.longest(bytes, column, allowance)?;
        }
        batches.push((BATCH / longest.max(1)).clamp(1, ROWS) as usize);
    }
    Ok(batches)
}

/// The pages of one column in one row group.
struct Chunk {
    pages: Vec<Header>,
    /// In its data pages.
    values: u64,
}

impl Chunk {
    /// Reads all its headers. `left` is what all pages may still take before compression.
    fn walk(bytes: &Bytes, column: &ColumnChunkMetaData, left: &mut u64) -> Result<Self, String> {
        let bad = || format!("a page header of {} cannot be read", column.column_path());
        let texts = column.column_type() == Type::BYTE_ARRAY;
        let (start, length) = column.byte_range();
        let mut cursor = Cursor::new(&bytes[start as usize..(start + length) as usize]);
        let mut chunk = Self { pages: Vec::new(), values: 0 };
        while (cursor.at as u64) < length {
            let header = Header::read(&mut cursor).ok_or_else(bad)?;
            cursor.advance(header.compressed).ok_or_else(bad)?;
            if !header.is_known(texts) {
                let Header { kind, encoding, .. } = header;
                return Err(format!("{} has a page of kind {kind} in encoding {encoding}", column.column_path()));
            }
            *left = left.checked_sub(header.size).ok_or("its pages claim far more bytes than its size allows")?;
            if header.kind != DICTIONARY_PAGE {
                chunk.values = chunk.values.saturating_add(header.values);
            }
            chunk.pages.push(header);
        }
        Ok(chunk)
    }

    /// The most bytes that one text of it can have beyond what its own page holds; 0: no text can.
    fn longest(&self, bytes: &Bytes, column: &ColumnChunkMetaData, allowance: Allowance) -> Result<u64, String> {
        let expands = |page: &Header| page.kind == DICTIONARY_PAGE || page.encoding == DELTA_BYTE_ARRAY;
        if column.column_type() != Type::BYTE_ARRAY || !self.pages.iter().any(expands) {
            return Ok(0);
        }
        let failed = |e| format!("{}: {e}", column.column_path());
        let object = Arc::new(bytes.clone());
        let mut reader = SerializedPageReader::new(object, column, 0, None).map_err(failed)?;
        let (mut longest, mut repeated) = (0, 0u64);
        for header in &self.pages {
            if header.is_dictionary_coded() && header.kind != DICTIONARY_PAGE {
                repeated = repeated.saturating_add(header.values);
            }
            if !expands(header) {
                reader.skip_next_page().map_err(failed)?;
                continue;
            }
            let page = reader.get_next_page().map_err(failed)?.ok_or("a page is missing")?;
            let length = match &page {
                Page::DictionaryPage { buf, .. } => longest_entry(buf, header.values),
                _ => differences(&page, header, column).then_some(header.size),
            };
            longest = longest.max(length.ok_or_else(|| format!("{}: a page is torn", column.column_path()))?);
            if header.kind != DICTIONARY_PAGE {
                repeated = repeated.saturating_add(header.values);
            }
        }
        // A row of a list can hold any number of values, so rows of a batch do not bound them.
        if column.column_descr().max_rep_level() > 0 && longest.saturating_mul(repeated) > allowance.decoded {
            return Err(format!("{} repeats more than its size allows", column.column_path()));
        }
        Ok(longest)
    }
}

/// The longest of `count` texts in a dictionary page.
fn longest_entry(mut page: &[u8], count: u64) -> Option<u64> {
    let mut longest = 0;
    for _ in 0..count {
        let (length, rest) = page.split_first_chunk::<4>()?;
        let length = u32::from_le_bytes(*length);
        page = rest.get(length as usize..)?;
        longest = longest.max(length.into());
    }
    Some(longest)
}

/// Whether a page of texts as differences has no more of them than its header says.
fn differences(page: &Page, header: &Header, column: &ColumnChunkMetaData) -> bool {
    let levels = column.column_descr();
    let levels = usize::from(levels.max_rep_level() > 0) + usize::from(levels.max_def_level() > 0);
    let mut cursor = Cursor::new(page.buffer());
    let skipped = if header.kind == DATA_PAGE_V2 {
        cursor.advance(header.level_bytes)
    } else {
        // Levels of the first version say their length in four bytes.
        (0..levels).try_for_each(|_| {
            let rest = page.buffer().get(cursor.at..)?.first_chunk::<4>()?;
            cursor.advance(4 + u64::from(u32::from_le_bytes(*rest)))
        })
    };
    // The lengths of common beginnings, then those of the rests.
    let mut count = || packed(&mut cursor).filter(|count| *count <= header.values);
    skipped.is_some() && count().is_some() && count().is_some()
}

/// Walks over numbers in `DELTA_BINARY_PACKED` encoding, and returns how many there are.
fn packed(cursor: &mut Cursor<'_>) -> Option<u64> {
    let (block, parts, count) = (cursor.varint()?, cursor.varint()?, cursor.varint()?);
    cursor.varint()?;
    if parts == 0 || block % 128 != 0 || block % parts != 0 || (block / parts) % 32 != 0 {
        return None;
    }
    let each = block / parts;
    let mut left = count.saturating_sub(1);
    while left > 0 {
        cursor.varint()?;
        let mut bytes = 0u64;
        for _ in 0..parts {
            let width = u64::from(cursor.byte()?);
            if left > 0 {
                bytes = bytes.checked_add(each.checked_mul(width)? / 8)?;
            }
            left = left.saturating_sub(each);
        }
        cursor.advance(bytes)?;
    }
    Some(count)
}
