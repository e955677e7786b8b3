//! What a run will do, decided before it starts: a plan is drawn from a seed, can be written down, read, and run again
//! after the code has changed and the seed would mean something else.

use env::sim::{Dice, stream};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// For everything that the plan leaves open: schedules, latencies, what a power loss leaves.
    pub seed: u64,
    pub profile: Profile,
    pub cluster: Shape,
    pub workload: Workload,
    pub network: Network,
    pub clocks: Vec<ClockPlan>,
    /// In the order of their times.
    pub events: Vec<Event>,
    /// How long faults are injected, from when the cluster is ready.
    pub fault_ms: u64,
    /// Lose the power of every machine at once after healing, before the final reads.
    pub final_power_cycle: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// A random choice of all kinds of faults.
    Swarm,
    /// No faults: what must always work.
    Calm,
    /// Partitions of both kinds.
    Partition,
    /// Processes killed and paused.
    Crash,
    /// Machines lose power.
    Power,
    /// Clocks at the edge of what is allowed, with pauses and partitions.
    LeaseClock,
    /// Failing flushes and writes.
    Fsync,
    /// What one machine's disk holds rots, or cannot be read.
    Rot,
    /// One machine's disk loses writes that it acknowledged, or puts them elsewhere.
    LostWrites,
    /// Disks have no room for a while.
    FullDisk,
    /// Leads moved about by hand while servers restart.
    Churn,
    /// The same over small segments, much that is deleted and some that stays, so that much is compacted.
    Compaction,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    pub masters: u64,
    pub servers: u64,
    pub regions: u32,
    pub factor: u8,
    pub min_in_sync: u8,
    /// `buffered` instead of `synced`.
    pub buffered: bool,
    pub salted: bool,
    pub compressed: bool,
    pub segment_bytes: u64,
    pub lease_ms: u64,
    /// Servers keep records in memory. Without, every read shows what the disk holds.
    pub cached: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workload {
    pub clients: u64,
    /// The first so many of the clients only read: no write keeps them waiting.
    pub readers: u64,
    /// Few, so that clients meet.
    pub keys: u64,
    pub pause_ms_max: u64,
    pub value_bytes_max: u64,
    pub deadline_ms: u64,
    /// Of a hundred operations.
    pub deletes: u64,
    /// Keys that are written at the beginning and never again: segments that hold them are not compacted for long, while
    /// later ones are.
    pub cold_keys: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Network {
    pub latency_ms_min: u64,
    pub latency_ms_max: u64,
    /// How often a message breaks its link, in millionths.
    pub break_ppm: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockPlan {
    pub node: String,
    pub rate_ppm: i64,
    pub wall_step_ms: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    pub at_ms: u64,
    pub fault: Fault,
}

/// Everything that is broken here is mended when the fault phase ends, if not before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// Nothing passes between the two groups (`both`), or nothing from the first to the second.
    Partition {
        from: Vec<String>,
        to: Vec<String>,
        both: bool,
        for_ms: u64,
    },
    /// What one of the first group sends to one of the second arrives late, all at once and in order.
    Clog {
        from: Vec<String>,
        to: Vec<String>,
        for_ms: u64,
    },
    /// The process is killed and starts again.
    Kill {
        node: String,
        down_ms: u64,
    },
    /// The machines lose power at the same moment, and start again.
    PowerLoss {
        nodes: Vec<String>,
        down_ms: u64,
    },
    /// The process stands still.
    Pause {
        node: String,
        for_ms: u64,
    },
    /// The wall clock is set.
    StepClock {
        node: String,
        by_ms: i64,
    },
    /// The monotonic clock runs fast or slow, within what is allowed.
    ClockRate {
        node: String,
        ppm: i64,
    },
    /// The next flush fails once; what it should have made durable never becomes so.
    FailFlush {
        node: String,
    },
    FailWrite {
        node: String,
    },
    SlowDisk {
        node: String,
        factor: u32,
        for_ms: u64,
    },
    /// Bits change of what the medium holds.
    BitRot {
        node: String,
        victim: Victim,
        bits: u32,
    },
    /// Some of a segment's sectors cannot be read until they are overwritten.
    BadSectors {
        node: String,
        sectors: u64,
    },
    /// The next read of a region's file fails once.
    FailRead {
        node: String,
    },
    /// Of the writes to regions' files so many in a million are acknowledged and never made. When it is over, the page cache
    /// lets go of what it showed in their place.
    LoseWrites {
        node: String,
        ppm: u32,
        for_ms: u64,
    },
    /// The same, but they land elsewhere in the file.
    MisdirectWrites {
        node: String,
        ppm: u32,
        for_ms: u64,
    },
    /// Nothing grows.
    FullDisk {
        node: String,
        for_ms: u64,
    },
    /// An operator gives the lead of a region to another server (by its place among the members).
    HandOver {
        region: u32,
        to: u64,
    },
}

/// Which of a region's files rots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Victim {
    Segment,
    Hint,
    /// The small ones.
    State,
}

