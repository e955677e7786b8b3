//! Every state that the replication model can reach, within bounds; and for each rule that is bent how that breaks a promise.
//!
//! The bounds are what one core goes through in a minute. With `MODEL_BOUNDS=large` in the environment each scope gets an
//! epoch or a crash more, which takes far longer and some gigabytes of memory. The number of states is printed:
//! `cargo test -p model --test replication -- --nocapture`.

use model::replication::promise::{
    ALWAYS, ANSWERED, ANSWERED_AFTER_FAILOVER, INHERITED, NO_STALE_READ, NOTHING_LOST, ON_ITS_OWN, ONE_PREFIX,
    ONE_READER, REJOINED, SET_STANDS, SOMETIMES,
};
use model::replication::{Scope, State, Step, Timing, Weakness};
use stateright::{Checker, HasDiscoveries, Model, Property};
use std::sync::atomic::{AtomicBool, Ordering};

/// A scope as stateright sees it.
struct Checked {
    scope: Scope,
    /// Of each property, whether a state was found that breaks or shows it. States come in the order of their depth, and
    /// stateright keeps the last one found: so it is told of the first only.
    found: [AtomicBool; ALWAYS.len() + SOMETIMES.len()],
}

impl Checked {
    fn new(scope: Scope) -> Checked {
        Checked { scope, found: std::array::from_fn(|_| AtomicBool::new(false)) }
    }

    fn keeps(&self, at: usize, state: &State) -> bool {
        (ALWAYS[at].1)(&self.scope, state) || self.found[at].swap(true, Ordering::Relaxed)
    }

    fn shows(&self, at: usize, state: &State) -> bool {
        (SOMETIMES[at].1)(&self.scope, state) && !self.found[ALWAYS.len() + at].swap(true, Ordering::Relaxed)
    }
}

impl Model for Checked {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![self.scope.initial()]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        self.scope.steps(state, steps);
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        Some(self.scope.after(state, step))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ALWAYS[0].0, |model: &Checked, state| model.keeps(0, state)),
            Property::always(ALWAYS[1].0, |model, state| model.keeps(1, state)),
            Property::always(ALWAYS[2].0, |model, state| model.keeps(2, state)),
            Property::always(ALWAYS[3].0, |model, state| model.keeps(3, state)),
            Property::always(ALWAYS[4].0, |model, state| model.keeps(4, state)),
            Property::sometimes(SOMETIMES[0].0, |model, state| model.shows(0, state)),
            Property::sometimes(SOMETIMES[1].0, |model, state| model.shows(1, state)),
            Property::sometimes(SOMETIMES[2].0, |model, state| model.shows(2, state)),
            Property::sometimes(SOMETIMES[3].0, |model, state| model.shows(3, state)),
            Property::sometimes(SOMETIMES[4].0, |model, state| model.shows(4, state)),
        ]
    }
}

/// Two nodes in sync whose clocks drift.
const PAIR: Scope = Scope {
    nodes: 2,
    members: 2,
    epochs: 3,
    writes: 2,
    crashes: 1,
    hands_over: false,
    timing: Timing::DRIFTING,
    weakness: None,
};

/// Three nodes in sync whose clocks run alike.
const TRIPLE: Scope = Scope { nodes: 3, members: 3, epochs: 2, writes: 1, crashes: 0, timing: Timing::STEADY, ..PAIR };

fn is_large() -> bool {
    std::env::var("MODEL_BOUNDS").is_ok_and(|bounds| bounds == "large")
}

