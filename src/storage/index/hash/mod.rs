//! The hash index (a keydir without the keys): some 5.5 bytes for each key, growing and shrinking by small steps.
//!
//! Packed quotient blocks: linear hashing over blocks of about 64 entries, each block as large as its entries need
//! ([`block`]), in a heap that several indexes share ([`heap`]). What a hash's bits are for:
//! ```text
//! 63   58 57                                                           0
//! ┌──────┬───────────────┬───────────────────────┬───────────┬─────────┐
//! │ bin  │    unknown    │          tag          │   block   │  spent  │
//! └──────┴───────────────┴───────────────────────┴───────────┴─────────┘
//!                        └─ hash_bits − 6 bits are known in all ────────┘
//! slot: tag │ length, 4 bits │ page, location_bits bits
//! ```
//! - **Lookup**: directory → block's head, where the bin's run is found by counting bits → on average one slot.
//! - **Insert**: the bin's run and the slots make room; a full block moves to one 16 bytes larger. Every 64th insert
//!   splits the next block in turn: its tags' lowest bit says which half an entry goes to, and is known from then on by
//!   the block's number, so that slots get narrower as the index grows and nothing is read again.
//! - **Remove**: the inverse of both, down to one block.
//!
//! A slot knows a page of the log and how far a record may run over its end ([`Candidate::coarse`], [`pages`]).
//! Of N keys, N / 2^hash_bits lookups of an absent key find a slot by chance, and cost a read in vain: with 30 bits one
//! in a hundred at 10 million keys. `expected_keys` gives an index as many bits as that takes.
//!
//! What does not fit is kept aside, exact and at 60 bytes: more than 254 entries in a block that cannot be split because
//! their hashes are equal, and locations for which there is no page number. Neither happens to hashes that are spread and
//! regions of less than a tebibyte.
//!
//! Missing on purpose: getting hash bits back after many region splits (that is a rebuild from hints), and concurrent
//! writers: a heap is for the regions of one core, and a lock keeps others out.

mod bits;
mod block;
mod heap;
mod load;
mod pages;

use super::plain::PlainIndex;
use super::{Candidate, Candidates, Index, IndexCursor, SECTOR, SECTORS_BEYOND};
use crate::ids::SegmentId;
use crate::limits::{INDEX_BATCH, INDEX_GRANULE_BITS, INDEX_HASH_BITS_MIN, INDEX_LOCATION_BITS};
use crate::record::Location;
use block::{BINS, ENTRIES_MAX, Entries, SLOT_BITS_MAX};
use heap::{Heap, LEAF_ENTRIES, Place};
use pages::PageTable;
use parking_lot::RwLock;
use std::sync::Arc;

/// Entries that a block has on average.
const BLOCK_ENTRIES: u64 = 64;
const BIN_BITS: u32 = BINS.ilog2();
const LENGTH_BITS: u32 = 4;
/// The lengths' codes: 0 and 1 for records that end in their page, without and with an older one of their key beside
/// them, then those for longer records.
const REPEATED: u64 = 1;

/// Memory for the blocks of several indexes.
#[derive(Clone, Default)]
pub struct HashHeap {
    heap: Arc<RwLock<Heap>>,
}

impl HashHeap {
    /// All that is resident for it.
    pub fn memory_bytes(&self) -> usize {
        self.heap.read().memory_bytes()
    }
}

/// How an index is made. The bits cannot be changed later.
#[derive(Clone, Copy, Debug)]
pub struct HashOptions {
    /// For how many keys there are hash bits enough; more only cost reads in vain.
    pub expected_keys: u64,
    /// Bits of a page number.
    pub location_bits: u32,
    /// The shortest pages are 2^granule_bits bytes long.
    pub granule_bits: u32,
}

impl Default for HashOptions {
    fn default() -> HashOptions {
        HashOptions { expected_keys: 0, location_bits: INDEX_LOCATION_BITS, granule_bits: INDEX_GRANULE_BITS }
    }
}

