//! Bounds of the client.

use crate::protocol::limits::{FRAME_BYTES_MAX, KEYS_PER_REQUEST_MAX, VALUE_BYTES_MAX};
use std::time::Duration;

/// A call ends after this long unless the caller says otherwise.
pub const CALL_TIME: Duration = Duration::from_secs(10);
/// The first attempt of a call is given up after this long, each further one after twice as long, and the next one begins,
/// perhaps at another server. Long enough for a loaded server, short enough to leave a dead one well within a call's time.
pub const ATTEMPT_TIME: Duration = Duration::from_secs(2);
/// Between attempts: from this, doubling ...
pub const RETRY_PAUSE_MIN: Duration = Duration::from_millis(10);
/// ... to this, half of it at random.
pub const RETRY_PAUSE_MAX: Duration = Duration::from_millis(500);

/// Keys of one read request; a longer batch becomes several, which run at the same time.
pub const READ_KEYS_MAX: usize = 4096;
/// Operations of one write request, and their bytes: what is within it for one region happens whole or not at all.
pub const WRITE_OPERATIONS_MAX: usize = KEYS_PER_REQUEST_MAX;
pub const WRITE_BYTES_MAX: usize = 16 << 20;
/// In a request, beside an operation's keys and values.
pub const OPERATION_BYTES: usize = 32;
/// Records that a scan asks for at a time, unless the caller says otherwise.
pub const SCAN_RECORDS: u32 = 1000;

/// Writes to one region between the oldest without an outcome and the newest. Servers remember the outcomes of those in
/// between; a session with more is left for a new one.
pub const SESSION_WINDOW_MAX: u64 = 4096;
/// Servers' addresses that are remembered beside those that the caller gave.
pub const LEARNED_ADDRESSES_MAX: usize = 64;

const _: () = assert!(READ_KEYS_MAX <= KEYS_PER_REQUEST_MAX);
const _: () = assert!(WRITE_BYTES_MAX + WRITE_OPERATIONS_MAX * OPERATION_BYTES < FRAME_BYTES_MAX);
const _: () = assert!(VALUE_BYTES_MAX + OPERATION_BYTES < FRAME_BYTES_MAX);
