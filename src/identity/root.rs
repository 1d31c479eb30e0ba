//! The canonical root of a source, a sink or a store: aliases of one place are one value.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Error, ErrorKind, Result};

/// What is escaped in the URL form; everything outside ASCII is escaped too. `+` is literal.
const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// The canonical root of a source, sink or store: scheme class, bucket and raw prefix (R13).
///
/// `s3`, `s3a` and `s3n` are one class, as are `gs` and `gcs`, and `az`, `azure`, `abfs`, `abfss` and `adl`; so
/// `s3a://b/p/` and `s3://b/p` are one root, and `/x`, `file:/x` and `file:///x` are. A URL is percent-decoded exactly
/// once, when it comes in; `?`, `#`, `+` and a `%` without two hex digits are literal. From then on the prefix is raw
/// text. A plain path is never decoded (R113, R114).
///
/// A table of a PostgreSQL server has a root too: the authority is `host:port`, the prefix `database/schema.table`. It never
/// holds a user or a password.
///
/// The text form is the canonical URL. It is injective, and parsing it gives the same root (R115).
///
/// ```text
/// s3a://bucket/lake/        -> s3://bucket/lake
/// /data/./a//b/../my files  -> file:///data/a/my%20files
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Root {
    class: Class,
    /// The bucket; for Azure `container` or `container@account`; for PostgreSQL `host:port`; empty on disk.
    authority: String,
    /// Raw, without a slash at either end; never an empty, `.` or `..` segment.
    prefix: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Class {
    File,
    S3,
    Gs,
    Az,
    Memory,
    Postgres,
}

impl Class {
    fn of(scheme: &str) -> Option<Self> {
        Some(match scheme.to_ascii_lowercase().as_str() {
            "file" => Self::File,
            "s3" | "s3a" | "s3n" => Self::S3,
            "gs" | "gcs" => Self::Gs,
            "az" | "azure" | "abfs" | "abfss" | "adl" => Self::Az,
            "memory" => Self::Memory,
            "postgres" | "postgresql" => Self::Postgres,
            _ => return None,
        })
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::S3 => "s3",
            Self::Gs => "gs",
            Self::Az => "az",
            Self::Memory => "memory",
            Self::Postgres => "postgres",
        }
    }
}

impl Root {
    /// The root that `text` names: a path on disk, absolute or relative to the current directory, or a URL.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) for an unknown scheme; [`Invalid`](ErrorKind::Invalid) for a URL without a
    /// bucket, for an object prefix with an empty, `.` or `..` segment (it would be another object once cleaned up), and
    /// for text that does not decode to UTF-8.
    pub fn parse(text: &str) -> Result<Self> {
        match split_scheme(text) {
            Some((scheme, rest)) => Self::parse_url(text, scheme, rest),
            None => match text.split_once(":/").and_then(|(scheme, _)| Class::of(scheme)) {
                // It would be a folder called `s3:`, and the output far from where it was meant to be.
                Some(class) if class != Class::File => Err(Error::invalid("a URL has two slashes after its scheme")
                    .at(text)
                    .way(format!("{}://bucket/prefix", class.as_str()))
                    .way("write `./` before it for a local name like this")),
                _ => Self::of_path(text),
            },
        }
    }

    fn of_path(path: &str) -> Result<Self> {
        if path.is_empty() {
            return Err(Error::invalid("an empty path names nothing").way("use `.` for the current directory"));
        }
        if path.contains('\0') {
            return Err(Error::invalid("a path cannot contain a NUL character").at(path.escape_debug()));
        }
        if path.starts_with('/') {
            return Ok(Self::file(path));
        }
        let here = std::env::current_dir().map_err(|e| {
            Error::new(ErrorKind::Unavailable, "the current directory cannot be read")
                .at(path)
                .caused_by(e)
                .way("use an absolute path")
        })?;
        let here = here.to_str().ok_or_else(|| {
            Error::invalid("the name of the current directory is not UTF-8")
                .at(here.display())
                .way("use an absolute path")
        })?;
        Ok(Self::file(&format!("{here}/{path}")))
    }

