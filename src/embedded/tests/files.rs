//! The library on real files: what users of its kind ran into, each with what is right.

// These tests look at the files from outside, and at threads.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use embedded::{Db, Durability, Error, Index, Options};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn small() -> Options {
    Options::new().segment_bytes(4096).durability(Durability::Buffered)
}

fn open(folder: &Path) -> Db {
    small().open(folder).expect("opens")
}

fn everything(db: &Db) -> Model {
    let entries = db.iter().expect("begins").map(|entry| entry.expect("reads"));
    let mut all = Model::new();
    for (key, value) in entries {
        assert_eq!(all.insert(key.to_vec(), value.to_vec()), None, "each key once");
    }
    all
}

fn key(number: u32) -> String {
    format!("key{number:05}")
}

/// Some segments, with keys that were overwritten and deleted.
fn fill(db: &Db) -> Model {
    let mut model = Model::new();
    for number in 0..300u32 {
        let (key, value) = (key(number % 190), vec![number as u8; 60]);
        db.put(&key, &value).expect("puts");
        model.insert(key.into_bytes(), value);
        if number % 7 == 3 {
            let gone = self::key(number / 2);
            db.delete(&gone).expect("deletes");
            model.remove(gone.as_bytes());
        }
    }
    model
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder.join("log")).expect("a folder").map(|entry| entry.expect("an entry").path());
    let mut files: Vec<_> = entries.filter(|path| path.extension().is_some_and(|found| found == extension)).collect();
    files.sort();
    files
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let to = to.join(entry.file_name());
        match entry.file_type().expect("a type").is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).expect("copies")),
        }
    }
}

/// A closed database of some segments, and what is in it.
fn filled() -> (tempfile::TempDir, Model) {
    let folder = tempfile::tempdir().expect("a folder");
    let db = open(folder.path());
    let model = fill(&db);
    assert_eq!(everything(&db), model);
    db.close().expect("closes");
    assert!(files(folder.path(), "seg").len() > 3 && files(folder.path(), "hint").len() > 2);
    (folder, model)
}

#[test]
fn a_deleted_key_stays_deleted_after_a_merge_and_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut model = Model::new();
    for round in 0..12u32 {
        let db = open(folder.path());
        assert_eq!(everything(&db), model);
        for number in 0..60 {
            let key = key((round * 7 + number * 13) % 40);
            if number % 3 == 0 {
                db.delete(&key).expect("deletes");
                model.remove(key.as_bytes());
            } else {
                let value = vec![number as u8; 90];
                db.put(&key, &value).expect("puts");
                model.insert(key.into_bytes(), value);
            }
        }
        if round % 2 == 0 {
            db.merge(|_| ()).expect("merges");
            assert_eq!(everything(&db), model);
        }
        db.close().expect("closes");
    }
}

#[test]
fn a_merge_frees_what_is_dead_and_says_how_far_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let db = open(folder.path());
    for number in 0..400u32 {
        db.put(key(number % 10), [number as u8; 200]).expect("puts");
    }
    let mut seen = Vec::new();
    let done = db.merge(|progress| seen.push(progress)).expect("merges");
    assert!(done.steps > 0 && done.bytes_now * 4 < done.bytes_before, "{done:?}");
    assert_eq!(seen.last(), Some(&done));
    let on_disk: u64 = files(folder.path(), "seg").iter().map(|file| file.metadata().expect("is there").len()).sum();
    assert!(on_disk < 12_000, "{on_disk} bytes for 2,000 that are live");
    assert_eq!(everything(&db).len(), 10);
    for number in 0..10 {
        db.delete(key(number)).expect("deletes");
    }
    db.merge(|_| ()).expect("merges");
    assert_eq!((everything(&db).len(), db.stats().expect("is open").live_bytes), (0, 0));
}

#[test]
fn a_hint_cut_at_any_place_or_with_any_byte_flipped_changes_nothing() {
    let (folder, model) = filled();
    let hint = files(folder.path(), "hint")[1].clone();
    let bytes = fs::read(&hint).expect("reads");
    let name = hint.strip_prefix(folder.path()).expect("inside");
    let damages = (0..bytes.len()).step_by(23).flat_map(|at| [(at, true), (at, false)]);
    for (at, cuts) in damages {
        let copied = tempfile::tempdir().expect("a folder");
        copy(folder.path(), copied.path());
        let mut damaged = bytes.clone();
        if cuts {
            damaged.truncate(at)
        } else {
            damaged[at] ^= 0x20
        }
        fs::write(copied.path().join(name), damaged).expect("writes");
        assert_eq!(everything(&open(copied.path())), model, "hint damaged at {at}");
    }
}

