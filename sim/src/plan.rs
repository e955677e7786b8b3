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
    /// Leads moved about by hand while servers restart.
    Churn,
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
    pub segment_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workload {
    pub clients: u64,
    /// Few, so that clients meet.
    pub keys: u64,
    pub pause_ms_max: u64,
    pub value_bytes_max: u64,
    pub deadline_ms: u64,
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
    /// An operator gives the lead of a region to another server (by its place among the members).
    HandOver {
        region: u32,
        to: u64,
    },
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
        let cluster = Shape::draw(&mut dice);
        let fault_ms = dice.between(8, 25) * 1000;
        let network = Network {
            latency_ms_min: dice.between(1, 2),
            latency_ms_max: dice.between(3, 20),
            break_ppm: if profile != Profile::Calm && dice.percent(30) { dice.between(10, 400) as u32 } else { 0 },
        };
        let mut plan = Plan {
            seed,
            profile,
            workload: Workload::draw(&mut dice),
            network,
            clocks: Vec::new(),
            events: Vec::new(),
            fault_ms,
            final_power_cycle: !cluster.buffered && dice.percent(50),
            cluster,
        };
        Faults::of(profile, &mut dice).draw_into(&mut plan, &mut dice);
        plan.events.sort_by_key(|event| event.at_ms);
        plan
    }

    pub fn nodes(&self) -> Vec<String> {
        let masters = (1..=self.cluster.masters).map(master);
        masters.chain((1..=self.cluster.servers).map(server)).collect()
    }
}

impl Shape {
    fn draw(dice: &mut Dice) -> Shape {
        let factor = *dice.pick(&[1, 2, 2, 3, 3, 3]);
        let servers = u64::from(factor).max(dice.between(2, 4));
        Shape {
            masters: *dice.pick(&[1, 3, 3, 3]),
            servers,
            regions: dice.between(1, 4) as u32,
            factor,
            min_in_sync: if factor == 3 && dice.percent(70) { 2 } else { 1 },
            buffered: dice.percent(25),
            salted: dice.percent(50),
            segment_bytes: *dice.pick(&[4 << 10, 16 << 10, 1 << 20]),
        }
    }
}

impl Workload {
    fn draw(dice: &mut Dice) -> Workload {
        Workload {
            clients: dice.between(2, 5),
            keys: dice.between(2, 8),
            pause_ms_max: *dice.pick(&[5, 20, 60]),
            value_bytes_max: *dice.pick(&[8, 100, 2000]),
            deadline_ms: *dice.pick(&[500, 2000, 5000]),
        }
    }
}

/// How much of each kind of fault a plan gets.
#[derive(Default)]
struct Faults {
    partitions: u64,
    kills: u64,
    power: u64,
    pauses: u64,
    clocks: bool,
    disk: u64,
    slow: u64,
    moves: u64,
}

impl Faults {
    fn of(profile: Profile, dice: &mut Dice) -> Faults {
        let mut some = |chance: u32, most: u64| if dice.percent(chance) { dice.between(1, most) } else { 0 };
        match profile {
            Profile::Calm => Faults::default(),
            Profile::Partition => Faults { partitions: some(100, 6), ..Faults::default() },
            Profile::Crash => Faults { kills: some(100, 6), pauses: some(50, 3), ..Faults::default() },
            Profile::Power => Faults { power: some(100, 4), kills: some(30, 2), ..Faults::default() },
            Profile::LeaseClock => {
                Faults { clocks: true, pauses: some(80, 4), partitions: some(80, 5), ..Faults::default() }
            }
            Profile::Fsync => {
                Faults { disk: some(100, 4), kills: some(30, 2), power: some(30, 2), ..Faults::default() }
            }
            Profile::Churn => Faults { moves: some(100, 8), kills: some(70, 4), ..Faults::default() },
            Profile::Swarm => Faults {
                partitions: some(50, 5),
                kills: some(50, 5),
                power: some(40, 3),
                pauses: some(40, 3),
                clocks: some(50, 1) == 1,
                disk: some(25, 2),
                slow: some(25, 2),
                moves: some(25, 4),
            },
        }
    }

    fn draw_into(&self, plan: &mut Plan, dice: &mut Dice) {
        let nodes = plan.nodes();
        let servers: Vec<String> = (1..=plan.cluster.servers).map(server).collect();
        let mut add = |dice: &mut Dice, fault: Fault| {
            let at_ms = dice.below(plan.fault_ms);
            plan.events.push(Event { at_ms, fault });
        };
        // A lone copy that loses what its table never flushed is beyond what is promised.
        let power = if plan.cluster.buffered { 0 } else { self.power };
        // Nor is a lone copy whose flush fails: it stops, on purpose, until an operator decides.
        let disk = if plan.cluster.factor == 1 { 0 } else { self.disk };
        for _ in 0..self.partitions {
            let fault = draw_partition(&nodes, dice);
            add(dice, fault);
        }
        for _ in 0..self.kills {
            let fault = Fault::Kill { node: dice.pick(&nodes).clone(), down_ms: dice.between(10, 4000) };
            add(dice, fault);
        }
        for _ in 0..power {
            let all = dice.percent(40);
            let nodes = if all { nodes.clone() } else { vec![dice.pick(&nodes).clone()] };
            let fault = Fault::PowerLoss { nodes, down_ms: dice.between(10, 3000) };
            add(dice, fault);
        }
        for _ in 0..self.pauses {
            let fault = Fault::Pause { node: dice.pick(&nodes).clone(), for_ms: dice.between(50, 6000) };
            add(dice, fault);
        }
        for _ in 0..self.slow {
            let (node, factor) = (dice.pick(&servers).clone(), dice.between(10, 300) as u32);
            add(dice, Fault::SlowDisk { node, factor, for_ms: 4000 });
        }
        for _ in 0..self.moves {
            let (region, to) = (dice.below(u64::from(plan.cluster.regions)) as u32, dice.below(3));
            add(dice, Fault::HandOver { region, to });
        }
        // One machine only, so that a good copy of everything is left.
        let victim = dice.pick(&servers).clone();
        for _ in 0..disk {
            let fault = match dice.percent(70) {
                true => Fault::FailFlush { node: victim.clone() },
                false => Fault::FailWrite { node: victim.clone() },
            };
            add(dice, fault);
        }
        if self.clocks {
            for node in &nodes {
                let (rate_ppm, wall_step_ms) = (draw_rate(dice), draw_step(dice));
                plan.clocks.push(ClockPlan { node: node.clone(), rate_ppm, wall_step_ms });
            }
        }
    }
}

fn draw_rate(dice: &mut Dice) -> i64 {
    *dice.pick(&[-RHO_PPM, -RHO_PPM / 2, 0, 0, RHO_PPM / 2, RHO_PPM])
}

fn draw_step(dice: &mut Dice) -> i64 {
    const YEAR_MS: i64 = 365 * 24 * 3600 * 1000;
    *dice.pick(&[0, 0, 500, -500, 30_000, -30_000, 10 * YEAR_MS, -10 * YEAR_MS])
}

fn draw_partition(nodes: &[String], dice: &mut Dice) -> Fault {
    let mut shuffled: Vec<String> = nodes.to_vec();
    for i in (1..shuffled.len()).rev() {
        shuffled.swap(i, dice.below(i as u64 + 1) as usize);
    }
    // One alone, or any cut.
    let cut = if dice.percent(50) { 1 } else { dice.between(1, shuffled.len() as u64 - 1) } as usize;
    let to = shuffled.split_off(cut);
    Fault::Partition { from: shuffled, to, both: dice.percent(50), for_ms: dice.between(100, 6000) }
}
