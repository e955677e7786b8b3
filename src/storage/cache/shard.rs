//! A part of the cache, behind one lock: entries in two queues of chunks.
//!
//! ```text
//!              fresh, a tenth                    kept
//! insert ──► [ ][ ][ ][■]──used since?──yes──► [ ][ ][ ][ ][ ][■]──used since?──no──► gone
//!    ▲         open ▲   └──no──► ghost              ▲           └──yes, up to half of a chunk┐
//!    └── an entry with a ghost goes here ───────────┴────────────────────────────────────────┘
//! ```
//! Entries are appended to a queue's open chunk. What has to go is always a queue's oldest chunk, whole, so that its memory
//! goes back to the system; entries that were used since are copied to the open chunk of the kept ones first. What is read
//! or written once passes through the fresh ones and leaves the rest alone (S3-FIFO: Yang et al., "FIFO queues are all you
//! need for cache eviction", SOSP 2023).
//!
//! An entry that is longer than half a chunk has one of its own.
//!
//! ```text
//! offset size
//!      0    8  hash of the key
//!      8    8  segment
//!     16    4  offset in the segment
//!     20    4  length of the record
//!     24       the record as it lies there, to a multiple of 8 bytes
//! ```

use super::table::{At, Place, Table};
use crate::ids::SegmentId;
use crate::record::{Location, u32_at, u64_at};
use bytes::Bytes;
use env::Pages;
use std::collections::VecDeque;
use std::sync::Arc;

const HEADER_LEN: usize = 24;
/// A queue's share that is for fresh entries, while kept ones want the rest: one part in so many.
const FRESH_SHARE: usize = 10;
/// The longest entry is one part in so many of what the shard may hold.
const ENTRY_SHARE: usize = 8;
/// With less room than for so many chunks nothing is cached.
const CHUNKS_MIN: usize = 4;

/// What happened in a shard.
#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) hits: u64,
    pub(super) misses: u64,
    pub(super) evictions: u64,
}

pub(super) struct Shard {
    table: Table,
    /// By number. Nobody has number 0, so that no entry's place is taken for none.
    chunks: Vec<Option<Chunk>>,
    free: Vec<usize>,
    fresh: Queue,
    kept: Queue,
    chunk_bytes: usize,
    /// Memory of the last chunk that went.
    spare: Option<Pages>,
    pub(super) counts: Counts,
}

#[derive(Default)]
struct Queue {
    /// Oldest first. The last one may be open.
    chunks: VecDeque<usize>,
    bytes: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    Fresh,
    Kept,
}

struct Chunk {
    memory: Memory,
    /// Bytes of entries.
    used: usize,
    len: usize,
}

enum Memory {
    /// Takes entries. What is read from it is copied.
    Open(Pages),
    /// What is read from it shares it.
    Sealed { bytes: Bytes, pages: Arc<Pages> },
}

/// Keeps a sealed chunk's memory for what shares it.
struct Owner(Arc<Pages>);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        self.0.as_ref().as_ref()
    }
}

impl Chunk {
    fn open(pages: Pages) -> Chunk {
        let len = pages.len() * 8;
        Chunk { memory: Memory::Open(pages), used: 0, len }
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        match &self.memory {
            Memory::Open(pages) => pages.as_ref(),
            Memory::Sealed { bytes, .. } => bytes,
        }
    }

    /// Its memory, unless values are still in use that share it.
    fn into_pages(self) -> Option<Pages> {
        match self.memory {
            Memory::Open(pages) => Some(pages),
            Memory::Sealed { bytes, pages } => {
                drop(bytes);
                Arc::into_inner(pages)
            }
        }
    }

