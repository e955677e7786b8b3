//! Reading the records that an index may mean.

use crate::cache::ViewNumber;
use crate::error::StorageError;
use crate::ids::SegmentId;
use crate::index::{Candidate, Candidates};
use crate::log::{Pin, Shared};
use crate::record::Location;
use crate::store::graves::Graves;
use crate::store::stretch::{Item, Longer, Stretch};
use crate::store::{Entry, Stored};
use bytes::Bytes;
use std::sync::Arc;

/// Reads the value of a key from the log. Owns all it needs: it may be spawned, and outlives changes of the store.
pub struct ReadJob {
    sight: Sight,
    probe: Probe,
}

impl ReadJob {
    pub(crate) fn new(sight: Sight, probe: Probe) -> ReadJob {
        ReadJob { sight, probe }
    }

    /// Answers with an error that is known already.
    pub(crate) fn failed(sight: Sight, error: StorageError) -> ReadJob {
        let mut probe = Probe::new(Bytes::new(), 0, Candidates::default());
        probe.failed = Some(error);
        ReadJob { sight, probe }
    }

    /// The value, if reading it does not wait for a device.
    pub fn try_now(&mut self) -> Option<Result<Option<Entry>, StorageError>> {
        while let Some(wanted) = self.probe.wanted() {
            let read = try_read(&self.sight.shared, wanted)?;
            self.probe.look_at(&self.sight, read);
        }
        Some(self.probe.outcome(&self.sight.shared))
    }

    pub async fn run(mut self) -> Result<Option<Entry>, StorageError> {
        loop {
            if let Some(outcome) = self.try_now() {
                return outcome;
            }
            let wanted = self.probe.wanted().expect("one that would have waited");
            let read = read(&self.sight.shared, wanted).await;
            self.probe.look_at(&self.sight, read);
        }
    }
}

/// Runs jobs together: a device is asked for all that they need before its first answer is waited for.
// Jobs come in boxes from lookups and stay where they are.
#[allow(clippy::vec_box)]
pub async fn read_all(mut jobs: Vec<Box<ReadJob>>) -> Vec<Result<Option<Entry>, StorageError>> {
    let mut waiting: Vec<usize> = (0..jobs.len()).collect();
    loop {
        waiting.retain(|&at| jobs[at].probe.wanted().is_some());
        if waiting.is_empty() {
            return jobs.iter_mut().map(|job| job.probe.outcome(&job.sight.shared)).collect();
        }
        let mut begun = Vec::with_capacity(waiting.len());
        for &at in &waiting {
            let ReadJob { sight, probe } = jobs[at].as_ref();
            begun.push(begin_read(&sight.shared, probe.wanted().expect("waiting for it")).await);
        }
        for (&at, answer) in waiting.iter().zip(begun) {
            let read = match answer {
                Ok(answer) => answer.await,
                Err(error) => Err(error),
            };
            let ReadJob { sight, probe } = jobs[at].as_mut();
            probe.look_at(sight, read);
        }
    }
}

/// What a job has to know of the store as it was when the job was made.
#[derive(Clone)]
pub(crate) struct Sight {
    /// What it reads may be compacted meanwhile.
    pub(crate) _pin: Arc<Pin>,
    pub(crate) shared: Arc<Shared>,
    /// The bits of a key's hash that tell candidates apart.
    pub(crate) mask: u64,
    /// Up to where the log is in the index. What lies behind is not committed, or is found elsewhere.
    pub(crate) settled: (SegmentId, u64),
    pub(crate) graves: Arc<Graves>,
    /// The store's entries in the cache.
    pub(crate) view: ViewNumber,
}

impl Sight {
    fn settled_in(&self, segment: SegmentId) -> u64 {
        if segment == self.settled.0 { self.settled.1 } else { u64::MAX }
    }

    fn hash(&self, key: &[u8]) -> u128 {
        self.shared.identity.key_hash(key)
    }

