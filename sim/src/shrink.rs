//! Makes a failing plan small: as long as something can be left out and the run fails in the same way, it is left out.
//!
//! A candidate is a plan with one thing less: a run of events, a region, a client, the clocks, the tail of the fault phase, or
//! half of a duration. The largest are tried first, and after each success all are tried again.

use crate::plan::{Fault, Plan};
use std::collections::BTreeSet;

/// What came of shrinking.
pub struct Shrunk {
    pub plan: Plan,
    /// Runs that it took.
    pub runs: u64,
}

/// The smallest plan found within `runs_max` runs for which `fails` still holds.
pub fn shrink(mut plan: Plan, runs_max: u64, mut fails: impl FnMut(&Plan) -> bool) -> Shrunk {
    let (mut runs, mut tried) = (0, BTreeSet::new());
    'again: loop {
        for candidate in simpler(&plan) {
            if runs >= runs_max {
                break 'again;
            }
            if !tried.insert(serde_json::to_string(&candidate).expect("a plan is plain data")) {
                continue;
            }
            runs += 1;
            if fails(&candidate) {
                plan = candidate;
                continue 'again;
            }
        }
        break;
    }
    Shrunk { plan, runs }
}

/// Plans with one thing less, those that lack most first.
fn simpler(plan: &Plan) -> Vec<Plan> {
    let mut all = Vec::new();
    let len = plan.events.len();
    let sizes = std::iter::successors(Some(len), |size| Some(size / 2)).take_while(|&size| size > 0);
    for size in sizes {
        for from in (0..len).step_by(size) {
            all.push(with(plan, |plan| drop(plan.events.drain(from..(from + size).min(len)))));
        }
    }
    all.push(with(plan, |plan| plan.final_power_cycle = false));
    all.push(with(plan, |plan| plan.clocks.clear()));
    all.push(with(plan, |plan| plan.network.break_ppm = 0));
    all.push(with(plan, |plan| plan.network.latency_ms_max = plan.network.latency_ms_min + 2));
    all.push(with(plan, |plan| plan.fault_ms = plan.events.last().map_or(1000, |event| event.at_ms + 1000)));
    all.push(with(plan, |plan| plan.cluster.masters = 1));
    all.push(with(plan, |plan| plan.cluster.regions = 1));
    all.push(with(plan, |plan| plan.cluster.servers = u64::from(plan.cluster.factor)));
    all.push(with(plan, |plan| plan.cluster.salted = false));
    all.push(with(plan, |plan| plan.cluster.compressed = false));
    all.push(with(plan, |plan| plan.workload.readers = 0));
    all.push(with(plan, |plan| plan.workload.clients = 1.max(plan.workload.clients - 1)));
    all.push(with(plan, |plan| plan.workload.keys = 1.max(plan.workload.keys / 2)));
    all.push(with(plan, |plan| plan.workload.cold_keys = 0));
    all.push(with(plan, |plan| plan.workload.value_bytes_max = 8));
    for at in 0..plan.clocks.len() {
        all.push(with(plan, |plan| drop(plan.clocks.remove(at))));
    }
    for at in 0..len {
        all.push(with(plan, |plan| halve(&mut plan.events[at].fault)));
    }
    all.into_iter().filter(|candidate| candidate != plan).collect()
}

fn with(plan: &Plan, change: impl FnOnce(&mut Plan)) -> Plan {
    let mut plan = plan.clone();
    change(&mut plan);
    forget_strangers(&mut plan);
    plan
}

/// Events of nodes that take no part any more are left out.
fn forget_strangers(plan: &mut Plan) {
    let nodes = plan.nodes();
    let known = |node: &String| nodes.contains(node);
    plan.clocks.retain(|clock| known(&clock.node));
    plan.workload.readers = plan.workload.readers.min(plan.workload.clients);
    plan.events.retain_mut(|event| match &mut event.fault {
        Fault::Partition { from, to, .. } | Fault::Clog { from, to, .. } => {
            from.retain(known);
            to.retain(known);
            !from.is_empty() && !to.is_empty()
        }
        Fault::PowerLoss { nodes, .. } => {
            nodes.retain(known);
            !nodes.is_empty()
        }
        Fault::Kill { node, .. }
        | Fault::Pause { node, .. }
        | Fault::StepClock { node, .. }
        | Fault::ClockRate { node, .. }
        | Fault::FailFlush { node }
        | Fault::FailWrite { node }
        | Fault::SlowDisk { node, .. }
        | Fault::BitRot { node, .. }
        | Fault::BadSectors { node, .. }
        | Fault::FailRead { node }
        | Fault::LoseWrites { node, .. }
        | Fault::MisdirectWrites { node, .. }
        | Fault::FullDisk { node, .. } => known(node),
        Fault::HandOver { .. } => true,
    });
}

fn halve(fault: &mut Fault) {
    match fault {
        Fault::Partition { for_ms, .. }
        | Fault::Clog { for_ms, .. }
        | Fault::Pause { for_ms, .. }
        | Fault::SlowDisk { for_ms, .. }
        | Fault::LoseWrites { for_ms, .. }
        | Fault::MisdirectWrites { for_ms, .. }
        | Fault::FullDisk { for_ms, .. } => *for_ms /= 2,
        Fault::BitRot { bits, .. } => *bits = (*bits / 2).max(1),
        Fault::BadSectors { sectors, .. } => *sectors = (*sectors / 2).max(1),
        Fault::Kill { down_ms, .. } | Fault::PowerLoss { down_ms, .. } => *down_ms /= 2,
        Fault::StepClock { .. }
        | Fault::ClockRate { .. }
        | Fault::FailFlush { .. }
        | Fault::FailWrite { .. }
        | Fault::FailRead { .. }
        | Fault::HandOver { .. } => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Profile;

    /// Of servers: a failure that needs the kill of a master needs that master too.
    fn kills(plan: &Plan) -> usize {
        let of_server = |fault: &Fault| matches!(fault, Fault::Kill { node, .. } if node.starts_with("server-"));
        plan.events.iter().filter(|event| of_server(&event.fault)).count()
    }

    #[test]
    fn all_is_left_out_that_the_failure_does_not_need() {
        let seed = (0..).find(|&seed| kills(&Plan::draw(seed, Profile::Swarm)) >= 3).expect("one has");
        let plan = Plan::draw(seed, Profile::Swarm);
        let shrunk = shrink(plan, 10_000, |plan| kills(plan) >= 2 && plan.workload.keys >= 2).plan;
        assert_eq!((shrunk.events.len(), kills(&shrunk)), (2, 2));
        assert_eq!((shrunk.workload.clients, shrunk.cluster.regions, shrunk.cluster.masters), (1, 1, 1));
        assert!(shrunk.workload.keys >= 2 && shrunk.clocks.is_empty() && !shrunk.final_power_cycle);
    }

    #[test]
    fn a_plan_never_names_a_node_that_takes_no_part() {
        for seed in 0..200 {
            let plan = Plan::draw(seed, Profile::Swarm);
            for candidate in simpler(&plan) {
                let mut cleaned = candidate.clone();
                forget_strangers(&mut cleaned);
                assert_eq!(cleaned, candidate);
            }
        }
    }

    #[test]
    fn it_ends_after_so_many_runs() {
        let plan = Plan::draw(3, Profile::Swarm);
        let mut runs = 0;
        let shrunk = shrink(plan, 5, |_| {
            runs += 1;
            true
        });
        assert_eq!((shrunk.runs, runs), (5, 5));
    }
}
