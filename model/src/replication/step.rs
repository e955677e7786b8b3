//! What may happen next, and what follows from it.

use super::config::{Change, Config, NodeId, Nodes};
use super::state::{Ack, Age, EPOCHS_MAX, Leading, NODES_MAX, Phase, Promise, Released, Role, State};
use super::{Scope, Weakness};

/// One event. Each is atomic; what lies between two of them may last any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The primary takes a write.
    Append {
        primary: NodeId,
    },
    /// All that a node has appended is durable.
    Flush {
        node: NodeId,
    },
    /// Primary and follower open a stream: the follower cuts what the primary does not have.
    Match {
        primary: NodeId,
        follower: NodeId,
    },
    /// The follower takes the next entry of the stream.
    Take {
        primary: NodeId,
        follower: NodeId,
    },
    /// The primary hears what the follower has durably.
    Ack {
        primary: NodeId,
        follower: NodeId,
    },
    /// The same from a follower that has left the stream since.
    AckLate {
        primary: NodeId,
        follower: NodeId,
    },
    /// A beacon is sent, and the backup grants it. (A beacon that does not arrive is no step.)
    Beacon {
        primary: NodeId,
        backup: NodeId,
    },
    /// The grant arrives.
    Granted {
        primary: NodeId,
        backup: NodeId,
    },
    /// The backup's grace is over (or it is a primary that restarted): it asks to lead.
    Stand {
        node: NodeId,
    },
    AskDrop {
        primary: NodeId,
        backup: NodeId,
    },
    AskAdmit {
        primary: NodeId,
        learner: NodeId,
    },
    /// A planned hand-over begins.
    Resign {
        primary: NodeId,
        to: NodeId,
    },
    /// The heir hears that the old primary serves no more.
    HearReleased,
    /// The master takes up what a node asked.
    Decide {
        asker: NodeId,
    },
    AddLearner {
        node: NodeId,
    },
    /// A node hears what the master decided and persists the epoch.
    Learn {
        node: NodeId,
        epoch: u8,
    },
    /// A node loses its memory and keeps so many entries, at least the durable ones.
    Crash {
        node: NodeId,
        kept: u8,
    },
    Restart {
        node: NodeId,
    },
    /// True time goes on, and these clocks run fast meanwhile.
    Tick {
        fast: Nodes,
    },
}

impl Scope {
    /// Everything that may happen in `state`.
    pub fn steps(&self, state: &State, steps: &mut Vec<Step>) {
        for node in self.node_ids() {
            self.steps_of(state, node, steps);
            for other in self.node_ids().filter(|&other| other != node) {
                self.steps_between(state, node, other, steps);
            }
        }
        if let Some(released) = state.released
            && state.node(released.to).follows(released.by, released.epoch)
        {
            steps.push(Step::HearReleased);
        }
        self.ticks(state, steps);
    }

    fn steps_of(&self, state: &State, id: NodeId, steps: &mut Vec<Step>) {
        let node = state.node(id);
        if matches!(node.role, Role::Down) {
            return steps.push(Step::Restart { node: id });
        }
        if let Some(leading) = node.leading()
            && leading.phase == Phase::Serving
            && state.writes < self.writes
        {
            steps.push(Step::Append { primary: id });
        }
        if node.durable < node.log.len() {
            steps.push(Step::Flush { node: id });
        }
        if self.is_weak(Weakness::PrimaryDropsItself) {
            self.questions(state, id, id, steps);
        }
        if self.may_stand(state, id) {
            steps.push(Step::Stand { node: id });
        }
        if state.master.epoch < self.epochs {
            if state.asks[id as usize].is_some() {
                steps.push(Step::Decide { asker: id });
            }
            if !state.master.members().contains(id) {
                steps.push(Step::AddLearner { node: id });
            }
        }
        for epoch in node.epoch.max(1)..=state.master.epoch {
            let is_news = epoch > node.epoch || matches!(node.role, Role::Idle);
            if is_news && state.decided[epoch as usize].epoch == epoch {
                steps.push(Step::Learn { node: id, epoch });
            }
        }
        if state.crashes < self.crashes && !matches!(node.role, Role::Idle) {
            steps.extend((node.durable..=node.log.len()).map(|kept| Step::Crash { node: id, kept }));
        }
    }

