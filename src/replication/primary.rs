//! The primary's half of replication, as a pure state machine.
//!
//! It decides which frames go to whom, what is committed, when the region may serve, and what to ask of the master group;
//! its driver does the sending, reading and asking. The life of a primary at one or more consecutive epochs:
//!
//! ```text
//! Reconciling   probe every follower; cut what it has and we lack, stream what it lacks; when every replica of the
//!               in-sync set holds all that we held at the start, all of it is committed. No answer to any client before.
//! Serving       appended frames stream to all; committed = durable on every replica we commit with
//! Resigning     a planned hand-over: nothing new is taken; when all is committed, the lead goes to the chosen backup
//! ```
//!
//! **Whom we commit with**: the in-sync set, and a learner from the moment we ask the master group to admit it. What was
//! asked stays asked until an answer to it or a newer configuration is seen, so that a lost answer never leaves us
//! committing with fewer replicas than the master group believes in.

use crate::region::{Change, RegionConfig, RegionId, Seqno, ServerId};
use crate::replication::message::PeerBody;
use crate::replication::{Timing, limits};
use env::Instant;
use std::collections::BTreeMap;
use std::time::Duration;
use storage::{Mark, Position};

pub struct Primary {
    me: ServerId,
    config: RegionConfig,
    min_in_sync: usize,
    timing: Timing,
    phase: Phase,
    followers: BTreeMap<ServerId, Follower>,
    head: Position,
    /// The end of what is durable here, as the table understands it.
    durable: Mark,
    committed: Seqno,
    asked: Option<Asked>,
    /// Since when this configuration stands.
    since: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Reconciling {
        /// What this log held when it took over: all of it must be committed first.
        until: Seqno,
        /// Older leases have ended by then.
        not_before: Instant,
    },
    Serving,
    Resigning {
        to: ServerId,
    },
}

struct Asked {
    change: Change,
    at: Instant,
}

struct Follower {
    state: FollowerState,
    /// It has this durably, and we hold the same.
    acked: Mark,
    /// The last message from it.
    heard: Instant,
    /// Since when it owes an answer, or has not come nearer to the head.
    owes_since: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FollowerState {
    /// Asked where its log stands.
    Probing { asked: Instant },
    /// The driver looks for the common prefix.
    Matching { stream: u64 },
    Streaming {
        stream: u64,
        /// The first byte it was not sent yet.
        next: Position,
        /// The commit point that it was told.
        told: Seqno,
        /// A piece of a compacted segment is on its way: nothing follows before it is taken.
        waits: bool,
    },
}

/// What was sent to a follower.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// The first byte that was not.
    pub end: Position,
    pub committed: Seqno,
    pub is_piece: bool,
}

/// What the driver does next.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    Send {
        to: ServerId,
        body: PeerBody,
    },
    /// Find the last of `tail` that this log holds, and say so with [`Primary::matched`].
    Match {
        from: ServerId,
        stream: u64,
        tail: Vec<Mark>,
    },
    /// Read frames, or a piece of a compacted segment, from [`Primary::next_for`] on and send them with the commit point,
    /// then say so with [`Primary::streamed`].
    Stream {
        to: ServerId,
    },
    /// Ask the master group.
    Ask(Change),
    /// All up to here is committed: apply it and answer its clients.
    Committed(Seqno),
    /// The region serves from now on.
    Serve,
    /// This server stops serving for good at this epoch; `to` may know.
    Released {
        to: ServerId,
    },
}

impl Primary {
    /// Takes the lead at `config`, whose epoch is persisted. `head` and `durable` are those of the log.
    pub fn new(
        me: ServerId,
        config: RegionConfig,
        min_in_sync: u8,
        timing: Timing,
        log: LogState,
        not_before: Instant,
        now: Instant,
    ) -> Primary {
        assert!(config.is_primary(me), "{me} leads {config:?}");
        let mut primary = Primary {
            me,
            min_in_sync: usize::from(min_in_sync),
            timing,
            phase: Phase::Reconciling { until: log.head.mark.seqno, not_before },
            followers: BTreeMap::new(),
            head: log.head,
            durable: log.durable,
            committed: log.committed,
            asked: None,
            since: now,
            config,
        };
        primary.follow(now);
        primary
    }

