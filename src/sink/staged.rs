//! One output file while it is written: in staging, under its final name.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;

use super::output::{Fault, StagedOutput};
use crate::disk::Disk;
use crate::error::{Error, ErrorKind, Result};
use crate::store::Upload;

/// A new file in staging. [`finish`](Self::finish) makes it durable; dropped without, it is removed, since no seal can
/// name it.
#[derive(Debug)]
pub struct StagedFile {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    file: File,
    size: u64,
    finished: bool,
    fault: Fault,
}

impl StagedFile {
    pub(super) fn create(disk: Arc<dyn Disk>, path: PathBuf) -> Result<Self> {
        let file = disk.create_new(&path).map_err(|e| io_error(e, &path))?;
        Ok(Self { disk, path, file, size: 0, finished: false, fault: Fault::default() })
    }

    /// Makes the bytes durable and returns how many. The name is durable after the sink's
    /// [`sync_staged`](super::DirectorySink::sync_staged).
    pub fn finish(mut self) -> Result<u64> {
        self.disk.sync_file(&self.file, &self.path).map_err(|e| io_error(e, &self.path))?;
        self.finished = true;
        Ok(self.size)
    }
}

#[async_trait]
impl StagedOutput for StagedFile {
    async fn settle(&mut self) -> Result<()> {
        Ok(())
    }

    async fn finish(self: Box<Self>) -> Result<(u64, Option<Upload>)> {
        let synced = tokio::task::spawn_blocking(move || StagedFile::finish(*self)).await;
        let interrupted = |e| Error::new(ErrorKind::Indeterminate, "syncing the output was interrupted").caused_by(e);
        Ok((synced.map_err(interrupted)??, None))
    }

    fn fault(&self) -> Fault {
        self.fault.clone()
    }
}

impl Write for StagedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.fault.note(self.file.write(bytes))?;
        self.size += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        if !self.finished {
            // Never named by a seal: its task failed before it could be. A leftover is harmless garbage.
            let _ = self.disk.remove_file(&self.path);
        }
    }
}

/// Too many open files.
const EMFILE: i32 = 24;

pub(super) fn io_error(error: io::Error, path: &std::path::Path) -> Error {
    let (what, way) = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            ("the disk is full", "free some space, then run again: what was sealed is kept")
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            ("no permission to write the output", "check the permissions of the destination, then run again")
        }
        _ if error.raw_os_error() == Some(EMFILE) => (
            "too many files are open",
            "raise the limit (ulimit -n), or lower task_bytes or the number of partition folders",
        ),
        _ => ("the destination cannot be written", "run again: what was sealed is kept"),
    };
    Error::new(ErrorKind::Unavailable, what)
        .at(path.display())
        .safe("nothing that was sealed or committed was touched")
        .way(way)
        .caused_by(error)
}
