//! The only door to the world.
//!
//! Everything Steadfast does to a network, a disk, a clock, a source of randomness or a thread goes through an [`Env`]:
//! a cheap handle over object-safe traits, one per node. The code above never learns which backend it runs on:
//!
//! - [`real`]: tokio for the network, the clock and tasks; io_uring for files where the kernel has it, a thread pool
//!   where it does not. Without the feature `net` it knows no sockets and no signals: for a library over one folder.
//! - [`sim`] (feature `sim`): turmoil as scheduler and network; a disk that loses what was not flushed; a clock per node
//!   that drifts, steps and freezes; tasks owned by the node, polled in an order drawn from the node's own seed.
//!
//! One contract suite, [`contract`], runs on all of them, so that a promise written in a trait here is a promise kept.
//!
//! The law of the simulated backend: **same seed, same trace**. Code above keeps it by using no other source of time,
//! order or randomness: no `tokio::select!` without `biased`, no [`std::collections::HashMap`] with random state (use
//! [`HashMap`]), no `tokio::sync::watch` (its wake order is random).
//!
//! A task always runs inside its node's [`Env`]: [`Env::current`] finds it. It exists for libraries with static hooks
//! (openraft's runtime trait); code that can hold an `Env` holds one.

#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

pub mod clock;
pub mod disk;
pub mod mutants;
pub mod net;
pub mod task;
pub mod watch;

#[cfg(feature = "net")]
pub mod contract;
pub mod real;
#[cfg(feature = "sim")]
pub mod sim;

pub use clock::{Clock, Elapsed, Instant, Sleep};
pub use disk::{DirEntry, Disk, File, OpenMode};
pub use net::{Listener, Net, Stream};
/// The same on every backend: memory and processor are nothing that a simulation breaks.
pub use real::{Pages, prefetch, select};
pub use task::{BoxFuture, Spawner, Task, TaskGone};

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// A hash map whose order is a function of its contents' history alone.
pub type HashMap<K, V> = std::collections::HashMap<K, V, foldhash::quality::FixedState>;
/// A hash set whose order is a function of its contents' history alone.
pub type HashSet<K> = std::collections::HashSet<K, foldhash::quality::FixedState>;

/// A node's source of random numbers: the kernel's in production, the node's own seeded stream in simulation.
pub trait Rng: Send + Sync + 'static {
    fn next_u64(&self) -> u64;
}

/// What a backend hands over to make an [`Env`].
pub struct Parts {
    /// The node's name, for logs: `server-3`, `master-1`, `client-2`.
    pub node: String,
    pub disk: Arc<dyn Disk>,
    pub net: Arc<dyn Net>,
    pub clock: Arc<dyn Clock>,
    pub rng: Arc<dyn Rng>,
    pub spawner: Arc<dyn Spawner>,
}

/// One node's world. Cloning copies a pointer.
#[derive(Clone)]
pub struct Env {
    parts: Arc<Parts>,
}

impl Env {
    pub fn new(parts: Parts) -> Env {
        Env { parts: Arc::new(parts) }
    }

    /// The environment of the task that is being polled on this thread.
    ///
    /// # Panics
    /// Outside a task of a node.
    pub fn current() -> Env {
        Env::try_current().expect("called outside a task of a node")
    }

    pub fn try_current() -> Option<Env> {
        CURRENT.with(|current| current.borrow().clone())
    }

    pub fn node(&self) -> &str {
        &self.parts.node
    }

    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.parts.disk
    }

    pub fn net(&self) -> &Arc<dyn Net> {
        &self.parts.net
    }

    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.parts.clock
    }

    /// Local monotonic time; a shorthand for `clock().now()`.
    pub fn now(&self) -> Instant {
        self.parts.clock.now()
    }

    pub fn sleep(&self, duration: Duration) -> Sleep {
        self.parts.clock.sleep(duration)
    }

    pub fn random(&self) -> u64 {
        self.parts.rng.next_u64()
    }

    /// A random number below `bound` (which is not 0).
    pub fn random_below(&self, bound: u64) -> u64 {
        ((self.random() as u128 * bound as u128) >> 64) as u64
    }

    /// Runs `future` beside the caller until it ends, is aborted, or the node dies.
    ///
    /// Dropping the returned [`Task`] detaches it. In simulation a panic in a task ends the run as a failure.
    pub fn spawn<F>(&self, name: &'static str, future: F) -> Task<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let body = async move {
            let _ = sender.send(future.await);
        };
        let abort = self.parts.spawner.spawn(name, Box::pin(self.enter(body)));
        Task::new(receiver, abort)
    }

    /// Runs `work`, which may take long or block, away from the threads that poll tasks (at once in simulation).
    pub async fn blocking<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, TaskGone> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        self.parts.spawner.blocking(Box::new(move || {
            let _ = sender.send(work());
        }));
        receiver.await.map_err(|_| TaskGone)
    }

    /// Waits for `future` no longer than `limit`. When both are ready the future wins.
    pub async fn timeout<F: Future>(&self, limit: Duration, future: F) -> Result<F::Output, Elapsed> {
        let mut sleep = self.sleep(limit);
        let mut future = std::pin::pin!(future);
        std::future::poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Ok(output)),
            Poll::Pending => sleep.as_mut().poll(context).map(|()| Err(Elapsed)),
        })
        .await
    }

    /// Makes `future` run with this environment as [`Env::current`].
    pub fn enter<F: Future>(&self, future: F) -> Entered<F> {
        Entered { env: self.clone(), future: Some(Box::pin(future)) }
    }
}

impl std::fmt::Debug for Env {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Env({})", self.parts.node)
    }
}

thread_local! {
    static CURRENT: RefCell<Option<Env>> = const { RefCell::new(None) };
}

/// A future that sees its node's environment as the current one while it is polled and while it is dropped.
pub struct Entered<F> {
    env: Env,
    future: Option<Pin<Box<F>>>,
}

struct Restore(Option<Env>);

impl Drop for Restore {
    fn drop(&mut self) {
        CURRENT.with(|current| *current.borrow_mut() = self.0.take());
    }
}

fn enter(env: &Env) -> Restore {
    Restore(CURRENT.with(|current| current.borrow_mut().replace(env.clone())))
}

impl<F: Future> Future for Entered<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let _restore = enter(&self.env);
        self.future.as_mut().expect("taken only by drop").as_mut().poll(context)
    }
}

impl<F> Drop for Entered<F> {
    fn drop(&mut self) {
        let _restore = enter(&self.env);
        self.future = None;
    }
}
