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
//!     57    1  flags: 1 = the first frame of a segment, 2 = sparse
//!     58    2  zero
//!     60    4  checksum of bytes 8..60, seeded alike
//!     64       (sparse: the table of seqnos and wall times) records
//! ```
//!
//! In a **sparse** frame, of which compacted segments are made, records keep the seqnos and wall times that they were
//! appended with:
//! ```text
//!     32    8  seqno of the last record, instead of the commit point
//!     40    8  zero, instead of the wall time
//!     64   4n  for each record, its seqno − the first one
//!          4   number of groups of consecutive records with the same wall time
//!         12m  for each group: number of records (4), wall time (8)
//! ```
//!
//! The header's own checksum tells a frame from bytes that merely look like one without reading all of it, and a torn
//! payload from a torn header. Segment and offset are not in the bytes: a backup that follows the chain knows them, and
//! the flag makes it begin segments where the primary did, so that replicas stay byte-identical.

use crate::ids::{Epoch, Mark, SegmentId, Seqno};
use crate::limits::{FRAME_BYTES_MAX, FRAME_RECORDS_MAX};
use crate::record::{Location, RECORD_LEN_MIN, Record, u32_at, u64_at};
use crate::seed::{Identity, Seeds};
use crate::segment::{SEGMENT_HEADER_LEN, frames_start};
use bytes::Bytes;
use std::fmt;

pub const FRAME_HEADER_LEN: usize = 64;
pub const FRAME_FORMAT: u8 = 1;
const FLAG_BEGINS_SEGMENT: u8 = 1;
const FLAG_SPARSE: u8 = 2;
const SEQNO_LEN: usize = 4;
const GROUP_LEN: usize = 12;

/// The end of a frame in its segment file, or the beginning of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Position {
    pub mark: Mark,
    pub segment: SegmentId,
    pub offset: u64,
}

impl Position {
    pub const ZERO: Position = Position { mark: Mark::ZERO, segment: SegmentId(1), offset: SEGMENT_HEADER_LEN };

    /// Where the first frame of `segment` lies, which continues `base`.
    pub(crate) fn beginning(segment: SegmentId, base: Mark) -> Position {
        Position { mark: base, segment, offset: frames_start(segment) }
    }

    /// The same point of the log, as the place where a frame that begins the next segment goes.
    pub(crate) fn rolled(self) -> Position {
        debug_assert!(!self.segment.is_compacted(), "only the log knows what follows {self:?}");
        Position::beginning(self.segment.next(), self.mark)
    }

    /// No frame of its segment lies before it, so that the segment may have no file yet.
    pub(crate) fn begins_segment(&self) -> bool {
        self.offset == frames_start(self.segment)
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
    /// Seqno of the last record, where records do not follow each other without a gap.
    pub sparse_last: Option<Seqno>,
}

/// One encoded frame at its place. Cloning shares the bytes.
#[derive(Clone, Debug)]
pub struct Frame {
    pub bytes: Bytes,
    pub header: FrameHeader,
    /// Where it lies, and the mark it continues.
    pub start: Position,
    pub end: Position,
    /// Whether there are control records in it.
    pub(crate) has_control: bool,
}

/// A record of a frame, with what its place says about it.
#[derive(Clone, Copy, Debug)]
pub struct FrameRecord<'a> {
    pub seqno: Seqno,
    pub wall_ms: u64,
    pub location: Location,
    pub record: Record<'a>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrameError {
    Short,
    Header,
    Bounds(&'static str),
    Checksum,
    Record(&'static str),
    Chain,
    NewerFormat(u8),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::Short => f.write_str("frame is cut short"),
            FrameError::Header => f.write_str("frame header's checksum is wrong"),
            FrameError::Bounds(what) => write!(f, "frame header is out of bounds: {what}"),
            FrameError::Checksum => f.write_str("frame's checksum is wrong"),
            FrameError::Record(what) => f.write_str(what),
            FrameError::Chain => f.write_str("frame does not continue the one before it"),
            FrameError::NewerFormat(format) => write!(f, "frame has format {format}"),
        }
    }
}

impl std::error::Error for FrameError {}

