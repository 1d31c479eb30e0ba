//! Sorted fingerprints in a file on a local disk, for more of them than memory is to hold.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};

/// Keys in a block: what is read at once.
const BLOCK: usize = 256;
const KEY: usize = size_of::<u128>();
/// Parts that keys are sorted into before each is sorted in memory.
const PARTS: usize = 256;
/// Keys of one part that wait in memory to be written together, at most.
const WAITING: usize = 4_096;

/// A file of fingerprints that nobody else can open, and that is gone with the process.
#[derive(Debug)]
struct KeyFile {
    file: File,
    /// For messages.
    folder: PathBuf,
    keys: u64,
}

impl KeyFile {
    fn new(folder: &Path) -> Result<Self> {
        let name = format!("lakemark-keys-{}", crate::identity::AttemptNonce::random());
        let path = folder.join(name);
        let made = File::options().read(true).write(true).create_new(true).open(&path);
        // Without a name it cannot be left behind.
        let file = made.and_then(|file| std::fs::remove_file(&path).map(|()| file));
        let folder = folder.to_owned();
        match file {
            Ok(file) => Ok(Self { file, folder, keys: 0 }),
            Err(error) => Err(failed("made", &folder, error)),
        }
    }

    fn append(&mut self, keys: &[u128]) -> Result<()> {
        let mut bytes = Vec::with_capacity(keys.len() * KEY);
        keys.iter().for_each(|key| bytes.extend_from_slice(&key.to_ne_bytes()));
        self.file.write_all(&bytes).map_err(|error| failed("written", &self.folder, error))?;
        self.keys += keys.len() as u64;
        Ok(())
    }

    /// Reads `count` keys from the one numbered `from` on.
    fn read(&self, from: u64, count: usize, keys: &mut Vec<u128>) -> Result<()> {
        let mut bytes = vec![0; count * KEY];
        let read = self.file.read_exact_at(&mut bytes, from * KEY as u64);
        read.map_err(|error| failed("read", &self.folder, error))?;
        let (chunks, _) = bytes.as_chunks::<KEY>();
        keys.clear();
        keys.extend(chunks.iter().map(|chunk| u128::from_ne_bytes(*chunk)));
        Ok(())
    }
}

fn failed(what: &str, folder: &Path, error: std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("a file of row keys cannot be {what}"))
        .at(folder.display().to_string())
        .safe("nothing was lost; what was sealed is kept")
        .way("make room there, or name another folder: TMPDIR")
        .way("let more keys be in memory: run.key_memory")
        .caused_by(error)
}

/// Takes keys into parts by their leading bits.
#[derive(Debug)]
pub(super) struct DiskKeysBuilder {
    parts: Vec<(KeyFile, Vec<u128>)>,
    memory: u64,
    folder: PathBuf,
}

impl DiskKeysBuilder {
    pub(super) fn new(memory: u64, folder: &Path) -> Result<Self> {
        let part = |_| Ok((KeyFile::new(folder)?, Vec::new()));
        let parts = (0..PARTS).map(part).collect::<Result<_>>()?;
        Ok(Self { parts, memory, folder: folder.to_owned() })
    }

