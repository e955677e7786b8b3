//! The ordered keys: a set of byte strings in their byte order, close to each other in memory.
//!
//! A tree of blocks of about 50 keys. In a block a key is kept as what it does not share with the one before it, so that a
//! key takes its distinguishing bytes and two more. Keys may be prefixes of each other and hold any bytes.
//! ```text
//! block: for each key   bytes shared with the key before (varint) │ bytes that follow (varint) │ those bytes
//! ```
//! A block's first key refers to the block's name in the tree, which is at most that key and more than all before it.

use crate::limits::KEY_BLOCK_BYTES;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Bound;

#[derive(Default)]
pub(crate) struct KeySet {
    blocks: BTreeMap<Box<[u8]>, Vec<u8>>,
    len: u64,
    bytes: usize,
}

/// A place in a block: the key there, and its bytes in the block.
struct Place {
    /// The key before, for what is put in its place.
    before: Vec<u8>,
    /// The key, if it is not the block's end.
    key: Option<Vec<u8>>,
    start: usize,
    end: usize,
}

impl KeySet {
    /// From keys in ascending order.
    pub(crate) fn from_sorted(keys: impl IntoIterator<Item = Bytes>) -> KeySet {
        let mut set = KeySet::default();
        let mut name: Box<[u8]> = Box::default();
        let (mut block, mut before): (Vec<u8>, Vec<u8>) = (Vec::new(), Vec::new());
        for key in keys {
            debug_assert!(set.len == 0 || before.as_slice() < &key[..], "ascending");
            if block.len() >= KEY_BLOCK_BYTES / 2 {
                set.add_block(std::mem::replace(&mut name, key[..].into()), std::mem::take(&mut block));
                before.clear();
                before.extend_from_slice(&key);
            }
            encode(&before, &key, &mut block);
            before.clear();
            before.extend_from_slice(&key);
            set.len += 1;
        }
        set.add_block(name, block);
        set
    }

    fn add_block(&mut self, name: Box<[u8]>, mut block: Vec<u8>) {
        block.shrink_to_fit();
        self.bytes += block.len() + name.len();
        self.blocks.insert(name, block);
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// About what it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        const OF_A_BLOCK: usize = 64;
        self.bytes + self.blocks.len() * OF_A_BLOCK
    }

    /// Nothing if it is there already.
    pub(crate) fn insert(&mut self, key: &[u8]) {
        let (name, block) = self.block_of(key);
        let place = find(&name, block, key);
        if place.key.as_deref() == Some(key) {
            return;
        }
        let mut put = Vec::with_capacity(key.len() + 8);
        encode(&place.before, key, &mut put);
        if let Some(next) = &place.key {
            encode(key, next, &mut put);
        }
        let (before, range) = (block.len(), place.start..place.end);
        block.reserve_exact(put.len());
        block.splice(range, put);
        let (grown, too_long) = (block.len() - before, block.len() > KEY_BLOCK_BYTES);
        self.bytes += grown;
        self.len += 1;
        if too_long {
            self.split(name);
        }
    }

    /// Nothing if it is not there.
    pub(crate) fn remove(&mut self, key: &[u8]) {
        let (name, block) = self.block_of(key);
        let place = find(&name, block, key);
        if place.key.as_deref() != Some(key) {
            return;
        }
        let mut put = Vec::new();
        let mut end = place.end;
        if let Some((next, next_end)) = decode(block, place.end, key) {
            encode(&place.before, &next, &mut put);
            end = next_end;
        }
        let before = block.len();
        block.splice(place.start..end, put);
        let (after, is_first) = (block.len(), name.is_empty());
        self.bytes = self.bytes + after - before;
        self.len -= 1;
        if after == 0 && !is_first {
            self.bytes -= name.len();
            self.blocks.remove(&name);
        }
    }

    /// All keys in order, each as what it does not share with the one before.
    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        let mut last = Vec::new();
        for (name, block) in &self.blocks {
            let mut key = name.to_vec();
            let mut at = 0;
            while let Some(end) = step(block, at, &mut key) {
                encode(&last, &key, bytes);
                last.clone_from(&key);
                at = end;
            }
        }
    }

    /// What [`KeySet::encode`] wrote, whose checksum held.
    pub(crate) fn decode(bytes: &[u8]) -> KeySet {
        let (mut key, mut at) = (Vec::new(), 0);
        KeySet::from_sorted(std::iter::from_fn(|| {
            at = step(bytes, at, &mut key)?;
            Some(Bytes::copy_from_slice(&key))
        }))
    }

    #[cfg(test)]
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        let Some((name, block)) = self.blocks.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back()
        else {
            return false;
        };
        find(name, block, key).key.as_deref() == Some(key)
    }

    /// Up to `limit` keys from `from` on, in order; fewer only at the end.
    pub(crate) fn from(&self, from: Bound<&[u8]>, limit: usize, found: &mut Vec<Bytes>) {
        let start: &[u8] = match from {
            Bound::Included(key) | Bound::Excluded(key) => key,
            Bound::Unbounded => &[],
        };
        let first = self.blocks.range::<[u8], _>((Bound::Unbounded, Bound::Included(start))).next_back();
        let rest = self.blocks.range::<[u8], _>((Bound::Excluded(start), Bound::Unbounded));
        let enough = found.len() + limit;
        for (name, block) in first.into_iter().chain(rest) {
            let mut key = name.to_vec();
            let mut at = 0;
            while let Some(end) = step(block, at, &mut key) {
                at = end;
                let before = match from {
                    Bound::Included(from) => key.as_slice() < from,
                    Bound::Excluded(from) => key.as_slice() <= from,
                    Bound::Unbounded => false,
                };
                if !before {
                    if found.len() == enough {
                        return;
                    }
                    found.push(Bytes::copy_from_slice(&key));
                }
            }
        }
    }

    /// The block that holds the key, or would.
    fn block_of(&mut self, key: &[u8]) -> (Box<[u8]>, &mut Vec<u8>) {
        let found = self.blocks.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back();
        let name: Box<[u8]> = found.map(|(name, _)| name.clone()).unwrap_or_default();
        let block = self.blocks.entry(name.clone()).or_default();
        (name, block)
    }

    fn split(&mut self, name: Box<[u8]>) {
        let block = self.blocks.remove(&name).expect("it is there");
        self.bytes -= block.len() + name.len();
        let mut key = name.to_vec();
        let (mut at, mut cut) = (0, None);
        while let Some(end) = step(&block, at, &mut key) {
            if at > 0 && at >= block.len() / 2 {
                cut = Some((at, end));
                break;
            }
            at = end;
        }
        let Some((at, end)) = cut else { return self.add_block(name, block) };
        let mut second = Vec::with_capacity(block.len() - at);
        encode(&key, &key, &mut second);
        second.extend_from_slice(&block[end..]);
        self.add_block(name, block[..at].to_vec());
        self.add_block(key.into(), second);
    }
}

