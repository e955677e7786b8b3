//! One atomic batch of records, as it lies in a segment and travels between replicas.
//!
//! ```text
//! offset size
//!      0    8  checksum of all that follows, seeded by cluster, region, segment and the frame's offset
//!      8    4  length of the frame, header included
//!     12    4  number of records, at least 1
//!     16    8  epoch of the primary that made it
//!     24    8  seqno of the first record
//!     32    8  commit point of that primary when it made it
//!     40    8  wall time of that primary, milliseconds since 1970
//!     48    8  checksum of the frame before it, 0 for the first: the hash chain
//!     56    1  format, 1
//!     57    1  flags: 1 = the first frame of a segment
//!     58    2  zero
//!     60    4  checksum of bytes 8..60, seeded alike
//!     64       records
//! ```
//!
//! The header's own checksum tells a frame from bytes that merely look like one without reading all of it, and a torn
//! payload from a torn header. Segment and offset are not in the bytes: a backup that follows the chain knows them, and
//! the flag makes it begin segments where the primary did, so that replicas stay byte-identical.

use crate::ids::{Epoch, Mark, SegmentId, Seqno};
use crate::limits::{FRAME_BYTES_MAX, FRAME_RECORDS_MAX};
use crate::record::{Location, RECORD_LEN_MIN, Record, u32_at, u64_at};
use crate::seed::{Identity, Seeds};
use crate::segment::SEGMENT_HEADER_LEN;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub const FRAME_HEADER_LEN: usize = 64;
pub const FRAME_FORMAT: u8 = 1;
const FLAG_BEGINS_SEGMENT: u8 = 1;

/// The end of a frame in its segment file, or the beginning of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    pub mark: Mark,
    pub segment: SegmentId,
    pub offset: u64,
}

impl Position {
    pub const ZERO: Position = Position { mark: Mark::ZERO, segment: SegmentId(1), offset: SEGMENT_HEADER_LEN };

