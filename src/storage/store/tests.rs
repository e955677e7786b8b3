use super::*;
use crate::testing::*;
use crate::{Epoch, OwnedRecord, StorageError};
use env::sim::{Dice, DiskState, single, single_with, stream};
use std::collections::BTreeMap;

type Model = BTreeMap<Bytes, Entry>;

async fn get(store: &Store, key: &[u8], view: View) -> Option<Entry> {
    answer(store.get(key, view)).await
}

async fn answer(lookup: Lookup) -> Option<Entry> {
    match lookup {
        Lookup::Ready(entry) => entry,
        Lookup::Read(job) => job.run().await.expect("reads"),
    }
}

async fn everything(store: &Store, limit: usize) -> Model {
    let mut all = Model::new();
    let mut cursor = Some(ScanCursor::START);
    while let Some(at) = cursor {
        let page = store.scan(at, limit).await.expect("reads");
        all.extend(page.entries);
        cursor = page.next;
    }
    all
}

fn put_entry(value: &[u8]) -> Option<Entry> {
    Some(Entry { value: Bytes::copy_from_slice(value), expiry_ms: None })
}

/// Appends, and hands the frame to the store.
fn append(log: &mut Log, store: &mut Store, records: &[Record<'_>]) -> Seqno {
    let frame = log.append(Epoch(1), 0, records).expect("appends");
    store.appended(&frame);
    frame.header.last_seqno()
}

async fn commit(log: &mut Log, store: &mut Store) {
    flush(log).await;
    let committed = log.durable().seqno;
    log.set_committed(committed);
    store.committed(committed);
}

#[test]
fn a_record_becomes_visible_when_it_is_committed() {
    single(1, |env| async move {
        let (mut log, _) = open(&env).await;
        let mut store = Store::build(&log).await.expect("builds");
        append(&mut log, &mut store, &[put("k", b"1")]);
        assert_eq!(get(&store, b"k", View::Committed).await, None);
        assert_eq!(get(&store, b"k", View::Latest).await, put_entry(b"1"));
        commit(&mut log, &mut store).await;
        append(&mut log, &mut store, &[put("k", b"2"), put("k", b"")]);
        assert_eq!(get(&store, b"k", View::Committed).await, put_entry(b"1"));
        assert_eq!(get(&store, b"k", View::Latest).await, put_entry(b""), "an empty value is a value");
        store.settle().await;
        assert_eq!((store.len(), store.pending_len()), (1, 2));
        assert_eq!(get(&store, b"k", View::Committed).await, put_entry(b"1"));
        append(&mut log, &mut store, &[Record::Tombstone { key: b"k" }]);
        assert_eq!(get(&store, b"k", View::Latest).await, None);
        commit(&mut log, &mut store).await;
        assert_eq!(get(&store, b"k", View::Committed).await, None);
        store.settle().await;
        assert_eq!((store.len(), store.pending_len(), store.pending_bytes()), (0, 0, 0));
        assert_eq!(get(&store, b"k", View::Committed).await, None);
    });
}

#[test]
fn a_frame_committed_as_it_comes_goes_into_the_index_at_once() {
    let disk = DiskState::new(1, "store");
    let faults = disk.clone();
    single_with(disk, 1, |env| async move {
        let (mut log, _) = open(&env).await;
        let mut store = Store::build(&log).await.expect("builds");
        let records = [
            put("k", b"1"),
            Record::Session { session: 3, number: 1, floor: 0, outcome: b"done" },
            put("k", b"2"),
            put("gone", b""),
            Record::Tombstone { key: b"gone" },
        ];
        faults.faults(|faults| faults.at_once_percent = 100);
        for round in 0..3 {
            let frame = log.append(Epoch(1), 0, &records).expect("appends");
            flush(&mut log).await;
            log.set_committed(frame.header.last_seqno());
            store.append_committed(&frame);
            assert_eq!((store.len(), store.pending_len()), (1, 0), "round {round}");
            assert_eq!(get(&store, b"k", View::Committed).await, put_entry(b"2"));
            assert_eq!(get(&store, b"gone", View::Committed).await, None);
            assert_eq!(store.sessions().check(3, 1), Seen::Done("done".into()));
        }
        // Where what it overwrites cannot be had at once it waits among the pending ones.
        faults.faults(|faults| faults.at_once_percent = 0);
        let mut store = Store::build(&log).await.expect("builds");
        let frame = log.append(Epoch(1), 0, &[put("k", b"3")]).expect("appends");
        flush(&mut log).await;
        store.append_committed(&frame);
        assert_eq!((store.len(), store.pending_len()), (1, 1));
        assert_eq!(get(&store, b"k", View::Committed).await, put_entry(b"3"));
        store.settle().await;
        assert_eq!((store.len(), store.pending_len()), (1, 0));
        assert_eq!(get(&store, b"k", View::Committed).await, put_entry(b"3"));
    });
}

#[test]
fn an_entry_expires_at_its_time() {
    let entry = Entry { value: Bytes::new(), expiry_ms: Some(100) };
    assert!(!entry.expired(99) && entry.expired(100));
    assert!(!Entry { expiry_ms: None, ..entry }.expired(u64::MAX));
}

/// Random changes, commits, settlings, seals and restarts, against a map.
async fn follow(env: env::Env, mut dice: Dice, kind: Kind, hash_mask: u64) {
    let mut committed = Model::new();
    let mut latest = Model::new();
    // Reads that end long after they began, and what is to come of them.
    let mut slow: Vec<(Box<ReadJob>, Option<Entry>)> = Vec::new();
    for _ in 0..4 {
        let (mut log, _) = open(&env).await;
        if log.committed() < log.head().mark.seqno {
            let head = log.head().mark.seqno;
            log.set_committed(head);
        }
        let mut store = build(&log, kind, hash_mask).await;
        assert_eq!(everything(&store, 7).await, latest, "after a restart");
        committed.clone_from(&latest);
        for _ in 0..dice.between(1, 40) {
            let records: Vec<_> = (0..dice.between(1, 4)).map(|_| random_record(&mut dice)).collect();
            let borrowed: Vec<_> = records.iter().map(OwnedRecord::as_record).collect();
            // All that was appended before is committed with it.
            let at_once = dice.percent(20);
            if at_once {
                commit(&mut log, &mut store).await;
                let frame = log.append(Epoch(1), 0, &borrowed).expect("appends");
                flush(&mut log).await;
                log.set_committed(frame.header.last_seqno());
                store.append_committed(&frame);
            } else {
                append(&mut log, &mut store, &borrowed);
            }
            records.into_iter().for_each(|record| apply(&mut latest, record));
            if at_once {
                committed.clone_from(&latest);
            } else if dice.percent(40) {
                commit(&mut log, &mut store).await;
                committed.clone_from(&latest);
            }
            if dice.percent(30) {
                store.settle().await;
            }
            if let (true, Some(job)) = (dice.percent(10), log.take_seal()) {
                log.finish_seal(job.run().await.expect("seals"));
            }
            let key = random_key(&mut dice);
            assert_eq!(get(&store, &key, View::Committed).await, committed.get(&key).cloned());
            assert_eq!(get(&store, &key, View::Latest).await, latest.get(&key).cloned());
            let keys: Vec<_> = (0..dice.below(50)).map(|_| random_key(&mut dice)).collect();
            let borrowed: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
            for (key, lookup) in keys.iter().zip(store.get_many(&borrowed, View::Committed)) {
                match lookup {
                    Lookup::Read(job) if dice.percent(20) => slow.push((job, committed.get(key).cloned())),
                    lookup => assert_eq!(answer(lookup).await, committed.get(key).cloned()),
                }
            }
            while !slow.is_empty() && dice.percent(60) {
                let (job, expected) = slow.swap_remove(dice.below(slow.len() as u64) as usize);
                assert_eq!(job.run().await.expect("reads"), expected);
            }
        }
        assert_eq!(everything(&store, 5).await, committed);
        commit(&mut log, &mut store).await;
        store.settle().await;
        assert_eq!(store.len(), latest.len() as u64);
        if dice.percent(50) {
            log.close().await.expect("closes");
        }
    }
}

fn random_key(dice: &mut Dice) -> Bytes {
    format!("key{}", dice.below(40)).into_bytes().into()
}

fn random_record(dice: &mut Dice) -> OwnedRecord {
    let key = random_key(dice);
    match dice.below(10) {
        0..3 => OwnedRecord::Tombstone { key },
        3 => OwnedRecord::Control { kind: 1, bytes: key },
        4 => OwnedRecord::Session { session: dice.below(5), number: dice.below(100), floor: 0, outcome: key },
        _ => {
            let expiry_ms = dice.percent(20).then(|| dice.below(1000));
            random_put(dice, key, 200, expiry_ms)
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

#[test]
fn the_store_does_what_a_map_does() {
    for (kind, seeds) in [(Kind::Plain, 0..20), (Kind::Hash, 20..60), (Kind::Coarse, 60..80)] {
        for seed in seeds {
            single(seed, |env| follow(env, stream(seed, "store"), kind, u64::MAX));
        }
    }
}

/// Hashes of no or of two bits: nearly every key collides with others, in its page too.
#[test]
fn colliding_keys_are_told_apart() {
    for (kind, seeds) in [(Kind::Plain, 100..120), (Kind::Hash, 120..200), (Kind::Coarse, 200..240)] {
        for seed in seeds {
            single(seed, |env| follow(env, stream(seed, "store"), kind, if seed % 4 == 0 { 0 } else { 3 }));
        }
    }
}

#[test]
fn sessions_survive_a_restart() {
    for clean in [true, false] {
        let disk = DiskState::new(5, "store");
        single_with(disk.clone(), 5, move |env| async move {
            let (mut log, _) = open(&env).await;
            let mut store = Store::build(&log).await.expect("builds");
            for number in 1..50 {
                let outcome = format!("outcome {number}");
                let floor = number - 1;
                let record = Record::Session { session: 9, number, floor, outcome: outcome.as_bytes() };
                append(&mut log, &mut store, &[put("k", &[0; 100]), record]);
                if number == 30 {
                    commit(&mut log, &mut store).await;
                }
            }
            flush(&mut log).await;
            if clean {
                log.close().await.expect("closes");
            }
        });
        single_with(disk, 5, |env| async move {
            let (log, _) = open(&env).await;
            let store = Store::build(&log).await.expect("builds");
            assert_eq!(store.sessions().check(9, 49), Seen::Done(Bytes::from_static(b"outcome 49")));
            assert_eq!(store.sessions().check(9, 48), Seen::Done(Bytes::from_static(b"outcome 48")));
            assert_eq!(store.sessions().check(9, 47), Seen::Forgotten);
            assert_eq!(store.sessions().check(9, 50), Seen::New);
            assert_eq!(get(&store, b"k", View::Latest).await, put_entry(&[0; 100]));
        });
    }
}

#[test]
fn what_cannot_be_read_is_an_error_and_the_rest_is_served() {
    let disk = DiskState::new(6, "store");
    let rot = disk.clone();
    single_with(disk, 6, |env| async move {
        let mut log = open_uncached(&env).await;
        let mut store = build(&log, Kind::Hash, 0).await;
        append(&mut log, &mut store, &[put("good", b"1"), put("rotten", b"some value")]);
        commit(&mut log, &mut store).await;
        store.settle().await;
        let path = "regions/7/000001.seg";
        let bytes = rot.read_cached(path).expect("is there");
        let at = bytes.windows(10).position(|bytes| bytes == b"some value").expect("is there");
        rot.flip_bit(path, at as u64, 3).expect("flips");
        let read = async |key: &[u8]| match store.get(key, View::Committed) {
            Lookup::Ready(entry) => Ok(entry),
            Lookup::Read(job) => job.run().await,
        };
        assert!(matches!(read(b"rotten").await, Err(StorageError::Corrupt { .. })));
        assert_eq!(read(b"good").await.expect("reads"), put_entry(b"1"));
        // All hashes collide here: the unreadable record may be this one.
        assert!(matches!(read(b"absent").await, Err(StorageError::Corrupt { .. })));
        append(&mut log, &mut store, &[put("rotten", b"new")]);
        commit(&mut log, &mut store).await;
        store.settle().await;
        assert_eq!(get(&store, b"rotten", View::Committed).await, put_entry(b"new"));
    });
}

/// Any answer of a store whose log has one flipped bit is the right one, or an error: not an older value, not another's,
/// and not "absent". Where hashes do not collide and no key has two records in a page, only the damaged record is lost.
#[test]
fn no_flipped_bit_changes_an_answer() {
    for (seed, hash_mask, keys) in [(1, u64::MAX, 12), (2, u64::MAX, 1000), (3, 3, 12), (4, 0, 12)] {
        let disk = DiskState::new(seed, "store");
        let rot = disk.clone();
        single_with(disk, seed, move |env| async move {
            let mut dice = stream(seed, "rot");
            let mut log = open_uncached(&env).await;
            let mut store = build(&log, Kind::Hash, hash_mask).await;
            let mut model = Model::new();
            for _ in 0..40 {
                let records: Vec<_> = (0..dice.between(1, 6)).map(|_| short_record(&mut dice, keys)).collect();
                let borrowed: Vec<_> = records.iter().map(OwnedRecord::as_record).collect();
                append(&mut log, &mut store, &borrowed);
                records.into_iter().for_each(|record| apply(&mut model, record));
                commit(&mut log, &mut store).await;
                if dice.percent(60) {
                    store.settle().await;
                }
            }
            store.settle().await;
            let stores = [store, build(&log, Kind::Hash, hash_mask).await];
            let mut lost = 0;
            for _ in 0..if keys == 12 { 400 } else { 60 } {
                let segment = dice.between(1, log.head().segment.0);
                let path = format!("regions/7/{segment:06}.seg");
                let len = rot.read_cached(&path).expect("is there").len() as u64;
                let (at, bit) = (dice.between(64, len - 1), dice.below(8) as u8);
                rot.flip_bit(&path, at, bit).expect("flips");
                for store in &stores {
                    let wrong = damaged_keys(store, &model, keys).await;
                    assert!(keys == 12 || wrong <= 1, "{wrong} keys are lost with one record");
                    lost += wrong;
                }
                rot.flip_bit(&path, at, bit).expect("flips back");
            }
            assert!(lost > 0, "no flip was noticed");
        });
    }
}

/// How many keys answer with an error. All others answer as the model does.
async fn damaged_keys(store: &Store, model: &Model, keys: u64) -> usize {
    let mut damaged = 0;
    for number in 0..keys {
        let key = format!("k{number}").into_bytes();
        let read = match store.get(&key, View::Committed) {
            Lookup::Ready(entry) => Ok(entry),
            Lookup::Read(job) => job.run().await,
        };
        match read {
            Ok(entry) => assert_eq!(entry, model.get(key.as_slice()).cloned(), "key k{number}"),
            Err(StorageError::Corrupt { .. }) => damaged += 1,
            Err(error) => panic!("{error}"),
        }
    }
    damaged
}

/// So short that many lie in a page.
fn short_record(dice: &mut Dice, keys: u64) -> OwnedRecord {
    let key: Bytes = format!("k{}", dice.below(keys)).into_bytes().into();
    if dice.percent(25) {
        return OwnedRecord::Tombstone { key };
    }
    let expiry_ms = dice.percent(20).then(|| dice.below(1000));
    random_put(dice, key, 40, expiry_ms)
}

#[test]
fn a_value_that_holds_a_record_is_not_taken_for_one() {
    single(8, |env| async move {
        let (mut log, _) = open(&env).await;
        let mut store = build(&log, Kind::Hash, u64::MAX).await;
        let frame = log.append(Epoch(1), 0, &[put("k", b"first")]).expect("appends");
        store.appended(&frame);
        // The very bytes of an earlier record of the key, after its live one in the same page.
        let copy = frame.bytes.slice(crate::FRAME_HEADER_LEN..);
        append(&mut log, &mut store, &[put("k", b"second"), put("other", &copy)]);
        commit(&mut log, &mut store).await;
        store.settle().await;
        assert_eq!(get(&store, b"k", View::Committed).await, put_entry(b"second"));
        assert_eq!(get(&store, b"other", View::Committed).await, put_entry(&copy));
    });
}

#[test]
fn a_record_longer_than_its_length_says_is_read_in_two_steps() {
    single(9, |env| async move {
        let (mut log, _) = open(&env).await;
        let mut store = build(&log, Kind::Hash, u64::MAX).await;
        let long_key = vec![b'k'; 60_000];
        let long_value = vec![7; 200_000];
        let long_record = expiring(&long_key, b"short", 3);
        append(&mut log, &mut store, &[put("before", b"1"), put("long", &long_value), long_record]);
        commit(&mut log, &mut store).await;
        store.settle().await;
        assert_eq!(get(&store, b"long", View::Committed).await, put_entry(&long_value));
        let entry = get(&store, &long_key, View::Committed).await.expect("it is there");
        assert_eq!((entry.value.as_ref(), entry.expiry_ms), (b"short".as_slice(), Some(3)));
        assert_eq!(everything(&store, 10).await.len(), 3);
    });
}

/// A page's bytes may be on the disk before they are committed.
#[test]
fn a_read_does_not_see_what_was_appended_to_its_page_since() {
    single(10, |env| async move {
        let (mut log, _) = open(&env).await;
        let mut store = build(&log, Kind::Hash, u64::MAX).await;
        append(&mut log, &mut store, &[put("k", b"1")]);
        commit(&mut log, &mut store).await;
        store.settle().await;
        append(&mut log, &mut store, &[put("k", b"2")]);
        flush(&mut log).await;
        assert_eq!(get(&store, b"k", View::Committed).await, put_entry(b"1"));
        assert_eq!(everything(&store, 10).await[b"k".as_slice()], put_entry(b"1").expect("some"));
    });
}
