//! Scripted runs: each is a short file under `scenarios/` with its story and the right outcome.
//!
//! A script is lines; `#` begins the story. Names stand for nodes: `server-1`, `master-2`, or what `bind` called them.
//!
//! ```text
//! cluster masters=3 servers=3 factor=3 min=2 regions=1 durability=synced     the first line
//! bind P primary | bind B backup 1 | bind M master                          whoever it is now
//! put KEY VALUE = done | not-done | unknown | failed                        failed: not done or unknown
//! get KEY = VALUE | absent | failed
//! increment KEY N = VALUE | done | failed | unknown
//! compare KEY OLD NEW = set | VALUE | absent
//! delete KEY = done | ...
//! fill KEY N BYTES                  N puts, one after the other, of values so long
//! start NAME put KEY VALUE          goes on beside the script ...
//! end NAME = done | ...             ... until its outcome is wanted
//! deadline 2s                       of the operations that follow
//! partition P | B,C                 nothing passes, in both directions; `rest`: all other masters and servers
//! cut P > B,C                       nothing passes from P to them
//! clog P > B,C 3s                   what P sends to them arrives that much later, even if a partition comes between
//! heal                              all partitions
//! kill P,B | power P,B | restart P,B | pause P | resume P
//! disk P fail-flush | fail-write | full | slow 100 | well
//! disk P fail-read | fail-reads | lose-write | lose-writes | misdirect-writes      of the regions' files
//! disk P forget                     the page cache lets go of what is clean: reads show what the medium holds
//! disk P flip EXT AT | break EXT AT            a bit, a sector, so many percent into the first such file of a region
//! clock P rate 10000 | clock P step -30000
//! hand-over B | accept-loss B
//! wait heard NAME                   a probe, once more
//! wait alike                        the in-sync replicas hold the same bytes
//! wait 3s | wait whole | wait primary B | wait primary not P | wait in-sync P,B | wait learner B
//! expect primary P | expect in-sync P,B
//! ```
//!
//! Every invariant is watched meanwhile, and at the end the history must be linearizable.

use crate::cluster::{Cluster, client_options};
use crate::invariant::{Violation, unlike};
use crate::plan::{self, Network, Plan, Profile, Shape, Workload};
use crate::watch::{TrueTime, Watch};
use crate::workload::{TABLE, read, written};
use bytes::Bytes;
use env::Env;
use env::sim::{CrashKind, Failing, Faults};
use model::{Action, Answer, History, Operation, Outcome};
use std::collections::{BTreeMap, VecDeque};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use steadfast::client::{Client, Compared, Table};
use steadfast::protocol::TableMap;
use steadfast::region::{Durability, ServerId, TableSpec, even_splits};

