//! One replica's log of one region.
//!
//! What it promises: the log is a chain of frames; a frame that [`Log::durable`] covers is there, whole and in its place,
//! after any crash; one that it does not cover is there whole or not at all, and never without those before it. Damage is
//! reported as such and never read as less data.
//!
//! The life of a frame: the primary's [`Log::append`] encodes it at the head, a backup's [`Log::accept`] takes the same
//! bytes if they continue the chain. Both only queue it. [`Log::take_unwritten`] hands everything queued to a
//! [`WriteJob`], which writes it with one call and flushes it if asked, while the log goes on taking frames: that is the
//! group commit. [`Log::finish_write`] moves [`Log::written`] and [`Log::durable`]; the layer above decides what is
//! committed and says so with [`Log::set_committed`]. When a segment is full the next frame begins another one, and a
//! [`SealJob`] writes the hint of the one left.
//!
//! Nothing here waits for a device unless it is `async`, and what waits is a job that owns what it needs, so that the
//! task that drives the region never does.
//!
//! A run of full and committed segments may be compacted into one ([`crate::compaction`]): [`Log::compact_job`] carries out
//! what the log orders, [`Log::switch`] puts the result in the run's place. Marks within the run are then no longer here; a
//! replica that stands there is given the compacted segment itself ([`Chunk::piece`], [`Log::take_piece`]).
//!
//! Missing on purpose: repair of a damaged log from a replica, which the layer above does by learning anew.

use crate::cache::{Buffered, ReadCache};
use crate::compaction::Plan;
use crate::error::{Reject, StorageError};
use crate::files::{FileCache, SegmentHandle};
use crate::frame::{FRAME_HEADER_LEN, Frame, FrameError, FrameHeader, Position, Stamp};
use crate::hint::{Hint, HintBuilder, HintHeader, Usage};
use crate::ids::{Epoch, Mark, RegionId, SegmentId, Seqno};
use crate::index::HashHeap;
use crate::limits::*;
use crate::record::Record;
use crate::recovery::{self, Survey};
use crate::seed::Identity;
use crate::segment::{Next, SegmentReader, hint_path, segment_path};
use crate::state::{self, DurableNote, State};
use crate::write::{WriteJob, Written};
use bytes::Bytes;
use draft::Drafts;
use env::Env;
use flush::Flushing;
use incoming::{Incoming, read_piece};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

mod compact;
mod draft;
mod flush;
mod incoming;
mod open;

pub use flush::{FlushJob, Flushed, NoteJob};
pub use incoming::{Piece, Taken};
pub(crate) use open::KeyChange;
pub use open::{ClosedFrame, FrameRoom, OpenFrame};

/// How a log is opened.
#[derive(Clone)]
pub struct LogOptions {
    /// The cluster's id: a folder of another cluster is refused.
    pub cluster: u128,
    /// Where a segment ends. Only the primary's matters: backups follow it.
    pub segment_bytes: u64,
    /// Shared by the regions of a node.
    pub files: Arc<FileCache>,
    /// Where the regions' indexes lie, shared likewise.
    pub heap: HashHeap,
    /// Their records in memory, shared likewise. It yields to what is in `heap`.
    pub cache: Arc<ReadCache>,
}

impl LogOptions {
    pub fn new(cluster: u128) -> LogOptions {
        let heap = HashHeap::default();
        LogOptions {
            cluster,
            segment_bytes: SEGMENT_BYTES_DEFAULT,
            files: FileCache::new(OPEN_FILES_MAX),
            cache: ReadCache::new(MEMORY_BYTES_DEFAULT, &heap),
            heap,
        }
    }

    /// With so many bytes for the regions' indexes, the frames that logs keep in memory, and cached records.
    pub fn with_memory(self, memory_bytes: usize) -> LogOptions {
        LogOptions { cache: ReadCache::new(memory_bytes, &self.heap), ..self }
    }
}

/// What opening a log found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// There was nothing before.
    pub created: bool,
    /// The log was closed, and ends where it did then.
    pub clean: bool,
    /// The machine started anew since, without a clean stop: what was not flushed may be gone.
    pub power_loss_suspected: bool,
    /// A write or a flush had failed before. What was found was written anew and flushed, but other replicas, where there
    /// are any, know better what this log should hold.
    pub fenced_before: bool,
    /// Bytes of an unfinished write that were cut off the end.
    pub torn_bytes: u64,
    /// The disk is so full that the log's end could not be flushed: it is open for reading only.
    pub read_only: bool,
    /// Where the log ends; all of it is durable now unless `read_only`.
    pub head: Mark,
    /// How far the log is known to have been durable before this start.
    pub durable: Mark,
    /// The highest commit point that the log's frames carry.
    pub committed: Seqno,
    /// Sealed segments without a usable hint, which had to be read.
    pub hints_missing: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStats {
    pub segments: u64,
    /// In segment files, written or not.
    pub bytes: u64,
    pub unwritten_bytes: u64,
    /// Frames kept in memory.
    pub recent_frames: u64,
    pub hints_missing: u64,
    pub fenced: bool,
}

/// Whole frames of a log, or a part of a compacted segment, for a replica that lacks them.
#[derive(Clone, Debug)]
pub struct Chunk {
    pub bytes: Bytes,
    /// Where the next chunk begins.
    pub end: Position,
    /// What the bytes are if they are no frames.
    pub piece: Option<Piece>,
}

