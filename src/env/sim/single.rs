//! One node on its own, for tests of what does not need a cluster.
//!
//! The cheapest of the schedulers: no ticks, time jumps to the next timer. Its network reaches only the node itself.

use super::disk::DiskState;
use super::exec::Panicked;
use super::limits::SINGLE_RUN_MAX;
use super::net::Loopback;
use super::node::{CrashKind, Machine};
use super::timeline::Timeline;
use super::trace::Trace;
use crate::Env;
use crate::clock::Sleep;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Runs `test` on a fresh node with an empty disk until it ends. Panics of any of its tasks come out here.
pub fn single<T, F>(seed: u64, test: impl FnOnce(Env) -> F) -> T
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    single_with(DiskState::new(seed, "single"), seed, test)
}

/// Runs `test` on a node with this disk. The process ends with it, as in a crash: what is in flight may happen or not.
///
/// To test recovery: run, lose power ([`DiskState::power_loss`]), run again on what is left.
pub fn single_with<T, F>(disk: Arc<DiskState>, seed: u64, test: impl FnOnce(Env) -> F) -> T
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    Single::new(disk, seed).run(test).expect("only a disk that was told to stop ends a run early")
}

/// Like [`single_with`], but the process crashes at its disk operation number `operations` (from 0), if it comes so
/// far: then `None`. With a loop over `operations` until `Some`, every crash point of a procedure is tried.
pub fn single_crashing<T, F>(disk: Arc<DiskState>, seed: u64, operations: u64, test: impl FnOnce(Env) -> F) -> Option<T>
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    let mut single = Single::new(disk, seed);
    single.crashes_at = Some(operations);
    single.run(test)
}

/// A run on one node, for tests that look at more than its result.
pub struct Single {
    seed: u64,
    disk: Arc<DiskState>,
    crashes_at: Option<u64>,
    trace: Trace,
}

impl Single {
    pub fn new(disk: Arc<DiskState>, seed: u64) -> Single {
        Single { seed, disk, crashes_at: None, trace: Trace::default() }
    }

    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    pub fn run<T, F>(&self, test: impl FnOnce(Env) -> F) -> Option<T>
    where
        F: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        let time = Arc::new(Timers::default());
        let panicked = Panicked::default();
        let machine = Machine::new("single", 0, self.seed, self.disk.clone(), self.trace.clone(), panicked);
        let process = machine.boot(time.clone(), Arc::new(Loopback::default()));
        if let Some(operations) = self.crashes_at {
            self.disk.stop_after(operations);
        }
        let result = Arc::new(Mutex::new(None));
        let (body, out) = (test(process.env.clone()), result.clone());
        let main = async move { *out.lock().expect("written once") = Some(body.await) };
        let stopped = || self.crashes_at.is_some() && self.disk.is_stopped();
        drive(process.root(Box::pin(main)), &time, stopped);
        machine.crashed(CrashKind::Process, time.now());
        result.lock().expect("written once").take()
    }
}

/// Polls `root` to its end, letting time jump whenever nothing is left to do.
fn drive(root: impl Future<Output = ()>, time: &Timers, stopped: impl Fn() -> bool) {
    let woken = Arc::new(Woken(AtomicBool::new(true)));
    let waker = Waker::from(woken.clone());
    let mut context = Context::from_waker(&waker);
    let mut root = pin!(root);
    loop {
        while woken.0.swap(false, Relaxed) {
            if root.as_mut().poll(&mut context).is_ready() || stopped() {
                return;
            }
        }
        time.jump();
    }
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

/// Time that passes only when everybody waits.
#[derive(Default)]
struct Timers {
    inner: Arc<Mutex<Alarms>>,
}

#[derive(Default)]
struct Alarms {
    now: Duration,
    /// By time, then by order of setting.
    set: BTreeMap<(Duration, u64), Waker>,
    next: u64,
}

impl Timers {
    fn jump(&self) {
        let first = self.alarms().set.pop_first();
        let ((at, _), waker) = first.expect("every task waits for ever: no timer is set");
        assert!(at < SINGLE_RUN_MAX, "still running after {SINGLE_RUN_MAX:?}");
        self.alarms().now = at;
        waker.wake();
    }

    fn alarms(&self) -> MutexGuard<'_, Alarms> {
        self.inner.lock().expect("nothing panics under this lock")
    }
}

impl Timeline for Timers {
    fn now(&self) -> Duration {
        self.alarms().now
    }

    /// Rounded up to whole milliseconds, as in the other schedulers.
    fn sleep(&self, duration: Duration) -> Sleep {
        let ms = duration.as_nanos().div_ceil(1_000_000).min(u64::MAX as u128) as u64;
        let at = self.now().saturating_add(Duration::from_millis(ms));
        Box::pin(Alarm { timers: self.inner.clone(), at, key: None })
    }
}

struct Alarm {
    timers: Arc<Mutex<Alarms>>,
    at: Duration,
    key: Option<u64>,
}

impl Future for Alarm {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let timers = self.timers.clone();
        let mut alarms = timers.lock().expect("nothing panics under this lock");
        if alarms.now >= self.at {
            return Poll::Ready(());
        }
        let key = *self.key.get_or_insert_with(|| {
            alarms.next += 1;
            alarms.next
        });
        alarms.set.insert((self.at, key), context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.timers.lock().expect("nothing panics under this lock").set.remove(&(self.at, key));
        }
    }
}
