//! Many nodes over turmoil's scheduler and network.
//!
//! turmoil steps every host by one tick after the other, each on a paused tokio runtime of its own. It is the harsh one of
//! the networks: bytes sent into a partition are gone and their connection is dead for good, and a connect to a crashed host
//! waits for ever.
//!
//! Within one step the nodes run one after the other, so that their true times may differ by a tick where they do
//! not communicate.

use super::clock::ClockControl;
use super::clog::{Clogged, Clogs};
use super::dice::stream;
use super::disk::{DiskState, Latency};
use super::exec::{Panicked, Root};
use super::net::split;
use super::node::{CrashKind, Machine, NodeState};
use super::timeline::Timeline;
use super::trace::Trace;
use crate::clock::Sleep;
use crate::net::{Listener, Net, Stream};
use crate::{BoxFuture, Env};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, UNIX_EPOCH};
use tokio::io::BufWriter;
use turmoil::net::{TcpListener, TcpStream};

/// What a run is made of, before its nodes.
#[derive(Clone, Debug)]
pub struct WorldOptions {
    pub seed: u64,
    /// The grain of scheduling; whole milliseconds. 5 from ten nodes on.
    pub tick: Duration,
    /// Of one message.
    pub latency_min: Duration,
    pub latency_max: Duration,
    /// How often sending a message breaks its link, both ways and with all that is under way.
    pub link_fail_rate: f64,
    /// How often sending a message over a link that broke so mends it.
    pub link_repair_rate: f64,
    /// The run fails when it takes longer.
    pub duration_max: Duration,
    /// Of every disk, until its switches are changed.
    pub disk_latency: Latency,
}

impl WorldOptions {
    pub fn new(seed: u64) -> WorldOptions {
        WorldOptions {
            seed,
            tick: Duration::from_millis(1),
            latency_min: Duration::from_millis(1),
            latency_max: Duration::from_millis(10),
            link_fail_rate: 0.0,
            link_repair_rate: 1.0,
            duration_max: Duration::from_secs(3600),
            disk_latency: Latency::SSD,
        }
    }
}

/// Why a run ended as a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A task panicked: which, where and why.
    Panic { node: String, task: String, message: String },
    /// It was still running then.
    OutOfTime(Duration),
    /// The scheduler itself gave up.
    Scheduler(String),
}

/// A run: nodes, the network between them, and true time.
pub struct World {
    sim: turmoil::Sim<'static>,
    options: WorldOptions,
    names: Names,
    nodes: BTreeMap<String, Node>,
    /// Directed pairs that nothing passes.
    cut: BTreeSet<(IpAddr, IpAddr)>,
    clogs: Arc<Clogs>,
    trace: Trace,
    panicked: Panicked,
}

struct Node {
    ip: IpAddr,
    machine: Arc<Machine>,
    time: Arc<HostTime>,
}

type Names = Arc<Mutex<BTreeMap<String, IpAddr>>>;

impl World {
    pub fn new(options: WorldOptions) -> World {
        let mut builder = turmoil::Builder::new();
        builder
            .rng_seed(stream(options.seed, "turmoil").next_u64())
            .tick_duration(options.tick)
            .min_message_latency(options.latency_min)
            .max_message_latency(options.latency_max)
            .fail_rate(options.link_fail_rate)
            .repair_rate(options.link_repair_rate)
            .simulation_duration(Duration::MAX)
            .epoch(UNIX_EPOCH)
            // The server socket's backlog too; a full one is a panic.
            .tcp_capacity(1 << 16)
            .enable_random_order();
        World {
            sim: builder.build(),
            options,
            names: Names::default(),
            nodes: BTreeMap::new(),
            cut: BTreeSet::new(),
            clogs: Arc::default(),
            trace: Trace::default(),
            panicked: Panicked::default(),
        }
    }

