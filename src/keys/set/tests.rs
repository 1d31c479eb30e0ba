use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn built(keys: &[Vec<u128>], memory: u64) -> KeySet {
    let folder = tempfile::tempdir().unwrap();
    let expected = keys.iter().map(|part| part.len() as u64).sum::<u64>() / 2;
    let mut builder = KeySetBuilder::new(expected, memory, folder.path()).unwrap();
    keys.iter().for_each(|part| builder.push(part).unwrap());
    let set = builder.finish().unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "no file is left behind");
    set
}

/// Keys that are spread, that are close to each other, and the ends.
fn key() -> impl Strategy<Value = u128> {
    prop_oneof![
        any::<u128>(),
        (0u128..400).prop_map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835)),
        0u128..300,
        (0u128..300).prop_map(|n| u128::MAX - n),
        (0u128..300).prop_map(|n| (7 << 120) | n),
    ]
}

proptest! {
    #[test]
    fn a_set_has_what_was_put_in(
        parts in proptest::collection::vec(proptest::collection::vec(key(), 0..400), 0..6),
        probes in proptest::collection::vec(key(), 0..200),
        in_memory in any::<bool>(),
    ) {
        let set = built(&parts, if in_memory { 1 << 30 } else { 64 });
        let wanted: BTreeSet<u128> = parts.iter().flatten().copied().collect();
        prop_assert_eq!(set.len(), wanted.len() as u64);
        let probes: Vec<u128> = probes.into_iter().chain(wanted.iter().copied()).collect();
        let mut found = vec![true; 3];
        set.probe(&probes, &mut found).unwrap();
        prop_assert_eq!(found, probes.iter().map(|probe| wanted.contains(probe)).collect::<Vec<_>>());
        let mut all = Vec::new();
        set.for_each_sorted(|part| { all.extend_from_slice(part); Ok(()) }).unwrap();
        prop_assert_eq!(all, wanted.into_iter().collect::<Vec<_>>());
    }
}

fn spread(n: u64) -> u128 {
    u128::from(n).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835)
}

#[test]
fn many_keys_take_few_bytes_and_are_all_found() {
    let keys: Vec<u128> = (0..300_000).map(spread).collect();
    let set = built(std::slice::from_ref(&keys), 1 << 30);
    assert!(!set.is_on_disk() && set.memory_bytes() <= 20 * set.len(), "{} bytes", set.memory_bytes());
    let on_disk = built(std::slice::from_ref(&keys), 1 << 20);
    assert!(on_disk.is_on_disk() && on_disk.memory_bytes() < 1 << 17, "{} bytes", on_disk.memory_bytes());
    let probes: Vec<u128> = (0..600_000).map(spread).collect();
    for set in [set, on_disk] {
        let mut found = Vec::new();
        set.probe(&probes, &mut found).unwrap();
        assert!(found.iter().enumerate().all(|(n, found)| *found == (n < 300_000)));
    }
}

#[test]
fn keys_that_are_all_alike_do_not_take_for_ever() {
    // All in one bucket, and all of one part that does not fit into memory.
    let keys: Vec<u128> = (0..200_000).collect();
    for memory in [1 << 30, 1 << 19] {
        let set = built(&[keys.clone(), keys.clone()], memory);
        assert_eq!(set.len(), 200_000);
        let mut found = Vec::new();
        set.probe(&keys, &mut found).unwrap();
        assert!(found.iter().all(|found| *found));
    }
}
