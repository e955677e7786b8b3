//! Links on which nothing arrives for a while, in one direction.
//!
//! A clog loses nothing: bytes wait at the receiver until it is over, and come in their order. What turmoil calls a hold works
//! in both directions and not beside a partition; this does, so that an old message may come out of a network that was cut
//! since.

use super::timeline::Timeline;
use crate::clock::Sleep;
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Until when (true time) nothing arrives, by sender and receiver.
#[derive(Default)]
pub(super) struct Clogs {
    until: Mutex<BTreeMap<(IpAddr, IpAddr), Duration>>,
}

impl Clogs {
    pub(super) fn set(&self, from: IpAddr, to: IpAddr, until: Duration) {
        let mut all = self.all();
        let known = all.entry((from, to)).or_default();
        *known = (*known).max(until);
    }

    fn left(&self, from: IpAddr, to: IpAddr, now: Duration) -> Option<Duration> {
        let until = *self.all().get(&(from, to))?;
        until.checked_sub(now).filter(|left| !left.is_zero())
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<(IpAddr, IpAddr), Duration>> {
        self.until.lock().expect("nothing panics under this lock")
    }
}

/// A connection whose bytes arrive when the link lets them.
pub(super) struct Clogged<S> {
    inner: S,
    clogs: Arc<Clogs>,
    timeline: Arc<dyn Timeline>,
    peer: IpAddr,
    me: IpAddr,
    waiting: Option<Sleep>,
}

impl<S> Clogged<S> {
    pub(super) fn new(inner: S, clogs: Arc<Clogs>, timeline: Arc<dyn Timeline>, peer: IpAddr, me: IpAddr) -> Self {
        Clogged { inner, clogs, timeline, peer, me, waiting: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Clogged<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if let Some(waiting) = &mut this.waiting {
                ready!(waiting.as_mut().poll(context));
                this.waiting = None;
            }
            match this.clogs.left(this.peer, this.me, this.timeline.now()) {
                Some(left) => this.waiting = Some(this.timeline.sleep(left)),
                None => return Pin::new(&mut this.inner).poll_read(context, buf),
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Clogged<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(context)
    }
}
