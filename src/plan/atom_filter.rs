//! Layer 2: a worker's check of single atoms, for planners that did not prune at atom level.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::scan_part::ScanPart;
use crate::coverage::Coverage;
use crate::identity::{Evidence, FileVersion, ManifestVersion};
use crate::store::{Live, View};

/// One finished file version.
#[derive(Debug)]
struct Done {
    file: FileVersion,
    coverage: Coverage,
    evidence: Evidence,
}

/// By source and path.
type DoneFiles = HashMap<(Arc<str>, Arc<str>), Vec<Done>>;

/// A hash set of what was done at one manifest version: the one that the plan was made from.
///
/// What a worker skips by it must never be listed in the worker's seal.
#[derive(Debug, Clone)]
pub struct AtomFilter {
    version: ManifestVersion,
    done: Arc<DoneFiles>,
}

impl AtomFilter {
    /// The filter of everything that is done in `view`.
    pub fn new(view: &View) -> Self {
        let version = view.head.as_ref().map_or(ManifestVersion(0), |head| head.manifest.version);
        Self::of_live(&view.live, version)
    }

    pub(super) fn of_live(live: &Live, version: ManifestVersion) -> Self {
        let mut done: HashMap<_, Vec<Done>> = HashMap::new();
        for source in live.sources() {
            let name: Arc<str> = source.into();
            for (path, versions) in live.files(source) {
                let of = |v: &crate::store::LiveVersion| Done {
                    file: v.file.clone(),
                    coverage: v.coverage.clone(),
                    evidence: v.evidence.clone(),
                };
                done.insert((Arc::clone(&name), path.into()), versions.iter().map(of).collect());
            }
        }
        Self { version, done: Arc::new(done) }
    }

    /// The manifest version it was made from.
    pub fn version(&self) -> ManifestVersion {
        self.version
    }

    /// What of `part` is left to do; [`Coverage::is_empty`] when nothing is.
    ///
    /// Another version of a known path is not done: in doubt an atom is read again (I10).
    pub fn left(&self, part: &ScanPart) -> Coverage {
        let key = (Arc::clone(part.source()), Arc::clone(&part.file().path));
        let done = self.done.get(&key).and_then(|versions| versions.iter().find(|d| d.file.is_same(part.file())));
        let Some(done) = done else { return part.coverage().clone() };
        let missing = done.coverage.missing(&done.evidence);
        minus(&whole_as_groups(&missing, done), part.coverage())
    }

    /// Whether one row group is done.
    pub fn is_done(&self, source: &str, file: &FileVersion, row_group: u32) -> bool {
        let groups = Coverage::groups(crate::RangeSet::of(u64::from(row_group)..u64::from(row_group) + 1));
        self.left(&ScanPart::parquet(source, file.clone(), groups)).is_empty()
    }
}

/// `missing` is already in terms of groups; a file that is done whole has nothing missing.
fn whole_as_groups(missing: &Coverage, done: &Done) -> Coverage {
    if done.coverage == Coverage::Whole { Coverage::none() } else { missing.clone() }
}

/// What of `missing` lies inside `wanted`.
fn minus(missing: &Coverage, wanted: &Coverage) -> Coverage {
    let (Coverage::Groups { full, partial }, Coverage::Groups { full: wf, partial: wp }) = (missing, wanted) else {
        return missing.clone();
    };
    let mut left_full = full.intersection(wf);
    let mut left_partial = BTreeMap::new();
    for (&group, rows) in partial {
        if wf.contains(u64::from(group)) {
            left_partial.insert(group, rows.clone());
        } else if let Some(wanted) = wp.get(&group) {
            let both = rows.intersection(wanted);
            if !both.is_empty() {
                left_partial.insert(group, both);
            }
        }
    }
    for (&group, rows) in wp {
        if full.contains(u64::from(group)) {
            left_partial.insert(group, rows.clone());
        }
    }
    left_full = left_full.minus(&left_partial.keys().map(|&g| u64::from(g)).collect());
    Coverage::Groups { full: left_full, partial: left_partial }
}
