//! The checkers against each other, and against a search too simple to be wrong, on thousands of small histories.

mod common;

use common::{Random, Shape, linearizable, mutate};
use model::linearizability::wgl::Search;
use model::linearizability::{self, Specification, Verdict, zone};
use model::register::{self, Entry, Register};
use model::{Action, Answer, History, Operation, Outcome, oracle};

const STEPS_MAX: u64 = 1_000_000;

fn borrow(operations: &[Operation]) -> Vec<&Operation> {
    operations.iter().collect()
}

/// Tries every order; no cache, no cuts.
fn has_order(left: &[&Operation], entry: &Entry) -> bool {
    let horizon = left.iter().filter_map(|operation| operation.return_ns).min();
    let Some(horizon) = horizon else { return true };
    (0..left.len()).filter(|at| left[*at].call_ns <= horizon).any(|at| {
        let mut rest = left.to_vec();
        let next = rest.remove(at);
        Register::step(entry, next).is_some_and(|after| has_order(&rest, &after))
    })
}

fn shape(seed: u64, operations: usize, register_only: bool) -> Shape {
    Shape {
        operations,
        clients: 2 + seed % 4,
        register_only,
        deletes: seed.is_multiple_of(3),
        unknown_in: if seed.is_multiple_of(2) { 6 } else { 1_000_000 },
        not_done_in: if seed.is_multiple_of(5) { 6 } else { 1_000_000 },
    }
}

fn sorted(operations: Vec<Operation>) -> Vec<Operation> {
    History::from_operations(operations).into_operations()
}

#[test]
fn the_search_agrees_with_trying_every_order() {
    let (mut right, mut wrong) = (0, 0);
    for seed in 0..3_000 {
        let mut random = Random(seed);
        let mut operations = linearizable(shape(seed, 7, false), &mut random);
        for _ in 0..seed % 3 {
            mutate(&mut operations, &mut random);
        }
        let operations = sorted(operations);
        let checked: Vec<&Operation> = operations.iter().filter(|operation| !operation.is_void()).collect();
        let expected = has_order(&checked, &None);
        let found = linearizability::search(&borrow(&operations), STEPS_MAX);
        assert_eq!(matches!(found, Search::Found(_)), expected, "seed {seed}: {operations:#?}");
        *if expected { &mut right } else { &mut wrong } += 1;
    }
    assert!(right > 800 && wrong > 300, "one-sided: {right} right, {wrong} wrong");
}

#[test]
fn what_is_right_by_construction_is_accepted() {
    for seed in 0..60 {
        for register_only in [false, true] {
            let mut random = Random(seed);
            let operations = sorted(linearizable(shape(seed, 120, register_only), &mut random));
            let verdict = linearizability::check_key(&borrow(&operations), STEPS_MAX);
            assert_eq!(verdict, Verdict::Ok, "seed {seed}");
            assert_eq!(oracle::check_key(&borrow(&operations)), Ok(()), "seed {seed}");
        }
    }
}

#[test]
fn zones_agree_with_the_search() {
    let (mut right, mut wrong, mut other) = (0, 0, 0);
    for seed in 0..8_000 {
        let mut random = Random(seed);
        let mut operations = linearizable(shape(seed, 10 + (seed % 20) as usize, true), &mut random);
        for _ in 0..seed % 3 {
            mutate(&mut operations, &mut random);
        }
        let operations = sorted(operations);
        let Some(zones) = zone::check(&borrow(&operations)) else {
            other += 1;
            continue;
        };
        let found = linearizability::search(&borrow(&operations), STEPS_MAX);
        assert_ne!(found, Search::Exhausted, "seed {seed}");
        assert_eq!(zones.is_ok(), matches!(found, Search::Found(_)), "seed {seed}: {zones:?} {operations:#?}");
        *if zones.is_ok() { &mut right } else { &mut wrong } += 1;
    }
    assert!(right > 3_000 && wrong > 1_200 && other < 1_500, "{right} right, {wrong} wrong, {other} not for zones");
}

