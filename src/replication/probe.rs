//! What a replica tells whoever watches it: events with target `probe`, at trace level, nothing but names and numbers. In
//! production nobody listens and they cost a load; the simulator hears them with the true time and checks its invariants.

use crate::region::{Epoch, RegionId, Seqno};
use storage::{Mark, SegmentId};

/// A read was answered from committed state.
pub fn read(region: RegionId, epoch: Epoch) {
    tracing::trace!(target: "probe", name = "read", region = region.0, epoch = epoch.0);
}

/// Everything up to `seqno` was acknowledged to clients.
pub fn acknowledged(region: RegionId, epoch: Epoch, seqno: Seqno) {
    tracing::trace!(target: "probe", name = "acknowledged", region = region.0, epoch = epoch.0, seqno = seqno.0);
}

/// This replica may acknowledge its log up to here.
pub fn durable(region: RegionId, epoch: Epoch, mark: Mark) {
    tracing::trace!(
        target: "probe", name = "durable", region = region.0, epoch = epoch.0, seqno = mark.seqno.0,
        checksum = mark.checksum
    );
}

/// This replica's log was opened and ends here.
pub fn opened(region: RegionId, epoch: Epoch, mark: Mark) {
    tracing::trace!(target: "probe", name = "opened", region = region.0, epoch = epoch.0, seqno = mark.seqno.0);
}

/// All that this replica holds is about to be deleted, on purpose.
pub fn destroyed(region: RegionId) {
    tracing::trace!(target: "probe", name = "destroyed", region = region.0);
}

/// This replica's log is about to be cut after `mark`.
pub fn cut(region: RegionId, epoch: Epoch, mark: Mark) {
    tracing::trace!(target: "probe", name = "cut", region = region.0, epoch = epoch.0, seqno = mark.seqno.0);
}

/// An epoch was persisted, before anything was done in it.
pub fn adopted(region: RegionId, epoch: Epoch) {
    tracing::trace!(target: "probe", name = "adopted", region = region.0, epoch = epoch.0);
}

/// A replica began to serve as primary.
pub fn serves(region: RegionId, epoch: Epoch, committed: Seqno) {
    tracing::trace!(target: "probe", name = "serves", region = region.0, epoch = epoch.0, seqno = committed.0);
}

/// A learner's log is about to be taken back to `mark`, committed or not, because it comes again in another form.
pub fn rewound(region: RegionId, epoch: Epoch, mark: Mark) {
    tracing::trace!(target: "probe", name = "rewound", region = region.0, epoch = epoch.0, seqno = mark.seqno.0);
}

/// A primary appended a plan to make this segment.
pub fn ordered(region: RegionId, epoch: Epoch, segment: SegmentId) {
    tracing::trace!(target: "probe", name = "ordered", region = region.0, epoch = epoch.0, segment = segment.0);
}

/// A compacted segment took the place of a run; its frames have that checksum.
pub fn compacted(region: RegionId, epoch: Epoch, segment: SegmentId, checksum: u64) {
    tracing::trace!(
        target: "probe", name = "compacted", region = region.0, epoch = epoch.0, segment = segment.0, checksum
    );
}

/// A piece of a compacted segment was taken from the primary.
pub fn piece(region: RegionId, epoch: Epoch) {
    tracing::trace!(target: "probe", name = "piece", region = region.0, epoch = epoch.0);
}

/// A replica knows that its log is committed up to here.
pub fn committed(region: RegionId, epoch: Epoch, seqno: Seqno) {
    tracing::trace!(target: "probe", name = "committed", region = region.0, epoch = epoch.0, seqno = seqno.0);
}