    fn file(path: &str) -> Self {
        Self { class: Class::File, authority: String::new(), prefix: normalise(path) }
    }

    fn parse_url(url: &str, scheme: &str, rest: &str) -> Result<Self> {
        let bad = |why: &str| Error::invalid(format!("the URL cannot be used: {why}")).at(url);
        let (authority, path) = match rest.strip_prefix("//") {
            Some(rest) => rest.split_once('/').unwrap_or((rest, "")),
            None => ("", rest.strip_prefix('/').unwrap_or(rest)),
        };
        let decode = |text: &str| {
            let text = percent_decode_str(text).decode_utf8().map_err(|_| bad("it does not decode to UTF-8"))?;
            if text.contains('\0') { Err(bad("it contains a NUL character")) } else { Ok(text.into_owned()) }
        };
        if Class::of(scheme) == Some(Class::Postgres) && authority.contains('@') {
            // The text is not shown: it can hold a password.
            return Err(Error::invalid("a database is known by its server, not by who reads it")
                .way("leave user and password out of its root"));
        }
        let (authority, path) = (decode(authority)?, decode(path)?);
        let (class, authority, path) = match Class::of(scheme) {
            Some(class) => (class, authority, path),
            None => endpoint(scheme, &authority, &path).ok_or_else(|| {
                Error::new(ErrorKind::Unsupported, format!("`{scheme}` is not a scheme lakemark knows"))
                    .at(url)
                    .way("use a path, or a URL with file, s3, gs, az or memory")
                    .way("write `./name` for a local name that looks like a URL")
            })?,
        };
        match class {
            Class::File if !matches!(authority.as_str(), "" | "localhost") => {
                return Err(bad("a file URL has three slashes").way(format!("file:///{authority}/{path}")));
            }
            Class::File => return Ok(Self::file(&path)),
            Class::Memory => {}
            Class::Az if authority.split('@').next().is_none_or(str::is_empty) => {
                return Err(bad("it names no container"));
            }
            Class::Postgres if authority.is_empty() => return Err(bad("it names no server")),
            _ if authority.is_empty() => return Err(bad("it names no bucket")),
            _ => {}
        }
        if authority.contains('/') {
            return Err(bad("a bucket cannot have a slash in its name"));
        }
        let authority = match class {
            Class::Az => azure_authority(&authority),
            Class::Postgres => postgres_authority(&authority),
            _ => authority,
        };
        let prefix = path.strip_suffix('/').unwrap_or(&path).to_owned();
        if !prefix.is_empty() && prefix.split('/').any(|s| matches!(s, "" | "." | "..")) {
            return Err(bad("a prefix on an object store cannot have an empty, `.` or `..` segment"));
        }
        Ok(Self { class, authority, prefix })
    }

    /// Whether it is on a disk of this machine.
    pub fn is_local(&self) -> bool {
        self.class == Class::File
    }

