//! Many entries at once: sorted by block and bin in two passes that stay within the processor's caches, then each block is
//! written once.

use super::block::{self, BINS, ENTRIES_MAX, Entries};
use super::heap::Heap;
use super::{BIN_BITS, HashIndex};
use crate::index::Index;
use crate::record::Location;

/// The first pass spreads entries over so many parts at most: as many places as are written at once without missing.
const PARTS_MAX: u64 = 1024;

/// An entry on its way into a block.
#[derive(Clone, Copy, Default)]
struct Loaded {
    /// Block and bin.
    order: u32,
    /// Its number among those to load.
    number: u32,
    slot: u64,
}

/// Entries in the order of blocks and bins, and memory to put them in it.
struct Sorter {
    bits: u32,
    counts: Vec<u32>,
    sorted: Vec<Loaded>,
}

impl HashIndex {
    pub(super) fn load_all(&mut self, entries: &[(u64, Location)]) {
        assert!(entries.len() < u32::MAX as usize, "{} entries at once", entries.len());
        self.grow_for(self.len + entries.len() as u64);
        let blocks = self.shape.blocks();
        assert!(blocks << BIN_BITS <= 1 << 32, "{blocks} blocks");
        let loaded = self.loaded(entries);
        let part_bits = (blocks << BIN_BITS).div_ceil(PARTS_MAX).next_power_of_two().ilog2().max(BIN_BITS);
        let (parted, ends) = spread(&loaded, part_bits, (blocks << BIN_BITS >> part_bits) as usize + 1);
        drop(loaded);
        let mut sorter = Sorter { bits: part_bits, counts: Vec::new(), sorted: Vec::new() };
        let mut surplus = Vec::new();
        let heap = self.heap.clone();
        let mut start = 0;
        for end in ends {
            if start < end {
                sorter.sort(&parted[start..end]);
                self.fill_blocks(&mut heap.write(), &sorter.sorted, &mut surplus);
            }
            start = end;
        }
        // In blocks that cannot hold them all.
        surplus.sort_unstable();
        for number in surplus {
            let (hash, location) = entries[number as usize];
            self.insert(hash, location);
        }
    }

    fn loaded(&mut self, entries: &[(u64, Location)]) -> Vec<Loaded> {
        let mut loaded = Vec::with_capacity(entries.len());
        for (number, &(hash, location)) in (0..).zip(entries) {
            let untagged = self.untagged_new(location);
            let Some(untagged) = untagged.filter(|_| !self.has_aside(hash)) else {
                self.insert_aside(hash, location);
                continue;
            };
            let spot = self.shape.spot(hash);
            let order = (spot.block << BIN_BITS) as u32 | spot.bin as u32;
            loaded.push(Loaded { order, number, slot: self.slot(untagged, spot.tag) });
        }
        loaded
    }

    /// Writes the blocks of one part anew, with what they held before.
    fn fill_blocks(&mut self, heap: &mut Heap, sorted: &[Loaded], surplus: &mut Vec<u32>) {
        let mut blocks = sorted.chunk_by(|one, other| one.order >> BIN_BITS == other.order >> BIN_BITS).peekable();
        while let Some(of_block) = blocks.next() {
            if let Some(next) = blocks.peek() {
                heap.prefetch_block(heap.at(self.directory((next[0].order >> BIN_BITS) as u64)));
            }
            let number = (of_block[0].order >> BIN_BITS) as u64;
            let slot_bits = self.shape.slot_bits(self.shape.depth(number));
            let words = heap.block(heap.at(self.directory(number)));
            if block::entries(words) + of_block.len() > ENTRIES_MAX {
                surplus.extend(of_block.iter().map(|loaded| loaded.number));
                continue;
            }
            let mut entries = Entries::default();
            let held = Entries::read(words, slot_bits);
            let mut held = held.iter().peekable();
            for loaded in of_block {
                let bin = loaded.order as usize % BINS;
                while let Some((bin, slot)) = held.next_if(|entry| entry.0 < bin) {
                    entries.push(bin, slot);
                }
                entries.push(bin, loaded.slot);
            }
            held.for_each(|(bin, slot)| entries.push(bin, slot));
            self.free(heap, number);
            self.place(heap, number, &entries);
            for loaded in of_block {
                self.pages.hold(self.page(loaded.slot));
            }
            self.len += of_block.len() as u64;
        }
    }
}

/// Entries by their order's upper bits, each part in the order they had, and where each part ends.
fn spread(loaded: &[Loaded], part_bits: u32, parts: usize) -> (Vec<Loaded>, Vec<usize>) {
    let part = |loaded: &Loaded| (loaded.order as u64 >> part_bits) as usize;
    let mut next = vec![0; parts + 1];
    loaded.iter().for_each(|loaded| next[part(loaded) + 1] += 1);
    for at in 1..=parts {
        next[at] += next[at - 1];
    }
    let mut parted = vec![Loaded::default(); loaded.len()];
    for loaded in loaded {
        let at = &mut next[part(loaded)];
        parted[*at] = *loaded;
        *at += 1;
    }
    next.pop();
    (parted, next)
}

impl Sorter {
    /// Sorts a part; in a bin the newest comes first.
    fn sort(&mut self, part: &[Loaded]) {
        let base = part[0].order as u64 >> self.bits << self.bits;
        let at = |loaded: &Loaded| (loaded.order as u64 - base) as usize;
        self.counts.clear();
        self.counts.resize((1 << self.bits) + 1, 0);
        part.iter().for_each(|loaded| self.counts[at(loaded) + 1] += 1);
        for order in 1..self.counts.len() {
            self.counts[order] += self.counts[order - 1];
        }
        self.sorted.resize(part.len(), Loaded::default());
        for loaded in part.iter().rev() {
            let next = &mut self.counts[at(loaded)];
            self.sorted[*next as usize] = *loaded;
            *next += 1;
        }
    }
}