impl Fault {
    pub const NAMES: &[&str] = &[
        "partition",
        "clog",
        "kill",
        "power-loss",
        "pause",
        "step-clock",
        "clock-rate",
        "fail-flush",
        "fail-write",
        "slow-disk",
        "hand-over",
    ];

    /// Those that profiles of their own draw.
    pub const OF_MEDIA: &[&str] =
        &["bit-rot", "bad-sectors", "fail-read", "lose-writes", "misdirect-writes", "full-disk"];

    /// As a plan names it.
    pub fn name(&self) -> &'static str {
        match self {
            Fault::Partition { .. } => "partition",
            Fault::Clog { .. } => "clog",
            Fault::Kill { .. } => "kill",
            Fault::PowerLoss { .. } => "power-loss",
            Fault::Pause { .. } => "pause",
            Fault::StepClock { .. } => "step-clock",
            Fault::ClockRate { .. } => "clock-rate",
            Fault::FailFlush { .. } => "fail-flush",
            Fault::FailWrite { .. } => "fail-write",
            Fault::SlowDisk { .. } => "slow-disk",
            Fault::BitRot { .. } => "bit-rot",
            Fault::BadSectors { .. } => "bad-sectors",
            Fault::FailRead { .. } => "fail-read",
            Fault::LoseWrites { .. } => "lose-writes",
            Fault::MisdirectWrites { .. } => "misdirect-writes",
            Fault::FullDisk { .. } => "full-disk",
            Fault::HandOver { .. } => "hand-over",
        }
    }
}

pub fn master(i: u64) -> String {
    format!("master-{i}")
}

pub fn server(i: u64) -> String {
    format!("server-{i}")
}

/// The largest clock-rate error that leases allow.
pub const RHO_PPM: i64 = 10_000;

impl Plan {
    pub fn draw(seed: u64, profile: Profile) -> Plan {
        let mut dice = stream(seed, "plan");
        let cluster = Shape::draw(profile, &mut dice);
        let fault_ms = dice.between(8, 25) * 1000;
        let network = Network::draw(profile, &mut dice);
        let mut plan = Plan {
            seed,
            profile,
            workload: Workload::draw(profile, &mut dice),
            network,
            clocks: Vec::new(),
            events: Vec::new(),
            fault_ms,
            final_power_cycle: !cluster.buffered && dice.percent(50),
            cluster,
        };
        let faults = Faults::of(profile, &mut dice);
        faults.draw_into(&mut plan, &mut dice);
        plan.events.sort_by_key(|event| event.at_ms);
        plan
    }

    /// The shape that speeds are compared by: 5 servers, 3 masters, 64 regions, and nothing goes wrong.
    pub fn for_speed(seed: u64, fault_ms: u64) -> Plan {
        let plan = Plan::draw(seed, Profile::Calm);
        let cluster = Shape {
            masters: 3,
            servers: 5,
            regions: 64,
            factor: 3,
            min_in_sync: 2,
            buffered: false,
            salted: true,
            compressed: false,
            segment_bytes: 1 << 20,
            lease_ms: 1000,
            cached: true,
        };
        Plan { cluster, fault_ms, final_power_cycle: false, ..plan }
    }

    fn add(&mut self, fault: Fault, dice: &mut Dice) {
        let at_ms = dice.below(self.fault_ms);
        self.events.push(Event { at_ms, fault });
    }

