use super::*;
use crate::testing::*;
use crate::{
    Entry, Epoch, Log, Lookup, OwnedRecord, Position, Record, ScanCursor, Seen, SegmentId, Seqno, StorageError, Store,
    Taken, View, verify,
};
use bytes::Bytes;
use env::Env;
use env::sim::{Dice, DiskState, Failing, single, single_crashing, single_with, stream};
use std::collections::BTreeMap;
use std::sync::Arc;

type Model = BTreeMap<Bytes, Entry>;
type Run = (SegmentId, SegmentId);

mod alike;

/// A log and the store over it.
struct Region {
    log: Log,
    store: Store,
}

impl Region {
    async fn open(env: &Env) -> Region {
        Region::open_with(env, Kind::Hash, u64::MAX).await
    }

    async fn open_with(env: &Env, kind: Kind, hash_mask: u64) -> Region {
        let (mut log, _) = open(env).await;
        let head = log.head().mark.seqno;
        log.set_committed(head);
        let store = build(&log, kind, hash_mask).await;
        Region { log, store }
    }

    fn append(&mut self, records: &[Record<'_>]) {
        let frame = self.log.append(Epoch(1), 7, records).expect("appends");
        self.store.appended(&frame);
    }

    async fn commit(&mut self) {
        flush(&mut self.log).await;
        let durable = self.log.durable().seqno;
        self.log.set_committed(durable);
        self.store.committed(durable);
        self.store.settle().await;
        while let Some(job) = self.log.take_seal() {
            self.log.finish_seal(job.run().await.expect("seals"));
        }
    }

    /// All that was appended, in sealed segments.
    async fn commit_and_roll(&mut self) {
        self.commit().await;
        let next = self.log.head().segment.next();
        while self.log.head().segment < next {
            self.append(&[put("filler", &[0; 300])]);
        }
        self.commit().await;
    }

    fn all_sealed(&self) -> Run {
        let uses = self.store.segment_uses(&self.log);
        (uses.first().expect("some").segment, uses.last().expect("some").segment)
    }

    /// Orders a compaction, and carries it out.
    async fn compact(&mut self, run: Run, wall_ms: u64) -> bool {
        let Some(output) = self.store.compact(&self.log, run, wall_ms).await.expect("writes") else { return false };
        self.order(&output.plan()).await;
        assert!(self.log.switch(output).await.expect("switches"));
        self.store.follow_switch().await.expect("reads");
        assert!(self.log.remove_retired().await.expect("removes"));
        true
    }

    async fn order(&mut self, plan: &Plan) {
        let (kind, bytes) = plan.encode();
        self.append(&[Record::Control { kind, bytes: &bytes }]);
        self.commit().await;
    }

    /// Carries out what the log orders, as a replica does that did not plan it.
    async fn carry_out(&mut self) {
        carry_out(&mut self.log).await;
        self.store.follow_switch().await.expect("reads");
        assert!(self.log.remove_retired().await.expect("removes"));
    }

    async fn get(&self, key: &str) -> Option<Entry> {
        match self.store.get(key.as_bytes(), View::Committed) {
            Lookup::Ready(entry) => entry,
            Lookup::Read(job) => job.run().await.expect("reads"),
        }
    }

    async fn everything(&self) -> Model {
        let mut all = Model::new();
        let mut cursor = Some(ScanCursor::START);
        while let Some(at) = cursor {
            let page = self.store.scan(at, 50).await.expect("reads");
            all.extend(page.entries);
            cursor = page.next;
        }
        all
    }

    async fn close(self) {
        drop(self.store);
        self.log.close().await.expect("closes");
    }
}

async fn carry_out(log: &mut Log) {
    while let Some(job) = log.compact_job().expect("holds what it orders to compact") {
        let output = job.run().await.expect("gives what the plan says");
        assert!(log.switch(output).await.expect("switches"));
        log.remove_retired().await.expect("removes");
    }
}

fn tombstone(key: &str) -> Record<'_> {
    Record::Tombstone { key: key.as_bytes() }
}

fn random_record(dice: &mut Dice) -> OwnedRecord {
    let key: Bytes = format!("key{}", dice.below(30)).into();
    match dice.below(10) {
        0..3 => OwnedRecord::Tombstone { key },
        3 => {
            OwnedRecord::Session { session: dice.below(4), number: dice.below(60), floor: dice.below(30), outcome: key }
        }
        4 => OwnedRecord::Control { kind: 1, bytes: key },
        _ => {
            // Few and far between in time, so that what has expired stays so.
            let expiry_ms = dice.percent(20).then(|| 1000 * dice.below(4));
            random_put(dice, key, 250, expiry_ms)
        }
    }
}

