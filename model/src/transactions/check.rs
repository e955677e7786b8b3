//! From a history of transactions to what is wrong with it.

use super::cycle::{Cycle, Graph, Why};
use super::{Element, Key, Outcome, Step, Transaction};
use crate::history::text;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// One thing that must not be. Transactions are told by their places in the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Anomaly {
    /// An element was appended by two transactions, or a list holds it twice.
    Duplicate {
        key: Key,
        element: Element,
    },
    /// A list holds what nobody appended.
    Garbage {
        read: usize,
        key: Key,
        element: Element,
    },
    /// A read contradicts what its own transaction did or read before.
    Internal {
        transaction: usize,
        key: Key,
    },
    /// G1a: a read saw what an aborted transaction appended.
    AbortedRead {
        read: usize,
        writer: usize,
        key: Key,
        element: Element,
    },
    /// G1b: a read saw an append that its transaction followed with another one, and not that.
    IntermediateRead {
        read: usize,
        writer: usize,
        key: Key,
        element: Element,
    },
    /// Neither of two lists of one key begins with the other.
    IncompatibleOrder {
        key: Key,
        one: Vec<Element>,
        other: Vec<Element>,
    },
    Cycle {
        name: String,
        steps: Vec<String>,
    },
}

/// Everything found; empty when the history is serializable, and with `real_time` strictly so, as far as it shows. Cycles are
/// looked for when nothing else is wrong, as they are made of what was read.
pub fn check(transactions: &[Transaction], real_time: bool) -> Vec<Anomaly> {
    let mut history = History::of(transactions);
    if history.anomalies.is_empty() {
        history.find_cycles(real_time);
    }
    history.anomalies
}

struct History<'a> {
    transactions: &'a [Transaction],
    /// Who appended what.
    writers: BTreeMap<(&'a Key, Element), usize>,
    /// Of each key the longest list that was read.
    orders: BTreeMap<&'a Key, Vec<Element>>,
    anomalies: Vec<Anomaly>,
}

/// A read of what others did: the list without what the transaction itself had appended.
struct ExternalRead<'a> {
    by: usize,
    key: &'a Key,
    list: &'a [Element],
}

