//! What a table does whose values may end at a time: [`crate::map`] with a clock.
//!
//! An expiry is an absolute wall time in milliseconds. Everything is judged by the region's time, which is the latest wall
//! time that any operation was carried out at: when a clock is set back, or another server with a slower one takes over, it
//! stands still. So what was once seen to be gone is gone for good. An entry is gone from its very expiry on, and an expiry
//! that has passed already deletes.
//!
//! A put decides anew, and forgets the old expiry; what changes a value in place (increment, append, swap) keeps it, as
//! Redis does. All that is not said here is [`crate::register`].

use crate::history::{Action, Answer};
use crate::register;
use std::collections::BTreeMap;

/// A table whose entries may expire.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expiring {
    entries: BTreeMap<Vec<u8>, Held>,
    region_time_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    value: Vec<u8>,
    expiry_ms: Option<u64>,
}

/// What a key has to say about its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// There is no such key.
    Absent,
    Never,
    At(u64),
}

impl Expiring {
    pub fn new() -> Expiring {
        Expiring::default()
    }

    /// Carries out `action` at the wall time `wall_ms` of the server that is asked.
    pub fn apply(&mut self, wall_ms: u64, key: &[u8], action: &Action) -> Answer {
        self.pass(wall_ms);
        let old = self.entries.remove(key);
        let expiry_ms = old.as_ref().and_then(|held| held.expiry_ms).filter(|_| !matches!(action, Action::Put(_)));
        let mut entry = old.map(|held| held.value);
        let answer = register::apply(&mut entry, action);
        if let Some(value) = entry {
            self.entries.insert(key.to_vec(), Held { value, expiry_ms });
        }
        answer
    }

    /// Puts a value that is gone at `expiry_ms`.
    pub fn put_until(&mut self, wall_ms: u64, key: &[u8], value: &[u8], expiry_ms: u64) {
        self.pass(wall_ms);
        self.entries.insert(key.to_vec(), Held { value: value.to_vec(), expiry_ms: Some(expiry_ms) });
        self.pass(wall_ms);
    }

    /// Sets or (`None`) takes away the expiry of a key that is there; false if it is not.
    pub fn expire(&mut self, wall_ms: u64, key: &[u8], expiry_ms: Option<u64>) -> bool {
        self.pass(wall_ms);
        let Some(held) = self.entries.get_mut(key) else { return false };
        held.expiry_ms = expiry_ms;
        self.pass(wall_ms);
        true
    }

    pub fn expiry(&mut self, wall_ms: u64, key: &[u8]) -> Expiry {
        self.pass(wall_ms);
        match self.entries.get(key).map(|held| held.expiry_ms) {
            None => Expiry::Absent,
            Some(None) => Expiry::Never,
            Some(Some(expiry_ms)) => Expiry::At(expiry_ms),
        }
    }

    /// What is there, in the byte order of the keys.
    pub fn entries(&mut self, wall_ms: u64) -> impl DoubleEndedIterator<Item = (&[u8], &[u8])> {
        self.pass(wall_ms);
        self.entries.iter().map(|(key, held)| (key.as_slice(), held.value.as_slice()))
    }

    fn pass(&mut self, wall_ms: u64) {
        self.region_time_ms = self.region_time_ms.max(wall_ms);
        let now_ms = self.region_time_ms;
        self.entries.retain(|_, held| held.expiry_ms.is_none_or(|expiry_ms| now_ms < expiry_ms));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: Action = Action::Get;

    fn value(text: &str) -> Answer {
        Answer::Value(Some(text.as_bytes().to_vec()))
    }

    #[test]
    fn a_value_is_gone_from_its_expiry_on() {
        let mut table = Expiring::new();
        table.put_until(10, b"k", b"v", 20);
        assert_eq!(table.apply(19, b"k", &GET), value("v"));
        assert_eq!(table.expiry(19, b"k"), Expiry::At(20));
        assert_eq!(table.apply(20, b"k", &GET), Answer::Value(None));
        assert_eq!(table.expiry(20, b"k"), Expiry::Absent);
    }

    #[test]
    fn a_clock_that_is_set_back_brings_nothing_back() {
        let mut table = Expiring::new();
        table.put_until(10, b"k", b"v", 20);
        assert_eq!(table.apply(20, b"other", &GET), Answer::Value(None));
        assert_eq!(table.apply(5, b"k", &GET), Answer::Value(None));
        table.put_until(5, b"k", b"w", 15);
        assert_eq!(table.apply(5, b"k", &GET), Answer::Value(None), "the region's time is 20");
    }

    #[test]
    fn a_put_forgets_the_expiry_and_a_change_in_place_keeps_it() {
        let mut table = Expiring::new();
        table.put_until(0, b"n", b"1", 20);
        assert_eq!(table.apply(1, b"n", &Action::Increment(1)), Answer::Number(2));
        assert_eq!(table.apply(1, b"n", &Action::Append(b"0".to_vec())), Answer::Length(2));
        assert_eq!(table.expiry(1, b"n"), Expiry::At(20));
        table.apply(1, b"n", &Action::Put(b"x".to_vec()));
        assert_eq!(table.expiry(1, b"n"), Expiry::Never);
        assert_eq!(table.apply(30, b"n", &GET), value("x"));
    }

    #[test]
    fn what_starts_after_the_end_starts_from_nothing() {
        let mut table = Expiring::new();
        table.put_until(0, b"n", b"5", 20);
        assert_eq!(table.apply(20, b"n", &Action::Increment(1)), Answer::Number(1));
        assert_eq!(table.expiry(20, b"n"), Expiry::Never);
        assert_eq!(table.apply(20, b"m", &Action::Delete), Answer::Deleted(false));
    }

    #[test]
    fn an_expiry_in_the_past_deletes() {
        let mut table = Expiring::new();
        table.apply(10, b"k", &Action::Put(b"v".to_vec()));
        assert!(table.expire(10, b"k", Some(10)));
        assert!(!table.expire(10, b"k", None), "it is gone");
        table.apply(10, b"k", &Action::Put(b"v".to_vec()));
        assert!(table.expire(10, b"k", Some(11)) && table.expire(10, b"k", None));
        assert_eq!(table.entries(99).count(), 1);
    }
}