/// Goes through all states of a scope. `shown` is what must be possible in it.
fn holds(name: &str, scope: Scope, shown: &[&'static str]) {
    let checker = Checked::new(scope).checker().spawn_bfs().join();
    let (states, steps, depth) = (checker.unique_state_count(), checker.state_count(), checker.max_depth());
    println!("{name}: all {states} states, {steps} steps, up to {depth} deep, of {scope:?}");
    let discoveries = checker.discoveries();
    for (promise, _) in ALWAYS {
        let broken = discoveries.get(promise).map(|path| (path.clone().into_actions(), path.last_state()));
        assert!(broken.is_none(), "{name}: {promise:?} is broken by {broken:#?}");
    }
    for what in shown {
        assert!(discoveries.contains_key(what), "{name}: nowhere {what}");
    }
}

#[test]
fn two_replicas_keep_every_promise() {
    let scope = if is_large() { Scope { epochs: 5, ..PAIR } } else { PAIR };
    holds("a pair with a crash", scope, &[ANSWERED, ANSWERED_AFTER_FAILOVER, INHERITED, ON_ITS_OWN]);
    let long = Scope { epochs: 6, crashes: 0, ..PAIR };
    let all = [ANSWERED, ANSWERED_AFTER_FAILOVER, INHERITED, ON_ITS_OWN, REJOINED];
    holds("a pair over six epochs", long, &all);
}

#[test]
fn a_planned_hand_over_keeps_every_promise() {
    let scope = Scope { epochs: if is_large() { 4 } else { 3 }, hands_over: true, ..PAIR };
    holds("a pair that hands over", scope, &[ANSWERED, ANSWERED_AFTER_FAILOVER, INHERITED, ON_ITS_OWN]);
}

#[test]
fn a_learner_that_joins_keeps_every_promise() {
    let scope = Scope { members: 1, epochs: if is_large() { 5 } else { 4 }, ..PAIR };
    let all = [ANSWERED, ANSWERED_AFTER_FAILOVER, INHERITED, ON_ITS_OWN, REJOINED];
    holds("a lone replica and one that joins", scope, &all);
}

#[test]
fn three_replicas_keep_every_promise() {
    holds("three whose clocks drift", Scope { timing: Timing::DRIFTING, ..TRIPLE }, &[ANSWERED, INHERITED]);
    let over = [ANSWERED, INHERITED, ON_ITS_OWN];
    let scope = Scope { epochs: 3, crashes: u8::from(is_large()), ..TRIPLE };
    holds("three over three epochs", scope, &over);
}

#[test]
fn three_replicas_of_which_one_crashes_keep_every_promise() {
    let scope = Scope { crashes: 1, timing: if is_large() { Timing::DRIFTING } else { Timing::STEADY }, ..TRIPLE };
    holds("three with a crash", scope, &[ANSWERED, INHERITED]);
}

#[test]
fn a_replica_that_is_replaced_keeps_every_promise() {
    let scope = Scope { members: 2, epochs: 4, crashes: u8::from(is_large()), ..TRIPLE };
    holds("a pair and a third", scope, &[ANSWERED, INHERITED, ON_ITS_OWN, REJOINED]);
}

/// A rule that is bent, where, the promise that breaks, and the fewest steps to it.
type Bent = (Weakness, Scope, &'static str, usize);

const LEARNER: Scope = Scope { members: 1, epochs: 4, ..PAIR };
const STEADY: Scope = Scope { timing: Timing::STEADY, ..PAIR };
const HANDING_OVER: Scope = Scope { hands_over: true, ..PAIR };
const WRITING: Scope = Scope { writes: 2, ..TRIPLE };

/// `NOTHING_LOST` breaks first, when a replica that may lead lacks something; the others are what a client then sees.
const BENT: [Bent; 26] = [
    (Weakness::GraceIsLease, PAIR, ONE_READER, 7),
    (Weakness::GraceIsLease, PAIR, NO_STALE_READ, 9),
    (Weakness::LeaseFromReceipt, STEADY, ONE_READER, 8),
    (Weakness::LeaseFromReceipt, STEADY, NO_STALE_READ, 10),
    (Weakness::CandidateGrants, PAIR, ONE_READER, 8),
    (Weakness::HandOverKeepsLease, HANDING_OVER, ONE_READER, 10),
    (Weakness::AnyoneLeads, PAIR, SET_STANDS, 5),
    (Weakness::AnyoneLeads, PAIR, NOTHING_LOST, 8),
    (Weakness::AnyoneLeads, PAIR, NO_STALE_READ, 9),
    (Weakness::LongestLogLeads, PAIR, SET_STANDS, 5),
    (Weakness::LongestLogLeads, PAIR, NOTHING_LOST, 8),
    (Weakness::LongestLogLeads, PAIR, NO_STALE_READ, 9),
    (Weakness::PrimaryDropsItself, PAIR, SET_STANDS, 2),
    (Weakness::LearnerJoinsEarly, LEARNER, NOTHING_LOST, 8),
    (Weakness::LearnerJoinsEarly, LEARNER, NO_STALE_READ, 14),
    (Weakness::LearnerNotWaitedFor, LEARNER, NOTHING_LOST, 8),
    (Weakness::LearnerNotWaitedFor, LEARNER, NO_STALE_READ, 14),
    (Weakness::MajorityCommits, TRIPLE, NOTHING_LOST, 6),
    (Weakness::MajorityCommits, TRIPLE, NO_STALE_READ, 15),
    (Weakness::AckBeforeFlush, PAIR, NOTHING_LOST, 5),
    (Weakness::AckBeforeFlush, PAIR, NO_STALE_READ, 13),
    (Weakness::BackupIgnoresEpoch, WRITING, NOTHING_LOST, 14),
    (Weakness::ServesUnreconciled, PAIR, NO_STALE_READ, 17),
    (Weakness::DropsUncommitted, PAIR, NO_STALE_READ, 11),
    (Weakness::CommitsWithoutAsking, PAIR, NO_STALE_READ, 8),
    (Weakness::CommitsWithoutAsking, PAIR, ONE_PREFIX, 10),
];

#[test]
fn each_rule_that_is_bent_breaks_a_promise() {
    for (weakness, scope, promise, fewest) in BENT {
        let finish = HasDiscoveries::AllOf([promise].into());
        let scope = Scope { weakness: Some(weakness), ..scope };
        let checker = Checked::new(scope).checker().finish_when(finish).spawn_bfs().join();
        let path = checker.discovery(promise).unwrap_or_else(|| panic!("{weakness:?} does not break {promise:?}"));
        let steps = path.into_actions();
        println!("{weakness:?} breaks {promise:?} in {} steps: {steps:?}", steps.len());
        assert_eq!(steps.len(), fewest, "{weakness:?}: {promise}");
    }
}

/// The counterexample that the grace period exists for, step by step.
#[test]
fn a_grace_as_short_as_a_lease_lets_two_nodes_answer() {
    let scope = Scope { weakness: Some(Weakness::GraceIsLease), ..PAIR };
    let checker = Checked::new(scope).checker().finish_when(HasDiscoveries::AllOf([ONE_READER].into()));
    let steps = checker.spawn_bfs().join().discovery(ONE_READER).expect("it is broken").into_actions();
    let told: Vec<String> = steps.iter().map(|step| format!("{step:?}")).collect();
    assert_eq!(
        told,
        [
            "Match { primary: 0, follower: 1 }",
            "Beacon { primary: 0, backup: 1 }",
            "Granted { primary: 0, backup: 1 }",
            // One tick is half a lease on the primary's slow clock, and a whole one on the backup's.
            "Tick { fast: {1} }",
            "Stand { node: 1 }",
            "Decide { asker: 1 }",
            "Learn { node: 1, epoch: 2 }",
        ]
    );
}
