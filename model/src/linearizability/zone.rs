//! Gibbons and Korach's zone test: linearizability of reads and writes of unique values in O(n log n).
//!
//! A value's *cluster* is its write and the reads that returned it. Let `f` be the first return in the cluster and `s` its
//! last call. When `f < s` the key must hold the value from `f` to `s` (a forward zone); otherwise one point between `s` and
//! `f` suffices (a backward zone). The history is linearizable exactly when no two forward zones overlap, no backward zone
//! lies inside a forward one, and no read returned before its value's write was called.
//!
//! A write of unknown outcome that nobody read is left out. A delete writes absence, which is no unique value; it is
//! accepted where the times leave only one write of absence that each read of it can have seen.
//!
//! Reference: Gibbons, Korach, "Testing shared memories" (1997).

use crate::history::{Action, Answer, Operation, Outcome};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry as MapEntry;

/// Why there is no order; places are those in the checked slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// The value read was never written.
    NeverWritten {
        read: usize,
    },
    /// Absence was read when no delete, and not the beginning, can explain it.
    NotAbsent {
        read: usize,
    },
    ReadBeforeWrite {
        read: usize,
        write: usize,
    },
    /// Two clusters each need the key for a time, and the times overlap. Where a `write` is none the value is the absence
    /// at the beginning.
    Overlap {
        write: Option<usize>,
        other: Option<usize>,
    },
}

/// None when the test does not apply to these operations of one key.
pub fn check(operations: &[&Operation]) -> Option<Result<(), Conflict>> {
    let clusters = match Clusters::build(operations)? {
        Ok(clusters) => clusters,
        Err(conflict) => return Some(Err(conflict)),
    };
    Some(clusters.check())
}

/// A value's life. Times are signed so that the beginning lies before 0 and an unknown return after everything.
struct Cluster {
    write: Option<usize>,
    write_call: i128,
    first_return: i128,
    last_call: i128,
    /// The write's outcome is unknown and no read has seen it yet.
    is_optional: bool,
}

const BEGINNING: i128 = i128::MIN;
const NEVER: i128 = i128::MAX;

struct Clusters {
    all: Vec<Cluster>,
}

impl Clusters {
    fn build(operations: &[&Operation]) -> Option<Result<Clusters, Conflict>> {
        let beginning = Cluster {
            write: None,
            write_call: BEGINNING,
            first_return: BEGINNING,
            last_call: BEGINNING,
            is_optional: false,
        };
        let mut clusters = Clusters { all: vec![beginning] };
        let mut by_value = BTreeMap::new();
        let mut reads = Vec::new();
        for (place, operation) in operations.iter().enumerate() {
            match (&operation.action, &operation.outcome) {
                _ if operation.is_void() => {}
                (Action::Get, Outcome::Done(Answer::Value(entry))) => reads.push((place, entry)),
                (Action::Put(value), Outcome::Done(Answer::Written) | Outcome::Unknown) => {
                    match by_value.entry(value.as_slice()) {
                        MapEntry::Vacant(vacant) => vacant.insert(clusters.all.len()),
                        MapEntry::Occupied(_) => return None,
                    };
                    clusters.all.push(Cluster::of_write(place, operation));
                }
                (Action::Delete, Outcome::Done(Answer::Written) | Outcome::Unknown) => {
                    clusters.all.push(Cluster::of_write(place, operation));
                }
                _ => return None,
            }
        }
        let absences = Absences::new(operations, &clusters);
        for (place, entry) in reads {
            let read = operations[place];
            let cluster = match entry {
                Some(value) => by_value.get(value.as_slice()).copied().ok_or(Conflict::NeverWritten { read: place }),
                None => absences.seen_by(read)?.ok_or(Conflict::NotAbsent { read: place }),
            };
            match cluster.and_then(|cluster| clusters.all[cluster].add_read(place, read)) {
                Ok(()) => {}
                Err(conflict) => return Some(Err(conflict)),
            }
        }
        Some(Ok(clusters))
    }

