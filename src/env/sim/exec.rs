//! The tasks of one node.
//!
//! A scheduler (turmoil's, madsim's, [`super::single`]'s) runs one future per node, the [`Root`], and the root runs the
//! node's tasks. It polls a ready one picked by the node's own random stream, so that interleavings are explored, and drops
//! all of them in the order of their spawning when it is dropped, so that a crash sends its last packets in the same order in
//! every run. A scheduler's own task list does neither: tokio drops in an order that depends on ids counted over the whole
//! process.
//!
//! A panic in a task is caught, kept for the harness with the task's name, and thrown on out of the root: it fails the run.

use super::dice::Dice;
use super::limits::{POLLS_PER_INSTANT_MAX, POLLS_PER_TURN_MAX};
use super::timeline::Timeline;
use super::trace::Trace;
use crate::task::{Abort, BoxFuture, Spawner};
use std::any::Any;
use std::collections::BTreeMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// One run of a node: what spawns its tasks and, through its [`Root`], runs them.
pub struct Exec {
    node: String,
    node_number: u64,
    timeline: Arc<dyn Timeline>,
    trace: Trace,
    panicked: Panicked,
    tasks: Mutex<Tasks>,
}

struct Tasks {
    /// By order of spawning.
    all: BTreeMap<u64, Entry>,
    ready: Vec<u64>,
    next: u64,
    root: Option<Waker>,
    paused: bool,
    dead: bool,
    dice: Dice,
    polled_at: Duration,
    polls_at_that: u64,
}

struct Entry {
    name: &'static str,
    /// Absent while it is polled.
    future: Option<BoxFuture<'static, ()>>,
    waker: Arc<TaskWaker>,
    aborted: bool,
}

impl Exec {
    pub fn new(
        node: &str,
        node_number: u64,
        timeline: Arc<dyn Timeline>,
        trace: Trace,
        panicked: Panicked,
        dice: Dice,
    ) -> Arc<Exec> {
        let tasks = Tasks {
            all: BTreeMap::new(),
            ready: Vec::new(),
            next: 0,
            root: None,
            paused: false,
            dead: false,
            dice,
            polled_at: Duration::ZERO,
            polls_at_that: 0,
        };
        Arc::new(Exec { node: node.to_owned(), node_number, timeline, trace, panicked, tasks: Mutex::new(tasks) })
    }

    /// The future that a scheduler runs for this node. It ends with `main`; the other tasks are dropped then.
    pub fn root(self: &Arc<Self>, main: BoxFuture<'static, ()>) -> Root {
        Root { exec: self.clone(), main: self.start("main", main) }
    }

    /// No task is polled until [`Exec::resume`]; time passes.
    pub fn pause(&self) {
        self.tasks().paused = true;
    }

    pub fn resume(&self) {
        let root = {
            let mut tasks = self.tasks();
            tasks.paused = false;
            tasks.root.clone()
        };
        root.into_iter().for_each(Waker::wake);
    }

    fn start(self: &Arc<Self>, name: &'static str, future: BoxFuture<'static, ()>) -> u64 {
        let mut tasks = self.tasks();
        let id = tasks.next;
        tasks.next += 1;
        if tasks.dead {
            drop(tasks);
            drop(future);
            return id;
        }
        let waker = Arc::new(TaskWaker { exec: self.clone(), id, queued: AtomicBool::new(true) });
        tasks.all.insert(id, Entry { name, future: Some(future), waker, aborted: false });
        tasks.ready.push(id);
        let root = tasks.root.clone();
        drop(tasks);
        root.into_iter().for_each(Waker::wake);
        id
    }

    fn abort(&self, id: u64) {
        let mut tasks = self.tasks();
        let Some(entry) = tasks.all.get_mut(&id) else { return };
        entry.aborted = true;
        let waker = entry.waker.clone();
        drop(tasks);
        waker.wake();
    }

    fn enqueue(&self, id: u64) {
        let root = {
            let mut tasks = self.tasks();
            if tasks.dead {
                return;
            }
            tasks.ready.push(id);
            tasks.root.clone()
        };
        root.into_iter().for_each(Waker::wake);
    }