fn apply(model: &mut Model, record: OwnedRecord) {
    match record {
        OwnedRecord::Put { key, value, compression, expiry_ms } => {
            let value = compression.unpack(value).expect("packed above");
            model.insert(key, Entry { value, expiry_ms });
        }
        OwnedRecord::Tombstone { key } => drop(model.remove(&key)),
        OwnedRecord::Control { .. } | OwnedRecord::Session { .. } => {}
    }
}

fn live(mut model: Model, wall_ms: u64) -> Model {
    model.retain(|_, entry| !entry.expired(wall_ms));
    model
}

fn sessions(store: &Store) -> Vec<Seen> {
    (0..4)
        .flat_map(|session| (0..60).map(move |number| (session, number)))
        .map(|(s, n)| store.sessions().check(s, n))
        .collect()
}

/// A run of some sealed segments, at random.
fn random_run(region: &Region, dice: &mut Dice) -> Option<Run> {
    let uses = region.store.segment_uses(&region.log);
    let first = (!uses.is_empty()).then(|| dice.below(uses.len() as u64) as usize)?;
    let last = first + dice.below((uses.len() - first) as u64).min(5) as usize;
    Some((uses[first].segment, uses[last].segment))
}

/// Random changes, compactions of random runs, and restarts, against a map.
async fn follow(env: Env, mut dice: Dice) -> u64 {
    let mut model = Model::new();
    let mut wall_ms = 0;
    let mut compactions = 0;
    for _ in 0..4 {
        let mut region = Region::open(&env).await;
        assert_eq!(live(region.everything().await, wall_ms), live(model.clone(), wall_ms), "after a restart");
        for _ in 0..dice.between(10, 60) {
            let records: Vec<_> = (0..dice.between(1, 4)).map(|_| random_record(&mut dice)).collect();
            region.append(&records.iter().map(OwnedRecord::as_record).collect::<Vec<_>>());
            records.into_iter().for_each(|record| apply(&mut model, record));
            if dice.percent(30) {
                region.commit().await;
            }
            if dice.percent(10) {
                region.commit().await;
                wall_ms = (wall_ms + dice.below(500)).min(2999);
                let before = sessions(&region.store);
                if let Some(run) = random_run(&region, &mut dice) {
                    compactions += region.compact(run, wall_ms).await as u64;
                }
                assert_eq!(live(region.everything().await, wall_ms), live(model.clone(), wall_ms));
                let rebuilt = Store::build(&region.log).await.expect("builds");
                assert_eq!(sessions(&rebuilt), before, "a rebuilt table says the same");
                assert_eq!(rebuilt.space(&region.log), region.store.space(&region.log));
            }
        }
        region.commit().await;
        if dice.percent(50) {
            region.close().await;
        }
    }
    compactions
}

#[test]
fn what_is_read_is_the_same_before_and_after() {
    let compactions: u64 = (0..30).map(|seed| single(seed, |env| follow(env, stream(seed, "compaction")))).sum();
    assert!(compactions > 100, "{compactions}");
}

#[test]
fn a_tombstone_stays_while_an_older_value_does() {
    single(1, |env| async move {
        let mut region = Region::open(&env).await;
        region.append(&[put("k", b"old"), put("other", b"x")]);
        region.commit_and_roll().await;
        let values = region.all_sealed();
        region.append(&[tombstone("k")]);
        region.commit_and_roll().await;
        let (_, last) = region.all_sealed();
        // The tombstone's segment alone: the value is in another.
        assert!(region.compact((last, last), 0).await);
        drop(region);
        let mut region = Region::open(&env).await;
        assert_eq!(region.get("k").await, None, "the tombstone was kept");
        // The value's: it goes, as the index does not point to it.
        assert!(region.compact(values, 0).await);
        let (_, last) = region.all_sealed();
        let tombstones = |region: &Region| {
            let uses = region.store.segment_uses(&region.log);
            uses.iter().map(|segment| segment.usage.expect("hinted").tombstone_bytes).sum::<u64>()
        };
        assert!(tombstones(&region) > 0);
        assert!(region.compact((last, last), 0).await);
        assert_eq!(tombstones(&region), 0, "nothing is left to hide");
        drop(region);
        let region = Region::open(&env).await;
        assert_eq!(region.get("k").await, None);
        assert!(region.get("other").await.is_some());
    });
}

