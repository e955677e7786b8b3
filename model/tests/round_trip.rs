//! What is written can be read back, whatever the bytes.

use model::history::{Form, edn, porcupine};
use model::{Action, Answer, History, Operation, Outcome, Version};
use proptest::prelude::*;

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        any::<i64>().prop_map(|number| number.to_string().into_bytes()),
        "[ -~\u{e9}\u{4e2d}]{0,12}".prop_map(String::into_bytes),
        "hex:[0-9a-f]{0,4}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..12),
    ]
}

fn action_and_answer() -> impl Strategy<Value = (Action, Answer)> {
    let entry = || prop::option::of(bytes());
    prop_oneof![
        entry().prop_map(|entry| (Action::Get, Answer::Value(entry))),
        bytes().prop_map(|value| (Action::Put(value), Answer::Written)),
        prop_oneof![Just(Answer::Written), any::<bool>().prop_map(Answer::Deleted)]
            .prop_map(|answer| (Action::Delete, answer)),
        (entry(), bytes(), any::<bool>())
            .prop_map(|(expected, new, swapped)| (Action::CompareAndSet { expected, new }, Answer::Swapped(swapped))),
        (
            any::<i64>(),
            prop_oneof![any::<i64>().prop_map(Answer::Number), Just(Answer::Written), Just(Answer::Invalid)]
        )
            .prop_map(|(by, answer)| (Action::Increment(by), answer)),
        (bytes(), prop_oneof![(0..1u64 << 40).prop_map(Answer::Length), Just(Answer::Written), Just(Answer::Invalid)])
            .prop_map(|(suffix, answer)| (Action::Append(suffix), answer)),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    let version = prop::option::of((any::<u32>(), any::<u32>()));
    (0..4u64, bytes(), 0..200u64, 0..50u64, action_and_answer(), 0..6, version).prop_map(
        |(client, key, call_ns, length_ns, (action, answer), outcome, version)| {
            let outcome = match outcome {
                0 => Outcome::Unknown,
                1 => Outcome::NotDone,
                _ => Outcome::Done(answer),
            };
            let return_ns = (outcome != Outcome::Unknown).then_some(call_ns + length_ns);
            let version = version
                .filter(|_| matches!(outcome, Outcome::Done(_)))
                .map(|(epoch, seqno)| Version { epoch: epoch.into(), seqno: seqno.into() });
            Operation { client, key, call_ns, return_ns, action, outcome, version }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn a_history_survives_both_forms(operations in prop::collection::vec(operation(), 0..20)) {
        let history = History::from_operations(operations);
        let mut written = Vec::new();
        edn::write(&history, Form::Register, &mut written).unwrap();
        prop_assert_eq!(&edn::read(std::str::from_utf8(&written).unwrap()).unwrap(), &history);
        let mut written = Vec::new();
        porcupine::write(&history, &mut written).unwrap();
        prop_assert_eq!(&porcupine::read(std::str::from_utf8(&written).unwrap()).unwrap(), &history);
    }

    #[test]
    fn text_that_is_no_history_is_an_error_and_not_a_panic(text in "[\\[\\]{}:;\"#_a-z0-9 \n\\\\]{0,60}") {
        let _ = edn::read(&text);
        let _ = porcupine::read(&text);
    }
}