    /// The scheme of the class: `file`, `s3`, `gs`, `az`, `memory` or `postgres`.
    pub fn scheme(&self) -> &'static str {
        self.class.as_str()
    }

    /// The absolute path, if it is on a disk of this machine.
    pub fn local_path(&self) -> Option<PathBuf> {
        self.is_local().then(|| PathBuf::from(format!("/{}", self.prefix)))
    }

    /// The bucket or container, if it has one.
    pub fn bucket(&self) -> Option<&str> {
        let bucket =
            if self.class == Class::Az { self.authority.split('@').next() } else { Some(self.authority.as_str()) };
        bucket.filter(|b| !b.is_empty())
    }

    /// The storage account of an Azure root whose URL named one.
    pub fn account(&self) -> Option<&str> {
        if self.class == Class::Az { self.authority.split_once('@').map(|(_, account)| account) } else { None }
    }

    /// The raw prefix below the bucket or below `/`, without a slash at either end; empty for the bucket or disk itself.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The root at `relative`, raw text, below this one. Empty and `.` segments are dropped, `..` goes up.
    #[must_use]
    pub fn join(&self, relative: &str) -> Self {
        Self { prefix: normalise(&format!("{}/{relative}", self.prefix)), ..self.clone() }
    }

    /// Whether `other` is this root or lies under it. `/data` does not contain `/data2`.
    pub fn contains(&self, other: &Self) -> bool {
        self.class == other.class
            && self.authority == other.authority
            && (self.prefix.is_empty()
                || other.prefix.strip_prefix(&self.prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
    }

    /// On disk, the root with the symbolic links of its longest existing ancestor followed, so that a check for
    /// overlap cannot be fooled by a link (R41); elsewhere, and where a link leads to a name that is not UTF-8, itself.
    #[must_use]
    pub fn resolved(&self) -> Self {
        let Some(path) = self.local_path() else { return self.clone() };
        for ancestor in path.ancestors() {
            let Ok(real) = ancestor.canonicalize() else { continue };
            let rest = path.strip_prefix(ancestor).unwrap_or(Path::new(""));
            return real.join(rest).to_str().map_or_else(|| self.clone(), Self::file);
        }
        self.clone()
    }

    /// Where the file at raw path `relative` is, for people: a plain path on disk, else scheme, bucket and raw key.
    pub fn place(&self, relative: &str) -> String {
        let mut place = if self.is_local() { String::new() } else { format!("{}://{}", self.scheme(), self.authority) };
        for part in [self.prefix.as_str(), relative] {
            if !part.is_empty() {
                place.push('/');
                place.push_str(part);
            }
        }
        if place.is_empty() { "/".to_owned() } else { place }
    }
}

/// Scheme and what follows the colon, if `text` is a URL: anything with `://`, and `file:/x`.
fn split_scheme(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once(':')?;
    let named = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    let url = rest.starts_with("//") || (rest.starts_with('/') && scheme.eq_ignore_ascii_case("file"));
    (named && url).then_some((scheme, rest))
}

/// `path` without empty and `.` segments, `..` resolved by its text; no slash at either end.
fn normalise(path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            _ => segments.push(segment),
        }
    }
    segments.join("/")
}

/// The other style of the same address: `https` with the host of a provider, the bucket in the host or in the path.
fn endpoint(scheme: &str, host: &str, path: &str) -> Option<(Class, String, String)> {
    if !scheme.eq_ignore_ascii_case("https") {
        return None;
    }
    let in_path = |class| {
        let (bucket, path) = path.split_once('/').unwrap_or((path, ""));
        Some((class, bucket.to_owned(), path.to_owned()))
    };
    let host = host.to_ascii_lowercase();
    if host == "storage.googleapis.com" {
        return in_path(Class::Gs);
    }
    if let Some(bucket) = host.strip_suffix(".storage.googleapis.com") {
        return Some((Class::Gs, bucket.to_owned(), path.to_owned()));
    }
    if let Some(account) = azure_account(&host) {
        let (class, container, path) = in_path(Class::Az)?;
        return Some((class, if container.is_empty() { container } else { format!("{container}@{account}") }, path));
    }
    let labels: Vec<&str> = host.strip_suffix(".amazonaws.com")?.split('.').collect();
    let service = labels.iter().rposition(|l| *l == "s3" || l.starts_with("s3-"))?;
    if service == 0 { in_path(Class::S3) } else { Some((Class::S3, labels[..service].join("."), path.to_owned())) }
}

fn azure_account(host: &str) -> Option<&str> {
    [".dfs.core.windows.net", ".blob.core.windows.net"].iter().find_map(|suffix| host.strip_suffix(suffix))
}

/// `container@account.dfs.core.windows.net` and `container@account` are one.
fn azure_authority(authority: &str) -> String {
    let Some((container, mut account)) = authority.split_once('@') else { return authority.to_owned() };
    while let Some(shorter) = azure_account(account) {
        account = shorter;
    }
    format!("{container}@{account}")
}

