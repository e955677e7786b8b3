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
use crate::log::{Log, Shared, read_frames};
use crate::record::{Location, Record};
use crate::segment::SEGMENT_HEADER_LEN;
use crate::store::Store;
use bytes::Bytes;
use std::sync::Arc;

/// Everything of a log that a store is made of, as it was at one moment.
pub(crate) struct Build {
    shared: Arc<Shared>,
    committed: Seqno,
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
            let start = Position { mark: segment.base, segment: end.segment, offset: SEGMENT_HEADER_LEN };
            let cut_here = if cut.segment == end.segment { cut } else { end };
            if segment.base.seqno < cut.mark.seqno {
                settled.push((segment.base, cut_here));
            }
            if end.mark.seqno > cut.mark.seqno {
                tail.push((if segment.base.seqno < cut.mark.seqno { cut_here } else { start }, end));
            }
        }
        Build { shared: log.shared.clone(), committed: log.committed(), settled, tail, unwritten: log.unwritten() }
    }

    /// `hash_mask` says which bits of a key's hash the index sees.
    pub(crate) async fn run(self, mut index: Box<dyn Index>, hash_mask: u64) -> Result<Store, StorageError> {
        let sources = self.sources().await?;
        let total: u64 = sources.iter().map(Source::entries).sum();
        let rounds = total.div_ceil(BUILD_ROUND_RECORDS).max(1);
        for round in 0..rounds {
            let mut newest = Newest::default();
            for source in &sources {
                let hint = source.hint(&self.shared).await?;
                newest = self
                    .beside(move || {
                        hint.collect(&mut newest, |hash| round_of(hash, rounds) == round);
                        newest
                    })
                    .await?;
            }
            index = self
                .beside(move || {
                    for (hash, (_, location)) in newest {
                        if let Some(location) = location {
                            index.insert(hash as u64 & hash_mask, location);
                        }
                    }
                    index
                })
                .await?;
        }
        let mut store = Store::new(self.shared.clone(), index, hash_mask, self.committed);
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

/// Of each key, the newest record.
type Newest = env::HashMap<u128, (Seqno, Option<Location>)>;

/// Spreads the hashes evenly; by their upper bits, as indexes use the lower.
fn round_of(hash: u128, rounds: u64) -> u64 {
    (((hash >> 64) as u64 as u128 * rounds as u128) >> 64) as u64
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
    fn collect(&self, newest: &mut Newest, in_round: impl Fn(u128) -> bool) {
        for entry in self.entries().filter(|entry| in_round(entry.key_hash)) {
            let location = (!entry.tombstone).then_some(entry.location);
            let kept = newest.entry(entry.key_hash).or_insert((entry.seqno, location));
            if kept.0 <= entry.seqno {
                *kept = (entry.seqno, location);
            }
        }
    }
}

impl Store {
    /// Takes up a session record from before the commit point.
    fn restore(&mut self, seqno: Seqno, record: Record<'_>) {
        if let Record::Session { session, number, floor, outcome } = record {
            self.sessions.record(seqno, session, number, floor, Bytes::copy_from_slice(outcome));
        }
    }
}
