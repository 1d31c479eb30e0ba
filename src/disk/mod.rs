//! Local disks, with durability before success.
//!
//! [`Disk`] is every change lakemark makes on a local file system, as single steps that can be counted, refused or
//! lost; [`DiskStore`] is the part of an object store the protocol needs, on a [`Disk`].

mod folders;
mod fs;
#[cfg(feature = "testing")]
mod lossy;
mod store;

pub(crate) use folders::DurableFolders;
pub use fs::{Disk, RealDisk, write_durably};
#[cfg(feature = "testing")]
pub use lossy::LossyDisk;
pub use store::DiskStore;
