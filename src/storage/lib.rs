//! The region store: one append-only log, and the indexes over it.

pub mod ids;
pub use ids::{Epoch, Mark, RegionId, SegmentId, Seqno};
