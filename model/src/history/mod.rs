//! What clients asked, when, and what they were told.
//!
//! A harness calls [`History::call`] before it sends a request and [`History::done`], [`History::not_done`] or
//! [`History::unknown`] when it knows what became of it. There are three outcomes because there are three: a lost answer is
//! not a failure. `NotDone` claims that the operation had no effect and never will; where that is not certain the outcome is
//! `Unknown`, and the operation may take effect at any time after its call, or never.
//!
//! Times are nanoseconds on one clock that is right for all clients: the simulator's true time, or one machine's monotonic
//! clock. Intervals are closed: an operation called in the very nanosecond in which another returned is concurrent with it.
//!
//! [`edn`] reads and writes what Jepsen, Knossos and Elle read, [`porcupine`] one operation a line for Porcupine and everything
//! else; [`export()`] is the face for whoever has a history and wants a file.

pub mod edn;
mod export;
pub mod porcupine;
pub(crate) mod syntax;
pub mod text;

pub use edn::Form;
pub use export::{Format, export, export_by_key};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// One request of one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    pub client: u64,
    pub key: Vec<u8>,
    pub call_ns: u64,
    /// `None` exactly when the outcome is unknown.
    pub return_ns: Option<u64>,
    pub action: Action,
    pub outcome: Outcome,
    /// Of a write, the version it was given; of a read, the version it saw. `None` where the store did not say.
    pub version: Option<Version>,
}