/// What a log's jobs share with it.
pub(crate) struct Shared {
    pub(crate) env: Env,
    pub(crate) dir: String,
    pub(crate) identity: Identity,
    pub(crate) files: Arc<FileCache>,
    pub(crate) heap: HashHeap,
    pub(crate) cache: Arc<ReadCache>,
    /// A write or a flush failed, or was abandoned half way: what the disk holds is unknown.
    pub(crate) fenced: AtomicBool,
    /// A write waits for room on the disk.
    pub(crate) out_of_space: AtomicBool,
    pub(crate) handles: RwLock<BTreeMap<SegmentId, Arc<SegmentHandle>>>,
    pins: Mutex<Pins>,
}

/// Held by whoever may read segments that a compaction replaces meanwhile: they stay until it is dropped.
pub(crate) struct Pin {
    /// Switches before it was taken.
    pub(crate) switches: u64,
}

struct Pins {
    current: Arc<Pin>,
    retired: Option<Arc<Retired>>,
}

/// Segments that another one took the place of, and that somebody may still read.
pub(crate) struct Retired {
    /// Whoever holds it may.
    before: Weak<Pin>,
    /// The record that ordered it.
    order: Seqno,
    /// Switches with this one.
    pub(crate) switches: u64,
    pub(crate) inputs: Vec<Segment>,
    pub(crate) output: Segment,
}

impl Shared {
    pub(crate) fn new(env: &Env, dir: &str, region: RegionId, options: LogOptions) -> Arc<Shared> {
        let LogOptions { cluster, files, heap, cache, .. } = options;
        Arc::new(Shared {
            env: env.clone(),
            dir: dir.to_owned(),
            identity: Identity { cluster, region },
            files,
            heap,
            cache,
            fenced: AtomicBool::new(false),
            out_of_space: AtomicBool::new(false),
            handles: RwLock::default(),
            pins: Mutex::new(Pins { current: Arc::new(Pin { switches: 0 }), retired: None }),
        })
    }

    pub(crate) fn pin(&self) -> Arc<Pin> {
        self.pins.lock().current.clone()
    }

    pub(crate) fn retired(&self) -> Option<Arc<Retired>> {
        self.pins.lock().retired.clone()
    }

    fn retire(&self, order: Seqno, inputs: Vec<Segment>, output: Segment) {
        let mut pins = self.pins.lock();
        assert!(pins.retired.is_none(), "a switch waits for the one before it");
        let switches = pins.current.switches + 1;
        let before = Arc::downgrade(&pins.current);
        pins.current = Arc::new(Pin { switches });
        pins.retired = Some(Arc::new(Retired { before, order, switches, inputs, output }));
    }

    pub(crate) fn fence(&self) {
        self.fenced.store(true, Ordering::Release);
    }

    /// [`Shared::fence`], and leaves word for the next start, as far as the disk lets it.
    pub(crate) async fn fence_and_tell(&self, error: &StorageError) {
        tracing::warn!(dir = self.dir, %error, "log is fenced");
        self.fence();
        state::mark_fenced(self.env.disk().as_ref(), &self.dir).await;
    }

    pub(crate) fn check_fence(&self) -> Result<(), StorageError> {
        if self.fenced.load(Ordering::Acquire) { Err(StorageError::Fenced) } else { Ok(()) }
    }

    pub(crate) fn handle(&self, segment: SegmentId) -> Option<Arc<SegmentHandle>> {
        self.handles.read().get(&segment).cloned()
    }

    /// The handle of a segment, made if there is none yet; the file need not exist.
    pub(crate) fn add_handle(&self, segment: SegmentId) -> Arc<SegmentHandle> {
        let make =
            || SegmentHandle::new(self.env.disk().clone(), self.files.clone(), &self.dir, &self.identity, segment);
        self.handles.write().entry(segment).or_insert_with(make).clone()
    }
}

/// A segment as the log knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    /// The log before it.
    pub(crate) base: Mark,
    /// Its last frame's end, appended but perhaps not yet written.
    pub(crate) end: Position,
    pub(crate) hint: bool,
    /// What its bytes are, where its hint has told.
    pub(crate) usage: Option<Usage>,
    /// Number of the last segment that it stands for: its own, if it was not compacted.
    pub(crate) last: u64,
}

impl Segment {
    /// One that frames are appended to.
    pub(crate) fn appended(base: Mark, end: Position) -> Segment {
        Segment { base, end, hint: false, usage: None, last: end.segment.number() }
    }

    pub(crate) fn hinted(hint: &HintHeader, last: u64) -> Segment {
        Segment { base: hint.base, end: hint.end, hint: true, usage: Some(hint.usage), last }
    }

    pub(crate) fn id(&self) -> SegmentId {
        self.end.segment
    }

    pub(crate) fn start(&self) -> Position {
        Position::beginning(self.id(), self.base)
    }

    /// Its end as the place where the next frame goes: nothing is appended to a compacted segment. No other position
    /// lies in a compacted segment but those of pieces that are sent.
    pub(crate) fn end_as_head(&self) -> Position {
        match self.id().is_compacted() {
            true => Position::beginning(SegmentId(self.last + 1), self.end.mark),
            false => self.end,
        }
    }

    fn holds_inside(&self, seqno: Seqno) -> bool {
        self.base.seqno < seqno && seqno < self.end.mark.seqno
    }

