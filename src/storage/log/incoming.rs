//! Compacted segments on their way from one replica to another.
//!
//! A log that lacks frames which its primary has compacted takes the compacted segment's file instead, piece by piece. The
//! file is a segment only once all of it is here, is what its header says, and continues the log.
//!
//! With the frames that it lacks come no orders to compact: those that lay there were carried out where it is copied from,
//! and are gone. So the segments before must be the same on both sides, or what differs is copied as well.

use crate::error::StorageError;
use crate::frame::Position;
use crate::hint::Hint;
use crate::ids::{Mark, SegmentId};
use crate::log::{Chunk, Log, Segment, Shared};
use crate::segment::{SegmentReader, segment_path};
use crate::span::{SPAN_HEADER_LEN, Span};
use crate::state::{self, TEMP_SUFFIX};
use bytes::Bytes;
use env::{File, OpenMode};
use std::collections::VecDeque;
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3Default;

/// Which part of a compacted segment's file some bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Piece {
    pub segment: SegmentId,
    pub offset: u64,
    /// Of the whole file.
    pub len: u64,
    /// With the first piece: the segments before this one.
    pub before: Vec<SegmentId>,
}

/// What became of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Others are to follow.
    Part,
    /// The segment has become part of the log.
    Segment,
    /// From here on the log is made up of other segments than the one it is copied from. It has to [`Log::rewind`].
    Differs(Position),
}

/// A segment of which the first pieces are here.
pub(super) struct Incoming {
    segment: SegmentId,
    path: String,
    file: Arc<dyn File>,
    header: Vec<u8>,
    written: u64,
    checksum: Xxh3Default,
}

/// Reads a part of a compacted segment's file.
pub(super) async fn read_piece(
    shared: &Shared,
    segment: Segment,
    (offset, before): (u64, Vec<SegmentId>),
    bytes_max: usize,
) -> Result<Chunk, StorageError> {
    let handle = shared.add_handle(segment.id());
    let len = segment.end.offset;
    let wanted = (len.saturating_sub(offset)).min(bytes_max.max(1) as u64) as usize;
    let (read, bytes) = handle.file().await?.read_at(vec![0; wanted], offset).await;
    let read = read.map_err(|error| StorageError::io("read", &handle.path, error))?;
    if read < wanted || wanted == 0 {
        return Err(StorageError::corrupt(&handle.path, offset + read as u64, "segment ends early"));
    }
    let next = offset + wanted as u64;
    let end = match next == len {
        true => segment.end_as_head(),
        false => Position { mark: segment.base, segment: segment.id(), offset: next },
    };
    Ok(Chunk { bytes: bytes.into(), end, piece: Some(Piece { segment: segment.id(), offset, len, before }) })
}

impl Log {
    /// Takes the next piece of a compacted segment that continues this log, all of which must be durable. `Invalid` if the
    /// piece does not fit: it comes out of turn, or is damaged, or compactions ordered before are not over.
    pub async fn take_piece(&mut self, piece: Piece, bytes: Bytes) -> Result<Taken, StorageError> {
        self.shared.check_fence()?;
        if self.note.is_none() || self.durable != self.head {
            return Err(StorageError::invalid("a compacted segment while frames before it are not flushed"));
        }
        if self.has_ordered() || self.has_retired() {
            return Err(StorageError::invalid("a compacted segment before compactions ordered earlier are over"));
        }
        if piece.offset == 0 {
            let mut ours = self.segments.values().zip(&piece.before);
            if let Some((differing, _)) = ours.find(|(ours, theirs)| ours.id() != **theirs) {
                return Ok(Taken::Differs(self.find(differing.base).await?.expect("the end of the one before")));
            }
            self.forget_incoming().await;
            self.incoming = Some(Incoming::begin(&self.shared, piece.segment).await?);
        }
        let fits = |incoming: &&mut Incoming| incoming.segment == piece.segment && incoming.written == piece.offset;
        let Some(incoming) = self.incoming.as_mut().filter(fits) else {
            return Err(StorageError::invalid("a piece of a compacted segment that does not follow the one before"));
        };
        incoming.take(bytes).await?;
        if incoming.written < piece.len {
            return Ok(Taken::Part);
        }
        let incoming = self.incoming.take().expect("checked above");
        let path = incoming.path.clone();
        let adopted = self.adopt(incoming).await;
        if adopted.is_err() {
            let _ = state::remove_if_present(self.shared.env.disk().as_ref(), &path).await;
        }
        adopted.map(|()| Taken::Segment)
    }

