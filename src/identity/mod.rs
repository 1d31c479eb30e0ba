//! What tells one source atom from another: root, raw path, size, token, coverage.

mod atom;
mod file;
mod ids;
mod root;
mod table;

pub use atom::AtomKey;
pub(crate) use file::same_etag;
pub use file::{Evidence, FileVersion, Sameness};
pub use ids::{AttemptNonce, CheckpointId, Epoch, InputId, ManifestVersion, StoreId};
pub use root::Root;
pub use table::{IMMUTABLE, TableFile, TablePosition, TableStep};