#[test]
fn lost_hints_come_back_with_a_clean_stop() {
    let (folder, model) = filled();
    let before = files(folder.path(), "hint").len();
    files(folder.path(), "hint").iter().for_each(|hint| fs::remove_file(hint).expect("removes"));
    let db = open(folder.path());
    assert!(db.stats().expect("is open").hints_missing > 2);
    assert_eq!(everything(&db), model);
    db.close().expect("closes");
    assert_eq!(files(folder.path(), "hint").len(), before);
    let db = open(folder.path());
    assert_eq!((db.stats().expect("is open").hints_missing, everything(&db)), (0, model));
}

#[test]
fn a_damaged_record_is_an_error_of_its_key_and_of_no_other() {
    let (folder, model) = filled();
    let segment = files(folder.path(), "seg")[1].clone();
    let mut bytes = fs::read(&segment).expect("reads");
    let (key, value) = model.iter().find(|(key, _)| memory_find(&bytes, key).is_some()).expect("one is there");
    let at = memory_find(&bytes, key).expect("just found") + key.len() + 5;
    bytes[at] ^= 1;
    fs::write(&segment, bytes).expect("writes");
    let db = open(folder.path());
    let damaged: Vec<_> = model.keys().filter(|key| db.get(key).is_err()).collect();
    // The place may hold an older record of the key, which nobody reads.
    assert!(damaged.is_empty() || damaged == [key], "{damaged:?}");
    for (other, value) in model.iter().filter(|(other, _)| *other != key) {
        assert_eq!(db.get(other).expect("reads").as_deref(), Some(&value[..]));
    }
    match db.get(key) {
        Err(error @ Error::Corrupt { .. }) => assert!(error.to_string().contains("000002.seg"), "{error}"),
        Ok(found) => assert_eq!(found.as_deref(), Some(&value[..])),
        Err(error) => panic!("{error}"),
    }
}

fn memory_find(bytes: &[u8], key: &[u8]) -> Option<usize> {
    bytes.windows(key.len()).position(|window| window == key)
}

#[test]
fn a_torn_end_is_dropped_and_the_next_starts_hold() {
    let (folder, model) = filled();
    let last = files(folder.path(), "seg").pop().expect("some");
    // As if it had not been stopped cleanly, while something was written.
    fs::remove_file(folder.path().join("log/clean")).expect("removes");
    let mut bytes = fs::read(&last).expect("reads");
    bytes.extend_from_slice(&[0x5a; 77]);
    fs::write(&last, bytes).expect("writes");
    for round in 0..3u8 {
        let db = open(folder.path());
        let mut expected = model.clone();
        expected.extend((0..round).map(|round| (vec![round + 1], vec![round])));
        assert_eq!(everything(&db), expected);
        db.put([round + 1], [round]).expect("puts");
        db.sync().expect("flushes");
        // As a kill leaves it: the copy of a folder that is open.
        let copied = tempfile::tempdir().expect("a folder");
        copy(folder.path(), copied.path());
        expected.insert(vec![round + 1], vec![round]);
        assert_eq!(everything(&open(copied.path())), expected);
    }
}

#[test]
fn damage_before_the_end_is_told_and_not_cut_off() {
    let (folder, _) = filled();
    let segment = files(folder.path(), "seg")[1].clone();
    let bytes = fs::read(&segment).expect("reads");
    fs::write(&segment, &bytes[..bytes.len() - 7]).expect("writes");
    match small().open(folder.path()) {
        Err(error @ Error::Corrupt { .. }) => assert!(error.to_string().contains("000002.seg"), "{error}"),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it opened without a part of its log"),
    }
    assert_eq!(fs::read(&segment).expect("reads").len(), bytes.len() - 7);
}

#[test]
fn a_stale_or_empty_lock_is_no_obstacle_and_a_held_one_names_its_holder() {
    let (folder, model) = filled();
    for content in ["", "123456789\n", "not a number"] {
        fs::write(folder.path().join("lock"), content).expect("writes");
        let db = open(folder.path());
        assert_eq!(everything(&db), model);
        match small().open(folder.path()) {
            Err(error @ Error::Locked { .. }) => {
                assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
            }
            Err(error) => panic!("{error}"),
            Ok(_) => panic!("open twice"),
        }
        assert_eq!(db.get(key(189)).expect("reads").as_deref(), model.get(key(189).as_bytes()).map(Vec::as_slice));
    }
}

