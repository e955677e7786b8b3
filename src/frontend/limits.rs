//! Bounds of the front ends.

use std::time::Duration;

/// A server answers no more connections than this; the next gets one clear error.
pub const CONNECTIONS_MAX: usize = 10_000;
/// Connections that are being told so at the same time; beyond that they are closed without a word.
pub const REFUSALS_MAX: usize = 64;
/// Requests of one connection that are worked on at the same time. While there are as many, no more is read from it.
pub const REQUESTS_PER_CONNECTION_MAX: usize = 1024;
/// No more is read from a connection, and no more answers are taken, while this much waits for it to read.
pub const ANSWER_BYTES_MAX: usize = 4 << 20;
/// From the connection's beginning to the end of the handshake.
pub const GREETING_TIME_MAX: Duration = Duration::from_secs(5);
/// A connection that asks nothing for this long is closed.
pub const IDLE_TIME_MAX: Duration = Duration::from_secs(600);
/// A connection that takes nothing of its answers for this long, or sends nothing of the rest of a frame, is closed.
pub const STALL_TIME_MAX: Duration = Duration::from_secs(30);
/// What is left to a connection that is being closed to take the error that says why.
pub const LAST_WORDS_TIME_MAX: Duration = Duration::from_secs(1);
/// After a failed accept, before the next.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
