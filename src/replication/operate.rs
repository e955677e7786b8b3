//! What one write operation does to the value it finds. Pure.

use crate::protocol::{Error, WriteOperation, WriteOutcome};
use bytes::Bytes;

/// What becomes of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Nothing,
    Put { value: Bytes, expiry_ms: Option<u64> },
    Delete,
}

/// Whether the outcome or the effect depends on the value that is there.
pub fn needs_current(operation: &WriteOperation) -> bool {
    !matches!(operation, WriteOperation::Put { .. })
}

/// The effect of `operation` on a key that holds `current`, and what its caller is told.
pub fn apply(operation: &WriteOperation, current: Option<&Bytes>) -> (Effect, WriteOutcome) {
    match operation {
        WriteOperation::Put { value, expiry_ms, .. } => {
            (Effect::Put { value: value.clone(), expiry_ms: *expiry_ms }, WriteOutcome::Done)
        }
        WriteOperation::Delete { .. } => {
            let existed = current.is_some();
            (if existed { Effect::Delete } else { Effect::Nothing }, WriteOutcome::Deleted { existed })
        }
        WriteOperation::CompareAndSet { expected, new, .. } => {
            compare_and_set(expected.as_ref(), new.as_ref(), current)
        }
        WriteOperation::Increment { delta, .. } => increment(*delta, current),
        WriteOperation::Append { suffix, .. } => append(suffix, current),
    }
}

fn put(value: Bytes) -> Effect {
    Effect::Put { value, expiry_ms: None }
}

fn compare_and_set(expected: Option<&Bytes>, new: Option<&Bytes>, current: Option<&Bytes>) -> (Effect, WriteOutcome) {
    if expected != current {
        return (Effect::Nothing, WriteOutcome::Compared { set: false, actual: current.cloned() });
    }
    let effect = match (new, current) {
        (Some(value), _) => put(value.clone()),
        (None, Some(_)) => Effect::Delete,
        (None, None) => Effect::Nothing,
    };
    (effect, WriteOutcome::Compared { set: true, actual: None })
}

fn increment(delta: i64, current: Option<&Bytes>) -> (Effect, WriteOutcome) {
    let old = match current {
        None => Some(0),
        Some(value) => std::str::from_utf8(value).ok().and_then(|text| text.parse::<i64>().ok()),
    };
    match old.map(|old| old.checked_add(delta)) {
        None => refuse("the value is not a decimal 64-bit integer"),
        Some(None) => refuse("the increment would overflow a 64-bit integer"),
        Some(Some(new)) => (put(new.to_string().into()), WriteOutcome::Incremented(new)),
    }
}

fn append(suffix: &Bytes, current: Option<&Bytes>) -> (Effect, WriteOutcome) {
    let old: &[u8] = current.map_or(&[], |value| value);
    let len = old.len() + suffix.len();
    if len > storage::limits::VALUE_BYTES_MAX {
        return refuse(&format!("the value would have {len} bytes; the most is {}", storage::limits::VALUE_BYTES_MAX));
    }
    (put([old, suffix].concat().into()), WriteOutcome::Appended { len: len as u64 })
}

fn refuse(message: &str) -> (Effect, WriteOutcome) {
    (Effect::Nothing, WriteOutcome::Refused(Error::invalid(message)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn b(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    #[test]
    fn increments_count_from_zero_and_refuse_what_is_no_number() {
        let one = WriteOperation::Increment { key: b("k"), delta: 1 };
        assert_eq!(apply(&one, None), (put(b("1")), WriteOutcome::Incremented(1)));
        assert_eq!(apply(&one, Some(&b("-1"))), (put(b("0")), WriteOutcome::Incremented(0)));
        for bad in ["x", "", " 1", "9223372036854775807"] {
            let (effect, outcome) = apply(&one, Some(&b(bad)));
            assert_eq!(effect, Effect::Nothing);
            assert!(matches!(outcome, WriteOutcome::Refused(_)), "{bad}");
        }
    }

    #[test]
    fn compare_and_set_tells_what_is_there() {
        let cas = |expected, new| WriteOperation::CompareAndSet { key: b("k"), expected, new };
        let set = WriteOutcome::Compared { set: true, actual: None };
        assert_eq!(apply(&cas(None, Some(b("v"))), None), (put(b("v")), set.clone()));
        assert_eq!(apply(&cas(Some(b("v")), None), Some(&b("v"))), (Effect::Delete, set.clone()));
        assert_eq!(apply(&cas(None, None), None), (Effect::Nothing, set));
        let actual = WriteOutcome::Compared { set: false, actual: Some(b("w")) };
        assert_eq!(apply(&cas(Some(b("v")), Some(b("x"))), Some(&b("w"))), (Effect::Nothing, actual));
    }

    #[test]
    fn a_delete_of_nothing_writes_nothing() {
        let delete = WriteOperation::Delete { key: b("k") };
        assert_eq!(apply(&delete, None), (Effect::Nothing, WriteOutcome::Deleted { existed: false }));
        assert_eq!(apply(&delete, Some(&b(""))), (Effect::Delete, WriteOutcome::Deleted { existed: true }));
    }
}
