//! One change, as it lies in a frame.
//!
//! ```text
//! offset size
//!      0    4  checksum of all that follows, seeded by region, segment and the record's offset
//!      4    1  kind: 1 put, 2 tombstone, 3 session, 4 control
//!      5    1  flags: 1 = an expiry follows the header, 2 = the value is compressed (see compression.rs)
//!      6    2  length of the key − 1
//!      8    4  length of the value
//!     12    8  expiry, milliseconds since 1970 (only with flag 1)
//!      …       key: a session's is session, number and floor (8 bytes each), a control record's its kind (1 byte)
//!      …       value: a session's is the outcome
//! ```
//!
//! A record's seqno is its frame's first one plus its place in the frame. Its own checksum makes one record readable
//! alone: a point read fetches exactly these bytes and needs nothing around them to trust them.

use crate::compression::Compression;
use crate::ids::{Mark, SegmentId, Seqno};
use crate::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::seed::Seeds;
use bytes::Bytes;

pub const RECORD_HEADER_LEN: usize = 12;
/// The shortest record: a tombstone of a one-byte key.
pub(crate) const RECORD_LEN_MIN: usize = RECORD_HEADER_LEN + 1;
const EXPIRY_LEN: usize = 8;
const SESSION_KEY_LEN: usize = 24;
const FLAG_EXPIRY: u8 = 1;
const FLAG_LZ4: u8 = 2;

pub(crate) const KIND_PUT: u8 = 1;
pub(crate) const KIND_TOMBSTONE: u8 = 2;
pub(crate) const KIND_SESSION: u8 = 3;
pub(crate) const KIND_CONTROL: u8 = 4;

/// A change of a region's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    Put {
        key: &'a [u8],
        /// As it is stored.
        value: &'a [u8],
        /// How the value is to be read.
        compression: Compression,
        /// Milliseconds since 1970 from which on the record counts as absent.
        expiry_ms: Option<u64>,
    },
    Tombstone {
        key: &'a [u8],
    },
    /// The outcome of a session's request, for the answer to a retry. Outcomes below `floor` will not be asked for again.
    Session {
        session: u64,
        number: u64,
        floor: u64,
        outcome: &'a [u8],
    },
    /// Something the layers above tell each replica; the store only keeps it.
    Control {
        kind: u8,
        bytes: &'a [u8],
    },
}

/// A [`Record`] that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnedRecord {
    Put { key: Bytes, value: Bytes, compression: Compression, expiry_ms: Option<u64> },
    Tombstone { key: Bytes },
    Session { session: u64, number: u64, floor: u64, outcome: Bytes },
    Control { kind: u8, bytes: Bytes },
}

/// Where a record lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Location {
    pub segment: SegmentId,
    /// Of the record's first byte in the segment file.
    pub offset: u64,
    /// Of the whole record.
    pub len: u32,
}

impl OwnedRecord {
    pub fn as_record(&self) -> Record<'_> {
        match self {
            OwnedRecord::Put { key, value, compression, expiry_ms } => {
                Record::Put { key, value, compression: *compression, expiry_ms: *expiry_ms }
            }
            OwnedRecord::Tombstone { key } => Record::Tombstone { key },
            OwnedRecord::Session { session, number, floor, outcome } => {
                Record::Session { session: *session, number: *number, floor: *floor, outcome }
            }
            OwnedRecord::Control { kind, bytes } => Record::Control { kind: *kind, bytes },
        }
    }
}