    pub fn nodes(&self) -> Vec<String> {
        let masters = (1..=self.cluster.masters).map(master);
        masters.chain((1..=self.cluster.servers).map(server)).collect()
    }
}

impl Profile {
    /// What was durable on one machine may be gone or wrong: everybody else keeps what they have.
    fn harms_media(self) -> bool {
        matches!(self, Profile::Rot | Profile::LostWrites)
    }
}

impl Shape {
    fn draw(profile: Profile, dice: &mut Dice) -> Shape {
        let factor = *dice.pick(if profile.harms_media() { &[2, 2, 2, 3, 3, 3] } else { &[1, 2, 2, 3, 3, 3] });
        let servers = u64::from(factor).max(dice.between(2, 4));
        Shape {
            masters: *dice.pick(&[1, 3, 3, 3]),
            servers,
            regions: dice.between(1, 4) as u32,
            factor,
            min_in_sync: match factor {
                3 if dice.percent(70) => 2,
                // Where a disk loses what it acknowledged, no write may be on that disk alone.
                2 | 3 if profile.harms_media() => 2,
                _ => 1,
            },
            buffered: dice.percent(25),
            salted: dice.percent(50),
            compressed: dice.percent(30),
            segment_bytes: match profile {
                Profile::Compaction | Profile::Rot | Profile::LostWrites => *dice.pick(&[4 << 10, 16 << 10]),
                _ => *dice.pick(&[4 << 10, 16 << 10, 1 << 20]),
            },
            // What a clock gains within one lease grows with the lease.
            lease_ms: if profile == Profile::LeaseClock { *dice.pick(&[1000, 1000, 3000, 10_000]) } else { 1000 },
            cached: !(profile.harms_media() && dice.percent(70)),
        }
    }
}

impl Network {
    /// A message takes the least time and an exponential share of the rest, a fifth of it on average.
    fn draw(profile: Profile, dice: &mut Dice) -> Network {
        let calm = profile == Profile::Calm || profile.harms_media();
        let slow = !calm && dice.percent(20);
        Network {
            latency_ms_min: dice.between(1, 2),
            latency_ms_max: if slow { dice.between(50, 250) } else { dice.between(3, 20) },
            break_ppm: if !calm && dice.percent(30) { dice.between(10, 400) as u32 } else { 0 },
        }
    }
}

impl Workload {
    fn draw(profile: Profile, dice: &mut Dice) -> Workload {
        let clients = dice.between(2, 5);
        let readers = if profile == Profile::LeaseClock { dice.between(1, 2) } else { *dice.pick(&[0, 0, 1]) };
        Workload {
            clients,
            readers: readers.min(clients - 1),
            keys: if profile == Profile::Compaction { dice.between(6, 24) } else { dice.between(2, 8) },
            pause_ms_max: *dice.pick(&[5, 20, 60]),
            value_bytes_max: *dice.pick(&[8, 100, 2000]),
            deadline_ms: *dice.pick(&[500, 2000, 5000]),
            deletes: if profile == Profile::Compaction { 25 } else { *dice.pick(&[5, 5, 20]) },
            cold_keys: if profile == Profile::Compaction { 30 } else { *dice.pick(&[0, 8, 30]) },
        }
    }
}

/// How much of each kind of fault a plan gets.
#[derive(Default)]
struct Faults {
    partitions: u64,
    clogs: u64,
    isolations: u64,
    kills: u64,
    power: u64,
    pauses: u64,
    clocks: bool,
    disk: u64,
    slow: u64,
    moves: u64,
    rot: u64,
    lost: u64,
    full: u64,
}

