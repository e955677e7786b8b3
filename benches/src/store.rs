//! A region's store from loading to overwriting, with and without its cache, in processor time of the whole process.

use crate::{BATCH, FOLDER, Meter, REGION, spread};
use env::Env;
use storage::{Entry, Epoch, Log, LogOptions, Lookup, ReadCache, Record, StorageError, Store, View};

/// Keys in a short batch, as of pipelined requests.
const SHORT_BATCH: u64 = 16;

struct Region {
    log: Log,
    store: Store,
    cache: std::sync::Arc<ReadCache>,
    memory_bytes: usize,
    keys: u64,
    bytes: usize,
}

/// Loads `keys` records unflushed, reads each of them once after that, and overwrites all.
pub async fn measure(env: &Env, keys: u64, bytes: usize, memory_bytes: usize) -> Result<(), StorageError> {
    storage::destroy(env, FOLDER).await?;
    let options = LogOptions::new(1).with_memory(memory_bytes);
    let cache = options.cache.clone();
    let log = Log::open(env, FOLDER, REGION, options).await?.0;
    let store = Store::build(&log).await?;
    let mut region = Region { log, store, cache, memory_bytes, keys, bytes };
    let meter = Meter::start();
    region.write(b'1').await?;
    region.row("load", &meter);
    // Once before, for what has to come into a cache that loading did not fill.
    region.read(1, b'1').await?;
    for (phase, batch) in [("get", 1), ("get_batch_16", SHORT_BATCH), ("get_batch_1000", BATCH)] {
        let meter = Meter::start();
        region.read(batch, b'1').await?;
        region.row(phase, &meter);
    }
    let meter = Meter::start();
    for key in 0..keys {
        let name = spread(keys + key).to_be_bytes();
        assert_eq!(answer(region.store.get(&name, View::Committed)).await?, None, "absent key {key}");
    }
    region.row("get_absent", &meter);
    let meter = Meter::start();
    region.write(b'2').await?;
    region.row("overwrite", &meter);
    region.read(BATCH, b'2').await?;
    println!("store memory={memory_bytes} keys={} {:?}", region.store.len(), region.cache.stats());
    region.log.close().await
}

async fn answer(lookup: Lookup) -> Result<Option<Entry>, StorageError> {
    match lookup {
        Lookup::Ready(entry) => Ok(entry),
        Lookup::Read(job) => job.run().await,
    }
}

impl Region {
    async fn write(&mut self, fill: u8) -> Result<(), StorageError> {
        let value = vec![fill; self.bytes];
        for batch in 0..self.keys.div_ceil(BATCH) {
            let names: Vec<[u8; 8]> =
                (batch * BATCH..self.keys.min((batch + 1) * BATCH)).map(|key| spread(key).to_be_bytes()).collect();
            let records: Vec<Record<'_>> = names.iter().map(|key| Record::put(key, &value)).collect();
            let frame = self.log.append(Epoch(1), 0, &records)?;
            self.store.appended(&frame);
            let written = self.log.take_unwritten().expect("just appended").run(false).await?;
            self.log.finish_write(written);
            self.log.set_committed(frame.end.mark.seqno);
            self.store.committed(frame.end.mark.seqno);
            self.store.settle().await;
        }
        Ok(())
    }

    /// Reads every key, in another order than they were written.
    async fn read(&self, batch: u64, fill: u8) -> Result<(), StorageError> {
        let name = |number: u64| spread(number * 7919 % self.keys).to_be_bytes();
        let check = |found: Option<Entry>| {
            let value = found.expect("it was put").value;
            assert_eq!((value.len(), value.first()), (self.bytes, Some(&fill).filter(|_| self.bytes > 0)));
        };
        if batch == 1 {
            for number in 0..self.keys {
                check(answer(self.store.get(&name(number), View::Committed)).await?);
            }
            return Ok(());
        }
        for first in (0..self.keys).step_by(batch as usize) {
            let names: Vec<[u8; 8]> = (first..self.keys.min(first + batch)).map(name).collect();
            let names: Vec<&[u8]> = names.iter().map(|name| name.as_slice()).collect();
            for lookup in self.store.get_many(&names, View::Committed) {
                check(answer(lookup).await?);
            }
        }
        Ok(())
    }

    fn row(&self, phase: &str, meter: &Meter) {
        println!(
            "store phase={phase} memory={} flushed=never keys={} bytes={} cpu_us={:.3} wall_us={:.3}",
            self.memory_bytes,
            self.keys,
            self.bytes,
            meter.cpu_us() / self.keys as f64,
            meter.wall_us() / self.keys as f64
        );
    }
}
