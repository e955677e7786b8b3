//! A whole cluster inside a simulated world: masters, region servers, client machines, made from a plan.

use crate::invariant::Folder;
use crate::plan::{Plan, Victim, master, server};
use crate::watch::TrueTime;
use env::sim::{CrashKind, Failing, Failure, Faults, NodeState, World, WorldOptions, stream};
use env::{BoxFuture, Env};
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;
use steadfast::client::Options;
use steadfast::node::{MasterNode, MasterNodeOptions, Server, ServerOptions};
use steadfast::protocol::Secret;
use steadfast::region::RegionId;
use steadfast::replication::{Timing, replica};

pub const PORT: u16 = 7400;

/// Of the calls of those who do not say otherwise.
pub const CALL_TIME: Duration = Duration::from_secs(10);

pub fn master_ip(i: u64) -> String {
    format!("10.0.0.{i}")
}

pub fn server_ip(i: u64) -> String {
    format!("10.0.1.{i}")
}

pub fn client_ip(i: u64) -> String {
    format!("10.0.2.{i}")
}

fn address(ip: &str) -> String {
    format!("{ip}:{PORT}")
}

/// A world with a cluster in it.
pub struct Cluster {
    pub world: World,
    pub time: TrueTime,
    servers: u64,
}

impl Cluster {
    /// Starts every master and server of the plan.
    pub fn start(plan: &Plan, time: TrueTime) -> Cluster {
        let nodes = plan.cluster.masters + plan.cluster.servers + plan.workload.clients;
        let mut options = WorldOptions::new(plan.seed);
        options.tick = Duration::from_millis(if nodes > 8 { 5 } else { 2 });
        options.latency_min = Duration::from_millis(plan.network.latency_ms_min);
        options.latency_max = Duration::from_millis(plan.network.latency_ms_max);
        options.link_fail_rate = f64::from(plan.network.break_ppm) / 1e6;
        // By one message in five: a pair of nodes that only tries to connect, once a second, must not be cut off for good. Longer
        // cuts are planned ones.
        options.link_repair_rate = 0.2;
        let mut cluster = Cluster { world: World::new(options), time, servers: plan.cluster.servers };
        let masters: BTreeMap<u64, String> = (1..=plan.cluster.masters).map(|i| (i, address(&master_ip(i)))).collect();
        for i in 1..=plan.cluster.masters {
            let mut options = MasterNodeOptions::new(i, masters.clone());
            options.secret = Some(secret());
            cluster.world.add_node(&master(i), &master_ip(i), move |env| run_master(env, options.clone()));
        }
        for i in 1..=plan.cluster.servers {
            let mut options = ServerOptions::new(address(&server_ip(i)), masters.values().cloned().collect());
            options.segment_bytes = plan.cluster.segment_bytes;
            options.timing = timing(plan.cluster.lease_ms);
            options.reserve_bytes = 0;
            if !plan.cluster.cached {
                options.memory_bytes = 0;
            }
            options.secret = Some(secret());
            cluster.world.add_node(&server(i), &server_ip(i), move |env| run_server(env, options.clone()));
        }
        for clock in &plan.clocks {
            let control = cluster.world.clock(&clock.node);
            control.set_rate_ppm(clock.rate_ppm);
            control.step_wall_ms(clock.wall_step_ms);
        }
        cluster
    }

    /// Where clients may begin.
    pub fn seeds(&self) -> Vec<String> {
        (1..=self.servers).map(|i| address(&server_ip(i))).collect()
    }

    pub fn step(&mut self) -> Result<(), Failure> {
        self.time.set(self.world.now());
        self.world.step().map(drop)
    }

    pub fn now_ms(&self) -> u64 {
        self.world.now().as_millis() as u64
    }

    pub fn is_up(&self, node: &str) -> bool {
        matches!(self.world.state(node), NodeState::Up | NodeState::Paused)
    }

    pub fn crash(&mut self, node: &str, kind: CrashKind) {
        self.world.resume(node);
        self.world.crash(node, kind);
    }

    /// What a server's disk holds of a region.
    pub fn folder(&self, node: &str, region: u64) -> Folder {
        let disk = self.world.disk(node);
        let dir = format!("{}/", replica::folder(RegionId(region)));
        let names = disk.files().into_iter().filter_map(|(path, _)| path.strip_prefix(&dir).map(str::to_owned));
        names.map(|name| (name.clone(), disk.read_cached(&format!("{dir}{name}")).unwrap_or_default())).collect()
    }

    /// Changes what goes wrong with a server's regions' files, and with no others: who a server is cannot be copied from
    /// another one.
    pub fn harm_media(&self, node: &str, change: impl FnOnce(&mut Faults)) {
        self.world.disk(node).faults(|faults| {
            faults.only_in = "regions/".to_owned();
            change(faults);
        });
    }

