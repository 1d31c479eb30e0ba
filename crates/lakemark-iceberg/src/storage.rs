//! A table's objects as the iceberg crate reads and writes them.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::stream::BoxStream;
use iceberg::io::{FileMetadata, FileRead, FileWrite, InputFile, OutputFile, Storage, StorageConfig, StorageFactory};
use iceberg::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::place::Place;

/// Objects at a place: metadata is small and is read and created whole. The crate wants storage that can be written down,
/// which this one never is.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct TableStorage {
    #[serde(skip)]
    place: Option<Place>,
}

impl fmt::Debug for TableStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.place.as_ref().map_or("nowhere", |place| &place.location))
    }
}

impl TableStorage {
    pub(crate) fn new(place: Place) -> Self {
        Self { place: Some(place) }
    }

    fn place(&self) -> Result<&Place> {
        self.place.as_ref().ok_or_else(|| Error::new(ErrorKind::Unexpected, "this storage was written down"))
    }

    async fn get(&self, path: &str) -> Result<Bytes> {
        self.place()?.read(path).await.map_err(|e| failed("cannot be read", path, e))
    }
}

fn failed(what: &str, path: &str, error: object_store::Error) -> Error {
    Error::new(ErrorKind::Unexpected, format!("{path} {what}")).with_source(error)
}

fn never(what: &str) -> Error {
    Error::new(ErrorKind::FeatureUnsupported, format!("lakemark does not {what} what a table consists of"))
}

#[typetag::serde(name = "lakemark")]
impl StorageFactory for TableStorage {
    fn build(&self, _config: &StorageConfig) -> Result<Arc<dyn Storage>> {
        Ok(Arc::new(self.clone()))
    }
}

#[async_trait]
#[typetag::serde(name = "lakemark")]
impl Storage for TableStorage {
    async fn exists(&self, path: &str) -> Result<bool> {
        match self.place()?.read(path).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(failed("cannot be read", path, error)),
        }
    }

    async fn metadata(&self, path: &str) -> Result<FileMetadata> {
        Ok(FileMetadata { size: self.get(path).await?.len() as u64 })
    }

    async fn read(&self, path: &str) -> Result<Bytes> {
        self.get(path).await
    }

    async fn reader(&self, path: &str) -> Result<Box<dyn FileRead>> {
        Ok(Box::new(Whole(self.get(path).await?)))
    }

    async fn write(&self, path: &str, bytes: Bytes) -> Result<()> {
        self.place()?.create(path, bytes).await.map_err(|e| failed("cannot be created", path, e))
    }

    async fn writer(&self, path: &str) -> Result<Box<dyn FileWrite>> {
        Ok(Box::new(New { storage: self.clone(), path: path.to_owned(), bytes: Some(BytesMut::new()) }))
    }

    async fn delete(&self, _path: &str) -> Result<()> {
        Err(never("delete"))
    }

    async fn delete_prefix(&self, _path: &str) -> Result<()> {
        Err(never("delete"))
    }

    async fn delete_stream(&self, _paths: BoxStream<'static, String>) -> Result<()> {
        Err(never("delete"))
    }

    fn new_input(&self, path: &str) -> Result<InputFile> {
        Ok(InputFile::new(Arc::new(self.clone()), path.to_owned()))
    }

    fn new_output(&self, path: &str) -> Result<OutputFile> {
        Ok(OutputFile::new(Arc::new(self.clone()), path.to_owned()))
    }
}

/// An object that was read.
struct Whole(Bytes);

#[async_trait]
impl FileRead for Whole {
    async fn read(&self, range: Range<u64>) -> Result<Bytes> {
        let (from, to) = (range.start as usize, range.end as usize);
        if from > to || to > self.0.len() {
            return Err(Error::new(ErrorKind::DataInvalid, format!("{from}..{to} is not in {} bytes", self.0.len())));
        }
        Ok(self.0.slice(from..to))
    }
}

/// An object that is created when it is closed.
struct New {
    storage: TableStorage,
    path: String,
    bytes: Option<BytesMut>,
}

#[async_trait]
impl FileWrite for New {
    async fn write(&mut self, bytes: Bytes) -> Result<()> {
        let kept = self.bytes.as_mut().ok_or_else(|| Error::new(ErrorKind::DataInvalid, "the file is closed"))?;
        kept.extend_from_slice(&bytes);
        Ok(())
    }

    async fn close(&mut self) -> Result<()> {
        let bytes = self.bytes.take().ok_or_else(|| Error::new(ErrorKind::DataInvalid, "the file is closed"))?;
        self.storage.write(&self.path, bytes.freeze()).await
    }
}
