//! Where the blocks of several indexes lie: packed, movable, and given back to the system as they go.
//!
//! One run of addresses, cut into chunks of 32 KiB, each for blocks of one size. A block says who owns it, so it may be moved
//! at any time, and that is what bounds the waste:
//! ```text
//! chunks   0   1   2   3   4   5 │ top                a size's chunks form a run: all but the last are full,
//! size     A   B   A   –   C   B │                    but for a few holes; holes are filled from the run's end,
//!                      ▲       │                      free chunks from the heap's top, and what lies above the
//!                      └───────┘                      top goes back to the system
//! ```
//! A *directory* names an index's blocks by number. It lies here too, for whoever moves a block must be able to say so: a
//! block's owner is a *place*, the number of a leaf of 256 entries and the entry.
//!
//! No step does more than fill a few holes and move one chunk, whatever the heap's size.

use super::block::{self, CLASSES, UNIT_WORDS};
use env::{Pages, prefetch};
use std::collections::BTreeSet;

const CHUNK_WORDS: usize = 4096;
const CHUNK_UNITS: u32 = (CHUNK_WORDS / UNIT_WORDS) as u32;
/// Chunks that go back to the system at once.
const STEP_CHUNKS: u32 = 32;
/// Holes that a size may have before they are filled, if that is less than an eighth of its blocks.
const HOLES_MAX: usize = 16;
/// Free chunks below the top, besides one in a hundred.
const FREE_CHUNKS_MAX: u32 = 4;
const LINE_WORDS: usize = 8;
/// Lines that a block of 64 entries at 5.5 bytes lies in, at most.
const USUAL_LINES: usize = 7;
pub(super) const LEAF_ENTRIES: usize = 256;
/// The owner of what nobody owns.
const NOBODY: u32 = u32::MAX;

/// Where a block begins, counted in units of 16 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Handle(u32);

/// An entry of the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(pub(super) u32);

impl Handle {
    fn chunk(self) -> u32 {
        self.0 / CHUNK_UNITS
    }

    fn word(self) -> usize {
        self.0 as usize * UNIT_WORDS
    }
}

/// A part of a directory. Boxed, so that a heap with many of them does not copy them when their list grows.
struct Leaf {
    handles: Box<[u32; LEAF_ENTRIES]>,
}

/// What a chunk is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chunk {
    Free,
    /// For blocks of this class; the chunk is number `at` of the class's run.
    Blocks {
        class: u8,
        at: u32,
    },
}

/// The blocks of one size.
#[derive(Default)]
struct Class {
    /// Its chunks; all but the last are full of blocks and holes.
    run: Vec<u32>,
    /// Blocks and holes in the last chunk.
    in_last: u32,
    holes: Vec<Handle>,
    blocks: usize,
}

pub(super) struct Heap {
    /// Addresses beyond the top cost nothing until they are written.
    words: Pages,
    chunks: Vec<Chunk>,
    free: BTreeSet<u32>,
    /// Chunks that were written since the system gave them.
    touched: u32,
    classes: Vec<Class>,
    leaves: Vec<Leaf>,
    free_leaves: Vec<u32>,
    /// Where a block is kept while it moves.
    aside: Vec<u64>,
}

impl Default for Heap {
    fn default() -> Heap {
        Heap {
            words: Pages::new(STEP_CHUNKS as usize * CHUNK_WORDS),
            chunks: Vec::new(),
            free: BTreeSet::new(),
            touched: 0,
            classes: (0..CLASSES).map(|_| Class::default()).collect(),
            leaves: Vec::new(),
            free_leaves: Vec::new(),
            aside: vec![0; CLASSES * UNIT_WORDS],
        }
    }
}

impl Heap {
    #[inline]
    pub(super) fn at(&self, place: Place) -> Handle {
        Handle(self.leaves[place.0 as usize / LEAF_ENTRIES].handles[place.0 as usize % LEAF_ENTRIES])
    }

    fn point(&mut self, place: Place, handle: Handle) {
        self.leaves[place.0 as usize / LEAF_ENTRIES].handles[place.0 as usize % LEAF_ENTRIES] = handle.0;
    }

