//! The invariants as predicates that run before each write (`docs/protocol.md` states them).

use std::collections::HashSet;

use super::commit_object::CommitMember;
use super::live::Live;
use super::manifest::{KeySegmentRef, Manifest, SegmentRef, TransitionKind};
use super::segment::{CheckpointRow, Decision};
use crate::error::{Error, ErrorKind, Result};
use crate::identity::{CheckpointId, Epoch, ManifestVersion};

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
    // I1: a new name is one that nobody else can have used: of this version, with the writer's nonce.
    let strange = |segment: &&SegmentRef| !old.segments.contains(segment) && segment.version != new.version;
    if let Some(segment) = new.segments.iter().find(strange) {
        return Err(broken("I1", format!("{} was not written for version {}", segment.name(), new.version.0)));
    }
    let strange = |segment: &&KeySegmentRef| !old.keys.contains(segment) && segment.version != new.version;
    if let Some(segment) = new.keys.iter().find(strange) {
        return Err(broken("I1", format!("{} was not written for version {}", segment.name(), new.version.0)));
    }
    let mut names = HashSet::new();
    let mut all = new.segments.iter().map(SegmentRef::name).chain(new.keys.iter().map(KeySegmentRef::name));
    if !all.all(|name| names.insert(name)) {
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

/// I4: whether a loose seal of the name `id` counts while `current` is the newest epoch. Those of older epochs count only
/// where a segment of the chain holds them; those of newer ones are of a holder whose manifest was not read yet.
pub fn may_count(id: CheckpointId, current: Epoch) -> bool {
    id.epoch == current
}

/// I9: whether the manifest `version` may be deleted once `newest` is the newest: the last `kept` stay, and nothing that a
/// retained manifest needs is in an older one.
pub fn may_prune(version: ManifestVersion, newest: ManifestVersion, kept: usize) -> bool {
    version.0.checked_add(kept as u64).is_some_and(|last| last <= newest.0)
}

/// I6 and I7: a commit has each checkpoint and each file once (R75), and only checkpoints that count and are in no commit.
pub fn check_members(live: &Live, members: &[CommitMember]) -> Result<()> {
    let (mut ids, mut names) = (HashSet::new(), HashSet::new());
    for member in members {
        let id = member.checkpoint;
        if !ids.insert(id) {
            return Err(broken("I6", format!("{id} is in the commit twice")));
        }
        let may = |row: &&CheckpointRow| match member.leaves {
            true => row.decision == Decision::Accepted && row.commit.is_some(),
            false => row.is_pending(),
        };
        let Some(row) = live.checkpoint(id).filter(may) else {
            let wanted = if member.leaves { "is committed" } else { "waits for a commit" };
            return Err(broken("I7", format!("{id} is no checkpoint that {wanted}")));
        };
        if row.outputs != member.outputs {
            return Err(broken("I6", format!("the files of {id} are not those of its seal")));
        }
        if let Some(twice) = member.outputs.iter().find(|output| !names.insert(output.name.as_str())) {
            return Err(Error::corrupt(&twice.name, "two sealed checkpoints name this output file"));
        }
    }
    Ok(())
}

/// I6: a checkpoint that is made undone counts, and is not in the commit `open`, whose set is bound to it. A committed one
/// is made undone only when its files are out of the destination.
pub fn check_undone(live: &Live, open: Option<u64>, ids: &[CheckpointId]) -> Result<()> {
    let may = |id: CheckpointId| {
        let row = live.checkpoint(id).filter(|row| row.decision == Decision::Accepted);
        row.is_some_and(|row| row.commit.is_none() || row.commit != open)
    };
    let bound = ids.iter().find(|id| !may(**id));
    bound.map_or(Ok(()), |id| Err(broken("I6", format!("{id} does not count, or its commit is not finished"))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{AttemptNonce, InputId, StoreId};
    use crate::store::seal::{Counts, OutputFile, Seal, SealKind};
    use crate::store::segment::{Event, EventRow};

    fn member(input: u32, name: &str) -> CommitMember {
        let output = OutputFile { name: name.into(), folder: String::new(), size: 1, rows: 1, upload: None };
        CommitMember { checkpoint: CheckpointId::first(Epoch(1), InputId(input)), outputs: vec![output], leaves: false }
    }

    fn live(members: &[&CommitMember]) -> Live {
        let mut live = Live::default();
        for member in members {
            let seal = Seal {
                store: StoreId::random(),
                id: member.checkpoint,
                attempt: AttemptNonce::random(),
                kind: SealKind::Sealed,
                planned_from: ManifestVersion(1),
                sealed_at: 0,
                files: Vec::new(),
                keys: None,
                outputs: member.outputs.clone(),
                counts: Counts::default(),
            };
            live.decide(&seal);
        }
        live
    }

    #[test]
    fn i4_only_seals_of_the_newest_epoch_count_loose() {
        let id = |epoch| CheckpointId::first(Epoch(epoch), InputId(0));
        assert_eq!([1, 2, 3].map(|epoch| may_count(id(epoch), Epoch(2))), [false, true, false]);
    }

    #[test]
    fn i9_the_newest_manifests_stay() {
        let may = |version, newest| may_prune(ManifestVersion(version), ManifestVersion(newest), 100);
        assert!(!may(1, 1) && !may(1, 100) && may(1, 101) && !may(2, 101) && !may(7, 3));
        assert!(!may(u64::MAX, u64::MAX));
    }

    #[test]
    fn i6_i7_a_commit_is_of_waiting_checkpoints_and_their_files_once_each() {
        let (a, b, twin) = (member(1, "a"), member(2, "b"), member(3, "a"));
        let mut state = live(&[&a, &b, &twin]);
        assert!(check_members(&state, &[a.clone(), b.clone()]).is_ok());
        assert!(check_undone(&state, None, &[a.checkpoint, b.checkpoint]).is_ok());
        assert!(check_undone(&state, None, &[member(9, "x").checkpoint]).is_err());
        let other = CommitMember { outputs: b.outputs.clone(), ..a.clone() };
        let wrong = [
            (vec![a.clone(), a.clone()], "I6"),
            (vec![other], "I6"),
            (vec![a.clone(), twin], "two sealed checkpoints"),
            (vec![member(9, "x")], "I7"),
        ];
        for (members, what) in wrong {
            let error = check_members(&state, &members).unwrap_err();
            assert!(error.what().starts_with(what), "{error}");
        }
        let event = Event::Intent { n: 1, files: 1, rows: 1, only: None, holds: false };
        state.happen(EventRow { version: ManifestVersion(2), epoch: Epoch(1), at: 0, event });
        assert!(check_undone(&state, Some(1), &[a.checkpoint]).unwrap_err().what().starts_with("I6"));
        assert!(check_undone(&state, None, &[a.checkpoint]).is_ok(), "its commit is done");
        assert!(
            check_members(&state, std::slice::from_ref(&a)).unwrap_err().what().starts_with("I7"),
            "it is in a commit already"
        );
        assert!(check_members(&state, &[CommitMember { leaves: true, ..a }]).is_ok(), "only what is committed leaves");
        assert!(check_members(&live(&[&b]), &[CommitMember { leaves: true, ..b }]).is_err());
    }
}
