//! Runs of bits in a slice of words: bit `i` is bit `i % 64` of word `i / 64`.

/// The lowest `count` (at most 64) bits set.
pub(super) fn mask(count: usize) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}

/// The `count` (1 to 64) bits from `bit` on.
#[inline]
pub(super) fn read(words: &[u64], bit: usize, count: usize) -> u64 {
    let (at, shift) = (bit >> 6, bit & 63);
    let mut value = words[at] >> shift;
    if shift + count > 64 {
        value |= words[at + 1] << (64 - shift);
    }
    value & mask(count)
}

/// Puts the low `count` (1 to 64) bits of `value`, which has no others, at `bit`.
#[inline]
pub(super) fn write(words: &mut [u64], bit: usize, count: usize, value: u64) {
    debug_assert_eq!(value & !mask(count), 0);
    let (at, shift) = (bit >> 6, bit & 63);
    words[at] = words[at] & !(mask(count) << shift) | value << shift;
    if shift + count > 64 {
        let above = 64 - shift;
        words[at + 1] = words[at + 1] & !(mask(count) >> above) | value >> above;
    }
}

/// Copies the bits from `start` to `end` to `by` (at most 64) places further up; bits above `end + by` stay.
#[inline]
pub(super) fn move_up(words: &mut [u64], start: usize, end: usize, by: usize) {
    let mut at = end + by;
    // Each step fills one word of the target from its top, so that nothing is read after it was overwritten.
    while at > start + by {
        let count = (((at - 1) & 63) + 1).min(at - (start + by));
        at -= count;
        let value = read(words, at - by, count);
        write(words, at, count, value);
    }
}

/// Copies the bits from `start` to `end` to `by` (at most 64) places further down; bits below `start - by` stay.
#[inline]
pub(super) fn move_down(words: &mut [u64], start: usize, end: usize, by: usize) {
    let mut at = start - by;
    while at < end - by {
        let count = (64 - (at & 63)).min(end - by - at);
        let value = read(words, at + by, count);
        write(words, at, count, value);
        at += count;
    }
}

const ONES: u64 = 0x0101_0101_0101_0101;
const TOPS: u64 = 0x8080_8080_8080_8080;

/// How many bits are set in each byte of `word` and those below it.
#[inline]
fn bytes_below(word: u64) -> u64 {
    let pairs = word - (word >> 1 & 0x5555_5555_5555_5555);
    let nibbles = (pairs & 0x3333_3333_3333_3333) + (pairs >> 2 & 0x3333_3333_3333_3333);
    ((nibbles + (nibbles >> 4)) & 0x0f0f_0f0f_0f0f_0f0f).wrapping_mul(ONES)
}

/// The place of the set bit that has `rank` others below it, from `bit` on, counted from `bit`; there must be one.
#[inline]
pub(super) fn select(words: &[u64], bit: usize, rank: usize) -> usize {
    let mut rank = rank as u64;
    let mut at = bit >> 6;
    let mut word = words[at] & !mask(bit & 63);
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bits(words: &[u64]) -> Vec<bool> {
        (0..words.len() * 64).map(|at| words[at >> 6] >> (at & 63) & 1 == 1).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

        #[test]
        fn what_is_written_is_read(words in prop::array::uniform4(any::<u64>()), bit in 0..192usize, count in 1..=64usize, value: u64) {
            let mut changed = words;
            write(&mut changed, bit, count, value & mask(count));
            prop_assert_eq!(read(&changed, bit, count), value & mask(count));
            let (before, after) = (bits(&words), bits(&changed));
            prop_assert_eq!(&before[..bit], &after[..bit]);
            prop_assert_eq!(&before[bit + count..], &after[bit + count..]);
        }

        #[test]
        fn moved_bits_are_those_that_were_there(words in prop::array::uniform6(any::<u64>()), start in 64..200usize, len in 0..120usize, by in 1..=64usize) {
            let before = bits(&words);
            let mut up = words;
            move_up(&mut up, start, start + len, by);
            let up = bits(&up);
            prop_assert_eq!(&up[start + by..start + len + by], &before[start..start + len]);
            prop_assert_eq!(&up[..start + by], &before[..start + by]);
            prop_assert_eq!(&up[start + len + by..], &before[start + len + by..]);
            let mut down = words;
            move_down(&mut down, start, start + len, by);
            let down = bits(&down);
            prop_assert_eq!(&down[start - by..start + len - by], &before[start..start + len]);
            prop_assert_eq!(&down[..start - by], &before[..start - by]);
            prop_assert_eq!(&down[start + len - by..], &before[start + len - by..]);
        }

        #[test]
        fn select_finds_each_set_bit(words in prop::array::uniform4(any::<u64>()), sparse: u64, bit in 0..130usize) {
            for words in [words, words.map(|word| word & sparse), words.map(|word| word | sparse)] {
                let set = bits(&words);
                let places = (bit..256).filter(|&at| set[at]);
                for (rank, place) in places.enumerate() {
                    prop_assert_eq!(select(&words, bit, rank), place - bit);
                }
            }
        }
    }
}
