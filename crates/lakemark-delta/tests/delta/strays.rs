//! Entries that land where no reader looks: the name of an old one is free once the log is cleaned up.

use arrow_schema::Schema;
use lakemark::{Attempted, DataFiles, OutputFile, StoreId, Table, TableCommit, TableSubject};
use lakemark_delta::{DeltaBase, DeltaTable};

use crate::contract::in_bucket;
use crate::subject::{Subject, one_column};

/// A table in a bucket, and a store that commits no files to it.
struct Scene {
    subject: Subject,
    store: StoreId,
}

impl Scene {
    fn new() -> Self {
        let (subject, _): (Subject, DataFiles) = in_bucket(0);
        Self { subject, store: StoreId::random() }
    }

    fn table(&self) -> DeltaTable {
        let schema: &Schema = &one_column();
        self.subject.open().with_rows(schema)
    }

    async fn base(&self) -> Option<DeltaBase> {
        self.table().load().await.unwrap()
    }

    async fn append(&self, base: Option<&DeltaBase>, n: u64, digest: &str) -> Attempted {
        let files: &[OutputFile] = &[];
        self.table().append(base, &TableCommit { store: self.store, n, digest, files, leaving: &[] }).await.unwrap()
    }
}

fn is_unknown(attempted: &Attempted) -> bool {
    matches!(attempted, Attempted::Unknown(error) if error.to_string().contains("looked up first"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_under_a_freed_name_has_not_landed_and_is_no_marker() {
    let scene = Scene::new();
    assert!(matches!(scene.append(None, 1, "one").await, Attempted::Landed(_)));
    let stale = scene.base().await.unwrap();
    for _ in 0..3 {
        scene.subject.foreign_append().await;
    }
    scene.subject.clean_log().await;
    let attempted = scene.append(Some(&stale), 2, "two").await;
    assert!(is_unknown(&attempted), "{attempted:?}");
    let base = scene.base().await.unwrap();
    assert_eq!(scene.table().last_marker(&base, scene.store).await.unwrap(), Some(1));
    let history = scene.table().history(&base, Some(stale.version()), scene.store).await.unwrap();
    assert_eq!((history.markers, history.gap), (Vec::new(), Some(1)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_entry_under_a_freed_name_has_not_made_the_table() {
    let scene = Scene::new();
    for _ in 0..3 {
        scene.subject.foreign_append().await;
    }
    scene.subject.clean_log().await;
    let attempted = scene.append(None, 1, "one").await;
    assert!(is_unknown(&attempted), "{attempted:?}");
    let history = scene.table().history(&scene.base().await.unwrap(), None, scene.store).await.unwrap();
    assert_eq!((history.markers, history.gap), (Vec::new(), Some(0)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_in_another_table_has_not_landed() {
    let scene = Scene::new();
    assert!(matches!(scene.append(None, 1, "one").await, Attempted::Landed(_)));
    scene.subject.foreign_append().await;
    scene.subject.foreign_append().await;
    let stale = scene.base().await.unwrap();
    scene.subject.recreate().await;
    let attempted = scene.append(Some(&stale), 2, "two").await;
    assert!(is_unknown(&attempted), "{attempted:?}");
}

/// The entry of the truth is the later one: what is under a freed name is older than the state.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_entries_with_one_number_the_later_one_is_in_the_table() {
    let scene = Scene::new();
    assert!(matches!(scene.append(None, 1, "one").await, Attempted::Landed(_)));
    let stale = scene.base().await.unwrap();
    scene.subject.foreign_append().await;
    let attempted = scene.append(scene.base().await.as_ref(), 2, lakemark::VOID).await;
    assert!(matches!(attempted, Attempted::Landed(_)), "{attempted:?}");
    scene.subject.clean_log().await;
    let attempted = scene.append(Some(&stale), 2, "two").await;
    assert!(is_unknown(&attempted), "{attempted:?}");
    let base = scene.base().await.unwrap();
    let history = scene.table().history(&base, Some(stale.version()), scene.store).await.unwrap();
    let digests: Vec<_> = history.markers.iter().map(|marker| (marker.n, marker.digest.as_str())).collect();
    assert_eq!((digests, history.gap), (vec![(2, lakemark::VOID)], Some(1)));
}