    fn check(self) -> Result<(), Conflict> {
        let lives = self.all.iter().filter(|cluster| !cluster.is_optional);
        let (mut forward, backward): (Vec<&Cluster>, Vec<&Cluster>) =
            lives.partition(|cluster| cluster.first_return < cluster.last_call);
        forward.sort_by_key(|cluster| (cluster.first_return, cluster.last_call));
        let conflict = |one: &Cluster, other: &Cluster| Conflict::Overlap { write: one.write, other: other.write };
        for pair in forward.windows(2) {
            if pair[1].first_return < pair[0].last_call {
                return Err(conflict(pair[0], pair[1]));
            }
        }
        for point in backward {
            // A backward zone runs from its last call to its first return.
            let after = forward.partition_point(|zone| zone.first_return < point.last_call);
            if after > 0 && point.first_return < forward[after - 1].last_call {
                return Err(conflict(forward[after - 1], point));
            }
        }
        Ok(())
    }
}

impl Cluster {
    fn of_write(place: usize, write: &Operation) -> Cluster {
        Cluster {
            write: Some(place),
            write_call: write.call_ns.into(),
            first_return: return_or_never(write),
            last_call: write.call_ns.into(),
            is_optional: write.return_ns.is_none(),
        }
    }

    fn add_read(&mut self, place: usize, read: &Operation) -> Result<(), Conflict> {
        if return_or_never(read) < self.write_call {
            let write = self.write.expect("nothing returns before the beginning");
            return Err(Conflict::ReadBeforeWrite { read: place, write });
        }
        self.first_return = self.first_return.min(return_or_never(read));
        self.last_call = self.last_call.max(read.call_ns.into());
        self.is_optional = false;
        Ok(())
    }
}

fn return_or_never(operation: &Operation) -> i128 {
    operation.return_ns.map_or(NEVER, i128::from)
}

/// Finds out which write of absence a read saw.
struct Absences {
    /// Completed writes as (return, the latest call among those that returned by then), by return.
    written: Vec<(i128, i128)>,
    /// Deletes as (call, return, cluster), by call.
    deletes: Vec<(i128, i128, usize)>,
    /// The latest return among the deletes up to each.
    latest_return: Vec<i128>,
}

impl Absences {
    fn new(operations: &[&Operation], clusters: &Clusters) -> Absences {
        let writes =
            || clusters.all.iter().enumerate().filter_map(|(at, cluster)| Some((at, operations[cluster.write?])));
        let mut written: Vec<(i128, i128)> = writes()
            .filter(|(_, write)| write.return_ns.is_some())
            .map(|(_, write)| (return_or_never(write), write.call_ns.into()))
            .collect();
        written.sort();
        let mut latest = BEGINNING;
        for (_, call) in &mut written {
            latest = latest.max(*call);
            *call = latest;
        }
        let mut deletes: Vec<(i128, i128, usize)> = writes()
            .filter(|(_, write)| write.action == Action::Delete)
            .map(|(at, write)| (write.call_ns.into(), return_or_never(write), at))
            .collect();
        deletes.sort();
        let mut latest_return: Vec<i128> = deletes.iter().map(|(_, returned, _)| *returned).collect();
        for at in 1..latest_return.len() {
            latest_return[at] = latest_return[at].max(latest_return[at - 1]);
        }
        Absences { written, deletes, latest_return }
    }

    /// The cluster of the one write of absence this read can have seen: `Some(None)` if there is no such write, `None` if
    /// there are several.
    fn seen_by(&self, read: &Operation) -> Option<Option<usize>> {
        // The last write that certainly came before the read hides everything that certainly came before that write.
        let before = self.written.partition_point(|(returned, _)| *returned < read.call_ns.into());
        let mut seen = (before == 0).then_some(0);
        let hidden_until = before.checked_sub(1).map_or(BEGINNING, |last| self.written[last].1);

        let called = self.deletes.partition_point(|(call, ..)| *call <= return_or_never(read));
        for at in (0..called).rev().take_while(|at| self.latest_return[*at] >= hidden_until) {
            let (_, returned, cluster) = self.deletes[at];
            if returned >= hidden_until && seen.replace(cluster).is_some() {
                return None;
            }
        }
        Some(seen)
    }
}
