//! True time: what the scheduler knows and no node sees.

use crate::clock::Sleep;
use std::time::Duration;

/// What a scheduler gives to the simulated disks and clocks.
pub trait Timeline: Send + Sync + 'static {
    /// Time since the run began.
    fn now(&self) -> Duration;
    /// Completes when `duration` has passed; may be polled only by the node's tasks.
    fn sleep(&self, duration: Duration) -> Sleep;
}
