//! When a call tries again, and for how long.

use crate::client::error::{ClientError, Failure, Retry};
use crate::client::limits::{RETRY_PAUSE_MAX, RETRY_PAUSE_MIN};
use crate::protocol::backoff;
use env::{Env, Instant};
use std::time::Duration;

/// The attempts of one call.
pub struct Attempts {
    env: Env,
    deadline: Instant,
    attempt_time: Duration,
    failed: u32,
    /// An earlier attempt may have been carried out.
    pub may_have_happened: bool,
}

impl Attempts {
    pub fn new(env: &Env, call_time: Duration, attempt_time: Duration) -> Attempts {
        let deadline = env.now() + call_time;
        Attempts { env: env.clone(), deadline, attempt_time, failed: 0, may_have_happened: false }
    }

    /// The same time, for a part of the call that is tried for itself.
    pub fn part(&self) -> Attempts {
        Attempts { env: self.env.clone(), failed: 0, may_have_happened: false, ..*self }
    }

    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Until when the next attempt waits for its answer.
    pub fn attempt_deadline(&self) -> Instant {
        let patience = self.attempt_time.saturating_mul(1 << self.failed.min(16));
        self.deadline.min(self.env.now() + patience)
    }

    /// Notes that an attempt failed, and waits for the time of the next; or tells how the call ends.
    pub async fn again(&mut self, failure: Failure) -> Result<(), ClientError> {
        let retry = match failure {
            Failure::Final(error) => return Err(error),
            Failure::Retry(retry) => retry,
        };
        self.may_have_happened |= retry.may_have_happened;
        let pause = pause(self.failed, &retry, self.env.random());
        self.failed = self.failed.saturating_add(1);
        if self.env.now() + pause >= self.deadline {
            return Err(ClientError::Unavailable(retry.reason));
        }
        self.env.sleep(pause).await;
        Ok(())
    }
}

/// Who is told that the region has moved asks at once where to, the first time.
fn pause(failed: u32, retry: &Retry, random: u64) -> Duration {
    if retry.is_elsewhere && failed == 0 {
        return Duration::ZERO;
    }
    backoff::pause(failed, RETRY_PAUSE_MIN, RETRY_PAUSE_MAX, random)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_sent_elsewhere_goes_at_once_the_first_time() {
        let retry = |is_elsewhere| Retry { reason: String::new(), may_have_happened: false, is_elsewhere };
        assert_eq!(pause(0, &retry(true), u64::MAX), Duration::ZERO);
        assert_eq!(pause(0, &retry(false), u64::MAX), RETRY_PAUSE_MIN);
        assert_eq!(pause(1, &retry(true), u64::MAX), 2 * RETRY_PAUSE_MIN);
    }
}
