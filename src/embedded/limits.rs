//! Every bound of the library, and how the bounds relate.

use std::time::Duration;

pub use storage::limits::{
    FRAME_BYTES_MAX, FRAME_RECORDS_MAX, KEY_BYTES_MAX, MEMORY_BYTES_DEFAULT, SEGMENT_BYTES_DEFAULT, SEGMENT_BYTES_MAX,
    SEGMENT_BYTES_MIN, VALUE_BYTES_MAX,
};

/// A frame is closed when it has grown to this: what [`crate::Durability::Relaxed`] gathers at most before it writes.
pub const GATHERED_BYTES: usize = 64 << 10;
/// How long it gathers at most.
pub const GATHER: Duration = Duration::from_millis(5);
/// How often what is written is flushed, unless each call does that.
pub const FLUSH: Duration = Duration::from_millis(100);
/// Of closed frames that are not in the index yet; with more of them writers wait. What comes while a segment is left and
/// flushed, which takes tens of milliseconds, fits.
pub const CLOSED_BYTES_MAX: usize = 16 << 20;
/// Keys that an iterator reads at once.
pub const PAGE_KEYS: usize = 256;
/// Space that is left to compaction: a quarter of a segment within these bounds. With less of it free, puts are refused.
pub const RESERVE_BYTES_MIN: u64 = 64 << 10;
pub const RESERVE_BYTES_MAX: u64 = 16 << 20;
/// How often compaction looks whether there is something to do.
pub const COMPACT_EVERY: Duration = Duration::from_secs(1);
/// How often a full device is asked for space.
pub const SPACE_EVERY: Duration = Duration::from_millis(200);
/// Groups of keys whose last change is known, for calls that read and then write.
pub const STRIPES: usize = 256;
/// Bytes after which a block of the ordered keys is split in two.
pub const KEY_BLOCK_BYTES: usize = 1024;

const _: () = assert!(GATHERED_BYTES < FRAME_BYTES_MAX, "what is gathered is one frame");
const _: () = assert!(STRIPES.is_power_of_two());
