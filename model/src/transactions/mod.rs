//! Isolation of transactions, in the manner of Elle: lists that are only appended to.
//!
//! Each transaction appends unique numbers to lists and reads lists, and a list that was read tells the order of all appends
//! before it. From that follows what must have come before what: the later of two appends after the earlier one (*ww*), a read
//! after the append that it saw last (*wr*), an append after a read that did not see it (*rw*), and what was called after
//! what returned (*rt*). Serializable means that this has no cycle, and a cycle has a name by what it is made of:
//!
//! ```text
//! G0        ww                                        writes interleave
//! G1c       ww and wr                                 each saw what the other did
//! G-single  one rw beside those                       read skew, lost update
//! G2-item   several rw                                write skew
//! ```
//!
//! With an *rt* in it the same is called `G0-realtime` and so on: the history is serializable and does not look so to its
//! clients. Some anomalies need no cycle: G1a (a read saw what was given up), G1b (a read saw half of a transaction), and
//! answers that fit no order at all. [`check`] finds them; transactions of unknown outcome count when somebody saw them.
//!
//! Missing on purpose: predicates (G2), which lists do not have, and the weaker levels between these.
//!
//! Reference: Kingsbury, Alvaro, "Elle: Inferring Isolation Anomalies from Experimental Observations" (2020).

pub mod check;
mod cycle;
pub mod edn;

pub use check::{Anomaly, check};

use crate::history::text;
use std::fmt;

pub type Key = Vec<u8>;
pub type Element = i64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    pub call_ns: u64,
    /// `None` exactly when the outcome is unknown.
    pub return_ns: Option<u64>,
    pub steps: Vec<Step>,
    pub outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Append {
        key: Key,
        element: Element,
    },
    Read {
        key: Key,
        /// `None` when no answer came.
        list: Option<Vec<Element>>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Committed,
    /// Certainly had no effect and never will.
    Aborted,
    Unknown,
}

impl Step {
    pub fn append(key: &str, element: Element) -> Step {
        Step::Append { key: key.into(), element }
    }

    pub fn read(key: &str, list: &[Element]) -> Step {
        Step::Read { key: key.into(), list: Some(list.to_vec()) }
    }
}

impl Transaction {
    pub fn appends(&self) -> impl DoubleEndedIterator<Item = (&Key, Element)> {
        self.steps.iter().filter_map(|step| match step {
            Step::Append { key, element } => Some((key, *element)),
            Step::Read { .. } => None,
        })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Append { key, element } => write!(f, "append {} {element}", text::shown(key)),
            Step::Read { key, list: Some(list) } => write!(f, "read {} {list:?}", text::shown(key)),
            Step::Read { key, list: None } => write!(f, "read {}", text::shown(key)),
        }
    }
}

impl fmt::Display for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps: Vec<String> = self.steps.iter().map(Step::to_string).collect();
        write!(f, "{}", steps.join(", "))?;
        match self.outcome {
            Outcome::Committed => Ok(()),
            Outcome::Aborted => f.write_str(" (aborted)"),
            Outcome::Unknown => f.write_str(" (unknown)"),
        }
    }
}
