//! What "exactly once" means.
//!
//! A request carries its session and a number that the client uses once. The first time it is carried out and its answer
//! kept; every later time the kept answer comes back and nothing happens, whichever server is asked and whatever crashed in
//! between. The client says up to where it has seen answers; those may be forgotten, and a retry below that line is told so
//! instead of being carried out again.

use crate::history::{Action, Answer};
use crate::map::Map;
use std::collections::BTreeMap;

/// A table that remembers what it answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sessions {
    map: Map,
    sessions: BTreeMap<u64, Session>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Session {
    /// Requests below this number are over.
    forgotten_below: u64,
    answers: BTreeMap<u64, Answer>,
}

/// The request was answered long ago, and the client had said that it knew. It was not carried out again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("request {number} of session {session} is below {forgotten_below}, where answers are no longer kept")]
pub struct Forgotten {
    pub session: u64,
    pub number: u64,
    pub forgotten_below: u64,
}

impl Sessions {
    pub fn new() -> Sessions {
        Sessions::default()
    }

    pub fn request(&mut self, session: u64, number: u64, key: &[u8], action: &Action) -> Result<Answer, Forgotten> {
        let state = self.sessions.entry(session).or_default();
        if number < state.forgotten_below {
            return Err(Forgotten { session, number, forgotten_below: state.forgotten_below });
        }
        let map = &mut self.map;
        Ok(state.answers.entry(number).or_insert_with(|| map.apply(key, action)).clone())
    }

    /// The client has seen every answer below `number`.
    pub fn forget_below(&mut self, session: u64, number: u64) {
        let state = self.sessions.entry(session).or_default();
        state.forgotten_below = state.forgotten_below.max(number);
        state.answers = state.answers.split_off(&state.forgotten_below);
    }

    pub fn map(&self) -> &Map {
        &self.map
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retry_gets_the_first_answer_and_does_nothing() {
        let mut sessions = Sessions::new();
        let add = Action::Increment(1);
        assert_eq!(sessions.request(7, 1, b"n", &add), Ok(Answer::Number(1)));
        assert_eq!(sessions.request(7, 2, b"n", &add), Ok(Answer::Number(2)));
        assert_eq!(sessions.request(7, 1, b"n", &add), Ok(Answer::Number(1)));
        assert_eq!(sessions.request(8, 1, b"n", &add), Ok(Answer::Number(3)));
        assert_eq!(sessions.map().get(b"n"), Some(&b"3"[..]));
    }

    #[test]
    fn a_late_number_is_still_carried_out_once() {
        let mut sessions = Sessions::new();
        let add = Action::Increment(1);
        assert_eq!(sessions.request(7, 9, b"n", &add), Ok(Answer::Number(1)));
        assert_eq!(sessions.request(7, 3, b"n", &add), Ok(Answer::Number(2)));
        assert_eq!(sessions.request(7, 3, b"n", &add), Ok(Answer::Number(2)));
    }

    #[test]
    fn a_forgotten_request_is_refused_and_not_repeated() {
        let mut sessions = Sessions::new();
        let add = Action::Increment(1);
        sessions.request(7, 1, b"n", &add).unwrap();
        sessions.forget_below(7, 2);
        let refused = sessions.request(7, 1, b"n", &add);
        assert_eq!(refused, Err(Forgotten { session: 7, number: 1, forgotten_below: 2 }));
        assert_eq!(sessions.map().get(b"n"), Some(&b"1"[..]));
        sessions.forget_below(7, 1);
        assert!(sessions.request(7, 1, b"n", &add).is_err(), "the line never moves back");
    }
}
