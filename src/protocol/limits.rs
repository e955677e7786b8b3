//! Bounds of the native protocol: of its messages, of the callers' side and of the servers' side.

use std::time::Duration;

/// The longest frame, without its length field, on connections of clients and of masters to each other.
pub const FRAME_BYTES_MAX: usize = 32 << 20;
/// The longest frame between region servers: the largest frame of a region's log, and room for its envelope.
pub const PEER_FRAME_BYTES_MAX: usize = 64 << 20;
/// The longest frame of a handshake. It is below any four printable characters read as a length, so that the first bytes of
/// HTTP, RESP or TLS are known for what they are.
pub const GREETING_BYTES_MAX: usize = 1024;

/// Keys of one read, operations of one write, records of one scan.
pub const KEYS_PER_REQUEST_MAX: usize = 16_384;
pub const KEY_BYTES_MAX: usize = 64 << 10;
/// A value must fit into one frame, with room for its key and the rest.
pub const VALUE_BYTES_MAX: usize = FRAME_BYTES_MAX - (1 << 20);

/// Calls of one connection that wait for their answers.
pub const CALLS_PER_CONNECTION_MAX: usize = 1024;
/// A connection takes no new call while this much waits to be written.
pub const CALL_BUFFER_BYTES_MAX: usize = 4 << 20;
/// One-way messages are refused while this much waits to be written.
pub const PEER_BUFFER_BYTES_MAX: usize = PEER_FRAME_BYTES_MAX + (4 << 20);
/// One-way messages that wait for a connection to be made.
pub const PEER_WAITING_BYTES_MAX: usize = 1 << 20;
/// A call whose deadline passed closes its connection if nothing at all has arrived for this long: the connection may be a
/// dead one, and the next call should have another.
pub const SILENCE_MAX: Duration = Duration::from_millis(500);
/// One-way connections are probed this often ...
pub const PING_INTERVAL: Duration = Duration::from_millis(1000);
/// ... and closed when a probe has had no answer for this long.
pub const PING_SILENCE_MAX: Duration = Duration::from_millis(3000);
/// Making a connection, handshake included.
pub const CONNECT_TIME_MAX: Duration = Duration::from_secs(3);
/// Between a failed attempt to connect and the next: from this, doubling ...
pub const CONNECT_PAUSE_MIN: Duration = Duration::from_millis(20);
/// ... to this, half of it at random.
pub const CONNECT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Addresses that a pool remembers before it forgets those without a connection.
pub const POOL_ADDRESSES_MAX: usize = 4096;

/// Room for what is read from a socket at a time; each connection holds this much.
pub const READ_BYTES: usize = 16 << 10;

const _: () = assert!(GREETING_BYTES_MAX < 0x0a0a_0a0a);
const _: () = assert!(FRAME_BYTES_MAX < PEER_FRAME_BYTES_MAX);
const _: () = assert!(VALUE_BYTES_MAX + 2 * KEY_BYTES_MAX < FRAME_BYTES_MAX);
const _: () = assert!(PING_INTERVAL.as_millis() < PING_SILENCE_MAX.as_millis());
