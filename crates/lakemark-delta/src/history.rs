//! What entries of the log say of commits of lakemark and of what took the table back.

use futures::{StreamExt, TryStreamExt, stream};
use lakemark::{Error, ErrorKind, History, Marker, Result, StoreId};
use object_store::ObjectStoreExt;
use serde_json::Value;

use crate::entry::APPLICATION;
use crate::place::{Place, entry_path};

/// Entries that are read at a time.
const READS: usize = 16;
/// The newest entries in which stores are looked for.
const NEWEST: u64 = 20;

/// What is kept of one entry.
#[derive(Debug, Default)]
struct Said {
    transactions: Vec<(String, u64)>,
    digest: String,
    /// That of a RESTORE, if it says to which version.
    restored: Option<Option<u64>>,
}

impl Said {
    /// Takes what one line says. Most are of files, and are not parsed.
    fn take(&mut self, line: &[u8]) -> serde_json::Result<()> {
        let has = |key: &[u8]| line.windows(key.len()).any(|at| at == key);
        if !has(b"\"commitInfo\"") && !has(b"\"txn\"") {
            return Ok(());
        }
        let line: Value = serde_json::from_slice(line)?;
        let info = &line["commitInfo"];
        if let Some(digest) = info["lakemark"]["digest"].as_str() {
            digest.clone_into(&mut self.digest);
        }
        if info["operation"].as_str() == Some("RESTORE") {
            let to = &info["operationParameters"]["version"];
            self.restored = Some(to.as_u64().or_else(|| to.as_str()?.parse().ok()));
        }
        let (application, version) = (line["txn"]["appId"].as_str(), line["txn"]["version"].as_u64());
        self.transactions.extend(application.map(str::to_owned).zip(version));
        Ok(())
    }

    /// The transaction of `store`.
    fn of(&self, store: StoreId) -> Option<u64> {
        let application = format!("{APPLICATION}{store}");
        self.transactions.iter().find(|transaction| transaction.0 == application).map(|transaction| transaction.1)
    }
}

/// Reads the entry of `version`, line by line; `None`: there is none.
async fn read(place: Place, version: u64) -> Result<Option<Said>> {
    let mut said = Said::default();
    let is_there = each_line(&place, version, |line| said.take(line)).await?;
    Ok(is_there.then_some(said))
}

/// Gives the lines of the entry of `version` to `take`. Whether there is one.
pub(crate) async fn each_line(
    place: &Place,
    version: u64,
    mut take: impl FnMut(&[u8]) -> serde_json::Result<()>,
) -> Result<bool> {
    let path = entry_path(version);
    let failed = |e| place.unavailable("an entry of the log cannot be read", e);
    let mut chunks = match place.objects.get(&path).await {
        Ok(entry) => entry.into_stream(),
        Err(object_store::Error::NotFound { .. }) => return Ok(false),
        Err(error) => return Err(failed(error)),
    };
    let damaged = |e: serde_json::Error| {
        Error::new(ErrorKind::Corrupt, "an entry of the log is no JSON")
            .at(place.root.place(path.as_ref()))
            .safe("nothing was changed")
            .way("mend the table with its own tools")
            .caused_by(e)
    };
    let mut rest = Vec::new();
    while let Some(chunk) = chunks.try_next().await.map_err(failed)? {
        let mut lines = chunk.split(|byte| *byte == b'\n').peekable();
        while let Some(part) = lines.next() {
            rest.extend_from_slice(part);
            if lines.peek().is_some() {
                take(&rest).map_err(damaged)?;
                rest.clear();
            }
        }
    }
    take(&rest).map_err(damaged)?;
    Ok(true)
}

/// The history of the versions after `since` (all, for `None`) up to `last`, as the entries tell it: strays are among them.
pub(crate) async fn history(place: &Place, since: Option<u64>, last: u64, store: StoreId) -> Result<History> {
    let first = since.map_or(0, |since| since + 1);
    let entries = (first..=last).map(|version| {
        let place = place.clone();
        async move { Ok::<_, Error>((version, read(place, version).await?)) }
    });
    let mut entries = stream::iter(entries).buffered(READS);
    let mut history = History::default();
    while let Some((version, said)) = entries.try_next().await? {
        let Some(said) = said else {
            history.gap.get_or_insert(version);
            continue;
        };
        if let Some(n) = said.of(store) {
            history.markers.push(Marker { n, digest: said.digest, version });
        }
        if let Some((to, since)) = said.restored.zip(since)
            && to.is_none_or(|to| to < since)
        {
            let to = to.map_or_else(|| "an older state".to_owned(), |to| format!("version {to}"));
            history.rolled_back = Some(format!("version {version} restored {to}"));
        }
    }
    Ok(history)
}