impl<'a> History<'a> {
    fn of(transactions: &'a [Transaction]) -> History<'a> {
        let mut history =
            History { transactions, writers: BTreeMap::new(), orders: BTreeMap::new(), anomalies: Vec::new() };
        history.find_writers();
        history.check_internal();
        for read in history.reads() {
            history.check_elements(&read);
            history.extend_order(&read);
        }
        history
    }

    fn find_writers(&mut self) {
        for (at, transaction) in self.transactions.iter().enumerate() {
            for (key, element) in transaction.appends() {
                if self.writers.insert((key, element), at).is_some() {
                    self.anomalies.push(Anomaly::Duplicate { key: key.clone(), element });
                }
            }
        }
    }

    fn committed(&self) -> impl Iterator<Item = (usize, &'a Transaction)> + use<'a> {
        self.transactions.iter().enumerate().filter(|(_, transaction)| transaction.outcome == Outcome::Committed)
    }

    /// Within a transaction a list is what was read before, and what was appended since.
    fn check_internal(&mut self) {
        let broken = |transaction: &Transaction| {
            let mut known: BTreeMap<&Key, (bool, Vec<Element>)> = BTreeMap::new();
            for step in &transaction.steps {
                match step {
                    Step::Append { key, element } => known.entry(key).or_default().1.push(*element),
                    Step::Read { list: None, .. } => {}
                    Step::Read { key, list: Some(list) } => {
                        let (is_whole, tail) = known.entry(key).or_default();
                        let fits = if *is_whole { list == tail } else { list.ends_with(tail) };
                        if !fits {
                            return Some(key.clone());
                        }
                        (*is_whole, *tail) = (true, list.clone());
                    }
                }
            }
            None
        };
        for (at, transaction) in self.committed() {
            if let Some(key) = broken(transaction) {
                self.anomalies.push(Anomaly::Internal { transaction: at, key });
            }
        }
    }

    fn reads(&self) -> Vec<ExternalRead<'a>> {
        let mut reads = Vec::new();
        for (by, transaction) in self.committed() {
            for step in &transaction.steps {
                if let Step::Read { key, list: Some(list) } = step {
                    let is_own = |element: &&Element| self.writers.get(&(key, **element)) == Some(&by);
                    let own = list.iter().rev().take_while(is_own).count();
                    reads.push(ExternalRead { by, key, list: &list[..list.len() - own] });
                }
            }
        }
        reads
    }

    fn check_elements(&mut self, read: &ExternalRead<'a>) {
        let key = read.key;
        let mut seen = BTreeSet::new();
        for &element in read.list {
            if !seen.insert(element) {
                self.anomalies.push(Anomaly::Duplicate { key: key.clone(), element });
            }
            match self.writers.get(&(key, element)) {
                None => self.anomalies.push(Anomaly::Garbage { read: read.by, key: key.clone(), element }),
                Some(&writer) if self.transactions[writer].outcome == Outcome::Aborted => {
                    self.anomalies.push(Anomaly::AbortedRead { read: read.by, writer, key: key.clone(), element });
                }
                Some(_) => {}
            }
        }
        let Some(&element) = read.list.last() else { return };
        let Some(&writer) = self.writers.get(&(key, element)) else { return };
        let last = self.transactions[writer].appends().rfind(|(appended, _)| *appended == key);
        if writer != read.by && last.is_some_and(|(_, last)| last != element) {
            self.anomalies.push(Anomaly::IntermediateRead { read: read.by, writer, key: key.clone(), element });
        }
    }

    fn extend_order(&mut self, read: &ExternalRead<'a>) {
        let order = self.orders.entry(read.key).or_default();
        if read.list.starts_with(order) {
            *order = read.list.to_vec();
        } else if !order.starts_with(read.list) {
            let (one, other) = (order.clone(), read.list.to_vec());
            self.anomalies.push(Anomaly::IncompatibleOrder { key: read.key.clone(), one, other });
        }
    }

    // ---- cycles ----

    fn find_cycles(&mut self, real_time: bool) {
        let mut graph = Graph::default();
        self.order_of_appends(&mut graph);
        self.order_of_reads(&mut graph);
        if real_time {
            self.order_of_time(&mut graph);
        }
        self.anomalies = graph.cycles().iter().map(|cycle| self.told(cycle)).collect();
    }

    fn order_of_appends(&self, graph: &mut Graph) {
        for (key, order) in &self.orders {
            for pair in order.windows(2) {
                graph.add(self.writers[&(*key, pair[0])], Why::WriteWrite, self.writers[&(*key, pair[1])]);
            }
        }
    }

    fn order_of_reads(&self, graph: &mut Graph) {
        let unread = self.unread();
        for read in self.reads() {
            if let Some(element) = read.list.last() {
                graph.add(self.writers[&(read.key, *element)], Why::WriteRead, read.by);
            }
            match self.orders[read.key].get(read.list.len()) {
                Some(next) => graph.add(read.by, Why::ReadWrite, self.writers[&(read.key, *next)]),
                None => {
                    for &writer in unread.get(read.key).into_iter().flatten() {
                        graph.add(read.by, Why::ReadWrite, writer);
                    }
                }
            }
        }
    }

    /// Of each key, who certainly appended what nobody saw: it came after all that was read.
    fn unread(&self) -> BTreeMap<&'a Key, Vec<usize>> {
        let mut unread: BTreeMap<&Key, Vec<usize>> = BTreeMap::new();
        for (at, transaction) in self.transactions.iter().enumerate().filter(|(_, one)| self.was_done(one)) {
            for (key, _) in transaction.appends().filter(|(key, element)| !self.is_seen(key, *element)) {
                unread.entry(key).or_default().push(at);
            }
        }
        unread
    }

