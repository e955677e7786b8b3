//! What must hold at every moment of every run. Each invariant is told what the run's probes say and keeps what it found
//! wrong; the numbers are those of the list in the crate docs.

use std::collections::{BTreeMap, BTreeSet};

/// One thing that a node said of itself.
#[derive(Clone, Debug)]
pub struct Probe {
    pub at_ms: u64,
    pub node: String,
    pub name: String,
    pub numbers: BTreeMap<&'static str, u64>,
    pub texts: BTreeMap<&'static str, String>,
}

impl Probe {
    fn number(&self, field: &str) -> u64 {
        *self.numbers.get(field).unwrap_or_else(|| panic!("probe {} has no number {field}: {self:?}", self.name))
    }
}

/// Something that must never happen, and did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// `I7`, ...
    pub invariant: &'static str,
    pub at_ms: u64,
    pub what: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {}.{:03} s: {}", self.invariant, self.at_ms / 1000, self.at_ms % 1000, self.what)
    }
}

/// All invariants that are checked while a run goes on.
#[derive(Default)]
pub struct Invariants {
    regions: BTreeMap<u64, Region>,
    violations: Vec<Violation>,
    /// Which server a node's name is, learned from the masters' configurations by the harness.
    servers: BTreeMap<String, u64>,
    /// Nodes whose disks may have lost what they acknowledged.
    lying: BTreeSet<String>,
    /// How often each probe was heard: a run in which nothing happened proves nothing.
    heard: BTreeMap<String, u64>,
}

#[derive(Default)]
struct Region {
    /// Configurations by epoch.
    configs: BTreeMap<u64, Config>,
    /// The newest epoch in which anybody answered anything, and since when.
    answered: Option<(u64, u64, String)>,
    replicas: BTreeMap<String, Replica>,
    /// The highest commit point that anybody knew.
    committed_max: u64,
    /// Checksums of the compacted segments, and who made each first.
    compacted: BTreeMap<u64, (u64, String)>,
    /// What each epoch's primary held, all of it committed, when it began to serve, and since when.
    served: BTreeMap<u64, (u64, u64)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Config {
    primary: Option<u64>,
    in_sync: Vec<u64>,
}

#[derive(Default)]
struct Replica {
    adopted: BTreeSet<u64>,
    /// Ends of what it may acknowledge: seqno and checksum, for the log as it is now.
    durable: BTreeMap<u64, u64>,
    durable_max: u64,
    committed_max: u64,
}

/// The same fault repeats itself at every step; the first few say all.
const VIOLATIONS_MAX: usize = 20;

impl Invariants {
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// How often each probe was heard.
    pub fn heard_of(&self) -> &BTreeMap<String, u64> {
        &self.heard
    }

    /// The harness says which server a node is.
    pub fn name_server(&mut self, node: &str, server: u64) {
        self.servers.insert(node.to_owned(), server);
    }

    /// The machine lost power under a table that acknowledges what is not flushed: what it says next is news.
    pub fn lost_power(&mut self, node: &str) {
        for region in self.regions.values_mut() {
            region.replicas.remove(node);
            // An operator may have to accept the loss of what nobody else holds.
            region.committed_max = 0;
        }
    }

    /// The machine's disk may say that it has what it has not.
    pub fn disk_lies(&mut self, node: &str) {
        self.lying.insert(node.to_owned());
    }

    pub fn heard(&mut self, probe: &Probe) {
        *self.heard.entry(probe.name.clone()).or_default() += 1;
        match probe.name.as_str() {
            "config" => self.config(probe),
            "adopted" => self.adopted(probe),
            "serves" => self.serves(probe),
            "read" => self.answered(probe, "read"),
            "acknowledged" => self.acknowledged(probe),
            "durable" => self.durable(probe),
            "opened" => self.opened(probe),
            "destroyed" => *self.replica(probe) = Replica::default(),
            "cut" => self.cut(probe),
            "rewound" => self.rewound(probe),
            "compacted" => self.compacted(probe),
            "committed" => self.committed(probe),
            _ => {}
        }
    }