    fn is_same(&self, other: &Segment) -> bool {
        (self.base, self.end, self.last) == (other.base, other.end, other.last)
    }
}

/// A compaction that the log orders.
#[derive(Clone, Debug)]
pub(crate) struct Ordered {
    pub(crate) seqno: Seqno,
    pub(crate) plan: Plan,
}

pub struct Log {
    pub(crate) shared: Arc<Shared>,
    segment_bytes: u64,
    /// The next frame begins a segment, see [`Log::roll`].
    rolls: bool,
    epoch: Epoch,
    pub(crate) segments: BTreeMap<SegmentId, Segment>,
    head: Position,
    written: Position,
    durable: Position,
    committed: Seqno,
    /// Ends of the frames after the commit point, and the last end at or before it where known.
    marks: VecDeque<Position>,
    /// The newest frames: all that are not written, and as many others as the bound allows.
    recent: VecDeque<Frame>,
    recent_bytes: usize,
    /// Those of the recent frames, for the cache to yield to.
    buffered: Buffered,
    queued: Vec<Frame>,
    queued_bytes: usize,
    /// Bytes handed to the outstanding job.
    writing_bytes: usize,
    flushing: Flushing,
    /// Not here while a job is outstanding.
    note: Option<DurableNote>,
    /// Hints of the segments whose frames were filled here.
    drafts: Drafts,
    /// Compactions not yet carried out, oldest first.
    ordered: VecDeque<Ordered>,
    /// All ordered up to here were, and left nothing behind.
    carried_out: Seqno,
    /// The compacted segment that is being received.
    incoming: Option<Incoming>,
}

/// What recovery hands over to make a [`Log`].
pub(crate) struct Recovered {
    pub(crate) shared: Arc<Shared>,
    pub(crate) epoch: Epoch,
    pub(crate) segments: BTreeMap<SegmentId, Segment>,
    pub(crate) head: Position,
    pub(crate) durable: Position,
    pub(crate) committed: Seqno,
    pub(crate) marks: VecDeque<Position>,
    pub(crate) note: DurableNote,
    pub(crate) ordered: VecDeque<Ordered>,
    pub(crate) carried_out: Seqno,
}