impl HashOptions {
    /// So many that a hundredth of the lookups of absent keys finds a slot by chance.
    fn hash_bits(&self) -> u32 {
        let bits = self.expected_keys.saturating_mul(100).max(1).ilog2() + 1;
        let most = SLOT_BITS_MAX as u32 + BIN_BITS - LENGTH_BITS - self.location_bits;
        bits.max(INDEX_HASH_BITS_MIN).min(most)
    }
}

pub struct HashIndex {
    heap: Arc<RwLock<Heap>>,
    shape: Shape,
    /// The directory: block `n` has entry `n % 256` of leaf `n / 256`.
    leaves: Vec<u32>,
    pages: PageTable,
    /// By what is known of a hash. Newer than what the blocks hold of the same.
    aside: PlainIndex,
    /// Of the slots.
    len: u64,
    /// Of this index's blocks.
    block_bytes: usize,
}

/// Which block has which hashes, and how a slot is laid out.
#[derive(Clone, Copy, Debug)]
struct Shape {
    /// Blocks below `split`, and those they were split into, have `level` + 1 bits of the hash as their number.
    level: u32,
    split: u64,
    /// Bits from the hash's end that are known: spent, number and tag.
    low_bits: u32,
    /// The lowest bits, equal in all hashes here since regions were split by them, and their value.
    spent_bits: u32,
    spent: u64,
    location_bits: u32,
}

/// Where a hash belongs.
#[derive(Clone, Copy, Default)]
struct Spot {
    block: u64,
    bin: usize,
    tag: u64,
    slot_bits: usize,
}

impl Shape {
    fn blocks(&self) -> u64 {
        (1 << self.level) + self.split
    }

    /// Bits of the block's number.
    fn depth(&self, block: u64) -> u32 {
        self.level + (block < self.split || block >> self.level > 0) as u32
    }

    fn tag_bits(&self, depth: u32) -> u32 {
        self.low_bits - self.spent_bits - depth
    }

    fn slot_bits(&self, depth: u32) -> usize {
        (self.tag_bits(depth) + LENGTH_BITS + self.location_bits) as usize
    }

    #[inline]
    fn block(&self, hash: u64) -> u64 {
        let number = hash >> self.spent_bits;
        let short = number & bits::mask(self.level as usize);
        if short < self.split { number & bits::mask(self.level as usize + 1) } else { short }
    }

    #[inline]
    fn spot(&self, hash: u64) -> Spot {
        let block = self.block(hash);
        let depth = self.depth(block);
        let tag_bits = self.tag_bits(depth);
        Spot {
            block,
            bin: (hash >> (64 - BIN_BITS)) as usize,
            tag: hash >> (self.spent_bits + depth) & bits::mask(tag_bits as usize),
            slot_bits: self.slot_bits(depth),
        }
    }

    fn mask(&self) -> u64 {
        bits::mask(self.low_bits as usize) | !(u64::MAX >> BIN_BITS)
    }

    /// What is known of the hash of a slot.
    fn hash(&self, block: u64, bin: usize, tag: u64) -> u64 {
        let low = (tag << self.depth(block) | block) << self.spent_bits | self.spent;
        (bin as u64) << (64 - BIN_BITS) | low
    }

    #[inline]
    fn tag(&self, slot: u64) -> u64 {
        slot >> (self.location_bits + LENGTH_BITS)
    }

    /// The slot of an entry when its block splits or merges.
    fn with_tag(&self, slot: u64, tag: u64) -> u64 {
        let rest = (self.location_bits + LENGTH_BITS) as usize;
        tag << rest | slot & bits::mask(rest)
    }

    fn can_split(&self) -> bool {
        self.spent_bits + self.level < self.low_bits
    }
}