    /// Nodes that hold a replica in sync, of each region, as far as is known.
    pub fn in_sync(&self) -> BTreeMap<u64, Vec<String>> {
        let names: BTreeMap<u64, &String> = self.servers.iter().map(|(node, server)| (*server, node)).collect();
        let nodes = |config: &Config| -> Vec<String> {
            config.in_sync.iter().filter_map(|server| names.get(server)).map(|node| (*node).clone()).collect()
        };
        let newest = |region: &Region| region.configs.values().next_back().map(nodes).unwrap_or_default();
        self.regions.iter().map(|(id, region)| (*id, newest(region))).collect()
    }

    /// I17.
    pub fn error_line(&mut self, at_ms: u64, line: String) {
        self.violate("I17", at_ms, format!("an error was logged: {line}"));
    }

    pub fn violate(&mut self, invariant: &'static str, at_ms: u64, what: String) {
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(Violation { invariant, at_ms, what });
        }
    }

    /// I6: an epoch follows the one before; the set is never empty; a new primary was in the set before. Every master
    /// applies the same configuration, so the same may be heard again.
    fn config(&mut self, probe: &Probe) {
        let (id, epoch) = (probe.number("region"), probe.number("epoch"));
        let config = Config {
            primary: Some(probe.number("primary")).filter(|&primary| primary != 0),
            in_sync: parse_list(probe.texts.get("in_sync").map_or("", String::as_str)),
        };
        let forced = probe.numbers.get("forced").is_some_and(|&forced| forced == 1);
        let region = self.regions.entry(id).or_default();
        let mut wrong = Vec::new();
        match region.configs.get(&epoch) {
            Some(known) if *known != config => wrong.push(format!("two configurations: {known:?} and {config:?}")),
            Some(_) => return,
            None => {}
        }
        if config.in_sync.is_empty() {
            wrong.push("the in-sync set is empty".to_owned());
        }
        if config.primary.is_some_and(|primary| !config.in_sync.contains(&primary)) {
            wrong.push(format!("the primary is not in sync: {config:?}"));
        }
        if let Some((&last, before)) = region.configs.range(..epoch).next_back() {
            if epoch != last + 1 {
                wrong.push(format!("it follows epoch {last}"));
            }
            if config.primary.is_some_and(|primary| !before.in_sync.contains(&primary)) && !forced {
                wrong.push(format!("its primary was not in sync before: {before:?}, {config:?}"));
            }
        }
        region.configs.insert(epoch, config);
        for what in wrong {
            self.violate("I6", probe.at_ms, format!("region {id} epoch {epoch}: {what}"));
        }
    }

    fn replica(&mut self, probe: &Probe) -> &mut Replica {
        let region = self.regions.entry(probe.number("region")).or_default();
        region.replicas.entry(probe.node.clone()).or_default()
    }

    fn adopted(&mut self, probe: &Probe) {
        let epoch = probe.number("epoch");
        self.replica(probe).adopted.insert(epoch);
    }

    /// I6: an epoch is persisted before it is used. I5: a primary that begins to serve has all that was committed before.
    fn serves(&mut self, probe: &Probe) {
        let epoch = probe.number("epoch");
        if !self.replica(probe).adopted.contains(&epoch) {
            let what =
                format!("{} serves region {} at epoch {epoch}, never persisted", probe.node, probe.number("region"));
            self.violate("I6", probe.at_ms, what);
        }
        let (id, seqno, at_ms) = (probe.number("region"), probe.number("seqno"), probe.at_ms);
        let region = self.regions.entry(id).or_default();
        if region.served.range(epoch + 1..).next().is_some() {
            // It slept, and holds no lease: what it answers is judged by itself.
            return;
        }
        region.served.entry(epoch).or_insert((seqno, at_ms));
        let committed = region.committed_max;
        if seqno < committed {
            let what = format!(
                "region {id}: {} serves at epoch {epoch} what is committed up to {seqno}; {committed} is",
                probe.node
            );
            self.violate("I5", at_ms, what);
        }
        self.answered(probe, "began to serve");
    }

