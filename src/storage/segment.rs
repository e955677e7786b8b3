//! Segment files: their names, their header, and reading their frames one after the other.
//!
//! ```text
//! offset size
//!      0    8  "STEADSEG"
//!      8    4  format, 1
//!     12    4  zero
//!     16   16  cluster
//!     32    8  region
//!     40    8  segment
//!     48    8  zero
//!     56    8  checksum of bytes 0..56
//!     64       frames
//! ```
//!
//! A segment gets its name only after its header is flushed, and only after everything in the segment before it is. So a
//! header that does not read back is corruption, and damage in any segment but the last is too: neither can be what a
//! crash leaves of a write that nobody acknowledged.
//!
//! A compacted segment, `000001.2.seg` (number and generation), has another header: see [`crate::span`].

use crate::error::StorageError;
use crate::frame::{FRAME_HEADER_LEN, Frame, FrameError, FrameHeader, Position};
use crate::ids::{RegionId, SegmentId, Seqno};
use crate::limits::SCAN_BLOCK_BYTES;
use crate::record::{u32_at, u64_at, u128_at};
use crate::seed::{Identity, Seeds};
use crate::span::{SPAN_HEADER_LEN, Span};
use bytes::Bytes;
use env::File;
use std::sync::Arc;

pub(crate) const SEGMENT_HEADER_LEN: u64 = 64;
const MAGIC: &[u8; 8] = b"STEADSEG";
const FORMAT: u32 = 1;

/// Where a segment's frames begin.
pub(crate) fn frames_start(segment: SegmentId) -> u64 {
    if segment.is_compacted() { SPAN_HEADER_LEN } else { SEGMENT_HEADER_LEN }
}

pub(crate) fn segment_path(dir: &str, segment: SegmentId) -> String {
    format!("{dir}/{}.seg", stem(segment))
}

pub(crate) fn hint_path(dir: &str, segment: SegmentId) -> String {
    format!("{dir}/{}.hint", stem(segment))
}

fn stem(segment: SegmentId) -> String {
    match segment.generation() {
        0 => format!("{:06}", segment.number()),
        generation => format!("{:06}.{generation}", segment.number()),
    }
}

/// The segment that `name` is the file or (`extension` "hint") the hint file of.
pub(crate) fn segment_of(name: &str, extension: &str) -> Option<SegmentId> {
    let found = name.strip_suffix(extension)?.strip_suffix('.')?;
    let (number, generation) = found.split_once('.').unwrap_or((found, "0"));
    let (number, generation): (u64, u64) = (number.parse().ok()?, generation.parse().ok()?);
    let known = number > 0 && number < 1 << 40 && generation < 1 << 24;
    let segment = known.then(|| SegmentId::compacted(number, generation))?;
    (stem(segment) == found).then_some(segment)
}

pub(crate) fn encode_header(identity: &Identity, segment: SegmentId) -> Bytes {
    let mut header = vec![0; SEGMENT_HEADER_LEN as usize];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    header[16..32].copy_from_slice(&identity.cluster.to_le_bytes());
    header[32..40].copy_from_slice(&identity.region.0.to_le_bytes());
    header[40..48].copy_from_slice(&segment.0.to_le_bytes());
    let checksum = xxhash_rust::xxh3::xxh3_64(&header[..56]);
    header[56..].copy_from_slice(&checksum.to_le_bytes());
    header.into()
}

fn check_header(bytes: &[u8], path: &str, identity: &Identity, segment: SegmentId) -> Result<(), StorageError> {
    let corrupt = |what: &str| Err(StorageError::corrupt(path, 0, what));
    if bytes.len() < SEGMENT_HEADER_LEN as usize {
        return corrupt("segment header is cut short");
    }
    if &bytes[..8] != MAGIC || xxhash_rust::xxh3::xxh3_64(&bytes[..56]) != u64_at(bytes, 56) {
        return corrupt("segment header's checksum is wrong");
    }
    check_owner(path, identity, FORMAT, u32_at(bytes, 8), u128_at(bytes, 16), u64_at(bytes, 32))?;
    if u64_at(bytes, 40) != segment.0 {
        return corrupt(&format!("segment header names segment {}", u64_at(bytes, 40)));
    }
    Ok(())
}

/// Refuses files of newer programs, other clusters and other regions.
pub(crate) fn check_owner(
    path: &str,
    identity: &Identity,
    known: u32,
    found: u32,
    cluster: u128,
    region: u64,
) -> Result<(), StorageError> {
    let file = path.to_owned();
    if found > known {
        return Err(StorageError::NewerFormat { file, found, known });
    }
    if cluster != identity.cluster {
        return Err(StorageError::ForeignCluster { file, found: cluster, expected: identity.cluster });
    }
    if RegionId(region) != identity.region {
        return Err(StorageError::ForeignRegion { file, found: region, expected: identity.region.0 });
    }
    Ok(())
}

/// Reads a segment file front to back, a block at a time.
pub(crate) struct SegmentReader {
    file: Arc<dyn File>,
    pub(crate) path: String,
    pub(crate) seeds: Seeds,
    /// Of the part to read; the file may be longer.
    pub(crate) len: u64,
    /// What a compacted segment stands for.
    pub(crate) span: Option<Span>,
    block: Bytes,
    block_start: u64,
}

/// What lies at a place of a segment.
pub(crate) enum Next {
    Frame(Frame),
    End,
    /// No frame that continues the log up to here.
    Bad(FrameError),
}

/// Frames found after bytes that are none.
pub(crate) struct Later {
    pub(crate) offset: u64,
    /// The highest commit point that any of them carries.
    pub(crate) committed: Seqno,
}