impl HashIndex {
    pub fn new(heap: &HashHeap, options: HashOptions) -> HashIndex {
        let low_bits = options.hash_bits() - BIN_BITS;
        let HashOptions { location_bits, granule_bits, .. } = options;
        let slot_bits = low_bits + LENGTH_BITS + location_bits;
        assert!(slot_bits as usize <= SLOT_BITS_MAX, "slots of {slot_bits} bits, {SLOT_BITS_MAX} are possible");
        let shape = Shape { level: 0, split: 0, low_bits, spent_bits: 0, spent: 0, location_bits };
        let mut index = HashIndex::bare(heap.heap.clone(), shape, PageTable::new(granule_bits, location_bits));
        let heap = index.heap.clone();
        index.place(&mut heap.write(), 0, &Entries::default());
        index
    }

    /// Without any block, not even the first.
    fn bare(heap: Arc<RwLock<Heap>>, shape: Shape, pages: PageTable) -> HashIndex {
        HashIndex { heap, shape, leaves: Vec::new(), pages, aside: PlainIndex::default(), len: 0, block_bytes: 0 }
    }

    #[inline]
    fn directory(&self, block: u64) -> Place {
        let leaf = self.leaves[block as usize / LEAF_ENTRIES];
        Place(leaf * LEAF_ENTRIES as u32 + (block as usize % LEAF_ENTRIES) as u32)
    }

    /// Makes the block, whose number is at most one more than the last.
    fn place(&mut self, heap: &mut Heap, block: u64, entries: &Entries) {
        if block as usize / LEAF_ENTRIES == self.leaves.len() {
            self.leaves.push(heap.take_leaf());
        }
        let slot_bits = self.shape.slot_bits(self.shape.depth(block));
        let class = block::class_for(entries.len(), slot_bits);
        heap.place(self.directory(block), class, |words| entries.write(words, slot_bits));
        self.block_bytes += block::words_of(class) * 8;
    }

    fn free(&mut self, heap: &mut Heap, block: u64) {
        let handle = heap.at(self.directory(block));
        self.block_bytes -= heap.block(handle).len() * 8;
        heap.free(handle);
    }

    fn candidate(&self, slot: u64) -> Candidate {
        let page = self.pages.page(self.page(slot));
        let code = slot >> self.shape.location_bits & bits::mask(LENGTH_BITS as usize);
        let window = 1 << page.granule_bits;
        let beyond = SECTORS_BEYOND[code.saturating_sub(1) as usize];
        Candidate {
            segment: page.segment,
            offset: page.offset,
            window,
            len: window + beyond as u32 * SECTOR,
            repeated: code == REPEATED,
        }
    }

    /// The slot that stands for the candidate, without its tag; `None` if it has no page here.
    fn untagged(&self, candidate: Candidate) -> Option<u64> {
        let page = self.pages.find(candidate.segment, candidate.offset)?;
        Some(self.coded(candidate, page))
    }

    /// [`HashIndex::untagged`] for a new location; `None` if there are no page numbers left.
    fn untagged_new(&mut self, location: Location) -> Option<u64> {
        let page = self.pages.find_or_take(location.segment, location.offset)?;
        let window = 1 << self.pages.page(page).granule_bits;
        Some(self.coded(Candidate::coarse(location, window), page))
    }

    fn coded(&self, candidate: Candidate, page: u64) -> u64 {
        let beyond = (candidate.len - candidate.window) / SECTOR;
        let length =
            SECTORS_BEYOND.iter().position(|&sectors| sectors as u32 == beyond).unwrap_or(SECTORS_BEYOND.len() - 1);
        let code = if length == 0 { 0 } else { length as u64 + 1 };
        code << self.shape.location_bits | page
    }

    fn slot(&self, untagged: u64, tag: u64) -> u64 {
        tag << (self.shape.location_bits + LENGTH_BITS) | untagged
    }

