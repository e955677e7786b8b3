//! What the clients of a run do: operations on few keys, so that they meet, each written down with its true times.

use crate::cluster::{CALL_TIME, client_options};
use crate::plan::Workload;
use crate::watch::TrueTime;
use bytes::Bytes;
use env::Env;
use env::sim::{Dice, stream};
use model::{Action, Answer, History, Operation, Outcome};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use steadfast::client::{Client, ClientError, Compared, Table, WriteError};

/// What the clients of a run share with its harness.
#[derive(Clone)]
pub struct Record {
    pub time: TrueTime,
    /// Length of a step: an answer may have come at any moment of the step in which it was seen.
    pub step: Duration,
    operations: Arc<Mutex<Vec<Operation>>>,
    stop: Arc<AtomicBool>,
    running: Arc<AtomicU64>,
    done: Arc<AtomicU64>,
}

impl Record {
    pub fn new(time: TrueTime, step: Duration) -> Record {
        Record {
            time,
            step,
            operations: Arc::default(),
            stop: Arc::default(),
            running: Arc::default(),
            done: Arc::default(),
        }
    }

    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    pub fn running(&self) -> u64 {
        self.running.load(Ordering::Relaxed)
    }

    /// Operations that were done, so far.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    pub fn history(&self) -> History {
        History::from_operations(self.operations.lock().expect("nobody panics with it").clone())
    }

    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Writes one operation down, once it is known what became of it.
    fn keep(&self, client: u64, key: &[u8], call_ns: u64, action: Action, outcome: Outcome) {
        if matches!(outcome, Outcome::Done(_)) {
            self.done.fetch_add(1, Ordering::Relaxed);
        }
        let return_ns = self.time.ns() + self.step.as_nanos() as u64;
        let return_ns = (outcome != Outcome::Unknown).then_some(return_ns);
        let key = key.to_vec();
        let operation = Operation { client, key, call_ns, return_ns, action, outcome, version: None };
        self.operations.lock().expect("nobody panics with it").push(operation);
    }
}

pub const TABLE: &str = "sim:table";

pub struct ClientTask {
    pub number: u64,
    pub seed: u64,
    pub seeds: Vec<String>,
    pub workload: Workload,
    pub record: Record,
}

impl ClientTask {
    /// Works until told to stop.
    pub async fn run(self, env: Env) -> std::io::Result<()> {
        self.record.running.fetch_add(1, Ordering::Relaxed);
        let options = client_options(Duration::from_millis(self.workload.deadline_ms));
        let client = Client::connect(env.clone(), self.seeds.clone(), options);
        let table = client.table(TABLE.parse().map_err(std::io::Error::other)?);
        let mut dice = stream(self.seed, &format!("client/{}", self.number));
        let mut serial = 0;
        if self.number == self.workload.clients {
            for place in 0..self.workload.cold_keys {
                self.put(&table, &cold(place), vec![b'c'; COLD_BYTES]).await;
            }
        }
        while !self.record.is_stopped() {
            serial += 1;
            self.operate(&table, serial, &mut dice).await;
            let pause = dice.below(self.workload.pause_ms_max + 1);
            env.sleep(Duration::from_millis(pause)).await;
        }
        self.record.running.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }

    /// A value that nobody else ever writes.
    fn value(&self, serial: u64, dice: &mut Dice) -> Vec<u8> {
        let mut value = format!("{}.{serial}.", self.number).into_bytes();
        let len = dice.below(self.workload.value_bytes_max + 1) as usize;
        value.resize(value.len().max(len), b'x');
        value
    }

    async fn operate(&self, table: &Table, serial: u64, dice: &mut Dice) {
        let place = dice.below(self.workload.keys);
        if self.number <= self.workload.readers {
            return self.read_only(table, place, dice).await;
        }
        let deletes = 65 - self.workload.deletes;
        match dice.below(100) {
            0..35 => self.get(table, &plain(place)).await,
            drawn @ 35..65 if drawn < deletes => self.put(table, &plain(place), self.value(serial, dice)).await,
            35..65 => self.delete(table, &plain(place)).await,
            65..72 => self.compare_and_set(table, &plain(place), self.value(serial, dice)).await,
            72..87 => self.increment(table, &counter(place), dice.between(1, 3) as i64).await,
            87..89 => self.get(table, &counter(place)).await,
            89..92 => self.append(table, &text(place), format!("{}.{serial};", self.number).into_bytes()).await,
            92..93 => self.get(table, &text(place)).await,
            93..96 => self.batch_put(table, serial, dice).await,
            _ => self.batch_get(table, dice).await,
        }
    }

    async fn read_only(&self, table: &Table, place: u64, dice: &mut Dice) {
        match dice.below(100) {
            0..60 => self.get(table, &plain(place)).await,
            60..80 => self.get(table, &counter(place)).await,
            80..90 => self.get(table, &text(place)).await,
            _ => self.batch_get(table, dice).await,
        }
    }

    async fn get(&self, table: &Table, key: &[u8]) {
        let call = self.record.time.ns();
        let result = table.get(key.to_vec()).await;
        self.record.keep(self.number, key, call, Action::Get, read(result));
    }

