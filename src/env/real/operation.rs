//! One file operation: what it asks of the kernel next, and what the kernel's answer means.
//!
//! An operation owns its buffers and its open file until it ends. An engine [`Operation::start`]s it, has the kernel do
//! its [`Step`], and gives the answer to [`Operation::advance`], which gives back what to go on with: the same operation
//! when a call was short or interrupted, the file's next append when one ended, or nothing. The decisions are here, and
//! the two engines agree on them.
//!
//! Appends to one file take turns: each learns the file's end when its turn comes, so that a failed or dropped one
//! leaves no gap before the next.

use super::error::flush_failed;
use super::limits::{BUFFERS_PER_CALL_MAX, BYTES_PER_CALL_MAX};
use bytes::Bytes;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, IoSlice};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot;

/// Carries operations out, many at once and in any order. Dropping it lets those that it has end.
pub(super) trait Engine: Send + Sync {
    fn submit(&self, operation: Operation);
    /// For `status`.
    fn name(&self) -> &'static str;
}

pub(super) struct Operation {
    file: Arc<OpenFile>,
    work: Work,
}

enum Work {
    Read { buffer: Vec<u8>, offset: u64, done: usize, reply: oneshot::Sender<ReadAnswer> },
    Write { source: Source, offset: u64, flush: bool, reply: oneshot::Sender<io::Result<()>> },
    Append { source: Source, offset: u64, reply: oneshot::Sender<io::Result<u64>> },
    Flush { reply: oneshot::Sender<io::Result<()>> },
}

/// Bytes read, and the buffer.
type ReadAnswer = (io::Result<usize>, Vec<u8>);

/// What an operation asks of the kernel.
pub(super) enum Step<'a> {
    Read {
        buffer: &'a mut [u8],
        offset: u64,
    },
    /// The slices one after the other; if they are all that is left, a flush may follow at once.
    Write {
        slices: Vec<IoSlice<'a>>,
        offset: u64,
        then_flush: bool,
    },
    Flush,
}

impl Operation {
    pub(super) fn read(
        file: &Arc<OpenFile>,
        buffer: Vec<u8>,
        offset: u64,
    ) -> (Operation, oneshot::Receiver<ReadAnswer>) {
        let (reply, result) = oneshot::channel();
        (Operation { file: file.clone(), work: Work::Read { buffer, offset, done: 0, reply } }, result)
    }

    pub(super) fn write(
        file: &Arc<OpenFile>,
        buffers: Vec<Bytes>,
        offset: u64,
    ) -> (Operation, oneshot::Receiver<io::Result<()>>) {
        Operation::writing(file, buffers, offset, false)
    }

    pub(super) fn write_flushed(
        file: &Arc<OpenFile>,
        buffers: Vec<Bytes>,
        offset: u64,
    ) -> (Operation, oneshot::Receiver<io::Result<()>>) {
        Operation::writing(file, buffers, offset, true)
    }

    fn writing(
        file: &Arc<OpenFile>,
        buffers: Vec<Bytes>,
        offset: u64,
        flush: bool,
    ) -> (Operation, oneshot::Receiver<io::Result<()>>) {
        let (reply, result) = oneshot::channel();
        let work = Work::Write { source: Source::new(buffers), offset, flush, reply };
        (Operation { file: file.clone(), work }, result)
    }

    /// `None` while another append to the file is under way: that one is followed by this one.
    pub(super) fn append(
        file: &Arc<OpenFile>,
        buffers: Vec<Bytes>,
    ) -> (Option<Operation>, oneshot::Receiver<io::Result<u64>>) {
        let (reply, result) = oneshot::channel();
        let work = Work::Append { source: Source::new(buffers), offset: 0, reply };
        (file.take_turn(Operation { file: file.clone(), work }), result)
    }

    pub(super) fn flush(file: &Arc<OpenFile>) -> (Operation, oneshot::Receiver<io::Result<()>>) {
        let (reply, result) = oneshot::channel();
        (Operation { file: file.clone(), work: Work::Flush { reply } }, result)
    }

