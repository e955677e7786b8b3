//! What a database is made of at the moment.

use crate::engine::Inner;
use crate::error::Result;
use std::sync::atomic::Ordering;

/// See [`crate::Db::stats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// In the index. Keys written in the last moments are not counted yet, or still counted.
    pub keys: u64,
    pub segments: u64,
    /// Of the segment files.
    pub disk_bytes: u64,
    /// Of records that are somebody's value; the rest of `disk_bytes` is what compaction may free.
    pub live_bytes: u64,
    /// Of memory, for the index and the ordered keys.
    pub index_bytes: u64,
    /// Frames that wait to be written or to be moved into the index.
    pub closed_frames: u64,
    /// Snapshots, iterators and transactions that are open.
    pub snapshots: u64,
    /// Changes that are remembered for them.
    pub versions: u64,
    /// Runs of segments compacted since the database was opened.
    pub compactions: u64,
    /// Sealed segments without a usable hint: the next start reads them.
    pub hints_missing: u64,
    /// Puts are refused for want of space.
    pub full: bool,
}

impl Inner {
    pub(crate) async fn stats(&self) -> Result<Stats> {
        let log = self.with_log(|log| log.stats()).await?;
        let core = self.core.read();
        Ok(Stats {
            keys: core.store.len(),
            segments: log.segments,
            disk_bytes: log.bytes,
            live_bytes: core.store.live_bytes(),
            index_bytes: (core.store.memory_bytes() + core.keys.as_ref().map_or(0, |keys| keys.memory_bytes())) as u64,
            closed_frames: core.closed_frames() as u64,
            snapshots: core.versions.snapshots() as u64,
            versions: core.versions.len() as u64,
            compactions: self.compactions.load(Ordering::Relaxed),
            hints_missing: log.hints_missing,
            full: core.is_full,
        })
    }
}
