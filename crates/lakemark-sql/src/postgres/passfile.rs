//! The password file of PostgreSQL: lines of `host:port:database:user:password`, the first that matches counts.
//!
//! After <https://www.postgresql.org/docs/current/libpq-pgpass.html>: `*` stands for anything, `\` escapes the next
//! character, and a file that others can read is left alone.

use std::path::{Path, PathBuf};

use super::address::Address;

/// What a password file has for an address. No `Debug`: it holds a password.
pub(super) enum Found {
    Password(String),
    Nothing,
    /// Others can read it.
    Unsafe(PathBuf),
}

/// Looks for `address` in the file at `path`.
pub(super) fn find(path: &Path, address: &Address) -> Found {
    let Ok(about) = std::fs::metadata(path) else { return Found::Nothing };
    if !about.is_file() {
        return Found::Nothing;
    }
    if !is_private(&about) {
        tracing::warn!("the password file {} is left alone: others can read it", path.display());
        return Found::Unsafe(path.to_owned());
    }
    let Ok(text) = std::fs::read(path) else { return Found::Nothing };
    let text = String::from_utf8_lossy(&text);
    text.lines().find_map(|line| password(line, address)).map_or(Found::Nothing, Found::Password)
}

#[cfg(unix)]
fn is_private(about: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt;
    about.permissions().mode() & 0o077 == 0
}

#[cfg(not(unix))]
fn is_private(_: &std::fs::Metadata) -> bool {
    true
}

/// The password of `line`, if it is about `address`.
fn password(line: &str, address: &Address) -> Option<String> {
    if line.starts_with('#') {
        return None;
    }
    let port = address.port.to_string();
    let mut rest = line;
    for (index, wanted) in [address.host.as_str(), &port, &address.database, &address.user].into_iter().enumerate() {
        let (field, after) = field(rest)?;
        // Host names know no case.
        let same = field == wanted || (index == 0 && field.eq_ignore_ascii_case(wanted));
        // Only a bare `*` is a wildcard; an escaped one is a star.
        if !rest.starts_with("*:") && !same {
            return None;
        }
        rest = after;
    }
    let (password, _) = field(rest).unwrap_or_else(|| (unescaped(rest), ""));
    (!password.is_empty()).then_some(password)
}

/// The text up to the next colon that is not escaped, and what follows it.
fn field(text: &str) -> Option<(String, &str)> {
    let mut escaped = false;
    let end = text.char_indices().find(|&(_, c)| {
        let end = c == ':' && !escaped;
        escaped = c == '\\' && !escaped;
        end
    });
    let (end, _) = end?;
    Some((unescaped(&text[..end]), &text[end + 1..]))
}

fn unescaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        plain.push(if c == '\\' { chars.next().unwrap_or(c) } else { c });
    }
    plain
}

#[cfg(test)]
mod tests {
    use lakemark::StorageOptions;

    use super::*;
    use crate::options::Options;

    fn address(file: Option<&Path>) -> Address {
        let passfile = file.map(|file| ("passfile", file.to_str().unwrap()));
        let options = Options::new(&StorageOptions::from_iter(passfile));
        Address::of("postgres://me@db.example:5433/sh%3Aop", options, &|_| None).unwrap()
    }

    #[test]
    fn the_first_line_that_matches_counts() {
        for (text, wanted) in [
            ("db.example:5433:sh\\:op:me:one\n*:*:*:*:two", Some("one")),
            ("# db.example:5433:sh\\:op:me:no\n*:*:*:*:t\\:w\\\\o:rest", Some("t:w\\o")),
            ("other:*:*:*:no\r\n*:5432:*:*:no\nDB.example:*:*:me:yes\r\n", Some("yes")),
            ("*:*:*:you:no\n*:*:sh:me:no", None),
            ("\\*:*:*:me:no", None),
            ("too:short\n\n*:*:*:*:", None),
        ] {
            let found = text.lines().find_map(|line| password(line, &address(None)));
            assert_eq!(found.as_deref(), wanted, "{text}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_others_can_read_is_left_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pgpass");
        std::fs::write(&file, "*:*:*:*:hush\n").unwrap();
        for (mode, password, noted) in [(0o600, Some("hush"), false), (0o640, None, true), (0o604, None, true)] {
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            let address = address(Some(&file));
            assert_eq!((address.password.as_deref(), address.unsafe_passfile.is_some()), (password, noted), "{mode:o}");
        }
        assert!(address(Some(folder.path())).password.is_none(), "a folder is no file");
    }
}