/// Name and text of every scenario.
const ALL: &[(&str, &str)] = &include!(concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios/list.rs"));

/// How long a `wait` or an operation may take.
const WAIT_MAX: Duration = Duration::from_secs(40);

pub fn command(name: Option<&str>, all: bool, list: bool, print: Option<tracing::Level>) -> ExitCode {
    if list {
        for (name, text) in ALL {
            println!("{name}: {}", story(text));
        }
        return ExitCode::SUCCESS;
    }
    let chosen: Vec<&(&str, &str)> = ALL.iter().filter(|(known, _)| all || name == Some(known)).collect();
    if chosen.is_empty() {
        let names: Vec<&str> = ALL.iter().map(|(name, _)| *name).collect();
        eprintln!("name one scenario, or --all: {}", names.join(", "));
        return ExitCode::from(2);
    }
    let mut failed = 0;
    for &&(name, text) in &chosen {
        match crate::on_a_fresh_thread(move |print| run(text, print), print) {
            Ok(Played { seconds, disk_faults }) => {
                let faults: String = disk_faults.iter().map(|(kind, times)| format!(", {kind} {times}")).collect();
                println!("{name}: as it should be, {seconds:.1} simulated seconds{faults}");
            }
            Err(what) => {
                failed += 1;
                println!("{name}: WRONG: {what}");
            }
        }
    }
    println!("{} passed, {failed} failed", chosen.len() - failed);
    ExitCode::from(u8::from(failed > 0))
}

fn story(text: &str) -> String {
    let lines = text.lines().take_while(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    lines.collect::<Vec<_>>().join(" ")
}

/// What a script came to.
pub struct Played {
    /// Simulated.
    seconds: f64,
    disk_faults: BTreeMap<&'static str, u64>,
}

/// Runs a script; says what went wrong in which line.
pub fn run(text: &str, print: Option<tracing::Level>) -> Result<Played, String> {
    let time = TrueTime::default();
    let watch = Watch::new(time.clone(), print);
    let heard = watch.clone();
    tracing::subscriber::with_default(watch, || Script::play(text, time, heard))
}

struct Script {
    cluster: Cluster,
    plan: Plan,
    watch: Watch,
    names: BTreeMap<String, String>,
    seen: Arc<Mutex<Seen>>,
    /// Work for the scripted client.
    desk: Arc<Mutex<Desk>>,
    operations: Vec<Operation>,
    started: BTreeMap<String, u64>,
    deadline: Duration,
}

/// What the operator's machine last saw.
#[derive(Default)]
struct Seen {
    map: Option<TableMap>,
    servers: BTreeMap<ServerId, String>,
    wishes: VecDeque<Wish>,
}

enum Wish {
    HandOver(ServerId),
    AcceptLoss(ServerId),
}

#[derive(Default)]
struct Desk {
    next: u64,
    asked: VecDeque<(u64, Call, Duration)>,
    results: BTreeMap<u64, Operation>,
}

#[derive(Clone, Debug)]
enum Call {
    Put(String, String),
    Get(String),
    Increment(String, i64),
    Compare(String, Option<String>, String),
    Delete(String),
}

impl Script {
    fn play(text: &str, time: TrueTime, watch: Watch) -> Result<Played, String> {
        let numbered = text.lines().enumerate().map(|(at, line)| (at + 1, line.split('#').next().unwrap_or("").trim()));
        let mut lines = numbered.filter(|(_, line)| !line.is_empty());
        let (_, first) = lines.next().ok_or("the script is empty")?;
        let plan = parse_cluster(first)?;
        let mut script = Script {
            cluster: Cluster::start(&plan, time),
            plan,
            watch,
            names: BTreeMap::new(),
            seen: Arc::default(),
            desk: Arc::default(),
            operations: Vec::new(),
            started: BTreeMap::new(),
            deadline: Duration::from_secs(5),
        };
        script.set_up().map_err(|what| format!("setting up: {what}"))?;
        for (at, line) in lines {
            let at_ms = script.cluster.now_ms();
            tracing::info!(line, "script");
            script.line(line).map_err(|what| format!("line {at} ({line}), at {at_ms} ms: {what}"))?;
        }
        script.judge()?;
        Ok(Played { seconds: script.cluster.world.now().as_secs_f64(), disk_faults: script.cluster.disk_faults() })
    }

    fn set_up(&mut self) -> Result<(), String> {
        let (plan, seeds, seen) = (self.plan.clone(), self.cluster.seeds(), self.seen.clone());
        self.cluster.world.add_node("operator", "10.0.3.1", move |env| {
            Box::pin(operator(env, plan.cluster.clone(), seeds.clone(), seen.clone()))
        });
        let (seeds, desk) = (self.cluster.seeds(), self.desk.clone());
        let time = self.cluster.time.clone();
        self.cluster.world.add_node("client", "10.0.2.1", move |env| {
            Box::pin(scripted_client(env, seeds.clone(), desk.clone(), time.clone()))
        });
        let factor = usize::from(self.plan.cluster.factor);
        self.wait_for("the table was never ready", |script| {
            script.is_whole(factor) && script.seen().servers.len() == script.plan.cluster.servers as usize
        })?;
        let servers: Vec<(ServerId, String)> = self.seen().servers.clone().into_iter().collect();
        for (id, address) in servers {
            let node = self.node_at(&address);
            self.watch.invariants().name_server(&node, id.0);
        }
        Ok(())
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().expect("no holder panics")
    }

    fn step(&mut self) -> Result<(), String> {
        self.cluster.step().map_err(|failure| format!("{failure:?}"))?;
        match self.watch.invariants().violations().first() {
            Some(violation) => Err(violation.to_string()),
            None => Ok(()),
        }
    }

    fn wait_for(&mut self, otherwise: &str, until: impl Fn(&Script) -> bool) -> Result<(), String> {
        let end = self.cluster.world.now() + WAIT_MAX;
        while !until(self) {
            if self.cluster.world.now() >= end {
                let config = self.seen().map.as_ref().map(|map| map.regions[0].config.clone());
                return Err(format!("{otherwise}; the region is {config:?}"));
            }
            self.step()?;
        }
        Ok(())
    }

    fn run_for(&mut self, duration: Duration) -> Result<(), String> {
        let end = self.cluster.world.now() + duration;
        while self.cluster.world.now() < end {
            self.step()?;
        }
        Ok(())
    }

    // ---- lines ----

    fn line(&mut self, line: &str) -> Result<(), String> {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let rest = rest.trim();
        match verb {
            "bind" => self.bind(rest),
            "put" | "get" | "increment" | "compare" | "delete" => self.operate(line),
            "fill" => self.fill(rest),
            "start" => self.start(rest),
            "end" => self.end(rest),
            "deadline" => parse_time(rest).map(|time| self.deadline = time),
            "partition" => self.cut(rest, '|', true),
            "cut" => self.cut(rest, '>', false),
            "clog" => self.clog(rest),
            "heal" => {
                self.cluster.world.repair_all();
                Ok(())
            }
            "kill" => self.each(rest, |script, node| script.cluster.crash(node, CrashKind::Process)),
            "power" => self.each(rest, |script, node| {
                script.cluster.crash(node, CrashKind::Power);
                if script.plan.cluster.buffered {
                    script.watch.invariants().lost_power(node);
                }
            }),
            "restart" => self.each(rest, |script, node| script.cluster.restart_if_down(node)),
            "pause" => self.each(rest, |script, node| script.cluster.world.pause(node)),
            "resume" => self.each(rest, |script, node| script.cluster.world.resume(node)),
            "disk" => self.disk(rest),
            "clock" => self.clock(rest),
            "hand-over" => self.wish(rest, Wish::HandOver),
            "accept-loss" => self.wish(rest, Wish::AcceptLoss),
            "wait" => self.wait(rest),
            "expect" => self.expect(rest),
            _ => Err("no such verb".to_owned()),
        }
    }

    fn node(&self, name: &str) -> Result<String, String> {
        let node = self.names.get(name).cloned().unwrap_or_else(|| name.to_owned());
        let known = self.cluster.world.nodes().any(|known| known == node);
        if known { Ok(node) } else { Err(format!("no node is called {name}")) }
    }

    fn each(&mut self, names: &str, act: impl Fn(&mut Script, &str)) -> Result<(), String> {
        self.nodes(names)?.iter().for_each(|node| act(self, node));
        Ok(())
    }

    fn node_at(&self, address: &str) -> String {
        let servers = 1..=self.plan.cluster.servers;
        let found = servers.into_iter().find(|i| address.starts_with(&format!("{}:", crate::cluster::server_ip(*i))));
        plan::server(found.expect("the servers' addresses are the cluster's"))
    }

    fn server_id(&self, node: &str) -> Result<ServerId, String> {
        let servers = self.seen().servers.clone();
        let found = servers.iter().find(|(_, address)| self.node_at(address) == node);
        found.map(|(id, _)| *id).ok_or_else(|| format!("{node} is no server"))
    }

    fn config(&self) -> steadfast::region::RegionConfig {
        self.seen().map.as_ref().expect("the table is there").regions[0].config.clone()
    }

    fn bind(&mut self, rest: &str) -> Result<(), String> {
        // What the operator's machine knows may be a moment old.
        self.run_for(Duration::from_millis(400))?;
        let words: Vec<&str> = rest.split_whitespace().collect();
        let config = self.config();
        let primary = config.primary.ok_or("nobody leads")?;
        let server = match words[..] {
            [_, "primary"] => primary,
            [_, "backup", place] => {
                let place: usize = place.parse().map_err(|_| "which backup?")?;
                let mut backups = config.in_sync.iter().copied().filter(|member| *member != primary);
                backups.nth(place - 1).ok_or("there are not so many backups")?
            }
            _ => return Err("bind NAME primary, or bind NAME backup N".to_owned()),
        };
        let address = self.seen().servers[&server].clone();
        self.names.insert(words[0].to_owned(), self.node_at(&address));
        Ok(())
    }

    fn cut(&mut self, rest: &str, mark: char, both: bool) -> Result<(), String> {
        let (from, to) = rest.split_once(mark).ok_or("between whom?")?;
        let from = self.nodes(from)?;
        let to = if to.trim() == "rest" {
            self.plan.nodes().into_iter().filter(|node| !from.contains(node)).collect()
        } else {
            self.nodes(to)?
        };
        for (from, to) in from.iter().flat_map(|from| to.iter().map(move |to| (from, to))) {
            self.cluster.world.partition_oneway(from, to);
            if both {
                self.cluster.world.partition_oneway(to, from);
            }
        }
        Ok(())
    }

    fn clog(&mut self, rest: &str) -> Result<(), String> {
        let (from, to) = rest.split_once('>').ok_or("between whom?")?;
        let (to, time) = to.trim().rsplit_once(' ').ok_or("for how long?")?;
        let (from, to, time) = (self.nodes(from)?, self.nodes(to)?, parse_time(time)?);
        for (from, to) in from.iter().flat_map(|from| to.iter().map(move |to| (from, to))) {
            self.cluster.world.clog(from, to, time);
        }
        Ok(())
    }

    fn nodes(&self, names: &str) -> Result<Vec<String>, String> {
        names.split(',').map(|name| self.node(name.trim())).collect()
    }

    fn disk(&mut self, rest: &str) -> Result<(), String> {
        let words: Vec<&str> = rest.split_whitespace().collect();
        let node = self.node(words[0])?;
        let disk = self.cluster.world.disk(&node);
        match words[1..] {
            ["fail-flush"] => disk.faults(|faults| faults.sync = Failing::NEXT),
            ["fail-write"] => disk.faults(|faults| faults.write = Failing::NEXT),
            ["full"] => disk.faults(|faults| faults.capacity = Some(0)),
            ["slow", factor] => {
                let factor = factor.parse().map_err(|_| "how slow?")?;
                disk.faults(|faults| faults.slow_factor = factor);
            }
            ["well"] => disk.faults(|faults| *faults = Faults { latency: faults.latency, ..Faults::default() }),
            ["fail-read"] => self.cluster.harm_media(&node, |faults| faults.read = Failing::NEXT),
            ["fail-reads"] => self.cluster.harm_media(&node, |faults| faults.read = Failing::ALWAYS),
            ["lose-write"] => self.lie(&node, |faults| faults.lost_write = Failing::NEXT),
            ["lose-writes"] => self.lie(&node, |faults| faults.lost_write = Failing::ALWAYS),
            ["misdirect-writes"] => self.lie(&node, |faults| faults.misdirected_write = Failing::ALWAYS),
            ["forget"] => disk.drop_caches(),
            [what @ ("flip" | "break"), extension, percent] => {
                let percent: u64 = percent.parse().map_err(|_| "where?")?;
                let mut files = disk.files().into_iter();
                let found = files.find(|(path, _)| path.starts_with("regions/") && path.ends_with(extension));
                let (path, len) = found.ok_or("it has no such file")?;
                let at = (len * percent / 100).min(len.saturating_sub(1));
                let harmed =
                    if what == "flip" { disk.flip_bit(&path, at, 3) } else { disk.break_sectors(&path, at..at + 1) };
                harmed.map_err(|error| error.to_string())?;
            }
            _ => return Err("what happens to the disk?".to_owned()),
        }
        Ok(())
    }

    fn lie(&self, node: &str, change: impl FnOnce(&mut Faults)) {
        self.cluster.harm_media(node, change);
        self.watch.invariants().disk_lies(node);
    }

    fn clock(&mut self, rest: &str) -> Result<(), String> {
        let words: Vec<&str> = rest.split_whitespace().collect();
        let [name, what, value] = words[..] else { return Err("clock NODE rate|step VALUE".to_owned()) };
        let clock = self.cluster.world.clock(&self.node(name)?);
        let value: i64 = value.parse().map_err(|_| "a number is wanted")?;
        match what {
            "rate" => clock.set_rate_ppm(value),
            "step" => clock.step_wall_ms(value),
            _ => return Err("rate or step?".to_owned()),
        }
        Ok(())
    }

    fn wish(&mut self, name: &str, wish: impl FnOnce(ServerId) -> Wish) -> Result<(), String> {
        let server = self.server_id(&self.node(name)?)?;
        self.seen().wishes.push_back(wish(server));
        Ok(())
    }

    fn is_whole(&self, factor: usize) -> bool {
        let seen = self.seen();
        let Some(map) = &seen.map else { return false };
        map.regions.iter().all(|place| place.config.primary.is_some() && place.config.in_sync.len() == factor)
    }

    fn wait(&mut self, rest: &str) -> Result<(), String> {
        let words: Vec<&str> = rest.split_whitespace().collect();
        match words[..] {
            ["whole"] => {
                let factor = usize::from(self.plan.cluster.factor);
                self.run_for(Duration::from_millis(400))?;
                self.wait_for("it did not become whole", |script| script.is_whole(factor))
            }
            ["primary", "not", name] => {
                let server = self.server_id(&self.node(name)?)?;
                self.wait_for("it still leads", |script| {
                    script.config().primary.is_some_and(|primary| primary != server)
                })
            }
            ["primary", name] => {
                let server = self.server_id(&self.node(name)?)?;
                self.wait_for("it does not lead", |script| script.config().primary == Some(server))
            }
            ["in-sync", names] => {
                let wanted = self.server_ids(names)?;
                self.wait_for("other replicas are in sync", |script| {
                    let mut in_sync = script.config().in_sync;
                    in_sync.sort();
                    in_sync == wanted
                })
            }
            ["heard", name] => {
                let heard = |script: &Script| script.watch.invariants().heard_of().get(name).copied().unwrap_or(0);
                let before = heard(self);
                self.wait_for("it was not heard", |script| heard(script) > before)
            }
            ["alike"] => self.wait_for("the replicas are not alike", Script::is_alike),
            ["learner", name] => {
                let server = self.server_id(&self.node(name)?)?;
                self.wait_for("it does not learn", |script| script.config().learners.contains(&server))
            }
            [time] => {
                let time = parse_time(time)?;
                self.run_for(time)
            }
            _ => Err("wait for what?".to_owned()),
        }
    }

    fn is_alike(&self) -> bool {
        let in_sync = self.watch.invariants().in_sync();
        in_sync.iter().all(|(&region, nodes)| {
            let folders: Vec<_> = nodes.iter().map(|node| self.cluster.folder(node, region)).collect();
            folders.windows(2).all(|pair| unlike(&pair[0], &pair[1]).is_none())
        })
    }

    fn server_ids(&self, names: &str) -> Result<Vec<ServerId>, String> {
        let ids = self.nodes(names)?.iter().map(|node| self.server_id(node)).collect::<Result<Vec<_>, String>>();
        let mut ids = ids?;
        ids.sort();
        Ok(ids)
    }

    fn expect(&mut self, rest: &str) -> Result<(), String> {
        self.run_for(Duration::from_millis(400))?;
        let config = self.config();
        match rest.split_once(' ') {
            Some(("primary", name)) if config.primary == Some(self.server_id(&self.node(name)?)?) => Ok(()),
            Some(("in-sync", names)) => {
                let mut in_sync = config.in_sync.clone();
                in_sync.sort();
                if in_sync == self.server_ids(names)? { Ok(()) } else { Err(format!("it is {config:?}")) }
            }
            _ => Err(format!("it is {config:?}")),
        }
    }

    // ---- operations ----

    fn ask(&mut self, text: &str) -> Result<u64, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let call = match words[..] {
            ["put", key, value] => Call::Put(key.to_owned(), value.to_owned()),
            ["get", key] => Call::Get(key.to_owned()),
            ["increment", key, by] => Call::Increment(key.to_owned(), by.parse().map_err(|_| "by how much?")?),
            ["delete", key] => Call::Delete(key.to_owned()),
            ["compare", key, old, new] => {
                Call::Compare(key.to_owned(), (old != "absent").then(|| old.to_owned()), new.to_owned())
            }
            _ => return Err("no such operation".to_owned()),
        };
        let mut desk = self.desk.lock().expect("no holder panics");
        desk.next += 1;
        let id = desk.next;
        desk.asked.push_back((id, call, self.deadline));
        Ok(id)
    }

    fn answer(&mut self, id: u64) -> Result<Operation, String> {
        let end = self.cluster.world.now() + self.deadline + Duration::from_secs(20);
        loop {
            if let Some(operation) = self.desk.lock().expect("no holder panics").results.remove(&id) {
                self.operations.push(operation.clone());
                return Ok(operation);
            }
            if self.cluster.world.now() > end {
                return Err("the operation never ended".to_owned());
            }
            self.step()?;
        }
    }

    fn operate(&mut self, line: &str) -> Result<(), String> {
        let (call, wanted) = line.split_once(" = ").ok_or("and what should come of it?")?;
        let id = self.ask(call)?;
        let operation = self.answer(id)?;
        check(&operation, wanted.trim())
    }

    fn fill(&mut self, rest: &str) -> Result<(), String> {
        let words: Vec<&str> = rest.split_whitespace().collect();
        let [key, times, bytes] = words[..] else { return Err("fill KEY N BYTES".to_owned()) };
        let (times, bytes): (u64, usize) = match (times.parse(), bytes.parse()) {
            (Ok(times), Ok(bytes)) => (times, bytes),
            _ => return Err("fill KEY N BYTES".to_owned()),
        };
        for number in 0..times {
            let id = self.ask(&format!("put {key} {number}-{}", "x".repeat(bytes)))?;
            check(&self.answer(id)?, "done")?;
        }
        Ok(())
    }

    fn start(&mut self, rest: &str) -> Result<(), String> {
        let (name, call) = rest.split_once(' ').ok_or("start NAME OPERATION")?;
        let id = self.ask(call)?;
        self.started.insert(name.to_owned(), id);
        self.run_for(Duration::from_millis(30))
    }

    fn end(&mut self, rest: &str) -> Result<(), String> {
        let (name, wanted) = rest.split_once(" = ").ok_or("end NAME = OUTCOME")?;
        let id = self.started.remove(name.trim()).ok_or("nothing of that name was started")?;
        let operation = self.answer(id)?;
        check(&operation, wanted.trim())
    }

    fn judge(&self) -> Result<(), String> {
        let history = History::from_operations(self.operations.clone());
        let report = model::linearizability::check(&history);
        match report.illegal().next() {
            Some((_, explanation)) => {
                Err(Violation { invariant: "I1", at_ms: self.cluster.now_ms(), what: explanation.to_string() }
                    .to_string())
            }
            None => Ok(()),
        }
    }
}

fn check(operation: &Operation, wanted: &str) -> Result<(), String> {
    let found = match &operation.outcome {
        Outcome::NotDone => "not-done".to_owned(),
        Outcome::Unknown => "unknown".to_owned(),
        Outcome::Done(Answer::Value(None)) => "absent".to_owned(),
        Outcome::Done(Answer::Value(Some(value))) => String::from_utf8_lossy(value).into_owned(),
        Outcome::Done(Answer::Number(number)) => number.to_string(),
        Outcome::Done(Answer::Swapped(true)) => "set".to_owned(),
        Outcome::Done(_) => "done".to_owned(),
    };
    let failed = ["not-done", "unknown"].contains(&found.as_str());
    let good = wanted == "any" || found == wanted || (wanted == "failed" && failed) || (wanted == "done" && !failed);
    if good { Ok(()) } else { Err(format!("it came to {found}")) }
}

fn parse_time(text: &str) -> Result<Duration, String> {
    let number = |digits: &str| digits.parse().map_err(|_| format!("{text} is no time"));
    match text.strip_suffix("ms") {
        Some(ms) => Ok(Duration::from_millis(number(ms)?)),
        None => Ok(Duration::from_secs(number(text.strip_suffix('s').unwrap_or(text))?)),
    }
}

fn parse_cluster(line: &str) -> Result<Plan, String> {
    let mut words = line.split_whitespace();
    if words.next() != Some("cluster") {
        return Err("a script begins with its cluster".to_owned());
    }
    let mut shape = Shape {
        masters: 3,
        servers: 3,
        regions: 1,
        factor: 3,
        min_in_sync: 2,
        buffered: false,
        salted: false,
        compressed: false,
        segment_bytes: 1 << 20,
        lease_ms: 1000,
        cached: true,
    };
    let mut seed = 1;
    for word in words {
        let (name, value) = word.split_once('=').ok_or_else(|| format!("{word}?"))?;
        let number = value.parse::<u64>();
        match (name, number) {
            ("masters", Ok(number)) => shape.masters = number,
            ("servers", Ok(number)) => shape.servers = number,
            ("regions", Ok(number)) => shape.regions = number as u32,
            ("factor", Ok(number)) => shape.factor = number as u8,
            ("min", Ok(number)) => shape.min_in_sync = number as u8,
            ("segment", Ok(number)) => shape.segment_bytes = number,
            ("seed", Ok(number)) => seed = number,
            ("cached", Ok(number)) => shape.cached = number != 0,
            ("durability", _) if value == "buffered" => shape.buffered = true,
            ("durability", _) if value == "synced" => shape.buffered = false,
            _ => return Err(format!("{word}?")),
        }
    }
    Ok(Plan {
        seed,
        profile: Profile::Calm,
        cluster: shape,
        workload: Workload {
            clients: 1,
            readers: 0,
            keys: 1,
            pause_ms_max: 0,
            value_bytes_max: 0,
            deadline_ms: 0,
            deletes: 0,
            cold_keys: 0,
        },
        network: Network { latency_ms_min: 1, latency_ms_max: 5, break_ppm: 0 },
        clocks: Vec::new(),
        events: Vec::new(),
        fault_ms: 0,
        final_power_cycle: false,
    })
}

/// Makes the table, then keeps what is known of it current and carries out wishes.
async fn operator(env: Env, shape: Shape, seeds: Vec<String>, seen: Arc<Mutex<Seen>>) -> std::io::Result<()> {
    let client = Client::connect(env.clone(), seeds, client_options(Duration::from_secs(2)));
    let durability = if shape.buffered { Durability::Buffered } else { Durability::Synced };
    let spec = TableSpec { min_in_sync: shape.min_in_sync, durability, ..TableSpec::new(shape.factor) };
    let name: steadfast::region::TableName = TABLE.parse().map_err(std::io::Error::other)?;
    while client.create_table(name.clone(), spec.clone(), even_splits(shape.regions)).await.is_err() {
        env.sleep(Duration::from_millis(200)).await;
    }
    loop {
        let described = client.describe_table(name.clone()).await;
        if let Err(error) = &described {
            tracing::debug!(%error, "the operator cannot see the table");
        }
        if let Ok(map) = described {
            let region = map.regions[0].config.region;
            seen.lock().expect("no holder panics").map = Some(map);
            let wish = seen.lock().expect("no holder panics").wishes.pop_front();
            let granted = match wish {
                Some(Wish::HandOver(to)) => client.hand_over(region, to).await,
                Some(Wish::AcceptLoss(survivor)) => client.recover_accept_loss(region, survivor).await,
                None => Ok(()),
            };
            if let Err(error) = granted {
                tracing::info!(%error, "the operator's wish was not granted");
            }
        }
        if let Ok(status) = client.status().await {
            let servers = status.servers.into_iter().map(|server| (server.id, server.address));
            seen.lock().expect("no holder panics").servers = servers.collect();
        }
        env.sleep(Duration::from_millis(100)).await;
    }
}

/// Does what lies on the desk, each call on its own.
async fn scripted_client(env: Env, seeds: Vec<String>, desk: Arc<Mutex<Desk>>, time: TrueTime) -> std::io::Result<()> {
    let mut clients: BTreeMap<Duration, Client> = BTreeMap::new();
    loop {
        let asked = desk.lock().expect("no holder panics").asked.pop_front();
        let Some((id, call, deadline)) = asked else {
            env.sleep(Duration::from_millis(2)).await;
            continue;
        };
        let client = clients
            .entry(deadline)
            .or_insert_with(|| Client::connect(env.clone(), seeds.clone(), client_options(deadline)));
        let table = client.table(TABLE.parse().map_err(std::io::Error::other)?);
        let (desk, time) = (desk.clone(), time.clone());
        env.spawn("call", async move {
            let call_ns = time.ns();
            let (key, action, outcome) = carry_out(&table, call).await;
            // Whatever the step in which it was seen, it may have come at the step's end.
            let return_ns = (outcome != Outcome::Unknown).then(|| time.ns() + 10_000_000);
            let operation = Operation { client: id, key, call_ns, return_ns, action, outcome, version: None };
            desk.lock().expect("no holder panics").results.insert(id, operation);
        });
    }
}

async fn carry_out(table: &Table, call: Call) -> (Vec<u8>, Action, Outcome) {
    match call {
        Call::Put(key, new) => {
            let result = table.put(key.clone(), new.clone()).await;
            (key.into_bytes(), Action::Put(new.into_bytes()), written(result, |()| Answer::Written))
        }
        Call::Get(key) => {
            let result = table.get(key.clone()).await;
            (key.into_bytes(), Action::Get, read(result))
        }
        Call::Increment(key, by) => {
            let result = table.increment(key.clone(), by).await;
            (key.into_bytes(), Action::Increment(by), written(result, Answer::Number))
        }
        Call::Delete(key) => {
            let result = table.delete(key.clone()).await;
            (key.into_bytes(), Action::Delete, written(result, Answer::Deleted))
        }
        Call::Compare(key, expected, new) => {
            let result =
                table.compare_and_set(key.clone(), expected.clone().map(Bytes::from), Some(new.clone().into())).await;
            let action = Action::CompareAndSet { expected: expected.map(String::into_bytes), new: new.into_bytes() };
            (key.into_bytes(), action, written(result, |compared| Answer::Swapped(compared == Compared::Set)))
        }
    }
}