#[test]
fn an_expired_value_hides_older_ones_and_then_goes() {
    single(2, |env| async move {
        let mut region = Region::open(&env).await;
        region.append(&[put("k", b"old")]);
        region.commit_and_roll().await;
        let (first, _) = region.all_sealed();
        region.append(&[expiring(b"k", b"new", 100)]);
        region.commit_and_roll().await;
        let (_, last) = region.all_sealed();
        let expired = Some(Entry { value: Bytes::from_static(b"new"), expiry_ms: Some(100) });
        assert!(region.compact((last, last), 200).await);
        assert_eq!(region.get("k").await, expired, "it hides an older one");
        assert!(region.compact((first, first), 200).await);
        let (first, last) = region.all_sealed();
        assert!(region.compact((first, last), 99).await);
        assert_eq!(region.get("k").await, expired, "it has not expired at that time");
        let (first, last) = region.all_sealed();
        assert!(region.compact((first, last), 100).await);
        assert_eq!(region.get("k").await, None);
        assert_eq!(Region::open(&env).await.get("k").await, None);
    });
}

/// Length and checksum of each segment and hint.
async fn files(env: &Env, dir: &str) -> BTreeMap<String, (usize, u64)> {
    let mut files = BTreeMap::new();
    for entry in env.disk().list(dir).await.expect("lists") {
        if entry.name.ends_with("seg") || entry.name.ends_with("hint") {
            let path = format!("{dir}/{}", entry.name);
            let bytes = crate::state::read_whole(env.disk().as_ref(), &path).await.expect("reads");
            let bytes = bytes.expect("is there");
            files.insert(entry.name, (bytes.len(), xxhash_rust::xxh3::xxh3_64(&bytes)));
        }
    }
    files
}

/// Sends a replica what it lacks, the way that replication does. Returns how many pieces of segments that were.
async fn catch_up(primary: &Log, replica: &mut Log) -> u64 {
    let mut pieces = 0;
    let mut from = common(primary, replica).await;
    while from.mark != primary.head().mark {
        let chunk = primary.read_chunk(from, 700).await.expect("reads");
        from = chunk.end;
        let Some(piece) = chunk.piece else {
            for bytes in crate::split_frames(chunk.bytes) {
                replica.accept(bytes.expect("whole")).expect("continues");
            }
            continue;
        };
        pieces += 1;
        flush(replica).await;
        let head = replica.head().mark.seqno;
        replica.set_committed(primary.committed().min(head));
        carry_out(replica).await;
        if let Taken::Differs(to) = replica.take_piece(piece, chunk.bytes).await.expect("fits") {
            replica.rewind(to).await.expect("cuts");
            from = common(primary, replica).await;
        }
    }
    flush(replica).await;
    replica.set_committed(primary.committed());
    carry_out(replica).await;
    while let Some(job) = replica.take_seal() {
        replica.finish_seal(job.run().await.expect("seals"));
    }
    pieces
}

/// Cuts what the replica has and the primary lacks.
async fn common(primary: &Log, replica: &mut Log) -> Position {
    let common = primary.find_common(&replica.standing()).await.expect("reads").unwrap_or(Position::ZERO);
    if replica.head().mark != common.mark {
        let to = replica.find(common.mark).await.expect("reads").expect("it has it too");
        replica.rewind(to).await.expect("cuts");
    }
    common
}

#[test]
fn replicas_stay_the_same_however_far_behind_they_are() {
    let mut pieces = 0;
    for seed in 0..25 {
        pieces += single(seed, |env| async move {
            let mut pieces = 0;
            let mut dice = stream(seed, "replicas");
            let mut region = Region::open(&env).await;
            let mut replicas = Vec::new();
            for name in ["near", "far"] {
                replicas.push(Log::open(&env, name, REGION, options()).await.expect("opens").0);
            }
            for round in 0..30 {
                for _ in 0..dice.between(1, 12) {
                    let record = random_record(&mut dice);
                    region.append(&[record.as_record()]);
                }
                region.commit().await;
                if let (true, Some(run)) = (dice.percent(40), random_run(&region, &mut dice)) {
                    region.compact(run, 1000).await;
                }
                let behind = if dice.percent(80) { 0 } else { 1 };
                pieces += catch_up(&region.log, &mut replicas[behind]).await;
                if dice.percent(20) {
                    drop(replicas.remove(behind));
                    let name = ["near", "far"][behind];
                    let (mut log, _) = Log::open(&env, name, REGION, options()).await.expect("opens");
                    let committed = log.head().mark.seqno.min(region.log.committed());
                    log.set_committed(committed);
                    replicas.insert(behind, log);
                }
                let ours = files(&env, DIR).await;
                assert_eq!(ours, files(&env, ["near", "far"][behind]).await, "round {round}");
            }
            pieces
        });
    }
    assert!(pieces > 100, "{pieces} pieces");
}

