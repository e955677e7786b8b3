//! Histories of transactions that are known to be right or wrong, and thousands of small ones on which trying every order
//! says the same as looking for cycles.

mod common;

use common::Random;
use model::transactions::{Outcome, Step, Transaction, check, edn};
use std::collections::BTreeMap;

/// The files of a folder under `histories/transactions/`; this list is what runs.
macro_rules! samples {
    ($folder:literal: $($name:literal,)*) => {
        [$(($name, include_str!(concat!("../histories/transactions/", $folder, "/", $name, ".edn")))),*]
    };
}

const GOOD: [(&str, &str); 6] = samples!["good":
    "aborted_stays_away",
    "concurrent",
    "one_after_another",
    "own_appends_are_seen",
    "unknown_never_happens",
    "unknown_was_done",
];

const BAD: [(&str, &str); 16] = samples!["bad":
    "aborted_read",
    "appended_twice",
    "appends_swapped",
    "circular_information",
    "half_of_an_unknown",
    "intermediate_read",
    "lost_append",
    "lost_update",
    "own_append_unseen",
    "read_skew",
    "split_brain",
    "stale_read",
    "unrepeatable_read",
    "value_from_nowhere",
    "write_cycle",
    "write_skew",
];

fn read(name: &str, text: &str) -> Vec<Transaction> {
    edn::read(text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn known_good_histories_are_accepted() {
    for (name, text) in GOOD {
        assert_eq!(check(&read(name, text), true), [], "{name}");
    }
}

/// The first word of a bad history's story is the name of what is wrong with it.
#[test]
fn known_bad_histories_are_refused_by_name() {
    for (name, text) in BAD {
        let expected = text.strip_prefix("; ").and_then(|story| story.split(':').next()).expect("it tells a story");
        let history = read(name, text);
        let found = check(&history, true);
        assert_eq!(found.iter().map(|anomaly| anomaly.name()).collect::<Vec<_>>(), [expected], "{name}: {found:?}");
        let serializable = check(&history, false).is_empty();
        assert_eq!(serializable, expected.ends_with("-realtime"), "{name}: only real time tells these");
    }
}

#[test]
fn a_cycle_is_told_step_by_step() {
    let (name, text) = BAD[BAD.len() - 1];
    let told: Vec<String> = check(&read(name, text), true).iter().map(|anomaly| anomaly.to_string()).collect();
    let expected = r#"G2-item: 
  0 (read "x" [], append "y" 1) did not see 1 (read "y" [], append "x" 2)
  1 (read "y" [], append "x" 2) did not see 0 (read "x" [], append "y" 1)"#;
    assert_eq!(told, [expected]);
}

#[test]
fn every_sample_survives_being_written() {
    for (name, text) in GOOD.into_iter().chain(BAD) {
        let history = read(name, text);
        let mut written = Vec::new();
        edn::write(&history, &mut written).unwrap();
        assert_eq!(read(name, std::str::from_utf8(&written).unwrap()), history, "{name}");
    }
}

type Lists = BTreeMap<Vec<u8>, Vec<i64>>;

/// Carries out a transaction; false when one of its answers is not what is there.
fn carry_out(lists: &mut Lists, transaction: &Transaction) -> bool {
    transaction.steps.iter().all(|step| match step {
        Step::Append { key, element } => {
            lists.entry(key.clone()).or_default().push(*element);
            true
        }
        Step::Read { key, list } => list.as_ref().is_none_or(|list| lists.get(key).unwrap_or(&vec![]) == list),
    })
}

/// Tries every order that real time allows.
fn has_order(left: &[&Transaction], lists: &Lists, real_time: bool) -> bool {
    let committed = || left.iter().filter(|transaction| transaction.outcome == Outcome::Committed);
    let Some(horizon) = committed().filter_map(|transaction| transaction.return_ns).min() else { return true };
    (0..left.len()).filter(|at| !real_time || left[*at].call_ns <= horizon).any(|at| {
        let mut rest = left.to_vec();
        let next = rest.remove(at);
        let mut after = lists.clone();
        carry_out(&mut after, next) && has_order(&rest, &after, real_time)
    })
}

/// Transactions that take effect at one moment each, and at the end one that reads all.
fn strictly_serializable(random: &mut Random) -> Vec<Transaction> {
    let mut element = 0;
    let mut planned: Vec<(u64, Transaction)> = (0..random.between(2, 5)).map(|_| plan(random, &mut element)).collect();
    let read_all = ["x", "y"].map(|key| Step::read(key, &[])).to_vec();
    let last = Transaction { call_ns: 200, return_ns: Some(210), steps: read_all, outcome: Outcome::Committed };
    planned.push((205, last));
    planned.sort_by_key(|(point, _)| *point);
    let mut lists = Lists::new();
    let mut transactions: Vec<Transaction> = Vec::new();
    for (_, mut transaction) in planned {
        match transaction.outcome {
            Outcome::Committed => answer(&mut lists, &mut transaction),
            Outcome::Unknown if random.one_in(2) => drop(carry_out(&mut lists, &transaction)),
            Outcome::Unknown | Outcome::Aborted => {}
        }
        transactions.push(transaction);
    }
    transactions.sort_by_key(|transaction| transaction.call_ns);
    transactions
}

fn plan(random: &mut Random, element: &mut i64) -> (u64, Transaction) {
    let call_ns = random.below(60);
    let return_ns = call_ns + random.below(40);
    let outcome = match random.below(8) {
        0 => Outcome::Aborted,
        1 => Outcome::Unknown,
        _ => Outcome::Committed,
    };
    let mut step = |random: &mut Random| {
        let key = if random.one_in(2) { "x" } else { "y" };
        *element += 1;
        match random.one_in(2) {
            true => Step::append(key, *element),
            false => Step::Read { key: key.into(), list: None },
        }
    };
    let steps = (0..random.between(1, 3)).map(|_| step(random)).collect();
    let return_ns = (outcome != Outcome::Unknown).then_some(return_ns);
    (random.between(call_ns, return_ns.unwrap_or(100)), Transaction { call_ns, return_ns, steps, outcome })
}

fn answer(lists: &mut Lists, transaction: &mut Transaction) {
    for step in &mut transaction.steps {
        match step {
            Step::Append { key, element } => lists.entry(key.clone()).or_default().push(*element),
            Step::Read { key, list } => *list = Some(lists.get(key).cloned().unwrap_or_default()),
        }
    }
}

/// Changes one answer, or moves a transaction in time.
fn mutate(transactions: &mut [Transaction], random: &mut Random) {
    let at = random.below(transactions.len() as u64) as usize;
    let transaction = &mut transactions[at];
    let shift = random.below(30);
    let lists = transaction.steps.iter_mut().filter_map(|step| match step {
        Step::Read { list: Some(list), .. } => Some(list),
        _ => None,
    });
    let mut lists: Vec<&mut Vec<i64>> = lists.collect();
    if lists.is_empty() || random.one_in(4) {
        transaction.call_ns += shift;
        transaction.return_ns = transaction.return_ns.map(|return_ns| return_ns + shift);
        return;
    }
    let which = random.below(lists.len() as u64) as usize;
    let list = &mut *lists[which];
    match random.below(3) {
        0 => drop(list.pop()),
        1 if list.len() > 1 => {
            let last = list.len() - 1;
            list.swap(last, last - 1);
        }
        _ => list.truncate(list.len() / 2),
    }
}

/// Every append shows in the last read, so that looking for cycles leaves nothing open.
#[test]
fn cycles_are_there_exactly_when_no_order_explains_the_history() {
    let (mut right, mut wrong) = ([0, 0], [0, 0]);
    for seed in 0..6_000 {
        let mut random = Random(seed);
        let mut transactions = strictly_serializable(&mut random);
        for _ in 0..seed % 3 {
            mutate(&mut transactions, &mut random);
        }
        transactions.sort_by_key(|transaction| transaction.call_ns);
        let checked: Vec<&Transaction> =
            transactions.iter().filter(|transaction| transaction.outcome != Outcome::Aborted).collect();
        for real_time in [false, true] {
            let expected = has_order(&checked, &Lists::new(), real_time);
            let found = check(&transactions, real_time);
            let told = || transactions.iter().map(|one| format!("\n{one} {}..{:?}", one.call_ns, one.return_ns));
            assert_eq!(found.is_empty(), expected, "seed {seed}, {real_time}: {found:?}{}", told().collect::<String>());
            *if expected { &mut right } else { &mut wrong }.get_mut(usize::from(real_time)).expect("two") += 1;
        }
    }
    assert!(right.iter().all(|count| *count > 2_500), "one-sided: {right:?} right");
    assert!(wrong.iter().all(|count| *count > 800), "one-sided: {wrong:?} wrong");
}