impl<'a> Record<'a> {
    /// A put of a plain value that does not expire.
    pub fn put(key: &'a [u8], value: &'a [u8]) -> Record<'a> {
        Record::Put { key, value, compression: Compression::None, expiry_ms: None }
    }

    pub fn to_owned(&self) -> OwnedRecord {
        let copy = Bytes::copy_from_slice;
        match *self {
            Record::Put { key, value, compression, expiry_ms } => {
                OwnedRecord::Put { key: copy(key), value: copy(value), compression, expiry_ms }
            }
            Record::Tombstone { key } => OwnedRecord::Tombstone { key: copy(key) },
            Record::Session { session, number, floor, outcome } => {
                OwnedRecord::Session { session, number, floor, outcome: copy(outcome) }
            }
            Record::Control { kind, bytes } => OwnedRecord::Control { kind, bytes: copy(bytes) },
        }
    }

    /// The key of a put or tombstone.
    pub fn key(&self) -> Option<&'a [u8]> {
        match *self {
            Record::Put { key, .. } | Record::Tombstone { key } => Some(key),
            Record::Session { .. } | Record::Control { .. } => None,
        }
    }

    /// Bytes the record takes in a frame.
    pub fn encoded_len(&self) -> usize {
        RECORD_HEADER_LEN
            + match *self {
                Record::Put { key, value, expiry_ms, .. } => {
                    expiry_ms.map_or(0, |_| EXPIRY_LEN) + key.len() + value.len()
                }
                Record::Tombstone { key } => key.len(),
                Record::Session { outcome, .. } => SESSION_KEY_LEN + outcome.len(),
                Record::Control { bytes, .. } => 1 + bytes.len(),
            }
    }

    /// Says what is wrong with a record that no frame takes.
    pub fn check(&self) -> Result<(), String> {
        let value_len = match *self {
            Record::Put { value, .. } => value.len(),
            Record::Tombstone { .. } => 0,
            Record::Session { outcome, .. } => outcome.len(),
            Record::Control { bytes, .. } => bytes.len(),
        };
        if let Some(key) = self.key() {
            if key.is_empty() {
                return Err("key is empty".into());
            }
            if key.len() > KEY_BYTES_MAX {
                return Err(format!("key has {} bytes, at most {KEY_BYTES_MAX} are allowed", key.len()));
            }
        }
        if value_len > VALUE_BYTES_MAX {
            return Err(format!("value has {value_len} bytes, at most {VALUE_BYTES_MAX} are allowed"));
        }
        Ok(())
    }

    /// Appends the record to `out`, whose first byte lies at `base` in the segment.
    pub(crate) fn encode(&self, seeds: &Seeds, base: u64, out: &mut Vec<u8>) {
        let start = out.len();
        let mut header = |kind: u8, flags: u8, key_len: usize, value_len: usize| {
            out.extend_from_slice(&[0, 0, 0, 0, kind, flags]);
            out.extend_from_slice(&((key_len - 1) as u16).to_le_bytes());
            out.extend_from_slice(&(value_len as u32).to_le_bytes());
        };
        match *self {
            Record::Put { key, value, compression, expiry_ms } => {
                let expiry = if expiry_ms.is_some() { FLAG_EXPIRY } else { 0 };
                let compressed = if compression == Compression::Lz4 { FLAG_LZ4 } else { 0 };
                header(KIND_PUT, expiry | compressed, key.len(), value.len());
                if let Some(expiry_ms) = expiry_ms {
                    out.extend_from_slice(&expiry_ms.to_le_bytes());
                }
                out.extend_from_slice(key);
                out.extend_from_slice(value);
            }
            Record::Tombstone { key } => {
                header(KIND_TOMBSTONE, 0, key.len(), 0);
                out.extend_from_slice(key);
            }
            Record::Session { session, number, floor, outcome } => {
                header(KIND_SESSION, 0, SESSION_KEY_LEN, outcome.len());
                out.extend_from_slice(&session.to_le_bytes());
                out.extend_from_slice(&number.to_le_bytes());
                out.extend_from_slice(&floor.to_le_bytes());
                out.extend_from_slice(outcome);
            }
            Record::Control { kind, bytes } => {
                header(KIND_CONTROL, 0, 1, bytes.len());
                out.push(kind);
                out.extend_from_slice(bytes);
            }
        }
        let checksum = seeds.sum32(&out[start + 4..], base + start as u64);
        out[start..start + 4].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Reads the record that `bytes` begins with, and its length, without looking at the checksum.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<(Record<'a>, usize), &'static str> {
        let Shape { kind, compression, expiry_len, key_len, value_len } = Shape::peek(bytes)?;
        let key_start = RECORD_HEADER_LEN + expiry_len;
        let len = key_start + key_len + value_len;
        if len > bytes.len() {
            return Err("record is longer than what holds it");
        }
        let key = &bytes[key_start..key_start + key_len];
        let value = &bytes[key_start + key_len..len];
        let record = match kind {
            KIND_PUT => {
                let expiry_ms = (expiry_len > 0).then(|| u64_at(bytes, RECORD_HEADER_LEN));
                Record::Put { key, value, compression, expiry_ms }
            }
            KIND_TOMBSTONE if value_len == 0 => Record::Tombstone { key },
            KIND_SESSION if key_len == SESSION_KEY_LEN => Record::Session {
                session: u64_at(key, 0),
                number: u64_at(key, 8),
                floor: u64_at(key, 16),
                outcome: value,
            },
            KIND_CONTROL if key_len == 1 => Record::Control { kind: key[0], bytes: value },
            _ => return Err("record is of no known kind"),
        };
        Ok((record, len))
    }

    /// Reads the record that `bytes` begins with, and its length, if its checksum says that it belongs to that offset.
    pub(crate) fn read(bytes: &'a [u8], seeds: &Seeds, offset: u64) -> Result<(Record<'a>, usize), &'static str> {
        let (record, len) = Record::parse(bytes)?;
        if !Record::is_whole(&bytes[..len], seeds, offset) {
            return Err("record's checksum is wrong");
        }
        Ok((record, len))
    }

    /// Whether the checksum of a record, which is all of `bytes`, says that it belongs to that offset.
    #[inline]
    pub(crate) fn is_whole(bytes: &[u8], seeds: &Seeds, offset: u64) -> bool {
        seeds.sum32(&bytes[4..], offset) == u32_at(bytes, 0)
    }
}