    /// What happens between a primary and another node.
    fn steps_between(&self, state: &State, primary: NodeId, other: NodeId, steps: &mut Vec<Step>) {
        let (node, follower) = (state.node(primary), state.node(other));
        let Some(leading) = node.leading() else { return };
        let known = &leading.followers[other as usize];
        let epoch = leading.config.epoch;
        let is_stream = known.streaming && follower.is_streaming() && follower.follows(primary, epoch);
        if !is_stream && follower.follows(primary, epoch) && leading.config.members().contains(other) {
            steps.push(Step::Match { primary, follower: other });
        }
        let hears_anybody = self.is_weak(Weakness::BackupIgnoresEpoch) && follower.following().is_some();
        let is_heard = is_stream || (hears_anybody && known.streaming);
        if is_heard && follower.log.len() < node.log.len() {
            steps.push(Step::Take { primary, follower: other });
        }
        if is_stream && known.acked < self.acknowledgeable(state, other) {
            steps.push(Step::Ack { primary, follower: other });
        }
        if known.streaming && state.late_acks[other as usize].is_some_and(|ack| ack.epoch == epoch) {
            steps.push(Step::AckLate { primary, follower: other });
        }
        if self.commits_with(primary, leading).contains(other)
            && follower.follows(primary, epoch)
            && follower.promise.passive
        {
            steps.push(Step::Beacon { primary, backup: other });
        }
        if known.grant.is_some() {
            steps.push(Step::Granted { primary, backup: other });
        }
        self.questions(state, primary, other, steps);
    }

    /// What a primary may ask the master about another node.
    fn questions(&self, state: &State, primary: NodeId, other: NodeId, steps: &mut Vec<Step>) {
        let node = state.node(primary);
        let Some(leading) = node.leading().filter(|leading| leading.asked.is_none()) else { return };
        if leading.config.epoch != state.master.epoch || leading.config.epoch >= self.epochs {
            return;
        }
        if leading.config.in_sync.contains(other) {
            steps.push(Step::AskDrop { primary, backup: other });
            if leading.phase == Phase::Serving && self.hands_over {
                steps.push(Step::Resign { primary, to: other });
            }
        }
        let known = &leading.followers[other as usize];
        let holds_all = known.acked >= leading.committed || self.is_weak(Weakness::LearnerJoinsEarly);
        if leading.phase == Phase::Serving && leading.config.learners.contains(other) && known.streaming && holds_all {
            steps.push(Step::AskAdmit { primary, learner: other });
        }
    }

    fn may_stand(&self, state: &State, id: NodeId) -> bool {
        let node = state.node(id);
        let Some(config) = node.following() else { return false };
        if config.epoch != state.master.epoch || config.epoch >= self.epochs || state.asks[id as usize].is_some() {
            return false;
        }
        let is_over = node.promise.heard >= self.grace() && node.promise.horizon >= self.grace();
        let may = match self.weakness {
            Some(Weakness::AnyoneLeads) => is_over || !config.in_sync.contains(id),
            Some(Weakness::LongestLogLeads) => {
                let longest = self.node_ids().all(|other| state.node(other).log.len() <= node.log.len());
                longest && (is_over || !config.in_sync.contains(id))
            }
            _ => is_over && config.in_sync.contains(id),
        };
        may || config.primary == id
    }

    /// Clocks without a running timer are left out: how they tick changes nothing.
    fn ticks(&self, state: &State, steps: &mut Vec<Step>) {
        let running = self.node_ids().filter(|&node| self.has_timer(state, node));
        let running = running.fold(Nodes::default(), Nodes::with);
        if running.is_empty() {
            return;
        }
        if self.timing.fast == self.timing.slow {
            return steps.push(Step::Tick { fast: Nodes::default() });
        }
        let subsets = (0..1u8 << self.nodes).map(Nodes::from_bits);
        steps.extend(subsets.filter(|fast| fast.is_within(running)).map(|fast| Step::Tick { fast }));
    }

