//! From what a stop left to a log that can be trusted.
//!
//! A stop is clean, or a process crash (the kernel kept all that was written), or a power loss (what was not flushed may
//! be absent, whole, or garbage, sector by sector). A changed boot id without a clean stop counts as a power loss.
//!
//! The rules:
//! - Which files are the log's segments, and which are leftovers of a compaction, see [`crate::folder`].
//! - Segments other than the last were durable before the next one was named, and compacted ones before they were named
//!   themselves: anything amiss there is corruption.
//! - In the last segment, bytes that are no frame and have no frame after them are a torn tail, and are cut.
//! - Frames after such bytes: without a power loss writes land in order, so it is corruption. After one they may be the
//!   part that landed of a write that was never flushed, and acknowledged to nobody; it is corruption all the same if
//!   anything says that the damaged frame was durable: the commit point that a later frame carries, or the note of how
//!   far the log was flushed. Without such evidence the tail is cut.
//! - A log that ends before that note, or elsewhere than a clean stop left it, has lost something: corruption.
//!
//! What is kept of an unclean end is written again and flushed before it counts as durable: after a flush that failed
//! the kernel may show pages, and names, that it will never write. Where a failure is known of, the segment and the state
//! are replaced by flushed copies for the same reason.

use crate::compaction::Plan;
use crate::error::StorageError;
use crate::folder::Folder;
use crate::frame::{Frame, Position};
use crate::hint::{Hint, HintHeader};
use crate::ids::{Epoch, Mark, SegmentId, Seqno};
use crate::limits::SCAN_BLOCK_BYTES;
use crate::log::{Ordered, Recovered, Recovery, Segment, Shared, compactions};
use crate::segment::{Next, SEGMENT_HEADER_LEN, SegmentReader, hint_path, segment_path};
use crate::span::Span;
use crate::state::{self, DurableNote, State, state_path};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// What reading the segments, without changing anything, says about a log.
pub(crate) struct Survey {
    pub(crate) segments: BTreeMap<SegmentId, Segment>,
    pub(crate) head: Position,
    pub(crate) epoch: Epoch,
    pub(crate) committed: Seqno,
    pub(crate) marks: VecDeque<Position>,
    /// Bytes after the head in the last segment file.
    pub(crate) torn_bytes: u64,
    /// What those bytes are not, for the log line.
    torn_why: String,
    pub(crate) hints_missing: u64,
    /// A last segment without a frame.
    empty: Option<SegmentId>,
    /// Compactions that the log orders, as far as they were read.
    ordered: BTreeMap<Seqno, Plan>,
    /// Segments whose hints hold more of them.
    plans_in: Vec<Segment>,
}

/// What is known about the end of the log from outside it.
pub(crate) struct Evidence {
    pub(crate) clean: Option<Position>,
    pub(crate) noted: Option<Position>,
    pub(crate) power_loss_suspected: bool,
}

impl Evidence {
    fn durable_seqno(&self) -> Seqno {
        let ends = [self.clean, self.noted];
        ends.iter().flatten().map(|end| end.mark.seqno).max().unwrap_or(Seqno(0))
    }
}

pub(crate) async fn recover(shared: Arc<Shared>) -> Result<(Recovered, Recovery), StorageError> {
    let disk = shared.env.disk().clone();
    let (disk, dir, identity) = (disk.as_ref(), shared.dir.as_str(), shared.identity);
    let folder = Folder::list(&shared).await?;
    let stored = State::load(disk, dir, &identity).await?;
    if stored.is_none() && !folder.segments.is_empty() {
        return Err(StorageError::corrupt(&state_path(dir), 0, "state file is missing beside segments"));
    }
    let (state, created) = match stored {
        Some(state) => (state, false),
        None => (create(&shared).await?, true),
    };
    let clean = state::load_clean(disk, dir, &identity).await?;
    let (note, noted) = DurableNote::load(disk, dir, identity).await?;
    let fenced_before = state::is_fenced(disk, dir).await?;
    let power_loss_suspected = clean.is_none() && state.boot_id != disk.boot_id();
    let evidence = Evidence { clean, noted, power_loss_suspected };
    let mut survey = survey(&shared, &folder, &evidence).await?;
    let ordered = survey.find_ordered(&shared, state.carried_out).await?;

    remove_leftovers(&shared, &folder, survey.head.segment).await?;
    cut_torn_tail(&shared, &survey).await?;
    let end = Tail { shared: &shared, head: survey.head, noted: noted.unwrap_or(Position::ZERO), note, fenced_before };
    let (note, durable) = end.make_durable(evidence.clean.is_some()).await?;
    let read_only = durable != survey.head;
    forget_last_stop(&shared, state, fenced_before && !read_only).await?;

    let recovery = Recovery {
        created,
        clean: clean.is_some(),
        power_loss_suspected,
        fenced_before,
        torn_bytes: survey.torn_bytes,
        read_only,
        head: survey.head.mark,
        durable: clean.or(noted).unwrap_or(Position::ZERO).mark,
        committed: survey.committed,
        hints_missing: survey.hints_missing,
    };
    let recovered = Recovered {
        shared,
        epoch: state.epoch.max(survey.epoch),
        segments: survey.segments,
        head: survey.head,
        durable,
        committed: survey.committed,
        marks: survey.marks,
        note,
        ordered,
        carried_out: state.carried_out,
    };
    Ok((recovered, recovery))
}

