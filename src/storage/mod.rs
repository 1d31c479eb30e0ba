//! Object stores by URL: S3 and what speaks its protocol, Google Cloud Storage, Azure Blob Storage, memory.

mod connect;
mod options;

pub use connect::Bucket;
pub(crate) use connect::exact_key;
pub use options::StorageOptions;
