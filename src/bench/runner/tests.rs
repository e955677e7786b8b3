//! The runner against a store in memory that can be made slow, forgetful and wrong.

use super::super::generator::{Length, Shape};
use super::super::workload::{Distribution, Mix};
use super::*;
use env::Instant;
use std::collections::BTreeMap;
use std::sync::Mutex;

struct Memory {
    env: Env,
    born: Instant,
    records: Mutex<BTreeMap<Bytes, Bytes>>,
    trouble: Trouble,
}

#[derive(Clone, Copy, Default)]
struct Trouble {
    /// No answer within this window of the store's life; then all at once.
    stall: Option<(Duration, Duration)>,
    /// Acknowledges the write of this record and forgets it.
    forgets: Option<u64>,
    /// Answers this record's key with another's record.
    confuses: Option<u64>,
    /// Refuses every write of this record.
    refuses: Option<u64>,
}

impl Memory {
    async fn answer(&self) {
        self.env.sleep(Duration::from_millis(1)).await;
        let age = self.env.now().since(self.born);
        if let Some((from, until)) = self.trouble.stall
            && (from..until).contains(&age)
        {
            self.env.sleep(until - age).await;
        }
    }

    fn is(number: Option<u64>, name: &Bytes) -> bool {
        number.is_some_and(|number| key(number) == *name)
    }
}

impl Target for Memory {
    fn read(&self, name: Bytes) -> BoxFuture<'_, Result<Option<Bytes>, Failure>> {
        Box::pin(async move {
            self.answer().await;
            let name = if Memory::is(self.trouble.confuses, &name) { key(0) } else { name };
            Ok(self.records.lock().unwrap().get(&name).cloned())
        })
    }

    fn put(&self, name: Bytes, record: Bytes) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(async move {
            self.answer().await;
            if Memory::is(self.trouble.refuses, &name) {
                return Err(Failure::Unavailable);
            }
            if !Memory::is(self.trouble.forgets, &name) {
                self.records.lock().unwrap().insert(name, record);
            }
            Ok(())
        })
    }
}

fn workload(mix: Mix) -> Workload {
    let shape = Shape { fields: 2, length: Length::Constant(20) };
    Workload { records: 40, mix, shape, distribution: Distribution::Uniform, ..Workload::named("a").unwrap() }
}

fn mixed() -> Workload {
    workload(Mix { read: 40, update: 20, insert: 20, read_modify_write: 20 })
}

const OPTIONS: Options = Options { workers: 4, per_second: None, operations: 500, duration: None, seed: 9 };

struct Outcome {
    load: Report,
    loaded: Loaded,
    run: Report,
    records: usize,
}

fn run(workload: Workload, trouble: Trouble, options: Options) -> Outcome {
    env::sim::single(1, move |env| async move {
        let memory = Arc::new(Memory { env: env.clone(), born: env.now(), records: Mutex::default(), trouble });
        let runner = Runner::new(env, memory.clone(), workload);
        let load = runner.load(&Options { per_second: None, ..options.clone() }).await.unwrap();
        let loaded = runner.verify(&options).await.unwrap();
        let run = runner.run(&options).await.unwrap();
        let records = memory.records.lock().unwrap().len();
        Outcome { load, loaded, run, records }
    })
}

#[test]
fn a_sound_store_fails_nothing() {
    for batch_records in [1, 7] {
        let workload = Workload { batch_records, ..mixed() };
        let Outcome { load, loaded, run, records } = run(workload, Trouble::default(), OPTIONS);
        assert_eq!((load.records(), load.failures()), (40, 0));
        assert_eq!(loaded, Loaded { expected: 40, found: 40, examples: vec![] });
        assert_eq!((run.operations(), run.failures()), (500, 0), "{}", run.ycsb());
        assert_eq!(run.records(), 500 * batch_records);
        let inserted = run.count(Kind::Insert, Status::Ok) * batch_records;
        assert!(inserted > 0);
        assert_eq!(records as u64, 40 + inserted);
    }
}

#[test]
fn a_lost_record_is_found_after_the_load() {
    let trouble = Trouble { forgets: Some(17), ..Trouble::default() };
    let Outcome { load, loaded, run, .. } = run(mixed(), trouble, OPTIONS);
    assert_eq!(load.failures(), 0, "the store lied");
    assert_eq!(loaded, Loaded { expected: 40, found: 39, examples: vec![key_name(17)] });
    assert!(run.count(Kind::Read, Status::NotFound) > 0);
}

#[test]
fn a_wrong_record_is_no_success() {
    let trouble = Trouble { confuses: Some(17), ..Trouble::default() };
    let Outcome { loaded, run, .. } = run(mixed(), trouble, OPTIONS);
    assert!(!loaded.is_complete());
    assert!(run.count(Kind::Read, Status::Unexpected) > 0);
}

#[test]
fn a_refused_write_is_counted() {
    let trouble = Trouble { refuses: Some(17), ..Trouble::default() };
    let Outcome { load, loaded, .. } = run(mixed(), trouble, OPTIONS);
    assert_eq!(load.count(Kind::Insert, Status::Unavailable), 1);
    assert_eq!(loaded.found, 39);
}

/// A store that stands still for five of sixty seconds: of the operations intended meanwhile hardly one is started, and
/// all of them are late.
#[test]
fn a_stall_shows_in_the_percentiles_of_a_paced_run() {
    let stall = Some((Duration::from_secs(20), Duration::from_secs(25)));
    let trouble = Trouble { stall, ..Trouble::default() };
    let reads = workload(Mix { read: 100, ..Mix::default() });
    let options = Options { per_second: Some(200.0), operations: 12_000, ..OPTIONS };
    let paced = run(reads.clone(), trouble, options).run;
    assert!(paced.latency(Kind::Read, 99.9).unwrap() > Duration::from_millis(4900));
    assert!(paced.latency(Kind::Read, 95.0).unwrap() > Duration::from_secs(1));
    assert!(paced.latency(Kind::Read, 50.0).unwrap() < Duration::from_millis(5));

    // As many closed-loop operations see it in no percentile: this is what pacing is for.
    let unpaced = run(reads, trouble, Options { operations: 100_000, ..OPTIONS }).run;
    assert!(unpaced.runtime > Duration::from_secs(25), "the stall was in the run");
    assert!(unpaced.latency(Kind::Read, 99.9).unwrap() < Duration::from_millis(5));
}

#[test]
fn a_run_ends_with_its_time() {
    let options = Options { operations: u64::MAX, duration: Some(Duration::from_secs(2)), ..OPTIONS };
    let runtime = run(mixed(), Trouble::default(), options).run.runtime;
    assert!((Duration::from_secs(2)..Duration::from_millis(2100)).contains(&runtime), "{runtime:?}");
}

#[test]
fn one_seed_gives_one_run() {
    let once = run(mixed(), Trouble::default(), OPTIONS).run.json();
    assert_eq!(once, run(mixed(), Trouble::default(), OPTIONS).run.json());
    let other = run(mixed(), Trouble::default(), Options { seed: 10, ..OPTIONS }).run.json();
    assert_ne!(once, other);
}
