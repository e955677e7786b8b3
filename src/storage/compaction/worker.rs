//! Writing a run's needed records to a new file, away from the log that goes on.
//!
//! The file and its hint have temporary names, their own to the job: nothing takes them for a segment and its hint until
//! [`crate::Log::switch`] gives them those names. A job, or its output, may be dropped at any time; what it leaves is removed
//! when the log is next opened.

use crate::compaction::{Bitmap, Plan, is_plan};
use crate::error::StorageError;
use crate::frame::{Frame, FrameRecord, Position, SparseBuilder};
use crate::hint::{Hint, HintBuilder};
use crate::ids::SegmentId;
use crate::limits::{COMPACT_FRAME_BYTES, COMPACT_RECORDS_MAX, SCAN_BLOCK_BYTES};
use crate::log::{Pin, Segment, Shared};
use crate::record::Record;
use crate::seed::Seeds;
use crate::segment::{Next, SegmentReader, hint_path, segment_path};
use crate::span::{SPAN_HEADER_LEN, Span};
use crate::state::{self, TEMP_SUFFIX};
use env::{Env, File, Instant, OpenMode};
use std::sync::Arc;
use std::time::Duration;
use xxhash_rust::xxh3::Xxh3Default;

/// Consecutive segments of a log, as they were when somebody looked.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) inputs: Vec<Segment>,
}

impl Run {
    pub(crate) fn first(&self) -> &Segment {
        self.inputs.first().expect("a run is not empty")
    }

    pub(crate) fn last(&self) -> &Segment {
        self.inputs.last().expect("a run is not empty")
    }

    /// The segment that its compaction makes.
    pub(crate) fn output(&self) -> SegmentId {
        let generation = self.inputs.iter().map(|input| input.id().generation()).max().expect("a run is not empty");
        SegmentId::compacted(self.first().id().number(), generation + 1)
    }
}

/// Which records of a run are kept.
pub(crate) enum Keep {
    /// Those that a plan lists.
    Listed(Plan),
    /// To be decided.
    Needed(Needed),
}

/// What decides which records are kept, where the index has had its say.
pub(crate) struct Needed {
    /// Puts in the index; tombstones that are the newest of their key in the run; session records remembered.
    pub(crate) marked: Bitmap,
    /// Hashes of which no segment before the run holds a record: nothing needs to be hidden there.
    pub(crate) nothing_older: env::HashSet<u128>,
    /// Puts that expire at this time or before are as good as tombstones.
    pub(crate) wall_ms: u64,
}

/// Compacts a run; see [`crate::Log::compact_job`].
pub struct CompactJob {
    shared: Arc<Shared>,
    /// The run's segments stay until it is done.
    _pin: Arc<Pin>,
    run: Run,
    keep: Keep,
    bytes_per_second: Option<u64>,
}

/// A file that holds what is needed of a run, flushed.
#[must_use]
pub struct Output {
    shared: Arc<Shared>,
    pub(crate) run: Run,
    pub(crate) span: Span,
    pub(crate) path: String,
    pub(crate) hint: Hint,
    /// Where the hint is written.
    pub(crate) hint_path: String,
    records: u64,
    kept: Bitmap,
}

impl Output {
    /// The command for all replicas to make the same.
    pub fn plan(&self) -> Plan {
        Plan {
            first: self.run.first().id(),
            last: self.run.last().id(),
            output: self.span.segment,
            base: self.span.base,
            end: self.span.end,
            len: self.span.len,
            checksum: self.span.checksum,
            records: self.records,
            keep: self.kept.clone(),
        }
    }

    /// The segment that it becomes.
    pub fn segment(&self) -> SegmentId {
        self.span.segment
    }

    /// Of the segment's frames.
    pub fn checksum(&self) -> u64 {
        self.span.checksum
    }

    /// Whether it joins segments, or frees more than a sixteenth of one.
    pub fn is_worth_it(&self) -> bool {
        let before = self.bytes_before();
        self.run.inputs.len() > 1 || before.saturating_sub(self.span.len) > before / 16
    }

    /// Removes the files, which are not wanted after all. Without this they stay until the log is next opened.
    pub async fn discard(self) {
        remove(&self.shared, [&self.path, &self.hint_path]).await;
    }

    fn bytes_before(&self) -> u64 {
        self.run.inputs.iter().map(|input| input.end.offset).sum()
    }
}