    /// Adds a machine and starts `main` on it, now and at every [`World::restart`]. Its address is `name` or `ip`.
    pub fn add_node<F>(&mut self, name: &str, ip: &str, main: F)
    where
        F: Fn(Env) -> BoxFuture<'static, io::Result<()>> + 'static,
    {
        let ip: IpAddr = ip.parse().unwrap_or_else(|_| panic!("node {name}: {ip:?} is no address"));
        let disk = DiskState::new(self.options.seed, name);
        disk.faults(|faults| faults.latency = self.options.disk_latency);
        let number = self.nodes.len() as u64;
        let machine = Machine::new(name, number, self.options.seed, disk, self.trace.clone(), self.panicked.clone());
        let time = Arc::new(HostTime::default());
        time.set(self.now());
        self.names.lock().expect("only names").insert(name.to_owned(), ip);
        let (names, clogs) = (self.names.clone(), self.clogs.clone());
        let net = Arc::new(TurmoilNet { ip, names, link: Link { clogs, timeline: time.clone() } });
        let node = Node { ip, machine: machine.clone(), time: time.clone() };
        assert!(self.nodes.insert(name.to_owned(), node).is_none(), "two nodes named {name}");
        self.sim.host(ip, move || {
            let process = machine.boot(time.clone(), net.clone());
            let (main, ended) = (main(process.env.clone()), machine.clone());
            let root = process.root(Box::pin(async move { ended.exited(main.await) }));
            let host = Host { root, time: time.clone() };
            async move {
                // All tasks of a node share one of tokio's, whose budget is not meant for that.
                tokio::task::coop::unconstrained(host).await;
                Ok(())
            }
        });
    }

    /// Runs every node for one tick. Whether any is up (or paused).
    pub fn step(&mut self) -> Result<bool, Failure> {
        if self.now() >= self.options.duration_max {
            return Err(Failure::OutOfTime(self.options.duration_max));
        }
        match self.sim.step() {
            Ok(_) => Ok(self.nodes.values().any(|node| node.is_up())),
            Err(error) => Err(self.failure(error.to_string())),
        }
    }

    fn failure(&self, error: String) -> Failure {
        match self.panicked.take() {
            Some(panic) => {
                let message = panic.message().to_owned();
                Failure::Panic { node: panic.node, task: panic.task.to_owned(), message }
            }
            None => Failure::Scheduler(error),
        }
    }

    /// Steps until `condition` holds. `false` if it did not within `limit`.
    pub fn run_until(
        &mut self,
        limit: Duration,
        mut condition: impl FnMut(&mut World) -> bool,
    ) -> Result<bool, Failure> {
        let end = self.now() + limit;
        loop {
            if condition(self) {
                return Ok(true);
            }
            if self.now() >= end {
                return Ok(false);
            }
            self.step()?;
        }
    }

    pub fn run_for(&mut self, duration: Duration) -> Result<(), Failure> {
        self.run_until(duration, |_| false).map(drop)
    }

    /// True time since the run began.
    pub fn now(&self) -> Duration {
        self.sim.elapsed()
    }

    /// Kills the node's process, dropping its tasks in the order of their spawning. Nothing happens to one that is down.
    pub fn crash(&mut self, node: &str, kind: CrashKind) {
        let now = self.now();
        let (ip, machine) = (self.node(node).ip, self.node(node).machine.clone());
        if matches!(machine.state(), NodeState::Crashed(_)) {
            return;
        }
        self.node(node).time.set(now);
        self.trace.note(now, "crash", kind as u64);
        match kind {
            CrashKind::Process => self.sim.crash(ip),
            CrashKind::Power => self.in_silence(ip, |world| world.sim.crash(ip)),
        }
        machine.crashed(kind, now);
    }

    /// Nothing that the node sends meanwhile reaches anybody: a machine without power says no farewell.
    fn in_silence(&mut self, ip: IpAddr, act: impl FnOnce(&mut World)) {
        let others = self.nodes.values().map(|node| node.ip).filter(|other| *other != ip);
        let open: Vec<IpAddr> = others.filter(|other| !self.cut.contains(&(ip, *other))).collect();
        open.iter().for_each(|other| self.sim.partition_oneway(ip, *other));
        act(self);
        open.iter().for_each(|other| self.sim.repair_oneway(ip, *other));
    }

    /// Starts the process of a node that is down.
    pub fn restart(&mut self, node: &str) {
        let node = self.node(node);
        assert!(!node.is_up(), "{} is up", node.machine.name);
        node.time.set(self.now());
        let ip = node.ip;
        self.trace.note(self.now(), "restart", 0);
        self.sim.bounce(ip);
    }

