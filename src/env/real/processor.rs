//! What processors do in one instruction and the language has no safe word for. It is the same on every backend.

#![allow(unsafe_code)]

/// Says that the line of memory around `words[at]` is about to be used, so that its coming overlaps with what is done until
/// then. Nothing else happens, not even if there is no such word.
#[inline(always)]
pub fn prefetch(words: &[u64], at: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint reads nothing and faults at no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(words.as_ptr().wrapping_add(at).cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (words, at);
}

/// The place of the set bit that has `rank` others below it, from `bit` on, counted from `bit`; there must be one. Bit `i` is
/// bit `i % 64` of word `i / 64`.
#[inline]
pub fn select(words: &[u64], bit: usize, rank: usize) -> usize {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if std::arch::is_x86_feature_detected!("bmi2") && std::arch::is_x86_feature_detected!("popcnt") {
        // SAFETY: the processor has the instructions.
        return unsafe { x86::select(words, bit, rank) };
    }
    portable::select(words, bit, rank)
}

/// `word` without the bits below `bit`.
#[inline(always)]
fn from_bit(word: u64, bit: usize) -> u64 {
    word >> bit << bit
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86 {
    use std::arch::x86_64::_pdep_u64;

    #[target_feature(enable = "bmi2,popcnt")]
    pub(super) fn select(words: &[u64], bit: usize, rank: usize) -> usize {
        let mut rank = rank as u32;
        let mut at = bit >> 6;
        let mut word = super::from_bit(words[at], bit & 63);
        loop {
            let count = word.count_ones();
            if rank < count {
                return at * 64 + _pdep_u64(1 << rank, word).trailing_zeros() as usize - bit;
            }
            rank -= count;
            at += 1;
            word = words[at];
        }
    }
}

mod portable {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const TOPS: u64 = 0x8080_8080_8080_8080;

    #[inline]
    pub(super) fn select(words: &[u64], bit: usize, rank: usize) -> usize {
        let mut rank = rank as u64;
        let mut at = bit >> 6;
        let mut word = super::from_bit(words[at], bit & 63);
        loop {
            let sums = bytes_below(word);
            let count = sums >> 56;
            if rank < count {
                return at * 64 + select_in(word, sums, rank) - bit;
            }
            rank -= count;
            at += 1;
            word = words[at];
        }
    }

    /// How many bits are set in each byte of `word` and those below it.
    #[inline]
    fn bytes_below(word: u64) -> u64 {
        let pairs = word - (word >> 1 & 0x5555_5555_5555_5555);
        let nibbles = (pairs & 0x3333_3333_3333_3333) + (pairs >> 2 & 0x3333_3333_3333_3333);
        ((nibbles + (nibbles >> 4)) & 0x0f0f_0f0f_0f0f_0f0f).wrapping_mul(ONES)
    }

    /// The place of the set bit of `word` that has `rank` others below it. `sums` are its [`bytes_below`].
    #[inline]
    fn select_in(word: u64, sums: u64, rank: u64) -> usize {
        // A byte's top bit stays set where its sum is at most `rank`, for all are below 128: those bytes lie wholly below.
        let at_most = (((rank * ONES) | TOPS) - sums) & TOPS;
        let byte = at_most.count_ones() as usize * 8;
        let before = (sums << 8 >> byte & 0xff) as u32;
        let mut rest = (word >> byte & 0xff) as u32;
        for _ in before..rank as u32 {
            rest &= rest - 1;
        }
        byte + rest.trailing_zeros() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn select_finds_each_set_bit_by_instructions_and_without() {
        let mut word = 1u64;
        let mut next = || {
            word ^= word << 13;
            word ^= word >> 7;
            word ^= word << 17;
            word
        };
        for _ in 0..500 {
            let (words, sparse) = ([next(), next(), next(), next()], next() & next());
            for words in [words, words.map(|word| word & sparse), words.map(|word| word | sparse), [u64::MAX; 4]] {
                let bit = next() as usize % 130;
                let places = (bit..256).filter(|&at| words[at >> 6] >> (at & 63) & 1 == 1);
                for (rank, place) in places.enumerate() {
                    assert_eq!(select(&words, bit, rank), place - bit);
                    assert_eq!(portable::select(&words, bit, rank), place - bit);
                }
            }
        }
    }

    #[test]
    fn prefetching_does_nothing_wherever_it_points() {
        for at in [0, 1, 1 << 20, usize::MAX] {
            prefetch(&[7], at);
        }
    }
}
