//! Records that were read or written of late, in memory, for all regions of a node.
//!
//! What it promises: a hit makes no system call, and its value shares the cache's memory; the cache, the regions' indexes and
//! the frames that logs keep take no more than one budget together, and what the others take the cache gives back to the
//! system. It never answers with a record that its asker's index does not point to.
//!
//! The life of a record here: it comes in when it settles, from the frame it was appended in, or when it is read from a
//! segment; [`Shared::get`](crate::Store::get) finds it by its key; it stays while it is used ([`shard`]).
//!
//! **Nothing stale.** An entry is of a *view*, a number that every [`crate::Store`] draws when it is made, so that it is of
//! one history of one log: segment numbers that a cut log uses again are other stores' entries. Within a store's life a
//! place of the log never changes. An entry says what lies where, and counts only if the index says that the key's record
//! is there. An index that names pages says so of the last record of the key in a page; that is what an entry is of:
//! - A record that settles replaces its key's entry, or removes it; it is the last one in its page so far.
//! - A record that was read comes in only if its page was settled to its end when the read began: then no later one comes.
//!
//! Entries are records as they lie in the log, and each hit checks the checksum, which is seeded with the place.
//!
//! Missing on purpose: entries of records that compaction moved stay behind, and are read anew; a store that is made anew
//! begins without entries. Values that a caller keeps hold a chunk each: whoever keeps them copies them.

mod shard;
mod table;

use crate::index::HashHeap;
use crate::limits::*;
use crate::record::{Location, Record};
use crate::seed::Identity;
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use shard::{Cached, Shard};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

pub struct ReadCache {
    /// For the cache, the indexes and the buffers together.
    memory_bytes: usize,
    heap: HashHeap,
    buffer_bytes: AtomicUsize,
    /// What was left for the cache when that was last looked at.
    capacity: AtomicUsize,
    /// None if there is no cache.
    shards: Box<[Mutex<Shard>]>,
    views: AtomicU64,
    reads: AtomicU64,
    read_bytes: AtomicU64,
    false_reads: AtomicU64,
}

/// What reads have cost since the start, and what the cache holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadStats {
    /// Lookups that the cache answered.
    pub hits: u64,
    /// Lookups of records that it did not hold.
    pub misses: u64,
    /// Entries that had to go.
    pub evictions: u64,
    pub entries: u64,
    pub cache_bytes: u64,
    /// What the cache may take now.
    pub cache_bytes_max: u64,
    /// Reads of segments for a key, and the bytes asked for.
    pub reads: u64,
    pub read_bytes: u64,
    /// Those that found another key's record.
    pub false_reads: u64,
}

/// What a key's entry is found by: the key's hash in one view.
#[derive(Clone, Copy)]
pub(crate) struct EntryHash(u64);

/// What tells a view's entries from others.
#[derive(Clone, Copy)]
pub(crate) struct ViewNumber(u64);

impl ViewNumber {
    /// Hashes of one key in two views always differ.
    pub(crate) fn hash(self, key_hash: u128) -> EntryHash {
        EntryHash((key_hash >> 64) as u64 ^ self.0)
    }
}

impl ReadCache {
    /// A cache that with the indexes in `heap`, and the frames that logs keep in memory, takes so much.
    pub fn new(memory_bytes: usize, heap: &HashHeap) -> Arc<ReadCache> {
        let shards = (memory_bytes / CACHE_SHARD_BYTES).clamp(1, CACHE_SHARDS_MAX);
        let shards = 1 << shards.ilog2();
        let chunk_bytes = (memory_bytes / CACHE_CHUNKS).clamp(CACHE_CHUNK_BYTES_MIN, CACHE_CHUNK_BYTES_MAX);
        let chunk_bytes = 1 << chunk_bytes.ilog2();
        let has_room = memory_bytes >= CACHE_CHUNK_BYTES_MIN;
        let shards = (0..if has_room { shards } else { 0 }).map(|_| Mutex::new(Shard::new(chunk_bytes))).collect();
        Arc::new(ReadCache {
            memory_bytes,
            heap: heap.clone(),
            buffer_bytes: AtomicUsize::new(0),
            capacity: AtomicUsize::new(memory_bytes),
            shards,
            views: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
            false_reads: AtomicU64::new(0),
        })
    }