    /// The entry of a block that stands for the candidate: of several alike one that is not marked, if there is one, as a
    /// mark more does no harm and a mark less might.
    fn find(&self, words: &[u64], spot: Spot, candidate: Candidate) -> Option<(block::Bin, usize)> {
        let wanted = self.slot(self.untagged(candidate)?, spot.tag);
        let marked = wanted | REPEATED << self.shape.location_bits;
        let ends_in_page = candidate.len == candidate.window;
        let bin = block::bin(words, spot.bin);
        let entries = || bin.first..bin.first + bin.count;
        let slot = |entry: &usize| block::slot(words, *entry, spot.slot_bits);
        let found = entries().find(|entry| slot(entry) == wanted);
        let found = found.or_else(|| entries().find(|entry| ends_in_page && slot(entry) == marked));
        Some((bin, found?))
    }

    /// What the index takes besides its part of the heap.
    pub fn rest_bytes(&self) -> usize {
        let leaves = self.leaves.capacity() * 4;
        leaves + self.pages.memory_bytes() + self.aside.memory_bytes() + size_of::<HashIndex>()
    }

    /// The number of the page that a slot names.
    #[inline]
    fn page(&self, slot: u64) -> u64 {
        slot & bits::mask(self.shape.location_bits as usize)
    }

    fn known(&self, hash: u64) -> u64 {
        hash & self.shape.mask()
    }

    /// Whether a new entry of the hash has to go aside, for there are others of it.
    fn has_aside(&self, hash: u64) -> bool {
        !self.aside.is_empty() && self.aside.contains(self.known(hash))
    }

    fn insert_aside(&mut self, hash: u64, location: Location) {
        self.aside.insert(self.known(hash), location);
    }

    fn grow(&mut self) {
        if self.len > self.shape.blocks() * BLOCK_ENTRIES && self.shape.can_split() {
            self.split_block();
        }
    }

    /// Has the blocks that so many entries take.
    fn grow_for(&mut self, entries: u64) {
        while entries > self.shape.blocks() * BLOCK_ENTRIES && self.shape.can_split() {
            self.split_block();
        }
    }

    /// Splits the next block in turn.
    fn split_block(&mut self) {
        let shape = self.shape;
        let (number, other) = (shape.split, shape.split + (1 << shape.level));
        let heap = self.heap.clone();
        let heap = &mut *heap.write();
        let entries = Entries::read(heap.block(heap.at(self.directory(number))), shape.slot_bits(shape.level));
        let (mut low, mut high) = (Entries::default(), Entries::default());
        for (bin, slot) in entries.iter() {
            let tag = shape.tag(slot);
            let half = if tag & 1 == 0 { &mut low } else { &mut high };
            half.push(bin, shape.with_tag(slot, tag >> 1));
        }
        self.free(heap, number);
        self.shape.split += 1;
        if self.shape.split == 1 << shape.level {
            self.shape.level += 1;
            self.shape.split = 0;
        }
        self.place(heap, number, &low);
        self.place(heap, other, &high);
    }

    fn shrink(&mut self) {
        let blocks = self.shape.blocks();
        if blocks > 1 && self.len < (blocks - 1) * BLOCK_ENTRIES * 7 / 8 {
            self.merge_blocks();
        }
    }

    /// Undoes the last split, unless the two blocks hold more than one can.
    fn merge_blocks(&mut self) {
        let mut shape = self.shape;
        if shape.split == 0 {
            shape.level -= 1;
            shape.split = 1 << shape.level;
        }
        shape.split -= 1;
        let (number, other) = (shape.split, shape.split + (1 << shape.level));
        let heap = self.heap.clone();
        let heap = &mut *heap.write();
        let slot_bits = shape.slot_bits(shape.level + 1);
        let read = |number| Entries::read(heap.block(heap.at(self.directory(number))), slot_bits);
        let (low, high) = (read(number), read(other));
        if low.len() + high.len() > ENTRIES_MAX {
            return;
        }
        let mut merged = Entries::default();
        let mut highs = high.iter().peekable();
        let mut push = |bin, slot, bit| merged.push(bin, shape.with_tag(slot, shape.tag(slot) << 1 | bit));
        for (bin, slot) in low.iter() {
            while let Some((bin, slot)) = highs.next_if(|high| high.0 < bin) {
                push(bin, slot, 1);
            }
            push(bin, slot, 0);
        }
        highs.for_each(|(bin, slot)| push(bin, slot, 1));
        self.free(heap, other);
        self.free(heap, number);
        self.shape = shape;
        self.place(heap, number, &merged);
        if (other as usize).is_multiple_of(LEAF_ENTRIES) {
            heap.give_leaf(self.leaves.pop().expect("the block was in it"));
        }
    }

