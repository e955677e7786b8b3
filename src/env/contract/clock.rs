//! Promises of [`Clock`](crate::Clock) and [`Rng`](crate::Rng).

use super::{Check, Context, checks, join};
use crate::Elapsed;
use std::future::{pending, ready};
use std::task::Poll;
use std::time::Duration;

pub(super) const CHECKS: &[(&str, Check)] = checks![
    the_clock_never_steps_back,
    a_sleep_is_not_early,
    a_sleep_of_nothing_yields,
    sleeps_pass_side_by_side,
    a_timeout_ends_what_takes_too_long,
    random_numbers_differ,
];

async fn the_clock_never_steps_back(c: Context) {
    let mut last = c.env.now();
    for round in 0..2_000 {
        let now = c.env.now();
        assert!(now >= last, "round {round}: {now:?} after {last:?}");
        last = now;
        if round % 500 == 0 {
            c.env.sleep(Duration::from_millis(1)).await;
        }
    }
    assert!(c.env.clock().wall_ms() > 0, "a wall clock");
}

async fn a_sleep_is_not_early(c: Context) {
    for millis in [1, 2, 5, 20] {
        let before = c.env.now();
        c.env.sleep(Duration::from_millis(millis)).await;
        let slept = c.env.now().since(before);
        assert!(slept >= Duration::from_millis(millis), "slept {slept:?} instead of {millis} ms");
    }
}

async fn a_sleep_of_nothing_yields(c: Context) {
    let mut sleep = c.env.sleep(Duration::ZERO);
    let mut polls = 0;
    std::future::poll_fn(|context| {
        polls += 1;
        sleep.as_mut().poll(context)
    })
    .await;
    assert!(polls > 1, "ready at the first poll");
}

async fn sleeps_pass_side_by_side(c: Context) {
    const EACH: Duration = Duration::from_millis(30);
    let start = c.env.now();
    let tasks = (0..50).map(|_| c.env.spawn("sleep", c.env.sleep(EACH)));
    join(tasks.collect()).await;
    let slept = c.env.now().since(start);
    assert!(slept >= EACH, "slept {slept:?}");
    assert!(slept < EACH * 25, "fifty sleeps of {EACH:?} took {slept:?}");
}

async fn a_timeout_ends_what_takes_too_long(c: Context) {
    let before = c.env.now();
    let limit = Duration::from_millis(5);
    assert_eq!(c.env.timeout(limit, pending::<()>()).await, Err(Elapsed));
    assert!(c.env.now().since(before) >= limit, "gave up early");
    assert_eq!(c.env.timeout(Duration::from_secs(60), ready(1)).await, Ok(1));
    assert_eq!(c.env.timeout(Duration::ZERO, ready(2)).await, Ok(2), "the future wins");
    // Both become ready at one and the same poll: the future wins too.
    let mut polls = 0;
    let second_poll = std::future::poll_fn(|context| {
        polls += 1;
        context.waker().wake_by_ref();
        if polls == 2 { Poll::Ready(3) } else { Poll::Pending }
    });
    assert_eq!(c.env.timeout(Duration::from_secs(60), second_poll).await, Ok(3));
}

async fn random_numbers_differ(c: Context) {
    let drawn: Vec<u64> = (0..1_000).map(|_| c.env.random()).collect();
    let mut distinct = drawn.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), drawn.len(), "a number was drawn twice");
    assert_eq!(drawn.iter().fold(0, |bits, number| bits | number), u64::MAX, "a bit that is never set");
    assert_eq!(drawn.iter().fold(u64::MAX, |bits, number| bits & number), 0, "a bit that is always set");
    for bound in [1, 2, 3, 10, 1 << 40, u64::MAX] {
        for _ in 0..100 {
            let number = c.env.random_below(bound);
            assert!(number < bound, "{number} is not below {bound}");
        }
    }
    assert!((0..200).any(|_| c.env.random_below(3) == 2), "the last number below the bound is never drawn");
}