/// The state file is the last thing made, so that a folder without one holds nothing yet.
async fn create(shared: &Shared) -> Result<State, StorageError> {
    let (disk, dir) = (shared.env.disk().clone(), shared.dir.as_str());
    disk.create_dir(dir).await.map_err(|error| StorageError::io("create folder", dir, error))?;
    let mut parent = dir;
    while !parent.is_empty() {
        parent = parent.rsplit_once('/').map_or("", |(parent, _)| parent);
        state::sync_dir(disk.as_ref(), parent).await?;
    }
    // Marks of a log that was here before must not speak for this one.
    state::remove_clean(disk.as_ref(), dir).await?;
    let (mut note, _) = DurableNote::load(disk.as_ref(), dir, shared.identity).await?;
    note.lower(disk.as_ref(), Position::ZERO).await?;
    let state = State { epoch: Epoch(0), boot_id: disk.boot_id(), carried_out: Seqno(0) };
    state.store(disk.as_ref(), dir, &shared.identity).await?;
    Ok(state)
}

/// Reads the log without changing anything.
pub(crate) async fn survey(shared: &Shared, folder: &Folder, evidence: &Evidence) -> Result<Survey, StorageError> {
    folder.check_run(&shared.dir)?;
    let mut survey = Survey {
        segments: BTreeMap::new(),
        head: Position::ZERO,
        epoch: Epoch(0),
        committed: Seqno(0),
        marks: VecDeque::from([Position::ZERO]),
        torn_bytes: 0,
        torn_why: String::new(),
        hints_missing: 0,
        empty: None,
        ordered: BTreeMap::new(),
        plans_in: Vec::new(),
    };
    let last = folder.segments.last().copied();
    for &segment in &folder.segments {
        let is_open = Some(segment) == last && !segment.is_compacted();
        let hinted = if is_open { None } else { segment_end_by_hint(shared, segment, survey.head).await? };
        match (hinted, folder.spans.get(&segment)) {
            (Some(hint), _) => survey.skip(hint, folder.last_number(segment)),
            (None, Some(span)) => survey.read_compacted(shared, span).await?,
            (None, None) => survey.read_segment(shared, segment, is_open, evidence).await?,
        }
    }
    survey.read_marks(shared).await?;
    survey.check_evidence(shared, evidence)?;
    Ok(survey)
}

/// The segment's end, if its hint continues the log and the file is as long as the hint says.
async fn segment_end_by_hint(
    shared: &Shared,
    segment: SegmentId,
    head: Position,
) -> Result<Option<HintHeader>, StorageError> {
    let disk = shared.env.disk().as_ref();
    let Some(hint) = HintHeader::load(disk, &shared.dir, &shared.identity, segment).await else { return Ok(None) };
    let handle = shared.add_handle(segment);
    let file = handle.file().await?;
    let len = file.len().await.map_err(|error| StorageError::io("read length of", &handle.path, error))?;
    // Opening checks the segment's header, which says whose it is, and what it stands for.
    let reader = SegmentReader::open(file, &handle.path, &shared.identity, segment, None).await?;
    let ends = reader.span.is_none() || reader.ends_at(hint.end);
    Ok((hint.base == head.mark && hint.end.offset == len && ends).then_some(hint))
}

impl Survey {
    fn skip(&mut self, hint: HintHeader, last: u64) {
        let segment = Segment::hinted(&hint, last);
        if hint.plans > 0 {
            self.plans_in.push(segment);
        }
        self.committed = self.committed.max(hint.committed);
        self.add_segment(segment);
    }