/// What a record's header says, whether or not it is one.
pub(crate) struct Shape {
    pub(crate) kind: u8,
    compression: Compression,
    expiry_len: usize,
    pub(crate) key_len: usize,
    value_len: usize,
}

impl Shape {
    /// An error if no record begins so.
    pub(crate) fn peek(bytes: &[u8]) -> Result<Shape, &'static str> {
        if bytes.len() < RECORD_LEN_MIN {
            return Err("record is cut short");
        }
        let (kind, flags) = (bytes[4], bytes[5]);
        let key_len = u16::from_le_bytes([bytes[6], bytes[7]]) as usize + 1;
        let value_len = u32_at(bytes, 8) as usize;
        if flags & !(FLAG_EXPIRY | FLAG_LZ4) != 0 || (kind != KIND_PUT && flags != 0) {
            return Err("record has unknown flags");
        }
        if value_len > VALUE_BYTES_MAX {
            return Err("record is longer than what holds it");
        }
        if !(KIND_PUT..=KIND_CONTROL).contains(&kind) {
            return Err("record is of no known kind");
        }
        let expiry_len = if flags & FLAG_EXPIRY != 0 { EXPIRY_LEN } else { 0 };
        let compression = if flags & FLAG_LZ4 != 0 { Compression::Lz4 } else { Compression::None };
        Ok(Shape { kind, compression, expiry_len, key_len, value_len })
    }

    /// Where the key begins in the record.
    pub(crate) fn key_start(&self) -> usize {
        RECORD_HEADER_LEN + self.expiry_len
    }

    /// Of the whole record.
    pub(crate) fn len(&self) -> usize {
        self.key_start() + self.key_len + self.value_len
    }
}

/// Writes numbers one after the other from `at` on.
pub(crate) fn put_u64s(bytes: &mut [u8], at: usize, numbers: &[u64]) {
    for (place, number) in bytes[at..].chunks_exact_mut(8).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
}

pub(crate) fn mark_at(bytes: &[u8], at: usize) -> Mark {
    Mark { seqno: Seqno(u64_at(bytes, at)), checksum: u64_at(bytes, at + 8) }
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(crate) fn u128_at(bytes: &[u8], at: usize) -> u128 {
    u128::from_le_bytes(bytes[at..at + 16].try_into().expect("sixteen bytes"))
}
