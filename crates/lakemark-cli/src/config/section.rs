//! Reading one table of settings: every key is known, or an error that names the nearest one.

use lakemark::{Error, Result};

use super::tree::{Item, Table, Value, join};
use super::values::{Setting, reject};

/// A table while its keys are read. Problems are kept until [`Section::finish`], so that a misspelt key is reported as
/// such and not as the one that is missing.
pub(super) struct Section {
    path: String,
    place: String,
    rest: Table,
    known: Vec<&'static str>,
    missing: Option<&'static str>,
    wrong: Option<Error>,
}

impl Section {
    pub(super) fn open(item: Item, path: &str) -> Result<Self> {
        let Value::Table(rest) = item.value else {
            return Err(reject(&item.place, &item.value, path, "a table"));
        };
        Ok(Self { path: path.to_owned(), place: item.place, rest, known: Vec::new(), missing: None, wrong: None })
    }

    /// Notes that `key` must be there.
    pub(super) fn require(&mut self, key: &'static str) {
        if !self.rest.contains_key(key) {
            self.missing.get_or_insert(key);
        }
    }

    /// The value of `key`.
    pub(super) fn get<T: Setting>(&mut self, key: &'static str, default: T) -> T {
        self.known.push(key);
        let Some(item) = self.rest.remove(key) else {
            return default;
        };
        T::read(item, &self.full(key)).unwrap_or_else(|error| {
            self.wrong.get_or_insert(error);
            default
        })
    }

    /// The first problem, if there is one; else `value`.
    pub(super) fn finish<T>(self, value: T) -> Result<T> {
        if let Some((key, item)) = self.rest.iter().next() {
            return Err(self.unknown(key, &item.place));
        }
        if let Some(error) = self.wrong {
            return Err(error);
        }
        match self.missing {
            Some(key) => Err(Error::invalid(format!("`{}` is missing", self.full(key))).at(&self.place)),
            None => Ok(value),
        }
    }

    fn full(&self, key: &str) -> String {
        join(&self.path, key)
    }

    fn unknown(&self, key: &str, place: &str) -> Error {
        let error = Error::invalid(format!("unknown key `{}`", self.full(key))).at(place);
        match nearest(key, &self.known) {
            Some(name) => error.way(format!("did you mean `{}`?", self.full(name))),
            None => {
                let table = if self.path.is_empty() { "the top level" } else { &self.path };
                error.way(format!("the keys of {table} are {}", self.known.join(", ")))
            }
        }
    }
}

/// The one of `names` that was probably meant by `word`.
pub(super) fn nearest<'a>(word: &str, names: &[&'a str]) -> Option<&'a str> {
    let likeness = |name: &str| strsim::normalized_damerau_levenshtein(&word.to_lowercase(), name);
    let best = names.iter().copied().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(best) >= 0.5).then_some(best)
}
