//! Indexes: from a key's hash to where its record lies.
//!
//! An index holds no keys, only candidates: several keys may share a hash, an index may keep fewer bits of it than it is
//! given, and it may know no more of a place than a stretch of the log. Whoever looks up reads there and compares the key.
//! In return at most one place is held for a key.

pub mod hash;
pub mod plain;
#[cfg(test)]
mod suite;

pub use hash::{HashHeap, HashIndex, HashOptions};
pub use plain::PlainIndex;

use crate::ids::SegmentId;
use crate::record::Location;

/// Where a scan of an index goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexCursor(pub u64);

/// Where a record may lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Candidate {
    pub segment: SegmentId,
    pub offset: u64,
    /// The record begins in one of so many bytes from `offset` on: a page, or 1 for an index that knows the very place.
    pub window: u32,
    /// What to read from `offset` on to have all of the record, unless it is [`Candidate::open_ended`].
    pub len: u32,
    /// The page also holds an older record of the same key that this might be taken for.
    pub repeated: bool,
}

impl Candidate {
    /// The very place.
    pub fn exact(location: Location) -> Candidate {
        let Location { segment, offset, len } = location;
        Candidate { segment, offset, window: 1, len, repeated: false }
    }

    /// What an index that knows pages of `window` bytes keeps of a location: the page, and one of 14 lengths.
    ///
    /// Of a page's records only the last one may run over its end, so that length and page together name that one.
    pub fn coarse(location: Location, window: u32) -> Candidate {
        let Location { segment, offset, len } = location;
        let start = offset - offset % window as u64;
        let beyond = (offset + len as u64).saturating_sub(start + window as u64);
        let sectors = beyond.div_ceil(SECTOR as u64);
        let length = SECTORS_BEYOND.iter().copied().find(|&most| most as u64 >= sectors).unwrap_or(SECTORS_BEYOND_MAX);
        Candidate { segment, offset: start, window, len: window + length as u32 * SECTOR, repeated: false }
    }

    /// Whether it may be the record at that location.
    pub fn covers(&self, location: Location) -> bool {
        let stands_for =
            if self.window == 1 { Candidate::exact(location) } else { Candidate::coarse(location, self.window) };
        self.same_place(&stands_for)
    }

    /// Whether the record may be longer than what is to be read at first; its header says how long.
    pub fn open_ended(&self) -> bool {
        self.window > 1 && self.len == self.window + SECTORS_BEYOND_MAX as u32 * SECTOR
    }

    /// Whether both stand for the same records.
    pub fn same_place(&self, other: &Candidate) -> bool {
        Candidate { repeated: false, ..*self } == Candidate { repeated: false, ..*other }
    }
}

const SECTOR: u32 = 512;
/// By how many sectors a record runs over the end of its page, at most.
const SECTORS_BEYOND: [u8; 15] = [0, 1, 2, 3, 4, 5, 7, 9, 11, 15, 19, 23, 31, 47, SECTORS_BEYOND_MAX];
const SECTORS_BEYOND_MAX: u8 = 63;

pub trait Index: Send + Sync {
    /// Adds all candidates that `hash` may stand for, newest first.
    fn lookup(&self, hash: u64, found: &mut Candidates);
    /// [`Index::lookup`] of many hashes, whose waits for memory overlap.
    fn lookup_many(&self, hashes: &[u64], found: &mut [Candidates]) {
        assert_eq!(hashes.len(), found.len(), "one place for each answer");
        hashes.iter().zip(found).for_each(|(&hash, found)| self.lookup(hash, found));
    }
    /// Adds a location, the newest of its hash.
    fn insert(&mut self, hash: u64, location: Location);
    /// Some so many entries are going to be loaded in all.
    fn reserve(&mut self, _entries: u64) {}
    /// [`Index::insert`] of many, later ones newer, at a fraction of the cost.
    fn load(&mut self, entries: &[(u64, Location)]) {
        entries.iter().for_each(|&(hash, location)| self.insert(hash, location));
    }
    /// Puts `new`, now the newest of its hash, in the place of `old`. False, and no change, if `old` is not there.
    fn replace(&mut self, hash: u64, old: Candidate, new: Location) -> bool;
    /// False if `old` is not there.
    fn remove(&mut self, hash: u64, old: Candidate) -> bool;
    /// Makes one candidate like this [`Candidate::repeated`]. False if it is not there.
    fn mark_repeated(&mut self, hash: u64, at: Candidate) -> bool;
    /// The bits of a hash that the index tells apart.
    fn hash_mask(&self) -> u64;
    /// Candidates held.
    fn len(&self) -> u64;
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    fn memory_bytes(&self) -> usize;
    /// Adds some `limit` candidates from `cursor` on (the default one is the start), each with what is known of its hash
    /// ([`Index::hash_mask`]), and says where to go on; `None` at the end. What stays in the index from the first call to
    /// the last, though it may be replaced, is given at least once.
    fn scan(&self, cursor: IndexCursor, limit: usize, found: &mut Vec<(u64, Candidate)>) -> Option<IndexCursor>;
    /// The segment, which no candidate names any more, is gone.
    fn forget_segment(&mut self, segment: SegmentId);
}

/// Places that may be a key's. One is the rule, and takes no allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Candidates {
    first: Option<Candidate>,
    more: Vec<Candidate>,
}

impl Candidates {
    pub fn push(&mut self, candidate: Candidate) {
        match self.first {
            None => self.first = Some(candidate),
            Some(_) => self.more.push(candidate),
        }
    }

    pub fn clear(&mut self) {
        self.first = None;
        self.more.clear();
    }

    pub fn get(&self, at: usize) -> Option<Candidate> {
        match at {
            0 => self.first,
            _ => self.more.get(at - 1).copied(),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = Candidate> + '_ {
        self.first.into_iter().chain(self.more.iter().copied())
    }

    pub fn len(&self) -> usize {
        self.first.is_some() as usize + self.more.len()
    }

    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }
}
