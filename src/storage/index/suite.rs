//! What every index promises, checked against a list of what it was told.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// No two in the same page.
fn at(number: u64) -> Location {
    let segment = SegmentId(1 + number % 7);
    Location { segment, offset: number * 1024 + number % 300, len: 20 + (number * 37 % 3000) as u32 }
}

fn found(index: &dyn Index, hash: u64) -> Vec<Candidate> {
    let mut found = [Candidates::default(), Candidates::default()];
    index.lookup(hash, &mut found[0]);
    index.lookup_many(&[hash], &mut found[1..]);
    assert_eq!(found[0], found[1], "alone and in a batch alike");
    assert_eq!(found[0].len(), found[0].iter().count());
    found[0].iter().collect()
}

/// The candidate that stands for a location.
fn standing_for(index: &dyn Index, hash: u64, location: Location) -> Candidate {
    let found = found(index, hash).into_iter().find(|candidate| candidate.covers(location));
    found.unwrap_or_else(|| panic!("{location:?} is in the index"))
}

fn remove(index: &mut dyn Index, hash: u64, location: Location) -> bool {
    let found = found(index, hash).into_iter().find(|candidate| candidate.covers(location));
    found.is_some_and(|candidate| index.remove(hash, candidate))
}

/// Candidates of places where nothing is.
fn absent() -> [Candidate; 2] {
    let nowhere = Location { segment: SegmentId(3), offset: 10, len: 20 };
    [Candidate::exact(nowhere), Candidate::coarse(nowhere, 512)]
}

fn scanned(index: &dyn Index, limit: usize) -> Vec<(u64, Candidate)> {
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
                    let old = standing_for(&*index, hash, old);
                    assert!(index.replace(hash, old, new));
                    model.remove(i);
                    model.push((hash, new));
                }
                None => assert!(absent().into_iter().all(|nowhere| !index.replace(hash, nowhere, new))),
            },
            Step::Remove(hash, depth) => {
                if let Some((i, old)) = nth(&model, hash, depth) {
                    assert!(remove(&mut *index, hash, old));
                    model.remove(i);
                }
            }
            Step::RemoveAbsent(hash) => assert!(absent().into_iter().all(|nowhere| !index.remove(hash, nowhere))),
        }
        assert_eq!(index.len(), model.len() as u64);
    }
    compare(&*index, &model);
}

fn compare(index: &dyn Index, model: &[(u64, Location)]) {
    for &(hash, _) in model {
        let expected: Vec<_> = model.iter().rev().filter(|entry| entry.0 == hash).map(|entry| entry.1).collect();
        let found = found(index, hash);
        // Others may be given too, but these in this order.
        let found = found.iter().filter(|found| expected.iter().any(|&location| found.covers(location)));
        assert!(found.clone().zip(&expected).all(|(found, &location)| found.covers(location)));
        assert_eq!(found.count(), expected.len());
    }
    for limit in [1, 7, 1000] {
        let scanned = scanned(index, limit);
        assert_eq!(scanned.len(), model.len(), "nothing twice while nothing changes");
        let mask = index.hash_mask();
        for &(hash, location) in model {
            let stands_for = |entry: &&(u64, Candidate)| entry.0 == hash & mask && entry.1.covers(location);
            assert_eq!(scanned.iter().filter(stands_for).count(), 1);
        }
    }
}

fn colliding_hashes_are_kept_apart(mut index: Box<dyn Index>) {
    // More than any block holds.
    let count = 300;
    let locations: Vec<_> = (1..=count).map(at).collect();
    locations.iter().for_each(|&location| index.insert(42, location));
    let mut model: Vec<_> = locations.iter().map(|&location| (42, location)).collect();
    compare(&*index, &model);
    assert!(remove(&mut *index, 42, locations[50]) && !remove(&mut *index, 42, locations[50]));
    assert!(remove(&mut *index, 42, locations[280]) && !remove(&mut *index, 42, locations[280]));
    model.retain(|entry| ![locations[50], locations[280]].contains(&entry.1));
    for (number, old) in [(1000, 10), (1001, 290), (1002, 20)] {
        let old = locations[old];
        let candidate = standing_for(&*index, 42, old);
        assert!(index.replace(42, candidate, at(number)));
        model.retain(|entry| entry.1 != old);
        model.push((42, at(number)));
    }
    compare(&*index, &model);
    for (hash, location) in model {
        assert!(remove(&mut *index, hash, location));
    }
    assert!(index.is_empty() && found(&*index, 42).is_empty());
}

