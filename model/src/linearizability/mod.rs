//! Does one order of the operations, each inside its interval, explain every answer?
//!
//! [`check`] splits the history by key, because a history is linearizable exactly when each key's part is (Herlihy, Wing
//! 1990). A key that has only reads and writes of unique values goes to the [`zone`] test, which takes milliseconds for a
//! hundred thousand operations; all others to the [`wgl`] search, whose cost grows with the number of clients at work on one
//! key at a time: keep it at eight and the operations of a key at ten thousand. The search has a budget in steps, not
//! seconds, so that a verdict never depends on the machine; when it runs out the verdict is [`Verdict::Exhausted`], which is
//! neither right nor wrong.
//!
//! An illegal key comes with an [`Explanation`]: the longest prefix that has an order, the operation that cannot be placed
//! after it, and the few operations that already contradict each other.

mod explain;
pub mod wgl;
pub mod zone;

pub use explain::Explanation;
pub use wgl::Specification;

use crate::history::{Action, Answer, History, Operation, Outcome};
use crate::limits;
use crate::register::Register;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use wgl::{Search, Timed};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Ok,
    Illegal(Box<Explanation>),
    /// The search gave up: nothing is known.
    Exhausted,
}

/// The verdict on every key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub keys: BTreeMap<Vec<u8>, Verdict>,
}

/// Checks every key within the ordinary budget.
pub fn check(history: &History) -> Report {
    check_within(history, limits::SEARCH_STEPS_MAX)
}

/// [`check`] with a budget of search steps for each key.
pub fn check_within(history: &History, steps_max: u64) -> Report {
    let keys = history.by_key();
    Report { keys: keys.iter().map(|(key, operations)| (key.to_vec(), check_key(operations, steps_max))).collect() }
}

/// The verdict on the operations of one key, which are in the order of their calls.
pub fn check_key(operations: &[&Operation], steps_max: u64) -> Verdict {
    let illegal = match zone::check(operations) {
        Some(Ok(())) => return Verdict::Ok,
        Some(Err(_)) => explain::explain_zones(operations),
        None => match search(operations, steps_max) {
            Search::Found(_) => return Verdict::Ok,
            Search::Exhausted => return Verdict::Exhausted,
            Search::Stuck { order, stuck } => explain::explain(operations, order, stuck),
        },
    };
    Verdict::Illegal(Box::new(illegal))
}

/// [`wgl::search`] over one key; places are those in `operations`.
pub fn search(operations: &[&Operation], steps_max: u64) -> Search {
    search_within(operations, &mut steps_max.clone())
}

fn search_within(operations: &[&Operation], steps_left: &mut u64) -> Search {
    let places: Vec<usize> = (0..operations.len()).filter(|place| !operations[*place].is_void()).collect();
    let alike = alike(operations);
    let timed: Vec<Timed<'_, Operation>> = places.iter().map(|place| timed(&alike[*place])).collect();
    let original = |order: Vec<usize>| order.into_iter().map(|at| places[at]).collect();
    match wgl::search::<Register>(&timed, steps_left) {
        Search::Found(order) => Search::Found(original(order)),
        Search::Stuck { order, stuck } => Search::Stuck { order: original(order), stuck: places[stuck] },
        Search::Exhausted => Search::Exhausted,
    }
}

/// Pending puts of values that nobody saw differ in nothing that an answer could tell. Given one value they are twins, of
/// which the search tries the first alone; else it would try every set of them.
fn alike<'a>(operations: &[&'a Operation]) -> Vec<Cow<'a, Operation>> {
    let mut all: Vec<Cow<'a, Operation>> = operations.iter().map(|operation| Cow::Borrowed(*operation)).collect();
    let tells_parts = |operation: &&Operation| matches!(operation.action, Action::Increment(_) | Action::Append(_));
    if operations.iter().any(tells_parts) {
        return all;
    }
    let seen: BTreeSet<&Vec<u8>> = operations.iter().filter_map(|operation| value_told(operation)).collect();
    let mut value: Option<&Vec<u8>> = None;
    for (at, &operation) in operations.iter().enumerate() {
        if let (Action::Put(put), Outcome::Unknown) = (&operation.action, &operation.outcome)
            && !seen.contains(put)
        {
            let value = *value.get_or_insert(put);
            all[at] = Cow::Owned(Operation { action: Action::Put(value.clone()), ..operation.clone() });
        }
    }
    all
}

/// The value that an answer depends on.
fn value_told(operation: &Operation) -> Option<&Vec<u8>> {
    match (&operation.action, &operation.outcome) {
        (_, Outcome::Done(Answer::Value(value))) => value.as_ref(),
        (Action::CompareAndSet { expected, .. }, _) => expected.as_ref(),
        _ => None,
    }
}

fn timed(operation: &Operation) -> Timed<'_, Operation> {
    Timed { call_ns: operation.call_ns, return_ns: operation.return_ns, operation }
}

impl Report {
    pub fn is_ok(&self) -> bool {
        self.keys.values().all(|verdict| *verdict == Verdict::Ok)
    }

    pub fn illegal(&self) -> impl Iterator<Item = (&[u8], &Explanation)> {
        self.keys.iter().filter_map(|(key, verdict)| match verdict {
            Verdict::Illegal(explanation) => Some((key.as_slice(), &**explanation)),
            _ => None,
        })
    }

    /// Keys about which nothing is known.
    pub fn exhausted(&self) -> impl Iterator<Item = &[u8]> {
        let keys = self.keys.iter().filter(|(_, verdict)| **verdict == Verdict::Exhausted);
        keys.map(|(key, _)| key.as_slice())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (illegal, exhausted) = (self.illegal().count(), self.exhausted().count());
        writeln!(f, "{} keys: {illegal} not linearizable, {exhausted} unknown", self.keys.len())?;
        self.illegal().try_for_each(|(_, explanation)| write!(f, "\n{explanation}"))
    }
}
