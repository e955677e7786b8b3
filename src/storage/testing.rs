//! What the tests of this package share.

use crate::index::{HashHeap, HashIndex, HashOptions, Index, PlainIndex};
use crate::{
    Compression, Epoch, FileCache, Frame, Log, LogOptions, OwnedRecord, Record, Recovery, RegionId, StorageError, Store,
};
use bytes::Bytes;
use env::Env;
use env::sim::Dice;

pub(crate) const CLUSTER: u128 = 0x5f0e_4d2c_0000_0001_8a7b_9c3d_1e2f_4a5b;
pub(crate) const REGION: RegionId = RegionId(7);
pub(crate) const DIR: &str = "regions/7";

/// Segments so small that a few frames fill one, and a cache that holds a few hundred records.
pub(crate) fn options() -> LogOptions {
    LogOptions { segment_bytes: 2048, files: FileCache::new(3), ..LogOptions::new(CLUSTER).with_memory(64 << 10) }
}

/// For tests of what the disk holds.
pub(crate) async fn open_uncached(env: &Env) -> Log {
    Log::open(env, DIR, REGION, options().with_memory(0)).await.expect("opens").0
}

pub(crate) async fn try_open(env: &Env) -> Result<(Log, Recovery), StorageError> {
    Log::open(env, DIR, REGION, options()).await
}

pub(crate) async fn open(env: &Env) -> (Log, Recovery) {
    try_open(env).await.expect("opens")
}

/// Writes and flushes all that is queued.
pub(crate) async fn flush(log: &mut Log) {
    if let Some(job) = log.take_unflushed() {
        let written = job.run(true).await.expect("a healthy disk");
        log.finish_write(written);
    }
}

/// Appends, commits and settles.
pub(crate) async fn append_and_settle(log: &mut Log, store: &mut Store, records: &[Record<'_>]) {
    let frame = log.append(Epoch(1), 0, records).expect("appends");
    store.appended(&frame);
    flush(log).await;
    let durable = log.durable().seqno;
    log.set_committed(durable);
    store.committed(durable);
    store.settle().await;
}

/// Which index a store has.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Plain,
    Hash,
    /// With pages so long that a segment is a single one.
    Coarse,
}

/// The store of a log, with an index that sees those bits of the hashes.
pub(crate) async fn build(log: &Log, kind: Kind, hash_mask: u64) -> Store {
    let hash_index = |granule_bits| {
        let options = HashOptions { granule_bits, ..HashOptions::default() };
        Box::new(HashIndex::new(&HashHeap::default(), options))
    };
    let index: Box<dyn Index> = match kind {
        Kind::Plain => Box::new(PlainIndex::default()),
        Kind::Hash => hash_index(9),
        Kind::Coarse => hash_index(12),
    };
    Store::build_with(log, index, hash_mask).await.expect("builds")
}

pub(crate) fn put<'a>(key: &'a str, value: &'a [u8]) -> Record<'a> {
    Record::put(key.as_bytes(), value)
}

pub(crate) fn expiring<'a>(key: &'a [u8], value: &'a [u8], expiry_ms: u64) -> Record<'a> {
    Record::Put { key, value, compression: Compression::None, expiry_ms: Some(expiry_ms) }
}

/// A put of a value that may have been compressed.
pub(crate) fn random_put(dice: &mut Dice, key: Bytes, len_max: u64, expiry_ms: Option<u64>) -> OwnedRecord {
    let value = match dice.percent(30) {
        true => vec![7; dice.between(0, len_max) as usize].into(),
        false => random_bytes(dice, len_max),
    };
    let compression = if dice.percent(50) { Compression::Lz4 } else { Compression::None };
    let (value, compression) = compression.pack(value);
    OwnedRecord::Put { key, value, compression, expiry_ms }
}

/// Every frame of the log, in order, as its reader sees them.
pub(crate) async fn all_frames(log: &Log) -> Result<Vec<Frame>, StorageError> {
    let mut frames = Vec::new();
    let mut from = crate::Position::ZERO;
    loop {
        let chunk = log.read_chunk(from, 1000).await?;
        if chunk.bytes.is_empty() {
            return Ok(frames);
        }
        for bytes in crate::split_frames(chunk.bytes) {
            let bytes = bytes.expect("whole frames");
            let begins = crate::FrameHeader::peek(&bytes).expect("a header").begins_segment;
            let rolls = begins && from.offset > crate::Position::ZERO.offset;
            let start = if rolls { from.rolled() } else { from };
            let frame = Frame::decode(bytes, &log.identity(), start).expect("a frame");
            from = frame.end;
            frames.push(frame);
        }
        assert_eq!(from, chunk.end);
    }
}

pub(crate) fn random_bytes(dice: &mut Dice, len_max: u64) -> Bytes {
    let mut bytes = vec![0; dice.between(0, len_max) as usize];
    dice.fill(&mut bytes);
    bytes.into()
}
