//! Writing what was queued, away from the log that goes on taking frames.

use crate::error::StorageError;
use crate::frame::{Frame, Position};
use crate::ids::SegmentId;
use crate::log::Shared;
use crate::segment::encode_header;
use crate::state::{self, DurableNote, TEMP_SUFFIX};
use bytes::Bytes;
use env::{File, OpenMode};
use std::sync::Arc;

/// Frames to be written, or nothing but a flush to be done. A job dropped before its end fences the log: what became of
/// its writes is unknown.
pub struct WriteJob {
    shared: Arc<Shared>,
    /// Taken by [`WriteJob::run`]'s end.
    note: Option<DurableNote>,
    runs: Vec<Run>,
    written: Position,
    durable: Option<Position>,
    done: bool,
}

/// Consecutive frames of one segment.
struct Run {
    start: Position,
    end: Position,
    buffers: Vec<Bytes>,
}

/// What a [`WriteJob`] achieved, for [`crate::Log::finish_write`].
#[must_use]
pub struct Written {
    pub(crate) note: DurableNote,
    pub(crate) written: Position,
    pub(crate) durable: Option<Position>,
}

impl WriteJob {
    pub(crate) fn new(shared: Arc<Shared>, note: DurableNote, frames: Vec<Frame>, written: Position) -> WriteJob {
        let mut runs: Vec<Run> = Vec::new();
        for frame in frames {
            match runs.last_mut() {
                Some(run) if run.end.segment == frame.start.segment => {
                    run.end = frame.end;
                    run.buffers.push(frame.bytes);
                }
                _ => runs.push(Run { start: frame.start, end: frame.end, buffers: vec![frame.bytes] }),
            }
        }
        WriteJob { shared, note: Some(note), runs, written, durable: None, done: false }
    }

    /// Writes all frames; with `sync` they are durable when this returns. An error fences the log.
    pub async fn run(mut self, sync: bool) -> Result<Written, StorageError> {
        self.shared.check_fence()?;
        if let Err(error) = self.write(sync).await {
            self.shared.fence_and_tell(&error).await;
            return Err(error);
        }
        self.done = true;
        let note = self.note.take().expect("taken here only");
        Ok(Written { note, written: self.written, durable: self.durable })
    }

    async fn write(&mut self, sync: bool) -> Result<(), StorageError> {
        let runs = std::mem::take(&mut self.runs);
        let last = runs.len().checked_sub(1);
        for (at, run) in runs.into_iter().enumerate() {
            if run.start.begins_segment() {
                self.begin_segment(run.start.segment).await?;
            }
            let file = self.file(run.start.segment).await?;
            let flushes = sync && Some(at) == last;
            let mut written = match flushes {
                true => file.write_and_sync(run.buffers, run.start.offset).await,
                false => file.write_at(run.buffers, run.start.offset).await,
            };
            if flushes && written.is_err() && env::mutants::active("M10") {
                written = file.sync_data().await;
            }
            written.map_err(|error| StorageError::io("write", &self.path(run.start.segment), error))?;
            self.written = run.end;
            if flushes {
                self.note_durable().await;
            }
        }
        match (sync, last) {
            (true, None) => self.flush().await,
            _ => Ok(()),
        }
    }

    fn path(&self, segment: SegmentId) -> String {
        self.shared.add_handle(segment).path.clone()
    }

    async fn file(&self, segment: SegmentId) -> Result<Arc<dyn File>, StorageError> {
        self.shared.add_handle(segment).file().await
    }

    /// Makes everything written so far durable, and notes it.
    async fn flush(&mut self) -> Result<(), StorageError> {
        if self.written.begins_segment() {
            // The segments before it were flushed when they were left.
            return Ok(());
        }
        let file = self.file(self.written.segment).await?;
        file.sync_data().await.map_err(|error| StorageError::io("flush", &self.path(self.written.segment), error))?;
        self.note_durable().await;
        Ok(())
    }

    async fn note_durable(&mut self) {
        self.durable = Some(self.written);
        let note = self.note.as_mut().expect("taken at the end only");
        note.advance(self.shared.env.disk().as_ref(), self.written).await;
    }

    /// The segment before is flushed first, and the header before the file gets its name: recovery relies on both.
    async fn begin_segment(&mut self, segment: SegmentId) -> Result<(), StorageError> {
        self.flush().await?;
        let disk = self.shared.env.disk();
        let path = self.path(segment);
        let temp = format!("{path}{TEMP_SUFFIX}");
        let header = encode_header(&self.shared.identity, segment);
        let made = async {
            let file = disk.open(&temp, OpenMode::Create).await?;
            file.truncate(0).await?;
            file.write_at(vec![header], 0).await?;
            file.sync_data().await?;
            disk.rename(&temp, &path).await
        };
        made.await.map_err(|error| StorageError::io("create", &path, error))?;
        state::sync_dir(disk.as_ref(), &self.shared.dir).await
    }
}

impl Drop for WriteJob {
    fn drop(&mut self) {
        if !self.done {
            self.shared.fence();
        }
    }
}