/// Host names know no case, and a server has a port.
fn postgres_authority(authority: &str) -> String {
    let host = authority.to_ascii_lowercase();
    let port = host.rsplit_once(':').is_some_and(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()));
    if port && !host.ends_with(':') { host } else { format!("{}:5432", host.trim_end_matches(':')) }
}

/// The canonical URL.
impl fmt::Display for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme(), utf8_percent_encode(&self.authority, ESCAPED))?;
        if !self.prefix.is_empty() || self.is_local() {
            write!(f, "/{}", utf8_percent_encode(&self.prefix, ESCAPED))?;
        }
        Ok(())
    }
}

impl FromStr for Root {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

impl Serialize for Root {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Only from the canonical URL: a relative path would mean another place in another directory.
impl<'de> Deserialize<'de> for Root {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let (scheme, rest) =
            split_scheme(&text).ok_or_else(|| serde::de::Error::custom(format!("`{text}` is not a URL")))?;
        Self::parse_url(&text, scheme, rest).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn root(text: &str) -> Root {
        Root::parse(text).unwrap()
    }

    #[test]
    fn r13_aliases_are_one_root() {
        for same in [
            &[
                "s3://b/lake",
                "s3a://b/lake/",
                "S3N://b/lake",
                "https://b.s3.eu-west-1.amazonaws.com/lake",
                "https://s3.amazonaws.com/b/lake/",
            ][..],
            &["gs://b/x", "gcs://b/x/", "https://storage.googleapis.com/b/x", "https://b.storage.googleapis.com/x"],
            &[
                "abfss://c@acc.dfs.core.windows.net/x",
                "abfs://c@acc/x/",
                "az://c@acc/x",
                "https://acc.blob.core.windows.net/c/x",
            ],
            &["az://c/x", "azure://c/x", "adl://c/x/"],
            &["/x/y", "file:///x/y/", "file:/x/y", "file://localhost/x/y", "/x//./y/", "/x/z/../y"],
            &["/", "file:///", "//", "/.."],
            &["postgres://Db.example/shop/public.docs", "postgresql://db.example:5432/shop/public.docs/"],
        ] {
            for alias in same {
                assert_eq!(root(alias), root(same[0]), "{alias}");
            }
        }
        assert_ne!(root("s3://b/lake"), root("gs://b/lake"));
        assert_ne!(root("s3://b/lake"), root("s3://b2/lake"));
        assert_ne!(root("az://c@one/x"), root("az://c@two/x"));
    }

    #[test]
    fn r113_r114_a_url_is_decoded_once_and_a_path_never() {
        assert_eq!(root("file:///d/chk%20%25@%23x"), root("/d/chk %@#x"));
        assert_eq!(root("file:///d/chk %@#x"), root("/d/chk %@#x"), "what is no escape is literal");
        assert_eq!(root("/d/a%20b").prefix(), "d/a%20b");
        assert_eq!(root("s3://b/données/[foo]/a+b?x").prefix(), "données/[foo]/a+b?x");
        assert_eq!(root("s3://b/donn%C3%A9es%2520").prefix(), "données%20");
        assert_eq!(root("/d/données [x]").to_string(), "file:///d/donn%C3%A9es%20%5Bx%5D");
    }

    #[test]
    fn r115_the_ends_of_paths() {
        assert_eq!(root("s3://b").join("a.parquet"), root("s3://b/a.parquet"));
        assert_eq!(root("/").join("a"), root("/a"));
        assert_eq!(root("/").place("a"), "/a");
        assert_eq!(root("s3://b/p/").place("x y"), "s3://b/p/x y");
        assert_eq!(root("/a/b").join("../c").local_path(), Some("/a/c".into()));
        assert_eq!(root("memory:///p").bucket(), None);
        assert_eq!((root("az://c@acc/p").bucket(), root("az://c@acc/p").account()), (Some("c"), Some("acc")));
    }

