//! Why a history is not linearizable, as small as it can be said.
//!
//! First the history is cut after the return that made it illegal. Then reads are left out, and writes made optional, as
//! long as what remains is still illegal. Both only make a history easier to explain, so that what remains contradicts
//! itself and the rest had no part in it. (A write is never left out: the reads of its value would then look invented.) What
//! is left of a stale read among a thousand operations is two writes and the read. Where each write answers from the one
//! before it (increments, appends, swaps) the whole chain is part of the contradiction, and only its end is drawn.

use super::{Search, search_within, zone};
use crate::history::{Action, Answer, Operation, Outcome, text};
use crate::limits::{self, EXPLAIN_COLUMNS, EXPLAIN_OPERATIONS_MAX};
use crate::register;
use std::fmt;

/// Places count within the operations of the key, in the order of their calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    pub key: Vec<u8>,
    /// Returns first among those that cannot be placed.
    pub stuck: usize,
    /// An order of the longest linearizable prefix; empty where the search for it gave up.
    pub order: Vec<usize>,
    /// Operations that contradict each other, whatever the others did.
    pub core: Vec<usize>,
    /// The same for people.
    pub text: String,
}

/// Explains what the search found.
pub(super) fn explain(operations: &[&Operation], order: Vec<usize>, stuck: usize) -> Explanation {
    let end_ns = operations[stuck].return_ns.expect("only a return can be stuck");
    let core = Shrinker::new(cut(operations, end_ns)).run();
    let text = render(operations, stuck, &order, &core);
    Explanation { key: operations[stuck].key.clone(), stuck, order, core, text }
}

/// Explains what the zone test found: the search gets only the part up to where it shows.
pub(super) fn explain_zones(operations: &[&Operation]) -> Explanation {
    let end_ns = first_illegal_return(operations);
    match search_within(&borrow(&cut(operations, end_ns)), &mut { limits::EXPLAIN_STEPS_MAX }) {
        Search::Stuck { order, stuck } => explain(operations, order, stuck),
        Search::Found(_) | Search::Exhausted => explain(operations, Vec::new(), returned_at(operations, end_ns)),
    }
}

/// The earliest return such that the history up to it is illegal. Found by bisection: a prefix of a linearizable history is
/// linearizable.
fn first_illegal_return(operations: &[&Operation]) -> u64 {
    let mut returns: Vec<u64> = operations.iter().filter_map(|operation| operation.return_ns).collect();
    returns.sort_unstable();
    returns.dedup();
    let (mut legal, mut illegal) = (0, returns.len() - 1);
    while legal < illegal {
        let middle = (legal + illegal) / 2;
        match is_illegal(&cut(operations, returns[middle]), &mut { limits::EXPLAIN_CHECK_STEPS_MAX }) {
            true => illegal = middle,
            false => legal = middle + 1,
        }
    }
    returns[illegal]
}

/// False where the search gives up.
fn is_illegal(operations: &[Operation], steps_left: &mut u64) -> bool {
    let operations = borrow(operations);
    match zone::check(&operations) {
        Some(verdict) => verdict.is_err(),
        None => {
            let granted = limits::EXPLAIN_CHECK_STEPS_MAX.min(*steps_left);
            let mut left = granted;
            let found = search_within(&operations, &mut left);
            *steps_left -= granted - left;
            matches!(found, Search::Stuck { .. })
        }
    }
}

/// The history as it stood at `end_ns`: what was called later is gone, what returned later has an unknown outcome. Places
/// stay, because operations are in the order of their calls.
fn cut(operations: &[&Operation], end_ns: u64) -> Vec<Operation> {
    let called = operations.iter().filter(|operation| operation.call_ns <= end_ns);
    called
        .map(
            |operation| {
                if operation.return_ns.is_some_and(|at| at > end_ns) {
                    relaxed(operation)
                } else {
                    (*operation).clone()
                }
            },
        )
        .collect()
}

/// Says less than before: whatever order explained `operation` explains this.
fn relaxed(operation: &Operation) -> Operation {
    match operation.outcome {
        Outcome::NotDone => operation.clone(),
        _ => Operation { return_ns: None, outcome: Outcome::Unknown, ..operation.clone() },
    }
}

fn borrow(operations: &[Operation]) -> Vec<&Operation> {
    operations.iter().collect()
}

fn returned_at(operations: &[&Operation], at_ns: u64) -> usize {
    operations.iter().position(|operation| operation.return_ns == Some(at_ns)).expect("taken from these returns")
}

/// Relaxes operations, in halves of halves, while the rest stays illegal: first reads, because each read less makes the
/// checks that follow cheaper. A relaxed read says nothing and is left out of the result, and so is a relaxed write that no
/// remaining operation can have seen.
struct Shrinker {
    operations: Vec<Operation>,
    steps_left: u64,
    checks_left: u32,
}

impl Shrinker {
    fn new(operations: Vec<Operation>) -> Shrinker {
        Shrinker { operations, steps_left: limits::EXPLAIN_STEPS_MAX, checks_left: limits::EXPLAIN_CHECKS_MAX }
    }

    fn run(mut self) -> Vec<usize> {
        self.relax_those(Operation::is_read);
        self.relax_those(|_| true);
        core_of(&self.operations)
    }

