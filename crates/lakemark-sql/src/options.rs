//! The options of a source: each is known, or an error that names the nearest one.

use std::collections::BTreeMap;

use lakemark::{Error, Result, StorageOptions};

use crate::name::nearest;

/// Options not taken yet. No `Debug`: they hold passwords.
pub(crate) struct Options(BTreeMap<String, String>);

impl Options {
    pub(crate) fn new(options: &StorageOptions) -> Self {
        Self(options.iter().map(|(key, value)| (key.to_ascii_lowercase(), value.to_owned())).collect())
    }

    pub(crate) fn take(&mut self, key: &str) -> Option<String> {
        self.0.remove(key)
    }

    /// Refuses what is left; `known` are all there are. Names are shown, values never.
    pub(crate) fn none_left(self, known: &[&str]) -> Result<()> {
        let Some(key) = self.0.into_keys().next() else { return Ok(()) };
        let error = Error::invalid(format!("`{key}` is no option of this database"));
        match nearest(&key, known.iter().map(|&name| name.to_owned()).collect()).first() {
            Some(name) => {
                Err(error.way(format!("did you mean `{name}`?")).way(format!("options: {}", known.join(", "))))
            }
            None => Err(error.way("leave `storage_options` out")),
        }
    }
}
