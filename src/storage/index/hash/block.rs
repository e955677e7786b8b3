//! A block: about 64 entries of an index, packed by bits.
//!
//! ```text
//! bits
//!  0..32   owner: the place in the directory that names this block; all ones in a freed block
//! 32..40   class: the block has (class + 1) times 16 bytes
//! 40..48   entries held, at most 254
//! 48..     bins 0 to 63 in unary: a 0 for each entry of the bin, then a 1
//!   …      unused
//!   …end   slots, the first one in the highest bits: those of bin 0, of bin 1, …; within a bin the newest first
//! ```
//!
//! Bins grow from one end and slots from the other, so an entry more moves bits but changes none of those that say where
//! others are, until both meet and the block moves to one that is larger by 16 bytes.
//!
//! A block knows nothing of hashes: which bin, how wide a slot is and what it holds is its index's business.

use super::bits;

/// Words by which the sizes of blocks differ.
pub(super) const UNIT_WORDS: usize = 2;
/// Sizes that blocks have.
pub(super) const CLASSES: usize = 128;
pub(super) const BINS: usize = 64;
pub(super) const ENTRIES_MAX: usize = 254;
pub(super) const SLOT_BITS_MAX: usize = 62;
const HEAD_BITS: usize = 48;

const _: () = assert!(
    HEAD_BITS + BINS + ENTRIES_MAX * (SLOT_BITS_MAX + 1) <= CLASSES * UNIT_WORDS * 64,
    "the largest block holds all the entries that a block may have"
);

/// The entries of one bin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bin {
    /// The first one's number in the block.
    pub(super) first: usize,
    pub(super) count: usize,
    /// Where the bin's run begins.
    bit: usize,
}

/// The class of the smallest block for that many entries.
pub(super) fn class_for(entries: usize, slot_bits: usize) -> usize {
    let bits = HEAD_BITS + BINS + entries * (slot_bits + 1);
    bits.div_ceil(UNIT_WORDS * 64) - 1
}

pub(super) fn words_of(class: usize) -> usize {
    (class + 1) * UNIT_WORDS
}

pub(super) fn owner(block: &[u64]) -> u32 {
    block[0] as u32
}

pub(super) fn set_owner(block: &mut [u64], owner: u32) {
    block[0] = block[0] & !0xffff_ffff | owner as u64;
}

pub(super) fn class(head: u64) -> usize {
    (head >> 32 & 0xff) as usize
}

#[inline]
pub(super) fn entries(block: &[u64]) -> usize {
    (block[0] >> 40 & 0xff) as usize
}

fn set_entries(block: &mut [u64], entries: usize) {
    block[0] = block[0] & !(0xff << 40) | (entries as u64) << 40;
}

/// Whether one entry more fits.
pub(super) fn has_room(block: &[u64], slot_bits: usize) -> bool {
    HEAD_BITS + BINS + (entries(block) + 1) * (slot_bits + 1) <= block.len() * 64
}

#[inline]
pub(super) fn bin(block: &[u64], bin: usize) -> Bin {
    let bit = if bin == 0 { HEAD_BITS } else { HEAD_BITS + env::select(block, HEAD_BITS, bin - 1) + 1 };
    let (at, shift) = (bit >> 6, bit & 63);
    let word = block[at] >> shift;
    let count = if word != 0 { word.trailing_zeros() as usize } else { env::select(block, bit, 0) };
    Bin { first: bit - HEAD_BITS - bin, count, bit }
}

#[inline]
fn slot_bit(block: &[u64], entry: usize, slot_bits: usize) -> usize {
    block.len() * 64 - (entry + 1) * slot_bits
}

#[inline]
pub(super) fn slot(block: &[u64], entry: usize, slot_bits: usize) -> u64 {
    bits::read(block, slot_bit(block, entry, slot_bits), slot_bits)
}

/// Says that the bin's first slot is about to be read.
#[inline]
pub(super) fn prefetch_slot(block: &[u64], bin: Bin, slot_bits: usize) {
    env::prefetch(block, slot_bit(block, bin.first, slot_bits) >> 6);
}

pub(super) fn set_slot(block: &mut [u64], entry: usize, slot_bits: usize, slot: u64) {
    bits::write(block, slot_bit(block, entry, slot_bits), slot_bits, slot);
}

/// Puts `slot` before the others of the bin, in a block that [`has_room`].
pub(super) fn insert(block: &mut [u64], bin: Bin, slot_bits: usize, slot: u64) {
    let held = entries(block);
    let (end, from) = (block.len() * 64 - bin.first * slot_bits, block.len() * 64 - held * slot_bits);
    bits::move_down(block, from, end, slot_bits);
    set_slot(block, bin.first, slot_bits, slot);
    bits::move_up(block, bin.bit, HEAD_BITS + BINS + held, 1);
    bits::write(block, bin.bit, 1, 0);
    set_entries(block, held + 1);
}

/// Takes out one of the bin's entries, `entry` counted in the block.
pub(super) fn remove(block: &mut [u64], bin: Bin, slot_bits: usize, entry: usize) {
    let held = entries(block);
    let (from, to) = (block.len() * 64 - held * slot_bits, slot_bit(block, entry, slot_bits));
    bits::move_up(block, from, to, slot_bits);
    bits::move_down(block, bin.bit + 1, HEAD_BITS + BINS + held, 1);
    set_entries(block, held - 1);
}