    /// The process is not polled until [`World::resume`], while time passes and its kernel takes what peers send.
    pub fn pause(&mut self, node: &str) {
        self.node(node).machine.pause();
    }

    pub fn resume(&mut self, node: &str) {
        self.node(node).machine.resume();
    }

    /// Nothing passes between them, in either direction.
    pub fn partition(&mut self, a: &str, b: &str) {
        self.partition_oneway(a, b);
        self.partition_oneway(b, a);
    }

    /// Nothing passes from `from` to `to`; what is under way is lost.
    pub fn partition_oneway(&mut self, from: &str, to: &str) {
        let (from, to) = (self.node(from).ip, self.node(to).ip);
        self.cut.insert((from, to));
        self.sim.partition_oneway(from, to);
    }

    pub fn repair(&mut self, a: &str, b: &str) {
        self.repair_oneway(a, b);
        self.repair_oneway(b, a);
    }

    pub fn repair_oneway(&mut self, from: &str, to: &str) {
        let (from, to) = (self.node(from).ip, self.node(to).ip);
        if self.cut.remove(&(from, to)) {
            self.sim.repair_oneway(from, to);
        }
    }

    pub fn repair_all(&mut self) {
        for (from, to) in std::mem::take(&mut self.cut) {
            self.sim.repair_oneway(from, to);
        }
    }

    /// Nothing of what is under way from `from` to `to`, or sent there meanwhile, arrives until `duration` has passed. Works
    /// beside partitions: what came before a cut may be read after it.
    pub fn clog(&mut self, from: &str, to: &str, duration: Duration) {
        let (from, to) = (self.node(from).ip, self.node(to).ip);
        self.clogs.set(from, to, self.now() + duration);
    }

    /// Messages between them wait until [`World::release`]. Not together with a partition of the same two.
    pub fn hold(&mut self, a: &str, b: &str) {
        self.sim.hold(self.node(a).ip, self.node(b).ip);
    }

    /// What was held arrives at once.
    pub fn release(&mut self, a: &str, b: &str) {
        self.sim.release(self.node(a).ip, self.node(b).ip);
    }

    /// Every message between them takes this long.
    pub fn set_link_latency(&mut self, a: &str, b: &str, latency: Duration) {
        self.sim.set_link_latency(self.node(a).ip, self.node(b).ip, latency);
    }

    pub fn set_link_latency_max(&mut self, a: &str, b: &str, latency: Duration) {
        self.sim.set_link_max_message_latency(self.node(a).ip, self.node(b).ip, latency);
    }

    /// No link breaks any more by itself, and those that did are mended.
    pub fn heal_links(&mut self) {
        self.sim.set_fail_rate(0.0);
        let ips: Vec<IpAddr> = self.nodes.values().map(|node| node.ip).collect();
        for (at, a) in ips.iter().enumerate() {
            for b in &ips[at + 1..] {
                if !self.cut.contains(&(*a, *b)) && !self.cut.contains(&(*b, *a)) {
                    self.sim.repair(*a, *b);
                }
            }
        }
    }

    /// The grain of scheduling.
    pub fn tick(&self) -> Duration {
        self.options.tick
    }

    /// See [`WorldOptions::link_fail_rate`].
    pub fn set_link_fail_rate(&mut self, a: &str, b: &str, rate: f64) {
        let (a, b) = (self.node(a).ip, self.node(b).ip);
        self.sim.set_link_fail_rate(a, b, rate);
    }

    pub fn disk(&self, node: &str) -> Arc<DiskState> {
        self.node(node).machine.disk.clone()
    }

    /// The knobs of the node's clocks, to be turned at once.
    pub fn clock(&self, node: &str) -> ClockControl {
        ClockControl::new(self.node(node).machine.clock.clone(), self.now())
    }

    pub fn state(&self, node: &str) -> NodeState {
        self.node(node).machine.state()
    }

    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(String::as_str)
    }

    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    fn node(&self, name: &str) -> &Node {
        self.nodes.get(name).unwrap_or_else(|| panic!("no node is named {name}"))
    }
}

