//! What every checksum is seeded with: where the bytes belong.
//!
//! A frame or record found elsewhere than where it was written for, in another cluster, region, segment or offset, fails
//! its checksum, so that a stale, foreign or misdirected block is never taken for data.

use crate::ids::{RegionId, SegmentId};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed, xxh3_128_with_seed};

/// Whose log it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Identity {
    pub cluster: u128,
    pub region: RegionId,
}

impl Identity {
    pub(crate) fn seeds(&self, segment: SegmentId) -> Seeds {
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(&self.cluster.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.region.0.to_le_bytes());
        bytes[24..].copy_from_slice(&segment.0.to_le_bytes());
        Seeds { segment, base: xxh3_64(&bytes) }
    }

    /// The key's hash. Keyed by the cluster, whose id is random, so that clients cannot choose colliding keys.
    pub fn key_hash(&self, key: &[u8]) -> u128 {
        xxh3_128_with_seed(key, (self.cluster >> 64) as u64 ^ self.cluster as u64)
    }

    /// A checksum for the small files, which have no place within a segment.
    pub(crate) fn checksum(&self, bytes: &[u8]) -> u64 {
        xxh3_64_with_seed(bytes, self.seeds(SegmentId(0)).base)
    }
}

/// The seeds of one segment's checksums.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seeds {
    pub(crate) segment: SegmentId,
    base: u64,
}

impl Seeds {
    pub(crate) fn at(&self, offset: u64) -> u64 {
        if env::mutants::active("M14") {
            return 0;
        }
        // An odd factor maps offsets one to one.
        self.base ^ offset.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    pub(crate) fn sum64(&self, bytes: &[u8], offset: u64) -> u64 {
        xxh3_64_with_seed(bytes, self.at(offset))
    }

    pub(crate) fn sum32(&self, bytes: &[u8], offset: u64) -> u32 {
        self.sum64(bytes, offset) as u32
    }
}