    /// Readies the operation; gives back what has a step for the kernel.
    pub(super) fn start(self) -> Option<Operation> {
        let mut next = Some(self);
        while let Some(mut operation) = next {
            match operation.ready() {
                None => return Some(operation),
                Some(result) => next = operation.end(result),
            }
        }
        None
    }

    /// What to do and on which file; only of an operation that `start` or `advance` gave back.
    pub(super) fn step(&mut self) -> (Step<'_>, &File) {
        let step = match &mut self.work {
            Work::Read { buffer, offset, done, .. } => {
                let end = buffer.len().min(*done + BYTES_PER_CALL_MAX);
                Step::Read { offset: *offset + *done as u64, buffer: &mut buffer[*done..end] }
            }
            Work::Write { source, flush: true, .. } if source.is_empty() => Step::Flush,
            Work::Write { source, offset, flush, .. } => {
                let slices = source.slices();
                let then_flush = *flush && source.fits_one_call(&slices);
                Step::Write { slices, offset: *offset + source.taken, then_flush }
            }
            Work::Append { source, offset, .. } => {
                Step::Write { slices: source.slices(), offset: *offset + source.taken, then_flush: false }
            }
            Work::Flush { .. } => Step::Flush,
        };
        (step, &self.file.file)
    }

    /// Takes the kernel's answer to the last step; gives back what has another one.
    pub(super) fn advance(mut self, answer: io::Result<usize>) -> Option<Operation> {
        match self.judge(answer) {
            None => Some(self),
            Some(result) => self.end(result)?.start(),
        }
    }

    /// Takes the kernel's answers to a write and to the flush that was to follow it at once.
    pub(super) fn advance_flushed(self, write: io::Result<usize>, flush: io::Result<usize>) -> Option<Operation> {
        let mut rest = self.advance(write)?;
        match rest.step().0 {
            Step::Flush => rest.advance(flush),
            // The write was short, and the kernel left the flush out.
            _ => Some(rest),
        }
    }

    /// How the operation ends without the kernel, if it does.
    fn ready(&mut self) -> Option<io::Result<()>> {
        if self.is_abandoned() {
            return Some(Err(ErrorKind::Interrupted.into()));
        }
        match &mut self.work {
            Work::Read { buffer, .. } => buffer.is_empty().then_some(Ok(())),
            Work::Write { source, flush, .. } => (source.is_empty() && !*flush).then_some(Ok(())),
            Work::Append { source, offset, .. } => match self.file.file.metadata() {
                Ok(metadata) => {
                    *offset = metadata.len();
                    source.is_empty().then_some(Ok(()))
                }
                Err(error) => Some(Err(error)),
            },
            Work::Flush { .. } => None,
        }
    }

    fn flushes(&self) -> bool {
        matches!(self.work, Work::Write { flush: true, .. })
    }

    /// The last step was a flush.
    fn is_at_flush(&self) -> bool {
        match &self.work {
            Work::Flush { .. } => true,
            Work::Write { source, flush, .. } => *flush && source.is_empty(),
            _ => false,
        }
    }

    /// Nobody waits for it any more; before it has started it may as well not happen.
    fn is_abandoned(&self) -> bool {
        match &self.work {
            Work::Read { reply, .. } => reply.is_closed(),
            Work::Write { reply, .. } | Work::Flush { reply } => reply.is_closed(),
            Work::Append { reply, .. } => reply.is_closed(),
        }
    }

    /// The end that `answer` brings, or `None` to go on.
    fn judge(&mut self, answer: io::Result<usize>) -> Option<io::Result<()>> {
        let count = match answer {
            Ok(count) => count,
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => return None,
            Err(error) if self.is_at_flush() => return Some(Err(flush_failed(error))),
            Err(error) => return Some(Err(error)),
        };
        match &mut self.work {
            Work::Read { buffer, done, .. } => {
                *done += count;
                assert!(*done <= buffer.len(), "read {done} bytes into a buffer of {}", buffer.len());
                (count == 0 || *done == buffer.len()).then_some(Ok(()))
            }
            Work::Write { source, flush: true, .. } if source.is_empty() => Some(Ok(())),
            Work::Write { source, .. } | Work::Append { source, .. } => {
                source.take(count);
                match (count, source.is_empty()) {
                    (_, true) if self.flushes() => None,
                    (_, true) => Some(Ok(())),
                    (0, false) => Some(Err(ErrorKind::WriteZero.into())),
                    _ => None,
                }
            }
            Work::Flush { .. } => Some(Ok(())),
        }
    }

