//! The specifications against each other: where two of them say the same thing, they say it alike, whatever is asked.

use model::expiring::Expiring;
use model::map::Map;
use model::rows::{Column, Rows};
use model::session::Sessions;
use model::{Action, Answer};
use proptest::prelude::*;

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![(0..4u8).prop_map(|digit| digit.to_string().into_bytes()), Just(Vec::new()), Just(b"x".to_vec())]
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        Just(Action::Get),
        bytes().prop_map(Action::Put),
        Just(Action::Delete),
        (prop::option::of(bytes()), bytes()).prop_map(|(expected, new)| Action::CompareAndSet { expected, new }),
        prop_oneof![-2..3i64, Just(i64::MAX)].prop_map(Action::Increment),
        bytes().prop_map(Action::Append),
    ]
}

fn requests() -> impl Strategy<Value = Vec<(Vec<u8>, Action)>> {
    prop::collection::vec(((0..3u8).prop_map(|key| vec![key]), action()), 0..40)
}

fn table(map: &Map) -> Vec<(Vec<u8>, Vec<u8>)> {
    map.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn a_row_of_one_nameless_cell_is_a_plain_value(requests in requests()) {
        let (mut map, mut rows) = (Map::new(), Rows::new());
        let nameless = Column::default();
        for (at, (key, action)) in requests.iter().enumerate() {
            prop_assert_eq!(rows.apply(key, &nameless, action, at as u64), map.apply(key, action));
        }
        let cells = rows.range(..).flat_map(|(key, row)| row.values().map(|cell| (key.to_vec(), cell.value.clone())));
        prop_assert_eq!(cells.collect::<Vec<_>>(), table(&map));
    }

    #[test]
    fn a_table_in_which_nothing_expires_is_a_map(requests in requests(), times in prop::collection::vec(0..100u64, 40)) {
        let (mut map, mut expiring) = (Map::new(), Expiring::new());
        for ((key, action), wall_ms) in requests.iter().zip(times) {
            prop_assert_eq!(expiring.apply(wall_ms, key, action), map.apply(key, action));
        }
        let entries = expiring.entries(u64::MAX).map(|(key, value)| (key.to_vec(), value.to_vec()));
        prop_assert_eq!(entries.collect::<Vec<_>>(), table(&map));
    }

    /// Taking away what has ended before each request, by hand, is the same as expiry.
    #[test]
    fn expiry_is_a_delete_in_time(
        requests in prop::collection::vec((0..3u8, action(), 0..60u64, prop::option::of(0..60u64)), 0..40),
    ) {
        let (mut map, mut expiring) = (Map::new(), Expiring::new());
        let mut ends: [Option<u64>; 3] = [None; 3];
        let mut now_ms = 0;
        for (key, action, wall_ms, expiry_ms) in requests {
            now_ms = now_ms.max(wall_ms);
            let delete_ended = |map: &mut Map, ends: &mut [Option<u64>; 3]| {
                for (key, end) in ends.iter_mut().enumerate() {
                    if end.is_some_and(|end| end <= now_ms) {
                        map.delete(&[key as u8]);
                        *end = None;
                    }
                }
            };
            delete_ended(&mut map, &mut ends);
            prop_assert_eq!(expiring.apply(wall_ms, &[key], &action), map.apply(&[key], &action));
            let is_there = map.get(&[key]).is_some();
            if matches!(action, Action::Put(_)) || !is_there {
                ends[usize::from(key)] = None;
            }
            if let Some(expiry_ms) = expiry_ms {
                prop_assert_eq!(expiring.expire(wall_ms, &[key], Some(expiry_ms)), is_there);
                if is_there {
                    ends[usize::from(key)] = Some(expiry_ms);
                }
            }
            delete_ended(&mut map, &mut ends);
            let entries = expiring.entries(wall_ms).map(|(key, value)| (key.to_vec(), value.to_vec()));
            prop_assert_eq!(entries.collect::<Vec<_>>(), table(&map));
        }
    }

    /// However often each request is repeated, and wherever among later ones, it takes effect the first time only.
    #[test]
    fn retries_change_nothing_and_get_the_first_answer(
        requests in requests(),
        retries in prop::collection::vec((0..40usize, 0..40usize), 0..60),
    ) {
        let (mut map, mut sessions) = (Map::new(), Sessions::new());
        let mut answers: Vec<Answer> = Vec::new();
        for (at, (key, action)) in requests.iter().enumerate() {
            let (session, number) = (at as u64 % 3, at as u64);
            answers.push(map.apply(key, action));
            prop_assert_eq!(sessions.request(session, number, key, action), Ok(answers[at].clone()));
            for &(_, earlier) in retries.iter().filter(|(after, earlier)| *after == at && *earlier <= at) {
                let (key, action) = &requests[earlier];
                let again = sessions.request(earlier as u64 % 3, earlier as u64, key, action);
                prop_assert_eq!(again, Ok(answers[earlier].clone()));
            }
        }
        prop_assert_eq!(sessions.map(), &map);
    }
}
