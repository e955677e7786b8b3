//! Indexes: from a key's hash to where its record lies.
//!
//! An index holds no keys, only candidates: several keys may share a hash, and an index may keep fewer bits of it than it
//! is given. Whoever looks up reads the record and compares the key. In return at most one location is held for a key.

pub mod plain;
#[cfg(test)]
mod suite;

pub use plain::PlainIndex;

use crate::record::Location;

/// Where a scan of an index goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexCursor(pub u64);

pub trait Index: Send + Sync {
    /// Adds all locations that `hash` may stand for, newest first.
    fn lookup(&self, hash: u64, found: &mut Candidates);
    /// Adds a location, the newest of its hash.
    fn insert(&mut self, hash: u64, location: Location);
    /// Puts `new`, now the newest of its hash, in the place of `old`. False, and no change, if `old` is not there.
    fn replace(&mut self, hash: u64, old: Location, new: Location) -> bool;
    /// False if `old` is not there.
    fn remove(&mut self, hash: u64, old: Location) -> bool;
    /// Locations held.
    fn len(&self) -> u64;
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    fn memory_bytes(&self) -> usize;
    /// Adds some `limit` locations from `cursor` on (the default one is the start), and says where to go on; `None` at the
    /// end. What stays in the index from the first call to the last, though it may be replaced, is given at least once.
    fn scan(&self, cursor: IndexCursor, limit: usize, found: &mut Vec<Location>) -> Option<IndexCursor>;
}

/// Locations that may be a key's. One is the rule, and takes no allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Candidates {
    first: Option<Location>,
    more: Vec<Location>,
}

impl Candidates {
    pub fn push(&mut self, location: Location) {
        match self.first {
            None => self.first = Some(location),
            Some(_) => self.more.push(location),
        }
    }

    pub fn get(&self, at: usize) -> Option<Location> {
        match at {
            0 => self.first,
            _ => self.more.get(at - 1).copied(),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = Location> + '_ {
        self.first.into_iter().chain(self.more.iter().copied())
    }

    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }
}
