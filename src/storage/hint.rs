//! Hint files: what an index needs to know of a sealed segment, without its values.
//!
//! ```text
//! offset size
//!      0    8  "STEADHNT"                    72    8  last seqno of the segment
//!      8    4  format, 1                     80    8  checksum of its last frame
//!     12    4  zero                          88    8  highest commit point its frames carry
//!     16   16  cluster                       96    4  number of entries
//!     32    8  region                       100    4  bytes of the extras
//!     40    8  segment                      104    8  checksum of the body
//!     48    8  length of the segment        112    8  checksum of bytes 0..112
//!     56    8  last seqno before the segment
//!     64    8  checksum of the frame before the segment
//!    120       entries, one for each put and tombstone, in log order:
//!                0  16  hash of the key
//!               16   4  offset of the record     24   4  its seqno − last seqno before the segment
//!               20   4  length of the record     28   2  length of the key − 1
//!                                                30   1  kind    31   1  zero
//!              extras, one for each session and control record, in log order:
//!                0   4  seqno − last seqno before the segment
//!                4   4  length of the record
//!                8      the record, as in the segment
//! ```
//!
//! A hint is a convenience: it is believed only if its checksums hold and it names the length and the marks that the
//! segment has. One that does not is ignored, the segment is read instead, and the hint is written anew.

use crate::error::StorageError;
use crate::files::SegmentHandle;
use crate::frame::{Frame, Position};
use crate::ids::{Mark, SegmentId, Seqno};
use crate::record::{KIND_PUT, KIND_TOMBSTONE, Location, Record, u32_at, u64_at, u128_at};
use crate::seed::Identity;
use crate::segment::{Next, SegmentReader, hint_path};
use crate::state;
use bytes::Bytes;
use env::{Disk, OpenMode};
use std::io;
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"STEADHNT";
const FORMAT: u32 = 1;
pub(crate) const HINT_HEADER_LEN: usize = 120;
const ENTRY_LEN: usize = 32;
const EXTRA_HEADER_LEN: usize = 8;

/// What a hint says of its segment as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HintHeader {
    /// The log before the segment.
    pub(crate) base: Mark,
    /// The segment's end: its last mark and its length.
    pub(crate) end: Position,
    pub(crate) committed: Seqno,
    entries: u32,
    extras_len: u32,
    body_checksum: u64,
}

/// A hint's content, from its file or from reading the segment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Hint {
    pub(crate) header: HintHeader,
    body: Bytes,
}

/// A put or tombstone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HintEntry {
    pub(crate) key_hash: u128,
    pub(crate) location: Location,
    pub(crate) seqno: Seqno,
    pub(crate) tombstone: bool,
}

impl HintHeader {
    fn body_len(&self) -> usize {
        self.entries as usize * ENTRY_LEN + self.extras_len as usize
    }

    pub(crate) fn entries(&self) -> u64 {
        self.entries as u64
    }

