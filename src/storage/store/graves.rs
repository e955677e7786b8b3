//! Dead records that an index cannot tell from live ones.
//!
//! An index names a page, not a record. When two keys have the same hash, as far as the index knows it, and records of
//! both begin in the same page, the one's candidate stands for the other as well: that other one's record is found there
//! even after it was overwritten or removed elsewhere. This is where its death is noted then. It takes a collision within
//! a page, so that hardly any region has a single grave.

use crate::ids::SegmentId;
use crate::index::Candidate;
use std::collections::BTreeMap;

#[derive(Clone, Default)]
pub(crate) struct Graves {
    /// The hashes of keys whose records in a place are dead.
    dead: BTreeMap<Place, Vec<u128>>,
}

/// Segment, offset, window and length of a [`Candidate`].
type Place = (SegmentId, u64, u32, u32);

fn place(candidate: &Candidate) -> Place {
    (candidate.segment, candidate.offset, candidate.window, candidate.len)
}

impl Graves {
    pub(crate) fn add(&mut self, candidate: &Candidate, key_hash: u128) {
        let dead = self.dead.entry(place(candidate)).or_default();
        if !dead.contains(&key_hash) {
            dead.push(key_hash);
        }
    }

    /// The key has a live record there again.
    pub(crate) fn lift(&mut self, candidate: &Candidate, key_hash: u128) {
        if let Some(dead) = self.dead.get_mut(&place(candidate)) {
            dead.retain(|&hash| hash != key_hash);
            if dead.is_empty() {
                self.dead.remove(&place(candidate));
            }
        }
    }

    /// The segment is gone, and all places in it.
    pub(crate) fn forget_segment(&mut self, segment: SegmentId) {
        self.dead.retain(|place, _| place.0 != segment);
    }

    pub(crate) fn contains(&self, candidate: &Candidate, key_hash: u128) -> bool {
        !self.dead.is_empty() && self.dead.get(&place(candidate)).is_some_and(|dead| dead.contains(&key_hash))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.dead.is_empty()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.dead.values().map(|dead| size_of::<Place>() + 48 + dead.capacity() * 16).sum()
    }
}