    /// Answers whoever waits, and gives back the append whose turn it is now.
    fn end(self, result: io::Result<()>) -> Option<Operation> {
        // An answer that nobody waits for is dropped, and its buffer with it.
        match self.work {
            Work::Read { buffer, done, reply, .. } => drop(reply.send((result.map(|()| done), buffer))),
            Work::Write { reply, .. } | Work::Flush { reply } => drop(reply.send(result)),
            Work::Append { offset, reply, .. } => {
                let next = self.file.pass_turn();
                drop(reply.send(result.map(|()| offset)));
                return next;
            }
        }
        None
    }
}

/// The bytes of a write that are still to be written.
pub(super) struct Source {
    buffers: Vec<Bytes>,
    /// The first buffer that is not written whole, and the bytes of it that are. No buffer from it on is empty.
    next: usize,
    skip: usize,
    /// Bytes written in all.
    taken: u64,
}

impl Source {
    pub(super) fn new(mut buffers: Vec<Bytes>) -> Source {
        buffers.retain(|buffer| !buffer.is_empty());
        Source { buffers, next: 0, skip: 0, taken: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.next == self.buffers.len()
    }

    /// As much of the rest as one call takes.
    pub(super) fn slices(&self) -> Vec<IoSlice<'_>> {
        let rest = &self.buffers[self.next..];
        let mut slices = Vec::with_capacity(rest.len().min(BUFFERS_PER_CALL_MAX));
        let mut room = BYTES_PER_CALL_MAX;
        let mut skip = self.skip;
        for buffer in rest.iter().take(BUFFERS_PER_CALL_MAX) {
            let slice = &buffer[skip..buffer.len().min(skip + room)];
            slices.push(IoSlice::new(slice));
            room -= slice.len();
            skip = 0;
            if room == 0 {
                break;
            }
        }
        slices
    }

    /// `slices` are all that is left.
    fn fits_one_call(&self, slices: &[IoSlice<'_>]) -> bool {
        let rest = &self.buffers[self.next..];
        let left = rest.iter().map(Bytes::len).sum::<usize>() - self.skip;
        slices.len() == rest.len() && slices.iter().map(|slice| slice.len()).sum::<usize>() == left
    }

    /// Bytes written in all.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    pub(super) fn take(&mut self, count: usize) {
        self.taken += count as u64;
        self.skip += count;
        while let Some(buffer) = self.buffers.get(self.next).filter(|buffer| buffer.len() <= self.skip) {
            self.skip -= buffer.len();
            self.next += 1;
        }
        assert!(!self.is_empty() || self.skip == 0, "the kernel wrote {} bytes that it was not given", self.skip);
    }
}

/// A file for as long as a handle or an operation needs it.
pub(super) struct OpenFile {
    pub(super) file: File,
    pub(super) path: PathBuf,
    appends: Mutex<Appends>,
}

/// Whose turn it is to append.
#[derive(Default)]
struct Appends {
    under_way: bool,
    waiting: VecDeque<Operation>,
}

impl OpenFile {
    pub(super) fn new(file: File, path: PathBuf) -> OpenFile {
        OpenFile { file, path, appends: Mutex::default() }
    }

    /// Gives `append` back if it may start now.
    fn take_turn(&self, append: Operation) -> Option<Operation> {
        let mut appends = self.appends.lock().expect("no holder panics");
        if appends.under_way {
            appends.waiting.push_back(append);
            return None;
        }
        appends.under_way = true;
        Some(append)
    }

    /// The append that was under way ended: the next one.
    fn pass_turn(&self) -> Option<Operation> {
        let mut appends = self.appends.lock().expect("no holder panics");
        let next = appends.waiting.pop_front();
        appends.under_way = next.is_some();
        next
    }
}

#[cfg(test)]
mod tests;
