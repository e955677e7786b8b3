//! The machine's clocks.

use super::sys;
use crate::clock::{Clock, Instant, Sleep};
use std::time::{Duration, SystemTime};
use tokio::runtime::Handle;

/// Monotonic time counts from when the environment was opened, and counts the time the machine is suspended.
pub(super) struct RealClock {
    origin: Duration,
    runtime: Handle,
}

impl RealClock {
    pub(super) fn new(runtime: Handle) -> RealClock {
        RealClock { origin: sys::since_boot(), runtime }
    }
}

impl Clock for RealClock {
    fn now(&self) -> Instant {
        Instant::from_origin(sys::since_boot() - self.origin)
    }

    fn wall_ms(&self) -> u64 {
        // A machine that believes it is before 1970 knows nothing.
        SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis() as u64)
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        if duration.is_zero() {
            return Box::pin(tokio::task::yield_now());
        }
        // The timer counts from now, not from the first poll, and needs to find its runtime.
        let _runtime = self.runtime.enter();
        Box::pin(tokio::time::sleep(duration))
    }
}
