//! What a destination holds, compared with what its store says (both kinds of directory).

use std::collections::{HashMap, HashSet};

use crate::error::{Error, Result, first_few};
use crate::identity::{Root, StoreId};
use crate::store::{Expected, OutputFile};

/// A look at a destination.
pub(super) struct Seen<'a> {
    pub(super) root: &'a Root,
    /// Where its binding is, for people.
    pub(super) binding: String,
    /// The store it is bound to.
    pub(super) bound: Option<StoreId>,
    /// The paths of the files below its root.
    pub(super) paths: Vec<String>,
}

impl Seen<'_> {
    /// Checks that it belongs to the store of `expected` (none: a new one) and holds exactly what that committed.
    /// `size_of` tells the size of one of the paths.
    ///
    /// # Errors
    /// [`Refused`](crate::ErrorKind::Refused) with the ways on.
    pub(super) fn check(
        &self,
        expected: Option<&Expected>,
        size_of: impl Fn(&str) -> Result<Option<u64>>,
    ) -> Result<()> {
        match (&self.bound, expected) {
            (Some(bound), known) if known.is_none_or(|known| known.store != *bound) => {
                return Err(self
                    .refuse(format!("the destination belongs to store {bound}, which is not the one given"))
                    .way("give the `store` that the destination belongs to")
                    .way("write to another destination"));
            }
            (None, None) if !self.paths.is_empty() => {
                return Err(self
                    .refuse(format!(
                        "the destination is not empty ({}) and does not belong to this store",
                        self.describe()
                    ))
                    .way("write to a new or empty directory")
                    .way("if the files are of an earlier store, give that `store`"));
            }
            (None, Some(expected)) if expected.last_commit > 0 || !self.paths.is_empty() => {
                return Err(self
                    .refuse("the destination lost its binding: it is not the directory this store committed to".into())
                    .way(format!("restore {} from a copy", self.binding))
                    .way("if it is that directory: lakemark repair JOB makes the binding again")
                    .way("fill another destination from the start, with another `store`"));
            }
            _ => {}
        }
        expected.map_or(Ok(()), |expected| self.check_files(expected, size_of))
    }

    /// Checks that the destination holds each committed file as it was sealed, and no other file of this store.
    fn check_files(&self, expected: &Expected, size_of: impl Fn(&str) -> Result<Option<u64>>) -> Result<()> {
        let committed: HashMap<String, u64> = expected.committed.iter().map(|file| (file.path(), file.size)).collect();
        let open: HashSet<String> = expected.open.iter().map(OutputFile::path).collect();
        let stem = format!("lm-{}-", expected.store.short());
        let (ours, foreign): (Vec<_>, Vec<_>) = self.paths.iter().partition(|path| name_of(path).starts_with(&stem));
        let mut found = 0;
        for path in ours {
            match committed.get(path) {
                Some(&size) => {
                    found += 1;
                    let now = size_of(path)?;
                    if now != Some(size) {
                        let now = now.map_or("is gone".into(), |now| format!("has {now} bytes"));
                        return Err(self
                            .refuse(format!(
                                "the committed file `{path}` {now}, {size} were written: it was changed by hand"
                            ))
                            .way("put the file back as it was")
                            .way(
                                "do its work again: lakemark repair JOB takes the file out, the next run does the rest",
                            )
                            .way("fill another destination from the start, with another `store`"));
                    }
                }
                // While an intent is open a part of its files may be there: its commit looks at each.
                None if open.contains(path) => {}
                None => {
                    return Err(self
                        .refuse(format!(
                            "the destination has a file of this store that the store does not know, `{path}`: the \
                             store is older than its destination, as after a restore from a copy, or the file was \
                             copied by hand"
                        ))
                        .way("restore the newest copy of the store")
                        .way("if nothing was restored, and the store lost its newest manifest: lakemark repair JOB")
                        .way("if the file is a copy, take it out of the destination")
                        .way("fill another destination from the start, with another `store`"));
                }
            }
        }
        if let Some(first) = foreign.first() {
            tracing::warn!(
                files = foreign.len(),
                first = first.as_str(),
                "the destination has files that are not of this store: who reads the directory reads them too"
            );
        }
        let gone = committed.len() - found;
        if gone > 0 {
            let present: HashSet<&String> = self.paths.iter().collect();
            let first = committed.keys().filter(|path| !present.contains(path)).min();
            return Err(self
                .refuse(format!(
                    "{gone} of the {} committed files are no longer in the destination, the first of them `{}`: they \
                     were deleted or moved by hand, or a retraction was stopped half-way",
                    committed.len(),
                    first.map_or("", String::as_str)
                ))
                .way("put the files back")
                .way("if `lakemark forget --retract` was stopped: repeat it")
                .way("do their work again: lakemark repair JOB, then run")
                .way("fill another destination from the start, with another `store`"));
        }
        Ok(())
    }

    fn refuse(&self, what: String) -> Error {
        Error::refused(what).at(self.root).safe("nothing was changed; nothing was written to the destination")
    }

    fn describe(&self) -> String {
        first_few(self.paths.iter())
    }
}

/// The last part of a path.
fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
