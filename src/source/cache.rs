//! Footers that were read, for the scan to use again.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use super::footer::Footer;
use crate::identity::FileVersion;

/// A bounded memory of footers, by path, size and token, never by path alone (R19). The oldest leave first.
#[derive(Debug)]
pub(super) struct FooterCache {
    entries: usize,
    bytes: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    footers: HashMap<Key, Arc<Footer>>,
    /// Every key of `footers`, oldest first; also some that were forgotten since.
    order: VecDeque<Key>,
    bytes: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    path: Arc<str>,
    size: u64,
    token: Token,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Token {
    Etag(Arc<str>),
    Mtime(i64),
}

impl Key {
    /// `None` for a file without a token: absent never equals absent.
    fn of(file: &FileVersion) -> Option<Self> {
        let token = match (&file.etag, file.mtime) {
            (Some(etag), _) => Token::Etag(Arc::clone(etag)),
            (None, Some(mtime)) => Token::Mtime(mtime),
            (None, None) => return None,
        };
        Some(Self { path: Arc::clone(&file.path), size: file.size, token })
    }
}

impl FooterCache {
    pub(super) fn new(entries: usize, bytes: usize) -> Self {
        Self { entries, bytes, state: Mutex::default() }
    }

    pub(super) fn get(&self, file: &FileVersion) -> Option<Arc<Footer>> {
        let key = Key::of(file)?;
        self.with(|state| state.footers.get(&key).cloned())
    }

    pub(super) fn put(&self, file: &FileVersion, footer: Arc<Footer>) {
        let Some(key) = Key::of(file) else { return };
        let size = footer.memory_size();
        if size > self.bytes {
            return;
        }
        self.with(|state| {
            state.remove(&key);
            while state.footers.len() >= self.entries || state.bytes + size > self.bytes {
                let Some(oldest) = state.order.pop_front() else { break };
                state.remove(&oldest);
            }
            // Forgotten keys must not pile up.
            if state.order.len() > 2 * self.entries {
                let footers = &state.footers;
                state.order.retain(|key| footers.contains_key(key));
            }
            state.bytes += size;
            state.order.push_back(key.clone());
            state.footers.insert(key, footer);
        });
    }

    pub(super) fn forget(&self, file: &FileVersion) {
        if let Some(key) = Key::of(file) {
            self.with(|state| state.remove(&key));
        }
    }

    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl State {
    fn remove(&mut self, key: &Key) {
        if let Some(footer) = self.footers.remove(key) {
            self.bytes -= footer.memory_size();
        }
    }
}
