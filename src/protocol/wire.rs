//! A stream of bytes with a buffer on each side, worked by one task.

use crate::protocol::codec::{self, Frame, Malformed};
use crate::protocol::limits::READ_BYTES;
use bytes::BytesMut;
use env::Stream;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Bytes go out and come in as the other end takes and gives them; frames are appended to [`Wire::output`] and taken from
/// what came in. Whatever is dropped halfway, nothing is lost or repeated: the state is here, not in a future.
pub struct Wire {
    stream: Stream,
    input: BytesMut,
    output: Vec<u8>,
    /// How much of `output` the stream has taken.
    written: usize,
    /// The stream may hold written bytes back until it is flushed.
    unflushed: bool,
    frame_bytes_max: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The other end has closed its side.
    End,
    /// Bytes came in.
    Read,
    /// The stream took some of the output.
    Wrote,
}

/// Nothing more is to be had from the stream.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    #[error("the connection was closed")]
    Closed,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

impl Wire {
    pub fn new(stream: Stream, frame_bytes_max: usize) -> Wire {
        Wire { stream, input: BytesMut::new(), output: Vec::new(), written: 0, unflushed: false, frame_bytes_max }
    }

    pub fn set_frame_bytes_max(&mut self, frame_bytes_max: usize) {
        self.frame_bytes_max = frame_bytes_max;
    }

    /// Where frames are appended.
    pub fn output(&mut self) -> codec::Encoder<'_> {
        codec::Encoder { out: &mut self.output, frame_bytes_max: self.frame_bytes_max }
    }

    /// For what is no frame.
    pub fn output_bytes(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Bytes that the stream has not taken.
    pub fn output_len(&self) -> usize {
        self.output.len() - self.written
    }

    /// All that was appended has left.
    pub fn is_drained(&self) -> bool {
        self.output_len() == 0 && !self.unflushed
    }

    /// Gives `bytes` out, and gives the caller an empty buffer for them. Only while nothing is left of the last.
    pub fn swap_output(&mut self, bytes: &mut Vec<u8>) {
        assert_eq!(self.output_len(), 0, "bytes are still to be written");
        std::mem::swap(&mut self.output, bytes);
    }

    pub fn input(&self) -> &[u8] {
        &self.input
    }

    pub fn take_frame(&mut self) -> Result<Option<Frame>, Malformed> {
        codec::take_frame(&mut self.input, self.frame_bytes_max)
    }

    pub fn has_frame(&self) -> bool {
        codec::has_frame(&self.input, self.frame_bytes_max)
    }

    /// Waits until something moves: output first, input only if `read`. Waits for ever if neither is wanted.
    pub async fn progress(&mut self, read: bool) -> io::Result<Progress> {
        poll_fn(|context| self.poll(context, read)).await
    }

    /// Waits for the next whole frame while output leaves. For handshakes, where one frame follows another.
    pub async fn next_frame(&mut self) -> Result<Frame, Ended> {
        loop {
            if let Some(frame) = self.take_frame()? {
                return Ok(frame);
            }
            if self.progress(true).await? == Progress::End {
                return Err(Ended::Closed);
            }
        }
    }

    /// Waits until all output has left.
    pub async fn drain(&mut self) -> io::Result<()> {
        while !self.is_drained() {
            self.progress(false).await?;
        }
        Ok(())
    }

    /// Ends our side once all has left, then waits for the other end to close, throwing away what it still sends: closing
    /// with unread input would make the kernel throw away our last words.
    pub async fn finish(&mut self) -> io::Result<()> {
        self.drain().await?;
        self.stream.shutdown().await?;
        loop {
            self.input.clear();
            if self.progress(true).await? == Progress::End {
                return Ok(());
            }
        }
    }

    fn poll(&mut self, context: &mut Context<'_>, read: bool) -> Poll<io::Result<Progress>> {
        if let Poll::Ready(wrote) = self.poll_write(context) {
            return Poll::Ready(wrote.map(|()| Progress::Wrote));
        }
        if read { self.poll_read(context) } else { Poll::Pending }
    }

    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.output_len() > 0 {
            let taken = ready!(Pin::new(&mut self.stream).poll_write(context, &self.output[self.written..]))?;
            if taken == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += taken;
            self.unflushed = true;
            self.forget_written();
            return Poll::Ready(Ok(()));
        }
        if self.unflushed {
            ready!(Pin::new(&mut self.stream).poll_flush(context))?;
            self.unflushed = false;
            return Poll::Ready(Ok(()));
        }
        Poll::Pending
    }

    fn forget_written(&mut self) {
        if self.output_len() == 0 {
            self.output.clear();
            self.written = 0;
            // One long message should not hold its memory for as long as the connection lives.
            self.output.shrink_to(4 * READ_BYTES);
        } else if self.written > self.output.len() / 2 {
            self.output.drain(..self.written);
            self.written = 0;
        }
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Progress>> {
        if self.input.capacity() - self.input.len() < READ_BYTES / 4 {
            // A long frame gets its room as it comes, by doubling, not on the word of its length.
            self.input.reserve(READ_BYTES.max(self.input.len()));
        }
        let reading = pin!(self.stream.read_buf(&mut self.input));
        match ready!(reading.poll(context))? {
            0 => Poll::Ready(Ok(Progress::End)),
            _ => Poll::Ready(Ok(Progress::Read)),
        }
    }
}
