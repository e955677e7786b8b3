//! The hash index by itself: memory over a growth cycle, reads, and speed, one region in one heap, one thread.

use crate::spread;
use env::real::thread_cpu_time;
use std::path::Path;
use std::time::Duration;
use storage::index::{Candidates, HashHeap, HashIndex, HashOptions, Index};
use storage::{Identity, Location, RegionId, SegmentId};

/// Records of 130 bytes, one after the other in segments of 64 MiB.
pub(crate) fn location(number: u64) -> Location {
    const LEN: u64 = 130;
    const IN_SEGMENT: u64 = (64 << 20) / LEN;
    Location { segment: SegmentId(1 + number / IN_SEGMENT), offset: 64 + number % IN_SEGMENT * LEN, len: LEN as u32 }
}

/// What the store gives its index of a key.
pub(crate) fn hash(number: u64) -> u64 {
    Identity { cluster: 1, region: RegionId(1) }.key_hash(&number.to_le_bytes()) as u64
}

/// Memory while a region grows from half of `keys` to all of them, reads for keys that are there and for others, and what
/// the operations cost in processor time. Returns the line that sums it up.
pub fn memory(keys: u64) -> String {
    let heap = HashHeap::default();
    let mut index = HashIndex::new(&heap, HashOptions::default());
    let resident_before = resident_bytes();
    let bytes = |index: &HashIndex| heap.memory_bytes() + index.rest_bytes();
    (0..keys / 2).for_each(|number| index.insert(hash(number), location(number)));
    let growth = grow(&mut index, keys, &bytes, resident_before);
    let (hit, miss) = (reads_per_hit(&index, keys), reads_per_miss(&index, keys));
    lookups(&index, keys);
    shrink(&mut index, keys, &bytes);
    format!(
        "bytes_per_key avg={:.3} worst={:.3} reads_per_hit={hit:.5} reads_per_miss={miss:.5}",
        growth.average, growth.worst
    )
}

struct Growth {
    average: f64,
    worst: f64,
}

fn grow(index: &mut HashIndex, keys: u64, bytes: &impl Fn(&HashIndex) -> usize, resident_before: u64) -> Growth {
    const STEPS: u64 = 1000;
    let (mut sum, mut worst, mut resident_sum, mut resident_worst) = (0.0, 0.0f64, 0.0, 0.0f64);
    let mut times: Vec<Duration> = Vec::new();
    let (mut spent, mut inserts) = (Duration::ZERO, 0);
    let first = keys / 2;
    for step in 0..STEPS {
        let numbers = first + (keys - first) * step / STEPS..first + (keys - first) * (step + 1) / STEPS;
        let entries: Vec<_> = numbers.map(|number| (hash(number), location(number))).collect();
        let begun = thread_cpu_time();
        if step % 2 == 0 {
            entries.iter().for_each(|&(hash, location)| index.insert(hash, location));
            spent += thread_cpu_time() - begun;
            inserts += entries.len();
        } else {
            // One by one, which costs a call of the system each.
            let mut before = begun;
            for &(hash, location) in &entries {
                index.insert(hash, location);
                let after = thread_cpu_time();
                times.push(after - before);
                before = after;
            }
        }
        let held = index.len() as f64;
        let per_key = bytes(index) as f64 / held;
        // The times' own pages are resident too.
        let own = (times.len() * size_of::<Duration>()) as u64;
        let resident = resident_bytes().saturating_sub(resident_before + own) as f64 / held;
        (sum, worst) = (sum + per_key, worst.max(per_key));
        (resident_sum, resident_worst) = (resident_sum + resident, resident_worst.max(resident));
    }
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e6;
    println!(
        "index phase=insert keys={keys} million_per_cpu_second={:.2} p50_us={:.2} p999_us={:.2} p99999_us={:.1} worst_us={:.1}",
        inserts as f64 / spent.as_secs_f64() / 1e6,
        at(0.5),
        at(0.999),
        at(0.99999),
        at(1.0)
    );
    let steps = STEPS as f64;
    println!(
        "index phase=growth bytes_per_key_average={:.3} bytes_per_key_worst={worst:.3} resident_average={:.3} resident_worst={resident_worst:.3}",
        sum / steps,
        resident_sum / steps
    );
    Growth { average: sum / steps, worst }
}

/// Pages read until the right one, over a sample.
fn reads_per_hit(index: &HashIndex, keys: u64) -> f64 {
    let sample = keys.min(1_000_000);
    let mut reads = 0;
    for turn in 0..sample {
        let number = spread(turn) % keys;
        let mut found = Candidates::default();
        index.lookup(hash(number), &mut found);
        let right = found.iter().position(|candidate| candidate.covers(location(number)));
        reads += 1 + right.expect("every key is found");
    }
    reads as f64 / sample as f64
}

fn reads_per_miss(index: &HashIndex, keys: u64) -> f64 {
    let sample = 1_000_000;
    let mut reads = 0;
    for number in keys..keys + sample {
        let mut found = Candidates::default();
        index.lookup(hash(number), &mut found);
        reads += found.len();
    }
    reads as f64 / sample as f64
}

fn lookups(index: &HashIndex, keys: u64) {
    let sample = keys.min(5_000_000);
    let hashes: Vec<u64> = (0..sample).map(|turn| hash(spread(turn) % keys)).collect();
    let started = thread_cpu_time();
    let mut found_all = 0;
    for &hash in &hashes {
        let mut found = Candidates::default();
        index.lookup(hash, &mut found);
        found_all += found.len();
    }
    rate("lookup", sample, thread_cpu_time() - started);
    assert!(found_all as u64 >= sample);
    for batch in [8, 32, 1024] {
        let started = thread_cpu_time();
        let mut found = vec![Candidates::default(); batch];
        let mut found_all = 0;
        for hashes in hashes.chunks(batch) {
            let found = &mut found[..hashes.len()];
            found.iter_mut().for_each(Candidates::clear);
            index.lookup_many(hashes, found);
            found_all += found.iter().map(Candidates::len).sum::<usize>();
        }
        rate(&format!("lookup_batch_{batch}"), sample, thread_cpu_time() - started);
        assert!(found_all as u64 >= sample);
    }
}

/// Nine of ten keys go.
fn shrink(index: &mut HashIndex, keys: u64, bytes: &impl Fn(&HashIndex) -> usize) {
    let full = bytes(index);
    let started = thread_cpu_time();
    let mut removed = 0;
    for number in (0..keys).filter(|number| number % 10 != 0) {
        let mut found = Candidates::default();
        index.lookup(hash(number), &mut found);
        let candidate = found.iter().find(|candidate| candidate.covers(location(number))).expect("it is there");
        assert!(index.remove(hash(number), candidate));
        removed += 1;
    }
    rate("remove", removed, thread_cpu_time() - started);
    let left = bytes(index);
    println!(
        "index phase=removed keys_left={} bytes_full={full} bytes_left={left} bytes_per_key={:.3}",
        index.len(),
        left as f64 / index.len() as f64
    );
}

fn rate(phase: &str, operations: u64, spent: Duration) {
    println!("index phase={phase} million_per_cpu_second={:.2}", operations as f64 / spent.as_secs_f64() / 1e6);
}

/// Of this process, as the kernel counts it; 0 where it does not say.
fn resident_bytes() -> u64 {
    let counted = env::real::read_user_file(Path::new("/proc/self/statm")).unwrap_or_default();
    let pages: u64 = counted.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * 4096
}
