//! Walking over Thrift's compact protocol, which Parquet's footers and page headers are written in, without decoding it.
//!
//! The parquet crate decodes them. What is here only finds things, and judges what a decoder would allocate or nest
//! before the decoder sees it.

mod footer;

/// A 32-bit number.
pub(crate) const I32: u8 = 5;
const BINARY: u8 = 8;
/// A list.
pub(crate) const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
/// A struct.
pub(crate) const STRUCT: u8 = 12;
/// Deepest nesting followed; Parquet's own structs need less than ten.
const DEEPEST: usize = 64;

/// Walks over Thrift's compact protocol without decoding it. `None`: these bytes are not it.
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    /// The offset of the next byte.
    pub(crate) at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    pub(crate) fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    pub(crate) fn advance(&mut self, by: u64) -> Option<()> {
        let at = self.at.checked_add(usize::try_from(by).ok()?)?;
        (at <= self.bytes.len()).then(|| self.at = at)
    }

    /// The type and id of the next field after the one with id `before`; type 0 ends a struct.
    pub(crate) fn field(&mut self, before: i16) -> Option<(u8, i16)> {
        let byte = self.byte()?;
        let (kind, delta) = (byte & 0x0f, byte >> 4);
        if kind == 0 {
            return Some((0, before));
        }
        if delta > 0 {
            return Some((kind, before.checked_add(delta.into())?));
        }
        Some((kind, i16::try_from(self.signed()?).ok()?))
    }

    /// A number that can be negative.
    pub(crate) fn signed(&mut self) -> Option<i64> {
        let zigzag = self.varint()?;
        Some((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64))
    }

    /// The type and number of a list's elements.
    pub(crate) fn list(&mut self) -> Option<(u8, usize)> {
        let byte = self.byte()?;
        let count = match byte >> 4 {
            15 => usize::try_from(self.varint()?).ok()?,
            short => short.into(),
        };
        Some((byte & 0x0f, count))
    }

    pub(crate) fn skip_struct(&mut self, depth: usize) -> Option<()> {
        let mut id = 0;
        loop {
            let (kind, field) = self.field(id)?;
            if kind == 0 {
                return Some(());
            }
            id = field;
            self.skip_field(kind, depth)?;
        }
    }

    /// Skips a field's value: booleans are in its type.
    pub(crate) fn skip_field(&mut self, kind: u8, depth: usize) -> Option<()> {
        if is_boolean(kind) { Some(()) } else { self.skip(kind, depth) }
    }

    fn skip(&mut self, kind: u8, depth: usize) -> Option<()> {
        if depth > DEEPEST {
            return None;
        }
        match kind {
            3 => self.advance(1),
            4..=6 => self.varint().map(drop),
            7 => self.advance(8),
            BINARY => {
                let length = self.varint()?;
                self.advance(length)
            }
            LIST | SET => {
                let (kind, count) = self.list()?;
                // Parquet has no lists of booleans here, and its crate skips them as if they took no bytes: any number.
                if is_boolean(kind) {
                    return None;
                }
                for _ in 0..count {
                    self.skip(kind, depth + 1)?;
                }
                Some(())
            }
            MAP => {
                let count = self.varint()?;
                if count == 0 {
                    return Some(());
                }
                let kinds = self.byte()?;
                if is_boolean(kinds >> 4) || is_boolean(kinds & 0x0f) {
                    return None;
                }
                for _ in 0..count {
                    self.skip(kinds >> 4, depth + 1)?;
                    self.skip(kinds & 0x0f, depth + 1)?;
                }
                Some(())
            }
            STRUCT => self.skip_struct(depth + 1),
            13 => self.advance(16),
            _ => None,
        }
    }
}

fn is_boolean(kind: u8) -> bool {
    matches!(kind, 1 | 2)
}

