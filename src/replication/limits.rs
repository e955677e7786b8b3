//! Bounds of a replica's driver.

/// Events that wait for one replica; clients beyond wait to be let in, messages of peers beyond are lost and asked for again.
pub const INBOX_EVENTS_MAX: usize = 1024;
/// Events handled in one turn, so that what they wrote shares one frame and one flush.
pub const TURN_EVENTS_MAX: usize = 512;
/// Bytes of client writes gathered into one frame.
pub const FRAME_GATHER_BYTES_MAX: usize = 4 << 20;
/// Bytes of frames sent to a follower in one message.
pub const CHUNK_BYTES_MAX: usize = 1 << 20;
/// Writes that wait for their commit; beyond it new ones are refused as unavailable.
pub const WAITING_WRITES_MAX: usize = 65_536;
/// Records that may be on their way to a follower, unacknowledged.
pub const IN_FLIGHT_RECORDS_MAX: u64 = 131_072;
/// Indexes that one server builds at once.
pub const INDEX_BUILDS_MAX: usize = 2;

/// Records of one page of a scan.
pub const SCAN_RECORDS_MAX: usize = 10_000;

const _: () = assert!(TURN_EVENTS_MAX <= INBOX_EVENTS_MAX);
const _: () = assert!(FRAME_GATHER_BYTES_MAX < storage::limits::FRAME_BYTES_MAX);
const _: () = assert!(CHUNK_BYTES_MAX < storage::limits::FRAME_BYTES_MAX);
