//! Where entries lie, by the hash of their keys.
//!
//! ```text
//! bucket: 16 slots, two cache lines         slot: tag, 27 bits │ uses, 2 bits │ place, 35 bits
//! ```
//! A tag is the lowest bits of the hash, and the lowest of them are the bucket's number, so that the table grows and
//! shrinks without a look at the entries. A tag is no proof: whoever looks up compares what lies at the place.
//!
//! A full bucket forgets: a cache may. First it forgets the *ghosts*, slots of entries that went unused and that are
//! remembered so that they stay longer if they come back.

use env::Pages;
use std::ops::Range;

const SLOTS: usize = 16;
const PLACE_BITS: u32 = 35;
const USES_SHIFT: u32 = PLACE_BITS;
pub(super) const USES_MAX: u64 = 3;
const TAG_SHIFT: u32 = PLACE_BITS + 2;
const BUCKETS_MIN: usize = 32;
/// Entries for each bucket, on average, before the table grows. Of a hundred then one found its bucket full.
const LOAD_MAX: usize = 10;

/// Where an entry lies: not [`Place::NONE`] nor [`Place::GHOST`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(pub(super) u64);

impl Place {
    const NONE: Place = Place(0);
    const GHOST: Place = Place(1);
    /// The least place of an entry.
    pub(super) const FIRST: Place = Place(2);
    pub(super) const BITS: u32 = PLACE_BITS;

    fn is_entry(self) -> bool {
        self.0 >= Place::FIRST.0
    }
}

/// A slot's number, valid until the table changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct At(usize);

#[derive(Clone, Copy)]
struct Slot(u64);

impl Slot {
    fn new(tag: u64, uses: u64, place: Place) -> Slot {
        Slot(tag << TAG_SHIFT | uses << USES_SHIFT | place.0)
    }

    fn tag(self) -> u64 {
        self.0 >> TAG_SHIFT
    }

    fn uses(self) -> u64 {
        self.0 >> USES_SHIFT & USES_MAX
    }

    fn place(self) -> Place {
        Place(self.0 & ((1 << PLACE_BITS) - 1))
    }
}

fn tag(hash: u64) -> u64 {
    hash & (u64::MAX >> TAG_SHIFT)
}

#[derive(Default)]
pub(super) struct Table {
    /// None before the first entry.
    slots: Option<Pages>,
    buckets: usize,
    /// Slots that are no ghosts.
    entries: usize,
}

impl Table {
    fn with_buckets(buckets: usize) -> Table {
        Table { slots: Some(Pages::new(buckets * SLOTS)), buckets, entries: 0 }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.buckets * SLOTS * 8
    }

    pub(super) fn entries(&self) -> usize {
        self.entries
    }

    #[inline]
    fn bucket(&self, hash: u64) -> Range<usize> {
        if self.buckets == 0 {
            return 0..0;
        }
        let start = (tag(hash) as usize & (self.buckets - 1)) * SLOTS;
        start..start + SLOTS
    }

    #[inline]
    fn slots(&self) -> &[u64] {
        self.slots.as_deref().unwrap_or_default()
    }

    #[inline]
    fn slot(&self, at: usize) -> Slot {
        Slot(self.slots()[at])
    }

    #[inline]
    fn set(&mut self, at: usize, slot: Slot) {
        self.slots.as_mut().expect("has slots")[at] = slot.0;
    }

    /// Something of all that a look at the hash's bucket waits for.
    #[inline]
    pub(super) fn touch(&self, hash: u64) -> u64 {
        let bucket = &self.slots()[self.bucket(hash)];
        bucket.first().copied().unwrap_or(0) ^ bucket.last().copied().unwrap_or(0)
    }