    /// Reads and writes go right again, and reads show what the medium holds.
    pub fn mend_media(&self, node: &str) {
        let disk = self.world.disk(node);
        disk.faults(|faults| {
            faults.read = Failing::NEVER;
            faults.lost_write = Failing::NEVER;
            faults.misdirected_write = Failing::NEVER;
        });
        disk.drop_caches();
    }

    /// Flips bits of one of a server's files of that kind, which `seed` picks, as they are on the medium. False if it has
    /// none.
    pub fn rot(&self, node: &str, victim: Victim, bits: u32, seed: u64) -> bool {
        let Some((path, len)) = self.pick_file(node, victim, seed) else { return false };
        self.world.disk(node).flip_bits(&path, 0..len, bits, seed).is_ok()
    }

    /// Breaks consecutive sectors of a segment of a server, as [`Cluster::rot`] picks it.
    pub fn break_sectors(&self, node: &str, sectors: u64, seed: u64) -> bool {
        let Some((path, len)) = self.pick_file(node, Victim::Segment, seed) else { return false };
        let from = stream(seed, "bad sectors").below(len);
        self.world.disk(node).break_sectors(&path, from..(from + sectors * 512).min(len)).is_ok()
    }

    /// A region's file, with its length on the medium.
    fn pick_file(&self, node: &str, victim: Victim, seed: u64) -> Option<(String, u64)> {
        let disk = self.world.disk(node);
        let wanted = |path: &str| match victim {
            Victim::Segment => path.ends_with(".seg"),
            Victim::Hint => path.ends_with(".hint"),
            Victim::State => path.ends_with("/state") || path.ends_with("/durable"),
        };
        let paths = disk.files().into_iter().map(|(path, _)| path);
        let paths = paths.filter(|path| path.starts_with("regions/") && wanted(path));
        let lens = paths.filter_map(|path| disk.read_durable(&path).map(|bytes| (path, bytes.len() as u64)));
        let files: Vec<(String, u64)> = lens.filter(|(_, len)| *len > 0).collect();
        if files.is_empty() && victim != Victim::Segment {
            return self.pick_file(node, Victim::Segment, seed);
        }
        let place = stream(seed, "file").below((files.len() as u64).max(1));
        files.into_iter().nth(place as usize)
    }

    /// What the disks did wrong.
    pub fn disk_faults(&self) -> BTreeMap<&'static str, u64> {
        let mut total: BTreeMap<&'static str, u64> = BTreeMap::new();
        for node in (1..=self.servers).map(server) {
            let counts = self.world.disk(&node).counts();
            let kinds = [
                ("bits-flipped", counts.flipped_bits),
                ("sectors-broken", counts.broken_sectors),
                ("reads-failed", counts.failed_reads),
                ("writes-failed", counts.failed_writes),
                ("flushes-failed", counts.failed_syncs),
                ("writes-lost", counts.lost_writes),
                ("writes-misdirected", counts.misdirected_writes),
                ("writes-without-room", counts.full),
            ];
            for (kind, times) in kinds.into_iter().filter(|(_, times)| *times > 0) {
                *total.entry(kind).or_default() += times;
            }
        }
        total
    }

    /// Why each node's process that ended by itself did.
    pub fn exits(&self) -> Vec<String> {
        let reason = |node: &str| match self.world.state(node) {
            NodeState::Exited(Err(reason)) => Some(format!("{node} ended: {reason}")),
            _ => None,
        };
        self.world.nodes().filter_map(reason).collect()
    }

    /// A process that ended by itself is started too: somebody watches over it.
    pub fn restart_if_down(&mut self, node: &str) {
        if !self.is_up(node) {
            self.world.restart(node);
        }
    }
}

fn timing(lease_ms: u64) -> Timing {
    let spare = Timing::DEFAULT.suspect - Timing::DEFAULT.lease;
    let lease = Duration::from_millis(lease_ms);
    Timing { lease, suspect: lease + spare, ..Timing::DEFAULT }
}

/// Nodes that others can reach do not start without one.
pub fn secret() -> Secret {
    Secret::new(b"what all nodes of a simulated cluster know").expect("long enough")
}

/// How clients of the cluster connect.
pub fn client_options(call_time: Duration) -> Options {
    Options { call_time, secret: Some(secret()), ..Options::default() }
}

fn run_master(env: Env, options: MasterNodeOptions) -> BoxFuture<'static, io::Result<()>> {
    Box::pin(async move {
        let master = MasterNode::start(env, options).await.map_err(io::Error::other)?;
        Err(io::Error::other(master.stopped().await))
    })
}

fn run_server(env: Env, options: ServerOptions) -> BoxFuture<'static, io::Result<()>> {
    Box::pin(async move {
        let _server = Server::start(env, options).await.map_err(io::Error::other)?;
        std::future::pending().await
    })
}