    fn push(&mut self, entry: &Cached<'_>) -> usize {
        let Memory::Open(pages) = &mut self.memory else { panic!("pushed to a sealed chunk") };
        let at = self.used;
        let bytes = &mut pages.bytes_mut()[at..at + entry.len()];
        bytes[..8].copy_from_slice(&entry.hash.to_le_bytes());
        bytes[8..16].copy_from_slice(&entry.location.segment.0.to_le_bytes());
        bytes[16..20].copy_from_slice(&(entry.location.offset as u32).to_le_bytes());
        bytes[20..24].copy_from_slice(&entry.location.len.to_le_bytes());
        bytes[HEADER_LEN..HEADER_LEN + entry.record.len()].copy_from_slice(entry.record);
        self.used += entry.len();
        at
    }

    fn seal(self) -> Chunk {
        let memory = match self.memory {
            Memory::Open(pages) => {
                let pages = Arc::new(pages);
                Memory::Sealed { bytes: Bytes::from_owner(Owner(pages.clone())), pages }
            }
            sealed => sealed,
        };
        Chunk { memory, ..self }
    }

    /// `part` of its bytes.
    fn share(&self, part: &[u8]) -> Bytes {
        match &self.memory {
            Memory::Open(_) => Bytes::copy_from_slice(part),
            Memory::Sealed { bytes, .. } => bytes.slice_ref(part),
        }
    }
}

/// An entry.
#[derive(Clone, Copy)]
pub(super) struct Cached<'a> {
    pub(super) hash: u64,
    pub(super) location: Location,
    pub(super) record: &'a [u8],
}