    #[inline]
    pub(super) fn block(&self, handle: Handle) -> &[u64] {
        let words = &self.words[handle.word()..];
        &words[..block::words_of(block::class(words[0]))]
    }

    /// Says that the head of a block is about to be read: it may lie in two lines.
    #[inline]
    pub(super) fn prefetch_head(&self, handle: Handle) {
        prefetch(&self.words, handle.word());
        prefetch(&self.words, handle.word() + 3);
    }

    /// Says that all of a block is about to be read, as far as most blocks reach.
    #[inline]
    pub(super) fn prefetch_block(&self, handle: Handle) {
        for line in 0..USUAL_LINES {
            prefetch(&self.words, handle.word() + line * LINE_WORDS);
        }
    }

    #[inline]
    pub(super) fn block_mut(&mut self, handle: Handle) -> &mut [u64] {
        let words = &mut self.words[handle.word()..];
        let len = block::words_of(block::class(words[0]));
        &mut words[..len]
    }

    /// Makes a block of that class for the place and lets `fill` write it.
    pub(super) fn place(&mut self, place: Place, class: usize, fill: impl FnOnce(&mut [u64])) {
        let handle = self.allocate(class);
        let start = handle.word();
        let words = &mut self.words[start..start + block::words_of(class)];
        fill(words);
        debug_assert_eq!(block::class(words[0]), class, "a block says its size");
        block::set_owner(words, place.0);
        self.point(place, handle);
    }

    /// Moves the place's block to one of another class, and returns where it is now.
    pub(super) fn resize(&mut self, place: Place, class: usize, slot_bits: usize) -> Handle {
        let old = self.at(place);
        let mut aside = std::mem::take(&mut self.aside);
        let words = self.block(old);
        let len = words.len();
        aside[..len].copy_from_slice(words);
        self.place(place, class, |target| block::copy(&aside[..len], target, slot_bits));
        self.aside = aside;
        self.free(old);
        // Freeing may have moved the new block too.
        self.at(place)
    }

    fn allocate(&mut self, class: usize) -> Handle {
        self.classes[class].blocks += 1;
        if let Some(hole) = self.classes[class].holes.pop() {
            return hole;
        }
        if self.classes[class].run.is_empty() || self.classes[class].in_last == blocks_in_chunk(class) {
            let chunk = self.take_chunk();
            let Class { run, in_last, .. } = &mut self.classes[class];
            self.chunks[chunk as usize] = Chunk::Blocks { class: class as u8, at: run.len() as u32 };
            run.push(chunk);
            *in_last = 0;
        }
        let Class { run, in_last, .. } = &mut self.classes[class];
        let chunk = *run.last().expect("pushed above");
        *in_last += 1;
        nth(chunk, class, *in_last - 1)
    }

    /// The lowest free chunk.
    fn take_chunk(&mut self) -> u32 {
        if let Some(chunk) = self.free.pop_first() {
            return chunk;
        }
        let chunk = self.chunks.len() as u32;
        if chunk as usize * CHUNK_WORDS == self.words.len() {
            let more = (chunk / 4).next_multiple_of(STEP_CHUNKS);
            self.words.resize((chunk + more.max(STEP_CHUNKS)) as usize * CHUNK_WORDS);
        }
        self.chunks.push(Chunk::Free);
        self.touched = self.touched.max(self.chunks.len() as u32);
        chunk
    }

    pub(super) fn free(&mut self, handle: Handle) {
        let words = self.block_mut(handle);
        let class = block::class(words[0]);
        block::set_owner(words, NOBODY);
        let Class { holes, blocks, .. } = &mut self.classes[class];
        *blocks -= 1;
        holes.push(handle);
        if holes.len() > HOLES_MAX.min(*blocks / 8) {
            self.fill_holes(class);
        }
    }