    pub(crate) fn new_view(&self) -> ViewNumber {
        if env::mutants::active("M16") {
            return ViewNumber(0);
        }
        // An odd factor maps numbers one to one.
        ViewNumber(self.views.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    /// The number of the hash's shard; there are some.
    fn shard_number(&self, hash: EntryHash) -> usize {
        hash.0.rotate_left(self.shards.len().ilog2()) as usize & (self.shards.len() - 1)
    }

    fn shard(&self, hash: EntryHash) -> Option<&Mutex<Shard>> {
        if self.shards.is_empty() { None } else { Some(&self.shards[self.shard_number(hash)]) }
    }

    /// Begins to wait for what [`Opened::get`] needs. Nobody else gets at that part of the cache meanwhile.
    #[inline]
    pub(crate) fn open(&self, hash: EntryHash) -> Opened<'_> {
        let shard = self.shard(hash).map(|shard| shard.lock());
        if let Some(shard) = &shard {
            black_box(shard.touch(hash.0));
        }
        Opened { shard, hash }
    }

    /// Calls `visit` with each number of `hashes` and the shard of that hash. The waits for memory overlap.
    fn visit(&self, hashes: &[EntryHash], mut visit: impl FnMut(usize, &mut Shard)) {
        for (group, hashes) in hashes.chunks(INDEX_BATCH).enumerate().filter(|_| !self.shards.is_empty()) {
            let mut numbers: Vec<usize> = hashes.iter().map(|&hash| self.shard_number(hash)).collect();
            // Always in the same order, so that nobody waits for one who waits for him.
            numbers.sort_unstable();
            numbers.dedup();
            let mut shards: Vec<MutexGuard<'_, Shard>> = numbers.iter().map(|&at| self.shards[at].lock()).collect();
            let held = |hash: EntryHash| numbers.binary_search(&self.shard_number(hash)).expect("locked above");
            black_box(hashes.iter().fold(0, |all, &hash| all ^ shards[held(hash)].touch(hash.0)));
            black_box(hashes.iter().fold(0, |all, &hash| all ^ shards[held(hash)].touch_entry(hash.0)));
            for (at, &hash) in hashes.iter().enumerate() {
                visit(group * INDEX_BATCH + at, &mut shards[held(hash)]);
            }
        }
    }

    /// [`Opened::get`] of many: what `take` makes of the records of those of `asked` that are here. It is given the number too.
    pub(crate) fn get_many<T>(
        &self,
        asked: &[(EntryHash, &[u8])],
        identity: &Identity,
        fits: impl Fn(usize, Location) -> bool,
        take: impl Fn(Location, &Record<'_>, &dyn Fn(&[u8]) -> Bytes) -> Option<T>,
    ) -> Vec<Option<T>> {
        let hashes: Vec<EntryHash> = asked.iter().map(|(hash, _)| *hash).collect();
        let mut found: Vec<Option<T>> = asked.iter().map(|_| None).collect();
        self.visit(&hashes, |at, shard| {
            let (hash, key) = asked[at];
            found[at] = get(shard, hash, key, identity, |location| fits(at, location), &take);
        });
        found
    }

    /// Where the records of those keys lie that are here. That is no use of theirs.
    pub(crate) fn locate_many<K: AsRef<[u8]>>(&self, hashes: &[EntryHash], keys: &[K]) -> Vec<Option<Location>> {
        let mut found = vec![None; keys.len()];
        self.visit(hashes, |at, shard| {
            let same = |cached: Cached<'_>| is_of(&cached, keys[at].as_ref());
            found[at] = shard.find(hashes[at].0, same).map(|(_, cached)| cached.location);
        });
        found
    }

    /// The key's record has come to lie there: `record` is what it is.
    pub(crate) fn insert(&self, hash: EntryHash, key: &[u8], location: Location, record: &[u8]) {
        let Some(shard) = self.shard(hash) else { return };
        assert_eq!(record.len(), location.len as usize, "a whole record");
        let limit = self.capacity.load(Ordering::Relaxed) / self.shards.len();
        let cached = Cached { hash: hash.0, location, record };
        let grown = shard.lock().insert(cached, |other| is_of(&other, key), limit);
        if grown {
            self.fit();
        }
    }

    /// The key has no record any more.
    pub(crate) fn remove(&self, hash: EntryHash, key: &[u8]) {
        if let Some(shard) = self.shard(hash) {
            shard.lock().remove(hash.0, |other| is_of(&other, key));
        }
    }

    /// How finely the budget is divided.
    fn step(&self) -> usize {
        (self.memory_bytes / STEPS).max(1)
    }

    /// Looks at what is left for the cache, and gives back what is too much.
    pub(crate) fn fit(&self) {
        let others = self.heap.memory_bytes() + self.buffer_bytes.load(Ordering::Relaxed);
        let left = self.memory_bytes.saturating_sub(others);
        let capacity = self.capacity.load(Ordering::Relaxed);
        if left < capacity {
            // A step more than it has to be, so that it is not the next byte's turn again.
            let capacity = left.saturating_sub(self.step());
            self.capacity.store(capacity, Ordering::Relaxed);
            self.shards.iter().for_each(|shard| shard.lock().fit(capacity / self.shards.len()));
        } else if left - capacity >= 2 * self.step() {
            self.capacity.store(left - self.step(), Ordering::Relaxed);
        }
    }

    pub(crate) fn count_read(&self, bytes: usize) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn count_false_read(&self) {
        self.false_reads.fetch_add(1, Ordering::Relaxed);
    }

    pub fn stats(&self) -> ReadStats {
        let mut stats = ReadStats {
            cache_bytes_max: if self.shards.is_empty() { 0 } else { self.capacity.load(Ordering::Relaxed) as u64 },
            reads: self.reads.load(Ordering::Relaxed),
            read_bytes: self.read_bytes.load(Ordering::Relaxed),
            false_reads: self.false_reads.load(Ordering::Relaxed),
            ..ReadStats::default()
        };
        for shard in &self.shards {
            let shard = shard.lock();
            stats.hits += shard.counts.hits;
            stats.misses += shard.counts.misses;
            stats.evictions += shard.counts.evictions;
            stats.entries += shard.entries() as u64;
            stats.cache_bytes += shard.memory_bytes() as u64;
        }
        stats
    }
}

/// Bytes that something else than the cache keeps in memory, until it is dropped.
pub(crate) struct Buffered {
    cache: Arc<ReadCache>,
    bytes: usize,
}

impl Buffered {
    pub(crate) fn new(cache: &Arc<ReadCache>) -> Buffered {
        Buffered { cache: cache.clone(), bytes: 0 }
    }

    pub(crate) fn set(&mut self, bytes: usize) {
        let all = &self.cache.buffer_bytes;
        let before = std::mem::replace(&mut self.bytes, bytes);
        if bytes <= before {
            all.fetch_sub(before - bytes, Ordering::Relaxed);
            return;
        }
        let (more, step) = (bytes - before, self.cache.step());
        let others = all.fetch_add(more, Ordering::Relaxed);
        if others / step != (others + more) / step {
            self.cache.fit();
        }
    }
}

impl Drop for Buffered {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Memory is taken and given back in parts of the budget, one in so many.
const STEPS: usize = 128;

/// A part of the cache that is about to be looked at.
pub(crate) struct Opened<'a> {
    shard: Option<MutexGuard<'a, Shard>>,
    hash: EntryHash,
}

impl Opened<'_> {
    /// What `take` makes of the key's record, with what shares its parts, if it is here, whole, and `fits` its location.
    #[inline]
    pub(crate) fn get<T>(
        self,
        key: &[u8],
        identity: &Identity,
        fits: impl Fn(Location) -> bool,
        take: impl Fn(Location, &Record<'_>, &dyn Fn(&[u8]) -> Bytes) -> Option<T>,
    ) -> Option<T> {
        get(&mut *self.shard?, self.hash, key, identity, fits, &take)
    }
}

#[inline]
fn get<T>(
    shard: &mut Shard,
    hash: EntryHash,
    key: &[u8],
    identity: &Identity,
    fits: impl Fn(Location) -> bool,
    take: &impl Fn(Location, &Record<'_>, &dyn Fn(&[u8]) -> Bytes) -> Option<T>,
) -> Option<T> {
    shard.get(hash.0, |cached, share| {
        let location = cached.location;
        let (record, _) = Record::parse(cached.record).ok()?;
        if record.key() != Some(key) || !fits(location) {
            return None;
        }
        Record::is_whole(cached.record, &identity.seeds(location.segment), location.offset).then_some(())?;
        take(location, &record, share)
    })
}

fn is_of(cached: &Cached<'_>, key: &[u8]) -> bool {
    Record::parse(cached.record).is_ok_and(|(record, _)| record.key() == Some(key))
}

#[cfg(test)]
mod tests;