    fn has_timer(&self, state: &State, id: NodeId) -> bool {
        let node = state.node(id);
        let waits = node.promise.heard < self.grace() || node.promise.horizon < self.grace();
        let holds = node.leading().is_some_and(|leading| {
            let mut followers = leading.followers.iter();
            followers.any(|follower| follower.lease < self.timing.lease || follower.grant.is_some())
        });
        waits || holds
    }

    /// What follows from `step` in `state`.
    pub fn after(&self, state: &State, step: Step) -> State {
        let mut after = *state;
        self.apply(&mut after, step);
        self.forget(&mut after);
        after
    }

    fn apply(&self, state: &mut State, step: Step) {
        match step {
            Step::Append { primary } => {
                state.writes += 1;
                let node = state.node_mut(primary);
                node.log.push(node.epoch);
            }
            Step::Flush { node } => {
                state.node_mut(node).durable = state.node(node).log.len();
                self.advance(state, node);
            }
            Step::Match { primary, follower } => self.open_stream(state, primary, follower),
            Step::Take { primary, follower } => {
                let log = state.node(primary).log;
                state.node_mut(follower).take(&log);
            }
            Step::Ack { primary, follower } => {
                let durable = self.acknowledgeable(state, follower);
                self.acked(state, primary, follower, durable);
            }
            Step::AckLate { primary, follower } => {
                let ack = state.late_acks[follower as usize].take().expect("there is one when this is possible");
                self.acked(state, primary, follower, ack.durable);
            }
            Step::Beacon { primary, backup } => {
                let promise = &mut state.node_mut(backup).promise;
                (promise.heard, promise.granted) = (0, true);
                leading_mut(state, primary).followers[backup as usize].grant = Some(0);
            }
            Step::Granted { primary, backup } => self.granted(state, primary, backup),
            Step::Stand { node } => {
                if !self.is_weak(Weakness::CandidateGrants) {
                    state.node_mut(node).promise.passive = false;
                }
                state.asks[node as usize] = Some(Change::Promote { candidate: node });
            }
            Step::AskDrop { primary, backup } => self.ask(state, primary, Change::Drop { by: primary, backup }),
            Step::AskAdmit { primary, learner } => {
                if !self.is_weak(Weakness::LearnerNotWaitedFor) {
                    // It cannot stand before a whole grace period after it has learned that it joined.
                    let known = &mut leading_mut(state, primary).followers[learner as usize];
                    known.lease = 0;
                }
                self.ask(state, primary, Change::Admit { by: primary, learner });
            }
            Step::Resign { primary, to } => {
                leading_mut(state, primary).phase = Phase::Resigning { to };
                self.advance(state, primary);
            }
            Step::HearReleased => {
                let released = state.released.take().expect("it is there when this is possible");
                let promise = &mut state.node_mut(released.to).promise;
                (promise.granted, promise.passive) = (false, false);
            }
            Step::Decide { asker } => {
                let change = state.asks[asker as usize].expect("there is one when this is possible");
                self.decide(state, change);
            }
            Step::AddLearner { node } => self.decide(state, Change::AddLearner { node }),
            Step::Learn { node, epoch } => self.adopt(state, node, state.decided[epoch as usize]),
            Step::Crash { node, kept } => self.crash(state, node, kept),
            Step::Restart { node } => {
                let node = state.node_mut(node);
                node.role = Role::Idle;
                node.promise.horizon = 0;
            }
            Step::Tick { fast } => self.tick(state, fast),
        }
    }

    // ---- the log ----