impl Faults {
    fn of(profile: Profile, dice: &mut Dice) -> Faults {
        let mut some = |chance: u32, most: u64| if dice.percent(chance) { dice.between(1, most) } else { 0 };
        match profile {
            Profile::Calm => Faults::default(),
            Profile::Partition => {
                Faults { partitions: some(100, 6), clogs: some(50, 4), isolations: some(50, 2), ..Faults::default() }
            }
            Profile::Crash => Faults { kills: some(100, 6), pauses: some(50, 3), ..Faults::default() },
            Profile::Power => Faults { power: some(100, 4), kills: some(30, 2), ..Faults::default() },
            Profile::LeaseClock => Faults {
                clocks: true,
                pauses: some(30, 2),
                partitions: some(30, 2),
                isolations: some(100, 5),
                ..Faults::default()
            },
            Profile::Fsync => {
                Faults { disk: some(100, 4), kills: some(30, 2), power: some(70, 3), ..Faults::default() }
            }
            Profile::Rot => Faults {
                rot: some(100, 6),
                kills: some(60, 3),
                moves: some(60, 3),
                power: some(30, 2),
                ..Faults::default()
            },
            Profile::LostWrites => Faults {
                lost: some(100, 3),
                kills: some(30, 2),
                moves: some(60, 3),
                power: some(80, 3),
                ..Faults::default()
            },
            Profile::FullDisk => Faults {
                full: some(100, 5),
                kills: some(50, 3),
                power: some(30, 2),
                moves: some(30, 3),
                ..Faults::default()
            },
            Profile::Churn | Profile::Compaction => {
                Faults { moves: some(100, 8), kills: some(70, 4), ..Faults::default() }
            }
            Profile::Swarm => Faults {
                partitions: some(50, 5),
                clogs: some(30, 4),
                isolations: some(20, 2),
                kills: some(50, 5),
                power: some(40, 3),
                pauses: some(40, 3),
                clocks: some(50, 1) == 1,
                disk: some(40, 2),
                slow: some(25, 2),
                moves: some(25, 4),
                ..Faults::default()
            },
        }
    }

    fn draw_into(&self, plan: &mut Plan, dice: &mut Dice) {
        let servers: Vec<String> = (1..=plan.cluster.servers).map(server).collect();
        // One machine only, so that a good copy of everything is left.
        let victim = dice.pick(&servers).clone();
        let nodes = match plan.profile.harms_media() {
            true => (1..=plan.cluster.masters).map(master).chain(vec![victim.clone(); 3]).collect(),
            false => plan.nodes(),
        };
        // A lone copy that loses what its table never flushed is beyond what is promised.
        let power = if plan.cluster.buffered { 0 } else { self.power };
        // Nor is a lone copy whose flush fails: it stops, on purpose, until an operator decides.
        let disk = if plan.cluster.factor == 1 { 0 } else { self.disk };
        for _ in 0..self.partitions {
            let fault = draw_partition(&nodes, dice);
            plan.add(fault, dice);
        }
        for _ in 0..self.clogs {
            let fault = draw_clog(&nodes, dice);
            plan.add(fault, dice);
        }
        for _ in 0..self.kills {
            let at_ms = dice.below(plan.fault_ms);
            // Sometimes two at once, so that one that comes back finds another still down.
            for _ in 0..*dice.pick(&[1, 1, 2]) {
                let fault = Fault::Kill { node: dice.pick(&nodes).clone(), down_ms: dice.between(10, 4000) };
                plan.events.push(Event { at_ms, fault });
            }
        }
        for _ in 0..power {
            let all = dice.percent(40) && !plan.profile.harms_media();
            let nodes = if all { nodes.clone() } else { vec![dice.pick(&nodes).clone()] };
            let fault = Fault::PowerLoss { nodes, down_ms: dice.between(10, 3000) };
            plan.add(fault, dice);
        }
        for _ in 0..self.pauses {
            let fault = Fault::Pause { node: dice.pick(&nodes).clone(), for_ms: dice.between(50, 6000) };
            plan.add(fault, dice);
        }
        for _ in 0..self.slow {
            let (node, factor) = (dice.pick(&servers).clone(), dice.between(10, 300) as u32);
            plan.add(Fault::SlowDisk { node, factor, for_ms: 4000 }, dice);
        }
        for _ in 0..self.moves {
            let (region, to) = (dice.below(u64::from(plan.cluster.regions)) as u32, dice.below(3));
            plan.add(Fault::HandOver { region, to }, dice);
        }
        for _ in 0..self.rot {
            let fault = draw_rot(victim.clone(), dice);
            plan.add(fault, dice);
        }
        for _ in 0..self.lost {
            draw_lost_writes(plan, &victim, dice);
        }
        for _ in 0..self.full {
            let fault = Fault::FullDisk { node: dice.pick(&servers).clone(), for_ms: dice.between(200, 5000) };
            plan.add(fault, dice);
        }
        for _ in 0..disk {
            let fault = match dice.percent(50) {
                true => Fault::FailFlush { node: victim.clone() },
                false => Fault::FailWrite { node: victim.clone() },
            };
            let at_ms = dice.below(plan.fault_ms);
            plan.events.push(Event { at_ms, fault });
            // What a failed flush lost shows when the power goes before another comes.
            if power > 0 && dice.percent(50) {
                let fault = Fault::PowerLoss { nodes: vec![victim.clone()], down_ms: dice.between(10, 3000) };
                plan.events.push(Event { at_ms: at_ms + dice.between(4, 60), fault });
            }
        }
        let fallen = dice.pick(&servers).clone();
        if self.clocks {
            draw_clocks(plan, &fallen, dice);
        }
        for _ in 0..self.isolations {
            let victim = if dice.percent(70) { fallen.clone() } else { dice.pick(&servers).clone() };
            match dice.percent(50) {
                true => draw_clean_isolation(plan, victim, dice),
                false => draw_isolation(plan, victim, dice),
            }
        }
    }
}