/// How many elements the schema of a footer has, and how deep they are nested. `None`: these bytes are not a footer, or
/// a list claims more elements than there are.
///
/// The parquet crate descends into a schema by recursion and without a limit: a footer of a few kilobytes could end the
/// process with a full stack, which nothing catches.
pub(crate) fn schema_shape(thrift: &[u8]) -> Option<(usize, usize)> {
    footer::check(thrift)?;
    let mut cursor = Cursor::new(thrift);
    let (mut id, mut shape) = (0, None);
    loop {
        let (kind, field) = cursor.field(id)?;
        id = field;
        match (kind, id) {
            (0, _) => return shape,
            (LIST, 2) => {
                let found = elements(&mut cursor)?;
                // Of two schemas a decoder takes one or the other.
                shape = Some(shape.map_or(found, |(n, depth): (usize, usize)| (n.max(found.0), depth.max(found.1))));
            }
            (_, 2) => return None,
            _ => cursor.skip_field(kind, 0)?,
        }
    }
}

/// The elements of a schema come depth first, each with the number of its children.
fn elements(cursor: &mut Cursor<'_>) -> Option<(usize, usize)> {
    let (kind, count) = cursor.list()?;
    if kind != STRUCT {
        return None;
    }
    // Children that the open groups still wait for.
    let mut open: Vec<u64> = Vec::new();
    let mut deepest = 0;
    for i in 0..count {
        let children = children(cursor)?;
        // A decoder allocates for as many as are claimed.
        if children >= (count - i) as u64 {
            return None;
        }
        while open.last() == Some(&0) {
            open.pop();
        }
        if let Some(left) = open.last_mut() {
            *left -= 1;
        }
        if children > 0 {
            open.push(children);
        }
        deepest = deepest.max(open.len());
    }
    Some((count, deepest))
}

/// Field 5 of a schema element; it is 0 or absent in leaves.
fn children(cursor: &mut Cursor<'_>) -> Option<u64> {
    let (mut id, mut children) = (0, 0);
    loop {
        let (kind, field) = cursor.field(id)?;
        id = field;
        match (kind, id) {
            (0, _) => return Some(children),
            (4..=6, 5) => children = u64::try_from(cursor.signed()?).ok()?,
            (_, 5) => return None,
            _ => cursor.skip_field(kind, 0)?,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A footer whose schema is a leaf in `depth - 1` groups.
    pub(crate) fn nested(depth: usize) -> Vec<u8> {
        // Field 1, the version; field 2, a list of structs.
        let mut thrift = vec![0x15, 0x02, 0x19, 0xfc];
        let mut count = depth;
        while count >= 0x80 {
            thrift.push(count as u8 | 0x80);
            count >>= 7;
        }
        thrift.push(count as u8);
        for left in (0..depth).rev() {
            // Fields 3 (required), 4 (a name) and 5 (children).
            thrift.extend_from_slice(&[0x35, 0x00, 0x18, 0x01, b'a', 0x15, if left > 0 { 0x02 } else { 0x00 }, 0x00]);
        }
        // Field 3, rows; field 4, no row groups.
        thrift.extend_from_slice(&[0x16, 0x00, 0x19, 0x0c, 0x00]);
        thrift
    }

    #[test]
    fn depth_is_that_of_open_groups() {
        assert_eq!(schema_shape(&nested(7)), Some((7, 6)));
        assert_eq!(schema_shape(&nested(100_000)), Some((100_000, 99_999)));
        assert_eq!(schema_shape(&nested(7)[..20]), None);
        // A group of two leaves, then one of one leaf.
        let element = |children: u8| [0x48, 0x01, b'a', 0x15, children << 1, 0x00];
        let schema = |children: [u8; 6]| [vec![0x29, 0x6c], children.map(element).concat(), vec![0x00]].concat();
        assert_eq!(schema_shape(&schema([2, 2, 0, 0, 1, 0])), Some((6, 2)));
        assert_eq!(schema_shape(&schema([2, 5, 0, 0, 1, 0])), None, "four elements are left for five children");
    }
}
