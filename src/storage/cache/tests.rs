use super::*;
use crate::testing::{DIR, Kind, REGION, append_and_settle, build, options, put};
use crate::{Epoch, Log, Lookup, Position, Store, View};
use env::sim::{Dice, single, stream};
use std::collections::BTreeMap;

const IDENTITY: Identity = Identity { cluster: 1, region: REGION };

async fn get(store: &Store, key: &str) -> Option<Bytes> {
    let entry = match store.get(key.as_bytes(), View::Committed) {
        Lookup::Ready(entry) => entry,
        Lookup::Read(job) => job.run().await.expect("reads"),
    };
    entry.map(|entry| entry.value)
}

/// A cut log uses segment numbers and offsets again.
#[test]
fn a_log_that_was_cut_and_went_on_is_not_answered_from_what_it_held() {
    single(1, |env| async move {
        for to_nothing in [true, false] {
            let (mut log, _) = Log::open(&env, DIR, REGION, options()).await.expect("opens");
            log.reset().await.expect("resets");
            let mut store = build(&log, Kind::Hash, u64::MAX).await;
            append_and_settle(&mut log, &mut store, &[put("first", b"1")]).await;
            let kept = if to_nothing { Position::ZERO } else { log.head() };
            append_and_settle(&mut log, &mut store, &[put("k", b"old")]).await;
            assert_eq!(get(&store, "k").await.as_deref(), Some(b"old".as_slice()));
            assert!(log.shared.cache.stats().hits > 0, "it is answered from the cache");
            log.rewind(kept).await.expect("goes back");
            if to_nothing {
                log.append(Epoch(1), 0, &[put("first", b"1")]).expect("appends");
            }
            let mut store = build(&log, Kind::Hash, u64::MAX).await;
            append_and_settle(&mut log, &mut store, &[put("k", b"new")]).await;
            assert_eq!(get(&store, "k").await.as_deref(), Some(b"new".as_slice()));
            let again = build(&log, Kind::Hash, u64::MAX).await;
            assert_eq!(get(&again, "k").await.as_deref(), Some(b"new".as_slice()));
        }
    });
}

/// A view's records, put straight into the cache.
struct Direct {
    cache: Arc<ReadCache>,
    view: ViewNumber,
}

impl Direct {
    fn new(cache: &Arc<ReadCache>) -> Direct {
        Direct { cache: cache.clone(), view: cache.new_view() }
    }

    fn hash(&self, key: &[u8]) -> EntryHash {
        self.view.hash(IDENTITY.key_hash(key))
    }

    fn insert(&self, key: &[u8], value: &[u8], offset: u64) -> Location {
        let (record, segment) = (Record::put(key, value), crate::SegmentId(1));
        let mut bytes = Vec::new();
        record.encode(&IDENTITY.seeds(segment), offset, &mut bytes);
        let location = Location { segment, offset, len: bytes.len() as u32 };
        self.cache.insert(self.hash(key), key, location, &bytes);
        location
    }

    fn get(&self, key: &[u8]) -> Option<(Location, Bytes)> {
        let take = |location: Location, record: &Record<'_>, share: &dyn Fn(&[u8]) -> Bytes| match *record {
            Record::Put { value, .. } => Some((location, share(value))),
            _ => None,
        };
        self.cache.open(self.hash(key)).get(key, &IDENTITY, |_| true, take)
    }
}

fn value(dice: &mut Dice) -> Vec<u8> {
    let len = match dice.below(100) {
        0..80 => dice.below(200),
        80..98 => dice.below(3000),
        _ => dice.below(20_000),
    };
    let mut value = vec![0; len as usize];
    dice.fill(&mut value);
    value
}

/// Whatever it still has of a key is what was put last, values that were taken out stay as they are, and the memory has
/// its bound.
#[test]
fn a_cache_holds_nothing_but_the_last_of_each_key() {
    for (seed, memory) in [(1, 28 << 10), (2, 64 << 10), (3, 1 << 20), (4, 3 << 20)] {
        let cache = ReadCache::new(memory, &HashHeap::default());
        let views = [Direct::new(&cache), Direct::new(&cache)];
        let mut dice = stream(seed, "cache");
        let mut models: [BTreeMap<u64, (Location, Vec<u8>)>; 2] = Default::default();
        let mut held: Vec<(Bytes, Vec<u8>)> = Vec::new();
        let (mut hits, mut offset) = (0, 0);
        for _ in 0..30_000 {
            let at = dice.below(2) as usize;
            let (view, model) = (&views[at], &mut models[at]);
            let most = dice.between(1, 3000);
            let number = dice.below(most);
            let key = number.to_be_bytes();
            match dice.below(20) {
                0..8 => {
                    let value = value(&mut dice);
                    let location = view.insert(&key, &value, offset);
                    offset += location.len as u64;
                    model.insert(number, (location, value));
                }
                8 => {
                    view.cache.remove(view.hash(&key), &key);
                    model.remove(&number);
                }
                _ => {
                    let Some(found) = view.get(&key) else { continue };
                    hits += 1;
                    let expected = model.get(&number).expect("nothing that was removed");
                    assert_eq!((found.0, &found.1[..]), (expected.0, &expected.1[..]));
                    held.push((found.1, expected.1.clone()));
                }
            }
            if held.len() > 100 {
                let (shared, own) = held.swap_remove(dice.below(100) as usize);
                assert_eq!(&shared[..], &own[..]);
            }
            let bytes = cache.stats().cache_bytes;
            assert!(bytes <= memory as u64 + 8192, "{bytes} of {memory}");
        }
        assert!(hits > 100, "{hits} hits with {memory} bytes");
        assert!(cache.stats().evictions > 100 || memory > 1 << 20);
    }
}