    pub(super) fn push(&mut self, fingerprints: &[u128]) -> Result<()> {
        for fingerprint in fingerprints {
            let (file, waiting) = &mut self.parts[(fingerprint >> 120) as usize];
            waiting.push(*fingerprint);
            if waiting.len() == WAITING {
                file.append(waiting)?;
                waiting.clear();
            }
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Result<DiskKeys> {
        let mut sorted = Sorted { file: KeyFile::new(&self.folder)?, fences: Vec::new(), block: Vec::new() };
        // A part that does not fit is sorted piece by piece, and the pieces are merged.
        let piece = usize::try_from(self.memory / 2 / KEY as u64).unwrap_or(usize::MAX).max(1 << 14);
        for (mut file, waiting) in self.parts {
            file.append(&waiting)?;
            drop(waiting);
            let (mut pieces, mut from) = (Vec::new(), 0);
            while from < file.keys {
                let count = piece.min(usize::try_from(file.keys - from).unwrap_or(usize::MAX));
                let mut keys = Vec::new();
                file.read(from, count, &mut keys)?;
                keys.sort_unstable();
                keys.dedup();
                from += count as u64;
                if from == file.keys && pieces.is_empty() {
                    sorted.append(&keys)?;
                } else {
                    let mut file = KeyFile::new(&self.folder)?;
                    file.append(&keys)?;
                    pieces.push(Piece { file, next: 0, keys: Vec::new(), at: 0 });
                }
            }
            merge(pieces, &mut sorted)?;
        }
        sorted.finish()
    }
}

/// A sorted file that is read from its start to its end.
struct Piece {
    file: KeyFile,
    next: u64,
    keys: Vec<u128>,
    at: usize,
}

impl Piece {
    fn peek(&mut self) -> Result<Option<u128>> {
        if self.at == self.keys.len() {
            let left = self.file.keys - self.next;
            let count = BLOCK.min(usize::try_from(left).unwrap_or(BLOCK));
            self.file.read(self.next, count, &mut self.keys)?;
            (self.next, self.at) = (self.next + count as u64, 0);
        }
        Ok(self.keys.get(self.at).copied())
    }
}

fn merge(mut pieces: Vec<Piece>, sorted: &mut Sorted) -> Result<()> {
    loop {
        let mut least = None;
        for piece in &mut pieces {
            let key = piece.peek()?;
            least = match (least, key) {
                (Some(least), Some(key)) => Some(key.min(least)),
                (least, key) => least.or(key),
            };
        }
        let Some(key) = least else { return Ok(()) };
        for piece in &mut pieces {
            if piece.peek()? == Some(key) {
                piece.at += 1;
            }
        }
        sorted.append(&[key])?;
    }
}

/// The file that is being written, in its order.
struct Sorted {
    file: KeyFile,
    fences: Vec<u128>,
    block: Vec<u128>,
}

impl Sorted {
    fn append(&mut self, keys: &[u128]) -> Result<()> {
        for key in keys {
            if self.block.len() == BLOCK * 64 {
                self.flush()?;
            }
            self.block.push(*key);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.fences.extend(self.block.chunks(BLOCK).map(|block| block[0]));
        self.file.append(&self.block)?;
        self.block.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<DiskKeys> {
        self.flush()?;
        Ok(DiskKeys { file: self.file, fences: self.fences })
    }
}

/// Sorted fingerprints in a file, in blocks.
#[derive(Debug)]
pub(super) struct DiskKeys {
    file: KeyFile,
    /// The first key of each block.
    fences: Vec<u128>,
}

impl DiskKeys {
    pub(super) fn len(&self) -> u64 {
        self.file.keys
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        (self.fences.capacity() * KEY) as u64
    }

    fn read_block(&self, block: usize, keys: &mut Vec<u128>) -> Result<()> {
        let from = (block * BLOCK) as u64;
        let count = BLOCK.min(usize::try_from(self.file.keys - from).unwrap_or(BLOCK));
        self.file.read(from, count, keys)
    }

    /// Appends whether each of `fingerprints` is there. In their order, so that each block is read once.
    pub(super) fn probe(&self, fingerprints: &[u128], found: &mut Vec<bool>) -> Result<()> {
        let begin = found.len();
        found.resize(begin + fingerprints.len(), false);
        let mut order: Vec<u32> = (0..fingerprints.len() as u32).collect();
        order.sort_unstable_by_key(|row| fingerprints[*row as usize]);
        let (mut keys, mut read) = (Vec::new(), None);
        for row in order {
            let fingerprint = fingerprints[row as usize];
            let behind = self.fences.partition_point(|fence| *fence <= fingerprint);
            let Some(block) = behind.checked_sub(1) else { continue };
            if read != Some(block) {
                self.read_block(block, &mut keys)?;
                read = Some(block);
            }
            found[begin + row as usize] = keys.binary_search(&fingerprint).is_ok();
        }
        Ok(())
    }

    pub(super) fn for_each_sorted(&self, mut take: impl FnMut(&[u128]) -> Result<()>) -> Result<()> {
        let mut keys = Vec::new();
        for block in 0..self.fences.len() {
            self.read_block(block, &mut keys)?;
            take(&keys)?;
        }
        Ok(())
    }
}
