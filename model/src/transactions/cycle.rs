//! Cycles in the order of transactions, the worst kind first and the shortest of each.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Why one transaction must come before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    WriteWrite,
    WriteRead,
    ReadWrite,
    RealTime,
}

/// Transactions by their places, and for each what must come after it and why.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    edges: BTreeMap<usize, BTreeMap<usize, BTreeSet<Why>>>,
}

/// `(from, why, to)` after `(from, why, to)`, back to the first.
pub type Cycle = Vec<(usize, Why, usize)>;

impl Graph {
    pub fn add(&mut self, from: usize, why: Why, to: usize) {
        if from != to {
            self.edges.entry(from).or_default().entry(to).or_default().insert(why);
        }
    }

    /// For each knot of transactions a cycle that shows the worst about it.
    pub fn cycles(&self) -> Vec<Cycle> {
        let mut cycles: Vec<Cycle> = Vec::new();
        let mut told: BTreeSet<usize> = BTreeSet::new();
        for knot in self.knots(&|_| true) {
            let found = self.worst(&knot);
            if !found.iter().any(|(from, ..)| told.contains(from)) {
                told.extend(found.iter().map(|(from, ..)| *from));
                cycles.push(found);
            }
        }
        cycles
    }

    /// Without real time before with it; fewer kinds before more.
    fn worst(&self, knot: &BTreeSet<usize>) -> Cycle {
        for real_time in [false, true] {
            let may = |why: Why, more: &[Why]| {
                why == Why::WriteWrite || more.contains(&why) || (real_time && why == Why::RealTime)
            };
            let writes = |why| may(why, &[]);
            let reads = |why| may(why, &[Why::WriteRead]);
            let all = |why| may(why, &[Why::WriteRead, Why::ReadWrite]);
            let found = (self.shortest(knot, &writes))
                .or_else(|| self.shortest(knot, &reads))
                .or_else(|| self.with_one_read_write(knot, &reads))
                .or_else(|| self.shortest(knot, &all));
            if let Some(cycle) = found {
                return cycle;
            }
        }
        unreachable!("a knot has a cycle")
    }

    fn with_one_read_write(&self, knot: &BTreeSet<usize>, others: &dyn Fn(Why) -> bool) -> Option<Cycle> {
        let closed = |from: usize, to: usize| {
            let mut cycle = vec![(from, Why::ReadWrite, to)];
            cycle.extend(self.path(knot, to, from, others)?);
            Some(cycle)
        };
        let is_read_write = |(_, why, _): &(usize, Why, usize)| *why == Why::ReadWrite;
        let edges = knot.iter().flat_map(|&from| self.out(from)).filter(is_read_write);
        edges.filter_map(|(from, _, to)| closed(from, to)).min_by_key(Vec::len)
    }

    fn shortest(&self, knot: &BTreeSet<usize>, may: &dyn Fn(Why) -> bool) -> Option<Cycle> {
        knot.iter().filter_map(|&node| self.path(knot, node, node, may)).min_by_key(Vec::len)
    }

    /// The shortest way of at least one edge.
    fn path(&self, within: &BTreeSet<usize>, start: usize, end: usize, may: &dyn Fn(Why) -> bool) -> Option<Cycle> {
        let mut reached: BTreeMap<usize, (usize, Why, usize)> = BTreeMap::new();
        let mut queue = VecDeque::from([start]);
        while let Some(node) = queue.pop_front() {
            for edge in self.out(node).filter(|(_, why, to)| may(*why) && within.contains(to)) {
                let to = edge.2;
                if to == end {
                    return Some(way_back(&reached, start, edge));
                }
                if to != start && !reached.contains_key(&to) {
                    reached.insert(to, edge);
                    queue.push_back(to);
                }
            }
        }
        None
    }

    fn out(&self, from: usize) -> impl Iterator<Item = (usize, Why, usize)> {
        let after = self.edges.get(&from).into_iter().flatten();
        after.flat_map(move |(&to, whys)| whys.iter().map(move |&why| (from, why, to)))
    }

    /// Strongly connected components of more than one transaction (Tarjan's way, without recursion).
    fn knots(&self, may: &dyn Fn(Why) -> bool) -> Vec<BTreeSet<usize>> {
        let mut search = Knots::default();
        for &root in self.edges.keys() {
            if !search.seen.contains_key(&root) {
                search.from(self, root, may);
            }
        }
        search.found
    }
}

