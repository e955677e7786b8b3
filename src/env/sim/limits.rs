//! Bounds of the simulated backend.

use std::time::Duration;

/// What a disk writes whole or not at all.
pub const SECTOR_BYTES: u64 = 512;
/// A disk without a set capacity holds this much.
pub const DISK_BYTES: u64 = 1 << 40;
/// Tasks polled in one poll of a node's root future.
pub const POLLS_PER_TURN_MAX: usize = 512;
/// A node whose tasks are polled this often while time stands still is in a loop that waits for nothing.
pub const POLLS_PER_INSTANT_MAX: u64 = 2_000_000;
/// A run on one node ends as a failure after this much simulated time.
pub const SINGLE_RUN_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
