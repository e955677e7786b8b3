//! Which requests of which sessions were carried out, and what came of them.
//!
//! A function of the log's session records alone, in log order, so that every primary gives a retry the first answer. It
//! is bounded: of a session that is known, what has to be forgotten is remembered as forgotten.

use crate::ids::Seqno;
use crate::limits::{OUTCOMES_PER_SESSION_MAX, SESSIONS_MAX};
use bytes::Bytes;
use std::collections::BTreeMap;

/// A session is dropped once [`SESSIONS_MAX`] others have written since it did. A retry that comes later than that is taken
/// for new: a client gives up long before so many others have come.
#[derive(Clone, Debug, Default)]
pub struct SessionTable {
    sessions: BTreeMap<u64, Session>,
    /// By the last record of each, to find the one idle for longest.
    by_age: BTreeMap<Seqno, u64>,
    outcome_bytes: usize,
}

#[derive(Clone, Debug, Default)]
struct Session {
    /// Numbers below it are not kept.
    floor: u64,
    /// The record that raised the floor, or if it was raised for want of room the one just below it: without that record
    /// the floor would not be known.
    floor_by: Seqno,
    outcomes: BTreeMap<u64, Outcome>,
    last: Seqno,
}

#[derive(Clone, Debug)]
struct Outcome {
    bytes: Bytes,
    seqno: Seqno,
}

/// What is known of a session's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It was not carried out.
    New,
    /// It was, with this outcome.
    Done(Bytes),
    /// It may have been; its outcome is no longer kept.
    Forgotten,
}

impl SessionTable {
    pub fn check(&self, session: u64, number: u64) -> Seen {
        let Some(known) = self.sessions.get(&session) else { return Seen::New };
        match known.outcomes.get(&number) {
            Some(outcome) => Seen::Done(outcome.bytes.clone()),
            None if number < known.floor => Seen::Forgotten,
            None => Seen::New,
        }
    }

    /// Whether the table would be another without this record of the log.
    pub(crate) fn needs(&self, seqno: Seqno, session: u64, number: u64) -> bool {
        self.sessions.get(&session).is_some_and(|known| {
            let outcome = known.outcomes.get(&number);
            known.last == seqno || known.floor_by == seqno || outcome.is_some_and(|outcome| outcome.seqno == seqno)
        })
    }

    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    pub fn memory_bytes(&self) -> usize {
        let outcomes: usize = self.sessions.values().map(|session| session.outcomes.len()).sum();
        self.outcome_bytes + outcomes * 64 + self.sessions.len() * 128
    }

    pub(crate) fn record(&mut self, seqno: Seqno, session: u64, number: u64, floor: u64, outcome: Bytes) {
        let known = self.sessions.entry(session).or_default();
        self.by_age.remove(&known.last);
        self.by_age.insert(seqno, session);
        known.last = seqno;
        self.outcome_bytes += outcome.len();
        let replaced = known.outcomes.insert(number, Outcome { bytes: outcome, seqno });
        self.outcome_bytes -= replaced.map_or(0, |outcome| outcome.bytes.len());
        if floor > known.floor {
            (known.floor, known.floor_by) = (floor, seqno);
        }
        self.outcome_bytes -= known.forget_below_floor();
        if self.sessions.len() > SESSIONS_MAX {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        let (_, session) = self.by_age.pop_first().expect("one for each session");
        let dropped = self.sessions.remove(&session).expect("held both ways");
        self.outcome_bytes -= dropped.outcomes.values().map(|outcome| outcome.bytes.len()).sum::<usize>();
    }
}

impl Session {
    /// Returns the bytes of outcomes forgotten.
    fn forget_below_floor(&mut self) -> usize {
        if self.outcomes.len() > OUTCOMES_PER_SESSION_MAX {
            let excess = self.outcomes.len() - OUTCOMES_PER_SESSION_MAX;
            let least_kept = *self.outcomes.keys().nth(excess).expect("more than excess");
            if least_kept > self.floor {
                let (_, below) = self.outcomes.range(..least_kept).next_back().expect("the excess");
                (self.floor, self.floor_by) = (least_kept, below.seqno);
            }
        }
        let kept = self.outcomes.split_off(&self.floor);
        std::mem::replace(&mut self.outcomes, kept).values().map(|outcome| outcome.bytes.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(byte: u8) -> Bytes {
        Bytes::from(vec![byte; 3])
    }

    #[test]
    fn a_retry_gets_the_first_answer_until_it_is_no_longer_asked_for() {
        let mut table = SessionTable::default();
        assert_eq!(table.check(1, 1), Seen::New);
        table.record(Seqno(1), 1, 1, 0, outcome(1));
        table.record(Seqno(2), 1, 3, 1, outcome(3));
        assert_eq!(table.check(1, 1), Seen::Done(outcome(1)));
        assert_eq!(table.check(1, 2), Seen::New, "numbers may come out of order");
        table.record(Seqno(3), 1, 4, 3, outcome(4));
        assert_eq!((table.check(1, 1), table.check(1, 2)), (Seen::Forgotten, Seen::Forgotten));
        assert_eq!((table.check(1, 3), table.check(1, 5)), (Seen::Done(outcome(3)), Seen::New));
        assert_eq!(table.outcome_bytes, 6);
    }

    #[test]
    fn too_many_outcomes_are_forgotten_oldest_first_and_never_new_again() {
        let mut table = SessionTable::default();
        let count = OUTCOMES_PER_SESSION_MAX as u64 + 10;
        (1..=count).for_each(|number| table.record(Seqno(number), 1, number, 0, outcome(0)));
        assert_eq!((table.check(1, 10), table.check(1, 11)), (Seen::Forgotten, Seen::Done(outcome(0))));
        assert_eq!(table.outcome_bytes, OUTCOMES_PER_SESSION_MAX * 3);
    }

    #[test]
    fn too_many_sessions_are_dropped_idlest_first() {
        let mut table = SessionTable::default();
        let count = SESSIONS_MAX as u64;
        (1..=count).for_each(|session| table.record(Seqno(session), session, 1, 0, outcome(0)));
        table.record(Seqno(count + 1), 1, 2, 0, outcome(0));
        table.record(Seqno(count + 2), count + 1, 1, 0, outcome(0));
        assert_eq!(table.check(1, 1), Seen::Done(outcome(0)), "it was busy");
        assert_eq!(table.check(2, 1), Seen::New);
        assert_eq!(table.check(3, 1), Seen::Done(outcome(0)));
        assert_eq!(table.check(count + 2, 1), Seen::New);
        assert_eq!(table.len(), SESSIONS_MAX);
    }
}
