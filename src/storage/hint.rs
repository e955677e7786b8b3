//! Hint files: what an index needs to know of a sealed segment, without its values.
//!
//! ```text
//! offset size
//!      0    8  "STEADHNT"                    72    8  last seqno of the segment
//!      8    4  format, 2                     80    8  checksum of its last frame
//!     12    4  number of compaction plans    88    8  highest commit point its frames carry
//!              among the extras              96    4  number of entries
//!     16   16  cluster                      100    4  bytes of the extras
//!     32    8  region                       104    8  bytes of its puts
//!     40    8  segment                      112    8  bytes of its tombstones
//!     48    8  length of the segment        120    8  bytes of its puts that expire
//!     56    8  last seqno before it         128    8  when the last of those does
//!     64    8  checksum of the frame        136    8  checksum of the body
//!              before it                    144    8  checksum of bytes 0..144
//!    152       entries, one for each put and tombstone, in log order:
//!                0  16  hash of the key
//!               16   4  offset of the record     24   4  its seqno − last seqno before the segment
//!               20   4  length of the record     28   2  length of the key − 1
//!                                                30   1  kind    31   1  flags: 1 = it expires
//!              extras, one for each session and control record, in log order:
//!                0   4  seqno − last seqno before the segment
//!                4   4  length of the record
//!                8      the record, as in the segment
//! ```
//!
//! A hint is a convenience: it is believed only if its checksums hold and it names the length and the marks that the
//! segment has. One that does not is ignored, the segment is read instead, and the hint is written anew.

use crate::compaction;
use crate::error::StorageError;
use crate::files::SegmentHandle;
use crate::frame::{Frame, Position};
use crate::ids::{Mark, SegmentId, Seqno};
use crate::record::{KIND_PUT, KIND_TOMBSTONE, Location, Record, mark_at, put_u64s, u32_at, u64_at, u128_at};
use crate::seed::Identity;
use crate::segment::{Next, SegmentReader, hint_path};
use crate::state;
use bytes::Bytes;
use env::{Disk, OpenMode};
use std::io;
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"STEADHNT";
const FORMAT: u32 = 2;
pub(crate) const HINT_HEADER_LEN: usize = 152;
pub const ENTRY_LEN: usize = 32;
const EXTRA_HEADER_LEN: usize = 8;
const FLAG_EXPIRES: u8 = 1;

/// What a hint says of its segment as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HintHeader {
    /// The log before the segment.
    pub(crate) base: Mark,
    /// The segment's end: its last mark and its length.
    pub(crate) end: Position,
    pub(crate) committed: Seqno,
    /// Compaction plans among the extras.
    pub(crate) plans: u32,
    pub(crate) usage: Usage,
    entries: u32,
    extras_len: u32,
    body_checksum: u64,
}