#[test]
fn another_result_than_the_plan_says_is_corruption() {
    single(4, |env| async move {
        let mut region = Region::open(&env).await;
        for i in 0..40 {
            region.append(&[put(&format!("key{}", i % 5), &[i; 100])]);
        }
        region.commit().await;
        let run = region.all_sealed();
        let output = region.store.compact(&region.log, run, 0).await.expect("writes").expect("plans");
        let mut plan = output.plan();
        plan.checksum ^= 1;
        region.order(&plan).await;
        let before = region.everything().await;
        let job = region.log.compact_job().expect("is there").expect("is ordered");
        assert!(matches!(job.run().await, Err(StorageError::Corrupt { .. })));
        assert!(!region.log.switch(output).await.expect("does nothing"), "not what the log orders");
        assert_eq!(region.everything().await, before);
    });
}

/// Some segments with much that is dead, and a compaction of them ordered.
fn ordered(seed: u64, name: &str) -> Arc<DiskState> {
    let disk = DiskState::new(seed, name);
    single_with(disk.clone(), seed, |env| async move {
        let mut region = Region::open(&env).await;
        for i in 0..70u8 {
            let key = format!("key{}", i % 9);
            let session = Record::Session { session: 1, number: i as u64, floor: i as u64 / 2, outcome: b"ok" };
            region.append(&[put(&key, &[i; 90]), session]);
            if i % 7 == 3 {
                region.append(&[tombstone(&format!("key{}", (i + 4) % 9))]);
            }
        }
        region.commit().await;
        let uses = region.store.segment_uses(&region.log);
        let run = (uses[1].segment, uses[4].segment);
        let output = region.store.compact(&region.log, run, 0).await.expect("writes").expect("plans");
        region.order(&output.plan()).await;
    });
    disk
}

async fn content(env: Env) -> Result<(Model, Vec<Seen>, bool), StorageError> {
    let (mut log, _) = try_open(&env).await?;
    let head = log.head().mark.seqno;
    log.set_committed(head);
    let store = Store::build(&log).await?;
    let region = Region { log, store };
    let compacted = region.store.segment_uses(&region.log).iter().any(|segment| segment.segment.is_compacted());
    Ok((region.everything().await, sessions(&region.store), compacted))
}

fn read(disk: &Arc<DiskState>) -> Result<(Model, Vec<Seen>, bool), StorageError> {
    single_with(disk.clone(), 0, content)
}

#[test]
fn a_crash_at_any_point_leaves_the_old_segments_or_the_new_one() {
    let before = ordered(5, "crashes");
    let (entries, seen, compacted) = read(&before.fork(0)).expect("opens");
    assert!(!compacted && entries.len() > 3);
    let procedure = |env: Env| async move { Region::open(&env).await.carry_out().await };
    let mut outcomes = [0, 0];
    for operations in 0.. {
        let mut ended = false;
        for seed in 0..6 {
            let disk = before.fork(seed);
            ended |= single_crashing(disk.clone(), seed, operations, procedure).is_some();
            if seed > 0 {
                disk.power_loss(seed);
            }
            let mut first = None;
            for _ in 0..3 {
                let (left, left_seen, compacted) = read(&disk).expect("opens");
                assert!(left == entries && left_seen == seen, "crash at {operations}, seed {seed}");
                assert_eq!(*first.get_or_insert(compacted), compacted, "the same each time");
            }
            outcomes[first.expect("read") as usize] += 1;
            // It goes on from there.
            single_with(disk.clone(), seed, procedure);
            let (left, _, compacted) = read(&disk).expect("opens");
            assert!(compacted && left == entries);
            let report = single_with(disk, seed, |env| async move { verify(&env, DIR).await.expect("checks") });
            assert_eq!(report.problems, Vec::<String>::new());
        }
        if ended {
            break;
        }
    }
    assert!(outcomes[0] > 10 && outcomes[1] > 10, "{outcomes:?}");
}

