//! Linearizability in one sort and one pass, when the store discloses the version behind each answer.
//!
//! A version is the store's own claim about order: (epoch, seqno) of the write, or of the write that a read saw. The claim
//! is an order of all operations, so nothing needs to be searched for; it only has to hold:
//!
//! 1. No two writes to a key have the same version.
//! 2. Versions follow real time: when one operation returned before another was called, the second one's version is not
//!    lower, and if it is a write it is higher.
//! 3. Answers follow from versions: applied in their order the writes give the recorded answers, and a read at a version
//!    answers what the write with that version left.
//!
//! With a version on every answer this is exact. A write of unknown outcome has no version; a read at a version that no
//! acknowledged write has must return what such a write left, and where one of those may lie between two versions the
//! answer of the second is not held against the first. A read of absence may come without a version, because a store does
//! not keep tombstones for ever: it is placed at the lowest version that explains it.

use crate::history::{Action, Answer, History, Operation, Outcome, Version, text};
use crate::linearizability::Specification;
use crate::register::{self, Entry, Register};
use std::collections::BTreeMap;

/// The first contradiction found in a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("key {}: two writes have one version:\n  {one}\n  {other}", text::shown(&one.key))]
    VersionReused { one: Box<Operation>, other: Box<Operation> },
    #[error("key {}: the second was called after the first returned, and goes back before it:\n  {earlier}\n  {later}", text::shown(&later.key))]
    WentBack { earlier: Box<Operation>, later: Box<Operation> },
    #[error("key {}: the key was {} at that version, which does not give this answer:\n  {operation}", text::shown(&operation.key), text::shown_entry(found))]
    WrongAnswer { operation: Box<Operation>, found: Entry },
    #[error("key {}: nobody wrote what was read:\n  {read}", text::shown(&read.key))]
    NobodyWrote { read: Box<Operation> },
    #[error("key {}: absence was read after this, and no delete explains it:\n  {earlier}\n  {read}", text::shown(&read.key))]
    NotAbsent { earlier: Box<Operation>, read: Box<Operation> },
}

/// The first violation of each key that has one.
pub fn check(history: &History) -> Vec<Violation> {
    history.by_key().values().filter_map(|operations| check_key(operations).err()).collect()
}

/// Checks the operations of one key.
pub fn check_key(operations: &[&Operation]) -> Result<(), Violation> {
    let mut key = Key::sort(operations)?;
    key.bind_reads()?;
    key.replay()?;
    key.check_reads()?;
    key.check_time()
}

/// What a version means: the write that has it, or what was read at it when no acknowledged write has it.
enum Origin<'a> {
    Write(&'a Operation),
    Read(&'a Operation),
}

struct Key<'a> {
    /// In any order; nothing void among them.
    operations: Vec<&'a Operation>,
    origins: BTreeMap<Version, Origin<'a>>,
    /// Writes that may have happened at a version nobody told, by call.
    unversioned: Vec<&'a Operation>,
    /// What each version left, where that is known.
    states: BTreeMap<Version, Entry>,
}

