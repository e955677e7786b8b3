//! A store from a log: the index of what is committed from hints, the rest as pending.
//!
//! Of each key the record with the highest seqno counts. It is found by the key's 128-bit hash, which hints carry, for a
//! part of the hashes at a time, so that the memory it takes is bounded and no value is read. What computes and does not
//! read runs beside the tasks ([`env::Env::blocking`]), while the next hint is read: a server that takes over many regions
//! goes on answering, and uses as many cores as there are regions.

use crate::error::StorageError;
use crate::frame::{Frame, Position};
use crate::hint::{Hint, HintHeader};
use crate::ids::{Mark, SegmentId, Seqno};
use crate::index::Index;
use crate::limits::{BUILD_PART_RECORDS, BUILD_ROUND_RECORDS, INDEX_BATCH};
use crate::log::{Log, Pin, Shared, read_frames};
use crate::record::{Location, Record};
use crate::store::Store;
use bytes::Bytes;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

/// Everything of a log that a store is made of, as it was at one moment.
pub(crate) struct Build {
    pin: Arc<Pin>,
    shared: Arc<Shared>,
    committed: Seqno,
    /// Where the settled segments end.
    cut: Position,
    /// Segments up to the commit point: the mark before each, and its end.
    settled: Vec<(Mark, Position)>,
    /// Written frames after it: where they begin and end in each segment.
    tail: Vec<(Position, Position)>,
    unwritten: Vec<Frame>,
}

impl Build {
    pub(crate) fn new(log: &Log) -> Build {
        let cut = log.commit_end();
        let mut settled = Vec::new();
        let mut tail = Vec::new();
        for segment in log.segments.values() {
            let end = log.written_end(segment);
            let start = segment.start();
            let cut_here = if cut.segment == end.segment { cut } else { end };
            if segment.base.seqno < cut.mark.seqno {
                settled.push((segment.base, cut_here));
            }
            if end.mark.seqno > cut.mark.seqno {
                tail.push((if segment.base.seqno < cut.mark.seqno { cut_here } else { start }, end));
            }
        }
        let (pin, shared) = (log.shared.pin(), log.shared.clone());
        Build { pin, shared, committed: log.committed(), cut, settled, tail, unwritten: log.unwritten() }
    }

    pub(crate) async fn run(self, index: Box<dyn Index>, hash_mask: u64) -> Result<Store, StorageError> {
        let settled = (self.cut.segment, self.cut.offset);
        let mut store = Store::new(self.shared.clone(), index, hash_mask, self.committed, settled);
        store.pin = self.pin.clone();
        let mut sources = self.sources().await?;
        let total: u64 = sources.iter().map(Source::entries).sum();
        let segments: Vec<SegmentId> = sources.iter().map(Source::segment).collect();
        let mut round = Round::first(total, store.index.hash_mask() & hash_mask);
        loop {
            let mut gathered = Gathered::new(round, total);
            let mut hint = match sources.first_mut() {
                Some(source) => Some(source.hint(&self.shared).await?),
                None => None,
            };
            for number in 0..sources.len() {
                let current = hint.take().expect("read ahead");
                if round.number == 0 {
                    current.extras().for_each(|(seqno, record)| store.restore(seqno, record));
                }
                let gathering = self.beside(move || {
                    gathered.add(&current, number as u32);
                    gathered
                });
                let next = async {
                    match sources.get_mut(number + 1) {
                        Some(source) => source.hint(&self.shared).await.map(Some),
                        None => Ok(None),
                    }
                };
                let (done, next) = both(gathering, next).await;
                (gathered, hint) = (done?, next?);
            }
            let segments = segments.clone();
            store = self
                .beside(move || {
                    store.take_up(&gathered, &segments);
                    store
                })
                .await?;
            match round.next() {
                Some(next) => round = next,
                None => break,
            }
        }
        for &(start, end) in &self.tail {
            let frames = read_frames(&self.shared, start, end, usize::MAX).await?;
            frames.iter().for_each(|frame| store.appended(frame));
        }
        self.unwritten.iter().for_each(|frame| store.appended(frame));
        Ok(store)
    }