    fn add_segment(&mut self, segment: Segment) {
        self.segments.insert(segment.id(), segment);
        self.head = segment.end_as_head();
        self.marks = VecDeque::from([self.head]);
    }

    /// Reads a compacted segment that has no hint, all of which must be sound.
    async fn read_compacted(&mut self, shared: &Shared, span: &Span) -> Result<(), StorageError> {
        let handle = shared.add_handle(span.segment);
        if span.base != self.head.mark {
            return Err(StorageError::corrupt(&handle.path, 0, "compacted segment does not continue the log"));
        }
        let end = Position { mark: span.end, segment: span.segment, offset: span.len };
        let hint = Hint::scan(&handle, &shared.identity, span.base, end).await?;
        self.hints_missing += 1;
        self.committed = self.committed.max(span.end.seqno);
        self.add_segment(Segment { hint: false, ..Segment::hinted(&hint.header, span.last) });
        Ok(())
    }

    /// The compactions ordered after `carried_out`.
    async fn find_ordered(&mut self, shared: &Shared, carried_out: Seqno) -> Result<VecDeque<Ordered>, StorageError> {
        let (disk, identity) = (shared.env.disk().as_ref(), &shared.identity);
        for segment in std::mem::take(&mut self.plans_in) {
            if segment.end.mark.seqno <= carried_out {
                continue;
            }
            let handle = shared.add_handle(segment.id());
            let hint = Hint::load_or_scan(disk, &shared.dir, &handle, identity, segment.base, segment.end).await?;
            for (seqno, plan) in hint.extras().filter_map(|(seqno, record)| Some((seqno, Plan::of(&record)?))) {
                let plan = plan.map_err(|what| StorageError::corrupt(&handle.path, 0, what))?;
                self.ordered.insert(seqno, plan);
            }
        }
        let ordered = std::mem::take(&mut self.ordered).into_iter();
        let after = ordered.filter(|(seqno, _)| *seqno > carried_out);
        Ok(after.map(|(seqno, plan)| Ordered { seqno, plan }).collect())
    }

    fn add(&mut self, frame: &Frame) {
        self.head = frame.end;
        self.epoch = self.epoch.max(frame.header.epoch);
        self.committed = self.committed.max(frame.header.committed);
        self.marks.push_back(frame.end);
        while self.marks.len() > 1 && self.marks[1].mark.seqno <= self.committed {
            self.marks.pop_front();
        }
    }

    async fn read_segment(
        &mut self,
        shared: &Shared,
        segment: SegmentId,
        is_last: bool,
        evidence: &Evidence,
    ) -> Result<(), StorageError> {
        let handle = shared.add_handle(segment);
        let file = handle.file().await?;
        let mut reader = SegmentReader::open(file, &handle.path, &shared.identity, segment, None).await?;
        let base = self.head.mark;
        let mut at = Position::beginning(segment, base);
        loop {
            match reader.next(at).await? {
                Next::Frame(frame) => {
                    check_noted(&reader, &frame, evidence)?;
                    let ordered = compactions(&frame).map_err(|what| reader.corrupt(at.offset, what))?;
                    self.ordered.extend(ordered.into_iter().map(|ordered| (ordered.seqno, ordered.plan)));
                    at = frame.end;
                    self.add(&frame);
                }
                Next::End => break,
                Next::Bad(error) if is_last => {
                    prove_torn(&mut reader, at, evidence, &error.to_string()).await?;
                    self.torn_bytes = reader.len - at.offset;
                    self.torn_why = error.to_string();
                    break;
                }
                Next::Bad(error) => return Err(reader.corrupt(at.offset, error.to_string())),
            }
        }
        if !at.begins_segment() {
            self.segments.insert(segment, Segment::appended(base, at));
            self.hints_missing += !is_last as u64;
            return Ok(());
        }
        if !is_last {
            return Err(reader.corrupt(at.offset, "segment without frames before the last one"));
        }
        self.empty = Some(segment);
        Ok(())
    }

