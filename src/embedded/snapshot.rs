//! The database as it was at one moment.

use crate::core::Refused;
use crate::engine::{Inner, check_key, resolve};
use crate::error::Result;
use crate::walk::{Range, Walk};
use bytes::Bytes;
use std::sync::Arc;
use storage::{Hold, Seqno};

/// What a snapshot has registered, until it is dropped.
pub(crate) struct View {
    pub(crate) inner: Arc<Inner>,
    pub(crate) seqno: Seqno,
    _hold: Hold,
}

impl Drop for View {
    fn drop(&mut self) {
        self.inner.core.write().versions.close(self.seqno);
        self.inner.flushed.notify_one();
    }
}

impl Inner {
    /// A view of all that was appended so far.
    pub(crate) async fn view(self: &Arc<Self>) -> Result<Arc<View>> {
        loop {
            let progress = self.progress.notified();
            {
                let mut core = self.core.write();
                core.check_readable()?;
                match core.close_frame(|| self.wall_ms()) {
                    Ok(()) => {
                        let seqno = core.head();
                        core.versions.open(seqno);
                        return Ok(Arc::new(View { inner: self.clone(), seqno, _hold: core.store.hold() }));
                    }
                    Err(Refused::For(error)) => return Err(error),
                    Err(Refused::Away) => {}
                }
            }
            progress.await;
        }
    }
}

impl View {
    pub(crate) async fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        check_key(key)?;
        let found = self.inner.core.read().find_before(key, self.inner.hash(key), self.seqno)?;
        resolve(found).await
    }

    pub(crate) fn walk(self: &Arc<Self>, range: Range) -> Result<Walk> {
        Walk::new(self.clone(), range)
    }
}
