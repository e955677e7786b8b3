//! One run of one plan: set up, break, mend, look.
//!
//! ```text
//! setup      masters, servers, a table; until every region serves at full factor
//! faults     clients work while the plan's events happen
//! healing    everything is mended and restarted; clients go on; every region back at full factor in bounded time (I14)
//! power      perhaps every machine loses its power once
//! reading    every key is read once more, so that a lost write shows (I2)
//! rest       until nothing happens any more: the replicas are alike, byte by byte, and nothing is left over (I8, I10)
//! judging    the recorded history against the model (I1, I2), the invariants heard on the way, the logs of the replicas
//! ```
//!
//! A run that does not come to its last phase in time has violated liveness; one in which nothing happened proves nothing
//! and is `Unknown`, as is one whose history the checker could not decide.

use crate::cluster::{CALL_TIME, Cluster, client_ip, client_options};
use crate::invariant::{Folder, Invariants, Violation, leaks, unlike};
use crate::plan::{Event, Fault, Plan};
use crate::watch::{TrueTime, Watch};
use crate::workload::{ClientTask, Record, TABLE, read_all};
use env::Env;
use env::sim::{CrashKind, Failing, Failure};
use model::{History, linearizability};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use steadfast::client::Client;
use steadfast::protocol::{ClusterStatus, Space};
use steadfast::region::{Compression, Durability, Salt, TableSpec, even_splits};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Valid,
    Violated(Vec<Violation>),
    /// Nothing is known, and why.
    Unknown(String),
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub verdict: Verdict,
    /// Equal for equal runs.
    pub trace: u64,
    /// The digest at the end of each simulated second.
    pub seconds: Vec<u64>,
    pub sim: Duration,
    /// What clients did, and what came of it.
    pub history: History,
    pub operations: u64,
    pub done: u64,
    /// How often each kind of fault happened and each probe was heard.
    pub marks: BTreeMap<String, u64>,
}

/// How long setting up may take.
const SETUP_MAX: Duration = Duration::from_secs(60);
/// I14: from the end of the faults until every region is at full factor and every client gets answers.
const HEAL_MAX: Duration = Duration::from_secs(60);
const READ_MAX: Duration = Duration::from_secs(60);
/// From the last read until nothing happens any more, looked for every so many steps.
const REST_MAX: Duration = Duration::from_secs(60);
const REST_STEPS: u32 = 100;
const DRAIN_MAX: Duration = Duration::from_secs(40);
/// How long clients go on after everything is mended.
const CALM: Duration = Duration::from_secs(2);
/// A run with fewer operations done proves nothing.
const OPERATIONS_MIN: u64 = 20;

/// Runs a plan on this thread.
pub fn run(plan: &Plan, print: Option<tracing::Level>) -> Outcome {
    let time = TrueTime::default();
    let watch = Watch::new(time.clone(), print);
    let heard = watch.clone();
    tracing::subscriber::with_default(watch, || Run::new(plan, time, heard).run())
}

struct Run<'a> {
    plan: &'a Plan,
    cluster: Cluster,
    watch: Watch,
    record: Record,
    /// What is to be mended, and when.
    mending: Vec<(u64, Mend)>,
    status: Arc<Mutex<Option<ClusterStatus>>>,
    happened: BTreeMap<&'static str, u64>,
}

#[derive(Clone, Debug)]
enum Mend {
    Restart(String),
    Resume(String),
    Repair(Vec<(String, String)>),
    Disk(String),
    /// Its writes arrive again, and reads show which did not.
    Media(String),
    Room(String),
}

/// Why a phase did not end.
enum Stopped {
    Violated(Violation),
    Failed(Failure),
}

impl From<Failure> for Stopped {
    fn from(failure: Failure) -> Stopped {
        Stopped::Failed(failure)
    }
}

