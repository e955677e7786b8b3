//! What goes on by itself: flushing, hints, compaction, and looking for space when there was too little.

use crate::core::State;
use crate::engine::{Inner, Mode};
use crate::limits::{COMPACT_EVERY, GATHER, SPACE_EVERY};
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(crate) fn start(inner: &Arc<Inner>) {
    let (writing, flushing, tending) = (inner.clone(), inner.clone(), inner.clone());
    drop(inner.env.spawn("write", async move { writing.keep_writing().await }));
    drop(inner.env.spawn("flush", async move { flushing.keep_flushing().await }));
    drop(inner.env.spawn("tend", async move { tending.keep_tending().await }));
}

impl Inner {
    fn is_open(&self) -> bool {
        matches!(self.core.read().state, State::Open)
    }

    fn has_unwritten(&self) -> bool {
        let core = self.core.read();
        matches!(core.state, State::Open) && core.head() > core.applied
    }

    fn is_closed(&self) -> bool {
        matches!(self.core.read().state, State::Closed)
    }

    /// Writes what was gathered for a while and nobody wrote.
    async fn keep_writing(self: Arc<Self>) {
        while !self.is_closed() {
            if self.core.read().is_full {
                self.env.sleep(SPACE_EVERY).await;
                self.look_for_space().await;
            } else if !self.has_unwritten() {
                self.idle.store(true, Ordering::SeqCst);
                if !self.has_unwritten() {
                    self.work.notified().await;
                }
                self.idle.store(false, Ordering::SeqCst);
                continue;
            }
            let head = self.core.read().head();
            self.env.sleep(GATHER).await;
            if self.core.read().applied < head {
                // An error is kept for whoever writes next.
                let _ = self.round(false, Mode::Here).await;
            }
        }
    }

    /// Flushes what is written and nobody flushed, in its time.
    async fn keep_flushing(self: Arc<Self>) {
        while !self.is_closed() {
            if !self.core.read().has_unflushed() {
                self.unflushed.notified().await;
            }
            self.env.sleep(self.options.flush_interval).await;
            self.flush_beside().await;
        }
    }

    /// Writes hints and compacts, some time after something was flushed.
    async fn keep_tending(self: Arc<Self>) {
        loop {
            self.flushed.notified().await;
            self.env.sleep(COMPACT_EVERY).await;
            loop {
                let step = {
                    let _compacting = self.compacting.lock().await;
                    if !self.is_open() {
                        break;
                    }
                    self.compact_step(self.options.dead_share).await
                };
                match step {
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    Err(error) => {
                        tracing::warn!(%error, "could not compact");
                        break;
                    }
                }
            }
            if self.is_closed() {
                return;
            }
        }
    }
}