impl<'a> Cached<'a> {
    #[inline]
    fn read(bytes: &'a [u8]) -> Cached<'a> {
        let (offset, len) = (u32_at(bytes, 16) as u64, u32_at(bytes, 20));
        let location = Location { segment: SegmentId(u64_at(bytes, 8)), offset, len };
        Cached { hash: u64_at(bytes, 0), location, record: &bytes[HEADER_LEN..HEADER_LEN + len as usize] }
    }

    /// What it takes in a chunk.
    fn len(&self) -> usize {
        HEADER_LEN + self.record.len().next_multiple_of(8)
    }
}

impl Shard {
    pub(super) fn new(chunk_bytes: usize) -> Shard {
        assert!(chunk_bytes.is_power_of_two() && chunk_bytes > HEADER_LEN, "chunks of {chunk_bytes} bytes");
        Shard {
            table: Table::default(),
            chunks: vec![None],
            free: Vec::new(),
            fresh: Queue::default(),
            kept: Queue::default(),
            chunk_bytes,
            spare: None,
            counts: Counts::default(),
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.fresh.bytes + self.kept.bytes + self.table.memory_bytes()
    }

    pub(super) fn entries(&self) -> usize {
        self.table.entries()
    }

    /// Something of the slots that a look at this hash reads.
    #[inline]
    pub(super) fn touch(&self, hash: u64) -> u64 {
        self.table.touch(hash)
    }

    /// Something of the entry that a look at this hash reads.
    #[inline]
    pub(super) fn touch_entry(&self, hash: u64) -> u64 {
        let Some((_, place)) = self.table.find(hash).next() else { return 0 };
        let cached = self.cached(place);
        cached.hash ^ cached.record.get(64).copied().unwrap_or(0) as u64
    }

    /// What `look` makes of the entry with that hash for which it makes something; it is given the entry, and what shares
    /// parts of it. Counts as a use.
    #[inline]
    pub(super) fn get<T>(
        &mut self,
        hash: u64,
        look: impl Fn(Cached<'_>, &dyn Fn(&[u8]) -> Bytes) -> Option<T>,
    ) -> Option<T> {
        let found = self.table.find(hash).find_map(|(at, place)| {
            let chunk = self.chunk(place);
            let cached = self.cached(place);
            if cached.hash != hash {
                return None;
            }
            look(cached, &|part| chunk.share(part)).map(|found| (at, found))
        });
        match found {
            Some((at, found)) => {
                self.table.used(at);
                self.counts.hits += 1;
                Some(found)
            }
            None => {
                self.counts.misses += 1;
                None
            }
        }
    }

    /// Puts an entry in the place of the one with its hash for which `same` holds. True if that took a chunk.
    pub(super) fn insert(&mut self, entry: Cached<'_>, same: impl Fn(Cached<'_>) -> bool, limit: usize) -> bool {
        let old = self.find(entry.hash, same).map(|(at, _)| at);
        let wanted = match old {
            Some(at) => self.table.uses(at) > 0,
            None => self.table.take_ghost(entry.hash),
        };
        old.into_iter().for_each(|at| self.table.remove(at));
        if limit < CHUNKS_MIN * self.chunk_bytes || entry.len() > limit / ENTRY_SHARE {
            return false;
        }
        let which = if wanted { Which::Kept } else { Which::Fresh };
        let grows = self.needs_chunk(which, entry.len());
        if grows {
            self.make_room(limit.saturating_sub(entry.len().max(self.chunk_bytes)));
        }
        let place = self.append(which, &entry);
        self.counts.evictions += self.table.insert(entry.hash, place).is_some() as u64;
        grows
    }

    pub(super) fn remove(&mut self, hash: u64, same: impl Fn(Cached<'_>) -> bool) {
        let found = self.find(hash, same);
        let found = found.map(|(at, _)| at);
        found.into_iter().for_each(|at| self.table.remove(at));
    }

    pub(super) fn find(&self, hash: u64, same: impl Fn(Cached<'_>) -> bool) -> Option<(At, Cached<'_>)> {
        let mut found = self.table.find(hash).map(|(at, place)| (at, self.cached(place)));
        found.find(|(_, cached)| cached.hash == hash && same(*cached))
    }

    fn unit_bits(&self) -> u32 {
        (self.chunk_bytes / 8).ilog2()
    }

    #[inline]
    fn chunk(&self, place: Place) -> &Chunk {
        self.chunks[(place.0 >> self.unit_bits()) as usize].as_ref().expect("entries lie in chunks")
    }

    #[inline]
    fn cached(&self, place: Place) -> Cached<'_> {
        let at = (place.0 as usize & (self.chunk_bytes / 8 - 1)) * 8;
        Cached::read(&self.chunk(place).bytes()[at..])
    }

    fn queue(&mut self, which: Which) -> &mut Queue {
        match which {
            Which::Fresh => &mut self.fresh,
            Which::Kept => &mut self.kept,
        }
    }

    /// An entry longer than this has a chunk of its own.
    fn shared_len_max(&self) -> usize {
        self.chunk_bytes / 2
    }

    fn needs_chunk(&self, which: Which, len: usize) -> bool {
        let queue = if which == Which::Fresh { &self.fresh } else { &self.kept };
        let open = queue.chunks.back().map(|&number| self.chunks[number].as_ref().expect("in a queue"));
        let fits = |chunk: &Chunk| matches!(chunk.memory, Memory::Open(_)) && chunk.used + len <= chunk.len;
        len > self.shared_len_max() || !open.is_some_and(fits)
    }

    /// Appends to the queue, whatever memory that takes.
    fn append(&mut self, which: Which, entry: &Cached<'_>) -> Place {
        let own = entry.len() > self.shared_len_max();
        if self.needs_chunk(which, entry.len()) {
            self.add_chunk(which, if own { entry.len() } else { self.chunk_bytes });
        }
        let number = *self.queue(which).chunks.back().expect("has an open one");
        let chunk = self.chunks[number].as_mut().expect("in a queue");
        let at = chunk.push(entry);
        if own {
            self.seal_last(which);
        }
        self.place(number, at)
    }

    fn place(&self, number: usize, at: usize) -> Place {
        Place(((number as u64) << self.unit_bits()) + at as u64 / 8)
    }

    fn add_chunk(&mut self, which: Which, len: usize) {
        self.seal_last(which);
        let number = self.free.pop().unwrap_or_else(|| {
            self.chunks.push(None);
            self.chunks.len() - 1
        });
        assert!((number as u64) < 1 << (Place::BITS - self.unit_bits()), "{number} chunks in a shard");
        let spare = self.spare.take_if(|_| len == self.chunk_bytes);
        self.chunks[number] = Some(Chunk::open(spare.unwrap_or_else(|| Pages::new(len / 8))));
        self.enqueue(which, number, len);
    }

    fn seal_last(&mut self, which: Which) {
        if let Some(&last) = self.queue(which).chunks.back() {
            self.chunks[last] = self.chunks[last].take().map(Chunk::seal);
        }
    }

    fn enqueue(&mut self, which: Which, number: usize, len: usize) {
        let queue = self.queue(which);
        queue.chunks.push_back(number);
        queue.bytes += len;
    }

    /// Lets entries go until the shard takes no more than so much, and gives their memory back.
    pub(super) fn fit(&mut self, limit: usize) {
        self.make_room(limit);
        self.spare = None;
        self.table.shrink();
    }

    fn make_room(&mut self, limit: usize) {
        while self.memory_bytes() > limit && self.evict() {}
    }

    /// Lets the oldest chunk of a queue go; false if there is none.
    fn evict(&mut self) -> bool {
        let many_fresh = self.fresh.bytes * FRESH_SHARE >= self.fresh.bytes + self.kept.bytes;
        let which = if many_fresh { Which::Fresh } else { Which::Kept };
        let Some(number) = self.queue(which).chunks.pop_front() else { return false };
        let chunk = self.chunks[number].take().expect("in a queue");
        self.queue(which).bytes -= chunk.len;
        if chunk.len != self.chunk_bytes && self.is_used(number, &chunk) {
            self.requeue(number, chunk);
            return true;
        }
        self.save_used(which, number, &chunk);
        self.free.push(number);
        if chunk.len == self.chunk_bytes {
            self.spare = chunk.into_pages();
        }
        true
    }

    /// Whether the first entry of a chunk, its only one, was used; that use is taken off.
    fn is_used(&mut self, number: usize, chunk: &Chunk) -> bool {
        let place = self.place(number, 0);
        let Some(at) = self.at(Cached::read(chunk.bytes()).hash, place) else { return false };
        let uses = self.table.uses(at);
        self.table.moved(at, uses.saturating_sub(1), place);
        uses > 0
    }

    /// Moves an entry's own chunk to the end of the kept ones.
    fn requeue(&mut self, number: usize, chunk: Chunk) {
        self.seal_last(Which::Kept);
        self.enqueue(Which::Kept, number, chunk.len);
        self.chunks[number] = Some(chunk);
    }

    /// The slot of the entry that lies there, if it is not forgotten.
    fn at(&self, hash: u64, place: Place) -> Option<At> {
        self.table.find(hash).find(|found| found.1 == place).map(|found| found.0)
    }

    /// Copies used entries of a chunk that goes to the kept ones; not all of it, so that a chunk is freed in a few steps.
    fn save_used(&mut self, which: Which, number: usize, chunk: &Chunk) {
        let saved_max = match which {
            Which::Fresh => chunk.len / 8 * 7,
            Which::Kept => chunk.len / 2,
        };
        let (mut at, mut saved) = (0, 0);
        while at < chunk.used {
            let entry = Cached::read(&chunk.bytes()[at..]);
            let place = self.place(number, at);
            at += entry.len();
            let Some(slot) = self.at(entry.hash, place) else { continue };
            let uses = self.table.uses(slot);
            if uses > 0 && saved + entry.len() <= saved_max {
                saved += entry.len();
                let place = self.append(Which::Kept, &entry);
                self.table.moved(slot, uses - 1, place);
                continue;
            }
            self.counts.evictions += 1;
            match which {
                Which::Fresh => self.table.leave_ghost(slot),
                Which::Kept => self.table.remove(slot),
            }
        }
    }
}
