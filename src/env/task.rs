//! Tasks of a node.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::oneshot;

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Stops a task: its future is dropped before it is polled again. Without effect on one that has ended.
pub type Abort = Arc<dyn Fn() + Send + Sync>;

pub trait Spawner: Send + Sync + 'static {
    /// Runs `future` until it ends, is aborted, or the node dies. All of a node's tasks are dropped when the node is
    /// killed, in simulation in the order in which they were spawned.
    fn spawn(&self, name: &'static str, future: BoxFuture<'static, ()>) -> Abort;
    /// Runs `work` on a thread where blocking is harmless; in simulation at once, on the caller's.
    fn blocking(&self, work: Box<dyn FnOnce() + Send>);
}

/// The task ended without a result: it was aborted, it panicked, or its node died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskGone;

impl std::fmt::Display for TaskGone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("task was aborted or panicked")
    }
}

impl std::error::Error for TaskGone {}

/// A running task; awaiting it gives its result. Dropping it lets the task run on.
pub struct Task<T> {
    result: oneshot::Receiver<T>,
    abort: Abort,
}

impl<T> Task<T> {
    pub(crate) fn new(result: oneshot::Receiver<T>, abort: Abort) -> Task<T> {
        Task { result, abort }
    }

    pub fn abort(&self) {
        (self.abort)()
    }
}

impl<T> Future for Task<T> {
    type Output = Result<T, TaskGone>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.result).poll(context).map_err(|_| TaskGone)
    }
}