    /// Divides the index by its hashes' lowest bit that is not spent, which both parts know from now on: those without
    /// the bit, and those with it. Blocks stay as they are and where they are.
    pub fn split(mut self) -> [HashIndex; 2] {
        while self.shape.level == 0 {
            self.split_block();
        }
        let heap = self.heap.clone();
        let mut parts = [0, 1].map(|bit| self.half(bit));
        {
            let heap = &mut *heap.write();
            for number in 0..self.shape.blocks() {
                parts[number as usize & 1].adopt(heap, number >> 1, heap.at(self.directory(number)));
            }
            self.leaves.drain(..).for_each(|leaf| heap.give_leaf(leaf));
        }
        for (hash, location) in self.aside.iter() {
            parts[(hash >> self.shape.spent_bits & 1) as usize].aside.insert(hash, location);
        }
        parts
    }

    /// An index for the hashes with that bit, without blocks.
    fn half(&self, bit: u64) -> HashIndex {
        let shape = self.shape;
        let (mut level, mut split) = (shape.level - 1, (shape.split + 1 - bit) / 2);
        if split == 1 << level {
            (level, split) = (level + 1, 0);
        }
        let (spent_bits, spent) = (shape.spent_bits + 1, bit << shape.spent_bits | shape.spent);
        let shape = Shape { level, split, spent_bits, spent, ..shape };
        let mut pages = self.pages.clone();
        pages.forget_slots();
        HashIndex::bare(self.heap.clone(), shape, pages)
    }

    fn adopt(&mut self, heap: &mut Heap, number: u64, handle: heap::Handle) {
        if number as usize / LEAF_ENTRIES == self.leaves.len() {
            self.leaves.push(heap.take_leaf());
        }
        heap.hand_over(handle, self.directory(number));
        let words = heap.block(handle);
        let entries = Entries::read(words, self.shape.slot_bits(self.shape.depth(number)));
        entries.iter().for_each(|(_, slot)| self.pages.hold(slot & bits::mask(self.shape.location_bits as usize)));
        self.len += entries.len() as u64;
        self.block_bytes += words.len() * 8;
    }

    /// Adds what a block has of the hash.
    #[inline]
    fn look_in_bin(&self, words: &[u64], bin: block::Bin, spot: Spot, found: &mut Candidates) {
        for entry in bin.first..bin.first + bin.count {
            let slot = block::slot(words, entry, spot.slot_bits);
            if self.shape.tag(slot) == spot.tag {
                found.push(self.candidate(slot));
            }
        }
    }

    /// [`HashIndex::look_in_bin`] for some hashes at once. Each pass asks for the memory that the next one reads, so that the
    /// processor waits for all of them together.
    fn look_in_many(&self, heap: &Heap, hashes: &[u64], found: &mut [Candidates]) {
        let mut spots = [Spot::default(); INDEX_BATCH];
        let mut handles = [heap::Handle::default(); INDEX_BATCH];
        let mut blocks = [[].as_slice(); INDEX_BATCH];
        let mut bins = [block::Bin::default(); INDEX_BATCH];
        for (at, &hash) in hashes.iter().enumerate() {
            spots[at] = self.shape.spot(hash);
            handles[at] = heap.at(self.directory(spots[at].block));
            heap.prefetch_head(handles[at]);
        }
        for at in 0..hashes.len() {
            blocks[at] = heap.block(handles[at]);
            bins[at] = block::bin(blocks[at], spots[at].bin);
            block::prefetch_slot(blocks[at], bins[at], spots[at].slot_bits);
        }
        for (at, found) in found.iter_mut().enumerate() {
            self.look_in_bin(blocks[at], bins[at], spots[at], found);
        }
    }
}