    /// Moves blocks from the end of the class's run into its holes.
    fn fill_holes(&mut self, class: usize) {
        let mut holes = std::mem::take(&mut self.classes[class].holes);
        holes.sort_unstable_by_key(|&hole| (self.chunk_in_run(hole), hole));
        // From the last hole on, so that what lies at the end of the run is either that hole or a block.
        while let Some(hole) = holes.pop() {
            let Class { run, in_last, .. } = &mut self.classes[class];
            let chunk = *run.last().expect("it has holes");
            *in_last -= 1;
            let last = nth(chunk, class, *in_last);
            if *in_last == 0 {
                run.pop();
                *in_last = if run.is_empty() { 0 } else { blocks_in_chunk(class) };
                self.chunks[chunk as usize] = Chunk::Free;
                self.free.insert(chunk);
            }
            if last != hole {
                self.copy_words(last, hole, block::words_of(class));
                let owner = block::owner(self.block(hole));
                self.point(Place(owner), hole);
            }
        }
        self.classes[class].holes = holes;
        self.lower_top();
    }

    fn chunk_in_run(&self, handle: Handle) -> u32 {
        match self.chunks[handle.chunk() as usize] {
            Chunk::Blocks { at, .. } => at,
            Chunk::Free => unreachable!("{handle:?} lies in a free chunk"),
        }
    }

    /// Keeps few free chunks below the top, and gives back what is above it.
    fn lower_top(&mut self) {
        loop {
            while self.chunks.last() == Some(&Chunk::Free) {
                self.chunks.pop();
                self.free.remove(&(self.chunks.len() as u32));
            }
            if self.free.len() as u32 <= FREE_CHUNKS_MAX + self.chunks.len() as u32 / 100 {
                break;
            }
            self.move_top_chunk();
        }
        // One step is kept, so that growing and shrinking by turns costs no calls of the system.
        let kept = (self.chunks.len() as u32).next_multiple_of(STEP_CHUNKS) + STEP_CHUNKS;
        if self.touched > kept {
            self.words.resize(kept as usize * CHUNK_WORDS);
            self.touched = kept;
        }
    }

    /// Moves the last chunk into the lowest free one.
    fn move_top_chunk(&mut self) {
        let top = self.chunks.len() as u32 - 1;
        let target = self.free.pop_first().expect("more than a few are free");
        let Chunk::Blocks { class, at } = self.chunks[top as usize] else { unreachable!("free ones were dropped") };
        let class = class as usize;
        self.copy_words(Handle(top * CHUNK_UNITS), Handle(target * CHUNK_UNITS), CHUNK_WORDS);
        self.chunks[target as usize] = self.chunks[top as usize];
        self.chunks[top as usize] = Chunk::Free;
        let Class { run, in_last, holes, .. } = &mut self.classes[class];
        run[at as usize] = target;
        let used = if at as usize + 1 == run.len() { *in_last } else { blocks_in_chunk(class) };
        for hole in holes.iter_mut().filter(|hole| hole.chunk() == top) {
            hole.0 = hole.0 - top * CHUNK_UNITS + target * CHUNK_UNITS;
        }
        for number in 0..used {
            let handle = nth(target, class, number);
            let owner = block::owner(self.block(handle));
            if owner != NOBODY {
                self.point(Place(owner), handle);
            }
        }
    }

    fn copy_words(&mut self, from: Handle, to: Handle, words: usize) {
        self.words.copy_within(from.word()..from.word() + words, to.word());
    }

    /// Takes a leaf of the directory. Its entries mean nothing until blocks are placed at them.
    pub(super) fn take_leaf(&mut self) -> u32 {
        self.free_leaves.pop().unwrap_or_else(|| {
            self.leaves.push(Leaf { handles: Box::new([0; LEAF_ENTRIES]) });
            self.leaves.len() as u32 - 1
        })
    }

    pub(super) fn give_leaf(&mut self, leaf: u32) {
        self.free_leaves.push(leaf);
    }

    /// Makes a block belong to another place, where it lies.
    pub(super) fn hand_over(&mut self, handle: Handle, place: Place) {
        block::set_owner(self.block_mut(handle), place.0);
        self.point(place, handle);
    }

    /// Everything that the heap keeps resident.
    pub(super) fn memory_bytes(&self) -> usize {
        let lists = self.classes.iter().map(|class| 4 * (class.run.capacity() + class.holes.capacity())).sum::<usize>();
        self.touched as usize * CHUNK_WORDS * 8
            + self.leaves.len() * (LEAF_ENTRIES * 4 + 8)
            + self.chunks.capacity() * size_of::<Chunk>()
            + CLASSES * size_of::<Class>()
            + lists
    }

