//! The client of each provider that this build has, from storage options and the environment.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use object_store::multipart::MultipartStore;
use object_store::{ObjectStore, RetryConfig};

use super::connect::Bucket;
use super::options::StorageOptions;
use crate::error::{Error, Result};
use crate::identity::Root;

/// A request is repeated a few times by the client; what then fails is repeated by who asked, within its own budget.
fn retry() -> RetryConfig {
    RetryConfig { max_retries: 3, retry_timeout: Duration::from_secs(60), ..RetryConfig::default() }
}

fn unknown_key(root: &Root, key: &str) -> Error {
    Error::invalid(format!("`{key}` is no storage option of {}", root.scheme()))
        .at(root)
        .safe("nothing was read or written")
        .way("use the keys of the object_store crate, such as `endpoint`, `region`, `allow_http`")
}

fn opened<S: ObjectStore + MultipartStore>(root: &Root, built: object_store::Result<S>) -> Result<Bucket> {
    built.map(|store| Bucket::of(Arc::new(store))).map_err(|error| {
        Error::invalid("the object store cannot be opened with these options")
            .at(root)
            .safe("nothing was read or written")
            .way("check `storage_options`, and the environment variables of the provider")
            .caused_by(error)
    })
}

/// Gives `builder` each option `with` its key; one that says another `place` than the URL is refused.
fn apply<B, K: FromStr>(
    root: &Root,
    options: &StorageOptions,
    place: &str,
    builder: B,
    is_elsewhere: impl Fn(&K, &str) -> bool,
    with: impl Fn(B, K, &str) -> B,
) -> Result<B> {
    options.iter().try_fold(builder, |builder, (key, value)| {
        let known: K = key.to_ascii_lowercase().parse().map_err(|_| unknown_key(root, key))?;
        if is_elsewhere(&known, value) {
            return Err(Error::invalid(format!("`{key}` names another {place} than the URL")).at(root));
        }
        Ok(with(builder, known, value))
    })
}

#[cfg(feature = "aws")]
pub(super) fn s3(root: &Root, options: &StorageOptions) -> Result<Bucket> {
    use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
    let bucket = root.bucket().unwrap_or_default();
    let builder = AmazonS3Builder::from_env().with_bucket_name(bucket).with_retry(retry());
    let is_elsewhere = |key: &AmazonS3ConfigKey, value: &str| *key == AmazonS3ConfigKey::Bucket && value != bucket;
    let builder =
        apply(root, options, "bucket", builder, is_elsewhere, |builder, key, value| builder.with_config(key, value))?;
    opened(root, builder.build())
}

#[cfg(feature = "gcp")]
pub(super) fn gs(root: &Root, options: &StorageOptions) -> Result<Bucket> {
    use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
    let bucket = root.bucket().unwrap_or_default();
    let builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket).with_retry(retry());
    let is_elsewhere = |key: &GoogleConfigKey, value: &str| *key == GoogleConfigKey::Bucket && value != bucket;
    let builder =
        apply(root, options, "bucket", builder, is_elsewhere, |builder, key, value| builder.with_config(key, value))?;
    opened(root, builder.build())
}

#[cfg(feature = "azure")]
pub(super) fn az(root: &Root, options: &StorageOptions) -> Result<Bucket> {
    use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
    let container = root.bucket().unwrap_or_default();
    let mut builder = MicrosoftAzureBuilder::from_env().with_container_name(container).with_retry(retry());
    if let Some(account) = root.account() {
        builder = builder.with_account(account);
    }
    let is_elsewhere = |key: &AzureConfigKey, value: &str| match key {
        AzureConfigKey::ContainerName => value != container,
        AzureConfigKey::AccountName => root.account().is_some_and(|account| value != account),
        _ => false,
    };
    let builder =
        apply(root, options, "place", builder, is_elsewhere, |builder, key, value| builder.with_config(key, value))?;
    opened(root, builder.build())
}