impl<'a> Key<'a> {
    fn sort(operations: &[&'a Operation]) -> Result<Key<'a>, Violation> {
        let operations: Vec<&Operation> = operations.iter().copied().filter(|operation| !operation.is_void()).collect();
        let mut origins = BTreeMap::new();
        let mut unversioned = Vec::new();
        for write in operations.iter().copied().filter(|operation| is_write(operation)) {
            let Some(version) = write.version else {
                unversioned.push(write);
                continue;
            };
            if let Some(Origin::Write(one)) = origins.insert(version, Origin::Write(write)) {
                return Err(Violation::VersionReused { one: boxed(one), other: boxed(write) });
            }
        }
        unversioned.sort_by_key(|write| write.call_ns);
        Ok(Key { operations, origins, unversioned, states: BTreeMap::from([(Version::default(), None)]) })
    }

    /// Finds for each version that was only read a write of unknown outcome that can have it. Versions are served by the
    /// first return of their readers, each with the write called first: if any choice works, this one does. A write whose
    /// result depends on what was there before may serve several.
    fn bind_reads(&mut self) -> Result<(), Violation> {
        let mut gets: Vec<&Operation> =
            self.operations.iter().copied().filter(|operation| operation.action == Action::Get).collect();
        gets.sort_by_key(|read| read.return_ns);
        let mut left = self.unversioned.clone();
        for read in gets {
            let Some(version) = read.version.filter(|version| *version != Version::default()) else { continue };
            if self.origins.contains_key(&version) {
                continue;
            }
            let is_called = |write: &Operation| Some(write.call_ns) <= read.return_ns;
            let leaves = |write: &&Operation| is_called(write) && left_by(write).as_ref() == read_entry(read);
            let may_leave = |write: &&Operation| is_called(write) && may_leave(write, read);
            match left.iter().position(leaves) {
                Some(at) => drop(left.remove(at)),
                None if self.unversioned.iter().any(may_leave) => {}
                None => return Err(Violation::NobodyWrote { read: boxed(read) }),
            }
            self.origins.insert(version, Origin::Read(read));
        }
        Ok(())
    }

    /// Applies the writes in the order of their versions.
    fn replay(&mut self) -> Result<(), Violation> {
        let mut state: Option<Entry> = Some(None);
        for (version, origin) in &self.origins {
            state = match (origin, state) {
                (Origin::Read(read), _) => read_entry(read).cloned(),
                (Origin::Write(write), Some(found)) if !self.may_follow_another(write) => {
                    match Register::step(&found, write) {
                        Some(after) => Some(after),
                        None => return Err(Violation::WrongAnswer { operation: boxed(write), found }),
                    }
                }
                (Origin::Write(write), _) => left_by(write),
            };
            if let Some(state) = &state {
                self.states.insert(*version, state.clone());
            }
        }
        Ok(())
    }

    /// A write of unknown outcome may lie between this one and the version before it.
    fn may_follow_another(&self, write: &Operation) -> bool {
        self.unversioned.first().is_some_and(|first| Some(first.call_ns) <= write.return_ns)
    }

    fn check_reads(&self) -> Result<(), Violation> {
        for read in self.operations.iter().copied().filter(|operation| !is_write(operation)) {
            let Some(version) = read.version else { continue };
            match self.states.get(&version) {
                Some(found) if Register::step(found, read).is_none() => {
                    return Err(Violation::WrongAnswer { operation: boxed(read), found: found.clone() });
                }
                Some(_) => {}
                None if self.origins.contains_key(&version) || !self.unversioned.is_empty() => {}
                None => return Err(Violation::NobodyWrote { read: boxed(read) }),
            }
        }
        Ok(())
    }

    /// Walks through time and keeps the highest version among the operations that have returned.
    fn check_time(&self) -> Result<(), Violation> {
        let mut events: Vec<(u64, bool, usize)> = Vec::with_capacity(2 * self.operations.len());
        for (at, operation) in self.operations.iter().enumerate() {
            if let Some(return_ns) = operation.return_ns {
                events.extend([(operation.call_ns, false, at), (return_ns, true, at)]);
            }
        }
        events.sort_unstable();
        let mut highest: Option<(Version, usize)> = None;
        let mut floors: Vec<Option<(Version, usize)>> = vec![None; self.operations.len()];
        for (_, is_return, at) in events {
            match is_return {
                false => floors[at] = highest,
                true => {
                    if let Some(version) = self.placed_at(at, floors[at])? {
                        highest = highest.max(Some((version, at)));
                    }
                }
            }
        }
        Ok(())
    }

    /// The version of an operation, checked against the highest that was known when it was called.
    fn placed_at(&self, at: usize, floor: Option<(Version, usize)>) -> Result<Option<Version>, Violation> {
        let operation = self.operations[at];
        let Some((floor, earlier)) = floor.map(|(version, at)| (version, self.operations[at])) else {
            return Ok(operation.version);
        };
        match operation.version {
            Some(version) if version < floor || version == floor && is_write(operation) => {
                Err(Violation::WentBack { earlier: boxed(earlier), later: boxed(operation) })
            }
            None if read_entry(operation) == Some(&None) => match self.absent_at(operation, floor) {
                Some(version) => Ok(Some(version)),
                None => Err(Violation::NotAbsent { earlier: boxed(earlier), read: boxed(operation) }),
            },
            version => Ok(version),
        }
    }

    /// The lowest version, not below `floor`, at which the key can have been absent for this read.
    fn absent_at(&self, read: &Operation, floor: Version) -> Option<Version> {
        let is_called = |write: &Operation| Some(write.call_ns) <= read.return_ns;
        if self.unversioned.iter().any(|write| write.action == Action::Delete && is_called(write)) {
            return Some(floor);
        }
        let absent = self.states.range(floor..).filter(|(_, state)| state.is_none());
        let explains = |version: &Version| match self.origins.get(version) {
            Some(Origin::Write(write)) => is_called(write),
            Some(Origin::Read(_)) | None => true,
        };
        absent.map(|(version, _)| *version).find(explains)
    }
}

fn boxed(operation: &Operation) -> Box<Operation> {
    Box::new(operation.clone())
}

/// It changed the key, or may have.
fn is_write(operation: &Operation) -> bool {
    !operation.is_read() && operation.outcome != Outcome::Done(Answer::Deleted(false))
}

fn read_entry(operation: &Operation) -> Option<&Entry> {
    match &operation.outcome {
        Outcome::Done(Answer::Value(entry)) => Some(entry),
        _ => None,
    }
}

/// What a write left, as far as that follows from the write alone.
fn left_by(write: &Operation) -> Option<Entry> {
    match (&write.action, &write.outcome) {
        (Action::Put(value), _) => Some(Some(value.clone())),
        (Action::CompareAndSet { new, .. }, _) => Some(Some(new.clone())),
        (Action::Delete, _) => Some(None),
        (Action::Increment(_), Outcome::Done(Answer::Number(number))) => Some(Some(number.to_string().into_bytes())),
        (Action::Increment(_) | Action::Append(_) | Action::Get, _) => None,
    }
}

/// Whether a write whose result depends on what was there can have left what was read.
fn may_leave(write: &Operation, read: &Operation) -> bool {
    let Some(Some(found)) = read_entry(read) else { return false };
    match &write.action {
        Action::Append(suffix) => found.ends_with(suffix),
        Action::Increment(_) => register::number(&Some(found.clone())).is_some(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn version(seqno: u64) -> Option<Version> {
        Some(Version { epoch: 1, seqno })
    }

    /// Client, call, return (0: never), action, answer, seqno (0: none told).
    fn history(lines: &[(u64, u64, u64, Action, Answer, u64)]) -> History {
        let operations = lines.iter().map(|(client, call_ns, return_ns, action, answer, seqno)| Operation {
            client: *client,
            key: b"k".to_vec(),
            call_ns: *call_ns,
            return_ns: (*return_ns > 0).then_some(*return_ns),
            action: action.clone(),
            outcome: if *return_ns > 0 { Outcome::Done(answer.clone()) } else { Outcome::Unknown },
            version: version(*seqno).filter(|version| version.seqno > 0),
        });
        History::from_operations(operations.collect())
    }

    fn put(value: &str) -> Action {
        Action::Put(value.into())
    }

    fn value(value: &str) -> Answer {
        Answer::Value(Some(value.into()))
    }

    use Answer::Written;

    #[test]
    fn accepts_what_is_right() {
        let good = history(&[
            (1, 1, 5, put("a"), Written, 1),
            (2, 2, 8, Action::Get, value("a"), 1),
            (3, 3, 9, Action::Get, Answer::Value(None), 0),
            (1, 10, 12, Action::Append(b"b".into()), Answer::Length(2), 3),
            (2, 13, 14, Action::Get, value("ab"), 3),
            (1, 15, 0, put("lost"), Written, 0),
            (2, 20, 22, Action::Get, value("lost"), 4),
            (1, 23, 24, Action::Delete, Answer::Deleted(true), 6),
            (2, 25, 26, Action::Get, Answer::Value(None), 0),
            (2, 27, 28, Action::Increment(2), Answer::Number(2), 7),
        ]);
        assert_eq!(check(&good), []);
    }

    #[test]
    fn refuses_a_version_used_twice() {
        let bad = history(&[(1, 1, 5, put("a"), Written, 1), (2, 2, 6, put("b"), Written, 1)]);
        assert!(matches!(check(&bad)[..], [Violation::VersionReused { .. }]));
    }

    #[test]
    fn refuses_a_read_that_goes_back() {
        let bad = history(&[
            (1, 1, 2, put("a"), Written, 1),
            (1, 3, 4, put("b"), Written, 2),
            (2, 5, 6, Action::Get, value("a"), 1),
        ]);
        assert!(matches!(check(&bad)[..], [Violation::WentBack { .. }]));
    }

    #[test]
    fn refuses_a_write_that_is_older_than_what_was_read_before_it() {
        let bad = history(&[
            (1, 1, 20, put("a"), Written, 5),
            (2, 2, 3, Action::Get, value("a"), 5),
            (3, 4, 6, put("b"), Written, 4),
        ]);
        assert!(matches!(check(&bad)[..], [Violation::WentBack { .. }]));
    }

    #[test]
    fn refuses_another_value_at_a_version() {
        let bad = history(&[(1, 1, 2, put("a"), Written, 1), (2, 3, 4, Action::Get, value("b"), 1)]);
        assert!(matches!(check(&bad)[..], [Violation::WrongAnswer { .. }]));
    }

    #[test]
    fn refuses_a_lost_increment() {
        let bad = history(&[
            (1, 1, 2, Action::Increment(1), Answer::Number(1), 1),
            (2, 1, 2, Action::Increment(1), Answer::Number(1), 2),
        ]);
        assert!(matches!(check(&bad)[..], [Violation::WrongAnswer { .. }]));
    }

    #[test]
    fn refuses_a_value_nobody_wrote() {
        let bad = history(&[(1, 1, 0, put("a"), Written, 0), (2, 3, 4, Action::Get, value("b"), 7)]);
        assert!(matches!(check(&bad)[..], [Violation::NobodyWrote { .. }]));
        let too_early = history(&[(2, 3, 4, Action::Get, value("a"), 7), (1, 5, 0, put("a"), Written, 0)]);
        assert!(matches!(check(&too_early)[..], [Violation::NobodyWrote { .. }]));
        let twice = history(&[
            (1, 1, 0, put("a"), Written, 0),
            (2, 3, 4, Action::Get, value("a"), 7),
            (2, 5, 6, Action::Get, value("a"), 8),
        ]);
        assert!(matches!(check(&twice)[..], [Violation::NobodyWrote { .. }]), "one write took effect twice");
    }

    #[test]
    fn refuses_absence_that_nothing_explains() {
        let bad = history(&[(1, 1, 2, put("a"), Written, 1), (2, 3, 4, Action::Get, Answer::Value(None), 0)]);
        assert!(matches!(check(&bad)[..], [Violation::NotAbsent { .. }]));
    }
}
