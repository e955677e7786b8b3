//! How long everything takes, and how the times relate.

use std::time::Duration;

/// The times that leases, failover and retries are built from. All are local monotonic time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Between two beacons to the same server.
    pub beacon: Duration,
    /// How long a granted beacon lets a primary serve reads, from the moment it was sent.
    pub lease: Duration,
    /// How much faster or slower than true time a clock may run, in millionths.
    pub rho_ppm: u64,
    /// Added to the grace period for the granularity of timers.
    pub epsilon: Duration,
    /// A backup that owes an answer for this long is dropped from the in-sync set.
    pub suspect: Duration,
    /// Between two tries of the same question to a follower.
    pub probe_retry: Duration,
    /// Between two tries of the same question to the master group.
    pub ask_retry: Duration,
    /// Between two flushes of a `buffered` table's log.
    pub flush: Duration,
}

impl Timing {
    /// Writes resume about `grace` plus one round trip to the master group after a primary died.
    pub const DEFAULT: Timing = Timing {
        beacon: Duration::from_millis(150),
        lease: Duration::from_millis(1000),
        rho_ppm: 10_000,
        epsilon: Duration::from_millis(100),
        suspect: Duration::from_millis(1200),
        probe_retry: Duration::from_millis(300),
        ask_retry: Duration::from_millis(400),
        flush: Duration::from_millis(100),
    };

    /// How long a backup stays passive after the receipt of a beacon: `lease·(1+ρ)/(1−ρ) + ε`. A lease is counted from a
    /// sending that came before that receipt, so it has ended in true time whichever clock ran fast.
    pub fn grace(&self) -> Duration {
        if env::mutants::active("M03b") {
            return self.lease;
        }
        let lease_us = self.lease.as_micros() as u64;
        let stretched = lease_us * (1_000_000 + self.rho_ppm) / (1_000_000 - self.rho_ppm);
        Duration::from_micros(stretched) + self.epsilon
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grace_outlasts_a_lease_on_the_worst_clocks() {
        let timing = Timing::DEFAULT;
        let rho = timing.rho_ppm as f64 / 1e6;
        // In true time: the slowest holder stretches its lease, the fastest backup shortens its grace.
        let longest_lease = timing.lease.as_secs_f64() / (1.0 - rho);
        let shortest_grace = timing.grace().as_secs_f64() / (1.0 + rho);
        assert!(shortest_grace > longest_lease, "{shortest_grace} {longest_lease}");
    }
}
