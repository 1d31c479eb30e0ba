//! What to do about files that are not what they were.

/// A known path with other content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnChange {
    /// Do the new version; the old version's rows stay in the output.
    #[default]
    Reprocess,
    /// Do the new version; when it is complete, its output enters and the old version's leaves in one commit.
    Replace,
    /// Leave it, and say so. A partly done file is refused as stranded: its rest could never be done.
    Ignore,
    /// Refuse the run.
    Fail,
}

/// A known path whose token changed while its footer did not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnMoved {
    /// Refuse the run: a person decides.
    #[default]
    Fail,
    /// Take the new token for the same content, without reading.
    Accept,
    /// Do it again.
    Reprocess,
}

/// A known path that is not listed any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnDelete {
    /// Its output stays.
    #[default]
    Keep,
    /// Its output leaves with the next commit.
    Retract,
}

/// How many replaced files a run may redo, and how many of deleted ones it may retract.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MaxReplaced {
    /// This share of the known files, in percent; counts from 10 files on.
    Percent(f64),
    /// This many.
    Files(u64),
}

impl Default for MaxReplaced {
    fn default() -> Self {
        Self::Percent(10.0)
    }
}

impl MaxReplaced {
    /// Whether `replaced` of `known` files is too much.
    pub fn is_exceeded(self, replaced: u64, known: u64) -> bool {
        match self {
            Self::Percent(percent) => replaced >= 10 && replaced as f64 > known as f64 * percent / 100.0,
            Self::Files(most) => replaced > most,
        }
    }
}

/// How one source is planned.
#[derive(Debug, Clone, Copy, Default)]
pub struct SourcePolicy {
    /// Other content.
    pub on_change: OnChange,
    /// Same content, other token.
    pub on_moved: OnMoved,
    /// A file that is gone.
    pub on_delete: OnDelete,
    /// How much may be redone.
    pub max_replaced: MaxReplaced,
    /// Also compare the footers of finished files: a rewrite that kept size and token is found and redone.
    pub verify: bool,
}

impl SourcePolicy {
    /// Whether each file needs output files of its own, since they may have to leave without others.
    pub fn keeps_apart(&self) -> bool {
        self.on_change == OnChange::Replace || self.on_delete == OnDelete::Retract
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_percent_counts_from_ten_files_on() {
        let default = MaxReplaced::default();
        assert!(!default.is_exceeded(9, 9));
        assert!(default.is_exceeded(10, 99));
        assert!(!default.is_exceeded(10, 100));
        assert!(MaxReplaced::Files(0).is_exceeded(1, 1_000));
        assert!(!MaxReplaced::Percent(100.0).is_exceeded(50, 50));
    }
}