impl FrameHeader {
    /// Reads a header without looking at checksums; the bytes may be anything.
    pub fn peek(bytes: &[u8]) -> Result<FrameHeader, FrameError> {
        if bytes.len() < FRAME_HEADER_LEN {
            return Err(FrameError::Short);
        }
        let sparse = bytes[57] & FLAG_SPARSE != 0;
        let header = FrameHeader {
            checksum: u64_at(bytes, 0),
            length: u32_at(bytes, 8),
            records: u32_at(bytes, 12),
            epoch: Epoch(u64_at(bytes, 16)),
            first_seqno: Seqno(u64_at(bytes, 24)),
            committed: if sparse { Seqno(0) } else { Seqno(u64_at(bytes, 32)) },
            wall_ms: u64_at(bytes, 40),
            prev: u64_at(bytes, 48),
            begins_segment: bytes[57] & FLAG_BEGINS_SEGMENT != 0,
            sparse_last: sparse.then(|| Seqno(u64_at(bytes, 32))),
        };
        header.check_bounds(bytes)?;
        Ok(header)
    }

    pub fn last_seqno(&self) -> Seqno {
        self.sparse_last.unwrap_or(Seqno(self.first_seqno.0 + self.records as u64 - 1))
    }

    pub fn mark(&self) -> Mark {
        Mark { seqno: self.last_seqno(), checksum: self.checksum }
    }

    /// Where the first record lies in the frame that `bytes` begin with; `None` if too few of them are there to tell.
    pub(crate) fn records_start(&self, bytes: &[u8]) -> Option<usize> {
        if self.sparse_last.is_none() {
            return Some(FRAME_HEADER_LEN);
        }
        let groups_at = FRAME_HEADER_LEN + self.records as usize * SEQNO_LEN;
        let groups = u32_at(bytes.get(groups_at..groups_at + 4)?, 0).min(self.records);
        Some(groups_at + 4 + groups as usize * GROUP_LEN)
    }

    /// So much is before the first record, at most.
    pub(crate) fn table_len_max(&self) -> usize {
        FRAME_HEADER_LEN + self.records as usize * (SEQNO_LEN + GROUP_LEN) + 4
    }