/// What was asked, with its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "op", content = "input", rename_all = "snake_case")]
pub enum Action {
    Get,
    Put(#[serde(with = "text")] Vec<u8>),
    Delete,
    /// An `expected` of `None` means: only if absent.
    CompareAndSet {
        #[serde(with = "text::optional")]
        expected: Option<Vec<u8>>,
        #[serde(with = "text")]
        new: Vec<u8>,
    },
    Increment(i64),
    Append(#[serde(with = "text")] Vec<u8>),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", content = "output", rename_all = "snake_case")]
pub enum Outcome {
    Done(Answer),
    /// Certainly had no effect and never will.
    NotDone,
    Unknown,
}

/// What came back from an operation that was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It was done; the answer says no more than that.
    Written,
    Value(#[serde(with = "text::optional")] Option<Vec<u8>>),
    /// Whether there was something to delete.
    Deleted(bool),
    Swapped(bool),
    /// The sum after an increment.
    Number(i64),
    /// Bytes in the value after an append.
    Length(u64),
    /// Refused because of what the key holds; nothing changed.
    Invalid,
}

/// The store's own order of the writes to one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "(u64, u64)", into = "(u64, u64)")]
pub struct Version {
    pub epoch: u64,
    pub seqno: u64,
}

impl From<(u64, u64)> for Version {
    fn from((epoch, seqno): (u64, u64)) -> Version {
        Version { epoch, seqno }
    }
}

impl From<Version> for (u64, u64) {
    fn from(version: Version) -> (u64, u64) {
        (version.epoch, version.seqno)
    }
}

impl Operation {
    /// Tells about the key's state and never changes it, whatever that state is.
    pub fn is_read(&self) -> bool {
        matches!(self.action, Action::Get)
            || matches!(self.outcome, Outcome::Done(Answer::Swapped(false) | Answer::Invalid) | Outcome::NotDone)
    }

    /// Says nothing to a checker: it had no effect, or it was a read whose answer was lost.
    pub fn is_void(&self) -> bool {
        match self.outcome {
            Outcome::Done(_) => false,
            Outcome::NotDone => true,
            Outcome::Unknown => self.action == Action::Get,
        }
    }

    fn assert_consistent(&self) {
        assert_eq!(self.return_ns.is_none(), self.outcome == Outcome::Unknown, "only unknown has no return: {self}");
        assert!(
            self.return_ns.is_none_or(|return_ns| self.call_ns <= return_ns),
            "returned before it was called: {self}"
        );
    }
}

/// A recorded run, in the order of the calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    operations: Vec<Operation>,
}

/// An operation of a [`History`], by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(pub usize);

impl History {
    pub fn new() -> History {
        History::default()
    }

    /// Sorts by call time; operations called in the same nanosecond stay in the given order.
    ///
    /// # Panics
    /// If an operation returned before it was called, or lacks a return although its outcome is known.
    pub fn from_operations(mut operations: Vec<Operation>) -> History {
        operations.iter().for_each(Operation::assert_consistent);
        operations.sort_by_key(|operation| operation.call_ns);
        History { operations }
    }

    /// A request is about to be sent. Until more is known its outcome is unknown.
    ///
    /// # Panics
    /// If `now_ns` lies before the previous call.
    pub fn call(&mut self, client: u64, now_ns: u64, key: impl Into<Vec<u8>>, action: Action) -> OperationId {
        let last = self.operations.last().map_or(0, |operation| operation.call_ns);
        assert!(last <= now_ns, "time ran from {last} back to {now_ns}");
        let outcome = Outcome::Unknown;
        let operation =
            Operation { client, key: key.into(), call_ns: now_ns, return_ns: None, action, outcome, version: None };
        self.operations.push(operation);
        OperationId(self.operations.len() - 1)
    }

    pub fn done(&mut self, id: OperationId, now_ns: u64, answer: Answer, version: Option<Version>) {
        self.settle(id, now_ns, Outcome::Done(answer));
        self.operations[id.0].version = version;
    }

    pub fn not_done(&mut self, id: OperationId, now_ns: u64) {
        self.settle(id, now_ns, Outcome::NotDone);
    }

    /// The client gave up. This is what an operation's outcome is from its call on; saying so makes a harness readable.
    pub fn unknown(&mut self, id: OperationId) {
        assert_eq!(self.operations[id.0].outcome, Outcome::Unknown, "it is known what became of it");
    }

    fn settle(&mut self, id: OperationId, now_ns: u64, outcome: Outcome) {
        let operation = &mut self.operations[id.0];
        assert_eq!(operation.outcome, Outcome::Unknown, "settled twice: {operation}");
        operation.return_ns = Some(now_ns);
        operation.outcome = outcome;
        operation.assert_consistent();
    }

    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    pub fn into_operations(self) -> Vec<Operation> {
        self.operations
    }

    pub fn len(&self) -> usize {
        self.operations.len()
    }

    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// The operations of each key, in the order of their calls.
    pub fn by_key(&self) -> BTreeMap<&[u8], Vec<&Operation>> {
        let mut keys: BTreeMap<&[u8], Vec<&Operation>> = BTreeMap::new();
        for operation in &self.operations {
            keys.entry(&operation.key).or_default().push(operation);
        }
        keys
    }

    /// The part that Knossos' command line can read: it takes one key a file.
    pub fn of_key(&self, key: &[u8]) -> History {
        History { operations: self.operations.iter().filter(|operation| operation.key == key).cloned().collect() }
    }
}

/// A file that is not a history, with the line where that shows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct ParseError {
    pub line: usize,
    pub what: String,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client {} {} {}", self.client, self.action, self.outcome)?;
        if let Some(Version { epoch, seqno }) = self.version {
            write!(f, " at {epoch}/{seqno}")?;
        }
        match self.return_ns {
            Some(return_ns) => write!(f, " [{}..{} ns]", self.call_ns, return_ns),
            None => write!(f, " [{} ns..]", self.call_ns),
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Get => f.write_str("get"),
            Action::Put(value) => write!(f, "put {}", text::shown(value)),
            Action::Delete => f.write_str("delete"),
            Action::CompareAndSet { expected, new } => {
                write!(f, "compare-and-set {} to {}", text::shown_entry(expected), text::shown(new))
            }
            Action::Increment(by) => write!(f, "increment by {by}"),
            Action::Append(suffix) => write!(f, "append {}", text::shown(suffix)),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::NotDone => f.write_str("-> not done"),
            Outcome::Unknown => f.write_str("-> ?"),
            Outcome::Done(answer) => match answer {
                Answer::Written => f.write_str("-> ok"),
                Answer::Value(entry) => write!(f, "-> {}", text::shown_entry(entry)),
                Answer::Deleted(true) => f.write_str("-> deleted"),
                Answer::Deleted(false) => f.write_str("-> was absent"),
                Answer::Swapped(true) => f.write_str("-> swapped"),
                Answer::Swapped(false) => f.write_str("-> not equal"),
                Answer::Number(number) => write!(f, "-> {number}"),
                Answer::Length(length) => write!(f, "-> {length} bytes"),
                Answer::Invalid => f.write_str("-> invalid"),
            },
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.epoch, self.seqno)
    }
}
