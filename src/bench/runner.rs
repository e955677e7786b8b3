//! Drives a workload against a store: load, verify, run.
//!
//! The life of one operation: a worker takes a slot from the [`Pace`] and waits for its intended start, draws the kind and
//! the record, asks the [`Target`], verifies what came back, and records how long that took since the intended start.
//! Nothing is retried here: what the target answers is what is counted.

use super::generator::{self, Chooser, Inserted, Random, key_name};
use super::limits::{MISSING_SHOWN_MAX, VERIFY_BATCH_RECORDS, WORKERS_MAX};
use super::pace::Pace;
use super::report::{Kind, Report, Status};
use super::workload::Workload;
use bytes::Bytes;
use env::{BoxFuture, Env, TaskGone};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A store under test. Keys are text, a record is one value.
pub trait Target: Send + Sync + 'static {
    fn read(&self, key: Bytes) -> BoxFuture<'_, Result<Option<Bytes>, Failure>>;
    /// Writes a whole record, new or not.
    fn put(&self, key: Bytes, record: Bytes) -> BoxFuture<'_, Result<(), Failure>>;

    /// The records of `keys`, in their order.
    fn read_batch(&self, keys: Vec<Bytes>) -> BoxFuture<'_, Result<Vec<Option<Bytes>>, Failure>> {
        Box::pin(async move {
            let mut records = Vec::with_capacity(keys.len());
            for key in keys {
                records.push(self.read(key).await?);
            }
            Ok(records)
        })
    }

    fn put_batch(&self, records: Vec<(Bytes, Bytes)>) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(async move {
            for (key, record) in records {
                self.put(key, record).await?;
            }
            Ok(())
        })
    }

    /// Replaces one field of a record and leaves the others; false if there is no record. A store that can do this in one
    /// step does; otherwise it takes a read and a write, as in YCSB's bindings of plain key-value stores.
    fn update(&self, key: Bytes, place: u32, field: Bytes) -> BoxFuture<'_, Result<bool, Failure>> {
        Box::pin(async move {
            let Some(record) = self.read(key.clone()).await? else { return Ok(false) };
            let Some(updated) = generator::replace(&record, place, &field) else { return Ok(false) };
            self.put(key, updated.into()).await?;
            Ok(true)
        })
    }

    /// How many records there are, where the store can say that cheaply and nothing else is in it.
    fn count(&self) -> BoxFuture<'_, Result<Option<u64>, Failure>> {
        Box::pin(async { Ok(None) })
    }
}

/// Why a target did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    #[error("unavailable")]
    Unavailable,
    #[error("it may have been done or not")]
    Unknown,
    #[error("{0}")]
    Other(String),
}

#[derive(Clone, Debug)]
pub struct Options {
    /// Operations under way at once.
    pub workers: usize,
    /// Operations a second over all workers; as fast as they can without.
    pub per_second: Option<f64>,
    pub operations: u64,
    pub duration: Option<Duration>,
    pub seed: u64,
}

/// What is there after a load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    pub expected: u64,
    pub found: u64,
    /// Names of some records that are missing or wrong.
    pub examples: Vec<String>,
}

impl Loaded {
    pub fn is_complete(&self) -> bool {
        self.found == self.expected
    }
}

/// A workload and the store it is run against.
pub struct Runner {
    env: Env,
    target: Arc<dyn Target>,
    workload: Arc<Workload>,
    /// Operations that have ended, for who watches.
    ended: Arc<AtomicU64>,
}

impl Runner {
    /// # Panics
    /// If the workload is not valid ([`Workload::validate`]).
    pub fn new(env: Env, target: Arc<dyn Target>, workload: Workload) -> Runner {
        workload.validate().expect("validated before");
        Runner { env, target, workload: Arc::new(workload), ended: Arc::default() }
    }

    /// Inserts all records, each once, in the order of their numbers. `options` say how fast. An error means that a worker
    /// was lost and with it what it saw: there is no report without it.
    pub async fn load(&self, options: &Options) -> Result<Report, TaskGone> {
        let batches = self.workload.records.div_ceil(self.workload.batch_records);
        let pace = Pace::new(self.env.now(), options.per_second, batches, None);
        self.drive(options, pace, Inserted::new(0), Phase::Load).await
    }

