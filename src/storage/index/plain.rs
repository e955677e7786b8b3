//! The index that is too plain to be wrong: what others are compared with.

use super::{Candidate, Candidates, Index, IndexCursor};
use crate::ids::SegmentId;
use crate::record::Location;
use std::collections::BTreeMap;

/// The locations of each hash, oldest first.
#[derive(Default)]
pub struct PlainIndex {
    locations: BTreeMap<u64, Vec<Location>>,
    len: u64,
}

impl PlainIndex {
    pub(super) fn contains(&self, hash: u64) -> bool {
        self.locations.contains_key(&hash)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, Location)> + '_ {
        self.locations.iter().flat_map(|(&hash, locations)| locations.iter().map(move |&location| (hash, location)))
    }
}

impl Index for PlainIndex {
    fn lookup(&self, hash: u64, found: &mut Candidates) {
        let locations = self.locations.get(&hash).into_iter().flatten();
        locations.rev().for_each(|&location| found.push(Candidate::exact(location)));
    }

    fn insert(&mut self, hash: u64, location: Location) {
        self.locations.entry(hash).or_default().push(location);
        self.len += 1;
    }

    fn replace(&mut self, hash: u64, old: Candidate, new: Location) -> bool {
        let removed = self.remove(hash, old);
        if removed {
            self.insert(hash, new);
        }
        removed
    }

    fn remove(&mut self, hash: u64, old: Candidate) -> bool {
        let Some(locations) = self.locations.get_mut(&hash) else { return false };
        let Some(at) = locations.iter().position(|&location| old.covers(location)) else { return false };
        locations.remove(at);
        if locations.is_empty() {
            self.locations.remove(&hash);
        }
        self.len -= 1;
        true
    }

    /// Never needed: the very places are known.
    fn mark_repeated(&mut self, _hash: u64, _at: Candidate) -> bool {
        false
    }

    fn hash_mask(&self) -> u64 {
        u64::MAX
    }

    fn len(&self) -> u64 {
        self.len
    }

    /// An estimate: a tree's nodes are about two thirds full.
    fn memory_bytes(&self) -> usize {
        let entry = size_of::<u64>() + size_of::<Vec<Location>>();
        self.locations.len() * entry * 3 / 2 + self.len as usize * size_of::<Location>()
    }

    /// In the order of the hashes; those of one hash together, whatever `limit` says.
    fn scan(&self, cursor: IndexCursor, limit: usize, found: &mut Vec<(u64, Candidate)>) -> Option<IndexCursor> {
        let enough = found.len() + limit.max(1);
        for (&hash, locations) in self.locations.range(cursor.0..) {
            if found.len() >= enough {
                return Some(IndexCursor(hash));
            }
            found.extend(locations.iter().map(|&location| (hash, Candidate::exact(location))));
        }
        None
    }

    fn forget_segment(&mut self, _segment: SegmentId) {}
}
