//! An environment with a thread of its own, and calls that wait: for a library whose caller may have no runtime.
//!
//! [`open_own`] starts the thread, on which the environment's tasks run and its timers fire. Any other thread of the process
//! may [`wait`] for a future of that environment. A thread that waits has nothing better to do, so that it does itself what
//! else would be handed to another one: its file I/O ([`waits`]) costs no change of threads.

use super::Options;
use crate::Env;
use std::cell::Cell;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{JoinHandle, Thread};
use tokio::sync::oneshot;

/// Keeps the thread of [`open_own`] going. Dropping it ends the environment's tasks and waits for that.
pub struct Keeper {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Like [`super::open`], with a thread of its own for tasks and timers.
pub fn open_own(options: Options) -> io::Result<(Env, Keeper)> {
    let (opened, open) = mpsc::channel();
    let (stop, stopped) = oneshot::channel();
    let thread = std::thread::Builder::new().name(options.node.clone()).spawn(move || {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_time().build() {
            Ok(runtime) => runtime,
            Err(error) => return drop(opened.send(Err(error))),
        };
        let env = {
            let _runtime = runtime.enter();
            super::open(options)
        };
        let failed = env.is_err();
        drop(opened.send(env));
        if !failed {
            // An error means that the keeper is gone.
            let _ = runtime.block_on(stopped);
        }
    })?;
    let keeper = Keeper { stop: Some(stop), thread: Some(thread) };
    let env = open.recv().map_err(|_| io::Error::other("the thread ended as it started"))??;
    Ok((env, keeper))
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.stop.take());
        let thread = self.thread.take().expect("taken here only");
        // The last handle of what the thread serves may be held by one of its tasks.
        if thread.thread().id() != std::thread::current().id() {
            let _ = thread.join();
        }
    }
}

thread_local! {
    static WAITS: Cell<bool> = const { Cell::new(false) };
    static WAKER: Waker = Waker::from(Arc::new(Unpark(std::thread::current())));
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

/// Whether the calling thread is unwinding.
pub fn is_panicking() -> bool {
    std::thread::panicking()
}

/// Blocks the calling thread until `future` is done.
pub fn wait<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    WAKER.with(|waker| {
        let mut context = Context::from_waker(waker);
        loop {
            let polled = {
                let _waits = Waits(WAITS.replace(true));
                future.as_mut().poll(&mut context)
            };
            match polled {
                Poll::Ready(output) => return output,
                Poll::Pending => std::thread::park(),
            }
        }
    })
}

struct Waits(bool);

impl Drop for Waits {
    fn drop(&mut self) {
        WAITS.set(self.0);
    }
}

/// Whether this thread may block: it does nothing but [`wait`].
pub(super) fn waits() -> bool {
    WAITS.get()
}