fn draw_rot(node: String, dice: &mut Dice) -> Fault {
    match dice.below(100) {
        0..40 => Fault::BitRot { node, victim: Victim::Segment, bits: *dice.pick(&[1, 1, 8]) },
        40..60 => Fault::BitRot { node, victim: Victim::Hint, bits: 1 },
        60..65 => Fault::BitRot { node, victim: Victim::State, bits: 1 },
        65..85 => Fault::BadSectors { node, sectors: dice.between(1, 4) },
        _ => Fault::FailRead { node },
    }
}

/// Sometimes the power goes meanwhile, and what was lost last shows first.
fn draw_lost_writes(plan: &mut Plan, victim: &str, dice: &mut Dice) {
    let (at_ms, for_ms) = (dice.below(plan.fault_ms), dice.between(200, 4000));
    let (node, ppm) = (victim.to_owned(), *dice.pick(&[10_000, 100_000, 500_000]));
    let fault = match dice.percent(60) {
        true => Fault::LoseWrites { node, ppm, for_ms },
        false => Fault::MisdirectWrites { node, ppm, for_ms },
    };
    plan.events.push(Event { at_ms, fault });
    if !plan.cluster.buffered && dice.percent(50) {
        let fault = Fault::PowerLoss { nodes: vec![victim.to_owned()], down_ms: dice.between(10, 3000) };
        plan.events.push(Event { at_ms: at_ms + dice.below(for_ms), fault });
    }
}

/// Every machine has a clock of its own. In half of the plans `fallen`, which is soon alone, is the slowest, and the others,
/// which count the time until its leases are over, are the fastest; in the rest they are whatever they are, and change.
fn draw_clocks(plan: &mut Plan, fallen: &str, dice: &mut Dice) {
    let nodes = plan.nodes();
    let worst = dice.percent(50);
    for node in &nodes {
        let rate_ppm = match worst {
            true if node == fallen => -RHO_PPM,
            true => RHO_PPM,
            false => draw_rate(dice),
        };
        plan.clocks.push(ClockPlan { node: node.clone(), rate_ppm, wall_step_ms: draw_step(dice) });
    }
    for _ in 0..dice.between(1, 4) {
        let fault = Fault::StepClock { node: dice.pick(&nodes).clone(), by_ms: draw_step(dice) };
        plan.add(fault, dice);
        if !worst {
            let fault = Fault::ClockRate { node: dice.pick(&nodes).clone(), ppm: draw_rate(dice) };
            plan.add(fault, dice);
        }
    }
}

/// One server loses all others at the same moment; clients still reach it.
fn draw_clean_isolation(plan: &mut Plan, victim: String, dice: &mut Dice) {
    let to = plan.nodes().into_iter().filter(|node| *node != victim).collect();
    let for_ms = beyond_takeover(plan.cluster.lease_ms, dice);
    plan.add(Fault::Partition { from: vec![victim], to, both: true, for_ms }, dice);
}