    /// Who saw one append of a transaction of unknown outcome knows that all of them were done.
    fn was_done(&self, transaction: &Transaction) -> bool {
        match transaction.outcome {
            Outcome::Committed => true,
            Outcome::Aborted => false,
            Outcome::Unknown => transaction.appends().any(|(key, element)| self.is_seen(key, element)),
        }
    }

    fn is_seen(&self, key: &Key, element: Element) -> bool {
        self.orders.get(key).is_some_and(|order| order.contains(&element))
    }

    /// From each transaction that returned to those called after it, but for what follows through others in between.
    fn order_of_time(&self, graph: &mut Graph) {
        let mut returned: Vec<(u64, u64, usize)> = Vec::new();
        for (at, transaction) in self.committed() {
            let return_ns = transaction.return_ns.expect("a committed transaction returned");
            returned.push((return_ns, transaction.call_ns, at));
        }
        returned.sort_unstable();
        for (at, transaction) in self.transactions.iter().enumerate() {
            let before = &returned[..returned.partition_point(|(return_ns, ..)| *return_ns < transaction.call_ns)];
            let latest_call = before.iter().map(|(_, call_ns, _)| *call_ns).max();
            let is_last = |(return_ns, ..): &&(u64, u64, usize)| Some(*return_ns) >= latest_call;
            for (_, _, earlier) in before.iter().rev().take_while(is_last) {
                graph.add(*earlier, Why::RealTime, at);
            }
        }
    }

    fn told(&self, cycle: &Cycle) -> Anomaly {
        let count = |wanted: Why| cycle.iter().filter(|(_, why, _)| *why == wanted).count();
        let name = match (count(Why::ReadWrite), count(Why::WriteRead)) {
            (0, 0) => "G0",
            (0, _) => "G1c",
            (1, _) => "G-single",
            _ => "G2-item",
        };
        let name = format!("{name}{}", if count(Why::RealTime) > 0 { "-realtime" } else { "" });
        let step = |&(from, why, to): &(usize, Why, usize)| {
            let because = match why {
                Why::WriteWrite => "appended before",
                Why::WriteRead => "was seen by",
                Why::ReadWrite => "did not see",
                Why::RealTime => "had returned before the call of",
            };
            format!("{from} ({}) {because} {to} ({})", self.transactions[from], self.transactions[to])
        };
        Anomaly::Cycle { name, steps: cycle.iter().map(step).collect() }
    }
}

impl Anomaly {
    /// As the literature has it.
    pub fn name(&self) -> &str {
        match self {
            Anomaly::Duplicate { .. } => "duplicate",
            Anomaly::Garbage { .. } => "garbage",
            Anomaly::Internal { .. } => "internal",
            Anomaly::AbortedRead { .. } => "G1a",
            Anomaly::IntermediateRead { .. } => "G1b",
            Anomaly::IncompatibleOrder { .. } => "incompatible-order",
            Anomaly::Cycle { name, .. } => name,
        }
    }
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.name())?;
        match self {
            Anomaly::Duplicate { key, element } => write!(f, "{element} is there twice in {}", text::shown(key)),
            Anomaly::Garbage { read, key, element } => {
                write!(f, "{read} saw {element} in {}, which nobody appended", text::shown(key))
            }
            Anomaly::Internal { transaction, key } => {
                write!(f, "{transaction} contradicts itself about {}", text::shown(key))
            }
            Anomaly::AbortedRead { read, writer, key, element } => {
                write!(f, "{read} saw {element} in {}, which {writer} appended and gave up", text::shown(key))
            }
            Anomaly::IntermediateRead { read, writer, key, element } => {
                write!(f, "{read} saw {element} in {} and not what {writer} appended after it", text::shown(key))
            }
            Anomaly::IncompatibleOrder { key, one, other } => {
                write!(f, "{} was read as {one:?} and as {other:?}", text::shown(key))
            }
            Anomaly::Cycle { steps, .. } => write!(f, "\n  {}", steps.join("\n  ")),
        }
    }
}
