//! Random histories: right by construction, and the same with something changed.
#![allow(dead_code)] // Each test binary uses its part.

use model::{Action, Answer, History, Operation, Outcome, Version, register};

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

#[derive(Clone, Copy)]
pub struct Shape {
    pub operations: usize,
    pub clients: u64,
    /// Reads and puts of unique values, with some deletes; otherwise everything, over few values.
    pub register_only: bool,
    pub deletes: bool,
    /// One operation in so many has an unknown outcome, and one in so many was not done.
    pub unknown_in: u64,
    pub not_done_in: u64,
}

/// Operations of one key: each takes effect at one point of its interval, and a version is the count of effects so far.
pub fn linearizable(shape: Shape, random: &mut Random) -> Vec<Operation> {
    let mut points: Vec<(u64, Operation)> = plan(shape, random);
    points.sort_by_key(|(point, operation)| (*point, operation.call_ns, operation.client));
    let (mut entry, mut seqno) = (None, 0);
    let mut operations = Vec::new();
    for (_, mut operation) in points {
        operation.action = action(shape, random, operations.len(), &entry);
        let takes_effect = match operation.outcome {
            Outcome::Done(_) => true,
            Outcome::NotDone => false,
            Outcome::Unknown => random.one_in(2),
        };
        if takes_effect {
            let answer = register::apply(&mut entry, &operation.action);
            let effect =
                !matches!(answer, Answer::Value(_) | Answer::Swapped(false) | Answer::Invalid | Answer::Deleted(false));
            seqno += u64::from(effect);
            if let Outcome::Done(recorded) = &mut operation.outcome {
                // A delete that does not tell whether there was something is a plain write of absence.
                let is_blind = shape.register_only && operation.action == Action::Delete;
                seqno += u64::from(is_blind && !effect);
                operation.version = Some(Version { epoch: u64::from(seqno > 0), seqno });
                *recorded = if is_blind { Answer::Written } else { answer };
            }
        }
        operations.push(operation);
    }
    operations.sort_by_key(|operation| operation.call_ns);
    operations
}

fn plan(shape: Shape, random: &mut Random) -> Vec<(u64, Operation)> {
    let mut idle_at = vec![0; shape.clients as usize];
    let mut points = Vec::new();
    for _ in 0..shape.operations {
        let client = (0..shape.clients).min_by_key(|client| idle_at[*client as usize]).expect("there are clients");
        let call_ns = idle_at[client as usize] + random.between(0, 5);
        let back_ns = call_ns + random.between(0, 30);
        idle_at[client as usize] = back_ns;
        let outcome = match random.next() % 64 {
            _ if random.one_in(shape.unknown_in) => Outcome::Unknown,
            _ if random.one_in(shape.not_done_in) => Outcome::NotDone,
            _ => Outcome::Done(Answer::Written),
        };
        let return_ns = (outcome != Outcome::Unknown).then_some(back_ns);
        let last = if outcome == Outcome::Unknown { back_ns + 100 } else { back_ns };
        let point = random.between(call_ns, last);
        let key = b"k".to_vec();
        points
            .push((point, Operation { client, key, call_ns, return_ns, action: Action::Get, outcome, version: None }));
    }
    points
}

fn action(shape: Shape, random: &mut Random, count: usize, entry: &Option<Vec<u8>>) -> Action {
    let small = |random: &mut Random| random.below(4).to_string().into_bytes();
    if shape.register_only {
        return match random.below(10) {
            0..5 => Action::Get,
            5 if shape.deletes => Action::Delete,
            _ => Action::Put(format!("v{count}").into_bytes()),
        };
    }
    match random.below(10) {
        0..3 => Action::Get,
        3 | 4 => Action::Put(small(random)),
        5 => Action::Delete,
        6 => {
            let expected = if random.one_in(2) { entry.clone() } else { Some(small(random)) };
            Action::CompareAndSet { expected, new: small(random) }
        }
        7 | 8 => Action::Increment(random.between(1, 2) as i64),
        _ => Action::Append(small(random)),
    }
}

/// Changes one thing that may or may not make the history wrong.
pub fn mutate(operations: &mut [Operation], random: &mut Random) {
    if operations.is_empty() {
        return;
    }
    let at = random.below(operations.len() as u64) as usize;
    let other = operations[random.below(operations.len() as u64) as usize].clone();
    let operation = &mut operations[at];
    match (random.below(4), &mut operation.outcome) {
        (0, outcome @ Outcome::Done(_)) => *outcome = Outcome::NotDone,
        (1, _) => {
            // Moves the interval, keeping its length.
            let length = operation.return_ns.map(|return_ns| return_ns - operation.call_ns);
            operation.call_ns = other.call_ns;
            operation.return_ns = length.map(|length| other.call_ns + length);
        }
        (_, Outcome::Done(Answer::Value(entry))) => {
            *entry = match other.action {
                Action::Put(value) => Some(value),
                _ => None,
            }
        }
        (_, Outcome::Done(Answer::Number(number))) => *number += 1,
        (_, Outcome::Done(Answer::Length(length))) => *length += 1,
        (_, Outcome::Done(Answer::Swapped(swapped) | Answer::Deleted(swapped))) => *swapped = !*swapped,
        _ => {}
    }
}

pub fn history(operations: Vec<Operation>) -> History {
    History::from_operations(operations)
}
