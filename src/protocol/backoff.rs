//! Pauses between attempts.

use std::time::Duration;

/// How long to wait after `failures` and one more: a pause that doubles from `min` to `max`, half of it random, so that those
/// who failed together do not try again together.
pub fn pause(failures: u32, min: Duration, max: Duration, random: u64) -> Duration {
    let pause = min.saturating_mul(1 << failures.min(16)).min(max);
    let half = pause / 2;
    half + half.mul_f64(random as f64 / u64::MAX as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound_and_are_half_random() {
        let (min, max) = (Duration::from_millis(10), Duration::from_secs(1));
        assert_eq!(pause(0, min, max, 0), min / 2);
        assert_eq!(pause(0, min, max, u64::MAX), min);
        assert_eq!(pause(1, min, max, u64::MAX), min * 2);
        assert_eq!(pause(u32::MAX, min, max, u64::MAX), max);
        assert_eq!(pause(u32::MAX, min, max, 0), max / 2);
    }
}