    /// The live records that candidates like this one, `count` of them with that hash, may stand for.
    pub(crate) fn fitting<'a>(&self, stretch: &Stretch<'a>, hash: u64, count: usize) -> Result<Vec<Item<'a>>, Unfit> {
        let same_hash = |key: &[u8]| (self.hash(key) as u64 ^ hash) & self.mask == 0;
        let mut fitting = stretch.fitting(same_hash).map_err(|Longer(len)| Unfit::Longer(len))?;
        fitting.retain(|item| !self.is_dead(&stretch.candidate, item.record.key().expect("a put")));
        if fitting.len() < count {
            return Err(Unfit::Damaged);
        }
        if stretch.candidate.repeated {
            fitting.iter().try_for_each(|item| self.check_newest(stretch, item))?;
        }
        Ok(fitting)
    }

    /// Of a key with several records in the page: that no newer one is hidden by damage.
    fn check_newest(&self, stretch: &Stretch<'_>, item: &Item<'_>) -> Result<(), Unfit> {
        match stretch.intact_after(item) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Unfit::Damaged),
            Err(Longer(len)) => Err(Unfit::Longer(len)),
        }
    }

    pub(crate) fn is_dead(&self, candidate: &Candidate, key: &[u8]) -> bool {
        !self.graves.is_empty() && self.graves.contains(candidate, self.hash(key))
    }

    pub(crate) fn stretch<'a>(&self, wanted: Wanted, bytes: &'a [u8], seeds: &'a crate::seed::Seeds) -> Stretch<'a> {
        let settled = self.settled_in(wanted.candidate.segment);
        Stretch { candidate: wanted.candidate, bytes, asked: wanted.len, seeds, settled }
    }

    /// Caches the record that `probe` found in the bytes read, if no later one of its key can come to lie in its page.
    fn cache(&self, probe: &Probe, hit: &Hit, bytes: &[u8]) {
        let Hit { candidate, location, .. } = *hit;
        if candidate.offset + candidate.window as u64 > self.settled_in(candidate.segment) {
            return;
        }
        let start = (location.offset - candidate.offset) as usize;
        let record = &bytes[start..start + location.len as usize];
        self.shared.cache.insert(self.view.hash(probe.hash), &probe.key, location, record);
    }

    pub(crate) fn damaged(&self, candidate: &Candidate) -> StorageError {
        let handle = self.shared.add_handle(candidate.segment);
        StorageError::corrupt(&handle.path, candidate.offset, "not the record that the index points to")
    }
}

/// Why records are not those that candidates stand for.
pub(crate) enum Unfit {
    /// So many bytes have to be read.
    Longer(usize),
    Damaged,
}

/// A stretch of the log to be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) candidate: Candidate,
    pub(crate) len: usize,
}

/// A key that is looked for in one candidate after the other.
pub(crate) struct Probe {
    pub(crate) key: Bytes,
    pub(crate) hash: u128,
    pub(crate) candidates: Candidates,
    /// Candidates that stand for other keys, or cannot be read.
    tried: usize,
    /// The next one's record is longer than its candidate says.
    longer: usize,
    pub(crate) found: Option<Hit>,
    /// What is found may come into the cache.
    pub(crate) caches: bool,
    failed: Option<StorageError>,
}

/// Where a key's record was found.
pub(crate) struct Hit {
    pub(crate) candidate: Candidate,
    pub(crate) location: Location,
    /// What it holds, unless only its place was asked for.
    pub(crate) stored: Option<Stored>,
}

impl Probe {
    pub(crate) fn new(key: Bytes, hash: u128, candidates: Candidates) -> Probe {
        Probe { key, hash, candidates, tried: 0, longer: 0, found: None, caches: true, failed: None }
    }

    /// What to read next; `None` if the record is found, or known not to be there.
    pub(crate) fn wanted(&self) -> Option<Wanted> {
        if self.found.is_some() {
            return None;
        }
        let candidate = self.candidates.get(self.tried)?;
        Some(Wanted { candidate, len: self.longer.max(candidate.len as usize) })
    }

    pub(crate) fn look_at(&mut self, sight: &Sight, read: Result<Bytes, StorageError>) {
        let wanted = self.wanted().expect("it was read");
        let judged = read.and_then(|bytes| {
            let judged = self.judge(sight, wanted, &bytes)?;
            if let (Judged::Hit(hit), true) = (&judged, self.caches) {
                sight.cache(self, hit, &bytes);
            }
            Ok(judged)
        });
        match judged {
            Ok(Judged::Longer(len)) => {
                self.longer = len;
                return;
            }
            Ok(Judged::Hit(hit)) => self.found = Some(hit),
            Ok(Judged::Other) => sight.shared.cache.count_false_read(),
            Err(error) => self.failed = Some(error),
        }
        self.pass(wanted.candidate);
    }

    /// Goes on to the next candidate that is not like this one.
    fn pass(&mut self, done: Candidate) {
        self.longer = 0;
        self.tried += 1;
        let before = |at: usize| (0..at).filter_map(|at| self.candidates.get(at));
        while let Some(next) = self.candidates.get(self.tried) {
            if !next.same_place(&done) && !before(self.tried).any(|other| other.same_place(&next)) {
                break;
            }
            self.tried += 1;
        }
    }

