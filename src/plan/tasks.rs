//! Tasks: only what is larger than a task is split; smaller files are packed whole and opened by workers only.

use std::sync::Arc;

use super::source_plan::PlannedFile;
use crate::coverage::{Coverage, RangeSet};
use crate::error::Result;
use crate::source::{Footer, FooterRead, Lake, Unusable};

/// How large a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskSizing {
    /// Bytes of compressed input, about.
    pub bytes: u64,
    /// Rows, at most; 0 is no limit. With a limit every file is opened on the driver. Without effect on files that have
    /// no row groups.
    pub rows: u64,
}

impl Default for TaskSizing {
    fn default() -> Self {
        Self { bytes: 128 << 20, rows: 0 }
    }
}

/// A part of one file in a task.
#[derive(Debug, Clone)]
pub struct TaskPart {
    /// The file.
    pub planned: Arc<PlannedFile>,
    /// Which part: the whole of it, or groups and rows of a file whose footer is known.
    pub coverage: Coverage,
}

/// Atoms that are run as a unit, in one partition.
#[derive(Debug, Clone, Default)]
pub struct Task {
    /// Its parts, ascending by path.
    pub parts: Vec<TaskPart>,
    /// Bytes of compressed input, about.
    pub bytes: u64,
    /// Rows, where known.
    pub rows: u64,
}

/// The tasks for some files, and what opening the large ones found.
#[derive(Debug, Default)]
pub struct FormedTasks {
    /// The tasks.
    pub tasks: Vec<Task>,
    /// Files that cannot be read.
    pub unusable: Vec<Unusable>,
    /// Files that are not the version planned any more.
    pub changed: Vec<Arc<str>>,
    /// Files that are gone.
    pub vanished: Vec<Arc<str>>,
}

/// A piece that is not divided further.
struct Piece {
    part: TaskPart,
    bytes: u64,
    rows: u64,
}

/// Forms tasks of `files`. Opens the footers of files larger than a task (of all, when rows are limited); files without
/// footers are never split.
///
/// # Errors
/// [`Unavailable`](crate::ErrorKind::Unavailable) when such a footer cannot be read.
pub async fn form_tasks(lake: &Lake, files: &[PlannedFile], sizing: TaskSizing) -> Result<FormedTasks> {
    let mut formed = FormedTasks::default();
    let mut packer = Packer { sizing, tasks: Vec::new(), open: Task::default() };
    for file in files {
        let planned = Arc::new(file.clone());
        if lake.has_whole_files() || (file.file.size <= sizing.bytes && sizing.rows == 0) {
            let bytes = share(file);
            let coverage = file.left.clone();
            packer.add(Piece { part: TaskPart { planned, coverage }, bytes, rows: 0 });
            continue;
        }
        match lake.footer(&file.file).await? {
            FooterRead::Read(footer) => {
                for piece in split(&planned, &footer, sizing) {
                    packer.add(piece);
                }
            }
            FooterRead::Unusable(why) => formed.unusable.push(Unusable { path: file.file.path.to_string(), why }),
            FooterRead::Changed => formed.changed.push(Arc::clone(&file.file.path)),
            FooterRead::Vanished => formed.vanished.push(Arc::clone(&file.file.path)),
        }
    }
    formed.tasks = packer.finish();
    Ok(formed)
}

/// Bytes of what is left of a small file, by its share of the groups.
fn share(file: &PlannedFile) -> u64 {
    match (&file.left, &file.group_rows) {
        (Coverage::Groups { .. }, Some(group_rows)) if !group_rows.is_empty() => {
            file.file.size * file.left.touched_atoms(group_rows.len() as u64) / group_rows.len() as u64
        }
        _ => file.file.size,
    }
}