    /// The same point of the log, as the place where a frame that begins the next segment goes.
    pub(crate) fn rolled(self) -> Position {
        Position { mark: self.mark, segment: self.segment.next(), offset: SEGMENT_HEADER_LEN }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    pub checksum: u64,
    /// Of the whole frame.
    pub length: u32,
    pub records: u32,
    pub epoch: Epoch,
    pub first_seqno: Seqno,
    /// The commit point of the primary that made the frame, when it made it.
    pub committed: Seqno,
    pub wall_ms: u64,
    /// The checksum of the frame before.
    pub prev: u64,
    pub begins_segment: bool,
}

/// One encoded frame at its place. Cloning shares the bytes.
#[derive(Clone, Debug)]
pub struct Frame {
    pub bytes: Bytes,
    pub header: FrameHeader,
    /// Where it lies, and the mark it continues.
    pub start: Position,
    pub end: Position,
}

/// A record of a frame, with what its place says about it.
#[derive(Clone, Copy, Debug)]
pub struct FrameRecord<'a> {
    pub seqno: Seqno,
    pub location: Location,
    pub record: Record<'a>,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FrameError {
    #[error("frame is cut short")]
    Short,
    #[error("frame header's checksum is wrong")]
    Header,
    #[error("frame header is out of bounds: {0}")]
    Bounds(&'static str),
    #[error("frame's checksum is wrong")]
    Checksum,
    #[error("{0}")]
    Record(&'static str),
    #[error("frame does not continue the one before it")]
    Chain,
    #[error("frame has format {0}")]
    NewerFormat(u8),
}

impl FrameHeader {
    /// Reads a header without looking at checksums; the bytes may be anything.
    pub fn peek(bytes: &[u8]) -> Result<FrameHeader, FrameError> {
        if bytes.len() < FRAME_HEADER_LEN {
            return Err(FrameError::Short);
        }
        let header = FrameHeader {
            checksum: u64_at(bytes, 0),
            length: u32_at(bytes, 8),
            records: u32_at(bytes, 12),
            epoch: Epoch(u64_at(bytes, 16)),
            first_seqno: Seqno(u64_at(bytes, 24)),
            committed: Seqno(u64_at(bytes, 32)),
            wall_ms: u64_at(bytes, 40),
            prev: u64_at(bytes, 48),
            begins_segment: bytes[57] == FLAG_BEGINS_SEGMENT,
        };
        header.check_bounds(bytes)?;
        Ok(header)
    }

    pub fn last_seqno(&self) -> Seqno {
        Seqno(self.first_seqno.0 + self.records as u64 - 1)
    }

    pub fn mark(&self) -> Mark {
        Mark { seqno: self.last_seqno(), checksum: self.checksum }
    }

    fn check_bounds(&self, bytes: &[u8]) -> Result<(), FrameError> {
        if bytes[57] & !FLAG_BEGINS_SEGMENT != 0 || bytes[58] != 0 || bytes[59] != 0 {
            return Err(FrameError::Bounds("unknown flags"));
        }
        let length = self.length as usize;
        if !(FRAME_HEADER_LEN + RECORD_LEN_MIN..=FRAME_BYTES_MAX).contains(&length) {
            return Err(FrameError::Bounds("length"));
        }
        let records_max = FRAME_RECORDS_MAX.min((length - FRAME_HEADER_LEN) / RECORD_LEN_MIN);
        if self.records == 0 || self.records as usize > records_max {
            return Err(FrameError::Bounds("number of records"));
        }
        if self.first_seqno.0 == 0 || self.first_seqno.0.checked_add(self.records as u64).is_none() {
            return Err(FrameError::Bounds("seqno"));
        }
        if self.committed >= self.first_seqno {
            return Err(FrameError::Bounds("commit point"));
        }
        Ok(())
    }

    /// [`FrameHeader::peek`] at bytes from `offset` of a segment, believed only if the header's checksum holds.
    pub(crate) fn read(bytes: &[u8], seeds: &Seeds, offset: u64) -> Result<FrameHeader, FrameError> {
        if bytes.len() < FRAME_HEADER_LEN {
            return Err(FrameError::Short);
        }
        if seeds.sum32(&bytes[8..60], offset) != u32_at(bytes, 60) {
            return Err(FrameError::Header);
        }
        if bytes[56] != FRAME_FORMAT {
            return Err(FrameError::NewerFormat(bytes[56]));
        }
        FrameHeader::peek(bytes)
    }

    fn encode(&self, seeds: &Seeds, offset: u64, frame: &mut [u8]) {
        frame[8..12].copy_from_slice(&self.length.to_le_bytes());
        frame[12..16].copy_from_slice(&self.records.to_le_bytes());
        frame[16..24].copy_from_slice(&self.epoch.0.to_le_bytes());
        frame[24..32].copy_from_slice(&self.first_seqno.0.to_le_bytes());
        frame[32..40].copy_from_slice(&self.committed.0.to_le_bytes());
        frame[40..48].copy_from_slice(&self.wall_ms.to_le_bytes());
        frame[48..56].copy_from_slice(&self.prev.to_le_bytes());
        frame[56] = FRAME_FORMAT;
        frame[57] = if self.begins_segment { FLAG_BEGINS_SEGMENT } else { 0 };
        let check = seeds.sum32(&frame[8..60], offset);
        frame[60..64].copy_from_slice(&check.to_le_bytes());
    }
}

/// What the primary says about a frame besides its records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    pub epoch: Epoch,
    pub committed: Seqno,
    pub wall_ms: u64,
}

impl Frame {
    /// Encodes `records`, which the caller has checked, into one buffer of `length` bytes for the place `start`.
    pub(crate) fn encode(records: &[Record<'_>], length: usize, stamp: Stamp, seeds: &Seeds, start: Position) -> Frame {
        let mut bytes = Vec::with_capacity(length);
        bytes.resize(FRAME_HEADER_LEN, 0);
        for record in records {
            record.encode(seeds, start.offset, &mut bytes);
        }
        assert_eq!(bytes.len(), length, "records take the bytes they said");
        let mut header = FrameHeader {
            checksum: 0,
            length: length as u32,
            records: records.len() as u32,
            epoch: stamp.epoch,
            first_seqno: start.mark.seqno.next(),
            committed: stamp.committed,
            wall_ms: stamp.wall_ms,
            prev: start.mark.checksum,
            begins_segment: start.offset == SEGMENT_HEADER_LEN,
        };
        header.encode(seeds, start.offset, &mut bytes);
        header.checksum = seeds.sum64(&bytes[8..], start.offset);
        bytes[..8].copy_from_slice(&header.checksum.to_le_bytes());
        Frame::at(Bytes::from(bytes), header, start)
    }

    /// Reads the one frame that fills `bytes`, made for the place `start` and continuing its mark.
    pub fn decode(bytes: Bytes, identity: &Identity, start: Position) -> Result<Frame, FrameError> {
        let frame = Frame::decode_at(bytes, &identity.seeds(start.segment), start)?;
        frame.continues().then_some(frame).ok_or(FrameError::Chain)
    }

    /// [`Frame::decode`] of a frame that need not continue `start.mark`.
    pub(crate) fn decode_at(bytes: Bytes, seeds: &Seeds, start: Position) -> Result<Frame, FrameError> {
        debug_assert_eq!(seeds.segment, start.segment);
        let header = FrameHeader::read(&bytes, seeds, start.offset)?;
        if header.length as usize != bytes.len() {
            return Err(FrameError::Short);
        }
        if seeds.sum64(&bytes[8..], start.offset) != header.checksum {
            return Err(FrameError::Checksum);
        }
        if header.begins_segment != (start.offset == SEGMENT_HEADER_LEN) {
            return Err(FrameError::Bounds("beginning of a segment"));
        }
        check_records(&bytes, header.records)?;
        Ok(Frame::at(bytes, header, start))
    }

    fn at(bytes: Bytes, header: FrameHeader, start: Position) -> Frame {
        let offset = start.offset + bytes.len() as u64;
        let end = Position { mark: header.mark(), segment: start.segment, offset };
        Frame { bytes, header, start, end }
    }

    pub(crate) fn continues(&self) -> bool {
        self.header.prev == self.start.mark.checksum && self.header.first_seqno == self.start.mark.seqno.next()
    }

    /// The mark of the log up to and with this frame.
    pub fn mark(&self) -> Mark {
        self.end.mark
    }

    pub fn records(&self) -> FrameRecords<'_> {
        FrameRecords { frame: self, at: FRAME_HEADER_LEN, seqno: self.header.first_seqno }
    }

