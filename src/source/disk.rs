//! Listing a directory tree on a disk.

use std::collections::HashMap;
use std::fs::{self, DirEntry, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use super::counters::SourceCounters;
use super::listing::{DELTA_LOG, Found, is_hidden};
use super::select::Select;
use crate::error::{Error, ErrorKind, Result};
use crate::identity::FileVersion;

/// How many links to directories may lie on the way to a file; more is taken for a maze of links.
const LINKS_ON_THE_WAY: usize = 8;

/// Everything below `root` that `select` selects.
///
/// Symbolic links (R40): a link to a file that is listed under its own name is dropped; links to other files, and links
/// to directories outside the root, are followed under the name they have here; a link to a directory inside the root,
/// or back to one on the way, is dropped. What is dropped is warned of, what leads nowhere is unusable.
///
/// # Errors
/// A directory that cannot be read fails the whole listing: a part of a listing looks like deleted files. What vanishes
/// while the listing runs is left out.
pub(super) fn list(root: &Path, select: &Select, counters: &SourceCounters) -> Result<Found> {
    let real = root.canonicalize().map_err(|e| unreadable(root, e))?;
    let first = Dir { path: String::new(), at: root.to_owned(), outside: None, anchors: Arc::new(vec![real]) };
    let walk = Walk {
        select,
        counters,
        queue: Mutex::new(Queue { dirs: vec![first], ..Queue::default() }),
        ready: Condvar::new(),
    };
    let workers = thread::available_parallelism().map_or(2, usize::from).clamp(2, 8);
    let mut seen = Seen::default();
    thread::scope(|scope| {
        let handles: Vec<_> = (0..workers).map(|_| scope.spawn(|| walk.work())).collect();
        for handle in handles {
            match handle.join() {
                Ok(part) => seen.extend(part),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    match walk.queue.into_inner().unwrap_or_else(PoisonError::into_inner).failed {
        Some(error) => Err(error),
        None => Ok(seen.settle_links(root)),
    }
}

/// The version of a file as its metadata show it. The inode is no part of it: a restore or a `chmod` changes nothing (R10).
pub(super) fn version(path: impl Into<Arc<str>>, metadata: &Metadata) -> FileVersion {
    let file = FileVersion::new(path, metadata.len());
    let seconds = metadata.mtime().checked_mul(1_000_000_000);
    match seconds.and_then(|ns| ns.checked_add(metadata.mtime_nsec())) {
        Some(mtime) => file.with_mtime(mtime),
        // Beyond the year 2262: no token, so that two such times are never taken for one.
        None => file,
    }
}

/// What could not be read, and what to do about it.
pub(super) fn unreadable(at: &Path, error: io::Error) -> Error {
    let denied = error.kind() == io::ErrorKind::PermissionDenied;
    let found = Error::new(
        ErrorKind::Unavailable,
        if denied { "permission to read it is denied" } else { "it cannot be read" },
    )
    .at(at.display())
    .caused_by(error);
    if denied {
        found.way("give this user permission to read it, then run again")
    } else {
        found.way("run again when it can be read")
    }
}

/// Whether it is no longer there: gone, or a file where a directory was.
pub(super) fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// A directory to read.
struct Dir {
    /// Relative to the root; empty for the root.
    path: String,
    at: PathBuf,
    /// Its real path, if it was reached through a link that leads out of the root.
    outside: Option<PathBuf>,
    /// The real paths of the root and of the linked directories on the way.
    anchors: Arc<Vec<PathBuf>>,
}

#[derive(Default)]
struct Queue {
    dirs: Vec<Dir>,
    busy: usize,
    failed: Option<Error>,
}

struct Walk<'a> {
    select: &'a Select,
    counters: &'a SourceCounters,
    queue: Mutex<Queue>,
    ready: Condvar,
}

/// What one worker has seen.
#[derive(Default)]
struct Seen {
    found: Found,
    /// Links to files, with the real path they lead to.
    links: Vec<(FileVersion, PathBuf)>,
    /// Files below links that lead out of the root, by their real path.
    outside: HashMap<PathBuf, Arc<str>>,
    /// The real path of the root, once a link was met.
    real_root: Option<PathBuf>,
}

impl Walk<'_> {
    fn work(&self) -> Seen {
        let mut seen = Seen::default();
        while let Some(dir) = self.take() {
            let mut below = Vec::new();
            let done = self.read(&dir, &mut seen, &mut below);
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            queue.busy -= 1;
            queue.dirs.append(&mut below);
            if let Err(error) = done {
                queue.failed.get_or_insert(error);
            }
            drop(queue);
            self.ready.notify_all();
        }
        seen
    }

    /// The next directory; `None` once no worker can find another one, or one has failed.
    fn take(&self) -> Option<Dir> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if queue.failed.is_some() {
                return None;
            }
            if let Some(dir) = queue.dirs.pop() {
                queue.busy += 1;
                return Some(dir);
            }
            if queue.busy == 0 {
                return None;
            }
            queue = self.ready.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn read(&self, dir: &Dir, seen: &mut Seen, below: &mut Vec<Dir>) -> Result<()> {
        self.counters.listed();
        let entries = match fs::read_dir(&dir.at) {
            Err(e) if is_gone(&e) && !dir.path.is_empty() => return Ok(()),
            other => other.map_err(|e| unreadable(&dir.at, e))?,
        };
        for entry in entries {
            let entry = entry.map_err(|e| unreadable(&dir.at, e))?;
            self.visit(dir, &entry, seen, below)?;
        }
        Ok(())
    }

    fn visit(&self, dir: &Dir, entry: &DirEntry, seen: &mut Seen, below: &mut Vec<Dir>) -> Result<()> {
        let name = entry.file_name();
        let text = name.to_string_lossy();
        if is_hidden(&text) {
            seen.found.hidden += 1;
            seen.found.has_delta_log |= dir.path.is_empty() && text == DELTA_LOG;
            return Ok(());
        }
        let path = if dir.path.is_empty() { text.clone().into_owned() } else { format!("{}/{text}", dir.path) };
        if name.to_str().is_none() {
            if self.select.accepts(&path) || self.select.descends(&path) {
                seen.found.unusable(path, "its name is not UTF-8");
            }
            return Ok(());
        }
        let kind = match entry.file_type() {
            Err(e) if is_gone(&e) => return Ok(()),
            other => other.map_err(|e| unreadable(&entry.path(), e))?,
        };
        if kind.is_dir() {
            if self.select.descends(&path) {
                let outside = dir.outside.as_ref().map(|real| real.join(&name));
                below.push(Dir { path, at: entry.path(), outside, anchors: Arc::clone(&dir.anchors) });
            }
        } else if kind.is_symlink() {
            self.follow(dir, path, entry.path(), seen, below)?;
        } else if self.select.accepts(&path) {
            if !kind.is_file() {
                seen.found.unusable(path, "it is not a regular file");
                return Ok(());
            }
            match entry.metadata() {
                Err(e) if is_gone(&e) => {}
                other => {
                    let file = version(path, &other.map_err(|e| unreadable(&entry.path(), e))?);
                    if let Some(real) = &dir.outside {
                        seen.outside.insert(real.join(&name), Arc::clone(&file.path));
                    }
                    seen.found.files.push(file);
                }
            }
        }
        Ok(())
    }

    fn follow(&self, dir: &Dir, path: String, at: PathBuf, seen: &mut Seen, below: &mut Vec<Dir>) -> Result<()> {
        if !self.select.accepts(&path) && !self.select.descends(&path) {
            return Ok(());
        }
        let target = match at.canonicalize() {
            Ok(target) => target,
            Err(e) if e.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
                seen.found.unusable(path, "symbolic link that leads back to itself");
                return Ok(());
            }
            Err(e) if is_gone(&e) => {
                if at.is_symlink() {
                    seen.found.unusable(path, "dangling symbolic link");
                }
                return Ok(());
            }
            Err(e) => return Err(unreadable(&at, e)),
        };
        let metadata = match fs::metadata(&target) {
            Err(e) if is_gone(&e) => return Ok(()),
            other => other.map_err(|e| unreadable(&at, e))?,
        };
        if metadata.is_dir() {
            if !self.select.descends(&path) {
                return Ok(());
            }
            if dir.anchors.iter().any(|anchor| target.starts_with(anchor) || anchor.starts_with(&target)) {
                let to = target.display();
                seen.found.warnings.push(format!(
                    "the link `{path}` was not followed: it leads to `{to}`, inside or around what is listed already"
                ));
            } else if dir.anchors.len() > LINKS_ON_THE_WAY {
                seen.found.unusable(path, format!("more than {LINKS_ON_THE_WAY} symbolic links on the way to it"));
            } else {
                let anchors = Arc::new([dir.anchors.as_slice(), std::slice::from_ref(&target)].concat());
                below.push(Dir { path, at, outside: Some(target), anchors });
            }
        } else if self.select.accepts(&path) {
            if metadata.is_file() {
                seen.real_root = dir.anchors.first().cloned();
                seen.links.push((version(path, &metadata), target));
            } else {
                seen.found.unusable(path, "it is not a regular file");
            }
        }
        Ok(())
    }
}

impl Seen {
    fn extend(&mut self, other: Self) {
        self.found.extend(other.found);
        self.links.extend(other.links);
        self.outside.extend(other.outside);
        self.real_root = self.real_root.take().or(other.real_root);
    }

    /// Drops links to files that are listed under their own names.
    fn settle_links(mut self, root: &Path) -> Found {
        if self.links.is_empty() {
            return self.found;
        }
        self.found.files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        self.links.sort_unstable_by(|(a, _), (b, _)| a.path.cmp(&b.path));
        let real_root = self.real_root.as_deref().unwrap_or(root);
        let mut kept: Vec<FileVersion> = Vec::new();
        let mut first: HashMap<PathBuf, Arc<str>> = HashMap::new();
        for (link, target) in self.links {
            let inside = target.strip_prefix(real_root).ok().and_then(Path::to_str);
            let listed = inside.filter(|path| self.found.files.binary_search_by(|f| (*f.path).cmp(path)).is_ok());
            if let Some(name) = listed.or_else(|| self.outside.get(&target).map(|path| &**path)) {
                self.found
                    .warnings
                    .push(format!("the link `{}` was left out: `{name}`, where it leads, is listed itself", link.path));
                continue;
            }
            if let Some(other) = first.get(&target) {
                self.found.warnings.push(format!(
                    "the links `{other}` and `{}` lead to one file, which is listed under both names",
                    link.path
                ));
            }
            first.entry(target).or_insert_with(|| Arc::clone(&link.path));
            kept.push(link);
        }
        self.found.files.append(&mut kept);
        self.found
    }
}
