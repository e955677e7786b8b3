//! A node's clocks over true time: they drift, step, start anywhere and stand still.
//!
//! Both clocks of a machine run off one oscillator of a wrong rate. The monotonic one counts from a point the boot chose and
//! never steps back; it counts while the node is paused, as CLOCK_BOOTTIME does. The wall clock has an offset of its own, may
//! step, and may stand still.
//!
//! ```text
//!   true      0 ────────────────────────────────▶
//!   local     start + Σ span · (1 + rate)          integers, nanoseconds
//!   wall      1970 + local progress + offset       milliseconds
//! ```

use super::timeline::Timeline;
use crate::clock::{Clock, Instant, Sleep};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// What the wall clock of a node without an offset shows when a run begins.
pub const WALL_START_MS: u64 = 1_700_000_000_000;

/// A clock that stands still is looked at this often by those who sleep on it.
const STANDSTILL_CHECK: Duration = Duration::from_secs(1);

const MILLION: i128 = 1_000_000;

/// One machine's clocks, held by the harness.
pub struct ClockState {
    inner: Mutex<Inner>,
}

struct Inner {
    /// Local and true time at the last change of rate.
    local_base: Duration,
    true_base: Duration,
    rate_ppm: i64,
    /// Wall time minus local time.
    wall_offset_ms: i64,
    wall_stands_at_ms: Option<u64>,
    sleepers: BTreeMap<u64, Waker>,
    next_sleeper: u64,
}

impl ClockState {
    pub fn new() -> Arc<ClockState> {
        let inner = Inner {
            local_base: Duration::ZERO,
            true_base: Duration::ZERO,
            rate_ppm: 0,
            wall_offset_ms: WALL_START_MS as i64,
            wall_stands_at_ms: None,
            sleepers: BTreeMap::new(),
            next_sleeper: 0,
        };
        Arc::new(ClockState { inner: Mutex::new(inner) })
    }

    /// The machine starts: its monotonic clock reads `local` at true time `now`. The wall clock goes on.
    pub fn boot(&self, now: Duration, local: Duration) {
        let mut inner = self.inner();
        let wall = inner.running_wall_ms(now);
        (inner.local_base, inner.true_base) = (local, now);
        inner.wall_offset_ms = wall - ms(local);
    }

    pub fn local(&self, now: Duration) -> Duration {
        self.inner().local(now)
    }

    pub fn wall_ms(&self, now: Duration) -> u64 {
        let inner = self.inner();
        inner.wall_stands_at_ms.unwrap_or_else(|| inner.running_wall_ms(now).max(0) as u64)
    }

    fn set_rate(&self, now: Duration, ppm: i64) {
        assert!(ppm >= -1_000_000, "a rate of {ppm} ppm runs backwards");
        let sleepers = {
            let mut inner = self.inner();
            (inner.local_base, inner.true_base) = (inner.local(now), now);
            inner.rate_ppm = ppm;
            std::mem::take(&mut inner.sleepers)
        };
        sleepers.into_values().for_each(Waker::wake);
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("arithmetic does not panic")
    }
}

impl Inner {
    fn local(&self, now: Duration) -> Duration {
        let passed = now.saturating_sub(self.true_base).as_nanos() as i128;
        let local = passed * (MILLION + self.rate_ppm as i128) / MILLION;
        self.local_base + Duration::from_nanos(local as u64)
    }

    fn running_wall_ms(&self, now: Duration) -> i64 {
        self.wall_offset_ms + ms(self.local(now))
    }

    /// True time until the local clock, at its present rate, reads `deadline`: rounded up, so never too short.
    fn true_until(&self, now: Duration, deadline: Duration) -> Duration {
        let left = deadline.saturating_sub(self.local(now)).as_nanos() as i128;
        match MILLION + self.rate_ppm as i128 {
            0 => STANDSTILL_CHECK,
            rate => Duration::from_nanos(((left * MILLION + rate - 1) / rate).min(i64::MAX as i128) as u64),
        }
    }
}