impl std::fmt::Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (first, last, kept) = (self.run.first().id(), self.run.last().id(), self.kept.count());
        let (before, after) = (self.bytes_before(), self.span.len);
        write!(f, "segments {first} to {last}: {kept} of {} records, {before} to {after} bytes", self.records)
    }
}

async fn remove(shared: &Shared, paths: [&str; 2]) {
    for path in paths {
        if let Err(error) = state::remove_if_present(shared.env.disk().as_ref(), path).await {
            tracing::debug!(%error, "a part of a compaction's output stays until the log is next opened");
        }
    }
}

impl CompactJob {
    pub(crate) fn new(shared: Arc<Shared>, run: Run, keep: Keep) -> CompactJob {
        CompactJob { _pin: shared.pin(), shared, run, keep, bytes_per_second: None }
    }

    /// Reads and writes no more than this, on average, for the sake of whoever else uses the disk.
    pub fn limited(self, bytes_per_second: Option<u64>) -> CompactJob {
        CompactJob { bytes_per_second, ..self }
    }

    pub async fn run(self) -> Result<Output, StorageError> {
        let segment = self.run.output();
        let own = self.shared.env.random();
        let own = |path: String| format!("{path}.{own:016x}{TEMP_SUFFIX}");
        let path = own(segment_path(&self.shared.dir, segment));
        let hint_path = own(hint_path(&self.shared.dir, segment));
        let shared = self.shared.clone();
        let result = self.write(segment, path.clone(), hint_path.clone()).await;
        if result.is_err() {
            remove(&shared, [&path, &hint_path]).await;
        }
        result
    }

    async fn write(self, segment: SegmentId, path: String, hint_path: String) -> Result<Output, StorageError> {
        let disk = self.shared.env.disk().clone();
        let file = disk.open(&path, OpenMode::CreateNew).await;
        let file = file.map_err(|error| StorageError::io("create", &path, error))?;
        let mut writer = Writer::new(&self, segment, path, file);
        for input in &self.run.inputs {
            self.read(input, &mut writer).await?;
        }
        let output = writer.finish(&self.run, hint_path).await?;
        if let Keep::Listed(plan) = &self.keep
            && output.plan() != *plan
        {
            let what = format!("compaction gives {} bytes that are not those of the plan", output.span.len);
            return Err(StorageError::corrupt(&segment_path(&self.shared.dir, segment), 0, what));
        }
        output.hint.write(disk.as_ref(), &output.hint_path, &self.shared.identity).await?;
        Ok(output)
    }

    async fn read(&self, input: &Segment, writer: &mut Writer) -> Result<(), StorageError> {
        let handle = self.shared.add_handle(input.id());
        let (file, len) = (handle.file().await?, Some(input.end.offset));
        let mut reader = SegmentReader::open(file, &handle.path, &self.shared.identity, input.id(), len).await?;
        let mut at = input.start();
        loop {
            match reader.next(at).await? {
                Next::Frame(frame) => {
                    self.shared.check_fence()?;
                    at = frame.end;
                    writer.take(&frame, &self.keep).await?;
                }
                Next::End if at == input.end || reader.ends_at(input.end) => return Ok(()),
                Next::End => return Err(reader.corrupt(at.offset, "segment holds another history than it did")),
                Next::Bad(error) => return Err(reader.corrupt(at.offset, error.to_string())),
            }
        }
    }
}

impl Keep {
    fn keeps(&self, at: u64, item: &FrameRecord<'_>, shared: &Shared) -> bool {
        match self {
            Keep::Listed(plan) => plan.keep.get(at),
            Keep::Needed(needed) => needed.keeps(at, item, shared),
        }
    }
}

impl Needed {
    fn keeps(&self, at: u64, item: &FrameRecord<'_>, shared: &Shared) -> bool {
        let hides = |key: &[u8]| !self.nothing_older.contains(&shared.identity.key_hash(key));
        match item.record {
            Record::Put { key, expiry_ms: Some(expiry_ms), .. } if expiry_ms <= self.wall_ms => {
                self.marked.get(at) && hides(key)
            }
            Record::Tombstone { key } => self.marked.get(at) && hides(key),
            Record::Put { .. } | Record::Session { .. } => self.marked.get(at),
            Record::Control { .. } => !is_plan(&item.record),
        }
    }
}