impl Log {
    /// Opens the log in the folder `dir`, or makes an empty one there, and recovers from whatever stop came before.
    pub async fn open(
        env: &Env,
        dir: &str,
        region: RegionId,
        options: LogOptions,
    ) -> Result<(Log, Recovery), StorageError> {
        let segment_bytes = options.segment_bytes;
        if !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&segment_bytes) {
            return Err(StorageError::invalid(format!(
                "segments of {segment_bytes} bytes, {SEGMENT_BYTES_MIN} to {SEGMENT_BYTES_MAX} are allowed"
            )));
        }
        let shared = Shared::new(env, dir, region, options);
        let (recovered, recovery) = recovery::recover(shared).await?;
        Ok((Log::from_recovered(recovered, segment_bytes), recovery))
    }

    /// A log as it was found, for checks: it is fenced.
    pub(crate) fn for_reading(shared: Arc<Shared>, survey: Survey, note: DurableNote) -> Log {
        shared.fence();
        let Survey { segments, head, epoch, committed, marks, .. } = survey;
        let recovered = Recovered {
            shared,
            epoch,
            segments,
            head,
            durable: head,
            committed,
            marks,
            note,
            ordered: VecDeque::new(),
            carried_out: Seqno(0),
        };
        Log::from_recovered(recovered, SEGMENT_BYTES_DEFAULT)
    }

    fn from_recovered(recovered: Recovered, segment_bytes: u64) -> Log {
        Log {
            buffered: Buffered::new(&recovered.shared.cache),
            shared: recovered.shared,
            segment_bytes,
            rolls: false,
            epoch: recovered.epoch,
            segments: recovered.segments,
            head: recovered.head,
            written: recovered.head,
            durable: recovered.durable,
            committed: recovered.committed,
            marks: recovered.marks,
            recent: VecDeque::new(),
            recent_bytes: 0,
            queued: Vec::new(),
            queued_bytes: 0,
            writing_bytes: 0,
            flushing: Flushing::Nothing,
            note: Some(recovered.note),
            drafts: Drafts::default(),
            ordered: recovered.ordered,
            carried_out: recovered.carried_out,
            incoming: None,
        }
    }

    pub fn region(&self) -> RegionId {
        self.shared.identity.region
    }

    pub fn identity(&self) -> Identity {
        self.shared.identity
    }

    /// The highest epoch persisted here.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Durable before return. Going back is refused. On a full disk it may be tried again.
    pub async fn persist_epoch(&mut self, epoch: Epoch) -> Result<(), StorageError> {
        self.shared.check_fence()?;
        if epoch < self.epoch {
            return Err(StorageError::invalid(format!("epoch {epoch} after {}", self.epoch)));
        }
        if epoch == self.epoch {
            return Ok(());
        }
        let state = State { epoch, ..self.state() };
        let stored = state.store(self.shared.env.disk().as_ref(), &self.shared.dir, &self.shared.identity).await;
        self.fence_unless_full(stored).await?;
        self.epoch = epoch;
        Ok(())
    }

    fn state(&self) -> State {
        let boot_id = self.shared.env.disk().boot_id();
        State { epoch: self.epoch, boot_id, carried_out: self.carried_out }
    }

    /// The end of what was appended, written or not.
    pub fn head(&self) -> Position {
        self.head
    }

    /// What was appended waits for room on the disk: nothing more should be. Reads go on.
    pub fn is_out_of_space(&self) -> bool {
        self.shared.out_of_space.load(Ordering::Relaxed)
    }

    /// Fences the log, so that a write that waits for room ends. What it was to write may be there or not.
    pub fn give_up(&self) {
        self.shared.fence();
    }

    pub fn written(&self) -> Mark {
        self.written.mark
    }

    pub fn durable(&self) -> Mark {
        self.durable.mark
    }

    pub fn committed(&self) -> Seqno {
        self.committed
    }

    /// The commit point never goes back, and never past the head.
    pub fn set_committed(&mut self, committed: Seqno) {
        assert!(committed <= self.head.mark.seqno, "commit point {committed} past the head {:?}", self.head);
        self.committed = self.committed.max(committed);
        while self.marks.len() > 1 && self.marks[1].mark.seqno <= self.committed {
            self.marks.pop_front();
        }
    }

    /// Primary: appends `records` as one frame, atomic in every crash. Only queues it for writing.
    pub fn append(&mut self, epoch: Epoch, wall_ms: u64, records: &[Record<'_>]) -> Result<Frame, StorageError> {
        self.shared.check_fence()?;
        let length = self.frame_length(records)?;
        if self.queued_bytes + self.writing_bytes + length > UNWRITTEN_BYTES_MAX {
            return Err(StorageError::Busy);
        }
        let start = self.next_start(length);
        let seeds = self.shared.identity.seeds(start.segment);
        let stamp = Stamp { epoch, committed: self.committed, wall_ms };
        let frame = Frame::encode(records, length, stamp, &seeds, start);
        let ordered = compactions(&frame).map_err(StorageError::invalid)?;
        self.push(frame.clone());
        self.ordered.extend(ordered);
        Ok(frame)
    }

    fn frame_length(&self, records: &[Record<'_>]) -> Result<usize, StorageError> {
        if records.is_empty() || records.len() > FRAME_RECORDS_MAX {
            return Err(StorageError::invalid(format!(
                "{} records in a frame, 1 to {FRAME_RECORDS_MAX} are allowed",
                records.len()
            )));
        }
        let mut length = FRAME_HEADER_LEN;
        for record in records {
            record.check().map_err(StorageError::invalid)?;
            length += record.encoded_len();
        }
        if length > FRAME_BYTES_MAX {
            return Err(StorageError::invalid(format!(
                "frame of {length} bytes, at most {FRAME_BYTES_MAX} are allowed"
            )));
        }
        Ok(length)
    }

    /// Backup: takes the one frame that fills `bytes` if it continues the log. Only queues it for writing.
    pub fn accept(&mut self, bytes: Bytes) -> Result<Frame, Reject> {
        self.shared.check_fence().map_err(|_| Reject::Fenced)?;
        let header = FrameHeader::peek(&bytes).map_err(corrupt)?;
        if bytes.len() > FRAME_BYTES_MAX || self.queued_bytes + self.writing_bytes + bytes.len() > UNWRITTEN_BYTES_MAX {
            return Err(Reject::TooLarge { bytes: bytes.len() as u64 });
        }
        self.check_place(&header)?;
        let rolls = header.begins_segment && !self.head.begins_segment();
        let start = if rolls { self.head.rolled() } else { self.head };
        let frame = match Frame::decode(bytes, &self.shared.identity, start) {
            Ok(frame) => frame,
            Err(FrameError::NewerFormat(found)) => return Err(Reject::NewerFormat { found: found as u32, known: 1 }),
            Err(error) => return Err(corrupt(error)),
        };
        let ordered = compactions(&frame).map_err(|what| Reject::Corrupt { what: what.into() })?;
        self.push(frame.clone());
        self.ordered.extend(ordered);
        Ok(frame)
    }

    /// Whether the frame comes next, by its header alone.
    fn check_place(&self, header: &FrameHeader) -> Result<(), Reject> {
        let (first, last) = (header.first_seqno, header.last_seqno());
        let head = self.head.mark;
        if first > head.seqno.next() {
            return Err(Reject::Gap { expected: head.seqno.next().0, found: first.0 });
        }
        if first == head.seqno.next() {
            let continues = header.prev == head.checksum;
            return if continues { Ok(()) } else { Err(Reject::Diverges { first_seqno: first.0 }) };
        }
        // All replicas hold the same up to the commit point; past it the log's own marks tell.
        let known = last <= self.committed || self.marks.iter().any(|end| end.mark == header.mark());
        if known {
            Err(Reject::Duplicate { last_seqno: last.0 })
        } else {
            Err(Reject::Diverges { first_seqno: first.0 })
        }
    }

    fn push(&mut self, frame: Frame) {
        let end = frame.end;
        let base = frame.start.mark;
        self.shared.add_handle(end.segment);
        self.segments.entry(end.segment).or_insert(Segment::appended(base, end)).end = end;
        self.head = end;
        self.rolls = false;
        self.marks.push_back(end);
        self.drafts.add(&self.shared.identity, &frame);
        self.queued_bytes += frame.bytes.len();
        self.queued.push(frame.clone());
        self.recent_bytes += frame.bytes.len();
        self.recent.push_back(frame);
        self.trim_recent();
    }

    fn trim_recent(&mut self) {
        while self.recent_bytes > RECENT_BYTES_MAX {
            let oldest = self.recent.front().expect("they have bytes");
            if oldest.end.mark.seqno > self.written.mark.seqno {
                break;
            }
            self.recent_bytes -= oldest.bytes.len();
            self.recent.pop_front();
        }
        self.buffered.set(self.recent_bytes + self.drafts.bytes());
    }

    /// Everything queued since the last time, to be written. `None` if that is nothing, or while a job is outstanding. While
    /// a [`FlushJob`] is, only what that lets pass, and not to be flushed.
    pub fn take_unwritten(&mut self) -> Option<WriteJob> {
        if self.writable() == 0 { None } else { self.take_job() }
    }

    /// Like [`Log::take_unwritten`], but also when all is written and only a flush is wanting. `None` while a [`FlushJob`] is
    /// outstanding.
    pub fn take_unflushed(&mut self) -> Option<WriteJob> {
        let nothing = self.queued.is_empty() && self.written == self.durable;
        if nothing || self.is_flushing() { None } else { self.take_job() }
    }

    fn take_job(&mut self) -> Option<WriteJob> {
        self.shared.check_fence().ok()?;
        let note = self.note.take()?;
        let left = self.queued.split_off(self.writable());
        let frames = std::mem::replace(&mut self.queued, left);
        self.writing_bytes = frames.iter().map(|frame| frame.bytes.len()).sum();
        self.queued_bytes -= self.writing_bytes;
        if !self.is_flushing() {
            self.flushing = Flushing::WriteJob;
        }
        Some(WriteJob::new(self.shared.clone(), note, frames, self.written))
    }

    pub fn finish_write(&mut self, written: Written) {
        assert!(self.note.is_none(), "no job was outstanding");
        self.note = Some(written.note);
        if !self.is_flushing() {
            self.flushing = Flushing::Nothing;
        }
        self.writing_bytes = 0;
        self.written = written.written;
        if let Some(durable) = written.durable {
            self.durable = durable;
        }
        self.trim_recent();
    }

    /// Bytes appended and not yet written.
    pub fn unwritten_bytes(&self) -> usize {
        self.queued_bytes + self.writing_bytes
    }

    /// The next sealed and durable segment without a hint.
    pub fn take_seal(&self) -> Option<SealJob> {
        let durable = |segment: &Segment| segment.end.mark.seqno <= self.durable.mark.seqno;
        let mut sealed = self.segments.range(..self.head.segment);
        let (_, &segment) = sealed.find(|(_, segment)| !segment.hint && durable(segment))?;
        Some(SealJob { _pin: self.shared.pin(), shared: self.shared.clone(), segment, draft: None })
    }

    /// [`Log::take_seal`] that need not read the segment if its hint was noted as it was written.
    pub fn take_drafted_seal(&mut self) -> Option<SealJob> {
        let mut job = self.take_seal()?;
        job.draft = self.drafts.take(job.segment.id());
        self.buffered.set(self.recent_bytes + self.drafts.bytes());
        Some(job)
    }

    /// Remembers that the hint is there, unless the segment was cut meanwhile.
    pub fn finish_seal(&mut self, sealed: Sealed) {
        if let Some(segment) = self.segments.get_mut(&sealed.end.segment)
            && segment.end == sealed.end
        {
            segment.hint = true;
            segment.usage = Some(sealed.usage);
        }
    }

    /// The marks of the frames after `from`, or after the commit point if `from` lies before it.
    pub fn tail_marks(&self, from: Seqno) -> Vec<Mark> {
        let from = from.max(self.committed);
        self.marks.iter().map(|end| end.mark).filter(|mark| mark.seqno > from).collect()
    }

    /// The last known frame end at or before the commit point, then every one after it: what tells a primary where its log
    /// and this one part. [`Mark::ZERO`] stands for the beginning.
    pub fn standing(&self) -> Vec<Mark> {
        self.marks.iter().map(|end| end.mark).collect()
    }

    /// The frame end that `mark` names, if this log has it.
    pub async fn find(&self, mark: Mark) -> Result<Option<Position>, StorageError> {
        if mark == Mark::ZERO {
            return Ok(Some(Position::ZERO));
        }
        let known = self.marks.iter().chain(self.recent.iter().map(|frame| &frame.end));
        if let Some(&end) = known.into_iter().find(|end| end.mark == mark) {
            return Ok(Some(end));
        }
        let holds = |segment: &&Segment| segment.base.seqno < mark.seqno && mark.seqno <= segment.end.mark.seqno;
        let Some(&segment) = self.segments.values().find(holds) else { return Ok(None) };
        if segment.end.mark == mark {
            return Ok(Some(segment.end_as_head()));
        }
        if segment.id().is_compacted() {
            return Ok(None);
        }
        // Frames that are not written are all in `recent`.
        let written = if segment.end.segment == self.written.segment { self.written } else { segment.end };
        if segment.end.segment > self.written.segment || mark.seqno > written.mark.seqno {
            return Ok(None);
        }
        self.find_in_file(segment.base, written, mark).await
    }

    async fn find_in_file(&self, base: Mark, end: Position, mark: Mark) -> Result<Option<Position>, StorageError> {
        let handle = self.shared.add_handle(end.segment);
        let file = handle.file().await?;
        let identity = &self.shared.identity;
        let mut reader = SegmentReader::open(file, &handle.path, identity, end.segment, Some(end.offset)).await?;
        let mut at = Position::beginning(end.segment, base);
        while at.mark.seqno < mark.seqno {
            match reader.next(at).await? {
                Next::Frame(frame) => at = frame.end,
                Next::End => return Ok(None),
                Next::Bad(error) => return Err(reader.corrupt(at.offset, error.to_string())),
            }
        }
        Ok((at.mark == mark).then_some(at))
    }

    /// The last of a follower's marks, in log order and the first of them committed, that this log holds. Where that first
    /// one lies in a span that was compacted here: the span's beginning, which the follower has too.
    pub async fn find_common(&self, tail: &[Mark]) -> Result<Option<Position>, StorageError> {
        for &mark in tail.iter().rev() {
            if let Some(position) = self.find(mark).await? {
                return Ok(Some(position));
            }
        }
        let Some(first) = tail.first() else { return Ok(None) };
        let mut compacted = self.segments.values().filter(|segment| segment.id().is_compacted());
        match compacted.find(|segment| segment.holds_inside(first.seqno)) {
            Some(segment) => self.find(segment.base).await,
            None => Ok(None),
        }
    }

    /// Whole frames from `from` on, up to `bytes_max` bytes but at least one; empty at the head. From the beginning of a
    /// compacted span on, pieces of its segment.
    pub async fn read_chunk(&self, from: Position, bytes_max: usize) -> Result<Chunk, StorageError> {
        self.chunk_job(from, bytes_max).run().await
    }

    /// [`Log::read_chunk`] as a job that does not borrow the log.
    pub fn chunk_job(&self, from: Position, bytes_max: usize) -> ChunkJob {
        let shared = self.shared.clone();
        let from_memory = self.recent.partition_point(|frame| frame.start.mark.seqno < from.mark.seqno);
        let mut frames = Vec::new();
        let mut bytes = 0;
        for frame in self.recent.range(from_memory..) {
            if !frames.is_empty() && bytes + frame.bytes.len() > bytes_max {
                break;
            }
            bytes += frame.bytes.len();
            frames.push(frame.clone());
        }
        let in_memory = frames.first().is_some_and(|frame| frame.start.mark.seqno == from.mark.seqno);
        if in_memory || from.mark == self.head.mark {
            let source = ChunkSource::Memory(frames);
            return ChunkJob { _pin: self.shared.pin(), shared, from, bytes_max, source };
        }
        let next = self.segments.values().find(|segment| segment.end.mark.seqno > from.mark.seqno);
        let source = match next {
            Some(segment) if segment.id().is_compacted() => {
                let begun = from.segment == segment.id() && from.mark == segment.base;
                let offset = if begun { from.offset } else { 0 };
                let before = if offset == 0 { self.before(segment.id()) } else { Vec::new() };
                ChunkSource::Piece { segment: *segment, offset, before: before.iter().map(Segment::id).collect() }
            }
            Some(segment) if from.mark == segment.base => {
                ChunkSource::File { start: segment.start(), end: self.written_end(segment) }
            }
            Some(segment) => ChunkSource::File { start: from, end: self.written_end(segment) },
            None => ChunkSource::Memory(Vec::new()),
        };
        ChunkJob { _pin: self.shared.pin(), shared, from, bytes_max, source }
    }

    /// The last known frame end at or before the commit point.
    pub(crate) fn commit_end(&self) -> Position {
        let end = *self.marks.front().expect("never empty");
        assert!(end.mark.seqno <= self.committed, "marks begin at {end:?}, after the commit point {}", self.committed);
        end
    }

    pub(crate) fn unwritten(&self) -> Vec<Frame> {
        let unwritten = |frame: &&Frame| frame.end.mark.seqno > self.written.mark.seqno;
        self.recent.iter().filter(unwritten).cloned().collect()
    }

    pub(crate) fn written_end(&self, segment: &Segment) -> Position {
        if segment.end.segment == self.written.segment { self.written } else { segment.end }
    }

    /// Cuts everything after `to`, a frame end of this log, durably. Never below the commit point.
    pub async fn truncate(&mut self, to: Position) -> Result<(), StorageError> {
        if to.mark.seqno < self.committed {
            return Err(StorageError::invalid(format!(
                "cut at {} below commit point {}",
                to.mark.seqno, self.committed
            )));
        }
        self.rewind(to).await
    }

    /// A learner goes back to `to`, a frame end of this log: drops all frames after it, whatever was committed, because
    /// they come again in another form. The epoch stays.
    pub async fn rewind(&mut self, to: Position) -> Result<(), StorageError> {
        self.shared.check_fence()?;
        if self.note.is_none() {
            return Err(StorageError::invalid("cut while a write is outstanding"));
        }
        if self.is_flushing() {
            return Err(StorageError::invalid("cut while a flush is outstanding"));
        }
        if self.find(to.mark).await? != Some(to) {
            return Err(StorageError::invalid(format!("cut at {to:?}, which is no frame end of this log")));
        }
        self.cut(to).await
    }

    /// A learner starts from nothing.
    pub async fn reset(&mut self) -> Result<(), StorageError> {
        self.rewind(Position::ZERO).await
    }

    async fn cut(&mut self, to: Position) -> Result<(), StorageError> {
        if to.mark.seqno < self.committed {
            let forgotten = self.forget_compactions(to).await;
            self.fence_on_error(forgotten).await?;
        }
        self.committed = self.committed.min(to.mark.seqno);
        self.forget_incoming().await;
        self.cut_memory(to);
        if to.mark.seqno < self.written.mark.seqno {
            let cut = self.cut_files(to).await;
            self.fence_on_error(cut).await?;
        }
        Ok(())
    }

    fn cut_memory(&mut self, to: Position) {
        let after = |end: &Position| end.mark.seqno > to.mark.seqno;
        self.marks.retain(|end| !after(end));
        if self.marks.is_empty() {
            self.marks.push_back(to);
        }
        self.recent.retain(|frame| !after(&frame.end));
        self.recent_bytes = self.recent.iter().map(|frame| frame.bytes.len()).sum();
        self.drafts.cut(to.segment);
        self.buffered.set(self.recent_bytes + self.drafts.bytes());
        self.queued.retain(|frame| !after(&frame.end));
        self.queued_bytes = self.queued.iter().map(|frame| frame.bytes.len()).sum();
        self.ordered.retain(|ordered| ordered.seqno <= to.mark.seqno);
        self.head = to;
        // Segments that were never written have no file to cut.
        let written = self.written.segment;
        let empty = to.begins_segment() && self.written.mark.seqno <= to.mark.seqno;
        self.drop_segments(|id| (id > to.segment && id > written) || (empty && id == to.segment));
        if let Some(last) = self.segments.get_mut(&to.segment) {
            last.end = to;
        }
    }

    fn drop_segments(&mut self, dropped: impl Fn(SegmentId) -> bool) {
        self.segments.retain(|&id, _| !dropped(id));
        self.shared.handles.write().retain(|&id, _| !dropped(id));
    }

    /// The note first: a crash half way must leave a log that is too long, not one that seems to have lost its end.
    async fn cut_files(&mut self, to: Position) -> Result<(), StorageError> {
        let (shared, disk) = (self.shared.clone(), self.shared.env.disk().clone());
        let dir = &shared.dir;
        let note = self.note.as_mut().expect("no job is outstanding");
        let noted = if to.mark.seqno < self.durable.mark.seqno { to } else { self.durable };
        note.lower(disk.as_ref(), noted).await?;
        let later: Vec<SegmentId> = self.segments.keys().copied().filter(|&id| id > to.segment).collect();
        // Each for good before the next: a power loss may undo removals in any order, and a gap would be corruption.
        for &id in later.iter().rev() {
            state::remove_if_present(disk.as_ref(), &hint_path(dir, id)).await?;
            state::remove_if_present(disk.as_ref(), &segment_path(dir, id)).await?;
            state::sync_dir(disk.as_ref(), dir).await?;
        }
        self.drop_segments(|id| id > to.segment);
        state::remove_if_present(disk.as_ref(), &hint_path(dir, to.segment)).await?;
        if to.begins_segment() {
            state::remove_if_present(disk.as_ref(), &segment_path(dir, to.segment)).await?;
            self.drop_segments(|id| id == to.segment);
            state::sync_dir(disk.as_ref(), dir).await?;
        } else {
            state::sync_dir(disk.as_ref(), dir).await?;
            self.shorten(to).await?;
        }
        self.written = to;
        self.durable = to;
        let note = self.note.as_mut().expect("no job is outstanding");
        note.advance(disk.as_ref(), to).await;
        Ok(())
    }

    async fn shorten(&mut self, to: Position) -> Result<(), StorageError> {
        let segment = self.segments.get_mut(&to.segment).expect("holds the frame that ends there");
        (segment.hint, segment.usage) = (false, None);
        let handle = self.shared.add_handle(to.segment);
        let file = handle.file().await?;
        file.truncate(to.offset).await.map_err(|error| StorageError::io("cut", &handle.path, error))?;
        file.sync_data().await.map_err(|error| StorageError::io("flush", &handle.path, error))
    }

    pub(crate) async fn fence_on_error<T>(&self, result: Result<T, StorageError>) -> Result<T, StorageError> {
        if let Err(error) = &result {
            self.shared.fence_and_tell(error).await;
        }
        result
    }

    /// [`Log::fence_on_error`] for what changes nothing where there is no room for it, and may be tried again.
    pub(crate) async fn fence_unless_full<T>(&self, result: Result<T, StorageError>) -> Result<T, StorageError> {
        match result {
            Err(StorageError::Full { .. }) => result,
            _ => self.fence_on_error(result).await,
        }
    }

    /// A clean stop: flushes everything, writes the hints that are missing, and leaves a mark that says so.
    pub async fn close(mut self) -> Result<(), StorageError> {
        self.shared.check_fence()?;
        if self.note.is_none() {
            return Err(StorageError::invalid("closed while a write is outstanding"));
        }
        if let Some(job) = self.take_unflushed() {
            let written = job.run(true).await?;
            self.finish_write(written);
        }
        while let Some(job) = self.take_drafted_seal() {
            match job.run().await {
                Ok(sealed) => self.finish_seal(sealed),
                // A hint is a convenience: the stop is clean without it.
                Err(error) => {
                    tracing::warn!(dir = self.shared.dir, %error, "could not write a hint");
                    break;
                }
            }
        }
        self.remove_retired().await?;
        self.forget_incoming().await;
        self.note.as_mut().expect("no job is outstanding").settle().await;
        let disk = self.shared.env.disk().as_ref();
        state::store_clean(disk, &self.shared.dir, &self.shared.identity, self.head).await
    }

    pub fn stats(&self) -> LogStats {
        let sealed = self.segments.range(..self.head.segment);
        LogStats {
            segments: self.segments.len() as u64,
            bytes: self.segments.values().map(|segment| segment.end.offset).sum(),
            unwritten_bytes: self.unwritten_bytes() as u64,
            recent_frames: self.recent.len() as u64,
            hints_missing: sealed.filter(|(_, segment)| !segment.hint).count() as u64,
            fenced: self.shared.check_fence().is_err(),
        }
    }
}

/// The compactions that a frame orders.
pub(crate) fn compactions(frame: &Frame) -> Result<Vec<Ordered>, &'static str> {
    if !frame.has_control {
        return Ok(Vec::new());
    }
    let plans = frame.records().filter_map(|item| Some((item.seqno, Plan::of(&item.record)?)));
    plans.map(|(seqno, plan)| Ok(Ordered { seqno, plan: plan? })).collect()
}

