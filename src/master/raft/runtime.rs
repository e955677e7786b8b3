//! What openraft asks of a runtime, answered by the environment of the task that asks.
//!
//! openraft names its runtime by a type, so there is no value to carry an [`Env`] in: each call finds it by
//! [`Env::current`]. The same adapter serves in production and in simulation. Channels without a hidden source of
//! randomness are tokio's; the watch channel is env's, which wakes in the order of waiting.

use env::{Env, TaskGone, watch};
use openraft_rt::{AsyncRuntime, Instant, OptionalSend, OptionalSync};
use rand::TryRng;
use std::convert::Infallible;
use std::future::Future;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

#[derive(Debug)]
pub struct EnvRuntime;

impl AsyncRuntime for EnvRuntime {
    type JoinError = TaskGone;
    type JoinHandle<T: OptionalSend + 'static> = env::Task<T>;
    type Sleep = env::Sleep;
    type Instant = EnvInstant;
    type TimeoutError = env::Elapsed;
    type Timeout<R, T: Future<Output = R> + OptionalSend> = Timeout<T>;
    type ThreadLocalRng = EnvRng;
    type Mpsc = openraft_rt_tokio::TokioMpsc;
    type Watch = EnvWatch;
    type Oneshot = openraft_rt_tokio::TokioOneshot;
    type Mutex<T: OptionalSend + 'static> = openraft_rt_tokio::TokioMutex<T>;

    fn spawn<T>(future: T) -> env::Task<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        Env::current().spawn("raft", future)
    }

    fn sleep(duration: Duration) -> env::Sleep {
        Env::current().sleep(duration)
    }

    fn sleep_until(deadline: EnvInstant) -> env::Sleep {
        let env = Env::current();
        env.sleep(deadline.0.since(env.now()))
    }

    fn timeout<R, F: Future<Output = R> + OptionalSend>(duration: Duration, future: F) -> Timeout<F> {
        Timeout { future, sleep: Self::sleep(duration) }
    }

    fn timeout_at<R, F: Future<Output = R> + OptionalSend>(deadline: EnvInstant, future: F) -> Timeout<F> {
        Timeout { future, sleep: Self::sleep_until(deadline) }
    }

    /// openraft aborts none of its tasks, so one that is gone has panicked, or its node is dying and nobody looks.
    fn is_panic(_: &TaskGone) -> bool {
        true
    }

    fn thread_rng() -> EnvRng {
        EnvRng(Env::current())
    }

    fn new(_threads: usize) -> EnvRuntime {
        EnvRuntime
    }

    /// Blocks the thread, in its task's environment; openraft's test suite alone asks for this.
    fn block_on<F: Future<Output = T>, T>(&mut self, future: F) -> T {
        let bell = Arc::new(Bell::default());
        let waker = Waker::from(bell.clone());
        let mut future = std::pin::pin!(future);
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return output;
            }
            bell.wait();
        }
    }

    async fn spawn_blocking<F, T>(work: F) -> Result<T, std::io::Error>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        Env::current().blocking(work).await.map_err(std::io::Error::other)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EnvInstant(env::Instant);

impl Instant for EnvInstant {
    fn now() -> EnvInstant {
        EnvInstant(Env::current().now())
    }
}

impl Add<Duration> for EnvInstant {
    type Output = EnvInstant;
    fn add(self, duration: Duration) -> EnvInstant {
        EnvInstant(self.0 + duration)
    }
}

impl AddAssign<Duration> for EnvInstant {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub<Duration> for EnvInstant {
    type Output = EnvInstant;
    fn sub(self, duration: Duration) -> EnvInstant {
        EnvInstant(self.0 - duration)
    }
}

impl SubAssign<Duration> for EnvInstant {
    fn sub_assign(&mut self, duration: Duration) {
        *self = *self - duration;
    }
}

impl Sub for EnvInstant {
    type Output = Duration;
    fn sub(self, earlier: EnvInstant) -> Duration {
        self.0.since(earlier.0)
    }
}

pin_project_lite::pin_project! {
    /// The future wins when both are ready.
    pub struct Timeout<F> {
        #[pin]
        future: F,
        sleep: env::Sleep,
    }
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, env::Elapsed>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(output) = this.future.poll(context) {
            return Poll::Ready(Ok(output));
        }
        this.sleep.as_mut().poll(context).map(|()| Err(env::Elapsed))
    }
}

/// Wakes a blocked thread.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    ring: Condvar,
}

impl Bell {
    fn wait(&self) {
        let rung = self.rung.lock().expect("nothing panics under this lock");
        *self.ring.wait_while(rung, |rung| !*rung).expect("nothing panics under this lock") = false;
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        *self.rung.lock().expect("nothing panics under this lock") = true;
        self.ring.notify_one();
    }
}

