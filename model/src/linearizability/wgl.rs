//! Wing and Gong's search for an order, with Lowe's cache of visited configurations.
//!
//! A configuration is the set of placed operations and the state they lead to. From each, every operation that may come
//! next is tried: one that was called before the first return among the operations not yet placed. A configuration that was
//! seen before is not entered again. The history is linearizable when every operation that returned is placed; those of
//! unknown outcome may be placed or left out.
//!
//! Three cuts keep the search small and lose nothing:
//! - A read that the state explains is placed at once and never reconsidered: placing it earlier cannot hurt anyone.
//! - Of several pending operations that do the same, the one called first goes first.
//! - A pending operation that would change nothing here is left for later.
//!
//! The operation that cannot be placed is the one whose return no explored configuration got beyond, so that the history up
//! to just before it is the longest linearizable prefix.
//!
//! References: Wing, Gong, "Testing and verifying concurrent objects" (1993); Lowe, "Testing for linearizability" (2017).

use std::collections::{BTreeMap, BTreeSet};

/// A sequential object: what the operations do when they come one at a time.
pub trait Specification {
    type State: Clone + Ord;
    type Operation;

    fn initial() -> Self::State;
    /// The state after `operation`, or none where its recorded answer is impossible.
    fn step(state: &Self::State, operation: &Self::Operation) -> Option<Self::State>;
    /// It never changes any state.
    fn is_read(operation: &Self::Operation) -> bool;
    /// Two operations of unknown outcome have the same effect in every state.
    fn is_twin(one: &Self::Operation, other: &Self::Operation) -> bool;
}

/// An operation and the closed interval in which it took effect; without a return it may have taken effect any time later,
/// or never.
#[derive(Clone, Copy, Debug)]
pub struct Timed<'a, O> {
    pub call_ns: u64,
    pub return_ns: Option<u64>,
    pub operation: &'a O,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Search {
    /// An order that explains everything, as places in the given slice.
    Found(Vec<usize>),
    /// No order exists. `order` explains as much as can be, `stuck` returned next and cannot be placed.
    Stuck { order: Vec<usize>, stuck: usize },
    /// The step budget ran out.
    Exhausted,
}

/// Looks for an order of `operations`, applying the specification at most `steps_left` times and counting that down.
pub fn search<S: Specification>(operations: &[Timed<'_, S::Operation>], steps_left: &mut u64) -> Search {
    Searcher::<S>::new(operations, steps_left).run()
}

/// Where an operation stands among the candidates: first those that returned, by call; then, from a multiple of 64 on, the
/// pending ones, by call. The numbers between stand for nothing.
type Candidate = usize;

struct Placed {
    candidate: Candidate,
    state_before: u32,
    prefix_before: usize,
    /// Not a choice: undone together with the choice before it.
    forced: bool,
}

struct Searcher<'a, S: Specification> {
    operations: &'a [Timed<'a, S::Operation>],
    /// Candidate → place in `operations`.
    places: Vec<usize>,
    /// Candidates below this returned.
    returned: usize,
    /// Candidates from this on are pending.
    pending: usize,
    /// Candidate → the pending one before it that does the same.
    twins: Vec<Option<Candidate>>,

    placed: Vec<u64>,
    /// All candidates below this are placed; at most `returned`.
    prefix: usize,
    left: usize,
    state: u32,
    stack: Vec<Placed>,

    states: States<S::State>,
    seen: BTreeSet<Box<[u64]>>,
    steps_left: &'a mut u64,
    /// The dead end furthest in time: the return that blocked it, its candidate, and the order that led there.
    furthest: Option<(u64, Candidate, Vec<usize>)>,
}