fn a_scan_gives_what_stays(mut index: Box<dyn Index>) {
    let hash = |i: u64| i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (1..=3000).for_each(|i| index.insert(hash(i), at(i)));
    // First it grows while it is scanned, then it shrinks.
    for (come, go) in [(2, 1), (0, 1)] {
        let mut seen = Vec::new();
        let mut cursor = Some(IndexCursor::default());
        let mut turn = 0;
        while let Some(at_cursor) = cursor {
            cursor = index.scan(at_cursor, 10, &mut seen);
            turn += 1;
            if come > 0 {
                // Even ones stay; odd ones go, and twice as many others come.
                assert!(turn >= 1500 || remove(&mut *index, hash(2 * turn - 1), at(2 * turn - 1)));
                (0..come).for_each(|i| index.insert(hash(10_000 + 2 * turn + i), at(10_000 + 2 * turn + i)));
            } else {
                (0..8 * go).map(|i| 10_002 + 8 * turn + i).for_each(|i| {
                    remove(&mut *index, hash(i), at(i));
                });
            }
            assert!(turn < 3000, "a scan ends while the index changes");
        }
        let seen: BTreeSet<_> = seen.into_iter().map(|(_, candidate)| (candidate.segment, candidate.offset)).collect();
        for location in (1..=1500).map(|i| at(2 * i)) {
            let candidate = standing_for(&*index, hash((location.offset - location.offset % 1024) / 1024), location);
            assert!(seen.contains(&(candidate.segment, candidate.offset)));
        }
    }
}

fn many_at_once_are_as_one_by_one(mut index: Box<dyn Index>) {
    let mut model: Vec<(u64, Location)> = Vec::new();
    let mut number = 0;
    for count in [0, 1, 3000, 10, 700, 300] {
        // Few hashes among them, one of them more often than a block can hold.
        let hash = |number: u64| match (count, number % 3) {
            (300, _) => 42,
            (_, 0) => (number % 7) << 40,
            _ => number.wrapping_mul(0x9E37_79B9_7F4A_7C15),
        };
        let entries: Vec<_> = (number..number + count).map(|number| (hash(number), at(number + 1))).collect();
        index.load(&entries);
        model.extend(entries);
        number += count;
        assert_eq!(index.len(), model.len() as u64);
    }
    compare(&*index, &model);
    for (hash, location) in model.drain(..) {
        assert!(remove(&mut *index, hash, location));
    }
    assert!(index.is_empty());
}

fn memory_is_given_back(mut index: Box<dyn Index>) {
    let hash = |i: u64| i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let empty = index.memory_bytes();
    (0..20_000).for_each(|i| index.insert(hash(i), at(i)));
    let full = index.memory_bytes();
    assert!(full > empty);
    (0..20_000).for_each(|i| assert!(remove(&mut *index, hash(i), at(i))));
    (1..=7).for_each(|segment| index.forget_segment(SegmentId(segment)));
    assert!(index.is_empty() && index.memory_bytes() <= empty + full / 10, "{empty} {full} {}", index.memory_bytes());
}

/// Runs everything against indexes that `make` makes.
pub(super) fn run(make: impl Fn() -> Box<dyn Index>) {
    colliding_hashes_are_kept_apart(make());
    a_scan_gives_what_stays(make());
    memory_is_given_back(make());
    many_at_once_are_as_one_by_one(make());
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

#[test]
fn the_hash_index() {
    run(|| Box::new(HashIndex::new(&HashHeap::default(), HashOptions::default())));
}

/// Few hash bits and page numbers: all that is kept aside is used.
#[test]
fn a_hash_index_without_room() {
    let options = HashOptions { location_bits: 11, ..HashOptions::default() };
    run(|| Box::new(HashIndex::new(&HashHeap::default(), options)));
}