    pub fn config(&self) -> &RegionConfig {
        &self.config
    }

    pub fn region(&self) -> RegionId {
        self.config.region
    }

    pub fn phase(&self) -> Phase {
        self.phase
    }

    pub fn committed(&self) -> Seqno {
        self.committed
    }

    /// The last record appended.
    pub fn head(&self) -> Seqno {
        self.head.mark.seqno
    }

    /// The in-sync backup that holds most, among those heard from lately.
    pub fn furthest_backup(&self) -> Option<ServerId> {
        let in_sync = self.config.in_sync.iter().filter_map(|server| self.followers.get_key_value(server));
        in_sync.max_by_key(|(_, follower)| (follower.acked.seqno, follower.heard)).map(|(&server, _)| server)
    }

    /// Since when this configuration stands.
    pub fn since(&self) -> Instant {
        self.since
    }

    /// Every follower has all and nothing is asked for.
    pub fn is_settled(&self) -> bool {
        let level = |follower: &Follower| match follower.state {
            FollowerState::Streaming { told, .. } => follower.acked == self.head.mark && told == self.committed,
            FollowerState::Probing { .. } | FollowerState::Matching { .. } => false,
        };
        self.asked.is_none() && self.config.learners.is_empty() && self.followers.values().all(level)
    }

    /// Enough replicas are in sync for writes to be taken.
    pub fn may_write(&self) -> bool {
        self.config.in_sync.len() >= self.min_in_sync
    }

    /// The other replicas without which nothing is committed, and of which a lease is needed.
    pub fn commits_with(&self) -> Vec<ServerId> {
        self.config.in_sync.iter().copied().filter(|&member| member != self.me).chain(self.joining()).collect()
    }

    /// The learner that the master group was asked to admit.
    pub fn joining(&self) -> Option<ServerId> {
        match self.asked.as_ref()?.change {
            Change::Admit { learner, .. } => Some(learner),
            _ => None,
        }
    }

    /// Frames were appended: `head` is the log's new end.
    pub fn appended(&mut self, head: Position, now: Instant, actions: &mut Vec<Action>) {
        assert!(head.mark.seqno >= self.head.mark.seqno, "the head went back from {:?} to {head:?}", self.head);
        self.head = head;
        self.stream_all(now, actions);
    }

    /// The own log is durable up to here, as the table understands it.
    pub fn durable(&mut self, durable: Mark, now: Instant, actions: &mut Vec<Action>) {
        self.durable = durable;
        self.advance(now, actions);
    }

    /// A follower's message of this epoch.
    pub fn received(&mut self, from: ServerId, body: PeerBody, now: Instant, actions: &mut Vec<Action>) {
        let Some(follower) = self.followers.get_mut(&from) else { return };
        follower.heard = now;
        match body {
            PeerBody::Standing { stream, tail } => {
                follower.state = FollowerState::Matching { stream };
                actions.push(Action::Match { from, stream, tail });
            }
            PeerBody::Ack { stream, durable } => self.acked(from, stream, durable, now, actions),
            PeerBody::Lost { stream } => {
                if follower.state.stream() == Some(stream) {
                    self.probe(from, now, actions);
                }
            }
            PeerBody::Taken { stream } => self.taken(from, stream, now, actions),
            PeerBody::Probe { .. }
            | PeerBody::Resume { .. }
            | PeerBody::Frames { .. }
            | PeerBody::Piece { .. }
            | PeerBody::Stale
            | PeerBody::Released => {}
        }
    }

    /// The driver found the last mark of a follower's tail that this log holds; `None`: not even its commit point, so it
    /// begins anew.
    pub fn matched(
        &mut self,
        from: ServerId,
        stream: u64,
        common: Option<Position>,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let Some(follower) = self.followers.get_mut(&from) else { return };
        if follower.state != (FollowerState::Matching { stream }) {
            return;
        }
        let next = common.unwrap_or(Position::ZERO);
        follower.state = FollowerState::Streaming { stream, next, told: Seqno(0), waits: false };
        follower.acked = Mark::ZERO;
        actions.push(Action::Send { to: from, body: PeerBody::Resume { stream, from: next.mark } });
        self.stream(from, now, actions);
    }

