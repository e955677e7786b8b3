//! Keys as stored, and ranges of them.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh32::xxh32;

/// How a table spreads its keys: each stored key begins with a hash of the key that the user gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Salt {
    /// xxHash32 with seed 0, four bytes big-endian: `user7461223496605049899_266` is stored behind `35 F7 B0 A0`.
    Xxh32,
}

impl Salt {
    pub const BYTES: usize = 4;

    pub fn stored_key(self, key: &[u8]) -> Bytes {
        let mut stored = Vec::with_capacity(Self::BYTES + key.len());
        stored.extend_from_slice(&self.prefix(key));
        stored.extend_from_slice(key);
        stored.into()
    }

    pub fn prefix(self, key: &[u8]) -> [u8; Self::BYTES] {
        xxh32(key, 0).to_be_bytes()
    }

    /// The key that the user gave, if `stored` is one that this salt makes.
    pub fn user_key(self, stored: &[u8]) -> Option<&[u8]> {
        let (prefix, key) = stored.split_at_checked(Self::BYTES)?;
        (self.prefix(key) == prefix).then_some(key)
    }
}

/// Stored keys from `start` (in) to `end` (out); no end means to the last key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRange {
    pub start: Bytes,
    pub end: Option<Bytes>,
}

impl KeyRange {
    pub fn contains(&self, key: &[u8]) -> bool {
        key >= &self.start[..] && self.end.as_ref().is_none_or(|end| key < &end[..])
    }

    /// The ranges between `splits`, which are sorted and distinct and not empty strings.
    pub fn between(splits: &[Bytes]) -> Vec<KeyRange> {
        let starts = std::iter::once(Bytes::new()).chain(splits.iter().cloned());
        let ends = splits.iter().cloned().map(Some).chain(std::iter::once(None));
        starts.zip(ends).map(|(start, end)| KeyRange { start, end }).collect()
    }
}

/// Split points that cut the space of four-byte prefixes into `regions` equal parts; even for a salted table, and for any
/// other as even as its keys are.
pub fn even_splits(regions: u32) -> Vec<Bytes> {
    let split = |i: u64| (((i << 32) / u64::from(regions)) as u32).to_be_bytes();
    (1..u64::from(regions)).map(|i| Bytes::copy_from_slice(&split(i))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_salt_is_the_published_one() {
        let key = b"user7461223496605049899_266";
        let stored = Salt::Xxh32.stored_key(key);
        assert_eq!(&stored[..4], [0x35, 0xF7, 0xB0, 0xA0]);
        assert_eq!(Salt::Xxh32.user_key(&stored), Some(&key[..]));
        assert_eq!(Salt::Xxh32.user_key(b"\0\0\0\0other"), None);
        assert_eq!(Salt::Xxh32.user_key(b"abc"), None);
    }

    #[test]
    fn even_splits_cover_every_key_once() {
        for regions in [1u32, 2, 3, 16, 1000] {
            let ranges = KeyRange::between(&even_splits(regions));
            assert_eq!(ranges.len(), regions as usize);
            for key in [&b""[..], b"\0", b"a", b"\x7f\xff\xff\xff\xff", b"\x80", b"\xff\xff\xff\xff\xff"] {
                assert_eq!(ranges.iter().filter(|range| range.contains(key)).count(), 1, "{regions} {key:?}");
            }
        }
    }
}
