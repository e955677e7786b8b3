//! Who may answer reads: leases between pairs of servers.
//!
//! ```text
//! primary A                         backup B
//!    | beacon n, claims (R, epoch)     |      A notes when it SENT beacon n
//!    |-------------------------------->|      B knows (R, epoch) and A as its primary, and is passive:
//!    |                                 |        it stays so for `grace` from this RECEIPT
//!    | ack n, refused []               |
//!    |<--------------------------------|
//!    | A may serve R until sent + lease, as far as B is concerned
//! ```
//!
//! To serve reads a primary needs that from every replica it commits with. A backup whose grace has passed stops granting
//! (it is a candidate: every later claim of that epoch is refused) and only then asks to lead; so the old lease has ended
//! before another primary can exist. Whatever it granted to others at earlier epochs is kept as a horizon: a new primary
//! serves nothing before its own horizon has passed. A server that restarts has forgotten what it granted, and takes its
//! start as the last grant of all.
//!
//! One book per server; it is pure, and the same for all of its regions, so that there is one beacon for a pair of servers
//! however many regions they share.

use crate::region::{Epoch, RegionId, ServerId};
use crate::replication::Timing;
use crate::replication::message::{Beacon, BeaconAck};
use env::Instant;
use std::collections::BTreeMap;

/// All that a server holds and has granted.
pub struct LeaseBook {
    timing: Timing,
    started: Instant,
    claims: BTreeMap<RegionId, Claim>,
    promises: BTreeMap<RegionId, Promise>,
    sent: BTreeMap<ServerId, Sent>,
    /// The number before that of the first beacon to each server.
    numbers_from: u64,
}

/// A region that this server leads.
struct Claim {
    epoch: Epoch,
    /// When the last beacon that each replica granted was sent.
    granted: BTreeMap<ServerId, Option<Instant>>,
}

/// A region of which this server is a backup, or was.
struct Promise {
    epoch: Epoch,
    primary: Option<ServerId>,
    /// False for a candidate, a primary, and a replica that is not in sync: they grant nothing.
    passive: bool,
    /// When the last claim of this epoch was granted, or the epoch was learned.
    heard: Instant,
    granted: bool,
    /// The last grant to another server at any earlier epoch.
    horizon: Instant,
}

/// Beacons to one server that are not answered yet.
struct Sent {
    number: u64,
    waiting: BTreeMap<u64, (Instant, Vec<(RegionId, Epoch)>)>,
}

/// More unanswered beacons than a lease can span are forgotten, oldest first.
const WAITING_MAX: usize = 64;

impl LeaseBook {
    /// `random` is another one in each run of a server: an answer is known by its beacon's number alone, and one to a beacon
    /// of an earlier run, which may come late, must not pass for an answer to one of this.
    pub fn new(timing: Timing, random: u64, now: Instant) -> LeaseBook {
        LeaseBook {
            timing,
            started: now,
            claims: BTreeMap::new(),
            promises: BTreeMap::new(),
            sent: BTreeMap::new(),
            // So low that numbers do not run out.
            numbers_from: random / 2,
        }
    }

    // ---- as a primary ----

    /// From now on this server claims `region` at `epoch` from each of `replicas`, the others it commits with, and from
    /// `joining`, which it is about to ask the master group to admit.
    ///
    /// What was granted to this server at an older epoch that it led without a break still stands: a replica that takes up
    /// the next epoch under the same primary begins a new grace period, so it stands later, never earlier. And one that is
    /// to join cannot stand before a whole grace period after it has learned that it did, which is later than now.
    pub fn claim(
        &mut self,
        region: RegionId,
        epoch: Epoch,
        replicas: impl IntoIterator<Item = ServerId>,
        joining: Option<ServerId>,
        now: Instant,
    ) {
        let old = self.claims.remove(&region).map(|claim| claim.granted).unwrap_or_default();
        let kept = |server| old.get(&server).copied().flatten();
        let mut granted: BTreeMap<ServerId, Option<Instant>> =
            replicas.into_iter().map(|server| (server, kept(server))).collect();
        if let Some(joining) = joining {
            granted.insert(joining, kept(joining).or(Some(now)));
        }
        self.claims.insert(region, Claim { epoch, granted });
    }