impl Drop for World {
    /// In order of the names, so that the end of a run is the same too.
    fn drop(&mut self) {
        let ips: Vec<IpAddr> = self.nodes.values().map(|node| node.ip).collect();
        if !std::thread::panicking() {
            ips.into_iter().for_each(|ip| self.sim.crash(ip));
        }
    }
}

impl Node {
    fn is_up(&self) -> bool {
        matches!(self.machine.state(), NodeState::Up | NodeState::Paused)
    }
}

/// A node's process as turmoil runs it.
struct Host {
    root: Root,
    time: Arc<HostTime>,
}

impl Future for Host {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // Time stands still while a runtime polls.
        self.time.set(turmoil::sim_elapsed().expect("polled by its host"));
        Pin::new(&mut self.root).poll(context)
    }
}

/// True time as of the last poll of a host: asking turmoil elsewhere, in a drop say, would give the real clock's.
#[derive(Default)]
struct HostTime {
    ns: AtomicU64,
}

impl HostTime {
    fn set(&self, now: Duration) {
        self.ns.store(now.as_nanos() as u64, Relaxed);
    }
}

impl Timeline for HostTime {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.ns.load(Relaxed))
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        // tokio's timer must be made where its runtime is known: at the first poll. Polls of one instant see one time.
        Box::pin(async move { tokio::time::sleep(duration).await })
    }
}

struct TurmoilNet {
    ip: IpAddr,
    names: Names,
    link: Link,
}

/// What connections are made through.
#[derive(Clone)]
struct Link {
    clogs: Arc<Clogs>,
    timeline: Arc<HostTime>,
}

impl Link {
    /// Nothing small leaves before a flush, as the contract warns.
    fn stream(&self, stream: TcpStream, peer: IpAddr, me: IpAddr) -> Stream {
        Box::new(Clogged::new(BufWriter::new(stream), self.clogs.clone(), self.timeline.clone(), peer, me))
    }
}

impl TurmoilNet {
    fn resolve(&self, host: &str) -> io::Result<IpAddr> {
        let ip = host.parse().ok().or_else(|| self.names.lock().expect("only names").get(host).copied());
        let ip = ip.ok_or_else(|| io::Error::new(ErrorKind::NotFound, format!("no host is named {host:?}")))?;
        // turmoil has no link from a host to itself.
        Ok(if ip == self.ip { Ipv4Addr::LOCALHOST.into() } else { ip })
    }
}

impl Net for TurmoilNet {
    fn listen(&self, address: &str) -> BoxFuture<'static, io::Result<Box<dyn Listener>>> {
        let address = split(address).map(|(host, port)| (host.to_owned(), port));
        let (ip, link) = (self.ip, self.link.clone());
        Box::pin(async move {
            let (host, port) = address?;
            // turmoil binds nothing but the unspecified address.
            let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await?;
            Ok(Box::new(TurmoilListener { listener, host, ip, link }) as Box<dyn Listener>)
        })
    }

    fn connect(&self, address: &str) -> BoxFuture<'static, io::Result<Stream>> {
        let target = split(address).and_then(|(host, port)| Ok((self.resolve(host)?, port)));
        let (ip, link) = (self.ip, self.link.clone());
        Box::pin(async move {
            let target = target?;
            Ok(link.stream(TcpStream::connect(target).await?, target.0, ip))
        })
    }
}

struct TurmoilListener {
    listener: TcpListener,
    host: String,
    ip: IpAddr,
    link: Link,
}

impl Listener for TurmoilListener {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<(Stream, String)>> {
        Box::pin(async {
            let (stream, peer) = self.listener.accept().await?;
            Ok((self.link.stream(stream, peer.ip(), self.ip), peer.to_string()))
        })
    }

    fn local_address(&self) -> String {
        let port = self.listener.local_addr().map_or(0, |address| address.port());
        format!("{}:{port}", self.host)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Panic { node, task, message } => write!(f, "task {task:?} of {node} panicked: {message}"),
            Failure::OutOfTime(limit) => write!(f, "still running after {limit:?}"),
            Failure::Scheduler(error) => write!(f, "scheduler: {error}"),
        }
    }
}

impl std::error::Error for Failure {}