impl<'a, S: Specification> Searcher<'a, S> {
    fn new(operations: &'a [Timed<'a, S::Operation>], steps_left: &'a mut u64) -> Self {
        let (mut places, mut open): (Vec<usize>, Vec<usize>) =
            (0..operations.len()).partition(|place| operations[*place].return_ns.is_some());
        places.sort_by_key(|place| operations[*place].call_ns);
        open.sort_by_key(|place| operations[*place].call_ns);
        let returned = places.len();
        let pending = returned.next_multiple_of(64);
        places.resize(pending, usize::MAX);
        places.extend(open);
        let mut states = States { ids: BTreeMap::new(), all: Vec::new() };
        let state = states.id(S::initial());
        Searcher {
            operations,
            twins: twins::<S>(operations, &places, pending),
            returned,
            pending,
            placed: vec![0; places.len().div_ceil(64)],
            prefix: 0,
            left: returned,
            state,
            stack: Vec::new(),
            states,
            seen: BTreeSet::new(),
            steps_left,
            furthest: None,
            places,
        }
    }

    fn run(mut self) -> Search {
        self.place_reads();
        let mut from = 0;
        while self.left > 0 {
            let Some(step) = self.next_choice(from) else { return Search::Exhausted };
            from = match step {
                Choice::Place(candidate, state) => {
                    self.place(candidate, state, false);
                    self.place_reads();
                    match self.seen.insert(self.configuration()) {
                        true => 0,
                        false => self.undo().expect("something was just placed"),
                    }
                }
                Choice::DeadEnd { blocker } => {
                    self.note_dead_end(blocker);
                    match self.undo() {
                        Some(from) => from,
                        None => return self.stuck(),
                    }
                }
            };
        }
        Search::Found(self.order())
    }

    /// The first candidate from `from` on that may come next here; none if the budget ran out.
    fn next_choice(&mut self, from: Candidate) -> Option<Choice> {
        let (blocker, horizon) = self.blocker();
        let mut candidate = self.unplaced(from.max(self.prefix));
        while candidate < self.places.len() {
            if self.timed(candidate).call_ns > horizon {
                // The rest of its group was called later still.
                let next_group = if candidate < self.returned { self.pending } else { self.places.len() };
                candidate = self.unplaced(next_group);
                continue;
            }
            *self.steps_left = self.steps_left.checked_sub(1)?;
            if let Some(state) = self.step(candidate) {
                return Some(Choice::Place(candidate, state));
            }
            candidate = self.unplaced(candidate + 1);
        }
        Some(Choice::DeadEnd { blocker })
    }

    /// The state after placing `candidate` next, if that is possible and worth trying.
    fn step(&mut self, candidate: Candidate) -> Option<u32> {
        if self.twins[candidate].is_some_and(|twin| !self.is_placed(twin)) {
            return None;
        }
        let after = S::step(self.states.get(self.state), self.timed(candidate).operation)?;
        let after = self.states.id(after);
        let is_idle = candidate >= self.pending && after == self.state;
        (!is_idle).then_some(after)
    }

    /// The unplaced operation that returned first, and when: nothing called after that may come before it.
    fn blocker(&self) -> (Candidate, u64) {
        let (mut blocker, mut horizon) = (self.returned, u64::MAX);
        let mut candidate = self.unplaced(self.prefix);
        while candidate < self.returned && self.timed(candidate).call_ns <= horizon {
            let return_ns = self.timed(candidate).return_ns.expect("candidates below `returned` returned");
            if return_ns < horizon || blocker == self.returned {
                (blocker, horizon) = (candidate, return_ns);
            }
            candidate = self.unplaced(candidate + 1);
        }
        (blocker, horizon)
    }

    /// Places every read that the state explains; each may let the next ones in.
    fn place_reads(&mut self) {
        loop {
            let before = self.stack.len();
            let (_, horizon) = self.blocker();
            let mut candidate = self.unplaced(self.prefix);
            while candidate < self.returned && self.timed(candidate).call_ns <= horizon {
                let operation = self.timed(candidate).operation;
                if S::is_read(operation) && S::step(self.states.get(self.state), operation).is_some() {
                    self.place(candidate, self.state, true);
                }
                candidate = self.unplaced(candidate + 1);
            }
            if self.stack.len() == before {
                return;
            }
        }
    }

    fn place(&mut self, candidate: Candidate, state: u32, forced: bool) {
        self.stack.push(Placed { candidate, state_before: self.state, prefix_before: self.prefix, forced });
        self.placed[candidate / 64] |= 1 << (candidate % 64);
        self.state = state;
        self.left -= usize::from(candidate < self.returned);
        self.prefix = self.unplaced(self.prefix).min(self.returned);
    }

    /// Takes back the last choice; returns where to go on looking, none when there was no choice left.
    fn undo(&mut self) -> Option<Candidate> {
        loop {
            let last = self.stack.pop()?;
            self.placed[last.candidate / 64] &= !(1 << (last.candidate % 64));
            self.state = last.state_before;
            self.prefix = last.prefix_before;
            self.left += usize::from(last.candidate < self.returned);
            if !last.forced {
                return Some(last.candidate + 1);
            }
        }
    }

    /// What tells this configuration from others: the state, which pending operations are placed, the prefix, and which
    /// operations beyond it are placed.
    fn configuration(&self) -> Box<[u64]> {
        let (returned, pending) = self.placed.split_at(self.pending / 64);
        let beyond = &returned[(self.prefix / 64).min(returned.len())..];
        let beyond = &beyond[..beyond.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1)];
        let mut words = Vec::with_capacity(1 + pending.len() + beyond.len());
        words.push((self.prefix as u64) << 32 | self.state as u64);
        words.extend_from_slice(pending);
        words.extend_from_slice(beyond);
        words.into_boxed_slice()
    }

    fn note_dead_end(&mut self, blocker: Candidate) {
        let (_, horizon) = self.blocker();
        if self.furthest.as_ref().is_none_or(|(furthest, at, _)| (*furthest, *at) < (horizon, blocker)) {
            self.furthest = Some((horizon, blocker, self.order()));
        }
    }

    fn stuck(self) -> Search {
        let (_, blocker, order) = self.furthest.expect("the last choice was a dead end");
        Search::Stuck { order, stuck: self.places[blocker] }
    }

    fn order(&self) -> Vec<usize> {
        self.stack.iter().map(|placed| self.places[placed.candidate]).collect()
    }

    fn timed(&self, candidate: Candidate) -> &Timed<'a, S::Operation> {
        &self.operations[self.places[candidate]]
    }

    fn is_placed(&self, candidate: Candidate) -> bool {
        self.placed[candidate / 64] >> (candidate % 64) & 1 == 1
    }

    /// The first candidate at or after `from` that is not placed; the end of the candidates if there is none.
    fn unplaced(&self, from: Candidate) -> Candidate {
        match self.unset_bit(from) {
            gap if (self.returned..self.pending).contains(&gap) => self.unset_bit(self.pending),
            candidate => candidate,
        }
    }

    fn unset_bit(&self, from: usize) -> usize {
        let count = self.places.len();
        let (mut word, mut skip) = (from / 64, from % 64);
        while word < self.placed.len() {
            let free = !self.placed[word] & (u64::MAX << skip);
            if free != 0 {
                return (word * 64 + free.trailing_zeros() as usize).min(count);
            }
            (word, skip) = (word + 1, 0);
        }
        count
    }
}

enum Choice {
    Place(Candidate, u32),
    DeadEnd { blocker: Candidate },
}

fn twins<S: Specification>(
    operations: &[Timed<'_, S::Operation>],
    places: &[usize],
    pending: Candidate,
) -> Vec<Option<Candidate>> {
    let operation = |candidate: Candidate| operations[places[candidate]].operation;
    let twin =
        |candidate| (pending..candidate).rev().find(|earlier| S::is_twin(operation(*earlier), operation(candidate)));
    (0..places.len()).map(|candidate| if candidate < pending { None } else { twin(candidate) }).collect()
}

/// Every state met, so that a configuration holds a number instead of a value.
struct States<T> {
    ids: BTreeMap<T, u32>,
    all: Vec<T>,
}

impl<T: Clone + Ord> States<T> {
    fn id(&mut self, state: T) -> u32 {
        if let Some(id) = self.ids.get(&state) {
            return *id;
        }
        let id = u32::try_from(self.all.len()).expect("fewer states than steps in the budget");
        self.all.push(state.clone());
        self.ids.insert(state, id);
        id
    }

    fn get(&self, id: u32) -> &T {
        &self.all[id as usize]
    }
}