    /// I7: in true time at most one node answers for a region. Epochs tell them apart: who answers at an older epoch than
    /// somebody has answered at before, answers beside them.
    fn answered(&mut self, probe: &Probe, how: &str) {
        let (id, epoch, at_ms) = (probe.number("region"), probe.number("epoch"), probe.at_ms);
        let region = self.regions.entry(id).or_default();
        match &region.answered {
            Some((newer, since, by)) if *newer > epoch && *since < at_ms => {
                let what = format!(
                    "region {id}: {} {how} at epoch {epoch}; {by} answers at {newer} since {since} ms",
                    probe.node
                );
                self.violate("I7", at_ms, what);
            }
            Some((newest, _, _)) if *newest >= epoch => {}
            _ => region.answered = Some((epoch, at_ms, probe.node.clone())),
        }
    }

    /// I11: what is acknowledged is durable on every member of the in-sync set.
    fn acknowledged(&mut self, probe: &Probe) {
        let (id, epoch, seqno) = (probe.number("region"), probe.number("epoch"), probe.number("seqno"));
        self.acknowledged_alone(probe, epoch, seqno);
        let names: BTreeMap<u64, &String> = self.servers.iter().map(|(node, server)| (*server, node)).collect();
        let region = self.regions.entry(id).or_default();
        let Some(config) = region.configs.get(&epoch) else { return };
        let lacks = |server: &&u64| {
            let node = names.get(*server)?;
            let durable = region.replicas.get(*node).map_or(0, |replica| replica.durable_max);
            (durable < seqno).then(|| format!("{node} has {durable}"))
        };
        let lacking: Vec<String> = config.in_sync.iter().filter_map(|server| lacks(&server)).collect();
        if !lacking.is_empty() {
            let what = format!(
                "region {id}: {} acknowledged {seqno} at epoch {epoch}, but {}",
                probe.node,
                lacking.join(", ")
            );
            self.violate("I11", probe.at_ms, what);
        }
    }

    /// I7 for writes: an old primary that wakes up may still tell a client of a write that the new one has taken over, but of
    /// no other.
    fn acknowledged_alone(&mut self, probe: &Probe, epoch: u64, seqno: u64) {
        let (id, at_ms) = (probe.number("region"), probe.at_ms);
        let region = self.regions.entry(id).or_default();
        let lacks = |(newer, (held, since)): (&u64, &(u64, u64))| (*held < seqno && *since < at_ms).then_some(*newer);
        if let Some(newer) = region.served.range(epoch + 1..).find_map(lacks) {
            let what = format!(
                "region {id}: {} acknowledged {seqno} at epoch {epoch}, which the primary of {newer} never had",
                probe.node
            );
            self.violate("I7", at_ms, what);
        }
    }

    /// I5: a member of the in-sync set never loses what is committed.
    fn cut(&mut self, probe: &Probe) {
        let (id, seqno) = (probe.number("region"), probe.number("seqno"));
        let server = self.servers.get(&probe.node).copied();
        let region = self.regions.entry(id).or_default();
        let counts = region
            .configs
            .values()
            .next_back()
            .zip(server)
            .is_some_and(|(config, server)| config.in_sync.contains(&server));
        let committed = region.committed_max;
        if counts && seqno < committed {
            let what =
                format!("region {id}: {} is in sync and cut its log to {seqno}; {committed} is committed", probe.node);
            self.violate("I5", probe.at_ms, what);
        }
        // Whoever it is: it may begin anew, but what it knows to be committed is no branch to be cut.
        let known = self.replica(probe).committed_max;
        if seqno > 0 && seqno < known {
            let what = format!("region {id}: {} knew that {known} is committed and cut its log to {seqno}", probe.node);
            self.violate("I5", probe.at_ms, what);
        }
        let replica = self.replica(probe);
        replica.durable.split_off(&(seqno + 1));
        replica.durable_max = replica.durable_max.min(seqno);
        if seqno == 0 {
            replica.committed_max = 0;
        }
    }

