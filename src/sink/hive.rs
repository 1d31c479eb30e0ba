//! Hive partition folders: `column=value`, escaped on the way in and decoded exactly once on the way out (R38, R79).

use std::borrow::Cow;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

/// The value that stands for null.
pub const NULL_PARTITION: &str = "__HIVE_DEFAULT_PARTITION__";

/// What Hive and Spark escape in a partition value, and `+`, which some readers take for a space.
const ESCAPED: &AsciiSet = &CONTROLS
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'\'')
    .add(b'*')
    .add(b'/')
    .add(b':')
    .add(b'=')
    .add(b'?')
    .add(b'\\')
    .add(b'{')
    .add(b'[')
    .add(b']')
    .add(b'^')
    .add(b'+');

/// The text of a value in a folder name; `None` is null. Hive knows no empty string: who
/// writes for it passes null instead.
pub fn encode_partition_value(value: Option<&str>) -> Cow<'_, str> {
    match value {
        None => NULL_PARTITION.into(),
        // A text that is the null marker's own is not null.
        Some(NULL_PARTITION) => NULL_PARTITION.replacen('_', "%5F", 1).into(),
        // A folder must not be `.` or `..`; neither can occur behind `column=`.
        Some(value) => utf8_percent_encode_keeping_letters(value),
    }
}

fn utf8_percent_encode_keeping_letters(value: &str) -> Cow<'_, str> {
    // `utf8_percent_encode` would escape every non-ASCII byte; file systems and object stores take UTF-8 as it is.
    if value.bytes().all(|b| b >= 0x80 || !must_escape(b)) {
        return value.into();
    }
    let mut out = String::with_capacity(value.len() + 8);
    for c in value.chars() {
        let mut buffer = [0; 4];
        let text = c.encode_utf8(&mut buffer);
        match c.is_ascii() {
            true => out.extend(utf8_percent_encode(text, ESCAPED)),
            false => out.push(c),
        }
    }
    out.into()
}

fn must_escape(byte: u8) -> bool {
    let one = [byte];
    std::str::from_utf8(&one).is_ok_and(|text| utf8_percent_encode(text, ESCAPED).next() != Some(text))
}

/// The value that the folder text `text` stands for: `%XX` decoded once, `+` literal, the null marker is null. Text
/// that does not decode to UTF-8 stands for itself.
pub fn decode_partition_value(text: &str) -> Option<Cow<'_, str>> {
    if text == NULL_PARTITION {
        return None;
    }
    Some(percent_decode_str(text).decode_utf8().unwrap_or(Cow::Borrowed(text)))
}

/// `a=1/b=x%2Fy` for columns and values in order.
pub fn partition_folder<'a>(values: impl IntoIterator<Item = (&'a str, Option<&'a str>)>) -> String {
    let parts = values.into_iter().map(|(column, value)| {
        format!("{}={}", utf8_percent_encode_keeping_letters(column), encode_partition_value(value))
    });
    parts.collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn values_round_trip(value in ".{1,12}") {
            let text = encode_partition_value(Some(&value));
            prop_assert!(!text.contains('/'));
            prop_assert_eq!(decode_partition_value(&text).unwrap(), value.as_str());
        }
    }

    #[test]
    fn known_values() {
        let folder = partition_folder([("d", Some("a b")), ("k", Some("x/y=100%")), ("é", None), ("p", Some("R&D+é"))]);
        assert_eq!(folder, "d=a b/k=x%2Fy%3D100%25/é=__HIVE_DEFAULT_PARTITION__/p=R&D%2Bé");
        for value in [NULL_PARTITION, ""] {
            assert_eq!(decode_partition_value(&encode_partition_value(Some(value))).unwrap(), value);
        }
        assert_eq!(decode_partition_value("a+b%20c").unwrap(), "a+b c");
        assert_eq!(decode_partition_value("%FF").unwrap(), "%FF");
    }
}