#[test]
fn leftovers_of_files_being_written_are_no_obstacle() {
    let (folder, model) = filled();
    for name in ["identity.new", "keys.new", "log/state.tmp", "log/000002.hint.tmp", "log/000001.1.seg.00ff.tmp"] {
        fs::write(folder.path().join(name), b"half").expect("writes");
    }
    fs::write(folder.path().join("log/000009.seg.tmp"), b"").expect("writes");
    assert_eq!(everything(&open(folder.path())), model);
}

#[test]
fn what_is_only_read_is_not_changed() {
    let (folder, model) = filled();
    let snapshot = |folder: &Path| -> Vec<(PathBuf, Vec<u8>)> {
        let mut files: Vec<PathBuf> = files(folder, "seg");
        files.extend(self::files(folder, "hint"));
        files.extend(["log/state", "log/durable", "log/clean", "identity"].map(|name| folder.join(name)));
        files.into_iter().map(|file| (file.clone(), fs::read(&file).expect("reads"))).collect()
    };
    let before = snapshot(folder.path());
    for index in [Index::Hash, Index::Radix] {
        let db = small().read_only(true).index(index).open(folder.path()).expect("opens");
        assert_eq!(everything(&db), model);
        assert!(matches!(db.put(b"k", b"v"), Err(Error::ReadOnly)));
        assert!(matches!(db.take(b"k"), Err(Error::ReadOnly)));
        assert!(matches!(db.merge(|_| ()), Err(Error::ReadOnly)));
        assert!(matches!(db.transaction(), Err(Error::ReadOnly)));
        db.close().expect("closes");
        assert!(matches!(db.get(b"k"), Err(Error::Closed)));
    }
    assert_eq!(snapshot(folder.path()), before);
    let nowhere = folder.path().join("nowhere");
    assert!(matches!(small().read_only(true).open(&nowhere), Err(Error::Missing { .. })));
    assert!(!nowhere.exists());
    let empty = tempfile::tempdir().expect("a folder");
    assert!(matches!(small().create_if_missing(false).open(empty.path()), Err(Error::Missing { .. })));
}

#[test]
fn a_panic_while_writing_is_no_clean_stop_and_loses_nothing_that_returned() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_owned();
    let panicked = std::thread::spawn(move || {
        let db = Options::new().durability(Durability::Synced).open(path).expect("opens");
        for number in 0..50 {
            db.put(key(number), b"value").expect("puts");
        }
        panic!("a planned panic");
    });
    assert!(panicked.join().is_err());
    assert!(!folder.path().join("log/clean").exists(), "the stop was not clean");
    let db = open(folder.path());
    assert_eq!(everything(&db).len(), 50);
    drop(db);
    assert!(folder.path().join("log/clean").exists(), "dropping the last handle closes");
}

#[test]
fn keys_and_values_of_every_allowed_length_come_back_and_others_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    for index in [Index::Hash, Index::Radix] {
        let options = Options::new().index(index).durability(Durability::Buffered);
        let db = options.clone().open(folder.path()).expect("opens");
        let lengths = [1, 2, 255, 256, 4095, 4096, 65_535, 65_536];
        for len in lengths {
            db.put(vec![len as u8; len], len.to_string()).expect("puts");
        }
        for byte in 0..=255u8 {
            db.put([byte], [byte]).expect("puts");
            db.put([byte, 0], []).expect("an empty value is a value");
        }
        let long = vec![7; embedded::limits::VALUE_BYTES_MAX];
        db.put("long", &long).expect("puts");
        for refused in [vec![], vec![1; 65_537], vec![1; 1 << 20]] {
            assert!(matches!(db.put(&refused, b"v"), Err(Error::Invalid { .. })));
            assert!(matches!(db.get(&refused), Err(Error::Invalid { .. })));
            assert!(matches!(db.delete(&refused), Err(Error::Invalid { .. })));
        }
        let longer = vec![7; embedded::limits::VALUE_BYTES_MAX + 1];
        assert!(matches!(db.put("longer", &longer), Err(Error::Invalid { .. })));
        db.merge(|_| ()).expect("merges");
        db.close().expect("closes");
        let db = options.open(folder.path()).expect("opens");
        for len in &lengths[1..] {
            assert_eq!(db.get(vec![*len as u8; *len]).expect("reads").as_deref(), Some(len.to_string().as_bytes()));
        }
        for byte in 0..=255u8 {
            assert_eq!(db.get([byte]).expect("reads").as_deref(), Some(&[byte][..]));
            assert_eq!(db.get([byte, 0]).expect("reads").as_deref(), Some(&[][..]));
        }
        assert_eq!(db.get("long").expect("reads").as_deref(), Some(&long[..]));
    }
}

