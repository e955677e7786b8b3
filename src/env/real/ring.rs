//! The engine that reads, writes and flushes through io_uring.
//!
//! One thread owns the ring. Whoever submits puts the operation into a queue and wakes the thread if it sleeps; the thread
//! moves the queue into the ring, as many operations as may be in flight, and waits in the kernel for the first completion.
//! One call of the kernel thus submits all that came meanwhile and collects all that ended. The thread sleeps in no other
//! place: a poll of an event descriptor, always in flight in the ring, is what wakes it.
//!
//! ```text
//! submit ──► queue ──► ring thread ──► submission queue ──► kernel
//!              │            ▲                                 │
//!              └─ event ────┴──────── completion queue ◄──────┘
//! ```
//!
//! A write that is to be flushed goes into the ring with its flush linked to it: the kernel's worker does one after the
//! other, and a write that was short takes the flush back. Buffered writes of ext4 and flushes always wait, so that the
//! kernel does them on a thread of its own: no faster than [`super::threads`], but the regions that commit at one time share the
//! calls, and nothing here needs a thread per flush.
//!
//! Memory: the kernel uses an operation's buffers until its completions are taken. Until then the operation lies in a slot,
//! which owns the buffers and the file. The thread never leaves the loop with a slot in use: it ends after the last completion,
//! and a failure that it cannot go on from aborts the process.

#![allow(unsafe_code)]

use super::limits::RING_IN_FLIGHT_MAX;
use super::operation::{Engine, Operation, Step};
use io_uring::{IoUring, Probe, opcode, squeue, types};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard};

pub(super) struct Ring {
    shared: Arc<Shared>,
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
        Ok(Ring { shared })
    }
}

impl Engine for Ring {
    fn submit(&self, operation: Operation) {
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
    let entries = (RING_IN_FLIGHT_MAX * ENTRIES_PER_OPERATION_MAX).next_power_of_two();
    let ring = newest.build(entries).or_else(|_| newer.build(entries)).or_else(|_| IoUring::new(entries))?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let needed = [opcode::Read::CODE, opcode::Writev::CODE, opcode::Fsync::CODE, opcode::PollAdd::CODE];
    if needed.iter().all(|&code| probe.is_supported(code)) {
        return Ok(ring);
    }
    Err(io::Error::new(io::ErrorKind::Unsupported, "this kernel's io_uring does not read and write files"))
}

/// A write and its flush.
const ENTRIES_PER_OPERATION_MAX: u32 = 2;

/// The completion of the poll that wakes the thread; operations have twice their slot's number, a flush linked to a write
/// one more.
const WAKE: u64 = u64::MAX;

struct Worker {
    ring: IoUring,
    shared: Arc<Shared>,
    /// Started, waiting for a slot.
    waiting: VecDeque<Operation>,
    /// Operations in flight, at the numbers that their completions bear.
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    wake_armed: bool,
    /// Room to collect completions in.
    ended: Vec<(u64, i32)>,
}

/// An operation in flight.
struct Slot {
    operation: Operation,
    /// What a write's entry points to.
    slices: Vec<IoSlice<'static>>,
    /// A flush is linked to the write.
    linked: bool,
    /// Completions still to come, and the answers of those that came: the write's, the linked flush's.
    awaited: u32,
    answers: [i32; ENTRIES_PER_OPERATION_MAX as usize],
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
            self.push_operation(slot, operation);
        }
    }

    fn arm_wake(&mut self) {
        const READABLE: u32 = 1;
        let fd = types::Fd(self.shared.wake.as_raw_fd());
        let entry = opcode::PollAdd::new(fd, READABLE).build().user_data(WAKE);
        // SAFETY: a poll points to no memory.
        unsafe { self.push(&[entry]) };
        self.wake_armed = true;
    }

    fn push_operation(&mut self, number: usize, operation: Operation) {
        let slot = self.slots[number].insert(Slot {
            operation,
            slices: Vec::new(),
            linked: false,
            awaited: 1,
            answers: [0; 2],
        });
        let (step, file) = slot.operation.step();
        let fd = types::Fd(file.as_raw_fd());
        let flush = opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build();
        let number = number as u64 * 2;
        let (entry, linked) = match step {
            Step::Read { buffer, offset } => {
                (opcode::Read::new(fd, buffer.as_mut_ptr(), buffer.len() as u32).offset(offset).build(), false)
            }
            Step::Write { slices, offset, then_flush } => {
                // SAFETY: the bytes belong to the operation and are on the heap; it stays in its slot, and they where they
                // are, until its last completion was taken, and `slices` goes with the slot.
                slot.slices = unsafe { std::mem::transmute::<Vec<IoSlice<'_>>, Vec<IoSlice<'static>>>(slices) };
                // An `IoSlice` is an `iovec` on Unix, as the standard library promises.
                (
                    opcode::Writev::new(fd, slot.slices.as_ptr().cast(), slot.slices.len() as u32)
                        .offset(offset)
                        .build(),
                    then_flush,
                )
            }
            Step::Flush => (flush.clone(), false),
        };
        if linked {
            (slot.linked, slot.awaited) = (true, 2);
            let write = entry.flags(squeue::Flags::IO_LINK).user_data(number);
            // SAFETY: as below. Both entries at once: a link does not reach across two submissions.
            unsafe { self.push(&[write, flush.user_data(number + 1)]) };
        } else {
            // SAFETY: the buffers and the open file belong to the operation, which stays in its slot, untouched, until the
            // last completion with this number was taken. Buffers are on the heap: moving their owner does not move them.
            unsafe { self.push(&[entry.user_data(number)]) };
        }
    }

    /// # Safety
    /// What `entries` point to stays valid until their completions were taken.
    unsafe fn push(&mut self, entries: &[squeue::Entry]) {
        // SAFETY: as the caller promises.
        while unsafe { self.ring.submission().push_multiple(entries) }.is_err() {
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
            let (at, part) = ((number / 2) as usize, (number % 2) as usize);
            let slot = self.slots[at].as_mut().expect("one completion for each entry");
            slot.answers[part] = result;
            slot.awaited -= 1;
            if slot.awaited > 0 {
                continue;
            }
            let Slot { operation, linked, answers: [first, flush], .. } = self.slots[at].take().expect("seen above");
            self.free.push(at);
            self.waiting.extend(match linked {
                true => operation.advance_flushed(answer(first), answer(flush)),
                false => operation.advance(answer(first)),
            });
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
