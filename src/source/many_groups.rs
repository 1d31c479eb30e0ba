//! Footers with more row groups than Parquet's 16-bit ordinal counts (R127).
//!
//! The parquet crate refuses to decode them; writers like Arrow C++ make them, and nothing but encryption needs the
//! ordinal. The list of row groups is cut into parts that the crate takes, and the decoded parts are put together: the
//! decoding itself stays the crate's.

use std::ops::Range;

use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataBuilder, ParquetMetaDataReader};

use crate::thrift::{Cursor, LIST, STRUCT, schema_shape};

/// The most row groups in one part.
pub(super) const MOST: usize = i16::MAX as usize;
/// Columns in columns in columns: what makes tables has a handful.
const DEEPEST: usize = 128;

/// Decodes the Thrift bytes of a footer, however many row groups it has. One whose columns are nested without end is an
/// error: the crate's decoder would end the process.
pub(super) fn decode_metadata(thrift: &[u8]) -> Result<ParquetMetaData, ParquetError> {
    let general = |what: String| ParquetError::General(what);
    match schema_shape(thrift) {
        None => return Err(general("it is not what Thrift writes".to_owned())),
        Some((_, depth)) if depth > DEEPEST => {
            return Err(general(format!("its columns are nested {depth} deep; {DEEPEST} is the limit")));
        }
        Some(_) => {}
    }
    match ParquetMetaDataReader::decode_metadata(thrift) {
        Ok(metadata) => Ok(metadata),
        Err(error) => match row_groups(thrift).filter(|groups| groups.ends.len() > MOST) {
            Some(groups) => in_parts(thrift, &groups),
            None => Err(error),
        },
    }
}

/// Where the row groups are in a footer.
struct RowGroups {
    /// The list's header.
    header: Range<usize>,
    /// The end of each row group; the first begins at the end of the header.
    ends: Vec<usize>,
}

fn in_parts(thrift: &[u8], groups: &RowGroups) -> Result<ParquetMetaData, ParquetError> {
    let after = groups.ends.last().copied().unwrap_or(groups.header.end);
    let mut whole: Option<ParquetMetaDataBuilder> = None;
    let mut start = groups.header.end;
    for part in groups.ends.chunks(MOST) {
        let end = part.last().copied().unwrap_or(start);
        let mut bytes = Vec::with_capacity(thrift.len() - (after - groups.header.end) + (end - start) + 8);
        bytes.extend_from_slice(&thrift[..groups.header.start]);
        put_list_header(&mut bytes, part.len());
        bytes.extend_from_slice(&thrift[start..end]);
        bytes.extend_from_slice(&thrift[after..]);
        let decoded = ParquetMetaDataReader::decode_metadata(&bytes)?;
        whole = Some(match whole.take() {
            None => decoded.into_builder(),
            Some(mut builder) => {
                for group in decoded.into_builder().take_row_groups() {
                    builder = builder.add_row_group(group);
                }
                builder
            }
        });
        start = end;
    }
    whole.map(ParquetMetaDataBuilder::build).ok_or_else(|| ParquetError::General("no row groups".to_owned()))
}

/// The header of a list of `count` structs.
fn put_list_header(out: &mut Vec<u8>, count: usize) {
    if count < 15 {
        out.push((count as u8) << 4 | STRUCT);
        return;
    }
    out.push(0xf0 | STRUCT);
    let mut rest = count;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Finds the row groups: field 4 of the footer's struct.
fn row_groups(thrift: &[u8]) -> Option<RowGroups> {
    let mut cursor = Cursor::new(thrift);
    let mut id = 0;
    loop {
        let (kind, field) = cursor.field(id)?;
        id = field;
        match (kind, id) {
            (0, _) => return None,
            (LIST, 4) => break,
            _ => cursor.skip_field(kind, 0)?,
        }
    }
    let start = cursor.at;
    let (kind, count) = cursor.list()?;
    let header = start..cursor.at;
    // Each takes at least a byte: a count that cannot be true allocates nothing.
    if kind != STRUCT || count > thrift.len() - cursor.at {
        return None;
    }
    let mut ends = Vec::with_capacity(count);
    for _ in 0..count {
        cursor.skip_struct(0)?;
        ends.push(cursor.at);
    }
    Some(RowGroups { header, ends })
}

#[cfg(test)]
mod tests {
    use parquet::file::metadata::{FileMetaData, ParquetMetaDataWriter};

    use super::*;
    use crate::source::tests::parquet;

    /// The Thrift bytes of a file with a row group of `rows` rows `count` times over.
    fn repeated(rows: usize, count: usize) -> Vec<u8> {
        let one = bytes::Bytes::from(parquet(rows as i64, rows));
        let metadata = ParquetMetaDataReader::new().parse_and_finish(&one).unwrap();
        let file = metadata.file_metadata();
        let (created_by, pairs) = (file.created_by().map(str::to_owned), file.key_value_metadata().cloned());
        let total = (rows * count) as i64;
        let file = FileMetaData::new(file.version(), total, created_by, pairs, file.schema_descr_ptr(), None);
        let many = ParquetMetaData::new(file, vec![metadata.row_group(0).clone(); count]);
        let mut footer = Vec::new();
        ParquetMetaDataWriter::new(&mut footer, &many).finish().unwrap();
        let length = u32::from_le_bytes(footer[footer.len() - 8..][..4].try_into().unwrap()) as usize;
        footer[footer.len() - 8 - length..footer.len() - 8].to_vec()
    }

    #[test]
    fn r127_footers_of_any_number_of_row_groups_are_decoded() {
        for count in [0, 1, 14, 15, 200, MOST, MOST + 1, 40_000, 2 * MOST, 2 * MOST + 1] {
            let thrift = repeated(3, count);
            let metadata = decode_metadata(&thrift).unwrap();
            assert_eq!(metadata.num_row_groups(), count);
            assert_eq!(metadata.file_metadata().num_rows(), 3 * count as i64);
            assert!(metadata.row_groups().iter().all(|group| group.num_rows() == 3 && group.num_columns() == 1));
            assert_eq!(metadata.file_metadata().key_value_metadata().map(Vec::len), Some(1), "{count}");
        }
        let crate_alone = ParquetMetaDataReader::decode_metadata(&repeated(3, MOST + 2));
        assert!(crate_alone.is_err(), "the parquet crate takes them: this module can go");
    }

    #[test]
    fn damaged_footers_of_many_row_groups_are_errors_and_allocate_nothing() {
        let thrift = repeated(3, MOST + 1);
        for cut in (0..thrift.len()).step_by(499_979) {
            assert!(decode_metadata(&thrift[..cut]).is_err(), "{cut}");
        }
        for at in (0..200).step_by(9).chain((200..thrift.len()).step_by(499_979)) {
            let mut bytes = thrift.clone();
            bytes[at] ^= 0x5a;
            let _ = decode_metadata(&bytes);
        }
        // A list that claims more elements than there are bytes; a struct nested without end.
        assert!(decode_metadata(&[0x49, 0xfc, 0xff, 0xff, 0xff, 0x7f]).is_err());
        assert!(row_groups(&[0x1c; 100_000]).is_none());
        let error = decode_metadata(&crate::thrift::tests::nested(1_000_000)).unwrap_err();
        assert!(error.to_string().contains("nested 999999 deep"), "{error}");
    }
}
