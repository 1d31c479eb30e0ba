//! Object stores by URL: S3 and what speaks its protocol, Google Cloud Storage, Azure Blob Storage, memory.

#[cfg(any(feature = "aws", feature = "azure", feature = "gcp"))]
mod cloud;
mod connect;
mod options;

pub use connect::Bucket;
pub(crate) use connect::exact_key;
pub use options::StorageOptions;
