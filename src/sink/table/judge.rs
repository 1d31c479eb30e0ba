//! What a table says about an open intent: the decision table of recovery, without a request of its own.

use super::{History, VOID};
use crate::store::TableState;

/// What one look at a table shows of an intent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Evidence<'a> {
    /// The intent's number and digest.
    pub(super) n: u64,
    pub(super) digest: &'a str,
    /// The table when it was decided.
    pub(super) base: Option<&'a TableState>,
    /// The table now.
    pub(super) now: Option<&'a TableState>,
    /// What happened between.
    pub(super) history: &'a History,
    /// How many of how many of its files are live; `None`: not looked.
    pub(super) live: Option<(usize, usize)>,
}

/// What follows from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is in the table, at the version that its marker is of, if it was found.
    Done(Option<u64>),
    /// Its barrier is, at this version.
    Void(u64),
    /// Neither is, and every version since its base says so.
    Absent,
    /// Only a look at the files can tell.
    LookAtFiles,
    /// Nothing tells.
    Undecided(String),
}

impl Evidence<'_> {
    pub(super) fn judge(&self) -> Verdict {
        let undecided = |what: String| Verdict::Undecided(what);
        match (self.base, self.now) {
            (None, None) => return Verdict::Absent,
            (Some(_), None) => return undecided("the table is gone".into()),
            (Some(base), Some(now)) if base.id != now.id => {
                return undecided(format!("the table is another one: its id was {}, and is {}", base.id, now.id));
            }
            (Some(base), Some(now)) if now.version < base.version => {
                return undecided(format!("the table went back from version {} to {}", base.version, now.version));
            }
            _ => {}
        }
        let history = self.history;
        if let Some(marker) = history.markers.iter().find(|marker| marker.n > self.n) {
            return undecided(format!(
                "the table has commit {} of this store, which the store does not know",
                marker.n
            ));
        }
        // A late call cannot land behind the first marker of its number: what is first is the truth.
        match history.markers.iter().find(|marker| marker.n == self.n) {
            Some(marker) if marker.digest == self.digest => return Verdict::Done(Some(marker.version)),
            Some(marker) if marker.digest == VOID => return Verdict::Void(marker.version),
            Some(marker) => {
                return undecided(format!(
                    "version {} of the table has a commit {} of this store with another set of files",
                    marker.version, self.n
                ));
            }
            None => {}
        }
        match (self.live, history.gap, &history.rolled_back) {
            (None, _, _) => Verdict::LookAtFiles,
            (Some((live, all)), _, _) if all > 0 && live == all => Verdict::Done(None),
            (Some((live, all)), _, _) if live > 0 => undecided(format!("{live} of its {all} files are in the table")),
            (_, Some(version), _) if !history.has_all_markers => undecided(format!(
                "none of its files is in the table, and version {version}, which could tell why, is gone from its log"
            )),
            (_, _, Some(what)) => {
                undecided(format!("none of its files is in the table, and it was taken back: {what}"))
            }
            _ => Verdict::Absent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Marker;
    use super::*;

    fn state(id: &str, version: u64) -> TableState {
        TableState { id: id.into(), version, schema: String::new(), last: None }
    }

    fn marker(n: u64, digest: &str) -> Marker {
        Marker { n, digest: digest.into(), version: 7 }
    }

    /// The decision table of the design, row by row; the base is version 5 of `t`, the intent number 3 with the digest `d`.
    #[test]
    fn the_decision_table() {
        let history = |markers: &[Marker]| History { markers: markers.to_vec(), ..History::default() };
        let gap = History { gap: Some(6), ..History::default() };
        let back = History { rolled_back: Some("RESTORE".into()), ..History::default() };
        let here = state("t", 9);
        let is_undecided = |verdict: &Verdict| matches!(verdict, Verdict::Undecided(_));
        let judge = |now: Option<&TableState>, history: &History, live| {
            let base = state("t", 5);
            Evidence { n: 3, digest: "d", base: Some(&base), now, history, live }.judge()
        };
        for live in [None, Some((0, 2)), Some((1, 2)), Some((2, 2))] {
            assert_eq!(judge(Some(&here), &history(&[marker(2, "c"), marker(3, "d")]), live), Verdict::Done(Some(7)));
            assert_eq!(judge(Some(&here), &history(&[marker(3, VOID)]), live), Verdict::Void(7));
            // Both there: the later one can only be of a writer that did not look.
            assert_eq!(judge(Some(&here), &history(&[marker(3, "d"), marker(3, VOID)]), live), Verdict::Done(Some(7)));
            assert!(is_undecided(&judge(Some(&here), &history(&[marker(3, "other")]), live)));
            assert!(is_undecided(&judge(Some(&here), &history(&[marker(4, "x")]), live)), "ahead of the store");
            assert!(is_undecided(&judge(None, &history(&[]), live)), "dropped");
            assert!(is_undecided(&judge(Some(&state("u", 9)), &history(&[]), live)), "recreated");
            assert!(is_undecided(&judge(Some(&state("t", 4)), &history(&[]), live)), "reset");
        }
        for unmarked in [&history(&[]), &history(&[marker(2, "d")]), &gap, &back] {
            assert_eq!(judge(Some(&here), unmarked, None), Verdict::LookAtFiles);
            assert_eq!(judge(Some(&here), unmarked, Some((2, 2))), Verdict::Done(None));
            assert!(is_undecided(&judge(Some(&here), unmarked, Some((1, 2)))), "a part");
        }
        assert_eq!(judge(Some(&here), &history(&[]), Some((0, 2))), Verdict::Absent);
        assert!(is_undecided(&judge(Some(&here), &gap, Some((0, 2)))));
        assert!(is_undecided(&judge(Some(&here), &back, Some((0, 2)))));
        // An intent without files is known by its marker alone.
        assert_eq!(judge(Some(&here), &history(&[]), Some((0, 0))), Verdict::Absent);
        let none = Evidence { n: 3, digest: "d", base: None, now: None, history: &history(&[]), live: None };
        assert_eq!(none.judge(), Verdict::Absent);
    }
}