    fn encode(&self, identity: &Identity) -> Vec<u8> {
        let mut bytes = vec![0; HINT_HEADER_LEN];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[16..32].copy_from_slice(&identity.cluster.to_le_bytes());
        let numbers = [
            identity.region.0,
            self.end.segment.0,
            self.end.offset,
            self.base.seqno.0,
            self.base.checksum,
            self.end.mark.seqno.0,
            self.end.mark.checksum,
            self.committed.0,
        ];
        for (at, number) in numbers.into_iter().enumerate() {
            bytes[32 + 8 * at..40 + 8 * at].copy_from_slice(&number.to_le_bytes());
        }
        bytes[96..100].copy_from_slice(&self.entries.to_le_bytes());
        bytes[100..104].copy_from_slice(&self.extras_len.to_le_bytes());
        bytes[104..112].copy_from_slice(&self.body_checksum.to_le_bytes());
        let checksum = identity.checksum(&bytes[..112]);
        bytes[112..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8], identity: &Identity) -> Result<HintHeader, &'static str> {
        if bytes.len() < HINT_HEADER_LEN {
            return Err("hint is cut short");
        }
        if &bytes[..8] != MAGIC || identity.checksum(&bytes[..112]) != u64_at(bytes, 112) {
            return Err("hint header's checksum is wrong");
        }
        if u32_at(bytes, 8) != FORMAT || u128_at(bytes, 16) != identity.cluster {
            return Err("hint is of another format or cluster");
        }
        let mark = |at: usize| Mark { seqno: Seqno(u64_at(bytes, at)), checksum: u64_at(bytes, at + 8) };
        Ok(HintHeader {
            base: mark(56),
            end: Position { mark: mark(72), segment: SegmentId(u64_at(bytes, 40)), offset: u64_at(bytes, 48) },
            committed: Seqno(u64_at(bytes, 88)),
            entries: u32_at(bytes, 96),
            extras_len: u32_at(bytes, 100),
            body_checksum: u64_at(bytes, 104),
        })
    }

    /// Reads the header of a segment's hint alone; `None` without a believable one that has the right length.
    pub(crate) async fn load(
        disk: &dyn Disk,
        dir: &str,
        identity: &Identity,
        segment: SegmentId,
    ) -> Option<HintHeader> {
        let path = hint_path(dir, segment);
        let found = async {
            let file = disk.open(&path, OpenMode::Read).await?;
            let (read, mut bytes) = file.read_at(vec![0; HINT_HEADER_LEN], 0).await;
            bytes.truncate(read?);
            io::Result::Ok((bytes, file.len().await?))
        };
        let (bytes, len) = believable(&path, found.await)?;
        let header = HintHeader::decode(&bytes, identity).and_then(|header| {
            let whole = len == (HINT_HEADER_LEN + header.body_len()) as u64 && header.end.segment == segment;
            whole.then_some(header).ok_or("hint has another length than it says")
        });
        believable(&path, header)
    }
}

/// Says once why a hint is not used.
fn believable<T, E: std::fmt::Display + 'static>(path: &str, hint: Result<T, E>) -> Option<T> {
    match hint {
        Ok(hint) => Some(hint),
        Err(error) => {
            let absent = (&error as &dyn std::any::Any)
                .downcast_ref::<io::Error>()
                .is_some_and(|error| error.kind() == io::ErrorKind::NotFound);
            if !absent {
                tracing::warn!(path, %error, "hint is not usable, reading the segment instead");
            }
            None
        }
    }
}

impl Hint {
    /// Reads a segment's hint; `None` without one that is whole and ends where the segment does.
    pub(crate) async fn load(disk: &dyn Disk, dir: &str, identity: &Identity, end: Position) -> Option<Hint> {
        let path = hint_path(dir, end.segment);
        let bytes = match state::read_whole(disk, &path).await {
            Ok(bytes) => Bytes::from(bytes?),
            Err(error) => return believable(&path, Err(error)),
        };
        believable(&path, Hint::decode(bytes, identity, end))
    }