/// A log with a compacted segment, and nothing left to do.
fn compacted(seed: u64) -> Arc<DiskState> {
    let disk = ordered(seed, "compacted");
    single_with(disk.clone(), seed, |env| async move {
        let mut region = Region::open(&env).await;
        region.carry_out().await;
        region.close().await;
    });
    for (path, _) in disk.files() {
        let bytes = disk.read_cached(&path).expect("is there");
        disk.write_file(&path, bytes).expect("writes");
    }
    disk
}

#[test]
fn damage_to_a_compacted_segment_does_not_go_unnoticed() {
    let disk = compacted(6);
    let (entries, ..) = read(&disk.fork(0)).expect("opens");
    let is_compacted = |path: &str| path.ends_with(".1.seg") || path.ends_with(".1.hint");
    let files: Vec<_> = disk.files().into_iter().filter(|(path, _)| is_compacted(path)).collect();
    assert_eq!(files.len(), 2, "{files:?}");
    for (path, len) in files {
        for at in (0..len).step_by(7) {
            let flipped = disk.fork(at);
            flipped.flip_bit(&path, at, (at % 8) as u8).expect("flips");
            let cut = disk.fork(at);
            cut.truncate(&path, at).expect("cuts");
            for damaged in [flipped, cut] {
                // With its hint the segment is not read to open it, but then what is read is checked.
                let found = single_with(damaged, 0, |env| async move {
                    verify(&env, DIR).await.map(|report| report.problems.is_empty())
                });
                assert!(path.ends_with("hint") || !found.is_ok_and(|sound| sound), "at {at} of {path}");
            }
        }
        let without = disk.fork(0);
        without.remove_file(&path).expect("removes");
        match read(&without) {
            Ok((left, ..)) => assert!(path.ends_with("hint") && left == entries),
            Err(error) => assert!(path.ends_with("seg") && error.is_corrupt(), "{error}"),
        }
    }
}

#[test]
fn a_store_that_could_not_read_what_was_overwritten_does_not_say_what_is_live() {
    let disk = DiskState::new(10, "unreadable");
    single_with(disk.clone(), 10, |env| async move {
        let mut region = Region::open(&env).await;
        region.append(&[put("k", &[1; 100])]);
        region.commit_and_roll().await;
        let run = region.all_sealed();
        // A new store has nothing cached.
        region.store = build(&region.log, Kind::Hash, u64::MAX).await;
        disk.flip_bit(&format!("{DIR}/000001.seg"), 200, 0).expect("flips");
        assert!(region.store.planner(&region.log, run.0, run.1, 0).is_some());
        region.append(&[put("k", b"new")]);
        region.commit().await;
        assert!(region.store.is_doubtful());
        assert!(region.store.planner(&region.log, run.0, run.1, 0).is_none());
        assert_eq!(region.get("k").await.map(|entry| entry.value), Some(Bytes::from_static(b"new")));
        region.store = build(&region.log, Kind::Hash, u64::MAX).await;
        assert!(!region.store.is_doubtful());
        let error = region.store.compact(&region.log, run, 0).await.expect_err("reads all of it");
        assert!(error.is_corrupt(), "{error}");
    });
}

#[test]
fn a_failed_switch_fences_the_log_and_loses_nothing() {
    let before = ordered(7, "failing");
    let (entries, seen, _) = read(&before.fork(0)).expect("opens");
    for nth in 1..8 {
        let disk = before.fork(nth);
        let switch = disk.clone();
        single_with(disk.clone(), nth, |env| async move {
            let mut region = Region::open(&env).await;
            switch.faults(|faults| faults.sync = Failing::nth(nth));
            let job = region.log.compact_job().expect("is there").expect("is ordered");
            let result = match job.run().await {
                Ok(output) => region.log.switch(output).await,
                Err(error) => Err(error),
            };
            if result.is_ok() {
                let _ = region.log.remove_retired().await;
            }
            assert!(region.everything().await.len() > 3, "reads go on");
        });
        disk.faults(|faults| faults.sync = Failing::NEVER);
        for seed in 0..10 {
            let copy = disk.fork(seed);
            if seed > 0 {
                copy.power_loss(seed);
            }
            for _ in 0..2 {
                let (left, left_seen, _) = read(&copy).expect("opens");
                assert!(left == entries && left_seen == seen, "flush {nth}, seed {seed}");
            }
        }
    }
}