    /// Counts the records of a load: by the store's own count, or by reading and verifying every one.
    pub async fn verify(&self, options: &Options) -> Result<Loaded, Failure> {
        let expected = self.workload.records;
        if let Some(found) = self.target.count().await? {
            return Ok(Loaded { expected, found, examples: Vec::new() });
        }
        let batches = expected.div_ceil(VERIFY_BATCH_RECORDS);
        let pace = Arc::new(Pace::new(self.env.now(), None, batches, None));
        let tasks: Vec<_> = (0..workers(options))
            .map(|_| {
                let (env, pace) = (self.env.clone(), pace.clone());
                let (target, workload) = (self.target.clone(), self.workload.clone());
                self.env.spawn("bench verify", async move { verify_batches(&env, &pace, &*target, &workload).await })
            })
            .collect();
        let mut loaded = Loaded { expected, found: 0, examples: Vec::new() };
        for task in tasks {
            let part = task.await.map_err(|gone| Failure::Other(gone.to_string()))??;
            loaded.found += part.found;
            loaded.examples.extend(part.examples);
        }
        loaded.examples.sort();
        loaded.examples.truncate(MISSING_SHOWN_MAX);
        Ok(loaded)
    }

    /// Runs the workload's operations over the loaded records.
    pub async fn run(&self, options: &Options) -> Result<Report, TaskGone> {
        let pace = Pace::new(self.env.now(), options.per_second, options.operations, options.duration);
        self.drive(options, pace, Inserted::new(self.workload.records), Phase::Run).await
    }

    /// Operations that have ended so far, well or not, in the load and the run together.
    pub fn ended(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }

    async fn drive(&self, options: &Options, pace: Pace, inserted: Inserted, phase: Phase) -> Result<Report, TaskGone> {
        let start = self.env.now();
        let (pace, inserted) = (Arc::new(pace), Arc::new(inserted));
        let tasks: Vec<_> = (0..workers(options))
            .map(|at| {
                let worker = Worker {
                    env: self.env.clone(),
                    target: self.target.clone(),
                    workload: self.workload.clone(),
                    chooser: self.workload.chooser(),
                    inserted: inserted.clone(),
                    ended: self.ended.clone(),
                    random: Random::new(options.seed, at as u64),
                };
                self.env.spawn("bench worker", worker.work(pace.clone(), phase))
            })
            .collect();
        let mut report = Report::default();
        for task in tasks {
            report.merge(&task.await?);
        }
        report.runtime = self.env.now().since(start);
        Ok(report)
    }
}

fn workers(options: &Options) -> usize {
    options.workers.clamp(1, WORKERS_MAX)
}

#[derive(Clone, Copy)]
enum Phase {
    Load,
    Run,
}

struct Worker {
    env: Env,
    target: Arc<dyn Target>,
    workload: Arc<Workload>,
    chooser: Chooser,
    inserted: Arc<Inserted>,
    ended: Arc<AtomicU64>,
    random: Random,
}

impl Worker {
    async fn work(mut self, pace: Arc<Pace>, phase: Phase) -> Report {
        let mut report = Report::default();
        while let Some(slot) = pace.take(self.env.now()) {
            if let Some(intended) = slot.intended {
                self.wait_until(intended).await;
            }
            let begun = slot.intended.unwrap_or_else(|| self.env.now());
            let (kind, numbers) = self.plan(phase, slot.number);
            let count = numbers.len() as u64;
            let status = match self.carry_out(kind, &numbers).await {
                Ok(status) => status,
                Err(Failure::Unavailable) => Status::Unavailable,
                Err(Failure::Unknown) => Status::Unknown,
                Err(Failure::Other(message)) => {
                    tracing::debug!(kind = kind.name(), message, "operation failed");
                    Status::Error
                }
            };
            if kind == Kind::Insert {
                numbers.iter().for_each(|number| self.inserted.settle(*number));
            }
            report.record(kind, status, count, self.env.now().since(begun));
            self.ended.fetch_add(1, Ordering::Relaxed);
        }
        report
    }

    async fn wait_until(&self, intended: env::Instant) {
        let ahead = intended.since(self.env.now());
        if ahead > Duration::ZERO {
            self.env.sleep(ahead).await;
        }
    }

