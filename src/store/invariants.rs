//! The invariants as predicates that run before each write (`docs/protocol.md` states them).

use std::collections::HashSet;

use super::manifest::{Manifest, TransitionKind};
use crate::error::{Error, ErrorKind, Result};
use crate::identity::{Epoch, ManifestVersion};

fn broken(number: &str, what: String) -> Error {
    Error::new(ErrorKind::Corrupt, format!("{number} would be broken: {what}"))
        .safe("nothing was written")
        .way("report this: it is a fault of lakemark or of the program that drives it")
}

/// Whether `new` may follow `old` in the chain.
pub fn check_step(old: Option<&Manifest>, new: &Manifest) -> Result<()> {
    // I8: epochs, versions and commit numbers only grow; the chain is one line.
    let (version, epoch, last) =
        old.map_or((ManifestVersion(0), Epoch(0), 0), |old| (old.version, old.epoch, old.commits.last));
    if new.version != version.next() || old.is_some() != new.parent.is_some() {
        return Err(broken("I8", format!("version {} after {version}", new.version.0)));
    }
    let opens = new.transition == TransitionKind::Open;
    if (opens && new.epoch != epoch.next()) || (!opens && new.epoch != epoch) {
        return Err(broken("I8", format!("epoch {} after {} by {:?}", new.epoch.0, epoch.0, new.transition)));
    }
    if new.commits.last < last {
        return Err(broken("I8", format!("commit {} after {last}", new.commits.last)));
    }
    let Some(old) = old else {
        return if opens { Ok(()) } else { Err(broken("I8", "the first transition is not `open`".into())) };
    };
    if new.store != old.store {
        return Err(broken("I8", "the store's id changed".into()));
    }
    if old.holder.is_none() && !opens {
        return Err(broken("I8", format!("{:?} in a closed epoch", new.transition)));
    }
    check_commit(old, new)?;
    let mut names = HashSet::new();
    if !new.segments.iter().all(|segment| names.insert(segment.name())) {
        return Err(broken("I5", "a segment is named twice".into()));
    }
    if new.segments.windows(2).any(|pair| pair[0].level >= pair[1].level) {
        return Err(broken("I5", "two segments of one level, or levels out of order".into()));
    }
    Ok(())
}

/// I6: at most one intent is open, it is closed by exactly one of done and void, and it does not change.
fn check_commit(old: &Manifest, new: &Manifest) -> Result<()> {
    let (before, after) = (&old.commits.open, &new.commits.open);
    let legal = match new.transition {
        TransitionKind::CommitIntent => {
            before.is_none() && after.as_ref().is_some_and(|i| i.n == old.commits.last + 1 && i.n == new.commits.last)
        }
        TransitionKind::CommitDone | TransitionKind::CommitVoid => before.is_some() && after.is_none(),
        _ => before == after && old.commits.last == new.commits.last,
    };
    if legal { Ok(()) } else { Err(broken("I6", format!("{:?} from {before:?} to {after:?}", new.transition))) }
}
