use super::super::machine::Machine;
use super::super::types::Membership;
use super::*;
use crate::master::state::Command;
use crate::protocol::message::ClusterId;
use env::sim::{DiskState, Failing, single, single_crashing, single_with};
use openraft::EntryPayload;
use openraft::storage::RaftLogStorage;
use openraft::testing::log::{StoreBuilder, Suite};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

fn log_id(term: u64, index: u64) -> LogId {
    openraft::testing::log_id::<Types>(term, 1, index)
}

/// An entry whose size depends on its place, from a few bytes to some sectors.
fn entry(term: u64, index: u64) -> Entry {
    let address = "x".repeat(1 + (index as usize * 7 + term as usize) % 40 * 40);
    let command = Command::Register { id: None, incarnation: term << 32 | index, address };
    Entry { log_id: log_id(term, index), payload: EntryPayload::Normal(command) }
}

fn vote(term: u64) -> Vote {
    Vote::new(term, 1)
}

/// What a store must say after what was acknowledged.
#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    vote: Option<Vote>,
    purged: Option<LogId>,
    entries: BTreeMap<u64, Entry>,
}

impl Model {
    fn last_index(&self) -> u64 {
        let purged = self.purged.map_or(0, |purged| purged.index);
        self.entries.keys().next_back().copied().unwrap_or(purged)
    }

    async fn of(store: &mut LogStore) -> Model {
        let entries = store.try_get_log_entries(..).await.expect("reads are from memory");
        let purged = store.get_log_state().await.expect("reads are from memory").last_purged_log_id;
        let entries = entries.into_iter().map(|entry| (entry.log_id.index, entry)).collect();
        Model { vote: store.read_vote().await.expect("reads are from memory"), purged, entries }
    }
}

/// One step that Raft may ask for next.
#[derive(Clone, Debug)]
enum Step {
    Append(Vec<Entry>),
    Truncate(LogId),
    Purge(LogId),
    Vote(Vote),
    Committed(LogId),
}

impl Step {
    fn draw(model: &Model, term: u64, env: &Env) -> Step {
        let last = model.last_index();
        let first = model.entries.keys().next().copied().unwrap_or(last);
        let some_entry = |env: &Env| {
            let index = first + env.random_below(last - first + 1);
            model.entries.get(&index).map(|entry| entry.log_id)
        };
        match (env.random_below(10), some_entry(env)) {
            (0, _) => Step::Vote(vote(term)),
            (1, Some(id)) => Step::Truncate(id),
            (2, Some(id)) => Step::Purge(id),
            (3, Some(id)) => Step::Committed(id),
            _ => Step::Append((last + 1..=last + 1 + env.random_below(4)).map(|index| entry(term, index)).collect()),
        }
    }

    fn apply(&self, model: &mut Model) {
        match self {
            Step::Append(entries) => {
                model.entries.extend(entries.iter().map(|entry| (entry.log_id.index, entry.clone())));
            }
            Step::Truncate(last) => _ = model.entries.split_off(&(last.index + 1)),
            Step::Purge(upto) => {
                model.entries = model.entries.split_off(&(upto.index + 1));
                model.purged = Some(*upto);
            }
            Step::Vote(vote) => model.vote = Some(*vote),
            Step::Committed(_) => (),
        }
    }

    async fn run(self, store: &mut LogStore) -> io::Result<()> {
        match self {
            Step::Append(entries) => store.append(entries, IOFlushed::noop()).await,
            Step::Truncate(last) => store.truncate_after(Some(last)).await,
            Step::Purge(upto) => store.purge(upto).await,
            Step::Vote(vote) => store.save_vote(&vote).await,
            Step::Committed(id) => store.save_committed(Some(id)).await,
        }
    }
}

/// What was acknowledged, and what was under way when the node died.
#[derive(Default)]
struct Promise {
    acknowledged: Model,
    under_way: Option<Step>,
}

