//! A disk that loses what was not made durable.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::fs::{Disk, RealDisk};

/// A name that is not durable yet, and how to take it back.
#[derive(Debug)]
enum Undo {
    Remove(PathBuf),
    RenameBack {
        from: PathBuf,
        to: PathBuf,
    },
    RemoveDir(PathBuf),
    /// A removal that may not have reached the disk: the name comes back.
    Restore {
        path: PathBuf,
        spare: PathBuf,
    },
}

impl Undo {
    /// The folders whose sync makes this durable.
    fn folders(&self) -> Vec<&Path> {
        match self {
            Self::Remove(path) | Self::RemoveDir(path) | Self::Restore { path, .. } => {
                path.parent().into_iter().collect()
            }
            Self::RenameBack { from, to } => [from.parent(), to.parent()].into_iter().flatten().collect(),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    steps: u64,
    names: Vec<Undo>,
    /// Files whose bytes are not durable.
    dirty: HashMap<PathBuf, ()>,
    off: bool,
}

/// A [`RealDisk`] whose power goes off at a chosen step: from then on every step fails, and
/// [`power_loss`](Self::power_loss) takes back every name and every byte that was not synced.
#[derive(Debug)]
pub struct LossyDisk {
    state: Mutex<State>,
    off_at: u64,
    spare: PathBuf,
}

impl LossyDisk {
    /// A disk whose step `off_at` (from 1) and all later ones fail; `u64::MAX` never. `spare` is a folder on the same
    /// file system for removed files that may come back.
    pub fn new(off_at: u64, spare: PathBuf) -> Self {
        Self { state: Mutex::default(), off_at, spare }
    }

    /// The steps taken so far.
    pub fn steps(&self) -> u64 {
        self.lock().steps
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Takes back what was not durable, as a power cut may.
    pub fn power_loss(&self) -> io::Result<()> {
        let mut state = self.lock();
        state.off = true;
        for path in std::mem::take(&mut state.dirty).into_keys() {
            if path.exists() {
                OpenOptions::new().write(true).open(&path)?.set_len(0)?;
            }
        }
        for undo in std::mem::take(&mut state.names).into_iter().rev() {
            match undo {
                Undo::Remove(path) => drop(fs::remove_file(path)),
                Undo::RemoveDir(path) => drop(fs::remove_dir_all(path)),
                Undo::RenameBack { from, to } => drop(fs::rename(to, from)),
                Undo::Restore { path, spare } => drop(fs::rename(spare, path)),
            }
        }
        Ok(())
    }

    fn step(&self) -> io::Result<std::sync::MutexGuard<'_, State>> {
        let mut state = self.lock();
        state.steps += 1;
        if state.off || state.steps >= self.off_at {
            state.off = true;
            return Err(io::Error::other("the power is off"));
        }
        Ok(state)
    }
}

impl Disk for LossyDisk {
    fn create_new(&self, path: &Path) -> io::Result<File> {
        let mut state = self.step()?;
        let file = RealDisk.create_new(path)?;
        state.names.push(Undo::Remove(path.into()));
        state.dirty.insert(path.into(), ());
        Ok(file)
    }

    fn sync_file(&self, _file: &File, path: &Path) -> io::Result<()> {
        // The bytes are in the page cache, which survives in this test: only the bookkeeping counts.
        self.step()?.dirty.remove(path);
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.step()?;
        RealDisk.link(from, to)?;
        if state.dirty.contains_key(from) {
            state.dirty.insert(to.into(), ());
        }
        state.names.push(Undo::Remove(to.into()));
        Ok(())
    }

    fn rename_no_replace(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.step()?;
        RealDisk.rename_no_replace(from, to)?;
        if state.dirty.remove(from).is_some() {
            state.dirty.insert(to.into(), ());
        }
        state.names.push(Undo::RenameBack { from: from.into(), to: to.into() });
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.step()?;
        // A rename across folders is kept by the sync of the folder it went to; of the one it left, the worst case
        // is that both names exist, which no reader of ours can see since the target is looked at second.
        state.names.retain(|undo| undo.folders().last() != Some(&dir));
        Ok(())
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.step()?;
        if !dir.is_dir() {
            RealDisk.create_dir(dir)?;
            state.names.push(Undo::RemoveDir(dir.into()));
        }
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.step()?;
        fs::create_dir_all(&self.spare)?;
        let spare = self.spare.join(format!("{}", state.steps));
        fs::rename(path, &spare)?;
        state.names.push(Undo::Restore { path: path.into(), spare });
        Ok(())
    }
}