    fn open_stream(&self, state: &mut State, primary: NodeId, follower: NodeId) {
        let log = state.node(primary).log;
        let node = state.node_mut(follower);
        let common = node.log.common(&log);
        node.log.cut(common);
        node.durable = node.durable.min(common);
        node.set_streaming(true);
        state.late_acks[follower as usize] = None;
        let known = &mut leading_mut(state, primary).followers[follower as usize];
        (known.streaming, known.acked) = (true, 0);
        self.advance(state, primary);
    }

    fn acknowledgeable(&self, state: &State, follower: NodeId) -> u8 {
        let node = state.node(follower);
        if self.is_weak(Weakness::AckBeforeFlush) { node.log.len() } else { node.durable }
    }

    fn acked(&self, state: &mut State, primary: NodeId, follower: NodeId, durable: u8) {
        let head = state.node(primary).log.len();
        leading_mut(state, primary).followers[follower as usize].acked = durable.min(head);
        self.advance(state, primary);
    }

    /// The other nodes without which nothing is committed, and of which a lease is needed.
    pub fn commits_with(&self, primary: NodeId, leading: &Leading) -> Nodes {
        let mut with = leading.config.in_sync.without(primary);
        if let (Some(learner), false) = (leading.joining(), self.is_weak(Weakness::LearnerNotWaitedFor)) {
            with = with.with(learner);
        }
        if let (Some(Change::Drop { backup, .. }), true) = (leading.asked, self.is_weak(Weakness::CommitsWithoutAsking))
        {
            with = with.without(backup);
        }
        with
    }

    /// What follows for a primary from what it knows.
    fn advance(&self, state: &mut State, primary: NodeId) {
        if state.node(primary).leading().is_none() {
            return;
        }
        self.commit(state, primary);
        self.serve(state, primary);
        self.resign(state, primary);
    }

    fn commit(&self, state: &mut State, primary: NodeId) {
        let everywhere = self.durable_everywhere(state, primary);
        let committed = state.node(primary).log.prefix(everywhere);
        let leading = leading_mut(state, primary);
        if everywhere <= leading.committed {
            return;
        }
        leading.committed = everywhere;
        let is_answered = !matches!(leading.phase, Phase::Reconciling { .. });
        if state.committed.is_prefix_of(&committed) {
            state.committed = committed;
        } else if !committed.is_prefix_of(&state.committed) {
            state.diverged = true;
        }
        if is_answered {
            answered(state, everywhere);
        }
    }

    fn durable_everywhere(&self, state: &State, primary: NodeId) -> u8 {
        let (node, leading) = (state.node(primary), leading(state, primary));
        let with = self.commits_with(primary, leading);
        let acked = |backup: NodeId| leading.followers[backup as usize].acked;
        if self.is_weak(Weakness::MajorityCommits) {
            let mut all: Vec<u8> = with.iter().map(acked).chain([node.durable]).collect();
            all.sort_unstable_by(|one, other| other.cmp(one));
            return all[all.len() / 2];
        }
        with.iter().map(acked).fold(node.durable, u8::min)
    }

    /// Reconciled: everybody holds what the new primary held, and what it granted to others has ended.
    fn serve(&self, state: &mut State, primary: NodeId) {
        let (node, leading) = (state.node(primary), leading(state, primary));
        let Phase::Reconciling { until } = leading.phase else { return };
        let is_level = |backup: NodeId| {
            let known = &leading.followers[backup as usize];
            known.streaming && known.acked >= until
        };
        let reconciled = leading.committed >= until && self.commits_with(primary, leading).iter().all(is_level);
        let is_free = node.promise.horizon >= self.grace();
        if (reconciled || self.is_weak(Weakness::ServesUnreconciled)) && is_free {
            answered(state, leading.committed);
            leading_mut(state, primary).phase = Phase::Serving;
        }
    }

