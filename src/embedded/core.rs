//! What is under the database's lock: the log, the index, and what is between them.
//!
//! A record is in one of four places, newest first: the open frame; a closed frame, which is being written or moved into
//! the index; the index; the past ([`crate::versions`]). Nothing here waits.

use crate::error::{Error, Failure, Result};
use crate::keys::KeySet;
use crate::limits::{FRAME_RECORDS_MAX, GATHERED_BYTES, STRIPES};
use crate::versions::Versions;
use bytes::Bytes;
use std::collections::VecDeque;
use storage::{
    Applied, ClosedFrame, Compression, Epoch, FrameJob, FrameRoom, Identity, Log, Lookup, OpenFrame, ReadJob, Record,
    Seqno, StorageError, Store,
};

/// There is one writer for ever, so that its logs need no numbers.
pub(crate) const EPOCH: Epoch = Epoch(1);

/// A frame of one large value says nothing about the next one.
const ROOM_BYTES_MAX: usize = GATHERED_BYTES + GATHERED_BYTES / 8;

pub(crate) struct Core {
    /// Not here while a step of compaction has it, or once the database is closed.
    pub(crate) log: Option<Log>,
    pub(crate) store: Store,
    pub(crate) identity: Identity,
    open: Option<OpenFrame>,
    /// For the next open frame, some more than the last one took.
    room: FrameRoom,
    /// Frames of the log that are not in the index, oldest first.
    closed: VecDeque<ClosedFrame>,
    closed_bytes: usize,
    /// A write job is outstanding.
    pub(crate) writing: bool,
    /// A flush beside the writes is outstanding, or the note of one: the log has to stay here for its end.
    pub(crate) flushing: bool,
    /// The last record written, flushed, and in the index.
    pub(crate) written: Seqno,
    pub(crate) durable: Seqno,
    pub(crate) applied: Seqno,
    /// The last change of each group of keys.
    changed: Box<[Seqno; STRIPES]>,
    pub(crate) versions: Versions,
    pub(crate) keys: Option<KeySet>,
    pub(crate) state: State,
    /// So little space is free that puts are refused.
    pub(crate) is_full: bool,
}

/// Whether the database takes calls.
#[derive(Clone, Debug)]
pub(crate) enum State {
    Open,
    /// It answers, and writes nothing.
    ReadOnly,
    Failed(Failure),
    Closed,
}

/// A change to make.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change<'a> {
    pub(crate) record: Record<'a>,
    pub(crate) key_hash: u128,
}

/// Why a change cannot be made now.
pub(crate) enum Refused {
    /// The log is elsewhere and comes back; try again then.
    Away,
    For(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        Refused::For(error)
    }
}

impl From<StorageError> for Refused {
    fn from(error: StorageError) -> Refused {
        Refused::For(error.into())
    }
}

/// A value, or the way to it.
pub(crate) enum Found {
    Ready(Option<Bytes>),
    Read(Box<ReadJob>),
}

impl Core {
    pub(crate) fn new(log: Log, store: Store, keys: Option<KeySet>, state: State) -> Core {
        let head = log.head().mark.seqno;
        Core {
            identity: log.identity(),
            log: Some(log),
            store,
            open: None,
            room: FrameRoom::default(),
            closed: VecDeque::new(),
            closed_bytes: 0,
            writing: false,
            flushing: false,
            written: head,
            durable: head,
            applied: head,
            changed: Box::new([Seqno(0); STRIPES]),
            versions: Versions::default(),
            keys,
            state,
            is_full: false,
        }
    }

    pub(crate) fn check_readable(&self) -> Result<()> {
        match self.state {
            State::Closed => Err(Error::Closed),
            _ => Ok(()),
        }
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        match &self.state {
            State::Open => Ok(()),
            State::ReadOnly => Err(Error::ReadOnly),
            State::Failed(failure) => Err(failure.error()),
            State::Closed => Err(Error::Closed),
        }
    }

    pub(crate) fn has_unflushed(&self) -> bool {
        matches!(self.state, State::Open) && self.written > self.durable
    }

    /// An error while what was appended before waits for room on the device.
    pub(crate) fn check_room(&self) -> Result<()> {
        match self.log.as_ref().is_some_and(Log::is_out_of_space) {
            true => Err(Error::Full { what: "what was written before waits for room".into() }),
            false => Ok(()),
        }
    }

    /// The last record that was appended.
    pub(crate) fn head(&self) -> Seqno {
        let closed = || self.closed.back().map_or(self.applied, |closed| closed.frame.end.mark.seqno);
        self.open.as_ref().map_or_else(closed, OpenFrame::last_seqno)
    }