#[test]
fn ranges_and_prefixes_are_ordered_and_the_hash_says_what_they_need() {
    let folder = tempfile::tempdir().expect("a folder");
    let hash = open(folder.path());
    let keys: [&[u8]; 7] = [b"a", b"a\0", b"a\0\xff", b"ab", b"b", b"b\xff\xff", b"c"];
    for key in keys.iter().rev() {
        hash.put(key, b"v").expect("puts");
    }
    match hash.range("a".."b") {
        Err(error @ Error::Invalid { .. }) => assert!(error.to_string().contains("Index::Radix"), "{error}"),
        _ => panic!("keys have no order there"),
    }
    assert!(hash.prefix("a").is_err());
    hash.close().expect("closes");
    for clean in [false, true] {
        let db = small().index(Index::Radix).open(folder.path()).expect("opens");
        let found =
            |entries: embedded::Iter| -> Vec<Vec<u8>> { entries.map(|e| e.expect("reads").0.to_vec()).collect() };
        assert_eq!(found(db.iter().expect("begins")), keys, "with a file of the keys: {clean}");
        assert_eq!(found(db.range::<&[u8]>(&b"a\0"[..]..b"b").expect("begins")), keys[1..4]);
        assert_eq!(found(db.range::<&[u8]>(..=&b"a\0\xff"[..]).expect("begins")), keys[..3]);
        assert_eq!(found(db.prefix(b"a\0").expect("begins")), keys[1..3]);
        assert_eq!(found(db.prefix(b"").expect("begins")), keys);
        assert_eq!(found(db.range("x".."y").expect("begins")).len(), 0);
        db.close().expect("closes");
        assert!(folder.path().join("keys").exists());
    }
    // One that was written to without the keys, and one whose file is damaged.
    let hash = open(folder.path());
    hash.put(b"aa", b"v").expect("puts");
    hash.close().expect("closes");
    let db = small().index(Index::Radix).open(folder.path()).expect("opens");
    assert_eq!(db.iter().expect("begins").count(), 8);
    db.close().expect("closes");
    let mut bytes = fs::read(folder.path().join("keys")).expect("reads");
    *bytes.last_mut().expect("not empty") ^= 1;
    fs::write(folder.path().join("keys"), bytes).expect("writes");
    let db = small().index(Index::Radix).open(folder.path()).expect("opens");
    assert_eq!(db.iter().expect("begins").count(), 8);
}

#[test]
fn an_iterator_gives_what_was_there_when_it_began_whatever_is_written_meanwhile() {
    for index in [Index::Hash, Index::Radix] {
        let folder = tempfile::tempdir().expect("a folder");
        let db = small().index(index).open(folder.path()).expect("opens");
        let mut before = Model::new();
        for number in 0..2000 {
            db.put(key(number), number.to_string()).expect("puts");
            before.insert(key(number).into_bytes(), number.to_string().into_bytes());
        }
        let mut found = Model::new();
        for (at, entry) in db.iter().expect("begins").enumerate() {
            let (key, value) = entry.expect("reads");
            assert_eq!(found.insert(key.to_vec(), value.to_vec()), None, "each key once");
            let number = at as u32;
            db.put(self::key(number), b"new").expect("puts");
            db.delete(self::key(1999 - number)).expect("deletes");
            db.put(self::key(10_000 + number), b"newer").expect("puts");
            if at == 700 {
                db.merge(|_| ()).expect("merges");
            }
        }
        assert_eq!(found, before, "{index:?}");
        assert_eq!(db.stats().expect("is open").versions, 0, "nobody asks for the past any more");
    }
}

