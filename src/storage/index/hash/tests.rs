use super::*;
use env::sim::stream;

fn hash(number: u64) -> u64 {
    xxhash_rust::xxh3::xxh3_64(&number.to_le_bytes())
}

fn at(number: u64) -> Location {
    Location { segment: SegmentId(1 + number / 100_000), offset: 64 + number % 100_000 * 130, len: 130 }
}

fn index_on(heap: &HashHeap) -> HashIndex {
    HashIndex::new(heap, HashOptions::default())
}

fn find(index: &HashIndex, hash: u64, location: Location) -> Option<Candidate> {
    let mut found = Candidates::default();
    index.lookup(hash, &mut found);
    found.iter().find(|candidate| candidate.covers(location))
}

#[test]
fn several_indexes_share_a_heap_and_leave_nothing_behind() {
    let heap = HashHeap::default();
    let mut dice = stream(3, "hash");
    let mut indexes: Vec<HashIndex> = (0..7).map(|_| index_on(&heap)).collect();
    let mut held: Vec<Vec<u64>> = vec![Vec::new(); indexes.len()];
    for number in 0..60_000 {
        let which = dice.below(indexes.len() as u64) as usize;
        if dice.percent(if number < 30_000 { 80 } else { 30 }) {
            indexes[which].insert(hash(number), at(number));
            held[which].push(number);
        } else if !held[which].is_empty() {
            let at_random = dice.below(held[which].len() as u64) as usize;
            let gone = held[which].swap_remove(at_random);
            let candidate = find(&indexes[which], hash(gone), at(gone)).expect("it is there");
            assert!(indexes[which].remove(hash(gone), candidate));
        }
    }
    let (blocks, bytes) = heap.heap.read().check();
    assert_eq!(blocks as u64, indexes.iter().map(|index| index.shape.blocks()).sum::<u64>());
    assert_eq!(bytes, indexes.iter().map(|index| index.block_bytes).sum::<usize>());
    for (index, held) in indexes.iter().zip(&held) {
        assert_eq!(index.len(), held.len() as u64);
        assert!(held.iter().all(|&number| find(index, hash(number), at(number)).is_some()));
    }
    drop(indexes);
    assert_eq!(heap.heap.read().check(), (0, 0));
}

#[test]
fn a_split_index_is_two_that_know_one_bit_more() {
    let heap = HashHeap::default();
    for count in [0, 10, 5000] {
        let mut index = index_on(&heap);
        (0..count).for_each(|number| index.insert(hash(number), at(number)));
        (0..300).for_each(|number| index.insert(42, at(1000 + number)));
        let [even, odd] = index.split();
        assert_eq!(even.len() + odd.len(), count + 300);
        let [even_low, even_high] = even.split();
        heap.heap.read().check();
        let mut parts = [even_low, odd, even_high];
        for number in 0..count {
            let part = [0, 1, 2, 1][hash(number) as usize & 3];
            assert!(find(&parts[part], hash(number), at(number)).is_some());
        }
        // They are indexes as any other.
        for number in 10_000..13_000 {
            let part = &mut parts[[0, 1, 2, 1][hash(number) as usize & 3]];
            part.insert(hash(number), at(number));
        }
        let mut scanned = Vec::new();
        for part in &parts {
            let mut cursor = Some(IndexCursor::default());
            while let Some(at) = cursor {
                cursor = part.scan(at, 100, &mut scanned);
            }
        }
        assert_eq!(scanned.len() as u64, count + 300 + 3000);
        let mask = parts[0].hash_mask();
        let hashes: std::collections::BTreeSet<u64> = scanned.iter().map(|entry| entry.0).collect();
        assert!((0..count).all(|number| hashes.contains(&(hash(number) & mask))));
    }
    assert_eq!(heap.heap.read().check(), (0, 0));
}

#[test]
fn an_index_takes_few_bytes_and_finds_little_by_chance() {
    let heap = HashHeap::default();
    let mut index = index_on(&heap);
    let keys = 300_000;
    (0..keys).for_each(|number| index.insert(hash(number), at(number)));
    let bytes = index.memory_bytes() as f64 / keys as f64;
    // A slot is five bits wider than at ten million keys.
    assert!(bytes < 6.1, "{bytes} bytes a key");
    let by_chance: usize = (keys..keys + 100_000)
        .map(|number| {
            let mut found = Candidates::default();
            index.lookup(hash(number), &mut found);
            found.len()
        })
        .sum();
    assert!(by_chance < 100, "{by_chance} of 100,000 absent keys found something");
}