/// Cuts what is left of an opened file into pieces of at most a task each, where row groups allow it.
fn split(planned: &Arc<PlannedFile>, footer: &Footer, sizing: TaskSizing) -> Vec<Piece> {
    let group_bytes = |group: u64| {
        footer.metadata.row_groups().get(group as usize).map_or(0, |g| u64::try_from(g.compressed_size()).unwrap_or(0))
    };
    let group_rows = |group: u64| footer.group_rows.get(group as usize).copied().unwrap_or(0);
    let piece =
        |coverage, bytes, rows| Piece { part: TaskPart { planned: Arc::clone(planned), coverage }, bytes, rows };
    let left = match &planned.left {
        Coverage::Whole if footer.group_rows.is_empty() => return vec![piece(Coverage::Whole, 0, 0)],
        Coverage::Whole => Coverage::groups(RangeSet::of(0..footer.group_rows.len() as u64)),
        groups => groups.clone(),
    };
    let Coverage::Groups { full, partial } = left else { return Vec::new() };
    let mut pieces = Vec::new();
    let (mut run, mut bytes, mut rows) = (RangeSet::new(), 0, 0);
    for group in full.iter() {
        let (group_bytes, group_rows) = (group_bytes(group), group_rows(group));
        let too_long = sizing.rows > 0 && group_rows > sizing.rows;
        let full_task = bytes + group_bytes > sizing.bytes || (sizing.rows > 0 && rows + group_rows > sizing.rows);
        if !run.is_empty() && (full_task || too_long) {
            pieces.push(piece(Coverage::groups(std::mem::take(&mut run)), bytes, rows));
            (bytes, rows) = (0, 0);
        }
        if too_long {
            let all = RangeSet::of(0..group_rows);
            pieces.extend(split_rows(group as u32, &all, sizing.rows, group_bytes, group_rows, &piece));
            continue;
        }
        run.insert(group..group + 1);
        bytes += group_bytes;
        rows += group_rows;
    }
    if !run.is_empty() {
        pieces.push(piece(Coverage::groups(run), bytes, rows));
    }
    for (group, left) in &partial {
        let g = u64::from(*group);
        let most = if sizing.rows > 0 { sizing.rows } else { u64::MAX };
        pieces.extend(split_rows(*group, left, most, group_bytes(g), group_rows(g), &piece));
    }
    pieces
}

/// Cuts `left` rows of one group into pieces of at most `most` rows.
fn split_rows(
    group: u32,
    left: &RangeSet,
    most: u64,
    bytes: u64,
    rows: u64,
    piece: &impl Fn(Coverage, u64, u64) -> Piece,
) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut chunk = RangeSet::new();
    let mut end = |chunk: &mut RangeSet| {
        let chunk = std::mem::take(chunk);
        let n = chunk.count();
        if n > 0 {
            let share = (u128::from(bytes) * u128::from(n) / u128::from(rows.max(1))) as u64;
            pieces.push(piece(Coverage::rows(group, chunk), share, n));
        }
    };
    for range in left.ranges() {
        let mut start = range.start;
        while start < range.end {
            let stop = range.end.min(start.saturating_add(most - chunk.count()));
            chunk.insert(start..stop);
            start = stop;
            if chunk.count() >= most {
                end(&mut chunk);
            }
        }
    }
    end(&mut chunk);
    pieces
}

struct Packer {
    sizing: TaskSizing,
    tasks: Vec<Task>,
    open: Task,
}

impl Packer {
    fn add(&mut self, piece: Piece) {
        let (bytes, rows) = (self.open.bytes + piece.bytes, self.open.rows + piece.rows);
        let over = bytes > self.sizing.bytes || (self.sizing.rows > 0 && rows > self.sizing.rows);
        let (planned, last) = (&piece.part.planned, self.open.parts.last().map(|last| &last.planned));
        let apart = last.is_some_and(|last| (last.apart || planned.apart) && !Arc::ptr_eq(last, planned));
        let over = over || apart;
        if over && !self.open.parts.is_empty() {
            self.tasks.push(std::mem::take(&mut self.open));
        }
        self.open.bytes += piece.bytes;
        self.open.rows += piece.rows;
        match self.open.parts.last_mut() {
            // Pieces of one file in one task are one part: a seal lists a file once.
            Some(last) if Arc::ptr_eq(&last.planned, &piece.part.planned) => {
                last.coverage = last.coverage.union(&piece.part.coverage);
            }
            _ => self.open.parts.push(piece.part),
        }
    }

    fn finish(mut self) -> Vec<Task> {
        if !self.open.parts.is_empty() {
            self.tasks.push(self.open);
        }
        self.tasks
    }
}