impl<'a> Run<'a> {
    fn new(plan: &'a Plan, time: TrueTime, watch: Watch) -> Run<'a> {
        let cluster = Cluster::start(plan, time.clone());
        let record = Record::new(time, cluster.world.tick());
        Run { plan, cluster, watch, record, mending: Vec::new(), status: Arc::default(), happened: BTreeMap::new() }
    }

    fn run(mut self) -> Outcome {
        let stopped = self.phases().err();
        let verdict = self.judge(stopped);
        let trace = self.cluster.world.trace();
        let history = self.record.history();
        Outcome {
            verdict,
            trace: trace.digest().hash,
            seconds: trace.seconds(),
            sim: self.cluster.world.now(),
            operations: history.len() as u64,
            history,
            done: self.record.done(),
            marks: self.marks(),
        }
    }

    fn marks(&self) -> BTreeMap<String, u64> {
        let mut marks = self.invariants().heard_of().clone();
        let faults = self.cluster.disk_faults();
        marks.extend(self.happened.iter().chain(&faults).map(|(&name, &times)| (name.to_owned(), times)));
        marks
    }

    fn invariants(&self) -> std::sync::MutexGuard<'_, Invariants> {
        self.watch.invariants()
    }

    fn phases(&mut self) -> Result<(), Stopped> {
        self.set_up()?;
        self.start_clients();
        self.inject()?;
        self.heal()?;
        self.drain()?;
        if self.plan.final_power_cycle {
            self.power_cycle()?;
        }
        self.read_back()?;
        self.rest()
    }

    // ---- phases ----

    fn set_up(&mut self) -> Result<(), Stopped> {
        let (plan, seeds, status) = (self.plan.clone(), self.cluster.seeds(), self.status.clone());
        self.cluster.world.add_node("operator", "10.0.3.1", move |env| {
            Box::pin(operator(env, plan.clone(), seeds.clone(), status.clone()))
        });
        let regions = u64::from(self.plan.cluster.regions);
        let ready = |status: &ClusterStatus| {
            status
                .tables
                .iter()
                .any(|table| table.regions == regions && table.unavailable == 0 && table.under_replicated == 0)
        };
        self.wait(SETUP_MAX, "the cluster was never ready", move |run| run.status_is(ready))?;
        self.name_servers();
        Ok(())
    }

    fn status_is(&self, good: impl Fn(&ClusterStatus) -> bool) -> bool {
        self.status.lock().expect("no holder panics").as_ref().is_some_and(good)
    }

    /// Which server identity each node has.
    fn name_servers(&mut self) {
        let status = self.status.lock().expect("no holder panics").clone().expect("it was ready");
        for i in 1..=self.plan.cluster.servers {
            let ip = format!("{}:", crate::cluster::server_ip(i));
            if let Some(server) = status.servers.iter().find(|server| server.address.starts_with(&ip)) {
                self.invariants().name_server(&crate::plan::server(i), server.id.0);
            }
        }
    }

    fn start_clients(&mut self) {
        for number in 1..=self.plan.workload.clients {
            let task = ClientTask {
                number,
                seed: self.plan.seed,
                seeds: self.cluster.seeds(),
                workload: self.plan.workload.clone(),
                record: self.record.clone(),
            };
            let task = Arc::new(Mutex::new(Some(task)));
            self.cluster.world.add_node(&format!("client-{number}"), &client_ip(number), move |env| {
                let task = task.lock().expect("no holder panics").take().expect("clients never restart");
                Box::pin(task.run(env))
            });
        }
    }

    fn inject(&mut self) -> Result<(), Stopped> {
        let begin = self.cluster.now_ms();
        let end = begin + self.plan.fault_ms;
        let mut events = self.plan.events.iter().peekable();
        while self.cluster.now_ms() < end {
            let now = self.cluster.now_ms();
            while let Some(event) = events.next_if(|event| begin + event.at_ms <= now) {
                self.happen(event);
            }
            self.mend_due(now);
            self.step()?;
        }
        Ok(())
    }

    fn heal(&mut self) -> Result<(), Stopped> {
        self.mend_due(u64::MAX);
        self.cluster.world.repair_all();
        for node in self.plan.nodes() {
            self.cluster.world.resume(&node);
            self.cluster.restart_if_down(&node);
        }
        self.cluster.world.heal_links();
        self.wait_until_whole()
    }

    /// I14: every region serves with all its replicas, and clients get answers.
    fn wait_until_whole(&mut self) -> Result<(), Stopped> {
        *self.status.lock().expect("no holder panics") = None;
        let whole = |status: &ClusterStatus| {
            status.tables.iter().all(|table| table.unavailable == 0 && table.under_replicated == 0)
        };
        let done = self.record.done();
        let clients = self.record.running() > 0 && !self.record.is_stopped();
        self.wait(HEAL_MAX, "I14: the cluster did not become whole", move |run| {
            run.status_is(whole) && (!clients || run.record.done() > done + 5)
        })
    }