    fn check_bounds(&self, bytes: &[u8]) -> Result<(), FrameError> {
        if bytes[57] & !(FLAG_BEGINS_SEGMENT | FLAG_SPARSE) != 0 || bytes[58] != 0 || bytes[59] != 0 {
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
        if self.sparse_last.is_some_and(|last| last.0 < self.first_seqno.0 + self.records as u64 - 1) {
            return Err(FrameError::Bounds("last seqno"));
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
        frame[32..40].copy_from_slice(&self.sparse_last.unwrap_or(self.committed).0.to_le_bytes());
        frame[40..48].copy_from_slice(&self.wall_ms.to_le_bytes());
        frame[48..56].copy_from_slice(&self.prev.to_le_bytes());
        frame[56] = FRAME_FORMAT;
        frame[57] = if self.begins_segment { FLAG_BEGINS_SEGMENT } else { 0 };
        frame[57] |= if self.sparse_last.is_some() { FLAG_SPARSE } else { 0 };
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

impl Stamp {
    fn header(&self, frame: &[u8], records: u32, start: Position) -> FrameHeader {
        assert!(records > 0, "a frame holds a record");
        FrameHeader {
            checksum: 0,
            length: frame.len() as u32,
            records,
            epoch: self.epoch,
            first_seqno: start.mark.seqno.next(),
            committed: self.committed,
            wall_ms: self.wall_ms,
            prev: start.mark.checksum,
            begins_segment: start.offset == SEGMENT_HEADER_LEN,
            sparse_last: None,
        }
    }
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
        let header = stamp.header(&bytes, records.len() as u32, start);
        let has_control = records.iter().any(|record| matches!(record, Record::Control { .. }));
        Frame::seal(bytes, header, has_control, seeds, start)
    }

    /// Makes a frame of so many puts and tombstones, which lie encoded in `bytes` behind the room for the header.
    pub(crate) fn close(bytes: Vec<u8>, records: u32, stamp: Stamp, seeds: &Seeds, start: Position) -> Frame {
        let header = stamp.header(&bytes, records, start);
        Frame::seal(bytes, header, false, seeds, start)
    }

    /// Puts the header before the records in `bytes`.
    fn seal(mut bytes: Vec<u8>, mut header: FrameHeader, has_control: bool, seeds: &Seeds, start: Position) -> Frame {
        header.encode(seeds, start.offset, &mut bytes);
        header.checksum = seeds.sum64(&bytes[8..], start.offset);
        bytes[..8].copy_from_slice(&header.checksum.to_le_bytes());
        Frame::at(Bytes::from(bytes), header, start, has_control)
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
        if header.sparse_last.is_some() != start.segment.is_compacted() {
            return Err(FrameError::Bounds("sparse or not"));
        }
        if header.begins_segment != (start.offset == SEGMENT_HEADER_LEN) {
            return Err(FrameError::Bounds("beginning of a segment"));
        }
        let has_control = check_records(&bytes, &header)?;
        Ok(Frame::at(bytes, header, start, has_control))
    }

    fn at(bytes: Bytes, header: FrameHeader, start: Position, has_control: bool) -> Frame {
        let offset = start.offset + bytes.len() as u64;
        let end = Position { mark: header.mark(), segment: start.segment, offset };
        Frame { bytes, header, start, end, has_control }
    }

    pub(crate) fn continues(&self) -> bool {
        let (first, next) = (self.header.first_seqno, self.start.mark.seqno.next());
        let in_order = if self.header.sparse_last.is_some() { first >= next } else { first == next };
        self.header.prev == self.start.mark.checksum && in_order
    }

    /// The mark of the log up to and with this frame.
    pub fn mark(&self) -> Mark {
        self.end.mark
    }

    pub fn records(&self) -> FrameRecords<'_> {
        let table = SparseTable::of(&self.bytes, &self.header);
        let at = table.map_or(FRAME_HEADER_LEN, |table| table.end());
        FrameRecords { frame: self, at, index: 0, table, group: 0, group_left: 0 }
    }

    /// `part` of one of this frame's records as bytes that share the frame's buffer.
    pub fn share(&self, part: &[u8]) -> Bytes {
        self.bytes.slice_ref(part)
    }
}

/// Whether there are control records among the records.
fn check_records(bytes: &[u8], header: &FrameHeader) -> Result<bool, FrameError> {
    let mut at = FRAME_HEADER_LEN;
    if header.sparse_last.is_some() {
        let table = SparseTable::of(bytes, header).ok_or(FrameError::Bounds("table of seqnos"))?;
        table.check(header)?;
        at = table.end();
    }
    let mut has_control = false;
    for _ in 0..header.records {
        let (record, len) = Record::parse(&bytes[at..]).map_err(FrameError::Record)?;
        has_control |= matches!(record, Record::Control { .. });
        at += len;
    }
    if at == bytes.len() { Ok(has_control) } else { Err(FrameError::Record("bytes follow the last record")) }
}

/// The table of a sparse frame.
#[derive(Clone, Copy)]
struct SparseTable<'a> {
    bytes: &'a [u8],
    records: usize,
    groups: usize,
}

impl<'a> SparseTable<'a> {
    /// `None` for a frame that is not sparse, or is too short for its table.
    fn of(bytes: &'a [u8], header: &FrameHeader) -> Option<SparseTable<'a>> {
        header.sparse_last?;
        let records = header.records as usize;
        let groups_at = FRAME_HEADER_LEN + records * SEQNO_LEN;
        let groups = u32_at(bytes.get(groups_at..groups_at + 4)?, 0) as usize;
        let table = SparseTable { bytes, records, groups };
        (groups <= records && table.end() <= bytes.len()).then_some(table)
    }

    fn groups_start(&self) -> usize {
        FRAME_HEADER_LEN + self.records * SEQNO_LEN + 4
    }

    fn end(&self) -> usize {
        self.groups_start() + self.groups * GROUP_LEN
    }

    fn delta(&self, record: usize) -> u64 {
        u32_at(self.bytes, FRAME_HEADER_LEN + record * SEQNO_LEN) as u64
    }

    /// Number of records, and their wall time.
    fn group(&self, group: usize) -> (u32, u64) {
        let at = self.groups_start() + group * GROUP_LEN;
        (u32_at(self.bytes, at), u64_at(self.bytes, at + 4))
    }

    fn check(&self, header: &FrameHeader) -> Result<(), FrameError> {
        let rising = (1..self.records).all(|record| self.delta(record - 1) < self.delta(record));
        let last = header.first_seqno.0 + self.delta(self.records - 1);
        if !rising || self.delta(0) != 0 || Some(Seqno(last)) != header.sparse_last {
            return Err(FrameError::Bounds("table of seqnos"));
        }
        let grouped: u64 = (0..self.groups).map(|group| self.group(group).0 as u64).sum();
        let empty = (0..self.groups).any(|group| self.group(group).0 == 0);
        if grouped == self.records as u64 && !empty { Ok(()) } else { Err(FrameError::Bounds("table of wall times")) }
    }
}

/// The records of a frame, in order.
pub struct FrameRecords<'a> {
    frame: &'a Frame,
    at: usize,
    /// Of the next record.
    index: usize,
    table: Option<SparseTable<'a>>,
    /// The group of the next record, once [`FrameRecords::group_left`] is used up.
    group: usize,
    group_left: u32,
}

impl FrameRecords<'_> {
    fn next_wall_ms(&mut self) -> u64 {
        let Some(table) = &self.table else { return self.frame.header.wall_ms };
        if self.group_left == 0 {
            self.group_left = table.group(self.group).0;
            self.group += 1;
        }
        self.group_left -= 1;
        table.group(self.group - 1).1
    }
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
        let wall_ms = self.next_wall_ms();
        let delta = self.table.as_ref().map_or(self.index as u64, |table| table.delta(self.index));
        let seqno = Seqno(self.frame.header.first_seqno.0 + delta);
        self.at += len;
        self.index += 1;
        Some(FrameRecord { seqno, wall_ms, location, record })
    }
}

