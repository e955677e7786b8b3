//! Bounds of a replica's driver.

use std::time::Duration;

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

/// Outputs of compactions that one server writes at once: their rate is the server's.
pub const COMPACTIONS_MAX: usize = 1;
/// Between two looks for a run to compact, and after an attempt that failed.
pub const COMPACT_PAUSE: Duration = Duration::from_secs(1);
/// After one that was not worth it, or that found damage which nobody can mend.
pub const COMPACT_PAUSE_LONG: Duration = Duration::from_secs(60);
/// What a server's compactions read and write in a second unless it is told otherwise.
pub const COMPACT_BYTES_PER_SECOND: u64 = 64 << 20;
/// A follower behind by so many compactions catches up at full speed.
pub const COMPACTIONS_BEHIND_MAX: usize = 2;

/// A busy replica makes what others see of it current this often.
pub const PUBLISH_EVERY: Duration = Duration::from_millis(50);

/// Records of one page of a scan.
pub const SCAN_RECORDS_MAX: usize = 10_000;

const _: () = assert!(TURN_EVENTS_MAX <= INBOX_EVENTS_MAX);
const _: () = assert!(FRAME_GATHER_BYTES_MAX < storage::limits::FRAME_BYTES_MAX);
const _: () = assert!(CHUNK_BYTES_MAX < storage::limits::FRAME_BYTES_MAX);
