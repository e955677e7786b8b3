//! The engine that does file I/O with plain calls on a pool of threads.

use super::limits::IO_THREADS_MAX;
use super::operation::{Engine, Operation, Step};
use super::sys;
use std::collections::VecDeque;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// Threads are started when all others are busy, and stay until the engine is dropped and the queue is empty.
pub(super) struct Threads {
    pool: Arc<Pool>,
}

#[derive(Default)]
struct Pool {
    state: Mutex<State>,
    more: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Operation>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl Threads {
    pub(super) fn new() -> Threads {
        Threads { pool: Arc::default() }
    }
}

impl Engine for Threads {
    fn submit(&self, operation: Operation) {
        let mut state = self.pool.state();
        state.queue.push_back(operation);
        if state.queue.len() <= state.idle {
            self.pool.more.notify_one();
        } else if state.threads < IO_THREADS_MAX {
            self.pool.start_thread(&mut state);
        }
    }

    fn name(&self) -> &'static str {
        "threads"
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.pool.state().closed = true;
        self.pool.more.notify_all();
    }
}

impl Pool {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }

    fn start_thread(self: &Arc<Pool>, state: &mut State) {
        let pool = self.clone();
        match std::thread::Builder::new().name("file-io".into()).spawn(move || pool.work()) {
            Ok(_) => state.threads += 1,
            // The threads there are do it, later. With none at all nothing would ever be read or written.
            Err(error) => assert!(state.threads > 0, "no thread for file I/O: {error}"),
        }
    }

    fn work(&self) {
        while let Some(operation) = self.next() {
            carry_out(operation);
        }
    }

    fn next(&self) -> Option<Operation> {
        let mut state = self.state();
        loop {
            if let Some(operation) = state.queue.pop_front() {
                return Some(operation);
            }
            if state.closed {
                return None;
            }
            state.idle += 1;
            state = self.more.wait(state).expect("no holder panics");
            state.idle -= 1;
        }
    }
}

/// All of it, on the calling thread.
pub(super) fn carry_out(operation: Operation) {
    let mut next = operation.start();
    while let Some(mut operation) = next {
        let answer = call(&mut operation);
        next = operation.advance(answer);
    }
}

fn call(operation: &mut Operation) -> io::Result<usize> {
    match operation.step() {
        (Step::Read { buffer, offset }, file) => file.read_at(buffer, offset),
        (Step::Write { slices, offset, .. }, file) => sys::write_vectored_at(file, &slices, offset),
        (Step::Flush, file) => file.sync_data().map(|()| 0),
    }
}