    /// `part` of one of this frame's records as bytes that share the frame's buffer.
    pub fn share(&self, part: &[u8]) -> Bytes {
        self.bytes.slice_ref(part)
    }
}

fn check_records(bytes: &[u8], records: u32) -> Result<(), FrameError> {
    let mut at = FRAME_HEADER_LEN;
    for _ in 0..records {
        let (_, len) = Record::parse(&bytes[at..]).map_err(FrameError::Record)?;
        at += len;
    }
    if at == bytes.len() { Ok(()) } else { Err(FrameError::Record("bytes follow the last record")) }
}

/// The records of a frame, in order.
pub struct FrameRecords<'a> {
    frame: &'a Frame,
    at: usize,
    seqno: Seqno,
}

impl<'a> Iterator for FrameRecords<'a> {
    type Item = FrameRecord<'a>;

    fn next(&mut self) -> Option<FrameRecord<'a>> {
        let bytes = &self.frame.bytes[self.at..];
        if bytes.is_empty() {
            return None;
        }
        let (record, len) = Record::parse(bytes).expect("checked when the frame was made");
        let start = self.frame.start;
        let location = Location { segment: start.segment, offset: start.offset + self.at as u64, len: len as u32 };
        let item = FrameRecord { seqno: self.seqno, location, record };
        self.at += len;
        self.seqno = self.seqno.next();
        Some(item)
    }
}

/// Cuts a run of whole frames into frames. Says nothing about their checksums.
pub fn split_frames(chunk: Bytes) -> SplitFrames {
    SplitFrames { rest: chunk }
}

/// See [`split_frames`]. Ends after the first error.
pub struct SplitFrames {
    rest: Bytes,
}

impl Iterator for SplitFrames {
    type Item = Result<Bytes, FrameError>;

    fn next(&mut self) -> Option<Result<Bytes, FrameError>> {
        if self.rest.is_empty() {
            return None;
        }
        let length = FrameHeader::peek(&self.rest).map(|header| header.length as usize);
        match length {
            Ok(length) if length <= self.rest.len() => Some(Ok(self.rest.split_to(length))),
            other => {
                self.rest.clear();
                Some(Err(other.err().unwrap_or(FrameError::Short)))
            }
        }
    }
}