/// Turns the knobs of one node's clocks.
#[derive(Clone)]
pub struct ClockControl {
    state: Arc<ClockState>,
    now: Duration,
}

impl ClockControl {
    pub fn new(state: Arc<ClockState>, now: Duration) -> ClockControl {
        ClockControl { state, now }
    }

    /// From now on both clocks gain this much (lose, if negative) on true time. Bounded by ρ outside of profiles that the
    /// checkers must catch.
    pub fn set_rate_ppm(&self, ppm: i64) {
        self.state.set_rate(self.now, ppm);
    }

    pub fn step_wall_ms(&self, by: i64) {
        self.state.inner().wall_offset_ms += by;
    }

    /// The wall clock stands still.
    pub fn freeze_wall(&self) {
        let reads = self.state.wall_ms(self.now);
        self.state.inner().wall_stands_at_ms = Some(reads);
    }

    /// It goes on from where it stood.
    pub fn thaw_wall(&self) {
        let mut inner = self.state.inner();
        if let Some(stood_at) = inner.wall_stands_at_ms.take() {
            inner.wall_offset_ms += stood_at as i64 - inner.running_wall_ms(self.now);
        }
    }

    pub fn rate_ppm(&self) -> i64 {
        self.state.inner().rate_ppm
    }

    /// What the node's monotonic clock reads.
    pub fn local(&self) -> Instant {
        Instant::from_origin(self.state.local(self.now))
    }

    pub fn wall_ms(&self) -> u64 {
        self.state.wall_ms(self.now)
    }
}

/// The clock of one run of a node.
pub(super) struct SimClock {
    pub(super) state: Arc<ClockState>,
    pub(super) timeline: Arc<dyn Timeline>,
}

impl Clock for SimClock {
    fn now(&self) -> Instant {
        Instant::from_origin(self.state.local(self.timeline.now()))
    }

    fn wall_ms(&self) -> u64 {
        self.state.wall_ms(self.timeline.now())
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        let deadline = self.state.local(self.timeline.now()).saturating_add(duration);
        let key = None;
        Box::pin(LocalSleep {
            state: self.state.clone(),
            timeline: self.timeline.clone(),
            deadline,
            rate_ppm: 0,
            armed: None,
            key,
            yielded: false,
        })
    }
}

/// Sleeps until the local clock reads `deadline`, whatever its rate does meanwhile.
struct LocalSleep {
    state: Arc<ClockState>,
    timeline: Arc<dyn Timeline>,
    deadline: Duration,
    /// The rate that `armed` was computed with.
    rate_ppm: i64,
    armed: Option<Sleep>,
    key: Option<u64>,
    yielded: bool,
}

impl Future for LocalSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if !std::mem::replace(&mut this.yielded, true) && this.has_come() {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        loop {
            if this.has_come() {
                return Poll::Ready(());
            }
            this.arm(context);
            let armed = this.armed.as_mut().expect("armed above");
            match armed.as_mut().poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(()) => this.armed = None,
            }
        }
    }
}

impl LocalSleep {
    fn has_come(&self) -> bool {
        self.state.local(self.timeline.now()) >= self.deadline
    }

    /// Sets the alarm for the present rate, and asks to be woken when the rate changes.
    fn arm(&mut self, context: &Context<'_>) {
        let mut inner = self.state.inner();
        let key = *self.key.get_or_insert_with(|| {
            inner.next_sleeper += 1;
            inner.next_sleeper
        });
        inner.sleepers.insert(key, context.waker().clone());
        if self.armed.is_none() || self.rate_ppm != inner.rate_ppm {
            self.rate_ppm = inner.rate_ppm;
            let left = inner.true_until(self.timeline.now(), self.deadline);
            drop(inner);
            self.armed = Some(self.timeline.sleep(left));
        }
    }
}

impl Drop for LocalSleep {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.state.inner().sleepers.remove(&key);
        }
    }
}

fn ms(duration: Duration) -> i64 {
    duration.as_millis() as i64
}