/// The first key of the block that is not before `key`.
fn find(name: &[u8], block: &[u8], key: &[u8]) -> Place {
    let (mut before, mut current) = (name.to_vec(), name.to_vec());
    let mut at = 0;
    while let Some(end) = step(block, at, &mut current) {
        if current.as_slice() >= key {
            return Place { before, key: Some(current), start: at, end };
        }
        before.clone_from(&current);
        at = end;
    }
    Place { before, key: None, start: at, end: at }
}

fn encode(before: &[u8], key: &[u8], block: &mut Vec<u8>) {
    let shared = before.iter().zip(key).take_while(|(one, other)| one == other).count();
    put_number(shared, block);
    put_number(key.len() - shared, block);
    block.extend_from_slice(&key[shared..]);
}

fn decode(block: &[u8], at: usize, before: &[u8]) -> Option<(Vec<u8>, usize)> {
    let mut key = before.to_vec();
    let end = step(block, at, &mut key)?;
    Some((key, end))
}

/// Makes of the key before the one at `at`, and says where that one ends; `None` at the block's end.
fn step(block: &[u8], at: usize, key: &mut Vec<u8>) -> Option<usize> {
    if at == block.len() {
        return None;
    }
    let (shared, at) = number(block, at);
    let (rest, at) = number(block, at);
    key.truncate(shared);
    key.extend_from_slice(&block[at..at + rest]);
    Some(at + rest)
}

fn put_number(mut number: usize, block: &mut Vec<u8>) {
    while number >= 0x80 {
        block.push(number as u8 | 0x80);
        number >>= 7;
    }
    block.push(number as u8);
}

fn number(block: &[u8], mut at: usize) -> (usize, usize) {
    let (mut number, mut shift) = (0, 0);
    loop {
        let byte = block[at];
        number |= ((byte & 0x7f) as usize) << shift;
        at += 1;
        shift += 7;
        if byte < 0x80 {
            return (number, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn all(set: &KeySet, from: Bound<&[u8]>, limit: usize) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        set.from(from, limit, &mut found);
        found.into_iter().map(|key| key.to_vec()).collect()
    }

    /// Keys of few different bytes, so that many are prefixes of others.
    fn key() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![Just(0u8), Just(1), Just(0x7f), Just(0xff), any::<u8>()];
        prop_oneof![prop::collection::vec(byte, 1..6), prop::collection::vec(Just(0u8), 1..300)]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]
        #[test]
        fn it_holds_what_an_ordered_set_holds(changes in prop::collection::vec((key(), any::<bool>()), 0..900), from in key()) {
            let (mut set, mut model) = (KeySet::default(), BTreeSet::new());
            for (key, inserts) in changes {
                if inserts {
                    set.insert(&key);
                    model.insert(key);
                } else {
                    set.remove(&key);
                    model.remove(&key);
                }
            }
            prop_assert_eq!(set.len(), model.len() as u64);
            prop_assert_eq!(set.contains(&from), model.contains(&from));
            let expected: Vec<_> = model.iter().cloned().collect();
            prop_assert_eq!(&all(&set, Bound::Unbounded, usize::MAX), &expected);
            let after: Vec<_> = model.range(from.clone()..).take(7).cloned().collect();
            prop_assert_eq!(all(&set, Bound::Included(&from), 7), after);
            let beyond: Vec<_> = model.range((Bound::Excluded(from.clone()), Bound::Unbounded)).cloned().collect();
            prop_assert_eq!(all(&set, Bound::Excluded(&from), usize::MAX), beyond);
            let built = KeySet::from_sorted(expected.iter().map(|key| Bytes::copy_from_slice(key)));
            prop_assert_eq!(&all(&built, Bound::Unbounded, usize::MAX), &expected);
            let mut bytes = Vec::new();
            set.encode(&mut bytes);
            prop_assert_eq!(&all(&KeySet::decode(&bytes), Bound::Unbounded, usize::MAX), &expected);
        }
    }

    #[test]
    fn random_keys_take_little_more_than_their_own_bytes() {
        let mut set = KeySet::default();
        let mut number = 1u64;
        for _ in 0..50_000 {
            number = number.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            set.insert(&[number.to_be_bytes(), number.rotate_left(20).to_be_bytes()].concat());
        }
        let each = set.memory_bytes() as f64 / set.len() as f64;
        assert!(each < 20.0, "{each} bytes for each key of 16");
    }
}
