//! What one key does: the specification that the checkers and the property tests share.
//!
//! An entry is absent or holds bytes; empty bytes are a value, not absence. Numbers are text, as Redis keeps them: decimal,
//! signed 64 bits, written in the one way a number is printed ("7", never "07", "+7" or " 7"). Absence counts as 0 for an
//! increment and as nothing for an append. Whatever cannot be done answers [`Answer::Invalid`] and changes nothing.

use crate::history::{Action, Answer, Operation, Outcome};
use crate::linearizability::Specification;

/// The state of one key.
pub type Entry = Option<Vec<u8>>;

/// Carries out `action` and answers as fully as any front end does.
pub fn apply(entry: &mut Entry, action: &Action) -> Answer {
    match action {
        Action::Get => Answer::Value(entry.clone()),
        Action::Put(value) => {
            *entry = Some(value.clone());
            Answer::Written
        }
        Action::Delete => Answer::Deleted(entry.take().is_some()),
        Action::CompareAndSet { expected, new } => {
            let swapped = entry == expected;
            if swapped {
                *entry = Some(new.clone());
            }
            Answer::Swapped(swapped)
        }
        Action::Increment(by) => match number(entry).and_then(|number| number.checked_add(*by)) {
            Some(sum) => {
                *entry = Some(sum.to_string().into_bytes());
                Answer::Number(sum)
            }
            None => Answer::Invalid,
        },
        Action::Append(suffix) => {
            let value = entry.get_or_insert_default();
            value.extend_from_slice(suffix);
            Answer::Length(value.len() as u64)
        }
    }
}

/// The number an entry stands for; none if it is not a number.
pub fn number(entry: &Entry) -> Option<i64> {
    let Some(bytes) = entry else { return Some(0) };
    let text = std::str::from_utf8(bytes).ok()?;
    let number: i64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

/// Whether `recorded` may stand in a history where the specification answers `full`. A front end may say less than the
/// specification: just that the operation was done.
pub fn agrees(full: &Answer, recorded: &Answer) -> bool {
    match recorded {
        Answer::Written => matches!(full, Answer::Written | Answer::Deleted(_) | Answer::Number(_) | Answer::Length(_)),
        _ => full == recorded,
    }
}

/// [`apply`] as the checkers use it. Its operations are those that may have had an effect.
pub struct Register;

impl Specification for Register {
    type State = Entry;
    type Operation = Operation;

    fn initial() -> Entry {
        None
    }

    fn step(entry: &Entry, operation: &Operation) -> Option<Entry> {
        let mut after = entry.clone();
        let full = apply(&mut after, &operation.action);
        match &operation.outcome {
            Outcome::Done(recorded) => agrees(&full, recorded).then_some(after),
            Outcome::Unknown => Some(after),
            Outcome::NotDone => Some(entry.clone()),
        }
    }

    fn is_read(operation: &Operation) -> bool {
        operation.is_read()
    }

    fn is_twin(one: &Operation, other: &Operation) -> bool {
        one.action == other.action
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(actions: &[Action]) -> (Entry, Vec<Answer>) {
        let mut entry = None;
        let answers = actions.iter().map(|action| apply(&mut entry, action)).collect();
        (entry, answers)
    }

    fn bytes(text: &str) -> Vec<u8> {
        text.as_bytes().to_vec()
    }

    #[test]
    fn absence_counts_as_zero_and_as_nothing() {
        assert_eq!(run(&[Action::Increment(5)]), (Some(bytes("5")), vec![Answer::Number(5)]));
        assert_eq!(run(&[Action::Append(bytes("ab"))]), (Some(bytes("ab")), vec![Answer::Length(2)]));
        assert_eq!(run(&[Action::Append(vec![])]), (Some(vec![]), vec![Answer::Length(0)]));
    }

    #[test]
    fn what_is_not_a_number_is_invalid_and_stays() {
        for text in ["", "07", "+7", " 7", "7 ", "-0", "1.0", "x", "9223372036854775808"] {
            let (entry, answers) = run(&[Action::Put(bytes(text)), Action::Increment(1)]);
            assert_eq!(answers[1], Answer::Invalid, "{text:?}");
            assert_eq!(entry, Some(bytes(text)));
        }
        let top = i64::MAX.to_string();
        let (entry, answers) = run(&[Action::Put(bytes(&top)), Action::Increment(1)]);
        assert_eq!((entry, &answers[1]), (Some(bytes(&top)), &Answer::Invalid));
    }

    #[test]
    fn a_swap_needs_the_expected_value() {
        let swap = |expected: Option<&str>, new: &str| Action::CompareAndSet {
            expected: expected.map(bytes),
            new: bytes(new),
        };
        let (entry, answers) = run(&[swap(Some("a"), "b"), swap(None, "c"), swap(None, "d"), swap(Some("c"), "e")]);
        assert_eq!(answers, [false, true, false, true].map(Answer::Swapped));
        assert_eq!(entry, Some(bytes("e")));
    }

    #[test]
    fn a_delete_tells_whether_there_was_something() {
        let (entry, answers) = run(&[Action::Delete, Action::Put(vec![]), Action::Delete]);
        assert_eq!(answers, [Answer::Deleted(false), Answer::Written, Answer::Deleted(true)]);
        assert_eq!(entry, None);
    }
}