    /// This server no longer leads `region`; what it held is void at once.
    pub fn disclaim(&mut self, region: RegionId) {
        self.claims.remove(&region);
    }

    /// Whether reads of `region` may be answered at this instant.
    pub fn holds(&self, region: RegionId, epoch: Epoch, now: Instant) -> bool {
        self.claims.get(&region).is_some_and(|claim| {
            claim.epoch == epoch
                && claim.granted.values().all(|granted| granted.is_some_and(|sent| now < sent + self.timing.lease))
        })
    }

    /// Replicas from which nothing has been granted for at least `limit`, given that the claim stands since `since`.
    pub fn silent(&self, region: RegionId, since: Instant, limit: std::time::Duration, now: Instant) -> Vec<ServerId> {
        let silent = |granted: &Option<Instant>| now.since(granted.unwrap_or(since).max(since)) >= limit;
        self.claims.get(&region).map_or_else(Vec::new, |claim| {
            claim.granted.iter().filter(|(_, granted)| silent(granted)).map(|(&server, _)| server).collect()
        })
    }

    /// The beacons due now, one for each server of which something is claimed.
    pub fn beacons(&mut self, now: Instant) -> Vec<(ServerId, Beacon)> {
        let mut claims: BTreeMap<ServerId, Vec<(RegionId, Epoch)>> = BTreeMap::new();
        for (&region, claim) in &self.claims {
            for &server in claim.granted.keys() {
                claims.entry(server).or_default().push((region, claim.epoch));
            }
        }
        claims.into_iter().map(|(server, claims)| (server, self.beacon(server, claims, now))).collect()
    }

    fn beacon(&mut self, to: ServerId, claims: Vec<(RegionId, Epoch)>, now: Instant) -> Beacon {
        let number = self.numbers_from;
        let sent = self.sent.entry(to).or_insert_with(|| Sent { number, waiting: BTreeMap::new() });
        sent.number += 1;
        sent.waiting.insert(sent.number, (now, claims.clone()));
        if sent.waiting.len() > WAITING_MAX {
            sent.waiting.pop_first();
        }
        Beacon { number: sent.number, claims }
    }

    /// A backup answered. Its grants count from the sending of the beacon it answers.
    pub fn acked(&mut self, from: ServerId, ack: &BeaconAck, now: Instant) {
        let Some((sent_at, claims)) = self.sent.get_mut(&from).and_then(|sent| sent.waiting.remove(&ack.number)) else {
            return;
        };
        let counted_from = if env::mutants::active("M03") { now } else { sent_at };
        for (region, epoch) in claims {
            if ack.refused.contains(&region) {
                continue;
            }
            let claim = self.claims.get_mut(&region).filter(|claim| claim.epoch == epoch);
            if let Some(granted) = claim.and_then(|claim| claim.granted.get_mut(&from)) {
                *granted = (*granted).max(Some(counted_from));
            }
        }
    }

    // ---- as a backup ----

    /// This server has taken up (and persisted) an epoch of a region: what it granted before becomes the horizon.
    /// `passive` as an in-sync backup.
    pub fn promise(&mut self, region: RegionId, epoch: Epoch, primary: Option<ServerId>, passive: bool, now: Instant) {
        let horizon = self.horizon(region);
        let same = self.promises.get(&region).filter(|promise| promise.epoch == epoch);
        let heard = same.map_or(now, |promise| promise.heard);
        let granted = same.is_some_and(|promise| promise.granted);
        let passive = passive && same.is_none_or(|promise| promise.passive);
        let horizon = if same.is_some() { self.promises[&region].horizon } else { horizon };
        self.promises.insert(region, Promise { epoch, primary, passive, heard, granted, horizon });
    }

    /// The last instant at which this server may have granted `region` to somebody.
    fn horizon(&self, region: RegionId) -> Instant {
        match self.promises.get(&region) {
            None => self.started,
            Some(promise) if promise.granted => promise.horizon.max(promise.heard),
            Some(promise) => promise.horizon,
        }
    }

    /// When everything that this server granted of `region` has ended: a new primary serves from then on.
    pub fn free_from(&self, region: RegionId) -> Instant {
        self.horizon(region) + self.timing.grace()
    }

