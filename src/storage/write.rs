//! Writing what was queued, away from the log that goes on taking frames.

use crate::error::StorageError;
use crate::frame::{Frame, Position};
use crate::ids::SegmentId;
use crate::limits::FULL_DISK_RETRY;
use crate::log::Shared;
use crate::segment::encode_header;
use crate::state::{self, DurableNote, TEMP_SUFFIX};
use bytes::Bytes;
use env::{File, OpenMode};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Frames to be written, or nothing but a flush to be done. A job dropped before its end fences the log: what became of
/// its writes is unknown. One that finds no room on the disk waits until there is some, or the log is given up.
pub struct WriteJob {
    shared: Arc<Shared>,
    /// Taken at the job's end.
    note: Option<DurableNote>,
    runs: Vec<Run>,
    written: Position,
    durable: Option<Position>,
    /// What came of an attempt without waiting, to be reported by [`WriteJob::run`].
    failed: Option<StorageError>,
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
        WriteJob { shared, note: Some(note), runs, written, durable: None, failed: None, done: false }
    }

    /// Writes all frames, without flushing them, if that waits for nothing; otherwise the job is to be run.
    #[expect(clippy::result_large_err, reason = "handed back as it came: nothing is allocated for a write")]
    pub fn try_now(mut self) -> Result<Written, WriteJob> {
        match self.try_write() {
            Some(Ok(())) => Ok(self.finish()),
            Some(Err(error)) => {
                self.failed = Some(error);
                Err(self)
            }
            None => Err(self),
        }
    }

    fn try_write(&mut self) -> Option<Result<(), StorageError>> {
        self.shared.check_fence().ok()?;
        // More than one run crosses into a segment whose file has to be made first.
        let [run] = self.runs.as_slice() else { return None };
        if run.start.begins_segment() {
            return None;
        }
        let handle = self.shared.handle(run.start.segment)?;
        match handle.try_file()?.try_write_at(&run.buffers, run.start.offset)? {
            Ok(()) => {
                self.shared.out_of_space.store(false, Ordering::Relaxed);
                self.written = run.end;
                self.runs.clear();
                Some(Ok(()))
            }
            Err(error) => match StorageError::io("write", &handle.path, error) {
                // Waiting for room is the job's.
                StorageError::Full { .. } => None,
                error => Some(Err(error)),
            },
        }
    }

    fn finish(mut self) -> Written {
        self.done = true;
        let note = self.note.take().expect("taken here only");
        Written { note, written: self.written, durable: self.durable }
    }

    /// Writes all frames; with `sync` they are durable when this returns. An error fences the log.
    pub async fn run(mut self, sync: bool) -> Result<Written, StorageError> {
        self.shared.check_fence()?;
        if let Err(error) = self.write(sync).await {
            self.shared.fence_and_tell(&error).await;
            return Err(error);
        }
        Ok(self.finish())
    }

    async fn write(&mut self, sync: bool) -> Result<(), StorageError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let runs = std::mem::take(&mut self.runs);
        let last = runs.len().checked_sub(1);
        for (at, run) in runs.into_iter().enumerate() {
            let flushes = sync && Some(at) == last;
            if run.start.begins_segment() {
                // Recovery relies on it, and on the header being there before the file gets its name.
                self.flush().await?;
                while let Err(error) = self.begin_segment(run.start.segment).await {
                    self.wait_for_room(error).await?;
                }
            }
            while let Err(error) = self.write_run(&run, flushes).await {
                self.wait_for_room(error).await?;
            }
            self.shared.out_of_space.store(false, Ordering::Relaxed);
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

    /// May be repeated when there was no room.
    async fn write_run(&self, run: &Run, flushes: bool) -> Result<(), StorageError> {
        let file = self.file(run.start.segment).await?;
        let (buffers, offset) = (run.buffers.clone(), run.start.offset);
        let mut written = match flushes {
            true => file.write_and_sync(buffers, offset).await,
            false => file.write_at(buffers, offset).await,
        };
        if flushes && written.is_err() && env::mutants::active("M10") {
            written = file.sync_data().await;
        }
        written.map_err(|error| StorageError::io("write", &self.path(run.start.segment), error))
    }

    /// Any other error is returned at once.
    async fn wait_for_room(&self, error: StorageError) -> Result<(), StorageError> {
        if !matches!(error, StorageError::Full { .. }) {
            return Err(error);
        }
        if !self.shared.out_of_space.swap(true, Ordering::Relaxed) {
            tracing::warn!(dir = self.shared.dir, %error, "log waits for room on the disk");
        }
        self.shared.env.sleep(FULL_DISK_RETRY).await;
        self.shared.check_fence()
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

    /// Makes the file with its header. May be repeated when there was no room, but not once it is there.
    async fn begin_segment(&self, segment: SegmentId) -> Result<(), StorageError> {
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
