//! What makes a repeated write safe: each write request to a region has a number in a session, and the region's servers
//! answer a number that they know with the outcome that it had.
//!
//! ```text
//! number   1   2   3   4   5   6
//!          ended   │   ended   │
//!                  ▼           ▼
//!               floor = 3     the next to be given
//! ```
//!
//! A request tells the **floor**: no number below it will ever be sent again, so its outcome may be forgotten, and a copy of it
//! that is still under way somewhere is refused. A number has ended once its caller has its outcome, or has been told that
//! nobody knows it; it is never sent again after that.

use crate::client::limits::SESSION_WINDOW_MAX;
use crate::protocol::RequestId;
use crate::region::RegionId;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The sessions of one client, one for each region that it writes to.
#[derive(Clone, Default)]
pub struct Sessions {
    regions: Arc<Mutex<BTreeMap<RegionId, Session>>>,
}

struct Session {
    id: u64,
    last: u64,
    /// Numbers that were given and have not ended.
    running: BTreeSet<u64>,
}

impl Session {
    /// Below it all numbers have ended.
    fn floor(&self) -> u64 {
        self.running.first().copied().unwrap_or(self.last + 1)
    }
}

impl Sessions {
    /// A number for one more write. `random` makes the name of a session, should this begin one.
    pub fn begin(&self, region: RegionId, random: impl Fn() -> u64) -> Ticket {
        let fresh = || Session { id: random(), last: 0, running: BTreeSet::new() };
        let mut regions = self.regions.lock();
        let session = regions.entry(region).or_insert_with(fresh);
        if session.last + 1 - session.floor() >= SESSION_WINDOW_MAX {
            // What still runs in it keeps its numbers, and nobody will ask it for others.
            *session = fresh();
        }
        session.last += 1;
        session.running.insert(session.last);
        let id = RequestId { session: session.id, number: session.last, floor: session.floor() };
        drop(regions);
        Ticket { sessions: self.clone(), region, id }
    }

    fn end(&self, region: RegionId, id: RequestId) {
        if let Some(session) = self.regions.lock().get_mut(&region).filter(|session| session.id == id.session) {
            session.running.remove(&id.number);
        }
    }
}

/// A number while its write may still be sent. Dropping it ends the number.
pub struct Ticket {
    sessions: Sessions,
    region: RegionId,
    id: RequestId,
}

impl Ticket {
    /// The same for each attempt.
    pub fn id(&self) -> RequestId {
        self.id
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.sessions.end(self.region, self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    const R: RegionId = RegionId(1);

    fn names() -> impl Fn() -> u64 {
        let next = AtomicU64::new(100);
        move || next.fetch_add(1, Relaxed)
    }

    #[test]
    fn the_floor_passes_only_what_has_ended() {
        let (sessions, names) = (Sessions::default(), names());
        let begin = || sessions.begin(R, &names);
        let (first, second) = (begin(), begin());
        assert_eq!(first.id(), RequestId { session: 100, number: 1, floor: 1 });
        assert_eq!(second.id(), RequestId { session: 100, number: 2, floor: 1 });
        drop(second);
        let third = begin();
        assert_eq!((third.id().number, third.id().floor), (3, 1), "the first still runs");
        drop(first);
        let fourth = begin();
        assert_eq!((fourth.id().number, fourth.id().floor), (4, 3));
        drop((third, fourth));
        assert_eq!(begin().id(), RequestId { session: 100, number: 5, floor: 5 });
    }

    #[test]
    fn regions_count_apart() {
        let (sessions, names) = (Sessions::default(), names());
        let one = sessions.begin(R, &names);
        let other = sessions.begin(RegionId(2), &names);
        assert_eq!((one.id().session, other.id().session), (100, 101));
        assert_eq!(other.id().number, 1);
    }

    #[test]
    fn a_write_that_does_not_end_does_not_hold_up_the_others() {
        let (sessions, names) = (Sessions::default(), names());
        let stuck = sessions.begin(R, &names);
        for number in 2..=SESSION_WINDOW_MAX {
            assert_eq!(sessions.begin(R, &names).id(), RequestId { session: 100, number, floor: 1 });
        }
        assert_eq!(sessions.begin(R, &names).id(), RequestId { session: 101, number: 1, floor: 1 });
        drop(stuck);
        assert_eq!(sessions.begin(R, &names).id().session, 101, "the old session stays left");
    }
}