    /// The number of live blocks and their total size; checks on the way that all is as it should be.
    #[cfg(test)]
    pub(super) fn check(&self) -> (usize, usize) {
        let (mut blocks, mut bytes) = (0, 0);
        for (class, Class { run, in_last, holes, blocks: held }) in self.classes.iter().enumerate() {
            let mut found = 0;
            for (at, &chunk) in run.iter().enumerate() {
                assert_eq!(self.chunks[chunk as usize], Chunk::Blocks { class: class as u8, at: at as u32 });
                let used = if at + 1 == run.len() { *in_last } else { blocks_in_chunk(class) };
                for handle in (0..used).map(|number| nth(chunk, class, number)) {
                    let owner = block::owner(self.block(handle));
                    assert_eq!(owner == NOBODY, holes.contains(&handle));
                    if owner != NOBODY {
                        assert_eq!(self.at(Place(owner)), handle);
                        found += 1;
                    }
                }
            }
            assert_eq!(found, *held);
            blocks += found;
            bytes += found * block::words_of(class) * 8;
        }
        for (chunk, used) in self.chunks.iter().enumerate() {
            assert_eq!(*used == Chunk::Free, self.free.contains(&(chunk as u32)));
        }
        (blocks, bytes)
    }
}

fn blocks_in_chunk(class: usize) -> u32 {
    CHUNK_UNITS / (class as u32 + 1)
}

fn nth(chunk: u32, class: usize, number: u32) -> Handle {
    Handle(chunk * CHUNK_UNITS + number * (class as u32 + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::sim::{Dice, stream};

    /// A block full of one number, which says whose it is.
    fn filled(class: usize, number: u64) -> impl FnOnce(&mut [u64]) {
        move |words| {
            words.fill(number);
            words[0] = (class as u64) << 32;
        }
    }

    fn check(heap: &Heap, place: Place, expected: (usize, u64)) {
        let words = heap.block(heap.at(place));
        assert_eq!(block::owner(words), place.0);
        assert_eq!(words.len(), block::words_of(expected.0));
        assert!(words[1..].iter().all(|&word| word == expected.1), "place {place:?} keeps its words");
    }

    #[test]
    fn blocks_keep_their_words_while_others_come_and_go() {
        let mut dice: Dice = stream(1, "heap");
        let mut heap = Heap::default();
        let leaves: Vec<u32> = (0..40).map(|_| heap.take_leaf()).collect();
        let mut model: Vec<Option<(usize, u64)>> = vec![None; leaves.len() * LEAF_ENTRIES];
        for round in 0..6u64 {
            for step in 0..8000u64 {
                let at = dice.below(model.len() as u64) as usize;
                let place = Place(at as u32);
                let number = round << 32 | step;
                // Sizes drift, so that chunks of one size become free for others.
                let class = (round as usize * 7 + dice.below(20) as usize) % CLASSES;
                if let Some(expected) = model[at].take() {
                    check(&heap, place, expected);
                    heap.free(heap.at(place));
                }
                if dice.percent(if round == 3 { 10 } else { 60 }) {
                    heap.place(place, class, filled(class, number));
                    model[at] = Some((class, number));
                }
            }
            let (blocks, bytes) = heap.check();
            assert_eq!(blocks, model.iter().flatten().count());
            for (at, expected) in model.iter().enumerate().filter_map(|(at, entry)| Some((at, (*entry)?))) {
                check(&heap, Place(at as u32), expected);
            }
            let chunks = heap.chunks.len() * CHUNK_WORDS * 8;
            assert!(chunks < bytes * 5 / 4 + 40 * CHUNK_WORDS * 8, "{chunks} bytes of chunks for {bytes} of blocks");
        }
        for at in (0..model.len()).filter(|&at| model[at].is_some()) {
            heap.free(heap.at(Place(at as u32)));
        }
        assert_eq!(heap.check(), (0, 0));
        assert!(heap.chunks.is_empty() && heap.touched <= 2 * STEP_CHUNKS, "an empty heap keeps no blocks' memory");
    }
}