/// Leaves out entries that no reader sees: a writer that stalled can create an entry under a name that a clean-up of the log
/// has freed. Numbers of one store only grow from version to version, and the last is in the state of the table: a marker
/// that does not fit is of such an entry, and what the version once held is not known. `known` is the number in the state.
pub(crate) fn leave_out_strays(history: &mut History, known: Option<u64>) {
    let mut limit = known.map_or(0, |known| known.saturating_add(1));
    let mut kept = Vec::new();
    for marker in std::mem::take(&mut history.markers).into_iter().rev() {
        if marker.n < limit {
            limit = marker.n;
            kept.push(marker);
        } else {
            let gap = history.gap.map_or(marker.version, |gap| gap.min(marker.version));
            history.gap = Some(gap);
        }
    }
    kept.reverse();
    history.markers = kept;
}

/// A store other than `store` that has a transaction in one of the newest entries up to `last`.
pub(crate) async fn other_store(place: &Place, last: u64, store: Option<StoreId>) -> Result<Option<StoreId>> {
    let entries = (last.saturating_sub(NEWEST - 1)..=last).rev().map(|version| read(place.clone(), version));
    let mut entries = stream::iter(entries).buffered(READS);
    while let Some(said) = entries.try_next().await? {
        let transactions = said.map(|said| said.transactions).unwrap_or_default();
        let mut stores = transactions.iter().filter_map(|(application, _)| {
            application.strip_prefix(APPLICATION).and_then(|id| id.parse::<StoreId>().ok())
        });
        if let Some(other) = stores.find(|other| Some(*other) != store) {
            return Ok(Some(other));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use lakemark::{Bucket, Root, StorageOptions};

    use super::*;

    fn marker(n: u64, version: u64) -> Marker {
        Marker { n, digest: "d".into(), version }
    }

    #[test]
    fn entries_that_no_reader_sees_are_no_markers() {
        let kept = |markers: &[Marker], known: Option<u64>| {
            let mut history = History { markers: markers.to_vec(), ..History::default() };
            leave_out_strays(&mut history, known);
            (history.markers.iter().map(|marker| marker.version).collect::<Vec<_>>(), history.gap)
        };
        assert_eq!(kept(&[marker(1, 3), marker(2, 5)], Some(2)), (vec![3, 5], None));
        assert_eq!(kept(&[marker(1, 3), marker(2, 5)], Some(1)), (vec![3], Some(5)), "not in the state");
        assert_eq!(kept(&[marker(2, 3)], None), (vec![], Some(3)), "nothing of the store is");
        assert_eq!(kept(&[marker(2, 3), marker(2, 5)], Some(2)), (vec![5], Some(3)), "twice");
        assert_eq!(kept(&[marker(3, 3), marker(2, 5)], Some(3)), (vec![5], Some(3)), "out of order");
    }

    #[tokio::test]
    async fn the_last_line_counts_whether_or_not_it_is_ended() {
        let root = Root::parse("memory://history/last-line").unwrap();
        let bucket = Bucket::connect(&root, &StorageOptions::default()).unwrap();
        let place = Place::in_bucket(root, &bucket).unwrap();
        let stores = [StoreId::random(), StoreId::random()];
        for (version, end) in [(0, ""), (1, "\n")] {
            let store = stores[version as usize];
            let line = format!(r#"{{"txn":{{"appId":"lakemark-{store}","version":1}}}}"#);
            let text = format!("{{\"add\":{{}}}}\n{line}{end}");
            place.entries.put(&entry_path(version), text.into()).await.unwrap();
            assert_eq!(other_store(&place, version, None).await.unwrap(), Some(store));
        }
        assert_eq!(other_store(&place, 1, Some(stores[1])).await.unwrap(), Some(stores[0]), "each of the newest");
        assert_eq!(history(&place, None, 2, stores[0]).await.unwrap().gap, Some(2));
    }

    #[test]
    fn a_restore_says_its_version_in_either_way_or_not() {
        for (parameters, to) in [
            (r#"{"version":"3"}"#, Some(3)),
            (r#"{"version":3}"#, Some(3)),
            (r#"{"timestamp":"2024-01-01"}"#, None),
            (r#"{"version":"x"}"#, None),
        ] {
            let mut said = Said::default();
            let line = format!(r#"{{"commitInfo":{{"operation":"RESTORE","operationParameters":{parameters}}}}}"#);
            said.take(line.as_bytes()).unwrap();
            assert_eq!(said.restored, Some(to), "{parameters}");
        }
        let mut said = Said::default();
        said.take(br#"{"add":{"path":"x"}"#).unwrap();
        assert!(said.take(br#"{"txn":"#).is_err(), "what is cut is not taken for something else");
    }
}