fn corrupt(error: FrameError) -> Reject {
    Reject::Corrupt { what: error.to_string() }
}

/// Reads a chunk; see [`Log::read_chunk`].
pub struct ChunkJob {
    _pin: Arc<Pin>,
    shared: Arc<Shared>,
    from: Position,
    bytes_max: usize,
    source: ChunkSource,
}

enum ChunkSource {
    Memory(Vec<Frame>),
    /// Frames of one segment.
    File {
        start: Position,
        end: Position,
    },
    /// A compacted segment's file from `offset` on.
    Piece {
        segment: Segment,
        offset: u64,
        /// The segments before, with the first piece.
        before: Vec<SegmentId>,
    },
}

impl ChunkJob {
    pub async fn run(self) -> Result<Chunk, StorageError> {
        let frames = match self.source {
            ChunkSource::Memory(frames) => frames,
            ChunkSource::File { start, end } => read_frames(&self.shared, start, end, self.bytes_max).await?,
            ChunkSource::Piece { segment, offset, before } => {
                let begins = offset > 0 || self.from.mark == segment.base;
                if !begins {
                    return Err(StorageError::invalid(format!("read from {:?}, which was compacted", self.from)));
                }
                return read_piece(&self.shared, segment, (offset, before), self.bytes_max).await;
            }
        };
        if let Some(first) = frames.first()
            && first.start.mark != self.from.mark
        {
            return Err(StorageError::invalid(format!("read from {:?}, which is not in this log", self.from)));
        }
        let end = frames.last().map_or(self.from, |frame| frame.end);
        let bytes = match frames.as_slice() {
            [one] => one.bytes.clone(),
            many => many.iter().map(|frame| frame.bytes.as_ref()).collect::<Vec<_>>().concat().into(),
        };
        Ok(Chunk { bytes, end, piece: None })
    }
}

