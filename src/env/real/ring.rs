//! The engine that reads through io_uring.
//!
//! One thread owns the ring. Whoever submits puts the read into a queue and wakes the thread if it sleeps; the thread
//! moves the queue into the ring, as many reads as may be in flight, and waits in the kernel for the first completion.
//! One call of the kernel thus submits all that came meanwhile and collects all that ended. The thread sleeps in no other
//! place: a poll of an event descriptor, always in flight in the ring, is what wakes it.
//!
//! ```text
//! submit ──► queue ──► ring thread ──► submission queue ──► kernel
//!              │            ▲                                 │
//!              └─ event ────┴──────── completion queue ◄──────┘
//! ```
//!
//! Writes and flushes go to the thread pool instead. A flush always waits, and ext4 knows no buffered write that does
//! not: the kernel hands both to a thread of its own, one more wake-up than a thread of ours needs. Measured side by side
//! (4 KiB into memory, so that the device is out of it), a write took 44 µs through the ring and 32 µs through the pool,
//! a flush 33 µs and 20 µs. Reads are the other way round: 32 at once of 4 KiB cost 5 µs of CPU each through the ring and
//! 11 µs through the pool when cached, 14 µs and 27 µs from the device. The price: on a machine with more busy threads
//! than cores the ring's one thread gets a smaller share of them than a pool does, and fewer cold reads are done a second.
//!
//! Memory: the kernel fills a read's buffer until its completion is taken. Until then the operation lies in a slot, which
//! owns the buffer and the file. The thread never leaves the loop with a slot in use: it ends after the last completion,
//! and a failure that it cannot go on from aborts the process.

#![allow(unsafe_code)]

use super::limits::RING_IN_FLIGHT_MAX;
use super::operation::{Engine, Operation, Step};
use super::threads::Threads;
use io_uring::{IoUring, Probe, opcode, squeue, types};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard};

pub(super) struct Ring {
    shared: Arc<Shared>,
    writers: Threads,
}

/// What submitters and the ring's thread share.
struct Shared {
    queue: Mutex<Queue>,
    wake: OwnedFd,
}

#[derive(Default)]
struct Queue {
    operations: VecDeque<Operation>,
    /// The thread has seen the queue empty and waits in the kernel, or is about to.
    asleep: bool,
    closed: bool,
}

impl Ring {
    /// Fails where the kernel has no io_uring, lacks one of the calls needed, or refuses it to this process.
    pub(super) fn start() -> io::Result<Ring> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(Shared { queue: Mutex::default(), wake });
        let (started, start) = mpsc::channel();
        let thread = shared.clone();
        std::thread::Builder::new().name("file-ring".into()).spawn(move || {
            // The ring belongs to the thread that makes it, which the kernel is told (single issuer).
            match make_ring() {
                Ok(ring) => {
                    let _ = started.send(Ok(()));
                    Worker::new(ring, thread).work();
                }
                Err(error) => drop(started.send(Err(error))),
            }
        })?;
        start.recv().map_err(|_| io::Error::other("the ring's thread ended as it started"))??;
        Ok(Ring { shared, writers: Threads::new() })
    }
}

impl Engine for Ring {
    fn submit(&self, operation: Operation) {
        if !operation.is_read() {
            return self.writers.submit(operation);
        }
        let mut queue = self.shared.queue();
        queue.operations.push_back(operation);
        self.shared.wake_up(queue);
    }

    fn name(&self) -> &'static str {
        "io_uring"
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let mut queue = self.shared.queue();
        queue.closed = true;
        self.shared.wake_up(queue);
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no holder panics")
    }

    fn wake_up(&self, mut queue: MutexGuard<'_, Queue>) {
        if std::mem::take(&mut queue.asleep) {
            drop(queue);
            // Fails only where the count would overflow, and then the thread wakes anyway.
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }
}

/// The newest way of setting a ring up that the kernel takes: completions are worked off where the thread waits for them
/// (6.1), or at least without interrupting it (5.19), or as ever.
fn make_ring() -> io::Result<IoUring> {
    let mut newest = IoUring::builder();
    newest.setup_single_issuer().setup_defer_taskrun();
    let mut newer = IoUring::builder();
    newer.setup_coop_taskrun();
    let entries = RING_IN_FLIGHT_MAX.next_power_of_two();
    let ring = newest.build(entries).or_else(|_| newer.build(entries)).or_else(|_| IoUring::new(entries))?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    if probe.is_supported(opcode::Read::CODE) && probe.is_supported(opcode::PollAdd::CODE) {
        return Ok(ring);
    }
    Err(io::Error::new(io::ErrorKind::Unsupported, "this kernel's io_uring does not read files"))
}

/// The completion of the poll that wakes the thread; operations have their slot's number.
const WAKE: u64 = u64::MAX;