    /// The primary of this epoch says itself that it has stopped serving: what it was granted is void.
    pub fn released(&mut self, region: RegionId, epoch: Epoch, by: ServerId) {
        if let Some(promise) = self.promises.get_mut(&region)
            && promise.epoch == epoch
            && promise.primary == Some(by)
        {
            promise.granted = false;
            promise.passive = false;
        }
    }

    /// Whether the grace period of an in-sync backup has run out.
    pub fn expired(&self, region: RegionId, epoch: Epoch, now: Instant) -> bool {
        self.promises.get(&region).is_some_and(|promise| {
            promise.epoch == epoch && now >= promise.heard.max(self.horizon(region)) + self.timing.grace()
        })
    }

    /// The grace period ran out and this server is about to ask for the lead: it grants no more of this epoch.
    pub fn stand(&mut self, region: RegionId, epoch: Epoch) {
        if let Some(promise) = self.promises.get_mut(&region).filter(|promise| promise.epoch == epoch) {
            promise.passive = false;
        }
    }

    /// Forgets a region that this server no longer has. Its horizon goes too, so only when it can never lead it again
    /// without a restart of the replica.
    pub fn forget(&mut self, region: RegionId) {
        self.claims.remove(&region);
    }

    /// Answers another server's beacon.
    pub fn heard(&mut self, from: ServerId, beacon: &Beacon, now: Instant) -> BeaconAck {
        let mut refused = Vec::new();
        for &(region, epoch) in &beacon.claims {
            match self.promises.get_mut(&region) {
                Some(promise) if promise.passive && promise.epoch == epoch && promise.primary == Some(from) => {
                    promise.heard = now;
                    promise.granted = true;
                }
                _ => refused.push(region),
            }
        }
        BeaconAck { number: beacon.number, refused }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const A: ServerId = ServerId(1);
    const B: ServerId = ServerId(2);
    const R: RegionId = RegionId(7);

    fn at(ms: u64) -> Instant {
        Instant::from_origin(Duration::from_millis(ms))
    }

    fn book(now: u64) -> LeaseBook {
        LeaseBook::new(Timing::DEFAULT, now * 1000, at(now))
    }

    /// A leads R at epoch 1 and B is its passive backup.
    fn pair() -> (LeaseBook, LeaseBook) {
        let (mut a, mut b) = (book(0), book(0));
        a.claim(R, Epoch(1), [B], None, at(0));
        b.promise(R, Epoch(1), Some(A), true, at(0));
        (a, b)
    }

    /// A's beacon sent at `sent`, heard by B at `heard`, answered to A at `acked`.
    fn exchange(a: &mut LeaseBook, b: &mut LeaseBook, sent: u64, heard: u64, acked: u64) {
        for (to, beacon) in a.beacons(at(sent)) {
            assert_eq!(to, B);
            let ack = b.heard(A, &beacon, at(heard));
            a.acked(B, &ack, at(acked));
        }
    }

    #[test]
    fn a_lease_counts_from_the_sending() {
        let (mut a, mut b) = pair();
        assert!(!a.holds(R, Epoch(1), at(0)), "nothing is granted yet");
        exchange(&mut a, &mut b, 100, 600, 1000);
        assert!(a.holds(R, Epoch(1), at(1099)));
        assert!(!a.holds(R, Epoch(1), at(1100)), "a lease of 1 s ends 1 s after the sending");
    }

    #[test]
    fn a_backup_stands_only_after_every_lease_it_gave_has_ended() {
        let (mut a, mut b) = pair();
        exchange(&mut a, &mut b, 100, 100, 100);
        let grace = Timing::DEFAULT.grace();
        assert!(!b.expired(R, Epoch(1), at(99) + grace));
        assert!(b.expired(R, Epoch(1), at(100) + grace));
        b.stand(R, Epoch(1));
        exchange(&mut a, &mut b, 1500, 1500, 1500);
        assert!(!a.holds(R, Epoch(1), at(1500)), "a candidate grants nothing");
    }

    #[test]
    fn an_answer_to_an_earlier_run_grants_nothing() {
        let (mut a, mut b) = pair();
        let (_, beacon) = a.beacons(at(100)).pop().expect("to B");
        let late = b.heard(A, &beacon, at(100));
        let mut a = {
            drop(a);
            book(200)
        };
        a.claim(R, Epoch(2), [B], None, at(200));
        a.beacons(at(300));
        a.acked(B, &late, at(400));
        assert!(!a.holds(R, Epoch(2), at(400)), "B granted epoch 1 to a run that is over");
    }

    #[test]
    fn a_restarted_backup_takes_its_start_for_the_last_grant() {
        let (mut a, mut b) = pair();
        exchange(&mut a, &mut b, 100, 100, 100);
        let mut b = {
            drop(b);
            book(200)
        };
        b.promise(R, Epoch(2), Some(B), false, at(250));
        assert_eq!(b.free_from(R), at(200) + Timing::DEFAULT.grace());
    }

    #[test]
    fn what_was_granted_at_an_older_epoch_delays_the_next_primary() {
        let (mut a, mut b) = pair();
        exchange(&mut a, &mut b, 5000, 5000, 5000);
        b.promise(R, Epoch(2), Some(B), false, at(5100));
        assert_eq!(b.free_from(R), at(5000) + Timing::DEFAULT.grace());
        b.promise(R, Epoch(3), Some(B), false, at(9000));
        assert_eq!(b.free_from(R), at(5000) + Timing::DEFAULT.grace(), "it granted nothing as a primary");
    }

    #[test]
    fn a_released_lease_delays_nobody() {
        let (mut a, mut b) = pair();
        exchange(&mut a, &mut b, 5000, 5000, 5000);
        b.released(R, Epoch(1), A);
        b.promise(R, Epoch(2), Some(B), false, at(5001));
        assert_eq!(b.free_from(R), at(0) + Timing::DEFAULT.grace());
    }

    #[test]
    fn claims_of_another_epoch_or_by_another_server_are_refused() {
        let (_, mut b) = pair();
        let beacon = |epoch| Beacon { number: 1, claims: vec![(R, Epoch(epoch))] };
        assert_eq!(b.heard(A, &beacon(1), at(1)).refused, []);
        assert_eq!(b.heard(A, &beacon(2), at(1)).refused, [R]);
        assert_eq!(b.heard(ServerId(3), &beacon(1), at(1)).refused, [R]);
    }

    #[test]
    fn a_lease_does_not_outlive_its_claim() {
        let (mut a, mut b) = pair();
        exchange(&mut a, &mut b, 100, 100, 100);
        assert!(!a.holds(R, Epoch(2), at(101)));
        a.disclaim(R);
        a.claim(R, Epoch(2), [B], None, at(101));
        assert!(!a.holds(R, Epoch(2), at(101)), "it led no more in between");
        a.claim(R, Epoch(2), [], None, at(101));
        assert!(a.holds(R, Epoch(2), at(101)), "alone, it needs nobody's word");
    }

    #[test]
    fn a_lease_goes_on_at_the_next_epoch_of_the_same_primary() {
        let (mut a, mut b) = pair();
        exchange(&mut a, &mut b, 100, 100, 100);
        a.claim(R, Epoch(2), [B], None, at(200));
        assert!(a.holds(R, Epoch(2), at(1099)) && !a.holds(R, Epoch(2), at(1100)));
        b.promise(R, Epoch(2), Some(A), true, at(300));
        assert!(!b.expired(R, Epoch(2), at(299) + Timing::DEFAULT.grace()));
    }

    #[test]
    fn a_replica_that_is_to_join_grants_by_not_knowing_it_yet() {
        let mut a = book(0);
        a.claim(R, Epoch(1), [], Some(B), at(500));
        assert!(a.holds(R, Epoch(1), at(1499)) && !a.holds(R, Epoch(1), at(1500)));
        a.claim(R, Epoch(1), [], Some(B), at(900));
        assert!(!a.holds(R, Epoch(1), at(1500)), "asking again grants nothing anew");
        a.claim(R, Epoch(2), [B], None, at(1000));
        assert!(a.holds(R, Epoch(2), at(1499)) && !a.holds(R, Epoch(2), at(1500)));
    }
}