    /// The entries whose key may have that hash.
    #[inline]
    pub(super) fn find(&self, hash: u64) -> impl Iterator<Item = (At, Place)> + '_ {
        let (bucket, tag) = (self.bucket(hash), tag(hash));
        let start = bucket.start;
        let fits = move |(_, slot): &(usize, Slot)| slot.tag() == tag && slot.place().is_entry();
        let slots = self.slots()[bucket].iter().enumerate().map(|(at, &slot)| (at, Slot(slot)));
        slots.filter(fits).map(move |(at, slot)| (At(start + at), slot.place()))
    }

    /// One more use of the entry.
    #[inline]
    pub(super) fn used(&mut self, At(at): At) {
        let slot = self.slot(at);
        if slot.uses() < USES_MAX {
            self.set(at, Slot::new(slot.tag(), slot.uses() + 1, slot.place()));
        }
    }

    pub(super) fn uses(&self, At(at): At) -> u64 {
        self.slot(at).uses()
    }

    /// The entry lies elsewhere by now.
    pub(super) fn moved(&mut self, At(at): At, uses: u64, place: Place) {
        self.set(at, Slot::new(self.slot(at).tag(), uses, place));
    }

    pub(super) fn remove(&mut self, At(at): At) {
        self.set(at, Slot(0));
        self.entries -= 1;
    }

    /// Removes the entry and remembers that it was there.
    pub(super) fn leave_ghost(&mut self, At(at): At) {
        self.set(at, Slot::new(self.slot(at).tag(), 0, Place::GHOST));
        self.entries -= 1;
    }

    /// Whether there is a ghost of an entry with that hash, which then is gone.
    pub(super) fn take_ghost(&mut self, hash: u64) -> bool {
        let ghost = Slot::new(tag(hash), 0, Place::GHOST).0;
        let found = self.bucket(hash).find(|&at| self.slot(at).0 == ghost);
        if let Some(at) = found {
            self.set(at, Slot(0));
        }
        found.is_some()
    }

    /// Adds an entry that is not there; returns the place of one that had to go for it.
    pub(super) fn insert(&mut self, hash: u64, place: Place) -> Option<Place> {
        debug_assert!(place.is_entry() && place.0 >> PLACE_BITS == 0, "{place:?}");
        if self.entries >= self.buckets * LOAD_MAX && self.buckets < 1 << (64 - TAG_SHIFT - 6) {
            self.resize((self.buckets * 2).max(BUCKETS_MIN));
        }
        let (at, forgotten) = self.room(self.bucket(hash));
        self.set(at, Slot::new(tag(hash), 0, place));
        self.entries += forgotten.is_none() as usize;
        forgotten
    }

    /// A slot to be overwritten: an empty one, else a ghost's, else the one used least.
    fn room(&self, bucket: Range<usize>) -> (usize, Option<Place>) {
        let rank = |at: &usize| match self.slot(*at) {
            slot if slot.place() == Place::NONE => 0,
            slot if slot.place() == Place::GHOST => 1,
            slot => 2 + slot.uses(),
        };
        let at = bucket.min_by_key(rank).expect("a bucket has slots");
        (at, Some(self.slot(at).place()).filter(|place| place.is_entry()))
    }

    /// Gives memory back if most of it is not needed.
    pub(super) fn shrink(&mut self) {
        while self.buckets > BUCKETS_MIN && self.entries < self.buckets * LOAD_MAX / 4 {
            self.resize(self.buckets / 2);
        }
    }

    fn resize(&mut self, buckets: usize) {
        let old = std::mem::replace(self, Table::with_buckets(buckets));
        for at in 0..old.buckets * SLOTS {
            let slot = old.slot(at);
            if slot.place() == Place::NONE {
                continue;
            }
            let (at, forgotten) = self.room(self.bucket(slot.tag()));
            if slot.place().is_entry() || self.slot(at).0 == 0 {
                self.entries += (slot.place().is_entry() && forgotten.is_none()) as usize;
                self.set(at, slot);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::sim::stream;

    fn place(table: &Table, hash: u64) -> Option<Place> {
        table.find(hash).map(|(_, place)| place).next()
    }

    #[test]
    fn it_grows_and_shrinks_and_keeps_nearly_all() {
        let mut table = Table::default();
        let mut dice = stream(1, "table");
        let hashes: Vec<u64> = (0..100_000).map(|_| dice.next_u64()).collect();
        for (number, &hash) in hashes.iter().enumerate() {
            table.insert(hash, Place(number as u64 + 2));
        }
        let found = |table: &Table, range: Range<usize>| {
            let kept = |at: &usize| table.find(hashes[*at]).any(|(_, place)| place.0 == *at as u64 + 2);
            range.filter(kept).count()
        };
        assert_eq!(found(&table, 0..100_000), table.entries());
        assert!(table.entries() > 99_000, "{} of 100,000 are kept", table.entries());
        let full = table.memory_bytes();
        for &hash in &hashes[..99_000] {
            let at = table.find(hash).next().map(|(at, _)| at);
            at.into_iter().for_each(|at| table.remove(at));
        }
        let left = found(&table, 99_000..100_000);
        table.shrink();
        assert!(table.memory_bytes() * 16 <= full && table.entries() == left && found(&table, 99_000..100_000) == left);
    }

    #[test]
    fn a_full_bucket_forgets_ghosts_first_and_then_what_is_used_least() {
        let mut table = Table::default();
        let hash = |number: u64| number << 40;
        let numbers = 0..SLOTS as u64;
        // Equal tags: only the places tell them apart.
        for number in numbers.clone() {
            assert_eq!(table.insert(hash(number), Place(10 + number)), None);
        }
        let at = |table: &Table, place: u64| table.find(0).find(|found| found.1 == Place(place)).map(|found| found.0);
        for number in numbers.filter(|number| *number != 3) {
            let slot = at(&table, 10 + number).expect("is there");
            table.used(slot);
        }
        assert_eq!(table.insert(0, Place(30)), Some(Place(13)));
        let slot = at(&table, 15).expect("is there");
        table.leave_ghost(slot);
        assert_eq!(table.entries(), SLOTS - 1);
        assert_eq!(table.insert(0, Place(31)), None, "takes the ghost's slot");
        assert!(!table.take_ghost(0));
        let slot = at(&table, 31).expect("is there");
        table.leave_ghost(slot);
        assert!(table.take_ghost(0) && !table.take_ghost(0) && place(&table, 0).is_some());
    }
}