#[test]
fn a_snapshot_outlives_overwriting_everything_and_merging_twice() {
    let folder = tempfile::tempdir().expect("a folder");
    let db = open(folder.path());
    let model = fill(&db);
    let snapshot = db.snapshot().expect("is open");
    for round in 0..4u8 {
        for number in 0..200 {
            db.put(key(number), [round; 70]).expect("puts");
        }
        db.merge(|_| ()).expect("merges");
    }
    let read = |number| snapshot.get(key(number)).expect("reads").map(|value| value.to_vec());
    for number in 0..200 {
        assert_eq!(read(number), model.get(key(number).as_bytes()).cloned());
    }
    let all: Model =
        snapshot.iter().expect("begins").map(|e| e.map(|(k, v)| (k.to_vec(), v.to_vec())).expect("reads")).collect();
    assert_eq!(all, model);
    drop(snapshot);
    let merged = db.merge(|_| ()).expect("merges");
    assert!(merged.bytes_now < 40_000, "{merged:?}");
}

#[test]
fn of_two_transactions_that_read_what_the_other_writes_one_conflicts() {
    let folder = tempfile::tempdir().expect("a folder");
    let db = small().index(Index::Radix).open(folder.path()).expect("opens");
    db.put(b"a", b"1").expect("puts");
    // Write skew: each reads what the other writes.
    let (mut first, mut second) = (db.transaction().expect("begins"), db.transaction().expect("begins"));
    first.get(b"a").expect("reads");
    second.get(b"b").expect("reads");
    first.put(b"b", b"1").expect("gathers");
    second.put(b"a", b"2").expect("gathers");
    first.commit().expect("nobody changed what it read");
    assert!(matches!(second.commit(), Err(Error::Conflict)));
    // A plain write counts, a phantom too, and a key written back to what it was.
    for written in ["a", "ab"] {
        let mut transaction = db.transaction().expect("begins");
        assert!(!transaction.range("a".."b").expect("reads").is_empty());
        transaction.put(b"z", b"1").expect("gathers");
        db.put(written, db.get(written).expect("reads").unwrap_or_default()).expect("puts");
        assert!(matches!(transaction.commit(), Err(Error::Conflict)), "{written}");
    }
    // What it did not read does not matter, and its own changes show.
    let mut transaction = db.transaction().expect("begins");
    transaction.put(b"own", b"1").expect("gathers");
    transaction.delete(b"ab").expect("gathers");
    assert_eq!(transaction.get(b"own").expect("reads").as_deref(), Some(&b"1"[..]));
    assert_eq!(transaction.prefix("a").expect("reads").len(), 1);
    db.put(b"elsewhere", b"1").expect("puts");
    assert_eq!(db.get(b"own").expect("reads"), None);
    transaction.commit().expect("commits");
    assert_eq!(db.get(b"own").expect("reads").as_deref(), Some(&b"1"[..]));
}

#[test]
fn transactions_of_many_threads_lose_no_addition() {
    let folder = tempfile::tempdir().expect("a folder");
    let db = open(folder.path());
    let conflicts = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    loop {
                        let mut transaction = db.transaction().expect("begins");
                        let value = transaction.get(b"sum").expect("reads").unwrap_or_default();
                        let sum = value.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)) + 1;
                        transaction.put(b"sum", sum.to_le_bytes()).expect("gathers");
                        match transaction.commit() {
                            Ok(()) => break,
                            Err(Error::Conflict) => conflicts.fetch_add(1, Ordering::Relaxed),
                            Err(error) => panic!("{error}"),
                        };
                    }
                    // The same with a read that is part of the write.
                    let before = db.replace([9], [1]).expect("replaces");
                    assert!(before.is_none_or(|before| before.len() == 1));
                }
            });
        }
    });
    assert_eq!(db.get(b"sum").expect("reads").as_deref(), Some(&200u64.to_le_bytes()[..]));
}

#[test]
fn merging_races_with_puts_and_deletes_and_loses_neither() {
    let folder = tempfile::tempdir().expect("a folder");
    let db = small().durability(Durability::Relaxed).open(folder.path()).expect("opens");
    let done = AtomicBool::new(false);
    let models: Vec<Model> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2u32)
            .map(|writer| {
                let db = &db;
                scope.spawn(move || {
                    let mut model = Model::new();
                    for number in 0..6000u32 {
                        let key = key(writer * 1000 + number * 17 % 100);
                        if number % 5 == 4 {
                            db.delete(&key).expect("deletes");
                            model.remove(key.as_bytes());
                        } else {
                            let value = number.to_le_bytes().repeat(12);
                            db.put(&key, &value).expect("puts");
                            assert_eq!(db.get(&key).expect("reads").as_deref(), Some(&value[..]));
                            model.insert(key.into_bytes(), value);
                        }
                    }
                    model
                })
            })
            .collect();
        let merger = scope.spawn(|| {
            let mut steps = 0;
            while !done.load(Ordering::Relaxed) {
                steps += db.merge(|_| ()).expect("merges").steps;
            }
            steps
        });
        let models = writers.into_iter().map(|writer| writer.join().expect("no panic")).collect();
        done.store(true, Ordering::Relaxed);
        assert!(merger.join().expect("no panic") > 0);
        models
    });
    let expected: Model = models.into_iter().flatten().collect();
    assert_eq!(everything(&db), expected);
    db.close().expect("closes");
    assert_eq!(everything(&open(folder.path())), expected);
}