/// The node's random numbers in the form that the `rand` traits ask for.
pub struct EnvRng(Env);

impl TryRng for EnvRng {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok((self.0.random() >> 32) as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.0.random())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.0.random().to_le_bytes()[..chunk.len()]);
        }
        Ok(())
    }
}

/// Names env's watch channel as openraft's.
pub struct EnvWatch;

pub struct WatchSender<T>(watch::Sender<T>);

pub struct WatchReceiver<T>(watch::Receiver<T>);

impl<T> Clone for WatchSender<T> {
    fn clone(&self) -> Self {
        WatchSender(self.0.clone())
    }
}

impl<T> Clone for WatchReceiver<T> {
    fn clone(&self) -> Self {
        WatchReceiver(self.0.clone())
    }
}

impl openraft_rt::Watch for EnvWatch {
    type Sender<T: OptionalSend + OptionalSync> = WatchSender<T>;
    type Receiver<T: OptionalSend + OptionalSync> = WatchReceiver<T>;
    type Ref<'a, T: OptionalSend + 'a> = watch::Ref<'a, T>;

    fn channel<T: OptionalSend + OptionalSync>(initial: T) -> (WatchSender<T>, WatchReceiver<T>) {
        let (sender, receiver) = watch::channel(initial);
        (WatchSender(sender), WatchReceiver(receiver))
    }
}

impl<T: OptionalSend + OptionalSync> openraft_rt::WatchSender<EnvWatch, T> for WatchSender<T> {
    fn send(&self, value: T) -> Result<(), openraft_rt::watch::SendError<T>> {
        self.0.send(value).map_err(|refused| openraft_rt::watch::SendError(refused.0))
    }

    fn send_if_modified<F: FnOnce(&mut T) -> bool>(&self, modify: F) -> bool {
        self.0.send_if_modified(modify)
    }

    fn borrow_watched(&self) -> watch::Ref<'_, T> {
        self.0.borrow()
    }

    fn subscribe(&self) -> WatchReceiver<T> {
        WatchReceiver(self.0.subscribe())
    }
}

impl<T: OptionalSend + OptionalSync> openraft_rt::WatchReceiver<EnvWatch, T> for WatchReceiver<T> {
    async fn changed(&mut self) -> Result<(), openraft_rt::RecvError> {
        self.0.changed().await.map_err(|_| openraft_rt::RecvError(()))
    }

    fn borrow_watched(&self) -> watch::Ref<'_, T> {
        self.0.borrow()
    }

    fn borrow_and_update(&mut self) -> watch::Ref<'_, T> {
        self.0.borrow_and_update()
    }
}

#[cfg(test)]
mod tests {
    use super::EnvRuntime;
    use openraft::testing::runtime::Suite;

    #[test]
    fn the_real_backend_passes_openrafts_suite() {
        let folder = tempfile::tempdir().unwrap();
        let (data_dir, node) = (folder.path().to_owned(), "master".to_owned());
        let io = env::real::IoChoice::Threads;
        env::real::runtime().unwrap().block_on(async move {
            let env = env::real::open(env::real::Options { data_dir, node, io }).unwrap();
            // The suite blocks inside one poll, which tokio would make wait for a turn that never comes.
            let suite = tokio::task::coop::unconstrained(async { Suite::<EnvRuntime>::test_all() });
            env.enter(suite).await;
        });
    }

    /// Without what only `block_on` can run: a simulated node runs its tasks on the thread that would wait.
    #[test]
    fn the_simulated_backend_passes_openrafts_suite() {
        type On = Suite<EnvRuntime>;
        env::sim::single(1, |_| async {
            On::test_spawn_join_handle().await;
            On::test_thread_rng().await;
            On::test_sleep().await;
            On::test_instant().await;
            On::test_instant_arithmetic().await;
            On::test_instant_sub_instant().await;
            On::test_instant_saturating_duration_since().await;
            On::test_instant_ord().await;
            On::test_sleep_until().await;
            On::test_timeout().await;
            On::test_timeout_at().await;
            On::test_watch_init_value().await;
            On::test_watch_overwrite_init_value().await;
            On::test_watch_send_error_no_receiver().await;
            On::test_watch_send_if_modified().await;
            On::test_watch_wait_until_ge().await;
            On::test_watch_wait_until().await;
            On::test_watch_multiple_receivers().await;
            On::test_watch_subscribe().await;
            On::test_watch_send_if_different().await;
            On::test_watch_send_if_greater().await;
            On::test_oneshot().await;
            On::test_oneshot_send_from_another_task().await;
            On::test_mutex().await;
            On::test_mutex_contention().await;
        });
    }
}