/// Opens the store, checks it against the promise, and goes on with some more steps.
async fn live(env: Env, promise: Arc<Mutex<Promise>>, term: u64, steps: u32) {
    let mut store = LogStore::open(&env, "raft").await.expect("a crash is no damage");
    let found = Model::of(&mut store).await;
    let mut model = {
        let mut promise = promise.lock().unwrap();
        let mut other = promise.acknowledged.clone();
        if let Some(step) = promise.under_way.take() {
            step.apply(&mut other);
        }
        let is_kept = found == promise.acknowledged || found == other;
        let brief = |model: &Model| (model.vote, model.purged, model.entries.keys().copied().collect::<Vec<_>>());
        let (now, promised, perhaps) = (brief(&found), brief(&promise.acknowledged), brief(&other));
        assert!(is_kept, "found {now:?}\npromised {promised:?}\nor {perhaps:?}");
        promise.acknowledged = found.clone();
        found
    };
    for _ in 0..steps {
        let step = Step::draw(&model, term, &env);
        promise.lock().unwrap().under_way = Some(step.clone());
        step.clone().run(&mut store).await.expect("the disk is well");
        step.apply(&mut model);
        *promise.lock().unwrap() = Promise { acknowledged: model.clone(), under_way: None };
    }
    assert_eq!(Model::of(&mut store).await, model);
}

#[test]
fn power_loss_at_any_moment_loses_nothing_acknowledged() {
    for seed in 0..60 {
        let disk = DiskState::new(seed, "master");
        let promise = Arc::new(Mutex::new(Promise::default()));
        for term in 1..8 {
            let seed = seed << 8 | term;
            let crash_at = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58;
            single_crashing(disk.clone(), seed, crash_at, |env| live(env, promise.clone(), term, 12));
            if seed % 3 > 0 {
                disk.power_loss(seed);
            }
        }
        single_with(disk, seed, |env| live(env, promise, 9, 0));
    }
}

#[test]
fn a_purged_log_is_written_anew_and_stays_short() {
    single(1, |env| async move {
        let mut store = LogStore::open(&env, "raft").await.unwrap();
        let mut model = Model::default();
        for index in 1..3000 {
            let mut steps = vec![Step::Append(vec![entry(1, index)])];
            if index % 100 == 0 {
                steps.push(Step::Purge(log_id(1, index - 20)));
            }
            for step in steps {
                step.apply(&mut model);
                step.run(&mut store).await.unwrap();
            }
        }
        let len = env.disk().open("raft/log", OpenMode::Read).await.unwrap().len().await.unwrap();
        assert!(len < 2 * DEAD_BYTES_MAX, "{len} bytes");
        drop(store);
        let mut store = LogStore::open(&env, "raft").await.unwrap();
        assert_eq!(Model::of(&mut store).await, model);
    });
}

/// A disk with a log of some flushed frames and a vote.
fn written() -> Arc<DiskState> {
    let disk = DiskState::new(5, "master");
    single_with(disk.clone(), 5, |env| async move {
        let mut store = LogStore::open(&env, "raft").await.unwrap();
        for index in 1..=4 {
            store.append([entry(1, index)], IOFlushed::noop()).await.unwrap();
        }
        store.save_vote(&vote(1)).await.unwrap();
    });
    disk
}

fn reopened(disk: Arc<DiskState>) -> io::Result<Model> {
    single_with(disk, 6, |env| async move { Ok(Model::of(&mut LogStore::open(&env, "raft").await?).await) })
}

#[test]
fn damage_is_an_error_and_never_a_shorter_log() {
    let disk = written();
    let whole = reopened(disk.fork(1)).unwrap();
    assert_eq!(whole.entries.len(), 4);
    for path in ["raft/log", "raft/vote"] {
        let len = disk.read_cached(path).expect("it was written").len() as u64;
        for offset in (0..len).step_by(if path == "raft/log" { 13 } else { 1 }) {
            let disk = disk.fork(2);
            disk.flip_bit(path, offset, (offset % 8) as u8).unwrap();
            let error = reopened(disk).expect_err("a bit was flipped");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{path} at {offset}: {error}");
        }
        for shorter in [0, len / 2, len - 1] {
            let disk = disk.fork(3);
            disk.truncate(path, shorter).unwrap();
            assert_eq!(reopened(disk).unwrap_err().kind(), io::ErrorKind::InvalidData, "{path} cut to {shorter}");
        }
    }
    let gone = disk.fork(4);
    gone.remove_file("raft/log").unwrap();
    assert_eq!(reopened(gone).unwrap_err().kind(), io::ErrorKind::InvalidData);
}