    fn relax_those(&mut self, chosen: fn(&Operation) -> bool) {
        let is_open =
            |operation: &Operation| chosen(operation) && operation.return_ns.is_some() && !operation.is_void();
        let places: Vec<usize> = (0..self.operations.len()).filter(|place| is_open(&self.operations[*place])).collect();
        let mut size = places.len();
        while size > 1 {
            size = size.div_ceil(2);
            places.chunks(size).for_each(|places| self.relax(places));
        }
    }

    fn relax(&mut self, places: &[usize]) {
        let is_relaxed = |place: &usize| self.operations[*place].outcome == Outcome::Unknown;
        if places.iter().all(is_relaxed) || self.checks_left == 0 || self.steps_left == 0 {
            return;
        }
        self.checks_left -= 1;
        let before: Vec<Operation> = places.iter().map(|place| self.operations[*place].clone()).collect();
        for place in places {
            self.operations[*place] = relaxed(&self.operations[*place]);
        }
        if !is_illegal(&self.operations, &mut self.steps_left) {
            for (place, operation) in places.iter().zip(before) {
                self.operations[*place] = operation;
            }
        }
    }
}

fn core_of(operations: &[Operation]) -> Vec<usize> {
    let is_seen = |write: &Operation| match &write.action {
        Action::Put(value) => operations.iter().any(|other| mentions(other, value)),
        _ => true,
    };
    let belongs =
        |operation: &Operation| !operation.is_void() && (operation.outcome != Outcome::Unknown || is_seen(operation));
    (0..operations.len()).filter(|place| belongs(&operations[*place])).collect()
}

fn mentions(operation: &Operation, value: &[u8]) -> bool {
    match (&operation.action, &operation.outcome) {
        (Action::Get, Outcome::Done(Answer::Value(entry))) => entry.as_deref() == Some(value),
        (Action::CompareAndSet { expected, .. }, _) => expected.as_deref() == Some(value),
        (Action::Increment(_) | Action::Append(_), _) => true,
        _ => false,
    }
}

fn render(operations: &[&Operation], stuck: usize, order: &[usize], core: &[usize]) -> String {
    let mut text = format!(
        "key {}: not linearizable. The history has an order up to just before this returned, and none with it:\n  {}\n",
        text::shown(&operations[stuck].key),
        operations[stuck],
    );
    if let Some(state) = state_after(operations, order) {
        text += &format!("With {} operations placed the key can be: {}\n", order.len(), text::shown_entry(&state));
    }
    if let Some(reason) = reason(operations) {
        text += &format!("{reason}\n");
    }
    text += "These contradict each other, whatever the others did:\n";
    text + &timeline(operations, core)
}

fn state_after(operations: &[&Operation], order: &[usize]) -> Option<register::Entry> {
    let mut entry = None;
    for place in order {
        register::apply(&mut entry, &operations[*place].action);
    }
    (!order.is_empty()).then_some(entry)
}

/// What the zone test says, where it applies.
fn reason(operations: &[&Operation]) -> Option<String> {
    let value = |write: Option<usize>| match write.map(|place| &operations[place].action) {
        Some(Action::Put(value)) => text::shown(value),
        Some(_) => "the absence after a delete".to_owned(),
        None => "the absence at the beginning".to_owned(),
    };
    match zone::check(operations)?.err()? {
        zone::Conflict::NeverWritten { .. } => Some("Nobody wrote a value that was read.".to_owned()),
        zone::Conflict::NotAbsent { .. } => {
            Some("Absence was read when nothing can have removed the value.".to_owned())
        }
        zone::Conflict::ReadBeforeWrite { write, .. } => {
            Some(format!("{} was read before its write was called.", value(Some(write))))
        }
        zone::Conflict::Overlap { write, other } => {
            Some(format!("The key would have to hold {} and {} at the same time.", value(write), value(other)))
        }
    }
}

/// One line an operation, its interval drawn to scale.
fn timeline(operations: &[&Operation], places: &[usize]) -> String {
    let shown = &places[places.len().saturating_sub(EXPLAIN_OPERATIONS_MAX)..];
    let start = shown.iter().map(|place| operations[*place].call_ns).min().unwrap_or(0);
    let end = shown.iter().filter_map(|place| operations[*place].return_ns).max().unwrap_or(start).max(start + 1);
    let column = |at_ns: u64| {
        let share = (at_ns.min(end) - start) as u128 * (EXPLAIN_COLUMNS - 1) as u128 / (end - start) as u128;
        share as usize
    };
    let mut text = match places.len() - shown.len() {
        0 => String::new(),
        hidden => format!("  ({hidden} earlier ones are not shown)\n"),
    };
    for operation in shown.iter().map(|place| operations[*place]) {
        let from = column(operation.call_ns);
        let to = operation.return_ns.map_or(EXPLAIN_COLUMNS - 1, column);
        let bar: String = (0..EXPLAIN_COLUMNS)
            .map(|at| match at {
                _ if at < from || at > to => ' ',
                _ if at == from => '|',
                _ if at == to && operation.return_ns.is_some() => '|',
                _ if at == to => '>',
                _ => '-',
            })
            .collect();
        text += &format!("  {bar}  {operation}\n");
    }
    text
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
