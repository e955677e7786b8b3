//! What a sweep of seeds has exercised: a swarm that never does something proves nothing about it.

use crate::plan::Fault;
use crate::run::Outcome;
use std::collections::BTreeMap;

/// How often each kind of fault happened and each probe was heard, over some runs.
#[derive(Default)]
pub struct Coverage {
    seeds: u64,
    marks: BTreeMap<String, u64>,
}

/// What every sweep of [`FLOOR_SEEDS`] swarm seeds must have heard of, beside every kind of fault.
const PROBES: &[&str] =
    &["acknowledged", "adopted", "compacted", "config", "cut", "destroyed", "opened", "piece", "read", "serves"];

/// What was done wrong to a run, and what the disks did wrong, for its report.
pub fn faults(marks: &BTreeMap<String, u64>) -> String {
    let disk =
        |mark: &str| ["bits-", "sectors-", "reads-", "writes-", "flushes-"].iter().any(|kind| mark.starts_with(kind));
    let faults = marks
        .iter()
        .filter(|(mark, _)| [Fault::NAMES, Fault::OF_MEDIA].concat().contains(&mark.as_str()) || disk(mark));
    faults.map(|(mark, times)| format!("{mark} {times}")).collect::<Vec<_>>().join(", ")
}

/// Fewer seeds may miss something by chance.
const FLOOR_SEEDS: u64 = 60;

impl Coverage {
    pub fn add(&mut self, outcome: &Outcome) {
        self.seeds += 1;
        for (mark, times) in &outcome.marks {
            *self.marks.entry(mark.clone()).or_default() += times;
        }
    }

    /// Marks that so many seeds should have hit and did not.
    pub fn missing(&self) -> Vec<&'static str> {
        if self.seeds < FLOOR_SEEDS {
            return Vec::new();
        }
        let wanted = PROBES.iter().chain(Fault::NAMES).copied();
        wanted.filter(|mark| !self.marks.contains_key(*mark)).collect()
    }
}

impl std::fmt::Display for Coverage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let marks: Vec<String> = self.marks.iter().map(|(mark, times)| format!("{mark} {times}")).collect();
        write!(f, "exercised by {} seeds: {}", self.seeds, marks.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Plan, Profile};

    #[test]
    fn the_swarm_draws_every_kind_of_fault() {
        let mut coverage = Coverage::default();
        for seed in 0..FLOOR_SEEDS {
            coverage.seeds += 1;
            for event in Plan::draw(seed, Profile::Swarm).events {
                *coverage.marks.entry(event.fault.name().to_owned()).or_default() += 1;
            }
        }
        assert_eq!(coverage.missing(), PROBES);
    }

    #[test]
    fn few_seeds_miss_nothing() {
        assert_eq!(Coverage::default().missing(), [""; 0]);
    }
}
