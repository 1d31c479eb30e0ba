//! How an object store is reached.

use std::collections::BTreeMap;
use std::fmt;

/// Settings of an object store, under object_store's own key names (`aws_region`, `endpoint`, `allow_http`, ...). What is
/// not given comes from the environment (`AWS_*`, `GOOGLE_*`, `AZURE_*`) and then from the machine's own credentials.
///
/// They hold credentials: nothing shows their values, and nothing stores them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StorageOptions(BTreeMap<String, String>);

impl StorageOptions {
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// The server that is named, if any: no secret.
    pub(crate) fn endpoint(&self) -> &str {
        let named = |key: &&str| key.to_ascii_lowercase().ends_with("endpoint") || key.ends_with("base_url");
        self.0.iter().find(|(key, _)| named(&key.as_str())).map_or("", |(_, value)| value)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for StorageOptions {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(options: I) -> Self {
        Self(options.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }
}

impl fmt::Debug for StorageOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