    /// Runs one ready task.
    fn turn(&self) -> Turned {
        let Some(turn) = self.tasks().pick() else { return Turned::NoneReady };
        let Turn { id, name, mut future, waker, aborted } = turn;
        if aborted {
            drop(future);
            return Turned::Ended(id);
        }
        let now = self.timeline.now();
        self.trace.poll(now, self.node_number, id);
        let polls = self.tasks().count_poll(now);
        let task_waker = Waker::from(waker);
        let mut context = Context::from_waker(&task_waker);
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| {
            assert!(
                polls < POLLS_PER_INSTANT_MAX,
                "{polls} polls at {now:?} on this node, the last of this task: a loop"
            );
            future.as_mut().poll(&mut context)
        }));
        match polled {
            Ok(Poll::Pending) => {
                if let Some(entry) = self.tasks().all.get_mut(&id) {
                    entry.future = Some(future);
                }
                Turned::GoesOn
            }
            Ok(Poll::Ready(())) => {
                self.tasks().all.remove(&id);
                drop(future);
                Turned::Ended(id)
            }
            Err(payload) => {
                self.tasks().all.remove(&id);
                self.panicked.throw(TaskPanic { node: self.node.clone(), task: name, payload })
            }
        }
    }

    fn tasks(&self) -> MutexGuard<'_, Tasks> {
        self.tasks.lock().expect("no task is polled under this lock")
    }
}

enum Turned {
    NoneReady,
    GoesOn,
    Ended(u64),
}

struct Turn {
    id: u64,
    name: &'static str,
    future: BoxFuture<'static, ()>,
    waker: Arc<TaskWaker>,
    aborted: bool,
}

impl Tasks {
    fn pick(&mut self) -> Option<Turn> {
        while !self.ready.is_empty() && !self.paused {
            let at = match self.ready.len() {
                1 => 0,
                count => self.dice.below(count as u64) as usize,
            };
            let id = self.ready.swap_remove(at);
            // A task that ended may still be woken.
            let Some(entry) = self.all.get_mut(&id) else { continue };
            entry.waker.queued.store(false, Relaxed);
            let future = entry.future.take().expect("only one task is polled at a time");
            let turn = Turn { id, name: entry.name, future, waker: entry.waker.clone(), aborted: entry.aborted };
            if turn.aborted {
                self.all.remove(&id);
            }
            return Some(turn);
        }
        None
    }

    /// How often tasks have been polled while time stands still.
    fn count_poll(&mut self, now: Duration) -> u64 {
        if now != self.polled_at {
            (self.polled_at, self.polls_at_that) = (now, 0);
        }
        self.polls_at_that += 1;
        self.polls_at_that
    }
}

impl Spawner for Handle {
    fn spawn(&self, name: &'static str, future: BoxFuture<'static, ()>) -> Abort {
        let id = self.0.start(name, future);
        let exec = self.0.clone();
        Arc::new(move || exec.abort(id))
    }

    fn blocking(&self, work: Box<dyn FnOnce() + Send>) {
        work();
    }
}

/// What an [`crate::Env`] spawns with.
pub struct Handle(pub Arc<Exec>);

/// A node while it runs. Dropping it kills the node.
pub struct Root {
    exec: Arc<Exec>,
    main: u64,
}

impl Future for Root {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.exec.tasks().root = Some(context.waker().clone());
        for _ in 0..POLLS_PER_TURN_MAX {
            match self.exec.turn() {
                Turned::NoneReady => return Poll::Pending,
                Turned::Ended(id) if id == self.main => return Poll::Ready(()),
                Turned::Ended(_) | Turned::GoesOn => {}
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let all = {
            let mut tasks = self.exec.tasks();
            tasks.dead = true;
            tasks.root = None;
            tasks.ready.clear();
            std::mem::take(&mut tasks.all)
        };
        // One after the other: a map drops its values in order too, but says so nowhere.
        for (_, entry) in all {
            drop(entry);
        }
    }
}

struct TaskWaker {
    exec: Arc<Exec>,
    id: u64,
    queued: AtomicBool,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Relaxed) {
            self.exec.enqueue(self.id);
        }
    }
}

/// The first panic of a run's tasks. Cloning copies a pointer.
#[derive(Clone, Default)]
pub struct Panicked {
    first: Arc<Mutex<Option<TaskPanic>>>,
}

pub struct TaskPanic {
    pub node: String,
    pub task: &'static str,
    pub payload: Box<dyn Any + Send>,
}

impl Panicked {
    pub fn take(&self) -> Option<TaskPanic> {
        self.first.lock().expect("nothing panics here").take()
    }

    fn throw(&self, panic: TaskPanic) -> ! {
        let message = panic.to_string();
        self.first.lock().expect("nothing panics here").get_or_insert(panic);
        // The hook has printed where it happened, but not in which task.
        eprintln!("{message}");
        std::panic::resume_unwind(Box::new(message))
    }
}

impl TaskPanic {
    pub fn message(&self) -> &str {
        let text = self.payload.downcast_ref::<&str>().copied();
        text.or_else(|| self.payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no message)")
    }
}

impl std::fmt::Display for TaskPanic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "task {:?} of {} panicked: {}", self.task, self.node, self.message())
    }
}