struct Worker {
    ring: IoUring,
    shared: Arc<Shared>,
    /// Started, waiting for a slot.
    waiting: VecDeque<Operation>,
    /// Reads in flight, at the numbers that their completions bear.
    slots: Vec<Option<Operation>>,
    free: Vec<usize>,
    wake_armed: bool,
    /// Room to collect completions in.
    ended: Vec<(u64, i32)>,
}

impl Worker {
    fn new(ring: IoUring, shared: Arc<Shared>) -> Worker {
        let slots = (0..RING_IN_FLIGHT_MAX).map(|_| None).collect::<Vec<_>>();
        let free = (0..slots.len()).rev().collect();
        Worker { ring, shared, waiting: VecDeque::new(), slots, free, wake_armed: false, ended: Vec::new() }
    }

    fn work(mut self) {
        // Unwinding would free buffers that the kernel still uses.
        let abort = AbortOnUnwind;
        while self.take_queue() {
            self.fill_ring();
            let wait = self.fall_asleep();
            self.enter(wait);
            self.collect();
        }
        std::mem::forget(abort);
    }

    /// Takes what was submitted; false when the engine was dropped and all is done.
    fn take_queue(&mut self) -> bool {
        let mut queue = self.shared.queue();
        queue.asleep = false;
        let closed = queue.closed;
        let new = std::mem::take(&mut queue.operations);
        drop(queue);
        self.waiting.extend(new.into_iter().filter_map(Operation::start));
        !closed || !self.is_done()
    }

    /// True if nothing was submitted meanwhile: whoever submits from now on wakes the thread.
    fn fall_asleep(&self) -> bool {
        let mut queue = self.shared.queue();
        queue.asleep = queue.operations.is_empty();
        queue.asleep
    }

    fn is_done(&self) -> bool {
        self.waiting.is_empty() && self.free.len() == self.slots.len()
    }

    /// Moves waiting operations into the ring while there are slots.
    fn fill_ring(&mut self) {
        if !self.wake_armed {
            self.arm_wake();
        }
        while let Some(slot) = self.free.pop_if(|_| !self.waiting.is_empty()) {
            let operation = self.waiting.pop_front().expect("not empty");
            self.push_read(slot, operation);
        }
    }

    fn arm_wake(&mut self) {
        const READABLE: u32 = 1;
        let fd = types::Fd(self.shared.wake.as_raw_fd());
        let entry = opcode::PollAdd::new(fd, READABLE).build().user_data(WAKE);
        // SAFETY: a poll points to no memory.
        unsafe { self.push(&entry) };
        self.wake_armed = true;
    }

    fn push_read(&mut self, slot: usize, operation: Operation) {
        let (Step::Read { buffer, offset }, file) = self.slots[slot].insert(operation).step() else {
            unreachable!("everything but a read went to the threads");
        };
        let fd = types::Fd(file.as_raw_fd());
        let read = opcode::Read::new(fd, buffer.as_mut_ptr(), buffer.len() as u32).offset(offset);
        // SAFETY: the buffer and the open file belong to the operation, which stays in its slot, untouched, until the
        // completion with this number was taken. The buffer is on the heap: moving its owner does not move it.
        unsafe { self.push(&read.build().user_data(slot as u64)) };
    }

    /// # Safety
    /// What `entry` points to stays valid until its completion was taken.
    unsafe fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: as the caller promises.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            self.enter(false);
        }
    }

    /// Submits what is in the ring; waits for one completion if `wait`.
    fn enter(&mut self, wait: bool) {
        match self.ring.submit_and_wait(usize::from(wait)) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The kernel is short of memory or has completions to hand over first: collect, come again.
            Err(error) if matches!(error.kind(), io::ErrorKind::ResourceBusy | io::ErrorKind::WouldBlock) => {}
            Err(error) => panic!("io_uring_enter failed, file I/O cannot go on: {error}"),
        }
    }

    /// Takes the completions there are; what is to be continued waits for a slot again.
    fn collect(&mut self) {
        let mut ended = std::mem::take(&mut self.ended);
        ended.extend(self.ring.completion().map(|entry| (entry.user_data(), entry.result())));
        for (number, result) in ended.drain(..) {
            if number == WAKE {
                assert!(result >= 0, "poll of the wake-up descriptor failed with error {}", -result);
                // Back to zero, for the next poll to wait.
                let _ = rustix::io::read(&self.shared.wake, &mut [0; 8]);
                self.wake_armed = false;
                continue;
            }
            let operation = self.slots[number as usize].take().expect("one completion for each entry");
            self.free.push(number as usize);
            self.waiting.extend(operation.advance(answer(result)));
        }
        self.ended = ended;
    }
}

fn answer(result: i32) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
}

struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        tracing::error!("the file I/O thread failed; aborting");
        std::process::abort();
    }
}
