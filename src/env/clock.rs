//! Time as one node sees it.

use crate::BoxFuture;
use std::ops::{Add, Sub};
use std::time::Duration;

/// Completes when its time has come. Owns what it needs; dropping it cancels it.
pub type Sleep = BoxFuture<'static, ()>;

/// A node's two clocks.
///
/// Leases and timeouts use the monotonic one. It never steps back, it counts the time the machine was suspended, and it
/// runs at most ρ faster or slower than true time. The wall clock may be wrong by years and may step; it is written into
/// records for people and for expiry, and decides nothing between nodes.
pub trait Clock: Send + Sync + 'static {
    /// Monotonic local time. Comparable only within one run of one node.
    fn now(&self) -> Instant;
    /// Milliseconds since 1970 as this node believes.
    fn wall_ms(&self) -> u64;
    /// Completes once `duration` has passed on the monotonic clock. A zero duration still yields once.
    fn sleep(&self, duration: Duration) -> Sleep;
}

/// A point on a node's monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(Duration);

impl Instant {
    /// `since_origin` counts from an origin that the backend fixes for one run of the node.
    pub const fn from_origin(since_origin: Duration) -> Instant {
        Instant(since_origin)
    }

    pub const fn since_origin(self) -> Duration {
        self.0
    }

    /// How long ago `earlier` was; zero if it lies ahead.
    pub fn since(self, earlier: Instant) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, duration: Duration) -> Instant {
        Instant(self.0.saturating_add(duration))
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;
    fn sub(self, duration: Duration) -> Instant {
        Instant(self.0.saturating_sub(duration))
    }
}

/// The limit of a [`crate::Env::timeout`] passed first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elapsed;

impl std::fmt::Display for Elapsed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("deadline passed")
    }
}

impl std::error::Error for Elapsed {}

impl From<Elapsed> for std::io::Error {
    fn from(_: Elapsed) -> std::io::Error {
        std::io::Error::new(std::io::ErrorKind::TimedOut, "deadline passed")
    }
}