    async fn put(&self, table: &Table, key: &[u8], value: Vec<u8>) {
        let call = self.record.time.ns();
        let result = table.put(key.to_vec(), value.clone()).await;
        self.record.keep(self.number, key, call, Action::Put(value), written(result, |()| Answer::Written));
    }

    async fn delete(&self, table: &Table, key: &[u8]) {
        let call = self.record.time.ns();
        let result = table.delete(key.to_vec()).await;
        self.record.keep(self.number, key, call, Action::Delete, written(result, Answer::Deleted));
    }

    /// Sets on top of what it reads first.
    async fn compare_and_set(&self, table: &Table, key: &[u8], new: Vec<u8>) {
        let Ok(expected) = table.get(key.to_vec()).await else { return };
        let call = self.record.time.ns();
        let result = table.compare_and_set(key.to_vec(), expected.clone(), Some(new.clone().into())).await;
        let action = Action::CompareAndSet { expected: expected.map(|value| value.to_vec()), new };
        let outcome = written(result, |compared| Answer::Swapped(compared == Compared::Set));
        self.record.keep(self.number, key, call, action, outcome);
    }

    async fn increment(&self, table: &Table, key: &[u8], delta: i64) {
        let call = self.record.time.ns();
        let result = table.increment(key.to_vec(), delta).await;
        self.record.keep(self.number, key, call, Action::Increment(delta), written(result, Answer::Number));
    }

    async fn append(&self, table: &Table, key: &[u8], suffix: Vec<u8>) {
        let call = self.record.time.ns();
        let result = table.append(key.to_vec(), suffix.clone()).await;
        self.record.keep(self.number, key, call, Action::Append(suffix), written(result, Answer::Length));
    }

    async fn batch_put(&self, table: &Table, serial: u64, dice: &mut Dice) {
        let places = 0..self.workload.keys.min(3);
        let records: Vec<(Vec<u8>, Vec<u8>)> =
            places.map(|place| (plain(place), [self.value(serial, dice), vec![b'a' + place as u8]].concat())).collect();
        let call = self.record.time.ns();
        let batch = records.iter().map(|(key, value)| (key.clone().into(), value.clone().into())).collect();
        let results = table.batch_put(batch).await;
        for ((key, value), result) in records.into_iter().zip(results) {
            let outcome = written(result, |()| Answer::Written);
            self.record.keep(self.number, &key, call, Action::Put(value), outcome);
        }
    }

    async fn batch_get(&self, table: &Table, dice: &mut Dice) {
        let from = dice.below(self.workload.keys);
        let keys: Vec<Bytes> = (from..self.workload.keys).map(|place| plain(place).into()).collect();
        let call = self.record.time.ns();
        let Ok(values) = table.batch_get(keys.clone()).await else { return };
        for (key, value) in keys.into_iter().zip(values) {
            self.record.keep(self.number, &key, call, Action::Get, read(Ok(value)));
        }
    }
}

/// Reads every key that the workload may have written, until each has answered once. What it reads is part of the
/// history, so that what is missing shows.
pub async fn read_all(env: Env, seeds: Vec<String>, workload: Workload, record: Record) -> std::io::Result<()> {
    record.running.fetch_add(1, Ordering::Relaxed);
    let client = Client::connect(env.clone(), seeds, client_options(CALL_TIME));
    let table = client.table(TABLE.parse().map_err(std::io::Error::other)?);
    let warm = (0..workload.keys).flat_map(|place| [plain(place), counter(place), text(place)]);
    for key in warm.chain((0..workload.cold_keys).map(cold)) {
        loop {
            let call = record.time.ns();
            let result = table.get(key.clone()).await;
            if result.is_ok() {
                record.keep(READER, &key, call, Action::Get, read(result));
                break;
            }
            env.sleep(Duration::from_millis(100)).await;
        }
    }
    record.running.fetch_sub(1, Ordering::Relaxed);
    Ok(())
}

const READER: u64 = 1_000_000;

/// Names are spread over the alphabet, and so over the regions.
fn letter(place: u64, stride: u64) -> char {
    (b'a' + (place * stride % 26) as u8) as char
}

fn plain(place: u64) -> Vec<u8> {
    format!("{}-key-{place}", letter(place, 37)).into_bytes()
}

fn cold(place: u64) -> Vec<u8> {
    format!("{}-cold-{place}", letter(place, 29)).into_bytes()
}

/// Of the values that stay: segments among them are mostly live, whatever else came while they were written.
const COLD_BYTES: usize = 1500;

fn counter(place: u64) -> Vec<u8> {
    format!("{}-counter-{place}", letter(place, 53)).into_bytes()
}

fn text(place: u64) -> Vec<u8> {
    format!("{}-text-{place}", letter(place, 71)).into_bytes()
}

/// What came of a read.
pub fn read(result: Result<Option<Bytes>, ClientError>) -> Outcome {
    match result {
        Ok(value) => Outcome::Done(Answer::Value(value.map(|value| value.to_vec()))),
        Err(_) => Outcome::NotDone,
    }
}

/// What came of a write.
pub fn written<T>(result: Result<T, WriteError>, answer: impl FnOnce(T) -> Answer) -> Outcome {
    match result {
        Ok(value) => Outcome::Done(answer(value)),
        Err(WriteError::Unknown(_)) => Outcome::Unknown,
        Err(WriteError::NotDone(_)) => Outcome::NotDone,
    }
}