    /// A hand-over waits until all is committed; then the old primary stops for good and asks.
    fn resign(&self, state: &mut State, primary: NodeId) {
        let (node, leading) = (state.node(primary), leading(state, primary));
        let Phase::Resigning { to } = leading.phase else { return };
        if leading.asked.is_some() || leading.committed < node.log.len() {
            return;
        }
        state.released = Some(Released { epoch: node.epoch, by: primary, to });
        if !self.is_weak(Weakness::HandOverKeepsLease) {
            let lapsed = self.timing.lease;
            for follower in &mut leading_mut(state, primary).followers {
                (follower.lease, follower.grant) = (lapsed, None);
            }
        }
        self.ask(state, primary, Change::HandOver { by: primary, to });
    }

    // ---- leases ----

    fn granted(&self, state: &mut State, primary: NodeId, backup: NodeId) {
        let from_receipt = self.is_weak(Weakness::LeaseFromReceipt);
        let known = &mut leading_mut(state, primary).followers[backup as usize];
        let age = known.grant.take().expect("there is one when this is possible");
        known.lease = known.lease.min(if from_receipt { 0 } else { age });
    }

    fn tick(&self, state: &mut State, fast: Nodes) {
        for id in self.node_ids() {
            let by = if fast.contains(id) { self.timing.fast } else { self.timing.slow };
            let node = state.node_mut(id);
            let promise = &mut node.promise;
            promise.heard = (promise.heard + by).min(self.grace());
            promise.horizon = (promise.horizon + by).min(self.grace());
            if let Some(leading) = node.leading_mut() {
                self.age(leading, by);
                self.advance(state, id);
            }
        }
    }

    /// What is older than a lease grants nothing any more.
    fn age(&self, leading: &mut Leading, by: Age) {
        for follower in &mut leading.followers {
            follower.lease = (follower.lease + by).min(self.timing.lease);
            follower.grant = follower.grant.map(|age| age + by).filter(|&age| age < self.timing.lease);
        }
    }

    // ---- configurations ----

    fn ask(&self, state: &mut State, asker: NodeId, change: Change) {
        let leading = leading_mut(state, asker);
        leading.asked = Some(change);
        if leading.config.epoch == state.master.epoch {
            state.asks[asker as usize] = Some(change);
        }
        self.advance(state, asker);
    }

    fn decide(&self, state: &mut State, change: Change) {
        let Some(next) = state.master.change(change, self.weakness) else { return };
        state.usurped |= !state.master.in_sync.contains(next.primary);
        state.master = next;
        state.decided[next.epoch as usize] = next;
        state.asks = [None; NODES_MAX];
    }

    /// A node takes up a configuration; its epoch is persisted first.
    fn adopt(&self, state: &mut State, me: NodeId, config: Config) {
        let is_newer = config.epoch > state.node(me).epoch;
        let leads = config.primary == me && is_newer;
        self.leave_stream(state, me);
        let weak = self.is_weak(Weakness::CandidateGrants);
        let node = state.node_mut(me);
        node.epoch = config.epoch;
        let old = node.promise;
        node.promise = Promise {
            passive: config.in_sync.contains(me) && config.primary != me,
            heard: 0,
            granted: false,
            horizon: if old.granted && !weak { old.horizon.min(old.heard) } else { old.horizon },
        };
        match node.role {
            _ if !leads => node.role = Role::Following { config, streaming: false },
            Role::Leading(_) => self.keep_lead(state, me, config),
            _ => self.take_lead(state, me, config),
        }
    }

    fn take_lead(&self, state: &mut State, me: NodeId, config: Config) {
        let node = state.node_mut(me);
        if self.is_weak(Weakness::DropsUncommitted) {
            node.log.cut(0);
        }
        node.durable = node.log.len();
        node.role = Role::Leading(self.new_leading(config, Phase::Reconciling { until: node.log.len() }));
        self.advance(state, me);
    }