#[test]
fn an_explanation_holds_by_itself() {
    let mut illegal = 0;
    for seed in 0..240 {
        let mut random = Random(seed);
        let register_only = seed.is_multiple_of(2);
        let mut operations = linearizable(shape(seed, 40, register_only), &mut random);
        mutate(&mut operations, &mut random);
        let operations = sorted(operations);
        let all = borrow(&operations);
        let Verdict::Illegal(explanation) = linearizability::check_key(&all, STEPS_MAX) else { continue };
        illegal += 1;
        // The order is one, it respects real time, and the stuck operation is not in it. What returned after the stuck
        // one may have had another answer.
        let end_ns = all[explanation.stuck].return_ns.expect("only a return can be stuck");
        let is_returned = |operation: &Operation| operation.return_ns.is_some_and(|at| at <= end_ns);
        let mut entry = None;
        for operation in explanation.order.iter().map(|place| all[*place]) {
            let expected = is_returned(operation).then(|| Register::step(&entry, operation));
            register::apply(&mut entry, &operation.action);
            assert!(expected.is_none_or(|after| after.as_ref() == Some(&entry)), "seed {seed}: {operation}");
        }
        for pair in explanation.order.windows(2) {
            let (one, next) = (all[pair[0]], all[pair[1]]);
            assert!(next.return_ns.is_none_or(|at| at >= one.call_ns), "seed {seed}: {one} before {next}");
        }
        assert!(!explanation.order.contains(&explanation.stuck));
        // Everything before the stuck return has an order, and with it there is none.
        let returned_before = |operation: &&&Operation| is_returned(operation) && operation.return_ns != Some(end_ns);
        let placed: Vec<&Operation> = explanation.order.iter().map(|place| all[*place]).collect();
        assert!(all.iter().filter(returned_before).all(|one| one.is_void() || placed.contains(one)), "seed {seed}");
        assert!(!register_only || explanation.core.len() <= 8, "seed {seed}: {explanation}");
    }
    assert!(illegal > 60, "only {illegal} illegal histories");
}

#[test]
fn what_the_oracle_accepts_is_linearizable() {
    let (mut accepted, mut refused) = (0, 0);
    for seed in 0..4_000 {
        let mut random = Random(seed);
        let all_known = Shape { unknown_in: 1_000_000, ..shape(seed, 15, seed.is_multiple_of(2)) };
        let mut operations = linearizable(all_known, &mut random);
        for _ in 0..seed % 3 {
            mutate(&mut operations, &mut random);
            let at = random.below(operations.len() as u64) as usize;
            if let (Some(version), true) = (&mut operations[at].version, random.one_in(2)) {
                version.seqno = version.seqno.saturating_add_signed(random.below(3) as i64 - 1).max(1);
            }
        }
        let operations = sorted(operations);
        match oracle::check_key(&borrow(&operations)) {
            Ok(()) => {
                accepted += 1;
                let found = linearizability::search(&borrow(&operations), STEPS_MAX);
                assert!(matches!(found, Search::Found(_)), "seed {seed}: {operations:#?}");
            }
            Err(_) => refused += 1,
        }
    }
    assert!(accepted > 1_400 && refused > 1_000, "{accepted} accepted, {refused} refused");
}

#[test]
fn a_small_budget_says_unknown_and_not_wrong() {
    let mut random = Random(3);
    let operations = sorted(linearizable(shape(1, 200, false), &mut random));
    assert_eq!(linearizability::check_key(&borrow(&operations), 20), Verdict::Exhausted);
}

/// Each of thirty writes may have happened or not, which makes a thousand million cases, but no answer tells one of them from
/// another.
#[test]
fn writes_that_nobody_saw_cost_nothing() {
    let put = |client: u64| Operation {
        client,
        key: b"k".to_vec(),
        call_ns: client,
        return_ns: None,
        action: Action::Put(client.to_string().into_bytes()),
        outcome: Outcome::Unknown,
        version: None,
    };
    let done = |at: u64, action, answer| Operation {
        client: 0,
        key: b"k".to_vec(),
        call_ns: at,
        return_ns: Some(at + 1),
        action,
        outcome: Outcome::Done(answer),
        version: None,
    };
    let mut operations: Vec<Operation> = (1..=30).map(put).collect();
    operations.extend((0..30).map(|at| done(100 + 2 * at, Action::Delete, Answer::Deleted(true))));
    assert_eq!(linearizability::check_key(&borrow(&operations), 20_000), Verdict::Ok);
    operations.push(done(300, Action::Delete, Answer::Deleted(true)));
    assert!(matches!(linearizability::check_key(&borrow(&operations), 20_000), Verdict::Illegal(_)));
}