    /// The stream to a follower and the first place that was not sent on it yet; `None` while there is no stream.
    pub fn next_for(&self, to: ServerId) -> Option<(u64, Position)> {
        match self.followers.get(&to)?.state {
            FollowerState::Streaming { stream, next, .. } => Some((stream, next)),
            FollowerState::Probing { .. } | FollowerState::Matching { .. } => None,
        }
    }

    /// The driver sent what follows, and with it the commit point.
    pub fn streamed(&mut self, to: ServerId, stream: u64, sent: Sent, now: Instant, actions: &mut Vec<Action>) {
        if let Some(follower) = self.followers.get_mut(&to)
            && follower.state.stream() == Some(stream)
            && let FollowerState::Streaming { next, told, waits, .. } = &mut follower.state
        {
            (*next, *told, *waits) = (sent.end, sent.committed, sent.is_piece);
            self.stream(to, now, actions);
        }
    }

    /// A follower has the piece that it was sent.
    fn taken(&mut self, from: ServerId, stream: u64, now: Instant, actions: &mut Vec<Action>) {
        let follower = self.followers.get_mut(&from).expect("looked up by the caller");
        if follower.state.stream() == Some(stream)
            && let FollowerState::Streaming { waits, .. } = &mut follower.state
        {
            *waits = false;
            follower.owes_since = None;
            self.stream(from, now, actions);
        }
    }

    /// The driver could not read what the follower needs (the log moved on under it): begin again.
    pub fn stream_failed(&mut self, to: ServerId, now: Instant, actions: &mut Vec<Action>) {
        if self.followers.contains_key(&to) {
            self.probe(to, now, actions);
        }
    }

    /// A newer configuration in which this server still leads (its epoch is persisted).
    pub fn configured(&mut self, config: RegionConfig, now: Instant, actions: &mut Vec<Action>) {
        assert!(config.is_primary(self.me) && config.epoch > self.config.epoch, "{config:?} after {:?}", self.config);
        self.config = config;
        self.asked = None;
        self.since = now;
        if let Phase::Resigning { .. } = self.phase {
            self.phase = Phase::Serving;
        }
        self.follow(now);
        for follower in self.followers.keys().copied().collect::<Vec<_>>() {
            self.probe(follower, now, actions);
        }
        self.advance(now, actions);
    }

    /// The master group refused what was asked, at the epoch at which it was asked.
    pub fn refused(&mut self, change: &Change) {
        if self.asked.as_ref().is_some_and(|asked| asked.change == *change) {
            self.asked = None;
            if let Phase::Resigning { .. } = self.phase {
                self.phase = Phase::Serving;
            }
        }
    }

    /// Begins a planned hand-over; false when this is not the moment for it.
    pub fn hand_over(&mut self, to: ServerId, now: Instant, actions: &mut Vec<Action>) -> bool {
        let ready = self.phase == Phase::Serving && self.asked.is_none() && to != self.me && self.config.is_in_sync(to);
        if ready {
            self.phase = Phase::Resigning { to };
            self.resign(now, actions);
        }
        ready
    }

    /// `silent`: replicas of which the lease has lapsed for longer than a suspect gets.
    pub fn tick(&mut self, silent: &[ServerId], now: Instant, actions: &mut Vec<Action>) {
        for follower in self.followers.keys().copied().collect::<Vec<_>>() {
            self.retry(follower, now, actions);
        }
        self.ask_again(now, actions);
        self.drop_silent(silent, now, actions);
        self.admit(now, actions);
        self.advance(now, actions);
    }

    // ---- followers ----

    fn follow(&mut self, now: Instant) {
        let others: Vec<ServerId> = self.config.others(self.me).collect();
        self.followers.retain(|server, _| others.contains(server));
        for server in others {
            self.followers.entry(server).or_insert(Follower {
                state: FollowerState::Probing { asked: now - Duration::from_secs(3600) },
                acked: Mark::ZERO,
                heard: now,
                owes_since: None,
            });
        }
    }