pub(crate) async fn read_frames(
    shared: &Shared,
    start: Position,
    end: Position,
    bytes_max: usize,
) -> Result<Vec<Frame>, StorageError> {
    let handle = shared.add_handle(end.segment);
    let file = handle.file().await?;
    let len = Some(end.offset);
    let mut reader = SegmentReader::open(file, &handle.path, &shared.identity, end.segment, len).await?;
    let mut frames: Vec<Frame> = Vec::new();
    let mut bytes = 0;
    let mut at = start;
    loop {
        match reader.next(at).await? {
            Next::Frame(frame) => {
                bytes += frame.bytes.len();
                if !frames.is_empty() && bytes > bytes_max {
                    return Ok(frames);
                }
                at = frame.end;
                frames.push(frame);
            }
            Next::End => return Ok(frames),
            Next::Bad(error) => return Err(reader.corrupt(at.offset, error.to_string())),
        }
    }
}

/// Writes the hint of a sealed segment; see [`Log::take_seal`].
pub struct SealJob {
    _pin: Arc<Pin>,
    shared: Arc<Shared>,
    segment: Segment,
    /// What its hint is to say, if its frames were filled here.
    draft: Option<HintBuilder>,
}

/// A hint was written.
pub struct Sealed {
    end: Position,
    usage: Usage,
}

impl SealJob {
    pub async fn run(self) -> Result<Sealed, StorageError> {
        let Segment { base, end, .. } = self.segment;
        let hint = match self.draft {
            Some(draft) => draft.finish(end),
            None => Hint::scan(&self.shared.add_handle(end.segment), &self.shared.identity, base, end).await?,
        };
        hint.store(self.shared.env.disk().as_ref(), &self.shared.dir, &self.shared.identity).await?;
        Ok(Sealed { end, usage: hint.header.usage })
    }
}

/// Removes a region's folder and all in it.
pub async fn destroy(env: &Env, dir: &str) -> Result<(), StorageError> {
    let disk = env.disk();
    disk.remove_dir(dir).await.map_err(|error| StorageError::io("remove folder", dir, error))?;
    let parent = dir.rsplit_once('/').map_or("", |(parent, _)| parent);
    match disk.sync_dir(parent).await {
        // Neither was there.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        synced => synced.map_err(|error| StorageError::io("flush folder", parent, error)),
    }
}

#[cfg(test)]
mod tests;