    /// Pieces that came so far are not wanted any more.
    pub(super) async fn forget_incoming(&mut self) {
        let Some(incoming) = self.incoming.take() else { return };
        // Else it stays until the log is next opened.
        let _ = state::remove_if_present(self.shared.env.disk().as_ref(), &incoming.path).await;
    }

    /// Makes the segment that was received a part of the log.
    async fn adopt(&mut self, incoming: Incoming) -> Result<(), StorageError> {
        let path = segment_path(&self.shared.dir, incoming.segment);
        let next = if self.head.begins_segment() { self.head.segment } else { self.head.segment.next() };
        let (span, hint) = incoming.check(&self.shared, self.head.mark, next).await?;
        let disk = self.shared.env.disk().clone();
        incoming.file.sync_data().await.map_err(|error| StorageError::io("flush", &incoming.path, error))?;
        hint.store(disk.as_ref(), &self.shared.dir, &self.shared.identity).await?;
        let renamed = disk.rename(&incoming.path, &path).await;
        renamed.map_err(|error| StorageError::io("rename", &path, error))?;
        let synced = state::sync_dir(disk.as_ref(), &self.shared.dir).await;
        self.fence_on_error(synced).await?;

        let segment = Segment::hinted(&hint.header, span.last);
        self.shared.add_handle(segment.id());
        self.segments.insert(segment.id(), segment);
        self.recent.clear();
        self.recent_bytes = 0;
        self.buffered.set(0);
        self.head = segment.end_as_head();
        self.marks = VecDeque::from([self.head]);
        (self.written, self.durable) = (self.head, self.head);
        self.committed = self.committed.max(span.end.seqno);
        let note = self.note.as_mut().expect("no job is outstanding");
        note.advance(disk.as_ref(), self.head).await;
        Ok(())
    }
}

impl Incoming {
    async fn begin(shared: &Shared, segment: SegmentId) -> Result<Incoming, StorageError> {
        if !segment.is_compacted() {
            return Err(StorageError::invalid(format!("segment {segment} was not compacted")));
        }
        let own = shared.env.random();
        let path = format!("{}.{own:016x}{TEMP_SUFFIX}", segment_path(&shared.dir, segment));
        let file = shared.env.disk().open(&path, OpenMode::CreateNew).await;
        let file = file.map_err(|error| StorageError::io("create", &path, error))?;
        let (header, checksum) = (Vec::new(), Xxh3Default::new());
        Ok(Incoming { segment, path, file, header, written: 0, checksum })
    }

    async fn take(&mut self, bytes: Bytes) -> Result<(), StorageError> {
        let of_header = (SPAN_HEADER_LEN as usize - self.header.len()).min(bytes.len());
        self.header.extend_from_slice(&bytes[..of_header]);
        self.checksum.update(&bytes[of_header..]);
        let len = bytes.len() as u64;
        let written = self.file.write_at(vec![bytes], self.written).await;
        written.map_err(|error| StorageError::io("write", &self.path, error))?;
        self.written += len;
        Ok(())
    }

    /// What the segment stands for, and its hint, if it is whole and continues the log.
    async fn check(&self, shared: &Shared, base: Mark, next: SegmentId) -> Result<(Span, Hint), StorageError> {
        // It may have been damaged on the way, so that nothing of this log is corrupt.
        let wrong = |what: String| StorageError::invalid(format!("received segment {}: {what}", self.segment));
        let span = Span::decode(&self.header, &self.path, &shared.identity, self.segment);
        let span = span.map_err(|error| wrong(error.to_string()))?;
        let found = (span.base, span.segment.number(), span.len, span.checksum);
        if found != (base, next.number(), self.written, self.checksum.digest()) {
            return Err(wrong("it does not continue the log, or is not what its header says".into()));
        }
        let (identity, len) = (&shared.identity, Some(span.len));
        let reader = SegmentReader::open(self.file.clone(), &self.path, identity, self.segment, len).await?;
        let end = Position { mark: span.end, segment: span.segment, offset: span.len };
        let hint = Hint::scan_with(reader, identity, base, end).await;
        Ok((span, hint.map_err(|error| wrong(error.to_string()))?))
    }
}
