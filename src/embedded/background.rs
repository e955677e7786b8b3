//! What goes on by itself: flushing, hints, compaction, and looking for space when there was too little.

use crate::core::State;
use crate::engine::{Inner, Mode};
use crate::limits::{COMPACT_EVERY, GATHER, SPACE_EVERY};
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(crate) fn start(inner: &Arc<Inner>) {
    let (flushing, tending) = (inner.clone(), inner.clone());
    drop(inner.env.spawn("flush", async move { flushing.keep_flushing().await }));
    drop(inner.env.spawn("tend", async move { tending.keep_tending().await }));
}

impl Inner {
    fn is_open(&self) -> bool {
        matches!(self.core.read().state, State::Open)
    }

    fn has_unflushed(&self) -> bool {
        let core = self.core.read();
        matches!(core.state, State::Open) && core.head() > core.durable
    }

    /// Writes what is gathered and flushes what is written, each in its time.
    async fn keep_flushing(self: Arc<Self>) {
        let mut flushed = self.env.now();
        while !matches!(self.core.read().state, State::Closed) {
            if self.core.read().is_full {
                self.env.sleep(SPACE_EVERY).await;
                self.look_for_space().await;
            } else if !self.has_unflushed() {
                self.idle.store(true, Ordering::SeqCst);
                if !self.has_unflushed() {
                    self.work.notified().await;
                }
                self.idle.store(false, Ordering::SeqCst);
                continue;
            }
            self.env.sleep(GATHER).await;
            let sync = self.env.now().since(flushed) >= self.options.flush_interval;
            // An error is kept for whoever writes next.
            let _ = self.round(sync, Mode::Here).await;
            if sync {
                flushed = self.env.now();
                self.flushed.notify_one();
            }
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
            if matches!(self.core.read().state, State::Closed) {
                return;
            }
        }
    }
}