#[test]
fn threads_that_write_at_once_share_flushes_and_each_finds_its_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let db = Options::new().open(folder.path()).expect("opens");
    std::thread::scope(|scope| {
        for thread in 0..16u32 {
            let db = &db;
            scope.spawn(move || {
                for number in 0..20 {
                    db.put(key(thread * 100 + number), b"v").expect("puts");
                    assert!(db.contains(key(thread * 100 + number)).expect("reads"));
                }
            });
        }
    });
    // As a kill leaves it.
    let copied = tempfile::tempdir().expect("a folder");
    copy(folder.path(), copied.path());
    assert_eq!(everything(&Options::new().open(copied.path()).expect("opens")).len(), 320);
}

#[test]
fn a_batch_is_whole_for_readers_and_its_last_change_of_a_key_counts() {
    let folder = tempfile::tempdir().expect("a folder");
    let db = open(folder.path());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..300u32 {
                let mut batch = db.batch();
                batch.put(b"x", b"dropped").put(b"x", round.to_le_bytes()).put(b"y", round.to_le_bytes());
                batch.put(b"z", b"1").delete(b"z");
                db.write(batch).expect("writes");
            }
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) {
            let snapshot = db.snapshot().expect("is open");
            assert_eq!(snapshot.get(b"x").expect("reads"), snapshot.get(b"y").expect("reads"));
            assert_eq!(snapshot.get(b"z").expect("reads"), None);
        }
    });
    let mut batch = db.batch();
    for number in 0..70_000u32 {
        batch.put(number.to_le_bytes(), b"");
    }
    assert!(matches!(db.write(batch), Err(Error::Invalid { .. })));
    let mut batch = db.batch();
    batch.put(b"good", b"").put(b"", b"not");
    assert!(matches!(db.write(batch), Err(Error::Invalid { .. })));
    assert_eq!(db.get(b"good").expect("reads"), None, "all or none");
    db.write(db.batch()).expect("an empty one is nothing");
}

#[test]
fn sessions_that_update_for_ever_take_bounded_space_and_idle_space_comes_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let db = Options::new().segment_bytes(64 << 10).durability(Durability::Relaxed).open(folder.path()).expect("opens");
    for round in 0..100u32 {
        for number in 0..200 {
            db.put(key(number), [round as u8; 150]).expect("puts");
        }
    }
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    loop {
        let stats = db.stats().expect("is open");
        // Twice what is live, and three segments.
        if stats.disk_bytes <= stats.live_bytes * 2 + (3 << 16) && stats.compactions > 0 {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "{stats:?}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(everything(&db).len(), 200);
}

#[test]
fn destroying_removes_all_of_it_and_nothing_else() {
    let (folder, _) = filled();
    fs::write(folder.path().join("not ours"), b"kept").expect("writes");
    let db = open(folder.path());
    assert!(matches!(Db::destroy(folder.path()), Err(Error::Locked { .. })));
    db.close().expect("closes");
    Db::destroy(folder.path()).expect("removes");
    let left: Vec<_> =
        fs::read_dir(folder.path()).expect("a folder").map(|entry| entry.expect("an entry").file_name()).collect();
    assert_eq!(left, ["not ours"]);
    Db::destroy(folder.path()).expect("nothing is left");
    Db::destroy(folder.path().join("nowhere")).expect("nothing was there");
    assert_eq!(everything(&open(folder.path())).len(), 0);
}

#[test]
fn a_newer_format_is_refused_and_named() {
    let (folder, _) = filled();
    let path = folder.path().join("identity");
    let bytes = fs::read(&path).expect("reads");
    let mut payload = bytes[24..].to_vec();
    payload[0] = 255;
    fs::write(&path, storage::small_file::encode(*b"SFID", &payload)).expect("writes");
    match small().open(folder.path()) {
        Err(error @ Error::NewerFormat { found: 255, .. }) => assert!(error.to_string().contains("newer"), "{error}"),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it opened"),
    }
}
