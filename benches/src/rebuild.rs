//! What a server or a library does before it serves a log that is there: the index made anew, from hint files.

use crate::{BATCH, FOLDER, Meter, REGION, index, spread};
use env::Env;
use env::real::thread_cpu_time;
use storage::index::{HashHeap, HashIndex, HashOptions, Index};
use storage::{Epoch, Location, Log, LogOptions, Record, Seqno, StorageError, Store};

const VALUE: [u8; 100] = [b'v'; 100];

/// The index alone, then the store of a log that has each of `keys` keys once, then of one that has every other key twice.
/// Returns the line that sums it up.
pub async fn run(env: &Env, keys: u64) -> Result<String, StorageError> {
    load_index(keys);
    let once = build(env, keys, 0).await?;
    build(env, keys, keys / 2).await?;
    storage::destroy(env, FOLDER).await?;
    Ok(format!("keys_per_second={once:.0}"))
}

fn load_index(keys: u64) {
    let entries: Vec<(u64, Location)> =
        (0..keys).map(|number| (index::hash(number), index::location(number))).collect();
    let heap = HashHeap::default();
    let mut made = HashIndex::new(&heap, HashOptions::default());
    let started = thread_cpu_time();
    made.load(&entries);
    let seconds = (thread_cpu_time() - started).as_secs_f64();
    assert_eq!(made.len(), keys);
    println!(
        "rebuild phase=index keys={keys} keys_per_cpu_second={:.0} bytes_per_key={:.3}",
        keys as f64 / seconds,
        heap.memory_bytes() as f64 / keys as f64
    );
}

/// Keys per second of processor time.
async fn build(env: &Env, keys: u64, again: u64) -> Result<f64, StorageError> {
    storage::destroy(env, FOLDER).await?;
    let mut log = Log::open(env, FOLDER, REGION, LogOptions::new(1)).await?.0;
    let last = write(&mut log, (0..keys).chain((0..again).map(|number| number * 2))).await?;
    log.close().await?;
    let opening = Meter::start();
    let mut log = Log::open(env, FOLDER, REGION, LogOptions::new(1)).await?.0;
    log.set_committed(last);
    let opened = opening.wall_us() / 1e6;
    let meter = Meter::start();
    let store = Store::build(&log).await?;
    let (cpu, wall) = (meter.cpu_us() / 1e6, meter.wall_us() / 1e6);
    assert_eq!(store.len(), keys);
    println!(
        "rebuild phase=store keys={keys} overwritten={again} keys_per_cpu_second={:.0} cpu_seconds={cpu:.2} wall_seconds={wall:.2} log_wall_seconds={opened:.2}",
        keys as f64 / cpu
    );
    drop(store);
    log.close().await?;
    Ok(keys as f64 / cpu)
}

/// Says where the log ends then.
async fn write(log: &mut Log, numbers: impl Iterator<Item = u64>) -> Result<Seqno, StorageError> {
    let mut last = Seqno(0);
    let mut numbers = numbers.map(|number| spread(number).to_be_bytes()).peekable();
    while numbers.peek().is_some() {
        let names: Vec<[u8; 8]> = numbers.by_ref().take(BATCH as usize).collect();
        let records: Vec<Record<'_>> = names.iter().map(|name| Record::put(name, &VALUE)).collect();
        let frame = log.append(Epoch(1), 0, &records)?;
        let written = log.take_unwritten().expect("just appended").run(false).await?;
        log.finish_write(written);
        last = frame.end.mark.seqno;
        log.set_committed(last);
    }
    Ok(last)
}