    /// I5: only one who does not count may forget what is committed, to take it again in another form.
    fn rewound(&mut self, probe: &Probe) {
        let (id, seqno) = (probe.number("region"), probe.number("seqno"));
        let server = self.servers.get(&probe.node).copied();
        let config = self.regions.entry(id).or_default().configs.values().next_back();
        let counts = config.zip(server).is_some_and(|(config, server)| config.in_sync.contains(&server));
        if counts {
            let what = format!("region {id}: {} is in sync and goes back to {seqno}", probe.node);
            self.violate("I5", probe.at_ms, what);
        }
        let replica = self.replica(probe);
        replica.durable.split_off(&(seqno + 1));
        replica.durable_max = replica.durable_max.min(seqno);
        replica.committed_max = replica.committed_max.min(seqno);
    }

    /// I8: whoever makes a segment by compaction makes the same.
    fn compacted(&mut self, probe: &Probe) {
        let (id, segment, checksum) = (probe.number("region"), probe.number("segment"), probe.number("checksum"));
        let made = &mut self.regions.entry(id).or_default().compacted;
        let (first, by) = made.entry(segment).or_insert_with(|| (checksum, probe.node.clone()));
        if *first != checksum {
            let what = format!("region {id}: {by} and {} made different segments {segment:x}", probe.node);
            self.violate("I8", probe.at_ms, what);
        }
    }

    fn durable(&mut self, probe: &Probe) {
        let (seqno, checksum) = (probe.number("seqno"), probe.number("checksum"));
        let replica = self.replica(probe);
        // A log that was cut and went on another way has other frames behind this one.
        if replica.durable.get(&seqno).is_some_and(|&known| known != checksum) || replica.durable_max > seqno {
            replica.durable.split_off(&seqno);
        }
        replica.durable.insert(seqno, checksum);
        replica.durable_max = seqno;
    }

    /// I11: what a replica said was durable is there when it starts again.
    fn opened(&mut self, probe: &Probe) {
        let seqno = probe.number("seqno");
        let lying = self.lying.contains(&probe.node);
        let replica = self.replica(probe);
        if lying && seqno < replica.durable_max {
            replica.durable.split_off(&(seqno + 1));
            replica.durable_max = seqno;
        }
        let durable = replica.durable_max;
        // A learner may have been told of more than it had flushed.
        replica.committed_max = replica.committed_max.min(seqno);
        if seqno < durable {
            let what = format!(
                "region {}: {} said that {durable} was durable and came back with {seqno}",
                probe.number("region"),
                probe.node
            );
            self.violate("I11", probe.at_ms, what);
        }
    }

    /// I5: a commit point never goes back within an epoch's leader or a follower, and committed logs are the same log.
    fn committed(&mut self, probe: &Probe) {
        let (id, seqno, at_ms) = (probe.number("region"), probe.number("seqno"), probe.at_ms);
        let replica = self.replica(probe);
        replica.committed_max = replica.committed_max.max(seqno);
        let region = self.regions.get_mut(&id).expect("just looked at");
        region.committed_max = region.committed_max.max(seqno);
        let region = &self.regions[&id];
        let mut marks: BTreeMap<u64, (u64, &String)> = BTreeMap::new();
        let mut differing = Vec::new();
        for (node, replica) in &region.replicas {
            for (&at, &checksum) in replica.durable.range(..=replica.committed_max.min(seqno)) {
                match marks.get(&at) {
                    Some((other, by)) if *other != checksum => {
                        differing.push(format!("region {id}: {by} and {node} differ at committed record {at}"));
                    }
                    Some(_) => {}
                    None => drop(marks.insert(at, (checksum, node))),
                }
            }
        }
        // What is committed and agreed upon needs no second look.
        let settled = region.replicas.values().map(|replica| replica.committed_max).min().unwrap_or(0);
        for what in differing {
            self.violate("I5", at_ms, what);
        }
        for replica in self.regions.get_mut(&id).expect("just looked at").replicas.values_mut() {
            replica.durable = replica.durable.split_off(&settled);
        }
    }
}

/// A replica's folder: the bytes of each file by its name.
pub type Folder = BTreeMap<String, Vec<u8>>;