    fn drain(&mut self) -> Result<(), Stopped> {
        let end = self.cluster.world.now() + CALM;
        while self.cluster.world.now() < end {
            self.step()?;
        }
        self.record.stop();
        self.wait(DRAIN_MAX, "a client never got an answer", |run| run.record.running() == 0)
    }

    fn power_cycle(&mut self) -> Result<(), Stopped> {
        for node in self.plan.nodes() {
            self.crash(&node, CrashKind::Power);
        }
        for _ in 0..20 {
            self.step()?;
        }
        for node in self.plan.nodes() {
            self.cluster.restart_if_down(&node);
        }
        self.wait_until_whole()
    }

    fn read_back(&mut self) -> Result<(), Stopped> {
        let (seeds, workload, record) = (self.cluster.seeds(), self.plan.workload.clone(), self.record.clone());
        let started = Arc::new(Mutex::new(false));
        let flag = started.clone();
        self.cluster.world.add_node("reader", "10.0.3.2", move |env| {
            *flag.lock().expect("no holder panics") = true;
            Box::pin(read_all(env, seeds.clone(), workload.clone(), record.clone()))
        });
        self.wait(READ_MAX, "a key could not be read at the end", move |run| {
            *started.lock().expect("no holder panics") && run.record.running() == 0
        })
    }

    /// I8 and I10, which hold once what was ordered has been carried out everywhere.
    fn rest(&mut self) -> Result<(), Stopped> {
        let end = self.cluster.world.now() + REST_MAX;
        while let Some((invariant, what)) = self.unrest() {
            if self.cluster.world.now() >= end {
                return Err(Stopped::Violated(Violation { invariant, at_ms: self.cluster.now_ms(), what }));
            }
            for _ in 0..REST_STEPS {
                self.step()?;
            }
        }
        Ok(())
    }

    fn unrest(&self) -> Option<(&'static str, String)> {
        let spaces = self.status.lock().expect("no holder panics").clone().map(spaces).unwrap_or_default();
        let in_sync = self.invariants().in_sync();
        in_sync.iter().find_map(|(&region, nodes)| {
            let folders: Vec<Folder> = nodes.iter().map(|node| self.cluster.folder(node, region)).collect();
            for (node, folder) in nodes.iter().zip(&folders) {
                if let Some(what) = unlike(&folders[0], folder) {
                    return Some(("I8", format!("region {region}: {} and {node} are not alike: {what}", nodes[0])));
                }
                let Some(space) = spaces.get(&region) else {
                    return Some(("I10", format!("region {region}: nobody says what it takes")));
                };
                if let Some(what) = leaks(folder, space.log_bytes, space.live_bytes) {
                    return Some(("I10", format!("region {region}: {node}: {what}")));
                }
            }
            None
        })
    }

    // ---- steps ----

    fn step(&mut self) -> Result<(), Stopped> {
        self.cluster.step()?;
        match self.invariants().violations().first() {
            Some(violation) => Err(Stopped::Violated(violation.clone())),
            None => Ok(()),
        }
    }