    fn probe(&mut self, to: ServerId, now: Instant, actions: &mut Vec<Action>) {
        let follower = self.followers.get_mut(&to).expect("probed only while it follows");
        follower.state = FollowerState::Probing { asked: now };
        follower.owes_since.get_or_insert(now);
        actions.push(Action::Send { to, body: PeerBody::Probe { config: self.config.clone() } });
    }

    fn retry(&mut self, to: ServerId, now: Instant, actions: &mut Vec<Action>) {
        let follower = &self.followers[&to];
        match follower.state {
            FollowerState::Probing { asked } if now.since(asked) >= self.timing.probe_retry => {
                self.probe(to, now, actions);
            }
            FollowerState::Streaming { .. } if self.is_stuck(follower, now) || self.is_doubtful(to, now) => {
                self.probe(to, now, actions)
            }
            FollowerState::Streaming { .. } => self.stream(to, now, actions),
            FollowerState::Probing { .. } | FollowerState::Matching { .. } => {}
        }
    }

    /// Frames are on their way to it and it has said nothing for long: they are lost.
    fn is_stuck(&self, follower: &Follower, now: Instant) -> bool {
        follower.owes_since.is_some_and(|since| now.since(since.max(follower.heard)) >= self.timing.probe_retry * 2)
    }

    /// It has all that there is, so that it has nothing to say, and for long it was not the moment to ask for it: whether it
    /// is there still has to be found out, for a region that takes no writes with too few replicas would stay so.
    fn is_doubtful(&self, learner: ServerId, now: Instant) -> bool {
        let follower = &self.followers[&learner];
        self.config.learners.contains(&learner)
            && self.asked.is_none()
            && now.since(follower.heard) >= self.timing.probe_retry * 2
    }

    fn stream_all(&mut self, now: Instant, actions: &mut Vec<Action>) {
        for follower in self.followers.keys().copied().collect::<Vec<_>>() {
            self.stream(follower, now, actions);
        }
    }

    /// Sends what a follower lacks, if it may have more in flight.
    fn stream(&mut self, to: ServerId, now: Instant, actions: &mut Vec<Action>) {
        let (head, committed) = (self.head, self.committed);
        let follower = self.followers.get_mut(&to).expect("streamed to only while it follows");
        let FollowerState::Streaming { next, told, waits: false, .. } = follower.state else { return };
        let in_flight = next.mark.seqno.0.saturating_sub(follower.acked.seqno.0);
        let behind = next.mark.seqno < head.mark.seqno;
        if behind && in_flight < limits::IN_FLIGHT_RECORDS_MAX {
            follower.owes_since.get_or_insert(now);
            actions.push(Action::Stream { to });
        } else if !behind && told < committed {
            actions.push(Action::Stream { to });
        }
    }

    fn acked(&mut self, from: ServerId, stream: u64, durable: Mark, now: Instant, actions: &mut Vec<Action>) {
        let head = self.head.mark.seqno;
        let follower = self.followers.get_mut(&from).expect("looked up by the caller");
        if follower.state.stream() != Some(stream) {
            return;
        }
        assert!(durable.seqno <= head, "server {from} acknowledged {durable}, past the head {head}");
        if durable.seqno > follower.acked.seqno || durable.seqno == head {
            follower.owes_since = (durable.seqno < head).then_some(now);
        }
        follower.acked = durable;
        self.stream(from, now, actions);
        self.advance(now, actions);
    }

    // ---- the commit point ----

    fn advance(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let everywhere = self.durable_everywhere();
        let reconciling = matches!(self.phase, Phase::Reconciling { .. });
        if everywhere > self.committed && (reconciling || self.may_write()) {
            self.committed = everywhere;
            actions.push(Action::Committed(everywhere));
            self.stream_all(now, actions);
        }
        self.serve(now, actions);
        self.resign(now, actions);
    }

