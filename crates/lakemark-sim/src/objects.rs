//! The one bucket of a world: store, lake and destination. Strongly consistent, with atomic create-if-absent and uploads
//! in parts, and nothing of it random. What can go wrong on the way to it is in [`handle`](crate::handle).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{Error, GetOptions, ListResult, ObjectMeta, Result};
use xxhash_rust::xxh3::xxh3_64;

use crate::scenario::Tokens;
use crate::situations::{Seen, Situation};
use crate::watch::Watch;

/// Below these prefixes lie store, lake and destination.
pub(crate) const STORE: &str = "store";
pub(crate) const LAKE: &str = "lake";
pub(crate) const OUT: &str = "out";

#[derive(Debug, Clone)]
struct Object {
    bytes: Bytes,
    etag: String,
    modified_ns: i64,
}

#[derive(Debug, Clone)]
struct Upload {
    key: String,
    parts: BTreeMap<usize, Bytes>,
    since_ns: i64,
}

/// All objects, and all uploads that are no objects yet.
#[derive(Clone)]
pub(crate) struct Objects {
    objects: BTreeMap<String, Object>,
    uploads: BTreeMap<String, Upload>,
    counter: u64,
    tokens: Tokens,
    /// Virtual time, in nanoseconds since 1970.
    pub(crate) now_ns: i64,
    pub(crate) watch: Watch,
    seen: Seen,
}

fn failure(key: &str, what: &str) -> Error {
    Error::Generic { store: "simulated", source: format!("{what}: {key}").into() }
}

fn not_found(key: &str) -> Error {
    Error::NotFound { path: key.to_owned(), source: "there is no such object".into() }
}

impl Objects {
    pub(crate) fn new(tokens: Tokens, seen: Seen) -> Self {
        Self {
            objects: BTreeMap::new(),
            uploads: BTreeMap::new(),
            counter: 0,
            tokens,
            now_ns: 0,
            watch: Watch::new(seen.clone()),
            seen,
        }
    }