#[test]
fn what_is_read_once_does_not_drive_out_what_is_used() {
    let cache = ReadCache::new(1 << 20, &HashHeap::default());
    let view = Direct::new(&cache);
    let used = |number: u64| number.to_be_bytes();
    let touch = || (0..2000).filter(|&number| view.get(&used(number)).is_some()).count();
    for number in 0..2000 {
        view.insert(&used(number), &[1; 100], number * 200);
    }
    touch();
    for once in 1_000_000..1_050_000u64 {
        view.insert(&once.to_be_bytes(), &[2; 100], once);
        if once % 5000 == 0 {
            touch();
        }
    }
    let left = touch();
    assert!(left > 1700, "{left} of 2,000 used entries are left");
}

#[test]
fn memory_that_others_take_is_given_back() {
    let memory = 8 << 20;
    let cache = ReadCache::new(memory, &HashHeap::default());
    let view = Direct::new(&cache);
    let fill = || {
        for number in 0..100_000u64 {
            view.insert(&number.to_be_bytes(), &[1; 100], number);
        }
    };
    fill();
    let full = cache.stats().cache_bytes as usize;
    assert!(full > memory * 8 / 10 && full <= memory, "{full}");
    let mut buffered = Buffered::new(&cache);
    for bytes in (0..6 << 20).step_by(1000) {
        buffered.set(bytes);
        let all = cache.stats().cache_bytes as usize + bytes;
        assert!(all <= memory + 64 * 1024, "{all} with {bytes} buffered");
    }
    fill();
    assert!(cache.stats().cache_bytes <= (2 << 20) + 64 * 1024);
    drop(buffered);
    cache.fit();
    fill();
    assert!(cache.stats().cache_bytes as usize > memory * 7 / 10);
}

/// Values shared with a cache that is changed by others meanwhile, on threads as they come.
#[test]
fn threads_see_whole_records_only() {
    let cache = ReadCache::new(256 << 10, &HashHeap::default());
    let number = cache.new_view();
    let work = move |seed: u64, cache: Arc<ReadCache>| {
        let view = Direct { cache, view: number };
        let mut dice = stream(seed, "thread");
        let mut hits = 0;
        for round in 0..40_000u64 {
            let key = dice.below(2000).to_be_bytes();
            if dice.percent(30) {
                let len = dice.below(300) as usize;
                view.insert(&key, &vec![key[7]; len], round);
            } else if let Some((_, value)) = view.get(&key) {
                hits += 1;
                assert!(value.iter().all(|&byte| byte == key[7]));
            }
        }
        hits
    };
    let runtime = env::real::runtime().expect("starts");
    let hits = runtime.block_on(async {
        let env = env::real::open_diskless("cache".to_owned());
        let tasks: Vec<_> = (0..4)
            .map(|seed| {
                let (cache, work) = (cache.clone(), work);
                env.blocking(move || work(seed, cache))
            })
            .collect();
        let mut hits = 0;
        for task in tasks {
            hits += task.await.expect("ends");
        }
        hits
    });
    assert!(hits > 1000, "{hits} hits");
    assert!(cache.stats().hits >= hits);
}

#[test]
fn without_memory_there_is_no_cache() {
    let cache = ReadCache::new(0, &HashHeap::default());
    let view = Direct::new(&cache);
    view.insert(b"k", b"v", 0);
    assert_eq!(view.get(b"k"), None);
    assert_eq!(cache.stats(), ReadStats::default());
}

/// What a damaged cache holds is not believed.
#[test]
fn an_entry_of_another_place_is_not_believed() {
    let cache = ReadCache::new(1 << 20, &HashHeap::default());
    let view = Direct::new(&cache);
    let location = view.insert(b"k", b"v", 100);
    assert!(view.get(b"k").is_some());
    let mut bytes = Vec::new();
    Record::put(b"k", b"w").encode(&IDENTITY.seeds(location.segment), 99, &mut bytes);
    cache.insert(view.hash(b"k"), b"k", location, &bytes);
    assert_eq!(view.get(b"k"), None);
}

/// The same operations give the same hits and the same memory.
#[test]
fn the_same_happens_each_time() {
    let run = || {
        single(5, |env| async move {
            let options = options().with_memory(300 << 10);
            let (mut log, _) = Log::open(&env, DIR, REGION, options).await.expect("opens");
            let mut store = build(&log, Kind::Hash, u64::MAX).await;
            let mut dice = stream(5, "again");
            for _ in 0..300 {
                let key = format!("k{}", dice.below(400));
                append_and_settle(&mut log, &mut store, &[put(&key, &value(&mut dice)[..])]).await;
                get(&store, &format!("k{}", dice.below(400))).await;
            }
            log.shared.cache.stats()
        })
    };
    let first = run();
    assert!(first.hits > 0 && first.evictions > 0 && first.misses > 0, "{first:?}");
    assert_eq!(run(), first);
}