    /// What followers acknowledged stands; the streams begin anew, and leases of those that stay go on.
    fn keep_lead(&self, state: &mut State, me: NodeId, config: Config) {
        let fresh = self.new_follower();
        let leading = leading_mut(state, me);
        leading.config = config;
        leading.asked = None;
        if let Phase::Resigning { .. } = leading.phase {
            leading.phase = Phase::Serving;
        }
        for (id, follower) in leading.followers.iter_mut().enumerate() {
            follower.streaming = false;
            follower.grant = None;
            if !config.members().contains(id as NodeId) {
                *follower = fresh;
            } else if !config.in_sync.contains(id as NodeId) {
                follower.lease = fresh.lease;
            }
        }
        self.advance(state, me);
    }

    /// What a follower has acknowledged stays on its way to the primary.
    fn leave_stream(&self, state: &mut State, me: NodeId) {
        let node = state.node(me);
        if node.is_streaming() {
            state.late_acks[me as usize] = Some(Ack { epoch: node.epoch, durable: self.acknowledgeable(state, me) });
        }
    }

    // ---- crashes ----

    fn crash(&self, state: &mut State, me: NodeId, kept: u8) {
        state.crashes += 1;
        self.leave_stream(state, me);
        let grace = self.grace();
        let node = state.node_mut(me);
        node.log.cut(kept);
        node.durable = kept;
        node.promise = Promise { passive: false, heard: grace, granted: false, horizon: grace };
        node.role = Role::Down;
    }

    // ---- what can make no difference any more ----

    /// Makes states equal that differ in nothing that can still matter.
    pub(super) fn forget(&self, state: &mut State) {
        // From the last crash on, a follower's slow flush is like a slow acknowledgement.
        let crashes_are_over = state.crashes == self.crashes;
        for id in self.node_ids() {
            self.forget_late(state, id);
            let grace = self.grace();
            let node = state.node_mut(id);
            if crashes_are_over && node.leading().is_none() {
                node.durable = node.log.len();
            }
            if node.promise.granted && !self.hands_over {
                node.promise.horizon = grace;
            }
            let counts = node.following().is_some_and(|config| config.in_sync.contains(id));
            if !counts {
                node.promise.heard = grace;
            }
        }
        let is_over = |released: &Released| !state.node(released.to).follows(released.by, released.epoch);
        if state.released.as_ref().is_some_and(is_over) && !self.may_follow_later(state) {
            state.released = None;
        }
        self.forget_decided(state);
    }

    /// The heir of a hand-over may have to hear of that epoch first.
    fn may_follow_later(&self, state: &State) -> bool {
        state.released.is_some_and(|released| {
            let heir = state.node(released.to);
            heir.epoch < released.epoch || (heir.epoch == released.epoch && heir.following().is_none())
        })
    }

    fn forget_late(&self, state: &mut State, id: NodeId) {
        let is_awaited = |ack: &Ack| {
            let mut leaders = state.nodes.iter().filter_map(|node| node.leading());
            leaders.any(|leading| {
                let known = &leading.followers[id as usize];
                leading.config.epoch == ack.epoch && known.streaming && known.acked < ack.durable
            })
        };
        state.late_acks[id as usize] = state.late_acks[id as usize].filter(is_awaited);
    }

    /// A node that restarted, or still may, has to hear of its own epoch again.
    fn forget_decided(&self, state: &mut State) {
        let oldest = |id: NodeId| {
            let node = state.node(id);
            let is_told = matches!(node.role, Role::Following { .. } | Role::Leading(_));
            node.epoch + u8::from(is_told && state.crashes == self.crashes)
        };
        let oldest = self.node_ids().map(oldest).min().expect("a scope has nodes");
        for epoch in 0..usize::from(oldest).min(EPOCHS_MAX + 1) {
            state.decided[epoch] = Config::default();
        }
    }
}

fn leading(state: &State, primary: NodeId) -> &Leading {
    state.node(primary).leading().expect("it leads where this is called")
}

fn leading_mut(state: &mut State, primary: NodeId) -> &mut Leading {
    state.node_mut(primary).leading_mut().expect("it leads where this is called")
}

/// A client was told of the first `len` entries, or may read them from now on.
fn answered(state: &mut State, len: u8) {
    state.answered = state.answered.max(len.min(state.committed.len()));
}