impl Index for HashIndex {
    fn lookup(&self, hash: u64, found: &mut Candidates) {
        if !self.aside.is_empty() {
            self.aside.lookup(self.known(hash), found);
        }
        let spot = self.shape.spot(hash);
        let heap = self.heap.read();
        let handle = heap.at(self.directory(spot.block));
        heap.prefetch_block(handle);
        let words = heap.block(handle);
        self.look_in_bin(words, block::bin(words, spot.bin), spot, found);
    }

    fn lookup_many(&self, hashes: &[u64], found: &mut [Candidates]) {
        assert_eq!(hashes.len(), found.len(), "one place for each answer");
        if !self.aside.is_empty() {
            hashes.iter().zip(&mut *found).for_each(|(&hash, found)| self.aside.lookup(self.known(hash), found));
        }
        let heap = &*self.heap.read();
        for (hashes, found) in hashes.chunks(INDEX_BATCH).zip(found.chunks_mut(INDEX_BATCH)) {
            self.look_in_many(heap, hashes, found);
        }
    }

    fn insert(&mut self, hash: u64, location: Location) {
        let untagged = self.untagged_new(location);
        let Some(untagged) = untagged.filter(|_| !self.has_aside(hash)) else {
            return self.insert_aside(hash, location);
        };
        let spot = self.shape.spot(hash);
        let place = self.directory(spot.block);
        let slot = self.slot(untagged, spot.tag);
        {
            let mut heap = self.heap.write();
            let mut handle = heap.at(place);
            heap.prefetch_block(handle);
            let words = heap.block(handle);
            let held = block::entries(words);
            if held == ENTRIES_MAX {
                drop(heap);
                return self.insert_aside(hash, location);
            }
            if !block::has_room(words, spot.slot_bits) {
                handle = heap.resize(place, block::class_for(held + 1, spot.slot_bits), spot.slot_bits);
                self.block_bytes += block::UNIT_WORDS * 8;
            }
            let words = heap.block_mut(handle);
            let bin = block::bin(words, spot.bin);
            block::insert(words, bin, spot.slot_bits, slot);
        }
        self.pages.hold(self.page(slot));
        self.len += 1;
        self.grow();
    }

    fn replace(&mut self, hash: u64, old: Candidate, new: Location) -> bool {
        let untagged = self.untagged_new(new);
        if let Some(untagged) = untagged.filter(|_| !self.has_aside(hash) && old.window > 1) {
            let spot = self.shape.spot(hash);
            let heap = self.heap.clone();
            let mut heap = heap.write();
            let handle = heap.at(self.directory(spot.block));
            heap.prefetch_block(handle);
            let Some((bin, entry)) = self.find(heap.block(handle), spot, old) else { return false };
            let words = heap.block_mut(handle);
            let page = self.page(block::slot(words, entry, spot.slot_bits));
            // Those before it in the bin make way, so that the new one becomes the first.
            for entry in (bin.first..entry).rev() {
                block::set_slot(words, entry + 1, spot.slot_bits, block::slot(words, entry, spot.slot_bits));
            }
            block::set_slot(words, bin.first, spot.slot_bits, self.slot(untagged, spot.tag));
            self.pages.hold(self.page(untagged));
            self.pages.release(page);
            return true;
        }
        let removed = self.remove(hash, old);
        if removed {
            self.insert(hash, new);
        }
        removed
    }