    /// The last record that is durable on every replica we commit with.
    fn durable_everywhere(&self) -> Seqno {
        let with = self.commits_with();
        let acked = |server: &ServerId| self.followers.get(server).map_or(Seqno(0), |follower| follower.acked.seqno);
        if env::mutants::active("M05") {
            let mut all: Vec<Seqno> = with.iter().map(acked).chain([self.durable.seqno]).collect();
            all.sort_unstable_by(|a, b| b.cmp(a));
            return all[all.len() / 2];
        }
        with.iter().map(acked).fold(self.durable.seqno, Seqno::min)
    }

    fn serve(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let Phase::Reconciling { until, not_before } = self.phase else { return };
        let reconciled =
            self.committed >= until && self.commits_with().iter().all(|server| self.is_level(*server, until));
        if (reconciled || env::mutants::active("M07")) && now >= not_before {
            self.phase = Phase::Serving;
            actions.push(Action::Serve);
        }
    }

    /// The follower's log is known to be a prefix-equal of ours at least up to `until`.
    fn is_level(&self, server: ServerId, until: Seqno) -> bool {
        self.followers.get(&server).is_some_and(|follower| {
            matches!(follower.state, FollowerState::Streaming { .. }) && follower.acked.seqno >= until
        })
    }

    // ---- the master group ----

    fn ask(&mut self, change: Change, now: Instant, actions: &mut Vec<Action>) {
        self.asked = Some(Asked { change: change.clone(), at: now });
        actions.push(Action::Ask(change));
    }

    fn ask_again(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if let Some(asked) = self.asked.as_mut().filter(|asked| now.since(asked.at) >= self.timing.ask_retry) {
            asked.at = now;
            actions.push(Action::Ask(asked.change.clone()));
        }
    }

    /// Goes on without the replicas that we wait for in vain.
    fn drop_silent(&mut self, silent: &[ServerId], now: Instant, actions: &mut Vec<Action>) {
        if self.asked.is_some() {
            return;
        }
        let late = |server: &ServerId| {
            let owes_since = self.followers.get(server).and_then(|follower| follower.owes_since);
            owes_since.is_some_and(|since| now.since(since.max(self.since)) >= self.timing.suspect)
        };
        let backups: Vec<ServerId> = (self.config.in_sync.iter().copied())
            .filter(|server| *server != self.me && (silent.contains(server) || late(server)))
            .collect();
        if !backups.is_empty() {
            self.ask(Change::Drop { by: self.me, backups }, now, actions);
        }
    }

    /// Asks for a learner that holds all that we hold.
    fn admit(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if self.asked.is_some() || self.phase != Phase::Serving {
            return;
        }
        let head = self.head.mark.seqno.0;
        let ready = self.config.learners.iter().copied().find(|learner| {
            self.followers.get(learner).is_some_and(|follower| {
                matches!(follower.state, FollowerState::Streaming { .. })
                    && now.since(follower.heard) < self.timing.suspect
                    && head.saturating_sub(follower.acked.seqno.0) <= self.admit_lag()
            })
        });
        if let Some(learner) = ready {
            self.ask(Change::Admit { by: self.me, learner }, now, actions);
        }
    }

    /// How many records a learner may lack when we ask for it: what is on its way anyway.
    fn admit_lag(&self) -> u64 {
        self.head.mark.seqno.0 - self.committed.0
    }

    fn resign(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let Phase::Resigning { to } = self.phase else { return };
        if self.asked.is_none() && self.committed == self.head.mark.seqno {
            actions.push(Action::Released { to });
            self.ask(Change::HandOver { by: self.me, to }, now, actions);
        }
    }
}

/// Where a log stands when a server takes the lead.
#[derive(Clone, Copy, Debug)]
pub struct LogState {
    pub head: Position,
    pub durable: Mark,
    pub committed: Seqno,
}

impl FollowerState {
    fn stream(&self) -> Option<u64> {
        match *self {
            FollowerState::Probing { .. } => None,
            FollowerState::Matching { stream } | FollowerState::Streaming { stream, .. } => Some(stream),
        }
    }
}

#[cfg(test)]
mod tests;