#[test]
fn without_the_note_damage_before_the_last_frame_is_still_seen() {
    let disk = written();
    disk.remove_file("raft/durable").unwrap();
    let last = disk.read_cached("raft/log").unwrap();
    let last = (0..last.len()).rfind(|&at| last[at..].starts_with(&FRAME_MAGIC)).unwrap() as u64;
    for offset in (0..last).step_by(17) {
        let disk = disk.fork(2);
        disk.flip_bit("raft/log", offset, 3).unwrap();
        assert!(reopened(disk).is_err(), "at {offset}");
    }
    disk.flip_bit("raft/log", last + 40, 3).unwrap();
    assert_eq!(reopened(disk).unwrap().entries.len(), 3, "the last may be what a crash interrupted");
}

#[test]
fn after_a_failed_flush_nothing_is_acknowledged_any_more() {
    let disk = DiskState::new(7, "master");
    let faults = disk.clone();
    single_with(disk, 7, |env| async move {
        let mut store = LogStore::open(&env, "raft").await.unwrap();
        store.append([entry(1, 1)], IOFlushed::noop()).await.unwrap();
        faults.faults(|faults| faults.sync = Failing::NEXT);
        assert!(store.append([entry(1, 2)], IOFlushed::noop()).await.is_err());
        assert!(
            store.append([entry(1, 2)], IOFlushed::noop()).await.is_err(),
            "the next flush would say that all is well"
        );
        assert!(store.save_vote(&vote(2)).await.is_err());
        assert_eq!(store.get_log_state().await.unwrap().last_log_id, Some(log_id(1, 1)));
    });
}

#[test]
fn one_process_at_a_time_has_the_folder() {
    single(8, |env| async move {
        let _store = LogStore::open(&env, "raft").await.unwrap();
        let error = LogStore::open(&env, "raft").await.err().expect("it is taken");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    });
}

/// openraft's own suite of what a store must do.
struct Stores(AtomicU64);

impl StoreBuilder<Types, LogStore, Machine> for Stores {
    async fn build(&self) -> Result<((), LogStore, Machine), openraft::StorageError<Types>> {
        let env = Env::current();
        let folder = format!("raft-{}", self.0.fetch_add(1, Relaxed));
        let log = LogStore::open(&env, &folder).await.expect("a new folder");
        let machine = Machine::open(&env, &folder).await.expect("a new folder");
        Ok(((), log, machine))
    }
}

#[test]
fn the_store_passes_openrafts_suite() {
    single(9, |_| async move { Suite::test_all(Stores(AtomicU64::new(0))).await.expect("the suite passes") });
}

#[test]
fn a_snapshot_outlives_a_restart_and_is_never_replaced_by_an_older_one() {
    use openraft::storage::{RaftSnapshotBuilder, RaftStateMachine};
    single(10, |env| async move {
        let mut machine = Machine::open(&env, "raft").await.unwrap();
        env.disk().create_dir("raft").await.unwrap();
        let found = |term, index, cluster| {
            let command = Command::Found { cluster: ClusterId(cluster) };
            Entry { log_id: log_id(term, index), payload: EntryPayload::Normal(command) }
        };
        let apply = |entry| futures_util::stream::iter([Ok((entry, None))]);
        machine.apply(apply(found(1, 1, 5))).await.unwrap();
        let mut old = machine.get_snapshot_builder().await;
        machine.apply(apply(found(1, 2, 6))).await.unwrap();
        machine.get_snapshot_builder().await.build_snapshot().await.unwrap();
        old.build_snapshot().await.unwrap();
        drop((old, machine));
        let mut machine = Machine::open(&env, "raft").await.unwrap();
        assert_eq!(machine.applied_state().await.unwrap(), (Some(log_id(1, 2)), Membership::default()));
        assert_eq!(machine.read(|catalog| catalog.cluster()), Some(ClusterId(5)));
    });
}
