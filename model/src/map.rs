//! What a table does: the oracle that property tests run beside the product.

use crate::history::{Action, Answer};
use crate::register;
use std::collections::BTreeMap;
use std::ops::RangeBounds;

/// A table as a sorted map. Every operation takes effect at once and alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map {
    entries: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Map {
    pub fn new() -> Map {
        Map::default()
    }

    pub fn apply(&mut self, key: &[u8], action: &Action) -> Answer {
        let mut entry = self.entries.remove(key);
        let answer = register::apply(&mut entry, action);
        if let Some(value) = entry {
            self.entries.insert(key.to_vec(), value);
        }
        answer
    }

    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.entries.get(key).map(Vec::as_slice)
    }

    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        self.entries.insert(key.to_vec(), value.to_vec());
    }

    /// Whether there was something to delete.
    pub fn delete(&mut self, key: &[u8]) -> bool {
        self.entries.remove(key).is_some()
    }

    /// All or nothing, in the given order; a `None` deletes.
    pub fn write_batch<'a>(&mut self, batch: impl IntoIterator<Item = (&'a [u8], Option<&'a [u8]>)>) {
        for (key, value) in batch {
            match value {
                Some(value) => self.put(key, value),
                None => drop(self.delete(key)),
            }
        }
    }

    /// In the byte order of the keys.
    pub fn range(&self, keys: impl RangeBounds<Vec<u8>>) -> impl DoubleEndedIterator<Item = (&[u8], &[u8])> {
        self.entries.range(keys).map(|(key, value)| (key.as_slice(), value.as_slice()))
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&[u8], &[u8])> {
        self.range(..)
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_operation_leaves_the_map_alone() {
        let mut map = Map::new();
        map.put(b"a", b"text");
        let before = map.clone();
        assert_eq!(map.apply(b"a", &Action::Increment(1)), Answer::Invalid);
        assert_eq!(map, before);
    }

    #[test]
    fn a_batch_applies_in_order() {
        let mut map = Map::new();
        map.write_batch([(&b"a"[..], Some(&b"1"[..])), (b"b", Some(b"2")), (b"a", None)]);
        assert_eq!(map.iter().collect::<Vec<_>>(), [(&b"b"[..], &b"2"[..])]);
    }

    #[test]
    fn a_range_is_in_byte_order() {
        let mut map = Map::new();
        for key in [&b"b"[..], b"a\0", b"a", b"\xff"] {
            map.put(key, b"");
        }
        let keys: Vec<_> = map.range(b"a".to_vec()..).map(|(key, _)| key.to_vec()).collect();
        assert_eq!(keys, [&b"a"[..], b"a\0", b"b", b"\xff"]);
    }
}
