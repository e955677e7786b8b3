//! The header of a compacted segment: which part of the log it stands for.
//!
//! ```text
//! offset size
//!      0    8  "STEADCMP"                        64    8  checksum of the last frame before the span
//!      8    4  format, 1                         72    8  last seqno of the span
//!     12    4  zero                              80    8  checksum of the span's last frame
//!     16   16  cluster                           88    8  length of the file
//!     32    8  region                            96    8  checksum of all that follows the header
//!     40    8  segment                          104    8  checksum of bytes 0..104
//!     48    8  number of the span's last segment
//!     56    8  last seqno before the span       112       sparse frames
//! ```
//!
//! The span begins and ends with marks of the log as it was appended, so that the log's chain stays whole across it. The
//! frames within are a chain of their own: the first continues the span's base, the last ends where the file does.
//!
//! The file gets its name after all of it is flushed: a named file is complete.

use crate::error::StorageError;
use crate::ids::{Mark, SegmentId};
use crate::record::{mark_at, put_u64s, u32_at, u64_at, u128_at};
use crate::seed::Identity;
use crate::segment::check_owner;
use bytes::Bytes;

pub(crate) const SPAN_HEADER_LEN: u64 = 112;
const MAGIC: &[u8; 8] = b"STEADCMP";
const FORMAT: u32 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) segment: SegmentId,
    /// Number of the last segment that it stands for.
    pub(crate) last: u64,
    pub(crate) base: Mark,
    pub(crate) end: Mark,
    /// Of the file.
    pub(crate) len: u64,
    /// Of what follows the header.
    pub(crate) checksum: u64,
}

impl Span {
    pub(crate) fn encode(&self, identity: &Identity) -> Bytes {
        let mut bytes = vec![0; SPAN_HEADER_LEN as usize];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[16..32].copy_from_slice(&identity.cluster.to_le_bytes());
        let numbers = [
            identity.region.0,
            self.segment.0,
            self.last,
            self.base.seqno.0,
            self.base.checksum,
            self.end.seqno.0,
            self.end.checksum,
            self.len,
            self.checksum,
        ];
        put_u64s(&mut bytes, 32, &numbers);
        let checksum = xxhash_rust::xxh3::xxh3_64(&bytes[..104]);
        bytes[104..].copy_from_slice(&checksum.to_le_bytes());
        bytes.into()
    }

    /// Reads the header that the file `path` of `segment` begins with.
    pub(crate) fn decode(
        bytes: &[u8],
        path: &str,
        identity: &Identity,
        segment: SegmentId,
    ) -> Result<Span, StorageError> {
        let corrupt = |what: &str| Err(StorageError::corrupt(path, 0, what));
        if bytes.len() < SPAN_HEADER_LEN as usize {
            return corrupt("header of a compacted segment is cut short");
        }
        if &bytes[..8] != MAGIC || xxhash_rust::xxh3::xxh3_64(&bytes[..104]) != u64_at(bytes, 104) {
            return corrupt("checksum of a compacted segment's header is wrong");
        }
        check_owner(path, identity, FORMAT, u32_at(bytes, 8), u128_at(bytes, 16), u64_at(bytes, 32))?;
        let span = Span {
            segment: SegmentId(u64_at(bytes, 40)),
            last: u64_at(bytes, 48),
            base: mark_at(bytes, 56),
            end: mark_at(bytes, 72),
            len: u64_at(bytes, 88),
            checksum: u64_at(bytes, 96),
        };
        if span.segment != segment {
            return corrupt(&format!("header names segment {}", span.segment));
        }
        if span.last < segment.number() || span.base.seqno >= span.end.seqno {
            return corrupt("header names no part of a log");
        }
        Ok(span)
    }
}