    /// Reads again what hints let skip, if the commit point lies there: the marks after it are needed.
    async fn read_marks(&mut self, shared: &Shared) -> Result<(), StorageError> {
        self.committed = self.committed.min(self.head.mark.seqno);
        let known_from = self.marks.front().expect("never empty").mark.seqno;
        if known_from <= self.committed {
            return Ok(());
        }
        let after: Vec<Position> = self.marks.drain(..).collect();
        let skipped = self.segments.values().filter(|segment| segment.end.mark.seqno > self.committed);
        let skipped: Vec<Segment> = skipped.filter(|segment| segment.end.mark.seqno <= known_from).copied().collect();
        let head = self.head;
        let mut base = Position::ZERO;
        if let Some(before) = self.segments.values().rfind(|segment| segment.end.mark.seqno <= self.committed) {
            base = before.end_as_head();
        }
        self.marks = VecDeque::from([base]);
        for segment in skipped {
            let handle = shared.add_handle(segment.end.segment);
            let file = handle.file().await?;
            let (identity, len) = (&shared.identity, Some(segment.end.offset));
            let mut reader = SegmentReader::open(file, &handle.path, identity, segment.end.segment, len).await?;
            let mut at = segment.start();
            while at != segment.end {
                match reader.next(at).await? {
                    Next::Frame(frame) => {
                        at = frame.end;
                        self.add(&frame);
                    }
                    Next::End => return Err(reader.corrupt(at.offset, "segment holds another history than its hint")),
                    Next::Bad(error) => return Err(reader.corrupt(at.offset, error.to_string())),
                }
            }
        }
        self.marks.extend(after.into_iter().filter(|end| end.mark.seqno > known_from));
        self.head = head;
        Ok(())
    }

    fn check_evidence(&self, shared: &Shared, evidence: &Evidence) -> Result<(), StorageError> {
        let path = segment_path(&shared.dir, self.head.segment);
        let lost = |what: String| Err(StorageError::corrupt(&path, self.head.offset, what));
        let head = self.head.mark.seqno;
        if let Some(clean) = evidence.clean
            && (clean != self.head || self.torn_bytes > 0)
        {
            return lost(format!("log ends at {head}, a clean stop left it at {}", clean.mark.seqno));
        }
        match evidence.noted {
            Some(noted) if noted.mark.seqno > head => {
                lost(format!("log ends at {head}, it was durable up to {}", noted.mark.seqno))
            }
            Some(noted) if noted.mark.seqno == head && noted.mark != self.head.mark => {
                lost(format!("log holds another frame at {head} than was durable"))
            }
            _ => Ok(()),
        }
    }
}

/// The frame that ends where the note says must be the one that the note names.
fn check_noted(reader: &SegmentReader, frame: &Frame, evidence: &Evidence) -> Result<(), StorageError> {
    let Some(noted) = evidence.noted else { return Ok(()) };
    let covers = noted.segment == frame.end.segment
        && (frame.start.offset + 1..=frame.end.offset).contains(&noted.offset)
        && noted.mark != Mark::ZERO;
    if covers && noted != frame.end {
        return Err(reader.corrupt(frame.start.offset, "log holds another frame here than was durable"));
    }
    Ok(())
}

/// Whether the bytes at `bad`, which are no frame, may be cut: see the module's rules.
async fn prove_torn(
    reader: &mut SegmentReader,
    bad: Position,
    evidence: &Evidence,
    why: &str,
) -> Result<(), StorageError> {
    if reader.zeros_from(bad.offset).await? {
        return Ok(());
    }
    let Some(later) = reader.frames_after(bad).await? else { return Ok(()) };
    let durable = later.committed.max(evidence.durable_seqno());
    if !evidence.power_loss_suspected || durable > bad.mark.seqno {
        return Err(reader.corrupt(bad.offset, format!("{why}; a later frame lies at {}", later.offset)));
    }
    Ok(())
}

/// Files that mean nothing: temporary ones, and hints without a segment.
async fn remove_leftovers(shared: &Shared, folder: &Folder, last: SegmentId) -> Result<(), StorageError> {
    let disk = shared.env.disk().as_ref();
    let orphans = folder.hints.iter().filter(|hint| !folder.segments.contains(hint) || **hint > last);
    let orphans = orphans.map(|&hint| hint_path(&shared.dir, hint));
    let temps = folder.temps.iter().map(|name| format!("{}/{name}", shared.dir));
    for path in temps.chain(orphans) {
        state::remove_if_present(disk, &path).await?;
    }
    for &segment in &folder.superseded {
        state::remove_if_present(disk, &segment_path(&shared.dir, segment)).await?;
    }
    // For good before anything is compacted again.
    if folder.superseded.is_empty() { Ok(()) } else { state::sync_dir(disk, &shared.dir).await }
}

