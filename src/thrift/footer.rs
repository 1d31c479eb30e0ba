//! The types of a footer's fields, as Parquet's definition has them.
//!
//! The parquet crate reads the fields that it knows by their ids, whatever types they say they have. With another type it
//! reads on from another place than this module would, and lists that claim any number of elements could hide there: for
//! row groups it allocates what is claimed.

use super::{BINARY, Cursor, I32, LIST, STRUCT};

/// The type of a field, or of the elements of a list.
enum Kind {
    Bool,
    /// What Thrift numbers so, and is not made of parts.
    Plain(u8),
    Struct(&'static [Field]),
    List(&'static Kind),
}

type Field = (i16, Kind);

const BYTE: Kind = Kind::Plain(3);
const SHORT: Kind = Kind::Plain(4);
const INT: Kind = Kind::Plain(I32);
const LONG: Kind = Kind::Plain(6);
const DOUBLE: Kind = Kind::Plain(7);
const TEXT: Kind = Kind::Plain(BINARY);
const EMPTY: Kind = Kind::Struct(&[]);

const FOOTER: &[Field] = &[
    (1, INT),
    (2, Kind::List(&Kind::Struct(SCHEMA_ELEMENT))),
    (3, LONG),
    (4, Kind::List(&Kind::Struct(ROW_GROUP))),
    (5, Kind::List(&Kind::Struct(KEY_VALUE))),
    (6, TEXT),
    (7, Kind::List(&EMPTY)),
    (8, EMPTY),
    (9, TEXT),
];
const SCHEMA_ELEMENT: &[Field] = &[
    (1, INT),
    (2, INT),
    (3, INT),
    (4, TEXT),
    (5, INT),
    (6, INT),
    (7, INT),
    (8, INT),
    (9, INT),
    (10, Kind::Struct(LOGICAL_TYPE)),
];
const LOGICAL_TYPE: &[Field] = &[
    (1, EMPTY),
    (2, EMPTY),
    (3, EMPTY),
    (4, EMPTY),
    (5, Kind::Struct(&[(1, INT), (2, INT)])),
    (6, EMPTY),
    (7, Kind::Struct(TIME)),
    (8, Kind::Struct(TIME)),
    (10, Kind::Struct(&[(1, BYTE), (2, Kind::Bool)])),
    (11, EMPTY),
    (12, EMPTY),
    (13, EMPTY),
    (14, EMPTY),
    (15, EMPTY),
    (16, Kind::Struct(&[(1, BYTE)])),
    (17, Kind::Struct(&[(1, TEXT)])),
    (18, Kind::Struct(&[(1, TEXT), (2, INT)])),
];
const TIME: &[Field] = &[(1, Kind::Bool), (2, Kind::Struct(&[(1, EMPTY), (2, EMPTY), (3, EMPTY)]))];
const KEY_VALUE: &[Field] = &[(1, TEXT), (2, TEXT)];
const ROW_GROUP: &[Field] = &[
    (1, Kind::List(&Kind::Struct(COLUMN_CHUNK))),
    (2, LONG),
    (3, LONG),
    (4, Kind::List(&Kind::Struct(&[(1, INT), (2, Kind::Bool), (3, Kind::Bool)]))),
    (5, LONG),
    (6, LONG),
    (7, SHORT),
];
const COLUMN_CHUNK: &[Field] =
    &[(1, TEXT), (2, LONG), (3, Kind::Struct(COLUMN)), (4, LONG), (5, INT), (6, LONG), (7, INT), (8, EMPTY), (9, TEXT)];
const COLUMN: &[Field] = &[
    (1, INT),
    (2, Kind::List(&INT)),
    (3, Kind::List(&TEXT)),
    (4, INT),
    (5, LONG),
    (6, LONG),
    (7, LONG),
    (8, Kind::List(&Kind::Struct(KEY_VALUE))),
    (9, LONG),
    (10, LONG),
    (11, LONG),
    (12, Kind::Struct(STATISTICS)),
    (13, Kind::List(&Kind::Struct(&[(1, INT), (2, INT), (3, INT)]))),
    (14, LONG),
    (15, INT),
    (16, Kind::Struct(&[(1, LONG), (2, Kind::List(&LONG)), (3, Kind::List(&LONG))])),
    (17, Kind::Struct(&[(1, Kind::Struct(BOX)), (2, Kind::List(&INT))])),
];
const STATISTICS: &[Field] =
    &[(1, TEXT), (2, TEXT), (3, LONG), (4, LONG), (5, TEXT), (6, TEXT), (7, Kind::Bool), (8, Kind::Bool), (9, LONG)];
const BOX: &[Field] =
    &[(1, DOUBLE), (2, DOUBLE), (3, DOUBLE), (4, DOUBLE), (5, DOUBLE), (6, DOUBLE), (7, DOUBLE), (8, DOUBLE)];

/// Whether `thrift` begins with a footer whose known fields have their types, and whose lists have all their elements.
pub(super) fn check(thrift: &[u8]) -> Option<()> {
    structure(&mut Cursor::new(thrift), FOOTER)
}

fn structure(cursor: &mut Cursor<'_>, fields: &[Field]) -> Option<()> {
    let mut last = 0;
    loop {
        let (kind, id) = cursor.field(last)?;
        if kind == 0 {
            return Some(());
        }
        last = id;
        match fields.iter().find(|(known, _)| *known == id) {
            Some((_, Kind::Bool)) if matches!(kind, 1 | 2) => {}
            Some((_, expected)) if kind == expected.number() => value(cursor, expected)?,
            Some(_) => return None,
            None => cursor.skip_field(kind, 0)?,
        }
    }
}

fn value(cursor: &mut Cursor<'_>, kind: &Kind) -> Option<()> {
    match kind {
        Kind::Bool => None,
        Kind::Plain(number) => cursor.skip_field(*number, 0),
        Kind::Struct(fields) => structure(cursor, fields),
        Kind::List(elements) => {
            let (number, count) = cursor.list()?;
            // An empty list need not say of what.
            if count > 0 && number != elements.number() {
                return None;
            }
            (0..count).try_for_each(|_| value(cursor, elements))
        }
    }
}

impl Kind {
    fn number(&self) -> u8 {
        match self {
            Self::Bool => 1,
            Self::Plain(number) => *number,
            Self::Struct(_) => STRUCT,
            Self::List(_) => LIST,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_of_another_type_is_refused() {
        // Field 1 as a number, as a struct.
        assert!(check(&[0x15, 0x02, 0x00]).is_some());
        assert!(check(&[0x1c, 0x15, 0x02, 0x00, 0x00]).is_none());
        // Row groups that are not there; row groups of numbers.
        assert!(check(&[0x49, 0xfc, 0xff, 0xff, 0xff, 0x7f, 0x00]).is_none());
        assert!(check(&[0x49, 0x15, 0x02, 0x00]).is_none());
        // A field that nobody knows, with a list of booleans: the crate would take no bytes for them, without end.
        assert!(check(&[0xf9, 0xf1, 0xff, 0xff, 0xff, 0x7f, 0x00]).is_none());
    }
}