    /// What to do in a slot, and the numbers of the records it is about.
    fn plan(&mut self, phase: Phase, slot: u64) -> (Kind, Vec<u64>) {
        let batch = self.workload.batch_records;
        let kind = match phase {
            Phase::Load => {
                let first = slot * batch;
                return (Kind::Insert, (first..(first + batch).min(self.workload.records)).collect());
            }
            Phase::Run => self.workload.mix.choose(&mut self.random),
        };
        if kind == Kind::Insert {
            let first = self.inserted.take(batch);
            return (kind, (first..first + batch).collect());
        }
        let count = self.inserted.count();
        (kind, (0..batch).map(|_| self.chooser.choose(count, &mut self.random)).collect())
    }

    async fn carry_out(&mut self, kind: Kind, numbers: &[u64]) -> Result<Status, Failure> {
        match (kind, numbers) {
            (Kind::Read, [number]) => {
                let record = self.target.read(key(*number)).await?;
                Ok(self.judge(*number, record.as_deref()))
            }
            (Kind::Read, _) => self.read_batch(numbers).await,
            (Kind::Update, [number]) => self.update(*number).await,
            (Kind::Update | Kind::Insert, _) => self.put(numbers).await,
            (Kind::ReadModifyWrite, [number]) => {
                let record = self.target.read(key(*number)).await?;
                match self.judge(*number, record.as_deref()) {
                    Status::Ok => self.update(*number).await,
                    wrong => Ok(wrong),
                }
            }
            (Kind::ReadModifyWrite, _) => match self.read_batch(numbers).await? {
                Status::Ok => self.put(numbers).await,
                wrong => Ok(wrong),
            },
        }
    }

    async fn read_batch(&self, numbers: &[u64]) -> Result<Status, Failure> {
        let records = self.target.read_batch(numbers.iter().copied().map(key).collect()).await?;
        if records.len() != numbers.len() {
            return Ok(Status::Unexpected);
        }
        let statuses = numbers.iter().zip(&records).map(|(number, record)| self.judge(*number, record.as_deref()));
        Ok(statuses.max().unwrap_or(Status::Ok))
    }

    async fn put(&mut self, numbers: &[u64]) -> Result<Status, Failure> {
        let write = self.random.draw();
        let record = |number: u64| (key(number), Bytes::from(self.workload.shape.record(number, write)));
        match numbers {
            [number] => {
                let (key, record) = record(*number);
                self.target.put(key, record).await?;
            }
            _ => self.target.put_batch(numbers.iter().copied().map(record).collect()).await?,
        }
        Ok(Status::Ok)
    }

    /// Writes one field, any; a record of one field is written whole.
    async fn update(&mut self, number: u64) -> Result<Status, Failure> {
        let shape = self.workload.shape;
        if shape.fields == 1 {
            return self.put(&[number]).await;
        }
        let place = self.random.below(u64::from(shape.fields)) as u32;
        let field = shape.field(number, place, self.random.draw());
        let is_there = self.target.update(key(number), place, field.into()).await?;
        Ok(if is_there { Status::Ok } else { Status::NotFound })
    }

    fn judge(&self, number: u64, record: Option<&[u8]>) -> Status {
        judge(&self.workload, number, record)
    }
}

fn key(number: u64) -> Bytes {
    key_name(number).into()
}

fn judge(workload: &Workload, number: u64, record: Option<&[u8]>) -> Status {
    match record {
        None => Status::NotFound,
        Some(record) if workload.shape.verify(number, record) => Status::Ok,
        Some(_) => Status::Unexpected,
    }
}

async fn verify_batches(env: &Env, pace: &Pace, target: &dyn Target, workload: &Workload) -> Result<Loaded, Failure> {
    let mut loaded = Loaded { expected: 0, found: 0, examples: Vec::new() };
    while let Some(slot) = pace.take(env.now()) {
        let first = slot.number * VERIFY_BATCH_RECORDS;
        let numbers: Vec<u64> = (first..(first + VERIFY_BATCH_RECORDS).min(workload.records)).collect();
        let records = target.read_batch(numbers.iter().copied().map(key).collect()).await?;
        for (at, number) in numbers.iter().enumerate() {
            let record = records.get(at).and_then(Option::as_deref);
            match judge(workload, *number, record) {
                Status::Ok => loaded.found += 1,
                _ if loaded.examples.len() < MISSING_SHOWN_MAX => loaded.examples.push(key_name(*number)),
                _ => {}
            }
        }
    }
    Ok(loaded)
}

#[cfg(test)]
mod tests;