    fn remove(&mut self, hash: u64, old: Candidate) -> bool {
        if old.window == 1 {
            return self.aside.remove(self.known(hash), old);
        }
        let spot = self.shape.spot(hash);
        let place = self.directory(spot.block);
        {
            let heap = self.heap.clone();
            let mut heap = heap.write();
            let handle = heap.at(place);
            heap.prefetch_block(handle);
            let Some((bin, entry)) = self.find(heap.block(handle), spot, old) else { return false };
            let words = heap.block_mut(handle);
            self.pages.release(self.page(block::slot(words, entry, spot.slot_bits)));
            block::remove(words, bin, spot.slot_bits, entry);
            // One entry fewer may take 16 bytes less; two entries of room keep a block from moving to and fro.
            let class = block::class_for(block::entries(words) + 2, spot.slot_bits);
            if block::words_of(class) < words.len() {
                self.block_bytes -= words.len() * 8 - block::words_of(class) * 8;
                heap.resize(place, class, spot.slot_bits);
            }
        }
        self.len -= 1;
        self.shrink();
        true
    }

    fn mark_repeated(&mut self, hash: u64, at: Candidate) -> bool {
        if at.window == 1 || at.len > at.window {
            return false;
        }
        let spot = self.shape.spot(hash);
        let heap = self.heap.clone();
        let mut heap = heap.write();
        let handle = heap.at(self.directory(spot.block));
        let Some((_, entry)) = self.find(heap.block(handle), spot, at) else { return false };
        let words = heap.block_mut(handle);
        let marked = block::slot(words, entry, spot.slot_bits) | REPEATED << self.shape.location_bits;
        block::set_slot(words, entry, spot.slot_bits, marked);
        true
    }

    fn reserve(&mut self, entries: u64) {
        self.grow_for(entries);
    }

    fn load(&mut self, entries: &[(u64, Location)]) {
        self.load_all(entries);
    }

    fn hash_mask(&self) -> u64 {
        self.shape.mask()
    }

    fn len(&self) -> u64 {
        self.len + self.aside.len()
    }

    fn memory_bytes(&self) -> usize {
        self.block_bytes + self.leaves.len() * LEAF_ENTRIES * 4 + self.rest_bytes()
    }

    /// In the order of the blocks' numbers read backwards, lowest bit first: when a block splits, its halves follow each
    /// other, so that a cursor keeps its meaning however the index grows and shrinks. Whole blocks, whatever `limit` says.
    fn scan(&self, cursor: IndexCursor, limit: usize, found: &mut Vec<(u64, Candidate)>) -> Option<IndexCursor> {
        let heap = self.heap.read();
        let enough = found.len() + limit.max(1);
        let mut at = cursor.0;
        while found.len() < enough {
            let number = self.shape.block(at.reverse_bits() << self.shape.spent_bits);
            let depth = self.shape.depth(number);
            self.scan_block(&heap, number, depth, found);
            let end = number.reverse_bits() as u128 + (1u128 << (64 - depth));
            at = u64::try_from(end).ok()?;
        }
        Some(IndexCursor(at))
    }

    fn forget_segment(&mut self, segment: SegmentId) {
        self.pages.remove(segment);
    }
}

impl HashIndex {
    fn scan_block(&self, heap: &Heap, number: u64, depth: u32, found: &mut Vec<(u64, Candidate)>) {
        let words = heap.block(heap.at(self.directory(number)));
        for (bin, slot) in Entries::read(words, self.shape.slot_bits(depth)).iter() {
            found.push((self.shape.hash(number, bin, self.shape.tag(slot)), self.candidate(slot)));
        }
        let here = |hash: u64| self.shape.block(hash) == number;
        found.extend(self.aside.iter().filter(|&(hash, _)| here(hash)).map(|(hash, at)| (hash, Candidate::exact(at))));
    }
}

impl Drop for HashIndex {
    fn drop(&mut self) {
        if self.leaves.is_empty() {
            return;
        }
        let heap = self.heap.clone();
        let heap = &mut *heap.write();
        for number in 0..self.shape.blocks() {
            self.free(heap, number);
        }
        self.leaves.drain(..).for_each(|leaf| heap.give_leaf(leaf));
    }
}

#[cfg(test)]
mod tests;