/// Makes `target`, of any size that is large enough, a copy of `source`.
pub(super) fn copy(source: &[u64], target: &mut [u64], slot_bits: usize) {
    let held = entries(source);
    target.fill(0);
    let front = HEAD_BITS + BINS + held;
    target[..front >> 6].copy_from_slice(&source[..front >> 6]);
    if front & 63 > 0 {
        target[front >> 6] = source[front >> 6] & bits::mask(front & 63);
    }
    // Both end at a whole word, so that the slots lie alike within their words.
    let back = held * slot_bits;
    let (source_start, target_start) = (source.len() - (back >> 6), target.len() - (back >> 6));
    target[target_start..].copy_from_slice(&source[source_start..]);
    if back & 63 > 0 {
        target[target_start - 1] |= source[source_start - 1] & !bits::mask(64 - (back & 63));
    }
    set_class(target);
}

fn set_class(block: &mut [u64]) {
    let class = block.len() / UNIT_WORDS - 1;
    block[0] = block[0] & !(0xff << 32) | (class as u64) << 32;
}

/// A block's entries taken apart, in their order.
pub(super) struct Entries {
    slots: [u64; ENTRIES_MAX],
    bins: [u8; ENTRIES_MAX],
    count: usize,
}

impl Default for Entries {
    fn default() -> Entries {
        Entries { slots: [0; ENTRIES_MAX], bins: [0; ENTRIES_MAX], count: 0 }
    }
}

impl Entries {
    /// Bins must come in their order, and in a bin the newest first.
    #[inline]
    pub(super) fn push(&mut self, bin: usize, slot: u64) {
        self.slots[self.count] = slot;
        self.bins[self.count] = bin as u8;
        self.count += 1;
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        (0..self.count).map(|at| (self.bins[at] as usize, self.slots[at]))
    }

    pub(super) fn read(block: &[u64], slot_bits: usize) -> Entries {
        let mut read = Entries::default();
        let held = entries(block);
        let (mut at, mut bin, mut bit) = (HEAD_BITS >> 6, 0, HEAD_BITS);
        let mut ends = block[at] >> (HEAD_BITS & 63) << (HEAD_BITS & 63);
        while read.count < held {
            while ends == 0 {
                at += 1;
                ends = block[at];
            }
            let end = at * 64 + ends.trailing_zeros() as usize;
            for _ in bit..end {
                read.push(bin, slot(block, read.count, slot_bits));
            }
            (bin, bit) = (bin + 1, end + 1);
            ends &= ends - 1;
        }
        read
    }

    /// Fills `block`, of the class that [`class_for`] says.
    pub(super) fn write(&self, block: &mut [u64], slot_bits: usize) {
        block.fill(0);
        set_class(block);
        set_entries(block, self.count);
        let mut bin = 0;
        let mut end_bins = |block: &mut [u64], before: usize, up_to: usize| {
            while bin < up_to {
                let bit = HEAD_BITS + bin + before;
                block[bit >> 6] |= 1 << (bit & 63);
                bin += 1;
            }
        };
        for (at, (bin, slot)) in self.iter().enumerate() {
            end_bins(block, at, bin);
            set_slot(block, at, slot_bits, slot);
        }
        end_bins(block, self.count, BINS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn taken_apart(block: &[u64], slot_bits: usize) -> Vec<(usize, u64)> {
        Entries::read(block, slot_bits).iter().collect()
    }

    /// Grows and shrinks one block and compares it with a list.
    fn follow(slot_bits: usize, steps: &[(usize, u64, bool)]) {
        let mut block = vec![0; words_of(class_for(0, slot_bits))];
        Entries::default().write(&mut block, slot_bits);
        let mut model: Vec<(usize, u64)> = Vec::new();
        for &(number, value, add) in steps {
            let value = value & bits::mask(slot_bits);
            let found = bin(&block, number);
            let first = model.partition_point(|entry| entry.0 < number);
            let count = model.iter().filter(|entry| entry.0 == number).count();
            assert_eq!((found.first, found.count), (first, count));
            if add && model.len() < ENTRIES_MAX {
                if !has_room(&block, slot_bits) {
                    let mut larger = vec![u64::MAX; block.len() + UNIT_WORDS];
                    copy(&block, &mut larger, slot_bits);
                    block = larger;
                }
                insert(&mut block, found, slot_bits, value);
                model.insert(first, (number, value));
            } else if count > 0 {
                let entry = first + value as usize % count;
                remove(&mut block, found, slot_bits, entry);
                model.remove(entry);
                let class = class_for(model.len(), slot_bits);
                let mut smaller = vec![u64::MAX; words_of(class)];
                copy(&block, &mut smaller, slot_bits);
                block = smaller;
            }
            assert_eq!(taken_apart(&block, slot_bits), model);
            assert_eq!((class(block[0]) + 1) * UNIT_WORDS, block.len());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

        #[test]
        fn a_block_does_what_a_list_does(
            slot_bits in 20..=SLOT_BITS_MAX,
            steps in prop::collection::vec((0..BINS, any::<u64>(), prop::bool::weighted(0.7)), 1..300),
        ) {
            follow(slot_bits, &steps);
        }

        #[test]
        fn one_bin_may_hold_all(slot_bits in 20..=SLOT_BITS_MAX, number in 0..BINS) {
            let steps: Vec<_> = (0..300).map(|value| (number, value * 77, true)).collect();
            follow(slot_bits, &steps);
        }
    }
}