    #[test]
    fn a_url_with_one_slash_is_no_folder() {
        for text in ["s3:/bucket/out", "S3:/b", "gs:/b/x", "az:/c/x", "memory:/x"] {
            assert!(Root::parse(text).unwrap_err().what().contains("two slashes"), "{text}");
        }
        assert!(root("./s3:/bucket").is_local() && root("c:/x").is_local());
    }

    #[test]
    fn what_cannot_be_a_root_is_refused() {
        for bad in [
            "",
            "s3://",
            "s3:///x",
            "az://@acc/x",
            "file://host/x",
            "s3://b//x",
            "s3://b/a//x",
            "s3://b/../x",
            "s3://b/%FF",
            "/a\0b",
            "postgres:///shop/public.docs",
            "postgres://user:secret@db/shop/public.docs",
        ] {
            assert_eq!(Root::parse(bad).unwrap_err().kind(), ErrorKind::Invalid, "{bad}");
        }
        for unknown in ["hdfs://h/x", "https://example.com/x", "http://b.s3.amazonaws.com/x"] {
            assert_eq!(Root::parse(unknown).unwrap_err().kind(), ErrorKind::Unsupported, "{unknown}");
        }
        assert!(serde_json::from_str::<Root>("\"relative\"").is_err());
    }

    #[test]
    fn a_password_of_a_database_is_not_shown() {
        for text in ["postgres://me:hush@db/shop/docs", "postgresql://me:hush@/%FF", "Postgres://:hush@db"] {
            let error = Root::parse(text).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hush"), "{error}");
        }
    }

    #[test]
    fn relative_paths_are_below_the_current_directory() {
        let here = std::env::current_dir().unwrap();
        assert_eq!(root("./a/../b").local_path(), Some(here.join("b")));
        assert_eq!(root("./s3:/a").local_path(), Some(here.join("s3:/a")));
    }

    #[test]
    fn r41_overlap_is_decided_on_segments_and_through_links() {
        assert!(root("/data").contains(&root("/data")));
        assert!(root("/data").contains(&root("/data/_ckpt")));
        assert!(!root("/data").contains(&root("/data2")));
        assert!(root("/").contains(&root("/data")));
        assert!(!root("s3://a/x").contains(&root("s3://b/x/y")));

        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().join("data");
        std::fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, dir.path().join("link")).unwrap();
        let store = Root::parse(dir.path().join("link/not/yet").to_str().unwrap()).unwrap();
        let source = Root::parse(real.to_str().unwrap()).unwrap();
        assert!(!source.contains(&store));
        assert!(source.resolved().contains(&store.resolved()));
    }

    proptest! {
        #[test]
        fn r115_parse_is_the_inverse_of_display(path in "(/[^\0]{0,12}){1,4}") {
            let local = root(&path);
            prop_assert_eq!(&root(&local.to_string()), &local);
            prop_assert_eq!(serde_json::from_str::<Root>(&serde_json::to_string(&local).unwrap()).unwrap(), local.clone());
            prop_assert_eq!(Root::parse(local.local_path().unwrap().to_str().unwrap()).unwrap(), local);
        }

        #[test]
        fn r115_for_buckets_too(scheme in "s3|gs|az|memory|postgres", bucket in "[^/\0]{1,9}", key in "[^\0]{0,20}") {
            let text = format!("{scheme}://{bucket}/{key}");
            if let Ok(parsed) = Root::parse(&text) {
                prop_assert_eq!(&root(&parsed.to_string()), &parsed);
                let bucket = Root { prefix: String::new(), ..parsed.clone() };
                prop_assert!(bucket.contains(&parsed));
            }
        }

        #[test]
        fn the_text_form_is_injective(a in "/[a%2F0 #é]{0,6}", b in "/[a%2F0 #é]{0,6}") {
            prop_assert_eq!(root(&a) == root(&b), root(&a).to_string() == root(&b).to_string());
        }
    }
}