/// The file being made.
struct Writer {
    shared: Arc<Shared>,
    seeds: Seeds,
    path: String,
    file: Arc<dyn File>,
    frame: SparseBuilder,
    /// Where the next frame goes.
    at: Position,
    /// Frames to be written.
    buffer: Vec<bytes::Bytes>,
    buffered: usize,
    written: u64,
    checksum: Xxh3Default,
    hint: HintBuilder,
    records: u64,
    kept: Bitmap,
    pace: Pace,
}

impl Writer {
    fn new(job: &CompactJob, segment: SegmentId, path: String, file: Arc<dyn File>) -> Writer {
        let (identity, base) = (job.shared.identity, job.run.first().base);
        Writer {
            shared: job.shared.clone(),
            seeds: identity.seeds(segment),
            path,
            file,
            frame: SparseBuilder::default(),
            at: Position::beginning(segment, base),
            buffer: Vec::new(),
            buffered: 0,
            written: SPAN_HEADER_LEN,
            checksum: Xxh3Default::new(),
            hint: HintBuilder::new(identity, base),
            records: 0,
            kept: Bitmap::default(),
            pace: Pace::new(&job.shared.env, job.bytes_per_second),
        }
    }

    async fn take(&mut self, source: &Frame, keep: &Keep) -> Result<(), StorageError> {
        let epoch = source.header.epoch;
        for item in source.records() {
            let kept = keep.keeps(self.records, &item, &self.shared);
            self.kept.set(self.records, kept);
            self.records += 1;
            if !kept {
                continue;
            }
            if !self.frame.takes(epoch, &item, COMPACT_FRAME_BYTES) {
                self.end_frame();
            }
            self.frame.push(epoch, &item, source.record_bytes(item.location));
        }
        if self.records > COMPACT_RECORDS_MAX {
            return Err(StorageError::invalid(format!("a run of {} records", self.records)));
        }
        if self.buffered >= SCAN_BLOCK_BYTES {
            self.flush_buffer().await?;
        }
        self.pace.used(source.bytes.len()).await;
        Ok(())
    }

    fn end_frame(&mut self) {
        let frame = self.frame.finish(&self.seeds, self.at);
        self.at = frame.end;
        self.hint.add(&frame);
        self.checksum.update(&frame.bytes);
        self.buffered += frame.bytes.len();
        self.buffer.push(frame.bytes);
    }

    async fn flush_buffer(&mut self) -> Result<(), StorageError> {
        let (buffers, len) = (std::mem::take(&mut self.buffer), std::mem::take(&mut self.buffered));
        if len > 0 {
            let written = self.file.write_at(buffers, self.written).await;
            written.map_err(|error| StorageError::io("write", &self.path, error))?;
            self.written += len as u64;
            self.pace.used(len).await;
        }
        Ok(())
    }

    async fn finish(mut self, run: &Run, hint_path: String) -> Result<Output, StorageError> {
        if !self.frame.is_empty() {
            self.end_frame();
        }
        self.flush_buffer().await?;
        let (first, last) = (run.first(), run.last());
        let span = Span {
            segment: self.at.segment,
            last: last.last,
            base: first.base,
            end: last.end.mark,
            len: self.written,
            checksum: self.checksum.digest(),
        };
        let header = span.encode(&self.shared.identity);
        self.file.write_at(vec![header], 0).await.map_err(|error| StorageError::io("write", &self.path, error))?;
        self.file.sync_data().await.map_err(|error| StorageError::io("flush", &self.path, error))?;
        let end = Position { mark: span.end, segment: span.segment, offset: span.len };
        Ok(Output {
            shared: self.shared.clone(),
            run: run.clone(),
            span,
            path: self.path,
            hint: self.hint.finish(end),
            hint_path,
            records: self.records,
            kept: self.kept,
        })
    }
}

/// Keeps the use of the disk to so many bytes a second.
struct Pace {
    env: Env,
    since: Instant,
    bytes: u64,
    bytes_per_second: Option<u64>,
}

impl Pace {
    fn new(env: &Env, bytes_per_second: Option<u64>) -> Pace {
        Pace { since: env.now(), env: env.clone(), bytes: 0, bytes_per_second }
    }

    async fn used(&mut self, bytes: usize) {
        let Some(rate) = self.bytes_per_second else { return };
        self.bytes += bytes as u64;
        let due = Duration::from_micros(self.bytes.saturating_mul(1_000_000) / rate.max(1));
        let taken = self.env.now().since(self.since);
        // Short waits are not worth a timer.
        if due > taken + Duration::from_millis(1) {
            self.env.sleep(due - taken).await;
        }
    }
}