/// I8: what two replicas hold that are in sync, once nothing happens any more.
pub fn unlike(one: &Folder, other: &Folder) -> Option<String> {
    let of_log =
        |folder: &Folder| folder.iter().filter(|(name, _)| is_of_log(name)).map(|(name, _)| name.clone()).collect();
    let names: BTreeSet<String> =
        [one, other].into_iter().flat_map(|folder| -> Vec<String> { of_log(folder) }).collect();
    names.into_iter().find_map(|name| match (one.get(&name), other.get(&name)) {
        (Some(one), Some(other)) if one == other => None,
        (Some(one), Some(other)) => {
            let common = one.iter().zip(other).take_while(|(one, other)| one == other).count();
            Some(format!("{name} has {} and {} bytes, which differ from {common} on", one.len(), other.len()))
        }
        _ => Some(format!("one has no {name}")),
    })
}

fn is_of_log(name: &str) -> bool {
    name.ends_with(".seg") || name.ends_with(".hint")
}

/// I10: nothing is left in a replica's folder that it does not need, and it takes what it says it takes.
pub fn leaks(folder: &Folder, log_bytes: u64, live_bytes: Option<u64>) -> Option<String> {
    const OTHERS: [&str; 4] = ["state", "durable", "clean", "fenced"];
    let foreign = |name: &&String| match name.strip_suffix(".hint") {
        Some(segment) => !folder.contains_key(&format!("{segment}.seg")),
        None => !is_of_log(name) && !OTHERS.contains(&name.as_str()),
    };
    if let Some(name) = folder.keys().find(foreign) {
        return Some(format!("{name} is left over"));
    }
    let segments = folder.iter().filter(|(name, _)| name.ends_with(".seg"));
    let bytes: u64 = segments.map(|(_, bytes)| bytes.len() as u64).sum();
    if bytes != log_bytes {
        return Some(format!("its segments have {bytes} bytes, and it says {log_bytes}"));
    }
    let live = live_bytes.filter(|&live| live > log_bytes)?;
    Some(format!("{live} bytes are live of {log_bytes}"))
}