    fn decode(bytes: Bytes, identity: &Identity, end: Position) -> Result<Hint, &'static str> {
        let header = HintHeader::decode(&bytes, identity)?;
        let body = bytes.slice(HINT_HEADER_LEN..);
        if body.len() != header.body_len() || identity.checksum(&body) != header.body_checksum {
            return Err("hint's checksum is wrong");
        }
        if header.end != end {
            return Err("hint is of another state of the segment");
        }
        Ok(Hint { header, body })
    }

    /// Reads the part of a segment that ends at `end`; all of it was durable, so that anything amiss is corruption.
    pub(crate) async fn scan(
        handle: &Arc<SegmentHandle>,
        identity: &Identity,
        base: Mark,
        end: Position,
    ) -> Result<Hint, StorageError> {
        let file = handle.file().await?;
        let len = Some(end.offset);
        let mut reader = SegmentReader::open(file, &handle.path, identity, end.segment, len).await?;
        let mut builder = HintBuilder::new(*identity, base);
        let mut at = Position { mark: base, segment: end.segment, ..Position::ZERO };
        loop {
            match reader.next(at).await? {
                Next::Frame(frame) => {
                    builder.add(&frame);
                    at = frame.end;
                }
                Next::End if at == end => return Ok(builder.finish(end)),
                Next::End => return Err(reader.corrupt(at.offset, "segment holds another history than it did")),
                Next::Bad(error) => return Err(reader.corrupt(at.offset, error.to_string())),
            }
        }
    }

    /// [`Hint::load`], or else [`Hint::scan`].
    pub(crate) async fn load_or_scan(
        disk: &dyn Disk,
        dir: &str,
        handle: &Arc<SegmentHandle>,
        identity: &Identity,
        base: Mark,
        end: Position,
    ) -> Result<Hint, StorageError> {
        match Hint::load(disk, dir, identity, end).await {
            Some(hint) if hint.header.base == base => Ok(hint),
            _ => Hint::scan(handle, identity, base, end).await,
        }
    }

    pub(crate) async fn store(&self, disk: &dyn Disk, dir: &str, identity: &Identity) -> Result<(), StorageError> {
        let mut bytes = self.header.encode(identity);
        bytes.extend_from_slice(&self.body);
        state::replace(disk, dir, &hint_path(dir, self.header.end.segment), bytes.into()).await
    }

    fn seqno(&self, delta: u32) -> Seqno {
        Seqno(self.header.base.seqno.0 + delta as u64)
    }

    /// Puts and tombstones in log order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = HintEntry> + '_ {
        let entries = &self.body[..self.header.entries as usize * ENTRY_LEN];
        entries.chunks_exact(ENTRY_LEN).map(|entry| HintEntry {
            key_hash: u128_at(entry, 0),
            location: Location {
                segment: self.header.end.segment,
                offset: u32_at(entry, 16) as u64,
                len: u32_at(entry, 20),
            },
            seqno: self.seqno(u32_at(entry, 24)),
            tombstone: entry[30] == KIND_TOMBSTONE,
        })
    }

    /// Session and control records in log order.
    pub(crate) fn extras(&self) -> impl Iterator<Item = (Seqno, Record<'_>)> + '_ {
        let mut rest = &self.body[self.header.entries as usize * ENTRY_LEN..];
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let seqno = self.seqno(u32_at(rest, 0));
            let len = u32_at(rest, 4) as usize;
            let (record, _) = Record::parse(&rest[EXTRA_HEADER_LEN..]).expect("written from a checked frame");
            rest = &rest[EXTRA_HEADER_LEN + len..];
            Some((seqno, record))
        })
    }
}

/// Makes a hint from a segment's frames.
pub(crate) struct HintBuilder {
    identity: Identity,
    base: Mark,
    committed: Seqno,
    entries: Vec<u8>,
    extras: Vec<u8>,
}

impl HintBuilder {
    pub(crate) fn new(identity: Identity, base: Mark) -> HintBuilder {
        HintBuilder { identity, base, committed: Seqno(0), entries: Vec::new(), extras: Vec::new() }
    }

    pub(crate) fn add(&mut self, frame: &Frame) {
        self.committed = self.committed.max(frame.header.committed);
        for item in frame.records() {
            let delta = (item.seqno.0 - self.base.seqno.0) as u32;
            let Some(key) = item.record.key() else {
                let at = (item.location.offset - frame.start.offset) as usize;
                self.extras.extend_from_slice(&delta.to_le_bytes());
                self.extras.extend_from_slice(&item.location.len.to_le_bytes());
                self.extras.extend_from_slice(&frame.bytes[at..at + item.location.len as usize]);
                continue;
            };
            let kind = if matches!(item.record, Record::Tombstone { .. }) { KIND_TOMBSTONE } else { KIND_PUT };
            self.entries.extend_from_slice(&self.identity.key_hash(key).to_le_bytes());
            self.entries.extend_from_slice(&(item.location.offset as u32).to_le_bytes());
            self.entries.extend_from_slice(&item.location.len.to_le_bytes());
            self.entries.extend_from_slice(&delta.to_le_bytes());
            self.entries.extend_from_slice(&((key.len() - 1) as u16).to_le_bytes());
            self.entries.extend_from_slice(&[kind, 0]);
        }
    }

    pub(crate) fn finish(mut self, end: Position) -> Hint {
        let entries = (self.entries.len() / ENTRY_LEN) as u32;
        let extras_len = self.extras.len() as u32;
        self.entries.append(&mut self.extras);
        let body = Bytes::from(self.entries);
        let body_checksum = self.identity.checksum(&body);
        let header = HintHeader { base: self.base, end, committed: self.committed, entries, extras_len, body_checksum };
        Hint { header, body }
    }
}
