//! How many rows are in each row group of a file, in whatever form that is known.

/// Rows in each row group of a file, as runs: a record of few bytes can describe a file of very many row groups.
pub trait GroupRows {
    /// Rows of one row group, and how many row groups in a row have as many, in the file's order.
    fn runs(&self) -> impl Iterator<Item = (u64, u64)>;

    /// How many row groups.
    fn groups(&self) -> u64 {
        self.runs().fold(0, |sum, (_, times)| sum.saturating_add(times))
    }
}

impl GroupRows for [u64] {
    fn runs(&self) -> impl Iterator<Item = (u64, u64)> {
        self.iter().map(|&rows| (rows, 1))
    }
}

impl<const N: usize> GroupRows for [u64; N] {
    fn runs(&self) -> impl Iterator<Item = (u64, u64)> {
        self.as_slice().runs()
    }
}

impl GroupRows for Vec<u64> {
    fn runs(&self) -> impl Iterator<Item = (u64, u64)> {
        self.as_slice().runs()
    }
}

/// Looks row groups up, in ascending order only.
pub(super) struct Lookup<I> {
    runs: I,
    rows: u64,
    /// The first row group after the run of `rows`.
    end: u64,
}

impl<I: Iterator<Item = (u64, u64)>> Lookup<I> {
    pub(super) fn new(runs: I) -> Self {
        Self { runs, rows: 0, end: 0 }
    }

    /// The rows of `group`; `None` if the file has fewer row groups.
    pub(super) fn rows(&mut self, group: u32) -> Option<u64> {
        while self.end <= u64::from(group) {
            let (rows, times) = self.runs.next()?;
            self.rows = rows;
            self.end = self.end.saturating_add(times);
        }
        Some(self.rows)
    }
}