    async fn beside<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, StorageError> {
        let done = self.shared.env.blocking(work).await;
        done.map_err(|gone| StorageError::io("build the index of", &self.shared.dir, std::io::Error::other(gone)))
    }

    async fn sources(&self) -> Result<Vec<Source>, StorageError> {
        let mut sources = Vec::new();
        for &(base, end) in &self.settled {
            sources.push(Source::new(&self.shared, base, end).await?);
        }
        Ok(sources)
    }
}

/// Waits for both futures, which go on together.
async fn both<A: Future, B: Future>(one: A, other: B) -> (A::Output, B::Output) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    let (mut first, mut second) = (None, None);
    poll_fn(move |context| {
        if first.is_none()
            && let Poll::Ready(output) = one.as_mut().poll(context)
        {
            first = Some(output);
        }
        if second.is_none()
            && let Poll::Ready(output) = other.as_mut().poll(context)
        {
            second = Some(output);
        }
        match (first.take(), second.take()) {
            (Some(one), Some(other)) => Poll::Ready((one, other)),
            (one, other) => {
                (first, second) = (one, other);
                Poll::Pending
            }
        }
    })
    .await
}

/// A part of the hashes.
#[derive(Clone, Copy)]
struct Round {
    number: u64,
    rounds: u64,
    /// Into which a round's hashes are divided once more.
    parts: u64,
    /// The bits by which the index tells hashes apart: those that it does not fall into the same part.
    mask: u64,
}

impl Round {
    fn first(entries: u64, mask: u64) -> Round {
        let rounds = entries.div_ceil(BUILD_ROUND_RECORDS).max(1);
        let parts = (entries / rounds).div_ceil(BUILD_PART_RECORDS).max(1);
        Round { number: 0, rounds, parts, mask }
    }

    fn next(self) -> Option<Round> {
        let number = self.number + 1;
        (number < self.rounds).then_some(Round { number, ..self })
    }

    /// The part of the round that has the hash, if it is of this round.
    #[inline]
    fn part(&self, hash: u64) -> Option<usize> {
        // By the lowest bits of the hashes first, as indexes are ordered.
        let place = (hash & self.mask).reverse_bits();
        let part = ((place as u128 * (self.rounds * self.parts) as u128) >> 64) as u64;
        let part = part.wrapping_sub(self.number * self.parts);
        (part < self.parts).then_some(part as usize)
    }
}

/// What is known of a segment: read again for each round if it has a hint, held if the segment itself had to be read.
enum Source {
    Hinted { base: Mark, end: Position, entries: u64 },
    Scanned(Arc<Hint>),
}

impl Source {
    async fn new(shared: &Shared, base: Mark, end: Position) -> Result<Source, StorageError> {
        let disk = shared.env.disk().as_ref();
        let header = HintHeader::load(disk, &shared.dir, &shared.identity, end.segment).await;
        if let Some(header) = header.filter(|header| header.base == base && header.end == end) {
            return Ok(Source::Hinted { base, end, entries: header.entries() });
        }
        Source::scan(shared, base, end).await
    }

    async fn scan(shared: &Shared, base: Mark, end: Position) -> Result<Source, StorageError> {
        let handle = shared.add_handle(end.segment);
        let hint = Hint::scan(&handle, &shared.identity, base, end).await?;
        Ok(Source::Scanned(Arc::new(hint)))
    }

    fn entries(&self) -> u64 {
        match self {
            Source::Hinted { entries, .. } => *entries,
            Source::Scanned(hint) => hint.header.entries(),
        }
    }

    fn segment(&self) -> SegmentId {
        match self {
            Source::Hinted { end, .. } => end.segment,
            Source::Scanned(hint) => hint.header.end.segment,
        }
    }

