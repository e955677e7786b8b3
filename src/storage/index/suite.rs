//! What every index promises, checked against a list of what it was told.

use super::*;
use crate::ids::SegmentId;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn at(offset: u64) -> Location {
    Location { segment: SegmentId(1 + offset % 7), offset, len: 20 + offset as u32 % 100 }
}

fn found(index: &dyn Index, hash: u64) -> Vec<Location> {
    let mut found = Candidates::default();
    index.lookup(hash, &mut found);
    found.iter().collect()
}

fn scanned(index: &dyn Index, limit: usize) -> Vec<Location> {
    let mut found = Vec::new();
    let mut cursor = Some(IndexCursor::default());
    while let Some(at) = cursor {
        cursor = index.scan(at, limit, &mut found);
    }
    found
}

/// One step of a test: what to do with which hash, counted locations deep.
#[derive(Clone, Debug)]
enum Step {
    Insert(u64),
    Replace(u64, usize),
    Remove(u64, usize),
    RemoveAbsent(u64),
}

fn step() -> impl Strategy<Value = Step> {
    // Few hashes, so that full hashes collide; high and low ones, so that growth has something to split.
    let hash = prop_oneof![0..8u64, any::<u64>().prop_map(|hash| hash & 0xff00_0000_0000_00ff), any::<u64>()];
    (hash, 0..4usize, 0..10).prop_map(|(hash, depth, kind)| match kind {
        0..=5 => Step::Insert(hash),
        6 => Step::Replace(hash, depth),
        7 | 8 => Step::Remove(hash, depth),
        _ => Step::RemoveAbsent(hash),
    })
}

/// Applies the steps to an index and to a list of what should be in it, and compares them.
fn follow(mut index: Box<dyn Index>, steps: &[Step]) {
    let mut model: Vec<(u64, Location)> = Vec::new();
    let nth = |model: &[(u64, Location)], hash, depth| {
        let mut of_hash = model.iter().enumerate().filter(|(_, entry)| entry.0 == hash);
        of_hash.nth(depth).map(|(i, entry)| (i, entry.1))
    };
    for (i, step) in steps.iter().enumerate() {
        let new = at(1000 + i as u64);
        match *step {
            Step::Insert(hash) => {
                index.insert(hash, new);
                model.push((hash, new));
            }
            Step::Replace(hash, depth) => match nth(&model, hash, depth) {
                Some((i, old)) => {
                    assert!(index.replace(hash, old, new));
                    model.remove(i);
                    model.push((hash, new));
                }
                None => assert!(!index.replace(hash, at(1), new)),
            },
            Step::Remove(hash, depth) => {
                if let Some((i, old)) = nth(&model, hash, depth) {
                    assert!(index.remove(hash, old));
                    model.remove(i);
                }
            }
            Step::RemoveAbsent(hash) => assert!(!index.remove(hash, at(1))),
        }
        assert_eq!(index.len(), model.len() as u64);
    }
    for &(hash, _) in &model {
        let expected: Vec<_> = model.iter().rev().filter(|entry| entry.0 == hash).map(|entry| entry.1).collect();
        // Others may be given too, but these in this order.
        let found: Vec<_> = found(&*index, hash).into_iter().filter(|found| expected.contains(found)).collect();
        assert_eq!(found, expected);
    }
    let expected: BTreeSet<_> = model.iter().map(|entry| entry.1).collect();
    for limit in [1, 7, 1000] {
        let scanned = scanned(&*index, limit);
        assert_eq!(scanned.iter().copied().collect::<BTreeSet<_>>(), expected);
        assert_eq!(scanned.len(), expected.len(), "nothing twice while nothing changes");
    }
}

fn colliding_hashes_are_kept_apart(mut index: Box<dyn Index>) {
    let locations: Vec<_> = (0..100).map(at).collect();
    locations.iter().for_each(|&location| index.insert(42, location));
    let newest_first: Vec<_> = locations.iter().rev().copied().collect();
    assert_eq!(found(&*index, 42), newest_first);
    assert!(index.remove(42, locations[50]) && !index.remove(42, locations[50]));
    assert!(index.replace(42, locations[10], at(500)));
    let left = found(&*index, 42);
    assert_eq!((left.len(), left[0]), (99, at(500)));
    assert!(!left.contains(&locations[50]) && !left.contains(&locations[10]));
}

fn a_scan_gives_what_stays(mut index: Box<dyn Index>) {
    let hash = |i: u64| i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (0..3000).for_each(|i| index.insert(hash(i), at(i)));
    let mut seen = Vec::new();
    let mut cursor = Some(IndexCursor::default());
    let mut turn = 0;
    while let Some(at_cursor) = cursor {
        cursor = index.scan(at_cursor, 10, &mut seen);
        // Even ones stay; odd ones go, and twice as many others come.
        assert!(turn >= 1500 || index.remove(hash(2 * turn + 1), at(2 * turn + 1)));
        index.insert(hash(10_000 + 2 * turn), at(10_000 + 2 * turn));
        index.insert(hash(10_001 + 2 * turn), at(10_001 + 2 * turn));
        turn += 1;
        assert!(turn < 3000, "a scan ends while the index grows");
    }
    let seen: BTreeSet<_> = seen.into_iter().collect();
    assert!((0..1500).all(|i| seen.contains(&at(2 * i))));
}

fn memory_is_given_back(mut index: Box<dyn Index>) {
    let hash = |i: u64| i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let empty = index.memory_bytes();
    (0..20_000).for_each(|i| index.insert(hash(i), at(i)));
    let full = index.memory_bytes();
    assert!(full > empty);
    (0..20_000).for_each(|i| assert!(index.remove(hash(i), at(i))));
    assert!(index.is_empty() && index.memory_bytes() <= empty + full / 10, "{empty} {full} {}", index.memory_bytes());
}

/// Runs everything against indexes that `make` makes.
pub(super) fn run(make: impl Fn() -> Box<dyn Index>) {
    colliding_hashes_are_kept_apart(make());
    a_scan_gives_what_stays(make());
    memory_is_given_back(make());
    let config = ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = proptest::test_runner::TestRunner::new_with_rng(
        config,
        proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    );
    let steps = proptest::collection::vec(step(), 1..300);
    let followed = runner.run(&steps, |steps| {
        follow(make(), &steps);
        Ok(())
    });
    followed.expect("behaves as the list does");
}

#[test]
fn the_plain_index() {
    run(|| Box::new(PlainIndex::default()));
}
