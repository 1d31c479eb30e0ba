//! Errors across the border to DataFusion, without losing their kind.

use std::error::Error as StdError;

use datafusion::error::DataFusionError;
use lakemark::{Error, ErrorKind};

/// A lakemark error on its way through DataFusion.
pub fn to_datafusion(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// The lakemark error inside `error` if there is one; else what DataFusion says, as `kind`.
pub fn from_datafusion(error: DataFusionError, kind: ErrorKind, what: &str) -> Error {
    if let Some(kind) = inner_kind(&error) {
        // Keep the whole chain for people; the kind and the text are those of the lakemark error.
        return match root_error(error) {
            Ok(ours) => ours,
            Err(other) => Error::new(kind, what).caused_by(other),
        };
    }
    let kind = if is_resources(&error) { ErrorKind::Unavailable } else { kind };
    Error::new(kind, format!("{what}: {}", error.strip_backtrace()))
}

fn inner_kind(error: &(dyn StdError + 'static)) -> Option<ErrorKind> {
    Error::find(error).map(Error::kind)
}

/// Takes our error out of the wrappers that DataFusion puts around it.
fn root_error(error: DataFusionError) -> Result<Error, DataFusionError> {
    match error {
        DataFusionError::External(inner) => match inner.downcast::<Error>() {
            Ok(ours) => Ok(*ours),
            Err(inner) => match inner.downcast::<datafusion::parquet::errors::ParquetError>() {
                Ok(parquet) => root_error(DataFusionError::ParquetError(parquet)),
                Err(inner) => Err(DataFusionError::External(inner)),
            },
        },
        DataFusionError::Context(_, inner) => root_error(*inner),
        DataFusionError::ParquetError(parquet) => match *parquet {
            datafusion::parquet::errors::ParquetError::External(inner) => match inner.downcast::<Error>() {
                Ok(ours) => Ok(*ours),
                Err(inner) => Err(DataFusionError::External(inner)),
            },
            other => Err(DataFusionError::ParquetError(Box::new(other))),
        },
        DataFusionError::ObjectStore(store) => match *store {
            object_store::Error::Generic { source, .. } if source.is::<Error>() => {
                root_error(DataFusionError::External(source))
            }
            other => Err(DataFusionError::ObjectStore(Box::new(other))),
        },
        DataFusionError::ArrowError(arrow, backtrace) => match *arrow {
            datafusion::arrow::error::ArrowError::ExternalError(inner) => root_error(DataFusionError::External(inner)),
            other => Err(DataFusionError::ArrowError(Box::new(other), backtrace)),
        },
        other => Err(other),
    }
}

fn is_resources(error: &DataFusionError) -> bool {
    matches!(
        error.find_root(),
        DataFusionError::ResourcesExhausted(_) | DataFusionError::IoError(_) | DataFusionError::ObjectStore(_)
    )
}