/// One server falls out of the cluster link by link: in each direction each is cut, clogged or left as it is, for about as
/// long as it takes until others lead. Its last frames may arrive after its successor's first, and grants that it was given
/// long ago may reach it when they are worth nothing any more.
fn draw_isolation(plan: &mut Plan, victim: String, dice: &mut Dice) {
    let (lease_ms, begin) = (plan.cluster.lease_ms, dice.below(plan.fault_ms));
    let (servers, masters) = (plan.cluster.servers, (1..=plan.cluster.masters).map(master).collect::<Vec<_>>());
    let mut add = |at_ms, fault| plan.events.push(Event { at_ms, fault });
    let link = |from: &String, to: &String| (vec![from.clone()], vec![to.clone()]);
    for other in (1..=servers).map(server).filter(|other| *other != victim) {
        let (there, back) = (dice.below(100), dice.below(100));
        let ((from, to), at_ms) = (link(&victim, &other), begin + dice.below(400));
        match there {
            0..50 => add(at_ms, Fault::Partition { from, to, both: false, for_ms: beyond_takeover(lease_ms, dice) }),
            50..90 => add(at_ms, Fault::Clog { from, to, for_ms: around_takeover(lease_ms, dice) }),
            _ => {}
        }
        let (from, to) = link(&other, &victim);
        match back {
            0..70 => add(begin, Fault::Clog { from, to, for_ms: around_takeover(lease_ms, dice) }),
            70..80 => add(begin, Fault::Partition { from, to, both: false, for_ms: beyond_takeover(lease_ms, dice) }),
            _ => {}
        }
    }
    let alone = vec![victim];
    let for_ms = beyond_takeover(lease_ms, dice);
    match dice.below(100) {
        0..45 => add(begin, Fault::Partition { from: alone, to: masters, both: true, for_ms }),
        45..90 => {
            add(begin, Fault::Clog { from: alone.clone(), to: masters.clone(), for_ms });
            add(begin, Fault::Clog { from: masters, to: alone, for_ms });
        }
        _ => {}
    }
}

fn around_takeover(lease_ms: u64, dice: &mut Dice) -> u64 {
    match dice.below(3) {
        0 => dice.between(lease_ms / 5, lease_ms),
        _ => dice.between(lease_ms, 2 * lease_ms),
    }
}

fn beyond_takeover(lease_ms: u64, dice: &mut Dice) -> u64 {
    dice.between(2 * lease_ms, 3 * lease_ms)
}

/// Mostly at the edge.
fn draw_rate(dice: &mut Dice) -> i64 {
    *dice.pick(&[-RHO_PPM, -RHO_PPM, 0, RHO_PPM / 2, RHO_PPM, RHO_PPM])
}

fn draw_step(dice: &mut Dice) -> i64 {
    const YEAR_MS: i64 = 365 * 24 * 3600 * 1000;
    *dice.pick(&[0, 0, 500, -500, 30_000, -30_000, 10 * YEAR_MS, -10 * YEAR_MS])
}

fn draw_partition(nodes: &[String], dice: &mut Dice) -> Fault {
    let (from, to) = draw_cut(nodes, dice);
    Fault::Partition { from, to, both: dice.percent(50), for_ms: dice.between(100, 6000) }
}

fn draw_clog(nodes: &[String], dice: &mut Dice) -> Fault {
    let (from, to) = draw_cut(nodes, dice);
    let (from, to) = if dice.percent(50) { (from, to) } else { (to, from) };
    Fault::Clog { from, to, for_ms: dice.between(100, 4000) }
}

/// Two groups: one node and the others, or any cut.
fn draw_cut(nodes: &[String], dice: &mut Dice) -> (Vec<String>, Vec<String>) {
    let mut shuffled: Vec<String> = nodes.to_vec();
    for i in (1..shuffled.len()).rev() {
        shuffled.swap(i, dice.below(i as u64 + 1) as usize);
    }
    let cut = if dice.percent(50) { 1 } else { dice.between(1, shuffled.len() as u64 - 1) } as usize;
    let to = shuffled.split_off(cut);
    (shuffled, to)
}