#[test]
fn whoever_reads_a_segment_that_was_replaced_goes_on_reading_it() {
    single(8, |env| async move {
        let mut region = Region::open(&env).await;
        for i in 0..60u8 {
            region.append(&[put(&format!("key{}", i % 6), &[i; 100])]);
        }
        region.commit().await;
        // A new store has nothing cached.
        region.store = build(&region.log, Kind::Hash, u64::MAX).await;
        let jobs: Vec<_> = (0..6)
            .map(|key| match region.store.get(format!("key{key}").as_bytes(), View::Committed) {
                Lookup::Read(job) => job,
                Lookup::Ready(_) => panic!("it is in the index"),
            })
            .collect();
        let scan = region.store.scan_job(ScanCursor::START, 100);
        let run = region.all_sealed();
        let output = region.store.compact(&region.log, run, 0).await.expect("writes").expect("plans");
        region.order(&output.plan()).await;
        assert!(region.log.switch(output).await.expect("switches"));
        assert!(!region.log.remove_retired().await.expect("waits"), "the store points there");
        assert_eq!(region.everything().await.len(), 6, "between the switch and the move");
        region.store.follow_switch().await.expect("reads");
        assert!(!region.log.remove_retired().await.expect("waits"), "readers are under way");
        for job in jobs {
            assert!(job.run().await.expect("reads").is_some());
        }
        drop(scan);
        assert!(region.log.remove_retired().await.expect("removes"));
        assert_eq!(region.everything().await.len(), 6);
        assert_eq!(region.log.stats().bytes, region.store.space(&region.log).total_bytes);
    });
}

/// Overwrites and deletes at random, compacting as policy says: the log stays within what is promised.
#[test]
fn the_log_stays_within_its_bounds() {
    for seed in 0..3 {
        single(seed, |env| async move {
            let mut dice = stream(seed, "bounds");
            let mut region = Region::open(&env).await;
            let (share, segment) = (0.5, options().segment_bytes);
            let mut worst = 0.0f64;
            for round in 0..200 {
                for _ in 0..4 {
                    let key = format!("key{}", dice.below(60));
                    match dice.percent(15) {
                        true => region.append(&[tombstone(&key)]),
                        false => region.append(&[put(&key, &[round as u8; 120])]),
                    }
                }
                region.commit().await;
                let mut steps = 0;
                while let Some(choice) = region.store.choose_run(&region.log, share, 0) {
                    assert!(region.compact((choice.first, choice.last), 0).await);
                    steps += 1;
                    assert!(steps < 20, "it comes to an end: {choice:?}");
                }
                let space = region.store.space(&region.log);
                // Headers of frames and tombstones that have to stay are live too.
                let allowed = space.live_bytes as f64 * 1.6 / (1.0 - share) + 2.0 * segment as f64;
                worst = worst.max(space.total_bytes as f64 / allowed);
                assert!(space.total_bytes as f64 <= allowed, "{space:?} after round {round}");
            }
            assert!(worst > 0.3, "the bound means something: {worst}");
        });
    }
}

#[test]
fn deleting_everything_gives_the_space_back() {
    single(9, |env| async move {
        let mut region = Region::open(&env).await;
        for i in 0..200 {
            region.append(&[put(&format!("key{i}"), &[1; 100])]);
        }
        region.commit().await;
        let full = region.log.stats().bytes;
        for i in 0..200 {
            region.append(&[tombstone(&format!("key{i}"))]);
        }
        region.commit_and_roll().await;
        while let Some(choice) = region.store.choose_run(&region.log, 0.5, 0) {
            assert!(region.compact((choice.first, choice.last), 0).await);
        }
        let left = region.log.stats().bytes;
        assert!(left < full / 5, "{left} of {full}");
    });
}

#[test]
fn a_plan_is_read_back_as_it_was_written() {
    let mut keep = Bitmap::default();
    (0..19).for_each(|at| keep.set(at, at % 3 == 0));
    assert_eq!((keep.count(), keep.get(18), keep.get(17), keep.get(100)), (7, true, false, false));
    let mark = |seqno| crate::Mark { seqno: Seqno(seqno), checksum: seqno * 7 };
    let plan = Plan {
        first: SegmentId(3),
        last: SegmentId::compacted(5, 2),
        output: SegmentId::compacted(3, 3),
        base: mark(10),
        end: mark(90),
        len: 1234,
        checksum: 99,
        records: 19,
        keep,
    };
    let (kind, bytes) = plan.encode();
    assert_eq!(Plan::of(&Record::Control { kind, bytes: &bytes }), Some(Ok(plan)));
    assert!(Plan::of(&Record::Control { kind, bytes: &bytes[1..] }).is_some_and(|plan| plan.is_err()));
    assert_eq!(Plan::of(&Record::Control { kind: 1, bytes: &bytes }), None);
}