    fn count(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    fn etag(&mut self, key: &str, bytes: &Bytes) -> String {
        // Some stores make etags of the content, others count: both are tokens.
        if key.starts_with(LAKE) && self.tokens == Tokens::ContentEtag {
            return format!("\"{:016x}\"", xxh3_64(bytes));
        }
        format!("\"{}\"", self.count())
    }

    fn insert(&mut self, key: &str, bytes: Bytes) -> String {
        let etag = self.etag(key, &bytes);
        // Two writes of one path never have the same time.
        let before = self.objects.get(key).map_or(0, |object| object.modified_ns);
        let modified_ns = self.now_ns.max(before + 1);
        self.objects.insert(key.to_owned(), Object { bytes, etag: etag.clone(), modified_ns });
        etag
    }

    /// Puts an object; with `create` only where there is none. Its etag.
    pub(crate) fn put(&mut self, actor: &str, key: &str, bytes: Bytes, create: bool) -> Result<String> {
        let there = self.objects.get(key).map(|object| &object.bytes);
        if create && there.is_some() {
            self.watch.lost_create(key, there == Some(&bytes));
            return Err(Error::AlreadyExists { path: key.to_owned(), source: "it exists".into() });
        }
        self.watch.put(actor, key, &bytes, there.is_some());
        Ok(self.insert(key, bytes))
    }

    /// What a listing, and an answer, say of the object at `key`.
    pub(crate) fn meta(&self, key: &str) -> Result<ObjectMeta> {
        let object = self.objects.get(key).ok_or_else(|| not_found(key))?;
        Ok(ObjectMeta {
            location: Path::parse(key)?,
            last_modified: chrono::DateTime::from_timestamp_nanos(object.modified_ns),
            size: object.bytes.len() as u64,
            e_tag: (self.tokens != Tokens::Mtime || !key.starts_with(LAKE)).then(|| object.etag.clone()),
            version: None,
        })
    }

    /// The bytes that `options` ask for.
    pub(crate) fn get(&self, key: &str, options: &GetOptions) -> Result<(ObjectMeta, Range<u64>, Bytes)> {
        let meta = self.meta(key)?;
        options.check_preconditions(&meta)?;
        let range = match &options.range {
            Some(range) => range.as_range(meta.size).map_err(|e| failure(key, &e.to_string()))?,
            None => 0..meta.size,
        };
        let bytes = self.objects[key].bytes.slice(range.start as usize..range.end as usize);
        Ok((meta, range, bytes))
    }

    /// Everything below `prefix`, sorted.
    pub(crate) fn list(&self, prefix: &str) -> Result<Vec<ObjectMeta>> {
        self.below(prefix).map(|key| self.meta(key)).collect()
    }

    fn below(&self, prefix: &str) -> impl Iterator<Item = &String> {
        let start = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        let end = start.clone();
        self.objects.range(start..).map(|(key, _)| key).take_while(move |key| key.starts_with(&end))
    }

    /// What is right below `prefix`.
    pub(crate) fn level(&self, prefix: &str) -> Result<ListResult> {
        let start = if prefix.is_empty() { 0 } else { prefix.len() + 1 };
        let mut folders = BTreeSet::new();
        let mut objects = Vec::new();
        for key in self.below(prefix) {
            match key[start..].split_once('/') {
                Some((folder, _)) => drop(folders.insert(format!("{}{folder}", &key[..start]))),
                None => objects.push(self.meta(key)?),
            }
        }
        let common_prefixes = folders.into_iter().map(|folder| Ok(Path::parse(folder)?)).collect::<Result<_>>()?;
        Ok(ListResult { common_prefixes, objects })
    }

    /// Deletes what is there, if it is.
    pub(crate) fn delete(&mut self, key: &str) {
        if self.objects.remove(key).is_some() {
            self.watch.delete(key);
        }
    }

    /// The bytes of every object below `prefix`, with their keys.
    pub(crate) fn contents(&self, prefix: &str) -> Vec<(String, Bytes)> {
        self.below(prefix).map(|key| (key.clone(), self.objects[key].bytes.clone())).collect()
    }

    /// When the object at `key` was written.
    pub(crate) fn age_ns(&self, key: &str) -> Option<i64> {
        self.objects.get(key).map(|object| self.now_ns - object.modified_ns)
    }
}

/// Uploads in parts.
impl Objects {
    pub(crate) fn begin_upload(&mut self, key: &str) -> String {
        let id = format!("upload-{}", self.count());
        let upload = Upload { key: key.to_owned(), parts: BTreeMap::new(), since_ns: self.now_ns };
        self.uploads.insert(id.clone(), upload);
        id
    }

    fn upload(&mut self, key: &str, id: &str) -> Result<&mut Upload> {
        let gone = || failure(key, "NoSuchUpload");
        self.uploads.get_mut(id).filter(|upload| upload.key == key).ok_or_else(gone)
    }

    pub(crate) fn put_part(&mut self, key: &str, id: &str, part: usize, bytes: Bytes) -> Result<String> {
        self.upload(key, id)?.parts.insert(part, bytes);
        Ok(format!("part-{part}"))
    }

    pub(crate) fn complete(&mut self, key: &str, id: &str, parts: usize) -> Result<String> {
        let gone = self.upload(key, id).is_err();
        if gone && self.objects.contains_key(key) {
            self.seen.note(Situation::FoundVisible);
        }
        let upload = self.upload(key, id)?;
        if upload.parts.len() != parts {
            return Err(failure(key, "InvalidPart"));
        }
        let bytes: Bytes = upload.parts.values().flatten().copied().collect();
        self.uploads.remove(id);
        self.watch.complete(key, self.objects.contains_key(key));
        Ok(self.insert(key, bytes))
    }

    pub(crate) fn abort(&mut self, key: &str, id: &str) -> Result<()> {
        self.upload(key, id)?;
        self.uploads.remove(id);
        Ok(())
    }

    /// The uploads that are older than `age_ns`, with their keys.
    pub(crate) fn uploads_older_than(&self, age_ns: i64) -> Vec<(String, String)> {
        let old = self.uploads.iter().filter(|(_, upload)| self.now_ns - upload.since_ns > age_ns);
        old.map(|(id, upload)| (upload.key.clone(), id.clone())).collect()
    }
}