fn parse_list(text: &str) -> Vec<u64> {
    text.split(',').filter_map(|part| part.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(node: &str, name: &str, at_ms: u64, numbers: &[(&'static str, u64)]) -> Probe {
        let numbers = numbers.iter().copied().chain([("region", 1)]).collect();
        Probe { at_ms, node: node.to_owned(), name: name.to_owned(), numbers, texts: BTreeMap::new() }
    }

    fn config(epoch: u64, primary: u64, in_sync: &str) -> Probe {
        let mut probe = probe("master-1", "config", 0, &[("epoch", epoch), ("primary", primary)]);
        probe.texts.insert("in_sync", in_sync.to_owned());
        probe
    }

    fn found(probes: &[Probe]) -> Vec<&'static str> {
        let mut invariants = Invariants::default();
        for server in 1..=3 {
            invariants.name_server(&format!("server-{server}"), server);
        }
        probes.iter().for_each(|probe| invariants.heard(probe));
        invariants.violations().iter().map(|violation| violation.invariant).collect()
    }

    #[test]
    fn i6_configurations_follow_each_other() {
        assert_eq!(found(&[config(1, 1, "1,2,3"), config(1, 1, "1,2,3"), config(2, 2, "2,3")]), [""; 0]);
        assert_eq!(found(&[config(1, 1, "1,2"), config(3, 1, "1,2")]), ["I6"], "an epoch is missing");
        assert_eq!(found(&[config(1, 1, "1,2"), config(2, 3, "3")]), ["I6"], "the new primary was not in sync");
        assert_eq!(found(&[config(1, 1, "1,2"), config(1, 2, "1,2")]), ["I6"], "one epoch, two configurations");
        assert_eq!(found(&[config(1, 0, "")]), ["I6"], "nobody is left");
    }

    #[test]
    fn i6_an_epoch_is_persisted_before_it_is_used() {
        let serves = probe("server-1", "serves", 5, &[("epoch", 1), ("seqno", 0)]);
        assert_eq!(found(std::slice::from_ref(&serves)), ["I6"]);
        assert_eq!(found(&[probe("server-1", "adopted", 4, &[("epoch", 1)]), serves]), [""; 0]);
    }

    #[test]
    fn i5_who_begins_to_serve_has_all_that_is_committed() {
        let committed = probe("server-1", "committed", 2, &[("epoch", 1), ("seqno", 5)]);
        let adopted = probe("server-2", "adopted", 3, &[("epoch", 2)]);
        let serves = |seqno| probe("server-2", "serves", 4, &[("epoch", 2), ("seqno", seqno)]);
        assert_eq!(found(&[committed.clone(), adopted.clone(), serves(5)]), [""; 0]);
        assert_eq!(found(&[committed, adopted, serves(4)]), ["I5"]);
    }

    #[test]
    fn i7_one_answers_at_a_time() {
        let read = |node, at, epoch| probe(node, "read", at, &[("epoch", epoch)]);
        assert_eq!(found(&[read("server-1", 1, 1), read("server-2", 2, 2), read("server-2", 3, 2)]), [""; 0]);
        assert_eq!(found(&[read("server-2", 2, 2), read("server-1", 2, 1)]), [""; 0], "the same step says nothing");
        assert_eq!(found(&[read("server-2", 2, 2), read("server-1", 3, 1)]), ["I7"]);
    }

    #[test]
    fn i7_a_write_that_the_new_primary_has_may_be_acknowledged_late() {
        let serves = probe("server-2", "serves", 2, &[("epoch", 2), ("seqno", 5)]);
        let adopted = probe("server-2", "adopted", 1, &[("epoch", 2)]);
        let late = |seqno| probe("server-1", "acknowledged", 3, &[("epoch", 1), ("seqno", seqno)]);
        assert_eq!(found(&[adopted.clone(), serves.clone(), late(5)]), [""; 0]);
        assert_eq!(found(&[adopted, serves, late(6)]), ["I7"]);
    }

    #[test]
    fn i8_a_compacted_segment_is_the_same_everywhere() {
        let compacted = |node, sum| probe(node, "compacted", 1, &[("epoch", 1), ("segment", 9), ("checksum", sum)]);
        assert_eq!(found(&[compacted("server-1", 5), compacted("server-2", 5)]), [""; 0]);
        assert_eq!(found(&[compacted("server-1", 5), compacted("server-2", 6)]), ["I8"]);
    }

    #[test]
    fn i5_only_a_learner_goes_back_behind_what_is_committed() {
        let committed = |node| probe(node, "committed", 2, &[("epoch", 1), ("seqno", 5)]);
        let rewound = |node| probe(node, "rewound", 3, &[("epoch", 1), ("seqno", 2)]);
        let start = [config(1, 1, "1,2"), committed("server-1"), committed("server-3")];
        assert_eq!(found(&[&start[..], &[rewound("server-3")]].concat()), [""; 0]);
        assert_eq!(found(&[&start[..], &[rewound("server-1")]].concat()), ["I5"]);
    }

    fn folder(files: &[(&str, &[u8])]) -> Folder {
        files.iter().map(|(name, bytes)| ((*name).to_owned(), bytes.to_vec())).collect()
    }

    #[test]
    fn i8_replicas_in_sync_are_alike() {
        let ours = folder(&[("000001.seg", b"log"), ("state", b"1")]);
        assert_eq!(unlike(&ours, &folder(&[("000001.seg", b"log"), ("state", b"2")])), None);
        assert!(unlike(&ours, &folder(&[("000001.seg", b"lag")])).is_some_and(|what| what.contains("from 1 on")));
        assert!(unlike(&ours, &folder(&[("000001.seg", b"logs")])).is_some());
        assert!(unlike(&ours, &folder(&[])).is_some_and(|what| what.contains("no 000001.seg")));
        assert!(unlike(&folder(&[]), &ours).is_some());
    }

    #[test]
    fn i10_nothing_is_left_over() {
        let sound: &[(&str, &[u8])] =
            &[("000001.1.seg", b"log"), ("000001.1.hint", b"h"), ("state", b""), ("durable", b"")];
        assert_eq!(leaks(&folder(sound), 3, Some(3)), None);
        assert!(leaks(&folder(sound), 4, None).is_some(), "it says more");
        assert!(leaks(&folder(sound), 3, Some(4)).is_some(), "more is live than there is");
        for left in ["000001.2.seg.77.tmp", "000002.hint"] {
            let found = leaks(&folder(&[sound, &[(left, b"")]].concat()), 3, None);
            assert!(found.is_some_and(|what| what.contains(left)), "{left}");
        }
    }

    #[test]
    fn i11_acknowledged_is_durable_everywhere() {
        let durable = |node, seqno| probe(node, "durable", 1, &[("epoch", 1), ("seqno", seqno), ("checksum", seqno)]);
        let acknowledged = probe("server-1", "acknowledged", 2, &[("epoch", 1), ("seqno", 5)]);
        let start = [config(1, 1, "1,2"), durable("server-1", 5), durable("server-2", 4)];
        assert_eq!(found(&[&start[..], std::slice::from_ref(&acknowledged)].concat()), ["I11"]);
        assert_eq!(found(&[&start[..], &[durable("server-2", 5), acknowledged]].concat()), [""; 0]);
    }

    #[test]
    fn i11_what_was_durable_is_there_again() {
        let durable = probe("server-1", "durable", 1, &[("epoch", 1), ("seqno", 5), ("checksum", 5)]);
        let opened = |seqno| probe("server-1", "opened", 2, &[("epoch", 1), ("seqno", seqno)]);
        let cut = probe("server-1", "cut", 2, &[("epoch", 1), ("seqno", 4)]);
        assert_eq!(found(&[durable.clone(), opened(6)]), [""; 0]);
        assert_eq!(found(&[durable.clone(), opened(4)]), ["I11"]);
        assert_eq!(found(&[durable.clone(), cut, opened(4)]), [""; 0]);
        assert_eq!(found(&[durable, probe("server-1", "destroyed", 2, &[]), opened(0)]), [""; 0]);
    }

    #[test]
    fn i11_a_disk_that_lies_may_come_back_with_less() {
        let mut invariants = Invariants::default();
        invariants.disk_lies("server-1");
        for node in ["server-1", "server-2"] {
            invariants.heard(&probe(node, "durable", 1, &[("epoch", 1), ("seqno", 5), ("checksum", 5)]));
            invariants.heard(&probe(node, "opened", 2, &[("epoch", 1), ("seqno", 4)]));
        }
        let found: Vec<&str> = invariants.violations().iter().map(|violation| violation.what.as_str()).collect();
        assert!(matches!(found[..], [what] if what.contains("server-2")), "{found:?}");
    }

    #[test]
    fn i5_an_in_sync_replica_keeps_what_is_committed() {
        let committed = probe("server-1", "committed", 2, &[("epoch", 1), ("seqno", 5)]);
        let cut = |seqno| probe("server-2", "cut", 3, &[("epoch", 1), ("seqno", seqno)]);
        assert_eq!(found(&[config(1, 1, "1,2"), committed.clone(), cut(5)]), [""; 0]);
        assert_eq!(found(&[config(1, 1, "1,2"), committed.clone(), cut(4)]), ["I5"]);
        assert_eq!(found(&[config(1, 1, "1,3"), committed, cut(4)]), [""; 0], "a learner may part from it");
        let told = probe("server-2", "committed", 2, &[("epoch", 1), ("seqno", 5)]);
        assert_eq!(found(&[config(1, 1, "1,3"), told.clone(), cut(4)]), ["I5"], "not from what it was told");
        assert_eq!(found(&[config(1, 1, "1,3"), told, cut(0)]), [""; 0], "it may begin anew");
    }

    #[test]
    fn i5_committed_logs_are_one_log() {
        let durable = |node, sum| probe(node, "durable", 1, &[("epoch", 1), ("seqno", 5), ("checksum", sum)]);
        let committed = |node| probe(node, "committed", 2, &[("epoch", 1), ("seqno", 5)]);
        let same = [durable("server-1", 7), durable("server-2", 7), committed("server-1"), committed("server-2")];
        assert_eq!(found(&same), [""; 0]);
        let other = [durable("server-1", 7), durable("server-2", 8), committed("server-1"), committed("server-2")];
        assert_eq!(found(&other), ["I5"]);
    }
}