    async fn hint(&mut self, shared: &Shared) -> Result<Arc<Hint>, StorageError> {
        if let Source::Hinted { base, end, .. } = *self {
            shared.add_handle(end.segment);
            let disk = shared.env.disk().as_ref();
            match Hint::load(disk, &shared.dir, &shared.identity, end).await {
                Some(hint) if hint.header.base == base => return Ok(Arc::new(hint)),
                // Its header alone was whole.
                _ => *self = Source::scan(shared, base, end).await?,
            }
        }
        match self {
            Source::Scanned(hint) => Ok(hint.clone()),
            Source::Hinted { .. } => unreachable!("read just now"),
        }
    }
}

/// An entry of a hint.
#[derive(Clone, Copy)]
struct Gleaned {
    hash_low: u64,
    hash_high: u64,
    seqno: Seqno,
    offset: u32,
    len: u32,
    source: u32,
    tombstone: bool,
}

/// A put that is not the newest record of its key: which part it is in, its number there, and that of the newest.
struct Outdated {
    part: u32,
    at: u32,
    newest: u32,
}

/// What the hints have for a round. Of each key the entries are in one part, which is small enough for the processor's caches.
struct Gathered {
    round: Round,
    parts: Vec<Vec<Gleaned>>,
}

impl Gathered {
    fn new(round: Round, total: u64) -> Gathered {
        // Parts are alike in size; a twentieth more is room for what chance does.
        let expected = (total / (round.rounds * round.parts)) as usize;
        let parts = (0..round.parts).map(|_| Vec::with_capacity(expected + expected / 20)).collect();
        Gathered { round, parts }
    }

    fn add(&mut self, hint: &Hint, source: u32) {
        for entry in hint.entries() {
            let hash_low = entry.key_hash as u64;
            let Some(part) = self.round.part(hash_low) else { continue };
            self.parts[part].push(Gleaned {
                hash_low,
                hash_high: (entry.key_hash >> 64) as u64,
                seqno: entry.seqno,
                offset: entry.location.offset as u32,
                len: entry.location.len,
                source,
                tombstone: entry.tombstone,
            });
        }
    }
}

impl Gleaned {
    fn key_hash(&self) -> u128 {
        (self.hash_high as u128) << 64 | self.hash_low as u128
    }

    fn location(&self, segments: &[SegmentId]) -> Location {
        Location { segment: segments[self.source as usize], offset: self.offset as u64, len: self.len }
    }
}

/// Tells which of a part's entries are the newest of their keys.
#[derive(Default)]
struct Sifter {
    /// By key: the number of its newest entry. As open addressing has it.
    table: Vec<u32>,
    /// By entry: its key's place in the table.
    places: Vec<u32>,
}

impl Sifter {
    fn sift(&mut self, part: &[Gleaned]) {
        const EMPTY: u32 = u32::MAX;
        let slots = (2 * part.len()).next_power_of_two();
        self.table.clear();
        self.table.resize(slots, EMPTY);
        self.places.clear();
        for (number, entry) in (0..).zip(part) {
            let mut place = entry.hash_high as usize & (slots - 1);
            loop {
                let newest = &mut self.table[place];
                if *newest == EMPTY {
                    *newest = number;
                    break;
                }
                let other = &part[*newest as usize];
                if (other.hash_high, other.hash_low) == (entry.hash_high, entry.hash_low) {
                    if other.seqno <= entry.seqno {
                        *newest = number;
                    }
                    break;
                }
                place = (place + 1) & (slots - 1);
            }
            self.places.push(place as u32);
        }
    }

    /// The number of the newest entry of the key that this one is of.
    fn newest(&self, number: usize) -> u32 {
        self.table[self.places[number] as usize]
    }
}

