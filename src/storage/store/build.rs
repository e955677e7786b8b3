//! A store from a log: the index of what is committed from hints, the rest as pending.
//!
//! Of each key the record with the highest seqno counts. It is found by the key's 128-bit hash, which hints carry, for a
//! part of the hashes at a time, so that the memory it takes is bounded and no value is read. What computes and does not
//! read runs beside the tasks ([`env::Env::blocking`]): a server that takes over many regions goes on answering.

use crate::error::StorageError;
use crate::frame::{Frame, Position};
use crate::hint::Hint;
use crate::ids::{Mark, Seqno};
use crate::index::Index;
use crate::limits::BUILD_ROUND_RECORDS;
use crate::log::{Log, Pin, Shared, read_frames};
use crate::record::{Location, Record};
use crate::store::Store;
use bytes::Bytes;
use std::sync::Arc;

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
        let sources = self.sources().await?;
        let total: u64 = sources.iter().map(Source::entries).sum();
        let rounds = total.div_ceil(BUILD_ROUND_RECORDS).max(1);
        for round in 0..rounds {
            let round = Round { number: round, rounds, mask: store.index.hash_mask() & hash_mask };
            let mut newest = Newest::default();
            for source in &sources {
                let hint = source.hint(&self.shared).await?;
                newest = self
                    .beside(move || {
                        hint.collect(&mut newest, round);
                        newest
                    })
                    .await?;
            }
            (store, newest) = self
                .beside(move || {
                    store.index_newest(&newest);
                    (store, newest)
                })
                .await?;
            for source in &sources {
                let hint = source.hint(&self.shared).await?;
                (store, newest) = self
                    .beside(move || {
                        store.bury_others(&newest, &hint, round);
                        (store, newest)
                    })
                    .await?;
            }
        }
        for source in &sources {
            let hint = source.hint(&self.shared).await?;
            hint.extras().for_each(|(seqno, record)| store.restore(seqno, record));
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

/// Of each key, the newest record and, unless that is a tombstone, where it lies.
type Newest = env::HashMap<u128, (Seqno, Option<Location>)>;

/// A part of the hashes.
#[derive(Clone, Copy)]
struct Round {
    number: u64,
    rounds: u64,
    /// The bits by which the index tells hashes apart: those that it does not fall into the same round.
    mask: u64,
}

impl Round {
    /// By the lowest bits of the hashes first, as indexes are ordered.
    fn has(&self, hash: u128) -> bool {
        let place = (hash as u64 & self.mask).reverse_bits();
        ((place as u128 * self.rounds as u128) >> 64) as u64 == self.number
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
        let hinted = Hint::load(disk, &shared.dir, &shared.identity, end).await;
        if let Some(hint) = hinted.filter(|hint| hint.header.base == base) {
            return Ok(Source::Hinted { base, end, entries: hint.header.entries() });
        }
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

    async fn hint(&self, shared: &Shared) -> Result<Arc<Hint>, StorageError> {
        match self {
            Source::Scanned(hint) => Ok(hint.clone()),
            Source::Hinted { base, end, .. } => {
                let disk = shared.env.disk().as_ref();
                let handle = shared.add_handle(end.segment);
                let hint = Hint::load_or_scan(disk, &shared.dir, &handle, &shared.identity, *base, *end).await?;
                Ok(Arc::new(hint))
            }
        }
    }
}

impl Hint {
    /// Keeps of each key the newest record.
    fn collect(&self, newest: &mut Newest, round: Round) {
        for entry in self.entries().filter(|entry| round.has(entry.key_hash)) {
            let location = (!entry.tombstone).then_some(entry.location);
            let kept = newest.entry(entry.key_hash).or_insert((entry.seqno, location));
            if kept.0 <= entry.seqno {
                *kept = (entry.seqno, location);
            }
        }
    }
}

impl Store {
    fn index_newest(&mut self, newest: &Newest) {
        let live = newest.iter().filter_map(|(&key_hash, &(_, location))| Some((self.indexed(key_hash), location?)));
        let live: Vec<(u64, Location)> = live.collect();
        live.iter().for_each(|&(_, location)| self.live.add(location));
        self.index.load(&live);
    }

    /// Sees to the puts that are not the newest of their keys.
    fn bury_others(&mut self, newest: &Newest, hint: &Hint, round: Round) {
        for entry in hint.entries().filter(|entry| round.has(entry.key_hash) && !entry.tombstone) {
            let &(seqno, live) = newest.get(&entry.key_hash).expect("collected before");
            if seqno != entry.seqno {
                self.bury(entry.key_hash, entry.location, live);
            }
        }
    }

    /// Takes up a session record from before the commit point.
    fn restore(&mut self, seqno: Seqno, record: Record<'_>) {
        if let Record::Session { session, number, floor, outcome } = record {
            self.sessions.record(seqno, session, number, floor, Bytes::copy_from_slice(outcome));
        }
    }
}