    fn wait(
        &mut self,
        limit: Duration,
        otherwise: &str,
        mut until: impl FnMut(&mut Run<'a>) -> bool,
    ) -> Result<(), Stopped> {
        let end = self.cluster.world.now() + limit;
        // A node whose process ended by itself is started again, as a supervisor would.
        while !until(self) {
            if self.cluster.world.now() >= end {
                let status = self.status.lock().expect("no holder panics").clone();
                let status = status.map_or("no status".to_owned(), |status| brief(&status));
                let what = [vec![otherwise.to_owned(), status], self.cluster.exits()].concat().join("; ");
                return Err(Stopped::Violated(Violation { invariant: "I14", at_ms: self.cluster.now_ms(), what }));
            }
            self.step()?;
        }
        Ok(())
    }

    fn crash(&mut self, node: &str, kind: CrashKind) {
        if self.cluster.is_up(node) {
            self.cluster.crash(node, kind);
            // What a synced table acknowledged was flushed, and survives.
            if kind == CrashKind::Power && self.plan.cluster.buffered {
                self.invariants().lost_power(node);
            }
        }
    }

    fn happen(&mut self, event: &Event) {
        let now = self.cluster.now_ms();
        tracing::debug!(?event, "fault");
        *self.happened.entry(event.fault.name()).or_default() += 1;
        match &event.fault {
            Fault::Partition { from, to, both, for_ms } => {
                let pairs = from.iter().flat_map(|from| to.iter().map(move |to| (from.clone(), to.clone())));
                let mut pairs: Vec<(String, String)> = pairs.collect();
                if *both {
                    pairs.extend(pairs.clone().into_iter().map(|(from, to)| (to, from)));
                }
                pairs.iter().for_each(|(from, to)| self.cluster.world.partition_oneway(from, to));
                self.mending.push((now + for_ms, Mend::Repair(pairs)));
            }
            Fault::Clog { from, to, for_ms } => {
                let duration = Duration::from_millis(*for_ms);
                for (from, to) in from.iter().flat_map(|from| to.iter().map(move |to| (from, to))) {
                    self.cluster.world.clog(from, to, duration);
                }
            }
            Fault::Kill { node, down_ms } => {
                self.crash(node, CrashKind::Process);
                self.mending.push((now + down_ms, Mend::Restart(node.clone())));
            }
            Fault::PowerLoss { nodes, down_ms } => {
                for node in nodes {
                    self.crash(node, CrashKind::Power);
                    self.mending.push((now + down_ms, Mend::Restart(node.clone())));
                }
            }
            Fault::Pause { node, for_ms } => {
                self.cluster.world.pause(node);
                self.mending.push((now + for_ms, Mend::Resume(node.clone())));
            }
            Fault::StepClock { node, by_ms } => self.cluster.world.clock(node).step_wall_ms(*by_ms),
            Fault::ClockRate { node, ppm } => self.cluster.world.clock(node).set_rate_ppm(*ppm),
            Fault::FailFlush { node } => {
                self.cluster.world.disk(node).faults(|faults| faults.sync = Failing::NEXT);
            }
            Fault::FailWrite { node } => {
                self.cluster.world.disk(node).faults(|faults| faults.write = Failing::NEXT);
            }
            Fault::SlowDisk { node, factor, for_ms } => {
                self.cluster.world.disk(node).faults(|faults| faults.slow_factor = *factor);
                self.mending.push((now + for_ms, Mend::Disk(node.clone())));
            }
            Fault::BitRot { node, victim, bits } => {
                self.cluster.rot(node, *victim, *bits, self.plan.seed ^ now);
            }
            Fault::BadSectors { node, sectors } => {
                self.cluster.break_sectors(node, *sectors, self.plan.seed ^ now);
            }
            Fault::FailRead { node } => self.cluster.harm_media(node, |faults| faults.read = Failing::NEXT),
            Fault::LoseWrites { node, ppm, for_ms } => {
                self.cluster.harm_media(node, |faults| faults.lost_write = Failing::ppm(*ppm));
                self.invariants().disk_lies(node);
                self.mending.push((now + for_ms, Mend::Media(node.clone())));
            }
            Fault::MisdirectWrites { node, ppm, for_ms } => {
                self.cluster.harm_media(node, |faults| faults.misdirected_write = Failing::ppm(*ppm));
                self.invariants().disk_lies(node);
                self.mending.push((now + for_ms, Mend::Media(node.clone())));
            }
            Fault::FullDisk { node, for_ms } => {
                self.cluster.world.disk(node).faults(|faults| faults.capacity = Some(0));
                self.mending.push((now + for_ms, Mend::Room(node.clone())));
            }
            Fault::HandOver { region, to } => self.hand_over(*region, *to),
        }
    }

    fn mend_due(&mut self, now: u64) {
        let (due, later) = std::mem::take(&mut self.mending).into_iter().partition(|(at, _)| *at <= now);
        self.mending = later;
        let due: Vec<(u64, Mend)> = due;
        for (_, mend) in due {
            match mend {
                Mend::Restart(node) => self.cluster.restart_if_down(&node),
                Mend::Resume(node) => self.cluster.world.resume(&node),
                Mend::Repair(pairs) => pairs.iter().for_each(|(from, to)| self.cluster.world.repair_oneway(from, to)),
                Mend::Disk(node) => {
                    self.cluster.world.disk(&node).faults(|faults| faults.slow_factor = 1);
                }
                Mend::Media(node) => self.cluster.mend_media(&node),
                Mend::Room(node) => self.cluster.world.disk(&node).faults(|faults| faults.capacity = None),
            }
        }
    }

    /// An operator's wish, sent by a machine of its own that lives just for that.
    fn hand_over(&mut self, region: u32, to: u64) {
        let name = format!("mover-{}", self.cluster.now_ms());
        let taken = self.cluster.world.nodes().any(|node| node == name);
        if taken {
            return;
        }
        let seeds = self.cluster.seeds();
        let number = self.cluster.world.nodes().count() as u64;
        let ip = format!("10.0.4.{number}");
        self.cluster.world.add_node(&name, &ip, move |env| Box::pin(hand_over(env, seeds.clone(), region, to)));
    }

    // ---- judging ----

    fn judge(&self, stopped: Option<Stopped>) -> Verdict {
        let mut violations = self.invariants().violations().to_vec();
        let at_ms = self.cluster.now_ms();
        match stopped {
            Some(Stopped::Violated(violation)) if !violations.contains(&violation) => violations.push(violation),
            Some(Stopped::Failed(failure)) => {
                violations.push(Violation { invariant: "I17", at_ms, what: format!("{failure:?}") });
            }
            _ => {}
        }
        let history = self.record.history();
        let report = linearizability::check(&history);
        for (_, explanation) in report.illegal() {
            violations.push(Violation { invariant: "I1", at_ms, what: explanation.to_string() });
        }
        if !violations.is_empty() {
            return Verdict::Violated(violations);
        }
        if let Some(key) = report.exhausted().next() {
            return Verdict::Unknown(format!("the checker gave up on key {}", String::from_utf8_lossy(key)));
        }
        if self.record.done() < OPERATIONS_MIN {
            return Verdict::Unknown(format!("only {} operations were done", self.record.done()));
        }
        Verdict::Valid
    }
}

/// What each region takes, as its primary says.
fn spaces(status: ClusterStatus) -> BTreeMap<u64, Space> {
    status.tables.into_iter().flat_map(|table| table.spaces).map(|(region, space)| (region.0, space)).collect()
}

fn brief(status: &ClusterStatus) -> String {
    let tables = status.tables.iter().map(|table| {
        format!(
            "{}: {} of {} regions unavailable, {} short of replicas",
            table.name, table.unavailable, table.regions, table.under_replicated
        )
    });
    let dead = status.servers.iter().filter(|server| !server.alive).map(|server| format!("server {} dead", server.id));
    tables.chain(dead).collect::<Vec<_>>().join(", ")
}

/// Creates the table, then asks for the cluster's status again and again.
async fn operator(
    env: Env,
    plan: Plan,
    seeds: Vec<String>,
    status: Arc<Mutex<Option<ClusterStatus>>>,
) -> std::io::Result<()> {
    let client = Client::connect(env.clone(), seeds, client_options(CALL_TIME));
    let shape = &plan.cluster;
    let spec = TableSpec {
        min_in_sync: shape.min_in_sync,
        durability: if shape.buffered { Durability::Buffered } else { Durability::Synced },
        salt: shape.salted.then_some(Salt::Xxh32),
        compression: if shape.compressed { Compression::Lz4 } else { Compression::None },
        ..TableSpec::new(shape.factor)
    };
    let splits = if shape.salted { even_splits(shape.regions) } else { letter_splits(shape.regions) };
    let name: steadfast::region::TableName = TABLE.parse().map_err(std::io::Error::other)?;
    while let Err(error) = client.create_table(name.clone(), spec.clone(), splits.clone()).await {
        tracing::debug!(%error, "the table cannot be created yet");
        env.sleep(Duration::from_millis(200)).await;
    }
    loop {
        if let Ok(seen) = client.status().await {
            *status.lock().expect("no holder panics") = Some(seen);
        }
        env.sleep(Duration::from_millis(250)).await;
    }
}

/// The keys of the workload begin with letters.
fn letter_splits(regions: u32) -> Vec<bytes::Bytes> {
    let split = |i: u32| vec![b'a' + (26 * i / regions) as u8].into();
    (1..regions).map(split).collect()
}

async fn hand_over(env: Env, seeds: Vec<String>, region: u32, to: u64) -> std::io::Result<()> {
    let client = Client::connect(env, seeds, client_options(CALL_TIME));
    let name: steadfast::region::TableName = TABLE.parse().map_err(std::io::Error::other)?;
    if let Ok(map) = client.describe_table(name).await {
        let config = &map.regions[region as usize % map.regions.len()].config;
        let to = config.in_sync[to as usize % config.in_sync.len()];
        let _ = client.hand_over(config.region, to).await;
    }
    Ok(())
}
