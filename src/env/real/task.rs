//! Tasks on tokio.

use crate::task::{Abort, BoxFuture, Spawner};
use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::runtime::Handle;

pub(super) struct RealSpawner {
    runtime: Handle,
}

impl RealSpawner {
    pub(super) fn new(runtime: Handle) -> RealSpawner {
        RealSpawner { runtime }
    }
}

impl Spawner for RealSpawner {
    fn spawn(&self, name: &'static str, future: BoxFuture<'static, ()>) -> Abort {
        let handle = self.runtime.spawn(Reported { name, future }).abort_handle();
        Arc::new(move || handle.abort())
    }

    fn blocking(&self, work: Box<dyn FnOnce() + Send>) {
        let reported = move || {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
                report("blocking", &*panic);
            }
        };
        if super::own::waits() {
            return reported();
        }
        self.runtime.spawn_blocking(reported);
    }
}

/// A task whose panic is logged. It ends the task alone: whoever waits for it gets [`crate::TaskGone`].
struct Reported {
    name: &'static str,
    future: BoxFuture<'static, ()>,
}

impl Future for Reported {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // Unwind safe: a future that panicked is never polled again.
        catch_unwind(AssertUnwindSafe(|| self.future.as_mut().poll(context))).unwrap_or_else(|panic| {
            report(self.name, &*panic);
            Poll::Ready(())
        })
    }
}

fn report(task: &str, panic: &(dyn Any + Send)) {
    let text = panic.downcast_ref::<&str>().copied();
    let message = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    tracing::error!(task, "task panicked: {message}");
}
