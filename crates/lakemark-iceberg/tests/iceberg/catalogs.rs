//! Catalogs that do not do what they say, or do not say what they did.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use iceberg::table::Table as Loaded;
use iceberg::{Catalog, Namespace, NamespaceIdent, Result, TableCommit, TableCreation, TableIdent};
use lakemark::{CommitDriver, StorageOptions, TableSubject, TableWriter};
use lakemark_iceberg::IcebergTable;

use crate::contract::on_server;
use crate::writers::{one_column, rows};

/// What becomes of a commit.
#[derive(Debug, Clone, Copy)]
enum Lie {
    /// It is told to be done, and is not.
    NotDone,
    /// It is done, and is told to be a conflict.
    Conflict,
    /// It is done, and nothing is told.
    NoAnswer,
}

/// A catalog that lies about the next commits.
#[derive(Debug)]
struct Liar {
    catalog: Arc<dyn Catalog>,
    lie: Lie,
    lies: AtomicU32,
    asked: AtomicU32,
}

#[async_trait]
impl Catalog for Liar {
    async fn update_table(&self, commit: TableCommit) -> Result<Loaded> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if self.lies.swap(0, Ordering::SeqCst) == 0 {
            return self.catalog.update_table(commit).await;
        }
        let conflict = iceberg::Error::new(iceberg::ErrorKind::CatalogCommitConflicts, "a lie").with_retryable(true);
        match self.lie {
            Lie::NotDone => {
                let table = self.catalog.load_table(commit.identifier()).await?;
                commit.apply(table)
            }
            Lie::Conflict => self.catalog.update_table(commit).await.and(Err(conflict)),
            Lie::NoAnswer => {
                let unknown = iceberg::Error::new(iceberg::ErrorKind::Unexpected, "gone").with_retryable(true);
                self.catalog.update_table(commit).await.and(Err(unknown))
            }
        }
    }

    async fn load_table(&self, table: &TableIdent) -> Result<Loaded> {
        self.catalog.load_table(table).await
    }

    async fn list_namespaces(&self, parent: Option<&NamespaceIdent>) -> Result<Vec<NamespaceIdent>> {
        self.catalog.list_namespaces(parent).await
    }

    async fn create_namespace(&self, name: &NamespaceIdent, with: HashMap<String, String>) -> Result<Namespace> {
        self.catalog.create_namespace(name, with).await
    }

    async fn get_namespace(&self, name: &NamespaceIdent) -> Result<Namespace> {
        self.catalog.get_namespace(name).await
    }

    async fn namespace_exists(&self, name: &NamespaceIdent) -> Result<bool> {
        self.catalog.namespace_exists(name).await
    }

    async fn update_namespace(&self, name: &NamespaceIdent, with: HashMap<String, String>) -> Result<()> {
        self.catalog.update_namespace(name, with).await
    }

    async fn drop_namespace(&self, name: &NamespaceIdent) -> Result<()> {
        self.catalog.drop_namespace(name).await
    }

    async fn list_tables(&self, namespace: &NamespaceIdent) -> Result<Vec<TableIdent>> {
        self.catalog.list_tables(namespace).await
    }

    async fn create_table(&self, namespace: &NamespaceIdent, creation: TableCreation) -> Result<Loaded> {
        self.catalog.create_table(namespace, creation).await
    }

    async fn drop_table(&self, table: &TableIdent) -> Result<()> {
        self.catalog.drop_table(table).await
    }

    async fn purge_table(&self, table: &TableIdent) -> Result<()> {
        self.catalog.purge_table(table).await
    }

    async fn table_exists(&self, table: &TableIdent) -> Result<bool> {
        self.catalog.table_exists(table).await
    }

    async fn rename_table(&self, from: &TableIdent, to: &TableIdent) -> Result<()> {
        self.catalog.rename_table(from, to).await
    }

    async fn register_table(&self, table: &TableIdent, location: String) -> Result<Loaded> {
        self.catalog.register_table(table, location).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_a_catalog_says_is_looked_at() {
    for (n, (lie, asked)) in [(Lie::NotDone, 6), (Lie::Conflict, 3), (Lie::NoAnswer, 3)].into_iter().enumerate() {
        let url = format!("memory://liar/{n}");
        let (subject, files) = on_server(&url, &url);
        let liar =
            Liar { catalog: Arc::clone(&subject.catalog), lie, lies: AtomicU32::new(0), asked: AtomicU32::new(0) };
        let liar = Arc::new(liar);
        let name = TableIdent::from_strs(["lake", "docs"]).unwrap();
        let table = IcebergTable::in_catalog(&url, &StorageOptions::default(), Arc::clone(&liar) as _, name).unwrap();
        let sink = Arc::new(CommitDriver::new(table, files).with_pause(std::time::Duration::ZERO));
        let mut writer = TableWriter::new(sink, &one_column(), &[]).await;
        for from in 0..3 {
            liar.lies.store(1, Ordering::SeqCst);
            writer.add(&rows(from..from + 1)).await;
            let mut wanted: Vec<String> = writer.committed.iter().map(lakemark::OutputFile::path).collect();
            wanted.sort_unstable();
            assert_eq!(subject.live_paths().await, wanted, "{lie:?}: each once");
        }
        let snapshots = subject.loaded().await.unwrap().metadata().snapshots().len();
        assert_eq!(snapshots, 3, "{lie:?}: one commit is one snapshot");
        assert_eq!(liar.asked.load(Ordering::SeqCst), asked, "{lie:?}: nothing is asked behind the driver's back");
    }
}

/// A server whose answers are lost by what is between: 504.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn answers_that_a_gateway_lost_are_looked_up() {
    let (subject, files) = on_server("memory://gateway/1", "memory://gateway/1");
    let sink = CommitDriver::new(subject.open(), files).with_pause(std::time::Duration::ZERO);
    let mut writer = TableWriter::new(Arc::new(sink), &one_column(), &[]).await;
    for from in 0..3 {
        subject.rest.as_ref().unwrap().lose(1);
        writer.add(&rows(from..from + 1)).await;
        assert_eq!(subject.live_paths().await.len(), writer.committed.len());
    }
}