impl Store {
    /// Puts the newest records of a round into the index, and sees to the others. `segments` are those of the sources.
    fn take_up(&mut self, gathered: &Gathered, segments: &[SegmentId]) {
        let mut sifter = Sifter::default();
        let mut live: Vec<(u64, Location)> = Vec::with_capacity(gathered.parts.iter().map(Vec::len).sum());
        let mut live_bytes = vec![0; segments.len()];
        let mut outdated = Vec::new();
        for (part, entries) in (0..).zip(&gathered.parts) {
            sifter.sift(entries);
            for (at, entry) in entries.iter().enumerate().filter(|(_, entry)| !entry.tombstone) {
                let newest = sifter.newest(at);
                if newest as usize == at {
                    live.push((entry.hash_low & self.hash_mask, entry.location(segments)));
                    live_bytes[entry.source as usize] += entry.len as u64;
                } else if entries[newest as usize].seqno != entry.seqno {
                    outdated.push(Outdated { part, at: at as u32, newest });
                }
            }
        }
        for (&segment, bytes) in segments.iter().zip(live_bytes) {
            self.live.add_bytes(segment, bytes);
        }
        if gathered.round.number == 0 {
            self.index.reserve(live.len() as u64 * gathered.round.rounds);
        }
        self.index.load(&live);
        drop(live);
        let mut buried = Vec::with_capacity(INDEX_BATCH);
        for batch in outdated.chunks(INDEX_BATCH) {
            buried.clear();
            buried.extend(batch.iter().map(|&Outdated { part, at, newest }| {
                let entries = &gathered.parts[part as usize];
                let (dead, newest) = (&entries[at as usize], &entries[newest as usize]);
                let live = (!newest.tombstone).then(|| newest.location(segments));
                (dead.key_hash(), dead.location(segments), live)
            }));
            self.bury_many(&buried);
        }
    }

    /// Takes up a session record from before the commit point.
    fn restore(&mut self, seqno: Seqno, record: Record<'_>) {
        if let Record::Session { session, number, floor, outcome } = record {
            self.sessions.record(seqno, session, number, floor, Bytes::copy_from_slice(outcome));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gleaned(key: u64, seqno: u64) -> Gleaned {
        Gleaned { hash_low: 7, hash_high: key, seqno: Seqno(seqno), offset: 0, len: 1, source: 0, tombstone: false }
    }

    #[test]
    fn the_newest_of_each_key_is_found_in_any_order_and_among_equal_ones_the_last() {
        // Keys 0, 8 and 16 begin at the same place of the table.
        let part = [(0, 5), (8, 9), (0, 7), (16, 1), (8, 2), (0, 7), (8, 3)].map(|(key, seqno)| gleaned(key, seqno));
        let mut sifter = Sifter::default();
        for _ in 0..2 {
            sifter.sift(&part);
            let newest: Vec<u32> = (0..part.len()).map(|number| sifter.newest(number)).collect();
            assert_eq!(newest, [5, 1, 5, 3, 1, 5, 1]);
        }
        sifter.sift(&[]);
    }

    #[test]
    fn every_hash_is_of_one_part_of_one_round() {
        for (entries, mask) in [(0, u64::MAX), (BUILD_ROUND_RECORDS * 5 / 2, u64::MAX), (100_000, 0xf), (9 << 20, 0)] {
            let mut rounds = vec![Round::first(entries, mask)];
            while let Some(next) = rounds[rounds.len() - 1].next() {
                rounds.push(next);
            }
            assert_eq!(rounds.len() as u64, entries.div_ceil(BUILD_ROUND_RECORDS).max(1));
            for hash in (0..4000u64).map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).chain([0, u64::MAX]) {
                let parts: Vec<usize> = rounds.iter().filter_map(|round| round.part(hash)).collect();
                assert!(parts.len() == 1 && parts[0] < rounds[0].parts as usize, "hash {hash:x} is in parts {parts:?}");
            }
        }
    }
}