/// What a segment's bytes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) put_bytes: u64,
    pub(crate) tombstone_bytes: u64,
    /// Of session and control records.
    pub(crate) extra_bytes: u64,
    /// Of puts that expire, and when the last of them does.
    pub(crate) expiring_bytes: u64,
    pub(crate) expiry_max_ms: u64,
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
    pub(crate) expires: bool,
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
        bytes[12..16].copy_from_slice(&self.plans.to_le_bytes());
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
        put_u64s(&mut bytes, 32, &numbers);
        bytes[96..100].copy_from_slice(&self.entries.to_le_bytes());
        bytes[100..104].copy_from_slice(&self.extras_len.to_le_bytes());
        bytes[104..112].copy_from_slice(&self.usage.put_bytes.to_le_bytes());
        bytes[112..120].copy_from_slice(&self.usage.tombstone_bytes.to_le_bytes());
        bytes[120..128].copy_from_slice(&self.usage.expiring_bytes.to_le_bytes());
        bytes[128..136].copy_from_slice(&self.usage.expiry_max_ms.to_le_bytes());
        bytes[136..144].copy_from_slice(&self.body_checksum.to_le_bytes());
        let checksum = identity.checksum(&bytes[..144]);
        bytes[144..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8], identity: &Identity) -> Result<HintHeader, &'static str> {
        if bytes.len() < HINT_HEADER_LEN {
            return Err("hint is cut short");
        }
        if &bytes[..8] != MAGIC || identity.checksum(&bytes[..144]) != u64_at(bytes, 144) {
            return Err("hint header's checksum is wrong");
        }
        if u32_at(bytes, 8) != FORMAT || u128_at(bytes, 16) != identity.cluster {
            return Err("hint is of another format or cluster");
        }
        Ok(HintHeader {
            base: mark_at(bytes, 56),
            end: Position {
                mark: mark_at(bytes, 72),
                segment: SegmentId(u64_at(bytes, 40)),
                offset: u64_at(bytes, 48),
            },
            committed: Seqno(u64_at(bytes, 88)),
            plans: u32_at(bytes, 12),
            usage: Usage {
                put_bytes: u64_at(bytes, 104),
                tombstone_bytes: u64_at(bytes, 112),
                extra_bytes: u32_at(bytes, 100) as u64,
                expiring_bytes: u64_at(bytes, 120),
                expiry_max_ms: u64_at(bytes, 128),
            },
            entries: u32_at(bytes, 96),
            extras_len: u32_at(bytes, 100),
            body_checksum: u64_at(bytes, 136),
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
        let reader = SegmentReader::open(file, &handle.path, identity, end.segment, len).await?;
        Hint::scan_with(reader, identity, base, end).await
    }

    /// [`Hint::scan`] of a file that is open.
    pub(crate) async fn scan_with(
        mut reader: SegmentReader,
        identity: &Identity,
        base: Mark,
        end: Position,
    ) -> Result<Hint, StorageError> {
        let mut builder = HintBuilder::new(*identity, base);
        let mut at = Position::beginning(end.segment, base);
        loop {
            match reader.next(at).await? {
                Next::Frame(frame) => {
                    builder.add(&frame);
                    at = frame.end;
                }
                Next::End if at == end || reader.ends_at(end) => return Ok(builder.finish(end)),
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
        state::replace(disk, dir, &hint_path(dir, self.header.end.segment), self.encode(identity)).await
    }

    /// Makes a file of it, flushed.
    pub(crate) async fn write(&self, disk: &dyn Disk, path: &str, identity: &Identity) -> Result<(), StorageError> {
        state::write(disk, path, self.encode(identity)).await
    }

    fn encode(&self, identity: &Identity) -> Bytes {
        let mut bytes = self.header.encode(identity);
        bytes.extend_from_slice(&self.body);
        bytes.into()
    }

    fn seqno(&self, delta: u32) -> Seqno {
        Seqno(self.header.base.seqno.0 + delta as u64)
    }

    /// Puts and tombstones in log order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = HintEntry> + '_ {
        (0..self.header.entries as usize).map(|at| self.entry(at))
    }

    /// The put or tombstone number `at`.
    pub(crate) fn entry(&self, at: usize) -> HintEntry {
        let entry = &self.body[at * ENTRY_LEN..(at + 1) * ENTRY_LEN];
        HintEntry {
            key_hash: u128_at(entry, 0),
            location: Location {
                segment: self.header.end.segment,
                offset: u32_at(entry, 16) as u64,
                len: u32_at(entry, 20),
            },
            seqno: self.seqno(u32_at(entry, 24)),
            tombstone: entry[30] == KIND_TOMBSTONE,
            expires: entry[31] & FLAG_EXPIRES != 0,
        }
    }

    /// Session and control records in log order.
    pub(crate) fn extras(&self) -> impl Iterator<Item = (Seqno, Record<'_>)> + '_ {
        let mut at = 0;
        std::iter::from_fn(move || {
            let (seqno, record, next) = self.extra(at)?;
            at = next;
            Some((seqno, record))
        })
    }

    /// The extra that lies `at` so many bytes from the first, and where the next one does; `None` after the last.
    pub(crate) fn extra(&self, at: usize) -> Option<(Seqno, Record<'_>, usize)> {
        let extra = &self.body[self.header.entries as usize * ENTRY_LEN + at..];
        if extra.is_empty() {
            return None;
        }
        let len = u32_at(extra, 4) as usize;
        let (record, _) = Record::parse(&extra[EXTRA_HEADER_LEN..]).expect("written from a checked frame");
        Some((self.seqno(u32_at(extra, 0)), record, at + EXTRA_HEADER_LEN + len))
    }
}

/// Makes a hint from a segment's frames.
pub(crate) struct HintBuilder {
    identity: Identity,
    base: Mark,
    committed: Seqno,
    plans: u32,
    usage: Usage,
    entries: Vec<u8>,
    extras: Vec<u8>,
}

impl HintBuilder {
    pub(crate) fn new(identity: Identity, base: Mark) -> HintBuilder {
        let (entries, extras) = (Vec::new(), Vec::new());
        HintBuilder { identity, base, committed: Seqno(0), plans: 0, usage: Usage::default(), entries, extras }
    }

    pub(crate) fn add(&mut self, frame: &Frame) {
        self.committed = self.committed.max(frame.header.committed);
        for item in frame.records() {
            let delta = (item.seqno.0 - self.base.seqno.0) as u32;
            let Some(key) = item.record.key() else {
                self.plans += compaction::is_plan(&item.record) as u32;
                self.extras.extend_from_slice(&delta.to_le_bytes());
                self.extras.extend_from_slice(&item.location.len.to_le_bytes());
                self.extras.extend_from_slice(frame.record_bytes(item.location));
                continue;
            };
            let len = item.location.len as u64;
            let (kind, flags) = match item.record {
                Record::Tombstone { .. } => (KIND_TOMBSTONE, 0),
                Record::Put { expiry_ms: Some(expiry_ms), .. } => {
                    self.usage.expiring_bytes += len;
                    self.usage.expiry_max_ms = self.usage.expiry_max_ms.max(expiry_ms);
                    (KIND_PUT, FLAG_EXPIRES)
                }
                _ => (KIND_PUT, 0),
            };
            *(if kind == KIND_PUT { &mut self.usage.put_bytes } else { &mut self.usage.tombstone_bytes }) += len;
            self.entries.extend_from_slice(&self.identity.key_hash(key).to_le_bytes());
            self.entries.extend_from_slice(&(item.location.offset as u32).to_le_bytes());
            self.entries.extend_from_slice(&item.location.len.to_le_bytes());
            self.entries.extend_from_slice(&delta.to_le_bytes());
            self.entries.extend_from_slice(&((key.len() - 1) as u16).to_le_bytes());
            self.entries.extend_from_slice(&[kind, flags]);
        }
    }

    pub(crate) fn finish(mut self, end: Position) -> Hint {
        let entries = (self.entries.len() / ENTRY_LEN) as u32;
        let extras_len = self.extras.len() as u32;
        self.entries.append(&mut self.extras);
        let body = Bytes::from(self.entries);
        let body_checksum = self.identity.checksum(&body);
        // All that was compacted was committed.
        let committed = if end.segment.is_compacted() { end.mark.seqno } else { self.committed };
        let usage = Usage { extra_bytes: extras_len as u64, ..self.usage };
        let HintBuilder { base, plans, .. } = self;
        let header = HintHeader { base, end, committed, plans, usage, entries, extras_len, body_checksum };
        Hint { header, body }
    }
}
