//! Bounds of the master group, and how they relate.

/// Masters of a group.
pub const MASTERS_MAX: usize = 5;
/// Registered region servers, dead ones included.
pub const SERVERS_MAX: usize = 1024;
/// Regions of one table; the Redis keyspace has as many hash slots.
pub const REGIONS_PER_TABLE_MAX: usize = 16_384;
/// Tables of a cluster.
pub const TABLES_MAX: usize = 4096;
/// A split point is a key as stored.
pub const SPLIT_BYTES_MAX: usize = 64 << 10;
/// All split points of one table together, so that the command that makes it fits one log frame.
pub const SPLITS_BYTES_MAX: usize = 4 << 20;
/// Replicas of a region.
pub const FACTOR_MAX: u8 = 3;
/// `host:port`.
pub const ADDRESS_BYTES_MAX: usize = 261;

/// Placement steps proposed in one round.
pub const STEPS_PER_ROUND_MAX: usize = 64;
/// Regions that one server copies at a time, so that the loss of a server does not drown the others in catch-up.
pub const LEARNERS_PER_SERVER_MAX: usize = 8;

/// A frame of the Raft log: one batch of entries as Raft hands them over.
pub const FRAME_BYTES_MAX: usize = 256 << 20;
/// Bytes of entries kept in the Raft log (and in memory) before a snapshot is asked for.
pub const LOG_BYTES_MAX: u64 = 32 << 20;
/// Entries since the last snapshot before the next one is made, and entries kept behind a snapshot for followers
/// that lag a little.
pub const LOG_ENTRIES_PER_SNAPSHOT: u64 = 2000;
pub const LOG_ENTRIES_KEPT: u64 = 200;
/// The log file is rewritten once this many of its bytes, and half of them, belong to purged entries.
pub const DEAD_BYTES_MAX: u64 = 1 << 20;
/// Entries in one append to a follower.
pub const ENTRIES_PER_APPEND_MAX: u64 = 64;
/// Bytes of entries in one append, and with one entry more than that alone.
pub const APPEND_BYTES_MAX: usize = 8 << 20;
/// A call between masters up to this size shares its connection with heartbeats.
pub const SMALL_CALL_BYTES_MAX: usize = 64 << 10;
/// A snapshot file: the whole catalog.
pub const SNAPSHOT_BYTES_MAX: usize = 1 << 30;

const _: () = assert!(SPLITS_BYTES_MAX * 4 < FRAME_BYTES_MAX);
const _: () = assert!(SPLIT_BYTES_MAX <= SPLITS_BYTES_MAX);
const _: () = assert!(LOG_ENTRIES_KEPT < LOG_ENTRIES_PER_SNAPSHOT);
const _: () = assert!(MASTERS_MAX % 2 == 1);

/// How long a wish for a hand-over is repeated to the primary.
pub const HAND_OVER_MS: u64 = 30_000;
/// Such wishes at a time.
pub const HAND_OVERS_MAX: usize = 1024;
