//! A simulated machine, whatever schedules it: its disk and clocks, and the processes that run on it one after another.

use super::clock::{ClockState, SimClock};
use super::dice::{Dice, stream};
use super::disk::DiskState;
use super::exec::{Exec, Handle, Panicked, Root};
use super::timeline::Timeline;
use super::trace::Trace;
use crate::task::BoxFuture;
use crate::{Env, Net, Parts, Rng};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// How a node's process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashKind {
    /// Killed: the kernel keeps what it has, and closes its connections.
    Process,
    /// The machine loses power: what no flush covers is lost, and its peers hear nothing.
    Power,
}

/// What a node is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeState {
    Up,
    Paused,
    /// Its process ended by itself, well or with this error.
    Exited(Result<(), String>),
    Crashed(CrashKind),
}

/// What outlives the processes of a node.
pub(super) struct Machine {
    pub(super) name: String,
    pub(super) disk: Arc<DiskState>,
    pub(super) clock: Arc<ClockState>,
    number: u64,
    seed: u64,
    trace: Trace,
    panicked: Panicked,
    inner: Mutex<Inner>,
}

struct Inner {
    boots: u64,
    state: NodeState,
    exec: Option<Arc<Exec>>,
    /// Times and fates of this machine: when it starts again, what a power loss leaves.
    dice: Dice,
}

/// A process about to run: what it is given and the future that is it.
pub(super) struct Process {
    pub(super) env: Env,
    exec: Arc<Exec>,
}

impl Machine {
    pub(super) fn new(
        name: &str,
        number: u64,
        seed: u64,
        disk: Arc<DiskState>,
        trace: Trace,
        panicked: Panicked,
    ) -> Arc<Machine> {
        let mut dice = stream(seed, &format!("machine/{name}"));
        let clock = ClockState::new();
        clock.boot(Duration::ZERO, draw_uptime(&mut dice));
        let inner = Inner { boots: 0, state: NodeState::Up, exec: None, dice };
        let (name, inner) = (name.to_owned(), Mutex::new(inner));
        Arc::new(Machine { name, disk, clock, number, seed, trace, panicked, inner })
    }

    /// Starts a process.
    pub(super) fn boot(&self, timeline: Arc<dyn Timeline>, net: Arc<dyn Net>) -> Process {
        let mut inner = self.inner();
        inner.boots += 1;
        inner.state = NodeState::Up;
        let (name, boots) = (&self.name, inner.boots);
        let schedule = stream(self.seed, &format!("schedule/{name}/{boots}"));
        let exec = Exec::new(name, self.number, timeline.clone(), self.trace.clone(), self.panicked.clone(), schedule);
        inner.exec = Some(exec.clone());
        let env = Env::new(Parts {
            node: name.clone(),
            disk: self.disk.mount(name, timeline.clone()),
            net,
            clock: Arc::new(SimClock { state: self.clock.clone(), timeline }),
            rng: Arc::new(NodeRng(Mutex::new(stream(self.seed, &format!("node/{name}/{boots}"))))),
            spawner: Arc::new(Handle(exec.clone())),
        });
        Process { env, exec }
    }

    /// The process is gone, whoever ended it. Called after its future was dropped.
    pub(super) fn crashed(&self, kind: CrashKind, now: Duration) {
        let mut inner = self.inner();
        inner.state = NodeState::Crashed(kind);
        inner.exec = None;
        match kind {
            CrashKind::Process => self.disk.process_crash(),
            CrashKind::Power => {
                self.disk.power_loss(inner.dice.next_u64());
                self.clock.boot(now, draw_uptime(&mut inner.dice));
            }
        }
    }

    /// The main task ended.
    pub(super) fn exited(&self, result: io::Result<()>) {
        let mut inner = self.inner();
        inner.state = NodeState::Exited(result.map_err(|error| error.to_string()));
        inner.exec = None;
    }

    pub(super) fn pause(&self) {
        self.switch(NodeState::Up, NodeState::Paused).iter().for_each(|exec| exec.pause());
    }

    pub(super) fn resume(&self) {
        self.switch(NodeState::Paused, NodeState::Up).iter().for_each(|exec| exec.resume());
    }

    fn switch(&self, from: NodeState, to: NodeState) -> Option<Arc<Exec>> {
        let mut inner = self.inner();
        if inner.state != from {
            return None;
        }
        inner.state = to;
        inner.exec.clone()
    }

    pub(super) fn state(&self) -> NodeState {
        self.inner().state.clone()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("nothing panics under this lock")
    }
}

impl Process {
    /// The future that is the process: `main` and what it spawns.
    pub(super) fn root(self, main: BoxFuture<'static, ()>) -> Root {
        self.exec.root(Box::pin(self.env.enter(main)))
    }
}

/// What the monotonic clock of a machine shows when it has started: often little, so that "an hour ago" is before it began.
fn draw_uptime(dice: &mut Dice) -> Duration {
    let ms_max = *dice.pick(&[1_000, 60_000, 3_600_000]);
    Duration::from_millis(dice.below(ms_max))
}

/// A node's own random stream.
struct NodeRng(Mutex<Dice>);

impl Rng for NodeRng {
    fn next_u64(&self) -> u64 {
        self.0.lock().expect("arithmetic does not panic").next_u64()
    }
}
