//! Flushing beside the writes, for a log that is its own only replica.
//!
//! A [`crate::WriteJob`] that flushes keeps the log from writing until the device is done. Whoever acknowledges before that
//! has no need to wait: a [`FlushJob`] makes durable what is written, while others go on writing. Only what flushes as well
//! waits for it, and it for that: an error of the device is told to one flush of a file, so that of two at the same time one
//! would pass for successful. To begin a segment flushes the one before it.
//!
//! The note of how far the log is durable travels with write jobs; a [`NoteJob`] brings it up to date when it is here.

use crate::error::StorageError;
use crate::frame::Position;
use crate::log::{Log, Shared};
use crate::state::DurableNote;
use std::sync::Arc;

/// What flushes at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flushing {
    Nothing,
    WriteJob,
    FlushJob,
}

/// Makes durable what was written when it was taken. Dropped before its end it fences the log: whether the device reported
/// an error is unknown.
pub struct FlushJob {
    shared: Arc<Shared>,
    up_to: Position,
    done: bool,
}

/// What a [`FlushJob`] achieved, for [`Log::finish_flush`].
#[must_use]
pub struct Flushed {
    up_to: Position,
}

/// Writes the note; finish it with [`Log::finish_note`].
pub struct NoteJob {
    shared: Arc<Shared>,
    note: DurableNote,
    durable: Position,
}

impl Log {
    /// A flush of all that is written. `None` if it is durable, or while something else flushes.
    pub fn take_flush(&mut self) -> Option<FlushJob> {
        self.shared.check_fence().ok()?;
        // The segments before one without frames were flushed when they were left.
        let nothing = self.written == self.durable || self.written.begins_segment();
        if nothing || self.flushing != Flushing::Nothing {
            return None;
        }
        self.flushing = Flushing::FlushJob;
        Some(FlushJob { shared: self.shared.clone(), up_to: self.written, done: false })
    }

    pub fn finish_flush(&mut self, flushed: Flushed) {
        assert_eq!(self.flushing, Flushing::FlushJob, "no flush was outstanding");
        self.flushing = Flushing::Nothing;
        if flushed.up_to.mark.seqno > self.durable.mark.seqno {
            self.durable = flushed.up_to;
        }
    }

    /// A [`FlushJob`] is outstanding.
    pub fn is_flushing(&self) -> bool {
        self.flushing == Flushing::FlushJob
    }

    /// Whether what is queued begins a segment, so that writing it waits for the device.
    pub fn begins_segment_next(&self) -> bool {
        self.queued.iter().any(|frame| frame.start.begins_segment())
    }

    /// Queued frames that can be written now.
    pub(super) fn writable(&self) -> usize {
        let all = self.queued.len();
        match self.flushing {
            Flushing::FlushJob => self.queued.iter().position(|frame| frame.start.begins_segment()).unwrap_or(all),
            _ => all,
        }
    }

    /// The note, while no job is outstanding that has it. Nothing is written until it is back.
    pub fn take_note(&mut self) -> Option<NoteJob> {
        self.shared.check_fence().ok()?;
        let note = self.note.take()?;
        Some(NoteJob { shared: self.shared.clone(), note, durable: self.durable })
    }

    pub fn finish_note(&mut self, job: NoteJob) {
        assert!(self.note.is_none(), "the note was taken");
        self.note = Some(job.note);
    }
}

impl FlushJob {
    /// An error fences the log.
    pub async fn run(mut self) -> Result<Flushed, StorageError> {
        let flushed = self.flush().await;
        self.done = true;
        match flushed {
            Ok(()) => Ok(Flushed { up_to: self.up_to }),
            Err(error) => {
                self.shared.fence_and_tell(&error).await;
                Err(error)
            }
        }
    }

    async fn flush(&self) -> Result<(), StorageError> {
        let handle = self.shared.add_handle(self.up_to.segment);
        let file = handle.file().await?;
        file.sync_data().await.map_err(|error| StorageError::io("flush", &handle.path, error))
    }
}

impl Drop for FlushJob {
    fn drop(&mut self) {
        if !self.done {
            self.shared.fence();
        }
    }
}

impl NoteJob {
    /// Returns when the write is on its way.
    pub async fn run(mut self) -> NoteJob {
        self.note.advance(self.shared.env.disk().as_ref(), self.durable).await;
        self
    }
}
