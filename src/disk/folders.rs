//! Folders whose names are durable.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::fs::Disk;

/// Makes folders and knows which of them are durable.
///
/// That a folder is there does not say so: whoever made it may have failed, or died, before the sync of the folder
/// above. So the first time one is used it is synced there, whether or not it had to be made.
#[derive(Debug)]
pub(crate) struct DurableFolders {
    /// The deepest folder above the base that was there before: not ours to make durable.
    floor: PathBuf,
    known: Mutex<HashSet<PathBuf>>,
}

impl DurableFolders {
    /// For `base`, folders beside it and all below them.
    pub(crate) fn new(base: &Path) -> Self {
        let floor = base.ancestors().skip(1).find(|above| above.is_dir()).unwrap_or(Path::new("")).to_owned();
        Self { floor, known: Mutex::default() }
    }

    /// Makes `dir` and what is missing above it, each durable in the folder above.
    pub(crate) fn ensure(&self, disk: &dyn Disk, dir: &Path) -> io::Result<()> {
        let there = dir.is_dir();
        if there && (self.floor.starts_with(dir) || self.lock().contains(dir)) {
            return Ok(());
        }
        if let Some(above) = dir.parent().filter(|above| !above.as_os_str().is_empty()) {
            self.ensure(disk, above)?;
            disk.create_dir(dir)?;
            match disk.sync_dir(above) {
                // A folder that was made for us inside one we may not open.
                Err(error) if there && error.kind() == io::ErrorKind::PermissionDenied => {}
                synced => synced?,
            }
        }
        self.lock().insert(dir.to_owned());
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<PathBuf>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