async fn cut_torn_tail(shared: &Shared, survey: &Survey) -> Result<(), StorageError> {
    let disk = shared.env.disk().as_ref();
    if survey.torn_bytes > 0 {
        let Survey { torn_bytes, torn_why, head, .. } = survey;
        tracing::warn!(
            dir = shared.dir,
            bytes = torn_bytes,
            after = head.mark.seqno.0,
            why = torn_why,
            "cut a torn tail"
        );
    }
    if let Some(empty) = survey.empty {
        // Gone for good before the segment before it may grow: its presence would say that that one is complete.
        shared.handles.write().remove(&empty);
        state::remove_if_present(disk, &segment_path(&shared.dir, empty)).await?;
        state::remove_if_present(disk, &hint_path(&shared.dir, empty)).await?;
        return state::sync_dir(disk, &shared.dir).await;
    }
    if survey.torn_bytes > 0 {
        let handle = shared.add_handle(survey.head.segment);
        let file = handle.file().await?;
        file.truncate(survey.head.offset).await.map_err(|error| StorageError::io("cut", &handle.path, error))?;
        file.sync_data().await.map_err(|error| StorageError::io("flush", &handle.path, error))?;
    }
    Ok(())
}

/// The end of the log as it was found.
struct Tail<'a> {
    shared: &'a Shared,
    head: Position,
    noted: Position,
    note: DurableNote,
    fenced_before: bool,
}

impl Tail<'_> {
    /// Returns up to where the log is durable: its head, or on a full disk what was known before.
    async fn make_durable(mut self, clean: bool) -> Result<(DurableNote, Position), StorageError> {
        if clean || self.head.begins_segment() {
            return Ok((self.note, self.head));
        }
        let written = if self.fenced_before { self.copy_segment().await } else { self.write_again().await };
        match written {
            Ok(()) => {}
            Err(error @ StorageError::Full { .. }) => {
                tracing::warn!(dir = self.shared.dir, %error, "opened for reading only");
                self.shared.fence();
                return Ok((self.note, self.noted));
            }
            Err(error) => return Err(error),
        }
        self.note.advance(self.shared.env.disk().as_ref(), self.head).await;
        Ok((self.note, self.head))
    }

    /// Replaces the last segment by a flushed copy under a new name.
    async fn copy_segment(&self) -> Result<(), StorageError> {
        let handle = self.shared.add_handle(self.head.segment);
        let file = handle.file().await?;
        let (read, bytes) = file.read_at(vec![0; self.head.offset as usize], 0).await;
        let read = read.map_err(|error| StorageError::io("read", &handle.path, error))?;
        if read < bytes.len() {
            return Err(StorageError::corrupt(&handle.path, read as u64, "segment ends early"));
        }
        self.shared.handles.write().remove(&self.head.segment);
        state::replace(self.shared.env.disk().as_ref(), &self.shared.dir, &handle.path, bytes.into()).await
    }

    async fn write_again(&self) -> Result<(), StorageError> {
        let handle = self.shared.add_handle(self.head.segment);
        let file = handle.file().await?;
        let mut at = if self.noted.segment == self.head.segment { self.noted.offset } else { SEGMENT_HEADER_LEN };
        while at < self.head.offset {
            let len = (self.head.offset - at).min(SCAN_BLOCK_BYTES as u64) as usize;
            let (read, mut bytes) = file.read_at(vec![0; len], at).await;
            let read = read.map_err(|error| StorageError::io("read", &handle.path, error))?;
            bytes.truncate(read);
            if read < len {
                return Err(StorageError::corrupt(&handle.path, at + read as u64, "segment ends early"));
            }
            let written = file.write_at(vec![bytes.into()], at).await;
            written.map_err(|error| StorageError::io("write", &handle.path, error))?;
            at += len as u64;
        }
        file.sync_data().await.map_err(|error| StorageError::io("flush", &handle.path, error))?;
        state::sync_dir(self.shared.env.disk().as_ref(), &self.shared.dir).await
    }
}

/// From here on the log is open: a crash must not look like the clean stop before it.
async fn forget_last_stop(shared: &Shared, state: State, fenced: bool) -> Result<(), StorageError> {
    let (disk, dir) = (shared.env.disk().as_ref(), shared.dir.as_str());
    let boot_id = disk.boot_id();
    if fenced || state.boot_id != boot_id {
        match (State { boot_id, ..state }).store(disk, dir, &shared.identity).await {
            // The old boot id only makes the next start suspect a power loss.
            Err(error @ StorageError::Full { .. }) => tracing::warn!(dir, %error, "could not store the boot id"),
            other => other?,
        }
    }
    if fenced {
        state::remove_fenced(disk, dir).await?;
    }
    state::remove_clean(disk, dir).await
}

#[cfg(test)]
mod tests;