fn way_back(reached: &BTreeMap<usize, (usize, Why, usize)>, start: usize, last: (usize, Why, usize)) -> Cycle {
    let mut way = vec![last];
    while way[way.len() - 1].0 != start {
        way.push(reached[&way[way.len() - 1].0]);
    }
    way.reverse();
    way
}

#[derive(Default)]
struct Knots {
    /// The number of each transaction in the order of its discovery, and the lowest that it leads back to.
    seen: BTreeMap<usize, usize>,
    low: BTreeMap<usize, usize>,
    open: Vec<usize>,
    is_open: BTreeSet<usize>,
    found: Vec<BTreeSet<usize>>,
}

impl Knots {
    fn from(&mut self, graph: &Graph, root: usize, may: &dyn Fn(Why) -> bool) {
        let after = |node: usize| -> Vec<usize> {
            graph.out(node).filter(|(_, why, _)| may(*why)).map(|(_, _, to)| to).collect()
        };
        let mut stack = vec![(root, after(root).into_iter())];
        self.discover(root);
        while let Some((node, rest)) = stack.last_mut() {
            let node = *node;
            match rest.next() {
                Some(to) if !self.seen.contains_key(&to) => {
                    self.discover(to);
                    stack.push((to, after(to).into_iter()));
                }
                Some(to) if self.is_open.contains(&to) => self.lower(node, self.seen[&to]),
                Some(_) => {}
                None => {
                    stack.pop();
                    self.close(node);
                    if let Some((parent, _)) = stack.last() {
                        self.lower(*parent, self.low[&node]);
                    }
                }
            }
        }
    }

    fn discover(&mut self, node: usize) {
        let number = self.seen.len();
        self.seen.insert(node, number);
        self.low.insert(node, number);
        self.open.push(node);
        self.is_open.insert(node);
    }

    fn lower(&mut self, node: usize, number: usize) {
        let low = self.low.get_mut(&node).expect("discovered before");
        *low = (*low).min(number);
    }

    fn close(&mut self, node: usize) {
        if self.low[&node] != self.seen[&node] {
            return;
        }
        let start = self.open.iter().rposition(|&open| open == node).expect("open until it is closed");
        let knot: BTreeSet<usize> = self.open.drain(start..).collect();
        self.is_open.retain(|open| !knot.contains(open));
        if knot.len() > 1 {
            self.found.push(knot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Why::{ReadWrite, RealTime, WriteRead, WriteWrite};

    fn graph(edges: &[(usize, Why, usize)]) -> Graph {
        let mut graph = Graph::default();
        edges.iter().for_each(|&(from, why, to)| graph.add(from, why, to));
        graph
    }

    #[test]
    fn an_order_has_no_cycle() {
        assert!(
            graph(&[(0, WriteWrite, 1), (1, WriteRead, 2), (0, ReadWrite, 2), (3, WriteRead, 0)]).cycles().is_empty()
        );
        assert!(graph(&[(1, WriteWrite, 1)]).cycles().is_empty(), "nothing comes before itself");
    }

    #[test]
    fn the_worst_is_told_before_the_shortest() {
        let edges = [(0, ReadWrite, 1), (1, ReadWrite, 0), (1, WriteWrite, 2), (2, WriteWrite, 3), (3, WriteWrite, 1)];
        let found = graph(&edges).cycles();
        assert_eq!(found, [vec![(1, WriteWrite, 2), (2, WriteWrite, 3), (3, WriteWrite, 1)]]);
    }

    #[test]
    fn one_read_write_is_told_before_two() {
        let edges = [(0, ReadWrite, 1), (1, ReadWrite, 0), (1, WriteRead, 2), (2, WriteRead, 0)];
        assert_eq!(graph(&edges).cycles(), [vec![(0, ReadWrite, 1), (1, WriteRead, 2), (2, WriteRead, 0)]]);
    }

    #[test]
    fn each_knot_is_told_once_and_real_time_last() {
        let edges = [(0, WriteRead, 1), (1, RealTime, 0), (1, WriteRead, 0), (5, RealTime, 6), (6, ReadWrite, 5)];
        let found = graph(&edges).cycles();
        assert_eq!(found, [vec![(0, WriteRead, 1), (1, WriteRead, 0)], vec![(6, ReadWrite, 5), (5, RealTime, 6)]]);
    }
}