    fn judge(&self, sight: &Sight, wanted: Wanted, bytes: &Bytes) -> Result<Judged, StorageError> {
        let candidate = wanted.candidate;
        let handle = sight.shared.add_handle(candidate.segment);
        let stretch = sight.stretch(wanted, bytes, &handle.seeds);
        let judged = self.judge_stretch(sight, &stretch, bytes);
        match judged {
            Ok(Some((location, stored))) => Ok(Judged::Hit(Hit { candidate, location, stored: Some(stored) })),
            Ok(None) => Ok(Judged::Other),
            Err(Unfit::Longer(len)) => Ok(Judged::Longer(len)),
            Err(Unfit::Damaged) => Err(sight.damaged(&candidate)),
        }
    }

    /// The key's live record, if it is here.
    fn judge_stretch(
        &self,
        sight: &Sight,
        stretch: &Stretch<'_>,
        bytes: &Bytes,
    ) -> Result<Option<(Location, Stored)>, Unfit> {
        let candidate = stretch.candidate;
        let alike = || self.candidates.iter().filter(|other| other.same_place(&candidate));
        let newest = stretch.newest(&self.key).map_err(|Longer(len)| Unfit::Longer(len))?;
        if let Some(item) = newest
            && let Some(stored) = Stored::of(&item.record, |part| bytes.slice_ref(part))
            && candidate.covers(item.location)
            && !sight.graves.contains(&candidate, self.hash)
        {
            if alike().any(|other| other.repeated) {
                sight.check_newest(stretch, &item)?;
            }
            return Ok(Some((item.location, stored)));
        }
        sight.fitting(stretch, self.hash as u64, alike().count())?;
        Ok(None)
    }

    /// Once nothing is wanted. A candidate that could not be read might be the key's: that is not "absent".
    pub(crate) fn outcome(&mut self, shared: &Shared) -> Result<Option<Entry>, StorageError> {
        match (self.found.take(), self.failed.take()) {
            (Some(hit), _) => hit.stored.expect("it was read").into_entry(shared, hit.location).map(Some),
            (None, Some(error)) => Err(error),
            (None, None) => Ok(None),
        }
    }

    pub(crate) fn failed(&self) -> Option<&StorageError> {
        self.failed.as_ref()
    }
}

/// What a stretch tells about a key.
enum Judged {
    Hit(Hit),
    Other,
    Longer(usize),
}

/// Goes on until nothing is wanted.
pub(crate) async fn decide(sight: &Sight, probe: &mut Probe) {
    while !decide_now(sight, probe) {
        let read = read(&sight.shared, probe.wanted().expect("not decided")).await;
        probe.look_at(sight, read);
    }
}

/// Goes on as far as it can without waiting for a device; whether that is until nothing is wanted.
pub(crate) fn decide_now(sight: &Sight, probe: &mut Probe) -> bool {
    while let Some(wanted) = probe.wanted() {
        let Some(read) = try_read(&sight.shared, wanted) else { return false };
        probe.look_at(sight, read);
    }
    // What cannot be read stays in the index: if it was this key's, reads find the newer record first.
    if let Some(error) = probe.failed() {
        tracing::warn!(%error, "could not read a record that may be overwritten");
    }
    true
}

/// The stretch's bytes, if they can be had at once.
pub(crate) fn try_read(shared: &Shared, wanted: Wanted) -> Option<Result<Bytes, StorageError>> {
    let handle = shared.handle(wanted.candidate.segment)?;
    let file = handle.try_file()?;
    let mut bytes = vec![0; wanted.len];
    let read = file.try_read_at(&mut bytes, wanted.candidate.offset)?;
    shared.cache.count_read(wanted.len);
    let read = read.map_err(|error| StorageError::io("read", &handle.path, error));
    Some(read.map(|read| shortened(bytes, read)))
}

pub(crate) async fn read(shared: &Shared, wanted: Wanted) -> Result<Bytes, StorageError> {
    begin_read(shared, wanted).await?.await
}

/// The outer future opens the file and asks the device, the inner one waits for it.
async fn begin_read(
    shared: &Shared,
    wanted: Wanted,
) -> Result<impl Future<Output = Result<Bytes, StorageError>> + Send + use<>, StorageError> {
    let handle = shared.add_handle(wanted.candidate.segment);
    shared.cache.count_read(wanted.len);
    let answer = handle.file().await?.read_at(vec![0; wanted.len], wanted.candidate.offset);
    Ok(async move {
        let (read, bytes) = answer.await;
        let read = read.map_err(|error| StorageError::io("read", &handle.path, error))?;
        Ok(shortened(bytes, read))
    })
}

fn shortened(mut bytes: Vec<u8>, len: usize) -> Bytes {
    bytes.truncate(len);
    bytes.into()
}
