//! The single steps.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Every change lakemark makes on a local file system.
///
/// A name made by [`create_new`](Disk::create_new), [`link`](Disk::link), [`rename_no_replace`](Disk::rename_no_replace) or
/// [`create_dir`](Disk::create_dir) is durable only after [`sync_dir`](Disk::sync_dir) of its folder, a file's bytes only after
/// [`sync_file`](Disk::sync_file).
pub trait Disk: Debug + Send + Sync + 'static {
    /// Creates a file that does not exist and opens it for writing.
    fn create_new(&self, path: &Path) -> io::Result<File>;
    /// Makes the bytes of `file`, which is at `path`, durable.
    fn sync_file(&self, file: &File, path: &Path) -> io::Result<()>;
    /// Gives the file at `from` the second name `to`, which must be free.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Renames, failing with [`io::ErrorKind::AlreadyExists`] when `to` is taken.
    fn rename_no_replace(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Makes the names in `dir` durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Creates one folder; its parent must exist. A folder that exists is success.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;
    /// Removes a name.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
}

/// Writes `bytes` to the new file `path` and makes them durable; the name itself is not durable yet.
pub fn write_durably(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = disk.create_new(path)?;
    file.write_all(bytes)?;
    disk.sync_file(&file, path)
}

/// The file system itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn create_new(&self, path: &Path) -> io::Result<File> {
        OpenOptions::new().write(true).create_new(true).open(path)
    }

    fn sync_file(&self, file: &File, _path: &Path) -> io::Result<()> {
        file.sync_all()
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn rename_no_replace(&self, from: &Path, to: &Path) -> io::Result<()> {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            Ok(()) => Ok(()),
            // File systems without RENAME_NOREPLACE: a link never replaces, and a crash between the two calls
            // leaves both names on one file, which the next attempt recognises.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => match fs::hard_link(from, to) {
                Ok(()) => fs::remove_file(from),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && same_file(from, to)? => {
                    fs::remove_file(from)
                }
                Err(error) => Err(error),
            },
            Err(errno) => Err(errno.into()),
        }
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        match fs::create_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
            other => other,
        }
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }
}

fn same_file(a: &Path, b: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let (a, b) = (fs::metadata(a)?, fs::metadata(b)?);
    Ok((a.dev(), a.ino()) == (b.dev(), b.ino()))
}
