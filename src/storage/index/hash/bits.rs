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

/// Copies the bits from `start` to `end` to `by` (1 to 63) places further up; bits above `end + by` stay.
#[inline]
pub(super) fn move_up(words: &mut [u64], start: usize, end: usize, by: usize) {
    let (first, last) = (start + by, end + by);
    // The target's whole words are `low..high`; those at its ends keep what is not of it.
    let (low, high) = (first.div_ceil(64), last >> 6);
    if low > high {
        return copy_within_word(words, start, first, end - start);
    }
    copy_within_word(words, (high << 6) - by, high << 6, last & 63);
    for at in (low..high).rev() {
        words[at] = words[at] << by | words[at - 1] >> (64 - by);
    }
    copy_within_word(words, start, first, (low << 6) - first);
}

/// Copies the bits from `start` to `end` to `by` (1 to 63) places further down; bits below `start - by` stay.
#[inline]
pub(super) fn move_down(words: &mut [u64], start: usize, end: usize, by: usize) {
    let (first, last) = (start - by, end - by);
    let (low, high) = (first.div_ceil(64), last >> 6);
    if low > high {
        return copy_within_word(words, start, first, end - start);
    }
    copy_within_word(words, start, first, (low << 6) - first);
    if low < high {
        let run = &mut words[low..=high];
        for at in 0..run.len() - 1 {
            run[at] = run[at] >> by | run[at + 1] << (64 - by);
        }
    }
    copy_within_word(words, (high << 6) + by, high << 6, last & 63);
}

/// Copies `count` (less than 64) bits to where they lie in one word.
#[inline]
fn copy_within_word(words: &mut [u64], from: usize, to: usize, count: usize) {
    if count > 0 {
        let value = read(words, from, count);
        write(words, to, count, value);
    }
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
        fn moved_bits_are_those_that_were_there(words in prop::array::uniform6(any::<u64>()), start in 64..200usize, len in 0..120usize, by in 1..=63usize) {
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
    }
}
