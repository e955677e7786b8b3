//! When each operation should start.
//!
//! With a fixed rate, operation `i` is intended to start `i / rate` after the run's start, however long the ones before it
//! take. Workers take slots in that order and wait for their time; when the store stalls and no worker is free, slots fall
//! behind, and because latency counts from the intended start the stall shows in every operation it held up. (Waiting for an
//! answer before the next operation is even intended would hide all of them but one: "coordinated omission".)
//!
//! Without a rate an operation starts when a worker is free.

use env::Instant;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The slots of one run, shared by its workers.
#[derive(Debug)]
pub struct Pace {
    start: Instant,
    per_second: Option<f64>,
    operations: u64,
    /// No slot at or after this.
    end: Option<Instant>,
    next: AtomicU64,
}

/// An operation's place in the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    pub number: u64,
    /// Where there is a rate.
    pub intended: Option<Instant>,
}

impl Pace {
    pub fn new(start: Instant, per_second: Option<f64>, operations: u64, duration: Option<Duration>) -> Pace {
        assert!(per_second.is_none_or(|rate| rate > 0.0), "a rate of {per_second:?}");
        Pace { start, per_second, operations, end: duration.map(|duration| start + duration), next: AtomicU64::new(0) }
    }

    /// The next slot; none when the run is over.
    pub fn take(&self, now: Instant) -> Option<Slot> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let intended = self.per_second.map(|rate| self.start + Duration::from_secs_f64(number as f64 / rate));
        let is_over = number >= self.operations || self.end.is_some_and(|end| intended.unwrap_or(now) >= end);
        (!is_over).then_some(Slot { number, intended })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant::from_origin(Duration::from_secs(5));

    #[test]
    fn slots_are_evenly_spaced_whatever_the_time_is() {
        let pace = Pace::new(START, Some(1000.0), 3, None);
        let late = START + Duration::from_secs(9);
        let intended = |ms| Some(START + Duration::from_millis(ms));
        assert_eq!(pace.take(START), Some(Slot { number: 0, intended: intended(0) }));
        assert_eq!(pace.take(late), Some(Slot { number: 1, intended: intended(1) }));
        assert_eq!(pace.take(late), Some(Slot { number: 2, intended: intended(2) }));
        assert_eq!(pace.take(late), None);
    }

    #[test]
    fn a_duration_ends_the_run_at_the_intended_time() {
        let pace = Pace::new(START, Some(10.0), u64::MAX, Some(Duration::from_millis(250)));
        let late = START + Duration::from_secs(9);
        assert_eq!((0..9).map_while(|_| pace.take(late)).count(), 3, "what was intended before the end is still owed");
        let unpaced = Pace::new(START, None, u64::MAX, Some(Duration::from_millis(250)));
        assert_eq!(unpaced.take(START).unwrap().intended, None);
        assert_eq!(unpaced.take(START + Duration::from_millis(250)), None);
    }
}
