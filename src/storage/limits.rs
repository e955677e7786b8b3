//! Every bound of the region store, and how the bounds relate.

use std::time::Duration;

/// Longest key; the shortest has one byte.
pub const KEY_BYTES_MAX: usize = 65_536;
/// Longest value of one record. Larger values are stored in parts by the layer above.
pub const VALUE_BYTES_MAX: usize = 8 << 20;
/// Longest frame, header included: what one atomic batch may hold.
pub const FRAME_BYTES_MAX: usize = 32 << 20;
/// Most records in one frame.
pub const FRAME_RECORDS_MAX: usize = 65_536;

/// Where a segment ends unless the table says otherwise. A frame that would cross it begins the next segment.
pub const SEGMENT_BYTES_DEFAULT: u64 = 64 << 20;
/// Smallest segment that may be asked for.
pub const SEGMENT_BYTES_MIN: u64 = 1 << 10;
/// Largest segment that may be asked for, so that offsets within a segment fit 32 bits in hints.
pub const SEGMENT_BYTES_MAX: u64 = 1 << 30;

/// Bytes appended and not yet written; beyond it appends are refused as [`crate::StorageError::Busy`].
pub const UNWRITTEN_BYTES_MAX: usize = 256 << 20;
/// Written frames kept in memory for replicas that are a little behind.
pub const RECENT_BYTES_MAX: usize = 4 << 20;
/// Hints kept in memory until they are written, each 32 bytes for a record; of segments before these the files are read.
pub const HINT_DRAFTS_MAX: usize = 4;
/// Segment files held open by one [`crate::FileCache`], however many regions share it.
pub const OPEN_FILES_MAX: usize = 256;

/// How long a log waits before it tries again to write to a full disk.
pub const FULL_DISK_RETRY: Duration = Duration::from_millis(100);

/// How much of a segment is read at once while scanning it.
pub const SCAN_BLOCK_BYTES: usize = 1 << 20;
/// Records whose newest version is looked for at once while an index is rebuilt: what bounds the memory it takes.
pub const BUILD_ROUND_RECORDS: u64 = 4 << 20;
/// As many of them as a processor's cache has room for.
pub const BUILD_PART_RECORDS: u64 = 8 << 10;
/// Frames of a compacted segment end before this, unless one record alone is longer.
pub const COMPACT_FRAME_BYTES: usize = 256 << 10;
/// Most records in a run that is compacted at once: each takes a bit of the plan.
pub const COMPACT_RECORDS_MAX: u64 = 16 << 20;
/// Records before a run that are looked at for what its tombstones may hide; with more, tombstones are kept.
pub const COMPACT_OLDER_RECORDS_MAX: u64 = 32 << 20;
/// Records that are asked about, or moved, in one go while an index is compacted for.
pub const COMPACT_STEP_RECORDS: usize = 512;
/// Segments compacted at once.
pub const COMPACT_SEGMENTS_MAX: usize = 64;
/// Records moved from pending into the index by one settling.
pub const SETTLE_RECORDS_MAX: usize = 1024;

/// Hash bits that an index has at least: reads of absent keys find something by chance once in 2^30 / keys.
pub const INDEX_HASH_BITS_MIN: u32 = 30;
/// Bits by which an index names a page of the log, 64 GiB of them at 512 bytes.
pub const INDEX_LOCATION_BITS: u32 = 27;
/// An index knows of a record which stretch of 2^9 bytes it begins in, which is what devices read at least.
pub const INDEX_GRANULE_BITS: u32 = 9;
/// Lookups whose waits for memory overlap.
pub const INDEX_BATCH: usize = 32;

/// For the records that a node caches, its indexes and its logs' buffers, unless it says otherwise.
pub const MEMORY_BYTES_DEFAULT: usize = 256 << 20;
/// The cache is divided, so that those who use it at once seldom wait for each other, into parts no smaller than this ...
pub const CACHE_SHARD_BYTES: usize = 1 << 20;
/// ... and so many at most.
pub const CACHE_SHARDS_MAX: usize = 256;
/// Pieces that the cache takes from the system and gives back, roughly; far fewer than the system lets a process have.
pub const CACHE_CHUNKS: usize = 8192;
pub const CACHE_CHUNK_BYTES_MIN: usize = 4 << 10;
pub const CACHE_CHUNK_BYTES_MAX: usize = 4 << 20;

/// Sessions remembered for each region; the one idle for longest is forgotten first.
pub const SESSIONS_MAX: usize = 65_536;
/// Outcomes remembered for each session; the oldest is forgotten first.
/// A client begins a new session before this.
pub const OUTCOMES_PER_SESSION_MAX: usize = 8192;

const _: () = assert!(KEY_BYTES_MAX - 1 <= u16::MAX as usize, "a record stores its key's length in 16 bits");
const _: () = assert!(VALUE_BYTES_MAX + KEY_BYTES_MAX + 1024 < FRAME_BYTES_MAX, "a frame holds any one record");
const _: () = assert!(SEGMENT_BYTES_MAX + (FRAME_BYTES_MAX as u64) < u32::MAX as u64, "hints store offsets in 32 bits");
const _: () = assert!(COMPACT_RECORDS_MAX / 8 < VALUE_BYTES_MAX as u64 / 2, "a control record holds a plan");
const _: () = assert!(COMPACT_FRAME_BYTES + KEY_BYTES_MAX + VALUE_BYTES_MAX + 1024 < FRAME_BYTES_MAX);
const _: () = assert!(FRAME_BYTES_MAX < UNWRITTEN_BYTES_MAX, "any frame can be queued");