impl SegmentReader {
    /// Checks the header. `len` limits what is read, to leave out what is being written meanwhile.
    pub(crate) async fn open(
        file: Arc<dyn File>,
        path: &str,
        identity: &Identity,
        segment: SegmentId,
        len: Option<u64>,
    ) -> Result<SegmentReader, StorageError> {
        let file_len = file.len().await.map_err(|error| StorageError::io("read length of", path, error))?;
        let mut reader = SegmentReader {
            file,
            path: path.to_owned(),
            seeds: identity.seeds(segment),
            len: len.unwrap_or(file_len),
            span: None,
            block: Bytes::new(),
            block_start: 0,
        };
        if file_len < reader.len {
            return Err(reader.corrupt(file_len, format!("segment ends early, it had {} bytes", reader.len)));
        }
        let header = reader.bytes(0, frames_start(segment) as usize).await?;
        if !segment.is_compacted() {
            check_header(&header, path, identity, segment)?;
            return Ok(reader);
        }
        let span = Span::decode(&header, path, identity, segment)?;
        if span.len != file_len || reader.len != file_len {
            return Err(reader.corrupt(file_len, format!("compacted segment should have {} bytes", span.len)));
        }
        reader.span = Some(span);
        Ok(reader)
    }

    pub(crate) fn corrupt(&self, offset: u64, what: impl Into<String>) -> StorageError {
        StorageError::corrupt(&self.path, offset, what)
    }

    /// Up to `len` bytes from `offset`, fewer only where the segment ends.
    pub(crate) async fn bytes(&mut self, offset: u64, len: usize) -> Result<Bytes, StorageError> {
        let len = len.min(self.len.saturating_sub(offset) as usize);
        let within = |start: u64, block: &Bytes| offset >= start && offset + len as u64 <= start + block.len() as u64;
        if !within(self.block_start, &self.block) {
            let ahead = len.max(SCAN_BLOCK_BYTES).min((self.len - offset) as usize);
            let (read, mut buffer) = self.file.read_at(vec![0; ahead], offset).await;
            let read = read.map_err(|error| StorageError::io("read", &self.path, error))?;
            if read < len {
                return Err(self.corrupt(offset + read as u64, "segment ends early"));
            }
            buffer.truncate(read);
            self.block = buffer.into();
            self.block_start = offset;
        }
        let start = (offset - self.block_start) as usize;
        Ok(self.block.slice(start..start + len))
    }

    /// The frame at `at.offset` that continues `at.mark`.
    pub(crate) async fn next(&mut self, at: Position) -> Result<Next, StorageError> {
        if at.offset >= self.len {
            return Ok(Next::End);
        }
        match self.frame_at(at).await? {
            Ok(frame) if frame.continues() => Ok(Next::Frame(frame)),
            Ok(_) => Ok(Next::Bad(FrameError::Chain)),
            Err(FrameError::NewerFormat(found)) => {
                Err(StorageError::NewerFormat { file: self.path.clone(), found: found as u32, known: 1 })
            }
            Err(error) => Ok(Next::Bad(error)),
        }
    }

    /// Whether `end` is the end of the span that this compacted segment stands for.
    pub(crate) fn ends_at(&self, end: Position) -> bool {
        self.span.is_some_and(|span| span.end == end.mark && span.len == end.offset)
    }

    async fn frame_at(&mut self, at: Position) -> Result<Result<Frame, FrameError>, StorageError> {
        let header = self.bytes(at.offset, FRAME_HEADER_LEN).await?;
        let length = match FrameHeader::read(&header, &self.seeds, at.offset) {
            Ok(header) => header.length as usize,
            Err(error) => return Ok(Err(error)),
        };
        let bytes = self.bytes(at.offset, length).await?;
        Ok(Frame::decode_at(bytes, &self.seeds, at))
    }

    /// Whether only zeros follow `offset`: space that was reserved, or whose content a power loss took.
    pub(crate) async fn zeros_from(&mut self, offset: u64) -> Result<bool, StorageError> {
        let mut at = offset;
        while at < self.len {
            let block = self.bytes(at, SCAN_BLOCK_BYTES).await?;
            if block.iter().any(|&byte| byte != 0) {
                return Ok(false);
            }
            at += block.len() as u64;
        }
        Ok(true)
    }

    /// Looks at every place from `bad.offset` on for frames of this segment that come after `bad.mark`.
    pub(crate) async fn frames_after(&mut self, bad: Position) -> Result<Option<Later>, StorageError> {
        let mut later: Option<Later> = None;
        let mut at = bad.offset;
        while at + (FRAME_HEADER_LEN as u64) < self.len {
            let block = self.bytes(at, SCAN_BLOCK_BYTES).await?;
            let places = block.len().saturating_sub(FRAME_HEADER_LEN - 1).max(1);
            for place in 0..places {
                let Some(bytes) = block.get(place..place + FRAME_HEADER_LEN) else { break };
                // Zeros are common here and cheap to skip: the length of a frame is never 0.
                if bytes[8..12] == [0; 4] || bytes[56] == 0 {
                    continue;
                }
                let offset = at + place as u64;
                match FrameHeader::read(bytes, &self.seeds, offset) {
                    Ok(header) if header.last_seqno() > bad.mark.seqno => {}
                    _ => continue,
                }
                let frame = self.frame_at(Position { offset, ..bad }).await?;
                if let Ok(frame) = frame {
                    let committed = later.as_ref().map_or(Seqno(0), |later| later.committed);
                    let offset = later.as_ref().map_or(offset, |later| later.offset);
                    later = Some(Later { offset, committed: committed.max(frame.header.committed) });
                }
            }
            at += places as u64;
        }
        Ok(later)
    }
}