impl Frame {
    /// The bytes of one of its records.
    pub(crate) fn record_bytes(&self, location: Location) -> &[u8] {
        let at = (location.offset - self.start.offset) as usize;
        &self.bytes[at..at + location.len as usize]
    }
}

/// Gathers records of other frames into a sparse one.
#[derive(Default)]
pub(crate) struct SparseBuilder {
    epoch: Epoch,
    seqnos: Vec<Seqno>,
    groups: Vec<(u32, u64)>,
    /// The records one after the other, with the checksums of where they were.
    records: Vec<u8>,
    has_control: bool,
}

impl SparseBuilder {
    pub(crate) fn is_empty(&self) -> bool {
        self.seqnos.is_empty()
    }

    /// Whether the frame would stay within `bytes_max` with this record, and may hold it at all.
    pub(crate) fn takes(&self, epoch: Epoch, item: &FrameRecord<'_>, bytes_max: usize) -> bool {
        let Some(first) = self.seqnos.first() else { return true };
        let table = (self.seqnos.len() + 1) * SEQNO_LEN + 4 + (self.groups.len() + 1) * GROUP_LEN;
        let length = FRAME_HEADER_LEN + table + self.records.len() + item.location.len as usize;
        self.epoch == epoch
            && length <= bytes_max
            && self.seqnos.len() < FRAME_RECORDS_MAX
            && item.seqno.0 - first.0 <= u32::MAX as u64
    }

    pub(crate) fn push(&mut self, epoch: Epoch, item: &FrameRecord<'_>, bytes: &[u8]) {
        self.epoch = epoch;
        self.seqnos.push(item.seqno);
        match self.groups.last_mut() {
            Some((count, wall_ms)) if *wall_ms == item.wall_ms => *count += 1,
            _ => self.groups.push((1, item.wall_ms)),
        }
        self.records.extend_from_slice(bytes);
        self.has_control |= matches!(item.record, Record::Control { .. });
    }

    /// Makes the frame for the place `start`, and begins anew.
    pub(crate) fn finish(&mut self, seeds: &Seeds, start: Position) -> Frame {
        let built = std::mem::take(self);
        let (first, last) = (built.seqnos[0], built.seqnos[built.seqnos.len() - 1]);
        let mut bytes = vec![0; FRAME_HEADER_LEN];
        for seqno in &built.seqnos {
            bytes.extend_from_slice(&((seqno.0 - first.0) as u32).to_le_bytes());
        }
        bytes.extend_from_slice(&(built.groups.len() as u32).to_le_bytes());
        for (count, wall_ms) in &built.groups {
            bytes.extend_from_slice(&count.to_le_bytes());
            bytes.extend_from_slice(&wall_ms.to_le_bytes());
        }
        let mut at = bytes.len();
        bytes.extend_from_slice(&built.records);
        while at < bytes.len() {
            let (_, len) = Record::parse(&bytes[at..]).expect("copied from a checked frame");
            let checksum = seeds.sum32(&bytes[at + 4..at + len], start.offset + at as u64);
            bytes[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
            at += len;
        }
        let header = FrameHeader {
            checksum: 0,
            length: bytes.len() as u32,
            records: built.seqnos.len() as u32,
            epoch: built.epoch,
            first_seqno: first,
            committed: Seqno(0),
            wall_ms: 0,
            prev: start.mark.checksum,
            begins_segment: false,
            sparse_last: Some(last),
        };
        Frame::seal(bytes, header, built.has_control, seeds, start)
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