    /// Appends the changes, all in one frame, and says what the last one's seqno is. They are visible from now on.
    pub(crate) fn append(
        &mut self,
        changes: &[Change<'_>],
        wall_ms: impl Fn() -> u64,
    ) -> std::result::Result<Seqno, Refused> {
        self.check_writable()?;
        self.check_room()?;
        if self.is_full && changes.iter().any(|change| matches!(change.record, Record::Put { .. })) {
            return Err(Error::Full { what: "what is left is kept for compaction, and for deletes".into() }.into());
        }
        let len: usize = changes.iter().map(|change| change.record.encoded_len()).sum();
        let takes = |open: &OpenFrame| open.takes(len) && open.records() + changes.len() <= FRAME_RECORDS_MAX;
        if !self.open.as_ref().is_some_and(takes) {
            self.close_frame(&wall_ms)?;
            let log = self.log.as_ref().ok_or(Refused::Away)?;
            self.open = Some(log.open_frame(len, self.room));
        }
        let open = self.open.as_mut().expect("made above");
        let mut last = Seqno(0);
        for change in changes {
            last = open.push(&change.record, change.key_hash);
            self.changed[stripe(change.key_hash)] = last;
        }
        if open.len() >= GATHERED_BYTES && self.log.is_some() {
            self.close_frame(&wall_ms)?;
        }
        Ok(last)
    }

    /// Appends a record that changes no key, in a frame of its own; with `rolls` that frame begins a segment.
    pub(crate) fn append_control(
        &mut self,
        record: Record<'_>,
        rolls: bool,
        wall_ms: u64,
    ) -> std::result::Result<Seqno, Refused> {
        self.check_writable()?;
        self.close_frame(|| wall_ms)?;
        let log = self.log.as_mut().ok_or(Refused::Away)?;
        if rolls {
            log.roll();
        }
        let frame = log.append(EPOCH, wall_ms, &[record])?;
        let seqno = frame.end.mark.seqno;
        self.push_closed(ClosedFrame::without_keys(frame));
        Ok(seqno)
    }

    /// Hands the open frame to the log.
    pub(crate) fn close_frame(&mut self, wall_ms: impl Fn() -> u64) -> std::result::Result<(), Refused> {
        if self.open.is_none() {
            return Ok(());
        }
        let log = self.log.as_mut().ok_or(Refused::Away)?;
        let open = self.open.take().expect("checked above");
        let closed = log.append_open(open, EPOCH, wall_ms())?;
        let FrameRoom { bytes, records } = closed.room();
        self.room = FrameRoom { bytes: (bytes + bytes / 8).min(ROOM_BYTES_MAX), records: records + records / 8 };
        self.push_closed(closed);
        Ok(())
    }

    fn push_closed(&mut self, closed: ClosedFrame) {
        self.closed_bytes += closed.frame.bytes.len();
        self.closed.push_back(closed);
    }

    pub(crate) fn closed_frames(&self) -> usize {
        self.closed.len()
    }

    pub(crate) fn closed_bytes(&self) -> usize {
        self.closed_bytes
    }

    pub(crate) fn is_gathering(&self) -> bool {
        self.open.is_some()
    }

    /// When the key's group last changed. If it is the same later, the key has not changed.
    pub(crate) fn last_change(&self, key_hash: u128) -> Seqno {
        self.changed[stripe(key_hash)]
    }

    /// The newest value of the key.
    pub(crate) fn find(&self, key: &[u8], key_hash: u128) -> Result<Found> {
        self.check_readable()?;
        if let Some(record) = self.open.as_ref().and_then(|open| open.newest(key, key_hash)) {
            return Ok(Found::Ready(value_of(&record)?));
        }
        match self.find_closed(key, key_hash, Seqno(u64::MAX))? {
            Some(found) => Ok(found),
            None => Ok(self.find_indexed(key, key_hash)),
        }
    }

    /// The key's value at a snapshot.
    pub(crate) fn find_before(&self, key: &[u8], key_hash: u128, snapshot: Seqno) -> Result<Found> {
        self.check_readable()?;
        if let Some(before) = self.versions.before(key, snapshot) {
            let Some(location) = before else { return Ok(Found::Ready(None)) };
            let job = self.store.find_at(Bytes::copy_from_slice(key), key_hash, location);
            return Ok(Found::Read(Box::new(job)));
        }
        match self.find_closed(key, key_hash, snapshot)? {
            Some(found) => Ok(found),
            None => Ok(self.find_indexed(key, key_hash)),
        }
    }

    /// In the frames that are not in the index, up to a frame's end.
    fn find_closed(&self, key: &[u8], key_hash: u128, up_to: Seqno) -> Result<Option<Found>> {
        let frames = self.closed.iter().rev().skip_while(|closed| closed.frame.end.mark.seqno > up_to);
        match frames.filter_map(|closed| closed.newest(key, key_hash)).next() {
            Some(record) => Ok(Some(Found::Ready(value_of(&record)?))),
            None => Ok(None),
        }
    }

    fn find_indexed(&self, key: &[u8], key_hash: u128) -> Found {
        match self.store.find(key, key_hash) {
            Lookup::Ready(entry) => Found::Ready(entry.map(|entry| entry.value)),
            Lookup::Read(job) => Found::Read(job),
        }
    }

    /// Whether the key is known to be absent, so that deleting it needs no record.
    pub(crate) fn is_absent(&self, key: &[u8], key_hash: u128) -> bool {
        matches!(self.find(key, key_hash), Ok(Found::Ready(None)))
    }

    /// Whether the key was written after the snapshot.
    pub(crate) fn is_changed_since(&self, key: &[u8], key_hash: u128, snapshot: Seqno) -> bool {
        let is_after = |closed: &&ClosedFrame| closed.frame.end.mark.seqno > snapshot;
        let mut closed = self.closed.iter().rev().take_while(is_after);
        self.versions.before(key, snapshot).is_some()
            || self.open.as_ref().is_some_and(|open| open.newest(key, key_hash).is_some())
            || closed.any(|closed| closed.newest(key, key_hash).is_some())
    }

    /// Whether a key that `within` takes was written after the snapshot.
    pub(crate) fn is_any_changed_since(
        &self,
        snapshot: Seqno,
        from: std::ops::Bound<&[u8]>,
        within: impl Fn(&[u8]) -> bool,
    ) -> bool {
        let is_after = |closed: &&ClosedFrame| closed.frame.end.mark.seqno > snapshot;
        let closed = self.closed.iter().rev().take_while(is_after);
        let mut in_closed = closed.flat_map(|closed| closed.frame.records()).filter_map(|item| item.record.key());
        let mut in_open = self.open.iter().flat_map(|open| open.keys());
        let mut noted = self.versions.changed_since(snapshot, from).map(|(key, _)| key).take_while(|key| within(key));
        noted.next().is_some() || in_closed.any(&within) || in_open.any(&within)
    }

    /// The next frame to be moved into the index, if it is written and no other one is being moved.
    pub(crate) fn take_frame_job(&mut self) -> Option<FrameJob> {
        let first = self.closed.front().filter(|closed| closed.frame.end.mark.seqno <= self.written)?;
        self.store.frame_job(first)
    }

    pub(crate) fn finish_frame_job(&mut self, job: FrameJob) {
        let (versions, keys) = (&mut self.versions, &mut self.keys);
        let closed = self.closed.pop_front().expect("it was the first");
        self.closed_bytes -= closed.frame.bytes.len();
        self.store.finish_frame(&closed, job, |applied: Applied<'_>| {
            versions.changed(&applied);
            if let Some(keys) = keys {
                match (applied.old, applied.new) {
                    (None, Some(_)) => keys.insert(applied.key),
                    (_, None) => keys.remove(applied.key),
                    (Some(_), Some(_)) => {}
                }
            }
        });
        self.applied = closed.frame.end.mark.seqno;
    }

    /// A write failed: what was not written is gone, and nothing more is taken.
    pub(crate) fn fail(&mut self, failure: Failure) {
        self.open = None;
        let written = self.written;
        self.closed.retain(|closed| closed.frame.end.mark.seqno <= written);
        self.closed_bytes = self.closed.iter().map(|closed| closed.frame.bytes.len()).sum();
        if matches!(self.state, State::Open) {
            self.state = State::Failed(failure);
        }
    }
}

/// A copy: sharing would keep the whole frame for as long as the caller keeps the value.
fn value_of(record: &Record<'_>) -> Result<Option<Bytes>> {
    match *record {
        Record::Put { value, compression: Compression::None, .. } => Ok(Some(Bytes::copy_from_slice(value))),
        Record::Put { value, compression, .. } => {
            let value = compression.unpack(Bytes::copy_from_slice(value));
            Ok(Some(value.expect("it was packed a moment ago")))
        }
        _ => Ok(None),
    }
}

fn stripe(key_hash: u128) -> usize {
    (key_hash >> 32) as usize % STRIPES
}
