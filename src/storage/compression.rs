//! Values made shorter, where that is possible.
//!
//! Whoever makes a record compresses its value ([`Compression::pack`]) and keeps the plain one if that is not longer, so that
//! a table's setting costs nothing where it does not help. From there on the bytes are the record's, compressed or not: they
//! are sent, logged, compacted and cached as they are. Only an answer unpacks them.
//!
//! A packed value is the length of the plain one (4 bytes) and an LZ4 block.

use crate::limits::VALUE_BYTES_MAX;
use crate::record::u32_at;
use bytes::Bytes;

/// How values of a table are to be stored, and how one of a record is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Compression {
    #[default]
    None,
    /// LZ4, block format.
    Lz4,
}

const LEN_BYTES: usize = 4;
/// Shorter values hold nothing that repeats often enough.
const PACKED_BYTES_MIN: usize = 32;

impl Compression {
    /// The value as it is to be stored, and how that is.
    pub fn pack(self, value: Bytes) -> (Bytes, Compression) {
        if self == Compression::None || !(PACKED_BYTES_MIN..=VALUE_BYTES_MAX).contains(&value.len()) {
            return (value, Compression::None);
        }
        let mut packed = vec![0; LEN_BYTES + lz4_flex::block::get_maximum_output_size(value.len())];
        let (head, block) = packed.split_at_mut(LEN_BYTES);
        head.copy_from_slice(&(value.len() as u32).to_le_bytes());
        let len = lz4_flex::block::compress_into(&value, block).expect("the longest output fits");
        if LEN_BYTES + len >= value.len() {
            return (value, Compression::None);
        }
        // A copy of the right length: the buffer was made for the worst case.
        (Bytes::copy_from_slice(&packed[..LEN_BYTES + len]), Compression::Lz4)
    }

    /// The value that was stored so.
    pub fn unpack(self, stored: Bytes) -> Result<Bytes, &'static str> {
        if self == Compression::None {
            return Ok(stored);
        }
        if stored.len() < LEN_BYTES || u32_at(&stored, 0) as usize > VALUE_BYTES_MAX {
            return Err("compressed value has no length that it may have");
        }
        let mut value = vec![0; u32_at(&stored, 0) as usize];
        match lz4_flex::block::decompress_into(&stored[LEN_BYTES..], &mut value) {
            Ok(len) if len == value.len() => Ok(value.into()),
            _ => Err("compressed value cannot be unpacked"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::random_bytes;
    use env::sim::stream;

    fn there_and_back(value: &[u8]) -> Compression {
        let (stored, compression) = Compression::Lz4.pack(Bytes::copy_from_slice(value));
        assert!(stored.len() <= value.len());
        assert_eq!(compression.unpack(stored).as_deref(), Ok(value));
        compression
    }

    #[test]
    fn what_repeats_is_packed_and_what_does_not_stays() {
        let mut dice = stream(1, "compression");
        for len in [0, 1, 31, 32, 33, 1000, 100_000, VALUE_BYTES_MAX] {
            let packs = if len >= PACKED_BYTES_MIN { Compression::Lz4 } else { Compression::None };
            assert_eq!(there_and_back(&vec![7; len]), packs, "{len} equal bytes");
        }
        for _ in 0..100 {
            assert_eq!(there_and_back(&random_bytes(&mut dice, 300)), Compression::None);
        }
        assert_eq!(Compression::None.pack(Bytes::from(vec![7; 1000])).1, Compression::None);
    }

    #[test]
    fn damage_is_an_error_or_another_value_and_never_more_than_a_value_may_have() {
        let value = b"over and over and over and over and over and over again".as_slice();
        let (stored, compression) = Compression::Lz4.pack(Bytes::copy_from_slice(value));
        for at in 0..stored.len() {
            assert!(compression.unpack(stored.slice(..at)).is_err(), "cut at {at}");
            for flip in [1, 0x80, 0xFF] {
                let mut damaged = stored.to_vec();
                damaged[at] ^= flip;
                let unpacked = compression.unpack(damaged.into());
                assert!(unpacked.is_err() || unpacked.is_ok_and(|value| value.len() <= VALUE_BYTES_MAX));
            }
        }
    }
}
